"""One file from the first of its addresses that gives it, whole or not at all.

HTTP is the work of requests (connections, TLS, proxies, ``.netrc``). Of the well-kept downloaders,
pooch cannot resume, and huggingface_hub resumes without asking whether the file is still the same
one; both follow redirects anywhere. So the rest is here: retries, ``Range`` with ``If-Range``,
bounds, and the check that what came is the file and not a page about it.

The received bytes are in a ``.part`` file, with a ``.state`` beside it that says from where they
are and how many have reached the disk. An interrupted download leaves both, and the next one
resumes. The file appears at its path, by one system call, after all checks.
"""

from __future__ import annotations

import hashlib
import ipaddress
import json
import os
import re
import shutil
import socket
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple
from urllib.parse import unquote, urljoin, urlsplit, urlunsplit

from elmokit.checkpoints.archives import extracted
from elmokit.errors import CheckpointError, ConfigError, DataError, ElmokitError, reason
from elmokit.files import disk_errors, read_json, write_text
from elmokit.limits import ENVIRONMENT as LIMITS
from elmokit.limits import current

if TYPE_CHECKING:
    import requests

MIRROR = "ELMOKIT_MIRROR"
"""A prefix: ``https://HOST/PATH`` is then asked for at ``PREFIX/HOST/PATH``, and nowhere else."""

_HUB_HOST = "huggingface.co"
_REDIRECTS = 10
_REDIRECTING = (301, 302, 303, 307, 308)
_BLOCK = 1 << 20
_FLUSH = 64 << 20
"""Bytes between two flushes to the disk: what a power failure costs at most."""
_FAKE_ADDRESSES = ipaddress.ip_network("198.18.0.0/15")
"""Programs that route all traffic of a machine answer each name with one of these."""
_RETRIED = {
    HTTPStatus.REQUEST_TIMEOUT,
    HTTPStatus.TOO_EARLY,
    HTTPStatus.TOO_MANY_REQUESTS,
    HTTPStatus.INTERNAL_SERVER_ERROR,
    HTTPStatus.BAD_GATEWAY,
    HTTPStatus.SERVICE_UNAVAILABLE,
    HTTPStatus.GATEWAY_TIMEOUT,
}
_SIGNATURES = {
    ".hdf5": (b"\x89HDF\r\n\x1a\n", "HDF5"),
    ".h5": (b"\x89HDF\r\n\x1a\n", "HDF5"),
    ".zip": (b"PK", "zip"),
    ".gz": (b"\x1f\x8b", "gzip"),
    ".tgz": (b"\x1f\x8b", "gzip"),
    ".bz2": (b"BZh", "bzip2"),
    ".xz": (b"\xfd7zXZ\0", "xz"),
}
"""How files begin, by the ending of their names."""
_ARCHIVES = (".zip", ".tar", ".tgz", ".tar.gz", ".tar.bz2", ".tar.xz")
_PAGES = (b"<!doctype", b"<html", b"<head", b"<body", b"<?xml")
_LFS_POINTER = b"version https://git-lfs"


class Patience(NamedTuple):
    """How long a server is waited for, and how often it is asked again."""

    connect_s: float = 15.0
    stall_s: float = 30.0
    """Without a byte."""
    window_s: float = 60.0
    window_bytes: int = 64 << 10
    """A connection that brings less in a window is dropped."""
    tries: int = 5
    """In a row, in which less than `progress` bytes come."""
    progress: int = 1 << 20
    first_wait_s: float = 1.0
    """Doubled for each further try."""
    most_wait_s: float = 60.0
    """A server that asks for more (Retry-After) has failed."""


PATIENCE: Patience = Patience()


@dataclass(frozen=True)
class RemoteFile:
    """A file that can be fetched."""

    name: str
    addresses: Sequence[str]
    """In the order in which they are tried."""
    size: int | None = None
    """Exact, where a document states it."""
    about: int | None = None
    """Rounded; a file of more than four times as many bytes is another one."""
    checksums: Mapping[str, str] = field(default_factory=dict)
    """Digests in hexadecimal, by algorithm: ``sha256``, ``sha1``, ``md5``."""
    plain_http: bool = False
    """Whether ``http://`` will do, because nothing else is published."""


