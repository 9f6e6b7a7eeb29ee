"""The page without a server in Chromium, beside Python: bytes, loading, speed, error, tokens.

Run: python -m benchmarks.speed.browser [--models NAME ...] [--save]
Needs Linux, chromium and Playwright; see `make page-test`. The site comes from a file server on the
same machine. Sentences for speed have 20 words. Times are CPU seconds, of all processes of Chromium
or of Python, which other load disturbs least; each figure is the best of some. Chromium's are for
what a view waits for: tokens, ids, graph, and the numbers on their way out of the worker. Python
encodes the same on one thread, without a cache of words. The error is that of all vectors of a
layer together: |theirs - torch's| / |torch's|.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import torch

from benchmarks.report import ROOT, report
from benchmarks.speed.onnx import errors, sentences
from elmokit.encode.elmo import Elmo
from elmokit.encode.loading import load
from elmokit.integrations.onnx import OnnxElmo
from elmokit.server import write_site

TURNS = 3
RUNS = 8
"""Calls in a turn: ticks of the CPU clock are coarse."""
VISITS = 2
BATCHES = (1, 32)
TEXTS = {"small-en": "heldout_en.txt", "small-zh": "heldout_zh.txt"}
LINES = 40
LONGEST = 300
"""Characters of a line."""

# A worker of the page, asked as the page asks it.
ASK = """async ([route, body, runs, keep]) => {
  const site = await (await fetch("site.json")).json();
  if (window.asked === undefined) {
    const script = site.files.find((path) => path.startsWith("assets/worker"));
    const worker = new Worker(script, { type: "module" });
    const waiting = new Map();
    worker.onmessage = ({ data }) => {
      if ("id" in data) waiting.get(data.id)(data);
    };
    worker.postMessage({ site, base: location.href.replace(/#.*/, "") });
    let id = 0;
    window.asked = (route, body) => new Promise((resolve) => {
      waiting.set(id, resolve);
      worker.postMessage({ id: id++, route, body });
    });
  }
  let reply = null;
  for (let run = 0; run < runs; run++) reply = await window.asked(route, body);
  return keep ? reply.answer : null;
}"""


class ChromiumClock:
    """CPU seconds of all processes of Chromium that this process has started."""

    def __init__(self) -> None:
        self._seen: dict[int, int] = {}
        self._ticks = 0

    def __call__(self) -> float:
        """Seconds so far; those of a process after the last look before its end are lost."""
        now = self._read()
        self._ticks += sum(count - self._seen.get(number, 0) for number, count in now.items())
        self._seen = now
        return self._ticks / os.sysconf("SC_CLK_TCK")

    def _read(self) -> dict[int, int]:
        parents, ticks = {}, {}
        for path in Path("/proc").glob("[0-9]*/stat"):
            try:
                name, fields = path.read_text().rsplit(")", 1)
            except OSError:  # it has ended
                continue
            values = fields.split()
            number = int(path.parent.name)
            parents[number] = int(values[1])
            if "chrom" in name:
                ticks[number] = int(values[11]) + int(values[12])

        def is_ours(number: int) -> bool:
            while number not in (0, os.getpid()):
                number = parents.get(number, 0)
            return number != 0

        return {number: count for number, count in ticks.items() if is_ours(number)}


chromium_seconds = ChromiumClock()


class Quiet(SimpleHTTPRequestHandler):
    """Python's file server, without its log."""

    def log_message(self, *arguments: Any) -> None:
        pass


@contextmanager
def given_out(folder: Path) -> Iterator[str]:
    """The address of a folder."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def visit(page: Any, address: str) -> float:
    """Seconds from the start to the map of the first view."""
    start = chromium_seconds()
    page.goto(address)
    page.locator("figure svg").wait_for(timeout=120_000)
    return chromium_seconds() - start


def visits(browser: Any, address: str) -> tuple[float, float]:
    """Seconds of a first visit, and of one whose files are kept; the best of some."""
    first, later = [], []
    for _ in range(VISITS):
        context = browser.new_context()
        page = context.new_page()
        first.append(visit(page, address))
        page.goto("about:blank")
        later.append(visit(page, address))
        context.close()
    return min(first), min(later)


def best(call: Callable[[int], object], clock: Callable[[], float]) -> float:
    """The least seconds of a call that is made several times a turn."""
    times = []
    for _ in range(TURNS):
        start = clock()
        call(RUNS)
        times.append((clock() - start) / RUNS)
    return min(times)


def repeated(call: Callable[[], object]) -> Callable[[int], None]:
    """A call that can be made several times."""

    def several(count: int) -> None:
        for _ in range(count):
            call()

    return several


def texts_of(name: str) -> list[str]:
    """Real text for the error and for the tokens."""
    path = ROOT / "tests" / "data" / TEXTS.get(name, "heldout_en.txt")
    lines = (line.strip() for line in path.read_text("utf-8").splitlines())
    return [line for line in lines if line][:LINES]


def same_words(found: Sequence[Sequence[str]], want: Sequence[Sequence[str]]) -> float:
    """F1 of the words' borders: a word counts if it is at the same position in both."""
    common = total = 0
    for one, other in zip(found, want, strict=True):
        spans = [set(), set()]  # type: list[set[tuple[int, int]]]
        for side, words in zip(spans, (one, other), strict=True):
            end = 0
            for word in words:
                side.add((end, end + len(word)))
                end += len(word)
        common += len(spans[0] & spans[1])
        total += len(spans[0]) + len(spans[1])
    return 2 * common / total


def lines_of(browser: Any, name: str, elmo: Elmo, storage: Any) -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder, given_out(Path(folder) / "site") as address:
        write_site({name: elmo}, Path(folder) / "site", storage=storage)
        site = json.loads((Path(folder) / "site" / "site.json").read_text("utf-8"))
        facts = site["models"][0]
        first = {"runtime": site["runtime"], "graph": facts["graph"], "words": facts["vocabulary"]}
        if facts["segmenter"] is not None:
            first["dictionary"] = facts["segmenter"]
        label = f"{name:<9}{storage:<8}"
        parts = ", ".join(f"{part} {file['bytes'] / 1e6:.1f}" for part, file in first.items())
        total = sum(file["bytes"] for file in first.values()) / 1e6
        yield f"{label} {total:.1f} MB to the first answer ({parts})"
        if facts["softmax"] is not None:
            yield f"{label} {facts['softmax']['bytes'] / 1e6:.1f} MB more for predictions"
        seconds = visits(browser, address)
        yield f"{label} {seconds[0]:.1f} s to the first map; {seconds[1]:.1f} s at later visits"
        page = browser.new_page()
        page.goto(f"{address}licences.txt")

        def ask(route: str, body: dict[str, Any], runs: int = 1, keep: bool = False) -> Any:
            return page.evaluate(ASK, [route, {"model": name, **body}, runs, keep])

        def seconds_of(route: str, body: dict[str, Any]) -> float:
            return best(partial(ask, route, body), chromium_seconds)

        texts = texts_of(name)
        short = [text[:LONGEST] for text in texts]
        found = [
            ask("v1/encode", {"sentences": [text]}, keep=True)["sentences"][0] for text in short
        ]
        tokens = [one["tokens"] for one in found]
        want = elmo.encode(tokens, layers="all")
        shown = " ".join(
            f"{error:.1e}"
            for error in errors([torch.tensor(one["vectors"]).numpy() for one in found], want)
        )
        yield f"{label} error of layers {shown}"
        if storage == "int8":
            score = same_words(tokens, [elmo.tokenize(text) for text in short])
            yield f"{label} {100 * score:.1f} % of the words are those of Python (F1)"
        path = Path(folder) / "model.onnx"
        elmo.export(path, storage=storage)
        onnx = OnnxElmo(path, threads=1)
        for count in BATCHES:
            batch = sentences(count)
            lines = [" ".join(words) for words in batch]
            taken = {
                "browser": seconds_of("v1/encode", {"sentences": lines}),
                "torch": best(
                    repeated(partial(elmo.encode, batch, layers="all")), time.process_time
                ),
                "onnxruntime": best(
                    repeated(partial(onnx.encode, batch, layers="all")), time.process_time
                ),
            }
            rates = ", ".join(f"{side} {20 * count / value:,.0f}" for side, value in taken.items())
            yield f"{label} tokens/s, {count} sentence{'s' if count > 1 else ''}: {rates}"
        if facts["softmax"] is not None:
            sentence = " ".join(tokens[0][:20])
            body = {"sentence": sentence, "position": 3, "k": 10}
            here = seconds_of("v1/substitutes", body)
            fill = partial(elmo.substitutes, elmo.tokenize(sentence), 3, k=10)
            there = best(repeated(fill), time.process_time)
            yield f"{label} fill the gap: browser {here:.2f} s, torch {there:.2f} s"
        page.close()


def main() -> None:
    """Measure, print, and keep when asked to."""
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--models", nargs="+", default=["small-en", "small-zh"])
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/browser.txt")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with sync_playwright() as play:
        program = shutil.which("chromium")
        browser = play.chromium.launch(executable_path=program, args=["--no-sandbox"])
        lines = [f"Chromium {browser.version}; times are of the CPU"]
        for name in options.models:
            elmo = load(name, cache_words=0)
            # float32 differs in the bytes alone, so one model shows it.
            for storage in ("int8", "float32") if name == options.models[0] else ("int8",):
                lines += ["", *lines_of(browser, name, elmo, storage)]
        browser.close()
    report("browser", "\n".join(lines), options.save)


if __name__ == "__main__":
    main()
