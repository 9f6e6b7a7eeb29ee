"""Downloads from servers that fail: is what is in the cache the right file, always whole?

Run: python -m benchmarks.reliability.downloads [--downloads 1000] [--kills 100] [--save]

A server on this machine plays the hosts of the catalogue (``ELMOKIT_MIRROR``). Each attempt is one
file with documented checksum or without, served as it should be or with one to four faults in a
row, at one address or at two. It has to end with the file, equal to one that the server had at one
time, or with one error of one line and nothing at the path. Then the same download runs without
faults: it has to give the file and to leave nothing else behind.

Then `--kills` processes are killed twice at a random moment, and `--pairs` of processes download
one model at the same time.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import h5py
import numpy as np

from benchmarks.reliability.faulty_hosts import (
    BREAKS,
    ENDS,
    QUICK,
    Exchange,
    Hosts,
    Served,
    break_off,
    slowly,
)
from benchmarks.reliability.table import Group, save_part
from benchmarks.reliability.table import main as write_table
from elmokit.checkpoints import transfer
from elmokit.checkpoints.download import CACHE, OFFLINE
from elmokit.checkpoints.transfer import MIRROR, RemoteFile, fetch
from elmokit.errors import ElmokitError

# Files


def sample_files(draw: random.Random) -> dict[str, bytes]:
    """One file of each kind, of a size at which a break leaves something to resume."""
    weights = io.BytesIO()
    with h5py.File(weights, "w") as file:
        file["weights"] = np.frombuffer(draw.randbytes(40_000), dtype=np.uint8)
    zipped, tarred = io.BytesIO(), io.BytesIO()
    with zipfile.ZipFile(zipped, "w") as archive:
        archive.writestr("weights.bin", draw.randbytes(30_000))
    with tarfile.open(fileobj=tarred, mode="w:gz") as archive_of_tar:
        entry = tarfile.TarInfo("weights.bin")
        entry.size = 30_000
        archive_of_tar.addfile(entry, io.BytesIO(draw.randbytes(entry.size)))
    options = json.dumps({"char_cnn": {"text": draw.randbytes(4000).hex()}}).encode()
    return {
        "weights.hdf5": weights.getvalue(),
        "model.zip": zipped.getvalue(),
        "model.tar.gz": tarred.getvalue(),
        "options.json": options,
    }


# Attempts


@dataclass
class Tally:
    """What was seen."""

    attempts: Counter[str] = field(default_factory=Counter)
    held: Counter[str] = field(default_factory=Counter)
    files: Counter[str] = field(default_factory=Counter)
    """Attempts that ended with the file."""
    worst: dict[str, float] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    def add(self, group: str, problem: str, seconds: float, *, got_file: bool = False) -> None:
        self.attempts[group] += 1
        self.held[group] += not problem
        self.files[group] += got_file
        self.worst[group] = max(seconds, self.worst.get(group, 0.0))
        if problem:
            self.wrong.append(f"{group}: {problem}")

    def groups(self) -> Iterator[Group]:
        for name, count in self.attempts.items():
            yield Group(name, count, self.held[name], self.worst[name])


@dataclass(frozen=True)
class Attempt:
    """One download, and what happens to it."""

    name: str
    hosts: tuple[str, ...]
    versions: tuple[bytes, ...]
    """What the server has, one after another; most have one."""
    faults: tuple[str, ...]
    documented: bool
    validators: bool

    @property
    def file(self) -> RemoteFile:
        digest = hashlib.sha256(self.versions[-1]).hexdigest()
        return RemoteFile(
            self.name,
            [f"https://{host}/models/{self.name}" for host in self.hosts],
            checksums={"sha256": digest} if self.documented else {},
        )

    def serve(self, hosts: Hosts, *, faulty: bool) -> None:
        """Let the server have the newest version, or the first one and all faults."""
        known = {**BREAKS, **ENDS}
        with hosts.guard:
            hosts.faults.clear()
            hosts.files.clear()
            for host in self.hosts:
                path = f"/{host}/models/{self.name}"
                hosts.files[path] = Served(self.versions[-1], self.validators)
            if not faulty:
                return
            first = f"/{self.hosts[0]}/models/{self.name}"
            hosts.faults[first] = [known[fault] for fault in self.faults]
            if len(self.versions) > 1:
                hosts.files[first].data = self.versions[0]
                hosts.faults[first] = [self._changing(hosts, first), *hosts.faults[first]]

    def _changing(self, hosts: Hosts, path: str) -> Callable[[Exchange], None]:
        def fault(exchange: Exchange) -> None:
            served = hosts.files[path]
            hosts.files[path] = Served(self.versions[-1], self.validators)
            exchange.served = served
            break_off(0.5)(exchange)

        return fault


def draw_attempt(draw: random.Random, versions: Sequence[dict[str, bytes]]) -> Attempt:
    name = draw.choice([*versions[0]])
    hosts = ("first.example", "second.example")[: draw.choice((1, 1, 2))]
    faults = [draw.choice([*BREAKS]) for _ in range(draw.randint(0, 3))]
    documented = draw.random() < 0.5
    ends = [end for end in ENDS if documented or end != "one byte flipped"]
    if not faults or draw.random() < 0.5:
        faults.append(draw.choice(ends))
    changes = draw.random() < 0.3
    served = tuple(some[name] for some in versions[: 2 if changes else 1])
    return Attempt(name, hosts, served, tuple(faults), documented, draw.random() < 0.8)


def run_attempt(attempt: Attempt, hosts: Hosts, folder: Path) -> tuple[str, bool]:
    """What is wrong, or nothing; and whether the faulted download gave the file."""
    path, part = folder / attempt.name, folder / "state" / f"{attempt.name}.part"
    part.parent.mkdir(parents=True)
    attempt.serve(hosts, faulty=True)
    try:
        fetch(attempt.file, path, part)
    except ElmokitError as error:
        if "\n" in str(error) or not str(error):
            return f"{attempt}: {error!r}", False
        if path.exists():
            return f"{attempt}: a file was left behind an error", False
    got_file = path.exists()
    return after(attempt, hosts, folder), got_file


def after(attempt: Attempt, hosts: Hosts, folder: Path) -> str:
    """What is wrong with the file that is there, or with an undisturbed download."""
    path, part = folder / attempt.name, folder / "state" / f"{attempt.name}.part"
    shown = f"{attempt.name}, {attempt.faults}, {attempt.hosts}"
    if path.exists() and path.read_bytes() not in attempt.versions:
        return f"{shown}: the file is of no version"
    if not path.exists():
        attempt.serve(hosts, faulty=False)
        fetch(attempt.file, path, part)
        if path.read_bytes() != attempt.versions[-1]:
            return f"{shown}: another download gave another file"
    if left := os.listdir(part.parent):
        return f"{shown}: {left} is left behind"
    return ""


@contextmanager
def working(hosts: Hosts) -> Iterator[Path]:
    """A folder, while downloads ask this server and are impatient."""
    before, transfer.PATIENCE = transfer.PATIENCE, QUICK
    os.environ[MIRROR] = hosts.url
    try:
        with tempfile.TemporaryDirectory(prefix="downloads-") as name:
            yield Path(name)
    finally:
        transfer.PATIENCE = before
        del os.environ[MIRROR]


def run_faults(count: int, seed: int, tally: Tally) -> None:
    draw = random.Random(seed)
    versions = [sample_files(random.Random(seed + i)) for i in range(2)]
    with Hosts().serving() as hosts, working(hosts) as folder:
        for number in range(count):
            attempt = draw_attempt(draw, versions)
            start = time.perf_counter()
            problem, got_file = run_attempt(attempt, hosts, folder / str(number))
            seconds = time.perf_counter() - start
            tally.add(group_of(attempt), problem, seconds, got_file=got_file)
            shutil.rmtree(folder / str(number))


def group_of(attempt: Attempt) -> str:
    if len(attempt.versions) > 1:
        return "the file changes between two parts"
    ended = attempt.faults[-1] in ENDS
    mirrors = ", with a mirror" if len(attempt.hosts) > 1 else ""
    return ("an address that fails" if ended else "breaks and stalls") + mirrors


# Processes

NAME = "original"
PATHS = tuple(
    "/s3-us-west-2.amazonaws.com/allennlp/models/elmo/2x4096_512_2048cnn_2xhighway/"
    f"elmo_2x4096_512_2048cnn_2xhighway_{name}"
    for name in ("weights.hdf5", "options.json")
)
"""Where the files of `NAME` are."""


def start_download(hosts: Hosts, cache: Path) -> subprocess.Popen[str]:
    """``elmokit download original`` in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "elmokit", "download", NAME],
        env={**os.environ, MIRROR: hosts.url, CACHE: str(cache), OFFLINE: ""},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def serve_model(hosts: Hosts, files: dict[str, bytes], slow: int) -> None:
    with hosts.guard:
        hosts.requests.clear()
        for path, name in zip(PATHS, ("weights.hdf5", "options.json"), strict=True):
            hosts.files[path] = Served(files[name])
            hosts.faults[path] = [slowly] * slow


