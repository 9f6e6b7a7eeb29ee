"""``elmokit similar``: compare words or sentences, and find the nearest uses of a word."""

from __future__ import annotations

import json
import shlex
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from elmokit.cli.options import (
    AtLeastOne,
    Device,
    Field,
    Json,
    Model,
    Tokenizer,
    Tokens,
    UsageError,
    find_token,
    load_model,
    model_option,
    parse_layers,
    reading_bar,
    suggest,
)
from elmokit.errors import DataError

if TYPE_CHECKING:
    from elmokit.encode.elmo import Elmo
    from elmokit.encode.similarity import CommonDirections

EXAMPLES = (
    'elmokit similar "We sat on the bank ." "The bank lent us money ." --word bank',
    'elmokit similar "She ran home ." "He walked home ." --word ran --word2 walked',
    'elmokit similar "A cat sat on the mat ." "A dog lay on the rug ."',
    'elmokit similar "We sat on the bank ." --word bank --in corpus.txt -k 5',
    'elmokit similar "He ate a pear ." "She ate a plum ." --background corpus.txt',
)


Word = Annotated[str | None, Parameter(allow_leading_hyphen=True)]


def similar(  # noqa: D417 - options that verbs share bring their own help
    sentence: str,
    other: str | None = None,
    /,
    *,
    word: Word = None,
    word2: Word = None,
    corpus: Annotated[Path | None, Parameter(name="--in", allow_leading_hyphen=True)] = None,
    k: Annotated[int, AtLeastOne, Parameter(name=["-k", "--count"])] = 10,
    layers: str = "mean",
    background: Annotated[Path | None, Parameter(allow_leading_hyphen=True)] = None,
    model: Model = None,
    tokens: Tokens = False,
    tokenizer: Tokenizer = None,
    field: Field = "text",
    device: Device = None,
    as_json: Json = False,
) -> None:
    """Compare two uses of words, or find the nearest uses of a word in a file.

    Two sentences: the cosine of every layer, of --word in both, or of the whole sentences. One
    sentence with --word and --in: the most similar uses of the word in the file.

    Args:
        sentence: The first sentence.
        other: The second sentence; without it give --in.
        word: A token of the first sentence, exact match; the first of several.
        word2: Another word to look up in the second sentence or in the file.
        corpus: File to search, one sentence per line, in any format that encode reads.
        k: How many uses to show, with --in.
        layers: What is compared, with --in: mean, top, mix, a layer index, or weights.
        background: A text, one sentence per line, also that of --in: what its vectors have in
            common is removed from all vectors first. Some hundred sentences are enough.
    """
    if (other is None) == (corpus is None):
        raise UsageError("Give a second sentence or --in FILE, one of the two.")
    if word is None and (word2 is not None or corpus is not None):
        raise UsageError("--word2 and --in need --word.")
    elmo = load_model(model, tokens=tokens, tokenizer=tokenizer, device=device)
    without = None if background is None else _common_directions(elmo, background, field)
    if other is not None:
        second = word2 if word2 is not None else word
        _compare(elmo, sentence, other, word, second, without, as_json)
    elif corpus is not None and word is not None:
        _search(elmo, sentence, word, word2, corpus, field, k, layers, without, as_json)
    if not as_json:
        named = shlex.quote(word2 or word or "WORD")
        suggest(f"elmokit probe polysemy {corpus or 'FILE'} {named}{model_option(model)}")


def _common_directions(elmo: Elmo, path: Path, field: str) -> CommonDirections:
    from elmokit.encode.similarity import CommonDirections
    from elmokit.text.readers import read_texts

    texts = read_texts(path, field=field)
    with reading_bar(path):
        return CommonDirections.fit(elmo.encode_stream(texts, layers="all"), where=str(path))


def _compare(
    elmo: Elmo,
    sentence: str,
    other: str,
    word: str | None,
    word2: str | None,
    without: CommonDirections | None,
    as_json: bool,
) -> None:
    from elmokit.encode.similarity import compare

    first, second = elmo.tokenize(sentence), elmo.tokenize(other)
    for tokens, text in ((first, sentence), (second, other)):
        if not tokens:
            raise DataError(f"the sentence {text!r} has no tokens")
    positions: tuple[int, int] | None = None
    if word is not None and word2 is not None:
        positions = find_token(first, word), find_token(second, word2)
    result = compare(elmo, first, second, positions, without=without)
    if as_json:
        both = [
            {"tokens": tokens, "position": positions[i] if positions else None}
            for i, tokens in enumerate((first, second))
        ]
        _print_json(elmo, {"uses": both, "cosine": asdict(result)})
        return
    print("layer   cosine")
    for layer, value in (*enumerate(result.layers), ("mean", result.mean)):
        print(f"{layer:<5}  {value:7.4f}")


def _search(
    elmo: Elmo,
    sentence: str,
    word: str,
    word2: str | None,
    corpus: Path,
    field: str,
    k: int,
    layers: str,
    without: CommonDirections | None,
    as_json: bool,
) -> None:
    from elmokit.encode.similarity import in_context, nearest_uses
    from elmokit.text.readers import read_texts

    tokens = elmo.tokenize(sentence)
    position = find_token(tokens, word)
    texts = read_texts(corpus, field=field)
    choice = parse_layers(layers)
    with reading_bar(corpus):
        uses = nearest_uses(
            elmo, tokens, position, texts, word=word2, k=k, layers=choice, without=without
        )
    if as_json:
        found = [
            {"cosine": u.score, "line": u.sentence + 1, "position": u.position, "tokens": u.tokens}
            for u in uses
        ]
        query = {"tokens": tokens, "position": position}
        _print_json(elmo, {"query": query, "layers": layers, "uses": found})
    elif uses:
        print(" cosine    line  use")
        for use in uses:
            print(f"{use.score:7.4f}  {use.sentence + 1:6}  {in_context(use.tokens, use.position)}")
    else:
        print(f"no token {word2 or word!r} in {corpus}", file=sys.stderr)


def _print_json(elmo: Elmo, report: dict[str, Any]) -> None:
    print(json.dumps({"model": elmo.source, **report}, indent=2, ensure_ascii=False))
