"""``elmokit encode``: vectors of a whole file, written to a file."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from elmokit.cli.options import (
    AtLeastOne,
    Device,
    Field,
    Layers,
    Model,
    RayAddress,
    Tokenizer,
    Tokens,
    UsageError,
    load_model,
    parse_layers,
    reading_bar,
    suggest,
)

if TYPE_CHECKING:
    from elmokit.encode.writers import WrittenCounts
    from elmokit.text.readers import TextRecord

EXAMPLES = (
    "elmokit encode corpus.txt -o vectors.h5 --layers all",
    "elmokit encode corpus.txt -o vectors.npz --model elmo_weights.hdf5",
    "elmokit encode corpus.txt.gz -o sentences.npy --pool mean",
    "elmokit encode rows.csv -o vectors.parquet --field body --dtype float16",
    "elmokit encode proteins.fasta.gz -o residues.h5 -m seqvec --layers sum",
    "elmokit encode tcr.csv -o tcr.npz --sequences --field cdr3 --ids id --pool mean",
    "elmokit encode corpus.txt -o vectors.safetensors --precision int8",
    "elmokit encode documents.txt -o vectors.h5 --context document",
    "zcat tokenised.gz | elmokit encode - -o vectors.npz --tokens",
    "elmokit encode part1.txt part2.txt -o vectors --engine ray --workers 2",
)

FILE_ENDINGS = (".h5", ".hdf5", ".npz", ".npy", ".safetensors")
"""Of files that only one process can write; a folder may be called NAME.parquet."""


def encode(  # noqa: D417 - options that verbs share bring their own help
    sources: Annotated[tuple[str, ...], Parameter(name="INPUT")],
    /,
    *,
    output: Annotated[Path, Parameter(name=["--output", "-o"])],
    model: Model = None,
    layers: Layers = "mean",
    pool: Literal["mean", "max"] | None = None,
    tokens: Tokens = False,
    tokenizer: Tokenizer = None,
    sentences: bool = False,
    field: Field = "text",
    ids: str | None = None,
    sequences: bool = False,
    dtype: Literal["float32", "float16"] = "float32",
    state: Literal["fresh", "warm", "carry"] = "fresh",
    carry_rows: Annotated[int, AtLeastOne] = 64,
    context: Literal["sentence", "document"] = "sentence",
    batch_tokens: Annotated[int | None, AtLeastOne] = None,
    device: Device = None,
    precision: Literal["float32", "bfloat16", "int8", "float8"] = "float32",
    engine: Literal["plain", "ray"] = "plain",
    workers: Annotated[int | None, AtLeastOne] = None,
    ray_address: RayAddress = None,
    piece_lines: Annotated[int | None, AtLeastOne] = None,
) -> None:
    """Write the vectors of a text file, or of the sequences of a FASTA file, to a file.

    One sentence per line. The first line has the key 0; a blank line is a sentence without tokens
    and keeps its key, so that keys are line numbers. Memory depends on the batch, not on the file.

    Args:
        sources: Text, .jsonl, .csv, .tsv, .fasta, .fa, .faa (each also .gz, .bz2, .xz, .zst),
            .parquet, or - for standard input. With --engine ray: several of these files, or
            folders of them.
        output: Its extension selects the format: .h5 or .hdf5 (AllenNLP's layout), .parquet,
            .npz, .safetensors, or .npy (with --pool). With --engine ray: a folder.
        pool: One vector per sentence instead of one per token.
        sentences: Split each line into sentences first; the keys then count sentences.
        ids: Key or column that holds identifiers; they are the keys of the vectors instead of line
            numbers. Those of FASTA are the first words of its headers.
        sequences: The texts are amino-acid sequences: one residue is one token, in capitals,
            without gaps and the stop at the end. Always so for FASTA.
        dtype: Data type of the stored vectors.
        state: Initial LSTM state of a sentence. fresh: zero. warm: always the same warmed-up
            state. carry: line r of a block of --carry-rows lines starts from the final state of
            line r of the previous block, as in AllenNLP's elmo command.
        carry_rows: Lines per block, with --state carry.
        context: document: blank lines are between documents, and the LSTM state runs through the
            sentences of each, in both directions.
        batch_tokens: Maximum number of tokens per batch; 4096 on a CPU, 32768 on a GPU.
        precision: Precision of the matmuls. bfloat16, int8 (CPU) and float8 (Hopper GPU) take
            less of the device's time where it supports them, and are less exact.
        engine: plain: this process. ray: workers on this machine or a cluster; INPUT is split into
            pieces, each becomes a Parquet file, and repeating an interrupted call resumes it.
        workers: With --engine ray: processes, each with its own model; by default one per core or
            GPU.
        piece_lines: With --engine ray: lines per output file; by default 2000.
    """
    from elmokit.checkpoints.known_models import DEFAULT_MODEL
    from elmokit.encode.writers import open_writer, write_vectors
    from elmokit.files import check_output
    from elmokit.text.readers import is_fasta
    from elmokit.text.sentences import split_texts

    if tokens and sentences:
        raise UsageError("--sentences splits running text, and with --tokens there is none.")
    if sentences and ids is not None:
        raise UsageError("--ids names texts, and --sentences splits them.")
    if (tokens or tokenizer or sentences) and (sequences or any(map(is_fasta, sources))):
        raise UsageError(
            "Sequences are split into residues, without --tokens, --tokenizer and --sentences."
        )
    others = engine == "ray" or sentences or sequences or state == "carry"
    _check_context(context, others or any(map(is_fasta, sources)))
    if engine == "ray":
        # What independent workers cannot support.
        if state == "carry":
            raise UsageError(
                "--state carry goes from line to line, and --engine ray cuts them apart."
            )
        if device is not None and device.startswith("cuda:"):
            raise UsageError(f"--device {device}: Ray picks the GPU; give cpu or cuda.")
        if output.suffix.lower() in FILE_ENDINGS:
            raise UsageError(f"-o {output}: --engine ray writes a folder of Parquet files.")
        from elmokit.ray.encode import PIECE_LINES, encode_files

        start = time.perf_counter()
        counts = encode_files(
            sources, output, workers=workers, address=ray_address,
            piece_lines=piece_lines or PIECE_LINES, model=model, layers=parse_layers(layers),
            pool=pool, tokenizer="space" if tokens else tokenizer, sentences=sentences, field=field,
            ids=ids, sequences=sequences, dtype=dtype, state=state, batch_tokens=batch_tokens,
            device=device, precision=precision,
        )  # fmt: skip
        _report(counts, time.perf_counter() - start, output)
        return
    of_ray = {"--workers": workers, "--ray-address": ray_address, "--piece-lines": piece_lines}
    for option, value in of_ray.items():
        if value is not None:
            raise UsageError(f"{option} goes with --engine ray.")
    if len(sources) != 1:
        raise UsageError("Give one INPUT; several go with --engine ray.")
    (source,) = sources
    check_output(output, source, model)
    choice = parse_layers(layers)
    # Both look at their paths at once, before the model takes its time.
    texts, key = _open_texts(source, field, ids, sequences)
    if sentences:
        texts = split_texts(texts)
    named = key is not None
    if named and output.suffix.lower() == ".npy":
        check_output(output.with_suffix(".json"), source, model)
    writer = open_writer(
        output, dtype=dtype, pooled=pool is not None, model=model or DEFAULT_MODEL, layers=layers,
        ids=named,
    )  # fmt: skip
    elmo = load_model(model, tokens=tokens, tokenizer=tokenizer, device=device, precision=precision)
    start = time.perf_counter()
    with writer, reading_bar(source):
        counts = write_vectors(
            elmo, texts, writer, progress=not os.path.isfile(source),
            carry_rows=carry_rows if state == "carry" else None, layers=choice,
            pool=pool, state=state, context=context, batch_tokens=batch_tokens,
        )  # fmt: skip
    _report(counts, time.perf_counter() - start, output, key or "0")


def _check_context(context: str, with_others: bool) -> None:
    if context == "document" and with_others:
        raise UsageError(
            "--context document takes lines of text with blank lines between documents, without "
            "--engine ray, --sentences, --sequences and --state carry."
        )


def _open_texts(
    source: str, field: str, ids: str | None, sequences: bool
) -> tuple[Iterable[str | list[str] | TextRecord], str | None]:
    """The texts of a file, and the first one's identifier if they have any."""
    from elmokit.text.readers import is_fasta, read_records, read_texts

    if not (sequences or ids is not None or is_fasta(source)):
        return read_texts(source, field=field), None
    records = read_records(source, field=field, ids=ids, sequences=sequences)
    first = list(islice(records, 1))
    key = first[0].id if first else None
    if not os.path.isfile(source):
        return chain(first, records), key
    for _ in records:  # the last record may be wrong, and those before it may take hours
        pass
    return read_records(source, field=field, ids=ids, sequences=sequences), key


def _report(counts: WrittenCounts, seconds: float, output: Path, key: str = "0") -> None:
    found = f"{counts.sentences} sentences, {counts.tokens} tokens"
    print(f"{found} in {seconds:.1f} s: {output}", file=sys.stderr)
    ways = {
        ".npy": f"numpy.load({str(output)!r})",
        ".npz": f"numpy.load({str(output)!r})[{key!r}]",
        ".safetensors": f"safetensors.numpy.load_file({str(output)!r})[{key!r}]",
    }
    h5, table = f"h5py.File({str(output)!r})[{key!r}][:]", f"pandas.read_parquet({str(output)!r})"
    ways |= {".h5": h5, ".hdf5": h5}
    suggest(f"in Python, {ways.get(output.suffix.lower(), table)}")
