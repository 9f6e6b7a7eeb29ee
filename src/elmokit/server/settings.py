"""Settings of a service: limits, and who may call it."""

from __future__ import annotations

import ipaddress
import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from elmokit.errors import ConfigError

TOKENS_VARIABLE = "ELMOKIT_TOKENS"
"""Bearer tokens in the environment, between commas or spaces."""
SHORTEST_TOKEN = 16
ORIGIN = re.compile(r"([a-z][a-z0-9+.-]*)://([a-z0-9._-]+|\[[0-9a-f:.]+\])(?::([0-9]{1,5}))?/?")
DEFAULT_PORTS = {"http": 80, "https": 443}
"""Default ports, which browsers leave out."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of requests and answers, and how requests are batched. All are positive numbers."""

    body_bytes: int = 2 << 20
    """Bytes of a request's body; more is answered with 413."""
    sentences: int = 1024
    """Sentences of one request."""
    tokens: int = 16_384
    """Tokens of one request."""
    word_characters: int = 1000
    """Characters of one token."""
    answer_numbers: int = 8 << 20
    """Numbers in one answer: tokens x layers x width; characters for uses of a word."""
    inspected_tokens: int = 64
    """Tokens of a sentence given to ``/v1/inspect``."""
    queue_requests: int = 1024
    """Requests in the queue; more are answered with 429."""
    queue_tokens: int = 131_072
    """Tokens in the queue; more are answered with 429."""
    seconds: float = 30.0
    """Time for a body to arrive, to compute an answer, and for a client to read any of it."""
    batch_tokens: int = 4096
    """The most tokens run together."""
    wait_ms: float = 5.0
    """How long a single request waits for others to share its batch."""
    connections: int = 1024
    """Open connections; more are answered with 503."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not (value > 0 and math.isfinite(value)):
                raise ConfigError(f"{field.name}={value!r}: give a positive, finite number")
        if self.queue_tokens < self.tokens:
            raise ConfigError(
                f"queue_tokens={self.queue_tokens} is below tokens={self.tokens}: a request of "
                "the largest size could never be accepted; raise queue_tokens (--queue-tokens), or "
                "lower tokens (--max-tokens)"
            )


@dataclass(frozen=True, kw_only=True)
class Access:
    """Who may call the service."""

    tokens: tuple[str, ...] = ()
    """Bearer tokens; if there are any, every request must have one of them."""
    hosts: tuple[str, ...] = ()
    """Names in the Host header, besides ``localhost`` and addresses made of numbers."""
    origins: tuple[str, ...] = ()
    """Other origins whose pages may call the service, such as ``https://example.org``."""

    def __post_init__(self) -> None:
        for token in self.tokens:
            if len(token) < SHORTEST_TOKEN or not token.isascii() or not token.isprintable():
                raise ConfigError(
                    f"a token has {len(token)} characters: use at least {SHORTEST_TOKEN} letters "
                    "and digits, such as `openssl rand -hex 32` makes"
                )
        object.__setattr__(self, "origins", tuple(map(_origin, self.origins)))


def _origin(given: str) -> str:
    """An origin as browsers write it."""
    found = ORIGIN.fullmatch(given.lower())
    if found is None:
        raise ConfigError(
            f"{given!r:.80} is not an origin: write one site as scheme://host[:port], such as "
            "https://example.org (there is no wildcard)"
        )
    scheme, host, port = found.groups()
    default = port is None or int(port) == DEFAULT_PORTS.get(scheme)
    return f"{scheme}://{host}" if default else f"{scheme}://{host}:{int(port)}"


def read_tokens(path: Path | None, environment: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """Tokens of a file, one per line, and of the environment. Never from the command line."""
    found = environment.get(TOKENS_VARIABLE, "").replace(",", " ").split()
    if path is not None:
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path}: the tokens cannot be read ({error})") from None
        named = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
        if not named:
            raise ConfigError(f"{path}: there is no token in it; write one per line")
        found += named
    return tuple(dict.fromkeys(found))


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a service at this address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
