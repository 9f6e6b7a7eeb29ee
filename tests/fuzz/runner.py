"""Damages files of every format and reads them, in child processes with limits.

Run: make fuzz SECONDS=600, or python -m tests.fuzz.runner --seconds 600 --save

An attempt is a target (`targets.TARGETS`) and a chain of seeds, each of which damages the files
once more. It is held when the file is read with finite numbers (and, after blind damage to a format
with checksums, the same ones as before), or refused with one elmokit error of one line; and
within the limits of time and memory. Inputs that reach new lines of elmokit are damaged further
(coverage guidance).

What does not hold is stored in tests/fuzz/crashes; tests/fuzz/test_past_crashes.py reads it again.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import resource
import shutil
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import FrameType
from typing import Any

CRASHES = Path(__file__).parent / "crashes"
PACKAGE = Path(__file__).parents[2] / "src" / "elmokit"
HANG_SECONDS = 120.0
"""Wall-clock time after which a child is killed; the machine may be busy."""
BASE_SECONDS, SECONDS_PER_MIB = 10.0, 1.0
"""CPU time that an attempt may take."""
MEMORY_FACTOR = 3
"""Peak memory per byte that `elmokit.limits` allows: tensors are converted and copied."""
ADDRESS_SPACE = 3 << 30
"""What a child may allocate beyond what it has after importing everything."""
CHAIN = 4
TRACED = 0.25
"""Share of the attempts in which lines of code are counted, which takes time."""


@dataclass
class Attempt:
    """What came of one attempt."""

    outcome: str = "held"
    """"held", or what is wrong."""
    refused: bool = False
    seconds: float = 0.0
    mib: float = 0.0
    new_lines: int = 0


@dataclass
class Tally:
    """The attempts of one group."""

    attempts: int = 0
    held: int = 0
    refused: int = 0
    worst_seconds: float = 0.0
    worst_mib: float = 0.0
    lines: int = 0
    problems: Counter[str] = field(default_factory=Counter)

    def add(self, found: Attempt) -> None:
        self.attempts += 1
        self.held += found.outcome == "held"
        self.refused += found.refused
        self.worst_seconds = max(self.worst_seconds, found.seconds)
        self.worst_mib = max(self.worst_mib, found.mib)
        self.lines += found.new_lines
        if found.outcome != "held":
            self.problems[found.outcome.split("\n")[0][:200]] += 1


class Bench:
    """Runs attempts in this process, on copies of the undamaged files in `bases`."""

    def __init__(self, work: Path, bases: Path, originals: dict[int, str]) -> None:
        self._work = work
        self._bases = bases
        self._originals = originals
        self._lines: set[tuple[str, int]] = set()

    def base(self, number: int) -> Path:
        """The undamaged files of a target."""
        return self._bases / str(number)

    def damaged(self, number: int, chain: list[int]) -> tuple[Path, bool]:
        """A damaged copy, and whether it must be read as the undamaged one or refused."""
        from tests.fuzz.targets import TARGETS

        folder = self._work / "attempt"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.base(number), folder)
        exact = True
        for seed in chain:
            rng = random.Random(seed)
            present = [f for f in TARGETS[number].files if (folder / f.name).is_file()]
            exact &= rng.choice(present).damage(rng, folder)
        return folder, exact

    def check(self, number: int, folder: Path, *, exact: bool, guided: bool) -> Attempt:
        """Read a damaged folder, measured."""
        from elmokit.errors import ElmokitError
        from elmokit.limits import ReadLimits
        from tests.fuzz.targets import TARGETS

        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        found = Attempt()
        before = len(self._lines)
        idle = _reset_peak()
        start = time.process_time()
        try:
            with _traced(self._lines) if guided else _untraced():
                read = TARGETS[number].read(folder)
            if exact and read != self._originals[number]:
                found.outcome = "other numbers were read than were stored"
        except ElmokitError as error:
            found.refused = True
            if "\n" in str(error) or not str(error):
                found.outcome = f"a message of several lines: {error!r:.300}"
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            where = traceback.extract_tb(error.__traceback__)[-1]
            found.outcome = (
                f"{type(error).__name__}: {str(error)[:150]!r} in {Path(where.filename).name}"
                f":{where.lineno}"
            )
        found.seconds = time.process_time() - start
        found.mib = (_peak() - idle) / 1024
        found.new_lines = len(self._lines) - before
        limits = ReadLimits()
        allowed = MEMORY_FACTOR * (limits.base_mib + limits.expansion * size / 2**20)
        if found.outcome == "held" and found.mib > allowed:
            found.outcome = f"took {found.mib:.0f} MiB, allowed are {allowed:.0f}"
        if (
            found.outcome == "held"
            and found.seconds > BASE_SECONDS + SECONDS_PER_MIB * size / 2**20
        ):
            found.outcome = f"took {found.seconds:.0f} s"
        return found


@contextmanager
def _untraced() -> Iterator[None]:
    yield


@contextmanager
def _traced(lines: set[tuple[str, int]]) -> Iterator[None]:
    """Collect the lines of elmokit that are run."""
    package = str(PACKAGE)

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        name = frame.f_code.co_filename
        if not name.startswith(package):
            return None

        def line(frame: FrameType, event: str, _: Any) -> Any:
            lines.add((name, frame.f_lineno))
            return line

        lines.add((name, frame.f_lineno))
        return line

    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(None)


def _reset_peak() -> int:
    """Forget the peak of this process's memory; its present size in KiB."""
    Path("/proc/self/clear_refs").write_text("5")
    return _peak()


