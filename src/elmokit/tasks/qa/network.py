"""Bidirectional attention flow: a text and a question attend to each other, two pointers answer.

Long texts are cut into windows, so that memory depends on the windows.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from elmokit.config import check, check_positive
from elmokit.engines import to_device
from elmokit.engines.cpu_training import Dropout
from elmokit.tasks.config import TaskConfig, check_depth
from elmokit.tasks.details import Details, ScoredSpan
from elmokit.tasks.inputs.token_inputs import Side, Widths
from elmokit.tasks.model import TextEncoder, max_pooling
from elmokit.tasks.qa.files import QuestionExample
from elmokit.tasks.records import Span, Tokens
from elmokit.tasks.task import Batch, Head

_MARKS = 2
"""Features of a token that say what it has in common with the other text."""
_TOGETHER = 8192
"""The most tokens, in whole pieces, that are read together for answers."""


@dataclass(frozen=True, kw_only=True)
class QaHeadConfig:
    """From the vectors of a text and a question to a piece of the text."""

    layers: int = 1
    """Of the modelling biLSTM, above the attention; it has as many cells as the encoder."""
    match: bool = True
    """Whether a token says that it is in the other text too, alone and with a neighbour."""
    longest: int = 30
    """The most tokens of an answer."""
    window: int = 400
    """The most tokens of a text that are read together; longer texts are read in pieces."""
    overlap: int = 100
    """Tokens that two neighbouring pieces share, so that each answer is whole in one of them."""
    no_answer: bool = True
    """Whether to learn when a text holds no answer, if the training data has such questions."""

    def __post_init__(self) -> None:
        check_positive(self, "layers", "longest", "window", "overlap")
        check_depth(self, "layers")
        check(self.overlap >= self.longest, self, "overlap", "give at least head.longest")
        check(self.overlap < self.window, self, "overlap", "give less than head.window")


@dataclass(frozen=True, kw_only=True)
class QaConfig(TaskConfig):
    """Settings of `qa`."""

    head: QaHeadConfig = field(default_factory=QaHeadConfig)


class Pointed(NamedTuple):
    """What was found in the pieces of a batch's texts."""

    start: Tensor  # scores of first tokens, (W, T), the lowest number beyond a piece's end
    end: Tensor  # scores of last tokens, (W, T)
    pooled: Tensor  # all tokens of a piece together, (W, D)
    mask: Tensor  # (W, T)


