"""The access middleware: refuses unknown hosts, other origins, missing tokens and large bodies."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from elmokit.server.settings import Access, Limits

PROTECTED = ("/v1/", "/metrics")
"""Paths that need a token. The others hold no data: health, the page, its files."""


class RefusedError(Exception):
    """A request that is answered instead of its route."""

    def __init__(self, status: int, detail: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.response = JSONResponse({"detail": detail}, status, headers)


class AccessMiddleware:
    """Checks host, origin, token and body size before a route is reached."""

    def __init__(self, app: ASGIApp, access: Access, limits: Limits) -> None:
        self._app = app
        self._limits = limits
        self._hosts = {host.lower() for host in access.hosts}
        self._origins = set(access.origins)
        # Digests have one length, so comparing them takes the same time for every token.
        self._digests = [_digest(token) for token in access.tokens]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse a request, or pass it on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
        elif refusal := self.refusal(scope["path"], Headers(scope=scope)):
            await refusal.response(scope, receive, send)
        else:
            await self._app(scope, _limited(receive, self._limits), send)

    def refusal(self, path: str, headers: Headers) -> RefusedError | None:
        """Why a request is refused; None if it is not."""
        host = headers.get("host", "")
        if not self._knows_host(host):
            # Against DNS rebinding: a page of another site can give its own name this machine's
            # address, but it cannot make the browser send another Host.
            return RefusedError(421, f"this service does not answer to the host {host!r:.80}")
        origin = headers.get("origin")
        own = (f"http://{host}", f"https://{host}")
        if origin is not None and origin.lower() not in (*self._origins, *own):
            return RefusedError(403, f"pages of {origin!r:.80} may not call this service")
        if path.startswith(PROTECTED) and self._digests and not self._knows_token(headers):
            detail = "send a token of this service: Authorization: Bearer TOKEN"
            return RefusedError(401, detail, {"WWW-Authenticate": "Bearer"})
        length = headers.get("content-length", "")
        if length.isdecimal() and int(length) > self._limits.body_bytes:
            return _too_large(self._limits)
        return None

    def _knows_host(self, host: str) -> bool:
        try:
            name = urlsplit(f"//{host}").hostname or ""
            if name == "localhost" or name in self._hosts:
                return True
            ipaddress.ip_address(name.partition("%")[0])
        except ValueError:
            return False
        return True

    def _knows_token(self, headers: Headers) -> bool:
        scheme, _, token = headers.get("authorization", "").partition(" ")
        given = _digest(token.strip())
        # All are compared, so the time does not depend on which one matches.
        found = [hmac.compare_digest(given, digest) for digest in self._digests]
        return scheme.lower() == "bearer" and any(found)


def _too_large(limits: Limits) -> RefusedError:
    detail = f"the body has more than {limits.body_bytes} bytes; send less at a time"
    return RefusedError(413, detail)


def _limited(receive: Receive, limits: Limits) -> Receive:
    """Counts the bytes of a body as they arrive, and limits the time they take."""
    loop = asyncio.get_running_loop()
    end = loop.time() + limits.seconds
    count, more = 0, True

    async def counted() -> Message:
        nonlocal count, more
        if not more:
            return await receive()
        try:
            async with asyncio.timeout_at(end):
                message = await receive()
        except TimeoutError:
            detail = f"the body did not arrive within {limits.seconds:g} s"
            raise RefusedError(408, detail, {"Connection": "close"}) from None
        count += len(message.get("body", b""))
        more = message.get("more_body", False)
        if count > limits.body_bytes:
            raise _too_large(limits)
        return message

    return counted


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "replace")).digest()
