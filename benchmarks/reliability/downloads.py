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
import gzip
import hashlib
import io
import json
import os
import random
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import h5py
import numpy as np

from benchmarks.reliability.table import Group, save_part
from benchmarks.reliability.table import main as write_table
from elmokit.checkpoints import transfer
from elmokit.checkpoints.download import CACHE, OFFLINE
from elmokit.checkpoints.transfer import MIRROR, Patience, RemoteFile, fetch
from elmokit.errors import ElmokitError

QUICK = Patience(
    connect_s=5.0, stall_s=0.3, window_s=0.5, window_bytes=2000, first_wait_s=0.0, most_wait_s=2.0
)
"""Waits for tests; a user's are a hundred times longer."""
STALLS_S = 3.0
PAGE = b"<!DOCTYPE html>\n<html><body>File not found, or quota exceeded.</body></html>\n"


@dataclass
class Served:
    """A file on the server."""

    data: bytes
    validators: bool = True
    """Whether the server sends an ETag; without one a download cannot be resumed."""

    @property
    def tag(self) -> str:
        return f'"{hashlib.md5(self.data).hexdigest()}"'


class Exchange(BaseHTTPRequestHandler):
    """One request. A fault is a function that answers it wrongly."""

    protocol_version = "HTTP/1.1"
    server: Hosts

    def do_GET(self) -> None:
        path = urlsplit(self.path).path if "://" not in self.path else self._behind_proxy()
        with self.server.guard:
            self.server.requests.append((path, dict(self.headers)))
            faults = self.server.faults.get(path, [])
            fault = faults.pop(0) if faults else None
        self.served = self.server.files.get(path)
        with suppress(OSError):  # the client has gone
            if fault is not None:
                fault(self)
            elif self.served is None:
                self.status(404)
            else:
                self.send()

    def _behind_proxy(self) -> str:
        """The path that stands for an address that a client asks its proxy for."""
        parts = urlsplit(self.path)
        return f"/{parts.netloc}{parts.path}"

    def log_message(self, *_args: object) -> None:
        pass

    def head(self, status: int, **headers: str | int) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()

    def status(self, status: int, **headers: str | int) -> None:
        self.head(status, Content_Length=0, **headers)

    def start(self) -> int:
        """Where the body begins that the client asked for."""
        assert self.served is not None
        asked = self.headers.get("Range", "")
        condition = self.headers.get("If-Range")
        if not asked.startswith("bytes=") or (condition and condition != self.served.tag):
            return 0
        return int(asked.removeprefix("bytes=").rstrip("-"))

    def send(self, start: int | None = None, most: int | None = None, length: int = 0) -> None:
        """The file, or the part that was asked for; `most` bytes of it, then the end.

        `length` is added to the length that is announced.
        """
        assert self.served is not None
        data = self.served.data
        start = self.start() if start is None else start
        validators = {"ETag": self.served.tag} if self.served.validators else {}
        if start >= len(data) > 0:
            self.status(416, Content_Range=f"bytes */{len(data)}")
            return
        body = data[start:]
        if start:
            span = f"bytes {start}-{len(data) - 1}/{len(data)}"
            self.head(206, Content_Length=len(body), Content_Range=span, **validators)
        else:
            self.head(200, Content_Length=len(body) + length, Accept_Ranges="bytes", **validators)
        self.wfile.write(body[:most])
        if most is not None or length:
            self.close_connection = True


