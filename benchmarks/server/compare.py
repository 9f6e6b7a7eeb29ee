"""HTTP servers for Python side by side: which limits their own settings keep, and their speed.

Run: python -m benchmarks.server.compare [--save]   (pip install hypercorn granian first)

Every server runs the same small ASGI application, with settings that ask for the same limits: heads
of 16 KiB, two seconds for a head and for an idle connection, 200 connections. A client then breaks
each limit. "kept": the connection is closed (or refused with an answer) in time, and memory does
not grow. Servers that are not installed are left out. The last column is uvicorn as elmokit runs
it, with elmokit's middleware, which also counts and logs every request.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib.metadata
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

HEAD_BYTES = 16 * 1024
SECONDS = 2
CONNECTIONS = 200
LATE = SECONDS + 6
"""Seconds after which a limit was not kept, on a busy machine too."""
LARGE = b"x" * (30 << 20)
IN_FLIGHT = 150
SERVERS = ("uvicorn-httptools", "uvicorn-h11", "hypercorn", "granian", "elmokit")


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Reads the body; ``/large`` has a large answer, ``/slow`` a late one."""
    if scope["type"] == "lifespan":
        while (await receive())["type"] != "lifespan.shutdown":
            await send({"type": "lifespan.startup.complete"})
        await send({"type": "lifespan.shutdown.complete"})
        return
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            print("left", flush=True)
            return
        if not message.get("more_body"):
            break
    if scope["path"] == "/slow":
        done, _ = await asyncio.wait((asyncio.ensure_future(receive()),), timeout=SECONDS)
        if done:
            print("left", flush=True)
    body = LARGE if scope["path"] == "/large" else b'{"status":"ok"}'
    length = str(len(body)).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", length)]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def run(name: str, address: str) -> None:
    """Serve the application with one of the servers, at host:port or at the path of a socket."""
    host, _, port = address.rpartition(":")
    unix = "/" in address
    if unix and name == "elmokit":
        raise SystemExit("elmokit serve has no unix sockets")
    if name.startswith("uvicorn"):
        import uvicorn

        where = {"uds": address} if unix else {"host": host.strip("[]"), "port": int(port)}
        uvicorn.run(
            app,
            **where,  # type: ignore[arg-type]
            http=name.partition("-")[2],
            loop="uvloop",
            log_level="critical",
            h11_max_incomplete_event_size=HEAD_BYTES,
            timeout_keep_alive=SECONDS,
            limit_concurrency=CONNECTIONS,
            timeout_graceful_shutdown=30,
        )
    elif name == "elmokit":
        _run_elmokit(host, int(port))
    elif name == "hypercorn":
        import hypercorn.asyncio
        import uvloop

        config = hypercorn.Config()
        config.bind = [f"unix:{address}" if unix else address]
        config.h11_max_incomplete_size = HEAD_BYTES
        config.keep_alive_timeout = SECONDS
        config.graceful_timeout = 30
        config.backlog = 2048
        config.errorlog = None
        stop = asyncio.Event()

        async def serve() -> None:
            loop = asyncio.get_running_loop()
            loop.add_signal_handler(signal.SIGTERM, stop.set)
            await hypercorn.asyncio.serve(app, config, shutdown_trigger=stop.wait)

        uvloop.run(serve())
    else:
        from granian import Granian
        from granian.constants import HTTPModes, Interfaces
        from granian.http import HTTP1Settings

        where = {"uds": Path(address)} if unix else {"address": host.strip("[]"), "port": int(port)}
        Granian(
            "benchmarks.server.compare:app",
            **where,  # type: ignore[arg-type]
            interface=Interfaces.ASGI,
            http=HTTPModes.http1,
            backpressure=CONNECTIONS,
            backlog=2048,
            http1_settings=HTTP1Settings(
                header_read_timeout=1000 * SECONDS, max_buffer_size=HEAD_BYTES
            ),
            log_enabled=False,
        ).serve()


