"""Logs as JSON, one object per line, and the middleware that counts and logs every request.

What clients send is in the logs only with ``log_texts``.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from elmokit.server.formats import error_answer
from elmokit.server.metrics import CLIENT_LEFT, Metrics
from elmokit.server.settings import Limits

NAME = "elmokit.server"
FIELDS = "elmokit_fields"
"""Attribute of a log record that holds further fields."""
REQUEST_ID = re.compile(r"[\w.:-]{1,64}", re.ASCII)
CONNECTION = "elmokit_connection"
"""Key of a request's state that holds its connection, if the server gives one."""
PIECE_BYTES = 64 << 10
"""Answers are sent in pieces, each when the client has taken most of those before."""
BYTES_PER_SECOND = 1 << 20
"""How fast a client must read an answer, after the time that every answer has."""
LONGEST_PATH = 200
"""Characters of a path in the log."""
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    # The page loads nothing from other sites, and no site may frame it.
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data: blob:; "
    "style-src 'self' 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'",
}


class JsonFormatter(logging.Formatter):
    """One JSON object per record."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **getattr(record, FIELDS, {}),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=True, default=str)


def log_event(message: str, *, failed: bool = False, **fields: Any) -> None:
    """Log an event with its fields; a failure with the exception that is being handled."""
    level = logging.ERROR if failed else logging.INFO
    logging.getLogger(NAME).log(level, message, extra={FIELDS: fields}, exc_info=failed)


def configure_logging() -> None:
    """Send the logs of the service and of uvicorn to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    for name, level in ((NAME, logging.INFO), ("uvicorn", logging.WARNING)):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.setLevel(level)
        logger.propagate = False


@dataclass
class MemoryBudget:
    """Bytes of bodies and answers that requests hold, all together."""

    most: int
    taken: int = 0


class Reservation:
    """The bytes of one request."""

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget = budget
        self._taken = 0

    def take(self, count: int) -> bool:
        """Take more bytes unless that is too many; one request alone may always."""
        others = self._budget.taken - self._taken
        if others and self._budget.taken + count > self._budget.most:
            return False
        self._taken += count
        self._budget.taken += count
        return True

    def release(self) -> None:
        """The request has ended."""
        self._budget.taken -= self._taken
        self._taken = 0


class AnswerSender:
    """Sends an answer in pieces, and gives up if the client does not read them in time."""

    def __init__(self, send: Send, seconds: float, connection: Any) -> None:
        self._send = send
        self._end = seconds
        self._connection = connection
        self.status: int = 0

    async def send(self, message: Message) -> None:
        """Send the start of an answer, or (a part of) its body."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self._end += asyncio.get_running_loop().time()
        if message["type"] != "http.response.body":
            await self._send(message)
            return
        body, more = message.get("body", b""), message.get("more_body", False)
        for start in range(0, max(1, len(body)), PIECE_BYTES):
            if self.status == CLIENT_LEFT:
                return
            piece = body[start : start + PIECE_BYTES]
            last = start + PIECE_BYTES >= len(body)
            try:
                async with asyncio.timeout_at(self._end):
                    await self._send({**message, "body": piece, "more_body": more or not last})
            except TimeoutError:
                self.status = CLIENT_LEFT
                if self._connection is not None:
                    self._connection.abort()
                    await self._send(message)  # returns when the connection is closed
            self._end += len(piece) / BYTES_PER_SECOND


class RequestLogMiddleware:
    """The outermost middleware: gives requests an id, counts, times and logs them.

    Answers are sent in pieces, for a limited time. An exception that no handler took becomes an
    answer with status 500.
    """

    def __init__(
        self, app: ASGIApp, metrics: Metrics, limits: Limits, log_texts: bool = False
    ) -> None:
        self._app = app
        self._metrics = metrics
        self._limits = limits
        self._memory = MemoryBudget(limits.memory_bytes)
        self._log_texts = log_texts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run one request and log it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = Headers(scope=scope).get("x-request-id", "")
        request_id = given if REQUEST_ID.fullmatch(given) else uuid4().hex
        notes = scope.setdefault("state", {})
        connection = notes.pop(CONNECTION, None)
        notes["log"] = {}
        notes["memory"] = memory = Reservation(self._memory)
        answer = AnswerSender(send, self._limits.seconds, connection)
        start = time.perf_counter()

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers["X-Request-ID"] = request_id
                for header, value in HEADERS.items():
                    headers.setdefault(header, value)
                if scope["app"].state.service.draining:
                    headers["Connection"] = "close"  # so that the client connects elsewhere
            await answer.send(message)

        if connection is not None:
            connection.request_started()
        self._metrics.in_flight.inc()
        try:
            await self._app(scope, receive, send_with_headers)
        except Exception:
            log_event("failure", failed=True, request=request_id, path=scope["path"])
            if not answer.status:
                detail = f"internal error; the service's log has it under {request_id}"
                failure = error_answer(scope["path"], 500, detail)
                await failure(scope, receive, send_with_headers)
        finally:
            memory.release()
            if connection is not None:
                connection.request_ended()
            seconds = time.perf_counter() - start
            status = answer.status or CLIENT_LEFT
            # Paths that no route has would each be a time series of their own.
            self._metrics.end(getattr(scope.get("route"), "path", "other"), status, seconds)
            fields = notes["log"]
            if not self._log_texts:
                fields.pop("texts", None)
            log_event(
                "request",
                request=request_id,
                client=(scope.get("client") or [None])[0],
                method=scope["method"],
                path=scope["path"][:LONGEST_PATH],
                status=status,
                ms=round(seconds * 1000, 1),
                **fields,
            )
