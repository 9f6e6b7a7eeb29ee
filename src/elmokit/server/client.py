"""A client of ``elmokit serve``; it needs numpy only.

    client = Client("http://127.0.0.1:8000")
    client.encode(["We sat on the bank of the river ."], layers="all")   # as Elmo.encode
    client.substitutes("Paris is the capital of France .", word="capital")

A client keeps one connection and belongs to one thread.
"""

from __future__ import annotations

import http.client
import io
import json
import math
import time
from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from elmokit.errors import ConfigError, ElmokitError
from elmokit.text.tokens import check_sentences

Sentence = str | Sequence[str]
Word = str | None
Position = int | None
LATER = (429, 503)
"""Answers after which a request is sent again, if they have Retry-After."""
LONGEST_WAIT = 60.0
"""Seconds to wait at most before a request is sent again."""
MOST_BYTES = 1 << 30
"""Bytes of an answer; more are not read."""
STRANGE = "the answer is not one of elmokit serve"


class ServiceError(ElmokitError):
    """The service refused a request, or what answered is no such service.

    Attributes:
        status: The HTTP status; 0 if the answer was not HTTP.
        retry_after: Seconds after which it may be tried again, if the service said so.
    """

    def __init__(self, status: int, detail: str, retry_after: float | None = None) -> None:
        super().__init__(f"{status}: {detail}")
        self.status = status
        self.retry_after = retry_after