class TransferError(CheckpointError):
    """No address gave the file; `said` has what each of them answered."""

    def __init__(self, name: str, said: Sequence[tuple[str, str]]) -> None:
        self.said: tuple[tuple[str, str], ...] = tuple(said)
        answers = "; ".join(f"{address}: {answer}" for address, answer in said)
        super().__init__(f"{name} cannot be downloaded. Tried {answers}")


class _FailedError(Exception):
    """This address does not give the file."""


class _BrokenError(Exception):
    """It may give it when asked again, after `wait` seconds if the server said so."""

    def __init__(self, message: str, wait: float | None = None) -> None:
        super().__init__(message)
        self.wait = wait


def is_address(source: object) -> bool:
    """Whether a source is an address of the web."""
    return isinstance(source, str) and source.lower().startswith(("https://", "http://"))


def shown(address: str) -> str:
    """An address for messages and records, without a password."""
    parts = urlsplit(address)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def fetch(file: RemoteFile, path: Path, part: Path) -> str:
    """Fetch a file to `path`, by way of `part`, and return the address that gave it, as `shown`.

    The caller holds a lock: nobody else writes `part`.

    Raises:
        TransferError: No address gave it.
        OSError: It cannot be written.
    """
    said: list[tuple[str, str]] = []
    for address in file.addresses:
        asked = _mirrored(address)
        try:
            _refuse_plain_http(asked, file)
            with disk_errors(path):
                _Transfer(file, asked, part).run()
        except _FailedError as error:
            said.append((shown(asked), str(error)))
            continue
        os.replace(part, path)
        _record(part).unlink(missing_ok=True)
        return shown(asked)
    raise TransferError(file.name, said)


def _mirrored(address: str) -> str:
    prefix = os.environ.get(MIRROR, "").rstrip("/")
    if not prefix:
        return address
    if not is_address(prefix):
        raise ConfigError(f"{MIRROR}={prefix}: give an address that begins with https://")
    parts = urlsplit(shown(address))
    return f"{prefix}/{parts.netloc}{parts.path}" + (f"?{parts.query}" if parts.query else "")


def _refuse_plain_http(address: str, file: RemoteFile) -> None:
    parts = urlsplit(address)
    if parts.scheme != "http" or _is_loopback(parts.hostname or ""):
        return
    if not file.plain_http and not os.environ.get(MIRROR):
        raise _FailedError(
            "http is refused, since anybody on the way can change the file. Write https; if there "
            "is none, download it with a browser and load the file"
        )
    warnings.warn(
        f"{file.name} comes from {parts.hostname} over plain http, where anybody on the way can "
        "change it",
        stacklevel=2,
    )


