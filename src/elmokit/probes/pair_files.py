"""Pairs of words in context, with people's judgement: how alike, or whether of one sense.

Four kinds of file are read, recognised by their contents: JSONL, one
``{"tokens1": [...], "position1": 2, "tokens2": [...], "position2": 0, "score": 7.5}`` a line, where
the score is a number, or true or false; the ratings of SCWS (tabs, the word between ``<b>`` and
``</b>``); WiC (``word  N  1-4  sentence  sentence``, with ``NAME.gold.txt`` beside
``NAME.data.txt``); and sense-annotated text, from which pairs of uses are made.
"""

from __future__ import annotations

import json
import os
import random
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from elmokit.errors import DataError
from elmokit.probes.sense_files import SenseSentence, read_senses
from elmokit.text.readers import numbered_lines

_OPEN, _CLOSE = "<b>", "</b>"
_SENTENCE_ENDS = {".", "!", "?"}
_SCWS_COLUMNS = 18
_WIC_COLUMNS = 5
_WIC_ANSWERS = {"T": True, "F": False}


class WordInContext(NamedTuple):
    """A token of a sentence."""

    tokens: tuple[str, ...]
    position: int


class Pair(NamedTuple):
    """Two words in context and what people say of them."""

    first: WordInContext
    second: WordInContext
    score: float | bool
    """How alike they are; or, as True or False, whether they have one sense."""


def read_pairs(path: str | os.PathLike[str], *, count: int = 2000, seed: int = 0) -> list[Pair]:
    """Read pairs from a file of any of the kinds above.

    Args:
        path: The file.
        count: How many pairs to make from sense-annotated text.
        seed: Sets which.

    Raises:
        DataError: The file is of another kind, damaged or empty; the message names the line.
    """
    _, line = next(numbered_lines(path), (0, ""))
    if _OPEN in line:
        pairs = [_from_scws(line, f"{path}, line {number}") for number, line in _lines(path)]
    elif line.lstrip().startswith("<") or '"keys"' in line:
        pairs = sense_pairs(read_senses(path), count=count, seed=seed)
    elif line.lstrip().startswith("{"):
        pairs = [_from_json(line, f"{path}, line {number}") for number, line in _lines(path)]
    elif line.count("\t") == _WIC_COLUMNS - 1:
        pairs = _read_wic(Path(path))
    else:
        raise DataError(
            f"{path}: no pairs of words in context: neither JSONL, SCWS, WiC nor senses"
        )
    kinds = {isinstance(pair.score, bool) for pair in pairs}
    if len(kinds) > 1:
        raise DataError(f"{path}: scores are numbers in some lines, true or false in others")
    if len(pairs) < 2:
        raise DataError(f"{path}: fewer than two pairs in this file")
    return pairs


