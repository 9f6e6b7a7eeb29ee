"""The reference engine against torch's own LSTM, numpy, and finite differences."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.utils.rnn import PackedSequence

from elmokit.engines import Clips, LstmState, LstmWeights
from elmokit.engines.reference import run_lstm


def random_case(seed, rows, steps, width, cells, projection, dtype=torch.float64):
    g = torch.Generator().manual_seed(seed)

    def draw(*shape, scale=1.0):
        return torch.randn(*shape, generator=g, dtype=dtype) * scale

    sizes = sorted(int(torch.randint(1, rows + 1, (1,), generator=g)) for _ in range(steps))[::-1]
    out = width if projection else cells
    weights = LstmWeights(
        draw(4 * cells, width),
        draw(4 * cells, out),
        draw(4 * cells),
        draw(out, cells) if projection else None,
    )
    state = LstmState(draw(sizes[0], cells), draw(sizes[0], out))
    return draw(sum(sizes), width), sizes, state, weights


def numpy_lstm(x, sizes, state, weights, clips, forget_bias):
    """One sentence at a time, one step at a time, straight from the equations."""

    def sigmoid(v):
        return 1 / (1 + np.exp(-v))

    x = x.numpy()
    w_in, w_state, bias, projection = (None if w is None else w.numpy() for w in weights)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    outputs = np.zeros((len(x), w_state.shape[1]))
    cells, last = state.cell.numpy().copy(), state.hidden.numpy().copy()
    for row in range(sizes[0]):
        for step in range(sum(size > row for size in sizes)):
            z = x[starts[step] + row] @ w_in.T + last[row] @ w_state.T + bias
            i, f, g, o = np.split(z, 4)
            c = sigmoid(f + forget_bias) * cells[row] + sigmoid(i) * np.tanh(g)
            if clips.cell is not None:
                c = np.clip(c, -clips.cell, clips.cell)
            h = sigmoid(o) * np.tanh(c)
            if projection is not None:
                h = projection @ h
                if clips.projection is not None:
                    h = np.clip(h, -clips.projection, clips.projection)
            cells[row], last[row] = c, h
            outputs[starts[step] + row] = h
    return outputs, cells, last


@settings(max_examples=60)
@given(
    seed=st.integers(0, 10_000),
    rows=st.integers(1, 5),
    steps=st.integers(1, 7),
    width=st.integers(1, 4),
    cells=st.integers(1, 5),
    projection=st.booleans(),
    cell_clip=st.sampled_from([None, 0.3]),
    projection_clip=st.sampled_from([None, 0.2]),
    forget_bias=st.sampled_from([0.0, 1.0]),
)
def test_engine_follows_the_equations(
    seed, rows, steps, width, cells, projection, cell_clip, projection_clip, forget_bias
):
    if not projection:
        width = cells
    x, sizes, state, weights = random_case(seed, rows, steps, width, cells, projection)
    clips = Clips(cell_clip, projection_clip)
    output, end = run_lstm(x, sizes, state, weights, clips, forget_bias)
    want, want_cells, want_output = numpy_lstm(x, sizes, state, weights, clips, forget_bias)
    np.testing.assert_allclose(output.numpy(), want, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(end.cell.numpy(), want_cells, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(end.hidden.numpy(), want_output, rtol=1e-10, atol=1e-12)


def test_engine_without_clips_equals_torch_lstm():
    x, sizes, state, weights = random_case(3, 4, 6, 3, 5, True)
    lstm = torch.nn.LSTM(3, 5, proj_size=3, dtype=torch.float64)
    with torch.no_grad():
        lstm.weight_ih_l0.copy_(weights.input)
        lstm.weight_hh_l0.copy_(weights.state)
        lstm.weight_hr_l0.copy_(weights.projection)
        lstm.bias_ih_l0.copy_(weights.bias)
        lstm.bias_hh_l0.zero_()
        lstm.bias_hh_l0[5:10] = 1.0
        packed = PackedSequence(x, torch.tensor(sizes))
        want, (h, c) = lstm(packed, (state.hidden[None], state.cell[None]))
    output, end = run_lstm(x, sizes, state, weights, Clips(None, None), 1.0)
    torch.testing.assert_close(output, want.data)
    torch.testing.assert_close(end.cell, c[0])
    torch.testing.assert_close(end.hidden, h[0])


@pytest.mark.parametrize("clips", [Clips(None, None), Clips(0.5, 0.4)])
def test_engine_gradients_against_finite_differences(clips):
    x, sizes, state, weights = random_case(5, 3, 4, 2, 3, True)
    leaves = [t.clone().requires_grad_() for t in (x, *state, *weights)]

    def run(x, cells, output, *parts):
        out, end = run_lstm(x, sizes, LstmState(cells, output), LstmWeights(*parts), clips, 1.0)
        return out, end.cell, end.hidden

    assert torch.autograd.gradcheck(run, leaves)
