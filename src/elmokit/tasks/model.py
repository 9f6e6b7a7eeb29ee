"""Inputs and a task's head together: what is trained, saved and queried; and what heads share.

Heads share a biLSTM over padded texts, pooling, the loss of choosing a class, a CRF.
"""

from __future__ import annotations

import queue
import sys
import threading
from abc import abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from elmokit.engines import to_device
from elmokit.engines.cpu_training import Dropout, bilstm
from elmokit.errors import ConfigError, DataError
from elmokit.tasks.config import ClassLossConfig, EncoderConfig, TaskConfig
from elmokit.tasks.details import Details
from elmokit.tasks.inputs.token_inputs import Embedder, Side, Widths
from elmokit.tasks.records import Span, Tokens
from elmokit.tasks.task import Batch, C, E, Head, Task, TaskScore
from elmokit.text.batching import run_in_batches

Item = TypeVar("Item")

PREDICT_TOKENS = 4096
"""The most tokens of examples that are answered together."""
_PREFETCH = 512
"""Items of a stream that are prefetched; as many make a group at most."""
_JOIN_SECONDS = 0.5
"""Seconds in which a thread ends that does not wait for input."""
FORBIDDEN = -1e4
"""Score of what may not be: no probability is left of it in float32, and gradients stay numbers."""
_LEAST = -300.0
"""Log of the least factor: what is forbidden is left with it, so that no sum is zero."""


class TaskModel(nn.Module):
    """A task's whole model; `learned` is what the training data decided."""

    def __init__(
        self, task: Task[Any], config: TaskConfig, learned: dict[str, Any], embedder: Embedder
    ) -> None:
        super().__init__()
        if embedder.widths.target and not task.writes:
            raise ConfigError(f"inputs.elmo_at: {task.name} writes no text, so it has no target")
        self.task = task
        self.embedder = embedder
        self.head: Head[Any] = task.make_head(config, learned, embedder.widths)
        self._config = config
        self._learned = learned

    def batch(self, examples: Sequence[Any]) -> Batch[Any]:
        """Examples with the vectors of their texts."""
        texts = [self.task.texts(example) for example in examples]
        sides = [self.embedder(side) for side in zip(*texts, strict=True)]
        return Batch(examples, sides, self.embedder.written)

    def loss(self, examples: Sequence[Any]) -> Tensor:
        """Mean loss of labelled examples."""
        batch = self.batch(examples)
        with self._mixed_precision():
            loss: Tensor = self.head.loss(batch)
        return loss + self.embedder.penalty()

    def annotate(self, examples: Iterable[Any], *, live: bool = False) -> Iterator[Any]:
        """Examples with answers filled in: a stream in order, memory bounded.

        Args:
            examples: The examples.
            live: Answer as soon as no more examples are waiting. Else more are prefetched, so that
                those of similar length are answered together.
        """
        return self._run(examples, self.head.predict, live)

    def with_probabilities(
        self, examples: Iterable[Any], *, live: bool = False
    ) -> Iterator[tuple[Any, NDArray[np.float64]]]:
        """The same, and the probabilities of all classes (K,), or tags (T, K), with each."""
        return self._run(examples, self.label_head.with_probabilities, live)

    def with_details(
        self, examples: Iterable[Any], *, live: bool = False
    ) -> Iterator[tuple[Any, Details]]:
        """The same as `annotate`, and the details of each answer.

        Raises:
            ConfigError: The task has none.
        """
        if type(self.head).details is Head.details:
            raise ConfigError(f"{self.task.name}: answers of this task have no details")
        return self._run(examples, self.head.details, live)

    def score(self, gold: Sequence[Any]) -> TaskScore:
        """The score of this model's answers to labelled examples."""
        predicted = list(self.annotate(gold))
        return self.task.score(gold, predicted, config=self._config, learned=self._learned)

    @property
    def label_head(self) -> LabelHead[Any]:
        """The head, if it chooses one of several classes, or tags.

        Raises:
            ConfigError: It does not.
        """
        if not isinstance(self.head, LabelHead):
            raise ConfigError(
                f"{self.task.name}: this task has no probabilities of classes; those have them "
                "that choose a class or tags, such as classify, pair, relation, coref and tag"
            )
        return self.head

    def _run(
        self, examples: Iterable[Any], answer: Callable[[Batch[Any]], list[Any]], live: bool
    ) -> Iterator[Any]:
        def run(batch: list[Any]) -> list[Any]:
            self.eval()
            with torch.no_grad():
                vectors = self.batch(batch)
                with self._mixed_precision():
                    return answer(vectors)

        def run_all(some: Iterable[Any]) -> Iterator[Any]:
            return run_in_batches(some, self.length, run, PREDICT_TOKENS)

        def run_live() -> Iterator[Any]:
            with closing(arrivals(examples)) as groups:
                for group in groups:
                    yield from run_all(group)

        return run_live() if live else run_all(examples)

    def length(self, example: Any) -> int:
        """Tokens of all texts of an example; at least one."""
        return max(1, sum(len(text) for text in self.task.texts(example)))

    def _mixed_precision(self) -> AbstractContextManager[Any]:
        """For the head alone: vectors are exact, whatever the precision."""
        device = self.embedder.device
        wanted = self._config.run.precision
        on = wanted == "bfloat16" or (wanted == "auto" and device.type == "cuda")
        return torch.autocast(device.type, dtype=torch.bfloat16, enabled=on)


