"""Tags for spans: IOB1, BIO (also called IOB2) and BIOES, converted and scored.

Spans are read as conlleval, the scorer of the CoNLL shared tasks, reads them: any sequence of tags
has spans, and tags that break the rules of their scheme start a span where the type changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

from elmokit.errors import ConfigError
from elmokit.tasks.task import MatchCounts, TaskScore, all_of, same_length, score_labels, share

Scheme: TypeAlias = Literal["iob1", "bio", "bioes"]
SCHEMES: tuple[Scheme, ...] = get_args(Scheme)
_VERB = "V"


class TagSpan(NamedTuple):
    """Tokens from `start` to before `end` that are one thing of a type."""

    start: int
    end: int
    type: str


def split_tag(tag: str) -> tuple[str, str]:
    """Prefix and type of a tag: ``B-PER`` is ``("B", "PER")``, ``O`` is ``("O", "")``."""
    prefix, _, kind = tag.partition("-")
    return prefix, kind


def _tag(prefix: str, kind: str) -> str:
    return f"{prefix}-{kind}" if kind else prefix


def are_span_tags(tags: Iterable[str]) -> bool:
    """Whether all are tags of spans: with types, or ``B``, ``I``, ``O``, ``E`` and ``S`` alone."""
    inside = {tag for tag in tags if tag != "O"}
    untyped = inside <= {"B", "I", "E", "S"}
    return untyped or all(tag[:2] in {"B-", "I-", "E-", "S-"} and tag[2:] for tag in inside)


def recognise_scheme(sequences: Iterable[Sequence[str]]) -> Scheme | None:
    """Tell the scheme of a data set from all of its tags.

    Returns:
        The strictest scheme that the tags obey: ``bioes`` if E or S occurs, else ``bio``, else
        ``iob1``; ``bio`` if they obey none. None if they are not tags of spans (parts of speech,
        say), or nothing but ``O``. Tags without types are tags of spans if ``B`` (in ``bioes``
        also ``S``) and ``O`` are among them.
    """
    seen: set[str] = set()
    legal = {"iob1": True, "bio": True}
    for tags in sequences:
        if not set(tags) <= seen:
            seen |= set(tags)
            if not are_span_tags(seen):
                return None
        for scheme in ("iob1", "bio"):
            legal[scheme] = legal[scheme] and illegal_index(tags, scheme) is None
    prefixes = {split_tag(tag)[0] for tag in seen}
    if prefixes <= {"O"}:
        return None
    if seen & {"B", "I", "E", "S"} and not ("O" in seen and seen & {"B", "S"}):
        return None  # single letters that mean something else: where words begin, say
    if prefixes & {"E", "S"}:
        return "bioes"
    return "iob1" if legal["iob1"] and not legal["bio"] else "bio"


def may_follow(before: str | None, tag: str | None, scheme: Scheme) -> bool:
    """Whether a tag may come after another; None is the start and the end of a sentence."""
    prefix, kind = split_tag(tag) if tag is not None else ("O", "")
    before_prefix, before_kind = split_tag(before) if before is not None else ("O", "")
    goes_on = before_prefix != "O" and before_kind == kind
    if scheme == "iob1":
        return prefix != "B" or goes_on
    if scheme == "bio":
        return prefix != "I" or goes_on
    inside = before_prefix in {"B", "I"}
    if prefix in {"I", "E"}:
        return inside and before_kind == kind
    return not inside


def illegal_index(tags: Sequence[str], scheme: Scheme) -> int | None:
    """Index of the first tag that may not be there, ``len(tags)`` if it is the end, or None."""
    known = {"iob1": "IOB", "bio": "IOB", "bioes": "IOBES"}[scheme]
    before: str | None = None
    for index, tag in enumerate(tags):
        if not are_span_tags([tag]) or tag[0] not in known:
            return index
        if not may_follow(before, tag, scheme):
            return index
        before = tag
    return None if may_follow(before, None, scheme) else len(tags)


def tags_to_spans(tags: Sequence[str]) -> list[TagSpan]:
    """The spans of a sentence, in whatever scheme it is tagged, as conlleval finds them."""
    spans: list[TagSpan] = []
    start: int | None = None
    before_prefix, before_kind = "O", ""
    for index, tag in enumerate(tags):
        prefix, kind = split_tag(tag)
        starts = prefix != "O" and (
            prefix in {"B", "S"} or before_prefix in {"E", "S", "O"} or before_kind != kind
        )
        if start is not None and (starts or prefix == "O"):
            spans.append(TagSpan(start, index, before_kind))
            start = None
        if starts:
            start = index
        before_prefix, before_kind = prefix, kind
    if start is not None:
        spans.append(TagSpan(start, len(tags), before_kind))
    return spans


def spans_to_tags(spans: Iterable[TagSpan], length: int, scheme: Scheme) -> tuple[str, ...]:
    """The tags of a sentence of `length` tokens that has these spans."""
    tags = ["O"] * length
    free = 0
    for start, end, kind in sorted(spans):
        if not free <= start < end <= length:
            raise ConfigError(
                f"the span {kind!r} from {start} to {end} overlaps another, is empty or leaves the "
                f"sentence of {length} tokens"
            )
        tags[start:end] = [_tag("I", kind)] * (end - start)
        if scheme == "bioes":
            tags[start] = _tag("B", kind)
            tags[end - 1] = _tag("E", kind)
            if end - start == 1:
                tags[start] = _tag("S", kind)
        elif scheme == "bio" or (start and tags[start - 1] in {_tag("B", kind), _tag("I", kind)}):
            tags[start] = _tag("B", kind)
        free = end
    return tuple(tags)


def convert_tags(tags: Sequence[str], scheme: Scheme) -> tuple[str, ...]:
    """The same spans as tags of another scheme."""
    return spans_to_tags(tags_to_spans(tags), len(tags), scheme)


# Scores.


@dataclass(frozen=True)
class SpanScore(TaskScore):
    """The score of tagged spans. A span is right if its start, its end and its type are.

    Attributes:
        total: Spans of all types together.
        types: Spans of each type.
        accuracy: The share of tokens with the right tag.
    """

    total: MatchCounts
    types: dict[str, MatchCounts]
    accuracy: float
    primary: str = "f1"

    def numbers(self) -> dict[str, float]:
        """F1, precision and recall of spans, accuracy of tokens."""
        return {
            "f1": self.total.f1,
            "precision": self.total.precision,
            "recall": self.total.recall,
            "accuracy": self.accuracy,
        }

    def tables(self) -> dict[str, Any]:
        """Each type."""
        return {"labels": {name: counts.to_dict() for name, counts in self.types.items()}}


def score_spans(
    gold: Sequence[Sequence[str]],
    predicted: Sequence[Sequence[str]],
    *,
    ignore: Collection[str] = (),
) -> SpanScore:
    """Compare the tags of sentences, in any scheme of spans; types to `ignore` do not count."""
    same_length(gold, predicted)
    types: dict[str, MatchCounts] = {}
    right = tokens = 0
    for true, found in zip(gold, predicted, strict=True):
        same_length(true, found)
        right += sum(a == b for a, b in zip(true, found, strict=True))
        tokens += len(true)
        true_spans, found_spans = set(tags_to_spans(true)), set(tags_to_spans(found))
        for name, spans in (
            ("correct", true_spans & found_spans),
            ("predicted", found_spans),
            ("gold", true_spans),
        ):
            for kind, count in Counter(span.type for span in spans).items():
                if kind not in ignore:
                    counts = types.setdefault(kind, MatchCounts())
                    setattr(counts, name, getattr(counts, name) + count)
    names = ("correct", "predicted", "gold")
    total = MatchCounts(*(sum(getattr(c, name) for c in types.values()) for name in names))
    return SpanScore(total, dict(sorted(types.items())), share(right, tokens))


def score_tags(
    gold: Sequence[Any], predicted: Sequence[Any], *, spans: bool, roles: bool = False
) -> TaskScore:
    """Score the tags of examples, as `spans` (perhaps semantic roles) or else token by token.

    Among roles the verb's own span does not count.
    """
    same_length(gold, predicted)
    true, found = all_of(gold, "tags"), all_of(predicted, "tags")
    if spans:
        return score_spans(true, found, ignore=(_VERB,) if roles else ())
    for one, other in zip(true, found, strict=True):
        same_length(one, other)
    return score_labels(
        [tag for tags in true for tag in tags], [tag for tags in found for tag in tags]
    )
