"""The CRF against enumeration of all sequences, and against pytorch-crf."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from elmokit.tasks.model import Crf
from elmokit.tasks.tag.marginals import score_path, tag_posteriors
from elmokit.tasks.tag.spans import illegal_index, tags_to_spans
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


@given(st.integers(1, 4), st.lists(st.integers(0, 4), min_size=1, max_size=3), st.integers(0, 1000))
def test_marginals_and_chances_are_sums_over_sequences(labels, lengths, seed):
    crf = random_crf(labels, seed)
    generator = torch.Generator().manual_seed(seed)
    size = max(1, *lengths)
    scores = 3 * torch.randn(len(lengths), size, labels, generator=generator)
    mask = torch.arange(size)[None, :] < torch.tensor(lengths)[:, None]
    for row, posterior in enumerate(tag_posteriors(crf, scores, mask)):
        length = lengths[row]
        assert posterior.marginals.shape == (length, labels)
        if not length:
            continue
        every = all_sequences(crf, scores[row, :length])
        shares = torch.tensor(list(every.values()), dtype=torch.double).softmax(0).tolist()
        chances = dict(zip(every, shares, strict=True))
        for at, label in itertools.product(range(length), range(labels)):
            expected = sum(share for path, share in chances.items() if path[at] == label)
            assert posterior.marginals[at, label] == pytest.approx(expected, abs=1e-6)
        path = max(chances, key=chances.get)
        for start, end in itertools.combinations(range(length + 1), 2):
            expected = sum(
                share
                for other, share in chances.items()
                if other[start:end] == path[start:end] and other[end : end + 1] != (0,)
            )
            assert posterior.chance(path, start, end, [0]) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_marginals_are_the_gradients_of_pytorch_crf(seed):
    ours, theirs = random_crf(5, seed), torchcrf.CRF(5, batch_first=True)
    with torch.no_grad():
        theirs.transitions.copy_(ours.transitions)
        theirs.start_transitions.copy_(ours.start)
        theirs.end_transitions.copy_(ours.end)
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(3, 6, 5, generator=generator, requires_grad=True)
    mask = torch.arange(6)[None, :] < torch.tensor([6, 2, 4])[:, None]
    gold = torch.zeros(3, 6, dtype=torch.long)
    theirs(scores, gold, mask, reduction="sum").neg().backward()  # log-partition minus the score
    expected = scores.grad + torch.nn.functional.one_hot(gold, 5) * mask[:, :, None]
    found, _, _ = ours.posterior(scores, mask)
    torch.testing.assert_close(found.float(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("scheme", ["bio", "bioes"])
def test_score_of_a_span_is_the_share_of_the_sequences_that_have_it(scheme):
    labels = ["O", "B-A", "I-A", "B-B", "I-B"]
    labels += ["E-A", "S-A", "S-B"] if scheme == "bioes" else []
    generator = torch.Generator().manual_seed(1)
    crf = randomise(constrained_crf(labels, scheme), generator)
    scores, mask = 2 * torch.randn(1, 4, len(labels), generator=generator), torch.ones(1, 4).bool()
    every = all_sequences(crf, scores[0])
    legal = [p for p in every if illegal_index([labels[n] for n in p], scheme) is None]
    shares = torch.tensor([every[p] for p in legal], dtype=torch.double).softmax(0).tolist()
    (posterior,) = tag_posteriors(crf, scores, mask)
    words = ("a", "b", "c", "d")
    for path in legal:
        tags = [labels[number] for number in path]
        found = score_path(words, None, tags, path, labels, posterior, spans=True)
        assert found.score == pytest.approx(shares[legal.index(path)], abs=1e-6)
        for span in found.spans:
            wanted = (*span.tokens, span.type)
            expected = sum(
                share
                for other, share in zip(legal, shares, strict=True)
                if wanted in tags_to_spans([labels[number] for number in other])
            )
            assert span.score == pytest.approx(expected, abs=1e-6), (tags, wanted)
