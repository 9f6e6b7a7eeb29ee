"""The losses of pretraining: full, sampled, adaptive and character-CNN softmaxes; distillation.

A `SoftmaxLoss` gives the loss of a batch. The sampled ones touch few rows of the softmax, so those
rows are made leaves of their own: their gradients stay small, whatever the vocabulary (see
`UsedRows`). `LogUniformSampler` draws the negatives.

`log_normaliser` is the one costly part of every softmax loss: the logarithm of the sum over all
words of exp(logit). It is computed for a few tokens at a time, and again in the backward pass, so
the logits of all tokens are never stored.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from elmokit.engines import TRITON
from elmokit.engines.train import take_rows
from elmokit.errors import ConfigError
from elmokit.model.bilm import BiLM
from elmokit.model.lstm import LayerOutput
from elmokit.text.inputs import WordInputs

if TYPE_CHECKING:
    from elmokit.training.data import LmBatch

LOGITS_AT_ONCE = 1 << 26
"""The most logits that exist at a time (256 MiB in float32)."""


def log_normaliser(
    x: Tensor, weight: Tensor, bias: Tensor, left_out: Tensor | None = None
) -> Tensor:
    """Logarithm of Σ_k exp(x · w_k + b_k): (N,), float32.

    `x` is (N, P), `weight` (K, P) in the type of `x`, `bias` (K,) in float32; `left_out` is the
    word that each token leaves out of the sum (N,), or -1 for none.
    """
    result: Tensor = _LogNormaliser.apply(x, weight, bias, left_out)  # type: ignore[no-untyped-call]
    return result


def full_loss(x: Tensor, weight: Tensor, bias: Tensor, targets: Tensor) -> Tensor:
    """Sum over tokens of -log p(target) among all words."""
    own = _target_logits(x, weight, bias, targets)  # (N,)
    return (log_normaliser(x, weight, bias) - own).sum()


def sampled_loss(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    targets: Tensor,
    negatives: Tensor,
    accidental_hits: Tensor,
) -> Tensor:
    """Sum over tokens of -log p(target) among the target and the negatives.

    Args:
        x: The LSTM's outputs (N, P).
        weight: Output vectors of the targets and negatives (R, P).
        bias: Their biases less the log of their inclusion probability (R,), which corrects for
            the sampling.
        targets: Index of each token's target in them (N,).
        negatives: Indices of the negatives (K,).
        accidental_hits: The negative that is a token's own target (N,), or -1 for none.
    """
    if x.is_cuda and TRITON and x.dtype == torch.bfloat16:
        from elmokit.engines.triton import softmax

        if len(negatives) <= softmax.MOST_NEGATIVES:
            return softmax.sampled_loss(x, weight, bias, targets, negatives, accidental_hits)
    own = _target_logits(x, weight, bias, targets)  # (N,)
    sampled = take_rows(weight, negatives)
    others = log_normaliser(x, sampled, bias[negatives], accidental_hits)  # (N,)
    return (torch.logaddexp(own, others) - own).sum()


def _target_logits(x: Tensor, weight: Tensor, bias: Tensor, targets: Tensor) -> Tensor:
    """The logits of the tokens' own targets: (N,)."""
    terms = (x * take_rows(weight, targets)).to(bias.dtype)  # (N, P)
    return terms.sum(dim=1) + bias[targets]


class _LogNormaliser(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, left_out: Tensor | None
    ) -> Tensor:
        result = torch.empty(len(x), dtype=bias.dtype, device=x.device)
        for rows, logits in _logits(x, weight, bias, left_out):
            result[rows] = logits.logsumexp(dim=1)
        ctx.save_for_backward(x, weight, bias, left_out, result)
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, bias, left_out, result = ctx.saved_tensors
        # A token whose every word is left out has a sum of zero, and no share in it.
        result = result.masked_fill(result == -math.inf, 0.0)
        d_x = torch.empty_like(x)
        d_weight = torch.zeros(weight.shape, dtype=bias.dtype, device=x.device)
        d_bias = torch.zeros_like(bias)
        for rows, logits in _logits(x, weight, bias, left_out):
            share = logits.sub_(result[rows, None]).exp_()  # (n, K)
            share.mul_(gradients[0][rows, None])
            d_bias += share.sum(dim=0)
            share = share.to(x.dtype)
            torch.mm(share, weight, out=d_x[rows])
            d_weight += share.mT @ x[rows]
        return d_x, d_weight.to(weight.dtype), d_bias, None


