"""The engine of inference on GPUs, run on a CPU, against the reference engine."""

import pytest
import torch
from drawn_layers import draw_layers
from hypothesis import given, settings
from hypothesis import strategies as st

from elmokit.engines import Clips, LstmState, run_lstm, stacked
from elmokit.engines.stacked import StackedWeights, run_stacked
from elmokit.model.packing import Packing


@settings(max_examples=40)
@given(
    seed=st.integers(0, 10_000),
    batch_sizes=st.lists(st.integers(1, 6), min_size=1, max_size=9).map(
        lambda sizes: sorted(sizes, reverse=True)
    ),
    directions=st.integers(1, 2),
    width=st.sampled_from([1, 3, 16]),
    cells=st.sampled_from([1, 5, 33]),
    projection=st.booleans(),
    cell_clip=st.sampled_from([None, 0.3, 3.0]),
    projection_clip=st.sampled_from([None, 0.2]),
    ahead=st.sampled_from([1, 4, 1000]),
)
def test_stacked_computes_what_the_reference_computes(
    seed, batch_sizes, directions, width, cells, projection, cell_clip, projection_clip, ahead
):
    draw, out, layers = draw_layers(
        seed, directions, width=width, cells=cells, projection=projection
    )
    x = draw(directions, sum(batch_sizes), width)
    rows = batch_sizes[0]
    state = [LstmState(draw(rows, cells), draw(rows, out)) for _ in layers]
    clips = Clips(cell_clip, projection_clip)
    with torch.no_grad(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(stacked, "AHEAD_TOKENS", ahead)
        weights = StackedWeights(layers, 1.0, torch.float32)
        lengths = [sum(size > row for size in batch_sizes) for row in range(rows)]
        last = Packing(lengths, x.device).last
        outputs, ends = run_stacked(x, batch_sizes, state, weights, clips, last)
    for number, one in enumerate(layers):
        want, want_end = run_lstm(x[number], batch_sizes, state[number], one, clips, 1.0)
        torch.testing.assert_close(outputs[number], want, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(tuple(ends[number]), tuple(want_end), rtol=1e-5, atol=1e-5)
