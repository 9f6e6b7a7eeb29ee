"""Dropout and biLSTMs for training on CPUs: as torch's own, only faster."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from elmokit.engines.cpu_training import Dropout, bilstm, dropout

PROBABILITIES = st.floats(0.0, 1.0)


@given(st.lists(st.integers(0, 9), max_size=3), PROBABILITIES, st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_dropout_keeps_scaled_elements_and_zeroes_the_rest(shape, p, seed):
    torch.manual_seed(seed)
    x = torch.randn(shape).abs() + 0.1
    found = dropout(x, p)
    assert found.shape == x.shape
    kept = found != 0
    torch.testing.assert_close(found[kept] * (1 - p), x[kept], rtol=1e-3, atol=1e-3)
    torch.manual_seed(seed)
    torch.testing.assert_close(dropout(torch.randn(shape).abs() + 0.1, p), found)


@pytest.mark.parametrize("p", [0.05, 0.25, 0.5, 0.9])
def test_dropout_zeroes_the_share_it_should(p):
    torch.manual_seed(1)
    mask = dropout(torch.ones(1_000_003), p) != 0  # no multiple of four
    assert abs(float((~mask).float().mean()) - p) < 0.002
    # One draw of 64 bits serves four elements: they must not drop out together.
    drawn = mask[:1_000_000].view(-1, 4).float() - (1 - p)
    correlation = drawn.T @ drawn / len(drawn) / (p * (1 - p))
    torch.testing.assert_close(correlation, torch.eye(4), rtol=0, atol=0.03)
    assert abs(float((drawn[1:] * drawn[:-1]).mean()) / (p * (1 - p))) < 0.01


def test_dropout_draws_new_elements_and_passes_gradients_through_kept_ones():
    x = torch.ones(4, 100, requires_grad=True)
    module = Dropout(0.5)
    first, second = module(x), module(x)
    assert not torch.equal(first, second)
    first.sum().backward()
    torch.testing.assert_close(x.grad, first.detach())
    assert module.eval()(x) is x
    assert dropout(x, 0.0) is x
    assert not dropout(x, 1.0).any()
    assert dropout(x.double(), 0.3).dtype == torch.float64


def test_dropout_compiles_as_one_graph():
    module = torch.compile(
        nn.Sequential(nn.Linear(4, 8), Dropout(0.5)), backend="eager", fullgraph=True
    )
    assert module(torch.ones(2, 4)).shape == (2, 8)


def packed(lstm, x, lengths):
    """What torch does with texts of several lengths."""
    rows = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    return pad_packed_sequence(lstm(rows)[0], batch_first=True, total_length=x.shape[1])[0]


@given(
    st.lists(st.integers(1, 12), min_size=1, max_size=6)
    | st.lists(st.just(1), min_size=3, max_size=6).map(lambda short: [*short, 40]),
    st.integers(1, 3),
    st.integers(0, 3),
    st.booleans(),
    st.integers(0, 99),
)
@settings(max_examples=40, deadline=None)
def test_bilstm_has_the_outputs_and_gradients_of_packed_texts(lengths, layers, more, far, seed):
    torch.manual_seed(seed)
    lstm = nn.LSTM(5, 4, layers, batch_first=True, bidirectional=True)
    counts = torch.tensor(lengths)
    x = torch.randn(len(lengths), max(lengths) + more, 5)
    inside = torch.arange(x.shape[1]) < counts[:, None]
    x[~inside] = 1e3 if far else 0.0  # whatever padding is, it changes nothing
    weights = torch.randn(*x.shape[:2], 8) * inside[..., None]
    found = {}
    for name, run in (("packed", packed), ("padded", bilstm)):
        given_x = x.clone().requires_grad_()
        lstm.zero_grad()
        output = run(lstm, given_x, counts)
        (output * weights).sum().backward()
        gradients = [parameter.grad.clone() for parameter in lstm.parameters()]
        found[name] = [output[inside], given_x.grad[inside], *gradients]
        assert not given_x.grad[~inside].any()
    for ours, theirs in zip(found["padded"], found["packed"], strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_bilstm_drops_out_between_layers_while_training_alone():
    torch.manual_seed(0)
    lstm = nn.LSTM(5, 64, 2, batch_first=True, bidirectional=True, dropout=0.5)
    x, lengths = torch.randn(2, 7, 5), torch.tensor([7, 3])
    assert not torch.equal(bilstm(lstm, x, lengths), bilstm(lstm, x, lengths))
    lstm.eval()
    torch.testing.assert_close(bilstm(lstm, x, lengths)[1, :3], packed(lstm, x, lengths)[1, :3])
    torch.testing.assert_close(bilstm(lstm, x, lengths), bilstm(lstm, x, lengths))
