"""The process: the listening socket, uvicorn, its connections, and graceful shutdown."""

from __future__ import annotations

import asyncio
import contextlib
import math
import signal
import socket
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from elmokit.server.logs import CONNECTION, configure_logging, log_event
from elmokit.server.settings import Limits, open_files

if TYPE_CHECKING:
    from fastapi import FastAPI

SHUTDOWN_GRACE = 0.2
"""Seconds between closing the listener and draining: connections that were just accepted may still
send their request."""
FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 1\r\n"
    b'Connection: close\r\nContent-Length: 34\r\n\r\n{"detail": "too many connections"}'
)
"""What a client gets when all connections are in use."""


class Server(uvicorn.Server):
    """uvicorn's server, which first tells the application to drain."""

    def __init__(self, config: uvicorn.Config, app: FastAPI) -> None:
        super().__init__(config)
        self._app = app

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close the listener, answer what was accepted, then stop."""
        log_event("stopping", connections=len(self.server_state.connections))
        for server in self.servers:
            server.close()
        self._app.state.service.drain()
        await asyncio.sleep(SHUTDOWN_GRACE)
        await super().shutdown(sockets)
        log_event("stopped")


class OpenConnections:
    """The connections of a server: not more than the process can hold open.

    When there is no room for another, the one that has waited longest for a request is closed, so
    clients that only hold connections open cannot keep others out.
    """

    def __init__(self, limits: Limits) -> None:
        self.seconds: float = limits.idle_seconds
        # A quarter of the process's files is for everything else: models, the page, the log.
        self._most = min(limits.connections, max(1, open_files() * 3 // 4))
        self._open: set[GuardedConnection] = set()
        self.waiting: dict[GuardedConnection, None] = {}
        """Those without a request; the one that has waited longest first."""

    def admit(self, connection: GuardedConnection) -> bool:
        """Count a connection; False if all others are in use."""
        if len(self._open) >= self._most:
            if not self.waiting:
                return False
            next(iter(self.waiting)).abort()
        self._open.add(connection)
        return True

    def discard(self, connection: GuardedConnection) -> None:
        """Forget a connection."""
        self._open.discard(connection)
        self.waiting.pop(connection, None)


class GuardedConnection(asyncio.Protocol):
    """One connection: uvicorn's own protocol, with a limit of the time without a request.

    That time is over when the application is called. So it limits connections that send nothing,
    heads that arrive slowly, bodies of requests that were refused, and answers that are not read to
    their end. uvicorn has settings for the size of a head and for idle connections only.
    """

    def __init__(self, others: OpenConnections, app_state: dict[str, Any], **parts: Any) -> None:
        self._others = others
        self._http = H11Protocol(app_state={**app_state, CONNECTION: self}, **parts)
        self._admitted = False
        self._requests = 0
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        self._transport = cast(asyncio.Transport, transport)
        self._admitted = self._others.admit(self)
        if not self._admitted:
            self._transport.write(FULL)
            self._transport.close()
            return
        self._http.connection_made(self._transport)
        self._wait()

    def request_started(self) -> None:
        """The head of a request has arrived."""
        self._requests += 1
        self._others.waiting.pop(self, None)
        self._stop_timer()

    def request_ended(self) -> None:
        """A request was answered, or given up."""
        self._requests -= 1
        if not self._requests:  # else the next one has started already
            self._wait()

    def _wait(self) -> None:
        """Wait for the next request, but not for ever."""
        self._stop_timer()
        if not self._transport.is_closing() or self._transport.get_write_buffer_size():
            self._others.waiting[self] = None
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._others.seconds, self.abort)

    def abort(self) -> None:
        """Close the connection at once, whatever was not sent."""
        self._stop_timer()
        self._others.discard(self)
        self._transport.abort()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def data_received(self, data: bytes) -> None:
        """Pass on what has arrived."""
        if self._admitted:
            self._http.data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is closed."""
        self._stop_timer()
        self._others.discard(self)
        if self._admitted:
            self._http.connection_lost(exc)

    def pause_writing(self) -> None:
        """The client reads more slowly than the application writes."""
        if self._admitted:
            self._http.pause_writing()

    def resume_writing(self) -> None:
        """It has read on."""
        if self._admitted:
            self._http.resume_writing()


def bind_socket(host: str, port: int) -> socket.socket:
    """A socket at this address that does not listen yet."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        sock = socket.socket(family, kind, protocol)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind(address)
        except OSError:
            sock.close()
            raise
    except OSError as error:
        raise OSError(error.errno, error.strerror, f"{host}:{port}") from None
    return sock


def uvicorn_config(app: FastAPI, limits: Limits) -> uvicorn.Config:
    """Settings of uvicorn for the application."""
    guarded = partial(GuardedConnection, OpenConnections(limits))
    return uvicorn.Config(
        app,
        # A class or what makes its objects: uvicorn calls it for every connection.
        http=cast(type[asyncio.Protocol], guarded),
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        h11_max_incomplete_event_size=limits.head_bytes,
        timeout_keep_alive=math.ceil(limits.idle_seconds),
        # Longer than a request may take: only clients that do not read are left by then.
        timeout_graceful_shutdown=math.ceil(2 * limits.seconds) + 5,
    )


def run_server(app: FastAPI, sock: socket.socket, limits: Limits) -> None:
    """Serve until SIGTERM or SIGINT; then answer what was accepted and return.

    SIGHUP makes it read the tokens again.
    """
    configure_logging()
    announce(address_of(*sock.getsockname()[:2]))
    # uvicorn raises the signal again at its end; by then there is nothing left to do.
    handlers: dict[signal.Signals, Any] = {signal.SIGTERM: lambda number, frame: None}
    if hasattr(signal, "SIGHUP"):
        handlers[signal.SIGHUP] = lambda number, frame: app.state.tokens.expire()
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        Server(uvicorn_config(app, limits), app).run(sockets=[sock])
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def address_of(host: str, port: int) -> str:
    """The service's address as a URL."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def announce(address: str) -> None:
    """Log the address of the service, and print one to open."""
    log_event("serving", address=address)
    to_open = address.replace("//0.0.0.0:", "//localhost:").replace("//[::]:", "//localhost:")
    with contextlib.suppress(OSError):  # nobody reads standard output
        print(f"Open {to_open}/ (Ctrl-C stops the service)", flush=True)