# Streams that are answered as they come.


@dataclass(frozen=True)
class _End:
    """The stream is over, or could not be read on."""

    error: BaseException | None = None


def arrivals(items: Iterable[Item]) -> Generator[list[Item], None, None]:
    """Groups of what has come while the group before was worked on; one item at the least.

    A thread reads the stream, so that only it waits where nothing is there. What the stream raises
    is raised here, after all that came before.
    """
    waiting: queue.Queue[Item | _End] = queue.Queue(_PREFETCH)
    stopped = threading.Event()

    def read() -> None:
        # After Ctrl-C this thread still waits inside the standard input. Python would try to close
        # that at its end, and die of it, if nothing held it.
        held = sys.stdin
        try:
            for item in items:
                waiting.put(item)
                if stopped.is_set():
                    return
        except BaseException as error:  # for the thread that works on the items
            waiting.put(_End(error))
        else:
            waiting.put(_End())
        del held

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    end: _End | None = None
    try:
        while end is None:
            group: list[Item] = []
            while end is None and (not group or (len(group) < _PREFETCH and not waiting.empty())):
                found = waiting.get()
                if isinstance(found, _End):
                    end = found
                else:
                    group.append(found)
            if group:
                yield group
        if end.error is not None:
            raise end.error
    finally:
        stopped.set()
        while not waiting.empty():  # the thread may wait for room
            waiting.get()
        # A thread that runs while Python ends may take the process down; one that waits does not.
        reader.join(_JOIN_SECONDS)


# What heads share.


class LabelHead(Head[E]):
    """A network that gives every one of several labels a probability: of a text, or of a token."""

    labels: tuple[str, ...]
    """The labels, in the order of their probabilities."""

    @abstractmethod
    def with_probabilities(self, batch: Batch[E]) -> list[tuple[E, NDArray[np.float64]]]:
        """Examples with answers, and the probabilities of all labels with each: (K,) or (T, K)."""