def check_cache(cache: Path, files: dict[str, bytes]) -> str:
    """What is wrong with a model in the cache that is said to be complete."""
    folder = cache / "allennlp-original"
    for name in ("weights.hdf5", "options.json"):
        if (folder / name).read_bytes() != files[name]:
            return f"{name} is another file"
    left = [path.name for path in (folder / ".elmokit").iterdir() if path.suffix != ".json"]
    return f"{left} is left behind" if left else ""


def run_kills(count: int, seed: int, tally: Tally) -> None:
    """Kill the process two times; the third one has to finish what is there."""
    draw = random.Random(seed)
    files = sample_files(draw)
    with Hosts().serving() as hosts, working(hosts) as folder:
        for number in range(count):
            cache = folder / str(number)
            start, problem = time.perf_counter(), ""
            serve_model(hosts, files, slow=2)
            for _ in range(2):
                process = start_download(hosts, cache)
                asked, deadline = len(hosts.requests), time.monotonic() + 30
                while len(hosts.requests) == asked and process.poll() is None:
                    time.sleep(0.005)
                    assert time.monotonic() < deadline
                time.sleep(draw.uniform(0, 0.3))
                process.send_signal(signal.SIGKILL)
                process.communicate()
                for name in ("weights.hdf5", "options.json"):
                    path = cache / "allennlp-original" / name
                    if path.exists() and path.read_bytes() != files[name]:
                        problem = f"{name} is not whole"
            process = start_download(hosts, cache)
            _, errors = process.communicate(timeout=60)
            problem = problem or errors or check_cache(cache, files)
            tally.add("SIGKILL, twice", problem, time.perf_counter() - start, got_file=not errors)
            shutil.rmtree(cache, ignore_errors=True)


