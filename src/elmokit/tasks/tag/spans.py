"""Tags for spans: IOB1, BIO (also called IOB2), BIOES, BILOU and BMES, converted and scored.

The last two are BIOES in other letters: L (last) is E, U (unit) is S, M (middle) is I.

Spans are read as conlleval, the scorer of the CoNLL shared tasks, reads them: any sequence of tags
has spans, and tags that break the rules of their scheme start a span where the type changes.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

from elmokit.errors import ConfigError, DataError
from elmokit.tasks.task import MatchCounts, TaskScore, all_of, same_length, score_labels, share

Scheme: TypeAlias = Literal["iob1", "bio", "bioes", "bilou", "bmes"]
SCHEMES: tuple[Scheme, ...] = get_args(Scheme)
_LETTERS: dict[Scheme, str] = {
    "iob1": "IOB",
    "bio": "IOB",
    "bioes": "IOBES",
    "bilou": "IOBLU",
    "bmes": "MOBES",
}
"""The prefixes of each scheme; those of the last three, in the same order, mean the same."""
_MEANING = {"L": "E", "U": "S", "M": "I"}
_PREFIXES = frozenset("BIES") | _MEANING.keys()
_SPAN_LIKE = re.compile(r"[A-Z]-.+", re.DOTALL)
_MOST_NAMED = 5
_VERB = "V"
_CONTINUED = "C-"


class TagSpan(NamedTuple):
    """Tokens from `start` to before `end` that are one thing of a type."""

    start: int
    end: int
    type: str


def split_tag(tag: str) -> tuple[str, str]:
    """Prefix and type of a tag: ``B-PER`` is ``("B", "PER")``, ``O`` is ``("O", "")``."""
    prefix, _, kind = tag.partition("-")
    return prefix, kind


def _meaning(tag: str) -> tuple[str, str]:
    """The same, with the letters of BIOES."""
    prefix, kind = split_tag(tag)
    return _MEANING.get(prefix, prefix), kind


def is_long(scheme: Scheme | None) -> bool:
    """Whether the scheme marks where spans end: BIOES, in its letters or others."""
    return scheme in ("bioes", "bilou", "bmes")


def continues(tag: str, kind: str) -> bool:
    """Whether the tag, behind a token of a span of this type, belongs to the same span."""
    prefix, own = _meaning(tag)
    return prefix in {"I", "E"} and own == kind


def _tag(prefix: str, kind: str) -> str:
    return f"{prefix}-{kind}" if kind else prefix


def are_span_tags(tags: Iterable[str]) -> bool:
    """Whether all are tags of spans: with types, or ``B``, ``I``, ``O``, ... alone."""
    inside = {tag for tag in tags if tag != "O"}
    untyped = inside <= _PREFIXES
    return untyped or all(tag[:1] in _PREFIXES and tag[1:2] == "-" and tag[2:] for tag in inside)


def recognise_scheme(sequences: Iterable[Sequence[str]]) -> Scheme | None:
    """Tell the scheme of a data set from all of its tags.

    Returns:
        The strictest scheme that the tags obey: ``bilou`` if L or U occurs, ``bmes`` if M does,
        ``bioes`` if E or S does, else ``bio``, else ``iob1``; ``bio`` if they obey none. None if
        they are not tags of spans (parts of speech, say), or nothing but ``O``, or of two schemes.
        Tags without types are tags of spans if ``B`` (or ``S``, ``U``) and ``O`` are among them.
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
    if seen & _PREFIXES and not ("O" in seen and seen & {"B", "S", "U"}):
        return None  # single letters that mean something else: where words begin, say
    if prefixes <= set("IOB"):
        return "iob1" if legal["iob1"] and not legal["bio"] else "bio"
    long: tuple[Scheme, ...] = ("bioes", "bilou", "bmes")
    return next((scheme for scheme in long if prefixes <= set(_LETTERS[scheme])), None)


