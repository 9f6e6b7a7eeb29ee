"""The engine for one sentence alone against the reference engine."""

import torch
from drawn_layers import draw_layers
from hypothesis import given, settings
from hypothesis import strategies as st

import elmokit
from elmokit.config import LstmConfig
from elmokit.kernels import Clips, LstmState, run_lstm
from elmokit.kernels.one_row import AHEAD_STEPS, MOST_NUMBERS, OneRowWeights, run_one_row
from elmokit.kernels.slots import PackedWeights
from elmokit.model import bilstm
from elmokit.model.bilstm import BiLstm
from elmokit.model.packing import Packing

CLOSE = {"rtol": 1e-5, "atol": 1e-5}


@settings(max_examples=40)
@given(
    seed=st.integers(0, 10_000),
    steps=st.sampled_from([1, 2, 17, AHEAD_STEPS, AHEAD_STEPS + 1, 2 * AHEAD_STEPS + 3]),
    directions=st.integers(1, 2),
    width=st.sampled_from([1, 3, 16]),
    cells=st.sampled_from([1, 5, 33]),
    projection=st.booleans(),
    cell_clip=st.sampled_from([None, 0.3, 3.0]),
    projection_clip=st.sampled_from([None, 0.2, 3.0]),
    forget_bias=st.sampled_from([0.0, 1.0]),
)
def test_one_row_computes_what_the_reference_computes(
    seed, steps, directions, width, cells, projection, cell_clip, projection_clip, forget_bias
):
    draw, out, layers = draw_layers(
        seed, directions, width=width, cells=cells, projection=projection
    )
    inputs = [draw(steps, width) for _ in layers]
    state = [LstmState(draw(1, cells), draw(1, out)) for _ in layers]
    clips = Clips(cell_clip, projection_clip)
    packed = [PackedWeights(one, forget_bias, "float32") for one in layers]
    with torch.no_grad():
        found = run_one_row(inputs, state, OneRowWeights(layers, packed), clips)
    for (outputs, end), x, start, weights in zip(found, inputs, state, layers, strict=True):
        want, want_end = run_lstm(x, [1] * steps, start, weights, clips, forget_bias)
        torch.testing.assert_close(outputs, want, **CLOSE)
        torch.testing.assert_close(tuple(end), tuple(want_end), **CLOSE)


def test_it_serves_one_sentence_of_a_small_exact_model(monkeypatch):
    used = []
    monkeypatch.setattr(
        bilstm, "run_one_row", lambda *args: used.append(True) or run_one_row(*args)
    )
    elmo = elmokit.load("test-tiny")
    alone = elmo.encode([["one", "sentence"]], layers="all")[0]
    assert used
    used.clear()
    among = elmo.encode([["one", "sentence"], ["another"]], layers="all")[0]
    assert not used
    torch.testing.assert_close(torch.tensor(alone), torch.tensor(among), rtol=1e-6, atol=1e-6)


def test_large_matrices_are_not_kept_twice():
    width = 64
    cells = MOST_NUMBERS // (4 * width)
    for more, pays in ((0, True), (1, False)):
        with torch.device("meta"):
            lstm = BiLstm(LstmConfig(layers=1, cells=cells + more, width=width))
        assert lstm._one_row_pays(Packing([3], torch.device("cpu"))) is pays
