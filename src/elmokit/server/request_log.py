"""Every request is counted, timed, named and logged; every failure becomes an answer."""

from __future__ import annotations

import logging
import re
import time
from uuid import uuid4

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from elmokit.server import logs
from elmokit.server.metrics import Metrics

REQUEST_ID = re.compile(r"[\w.:-]{1,64}", re.ASCII)
CLIENT_LEFT = 499
"""What logs and metrics say when nobody was there to read the answer."""
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    # The page loads nothing from elsewhere, and nobody may frame it.
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data: blob:; "
    "style-src 'self' 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'",
}


class RequestLogMiddleware:
    """Stands around everything else.

    Args:
        app: What is watched.
        metrics: Where requests are counted.
        log_texts: Put what clients send into the log.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics, log_texts: bool) -> None:
        self._app = app
        self._metrics = metrics
        self._log_texts = log_texts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """RequestLogMiddleware one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = Headers(scope=scope).get("x-request-id", "")
        name = given if REQUEST_ID.fullmatch(given) else uuid4().hex
        status = 0
        notes = scope.setdefault("state", {})
        notes["log"] = {}
        began = time.perf_counter()

        async def named(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                headers["X-Request-ID"] = name
                for header, value in HEADERS.items():
                    headers.setdefault(header, value)
                if scope["app"].state.service.draining:
                    headers["Connection"] = "close"  # so that the client goes elsewhere
            await send(message)

        self._metrics.begin()
        try:
            await self._app(scope, receive, named)
        except Exception:
            logs.problem("failure", request=name, path=scope["path"])
            if not status:
                detail = f"something went wrong inside the service; its log has it under {name}"
                await JSONResponse({"detail": detail}, 500)(scope, receive, named)
        finally:
            seconds = time.perf_counter() - began
            self._finish(scope, name, status, seconds, notes["log"])

    def _finish(
        self, scope: Scope, name: str, status: int, seconds: float, fields: dict[str, object]
    ) -> None:
        # Paths that no route has would each be a time series of their own.
        route = getattr(scope.get("route"), "path", "other")
        self._metrics.end(route, status or CLIENT_LEFT, seconds)
        if not self._log_texts:
            fields.pop("texts", None)
        logs.event(
            "request",
            logging.INFO,
            request=name,
            method=scope["method"],
            path=scope["path"],
            status=status or CLIENT_LEFT,
            ms=round(seconds * 1000, 1),
            **fields,
        )
