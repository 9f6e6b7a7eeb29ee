"""Losses and heads against plain numpy in float64."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_runs import LINES, SMALL, WORD_INPUT, changed, make_trainer
from torch.autograd import gradcheck

from elmokit.corpus.prepare import prepare_corpus
from elmokit.corpus.shards import TokenCorpus
from elmokit.training import losses
from elmokit.training.losses import full_loss, log_normaliser, sampled_loss


def random_problem(tokens: int, words: int, width: int, seed: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    return {
        "x": random.normal(size=(tokens, width)),
        "weight": random.normal(size=(words, width)),
        "bias": random.normal(size=words),
        "targets": random.integers(0, words, tokens),
    }


def tensors(problem: dict[str, np.ndarray], dtype: torch.dtype = torch.float64) -> list:
    floats = [torch.tensor(problem[name], dtype=dtype) for name in ("x", "weight", "bias")]
    return [*(t.requires_grad_() for t in floats), torch.from_numpy(problem["targets"])]


def plain_log_sum(scores: np.ndarray) -> np.ndarray:
    top = scores.max(axis=1, keepdims=True)
    top = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):
        return np.log(np.exp(scores - top).sum(axis=1)) + top[:, 0]


sizes = st.tuples(st.integers(1, 9), st.integers(1, 12), st.integers(1, 6), st.integers(0, 99))


@given(sizes)
@settings(max_examples=30)
def test_full_loss(size):
    problem = random_problem(*size)
    scores = problem["x"] @ problem["weight"].T + problem["bias"]
    own = scores[np.arange(len(scores)), problem["targets"]]
    expected = (plain_log_sum(scores) - own).sum()
    assert full_loss(*tensors(problem)).item() == pytest.approx(expected, rel=1e-12, abs=1e-12)


def plain_sampled_loss(
    problem: dict[str, np.ndarray], negatives: np.ndarray, corrected_bias: np.ndarray
) -> float:
    """Token by token: the target against the negatives that are not the target."""
    total = 0.0
    for x, target in zip(problem["x"], problem["targets"], strict=True):
        in_play = [target, *(k for k in negatives if k != target)]
        scores = problem["weight"][in_play] @ x + corrected_bias[in_play]
        total += plain_log_sum(scores[None])[0] - scores[0]
    return total


def clashes_of(targets: np.ndarray, negatives: np.ndarray) -> torch.Tensor:
    same = targets[:, None] == negatives
    return torch.from_numpy(np.where(same.any(axis=1), same.argmax(axis=1), -1))


@given(sizes, st.integers(1, 12), st.booleans())
@settings(max_examples=40)
def test_sampled_loss_and_its_gradients(size, count, in_parts):
    problem = random_problem(*size)
    random = np.random.default_rng(size[-1] + 1)
    words = len(problem["bias"])
    negatives = random.permutation(words)[:count]
    correction = np.log(random.uniform(0.05, 1.0, words))
    problem["bias"] = problem["bias"] - correction
    expected = plain_sampled_loss(problem, negatives, problem["bias"])
    x, weight, bias, targets = tensors(problem)
    accidental_hits = clashes_of(problem["targets"], negatives)
    with pytest.MonkeyPatch.context() as patch:
        if in_parts:
            patch.setattr(losses, "LOGITS_AT_ONCE", 2 * len(negatives))
        loss = sampled_loss(x, weight, bias, targets, torch.from_numpy(negatives), accidental_hits)
        assert loss.item() == pytest.approx(expected, rel=1e-10, abs=1e-10)
        loss.backward()
        for leaf in (x, weight, bias):
            direction = torch.from_numpy(random.normal(size=leaf.shape))
            moved = []
            for sign in (1, -1):
                other = [
                    (t + sign * 1e-6 * direction if t is leaf else t).detach()
                    for t in (x, weight, bias)
                ]
                moved.append(
                    float(
                        sampled_loss(*other, targets, torch.from_numpy(negatives), accidental_hits)
                    )
                )
            slope = (moved[0] - moved[1]) / 2e-6
            assert float((leaf.grad * direction).sum()) == pytest.approx(slope, rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("at_once", [1, 7, 20, 1 << 26])
def test_scores_in_parts_change_nothing(at_once, monkeypatch):
    problem = random_problem(11, 5, 3, 0)
    left_out = torch.tensor([1, -1, -1, 4, -1, -1, -1, -1, 0, -1, 2])
    whole = tensors(problem)
    log_normaliser(*whole[:3], left_out).square().sum().backward()
    monkeypatch.setattr(losses, "LOGITS_AT_ONCE", at_once)
    parts = tensors(problem)
    result = log_normaliser(*parts[:3], left_out)
    scores = problem["x"] @ problem["weight"].T + problem["bias"]
    scores[[0, 3, 8, 10], [1, 4, 0, 2]] = -np.inf
    np.testing.assert_allclose(result.detach().numpy(), plain_log_sum(scores), rtol=1e-12)
    result.square().sum().backward()
    for a, b in zip(whole[:3], parts[:3], strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-12, atol=1e-12)


def test_gradcheck():
    x, weight, bias, targets = tensors(random_problem(4, 6, 3, 1))
    left_out = torch.tensor([-1, 0, 1, -1])
    negatives = torch.tensor([5, 0, 3])
    own = clashes_of(targets.numpy(), negatives.numpy())
    assert gradcheck(lambda *a: log_normaliser(*a, left_out), (x, weight, bias))
    assert gradcheck(lambda *a: full_loss(*a, targets), (x, weight, bias))
    assert gradcheck(lambda *a: sampled_loss(*a, targets, negatives, own), (x, weight, bias))


def test_a_token_that_is_its_own_only_negative_has_no_loss_and_no_gradient():
    x, weight, bias, _ = tensors(random_problem(2, 3, 4, 2), torch.float32)
    targets, negatives = torch.tensor([1, 2]), torch.tensor([1])
    accidental_hits = clashes_of(targets.numpy(), negatives.numpy())
    loss = sampled_loss(x, weight, bias, targets, negatives, accidental_hits)
    loss.backward()
    assert all(bool(torch.isfinite(t.grad).all()) for t in (x, weight, bias))
    assert not x.grad[0].any()
    assert x.grad[1].any()


def test_scores_far_apart_neither_overflow_nor_vanish():
    x = torch.full((2, 1), 200.0, requires_grad=True)
    weight = torch.tensor([[1.0], [-1.0]], requires_grad=True)
    bias = torch.zeros(2, requires_grad=True)
    loss = full_loss(x, weight, bias, torch.tensor([0, 1]))
    loss.backward()
    assert loss.item() == pytest.approx(400.0)
    assert bool(torch.isfinite(x.grad).all())


# Heads: the loss of a whole batch, with the same words in play


def top_outputs(batch, width: int = 16) -> torch.Tensor:
    random = torch.Generator().manual_seed(0)
    return torch.randn(*batch.targets.shape, width, generator=random)


def first_batch(trainer):
    return next(trainer._prefetched())


def full_scores(top: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return torch.log_softmax(top.double() @ weight.double().T + bias.double(), dim=-1)


@pytest.mark.parametrize("tied", [False, True])
def test_full_loss_of_a_batch(corpus, tmp_path, tied):
    config = changed(SMALL, loss={"kind": "full", "tied": tied}, model={"words": WORD_INPUT})
    trainer = make_trainer(config, corpus, tmp_path)
    batch = first_batch(trainer)
    top = top_outputs(batch)
    found, rows = trainer._loss(top, batch)
    weight = trainer._bilm.encoder.words.embedding if tied else trainer._bilm.softmax.weight
    scores = full_scores(top, weight, trainer._bilm.softmax.bias)
    expected = -scores.gather(2, batch.targets[..., None]).sum(dim=(1, 2))
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5)
    assert rows == []
    assert (trainer._bilm.softmax.weight is None) == tied


def test_adaptive_loss_of_a_batch(corpus, tmp_path):
    config = changed(SMALL, loss={"kind": "adaptive"})
    trainer = make_trainer(config, corpus, tmp_path)
    assert trainer._bilm.config.softmax.cutoffs == (6, 15)
    batch = first_batch(trainer)
    top = top_outputs(batch)
    found, _ = trainer._loss(top, batch)
    for d, targets in enumerate(batch.targets):
        everything = trainer._bilm.softmax.adaptive.log_prob(top[d])  # (N, V)
        torch.testing.assert_close(everything.exp().sum(dim=1), torch.ones(len(targets)))
        expected = -everything.gather(1, targets[:, None]).sum()
        torch.testing.assert_close(found[d], expected, rtol=1e-5, atol=1e-5)


def expected_sampled(trainer, batch, top, weight: torch.Tensor) -> list[float]:
    """What the head must give: the documented sample, the documented correction."""
    sampler, seed = trainer._sampler, trainer._config.run.seed
    bias = trainer._bilm.softmax.bias.detach().numpy().astype(np.float64) - sampler.log_expected
    result = []
    for d, targets in enumerate(batch.targets.numpy()):
        problem = {
            "x": top[d].numpy().astype(np.float64),
            "weight": weight.detach().numpy().astype(np.float64),
            "targets": targets,
        }
        result.append(plain_sampled_loss(problem, sampler.draw(seed, batch.window, d), bias))
    return result


@pytest.mark.parametrize("negatives", [1, 8, 10_000])
@pytest.mark.parametrize("tied", [False, True])
def test_sampled_loss_of_a_batch(corpus, tmp_path, negatives, tied):
    config = changed(
        SMALL, loss={"negatives": negatives, "tied": tied}, model={"words": WORD_INPUT}
    )
    trainer = make_trainer(config, corpus, tmp_path)
    with torch.no_grad():
        trainer._bilm.softmax.bias.uniform_(-1, 1)
    batch = first_batch(trainer)
    top = top_outputs(batch)
    weight = trainer._bilm.encoder.words.embedding if tied else trainer._bilm.softmax.weight
    found, rows = trainer._loss(top, batch)
    assert found.tolist() == pytest.approx(expected_sampled(trainer, batch, top, weight), rel=1e-4)
    if negatives > len(trainer.vocabulary):
        scores = full_scores(top, weight, trainer._bilm.softmax.bias)
        expected = -scores.gather(2, batch.targets[..., None]).sum(dim=(1, 2))
        torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5)
    found.sum().backward()
    assert len(rows) == (1 if tied else 2)
    for item in rows:
        assert item.parameter.grad is None
        assert item.leaf.grad.shape == (len(item.rows), *item.parameter.shape[1:])
    assert (weight.grad is not None) == tied


def test_row_gradients_are_the_rows_of_the_whole_gradient(corpus, tmp_path):
    trainer = make_trainer(changed(SMALL, loss={"negatives": 10_000}), corpus, tmp_path)
    batch = first_batch(trainer)
    top = top_outputs(batch)
    sums, rows = trainer._loss(top, batch)
    sums.sum().backward()
    weight, bias = (item.parameter.detach().clone().requires_grad_() for item in rows)
    scores = torch.log_softmax(top @ weight.T + bias, dim=-1)
    (-scores.gather(2, batch.targets[..., None]).sum()).backward()
    for item, whole in zip(rows, (weight, bias), strict=True):
        torch.testing.assert_close(item.leaf.grad, whole.grad[item.rows], rtol=1e-4, atol=1e-5)


def test_cnn_loss_materialises_what_the_loss_used(corpus, tmp_path):
    trainer = make_trainer(changed(SMALL, loss={"kind": "cnn"}), corpus, tmp_path)
    batch = first_batch(trainer)
    top = top_outputs(batch)
    found, rows = trainer._loss(top, batch)
    trainer._loss.materialise()
    weight = trainer._bilm.softmax.weight
    assert found.tolist() == pytest.approx(expected_sampled(trainer, batch, top, weight), rel=1e-4)
    found.sum().backward()
    assert [item.parameter is trainer._bilm.softmax.bias for item in rows] == [True]
    assert weight.grad is None
    assert trainer._loss.projection.weight.grad.any()
    assert trainer._bilm.encoder.characters.filters[0].weight.grad.any()
    # The spelling decides, whatever the length of the other words in the batch.
    words = trainer.vocabulary.words
    cnn = trainer._bilm.encoder.characters
    for index in (0, 1, 2, 5, len(words) - 1):
        ids = torch.from_numpy(trainer._table.inputs(np.array([index])).characters)
        torch.testing.assert_close(
            trainer._loss.projection(cnn(ids))[0].detach(), weight[index].detach()
        )


def test_long_words_are_looked_up_as_the_finished_model_will(tmp_path: Path):
    """A model that reads characters and words cuts words to its columns before it looks."""
    text = "\n".join(["abcdefg abcdefghij x", "abcdefghij x abcdefghijk", "x x"] * 20)
    (tmp_path / "long").mkdir()
    (tmp_path / "long" / "text.txt").write_text(text, encoding="utf-8")
    prepare_corpus(
        tmp_path / "long" / "text.txt",
        tmp_path / "long" / "corpus",
        settings=replace(LINES, heldout=0),
        workers=1,
    )
    corpus = TokenCorpus(tmp_path / "long" / "corpus")
    trainer = make_trainer(changed(SMALL, model={"words": WORD_INPUT}), corpus, tmp_path)
    found = trainer._table.inputs(np.arange(len(corpus.words)))
    index = {word: i for i, word in enumerate(corpus.words)}
    words = dict(zip(corpus.words, found.words.tolist(), strict=True))
    assert words["abcdefghij"] == index["abcdefg"]  # cut to 7 characters
    assert words["abcdefghijk"] == index["abcdefg"]
    assert words["x"] == index["x"]
    assert words["</S>"] == 1
