"""How a training step judges the top layer's outputs: one class per kind of loss.

A head gives the loss of a batch. The sampled heads touch few rows of the softmax, so those rows
are made leaves of their own: their gradients stay small, whatever the vocabulary (see
`UsedRows`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from elmokit.model.bilm import BiLM
from elmokit.text.inputs import WordInputs
from elmokit.training.batches import Batch
from elmokit.training.losses import full_loss, sampled_loss


@dataclass(frozen=True)
class UsedRows:
    """Rows of a parameter that a batch used, as a leaf whose gradient can be asked for."""

    parameter: nn.Parameter
    rows: Tensor  # (R,) distinct
    leaf: Tensor  # (R, ...) the rows' values


class Head(ABC):
    """The loss of a batch."""

    row_parameters: tuple[nn.Parameter, ...] = ()
    """Parameters whose gradients come as rows."""
    same_work: bool = True
    """Whether the work depends on the batch's shape alone, not on what is in it."""

    @abstractmethod
    def loss(self, top: Tensor, batch: Batch) -> tuple[Tensor, list[UsedRows]]:
        """Judge the top outputs.

        Args:
            top: (D, N, P).
            batch: What was read, on the device of `top`.

        Returns:
            The summed loss of each direction (D,), and the rows it used.
        """


class FullHead(Head):
    """All words compete; serves plain, tied and adaptive softmaxes."""

    def __init__(self, bilm: BiLM) -> None:
        assert bilm.softmax is not None
        self._bilm = bilm
        self._softmax = bilm.softmax
        self.same_work = bilm.softmax.adaptive is None

    def loss(self, top: Tensor, batch: Batch) -> tuple[Tensor, list[UsedRows]]:
        """Judge against the whole vocabulary."""
        softmax = self._softmax
        targets = batch.targets
        if softmax.adaptive is not None:
            losses = [
                -softmax.adaptive(x.to(softmax.adaptive.head.weight.dtype), y).output.sum()
                for x, y in zip(top, targets, strict=True)
            ]
            return torch.stack(losses), []
        table = self._bilm.encoder.words
        weight = softmax.weight if softmax.weight is not None else table.embedding  # type: ignore[union-attr]
        assert softmax.bias is not None
        cast = weight.to(top.dtype)
        losses = [full_loss(x, cast, softmax.bias, y) for x, y in zip(top, targets, strict=True)]
        return torch.stack(losses), []


class SampledHead(Head):
    """The target competes with drawn negatives.

    Args:
        bilm: The model.
        log_expected: log of each word's chance to be drawn: (V,).
    """

    def __init__(self, bilm: BiLM, log_expected: Tensor) -> None:
        assert bilm.softmax is not None
        self._bilm = bilm
        self._softmax = bilm.softmax
        self._log_expected = log_expected
        assert self._softmax.bias is not None
        self.row_parameters = (self._softmax.bias,)
        if self._softmax.weight is not None:
            self.row_parameters = (self._softmax.weight, self._softmax.bias)

    def loss(self, top: Tensor, batch: Batch) -> tuple[Tensor, list[UsedRows]]:
        """Judge against the batch's sample."""
        sample = batch.sample
        assert sample is not None
        rows = sample.rows
        used = [
            UsedRows(p, rows, p.detach().index_select(0, rows).requires_grad_())
            for p in self.row_parameters
        ]
        weight = used[0].leaf if len(used) > 1 else self._weight(rows)
        return self._sampled(top, weight, used[-1].leaf, rows, batch), used

    def _weight(self, rows: Tensor) -> Tensor:
        """A tied matrix is the word input's, which learns from both sides at once."""
        table = self._bilm.encoder.words
        assert table is not None
        return F.embedding(rows, table.embedding)

    def _sampled(
        self, top: Tensor, weight: Tensor, bias: Tensor, rows: Tensor, batch: Batch
    ) -> Tensor:
        sample = batch.sample
        assert sample is not None
        corrected = bias - self._log_expected.index_select(0, rows)  # (R,)
        cast = weight.to(top.dtype)
        losses = [
            sampled_loss(
                x,
                cast,
                corrected,
                sample.targets[d],
                sample.negatives[d],
                sample.accidental_hits[d],
            )
            for d, x in enumerate(top)
        ]
        return torch.stack(losses)


class CnnHead(SampledHead):
    """Sampled, with each word's output vector made from its spelling.

    The characters go through the model's own CNN and a projection of the head's. Before the model
    is judged or saved, `materialise` writes the vectors into the plain softmax.

    Args:
        bilm: The model; its character CNN is shared.
        log_expected: log of each word's chance to be drawn: (V,).
        vocabulary: Inputs of all V words.
        projection: Maps the CNN's output to the softmax's width.
    """

    def __init__(
        self, bilm: BiLM, log_expected: Tensor, vocabulary: WordInputs, projection: nn.Linear
    ) -> None:
        super().__init__(bilm, log_expected)
        assert self._softmax.bias is not None
        self.row_parameters = (self._softmax.bias,)
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
