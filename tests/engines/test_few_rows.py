"""The engine for a few sentences against the reference engine."""

import torch
from drawn_layers import draw_layers
from hypothesis import given, settings
from hypothesis import strategies as st

import elmokit
from elmokit.config import LstmConfig
from elmokit.engines import Clips, LstmState, run_lstm
from elmokit.engines.cpu import PackedWeights
from elmokit.engines.few_rows import (
    AHEAD_TOKENS,
    MOST_NUMBERS,
    MOST_ROWS,
    FewRowsWeights,
    run_few_rows,
)
from elmokit.model import lstm
from elmokit.model.lstm import BiLstm

CLOSE = {"rtol": 1e-5, "atol": 1e-5}


@settings(max_examples=40)
@given(
    seed=st.integers(0, 10_000),
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=6)
    | st.sampled_from([[AHEAD_TOKENS], [AHEAD_TOKENS + 1], [2 * AHEAD_TOKENS + 3, AHEAD_TOKENS]]),
    directions=st.integers(1, 2),
    width=st.sampled_from([1, 3, 16]),
    cells=st.sampled_from([1, 5, 33]),
    projection=st.booleans(),
    cell_clip=st.sampled_from([None, 0.3, 3.0]),
    projection_clip=st.sampled_from([None, 0.2, 3.0]),
    forget_bias=st.sampled_from([0.0, 1.0]),
)
def test_few_rows_compute_what_the_reference_computes(
    seed, lengths, directions, width, cells, projection, cell_clip, projection_clip, forget_bias
):
    draw, out, layers = draw_layers(
        seed, directions, width=width, cells=cells, projection=projection
    )
    batch_sizes = [sum(step < length for length in lengths) for step in range(max(lengths))]
    inputs = [draw(sum(lengths), width) for _ in layers]
    state = [LstmState(draw(len(lengths), cells), draw(len(lengths), out)) for _ in layers]
    clips = Clips(cell_clip, projection_clip)
    packed = [PackedWeights(one, forget_bias, "float32") for one in layers]
    with torch.no_grad():
        found = run_few_rows(inputs, batch_sizes, state, FewRowsWeights(layers, packed), clips)
    for (outputs, end), x, start, weights in zip(found, inputs, state, layers, strict=True):
        want, want_end = run_lstm(x, batch_sizes, start, weights, clips, forget_bias)
        torch.testing.assert_close(outputs, want, **CLOSE)
        torch.testing.assert_close(tuple(end), tuple(want_end), **CLOSE)


def test_it_serves_few_sentences_of_a_small_exact_model(monkeypatch):
    used = []
    monkeypatch.setattr(
        lstm, "run_few_rows", lambda *args: used.append(True) or run_few_rows(*args)
    )
    elmo = elmokit.load("test-tiny")
    sentences = [["one", "sentence"], ["another"]] * MOST_ROWS
    assert len(sentences) > MOST_ROWS
    elmo.encode(sentences[:1])  # the markers are read once, and they are few
    used.clear()
    among = elmo.encode(sentences, layers="all")[0]
    assert not used
    for count in (1, 2, MOST_ROWS):
        few = elmo.encode(sentences[:count], layers="all")[0]
        assert used
        used.clear()
        torch.testing.assert_close(torch.tensor(few), torch.tensor(among), rtol=1e-6, atol=1e-6)


def test_large_matrices_are_not_kept_twice():
    width = 64
    cells = MOST_NUMBERS // (4 * width)
    for more, pays in ((0, True), (1, False)):
        with torch.device("meta"):
            lstm = BiLstm(LstmConfig(layers=1, cells=cells + more, width=width))
        assert lstm.few_rows_pay(1) is pays
        assert not lstm.few_rows_pay(MOST_ROWS + 1)