class Client:
    """A service's routes as methods.

    Args:
        address: Where it is, such as ``http://127.0.0.1:8000`` or ``https://example.org/elmo``.
        token: A bearer token, if the service needs one.
        model: The model that all requests are for; the service's first when left out.
        timeout: Seconds to wait for an answer.
        retries: How often a request is sent again after 429 or 503 with a Retry-After of at most
            60 seconds.

    Raises:
        ConfigError: The address is invalid.
    """

    def __init__(
        self,
        address: str = "http://127.0.0.1:8000",
        *,
        token: str | None = None,
        model: str | None = None,
        timeout: float = 60.0,
        retries: int = 3,
    ) -> None:
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"{address!r}: an address begins with http:// or https://")
        secure = parts.scheme == "https"
        kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        self._connection = kind(parts.hostname, parts.port, timeout=timeout)
        self._prefix = parts.path.rstrip("/")
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._model = model
        self._retries = retries

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def models(self) -> dict[str, Any]:
        """The service's models, predictors and limits."""
        return self._json("GET", "/v1/models")

    def encode(
        self,
        sentences: str | Iterable[Sentence],
        *,
        layers: str | int | Sequence[float] = "mean",
        pool: str | None = None,
    ) -> Any:
        """Vectors, as `Elmo.encode` gives them; many are a list, or one array when pooled."""
        if not isinstance(sentences, str):
            check_sentences(sentences)
        single = isinstance(sentences, str)
        wanted: list[Sentence] = [sentences] if isinstance(sentences, str) else list(sentences)
        body = {"sentences": wanted, "layers": layers, "pool": pool}
        answer = self._send("POST", "/v1/encode", self._body(body), "application/x-npy")
        arrays: Any = _read_arrays(answer, len(wanted) if pool is None else 1)
        if pool is not None:
            arrays = arrays[0]
        return arrays[0] if single else arrays

    def similar(
        self,
        sentence: Sentence,
        *,
        word: Word = None,
        position: Position = None,
        other: Sentence | None = None,
        other_word: Word = None,
        other_position: Position = None,
        among: Iterable[Sentence] | None = None,
        layers: str | int | Sequence[float] = "mean",
        k: int = 10,
    ) -> dict[str, Any]:
        """Compare a use of a word with another, or find the nearest among sentences."""
        body = {"sentence": sentence, "word": word, "position": position, "layers": layers, "k": k}
        body |= {"other": other, "other_word": other_word, "other_position": other_position}
        return self._post("/v1/similar", {**body, "among": None if among is None else list(among)})

    def layers(self, sentence: Sentence, other: Sentence | None = None) -> dict[str, Any]:
        """Cosines of every token with every token, one matrix per layer."""
        return self._post("/v1/layers", {"sentence": sentence, "other": other})

    def score(self, sentences: Iterable[Sentence]) -> list[dict[str, Any]]:
        """Log-probabilities of sentences, in order."""
        check_sentences(sentences)
        body = self._body({"sentences": list(sentences)})
        return list(self._json("POST", "/v1/score", body, "sentences")["sentences"])

    def surprisal(
        self, sentences: Iterable[Sentence], *, state: str = "fresh"
    ) -> list[dict[str, Any]]:
        """The rows of `Elmo.surprisal`; with ``state="carry"`` the sentences are one document."""
        check_sentences(sentences)
        body = self._body({"sentences": list(sentences), "state": state})
        return list(self._json("POST", "/v1/surprisal", body, "rows")["rows"])

    def rerank(
        self, utterances: Iterable[dict[str, Any]], *, weight: float = 0.5
    ) -> list[dict[str, Any]]:
        """N-best lists (`hypotheses` with `text` and `score`), sorted again; in their order."""
        body = self._body({"utterances": list(utterances), "weight": weight})
        return list(self._json("POST", "/v1/rerank", body, "utterances")["utterances"])

    def substitutes(
        self, sentence: Sentence, *, word: Word = None, position: Position = None, k: int = 10
    ) -> dict[str, Any]:
        """Words that fit a position, by both directions and by each."""
        body = {"sentence": sentence, "word": word, "position": position, "k": k}
        return self._post("/v1/substitutes", body)

    def inspect(
        self, sentence: Sentence, *, word: Word = None, position: Position = None, k: int = 10
    ) -> dict[str, Any]:
        """All intermediate results of the forward pass for one word."""
        body = {"sentence": sentence, "word": word, "position": position, "k": k}
        return self._post("/v1/inspect", body)

    def predict(self, predictor: str, items: Iterable[Any], *, details: bool = False) -> list[Any]:
        """Answers of a saved predictor, in order; items as for `Predictor.predict`.

        `details`: dictionaries with what `elmokit.tasks.Details` holds.
        """
        body = {"predictor": predictor, "items": list(items), "details": details}
        found = self._json("POST", "/v1/predict", json.dumps(body).encode(), "items")["items"]
        answers = ({"answer": item["answer"], **(item.get("details") or {})} for item in found)
        return list(answers) if details else [item["answer"] for item in found]

    def _body(self, values: dict[str, Any]) -> bytes:
        if self._model is not None:
            values["model"] = self._model
        return json.dumps(values).encode()

    def _post(self, path: str, values: dict[str, Any]) -> dict[str, Any]:
        return self._json("POST", path, self._body(values))

    def _json(
        self, method: str, path: str, body: bytes | None = None, key: str | None = None
    ) -> dict[str, Any]:
        answer = self._send(method, path, body, "application/json")
        try:
            found = json.loads(answer)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict) or (
            key is not None and not isinstance(found.get(key), list)
        ):
            raise ServiceError(200, f"{STRANGE}: {_excerpt(answer)}")
        return found

    def _send(self, method: str, path: str, body: bytes | None, accept: str) -> bytes:
        given = {**self._headers, "Accept": accept}
        if body is not None:
            given["Content-Type"] = "application/json"
        for attempt in range(self._retries + 1):
            used_before = self._connection.sock is not None
            try:
                status, headers, answer = self._exchange(method, path, body, given)
            except (http.client.RemoteDisconnected, ConnectionError):
                # The service may have closed an idle connection. Requests are idempotent.
                if not used_before:
                    raise
                status, headers, answer = self._exchange(method, path, body, given)
            if status == 200:
                return answer
            after = headers.get("Retry-After", "")
            wait = float(after) if after.isdecimal() and after.isascii() else math.inf
            if status not in LATER or wait > LONGEST_WAIT or attempt == self._retries:
                known = wait if math.isfinite(wait) else None
                raise ServiceError(status, _detail(answer), known)
            time.sleep(wait)
        raise AssertionError("the last attempt returns or raises")

    def _exchange(
        self, method: str, path: str, body: bytes | None, headers: dict[str, str]
    ) -> tuple[int, http.client.HTTPMessage, bytes]:
        try:
            self._connection.request(method, self._prefix + path, body, headers)
            answer = self._connection.getresponse()
            try:
                body_read, more = answer.read(MOST_BYTES), answer.read(1)
            except ConnectionError as error:  # reset, where others just end early
                raise http.client.IncompleteRead(b"") from error
            if more:
                raise ServiceError(answer.status, f"{STRANGE}: it has more than {MOST_BYTES} bytes")
            return answer.status, answer.headers, body_read
        except (http.client.HTTPException, ValueError) as error:
            self._connection.close()
            if isinstance(error, ConnectionError):
                raise
            raise ServiceError(0, f"{STRANGE}: {type(error).__name__}") from error
        except BaseException:
            self._connection.close()  # the rest of an answer would be read as the next one
            raise


def _detail(answer: bytes) -> str:
    try:
        return str(json.loads(answer)["detail"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return _excerpt(answer)


def _excerpt(answer: bytes) -> str:
    return " ".join(answer[:200].decode("utf-8", "replace").split())


def _read_arrays(answer: bytes, count: int) -> list[Any]:
    """Float arrays of an answer; their sizes are checked against it before memory is taken."""
    file, found = io.BytesIO(answer), []
    try:
        for _ in range(count):
            start = file.tell()
            version = np.lib.format.read_magic(file)
            read = np.lib.format.read_array_header_1_0
            shape, _, dtype = (read if version == (1, 0) else np.lib.format.read_array_header_2_0)(
                file
            )
            size = math.prod(shape) * dtype.itemsize
            if dtype.kind != "f" or size > len(answer) - file.tell():
                raise ValueError("not an array of this service")
            file.seek(start)
            found.append(np.load(file, allow_pickle=False))
    except (ValueError, EOFError, OSError) as error:
        raise ServiceError(200, f"{STRANGE}: {_excerpt(answer)}") from error
    return found