def _logits(x: Tensor, weight: Tensor, bias: Tensor, left_out: Tensor | None) -> Any:
    """Logits of a few tokens at a time for all words, float32: (n, K)."""
    step = max(1, LOGITS_AT_ONCE // max(1, len(weight)))
    for start in range(0, len(x), step):
        rows = slice(start, min(start + step, len(x)))
        logits = torch.add(x[rows] @ weight.mT, bias)
        if left_out is not None:
            # Every row writes one element, its own value where nothing is left out: selecting
            # the rows that leave a word out would synchronise host and device.
            column = left_out[rows, None].long()
            index = column.clamp(min=0)
            value = logits.gather(1, index).masked_fill_(column >= 0, -torch.inf)
            logits.scatter_(1, index, value)
        yield rows, logits


# The losses of a batch, one class per kind of softmax


@dataclass(frozen=True)
class UsedRows:
    """Rows of a parameter that a batch used, as a leaf of the autograd graph."""

    parameter: nn.Parameter
    rows: Tensor  # (R,) distinct
    leaf: Tensor  # (R, ...) the rows' values


class SoftmaxLoss(ABC):
    """The loss of a batch."""

    row_parameters: tuple[nn.Parameter, ...] = ()
    """Parameters whose gradients come as rows."""
    capturable: bool = True
    """Whether a CUDA graph can be captured: the kernels depend on the batch's shapes alone."""

    @abstractmethod
    def __call__(self, top: Tensor, batch: LmBatch) -> tuple[Tensor, list[UsedRows]]:
        """The summed loss of each direction (D,) for top outputs (D, N, P), and the rows used."""


class FullLoss(SoftmaxLoss):
    """Over all words; serves plain, tied and adaptive softmaxes."""

    def __init__(self, bilm: BiLM) -> None:
        assert bilm.softmax is not None
        self._bilm = bilm
        self._softmax = bilm.softmax
        self.capturable: bool = bilm.softmax.adaptive is None

    def __call__(self, top: Tensor, batch: LmBatch) -> tuple[Tensor, list[UsedRows]]:
        """Cross-entropy over the whole vocabulary."""
        softmax, pairs = self._softmax, zip(top, batch.targets, strict=True)
        if (adaptive := softmax.adaptive) is not None:
            dtype = adaptive.head.weight.dtype
            return torch.stack([-adaptive(x.to(dtype), y).output.sum() for x, y in pairs]), []
        table = self._bilm.encoder.words
        weight = softmax.weight if softmax.weight is not None else table.embedding  # type: ignore[union-attr]
        assert softmax.bias is not None
        cast = weight.to(top.dtype)
        return torch.stack([full_loss(x, cast, softmax.bias, y) for x, y in pairs]), []


class SampledLoss(SoftmaxLoss):
    """Over the target and drawn negatives; `log_expected`: log inclusion probabilities (V,)."""

    def __init__(self, bilm: BiLM, log_expected: Tensor) -> None:
        assert bilm.softmax is not None
        self._bilm = bilm
        self._softmax = bilm.softmax
        self._log_expected = log_expected
        assert self._softmax.bias is not None
        self.row_parameters: tuple[nn.Parameter, ...] = (self._softmax.bias,)
        if self._softmax.weight is not None:
            self.row_parameters = (self._softmax.weight, self._softmax.bias)

    def __call__(self, top: Tensor, batch: LmBatch) -> tuple[Tensor, list[UsedRows]]:
        """Cross-entropy over the batch's sample."""
        sample = batch.sample
        assert sample is not None
        rows = sample.rows
        used = [
            UsedRows(p, rows, p.detach().index_select(0, rows).requires_grad_())
            for p in self.row_parameters
        ]
        weight = used[0].leaf if len(used) > 1 else self._weight(rows)
        corrected = used[-1].leaf - self._log_expected.index_select(0, rows)  # (R,)
        cast = weight.to(top.dtype)
        parts = zip(top, sample.targets, sample.negatives, sample.accidental_hits, strict=True)
        losses = [sampled_loss(x, cast, corrected, *indices) for x, *indices in parts]
        return torch.stack(losses), used

    def _weight(self, rows: Tensor) -> Tensor:
        """A tied matrix is the word input's, which gets gradients from both sides."""
        table = self._bilm.encoder.words
        assert table is not None
        return F.embedding(rows, table.embedding)


class CnnLoss(SampledLoss):
    """Sampled, with each word's output vector made from its spelling.

    The characters of all V words of `vocabulary` go through the model's own CNN and a projection
    of this loss to the softmax's width. Before the model is evaluated or saved, `materialise`
    writes the vectors into the plain softmax.
    """

    def __init__(
        self, bilm: BiLM, log_expected: Tensor, vocabulary: WordInputs, projection: nn.Linear
    ) -> None:
        super().__init__(bilm, log_expected)
        assert self._softmax.bias is not None
        self.row_parameters: tuple[nn.Parameter, ...] = (self._softmax.bias,)
        self._characters = torch.as_tensor(vocabulary.characters).to(bilm.device)  # (V, C)
        self.projection = projection

    def _weight(self, rows: Tensor) -> Tensor:
        cnn = self._bilm.encoder.characters
        assert cnn is not None
        return self.projection(cnn(self._characters[rows]))  # type: ignore[no-any-return]  # (R, P)

    @torch.no_grad()
    def materialise(self) -> None:
        """Write every word's output vector into the softmax."""
        assert self._softmax.weight is not None
        everything = torch.arange(len(self._characters), device=self._softmax.weight.device)
        for rows in everything.split(1024):
            self._softmax.weight[rows] = self._weight(rows).float()


class DistillLoss:
    """How far the layers of a student are from those of a teacher.

    A linear map for each layer and direction goes from the student's width to the teacher's, and
    is trained along. The error of a layer is the mean squared one, divided by the variance of the
    teacher's layer in the batch, so that 1 is what a map to the mean would reach.
    """

    def __init__(self, teacher: BiLM, student: BiLM, weight: float, seed: int) -> None:
        own, wanted = student.config.lstm, teacher.config.lstm
        same_inputs = (
            teacher.config.words is None
            and student.config.words is None
            and teacher.config.characters is not None
            and student.config.characters is not None
            and teacher.config.characters.alphabet == student.config.characters.alphabet == "bytes"
            and teacher.config.characters.max_characters == student.config.characters.max_characters
            and teacher.config.characters.swapped_markers
            == student.config.characters.swapped_markers
        )
        if not same_inputs:
            raise ConfigError(
                "distill.teacher: teacher and student must read the same input, the bytes of up to "
                "max_characters characters and no words"
            )
        if (own.layers, own.directions) != (wanted.layers, wanted.directions):
            raise ConfigError(
                "distill.teacher: teacher and student must have the same number of LSTM layers "
                "and directions"
            )
        self.teacher: BiLM = teacher
        self._weight = weight
        shape = own.layers, len(own.directions), own.width, wanted.width
        start = torch.randn(shape, generator=torch.Generator().manual_seed(seed % 2**63))
        self.maps: nn.ParameterList = nn.ParameterList(
            nn.Parameter(layer.to(student.device) * own.width**-0.5) for layer in start
        )

    def __call__(self, layers: Sequence[LayerOutput], wanted: Sequence[LayerOutput]) -> Tensor:
        """The mean over layers and directions, times the weight."""
        errors = []
        for linear, have, want in zip(self.maps, layers, wanted, strict=True):
            target = torch.stack(want.halves)  # (D, N, P of the teacher)
            given = torch.stack(have.halves) @ linear.to(target.dtype)
            error = (given - target).float().square().mean(dim=(1, 2))
            variance = target.float().var(dim=1).mean(dim=1)  # (D,)
            errors.append(error / variance)
        return torch.stack(errors).mean() * self._weight


# Negatives


class LogUniformSampler:
    """Draws negatives: sets of `count` distinct words, log-uniform over a vocabulary of `words`.

    A vocabulary is sorted by falling frequency, so a log-uniform draw comes near to drawing words
    by how often they occur.
    """

    def __init__(self, words: int, count: int) -> None:
        self.words = words
        self.count: int = min(count, words)
        ranks = np.arange(words)
        self._probability = np.log1p(1.0 / (ranks + 1)) / np.log(words + 1)  # P(word) of one draw
        self.log_expected: NDArray[np.float32] = np.log(self._inclusion()).astype(np.float32)
        """log of each word's inclusion probability, which the softmax subtracts from its logit."""

    def draw(self, *seed: int) -> NDArray[np.int64]:
        """A set for this seed: the first `count` distinct words of an endless sequence of draws."""
        if self.count == self.words:
            return np.arange(self.words)
        random = np.random.default_rng(seed)
        found = np.empty(0, dtype=np.int64)
        while len(found) < self.count:
            more = np.exp(random.random(2 * self.count) * np.log(self.words + 1)).astype(np.int64)
            drawn = np.concatenate([found, np.minimum(more - 1, self.words - 1)])
            _, first = np.unique(drawn, return_index=True)
            found = drawn[np.sort(first)]
        return found[: self.count]

    def _inclusion(self) -> NDArray[np.float64]:
        """Each word's probability to be drawn before `count` distinct words are.

        The number of draws that takes is nearly constant; it is the t at which t draws give
        `count` distinct words on average, found by bisection.
        """
        if self.count == self.words:
            return np.ones(self.words)
        log_absent = np.log1p(-self._probability)
        low, high = float(self.count), float(self.count)
        while -np.expm1(high * log_absent).sum() < self.count:
            high *= 2
        for _ in range(60):
            middle = (low + high) / 2
            if -np.expm1(middle * log_absent).sum() < self.count:
                low = middle
            else:
                high = middle
        probability: NDArray[np.float64] = -np.expm1(high * log_absent)
        return probability
