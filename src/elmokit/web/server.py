"""The process: a port, a server, an orderly end."""

from __future__ import annotations

import asyncio
import logging
import math
import signal
import socket
from typing import TYPE_CHECKING

import uvicorn

from elmokit.web import logs
from elmokit.web.settings import Limits

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


def run(app: FastAPI, door: socket.socket, limits: Limits) -> None:
    """Serve until the process is told to stop; then finish what was accepted."""
    logs.set_up()
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        limit_concurrency=limits.connections,
        timeout_keep_alive=30,
        # Longer than a request may take: only clients that do not read are left by then.
        timeout_graceful_shutdown=math.ceil(2 * limits.seconds) + 5,
    )
    host, port = door.getsockname()[:2]
    place = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    logs.event("serving", address=place)
    # The server raises the signal again at its end; by then nothing is left to be done.
    before = signal.signal(signal.SIGTERM, lambda number, frame: None)
    try:
        Server(config, app).run(sockets=[door])
    finally:
        signal.signal(signal.SIGTERM, before)
