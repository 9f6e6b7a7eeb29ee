"""The negatives: how they are drawn, and what the loss makes of them."""

import numpy as np
import pytest
import torch

from elmokit.training.losses import LogUniformSampler, full_loss, sampled_loss


def log_uniform(words: int) -> np.ndarray:
    """P(k) = log((k + 2) / (k + 1)) / log(V + 1), written out."""
    return np.array([np.log((k + 2) / (k + 1)) for k in range(words)]) / np.log(words + 1)


def test_single_draws_are_log_uniform():
    words, draws = 30, 20_000
    sampler = LogUniformSampler(words, 1)
    counts = np.bincount([int(sampler.draw(7, i)[0]) for i in range(draws)], minlength=words)
    expected = log_uniform(words) * draws
    assert expected.sum() == pytest.approx(draws)
    chi_square = ((counts - expected) ** 2 / expected).sum()
    # 29 degrees of freedom: mean 29, deviation 7.6.
    assert chi_square < 29 + 4 * np.sqrt(2 * 29)


@pytest.mark.parametrize(("words", "count"), [(5, 3), (50, 20), (50, 49), (4, 9), (1000, 64)])
def test_a_set_holds_distinct_words_of_the_vocabulary(words, count):
    sampler = LogUniformSampler(words, count)
    assert sampler.count == min(words, count)
    for seed in range(20):
        drawn = sampler.draw(seed, 1, 0)
        assert len(set(drawn.tolist())) == sampler.count
        assert drawn.min() >= 0
        assert drawn.max() < words


def test_the_seed_alone_decides():
    sampler, other = LogUniformSampler(100, 10), LogUniformSampler(100, 10)
    assert sampler.draw(1, 2, 0).tolist() == other.draw(1, 2, 0).tolist()
    sets = {tuple(sampler.draw(1, window, d).tolist()) for window in range(5) for d in range(2)}
    assert len(sets) == 10


@pytest.mark.parametrize(("words", "count"), [(40, 4), (40, 20), (200, 50)])
def test_chances_to_be_drawn_match_what_is_drawn(words, count):
    sampler = LogUniformSampler(words, count)
    draws = 6000
    found = np.zeros(words)
    for i in range(draws):
        found[sampler.draw(11, i)] += 1
    chance = np.exp(sampler.log_expected.astype(np.float64))
    assert chance.sum() == pytest.approx(count, rel=1e-5)
    noise = np.sqrt(chance * (1 - chance) / draws)
    # The chances take the number of draws for constant, which costs a little for few negatives.
    assert (np.abs(found / draws - chance) < 5 * noise + 0.02).all()


def test_all_words_are_certain_when_all_are_drawn():
    sampler = LogUniformSampler(6, 100)
    assert sampler.draw(3, 4).tolist() == [0, 1, 2, 3, 4, 5]
    assert sampler.log_expected.tolist() == [0.0] * 6


class Problem:
    """Tokens, output vectors and targets, all in float64."""

    words, tokens, width = 60, 12, 5

    def __init__(self) -> None:
        random = torch.Generator().manual_seed(5)

        def draw(*shape: int) -> torch.Tensor:
            return torch.randn(*shape, generator=random, dtype=torch.float64)

        self.x, self.weight, self.bias = (
            draw(self.tokens, self.width),
            draw(self.words, self.width),
            0.5 * draw(self.words),
        )
        self.targets = torch.randint(0, self.words, (self.tokens,), generator=random)

    def full(self) -> tuple[float, torch.Tensor]:
        x = self.x.clone().requires_grad_()
        loss = full_loss(x, self.weight, self.bias, self.targets)
        loss.backward()
        return loss.item() / self.tokens, x.grad / self.tokens

    def sampled(self, sampler: LogUniformSampler, *seed: int) -> tuple[float, torch.Tensor]:
        """All words are in the rows, so an index is a word."""
        x = self.x.clone().requires_grad_()
        negatives = torch.from_numpy(sampler.draw(*seed))
        same = self.targets[:, None] == negatives
        accidental_hits = torch.where(same.any(dim=1), same.int().argmax(dim=1), -1)
        bias = self.bias - torch.from_numpy(sampler.log_expected).double()
        loss = sampled_loss(x, self.weight, bias, self.targets, negatives, accidental_hits)
        loss.backward()
        return loss.item() / self.tokens, x.grad / self.tokens


def test_with_all_words_as_negatives_it_is_the_full_softmax():
    problem = Problem()
    value, gradient = problem.full()
    found, found_gradient = problem.sampled(LogUniformSampler(problem.words, problem.words), 0)
    assert found == pytest.approx(value, rel=1e-12)
    torch.testing.assert_close(found_gradient, gradient, rtol=1e-10, atol=1e-12)


def mean_over_draws(problem: Problem, count: int, draws: int) -> tuple[float, torch.Tensor]:
    sampler = LogUniformSampler(problem.words, count)
    results = [problem.sampled(sampler, 9, i) for i in range(draws)]
    return (
        float(np.mean([value for value, _ in results])),
        torch.stack([gradient for _, gradient in results]).mean(dim=0),
    )


def test_the_mean_over_draws_comes_near_to_the_full_softmax_as_negatives_grow():
    """The sampled loss competes with 1/expected copies of the target as well, so it is not that
    of the full softmax, but its gradient points the same way, the more so with more negatives."""
    problem = Problem()
    _, gradient = problem.full()
    cosines, errors = [], []
    for count in (4, 12, 30, 55):
        _, found = mean_over_draws(problem, count, 300)
        cosines.append(float(torch.cosine_similarity(found.ravel(), gradient.ravel(), dim=0)))
        errors.append(float((found - gradient).norm() / gradient.norm()))
    assert errors == sorted(errors, reverse=True)
    assert cosines == sorted(cosines)
    assert cosines[0] > 0.8
    assert cosines[-1] > 0.999
    assert errors[-1] < 0.05


def test_the_sum_over_negatives_is_an_unbiased_estimate():
    """Σ over drawn words of exp(score) / chance has the full sum as its mean, word by word."""
    problem = Problem()
    sampler = LogUniformSampler(problem.words, 20)
    scores = problem.x @ problem.weight.T + problem.bias  # (N, V)
    total = scores.exp().sum(dim=1)
    corrected = scores - torch.from_numpy(sampler.log_expected).double()
    draws = torch.stack(
        [corrected[:, torch.from_numpy(sampler.draw(2, i))].exp().sum(dim=1) for i in range(4000)]
    )
    noise = draws.std(dim=0) / np.sqrt(len(draws))
    # 1 %: the chances are those of a constant number of draws.
    assert ((draws.mean(dim=0) - total).abs() < 5 * noise + 0.01 * total).all()
