"""Settings of a service: limits, and who may call it."""

from __future__ import annotations

import hashlib
import ipaddress
import math
import os
import re
from collections.abc import MutableMapping
from dataclasses import dataclass, field, fields
from pathlib import Path

from elmokit.errors import ConfigError

TOKENS_VARIABLE = "ELMOKIT_TOKENS"
"""Bearer tokens in the environment, between commas or spaces."""
SHORTEST_TOKEN = 16
TOKEN_NAME = re.compile(r"[\w.-]{1,64}", re.ASCII)
CHARACTERS = 16
"""Characters of a request's texts for every token that it may have."""
ORIGIN = re.compile(r"([a-z][a-z0-9+.-]*)://([a-z0-9._-]+|\[[0-9a-f:.]+\])(?::([0-9]{1,5}))?/?")
DEFAULT_PORTS = {"http": 80, "https": 443}
"""Default ports, which browsers leave out."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of requests and answers, and how requests are batched. All are positive numbers."""

    head_bytes: int = 32 << 10
    """Bytes of a request's line and headers."""
    body_bytes: int = 2 << 20
    """Bytes of a request's body; more is answered with 413."""
    sentences: int = 1024
    """Sentences of one request."""
    tokens: int = 16_384
    """Tokens of one request. Its texts may have `CHARACTERS` times as many characters."""
    sentence_tokens: int = 4096
    """Tokens of one sentence, which cannot be divided among batches."""
    word_characters: int = 1000
    """Characters of one token."""
    answer_numbers: int = 8 << 20
    """Numbers in one answer: tokens x layers x width; characters for uses of a word."""
    inspected_tokens: int = 64
    """Tokens of a sentence given to ``/v1/inspect``."""
    queue_requests: int = 1024
    """Requests in the queue; more are answered with 429. One client may have half of them."""
    queue_tokens: int = 131_072
    """Tokens in the queue; more are answered with 429. One client may have half of them."""
    memory_bytes: int = 1 << 30
    """Bytes of bodies and answers held at a time; more are answered with 503."""
    seconds: float = 30.0
    """Time for a body to arrive, and to compute an answer. To read an answer a client has as long,
    and a second for every MiB."""
    idle_seconds: float = 30.0
    """How long a connection may be without a request, until the next one's headers are there."""
    batch_tokens: int = 4096
    """The most tokens run together."""
    wait_ms: float = 5.0
    """How long a single request waits for others to share its batch."""
    connections: int = 1024
    """Open connections, or three quarters of the files that the process may open if that is less.
    For another one, the connection that has waited longest for a request is closed."""

    def __post_init__(self) -> None:
        for limit in fields(self):
            value = getattr(self, limit.name)
            if not (value > 0 and math.isfinite(value)):
                raise ConfigError(f"{limit.name}={value!r}: give a positive, finite number")
        if self.queue_tokens < self.tokens:
            raise ConfigError(
                f"queue_tokens={self.queue_tokens} is below tokens={self.tokens}: a request of "
                "the largest size could never be accepted; raise queue_tokens (--queue-tokens), or "
                "lower tokens (--max-tokens)"
            )


@dataclass(frozen=True)
class Token:
    """A bearer token: its name for the log, and its digest. The token itself is not kept."""

    name: str
    digest: bytes = field(repr=False)


def digest_of(token: str) -> bytes:
    """The digest that is compared. A token is long and random, so it needs no salt."""
    return hashlib.sha256(token.encode("utf-8", "replace")).digest()


def make_token(token: str, name: str) -> Token:
    """A token under a name.

    Raises:
        ConfigError: It is too short, or holds unusual characters.
    """
    if len(token) < SHORTEST_TOKEN or not token.isascii() or not token.isprintable():
        raise ConfigError(
            f"a token has {len(token)} characters: use at least {SHORTEST_TOKEN} letters "
            "and digits, such as `openssl rand -hex 32` makes"
        )
    return Token(name, digest_of(token))


@dataclass(frozen=True, kw_only=True)
class Access:
    """Who may call the service."""

    tokens: tuple[str | Token, ...] = ()
    """Bearer tokens; if there are any, every request must have one of them."""
    token_file: Path | None = None
    """A file with more of them, which is read again when it changes."""
    hosts: tuple[str, ...] = ()
    """Names in the Host header, besides ``localhost`` and addresses made of numbers."""
    origins: tuple[str, ...] = ()
    """Other origins whose pages may call the service, such as ``https://example.org``."""

    def __post_init__(self) -> None:
        named = tuple(
            given if isinstance(given, Token) else make_token(given, f"token{number}")
            for number, given in enumerate(self.tokens, 1)
        )
        object.__setattr__(self, "tokens", named)
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


def environment_tokens(environment: MutableMapping[str, str] = os.environ) -> tuple[Token, ...]:
    """Tokens of the environment, which are removed from it: programs started later inherit it."""
    given = environment.pop(TOKENS_VARIABLE, "").replace(",", " ").split()
    return tuple(
        make_token(token, f"environment{number}")
        for number, token in enumerate(dict.fromkeys(given), 1)
    )


def read_tokens(path: Path) -> tuple[Token, ...]:
    """Tokens of a file, one per line: ``TOKEN``, or ``NAME TOKEN``. Never from the command line.

    Raises:
        ConfigError: It cannot be read, or a line is wrong. The message does not show the line.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigError(f"{path}: the tokens cannot be read ({reason})") from None
    found: dict[bytes, Token] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, token = ([f"line{number}", *line.split()])[-2:]
        if len(line.split()) > 2 or not TOKEN_NAME.fullmatch(name):
            raise ConfigError(f"{path}, line {number}: write TOKEN, or NAME TOKEN")
        try:
            made = make_token(token, name)
        except ConfigError as error:
            raise ConfigError(f"{path}, line {number}: {error}") from None
        found.setdefault(made.digest, made)
    if not found:
        raise ConfigError(f"{path}: there is no token in it; write one per line")
    return tuple(found.values())


def open_files() -> int:
    """How many files the process may open."""
    try:
        import resource
    except ImportError:  # Windows
        return 2048
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft if soft != resource.RLIM_INFINITY else 1 << 20


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a service at this address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