def _peak() -> int:
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM"))


def make_bases(numbers: list[int], folder: Path) -> dict[int, str]:
    """Make the undamaged files, and read them in a child process, which may start threads."""
    from tests.fuzz.targets import TARGETS

    ours, theirs = multiprocessing.Pipe()

    def make() -> None:
        for number in numbers:
            (folder / str(number)).mkdir(parents=True)
            TARGETS[number].make(folder / str(number))
            theirs.send((number, TARGETS[number].read(folder / str(number))))

    process = multiprocessing.get_context("fork").Process(target=make)
    process.start()
    theirs.close()
    try:
        return dict(ours.recv() for _ in numbers)
    except EOFError:
        raise SystemExit("the undamaged files cannot be read") from None
    finally:
        process.join()


def child(pipe: Connection, bench: Bench) -> None:
    """Serve attempts until the pipe is closed."""
    import torch

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    os.environ["HF_HUB_OFFLINE"] = "1"
    sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    limited = False
    while True:
        try:
            number, chain, guided = pipe.recv()
        except EOFError:
            return
        if not limited:
            with open("/proc/self/statm") as file:
                present = int(file.read().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (present + ADDRESS_SPACE,) * 2)
            limited = True
        folder, exact = bench.damaged(number, chain)
        pipe.send(bench.check(number, folder, exact=exact, guided=guided))


