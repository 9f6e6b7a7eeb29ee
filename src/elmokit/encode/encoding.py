"""A stream of texts through a model into an open vector file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice, tee
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from elmokit.encode.elmo import Elmo
    from elmokit.encode.writers import VectorWriter


@dataclass
class Counts:
    """What went through."""

    sentences: int = 0
    tokens: int = 0


def write_vectors(
    elmo: Elmo,
    texts: Iterable[str | list[str]],
    writer: VectorWriter,
    *,
    first: int = 0,
    progress: bool = True,
    carry_rows: int | None = None,
    **options: Any,
) -> Counts:
    """Encode a stream of texts into an open writer, numbered from `first` on.

    Args:
        elmo: The model.
        texts: Sentences as text or as tokens.
        writer: Where the vectors go.
        first: The number of the first sentence.
        progress: Show a bar if standard error is a terminal.
        carry_rows: Sentences in a call, when calls must be cut in one place only because the
            state is carried from one to the next.
        **options: As for `Elmo.encode_stream`.
    """
    from tqdm.auto import tqdm

    pairs = ((text, elmo.tokenize(text) if isinstance(text, str) else text) for text in texts)
    # The second iterator runs ahead by what the model reads at a time; tee keeps just that.
    waiting, ahead = tee(pairs)
    words = (tokens for _, tokens in ahead)
    blocks = [words] if carry_rows is None else _blocks(words, carry_rows)
    vectors = (array for block in blocks for array in elmo.encode_stream(block, **options))
    counts = Counts()
    # disable=None: no bar when standard error is no terminal.
    for (text, tokens), array in tqdm(
        zip(waiting, vectors, strict=True),
        unit=" sentences",
        disable=None if progress else True,
    ):
        sentence = text if isinstance(text, str) else " ".join(text)
        writer.write(first + counts.sentences, sentence, tokens, array)
        counts.sentences += 1
        counts.tokens += len(tokens)
    return counts


def _blocks(words: Iterator[list[str]], rows: int) -> Iterator[list[list[str]]]:
    while block := list(islice(words, rows)):
        yield block


def sentences_of(texts: Iterable[str | list[str]]) -> Iterator[str | list[str]]:
    """Sentences of running text; tokens are a sentence already."""
    from elmokit.text.sentences import split_sentences

    for text in texts:
        if isinstance(text, str):
            yield from split_sentences(text)
        else:
            yield text
