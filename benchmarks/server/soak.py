"""Many clients with mixed traffic and faults against one service, for a long time.

Run: make soak SECONDS=600   or   python -m benchmarks.server.soak [--clients 200] [--save]

Clients of one event loop call a process of ``elmokit serve`` that needs tokens. Most send ordinary
requests; others disconnect in a head, a body or an answer, send or read slowly, send nonsense, too
much or a wrong token. Meanwhile tokens are rotated. An attempt is held when it ends as documented:
answers are those of the library to 1e-6 (3e-6 for long sentences and log-probabilities), refusals
have the right status, and of the others only 429 and 503 (try again) are allowed. At the end
SIGTERM comes while requests are in flight. Memory and open files of the service are read every
second; the log must hold no failure, token or text.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import io
import json
import os
import random
import secrets
import signal
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import elmokit
from benchmarks.reliability.table import Group, save_part
from elmokit.encode.speed import own_sentences
from elmokit.tasks import Predictor, TextExample, fit, task_settings

NPY, JSON = "application/x-npy", "application/json"
TOLERANCE = 1e-6
LOOSE_TOLERANCE = 3e-6
"""The library's own answers differ by so much with the batch where rounding adds up: over 1,500
steps of an LSTM, or through the logits of 60,000 words."""
MOST_GROWTH = 0.1
"""Of the memory at the end of the warm-up: less is noise of the allocator."""
LATER = (429, 503)
LONG_TOKENS = 1500
VALID_TOKENS = 6
PREDICTOR = "soak"
WARM_UP = 0.3
"""Share of the time until memory counts: the model's tables of words fill first."""
Reply = tuple[int, dict[str, str], bytes]


class NotHeldError(Exception):
    """The service did what it should not."""


@dataclass
class Count:
    """Attempts of one kind."""

    attempts: int = 0
    held: int = 0
    later: int = 0
    """Held, but with 429 or 503."""
    worst: float = 0.0
    problems: list[str] = field(default_factory=list)


@dataclass
class Expected:
    """What the library computes."""

    sentences: list[list[str]]
    vectors: list[Any]
    scores: list[dict[str, Any]]
    long: list[str]
    long_vectors: Any
    texts: list[str]
    text_vectors: Any
    answers: list[Any]


