"""``elmokit encode``: vectors of a whole file, written to a file."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice, tee
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from elmokit.cli.options import (
    AtLeastOne,
    Device,
    Field,
    Flag,
    Layers,
    Model,
    Tokenizer,
    Tokens,
    UsageError,
    load_model,
    parse_layers,
)
from elmokit.errors import ConfigError
from elmokit.whole_file import final_place

if TYPE_CHECKING:
    from elmokit.vectors.elmo import Elmo
    from elmokit.vectors.writers import VectorWriter

EXAMPLES = (
    "elmokit encode corpus.txt -o vectors.h5 --model elmo_weights.hdf5 --layers all",
    "elmokit encode corpus.txt.gz -o sentences.npy --pool mean",
    "elmokit encode rows.parquet -o vectors.parquet --field body --dtype float16",
    "elmokit encode corpus.txt -o vectors.h5 --precision int8 --word-cache words.safetensors",
    "zcat tokenised.gz | elmokit encode - -o vectors.safetensors --tokens",
)


@dataclass
class Counts:
    """What went through."""

    sentences: int = 0
    tokens: int = 0


def encode(  # noqa: D417 - options that verbs share bring their own help
    source: Annotated[str, Parameter(name="INPUT")],
    /,
    *,
    output: Annotated[Path, Parameter(name=["--output", "-o"])],
    model: Model = None,
    layers: Layers = "mean",
    pool: Literal["mean", "max"] | None = None,
    tokens: Tokens = False,
    tokenizer: Tokenizer = None,
    sentences: Annotated[bool, Flag] = False,
    field: Field = "text",
    dtype: Literal["float32", "float16"] = "float32",
    state: Literal["fresh", "warm", "carry"] = "fresh",
    carry_rows: Annotated[int, AtLeastOne] = 64,
    batch_tokens: Annotated[int, AtLeastOne] = 4096,
    device: Device = "cpu",
    precision: Literal["float32", "bfloat16", "int8"] = "float32",
    word_cache: Path | None = None,
) -> None:
    """Give every token of a file its vector.

    One sentence a line. The first line has the key 0; a blank line is a sentence without tokens
    and keeps its key, so that keys are line numbers. Memory depends on the batch, not on the file.

    Args:
        source: Text, .jsonl, .csv, .tsv (each also .gz, .bz2, .xz, .zst), .parquet, or - for
            standard input.
        output: Its ending picks the format: .h5 or .hdf5 (as AllenNLP writes it), .parquet,
            .npz, .safetensors, or .npy (with --pool).
        pool: One vector a sentence instead of one a token.
        sentences: Split each line into sentences first; the keys then count sentences.
        dtype: How numbers are stored.
        state: What the LSTMs remember before a sentence. fresh: nothing. warm: always the same
            warmed-up memory. carry: line r of a block of --carry-rows lines goes on from line r
            of the block before, as in AllenNLP's elmo command.
        carry_rows: Lines in a block, with --state carry.
        batch_tokens: The most tokens run together.
        precision: The type of the matrix products on a processor. bfloat16 and int8 are faster
            where the processor runs them, and less exact.
        word_cache: A file that keeps the token vectors of words from run to run. Made if it is
            not there; each model and precision has its own.
    """
    from elmokit.checkpoints.sources import DEFAULT_MODEL
    from elmokit.text.corpus import read_texts
    from elmokit.vectors.writers import open_writer

    if tokens and sentences:
        raise UsageError("--sentences splits running text, and with --tokens there is none.")
    if output.exists() and os.path.exists(source) and output.samefile(source):
        raise ConfigError(f"{output}: input and output are the same file")
    if word_cache is not None:
        final_place(word_cache)  # a place that cannot be written to is named at once
    choice = parse_layers(layers)
    # Both look at their paths at once, before the model takes its time.
    texts: Iterable[str | list[str]] = read_texts(source, field=field)
    writer = open_writer(
        output, dtype=dtype, pooled=pool is not None, model=model or DEFAULT_MODEL, layers=layers
    )
    if sentences:
        texts = _split(texts)
    elmo = load_model(model, tokens=tokens, tokenizer=tokenizer, device=device, precision=precision)
    if word_cache is not None and word_cache.exists():
        elmo.load_words(word_cache)
    start = time.perf_counter()
    with writer:
        counts = write_vectors(
            elmo,
            texts,
            writer,
            carry_rows=carry_rows if state == "carry" else None,
            layers=choice,
            pool=pool,
            state=state,
            batch_tokens=batch_tokens,
        )
    if word_cache is not None:
        elmo.save_words(word_cache)
    seconds = time.perf_counter() - start
    print(
        f"{counts.sentences} sentences, {counts.tokens} tokens in {seconds:.1f} s: {output}",
        file=sys.stderr,
    )


def write_vectors(
    elmo: Elmo,
    texts: Iterable[str | list[str]],
    writer: VectorWriter,
    *,
    carry_rows: int | None = None,
    **options: Any,
) -> Counts:
    """Encode a stream of texts into an open writer, numbered from 0.

    Args:
        elmo: The model.
        texts: Sentences as text or as tokens.
        writer: Where the vectors go.
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
        zip(waiting, vectors, strict=True), unit=" sentences", disable=None
    ):
        sentence = text if isinstance(text, str) else " ".join(text)
        writer.write(counts.sentences, sentence, tokens, array)
        counts.sentences += 1
        counts.tokens += len(tokens)
    return counts


def _blocks(words: Iterator[list[str]], rows: int) -> Iterator[list[list[str]]]:
    while block := list(islice(words, rows)):
        yield block


def _split(texts: Iterable[str | list[str]]) -> Iterator[str | list[str]]:
    """Sentences of running text; tokens are a sentence already."""
    from elmokit.text.sentences import split_sentences

    for text in texts:
        if isinstance(text, str):
            yield from split_sentences(text)
        else:
            yield text