class Worker:
    """A child process and what it is doing."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self.number, self.chain, self.since = 0, [0], 0.0
        self._start()

    def _start(self) -> None:
        self.pipe, other = multiprocessing.Pipe()
        context = multiprocessing.get_context("fork")
        self.process = context.Process(target=child, args=(other, self._bench))
        self.process.start()
        other.close()

    def give(self, number: int, chain: list[int], guided: bool) -> None:
        self.number, self.chain, self.since = number, chain, time.monotonic()
        self.pipe.send((number, chain, guided))

    def result(self) -> Attempt | None:
        """What came of the attempt; None while it runs."""
        try:
            if self.pipe.poll():
                found: Attempt = self.pipe.recv()
                return found
        except (EOFError, ConnectionResetError):
            self.process.join()
            code = self.process.exitcode
            self._start()
            return Attempt(f"the process died (exit code {code})")
        if time.monotonic() - self.since > HANG_SECONDS:
            self.close()
            self._start()
            return Attempt(f"no end after {HANG_SECONDS:.0f} s", seconds=HANG_SECONDS)
        return None

    def close(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()


def keep(number: int, chain: list[int], outcome: str, bench: Bench) -> Path:
    """Store the files of an attempt that did not hold, for tests/fuzz/test_past_crashes.py."""
    from tests.fuzz.targets import TARGETS

    base = bench.base(number)
    folder, exact = bench.damaged(number, chain)
    name = TARGETS[number].group.replace(" ", "-").replace("(", "").replace(")", "").lower()
    kept = CRASHES / f"{name}-{number}-{'-'.join(map(str, chain))}"
    for path in folder.rglob("*"):
        own = path.relative_to(folder)
        if path.is_file() and path.read_bytes() != (base / own).read_bytes():
            (kept / own).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, kept / own)
    facts = {"group": TARGETS[number].group, "target": number, "exact": exact, "was": outcome}
    (kept / "crash.json").write_text(json.dumps(facts, indent=1) + "\n", "utf-8")
    return kept


def fuzz(
    seconds: float, workers: int, seed: int, groups: set[str], guided: bool
) -> dict[str, Tally]:
    """Make attempts for so long; groups get the same number of them."""
    from tests.fuzz.targets import TARGETS

    rng = random.Random(seed)
    of_group: dict[str, list[int]] = {}
    for number, target in enumerate(TARGETS):
        if not groups or target.group in groups:
            of_group.setdefault(target.group, []).append(number)
    tallies = {name: Tally() for name in of_group}
    corpus: dict[int, list[list[int]]] = {n: [[]] for numbers in of_group.values() for n in numbers}
    with tempfile.TemporaryDirectory(prefix="fuzz-", dir=_fast_folder()) as name:
        bases = Path(name) / "bases"
        originals = make_bases(list(corpus), bases)
        end = time.monotonic() + seconds
        own = Bench(Path(name) / "keep", bases, originals)
        benches = [Bench(Path(name) / str(i), bases, originals) for i in range(workers)]
        pool = [Worker(bench) for bench in benches]

        def next_attempt(worker: Worker) -> None:
            group = min(tallies, key=lambda name: (tallies[name].attempts, rng.random()))
            number = rng.choice(of_group[group])
            start = rng.choice(corpus[number]) if guided and rng.random() < 0.5 else []
            worker.give(number, [*start, rng.randrange(1 << 32)], guided and rng.random() < TRACED)

        for worker in pool:
            next_attempt(worker)
        shown = time.monotonic()
        while time.monotonic() < end:
            wait([worker.pipe for worker in pool], timeout=1.0)
            for worker in pool:
                if (found := worker.result()) is None:
                    continue
                tallies[TARGETS[worker.number].group].add(found)
                if found.new_lines and len(worker.chain) < CHAIN:
                    corpus[worker.number].append(worker.chain)
                if found.outcome != "held":
                    print(f"{TARGETS[worker.number].group}: {found.outcome[:300]}", flush=True)
                    if sum(tallies[TARGETS[worker.number].group].problems.values()) <= 20:
                        kept = keep(worker.number, worker.chain, found.outcome, own)
                        print(f"  kept in {kept}", flush=True)
                next_attempt(worker)
            if time.monotonic() - shown > 60:
                shown = time.monotonic()
                total = sum(tally.attempts for tally in tallies.values())
                print(f"{total} attempts, {end - shown:.0f} s to go", flush=True)
        for worker in pool:
            worker.close()
    return tallies


def _fast_folder() -> str | None:
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--group", action="append", default=[], help="only this group; repeatable")
    parser.add_argument("--unguided", action="store_true", help="do not follow new lines of code")
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/reliability")
    given = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    import tests.fuzz.targets  # noqa: F401  # before forking, so that children start at once

    print(f"seed {given.seed}", flush=True)
    tallies = fuzz(given.seconds, given.workers, given.seed, set(given.group), not given.unguided)
    print(f"{'':24}{'attempts':>9}{'held':>8}{'refused':>9}{'s':>8}{'MiB':>7}{'lines':>7}")
    for name, tally in tallies.items():
        print(
            f"{name:24}{tally.attempts:9}{tally.held:8}{tally.refused:9}"
            f"{tally.worst_seconds:8.2f}{tally.worst_mib:7.0f}{tally.lines:7}"
        )
        for problem, count in tally.problems.most_common(8):
            print(f"    {count} x {problem}")
    if given.save:
        from benchmarks.reliability.table import PARTS, Group, save_part

        groups = {
            name: Group(name, t.attempts, t.held, round(t.worst_seconds, 2), round(t.worst_mib, 1))
            for name, t in tallies.items()
        }
        stored = PARTS / "readers.json"
        if given.group and stored.is_file():  # the other groups stay as they are
            known = json.loads(stored.read_text("utf-8"))["groups"]
            groups = {group["name"]: Group(**group) for group in known} | groups
        save_part("readers", groups.values())
    sys.exit(any(tally.held < tally.attempts for tally in tallies.values()))


if __name__ == "__main__":
    main()
