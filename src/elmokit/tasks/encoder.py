"""What heads share: a biLSTM over padded texts, pooling, and the loss of choosing a class."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from elmokit.engines import to_device
from elmokit.errors import DataError
from elmokit.tasks.config import ClassLossConfig, EncoderConfig
from elmokit.tasks.embedder import Side, Widths
from elmokit.tasks.examples import Span, Tokens

Label = TypeVar("Label")


class Encoder(nn.Module):
    """A biLSTM over the tokens; what enters at the output joins behind it.

    Args:
        config: Its sizes.
        widths: Of the token vectors.
        extra: Width of further features a token, such as a mark.
    """

    def __init__(self, config: EncoderConfig, widths: Widths, extra: int = 0) -> None:
        super().__init__()
        width = widths.input + extra
        self.lstm: nn.LSTM | None = None
        if config.layers:
            self.lstm = nn.LSTM(
                width,
                config.cells,
                config.layers,
                batch_first=True,
                bidirectional=True,
                dropout=config.dropout if config.layers > 1 else 0.0,
            )
            _initialise(self.lstm)
            width = 2 * config.cells
        self.dropout = nn.Dropout(config.dropout)
        self.width = width + widths.output
        """Of what comes out for a token."""

    def forward(self, side: Side, extra: Tensor | None = None) -> Tensor:
        """Encode a text of each example.

        Args:
            side: The texts.
            extra: Further features, (B, T, extra).

        Returns:
            (B, T, width); what stands beyond a text's end means nothing.
        """
        vectors = side.vectors if extra is None else torch.cat([side.vectors, extra], dim=2)
        if self.lstm is not None:
            lengths = side.lengths.clamp(min=1)
            packed = pack_padded_sequence(vectors, lengths, batch_first=True, enforce_sorted=False)
            encoded, _ = self.lstm(packed)
            vectors, _ = pad_packed_sequence(
                encoded, batch_first=True, total_length=vectors.shape[1]
            )
            vectors = self.dropout(vectors)
        return vectors if side.output is None else torch.cat([vectors, side.output], dim=2)


def _initialise(lstm: nn.LSTM) -> None:
    """Starting weights from which small data sets learn faster than from torch's own."""
    for name, parameter in lstm.named_parameters():
        for number, gate in enumerate(parameter.detach().chunk(4)):  # in, forget, cell, out
            if name.startswith("weight_ih"):
                nn.init.xavier_uniform_(gate)
            elif name.startswith("weight_hh"):
                nn.init.orthogonal_(gate)
            else:  # two biases are added up: the forget gate's together are one
                gate.fill_(0.5 if number == 1 else 0.0)


