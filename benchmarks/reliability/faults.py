"""Faults at every writer: is what is on the disk the old or the new output, always whole?

Run: python -m benchmarks.reliability.faults [--kills 600] [--others 40] [--seed 0] [--save]

Each attempt starts from a folder with an old output, runs one verb of the command line in a forked
child of this process (torch is imported once), and lets something happen to it. Then

- the output is read: it has to be the old one or the new one, whole; a training run has to have
  snapshots and a model that can be read;
- the child must have ended as documented: killed, stopped with code 128 + signal, or with one line
  on standard error;
- the same verb runs again without a fault: the result has to be that of an undisturbed run, and
  nothing else may be left in the folder.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow.parquet as pq
import torch
from safetensors.torch import load_file

import elmokit
from benchmarks.reliability.table import PARTS, Group, save_part
from elmokit import files
from elmokit.cli import main as command
from elmokit.config import dumps_toml
from elmokit.corpus.shards import TokenCorpus
from elmokit.tasks.predictor import Predictor
from elmokit.training.checkpoint import latest_snapshot
from elmokit.training.settings import changed, settings_for

MODEL = "test-tiny"
LOG = "stderr.txt"
TIMEOUT = 300.0
IN_A_ROW = 4
"""Kills before the verb may run to its end."""
CALLS = ("replace", "rename", "mkdir", "rmdir", "unlink", "link", "fsync", "open", "truncate")
"""Functions of `os` before which a process is killed, or which are made slow."""
SETTINGS = (
    *("model.lstm.cells=12", "model.lstm.width=8", "model.lstm.layers=1"),
    *("model.characters.dim=4", "model.characters.filters=[[1, 4], [2, 6]]"),
    *("model.characters.highways=1", "data.rows=4", "data.unroll=6", "data.min_count=1"),
    *("loss.negatives=8", "run.evaluate_every=4", "run.save_every=3", "run.evaluate_tokens=60"),
    *("run.max_steps=12", "run.dropout=0.2", "optimizer.warmup=2"),
)


# Writers


@dataclass(frozen=True)
class Writer:
    """A verb with an output."""

    name: str
    line: str
    """What is typed; the old output comes from the same line with ``{text}`` = old.txt."""
    read: Callable[[Path], Any]
    """The output of a folder, ready to be compared; raises if it is not whole."""
    is_run: bool = False
    """A training run: there is no old output, and the verb resumes it."""
    output: str = "out"


def tensors(path: Path) -> str:
    """A hash of the tensors of a file; the order of a header is random."""
    digest = hashlib.sha256()
    for name, tensor in sorted(load_file(path).items()):
        digest.update(name.encode() + tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def hdf5(path: Path) -> list[Any]:
    """All arrays of a file; its bytes hold times."""
    found: list[Any] = []

    def add(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset):
            values = np.asarray(item[()])
            found.append((name, values.tolist() if values.dtype == object else values.tobytes()))

    with h5py.File(path) as file:
        file.visititems(add)
    return found


def model(folder: Path) -> Any:
    elmo = elmokit.load(folder)
    elmo.encode([["the", "cat"]])
    return elmo.config, tensors(folder / "model.safetensors")


def exported(folder: Path) -> Any:
    elmokit.load(folder / "weights.hdf5")
    return hdf5(folder / "weights.hdf5")


def corpus(folder: Path) -> Any:
    found = TokenCorpus(folder, verify=True)
    return found.fingerprint, (folder / "thesis.txt").read_text("utf-8")


def run(folder: Path) -> Any:
    """The result of a run, or None before there is one."""
    for snapshots in (folder / "training" / "softmax", folder / "training"):
        latest_snapshot(snapshots)
    if (folder / "predictor.json").exists() or (folder / ".elmokit-update").exists():
        predictor = Predictor.load(folder)
        predictor.predict(["a good film"])
        return tensors(folder / "weights.safetensors"), tensors(folder / "elmo/model.safetensors")
    return model(folder) if (folder / "config.json").exists() else None


def of_bytes(path: Path) -> Any:
    return path.read_bytes()


def of_npz(path: Path) -> Any:
    with np.load(path) as found:
        return {name: found[name].tobytes() for name in found.files}


ENCODE = f"encode {{text}} --model {MODEL} -o "
TASK = (
    f"train classify --train {{text}}.csv --dev {{text}}.csv -o out --model {MODEL} --fine-tune "
    "--bundle --epochs 2 --set run.batch=16 --set inputs.words=4 --set encoder.cells=4 --device cpu"
)
RUN = "-o out --resume --device cpu --heldout 0.2 --documents line --sentences line"
ADAPT = " ".join(f"--set {setting}" for setting in SETTINGS if not setting.startswith("model."))
WRITERS = (
    Writer("encode .h5", ENCODE + "out.h5", hdf5, output="out.h5"),
    Writer(
        "encode .parquet",
        ENCODE + "out.parquet",
        lambda path: pq.read_table(path).to_pydict(),
        output="out.parquet",
    ),
    Writer("encode .npz", ENCODE + "out.npz", of_npz, output="out.npz"),
    Writer(
        "encode .npy",
        ENCODE + "out.npy --pool mean",
        lambda path: np.load(path).tobytes(),
        output="out.npy",
    ),
    Writer("encode .safetensors", ENCODE + "out.safetensors", tensors, output="out.safetensors"),
    Writer("table", f"table {{text}} -o out.vec --model {MODEL}", of_bytes, output="out.vec"),
    Writer("predict", "predict predictor {text} -o out.jsonl", of_bytes, output="out.jsonl"),
    Writer("score", "score --nbest {text}.jsonl -o out --model lm", of_bytes),
    Writer("convert native", "convert {text}.model out --overwrite", model),
    Writer("convert hdf5", "convert {text}.model out/weights.hdf5 --overwrite", exported),
    Writer(
        "convert onnx", "convert {text}.model out.onnx --overwrite", of_bytes, output="out.onnx"
    ),
    Writer(
        "corpus prepare",
        "corpus prepare {text} -o out --overwrite --workers 1 --heldout 0.2 --documents line",
        corpus,
    ),
    Writer("corpus vocab", "corpus vocab {text}.corpus -o out", of_bytes),
    Writer("pretrain", f"pretrain {{text}} {RUN} --config run.toml", run, is_run=True),
    Writer(
        "pretrain corpus",
        "pretrain {text}.corpus -o out --resume --device cpu --config run.toml",
        run,
        is_run=True,
    ),
    Writer(
        "adapt", f"adapt {{text}} {RUN} --model {MODEL} --softmax-steps 4 {ADAPT}", run, is_run=True
    ),
    Writer("train", f"{TASK} --resume", run, is_run=True),
)


def make_inputs(folder: Path, writers: Sequence[Writer]) -> None:
    """The files that the verbs read: two of each, old and new."""
    draw = random.Random(1)
    words = ["the", "a", "red", "old", "cat", "dog", "house", "river", "child", "sees", "bank"]
    for name, count in (("old.txt", 40), ("new.txt", 60)):
        lines = [" ".join(draw.choices(words, k=draw.randint(2, 8))) for _ in range(count)]
        (folder / name).write_text("\n".join(lines) + "\n", "utf-8")
        rows = [f"{line},{'pos' if 'cat' in line else 'neg'}" for line in lines]
        (folder / f"{name}.csv").write_text("\n".join(["text,label", *rows]) + "\n", "utf-8")
        lists = [{"id": i, "hypotheses": [{"text": t, "score": 1.0}]} for i, t in enumerate(lines)]
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, lists)) + "\n", "utf-8")
        call(f"corpus prepare {name} -o {name}.corpus --workers 1 --heldout 0.2 --documents line")
        storage = "int8" if name == "new.txt" else "float32"
        call(f"convert {MODEL} {name}.model --storage {storage}")
    needed = " ".join(writer.line for writer in writers)
    if " predictor " in needed:
        call(TASK.replace("{text}", "old.txt").replace("-o out", "-o predictor"))
    config = changed(settings_for("tiny"), SETTINGS)
    text = dumps_toml(config)
    (folder / "run.toml").write_text(text, "utf-8")
    if " lm" in needed:
        call(f"pretrain old.txt {RUN} --config run.toml".replace("-o out --resume", "-o lm"))


def call(line: str) -> None:
    """Run a verb that has to succeed, in this process."""
    if command(line.split()) != 0:
        raise SystemExit(f"failed: elmokit {line}")


# Faults


class Fault:
    """Something that happens to a child; this one does not."""

    name = "none"
    codes: tuple[int, ...] = (0,)
    """How the child may end: exit codes, or minus the number of a signal."""
    may_leave = False
    """Whether hidden files may be left behind."""

    def __init__(self, draw: random.Random, seconds: float, calls: int, size: int) -> None:
        self.draw = draw
        self.seconds = seconds
        """An undisturbed child takes so long,"""
        self.calls = calls
        """makes so many calls of `CALLS`,"""
        self.size = size
        """and the largest file that it writes has so many bytes."""
        self.happened = True

    def folder(self, base: Path) -> contextlib.AbstractContextManager[Path]:
        """Where the attempt is made."""
        return tempfile.TemporaryDirectory(dir=base)  # type: ignore[return-value]

    def before(self, folder: Path) -> None:
        """In the parent, before the child starts."""

    def inside(self) -> None:
        """In the child, before the verb."""

    def during(self, pid: int) -> None:
        """In the parent, while the child runs."""

    def after(self, folder: Path) -> None:
        """In the parent, when the child has ended."""

    def _wait_and_send(self, pid: int, *numbers: int) -> None:
        time.sleep(self.draw.uniform(0.0, self.seconds))
        for number in numbers:
            os.kill(pid, number)
            time.sleep(0.02 if number == signal.SIGSTOP else 0.0)


class Kill(Fault):
    """A kill at any moment."""

    name, codes, may_leave = "SIGKILL at a random moment", (-9,), True

    def during(self, pid: int) -> None:
        self._wait_and_send(pid, signal.SIGKILL)


class KillAtCall(Fault):
    """A kill at the moments that matter."""

    name, codes, may_leave = "SIGKILL before a chosen system call", (-9,), True

    def inside(self) -> None:
        last = self.draw.randint(1, max(1, self.calls))
        count_calls(lambda number: os.kill(os.getpid(), signal.SIGKILL) if number == last else None)


class Terminate(Fault):
    """A request to end."""

    name, codes = "SIGTERM at a random moment", (143, 130, -15)

    def during(self, pid: int) -> None:
        self._wait_and_send(pid, signal.SIGTERM)


class StopAndContinue(Fault):
    """A pause."""

    name = "SIGSTOP, then SIGCONT"

    def during(self, pid: int) -> None:
        self._wait_and_send(pid, signal.SIGSTOP, signal.SIGCONT)


class FullDisk(Fault):
    """A file system of its own where this process may mount one, else a limit on file sizes."""

    name, codes = "full disk", (0, 1)

    @contextlib.contextmanager
    def folder(self, base: Path) -> Iterator[Path]:
        with tempfile.TemporaryDirectory(dir=base) as name:
            made = mount(Path(name))
            try:
                yield Path(name)
            finally:
                if made:
                    subprocess.run(["umount", "-l", name], check=True)

    def before(self, folder: Path) -> None:
        self._mounted = os.path.ismount(folder)
        if self._mounted:
            room = shutil.disk_usage(folder).free - self.draw.randint(0, self.size)
            with open(folder / "ballast", "wb") as ballast:
                os.posix_fallocate(ballast.fileno(), 0, max(1, room))

    def inside(self) -> None:
        if not self._mounted:
            limit = self.draw.randint(0, self.size)
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))

    def after(self, folder: Path) -> None:
        (folder / "ballast").unlink(missing_ok=True)


class ReadOnly(FullDisk):
    """A folder that cannot be written to."""

    name, codes = "read-only folder", (0, 1)

    def before(self, folder: Path) -> None:
        self.happened = os.path.ismount(folder)
        if self.happened:
            subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)

    def inside(self) -> None:
        pass

    def after(self, folder: Path) -> None:
        if self.happened:
            subprocess.run(["mount", "-o", "remount,rw", str(folder)], check=True)


class NoHandles(Fault):
    """A limit on open files."""

    name, codes, may_leave = "no file handles left", (0, 1), True

    def inside(self) -> None:
        limit = len(os.listdir("/proc/self/fd")) + self.draw.randint(0, 8)
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))


class NoMemory(Fault):
    """Libraries in C++ may abort; what is on the disk has to be whole all the same."""

    name, codes, may_leave = "no memory left", (0, 1, 70, -6, -11), True

    def inside(self) -> None:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + self.draw.randint(0, 16 << 20)
        resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))


class SlowDisk(Fault):
    """A delay of 10 ms before every call."""

    name = "slow disk"

    def inside(self) -> None:
        count_calls(lambda number: time.sleep(0.01))


class ClockJumps(Fault):
    """A clock that jumps by up to thirty years."""

    name = "clock jumps"

    def inside(self) -> None:
        real = time.time
        time.time = lambda: real() + self.draw.choice((-1e9, -3600.0, 0.0, 3600.0, 1e9))


KILLS = (Kill, KillAtCall)
OTHERS = (
    *(Terminate, StopAndContinue, FullDisk, ReadOnly, NoHandles, NoMemory, SlowDisk, ClockJumps),
)


def mount(folder: Path) -> bool:
    """Mount a small file system; False where this process may not."""
    line = ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(folder)]
    try:
        return subprocess.run(line, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def count_calls(note: Callable[[int], object]) -> None:
    """Call `note` with a running number before every call of `CALLS`."""
    number = 0

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            nonlocal number
            number += 1
            note(number)
            return function(*arguments, **options)

        return call

    for name in CALLS:
        setattr(os, name, counted(getattr(os, name)))
    files._exchange = counted(files._exchange)


# Attempts


@dataclass
class Ended:
    """How a child ended."""

    code: int
    seconds: float
    error: str


def in_child(line: str, folder: Path, fault: Fault, log: Path) -> Ended:
    """Run a verb in a forked child."""
    sys.stdout.flush()
    start = time.monotonic()
    pid = os.fork()
    if pid == 0:
        code = 70
        try:
            os.chdir(folder)
            with open(log, "w", encoding="utf-8") as stream:
                sys.stdout = sys.stderr = stream
                for number in (signal.SIGTERM, signal.SIGHUP):
                    signal.signal(number, signal.SIG_DFL)
                signal.signal(signal.SIGINT, signal.default_int_handler)
                try:
                    fault.inside()
                    code = command(line.split())
                except BaseException:
                    traceback.print_exc()
        finally:
            os._exit(code)
    watchdog = time.monotonic() + TIMEOUT
    with contextlib.suppress(ProcessLookupError):
        fault.during(pid)
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            break
        if time.monotonic() > watchdog:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return Ended(-99, time.monotonic() - start, "hangs")
        time.sleep(0.002)
    code = os.waitstatus_to_exitcode(status)
    return Ended(code, time.monotonic() - start, log.read_text("utf-8", "replace"))


@dataclass
class Prepared:
    """A writer, its old and its new output, and how long an undisturbed child takes."""

    writer: Writer
    template: Path
    old: Any
    new: Any
    seconds: float
    calls: int
    size: int


def prepare(writer: Writer, inputs: Path, base: Path) -> Prepared:
    """Make the old output, then the new one in a copy of its folder."""
    template = base / writer.name.replace(" ", "-")
    shutil.copytree(inputs, template, symlinks=True)
    log = base / LOG
    none = Fault(random.Random(0), 0, 0, 0)
    old = None
    if not writer.is_run:
        if writer.name == "convert hdf5":
            (template / "out").mkdir()
        ended = in_child(writer.line.format(text="old.txt"), template, none, log)
        if ended.code != 0:
            raise SystemExit(f"{writer.name}: {ended.error}")
        if writer.read is corpus:
            (template / "out" / "thesis.txt").write_text("mine", "utf-8")
        old = writer.read(template / writer.output)
    undisturbed = base / "undisturbed"
    shutil.copytree(template, undisturbed, symlinks=True)
    counter = _Counter(base / "calls")
    ended = in_child(writer.line.format(text="new.txt"), undisturbed, counter, log)
    if ended.code != 0:
        raise SystemExit(f"{writer.name}: {ended.error}")
    new = writer.read(undisturbed / writer.output)
    if new == old:
        raise SystemExit(f"{writer.name}: the old and the new output are the same")
    out = undisturbed / writer.output
    size = max(path.stat().st_size for path in (out, *out.rglob("*")) if path.is_file())
    calls = int((base / "calls").read_text())
    shutil.rmtree(undisturbed)
    return Prepared(writer, template, old, new, ended.seconds, calls, size)


class _Counter(Fault):
    def __init__(self, path: Path) -> None:
        super().__init__(random.Random(0), 0, 0, 0)
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)

    def inside(self) -> None:
        write = os.pwrite
        count_calls(lambda number: write(self._file, str(number).encode(), 0))


@dataclass
class Tally:
    """What came of the attempts of one kind."""

    attempts: int = 0
    held: int = 0
    worst: float = 0.0
    problems: list[str] = field(default_factory=list)


def attempts(
    prepared: Prepared, kind: type[Fault], base: Path, tally: Tally, seed: int, most: int
) -> None:
    """At most so many faults, one after another, in one folder; then the verb once more.

    A child that was done before its fault is no attempt.
    """
    writer = prepared.writer
    draw = random.Random(seed)
    fault = kind(draw, prepared.seconds, prepared.calls, prepared.size)
    line = writer.line.format(text="new.txt")
    log = base / LOG
    made, problem = 0, None
    with fault.folder(base) as name:
        folder = Path(name)
        shutil.copytree(prepared.template, folder, symlinks=True, dirs_exist_ok=True)
        for _ in range(most):
            fault.before(folder)
            ended = in_child(line, folder, fault, log)
            fault.after(folder)
            if not fault.happened or (ended.code == 0 and 0 not in fault.codes):
                continue
            # Where the disk, the handles or the memory were enough, it was no fault.
            made += ended.code != 0 or fault.codes == (0,)
            tally.worst = max(tally.worst, ended.seconds)
            if problem := judge(prepared, fault, folder, ended):
                break
        if made and problem is None:
            again = in_child(line, folder, Fault(draw, 0, 0, 0), log)
            problem = finished(prepared, folder, again)
    tally.attempts += made
    tally.held += made - (problem is not None)
    if problem is not None:
        tally.problems.append(f"{writer.name}, {fault.name}, seed {seed}: {problem}")


def judge(  # noqa: PLR0911
    prepared: Prepared, fault: Fault, folder: Path, ended: Ended
) -> str | None:
    """What is wrong after a fault."""
    writer = prepared.writer
    if ended.code not in fault.codes:
        return f"ended with {ended.code}: {ended.error[-300:]}"
    if ended.code == 1:
        shown = [row for row in ended.error.splitlines() if row.startswith("elmokit: error: ")]
        if len(shown) != 1 or "Traceback" in ended.error:
            return f"not one line: {ended.error[-300:]}"
    try:
        found = writer.read(folder / writer.output)
    except Exception as error:
        return f"not readable: {type(error).__name__}: {error}"
    if not writer.is_run and found not in (prepared.old, prepared.new):
        return "neither the old nor the new output"
    if ended.code == 0 and found != prepared.new:
        return "not the new output"
    if not fault.may_leave and (left := leftovers(folder)):
        return f"ended with {ended.code}, left behind: {left}"
    return None


def finished(prepared: Prepared, folder: Path, again: Ended) -> str | None:
    """What is wrong after the verb has run once more."""
    if again.code != 0:
        return f"the next run ended with {again.code}: {again.error[-300:]}"
    try:
        found = prepared.writer.read(folder / prepared.writer.output)
    except Exception as error:
        return f"not readable after the next run: {type(error).__name__}: {error}"
    if found != prepared.new:
        return "the next run gave another output"
    if left := leftovers(folder):
        return f"left behind by the next run: {left}"
    return None


def leftovers(folder: Path) -> list[str]:
    """Hidden files of ours."""
    return [str(path.relative_to(folder)) for path in folder.rglob(".*")]


def measure(
    kills: int, others: int, seed: int, names: tuple[str, ...] = (), faults: tuple[str, ...] = ()
) -> dict[str, Tally]:
    """Make attempts, spread evenly over the writers; `kills` and `others` are the least numbers."""
    torch.set_num_threads(1)
    import elmokit.corpus.prepare
    import elmokit.tasks.report
    import elmokit.training.pretrain

    elmokit.corpus.prepare.default_workers = lambda: 1  # new processes import torch again
    elmokit.training.pretrain.draw_curves = lambda *_: False  # drawing takes longest
    elmokit.tasks.report.draw = lambda *_: False  # type: ignore[attr-defined]
    tallies: dict[str, Tally] = {}
    here = Path.cwd()
    with tempfile.TemporaryDirectory(prefix="elmokit-faults-") as name:
        base = Path(name)
        inputs = base / "inputs"
        inputs.mkdir()
        os.chdir(inputs)
        try:
            writers = [writer for writer in WRITERS if not names or writer.name in names]
            make_inputs(inputs, writers)
            os.chdir(base)
            chosen = [prepare(writer, inputs, base) for writer in writers]
            plan = [*((kind, kills / len(KILLS)) for kind in KILLS), *((k, others) for k in OTHERS)]
            for kind, least in plan:
                if faults and kind.name not in faults:
                    continue
                tally = tallies.setdefault(kind.name, Tally())
                tries = 0
                while tally.attempts < least and tries < 4 * least + 4:
                    most = IN_A_ROW if kind in KILLS else 1
                    attempts(chosen[tries % len(chosen)], kind, base, tally, seed + tries, most)
                    tries += 1
                print(f"{kind.name}: {tally.held} of {tally.attempts} held", flush=True)
                for problem, count in Counter(tally.problems).items():
                    print(f"  {count} x {problem}", flush=True)
        finally:
            os.chdir(here)
    return {name: tally for name, tally in tallies.items() if tally.attempts}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kills", type=int, default=600)
    parser.add_argument("--others", type=int, default=40, help="attempts of each other fault")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--writer", action="append", default=[], help="only these")
    parser.add_argument("--fault", action="append", default=[], help="only these")
    parser.add_argument("--save", action="store_true", help="write benchmarks/results")
    options = parser.parse_args()
    tallies = measure(
        options.kills, options.others, options.seed, tuple(options.writer), tuple(options.fault)
    )
    if options.save:
        stored = PARTS / "faults.json"
        before = json.loads(stored.read_text("utf-8"))["groups"] if stored.is_file() else []
        groups = {group["name"]: Group(**group) for group in before}  # of other --fault
        for name, t in tallies.items():
            shown = f"{name}, {len(WRITERS)} writers"
            groups[shown] = Group(shown, t.attempts, t.held, round(t.worst, 2))
        save_part("faults", groups.values())
    return int(any(tally.held < tally.attempts for tally in tallies.values()))


if __name__ == "__main__":
    raise SystemExit(main())