def _run_elmokit(host: str, port: int) -> None:
    """The same application behind elmokit's server and middleware."""
    import uvicorn

    from elmokit.server.access import AccessMiddleware, RefusedError, TokenStore
    from elmokit.server.logs import RequestLogMiddleware
    from elmokit.server.metrics import Metrics
    from elmokit.server.server import bind_socket, uvicorn_config
    from elmokit.server.settings import Access, Limits

    limits = Limits(
        head_bytes=HEAD_BYTES, seconds=SECONDS, idle_seconds=SECONDS, connections=CONNECTIONS
    )
    service = SimpleNamespace(state=SimpleNamespace(service=SimpleNamespace(draining=False)))

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        try:
            await app(scope, receive, send)
        except RefusedError as error:
            await error.response(scope, receive, send)

    access = Access(hosts=("a",))
    checked = AccessMiddleware(answer, access, TokenStore(access), limits)
    logged = RequestLogMiddleware(checked, Metrics(), limits)

    async def whole(scope: Any, receive: Any, send: Any) -> None:
        scope["app"] = service
        await logged(scope, receive, send)

    with bind_socket(host.strip("[]"), port) as sock:
        uvicorn.Server(uvicorn_config(whole, limits)).run(sockets=[sock])  # type: ignore[arg-type]


