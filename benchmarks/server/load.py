"""The HTTP service under load: many clients on this machine, against plain encode in the same run.

Run: python -m benchmarks.server.load [--shape small] [--clients 200] [--seconds 60] [--save]

A process of `elmokit serve` with random weights of a published shape is asked by many clients at
once, each over one connection, each with its next request as soon as the last one is answered. Then
a few answers are compared with `encode`, and memory is read as the minutes go by. Before the load
and after it a process of its own measures `encode` on the same sentences: the ratio is that of the
service's tokens per second to the mean of both. On a machine that others use, the CPU time of
a token says more: it stands below. Memory grows while the model's tables of words fill, in the
service as in `encode`; then it is flat.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

import elmokit
from benchmarks.report import report
from elmokit.encode.speed import own_sentences, prepare_model

NPY = "application/x-npy"
JSON = "application/json"

PLAIN = """
import resource, sys, time
import elmokit
from elmokit.encode.speed import own_sentences

model, seconds = sys.argv[1], float(sys.argv[2])
elmo = elmokit.load(model)
sentences = own_sentences(1000)
elmo.encode(sentences[:200], progress=False)
tokens, began, used = 0, time.perf_counter(), time.process_time()
while time.perf_counter() - began < seconds:
    for start in range(0, len(sentences), 200):
        elmo.encode(sentences[start : start + 200], progress=False)
        tokens += sum(len(s) for s in sentences[start : start + 200])
        if time.perf_counter() - began >= seconds:
            break
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(tokens / (time.perf_counter() - began), (time.process_time() - used) / tokens, peak)
"""


@dataclass
class Load:
    """What the clients saw."""

    seconds: list[float] = field(default_factory=list)
    """Of each answered request."""
    statuses: Counter[int] = field(default_factory=Counter)
    broken: Counter[str] = field(default_factory=Counter)
    """Connections that ended otherwise."""
    tokens: int = 0
    memory: list[tuple[float, float]] = field(default_factory=list)
    """Seconds since the start, and MiB of the service."""


class Speed(NamedTuple):
    """Of one way to encode."""

    tokens_per_second: float
    cpu_seconds: float
    """For one token, on all cores together."""
    memory: float
    """MiB at the peak."""


def plain_speed(model: str, seconds: float) -> Speed:
    """Encode alone."""
    command = [sys.executable, "-c", PLAIN, model, str(seconds)]
    return Speed(*map(float, subprocess.check_output(command).split()))


def cpu_time(process: int) -> float:
    """Seconds on all cores since the process began."""
    values = Path(f"/proc/{process}/stat").read_text("ascii").rpartition(")")[2].split()
    return (int(values[11]) + int(values[12])) / os.sysconf("SC_CLK_TCK")


def start_service(model: str, log: Path) -> tuple[subprocess.Popen[bytes], int]:
    """The process and its port."""
    command = [sys.executable, "-m", "elmokit", "serve", "--model", model, "--port", "0"]
    # Logs go to a file, as they would: a full pipe would stop the service.
    with log.open("wb") as sink:
        process = subprocess.Popen(command, stderr=sink)
    while process.poll() is None:
        found = re.search(r'"address": "http://[^"]*:(\d+)"', log.read_text("utf-8"))
        if found:
            return process, int(found[1])
        time.sleep(0.1)
    raise SystemExit(log.read_text("utf-8"))


def request_bytes(sentences: list[list[str]], accept: str) -> bytes:
    body = json.dumps({"sentences": sentences}).encode()
    return (
        f"POST /v1/encode HTTP/1.1\r\nHost: localhost\r\nContent-Type: {JSON}\r\n"
        f"Accept: {accept}\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode() + body


async def ask(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes
) -> tuple[int, dict[str, str], bytes]:
    """One request over an open connection."""
    writer.write(request)
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.splitlines()
    headers = dict(line.lower().split(": ", 1) for line in lines if line)
    body = await reader.readexactly(int(headers["content-length"]))
    return int(first.split()[1]), headers, body


async def client(
    port: int, requests: list[tuple[bytes, int]], number: int, end: float, load: Load
) -> None:
    """Ask until the end; each client begins at another place."""
    place = number * 7
    reader = writer = None
    while time.perf_counter() < end:
        request, tokens = requests[place % len(requests)]
        place += 1
        began = time.perf_counter()
        try:
            if reader is None or writer is None:
                reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 24)
            status, headers, _ = await ask(reader, writer, request)
        except (OSError, asyncio.IncompleteReadError) as error:
            load.broken[type(error).__name__] += 1
            reader = writer = None
            continue
        load.statuses[status] += 1
        if status == 200:
            load.seconds.append(time.perf_counter() - began)
            load.tokens += tokens
        elif status == 429:
            await asyncio.sleep(float(headers["retry-after"]))
    if writer is not None:
        writer.close()


async def watch_memory(process: int, end: float, load: Load) -> None:
    began = time.perf_counter()
    while (now := time.perf_counter()) < end:
        load.memory.append((now - began, resident(process)))
        await asyncio.sleep(0.5)


def resident(process: int) -> float:
    """MiB in memory."""
    for line in Path(f"/proc/{process}/status").read_text("ascii").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise ValueError("no VmRSS")


async def attack(
    port: int, process: int, requests: list[tuple[bytes, int]], clients: int, seconds: float
) -> Load:
    load = Load()
    end = time.perf_counter() + seconds
    tasks = [client(port, requests, number, end, load) for number in range(clients)]
    await asyncio.gather(watch_memory(process, end, load), *tasks)
    return load


async def largest_difference(port: int, model: str, sentences: list[list[str]]) -> float:
    """From encode, over answers in both formats."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 26)
    elmo = elmokit.load(model)
    worst = 0.0
    for start in range(0, len(sentences), 10):
        some = sentences[start : start + 10]
        expected = elmo.encode(some, progress=False)
        _, _, body = await ask(reader, writer, request_bytes(some, NPY))
        file = io.BytesIO(body)
        _, _, text = await ask(reader, writer, request_bytes(some, JSON))
        for array, sentence in zip(expected, json.loads(text)["sentences"], strict=True):
            for found in (np.load(file), np.array(sentence["vectors"])):
                worst = max(worst, float(np.abs(found - array).max()))
    writer.close()
    return worst


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", default="small", help="a published shape")
    parser.add_argument("--model", help="a model instead of random weights")
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--sentences", type=int, default=4, help="of each request")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--format", choices=["npy", "json"], default="npy")
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/service.txt")
    options = parser.parse_args()
    accept = NPY if options.format == "npy" else JSON
    sentences = own_sentences(1000)
    requests = []
    for start in range(0, len(sentences) - options.sentences, options.sentences):
        some = sentences[start : start + options.sentences]
        requests.append((request_bytes(some, accept), sum(map(len, some))))
    with tempfile.TemporaryDirectory() as folder:
        _, model = prepare_model(options.model, options.shape, Path(folder))
        before = plain_speed(model, options.seconds / 4)
        process, port = start_service(model, Path(folder) / "log")
        try:
            asyncio.run(attack(port, process.pid, requests, options.clients, 2))  # warms up
            began, used = time.perf_counter(), cpu_time(process.pid)
            load = asyncio.run(
                attack(port, process.pid, requests, options.clients, options.seconds)
            )
            wall = time.perf_counter() - began
            used = cpu_time(process.pid) - used
            worst = asyncio.run(largest_difference(port, model, sentences[:100]))
        finally:
            process.terminate()
            code = process.wait(60)
        after = plain_speed(model, options.seconds / 4)
    peak = max(mib for _, mib in load.memory)
    service = Speed(load.tokens / wall, used / load.tokens, peak)
    text = "\n".join(lines(options, load, worst, code, service, before, after))
    report("service", text, options.save)


