"""The engine of all directions at once, which GPUs run, against the reference."""

import pytest
import torch
from drawn_layers import draw_layers
from hypothesis import given, settings
from hypothesis import strategies as st

from elmokit.engines import Clips, LstmState, batched, choose_engine
from elmokit.engines.batched import BatchedEngine
from elmokit.engines.reference import run_lstm
from elmokit.errors import ConfigError
from elmokit.model.packing import Packing

CPU = torch.device("cpu")


@settings(max_examples=80)
@given(
    seed=st.integers(0, 10_000),
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=6).map(lambda n: sorted(n)[::-1]),
    directions=st.integers(1, 2),
    width=st.sampled_from([1, 3, 16]),
    cells=st.sampled_from([1, 5, 33]),
    projection=st.booleans(),
    cell_clip=st.sampled_from([None, 0.3, 3.0]),
    projection_clip=st.sampled_from([None, 0.2, 3.0]),
    forget_bias=st.sampled_from([0.0, 1.0]),
    ahead=st.sampled_from([1, 4, 1000]),
)
def test_it_computes_what_the_reference_computes(
    seed,
    lengths,
    directions,
    width,
    cells,
    projection,
    cell_clip,
    projection_clip,
    forget_bias,
    ahead,
):
    draw, out, layers = draw_layers(
        seed, directions, width=width, cells=cells, projection=projection
    )
    packing = Packing(lengths, CPU)
    x = draw(directions, sum(lengths), width)
    rows = len(lengths)
    state = LstmState(draw(directions, rows, cells), draw(directions, rows, out))
    clips = Clips(cell_clip, projection_clip)
    with torch.no_grad(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(batched, "AHEAD_TOKENS", ahead)
        engine = BatchedEngine(layers, clips, forget_bias, torch.float32)
        before = [part.clone() for part in state]
        outputs, ends = engine.run(x, packing, state)
    for part, kept in zip(state, before, strict=True):
        assert torch.equal(part, kept)
    for d, one in enumerate(layers):
        start = LstmState(state.cell[d], state.hidden[d])
        want, want_end = run_lstm(x[d], packing.batch_sizes, start, one, clips, forget_bias)
        torch.testing.assert_close(outputs[d], want, rtol=1e-5, atol=1e-5)
        found_end = ends.cell[d], ends.hidden[d]
        torch.testing.assert_close(found_end, tuple(want_end), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float8"])
def test_choice_for_a_gpu(grad, precision):
    with torch.set_grad_enabled(grad):
        plan = choose_engine(torch.device("cuda"), precision=precision)
    assert plan.engine == ("reference" if grad else "batched")
    kind = torch.float32 if precision == "float32" else torch.bfloat16
    assert plan.dtype == (None if grad else kind)
    assert plan.float8 == (precision == "float8" and not grad)
    assert plan.rows is None
    assert not plan.prepacked
    assert not plan.split_threads
    assert plan.asynchronous
    windows = choose_engine(torch.device("cuda"), windows=True)
    assert (windows.engine, windows.dtype) == ("train", None)


def test_layers_that_no_kernel_fits_are_refused_in_float8():
    _, _, layers = draw_layers(0, 2, width=16, cells=32, projection=True)
    with pytest.raises(ConfigError, match=r"float8.*multiples of 128"):
        BatchedEngine(layers, Clips(3.0, 3.0), 1.0, torch.bfloat16, float8=True)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("float8", [False, True])
@pytest.mark.parametrize("width", [256, 512])
@pytest.mark.parametrize("clip", [None, 0.3])
@pytest.mark.parametrize("lengths", [[3], [5, 5, 2], [4] * 1500 + [2] * 700])
def test_a_gpu_is_near_the_reference_in_fewer_bits(float8, width, clip, lengths):
    cells = 256
    draw, _, layers = draw_layers(1, 2, width=width, cells=cells, projection=True)
    clips, rows = Clips(clip, clip), len(lengths)
    packing = Packing(lengths, CPU)
    x = draw(2, sum(lengths), width)
    state = LstmState(draw(2, rows, cells), draw(2, rows, width))
    on_gpu = [type(one)(*(part.cuda() for part in one)) for one in layers]
    with torch.no_grad():
        engine = BatchedEngine(on_gpu, clips, 1.0, torch.bfloat16, float8=float8)
        start = LstmState(*(part.cuda() for part in state))
        outputs, ends = engine.run(
            x.cuda().bfloat16(), Packing(lengths, torch.device("cuda")), start
        )
        for d, one in enumerate(layers):
            begin = LstmState(state.cell[d], state.hidden[d])
            want, end = run_lstm(x[d], packing.batch_sizes, begin, one, clips, 1.0)
            found = outputs[d], ends.cell[d], ends.hidden[d]
            for a, b in zip(found, (want, *end), strict=True):
                error = float((a.float().cpu() - b).norm() / b.norm())
                assert error < (0.2 if float8 else 0.02)
