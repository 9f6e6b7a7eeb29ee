"""``elmokit convert``: any model that can be read, to one of the formats that are written."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from elmokit.cli.options import OptionsFile, VocabularyFile, readable_size, size_on_disk, suggest
from elmokit.errors import CheckpointError, ConfigError

if TYPE_CHECKING:
    from elmokit.encode.elmo import Elmo

EXAMPLES = (
    "elmokit convert elmo_weights.hdf5 converted",
    "elmokit convert model.tar.gz from-allennlp",
    "elmokit convert model.ckpt-935588 from-bilm --options model/options.json",
    "elmokit convert my-model exported/weights.hdf5",
    "elmokit convert my-model smaller --storage int8",
    "elmokit convert my-model smallest --storage compact --words 20000",
    "elmokit convert my-model my-int4 --storage int4 --calibrate corpus.txt",
    "elmokit convert my-model model.onnx",
)

FORMATS = {".hdf5": "hdf5", ".h5": "hdf5", ".onnx": "onnx"}
"""What a file's ending asks for."""


def convert(  # noqa: D417 - options that verbs share bring their own help
    source: str,
    dest: Path,
    /,
    *,
    to: Literal["native", "hdf5", "onnx"] | None = None,
    storage: Literal["float32", "int8", "compact", "int4"] = "float32",
    options_file: OptionsFile = None,
    vocabulary_file: VocabularyFile = None,
    softmax_file: Annotated[Path | None, Parameter(name="--softmax")] = None,
    words: int | None = None,
    counts: Path | None = None,
    calibrate: str | None = None,
    overwrite: bool = False,
) -> None:
    """Write a model in another format.

    native is a folder: config.json, model.safetensors, word lists, card. hdf5 is the layout of
    bilm-tf and AllenNLP: weights with options.json (and vocab.txt) next to them; it cannot hold a
    softmax or mixes. onnx is one file for onnxruntime, without the softmax.

    Args:
        source: Anything that --model of the other verbs takes.
        dest: The folder (native) or file (hdf5, onnx) to write.
        to: The format; hdf5 when DEST ends in .hdf5 or .h5, onnx when it ends in .onnx, otherwise
            native.
        storage: int8 (native, onnx) quantizes the matrices to a quarter of the size; compact
            (native) stores the softmax in int4, int4 (native) larger matrices but projections, for
            models that were trained so (run.qat_steps) or with --calibrate. An onnx file in int8
            also runs its matmuls in int8, which is faster and less exact.
        softmax_file: HDF5 file with the softmax of the model, to be added to it.
        words: Keep only this many words of the softmax, the most frequent ones (native).
        counts: Prepared corpus whose word counts a model without them gets, for better
            substitutes (native).
        calibrate: Text for --storage int4, in any format that encode reads, one sentence per line:
            the matrices are rounded so that the model changes least on its first 50,000 tokens
            (GPTQ).
        overwrite: Replace DEST; a folder only if it holds a native model.
    """
    import elmokit
    from elmokit.checkpoints import native
    from elmokit.corpus.shards import TokenCorpus
    from elmokit.files import check_output
    from elmokit.text.readers import read_texts
    from elmokit.training.calibration import calibrate_int4

    check_output(dest, source, options_file, vocabulary_file, softmax_file, counts, calibrate)
    form = to or FORMATS.get(dest.suffix.lower(), "native")
    if form == "hdf5" and storage != "float32":
        raise ConfigError(f"--storage {storage}: HDF5 files hold float32; write native or onnx")
    if calibrate is not None and storage != "int4":
        raise ConfigError(f"--calibrate {calibrate}: is for --storage int4")
    for name, value in (("words", words), ("counts", counts)):
        if form != "native" and value is not None:
            raise ConfigError(f"--{name} {value}: {form} files have no softmax; write native")
    elmo = elmokit.load(
        source,
        options=options_file,
        vocabulary=vocabulary_file,
        softmax=True if softmax_file is None else softmax_file,
        device="cpu",
    )
    if form == "hdf5":
        inputs = (source, options_file, vocabulary_file, softmax_file)
        _check_hdf5_paths(elmo, dest, overwrite, inputs)
        elmo.export(dest, format="hdf5")
        parts = {"the softmax": elmo.config.softmax, "the mixes": elmo.config.mix}
        if lost := [name for name, part in parts.items() if part is not None]:
            note = f"elmokit: note: HDF5 cannot hold {' and '.join(lost)}; left out"
            print(note, file=sys.stderr)
    elif form == "onnx":
        for path in (dest, dest.with_name(f"{dest.name}.data")):
            _check_absent(path, overwrite)
        elmo.export(dest, format="onnx", storage=storage)
    else:
        # What is no model of ours is refused by `save`, with or without --overwrite.
        _check_absent(dest, overwrite or (dest.is_dir() and not any(dest.iterdir())))
        if calibrate is not None:
            read = calibrate_int4(elmo, read_texts(calibrate))
            print(f"elmokit: calibrated on {read:,} tokens of {calibrate}", file=sys.stderr)
        checkpoint = elmo.checkpoint()
        if words is not None:
            checkpoint = checkpoint.with_words(words)
        if counts is not None:
            corpus = TokenCorpus(counts)
            table = zip(corpus.words, corpus.counts.tolist(), strict=True)
            checkpoint = checkpoint.with_counts(dict(table))
        native.write(checkpoint, dest, storage)
    print(f"{elmo.kind} to {dest} ({readable_size(size_on_disk(dest))})", file=sys.stderr)
    suggest(f"elmokit info {dest}" if form != "onnx" else f"in Python, OnnxElmo({str(dest)!r})")


def _check_hdf5_paths(
    elmo: Elmo, dest: Path, overwrite: bool, inputs: tuple[str | Path | None, ...]
) -> None:
    from elmokit.checkpoints.bilm_hdf5 import options_path
    from elmokit.files import check_output

    if dest.is_dir():
        raise CheckpointError(f"{dest}: is a folder; give the name of the file to write in it")
    beside = [options_path(dest)]
    if elmo.vocabulary is not None:
        beside.append(dest.with_name("vocab.txt"))
    for path in (dest, *beside):
        _check_absent(path, overwrite)
    # Those of weights in the same folder are inputs, whether they were named or found.
    folder = Path(elmo.source).parent if os.path.isfile(elmo.source) else None
    for path in beside:
        check_output(path, folder, *inputs)


def _check_absent(path: Path, overwrite: bool) -> None:
    if path.exists() and not overwrite:
        raise CheckpointError(f"{path} exists; choose another path, or replace it with --overwrite")
