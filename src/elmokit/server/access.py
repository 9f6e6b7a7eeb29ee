"""The access middleware: refuses unknown hosts, other origins, missing tokens and large bodies."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import math
import os
import time
from collections import OrderedDict
from collections.abc import Mapping
from typing import TypeVar, cast
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from elmokit.errors import ConfigError
from elmokit.server.formats import error_answer
from elmokit.server.logs import Reservation, log_event
from elmokit.server.settings import Access, Limits, Token, digest_of, read_tokens

K = TypeVar("K")
V = TypeVar("V")

PROTECTED = ("/v1/", "/rerank", "/metrics")
"""Paths that need a token. The others hold no data: health, the page, its files."""
CHECK_SECONDS = 1.0
"""How often the token file is looked at."""
GUESSES = 10
"""Wrong tokens that an address may send at once; it may send one more every second."""
ADDRESSES = 4096
"""Addresses whose wrong tokens are counted, and as many that have sent a right one."""


class RefusedError(Exception):
    """A request that is answered instead of its route."""

    def __init__(self, status: int, detail: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self._answer = (status, detail, headers)

    def response(self, path: str) -> Response:
        """The answer to a request for this path."""
        return error_answer(path, *self._answer)


class TokenStore:
    """The valid tokens, as digests; those of a file are read again when it changes."""

    def __init__(self, access: Access) -> None:
        self._own = cast(tuple[Token, ...], access.tokens)
        self._path = access.token_file
        # None: the file is still to be read; (): it could not be read.
        self._stamp: tuple[int, ...] | None = None
        self._checked = -math.inf
        self._tokens = self._own if self._path is None else (*self._own, *read_tokens(self._path))
        self.required: bool = bool(self._tokens)
        """Whether requests need a token."""

    def expire(self) -> None:
        """Read the file again for the next request."""
        self._stamp, self._checked = None, -math.inf

    def find(self, digest: bytes) -> Token | None:
        """The token with this digest."""
        self._refresh()
        # All are compared, so the time does not depend on which one matches.
        found = [token for token in self._tokens if hmac.compare_digest(token.digest, digest)]
        return found[0] if found else None

    def _refresh(self) -> None:
        if self._path is None or time.monotonic() - self._checked < CHECK_SECONDS:
            return
        self._checked = time.monotonic()
        try:
            stamp = _stamp(os.stat(self._path))
            if stamp != self._stamp:
                self._tokens = (*self._own, *read_tokens(self._path))
                self._stamp = stamp
                log_event("tokens read", names=[token.name for token in self._tokens])
        except (OSError, ConfigError) as error:
            # A file that is being replaced must not lock everybody out, nor let anybody in.
            if self._stamp != ():
                log_event("tokens kept", reason=str(error))
            self._stamp = ()


def _stamp(status: os.stat_result) -> tuple[int, ...]:
    return status.st_mtime_ns, status.st_size, status.st_ino


class Guesses:
    """Slows down addresses that send wrong tokens; its memory is bounded.

    An address that has used up its guesses is refused unseen for a while, but not a token that was
    right from this address before: other clients behind one address keep working.
    """

    def __init__(self) -> None:
        self._wrong: OrderedDict[str, float] = OrderedDict()
        """Per address: when all its guesses will have been given back."""
        self._right: OrderedDict[tuple[str, bytes], None] = OrderedDict()

    def wait(self, address: str, digest: bytes) -> float:
        """Seconds until a token of this address is looked at; 0 if it may be now."""
        if (address, digest) in self._right:
            return 0.0
        return max(0.0, self._wrong.get(address, 0.0) - time.monotonic() - GUESSES + 1)

    def count(self, address: str, digest: bytes, right: bool) -> None:
        """Count a token that was looked at."""
        if right:
            _put(self._right, (address, digest), None)
        else:
            now = time.monotonic()
            _put(self._wrong, address, max(now, self._wrong.get(address, now)) + 1)


def _put(table: OrderedDict[K, V], key: K, value: V) -> None:
    """Set a value; the oldest one makes room."""
    table[key] = value
    table.move_to_end(key)
    if len(table) > ADDRESSES:
        table.popitem(last=False)


def client_address(scope: Scope) -> str:
    """The client's address; for IPv6 its network, since one client has many addresses in it."""
    host: str = (scope.get("client") or ["unknown"])[0]
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if address.version == 4:
        return host
    return str(ipaddress.ip_network((int(address), 64), strict=False).network_address)


class AccessMiddleware:
    """Checks host, origin, token and body size before a route is reached."""

    def __init__(self, app: ASGIApp, access: Access, tokens: TokenStore, limits: Limits) -> None:
        self._app = app
        self._limits = limits
        self._hosts = {host.lower() for host in access.hosts}
        self._origins = set(access.origins)
        self._tokens = tokens
        self._guesses = Guesses()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse a request, or pass it on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
        elif refusal := self._refusal(scope, Headers(scope=scope)):
            await refusal.response(scope["path"])(scope, receive, send)
        else:
            memory: Reservation = scope["state"]["memory"]
            await self._app(scope, _limited(receive, self._limits, memory), send)

    def _refusal(self, scope: Scope, headers: Headers) -> RefusedError | None:
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
        if self._tokens.required and scope["path"].startswith(PROTECTED):
            refusal = self._wrong_token(scope, headers)
            if refusal is not None:
                return refusal
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

    def _wrong_token(self, scope: Scope, headers: Headers) -> RefusedError | None:
        scheme, _, given = headers.get("authorization", "").partition(" ")
        token = None
        if given:
            address, digest = client_address(scope), digest_of(given.strip())
            if seconds := self._guesses.wait(address, digest):
                after = str(math.ceil(seconds))
                detail = f"too many wrong tokens from this address; try again in {after} s"
                return RefusedError(429, detail, {"Retry-After": after})
            token = self._tokens.find(digest) if scheme.lower() == "bearer" else None
            self._guesses.count(address, digest, token is not None)
        if token is None:
            detail = "send a token of this service: Authorization: Bearer TOKEN"
            return RefusedError(401, detail, {"WWW-Authenticate": "Bearer"})
        scope["state"]["log"]["who"] = token.name
        return None


def reserve(memory: Reservation, count: int) -> None:
    """Take memory for a request; a `RefusedError` if all requests together hold too much."""
    if not memory.take(count):
        detail = "the requests of this moment need too much memory; try again in 1 s"
        raise RefusedError(503, detail, {"Retry-After": "1"})


def _too_large(limits: Limits) -> RefusedError:
    detail = f"the body has more than {limits.body_bytes} bytes; send less at a time"
    return RefusedError(413, detail)


def _limited(receive: Receive, limits: Limits, memory: Reservation) -> Receive:
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
        size = len(message.get("body", b""))
        count += size
        more = message.get("more_body", False)
        if count > limits.body_bytes:
            raise _too_large(limits)
        reserve(memory, size)
        return message

    return counted