class ClassHead(LabelHead[C]):
    """A network that gives every class a score; a subclass says how, by `_scores`.

    `labels` has the classes, and how often each occurs in the training data.
    """

    def __init__(self, labels: Mapping[str, int], loss: ClassLossConfig) -> None:
        super().__init__()
        self.labels: tuple[str, ...] = tuple(labels)
        self._numbers = {label: number for number, label in enumerate(self.labels)}
        self.class_loss: ClassLoss = ClassLoss(loss, list(labels.values()))

    def loss(self, batch: Batch[C]) -> Tensor:
        """Cross entropy of the true classes."""
        scores = self._scores(batch)  # (B, K)
        targets = self.targets(batch.examples)
        loss: Tensor = self.class_loss(scores, to_device(targets, scores.device))
        return loss

    def targets(self, examples: Sequence[C]) -> Tensor:
        """Numbers of the true classes, (B,), on the host."""
        return torch.tensor([self._numbers[str(example.label)] for example in examples])

    def predict(self, batch: Batch[C]) -> list[C]:
        """Examples with their most probable classes."""
        return [example for example, _ in self.with_probabilities(batch)]

    def with_probabilities(self, batch: Batch[C]) -> list[tuple[C, NDArray[np.float64]]]:
        """The same, and the probabilities of all classes (K,) with each."""
        shares = self._scores(batch).cpu().double().softmax(dim=1).numpy()  # (B, K)
        rows: list[tuple[Any, NDArray[np.float64]]] = list(zip(batch.examples, shares, strict=True))
        return [(replace(example, label=self.labels[row.argmax()]), row) for example, row in rows]

    def details(self, batch: Batch[C]) -> list[tuple[C, Details]]:
        """The same as `Details`."""
        found: list[tuple[C, Details]] = []
        for example, row in self.with_probabilities(batch):
            shares = dict(zip(self.labels, row.tolist(), strict=True))
            chosen = str(example.label)
            found.append((example, Details(chosen, shares[chosen], probabilities=shares)))
        return found

    @abstractmethod
    def _scores(self, batch: Batch[C]) -> Tensor:
        """Scores of all classes, (B, K)."""


class TextEncoder(nn.Module):
    """A biLSTM over the tokens; what enters at the output joins behind it.

    `extra`: width of further features per token, such as a mark.
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
        self.dropout: Dropout = Dropout(config.dropout)
        self.width: int = width + widths.output
        """Of what comes out for a token."""

    def forward(self, side: Side, extra: Tensor | None = None) -> Tensor:
        """Encode a text of each example, with further features (B, T, extra).

        Returns (B, T, width); what is beyond a text's end means nothing.
        """
        vectors = side.vectors if extra is None else torch.cat([side.vectors, extra], dim=2)
        if self.lstm is not None:
            vectors = self.dropout(bilstm(self.lstm, vectors, side.lengths.clamp(min=1)))
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
    """One vector per text: its tokens, weighted by attention to a learned query."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.hidden: nn.Linear = nn.Linear(width, width)
        self.question: nn.Linear = nn.Linear(width, 1, bias=False)

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
    """Where the tokens of each text's span are: like the texts' `mask`, (B, T), True inside them.

    Raises:
        DataError: A span is empty or not inside its text.
    """
    for span, tokens in zip(spans, texts, strict=True):
        check_span(span, tokens)
    steps = torch.arange(mask.shape[1], device=mask.device)  # (T,)
    edges = to_device(torch.tensor(spans), mask.device)  # (B, 2)
    return (steps >= edges[:, :1]) & (steps < edges[:, 1:])


def check_span(span: Span, tokens: Tokens) -> None:
    """Refuse a span that is empty or not inside its text."""
    start, end = span
    if not 0 <= start < end <= len(tokens):
        raise DataError(
            f"a mention from token {start} to before {end} is not inside its text, which has "
            f"{len(tokens)} tokens: {' '.join(tokens[:8])!r}"
        )


def dense_layers(width: int, hidden: int, count: int, dropout: float) -> nn.Sequential:
    """From one vector to the scores of `count` classes; `hidden` = 0: no layer between."""
    layers: list[nn.Module] = [Dropout(dropout)]
    if hidden:
        layers += [nn.Linear(width, hidden), nn.ReLU(), Dropout(dropout)]
    return nn.Sequential(*layers, nn.Linear(hidden or width, count))


