"""`pretrain_with_ray`: the same run, its processes started by Ray Train on a machine or a cluster.

Ray finds places for the processes and connects them; each then calls `pretrain`, as under
torchrun. Settings, log, snapshots and the model lie in the output folder as always, so that a run
can be stopped under one launcher and go on under another.
"""

from __future__ import annotations

import importlib
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from elmokit.corpus.documents import HUGGING_FACE
from elmokit.corpus.prepare import CorpusConfig
from elmokit.errors import ConfigError, ElmokitError, MissingExtraError
from elmokit.training.distributed import TIMEOUT, PeerError
from elmokit.training.pretrain import SETTINGS_FILE, pretrain, run_description
from elmokit.training.run_folder import RunFolder
from elmokit.training.settings import PretrainConfig

RAY_FOLDER = "ray"
"""Inside the run's folder: Ray's mark, by which it sees that all machines share the folder."""

_ENVIRONMENT = {"RAY_TRAIN_ENABLE_PRINT_PATCH": "0"}
"""Of the processes. Otherwise every line they print comes twice, once through Ray's logger."""


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

    Uses the Ray that is running in this process; else connects to one and leaves it at the end.

    Args:
        config: The run's settings; ``corpus`` and ``output`` lie where all machines see them.
        workers: How many processes share the work.
        use_gpu: Whether each has a GPU; when left out, if the cluster has one for each.
        address: The cluster; when left out, the one Ray finds or starts on this machine.
        resume: Go on with a run that was stopped in this output folder.
        restarts: How often to go on from the last snapshot by itself when a process fails.
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
    ray = _import_ray()
    output = Path(config.output).absolute()
    config = replace(config, corpus=tuple(map(_absolute, config.corpus)), output=str(output))
    with connected(ray, address):
        use_gpu = _check_places(ray, workers, use_gpu, address)
        # This process takes the folder, so that the others come back to a run that is theirs
        # whenever Ray starts them anew.
        folder = RunFolder(output, SETTINGS_FILE)
        folder.enter(run_description(config), resume=resume)
        trainer = ray.train.torch.TorchTrainer(
            _work,
            train_loop_config={
                "config": config,
                "preparation": preparation,
                "data_licence": data_licence,
                "tensorboard": tensorboard,
            },
            torch_config=ray.train.torch.TorchConfig(timeout_s=int(TIMEOUT.total_seconds())),
            scaling_config=ray.train.ScalingConfig(num_workers=workers, use_gpu=use_gpu),
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


def _work(arguments: dict[str, Any]) -> None:
    """What each process does; Ray has connected it with the others."""
    get_device = importlib.import_module("ray.train.torch").get_device
    try:
        pretrain(resume=True, device=str(get_device()), **arguments)
    except MissingExtraError as error:
        raise ElmokitError(str(error)) from None  # that one cannot be pickled on its way back


def _import_ray() -> Any:
    try:
        importlib.import_module("ray.train.torch")
    except ImportError as error:
        raise MissingExtraError("ray", "ray", "Training with Ray") from error
    return importlib.import_module("ray")


def _absolute(source: str) -> str:
    """Ray's processes have working folders of their own."""
    is_file = source != "-" and not source.startswith(HUGGING_FACE)
    return os.path.abspath(source) if is_file else source


@contextmanager
def connected(ray: Any, address: str | None, **options: Any) -> Iterator[None]:
    """In Ray, and out of it again if this process was not in it before.

    Args:
        ray: The package.
        address: The cluster; None for the one Ray finds or starts on this machine.
        **options: As for `ray.init`.

    Raises:
        ConfigError: No cluster answers there.
    """
    if ray.is_initialized():
        yield
        return
    try:
        ray.init(address=address, **options)
    except ConnectionError as error:
        where = address or os.environ.get("RAY_ADDRESS")
        raise ConfigError(f"no Ray cluster answers at {where} ({first_line(error)})") from None
    try:
        yield
    finally:
        ray.shutdown()


def _check_places(ray: Any, workers: int, use_gpu: bool | None, address: str | None) -> bool:
    """Decide on GPUs; refuse what one machine cannot give, where Ray would wait for ever."""
    found = ray.cluster_resources()
    if use_gpu is None:
        use_gpu = found.get("GPU", 0) >= workers
    kind = "GPU" if use_gpu else "CPU"
    may_grow = address is not None or "RAY_ADDRESS" in os.environ or len(ray.nodes()) > 1
    if found.get(kind, 0) < workers and not may_grow:
        raise ConfigError(
            f"{workers} workers need {workers} {kind}s, and Ray has {found.get(kind, 0):g} here; "
            "start fewer, or name a cluster (--ray-address)"
        )
    return use_gpu


def _fit(ray: Any, trainer: Any) -> None:
    """Run to the end; what went wrong becomes one error."""
    in_main = threading.current_thread() is threading.main_thread()
    handler = signal.getsignal(signal.SIGINT)
    try:
        trainer.fit()
    except SystemExit:  # how Ray leaves after Ctrl-C
        raise KeyboardInterrupt from None
    except (ray.train.TrainingFailedError, ray.exceptions.RayError) as error:
        raise _explained(error) from error
    finally:
        if in_main:
            signal.signal(signal.SIGINT, handler)  # Ray puts its own in place and leaves it there


def _explained(failure: Exception) -> ElmokitError:
    """The failure behind the others: when one process fails, the rest complain of its absence."""
    failures: dict[int, Exception] = getattr(failure, "worker_failures", {})
    for error in failures.values():
        if isinstance(error, ElmokitError) and not isinstance(error, PeerError):
            return error
    dead = {rank: error for rank, error in failures.items() if not isinstance(error, PeerError)}
    who, why = "the run", failure
    for rank, error in (dead or failures).items():
        who, why = f"process {rank} of the run", error
        break
    return PeerError(
        f"{who} has failed. Look at its messages, then go on with --resume "
        f"({type(why).__name__}: {first_line(why)})"
    )


def first_line(error: Exception) -> str:
    """What an error says, without the lines below."""
    return next((line for line in str(error).splitlines() if line.strip()), "")