def expect(elmo: elmokit.Elmo, predictor: Predictor) -> Expected:
    """Results of a few sentences."""
    sentences = [list(sentence) for sentence in own_sentences(40)]
    words = [word for sentence in sentences for word in sentence]
    long = (words * (LONG_TOKENS // len(words) + 1))[:LONG_TOKENS]
    texts = [" ".join(sentence[:12]) for sentence in sentences]
    scores = [score.to_dict() for score in elmo.score(sentences)]
    vectors = elmo.encode(sentences, progress=False)
    (long_vectors,) = elmo.encode([long], progress=False)
    text_vectors = elmo.encode(texts, pool="mean", progress=False)
    answers = predictor.predict(texts)
    return Expected(sentences, vectors, scores, long, long_vectors, texts, text_vectors, answers)


class Soak:
    """The clients, and what they saw."""

    def __init__(self, port: int, expected: Expected, tokens: Path, seed: int = 0) -> None:
        self.port = port
        self.expected = expected
        self.counts: dict[str, Count] = {}
        self.token = ""
        self._tokens = tokens
        self._random = random.Random(seed)
        self._open: set[asyncio.StreamWriter] = set()
        self.secrets: list[str] = []

    # Requests

    async def request(
        self,
        path: str,
        body: Any = None,
        *,
        accept: str = JSON,
        token: str | None = None,
        write: Callable[[asyncio.StreamWriter, bytes], Awaitable[None]] | None = None,
        slow: bool = False,
        address: str = "127.0.0.1",
    ) -> Reply:
        """Send a request on a connection of its own, and read the whole answer."""
        sent = b"" if body is None else json.dumps(body).encode()
        reader, writer = await self._connect(address)
        try:
            data = self._head(path, len(sent), accept, token) + sent
            if write is None:
                writer.write(data)
            else:
                await write(writer, data)
            return await _read(reader, slow)
        finally:
            self._close(writer)

    async def _connect(
        self, address: str = "127.0.0.1"
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", self.port, local_addr=(address, 0)
        )
        self._open.add(writer)
        return reader, writer

    def _close(self, writer: asyncio.StreamWriter) -> None:
        self._open.discard(writer)
        writer.transport.abort()

    def _head(self, path: str, length: int, accept: str = JSON, token: str | None = None) -> bytes:
        method = "POST" if path.startswith("/v1/") and path != "/v1/models" else "GET"
        return (
            f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nAccept: {accept}\r\n"
            f"Authorization: Bearer {token or self.token}\r\n"
            f"Content-Type: {JSON}\r\nContent-Length: {length}\r\n\r\n"
        ).encode()

    def _choose(self) -> int:
        return self._random.randrange(len(self.expected.sentences))

    # Ordinary traffic

    async def encode(self, **options: Any) -> bool:
        """Vectors of two sentences, as npy."""
        numbers = [self._choose(), self._choose()]
        body = {"sentences": [self.expected.sentences[number] for number in numbers]}
        reply = await self.request("/v1/encode", body, accept=NPY, **options)
        if not _answered(reply):
            return False
        file = io.BytesIO(reply[2])
        for number in numbers:
            _compare(np.load(file), self.expected.vectors[number])
        return True

    async def score(self) -> bool:
        """Log-probabilities of a sentence."""
        number = self._choose()
        reply = await self.request("/v1/score", {"sentences": [self.expected.sentences[number]]})
        if not _answered(reply):
            return False
        (found,) = json.loads(reply[2])["sentences"]
        right = self.expected.scores[number]
        _compare(np.array(found["forward"]), np.array(right["forward"]), LOOSE_TOLERANCE)
        return True

    async def embeddings(self) -> bool:
        """Vectors of two texts, as OpenAI's clients ask for them."""
        numbers = [self._choose(), self._choose()]
        body = {"input": [self.expected.texts[n] for n in numbers], "encoding_format": "base64"}
        reply = await self.request("/v1/embeddings", body)
        if not _answered(reply):
            return False
        for number, found in zip(numbers, json.loads(reply[2])["data"], strict=True):
            right = self.expected.text_vectors[number]
            vector = np.frombuffer(base64.b64decode(found["embedding"]), "<f4")
            _compare(vector, right / np.linalg.norm(right))
        return True

    async def rerank(self) -> bool:
        """An n-best list of two."""
        numbers = [self._choose(), self._choose()]
        hypotheses = [{"text": self.expected.sentences[n], "score": -1.0} for n in numbers]
        reply = await self.request("/v1/rerank", {"utterances": [{"hypotheses": hypotheses}]})
        if not _answered(reply):
            return False
        (found,) = json.loads(reply[2])["utterances"]
        for one in found["hypotheses"]:
            right = self.expected.scores[numbers[one["index"]]]["logprob"]
            _compare(np.array(one["lm_score"]), np.array(right), LOOSE_TOLERANCE)
        return True

    async def similar(self) -> bool:
        """Cosine of a word with itself in another sentence's mean."""
        first, second = self._choose(), self._choose()
        body = {
            "sentence": self.expected.sentences[first],
            "other": self.expected.sentences[second],
        }
        reply = await self.request("/v1/similar", body)
        if not _answered(reply):
            return False
        mean = [self.expected.vectors[n].mean(axis=0).astype(np.float64) for n in (first, second)]
        right = mean[0] @ mean[1] / (np.linalg.norm(mean[0]) * np.linalg.norm(mean[1]))
        _compare(np.array(json.loads(reply[2])["cosine"]["mean"]), right)
        return True

    async def predict(self) -> bool:
        """The class of a text."""
        number = self._choose()
        body = {"predictor": PREDICTOR, "items": [self.expected.texts[number]]}
        reply = await self.request("/v1/predict", body)
        if not _answered(reply):
            return False
        (item,) = json.loads(reply[2])["items"]
        _check(item["answer"] == self.expected.answers[number], f"predicted {item['answer']!r}")
        return True

    async def page(self) -> bool:
        """The page of the service."""
        status, headers, body = await self.request("/")
        _check(status == 200 and b"<html" in body.lower(), f"the page: {status}")
        _check("content-security-policy" in headers, "no security policy")
        return True

    async def health(self) -> bool:
        """Liveness: it is never refused."""
        status, _, _ = await self.request("/healthz")
        _check(status == 200, f"health: {status}")
        return True

    async def long_sentence(self) -> bool:
        """A sentence that has a queue of its own."""
        body = {"sentences": [self.expected.long]}
        reply = await self.request("/v1/encode", body, accept=NPY)
        if not _answered(reply):
            return False
        _compare(np.load(io.BytesIO(reply[2])), self.expected.long_vectors, LOOSE_TOLERANCE)
        return True

    # Faults

    async def slow_writer(self) -> bool:
        """A request in small pieces: it is answered."""

        async def write(writer: asyncio.StreamWriter, data: bytes) -> None:
            step = max(1, len(data) // 20)
            for start in range(0, len(data), step):
                writer.write(data[start : start + step])
                await asyncio.sleep(0.1)

        return await self.encode(write=write)

    async def slow_reader(self) -> bool:
        """An answer that is read in small pieces."""
        return await self.encode(slow=True)

    async def leave(self, sent: bytes, seconds: float) -> bool:
        """Disconnect after a part of a request."""
        _, writer = await self._connect()
        writer.write(sent)
        with contextlib.suppress(ConnectionError):
            await writer.drain()
        await asyncio.sleep(seconds)
        self._close(writer)
        return True

    async def leave_in_head(self) -> bool:
        """Disconnect in the head."""
        return await self.leave(self._head("/v1/encode", 10)[:40], 0.1)

    async def leave_in_body(self) -> bool:
        """Disconnect in the body."""
        return await self.leave(self._head("/v1/encode", 10_000) + b"{" * 1000, 0.1)

    async def leave_in_answer(self) -> bool:
        """Disconnect while the answer is computed or sent."""
        body = json.dumps({"sentences": self.expected.sentences, "layers": "all"}).encode()
        seconds = self._random.random()
        return await self.leave(self._head("/v1/encode", len(body)) + body, seconds)

    async def malformed(self) -> bool:
        """Bytes that are no request, or no JSON: 400 or 422, or the end of the connection."""
        kinds = (b"\x16\x03\x01\x02\x00" * 40, b"GET\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n")
        if self._random.random() < 0.5:
            reader, writer = await self._connect()
            try:
                writer.write(self._random.choice(kinds))
                answer = await reader.read(100)
            finally:
                self._close(writer)
            _check(not answer or answer.startswith(b"HTTP/1.1 400"), f"{answer[:20]!r}")
            return True
        given: Any = self._random.choice(
            ([], {"sentences": 1}, {"x": 2}, None, {"sentences": [[1]]})
        )
        status, _, _ = await self.request("/v1/encode", given)
        return _refused(status, 400, 422)

    async def oversize(self) -> bool:
        """Too large a head, body or text."""
        kind = self._random.randrange(3)
        if kind == 0:
            reader, writer = await self._connect()
            try:
                writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 200_000)
                answer = await reader.read(100)
            finally:
                self._close(writer)
            _check(not answer or answer.startswith(b"HTTP/1.1 400"), f"{answer[:20]!r}")
            return True
        if kind == 1:
            status, _, _ = await self.request("/v1/encode", {"sentences": ["a" * 3_000_000]})
            return _refused(status, 413)
        status, _, _ = await self.request("/v1/encode", {"sentences": ["'" * 1_000_000]})
        return _refused(status, 422)

    async def wrong_token(self) -> bool:
        """A guess; the addresses are others than those of the ordinary clients."""
        address = f"127.0.1.{self._random.randrange(1, 20)}"
        token = f"guess-{self._random.random()}"
        status, _, _ = await self.request("/v1/models", token=token, address=address)
        return _refused(status, 401)

    async def silent(self) -> bool:
        """Connections that send nothing: the service closes them."""
        reader, writer = await self._connect()
        try:
            _check(await reader.read(1) == b"", "an answer without a request")
        finally:
            self._close(writer)
        return True

    def rotate(self, pid: int) -> None:
        """A new token; a few before it stay valid, for requests that are being sent."""
        self.secrets.append(secrets.token_hex(16))
        names = list(enumerate(self.secrets))[-VALID_TOKENS:]
        text = "".join(f"client{number} {token}\n" for number, token in names)
        part = self._tokens.with_suffix(".part")
        part.write_text(text)
        part.replace(self._tokens)
        if pid:
            os.kill(pid, signal.SIGHUP)

    # All of it

    async def attempt(self, name: str, act: Callable[[], Awaitable[bool]]) -> None:
        """One attempt, and how it ended."""
        count = self.counts.setdefault(name, Count())
        count.attempts += 1
        start = time.monotonic()
        try:
            async with asyncio.timeout(120):
                answered = await act()
                count.later += not answered
        except NotHeldError as error:
            count.problems.append(str(error))
        except (OSError, EOFError, ValueError, KeyError, TimeoutError) as error:
            count.problems.append(f"{type(error).__name__}: {error}")
        else:
            count.held += 1
        count.worst = max(count.worst, time.monotonic() - start)

    async def client(self, end: float, pause: float) -> None:
        """One client until the end."""
        ordinary = [self.encode, self.encode, self.score, self.similar, self.predict, self.page]
        ordinary += [self.embeddings, self.rerank]
        faults = [
            *(self.leave_in_head, self.leave_in_body, self.leave_in_answer, self.slow_writer),
            *(self.slow_reader, self.malformed, self.oversize, self.wrong_token, self.silent),
        ]
        while time.monotonic() < end:
            dice = self._random.random()
            if dice < 0.003:
                act = self.long_sentence
            elif dice < 0.1:
                act = self.health
            else:
                act = self._random.choice(ordinary if dice < 0.65 else faults)
            await self.attempt(act.__name__.replace("_", " "), act)
            await asyncio.sleep(self._random.random() * 2 * pause)


async def _read(reader: asyncio.StreamReader, slow: bool) -> Reply:
    lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines[1:] if ": " in line)
    left, pieces = int(headers.get("content-length", 0)), []
    while left:
        piece = await reader.read(min(left, 8192 if slow else 1 << 20))
        if not piece:
            raise EOFError("the answer is cut")
        pieces.append(piece)
        left -= len(piece)
        if slow:
            await asyncio.sleep(0.05)
    return int(lines[0].split()[1]), headers, b"".join(pieces)


def _check(right: bool, problem: str) -> None:
    if not right:
        raise NotHeldError(problem)


def _answered(reply: Reply) -> bool:
    """Whether there is an answer; False if the client should try again later."""
    status, headers, body = reply
    if status in LATER:
        _check(headers.get("retry-after", "").isdecimal(), f"{status} without Retry-After")
        return False
    _check(status == 200, f"{status}: {body[:100]!r}")
    return True


def _refused(status: int, *right: int) -> bool:
    _check(status in right or status in LATER, f"{status} instead of {right}")
    return status in right


def _compare(found: Any, right: Any, tolerance: float = TOLERANCE) -> None:
    _check(found.shape == right.shape, f"shape {found.shape}, not {right.shape}")
    scale = max(1.0, float(np.abs(right).max(initial=0)))
    difference = float(np.abs(found - right).max(initial=0)) / scale
    _check(difference <= tolerance, f"differs by {difference:.1e}")


@dataclass
class Watched:
    """Memory (MiB) and open files of the service, over time."""

    memory: list[float] = field(default_factory=list)
    files: list[int] = field(default_factory=list)

    def look(self, pid: int) -> None:
        """Read both now."""
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        self.memory.append(pages * os.sysconf("SC_PAGE_SIZE") / 2**20)
        self.files.append(len(os.listdir(f"/proc/{pid}/fd")))

    def is_flat(self) -> bool:
        """Whether memory does not grow after the warm-up."""
        after = self.memory[int(WARM_UP * len(self.memory))]
        return self.growth() <= MOST_GROWTH * after

    def growth(self) -> float:
        """MiB between the time after the warm-up and the end, each a mean."""
        kept = self.memory[int(WARM_UP * len(self.memory)) :]
        part = max(1, len(kept) // 5)
        return float(np.mean(kept[-part:]) - np.mean(kept[:part]))


@dataclass
class Outcome:
    """What a run found."""

    counts: dict[str, Count]
    watched: Watched
    rotations: int
    idle_files: int
    """Open files after the clients have gone."""
    drained: Count
    code: int | None
    log: list[str]
    secrets: list[str]

    def failures(self) -> list[str]:
        """Everything that was not as documented."""
        found = [f"{name}: {why}" for name, c in self.counts.items() for why in c.problems]
        found += [f"in flight at SIGTERM: {why}" for why in self.drained.problems]
        if self.code != 0:
            found.append(f"exit code {self.code}")
        found += [f"log: {line[:300]}" for line in self.log if '"failure"' in line]
        if any(token in line for token in self.secrets for line in self.log):
            found.append("a token is in the log")
        if self.idle_files > self.watched.files[0] + 8:
            found.append(f"{self.idle_files} open files at the end, {self.watched.files[0]} before")
        return found

    def groups(self) -> list[Group]:
        """For the table of reliability."""
        peak = max(self.watched.memory) - self.watched.memory[0]
        groups = [
            Group(name, count.attempts, count.held, round(count.worst, 2))
            for name, count in sorted(self.counts.items())
        ]
        total = sum(count.attempts for count in self.counts.values())
        left = sum(count.held for count in self.counts.values())
        held = int(self.code == 0) * self.drained.held
        growth = self.watched.growth()
        flat = int(self.idle_files <= self.watched.files[0] + 8)
        return [
            *groups,
            Group("in flight at SIGTERM", self.drained.attempts, held),
            Group("open files flat", 1, flat),
            Group("memory flat", 1, int(self.watched.is_flat()), None, round(growth, 1)),
            Group("all requests of the soak", total, left, None, round(peak, 1)),
        ]


async def soak(
    command: list[str], expected: Expected, folder: Path, clients: int, seconds: float, pause: float
) -> Outcome:
    """Start the service, run the clients for a while, stop it with requests in flight."""
    tokens = folder / "tokens"
    run = Soak(0, expected, tokens)
    run.rotate(0)
    run.token = run.secrets[-1]
    log = folder / "log"
    with log.open("wb") as stderr:
        process = await asyncio.create_subprocess_exec(
            *command, "--token-file", tokens, stdout=asyncio.subprocess.DEVNULL, stderr=stderr
        )
    if seconds > 60:
        os.nice(5)  # the clients; the service must not wait for them
    try:
        run.port = await _port(log, process)
        await _until_ready(run)
        watched = Watched()
        watched.look(process.pid)
        end = time.monotonic() + seconds
        tasks = [asyncio.create_task(run.client(end, pause)) for _ in range(clients)]
        tasks.append(asyncio.create_task(run.attempt("long sentence", run.long_sentence)))
        next_rotation = time.monotonic() + seconds / 10
        while not all(task.done() for task in tasks):
            await asyncio.sleep(1 if seconds > 60 else 0.2)
            watched.look(process.pid)
            if time.monotonic() > next_rotation and time.monotonic() < end:
                run.rotate(process.pid)
                run.token = run.secrets[-1]
                next_rotation += seconds / 10
        await asyncio.gather(*tasks)
        idle_files = await _idle_files(process.pid, watched)
        drained = Soak(run.port, expected, tokens)
        drained.token = run.token
        flying = [
            asyncio.create_task(drained.attempt("drain", drained.encode)) for _ in range(clients)
        ]
        await asyncio.sleep(0)
        await _until_answering(drained, clients)
        process.terminate()
        await asyncio.gather(*flying)
        code = await asyncio.wait_for(process.wait(), 120)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    lines = log.read_text("utf-8").splitlines()
    rotations = len(run.secrets) - 1
    counts, last = run.counts, drained.counts["drain"]
    return Outcome(counts, watched, rotations, idle_files, last, code, lines, run.secrets)


async def _port(log: Path, process: asyncio.subprocess.Process) -> int:
    for _ in range(1200):
        for line in log.read_text("utf-8").splitlines():
            if '"serving"' in line:
                return int(json.loads(line)["address"].rpartition(":")[2])
        if process.returncode is not None:
            raise RuntimeError(f"the service has ended: {log.read_text('utf-8')[-2000:]}")
        await asyncio.sleep(0.1)
    raise RuntimeError("the service does not start")


async def _until_ready(run: Soak) -> None:
    for _ in range(600):
        with contextlib.suppress(OSError, EOFError):
            if (await run.request("/readyz"))[0] == 200:
                return
        await asyncio.sleep(0.1)
    raise RuntimeError("the service is not ready")


async def _idle_files(pid: int, watched: Watched) -> int:
    """Open files when all connections have been closed."""
    count = 0
    for _ in range(100):
        count = len(os.listdir(f"/proc/{pid}/fd"))
        if count <= watched.files[0]:
            break
        await asyncio.sleep(0.1)
    return count


async def _until_answering(run: Soak, clients: int) -> None:
    """Until some are answered: by then the service has accepted all connections."""
    for _ in range(3000):
        if run.counts["drain"].held >= max(1, clients // 20):
            return
        await asyncio.sleep(0.01)


def small_predictor(folder: Path) -> Path:
    """A classifier after one pass over a few examples."""
    good, bad = ("a", "fine", "film"), ("a", "dull", "film")
    examples = [TextExample(good, "good"), TextExample(bad, "bad")]
    small = ["encoder.cells=8", "inputs.words=8", "run.epochs=1", "run.batch=4"]
    config = task_settings("classify", None, small)
    predictor = fit(
        "classify",
        examples * 4,
        examples,
        elmo="test-tiny",
        config=config,
        device="cpu",
        quiet=True,
    )
    predictor.save(folder)
    return folder


def command_of(model: str, predictor: Path, *options: str) -> list[str]:
    """How the service is started."""
    command = [sys.executable, "-m", "elmokit", "serve", "--model", f"soak={model}", "--port", "0"]
    return [*command, "--predictor", f"{PREDICTOR}={predictor}", *options]


def describe(outcome: Outcome, seconds: float, clients: int) -> str:
    """The outcome as text."""
    lines = [f"{clients} clients, {seconds:g} s, {outcome.rotations} rotations of tokens"]
    lines.append(f"{'':24}{'attempts':>9}{'held':>9}{'429, 503':>9}{'worst s':>9}")
    for name, count in sorted(outcome.counts.items()):
        cells = (count.attempts, count.held, count.later)
        lines.append(f"{name:24}" + "".join(f"{c:9,}" for c in cells) + f"{count.worst:9.2f}")
    watched, drained = outcome.watched, outcome.drained
    lines.append(f"in flight at SIGTERM: {drained.held} of {drained.attempts} as documented")
    lines.append(f"exit code {outcome.code}")
    lines.append(
        f"memory, MiB: {watched.memory[0]:.0f} at the start, {max(watched.memory):.0f} at most, "
        f"{watched.memory[-1]:.0f} at the end; growth after the warm-up {watched.growth():.1f}"
    )
    lines.append(
        f"open files: {watched.files[0]} at the start, {max(watched.files)} at most, "
        f"{outcome.idle_files} at the end"
    )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="small-en")
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--pause", type=float, default=6.0, help="mean seconds between requests")
    parser.add_argument("--save", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        predictor = small_predictor(folder / "predictor")
        expected = expect(elmokit.load(options.model), Predictor.load(predictor))
        command = command_of(options.model, predictor)
        outcome = asyncio.run(
            soak(command, expected, folder, options.clients, options.seconds, options.pause)
        )
    print(describe(outcome, options.seconds, options.clients))
    failures = outcome.failures()
    if not outcome.watched.is_flat():  # told by minutes alone, so it is not among the failures
        failures.append(f"memory grew by {outcome.watched.growth():.0f} MiB after the warm-up")
    print("\n".join(failures[:40]) or "everything was held")
    if options.save:
        save_part("server", outcome.groups())
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
