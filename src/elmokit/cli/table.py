"""``elmokit table``: one static vector per word, the average over a corpus."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from elmokit.cli.options import (
    AtLeastOne,
    Device,
    Field,
    Model,
    Tokenizer,
    Tokens,
    load_model,
    parse_layers,
    readable_size,
    size_on_disk,
    suggest,
)

EXAMPLES = (
    "elmokit table corpus.txt -o words.vec --min-count 1",
    "elmokit table corpus.txt.gz -o words.bin --layers 1 --min-count 2",
)


def table(  # noqa: D417 - options that verbs share bring their own help
    source: Annotated[str, Parameter(name="INPUT")],
    /,
    *,
    output: Annotated[Path, Parameter(name=["--output", "-o"])],
    model: Model = None,
    layers: str = "mean",
    min_count: Annotated[int, AtLeastOne] = 5,
    max_words: Annotated[int, AtLeastOne] = 50_000,
    tokens: Tokens = False,
    tokenizer: Tokenizer = None,
    field: Field = "text",
    batch_tokens: Annotated[int, AtLeastOne] = 4096,
    device: Device = None,
) -> None:
    """Average the vectors of each word over a file, for tools that expect static vectors.

    The result is a word2vec file, which gensim and elmokit.WordVectors read.

    Args:
        source: Text, one sentence per line, .jsonl, .csv, .tsv (each also .gz, .bz2, .xz, .zst), or
            .parquet. It is read twice.
        output: word2vec binary if it ends in .bin, else word2vec text; a further .gz compresses.
        layers: mean, top, mix, a layer index, or weights such as 0.2,0.3,0.5.
        min_count: Minimum number of occurrences.
        max_words: Maximum number of words; the most frequent are kept.
        batch_tokens: Maximum number of tokens per batch.
    """
    from elmokit.errors import DataError
    from elmokit.files import check_output, final_path
    from elmokit.text.readers import read_texts
    from elmokit.word_vectors.averages import average_words

    if source == "-":
        raise DataError("-: the text is read twice, so it has to be a file")
    # Both are checked before the model is loaded, which takes long.
    read_texts(source, field=field)
    final_path(output)
    check_output(output, source, model)
    elmo = load_model(model, tokens=tokens, tokenizer=tokenizer, device=device)
    vectors = average_words(
        elmo,
        source,
        layers=parse_layers(layers),
        min_count=min_count,
        max_words=max_words,
        field=field,
        batch_tokens=batch_tokens,
    )
    vectors.save(output)
    size = readable_size(size_on_disk(output))
    print(f"{len(vectors)} words, {vectors.dim} wide: {output} ({size})", file=sys.stderr)
    suggest(f"in Python, elmokit.WordVectors.load({str(output)!r})")
