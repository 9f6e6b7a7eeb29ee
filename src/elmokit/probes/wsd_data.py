"""Sense-annotated text, WordNet's senses, and the lemmas of word forms.

Text is one JSON object per line, or the XML of the unified WSD framework.

JSONL: ``{"tokens": [...], "keys": [[], ["say%2:32:00::"], ...]}``, a list of sense keys for each
token, empty where there is none. The lemma is that of the first key. Several keys of one lemma may
be in one string, as in SemCor: ``year%1:28:02::;1:28:01::``.

XML (Raganato and others, 2017): ``NAME.data.xml`` with ``wf`` and ``instance`` elements, and
``NAME.gold.key.txt`` beside it with an instance's id and its keys on each line.

Expressions of several words (``take_place``) are taken apart, because models read words; their
vector is the mean of their words' vectors.

A sense key such as ``bank%1:17:01::`` names a lemma, its part of speech (1 noun, 2 verb,
3 adjective, 4 adverb, 5 adjective satellite) and a sense. Here ``bank%1`` names the noun as a
whole; satellites are adjectives. WordNet's list of senses is its file ``index.sense``.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

from elmokit.errors import DataError
from elmokit.probes.data import numbered_fields
from elmokit.text.readers import numbered_lines

_FIELD_NAMES = (
    "adj.all adj.pert adv.all noun.Tops noun.act noun.animal noun.artifact noun.attribute "
    "noun.body noun.cognition noun.communication noun.event noun.feeling noun.food noun.group "
    "noun.location noun.motive noun.object noun.person noun.phenomenon noun.plant noun.possession "
    "noun.process noun.quantity noun.relation noun.shape noun.state noun.substance noun.time "
    "verb.body verb.change verb.cognition verb.communication verb.competition verb.consumption "
    "verb.contact verb.creation verb.emotion verb.motion verb.perception verb.possession "
    "verb.social verb.stative verb.weather adj.ppl"
)
_FIELDS = tuple(_FIELD_NAMES.split())
"""WordNet's lexicographer files, by the number in a sense key."""
_DATA_FILES = {"1": "noun", "2": "verb", "3": "adj", "4": "adv", "5": "adj"}
PARTS_OF_SPEECH = {"NOUN": "1", "VERB": "2", "ADJ": "3", "ADV": "4"}
_KEY = re.compile(r"(?P<lemma>[^\s%]+)%(?P<pos>[1-5]):\d\d:\d\d:[^\s:]*:\d*")
_SATELLITE, _ADJECTIVE = "5", "3"
_XML_START = re.compile(rb"\s*(?:\xef\xbb\xbf)?\s*<(?:\?xml|corpus|!DOCTYPE)")
_ENDINGS = {
    "1": "s- ses-s xes-x zes-z ches-ch shes-sh men-man ies-y",
    "2": "s- ies-y es-e es- ed-e ed- ied-y ing-e ing-",
    "3": "er- est- er-e est-e ier-y iest-y",
    "4": "",
}
"""For each part of speech the endings that may be taken off, and after - what replaces them."""


def lemma_of(key: str) -> str:
    """The lemma with its part of speech that a sense key belongs to, as in ``bank%1``."""
    match = _KEY.fullmatch(key)
    if match is None:
        raise DataError(f"{key!r} is no WordNet sense key such as 'bank%1:17:01::'")
    pos = match["pos"]
    return f"{match['lemma'].lower()}%{_ADJECTIVE if pos == _SATELLITE else pos}"


def meaning_of(key: str, glosses: Mapping[str, str] | None = None) -> str:
    """What a sense key means: its gloss if known, else the field of WordNet that it is in."""
    known = (glosses or {}).get(key)
    field = key.partition("%")[2].split(":")[1:2]
    return known or (_FIELDS[int(field[0])] if field and int(field[0]) < len(_FIELDS) else "")


def read_glosses(index: str | os.PathLike[str], keys: Iterable[str]) -> dict[str, str]:
    """The glosses of sense keys, from WordNet's data files beside ``index.sense``, if there."""
    wanted, found = set(keys), {}
    for _, fields in numbered_fields(index):
        path = Path(index).with_name(f"data.{_DATA_FILES.get(fields[0].partition('%')[2][:1], '')}")
        if fields[0] in wanted and path.is_file():
            with open(path, "rb") as file:
                file.seek(int(fields[1]))
                line = file.readline().decode("utf-8", "replace")
            found[fields[0]] = line.partition(" | ")[2].partition(";")[0].strip()
    return found


class SenseIndex:
    """The sense keys of every lemma (``bank%1``) in WordNet's order, the first sense first."""

    def __init__(self, senses: Mapping[str, Iterable[str]]) -> None:
        self.senses: dict[str, tuple[str, ...]] = {k: tuple(v) for k, v in senses.items()}
        self._known = {key for keys in self.senses.values() for key in keys}

    def __contains__(self, key: object) -> bool:
        return key in self._known

    def first(self, lemma: str) -> str | None:
        """The most frequent sense of a lemma, or None if there is no such lemma."""
        keys = self.senses.get(lemma)
        return keys[0] if keys else None

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> SenseIndex:
        """Read WordNet's file ``index.sense``."""
        ranked: dict[str, list[tuple[int, str]]] = {}
        for number, fields in numbered_fields(path):
            try:
                key, _, rank, _ = fields
                ranked.setdefault(lemma_of(key), []).append((int(rank), key))
            except ValueError:  # DataError is one
                raise DataError(
                    f"{path}, line {number}: not a line of WordNet's index.sense (a sense key, "
                    "an offset, the sense's number and a count)"
                ) from None
        if not ranked:
            raise DataError(f"{path}: no senses in this file; give WordNet's index.sense")
        return cls({lemma: [key for _, key in sorted(keys)] for lemma, keys in ranked.items()})