def lines(
    options: argparse.Namespace,
    load: Load,
    worst: float,
    code: int,
    service: Speed,
    before: Speed,
    after: Speed,
) -> list[str]:
    """The result in words."""
    plain = Speed(*((a + b) / 2 for a, b in zip(before, after, strict=True)))
    p50, p99 = np.quantile(load.seconds, [0.5, 0.99])
    errors = {status: n for status, n in load.statuses.items() if status not in (200, 429)}
    # The first tenth is left out: caches fill.
    late = [mib for second, mib in load.memory if second >= options.seconds / 10]
    fifths = [late[len(late) * i // 5 : len(late) * (i + 1) // 5] for i in range(5)]
    means = [float(np.mean(part)) for part in fifths if part]
    name = options.model or f"{options.shape}, random weights"
    return [
        f"model: {name}; {options.clients} clients, {options.sentences} sentences a request, "
        f"{options.format}, {options.seconds:g} s",
        f"requests answered      {load.statuses[200]:>10,}",
        f"answered with 429      {load.statuses[429]:>10,}",
        f"other errors           {sum(errors.values()) + load.broken.total():>10,}"
        + "".join(f"  {name}: {n}" for name, n in (*errors.items(), *load.broken.items())),
        f"p50, p99               {p50 * 1000:>10,.0f} ms {p99 * 1000:,.0f} ms "
        f"(p99 is {p99 / p50:.2f} times p50)",
        f"tokens/s, service      {service[0]:>10,.0f}",
        f"tokens/s, encode       {plain[0]:>10,.0f}  "
        f"(before {before[0]:,.0f}, after {after[0]:,.0f})",
        f"service / encode       {service[0] / plain[0]:>10.2f}",
        f"CPU time a token {service[1] * 1e6:>10,.0f} µs, encode {plain[1] * 1e6:,.0f} µs "
        f"(encode / service {plain[1] / service[1]:.2f})",
        f"largest difference     {worst:>10.1e}  (npy and JSON against encode, 100 sentences)",
        "memory, MiB            " + " ".join(f"{mean:>10,.0f}" for mean in means),
        f"  peak                 {service.memory:>10,.0f}  (encode {after.memory:,.0f})",
        f"  growth between fifths {max((b - a for a, b in pairwise(means)), default=0):>9,.1f}",
        f"exit code after SIGTERM {code:>9}",
    ]


if __name__ == "__main__":
    main()