def check_recognised(tags: Iterable[Sequence[str]], way_out: str = "") -> None:
    """Refuse tags that look like tags of spans and are in none of the schemes.

    Raises:
        DataError: ``O`` and tags such as ``X-PER`` are among them; it names those that do not fit.
    """
    seen = set[str]().union(*tags)
    if "O" not in seen or not any(map(_SPAN_LIKE.fullmatch, seen)):
        return
    odd = sorted(tag for tag in seen if tag != "O" and not (are_span_tags([tag]) and tag[2:]))
    if not odd:  # two schemes at once
        odd = sorted(tag for tag in seen if tag[0] in "LUM") or sorted(seen)
    named = ", ".join(map(repr, odd[:_MOST_NAMED])) + (", ..." if len(odd) > _MOST_NAMED else "")
    raise DataError(
        f"the tags look like tags of spans, but {named} fit none of the schemes IOB1, BIO, BIOES, "
        f"BILOU and BMES. Correct them{way_out}"
    )


def may_follow(before: str | None, tag: str | None, scheme: Scheme) -> bool:
    """Whether a tag may come after another; None is the start and the end of a sentence."""
    prefix, kind = _meaning(tag) if tag is not None else ("O", "")
    before_prefix, before_kind = _meaning(before) if before is not None else ("O", "")
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
    known = _LETTERS[scheme]
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
        prefix, kind = _meaning(tag)
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
        inner, _, first, last, single = tuple(_LETTERS[scheme].ljust(5))
        tags[start:end] = [_tag(inner, kind)] * (end - start)
        if is_long(scheme):
            tags[start] = _tag(first, kind)
            tags[end - 1] = _tag(last, kind)
            if end - start == 1:
                tags[start] = _tag(single, kind)
        elif scheme == "bio" or (start and tags[start - 1] in {_tag("B", kind), _tag("I", kind)}):
            tags[start] = _tag("B", kind)
        free = end
    return tuple(tags)


def in_letters(tag: str, scheme: Scheme | None) -> str:
    """A tag of BIOES in the letters of the scheme, if it is one of those that mean the same."""
    prefix, kind = split_tag(tag)
    if scheme is None or not is_long(scheme) or prefix not in _LETTERS["bioes"]:
        return tag
    return _tag(_LETTERS[scheme][_LETTERS["bioes"].index(prefix)], kind)


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
    join: bool = False,
) -> SpanScore:
    """Compare the tags of sentences, in any scheme of spans; types to `ignore` do not count.

    `join`: as the scorer of CoNLL-2005 does, ``C-A1`` is a further piece of the ``A1`` before it,
    and an argument is right if all its pieces are.
    """
    same_length(gold, predicted)
    types: dict[str, MatchCounts] = {}
    right = tokens = 0
    for true, found in zip(gold, predicted, strict=True):
        same_length(true, found)
        right += sum(a == b for a, b in zip(true, found, strict=True))
        tokens += len(true)
        true_spans, found_spans = _things(true, join), _things(found, join)
        for name, things in (
            ("correct", true_spans & found_spans),
            ("predicted", found_spans),
            ("gold", true_spans),
        ):
            for kind, count in Counter(kind for kind, _ in things).items():
                if kind not in ignore:
                    counts = types.setdefault(kind, MatchCounts())
                    setattr(counts, name, getattr(counts, name) + count)
    names = ("correct", "predicted", "gold")
    total = MatchCounts(*(sum(getattr(c, name) for c in types.values()) for name in names))
    return SpanScore(total, dict(sorted(types.items())), share(right, tokens))


def _things(tags: Sequence[str], join: bool) -> set[tuple[str, tuple[TagSpan, ...]]]:
    """What is compared, by type: spans, or the arguments of a verb with all their pieces."""
    found: list[tuple[str, list[TagSpan]]] = []
    for span in tags_to_spans(tags):
        kind = span.type.removeprefix(_CONTINUED) if join else span.type
        same = [pieces for other, pieces in found if other == kind and kind != span.type]
        if same:
            same[-1].append(span)
        else:
            found.append((kind, [span]))
    return {(kind, tuple(pieces)) for kind, pieces in found}


def score_tags(
    gold: Sequence[Any], predicted: Sequence[Any], *, spans: bool, roles: bool = False
) -> TaskScore:
    """Score the tags of examples, as `spans` (perhaps semantic roles) or else token by token.

    Roles are scored as in CoNLL-2005.
    """
    same_length(gold, predicted)
    true, found = all_of(gold, "tags"), all_of(predicted, "tags")
    if spans:
        return score_spans(true, found, ignore=(_VERB,) if roles else (), join=roles)
    for one, other in zip(true, found, strict=True):
        same_length(one, other)
    return score_labels(
        [tag for tags in true for tag in tags], [tag for tags in found for tag in tags]
    )
