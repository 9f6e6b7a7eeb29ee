"""The process: the listening socket, uvicorn, and graceful shutdown."""

from __future__ import annotations

import asyncio
import math
import signal
import socket
import sys
from typing import TYPE_CHECKING

import uvicorn

from elmokit.server.logs import configure_logging, log_event
from elmokit.server.settings import Limits

if TYPE_CHECKING:
    from fastapi import FastAPI

SHUTDOWN_GRACE = 0.2
"""Seconds between closing the listener and draining: connections that were just accepted may still
send their request."""


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


def bind_socket(host: str, port: int, limits: Limits | None = None) -> socket.socket:
    """A socket at this address that does not listen yet.

    uvicorn hands the transport a whole answer, and the route is done: a client that never reads
    would keep its answer and its connection for ever. On Linux the kernel closes connections whose
    client has taken nothing for ``limits.seconds``; accepted connections inherit the option.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        sock = socket.socket(family, kind, protocol)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if sys.platform == "linux" and limits is not None:
                milliseconds = min(math.ceil(1000 * limits.seconds), 2**31 - 1)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)
            sock.bind(address)
        except OSError:
            sock.close()
            raise
    except OSError as error:
        raise OSError(error.errno, error.strerror, f"{host}:{port}") from None
    return sock


def uvicorn_config(app: FastAPI, limits: Limits) -> uvicorn.Config:
    """Settings of uvicorn for the application."""
    return uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        limit_concurrency=limits.connections,
        timeout_keep_alive=30,
        # Longer than a request may take: only clients that do not read are left by then.
        timeout_graceful_shutdown=math.ceil(2 * limits.seconds) + 5,
    )


def run_server(app: FastAPI, sock: socket.socket, limits: Limits) -> None:
    """Serve until SIGTERM or SIGINT; then answer what was accepted and return."""
    configure_logging()
    host, port = sock.getsockname()[:2]
    address = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    log_event("serving", address=address)
    # uvicorn raises the signal again at its end; by then there is nothing left to do.
    before = signal.signal(signal.SIGTERM, lambda number, frame: None)
    try:
        Server(uvicorn_config(app, limits), app).run(sockets=[sock])
    finally:
        signal.signal(signal.SIGTERM, before)