class Flow(nn.Module):
    """Attention from a text to a question and back."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.context: nn.Linear = nn.Linear(width, 1, bias=False)
        self.question: nn.Linear = nn.Linear(width, 1)
        self.both: nn.Parameter = nn.Parameter(torch.empty(width))
        nn.init.normal_(self.both, std=width**-0.5)

    def forward(
        self, context: Tensor, question: Tensor, context_mask: Tensor, question_mask: Tensor
    ) -> Tensor:
        """What tokens of a text (W, T, D) are given from a question (W, Q, D): (W, T, 4 D)."""
        # w · [c; q; c * q] term by term: the products of all pairs never exist together.
        alike = torch.einsum("wtd,wqd->wtq", context * self.both, question)
        alike = alike + self.context(context) + self.question(question).transpose(1, 2)
        alike = alike.float().masked_fill(~question_mask[:, None, :], _least(torch.float))
        attended = alike.softmax(dim=2).to(context.dtype)  # (W, T, Q)
        found = torch.einsum("wtq,wqd->wtd", attended, question)
        care = alike.amax(dim=2).masked_fill(~context_mask, _least(torch.float)).softmax(dim=1)
        back = torch.einsum("wt,wtd->wd", care.to(context.dtype), context)[:, None, :]
        return torch.cat([context, found, context * found, context * back], dim=2)


class QaHead(Head[QuestionExample]):
    """Encoder, attention flow, modelling layer, pointers to the first and the last token."""

    def __init__(self, config: QaConfig, learned: dict[str, Any], widths: Widths) -> None:
        super().__init__()
        self._head = config.head
        self.encoder: TextEncoder = TextEncoder(
            config.encoder, widths, _MARKS if config.head.match else 0
        )
        width, cells = self.encoder.width, 2 * config.encoder.cells
        self.flow: Flow = Flow(width)
        self.merge: nn.Sequential = nn.Sequential(
            nn.Linear(4 * width, cells), nn.ReLU(), Dropout(config.encoder.dropout)
        )
        above = replace(config.encoder, layers=config.head.layers)
        self.model: TextEncoder = TextEncoder(above, Widths(cells, 0))
        self.model_end: TextEncoder = TextEncoder(
            replace(above, layers=1), Widths(2 * cells + 1, 0)
        )
        self.start: nn.Linear = nn.Linear(2 * cells, 1)
        self.end: nn.Linear = nn.Linear(2 * cells, 1)
        self.none: nn.Linear | None = nn.Linear(cells, 2) if learned["no_answer"] else None

    def loss(self, batch: Batch[QuestionExample]) -> Tensor:
        """Minus the log-probability of the true first and last tokens, per question."""
        size = self._head.window
        # Answers that a piece of the text can hold.
        spans = [[s for s in e.answer_spans() if s.end - s.start <= size] for e in batch.examples]
        silent = [self.none is not None and example.impossible for example in batch.examples]
        used = [row for row in range(len(spans)) if spans[row] or silent[row]]
        if not used:  # answers that are no piece of their texts; still a loss to go back from
            return torch.stack([p.sum() for p in self.parameters()]).sum() * 0
        lengths = [len(example.context_tokens) for example in batch.examples]
        windows = [
            window
            for row in used
            for window in training_windows(row, lengths[row], self._head.window, spans[row])
        ]
        found = self._point(batch, self._question(batch), windows)
        device = found.start.device
        numbers = {row: number for number, row in enumerate(used)}
        rows = to_device(torch.tensor([numbers[window.row] for window in windows]), device)  # (W,)
        has_none = to_device(torch.tensor([silent[row] for row in used]), device)  # (B,)
        none = self._none_scores(found.pooled, rows, len(used))
        losses = []
        for scores, last in ((found.start, False), (found.end, True)):
            gold = to_device(_true_positions(windows, spans, scores.shape, last=last), device)
            said = None if none is None else none[:, int(last)]
            losses.append(joint_loss(scores, gold, rows, said, has_none))
        return torch.stack(losses).sum(dim=0).mean()

    def predict(self, batch: Batch[QuestionExample]) -> list[QuestionExample]:
        """Questions with the best piece of their texts, or none."""
        return [example for example, _ in self._answers(batch, scored=False)]

    def details(self, batch: Batch[QuestionExample]) -> list[tuple[QuestionExample, Details]]:
        """The same as `Details`: the probability among all allowed pieces, and no answer."""
        found = []
        for example, (score, span) in self._answers(batch, scored=True):
            (answer,) = example.answers or (None,)
            if answer is None:
                found.append((example, Details(None, score, example.context)))
                continue
            end, tokens = answer.start + len(answer.text), (span.start, span.end)
            piece = ScoredSpan(answer.text, answer.start, end, "answer", score, tokens)
            found.append((example, Details(answer.text, score, example.context, spans=(piece,))))
        return found

    def _answers(
        self, batch: Batch[QuestionExample], *, scored: bool
    ) -> list[tuple[QuestionExample, tuple[float, Span]]]:
        """Answered questions; where that is wanted, with the answer's probability; and its span."""
        question = self._question(batch)
        size, overlap = self._head.window, self._head.overlap
        best: list[tuple[float, Span]] = [(-torch.inf, Span(0, 0))] * len(batch.examples)
        pooled, totals = [], []
        windows = [
            window
            for row, example in enumerate(batch.examples)
            for window in all_windows(row, len(example.context_tokens), size, overlap)
        ]
        step = max(1, _TOGETHER // size)
        for some in (windows[i : i + step] for i in range(0, len(windows), step)):
            found = self._point(batch, question, some)
            spans = best_spans(found.start, found.end, found.mask, self._head.longest)
            scores, firsts, ends = (tensor.tolist() for tensor in spans)
            for window, score, first, end in zip(some, scores, firsts, ends, strict=True):
                if score > best[window.row][0]:
                    best[window.row] = (score, Span(window.start + first, window.start + end))
            pooled.append(found.pooled)
            if scored:
                totals.append(all_spans(found.start, found.end, found.mask, self._head.longest))
        rows = to_device(torch.tensor([window.row for window in windows]), pooled[0].device)
        none = self._none_scores(torch.cat(pooled), rows, len(best))
        silence = [-torch.inf] * len(best) if none is None else none.sum(dim=1).tolist()
        answers = []
        for example, (score, span), no in zip(batch.examples, best, silence, strict=True):
            found_one = (example.text_of(span),) if score > no else ()
            answers.append((replace(example, answers=found_one), (max(score, no), span)))
        if not scored:
            return answers
        others = [] if none is None else [none.sum(dim=1).double()]
        total = _sum_by_row(torch.cat(totals), rows, len(best), others).tolist()
        return [
            (example, (math.exp(score - whole) if score > -math.inf else 1.0, span))
            for (example, (score, span)), whole in zip(answers, total, strict=True)
        ]

    def _question(self, batch: Batch[QuestionExample]) -> Tensor:
        pairs = [(e.question_tokens, e.context_tokens) for e in batch.examples]
        return self._encoded(batch.sides[1], pairs)  # (B, Q, D)

    def _encoded(self, side: Side, pairs: Sequence[tuple[Tokens, Tokens]]) -> Tensor:
        """Texts, marked where they have words in common with others, if that is wanted."""
        marks = _common(pairs, side.mask) if self._head.match else None
        encoded: Tensor = self.encoder(side, marks)
        return encoded

    def _point(
        self, batch: Batch[QuestionExample], question: Tensor, windows: Sequence[ContextWindow]
    ) -> Pointed:
        """Read pieces of the texts."""
        context, query = batch.sides
        side = cut(context, windows)
        pairs = []
        for row, start, end in windows:
            example = batch.examples[row]
            pairs.append((example.context_tokens[start:end], example.question_tokens))
        rows = to_device(torch.tensor([window.row for window in windows]), question.device)
        encoded = self._encoded(side, pairs)  # (W, T, D)
        flow = self.flow(encoded, question[rows], side.mask, query.mask[rows])
        merged = self.merge(flow)  # (W, T, 2 C)
        modelled = self.model(replace(side, vectors=merged, output=None))  # (W, T, 2 C)
        both = torch.cat([merged, modelled], dim=2)
        firsts = _masked(self.start(both), side.mask)  # (W, T)
        chosen = firsts.softmax(dim=1).to(both.dtype)[:, :, None]
        again = replace(side, vectors=torch.cat([both, chosen], dim=2), output=None)
        modelled_end = self.model_end(again)
        lasts = _masked(self.end(torch.cat([merged, modelled_end], dim=2)), side.mask)
        return Pointed(firsts, lasts, max_pooling(modelled, side.mask), side.mask)

    def _none_scores(self, pooled: Tensor, rows: Tensor, count: int) -> Tensor | None:
        """Scores of "no answer" as start and as end, (B, 2), from all pieces of a text."""
        if self.none is None:
            return None
        whole = pooled.new_full((count, pooled.shape[1]), _least(pooled.dtype))
        index = rows[:, None].expand_as(pooled)
        whole = whole.scatter_reduce(0, index, pooled, "amax")  # (B, D)
        scores: Tensor = self.none(whole).float()
        return scores


def _least(kind: torch.dtype) -> float:
    """The lowest number: finite, so that a text without tokens gives numbers too."""
    return torch.finfo(kind).min


def _masked(scores: Tensor, mask: Tensor) -> Tensor:
    return scores.squeeze(2).float().masked_fill(~mask, _least(torch.float))


def _common(pairs: Sequence[tuple[Tokens, Tokens]], mask: Tensor) -> Tensor:
    """What the tokens of the first texts have in common with the second, (B, T, 2).

    One where a token, and where a token with the one after or before it, is in the other.
    """
    marks = torch.zeros(*mask.shape, _MARKS)
    for row, (first, second) in enumerate(pairs):
        alone, coupled = [0.0] * len(first), [0.0] * len(first)
        own = [token.lower() for token in first]
        other = [token.lower() for token in second]
        words, couples = set(other), set(itertools.pairwise(other))
        for index, token in enumerate(own):
            if token in words:
                alone[index] = 1.0
            if (token, *own[index + 1 : index + 2]) in couples:
                coupled[index] = coupled[index + 1] = 1.0
        marks[row, : len(own)] = torch.tensor([alone, coupled]).T
    return to_device(marks, mask.device)


def _true_positions(
    windows: Sequence[ContextWindow],
    spans: Sequence[Sequence[Span]],
    shape: torch.Size,
    *,
    last: bool,
) -> Tensor:
    """True at the first (or last) tokens of the answers that are whole in a piece, (W, T)."""
    gold = torch.zeros(shape, dtype=torch.bool)
    for number, window in enumerate(windows):
        for span in spans[window.row]:
            if window.start <= span.start and span.end <= window.end:
                gold[number, (span.end - 1 if last else span.start) - window.start] = True
    return gold


# Windows of long texts: what is read together never grows with the text.


class ContextWindow(NamedTuple):
    """A piece of a text of a batch."""

    row: int  # which text
    start: int
    end: int


def all_windows(row: int, length: int, size: int, overlap: int) -> list[ContextWindow]:
    """Pieces that cover a text; neighbours share at least `overlap` tokens."""
    if length <= size:
        return [ContextWindow(row, 0, length)]
    starts = [*range(0, length - size, size - overlap), length - size]
    return [ContextWindow(row, start, start + size) for start in starts]


def training_windows(
    row: int, length: int, size: int, answers: Sequence[Span]
) -> list[ContextWindow]:
    """Two pieces of a text by chance, the first with an answer in it if there is one.

    A text that is not longer than `size` tokens is one piece; no answer is longer.
    """
    if length <= size:
        return [ContextWindow(row, 0, length)]
    lowest, highest = 0, length - size
    if answers:
        answer = answers[_draw(0, len(answers) - 1)]
        lowest, highest = max(0, answer.end - size), min(answer.start, length - size)
    starts = (_draw(lowest, highest), _draw(0, length - size))
    return [ContextWindow(row, start, start + size) for start in starts]


def _draw(lowest: int, highest: int) -> int:
    return int(torch.randint(lowest, highest + 1, ()))


def cut(side: Side, windows: Sequence[ContextWindow]) -> Side:
    """The pieces as a batch of their own."""
    device = side.mask.device
    rows, starts, ends = to_device(torch.tensor(windows), device).unbind(1)  # (W,)
    longest = max(1, *(window.end - window.start for window in windows))
    positions = starts[:, None] + torch.arange(longest, device=device)  # (W, T)
    mask = positions < ends[:, None]  # (W, T)
    positions = positions.clamp(max=side.mask.shape[1] - 1)

    def pieces(tensor: Tensor) -> Tensor:
        return tensor[rows[:, None], positions] * mask[:, :, None]  # (W, T, D)

    output = None if side.output is None else pieces(side.output)
    lengths = torch.tensor([window.end - window.start for window in windows])
    return Side(pieces(side.vectors), output, lengths, mask)


# Start and end scores of tokens to the best answer, and their loss.


def best_spans(
    start: Tensor, end: Tensor, mask: Tensor, longest: int
) -> tuple[Tensor, Tensor, Tensor]:
    """The spans with the highest sum of start and end score (B, T), in memory of the texts' size.

    Returns:
        Its score (minus infinity if a text has no token), first token, and one after the last
        token, (B,) each. Of equal spans the shortest counts, then the first.
    """
    size = start.shape[1]
    start, end = (scores.masked_fill(~mask, -torch.inf) for scores in (start, end))
    best, first = (start + end).max(dim=1)  # (B,)
    last = first
    for more in range(1, min(longest, size)):
        score, index = (start[:, : size - more] + end[:, more:]).max(dim=1)
        better = score > best
        best = torch.where(better, score, best)
        first = torch.where(better, index, first)
        last = torch.where(better, index + more, last)
    return best, first, last + 1


def all_spans(start: Tensor, end: Tensor, mask: Tensor, longest: int) -> Tensor:
    """Log of the sum over the same spans, of the exponential of their scores, (B,)."""
    size = start.shape[1]
    start, end = (scores.double().masked_fill(~mask, -torch.inf) for scores in (start, end))
    sums = [
        (start[:, : size - more] + end[:, more:]).logsumexp(dim=1)
        for more in range(min(longest, size))
    ]
    return torch.stack(sums).logsumexp(dim=0)


def joint_loss(
    scores: Tensor, gold: Tensor, rows: Tensor, none: Tensor | None, has_none: Tensor
) -> Tensor:
    """Minus the log-probability that a true position is chosen, over all pieces of a text; (B,).

    Scores and gold are of the pieces' tokens, (W, T), the score the lowest number beyond their
    ends; rows (W,) say which text each is from. Per text, (B,), none is the score of "no answer"
    (None if that cannot be said), and has_none is True where that is the truth.
    """
    least, count = _least(scores.dtype), len(has_none)
    others = [none] if none is not None else []
    total = _sum_by_row(scores.logsumexp(dim=1), rows, count, others)
    true = scores.masked_fill(~gold, least).logsumexp(dim=1)  # (W,)
    right = _sum_by_row(true, rows, count, [n.masked_fill(~has_none, least) for n in others])
    return total - right


def _sum_by_row(logs: Tensor, rows: Tensor, count: int, others: list[Tensor]) -> Tensor:
    """Logarithms of sums by text: (W,) and further (B,) to (B,)."""
    same = rows[None, :] == torch.arange(count, device=rows.device)[:, None]  # (B, W)
    table = logs[None, :].expand(count, -1).masked_fill(~same, torch.finfo(logs.dtype).min)
    return torch.cat([table, *(other[:, None] for other in others)], dim=1).logsumexp(dim=1)