class _Transfer:
    """One file from one address: tries, redirects, resumption."""

    def __init__(self, file: RemoteFile, address: str, part: Path) -> None:
        self.file = file
        self.address = address
        self.part = part
        most = current().download_gib << 30
        self.limit = min(file.size or (4 * file.about if file.about else most), most)
        self.received = 0  # bytes, in this call
        self.total: int | None = None
        self.resumed = False

    def run(self) -> None:
        """Let `part` hold the whole file, checked."""
        import requests

        with requests.Session() as session:
            self._download(session)
            try:
                _check(self.file, self.part)
            except _FailedError:
                self._discard()
                if not self.resumed:
                    raise
                self._download(session)  # the halves may have been of two files
                _check(self.file, self.part)

    def _download(self, session: requests.Session) -> None:
        tries = since = 0
        while True:
            try:
                return self._try(session)
            except _BrokenError as error:
                tries += 1
                if self.received - since >= PATIENCE.progress:
                    tries, since = 1, self.received
                wait = error.wait
                if wait is None:
                    wait = min(PATIENCE.first_wait_s * 2 ** (tries - 1), PATIENCE.most_wait_s)
                if wait > PATIENCE.most_wait_s:
                    raise _FailedError(f"{error}, to be asked again in {wait:.0f} s") from None
                if tries >= PATIENCE.tries:
                    raise _FailedError(f"{error}, {tries} times") from None
                time.sleep(wait)

    def _try(self, session: requests.Session) -> None:
        import requests
        from urllib3.exceptions import HTTPError, ProtocolError, ReadTimeoutError

        have, validator = self._stored()
        if have and have == self.total:
            return
        headers = {"Accept-Encoding": "identity", "User-Agent": "elmokit"}
        if have:
            headers["Range"] = f"bytes={have}-"
            if validator:
                headers["If-Range"] = validator
        try:
            with self._open(session, headers) as response:
                self._receive(response, have, validator)
        except requests.exceptions.SSLError as error:
            raise _FailedError(f"no secure connection ({_cause(error)})") from None
        except (requests.exceptions.ReadTimeout, ReadTimeoutError):
            raise _BrokenError(f"silent for {PATIENCE.stall_s:g} s") from None
        except requests.exceptions.ConnectionError as error:
            if isinstance(error.args[0] if error.args else None, ProtocolError):
                raise _BrokenError("no answer that is HTTP") from None
            # A host that has given something is worth a further try; one that never did is not.
            kind = _BrokenError if self.received else _FailedError
            raise kind(f"no connection ({_cause(error)})") from None
        except HTTPError:  # while the body is read
            raise _BrokenError("broke off") from None
        except ElmokitError:
            raise
        except (requests.exceptions.RequestException, ValueError) as error:  # an odd address
            raise _FailedError(reason(error)) from None

    def _stored(self) -> tuple[int, str]:
        """How much of the file is there, and the validator (ETag, or date) it came with."""
        with suppress(CheckpointError, OSError, KeyError):
            record = read_json(_record(self.part))
            size, validator = record["flushed"], str(record["validator"])
            # Without a validator only a checksum can tell that both halves are of one file.
            same = record["address"] == self._mark() and bool(validator or self.file.checksums)
            if same and type(size) is int and 0 < size <= self.part.stat().st_size:
                self.total, self.resumed = record.get("total"), True
                return size, validator
        return 0, ""

    def _mark(self) -> str:
        """The address in the record; it may hold a password."""
        return hashlib.sha256(self.address.encode()).hexdigest()

    def _discard(self) -> None:
        _record(self.part).unlink(missing_ok=True)
        self.part.unlink(missing_ok=True)

    @contextmanager
    def _open(
        self, session: requests.Session, headers: Mapping[str, str]
    ) -> Iterator[requests.Response]:
        """The answer behind all redirects."""
        address, own = self.address, _credentials(self.address)
        for _ in range(_REDIRECTS + 1):
            response = session.get(
                address,
                headers=headers,
                auth=own if _origin(address) == _origin(self.address) else _no_credentials,
                allow_redirects=False,
                stream=True,
                timeout=(PATIENCE.connect_s, PATIENCE.stall_s),
            )
            with response:
                target = response.headers.get("Location")
                if target is None or response.status_code not in _REDIRECTING:
                    yield response
                    return
            address = _redirected(urljoin(address, target), address)
        raise _FailedError(f"more than {_REDIRECTS} redirects")

    def _receive(self, response: requests.Response, have: int, validator: str) -> None:
        status = response.status_code
        if status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and have:
            self._discard()
            raise _BrokenError("the file has changed", wait=0)
        if status in _RETRIED:
            raise _BrokenError(_status(status), _retry_after(response))
        if status not in (HTTPStatus.OK, HTTPStatus.PARTIAL_CONTENT):
            raise _FailedError(_status(status))
        encoding = response.headers.get("Content-Encoding", "identity").lower()
        if encoding != "identity" and not self.file.name.endswith((".gz", ".tgz")):
            raise _FailedError(f"sent with the encoding {encoding!r:.40}, which was not asked for")
        now, total = _validator(response), _length(response)
        if status == HTTPStatus.PARTIAL_CONTENT:
            start, total = _content_range(response)
            if not have or start != have or (now and validator and now != validator):
                self._discard()
                raise _BrokenError("sent another part than was asked for", wait=0)
        else:
            have = 0
        self.resumed = have > 0
        self._check_size(total, have)
        if not have:
            _record(self.part).unlink(missing_ok=True)  # it describes what is overwritten now
        with self.part.open("r+b" if have else "wb") as out:
            out.truncate(have)  # behind the flushed bytes a power failure may have left zeros
            out.seek(have)
            self._copy(response, out, total, now or validator)
        if total is not None and self.part.stat().st_size != total:
            raise _BrokenError("broke off")

    def _check_size(self, total: int | None, have: int) -> None:
        if total is None:
            return
        if total > self.limit or total != (self.file.size or total):
            raise _FailedError(self._wrong_size(f"{total:,} bytes"))
        free = shutil.disk_usage(self.part.parent).free
        if total - have > free:
            raise DataError(
                f"{self.file.name} has {total:,} bytes, and {free:,} are free in "
                f"{self.part.parent}; set ELMOKIT_CACHE to a folder on another disk"
            )

    def _wrong_size(self, size: str) -> str:
        gib = current().download_gib
        if self.limit < gib << 30:
            stated = f"{self.file.size:,}" if self.file.size else f"about {self.file.about:,}"
            return f"{size}, not {stated} as documented"
        return f"{size}, and the limit is {gib} GiB ({LIMITS}=download_gib={10 * gib} raises it)"

    def _copy(
        self, response: requests.Response, out: IO[bytes], total: int | None, validator: str
    ) -> None:
        """Write the body, and record how much of it is on the disk, however this ends."""
        from tqdm.auto import tqdm

        state = {"address": self._mark(), "validator": validator, "total": total}

        def flush() -> None:
            out.flush()
            os.fsync(out.fileno())
            write_text(_record(self.part), json.dumps({**state, "flushed": out.tell()}))

        # As for all progress: nothing where standard error is no terminal.
        have, unit = out.tell(), {"unit": "B", "unit_scale": True, "disable": None}
        with tqdm(total=total, initial=have, desc=self.file.name, **unit) as bar:
            try:
                for block in _blocks(response):
                    if not out.tell():
                        _check_start(self.file.name, block)
                    out.write(block)
                    self.received += len(block)
                    bar.update(len(block))
                    if out.tell() > self.limit:
                        raise _FailedError(self._wrong_size(f"more than {self.limit:,} bytes"))
                    if out.tell() - have >= _FLUSH:
                        flush()
                        have = out.tell()
                flush()
            except (_FailedError, OSError):  # not the file, or the disk is full or broken
                bar.leave = False
                out.close()
                self._discard()
                raise
            except BaseException:
                bar.leave = False
                flush()
                raise


