"""`encode_files`: vectors of many files, made by Ray Data on a machine or a cluster.

The driver cuts the inputs into pieces and distributes their names; texts and vectors do not pass
through it. A worker reads a piece's texts itself and writes the piece's file atomically. So pieces
can be retried: a worker that dies, with its machine or alone, has left nothing, and the retry
writes the same file.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from elmokit.checkpoints.known_models import DEFAULT_MODEL
from elmokit.encode.writers import WrittenCounts
from elmokit.errors import ConfigError, DataError
from elmokit.files import check_output
from elmokit.ray import pieces
from elmokit.ray.cluster import (
    QUIET,
    WorkerResources,
    absolute_source,
    connect,
    import_ray,
    wants_gpu,
    worker_resources,
)
from elmokit.ray.pieces import EncodeJob, PieceEncoder, count_texts
from elmokit.training.distributed import PeerError

if TYPE_CHECKING:
    from elmokit.encode.writers import DType
    from elmokit.engines import Precision

PIECE_LINES = 2000
"""Texts of a piece, by default."""
MOST_BLOCKS = 4000
"""Ray Data has a cost per block; of more pieces, some share one."""


def encode_files(
    inputs: Sequence[str | os.PathLike[str]],
    output: str | os.PathLike[str],
    *,
    model: str | None = None,
    layers: str | int | list[float] = "mean",
    pool: Literal["mean", "max"] | None = None,
    tokenizer: str | None = None,
    sentences: bool = False,
    field: str = "text",
    ids: str | None = None,
    sequences: bool = False,
    dtype: DType = "float32",
    state: Literal["fresh", "warm"] = "fresh",
    batch_tokens: int | None = None,
    device: str | None = None,
    precision: Precision = "float32",
    piece_lines: int = PIECE_LINES,
    workers: int | None = None,
    address: str | None = None,
) -> WrittenCounts:
    """Encode files of texts into a folder of Parquet files.

    A call that was stopped continues when it is repeated: finished files are not made again. The
    model, the inputs and everything that vectors depend on must be as before; `batch_tokens`,
    `device`, `workers` and `address` may change.

    Uses the Ray that is running in this process; else connects to one and disconnects at the end.

    Args:
        inputs: Files that `read_texts` reads, or folders of such files.
        output: The folder. On a cluster, it, the inputs and the model are on storage that all
            machines share, under one path.
        model: As for `elmokit.load`.
        layers: As for `Elmo.encode`.
        pool: One vector per sentence instead of one per token.
        tokenizer: How text is split, instead of the model's tokeniser.
        sentences: Split each text into sentences first.
        field: Key or column that holds the text.
        ids: Key or column that holds identifiers, which become a column; those of FASTA always do.
        sequences: The texts are amino-acid sequences; see `elmokit.text.read_records`.
        dtype: How numbers are stored.
        state: The initial state of a sentence, as for `Elmo.encode`.
        batch_tokens: The most tokens run together; left out, the device's default.
        device: ``"cpu"``, or ``"cuda"`` for a GPU for each worker; left out, a GPU if there is
            one for each.
        precision: The type of the matmuls; see `elmokit.load`.
        piece_lines: Texts of one output file.
        workers: Processes with a model each, which share the cores; one for each core or GPU when
            left out.
        address: The cluster; when left out, the one Ray finds or starts on this machine.

    Returns:
        What was encoded by this call.

    Raises:
        CheckpointError: The model cannot be read, or a machine does not see it.
        ConfigError: A setting is impossible, or Ray has too few CPUs or GPUs.
        DataError: An input cannot be read, or the folder holds something else.
        MissingExtraError: Ray Data is not installed.
        PeerError: Ray gave up; what is finished stays, and the call can be repeated.
    """
    use_gpu = wants_gpu(device, precision)
    for name, value in (("workers", workers), ("piece_lines", piece_lines)):
        if value is not None and value < 1:
            raise ConfigError(f"{name} = {value}: give at least 1")
    if state not in ("fresh", "warm"):
        raise ConfigError(f"state = {state!r}: give 'fresh' or 'warm'; pieces are cut apart")
    ray = import_ray("data", "Encoding with Ray")
    found = pieces.find_inputs([os.fspath(name) for name in inputs])
    folder = Path(output).absolute()
    manifest = pieces.read_manifest(folder)
    if manifest is None:
        check_output(folder, *inputs, model)
    examined = _examine(model, layers, tokenizer, precision)
    settings = examined | {
        "layers": layers,
        "pool": pool,
        "sentences": sentences,
        "field": field,
        "ids": ids,
        "sequences": sequences or None,  # None: folders without this setting are continued
        "dtype": dtype,
        "state": state,
        "precision": precision,
        "piece_lines": piece_lines,
    }
    read = {"field": field, "sentences": sentences, "ids": ids, "sequences": sequences}
    if manifest is not None:
        pieces.check_same(folder, manifest, settings, found)
    folder.mkdir(exist_ok=True)
    with pieces.alone_in(folder):
        try:
            with connect(ray, address, **QUIET):
                resources = worker_resources(ray, workers, use_gpu=use_gpu, address=address)
                manifest = pieces.read_manifest(folder)
                if manifest is None:
                    texts = _count(ray, found, read)
                    manifest = pieces.describe(settings, found, texts)
                    pieces.write_manifest(folder, manifest)
                texts = pieces.check_same(folder, manifest, settings, found)
                job = EncodeJob(
                    folder=str(folder),
                    manifest=(folder / pieces.MANIFEST).read_text(encoding="utf-8"),
                    fingerprint=examined["model"],
                    threads=resources.cpus,
                    load={
                        "source": absolute_source(model),
                        "tokenizer": tokenizer,
                        "device": ("cuda" if resources.gpus else "cpu")
                        if use_gpu is None
                        else device,
                        "precision": precision,
                    },
                    read=read,
                    encode={
                        "layers": layers,
                        "pool": pool,
                        "state": state,
                        "batch_tokens": batch_tokens,
                    },
                    write={
                        "dtype": dtype,
                        "pooled": pool is not None,
                        "model": model or DEFAULT_MODEL,
                        "layers": _name(layers),
                    },
                )
                return _run(ray, job, list(pieces.cut(found, texts, piece_lines)), resources)
        finally:
            pieces.remove_unfinished(folder)
            if not any(folder.glob("*.parquet")):
                with suppress(OSError):
                    (folder / pieces.MANIFEST).unlink(missing_ok=True)
                    folder.rmdir()


def _examine(
    model: str | None, layers: Any, tokenizer: str | None, precision: Precision
) -> dict[str, Any]:
    """What identifies a model; raises here what it cannot do."""
    import elmokit
    from elmokit.checkpoints.fingerprint import fingerprint

    on_cpu: Precision = "float32" if precision == "float8" else precision  # that is for GPUs
    elmo = elmokit.load(model, tokenizer=tokenizer, precision=on_cpu, device="cpu")
    elmo.tokenize("")
    elmo.encode_stream([], layers=layers)
    elmo.bilm.set_precision(precision)
    mixes = [[mix.shares().tolist(), float(mix.gamma.detach())] for mix in elmo.mixes]
    return {
        "model": fingerprint(elmo),
        "mix": mixes if layers == "mix" else None,
        "tokenizer": elmo.config.text.tokenizer,
    }


def _name(layers: Any) -> str:
    """The layers as the command line writes them."""
    return ",".join(map(str, layers)) if isinstance(layers, list) else str(layers)


def _count(ray: Any, inputs: Sequence[pieces.InputFile], read: Mapping[str, Any]) -> list[int]:
    """The number of texts of each input, which is read once for it."""
    task = ray.remote(max_retries=-1)(count_texts)
    counts = ray.get([task.remote(given.path, read) for given in inputs])
    for _, problem in counts:
        if problem:
            raise DataError(problem)
    return [count for count, _ in counts]


def _run(
    ray: Any, job: EncodeJob, wanted: Sequence[pieces.FilePiece], resources: WorkerResources
) -> WrittenCounts:
    """Encode the pieces whose files are missing."""
    from tqdm.auto import tqdm

    folder = Path(job.folder)
    pieces.remove_unfinished(folder)
    there = {path.name for path in folder.glob("*.parquet")}
    missing = [piece for piece in wanted if piece.file not in there]
    counts = WrittenCounts()
    if len(missing) < len(wanted):
        print(
            f"{len(wanted) - len(missing)} of {len(wanted)} files are there already",
            file=sys.stderr,
        )
    if not missing:
        return counts
    waiting = {piece.file for piece in missing}
    bar = tqdm(total=len(wanted), initial=len(wanted) - len(missing), unit=" files", disable=None)
    with bar, _quiet(ray):
        try:
            for row in _answers(ray, job, missing, resources).iter_rows():
                if row["problem"]:
                    raise DataError(row["problem"])
                if row["failure"]:
                    raise _gave_up(row["failure"])
                waiting.discard(row["file"])
                counts.sentences += row["sentences"]
                counts.tokens += row["tokens"]
                bar.update()
        except (ray.exceptions.RayError, ray.data.exceptions.SystemException) as error:
            cause = getattr(error, "cause", None) or error
            raise _gave_up(f"{type(cause).__name__}: {cause}") from error
    waiting -= {path.name for path in folder.glob("*.parquet")}
    if waiting:
        raise PeerError(f"{folder}: {len(waiting)} files are missing. Repeat the call to continue.")
    return counts


def _answers(
    ray: Any, job: EncodeJob, missing: Sequence[pieces.FilePiece], resources: WorkerResources
) -> Any:
    """One row per piece, computed lazily.

    Ray Data restarts workers that die, as often as it takes, and retries their pieces.
    """
    strategy = ray.data.ActorPoolStrategy(
        size=min(resources.workers, len(missing)),
        # A piece queued behind another would be withheld from a worker that is free.
        max_tasks_in_flight_per_actor=1,
    )
    rows = ray.data.from_items(
        [asdict(piece) for piece in missing], override_num_blocks=min(len(missing), MOST_BLOCKS)
    )
    return rows.map(
        PieceEncoder,
        fn_constructor_args=(job,),
        compute=strategy,
        num_cpus=resources.cpus,
        num_gpus=resources.gpus,
    )


@contextmanager
def _quiet(ray: Any) -> Iterator[None]:
    """Ray Data without its own bars and messages."""
    logger, context = logging.getLogger("ray.data"), ray.data.DataContext.get_current()
    before = logger.level, context.enable_progress_bars, context.print_on_execution_start
    logger.setLevel(logging.CRITICAL)
    context.enable_progress_bars = context.print_on_execution_start = False
    try:
        yield
    finally:
        logger.setLevel(before[0])
        context.enable_progress_bars, context.print_on_execution_start = before[1:]


def _gave_up(reason: str) -> PeerError:
    return PeerError(
        "a worker has failed; what is finished stays, and the same call continues with the rest "
        f"({reason.splitlines()[0]}; more is in Ray's logs)"
    )
