"""`pretrain_with_ray`: the same run, its processes started by Ray Train on a machine or a cluster.

Ray starts the processes and makes their process group; each then calls `pretrain`, as under
torchrun. Settings, log, snapshots and the model are in the output folder as always, so that a run
can be stopped under one launcher and resumed under another.
"""

from __future__ import annotations

import importlib
import os
import signal
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

from elmokit.corpus.documents import HUGGING_FACE
from elmokit.corpus.prepare import CorpusConfig
from elmokit.errors import ConfigError, ElmokitError, MissingExtraError
from elmokit.ray.cluster import connect, first_line, import_ray, worker_resources
from elmokit.training.distributed import TIMEOUT, PeerError
from elmokit.training.pretrain import SETTINGS_FILE, pretrain, run_description
from elmokit.training.run_folder import RunFolder
from elmokit.training.settings import PretrainConfig

RAY_FOLDER = "ray"
"""Inside the run's folder: a file of Ray, which checks that all machines share the folder."""

_ENVIRONMENT = {"RAY_TRAIN_ENABLE_PRINT_PATCH": "0"}
"""Of the workers: otherwise every line they print comes twice, once through Ray's logger."""


def pretrain_with_ray(
    config: PretrainConfig,
    *,
    workers: int,
    use_gpu: bool | None = None,
    address: str | None = None,
    resume: bool = False,
    restarts: int = 0,
    preparation: CorpusConfig | None = None,
    data_licence: str | None = None,
    tensorboard: bool = False,
) -> Path:
    """Train a biLM from raw text in processes that Ray starts.

    Uses the Ray that is running in this process; else connects to one and disconnects at the end.

    Args:
        config: The run's settings; ``corpus`` and ``output`` are on shared storage.
        workers: The world size.
        use_gpu: Whether each has a GPU; when left out, if the cluster has one for each.
        address: The cluster; when left out, the one Ray finds or starts on this machine.
        resume: Continue a run that was stopped in this output folder.
        restarts: How often to resume from the last snapshot when a process fails.
        preparation: How text files become a corpus.
        data_licence: Under which licence the text is, for the model card.
        tensorboard: Write for TensorBoard as well.

    Returns:
        The model's folder.

    Raises:
        ConfigError: The settings are impossible, or there are not enough CPUs or GPUs.
        MissingExtraError: Ray Train is not installed.
        PeerError: A process failed; its snapshots are there, and the run can be resumed.
        KeyboardInterrupt: The run was interrupted; its snapshots are there.
    """
    if not config.corpus or not config.output:
        raise ConfigError("PretrainConfig: corpus and output must be given")
    if not 1 <= workers <= config.data.rows:
        raise ConfigError(
            f"workers = {workers}: give at least 1 and at most one for each of the "
            f"data.rows = {config.data.rows} rows"
        )
    if restarts < 0:
        raise ConfigError(f"restarts = {restarts}: give zero or a positive number")
    ray = import_ray("train.torch", "Training with Ray")
    output = Path(config.output).absolute()
    config = replace(config, corpus=tuple(map(_absolute, config.corpus)), output=str(output))
    with connect(ray, address):
        resources = worker_resources(ray, workers, use_gpu=use_gpu, address=address)
        # This process enters the folder, so that the workers resume a run that is there, however
        # often Ray restarts them.
        folder = RunFolder(output, SETTINGS_FILE)
        folder.enter(run_description(config), resume=resume)
        folder.release()  # the workers' main process locks it
        trainer = ray.train.torch.TorchTrainer(
            _train_worker,
            train_loop_config={
                "config": config,
                "preparation": preparation,
                "data_licence": data_licence,
                "tensorboard": tensorboard,
            },
            torch_config=ray.train.torch.TorchConfig(timeout_s=int(TIMEOUT.total_seconds())),
            scaling_config=ray.train.ScalingConfig(num_workers=workers, use_gpu=resources.gpus > 0),
            run_config=ray.train.RunConfig(
                name=RAY_FOLDER,
                storage_path=str(folder.training),
                failure_config=ray.train.FailureConfig(max_failures=restarts),
                worker_runtime_env={"env_vars": _ENVIRONMENT},
            ),
        )
        try:
            _fit(ray, trainer)
        except ElmokitError as error:
            if not folder.log.exists() and not isinstance(error, PeerError):
                folder.leave()
            raise
    return output


def _train_worker(arguments: dict[str, Any]) -> None:
    """What each worker runs; Ray has made the process group."""
    get_device = importlib.import_module("ray.train.torch").get_device
    try:
        pretrain(resume=True, device=str(get_device()), **arguments)
    except MissingExtraError as error:
        raise ElmokitError(str(error)) from None  # the other one cannot be pickled


def _absolute(source: str) -> str:
    """A source's name for processes with other working directories."""
    is_file = source != "-" and not source.startswith(HUGGING_FACE)
    return os.path.abspath(source) if is_file else source


def _fit(ray: Any, trainer: Any) -> None:
    """Run to the end; failures become one error."""
    in_main = threading.current_thread() is threading.main_thread()
    handler = signal.getsignal(signal.SIGINT)
    try:
        trainer.fit()
    except SystemExit:  # what Ray raises after Ctrl-C
        raise KeyboardInterrupt from None
    except (ray.train.TrainingFailedError, ray.exceptions.RayError) as error:
        raise _explained(error) from error
    finally:
        if in_main:
            signal.signal(signal.SIGINT, handler)  # Ray installs its own and does not remove it


def _explained(failure: Exception) -> ElmokitError:
    """The root cause: when one process fails, the others raise that it is gone."""
    failures: dict[int, Exception] = getattr(failure, "worker_failures", {})
    for error in failures.values():
        if isinstance(error, ElmokitError) and not isinstance(error, PeerError):
            return error
    dead = {rank: error for rank, error in failures.items() if not isinstance(error, PeerError)}
    rank, why = next(iter((dead or failures).items()), (None, failure))
    who = "the run" if rank is None else f"process {rank} of the run"
    return PeerError(
        f"{who} has failed. Look at its messages, then continue with --resume "
        f"({type(why).__name__}: {first_line(why)})"
    )