def _blocks(response: requests.Response) -> Iterator[bytes]:
    """The body as it arrives, as long as it arrives fast enough."""
    start, count = time.monotonic(), 0
    while block := response.raw.read1(_BLOCK, decode_content=False):
        yield block
        count += len(block)
        if (seconds := time.monotonic() - start) > PATIENCE.window_s:
            if count < PATIENCE.window_bytes:
                raise _BrokenError(f"too slow, {count:,} bytes in {seconds:.0f} s")
            start, count = time.monotonic(), 0


def _no_credentials(request: requests.PreparedRequest) -> requests.PreparedRequest:
    """Given to requests, which would look into .netrc without it."""
    return request


def _credentials(
    address: str,
) -> Callable[[requests.PreparedRequest], requests.PreparedRequest] | None:
    """A password of the address, or the hub's token for the hub.

    None lets requests look into .netrc, for https alone.
    """
    from requests.auth import HTTPBasicAuth

    parts = urlsplit(address)
    if parts.username is not None:
        return HTTPBasicAuth(unquote(parts.username), unquote(parts.password or ""))
    if parts.scheme != "https":
        return _no_credentials
    if parts.hostname != _HUB_HOST:
        return None
    from huggingface_hub import get_token

    token = get_token()

    def add(request: requests.PreparedRequest) -> requests.PreparedRequest:
        if token:
            request.headers["Authorization"] = f"Bearer {token}"
        return request

    return add


