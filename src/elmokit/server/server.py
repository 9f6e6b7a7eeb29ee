"""The process: a port, a server, an orderly end."""

from __future__ import annotations

import asyncio
import logging
import math
import signal
import socket
from typing import TYPE_CHECKING

import uvicorn
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from elmokit.server import logs
from elmokit.server.settings import Limits

if TYPE_CHECKING:
    from fastapi import FastAPI

LAST_CALL = 0.2
"""Seconds between closing the door and telling those inside to finish: who has just come in may
still say what they want."""


class Server(uvicorn.Server):
    """Finishes what it has accepted, then stops."""

    def __init__(self, config: uvicorn.Config, app: FastAPI) -> None:
        super().__init__(config)
        self._app = app

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close the door, then wait for those inside."""
        logs.event("stopping", logging.INFO, connections=len(self.server_state.connections))
        for server in self.servers:
            server.close()
        self._app.state.service.drain()
        await asyncio.sleep(LAST_CALL)
        await super().shutdown(sockets)
        logs.event("stopped")


def open_port(host: str, port: int) -> socket.socket:
    """Take an address, without listening yet.

    Raises:
        OSError: It is taken, or not an address of this machine.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        door = socket.socket(family, kind, protocol)
        try:
            door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            door.bind(address)
        except OSError:
            door.close()
            raise
    except OSError as error:
        raise OSError(error.errno, error.strerror, f"{host}:{port}") from None
    return door


def connection_kind(seconds: float) -> type[asyncio.Protocol]:
    """Connections of uvicorn, but an answer that a client stops reading is thrown away.

    uvicorn hands the transport the whole answer, and the route is done; a client that never reads
    would keep its answer, and its connection, for ever.

    Args:
        seconds: Time in which a client must have taken some of what is ready for it.
    """

    class Connection(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
        _end: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:
            super().connection_made(transport)
            self._door = transport
            # Writing pauses when the system takes no more, and goes on when it has taken all.
            transport.set_write_buffer_limits(high=0)

        def pause_writing(self) -> None:
            super().pause_writing()
            self._wait()

        def resume_writing(self) -> None:
            self._stop_clock()
            super().resume_writing()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_clock()
            super().connection_lost(exc)

        def _stop_clock(self) -> None:
            if self._end is not None:
                self._end.cancel()
                self._end = None

        def _wait(self) -> None:
            left = self._door.get_write_buffer_size()
            self._end = asyncio.get_running_loop().call_later(seconds, self._look, left)

        def _look(self, before: int) -> None:
            left = self._door.get_write_buffer_size()
            if left < before:  # slow, but it reads
                self._wait()
                return
            logs.event("unread", logging.INFO, bytes=left)
            self._door.abort()

    return Connection


def configuration(app: FastAPI, limits: Limits) -> uvicorn.Config:
    """How uvicorn is to run the application."""
    return uvicorn.Config(
        app,
        http=connection_kind(limits.seconds),
        log_config=None,
        access_log=False,
        server_header=False,
        limit_concurrency=limits.connections,
        timeout_keep_alive=30,
        # Longer than a request may take: only clients that do not read are left by then.
        timeout_graceful_shutdown=math.ceil(2 * limits.seconds) + 5,
    )


def run(app: FastAPI, door: socket.socket, limits: Limits) -> None:
    """Serve until the process is told to stop; then finish what was accepted."""
    logs.set_up()
    config = configuration(app, limits)
    host, port = door.getsockname()[:2]
    place = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    logs.event("serving", address=place)
    # The server raises the signal again at its end; by then nothing is left to be done.
    before = signal.signal(signal.SIGTERM, lambda number, frame: None)
    try:
        Server(config, app).run(sockets=[door])
    finally:
        signal.signal(signal.SIGTERM, before)