class AttentionPooling(nn.Module):
    """One vector a text: its tokens, weighed by how much a learned question cares for them.

    Args:
        width: Of the tokens' vectors.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(width, width)
        self.question = nn.Linear(width, 1, bias=False)

    def forward(self, vectors: Tensor, mask: Tensor) -> Tensor:
        """Pool (B, T, D) over the tokens of the mask, giving (B, D)."""
        care = self.question(torch.tanh(self.hidden(vectors))).squeeze(2).float()  # (B, T)
        # Finite, so that a text without tokens gives numbers too.
        shares = care.masked_fill(~mask, torch.finfo(care.dtype).min).softmax(dim=1)
        return torch.einsum("bt,btd->bd", shares.to(vectors.dtype), vectors)


def mean_pooling(vectors: Tensor, mask: Tensor) -> Tensor:
    """The mean over the tokens of the mask: (B, T, D) to (B, D)."""
    kept = vectors * mask[:, :, None]
    return kept.sum(dim=1) / mask.sum(dim=1).clamp(min=1)[:, None]


def max_pooling(vectors: Tensor, mask: Tensor) -> Tensor:
    """The maximum over the tokens of the mask: (B, T, D) to (B, D); zeros where there is none."""
    least = torch.finfo(vectors.dtype).min
    highest = vectors.masked_fill(~mask[:, :, None], least).amax(dim=1)
    return highest.masked_fill(~mask.any(dim=1)[:, None], 0.0)


def span_mask(spans: Sequence[Span], texts: Sequence[Tokens], mask: Tensor) -> Tensor:
    """Where the tokens of each text's span are.

    Args:
        spans: A span of each text.
        texts: The texts.
        mask: Of the texts' tokens, (B, T).

    Returns:
        Like `mask`, True inside the spans.

    Raises:
        DataError: A span is empty or not inside its text.
    """
    for span, tokens in zip(spans, texts, strict=True):
        check_span(span, tokens)
    steps = torch.arange(mask.shape[1], device=mask.device)  # (T,)
    edges = to_device(torch.tensor(spans), mask.device)  # (B, 2)
    return (steps >= edges[:, :1]) & (steps < edges[:, 1:])


def check_span(span: Span, tokens: Tokens) -> None:
    """Refuse a span that is empty or not inside its text.

    Raises:
        DataError: It is.
    """
    start, end = span
    if not 0 <= start < end <= len(tokens):
        raise DataError(
            f"a mention from token {start} to before {end} is not inside its text, which has "
            f"{len(tokens)} tokens: {' '.join(tokens[:8])!r}"
        )


def dense_layers(width: int, hidden: int, count: int, dropout: float) -> nn.Sequential:
    """From one vector to the scores of classes.

    Args:
        width: Of the vector.
        hidden: Width of the layer between; 0: none.
        count: How many classes.
        dropout: Before each layer.
    """
    layers: list[nn.Module] = [nn.Dropout(dropout)]
    if hidden:
        layers += [nn.Linear(width, hidden), nn.ReLU(), nn.Dropout(dropout)]
    return nn.Sequential(*layers, nn.Linear(hidden or width, count))


def known(label: Label | None, number: int) -> Label:
    """A label that must be there; `number` counts the training examples from one.

    Raises:
        DataError: It is None.
    """
    if label is None:
        raise DataError(f"training example {number} has no label, so nothing is learned from it")
    return label


def class_counts(labels: Iterable[str]) -> dict[str, int]:
    """Classes in alphabetical order, and how often each occurs."""
    return dict(sorted(Counter(labels).items()))


def known_classes(labels: Iterable[str | None]) -> dict[str, int]:
    """The classes of the training data, and how often each occurs.

    Raises:
        DataError: A label is missing, or there is nothing to choose from.
    """
    counts = class_counts(known(label, number) for number, label in enumerate(labels, 1))
    if len(counts) < 2:
        raise DataError(
            f"the training data has {len(counts)} class{'' if len(counts) == 1 else 'es'} "
            f"({', '.join(counts) or 'none'}); two are the least to choose from"
        )
    return counts


def check_classes(
    labels: Iterable[tuple[str | None, str | None]], classes: Collection[str]
) -> None:
    """Refuse labels that a model cannot give.

    Args:
        labels: Of examples to judge by, in order, and where each was read.
        classes: What the model chooses from.
    """
    for number, (label, where) in enumerate(labels, 1):
        if label is not None and label not in classes:
            raise DataError(
                f"{where or f'example {number}'}: the training data does not have the label "
                f"{label!r}. It has {', '.join(classes)}"
            )


class ClassLoss(nn.Module):
    """Cross entropy with class weights and label smoothing.

    Args:
        config: Which of both.
        counts: How often each class occurs in the training data, in the order of the classes.
    """

    weights: Tensor

    def __init__(self, config: ClassLossConfig, counts: Sequence[int]) -> None:
        super().__init__()
        weights = torch.ones(len(counts))
        if config.class_weights == "balanced":
            share = torch.tensor([max(1, count) for count in counts], dtype=torch.float)
            weights = share.sum() / (len(counts) * share)
        self.register_buffer("weights", weights, persistent=False)
        self._smoothing = config.label_smoothing

    def forward(self, scores: Tensor, targets: Tensor) -> Tensor:
        """Mean loss of scores (N, K) against classes (N,)."""
        return F.cross_entropy(
            scores.float(), targets, weight=self.weights, label_smoothing=self._smoothing
        )