def run_pairs(count: int, seed: int, tally: Tally) -> None:
    """Two processes want the same model: one downloads, the other waits."""
    files = sample_files(random.Random(seed))
    with Hosts().serving() as hosts, working(hosts) as folder:
        for number in range(count):
            cache = folder / str(number)
            start = time.perf_counter()
            serve_model(hosts, files, slow=1)
            both = [start_download(hosts, cache) for _ in range(2)]
            errors = [process.communicate(timeout=60)[1] for process in both]
            asked = Counter(path for path, _ in hosts.requests)
            problem = "".join(errors) or check_cache(cache, files)
            if asked != dict.fromkeys(PATHS, 1):
                problem = f"{problem} requests: {dict(asked)}"
            tally.add("two processes at once", problem, time.perf_counter() - start, got_file=True)
            shutil.rmtree(cache, ignore_errors=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--downloads", type=int, default=1000)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save", action="store_true")
    arguments = parser.parse_args()
    tally = Tally()
    run_faults(arguments.downloads, arguments.seed, tally)
    run_kills(arguments.kills, arguments.seed, tally)
    run_pairs(arguments.pairs, arguments.seed, tally)
    for group in tally.groups():
        got = tally.files[group.name]
        print(f"{group.name}: {group.attempts} downloads, {group.held} held, {got} gave the file")
    for line in tally.wrong[:20]:
        print(line)
    if arguments.save:
        save_part("downloads", tally.groups())
        write_table()
    return 1 if tally.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
