"""Documents: the LSTM state runs through the sentences of a document, in both directions.

Forward, a sentence starts where the one before it ended; backward, where the one after it ended,
so every vector depends on the whole document and on nothing else. This is one pass over the
document's sentences in a row, each between its markers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import tee
from typing import TYPE_CHECKING, Any

from elmokit.encode.layers import Layers, Pool, check_pool, pool_tokens
from elmokit.errors import ConfigError, DataError
from elmokit.model.scalar_mix import ScalarMix

if TYPE_CHECKING:
    from elmokit.encode.elmo import Elmo, Sentence
    from elmokit.encode.embedder import State


def encode_documents(
    elmo: Elmo,
    documents: Iterable[Iterable[Sentence]],
    context: str = "document",
    *,
    layers: Layers = "mean",
    pool: Pool | None = None,
    state: State = "fresh",
    output: str = "numpy",
    **options: Any,
) -> Iterator[list[Any]]:
    """The vectors of each document's sentences, as `Elmo.encode` gives those of sentences.

    Documents stream; memory depends on the batch and on the longest document.

    Raises:
        ConfigError: The state is carried, or the layers are normalised sentence by sentence.
        DataError: A document is no list of sentences.
    """
    check_pool(pool)
    if context != "document":
        raise ConfigError(f"context={context!r}: use 'sentence' or 'document'")
    if state == "carry":
        raise ConfigError("context='document' with state='carry': the state starts with a document")
    mix = elmo.mixes[0] if layers == "mix" and elmo.mixes else layers
    if isinstance(mix, ScalarMix) and mix.layer_norm:
        raise ConfigError("context='document': a mix with layer norm is over single sentences")
    # The second iterator is a batch window ahead of the first; tee buffers just that.
    pending, prefetched = tee(_tokens(elmo, document) for document in documents)
    text = elmo.config.text
    joined = (_join(sentences, text.end, text.begin) for sentences in prefetched)
    vectors = elmo.encode_stream(joined, layers=layers, state=state, output="torch", **options)
    for sentences, whole in zip(pending, vectors, strict=True):
        parts, start = [], 0
        for tokens in sentences:
            part = whole[..., start : start + len(tokens), :]
            parts.append(part if pool is None else pool_tokens(part, pool))
            start += len(tokens) + 2
        yield parts if output == "torch" else [part.cpu().numpy() for part in parts]


def _tokens(elmo: Elmo, document: Iterable[Sentence]) -> list[tuple[str, ...]]:
    if isinstance(document, str):
        raise DataError(
            f"context='document': expected the sentences of a document, found a text: "
            f"{document!r:.80}; elmokit.text.split_sentences splits it"
        )
    return list(elmo.all_tokens(document))


def _join(sentences: Sequence[Sequence[str]], end: str, begin: str) -> list[str]:
    """All words, with the markers between sentences; `encode` adds the outer two."""
    words: list[str] = []
    for number, tokens in enumerate(sentences):
        words += (end, begin, *tokens) if number else tokens
    return words