class ClassLoss(nn.Module):
    """Cross entropy with class weights and label smoothing.

    `counts`: how often each class occurs in the training data, in the order of the classes.
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


class Crf(nn.Module):
    """Scores of whole label sequences: labels, transitions, and what starts and ends.

    Args:
        labels: K, how many labels there are.
        may_follow: Which label (column) may follow which (row), (K, K); all when left out.
        may_start: Which labels may be the first, (K,); all when left out.
        may_end: Which labels may be the last, (K,); all when left out.
    """

    _follow: Tensor
    _start: Tensor
    _end: Tensor

    def __init__(
        self,
        labels: int,
        *,
        may_follow: Tensor | None = None,
        may_start: Tensor | None = None,
        may_end: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.transitions: nn.Parameter = nn.Parameter(torch.zeros(labels, labels))
        self.start: nn.Parameter = nn.Parameter(torch.zeros(labels))
        self.end: nn.Parameter = nn.Parameter(torch.zeros(labels))
        one, all_pairs = torch.ones(labels, dtype=torch.bool), torch.ones(labels, labels).bool()
        for name, allowed in (
            ("_follow", all_pairs if may_follow is None else may_follow),
            ("_start", one if may_start is None else may_start),
            ("_end", one if may_end is None else may_end),
        ):
            self.register_buffer(name, allowed.clone(), persistent=False)

    def loss(self, scores: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
        """Negative log-likelihood of each sequence, (B,); zero for a sequence of length 0.

        Args:
            scores: Of each label at each position, (B, T, K).
            labels: The true labels, (B, T); anything beyond a sequence's end.
            mask: True where a position is used, (B, T); those of a sequence are its first ones.
        """
        scores = scores.float()
        return self._partition(scores, mask) - self._score(scores, labels, mask)

    def _tables(self) -> tuple[Tensor, Tensor, Tensor]:
        return (
            self.transitions.masked_fill(~self._follow, FORBIDDEN),
            self.start.masked_fill(~self._start, FORBIDDEN),
            self.end.masked_fill(~self._end, FORBIDDEN),
        )

    def _score(self, scores: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
        """Score of given sequences, (B,)."""
        transitions, start, end = self._tables()
        labels = labels.masked_fill(~mask, 0)
        own = scores.gather(2, labels[:, :, None]).squeeze(2) * mask  # (B, T)
        moves = transitions[labels[:, :-1], labels[:, 1:]] * mask[:, 1:]  # (B, T - 1)
        last = labels.gather(1, (mask.sum(dim=1) - 1).clamp(min=0)[:, None]).squeeze(1)
        total: Tensor = own.sum(dim=1) + moves.sum(dim=1) + start[labels[:, 0]] + end[last]
        return torch.where(mask[:, 0], total, torch.zeros_like(total))

    def _partition(self, scores: Tensor, mask: Tensor) -> Tensor:
        """Log of the sum over all sequences, (B,)."""
        given: Iterable[Tensor] = (scores, *self._tables(), mask)
        if scores.device.type == "mps":  # which has no double precision
            given = (part.cpu() for part in given)
        total: Tensor = _Partition.apply(*given)  # type: ignore[no-untyped-call]
        return total.to(scores.device)

    @torch.no_grad()
    def posterior(self, scores: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Probabilities of labels; arguments as for `loss`, on the host and in double precision.

        Returns:
            Those of each label at each position whatever the others are (marginals), (B, T, K);
            and what labels depend on, given the one before: (B, T, K) and (K, K), see
            `elmokit.tasks.tag.marginals.TagPosterior`.
        """
        given = (part.cpu() for part in (scores.float(), *self._tables(), mask))
        _, probable, _, onward, move, _ = _recursions(*given)
        return probable, onward, move

    @torch.no_grad()
    def best(self, scores: Tensor, mask: Tensor) -> list[list[int]]:
        """The most probable sequences (Viterbi); arguments as for `loss`."""
        transitions, start, end = self._tables()
        scores = scores.float()
        total = start + scores[:, 0]  # (B, K): the best sequence that ends in a label here
        came: list[Tensor] = []
        same = torch.arange(total.shape[1], device=total.device).expand_as(total)
        for step in range(1, scores.shape[1]):
            best, before = (total[:, :, None] + transitions[None]).max(dim=1)  # (B, K)
            running = mask[:, step, None]
            total = torch.where(running, best + scores[:, step], total)
            came.append(torch.where(running, before, same))
        label = (total + end).argmax(dim=1)  # (B,)
        path = [label]
        for before in reversed(came):
            label = before.gather(1, label[:, None]).squeeze(1)
            path.append(label)
        found = torch.stack(path[::-1], dim=1).tolist()  # (B, T)
        return [row[:length] for row, length in zip(found, mask.sum(dim=1).tolist(), strict=True)]


