"""Logs as JSON, one object per line, and the middleware that counts and logs every request.

What clients send is in the logs only with ``log_texts``.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import time
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from elmokit.server.metrics import Metrics

NAME = "elmokit.server"
FIELDS = "elmokit_fields"
"""Attribute of a log record that holds further fields."""
REQUEST_ID = re.compile(r"[\w.:-]{1,64}", re.ASCII)
CLIENT_LEFT = 499
"""Status in logs and metrics of a request whose client disconnected before the answer."""
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


class RequestLogMiddleware:
    """The outermost middleware: gives requests an id, counts, times and logs them.

    An exception that no handler took becomes an answer with status 500.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics, log_texts: bool) -> None:
        self._app = app
        self._metrics = metrics
        self._log_texts = log_texts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run one request and log it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = Headers(scope=scope).get("x-request-id", "")
        request_id = given if REQUEST_ID.fullmatch(given) else uuid4().hex
        status = 0
        notes = scope.setdefault("state", {})
        notes["log"] = {}
        start = time.perf_counter()

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                headers["X-Request-ID"] = request_id
                for header, value in HEADERS.items():
                    headers.setdefault(header, value)
                if scope["app"].state.service.draining:
                    headers["Connection"] = "close"  # so that the client connects elsewhere
            await send(message)

        self._metrics.in_flight.inc()
        try:
            await self._app(scope, receive, send_with_headers)
        except Exception:
            log_event("failure", failed=True, request=request_id, path=scope["path"])
            if not status:
                detail = f"internal error; the service's log has it under {request_id}"
                await JSONResponse({"detail": detail}, 500)(scope, receive, send_with_headers)
        finally:
            seconds = time.perf_counter() - start
            status = status or CLIENT_LEFT
            # Paths that no route has would each be a time series of their own.
            self._metrics.end(getattr(scope.get("route"), "path", "other"), status, seconds)
            fields = notes["log"]
            if not self._log_texts:
                fields.pop("texts", None)
            log_event(
                "request",
                request=request_id,
                method=scope["method"],
                path=scope["path"],
                status=status,
                ms=round(seconds * 1000, 1),
                **fields,
            )