class Hosts(ThreadingHTTPServer):
    """All hosts at one address of this machine: ``/HOST/PATH`` is ``https://HOST/PATH``."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Exchange)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.guard = threading.Lock()
        self.files: dict[str, Served] = {}
        self.faults: dict[str, list[Callable[[Exchange], None]]] = {}
        """Of each path, what happens to its next requests; afterwards it is served."""
        self.requests: list[tuple[str, dict[str, str]]] = []

    @contextmanager
    def serving(self) -> Iterator[Hosts]:
        thread = threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self.shutdown()
            thread.join()
            self.server_close()

    def handle_error(self, *_args: object) -> None:
        """A client that has gone is no news."""


# Faults. Each answers one request.


def break_off(share: float) -> Callable[[Exchange], None]:
    def fault(exchange: Exchange) -> None:
        exchange.send(most=int(share * len(exchange.served.data)))  # type: ignore[union-attr]

    return fault


def reset(exchange: Exchange) -> None:
    """The connection is torn down in the middle of the body."""
    exchange.send(most=len(exchange.served.data) // 2)  # type: ignore[union-attr]
    exchange.wfile.flush()
    now = struct.pack("ii", 1, 0)
    exchange.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, now)
    exchange.connection.close()


def hang_up(exchange: Exchange) -> None:
    exchange.close_connection = True


def stall(exchange: Exchange) -> None:
    exchange.send(most=len(exchange.served.data) // 3)  # type: ignore[union-attr]
    exchange.wfile.flush()
    time.sleep(STALLS_S)


def silent(exchange: Exchange) -> None:
    time.sleep(STALLS_S)
    exchange.close_connection = True


def drip(exchange: Exchange) -> None:
    """Always something, never enough."""
    data = exchange.served.data  # type: ignore[union-attr]
    exchange.head(200, Content_Length=len(data), ETag=exchange.served.tag)  # type: ignore[union-attr]
    for i in range(40):
        exchange.wfile.write(data[i : i + 1])
        exchange.wfile.flush()
        time.sleep(0.1)
    exchange.close_connection = True


def too_long(exchange: Exchange) -> None:
    """More is announced than there is."""
    exchange.send(start=0, length=500)


def too_short(exchange: Exchange) -> None:
    """Less is announced than there is."""
    size = len(exchange.served.data)  # type: ignore[union-attr]
    exchange.send(start=0, length=-(size // 4))


def unknown_length(exchange: Exchange) -> None:
    """The end of the connection is the end of the file, too early."""
    exchange.head(200, Connection="close")
    exchange.wfile.write(exchange.served.data[:-100])  # type: ignore[union-attr]
    exchange.close_connection = True


def broken_chunk(exchange: Exchange) -> None:
    exchange.head(200, Transfer_Encoding="chunked")
    exchange.wfile.write(b"1000\r\n" + exchange.served.data[:1000])  # type: ignore[union-attr]
    exchange.close_connection = True


def chunked(exchange: Exchange) -> None:
    """No fault: the length is simply not announced."""
    data = exchange.served.data  # type: ignore[union-attr]
    exchange.head(200, Transfer_Encoding="chunked")
    for i in range(0, len(data), 5000):
        block = data[i : i + 5000]
        exchange.wfile.write(b"%x\r\n%b\r\n" % (len(block), block))
    exchange.wfile.write(b"0\r\n\r\n")


def page(exchange: Exchange) -> None:
    exchange.head(200, Content_Length=len(PAGE), Content_Type="text/html")
    exchange.wfile.write(PAGE)


def page_as_data(exchange: Exchange) -> None:
    exchange.head(200, Content_Length=len(PAGE), Content_Type="application/octet-stream")
    exchange.wfile.write(PAGE)


def pointer(exchange: Exchange) -> None:
    text = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 374434776\n"
    exchange.head(200, Content_Length=len(text))
    exchange.wfile.write(text)


def empty(exchange: Exchange) -> None:
    exchange.head(200, Content_Length=0)


def answer(status: int, **headers: str | int) -> Callable[[Exchange], None]:
    return lambda exchange: exchange.status(status, **headers)


def redirect(exchange: Exchange) -> None:
    """To another path, where the file is."""
    path = exchange.path + ".moved"
    exchange.server.files[urlsplit(path).path] = exchange.served  # type: ignore[assignment]
    exchange.status(302, Location=path)


def redirect_loop(exchange: Exchange) -> None:
    with exchange.server.guard:
        exchange.server.faults.setdefault(urlsplit(exchange.path).path, []).insert(0, redirect_loop)
    exchange.status(301, Location=exchange.path)


def redirect_inside(exchange: Exchange) -> None:
    """Into the network of the client."""
    exchange.status(302, Location="http://10.0.0.1/secret")


def redirect_elsewhere(exchange: Exchange) -> None:
    exchange.status(302, Location="file:///etc/passwd")


def redirect_nowhere(exchange: Exchange) -> None:
    exchange.status(302, Location="https://[nowhere/")


def ignore_range(exchange: Exchange) -> None:
    exchange.send(start=0)


def wrong_range(exchange: Exchange) -> None:
    """Another part than was asked for."""
    exchange.send(start=max(1, exchange.start() // 2))


def wrong_tag(exchange: Exchange) -> None:
    """The part that was asked for, of a file that has changed."""
    data = bytes(byte ^ 1 for byte in exchange.served.data)  # type: ignore[union-attr]
    start = int(exchange.headers.get("Range", "bytes=0-").removeprefix("bytes=").rstrip("-"))
    span = f"bytes {start}-{len(data) - 1}/{len(data)}"
    status = {"status": 206, "Content_Range": span} if start else {"status": 200}
    exchange.head(Content_Length=len(data) - start, ETag='"other"', **status)  # type: ignore[arg-type]
    exchange.wfile.write(data[start : len(data) - 1 if not start else None])
    exchange.close_connection = True


def compressed(exchange: Exchange) -> None:
    body = gzip.compress(exchange.served.data)  # type: ignore[union-attr]
    exchange.head(200, Content_Length=len(body), Content_Encoding="gzip")
    exchange.wfile.write(body)


def nonsense(exchange: Exchange) -> None:
    exchange.wfile.write(b"NOTHTTP/9 what\x00ever\r\n\r\n")
    exchange.close_connection = True


def flipped(exchange: Exchange) -> None:
    """One other byte, in a file of the right length."""
    data = bytearray(exchange.served.data)  # type: ignore[union-attr]
    data[len(data) // 2] ^= 0x55
    exchange.head(200, Content_Length=len(data), ETag='"flipped"')
    exchange.wfile.write(data)


BREAKS: dict[str, Callable[[Exchange], None]] = {
    "breaks off": break_off(0.6),
    "breaks off at once": break_off(0.0),
    "breaks off near the end": break_off(0.99),
    "reset": reset,
    "hangs up": hang_up,
    "stalls": stall,
    "silent": silent,
    "too slow": drip,
    "announces more": too_long,
    "chunk breaks off": broken_chunk,
    "429": answer(429, Retry_After=0),
    "503": answer(503, Retry_After="Sun, 06 Nov 1994 08:49:37 GMT"),
    "500": answer(500),
    "416": answer(416),
    "ignores Range": ignore_range,
    "another range": wrong_range,
    "another ETag": wrong_tag,
    "redirect": redirect,
    "no length": chunked,
}
"""After these the download goes on."""
ENDS: dict[str, Callable[[Exchange], None]] = {
    "announces less": too_short,
    "no length, breaks off": unknown_length,
    "page": page,
    "page as data": page_as_data,
    "pointer of Git LFS": pointer,
    "empty": empty,
    "404": answer(404),
    "403": answer(403),
    "503 for an hour": answer(503, Retry_After=3600),
    "redirect loop": redirect_loop,
    "redirect into a private network": redirect_inside,
    "redirect to a file": redirect_elsewhere,
    "redirect to no address": redirect_nowhere,
    "compressed": compressed,
    "nonsense": nonsense,
    "one byte flipped": flipped,
}
"""After these the address has failed, and the next one is asked."""


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


def slowly(exchange: Exchange) -> None:
    """No fault: a file that takes its time."""
    data = exchange.served.data  # type: ignore[union-attr]
    exchange.send(most=0)
    for i in range(exchange.start(), len(data), 2000):
        exchange.wfile.write(data[i : i + 2000])
        exchange.wfile.flush()
        time.sleep(0.01)


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