def base_forms(form: str) -> list[str]:
    """Lemmas such as ``bank%1`` that the form may belong to: itself first, then without endings."""
    found = [f"{form}%{pos}" for pos in _ENDINGS]
    for pos, endings in _ENDINGS.items():
        for ending, _, instead in (rule.partition("-") for rule in endings.split()):
            if form.endswith(ending) and len(form) > len(ending):
                stem = form.removesuffix(ending)
                found.append(f"{stem}{instead}%{pos}")
                if stem[-2:-1] == stem[-1:]:  # stopped
                    found.append(f"{stem[:-1]}{instead}%{pos}")
    return list(dict.fromkeys(found))


class SenseUse(NamedTuple):
    """A word or expression in a sentence, with its sense."""

    start: int
    end: int
    """One after its last token."""
    lemma: str
    """As in ``bank%1``."""
    keys: tuple[str, ...]
    """The senses that count as right."""


class SenseSentence(NamedTuple):
    """A sentence and its annotated words."""

    tokens: tuple[str, ...]
    uses: tuple[SenseUse, ...]


def read_senses(path: str | os.PathLike[str]) -> Iterator[SenseSentence]:
    """Read sense-annotated sentences, of either kind, one at a time."""
    if not Path(path).is_file():
        raise DataError(f"no such file: {path}")
    with open(path, "rb") as file:
        start = file.read(64)
    return _read_xml(Path(path)) if _XML_START.match(start) else _read_jsonl(path)


def _read_jsonl(path: str | os.PathLike[str]) -> Iterator[SenseSentence]:
    for number, line in numbered_lines(path):
        if line.isspace():
            continue
        where = f"{path}, line {number}"
        try:
            row = json.loads(line)
            tokens, keys = row["tokens"], row["keys"]
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise DataError(
                f'{where}: each line must be a JSON object with "tokens" and "keys" ({error})'
            ) from None
        if not _strings(tokens) or not isinstance(keys, list) or not all(map(_strings, keys)):
            raise DataError(
                f'{where}: "tokens" must be strings, and "keys" a list of strings for each'
            )
        if len(tokens) != len(keys):
            raise DataError(f"{where}: {len(tokens)} tokens but {len(keys)} lists of keys")
        keys = [[key for item in senses for key in _expand(item)] for senses in keys]
        try:
            lemmas = [lemma_of(senses[0]) if senses else None for senses in keys]
            for key in (key for senses in keys for key in senses[1:]):
                lemma_of(key)
        except DataError as error:
            raise DataError(f"{where}: {error}") from None
        yield _sentence(tokens, zip(lemmas, keys, strict=True))


def _strings(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _expand(item: str) -> list[str]:
    """SemCor writes several senses of one word as ``year%1:28:02::;1:28:01::``.

    A ``U`` among them means that people found no sense that fits; it names none.
    """
    first, *more = item.split(";")
    lemma = first.partition("%")[0]
    return [first, *(f"{lemma}%{sense}" for sense in more if sense != "U")]


def _sentence(words: list[str], senses: Any) -> SenseSentence:
    tokens: list[str] = []
    uses = []
    for word, (lemma, keys) in zip(words, senses, strict=True):
        start = len(tokens)
        tokens.extend([part for part in re.split(r"[_\s]+", word) if part] or [word or "_"])
        if lemma is not None and keys:
            uses.append(SenseUse(start, len(tokens), lemma, tuple(keys)))
    return SenseSentence(tuple(tokens), tuple(uses))


def _read_xml(path: Path) -> Iterator[SenseSentence]:
    gold = _read_keys(path)
    try:
        for _, element in ElementTree.iterparse(path):
            if element.tag == "sentence":
                words = [child for child in element if child.tag in ("wf", "instance")]
                senses = [_instance(child, gold, path) for child in words]
                yield _sentence([child.text or "" for child in words], senses)
                element.clear()
    except ElementTree.ParseError as error:
        raise DataError(f"{path}: not well-formed XML ({error})") from None


def _instance(
    element: ElementTree.Element, gold: dict[str, tuple[str, ...]], path: Path
) -> tuple[str | None, tuple[str, ...]]:
    if element.tag == "wf":
        return None, ()
    name, lemma = element.get("id", ""), element.get("lemma", "")
    pos = PARTS_OF_SPEECH.get(element.get("pos", ""))
    if not lemma or pos is None:
        raise DataError(f"{path}: the instance {name!r} lacks a lemma, or a pos NOUN to ADV")
    if name not in gold:
        return None, ()  # not every instance is annotated
    return f"{lemma.lower()}%{pos}", gold[name]


def _read_keys(path: Path) -> dict[str, tuple[str, ...]]:
    keys = path.with_name(path.name.removesuffix(".xml").removesuffix(".data") + ".gold.key.txt")
    if not keys.is_file():
        raise DataError(f"{path}: its senses should be in {keys}, which is not there")
    gold: dict[str, tuple[str, ...]] = {}
    for number, fields in numbered_fields(keys):
        try:
            for key in fields[1:]:
                lemma_of(key)
        except DataError as error:
            raise DataError(f"{keys}, line {number}: {error}") from None
        gold[fields[0]] = tuple(fields[1:])
    return gold