def _origin(address: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(address)
    return parts.scheme, parts.hostname, parts.port


def _redirected(target: str, origin: str) -> str:
    """Where a redirect may lead to."""
    parts, before = urlsplit(target), urlsplit(origin)
    host = parts.hostname or ""
    if parts.scheme not in ("http", "https") or not host:
        raise _FailedError(f"a redirect to {shown(target)!r:.200}, which is no address of the web")
    if before.scheme == "https" and parts.scheme != "https":
        raise _FailedError(f"a redirect from https to http, to {host}; refused")
    if host != before.hostname and _is_private(target, host):
        raise _FailedError(f"a redirect into a private network, to {host}; refused")
    return target


def _is_loopback(host: str) -> bool:
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


def _is_private(address: str, host: str) -> bool:
    """Whether a host is, or has an address, in a network that strangers cannot reach."""
    from requests.utils import get_environ_proxies, select_proxy

    found = {host}
    # Behind a proxy, names are the proxy's business; here they may have no address at all.
    if host != "localhost" and select_proxy(address, get_environ_proxies(address)) is None:
        with suppress(OSError, UnicodeError):  # then there will be no connection either
            found |= {str(row[4][0]).partition("%")[0] for row in socket.getaddrinfo(host, None)}
    for text in found:
        with suppress(ValueError):
            number = ipaddress.ip_address(text)
            if isinstance(number, ipaddress.IPv6Address):
                number = number.ipv4_mapped or number
            if not number.is_global and number not in _FAKE_ADDRESSES:
                return True
    return host == "localhost"


def _cause(error: BaseException) -> str:
    """What went wrong with a connection, without the objects that requests wraps it in."""
    inner = getattr(error.args[0], "reason", None) if error.args else None
    return re.sub(r"^.*?(?:>|\)): (?=\S)", "", reason(inner or error))


def _status(status: int) -> str:
    try:
        return f"HTTP {status} {HTTPStatus(status).phrase}"
    except ValueError:
        return f"HTTP {status}"


def _retry_after(response: requests.Response) -> float | None:
    text = response.headers.get("Retry-After", "").strip()
    if text.isdecimal():
        return float(text[:9])
    with suppress(ValueError, TypeError):
        return max(0.0, parsedate_to_datetime(text).timestamp() - time.time())
    return None


def _validator(response: requests.Response) -> str:
    """What ``If-Range`` takes: a strong ETag, or a date."""
    tag = response.headers.get("ETag", "")
    return tag if tag.startswith('"') else response.headers.get("Last-Modified", "")


def _length(response: requests.Response) -> int | None:
    text = response.headers.get("Content-Length", "")
    return int(text) if text.isdecimal() and len(text) < 20 else None


def _content_range(response: requests.Response) -> tuple[int, int | None]:
    """Start and total of ``bytes 100-199/200``; a start of -1 if it is something else."""
    text = response.headers.get("Content-Range", "")
    found = re.fullmatch(r"bytes (\d{1,19})-(\d{1,19})/(\d{1,19}|\*)", text.strip())
    if found is None:
        return -1, None
    return int(found[1]), None if found[3] == "*" else int(found[3])


def _record(part: Path) -> Path:
    return part.with_name(f"{part.name}.state")


def _check_start(name: str, start: bytes) -> None:
    """Refuse a page, or a pointer to a file, that has been sent instead of the file."""
    if start.lstrip()[:9].lower().startswith(_PAGES):
        raise _FailedError("a web page instead of the file")
    if start.startswith(_LFS_POINTER):
        raise _FailedError("a pointer of Git LFS instead of the file")
    signature, kind = _SIGNATURES.get(Path(name).suffix.lower(), (b"", ""))
    if not start.startswith(signature[: len(start)]):
        raise _FailedError(f"something that is no {kind} file")


def _check(file: RemoteFile, part: Path) -> None:
    """Refuse a file that is not the documented one, or that can be seen not to be whole."""
    size = part.stat().st_size
    if size != (file.size or size):
        raise _FailedError(f"{size:,} bytes, not the {file.size:,} that are documented")
    with part.open("rb") as stream:
        _check_start(file.name, stream.read(64))
    for algorithm, expected in file.checksums.items():
        if (found := digest(part, algorithm)) != expected.lower():
            raise _FailedError(f"a file with the {algorithm} {found} instead of {expected}")
    name = file.name.lower()
    try:
        if name.endswith((".hdf5", ".h5")):
            import h5py

            h5py.File(part, "r", locking=False).close()  # it compares the size with its header
        elif name.endswith(".json"):
            read_json(part)
        elif name.endswith(_ARCHIVES):
            with extracted(part):
                pass
    except CheckpointError as error:
        raise _FailedError(str(error).replace(f"{part}: ", "")) from None
    except Exception as error:  # h5py raises nearly every built-in kind
        raise _FailedError(f"a damaged file ({reason(error)})") from None


def digest(path: Path, algorithm: str = "sha256") -> str:
    """A checksum of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest()