def sense_pairs(
    sentences: Iterable[SenseSentence], *, count: int = 2000, seed: int = 0
) -> list[Pair]:
    """Pairs of uses of one lemma: half of them in one sense, half in two.

    No use is taken twice, so that no frequent word rules the set.

    Raises:
        DataError: There is no lemma with several senses.
    """
    rng = random.Random(seed)
    by_sense: dict[str, dict[str, list[WordInContext]]] = defaultdict(lambda: defaultdict(list))
    for sentence in sentences:
        for use in sentence.uses:
            if use.end == use.start + 1 and len(use.keys) == 1:
                place = WordInContext(sentence.tokens, use.start)
                by_sense[use.lemma][use.keys[0]].append(place)
    same: list[Pair] = []
    other: list[Pair] = []
    for lemma in sorted(by_sense):
        senses = [by_sense[lemma][key] for key in sorted(by_sense[lemma])]
        for uses in senses:
            rng.shuffle(uses)
        if len(senses) < 2:
            continue
        first, second = sorted(senses, key=len, reverse=True)[:2]
        # As many of one sense as of two from every lemma: the word itself says nothing.
        for _ in range(min(len(second), len(first) // 3)):
            other.append(Pair(first.pop(), second.pop(), False))
            same.append(Pair(first.pop(), first.pop(), True))
    if not same:
        raise DataError("no lemma has two senses with enough uses, so there are no pairs")
    chosen = list(zip(same, other, strict=True))
    rng.shuffle(chosen)
    return [pair for both in chosen[: max(1, count // 2)] for pair in both]


def _lines(path: str | os.PathLike[str]) -> Iterable[tuple[int, str]]:
    return ((number, line.rstrip("\r\n")) for number, line in numbered_lines(path) if line.strip())


def _from_json(line: str, where: str) -> Pair:
    try:
        row = json.loads(line)
        words = [(row[f"tokens{i}"], row[f"position{i}"]) for i in (1, 2)]
        score = row["score"]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise DataError(
            f"{where}: a JSON object with tokens1, position1, tokens2, position2 and score is "
            f"needed ({error})"
        ) from None
    if not isinstance(score, int | float):
        raise DataError(f"{where}: the score must be a number, true or false, not {score!r}")
    return Pair(_word(*words[0], where), _word(*words[1], where), score)


def _word(tokens: object, position: object, where: str) -> WordInContext:
    if not isinstance(tokens, list) or not all(isinstance(token, str) for token in tokens):
        raise DataError(f"{where}: tokens must be a list of strings")
    if not isinstance(position, int) or not 0 <= position < len(tokens):
        raise DataError(f"{where}: no token {position} in a sentence of {len(tokens)}")
    return WordInContext(tuple(tokens), position)


def _from_scws(line: str, where: str) -> Pair:
    fields = line.split("\t")
    if len(fields) != _SCWS_COLUMNS:
        raise DataError(f"{where}: {len(fields)} columns; the ratings of SCWS have {_SCWS_COLUMNS}")
    try:
        score = float(fields[7])
    except ValueError:
        raise DataError(f"{where}: the mean rating {fields[7]!r} is no number") from None
    return Pair(_marked(fields[5], where), _marked(fields[6], where), score)


def _marked(context: str, where: str) -> WordInContext:
    """The sentence around the marked word: a context of SCWS has several."""
    tokens = context.split()
    try:
        start = tokens.index(_OPEN)
        tokens.index(_CLOSE, start + 2)
    except ValueError:
        raise DataError(f"{where}: no word between <b> and </b> in a context") from None
    del tokens[tokens.index(_CLOSE, start)]
    del tokens[start]
    first, last = start, start
    while first > 0 and tokens[first - 1] not in _SENTENCE_ENDS:
        first -= 1
    while last < len(tokens) - 1 and tokens[last] not in _SENTENCE_ENDS:
        last += 1
    return WordInContext(tuple(tokens[first : last + 1]), start - first)


def _read_wic(path: Path) -> list[Pair]:
    gold = path.with_name(path.name.removesuffix(".txt").removesuffix(".data") + ".gold.txt")
    if not gold.is_file():
        raise DataError(f"{path}: its answers should be in {gold}, which is not there")
    answers = [line.strip() for _, line in _lines(gold)]
    rows = list(_lines(path))
    if len(answers) != len(rows):
        raise DataError(f"{gold}: {len(answers)} answers for {len(rows)} pairs")
    pairs = []
    for (number, line), answer in zip(rows, answers, strict=True):
        where = f"{path}, line {number}"
        fields = line.split("\t")
        if len(fields) != _WIC_COLUMNS or answer not in _WIC_ANSWERS:
            raise DataError(f"{where}: five columns are needed, and T or F in {gold.name}")
        places = fields[2].split("-")
        if len(places) != 2 or not all(place.isdecimal() for place in places):
            raise DataError(f"{where}: {fields[2]!r} should be two places such as 1-4")
        words = [
            _word(sentence.split(), int(place), where)
            for sentence, place in zip(fields[3:], places, strict=True)
        ]
        pairs.append(Pair(words[0], words[1], _WIC_ANSWERS[answer]))
    return pairs


def split_pairs(pairs: Sequence[Pair]) -> tuple[list[Pair], list[Pair]]:
    """Two halves with as many yes as no in each: one to tune on, one to test on."""
    halves: tuple[list[Pair], list[Pair]] = ([], [])
    for answer in (True, False):
        for number, pair in enumerate(pair for pair in pairs if pair.score is answer):
            halves[number % 2].append(pair)
    return halves
