"""The CRF against enumeration of all sequences, and against pytorch-crf."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from elmokit.tasks.model import Crf
from elmokit.tasks.tag.spans import illegal_index
from elmokit.tasks.tag.task import constrained_crf

torchcrf = pytest.importorskip("torchcrf", reason="pytorch-crf is a development extra")


def random_crf(labels: int, seed: int) -> Crf:
    generator = torch.Generator().manual_seed(seed)
    crf = Crf(labels)
    return randomise(crf, generator)


def randomise(crf: Crf, generator: torch.Generator) -> Crf:
    with torch.no_grad():
        for parameter in crf.parameters():
            parameter.normal_(generator=generator)
    return crf


@torch.no_grad()
def all_sequences(crf: Crf, scores: torch.Tensor) -> dict[tuple[int, ...], float]:
    """The score of every sequence of labels over (T, K) scores, counted one by one."""
    found = {}
    length, labels = scores.shape
    for path in itertools.product(range(labels), repeat=length):
        total = crf.start[path[0]] + crf.end[path[-1]]
        total = total + sum(scores[place, label] for place, label in enumerate(path))
        total = total + sum(crf.transitions[a, b] for a, b in itertools.pairwise(path))
        found[path] = float(total)
    return found


@given(
    st.integers(1, 4),
    st.lists(st.integers(1, 4), min_size=1, max_size=3),
    st.integers(0, 1000),
)
def test_crf_is_the_sum_over_all_sequences(labels, lengths, seed):
    crf = random_crf(labels, seed)
    generator = torch.Generator().manual_seed(seed)
    scores = 3 * torch.randn(len(lengths), max(lengths), labels, generator=generator)
    mask = torch.arange(max(lengths))[None, :] < torch.tensor(lengths)[:, None]
    gold = torch.randint(labels, mask.shape, generator=generator)
    losses = crf.loss(scores, gold, mask)
    best = crf.best(scores, mask)
    for row, length in enumerate(lengths):
        found = all_sequences(crf, scores[row, :length])
        total = torch.logsumexp(torch.tensor(list(found.values()), dtype=torch.double), 0)
        expected = float(total) - found[tuple(gold[row, :length].tolist())]
        assert losses[row].item() == pytest.approx(expected, rel=1e-4, abs=1e-4)
        assert found[tuple(best[row])] == pytest.approx(max(found.values()), rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("seed", range(5))
def test_crf_is_that_of_pytorch_crf_gradients_included(seed):
    generator = torch.Generator().manual_seed(seed)
    ours = random_crf(5, seed)
    theirs = torchcrf.CRF(5, batch_first=True)
    pairs = [
        (ours.transitions, theirs.transitions),
        (ours.start, theirs.start_transitions),
        (ours.end, theirs.end_transitions),
    ]
    with torch.no_grad():
        for our, their in pairs:
            their.copy_(our)
    scores = torch.randn(4, 7, 5, generator=generator)
    lengths = torch.tensor([7, 1, 4, 6])
    mask = torch.arange(7)[None, :] < lengths[:, None]
    gold = torch.randint(5, (4, 7), generator=generator)
    one, other = scores.clone().requires_grad_(), scores.clone().requires_grad_()
    loss = ours.loss(one, gold, mask)
    expected = -theirs(other, gold, mask=mask, reduction="none")
    torch.testing.assert_close(loss, expected)
    loss.sum().backward()
    expected.sum().backward()
    torch.testing.assert_close(one.grad, other.grad)
    for our, their in pairs:
        torch.testing.assert_close(our.grad, their.grad)
    assert ours.best(scores, mask) == theirs.decode(scores, mask=mask)


LABELS = {
    "bio": ["B-LOC", "B-PER", "I-LOC", "I-PER", "O"],
    "bioes": ["B-X", "E-X", "I-X", "O", "S-X", "S-Y"],
}


@pytest.mark.parametrize("scheme", LABELS)
@pytest.mark.parametrize("seed", range(4))
def test_crf_knows_legal_sequences_alone(scheme, seed):
    labels = LABELS[scheme]
    generator = torch.Generator().manual_seed(seed)
    crf = randomise(constrained_crf(labels, scheme), generator)
    scores = 5 * torch.randn(1, 4, len(labels), generator=generator)
    mask = torch.ones(1, 4, dtype=torch.bool)
    found = all_sequences(crf, scores[0])
    legal = {
        path: score
        for path, score in found.items()
        if illegal_index([labels[i] for i in path], scheme) is None
    }
    assert 0 < len(legal) < len(found)
    (best,) = crf.best(scores, mask)
    assert tuple(best) == max(legal, key=legal.__getitem__)
    total = float(torch.logsumexp(torch.tensor(list(legal.values()), dtype=torch.double), 0))
    gold = torch.tensor([best])
    expected = total - legal[tuple(best)]
    assert crf.loss(scores, gold, mask).item() == pytest.approx(expected, rel=1e-4, abs=1e-4)


def sum_over_legal(crf: Crf, scores: torch.Tensor, labels: list[str], scheme: str) -> torch.Tensor:
    """The log of the sum over (T, K) scores, one legal sequence after another."""
    totals = []
    for path in itertools.product(range(len(labels)), repeat=len(scores)):
        if illegal_index([labels[i] for i in path], scheme) is None:
            own = sum(scores[place, label] for place, label in enumerate(path))
            moves = sum(crf.transitions[a, b] for a, b in itertools.pairwise(path))
            totals.append(own + moves + crf.start[path[0]] + crf.end[path[-1]])
    return torch.logsumexp(torch.stack(totals), 0)


@pytest.mark.parametrize("scheme", LABELS)
@pytest.mark.parametrize("size", [1, 20, 100])
def test_crf_gradients_are_those_of_the_sum_over_legal_sequences(scheme, size):
    """However sure the scores are of what may not be."""
    labels, lengths = LABELS[scheme], [4, 1, 0, 3]
    generator = torch.Generator().manual_seed(size)
    crf = randomise(constrained_crf(labels, scheme), generator)
    scores = (size * torch.randn(4, 4, len(labels), generator=generator)).requires_grad_()
    mask = torch.arange(4)[None, :] < torch.tensor(lengths)[:, None]
    gold = torch.zeros(4, 4, dtype=torch.long)
    for row, length in enumerate(lengths):
        (path,) = crf.best(torch.randn(1, 4, len(labels), generator=generator), mask[row, None])
        gold[row, :length] = torch.tensor(path, dtype=torch.long)
    weights = torch.tensor([1.0, 0.5, 3.0, 2.0])
    losses = crf.loss(scores, gold, mask)
    (losses * weights).sum().backward()
    found = [scores.grad, *(parameter.grad for parameter in crf.parameters())]

    exact = constrained_crf(labels, scheme).double()
    exact.load_state_dict(crf.state_dict())
    twin = scores.detach().double().requires_grad_()
    expected = torch.zeros(4, dtype=torch.double)
    for row, length in enumerate(lengths):
        if length:
            path = gold[row, :length].tolist()
            own = twin[row, range(length), path].sum() + exact.start[path[0]] + exact.end[path[-1]]
            own = own + sum(exact.transitions[a, b] for a, b in itertools.pairwise(path))
            expected[row] = sum_over_legal(exact, twin[row, :length], labels, scheme) - own
    torch.testing.assert_close(losses.double(), expected, rtol=1e-5, atol=1e-4)
    (expected * weights).sum().backward()
    for one, other in zip(found, [twin, *exact.parameters()], strict=True):
        torch.testing.assert_close(one.double(), other.grad, rtol=1e-5, atol=1e-5)


def test_crf_gives_numbers_whatever_the_scores():
    crf = randomise(constrained_crf(LABELS["bioes"], "bioes"), torch.Generator().manual_seed(0))
    scores = torch.tensor([[[0.0, 1e6, 0, 0, -1e6, 1e3]] * 3]).requires_grad_()
    losses = crf.loss(scores, torch.tensor([[0, 2, 1]]), torch.ones(1, 3, dtype=torch.bool))
    losses.sum().backward()
    assert losses.isfinite().all()
    assert scores.grad.isfinite().all()
    assert all(parameter.grad.isfinite().all() for parameter in crf.parameters())


def test_crf_takes_no_part_in_empty_sequences():
    crf = random_crf(3, 0)
    scores = torch.randn(2, 2, 3)
    mask = torch.tensor([[False, False], [True, True]])
    losses = crf.loss(scores, torch.zeros(2, 2, dtype=torch.long), mask)
    assert losses[0] == 0
    assert losses[1] > 0
    assert [len(path) for path in crf.best(scores, mask)] == [0, 2]
