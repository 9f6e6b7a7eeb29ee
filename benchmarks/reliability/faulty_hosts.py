"""A server on this machine that plays the hosts of published models, and the faults it may have.

A fault is a function that answers one request wrongly. Tests and `benchmarks.reliability.downloads`
put several in a row in front of the right answer.
"""

from __future__ import annotations

import gzip
import hashlib
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

from elmokit.checkpoints.transfer import Patience

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


def slowly(exchange: Exchange) -> None:
    """No fault: a file that takes its time."""
    data = exchange.served.data  # type: ignore[union-attr]
    exchange.send(most=0)
    for i in range(exchange.start(), len(data), 2000):
        exchange.wfile.write(data[i : i + 2000])
        exchange.wfile.flush()
        time.sleep(0.01)


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