def _recursions(
    scores: Tensor, transitions: Tensor, start: Tensor, end: Tensor, mask: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The forward-backward algorithm.

    The recursions from both ends are independent, so one loop runs both, with one matmul per
    position. What is summed are probabilities themselves, scaled to one at every position and
    in double precision; no sum is below the least factor, because the highest is one.

    Returns:
        The log of the sum over all sequences (B,); the probabilities of labels (B, T, K); and what
        those of pairs of neighbours are made of.
    """
    # From each row's own end: the backward way has no more to do with padding than the other.
    last = mask.sum(dim=1, keepdim=True) - 1  # (B, 1)
    positions = (last - torch.arange(mask.shape[1], device=mask.device)).clamp(min=0)
    turned = positions[:, :, None].expand(scores.shape)  # (B, T, K)
    own, own_top = _weights(scores, dim=2)  # (B, T, K), (B, T, 1)
    ways = torch.stack([own, own.gather(1, turned)])  # (2, B, T, K)
    both = ways.permute(2, 0, 1, 3).contiguous()  # (T, 2, B, K)
    move, move_top = _weights(transitions.reshape(1, -1), dim=1)
    move = move.view_as(transitions)
    edges, edge_top = _weights(torch.stack([start, end]), dim=1)  # (2, K), (2, 1)

    moves = torch.stack([move, move.T])  # (2, K, K)
    before, after = torch.empty_like(both), torch.empty_like(both)
    sums = both.new_empty(*both.shape[:3], 1)
    before[0] = edges[:, None, :]
    previous: Tensor | None = None
    for here, reached, there, total in zip(both, before, after, sums, strict=True):
        if previous is not None:
            torch.bmm(previous, moves, out=reached)  # (2, B, K)
        torch.mul(reached, here, out=there)
        torch.sum(there, dim=2, keepdim=True, out=total)
        previous = there.div_(total)
    forward = after[:, 0].transpose(0, 1)  # (B, T, K): up to a position, itself included
    onward, behind = (t[:, 1].transpose(0, 1).gather(1, turned) for t in (after, before))

    through = (forward * behind).sum(dim=2, keepdim=True)  # (B, T, 1): all sequences, scaled
    shares = (forward / through).masked_fill(~mask[:, :, None], 0.0)
    logs = (sums[:, 0].transpose(0, 1).log() + own_top).squeeze(2)  # (B, T)
    whole = (logs * mask).sum(dim=1) + last.squeeze(1) * move_top.squeeze() + edge_top.sum()
    whole += through.squeeze(2).gather(1, last.clamp(min=0)).log().squeeze(1)
    whole = whole.masked_fill(~mask[:, 0], 0.0).to(scores.dtype)
    return whole, shares * behind, shares, onward, move, last


class _Partition(torch.autograd.Function):
    """Log of the sum over all sequences, and its gradients by the forward-backward algorithm."""

    @staticmethod
    def forward(
        ctx: Any, scores: Tensor, transitions: Tensor, start: Tensor, end: Tensor, mask: Tensor
    ) -> Tensor:
        """Log of the sum for each row: (B, T, K), (K, K), (K,), (K,) and (B, T) to (B,)."""
        whole, *kept, last = _recursions(scores, transitions, start, end, mask)
        ctx.save_for_backward(*kept, mask, last)
        ctx.kind = scores.dtype
        return whole

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Probabilities of labels at positions, and of pairs of neighbours."""
        probable, shares, onward, move, mask, last = ctx.saved_tensors
        (gradient,) = gradients
        weights = gradient.double()[:, None, None]  # (B, 1, 1)
        labels = probable * weights  # (B, T, K)
        pairs = shares[:, :-1] * (mask[:, 1:, None] * weights)
        neighbours = pairs.flatten(0, 1).T @ onward[:, 1:].flatten(0, 1) * move  # (K, K)
        at = last.clamp(min=0)[:, :, None].expand(-1, -1, labels.shape[2])
        found = labels, neighbours, labels[:, 0].sum(dim=0), labels.gather(1, at).sum(dim=(0, 1))
        return *(part.to(ctx.kind) for part in found), None


def _weights(scores: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Scores as factors, the highest of which is one, and what the logarithm of that was."""
    exact = scores.double()
    top = exact.amax(dim=dim, keepdim=True)
    return (exact - top).clamp(min=_LEAST).exp(), top