class Running:
    """One server in a process of its own."""

    def __init__(self, process: subprocess.Popen[str], port: int) -> None:
        self.process = process
        self.port = port

    def connect(self) -> socket.socket:
        """A connection to it."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=LATE)

    def memory(self) -> float:
        """MiB of the process and of those that it started."""
        total = 0
        for pid in self._processes():
            with contextlib.suppress(OSError):
                pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
                total += pages * os.sysconf("SC_PAGE_SIZE")
        return total / 2**20

    def open_files(self) -> int:
        """Files and connections of the process that has most."""
        counts = [0]
        for pid in self._processes():
            with contextlib.suppress(OSError):
                counts.append(len(os.listdir(f"/proc/{pid}/fd")))
        return max(counts)

    def _processes(self) -> list[int]:
        found = [self.process.pid]
        for pid in found:
            for children in Path(f"/proc/{pid}/task").glob("*/children"):
                with contextlib.suppress(OSError):
                    found += map(int, children.read_text().split())
        return found


@contextmanager
def running(name: str, address: str | None = None) -> Iterator[Running]:
    """A server that accepts connections."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    address = address or f"127.0.0.1:{port}"
    command = [sys.executable, "-m", "benchmarks.server.compare", "--run", name, address]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        for _ in range(500):
            with contextlib.suppress(OSError), _client(address) as sock:
                sock.sendall(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
                if sock.recv(100).startswith(b"HTTP/1.1 200"):
                    break
            assert process.poll() is None, f"{name} ended"
            time.sleep(0.05)
        else:
            raise AssertionError(f"{name} does not answer at {address}")
        yield Running(process, port)
    finally:
        process.terminate()
        try:
            process.wait(LATE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _client(address: str) -> socket.socket:
    if "/" in address:
        sock = socket.socket(socket.AF_UNIX)
        sock.settimeout(LATE)
        sock.connect(address)
        return sock
    host, _, port = address.rpartition(":")
    return socket.create_connection((host.strip("[]"), int(port)), timeout=LATE)


# What a hostile client does


def _closes(sock: socket.socket, seconds: float = LATE) -> bool:
    """Whether the server closes a connection in time; what it sends is read."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        sock.settimeout(left)
        try:
            if not sock.recv(1 << 16):
                return True
        except TimeoutError:
            return False
        except OSError:
            return True
    return False


def head_size(server: Running) -> str:
    """A header of 100 MB."""
    before = server.memory()
    with server.connect() as sock:
        sent = 0
        try:
            sock.sendall(b"GET / HTTP/1.1\r\nHost: a\r\nX: ")
            while sent < 100_000_000:
                sock.sendall(b"a" * 100_000)
                sent += 100_000
        except OSError:
            return "kept"
        return f"{server.memory() - before:.0f} MiB more"


def head_time(server: Running) -> str:
    """A head whose bytes come one by one."""
    with server.connect() as sock:
        end = time.monotonic() + LATE
        try:
            sock.sendall(b"GET / HTTP/1.1\r\nHost: a\r\nX: ")
            while time.monotonic() < end:
                sock.sendall(b"a")
                time.sleep(0.2)
        except OSError:
            return "kept"
    return "no"


def silent(server: Running) -> str:
    """A connection without a request."""
    with server.connect() as sock:
        return "kept" if _closes(sock) else "no"


def keep_alive(server: Running) -> str:
    """A connection that stays open after an answer."""
    with server.connect() as sock:
        sock.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        return "kept" if _closes(sock) else "no"


def body_time(server: Running) -> str:
    """A body that does not end."""
    with server.connect() as sock:
        sock.sendall(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n")
        return "kept" if _closes(sock) else "no"


def unread(server: Running) -> str:
    """Answers of 30 MiB that are not read: are their connections closed?"""
    before, files = server.memory(), server.open_files()
    socks = [server.connect() for _ in range(4)]
    for sock in socks:
        sock.sendall(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n")
    time.sleep(LATE)
    more, kept = server.memory() - before, server.open_files() <= files
    for sock in socks:
        sock.close()
    return "kept" if kept else f"no, {more:.0f} MiB more"


def connections(server: Running) -> str:
    """Three times as many silent connections as allowed."""
    socks = []
    with contextlib.suppress(OSError):
        socks = [server.connect() for _ in range(3 * CONNECTIONS)]
    time.sleep(0.5)
    files = server.open_files()
    for sock in socks:
        sock.close()
    return "kept" if files < CONNECTIONS + 50 else f"no, {files} open"


def disconnect(server: Running) -> str:
    """Whether the application is told that a client has left."""
    with server.connect() as sock:
        sock.sendall(b"GET /slow HTTP/1.1\r\nHost: a\r\n\r\n")
        time.sleep(0.3)
    time.sleep(SECONDS + 0.5)
    assert server.process.stdout is not None
    os.set_blocking(server.process.stdout.fileno(), False)
    return "kept" if "left" in (server.process.stdout.read() or "") else "no"


def drain(server: Running) -> str:
    """SIGTERM while requests are being answered."""
    socks = []
    for _ in range(IN_FLIGHT):
        sock = server.connect()
        sock.sendall(b"GET /slow HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        socks.append(sock)
    time.sleep(0.5)
    server.process.terminate()
    answered = 0
    for sock in socks:
        with sock, contextlib.suppress(OSError):
            answered += sock.recv(1 << 16).startswith(b"HTTP/1.1 200")
    return f"{answered} of {len(socks)}"


# Speed


async def _requests_per_second(port: int, seconds: float, clients: int = 16) -> float:
    """Small requests on connections that stay open."""
    end = time.perf_counter() + seconds
    request = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 40\r\n\r\n" + b"x" * 40
    count = 0

    async def client() -> None:
        nonlocal count
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while time.perf_counter() < end:
            writer.write(request)
            await reader.readuntil(b'{"status":"ok"}')
            count += 1
        writer.close()

    began = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(clients)))
    return count / (time.perf_counter() - began)


CHECKS: tuple[tuple[str, Callable[[Running], str]], ...] = (
    ("size of a head", head_size),
    ("time of a head", head_time),
    ("silent connections", silent),
    ("idle after an answer", keep_alive),
    ("time of a body", body_time),
    ("unread answers", unread),
    ("number of connections", connections),
    ("tells that a client left", disconnect),
    ("in flight at SIGTERM, answered", drain),
)


def _listens(name: str, address: str) -> str:
    try:
        with running(name, address):
            return "yes"
    except AssertionError:
        return "no"


def compare(names: list[str]) -> dict[str, dict[str, str]]:
    """The result of every check for every server."""
    found: dict[str, dict[str, str]] = {name: {} for name in names}
    rates: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(3):  # in turns: the machine may be busy at times
        for name in names:
            with running(name) as server:
                rates[name].append(asyncio.run(_requests_per_second(server.port, 3)))
    for name in names:
        package = name.partition("-")[0]
        found[name]["version"] = importlib.metadata.version(package)
        found[name]["requests per second"] = f"{statistics.median(rates[name]):.0f}"
        for what, check in CHECKS:
            with running(name) as server:
                found[name][what] = check(server)
        with tempfile.TemporaryDirectory() as folder:
            found[name]["unix socket"] = _listens(name, f"{folder}/socket")
        with socket.create_server(("::1", 0), family=socket.AF_INET6) as free:
            port = free.getsockname()[1]
        found[name]["IPv6"] = _listens(name, f"[::1]:{port}")
    return found


def table(found: dict[str, dict[str, str]]) -> str:
    """One row per check, one column per server."""
    rows = [["", *found]]
    rows += [[what, *(found[name][what] for name in found)] for what in next(iter(found.values()))]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def _installed(name: str) -> bool:
    try:
        importlib.metadata.version(name.partition("-")[0])
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", nargs=2, metavar=("SERVER", "ADDRESS"))
    parser.add_argument("--only", nargs="*", default=SERVERS)
    parser.add_argument("--save", action="store_true")
    options = parser.parse_args()
    if options.run:
        run(*options.run)
    else:
        from benchmarks.report import report  # loads torch, which the servers need not

        found = compare([name for name in options.only if _installed(name)])
        report("http_servers", table(found), options.save)


if __name__ == "__main__":
    main()
