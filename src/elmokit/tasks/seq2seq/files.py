"""Texts with texts to write for them: the example, its fields, parallel files, tokens to text."""

from __future__ import annotations

import itertools
import os
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from elmokit.errors import DataError
from elmokit.tasks.files import Field, NameField, Records, TextField
from elmokit.tasks.records import (
    Format,
    ReadOptions,
    Record,
    Tokens,
    checked_tokens,
    is_strings,
    lines,
    location,
)

_WORD, _UNSPACED = "w", "c"
_OFTEN = 0.9


@dataclass(frozen=True)
class SequencePair:
    """A text to read and the text to write.

    Attributes:
        source: Tokens to read.
        target: Tokens to write: those of the first reference; None if not known.
        source_text: The source before it was tokenised.
        references: All accepted outputs, as text; the scores read these. Empty if not known.
        id: The file's name for the pair; None if it has none.
    """

    source: Tokens
    target: Tokens | None = None
    source_text: str = ""
    references: tuple[str, ...] = ()
    id: str | None = None


class _SourceField(TextField):
    """The text to read: a string, or a list of its sentences."""

    def read(self, record: Record, found: dict[str, Any], options: ReadOptions) -> dict[str, Any]:
        """The text and its tokens."""
        text = " ".join(_texts(record, self.name))
        return self.attributes(checked_tokens(options.tokens(text), record.where), text)


class _TargetField(Field):
    """The text to write: a string, or a list of accepted ones."""

    def read(self, record: Record, found: dict[str, Any], options: ReadOptions) -> dict[str, Any]:
        """The accepted texts, and the tokens of the first."""
        empty = record.values.get(self.name) == ""  # as in a table
        references = () if empty else options.answer(_texts, record, self.name) or ()
        return _written(references, record.where, options)

    def write(self, example: Any) -> dict[str, Any]:
        """A string, or a list where there are several."""
        texts = list(example.references)
        return {self.name: texts[0] if len(texts) == 1 else texts or None}

    def cell(self, example: Any) -> str:
        """The first."""
        return example.references[0] if example.references else ""


def _texts(record: Record, name: str) -> tuple[str, ...]:
    if is_strings(record.values.get(name)):
        return record.strings(name)
    return (record.text(name),)


def _written(references: tuple[str, ...], where: str, options: ReadOptions) -> dict[str, Any]:
    target = options.answer(_target, references, where, options)
    return {"target": target, "references": references if target else ()}


def _target(references: tuple[str, ...], where: str, options: ReadOptions) -> Tokens:
    if not references:
        raise DataError(f"{where}: no target. Give the text to write.")
    target = options.target_tokens(references[0])
    if not target:
        raise DataError(f"{where}: the target is empty. Remove the example.")
    return target


def two_files(path: str) -> tuple[str, str] | None:
    """The files of parallel text, from ``"source-file,target-file"``; None if it is one file."""
    first, comma, second = path.partition(",")
    return (first, second) if comma and not os.path.exists(path) else None


def _read_parallel(path: str, options: ReadOptions) -> Iterator[SequencePair]:
    names = two_files(path)
    if names is None:
        raise DataError(f"{path}: parallel text is two files. Name both: source.txt,target.txt")
    for source, target in itertools.zip_longest(lines(names[0]), lines(names[1])):
        if source is None or target is None:
            short, long = names if source is None else reversed(names)
            number = (source or target)[0]
            raise DataError(
                f"{location(long, number)}: {short} has no line {number}. Parallel files have the "
                "same number of lines."
            )
        where = location(names[0], source[0])
        if not source[1].strip() and not target[1].strip():
            continue
        tokens = checked_tokens(options.tokens(source[1]), where)
        written = _written((target[1],), where, options)
        yield SequencePair(tokens, source_text=source[1], **written)


def _target_lines(examples: Iterable[SequencePair], options: ReadOptions) -> Iterator[str]:
    """The outputs alone, one per line: what tools for translations read."""
    for example in examples:
        yield " ".join(example.references[0].split()) if example.references else ""


RECORDS = Records(
    SequencePair,
    (
        NameField("id", "paper_id"),
        _SourceField("source", "src", text_at="source_text", tokens_at="source"),
        _TargetField("target", "tgt", answer=True),
    ),
    order=("source", "target"),
)
FORMATS = (
    Format("parallel", (), _read_parallel, matches=lambda path: two_files(path) is not None),
    RECORDS.table("tsv", ".tsv", "\t", quoted=False, begins=lambda line, labelled: "\t" in line),
    RECORDS.jsonl(),
    RECORDS.plain_text(_target_lines),
)


# Tokens back to text. Whether there is a space between two tokens depends on the signs that meet:
# letters with letters, a letter with a full stop, one Chinese character with another. Tokens like
# ``n't``, which begin with a letter and still follow without a space, are learned by name.


class Joiner:
    """Writes tokens as text, by what `learn_joins` found."""

    def __init__(self, learned: Mapping[str, Any]) -> None:
        self._glued: dict[str, bool] = learned["pairs"]
        self._clitics = frozenset(learned["clitics"])

    def __call__(self, tokens: Tokens) -> str:
        """The text of the tokens."""
        tokens = tuple(filter(None, tokens))
        pieces = list(tokens[:1])
        for first, second in itertools.pairwise(tokens):
            pieces += ["" if self._touch(first, second) else " ", second]
        return "".join(pieces)

    def _touch(self, first: str, second: str) -> bool:
        if second in self._clitics:
            return True
        meeting = _meeting(first, second)
        return self._glued.get(meeting, _UNSPACED in meeting)


def learn_joins(texts: Iterable[tuple[Tokens, str]]) -> dict[str, Any]:
    """Where spaces are in texts, from tokens and the text that they are pieces of.

    By the signs that meet, whether tokens touch, and the tokens that always touch the one before
    them; ready for JSON.
    """
    touch, meet = Counter[str](), Counter[str]()
    word_touch, word_meet = Counter[str](), Counter[str]()
    for first, second, close in (found for item in texts for found in _joins(*item)):
        meeting = _meeting(first, second)
        meet[meeting] += 1
        touch[meeting] += close
        if meeting == _WORD + _WORD:
            word_meet[second] += 1
            word_touch[second] += close
    return {
        "pairs": {name: 2 * touch[name] > meet[name] for name in sorted(meet)},
        "clitics": sorted(
            token
            for token, count in word_meet.items()
            if count > 1 and word_touch[token] >= _OFTEN * count
        ),
    }


def _joins(tokens: Tokens, text: str) -> Iterator[tuple[str, str, bool]]:
    """Neighbouring tokens of a text, and whether they touch."""
    end = 0
    found = []
    for token in filter(None, tokens):
        start = text.find(token, end)
        if start < 0 or text[end:start].strip():
            return  # these tokens are not this text's
        found.append((token, start == end))
        end = start + len(token)
    for (first, _), (second, close) in itertools.pairwise(found):
        yield first, second, close


def _meeting(first: str, second: str) -> str:
    return _kind(first[-1]) + _kind(second[0])


def _kind(sign: str) -> str:
    """What counts of a sign: whether it is a letter, of a script with spaces; else itself."""
    if unicodedata.category(sign)[0] not in "LNM":
        return sign
    name = unicodedata.name(sign, "")
    return _UNSPACED if name.startswith(("CJK", "HIRAGANA", "KATAKANA", "THAI")) else _WORD
