"""SeqVec's command line.

Run it as ``python -m elmokit.integrations.migration.seqvec -i seqs.fasta -o out.h5``.

Sequences are sorted by length and run in the original's batches with its carried state, so the
numbers are the original's. Nothing is downloaded.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from elmokit.errors import ConfigError, DataError, ElmokitError
from elmokit.files import atomic_file, check_output, create_hdf5
from elmokit.integrations.migration.allennlp import ElmoEmbedder

LAYERS = ("sum", "all", "CNN", "LSTM1", "LSTM2")
WHOLE_HEADER = -1
"""The field number for the whole header."""


def read_fasta(path: Path, split_char: str = "|", id_field: int = 1) -> dict[str, str]:
    """Sequences by name, from a FASTA file or from all of them in a folder.

    Args:
        path: A file, plain or ``.gz``, or a folder.
        split_char: Separator of a header's fields.
        id_field: Which field is the name, from 0; -1 for the whole header.

    Raises:
        DataError: There is no such file, a header lacks the field, or no header comes first.
    """
    files = sorted(path.glob("**/*fasta*")) if path.is_dir() else [path]
    sequences: dict[str, str] = {}
    for file in files:
        name: str | None = None
        for number, line in enumerate(_lines(file), start=1):
            if line.startswith(">"):
                header = line.replace(">", "").strip()
                fields = [header] if id_field == WHOLE_HEADER else header.split(split_char)
                if id_field >= len(fields):
                    raise DataError(
                        f"{file}, line {number}: the header has no field {id_field} between "
                        f"{split_char!r}; give --id, or --id -1 for the whole header"
                    )
                name = fields[id_field]
                sequences[name] = ""
            elif name is not None:
                sequences[name] += "".join(line.split()).upper()
            elif line.strip():
                raise DataError(f"{file}, line {number}: a header that begins with > comes first")
    if not sequences:
        raise DataError(f"{path}: no sequence found")
    return sequences


def embed(
    model: ElmoEmbedder,
    sequences: dict[str, str],
    *,
    layer: str = "sum",
    per_protein: bool = False,
    batchsize: int = 15000,
) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """Vectors of sequences, shortest first.

    Args:
        model: The model.
        sequences: Sequences by name.
        layer: ``sum``, ``all`` (concatenated), ``CNN``, ``LSTM1`` or ``LSTM2``.
        per_protein: One vector per sequence, the average over its residues.
        batchsize: Residues after which a batch is run.

    Yields:
        Name and vectors: (T, D), or (D,) for each protein.
    """
    batch: list[tuple[str, str]] = []
    residues = 0
    ordered = sorted(sequences.items(), key=lambda item: len(item[1]))
    for number, (name, sequence) in enumerate(ordered, start=1):
        batch.append((name, sequence))
        residues += len(sequence)
        if residues > batchsize or len(sequence) > batchsize / 2 or number == len(ordered):
            vectors = model.embed_batch([list(text) for _, text in batch])
            for (done, _), layers in zip(batch, vectors, strict=True):
                yield done, _reduce(layers, layer, per_protein)
            batch, residues = [], 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Returns:
        0, or 1 when the input cannot be used; one line on standard error says why.
    """
    options = _parser().parse_args(arguments)
    cuda = -1 if options.cpu or not torch.cuda.is_available() else 0
    try:
        sequences = read_fasta(options.input, options.split_char, options.id)
        model = ElmoEmbedder(options.model / "options.json", options.model / "weights.hdf5", cuda)
        how = {"layer": options.layer, "per_protein": options.protein}
        vectors = embed(model, sequences, **how, batchsize=options.batchsize)
        check_output(options.output, options.input, options.model)
        _save(options.output, vectors, options.protein)
    except (ElmokitError, OSError) as error:
        print(f"seqvec: error: {error}", file=sys.stderr)
        return 1
    if not options.silent:
        print(f"{len(sequences)} sequences: {options.output}", file=sys.stderr)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="seqvec", description="ELMo vectors of proteins.")
    add = parser.add_argument
    add("-i", "--input", type=Path, required=True, help="FASTA file, or a folder of them")
    add("-o", "--output", type=Path, required=True, help=".h5 or .npz; .npy with --protein")
    add("--model", type=Path, default=Path("model"), help="folder of weights.hdf5, options.json")
    add("--protein", action="store_true", help="average over each protein's residues")
    add("--batchsize", type=int, default=15000, help="residues in a batch")
    add("--split-char", default="|", help="between the fields of a FASTA header")
    add("--id", type=int, default=1, help="field of the header that is the name; -1: all of it")
    add("--cpu", action="store_true", help="use no GPU")
    add("--layer", choices=LAYERS, default="sum", help="which layers")
    add("--silent", action="store_true", help="print nothing at the end")
    return parser


def _lines(path: Path) -> Iterator[str]:
    if not path.is_file():
        raise DataError(f"{path}: no such file or folder")
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8") as file:
        yield from file


def _reduce(layers: NDArray[np.float32], layer: str, per_protein: bool) -> NDArray[np.float32]:
    vectors: NDArray[np.float32]
    if layer == "sum":
        vectors = layers.sum(axis=0)
    elif layer == "all":
        vectors = np.concatenate(list(layers), axis=1)
    else:
        vectors = layers[("CNN", "LSTM1", "LSTM2").index(layer)]
    return np.mean(vectors, axis=0) if per_protein else vectors


def _save(path: Path, vectors: Iterator[tuple[str, NDArray[np.float32]]], pooled: bool) -> None:
    """Write a file in the format of its ending, sequence by sequence."""
    if path.suffix not in (".h5", ".npz", ".npy"):
        raise ConfigError(f"{path}: the name must end in .h5, .npz or .npy")
    if path.suffix == ".npy" and not pooled:
        raise ConfigError(f"{path}: a .npy file holds one vector per protein; add --protein")
    names: Sequence[str] = ()
    with atomic_file(path) as temporary:
        if path.suffix == ".h5":
            with create_hdf5(temporary) as file:
                for name, array in vectors:
                    file.create_dataset(name, data=array)
        elif path.suffix == ".npz":
            with zipfile.ZipFile(temporary, "x") as archive:
                for name, array in vectors:
                    with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                        np.lib.format.write_array(member, array, allow_pickle=False)
        else:
            names, rows = zip(*vectors, strict=True)
            with temporary.open("xb") as output:
                np.save(output, np.stack(rows))
    if names:
        with atomic_file(path.with_suffix(".json")) as temporary:
            temporary.write_text(json.dumps(names), "utf-8")


if __name__ == "__main__":
    raise SystemExit(main())
