"""`RunFolder`: the output folder of a training run.

    OUTPUT/             the model or predictor, written whenever it is the best so far
    OUTPUT/training/    what the run is (settings.toml or run.json), log.jsonl, snapshots, ...

Pretraining, adaptation and tasks use one `RunFolder` each:

    with RunFolder(config.output, "settings.toml") as folder:
        with folder.starting(description, resume=resume, context=context):
            ...                     # whatever fails here leaves the folder as it was
        train(trainer, ..., folder=folder.training, ...)

The folder is locked until the end of the block, or of the process, however that comes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from elmokit.errors import ConfigError
from elmokit.files import LockFile, LocksMissingError, remove, remove_stale, write_text

if TYPE_CHECKING:
    import os

    from elmokit.training.distributed import DistContext

RUN_FOLDER = "training"
"""Inside the output folder: everything of the run that is not its result."""
LOG_FILE = "log.jsonl"
_LOCK_FILE = ".lock"


@dataclass(frozen=True)
class RunDescription:
    """What a run is, as it is stored and as it is compared with a stored one."""

    text: str
    """The content of the stored file."""
    fixed: Mapping[str, object]
    """The settings and data that cannot change when the run is resumed."""
    read: Callable[[str, str], Mapping[str, object]]
    """Gives `fixed` of a stored text; the second argument is its path, for error messages. It has
    to accept what earlier versions wrote (`config.from_dict` does)."""
    labels: Mapping[str, str]
    """What errors call an entry of `fixed` that differs: ``{"train": "other training data"}``."""


class RunFolder:
    """The output folder of one run: entering it, comparing settings, undoing a failed start.

    The folder need not exist; `name` is the file inside ``training`` that says what the run is.
    """

    def __init__(self, output: str | os.PathLike[str], name: str) -> None:
        self.output: Path = Path(output)
        self.training: Path = self.output / RUN_FOLDER
        self.log: Path = self.training / LOG_FILE
        self.stored: Path = self.training / name
        self._undo: Callable[[], None] | None = None
        self._lock: LockFile | None = None

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        """Let other processes work in the folder."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    @property
    def holds_run(self) -> bool:
        """Whether a run was started here."""
        return self.stored.is_file()

    def enter(self, run: RunDescription, *, resume: bool) -> None:
        """Lock the folder; start a run here, or come back to one; remove what a kill left.

        With `resume` a run that is here is continued; without one, a new run starts.

        Raises:
            ConfigError: A run is here and `resume` is false, the run that is here is another one,
                a live process works here, or the folder holds something else. Nothing has changed
                then.
        """
        output, training = self.output, self.training
        self._check_enter(run, resume)
        made = next((path for path in (output, training) if not path.exists()), None)
        before = set(training.iterdir()) if made is None else set()
        training.mkdir(parents=True, exist_ok=True)
        if self._lock is None:
            self._lock = lock_folder(training, output)
        earlier = self._check_enter(run, resume)  # another process may have been here in between
        inside = [path for path in training.rglob("*") if path.is_dir()]
        for folder in (output, training, *inside):
            remove_stale(folder)
        if run.text != earlier:
            write_text(self.stored, run.text)

        def undo() -> None:
            if earlier is not None:
                if run.text != earlier:
                    write_text(self.stored, earlier)
            elif made is not None:
                remove(made)
            else:
                for new in set(training.iterdir()) - before:
                    remove(new)

        self._undo = undo

    def _check_enter(self, run: RunDescription, resume: bool) -> str | None:
        """Check that `enter` may go on; returns the stored text of a run that is resumed."""
        if self.holds_run:
            if not resume:
                raise ConfigError(
                    f"{self.output}: a run is there already; continue it with --resume or choose "
                    "another folder"
                )
            return self.check_same(run)
        output = self.output
        if output.exists() and (not output.is_dir() or {*output.iterdir()} - {self.training}):
            raise self._no_run()
        return None

    def leave(self) -> None:
        """Undo `enter`: for a run that could not start."""
        if self._undo is not None:
            self._undo()
            self._undo = None
        self.release()

    @contextmanager
    def starting(
        self, run: RunDescription, *, resume: bool, context: DistContext
    ) -> Iterator[None]:
        """Enter the folder in the main process; leave it again if the block fails.

        All processes of the run call this.
        """
        from elmokit.training.distributed import PeerError

        if context.is_main:
            self.enter(run, resume=resume)
        context.barrier()
        try:
            yield
        except PeerError:  # another process failed; what this one has done can still be used
            raise
        except Exception:
            self.leave()
            raise

    def check_same(self, run: RunDescription) -> str:
        """Check that the run stored here is this one; returns the stored text.

        Raises:
            ConfigError: It is another one, or there is none.
        """
        if not self.holds_run:
            raise self._no_run()
        try:
            stored = self.stored.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise ConfigError(f"{self.stored}: not what a run left there ({error})") from None
        before = run.read(stored, str(self.stored))
        for name, value in run.fixed.items():
            if before.get(name) != value:
                raise ConfigError(
                    f"{self.stored}: the run was started with {run.labels[name]}; resume it with "
                    "the same, or start a new one in another folder"
                )
        return stored

    def _no_run(self) -> ConfigError:
        return ConfigError(f"{self.output} exists and holds no run; choose another folder")


def lock_folder(folder: Path, shown: Path) -> LockFile | None:
    """Lock a folder for this process; None where the file system has no locks.

    Raises:
        ConfigError: Another process holds it; the message calls it `shown`.
    """
    with suppress(LocksMissingError):
        lock = LockFile.take(folder / _LOCK_FILE)
        if lock is None:
            holder = LockFile.holder(folder / _LOCK_FILE)
            raise ConfigError(
                f"{shown}: {holder} is working in this folder; wait for its end, or stop it"
            )
        return lock
    return None
