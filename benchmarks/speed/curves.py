"""Tokens/s by sentences in a call, their length, new words, threads, documents, the text's size.

Run: python -m benchmarks.speed.curves SHAPE [--text FILE] [--save] [--plot PICTURE]

SHAPE is small, medium or original, with random weights, or a model by name. The text is the
package's own 1,000 sentences; for larger sizes they are repeated, unless --text gives more. Every
size is measured in a fresh process, which throws the vectors away as it gets them, so that the peak
of its memory is that of encoding alone. All words have been seen before, but for the curves of new
words and of the text's size.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import chain, cycle, islice
from pathlib import Path
from statistics import median
from typing import Any

import elmokit
from benchmarks.report import RESULTS, report
from benchmarks.speed.plot import check_picture
from benchmarks.speed.processes import program_process
from elmokit.corpus.workers import default_workers
from elmokit.encode.speed import own_sentences, prepare_model, sentences_of

CALLS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
LENGTHS = (2, 5, 10, 20, 40, 80, 160, 320, 1250, 5000)
NEW_WORDS = (0.0, 0.05, 0.1, 0.2, 0.5, 1.0)
"""Shares of tokens that are words never seen before."""
SIZES = (10_000, 100_000, 1_000_000)
"""Tokens of the text."""
DOCUMENTS = (1_000, 10_000, 100_000)
"""Tokens of a document whose state runs through all of it, row by row."""
ROUNDS = 3
SHAPES = ("small", "medium", "original")
CURVES = {
    "by_call": "sentences a call",
    "by_length": "tokens a sentence",
    "by_new_words": "words not seen yet",
    "by_threads": "threads",
    "by_document": "tokens a document",
}


def rate(elmo: elmokit.Elmo, calls: Sequence[Sequence[Sequence[str]]]) -> float:
    """Tokens a second, the median of some rounds."""
    tokens = sum(len(sentence) for call in calls for sentence in call)
    seconds = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for call in calls:
            elmo.encode(call, layers="all", progress=False)
        seconds.append(time.perf_counter() - start)
    return tokens / median(seconds)


def by_call(elmo: elmokit.Elmo, text: list[list[str]], tokens: int) -> dict[int, float]:
    """Tokens a second by the number of sentences in a call."""
    mean = sum(map(len, text)) / len(text)
    found = {}
    for size in CALLS:
        some = list(islice(cycle(text), max(size, round(tokens / mean))))
        found[size] = rate(elmo, [some[at : at + size] for at in range(0, len(some), size)])
        print(f"{size} sentences a call: {found[size]:,.0f}", file=sys.stderr, flush=True)
    return found


def by_length(elmo: elmokit.Elmo, text: list[list[str]], tokens: int) -> dict[int, float]:
    """Tokens a second by the length of sentences, as many tokens each time."""
    stream = list(islice(cycle(chain.from_iterable(text)), tokens))
    found = {}
    for length in LENGTHS:
        sentences = [stream[at : at + length] for at in range(0, len(stream), length)]
        found[length] = rate(elmo, [sentences])
        print(f"{length} tokens a sentence: {found[length]:,.0f}", file=sys.stderr, flush=True)
    return found


def by_new_words(elmo: elmokit.Elmo, text: list[list[str]], tokens: int) -> dict[str, float]:
    """Tokens a second by the share of words that the model has not seen yet."""
    stream = list(islice(cycle(chain.from_iterable(text)), tokens))
    found = {}
    for share in NEW_WORDS:
        seconds = []
        words = [f"{w}{i}" if share * i % 1 < share else w for i, w in enumerate(stream)]
        call = [words[at : at + 25] for at in range(0, len(words), 25)]
        for _ in range(ROUNDS):
            elmo.forget()
            elmo.encode(text, progress=False)
            start = time.perf_counter()
            elmo.encode(call, layers="all", progress=False)
            seconds.append(time.perf_counter() - start)
        found[f"{share:.0%}"] = tokens / median(seconds)
        print(f"{share:.0%} new: {found[f'{share:.0%}']:,.0f}", file=sys.stderr, flush=True)
    return found


def by_threads(elmo: elmokit.Elmo, text: list[list[str]], threads: int) -> dict[int, float]:
    """Tokens a second by torch's number of threads: 1, 2, 4, ... and all."""
    import torch

    found = {}
    for count in sorted({*(1 << power for power in range(threads.bit_length())), threads}):
        torch.set_num_threads(count)
        found[count] = rate(elmo, [text])
        print(f"{count} threads: {found[count]:,.0f}", file=sys.stderr, flush=True)
    torch.set_num_threads(threads)
    return found


def by_document(elmo: elmokit.Elmo, text: list[list[str]]) -> dict[int, float]:
    """Tokens a second of one document by its length."""
    mean = sum(map(len, text)) / len(text)
    found = {}
    for tokens in DOCUMENTS:
        document = list(islice(cycle(text), round(tokens / mean)))
        start = time.perf_counter()
        elmo.encode([document], context="document", pool="mean")
        found[tokens] = sum(map(len, document)) / (time.perf_counter() - start)
        print(f"a document of {tokens}: {found[tokens]:,.0f}", file=sys.stderr, flush=True)
    return found


def by_size(
    source: str, text: list[list[str]], threads: int, folder: Path
) -> list[dict[str, float]]:
    """Seconds and memory by the size of the text, in fresh processes."""
    found = []
    mean = sum(map(len, text)) / len(text)
    for size in SIZES:
        some = list(islice(cycle(text), round(size / mean)))
        path = folder / "sentences.json"
        path.write_text(json.dumps(some), encoding="utf-8")
        spec = {
            "model": source,
            "device": "cpu",
            "precision": "float32",
            "sentences": str(path),
        }
        with program_process("elmokit", sys.executable, spec, threads) as process:
            process.ask("load")
            before = process.ask("memory")
            measured = process.ask("rate", batch=0, count=len(some))
            measured |= {"before_mib": before, "peak_mib": process.ask("memory")}
        found.append(measured)
        print(f"{measured['tokens']:,} tokens: {measured['seconds']:.1f} s", file=sys.stderr)
    return found


def table(found: dict[str, Any]) -> str:
    sizes = found["by_size"]
    lines = [f"{found['shape']}, float32, all layers, {found['threads']} threads"]
    for key, label in CURVES.items():
        lines += ["", f"{label:<20}" + "".join(f"{n:>9}" for n in found[key])]
        lines.append(f"{'tokens/s':<20}" + "".join(f"{r:>9,.0f}" for r in found[key].values()))
    lines += [
        "",
        f"{'tokens':>10}{'seconds':>10}{'CPU s':>8}{'tokens/s':>10}{'MiB loaded':>12}{'peak':>8}",
    ]
    for one in sizes:
        lines.append(
            f"{one['tokens']:>10,}{one['seconds']:>10.1f}{one['cpu']:>8.1f}"
            f"{one['tokens'] / one['seconds']:>10,.0f}"
            f"{one['before_mib']:>12.0f}{one['peak_mib']:>8.0f}"
        )
    first, last = sizes[0], sizes[-1]
    lines.append(
        f"text x {last['tokens'] / first['tokens']:.1f}: time x "
        f"{last['seconds'] / first['seconds']:.1f}, CPU time x {last['cpu'] / first['cpu']:.1f}, "
        f"peak memory x "
        f"{last['peak_mib'] / first['peak_mib']:.2f}"
    )
    return "\n".join(lines)


def plot(found: dict[str, Any], path: Path) -> None:
    """Three panels in black on white."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 3.4), layout="constrained")
    call, length, size = figure.subplots(1, 3)
    style = {"color": "0.1", "marker": "o", "markersize": 4}
    for axes, key, label in (
        (call, "by_call", "sentences in a call"),
        (length, "by_length", "tokens in a sentence"),
    ):
        axes.plot(list(found[key]), list(found[key].values()), **style)
        axes.set_xscale("log", base=2)
        axes.set_xticks(list(found[key]), [str(n) for n in found[key]], fontsize=8)
        axes.set_ylim(bottom=0)
        axes.set_xlabel(label)
        axes.set_ylabel("tokens per second")
    tokens = [one["tokens"] for one in found["by_size"]]
    size.plot(tokens, [one["seconds"] for one in found["by_size"]], label="seconds", **style)
    size.set_xlabel("tokens in the text")
    size.set_ylabel("seconds")
    size.set_ylim(bottom=0)
    size.set_xlim(left=0)
    memory = size.twinx()
    peaks = [one["peak_mib"] for one in found["by_size"]]
    memory.plot(tokens, peaks, color="0.5", linestyle="--", marker="s", markersize=4, label="MiB")
    memory.set_ylabel("peak memory, MiB (dashed)")
    memory.set_ylim(0, 2 * max(peaks))
    for axes in (call, length, size):
        axes.grid(color="0.9")
        axes.spines["top"].set_visible(False)
    figure.suptitle(f"{found['shape']}, float32, {found['threads']} threads", fontsize=10)
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("shape", help="small, medium, original, or a model")
    parser.add_argument("--text", help="a text of more sentences")
    parser.add_argument("--count", type=int, default=1000, help="sentences of the text")
    parser.add_argument("--tokens", type=int, default=10_000, help="tokens of a measurement")
    parser.add_argument("--threads", type=int, default=default_workers())
    parser.add_argument("--save", action="store_true", help="write results/speed_curves_SHAPE.*")
    parser.add_argument("--plot", type=Path, help="where the picture goes")
    options = parser.parse_args()
    picture = options.plot
    if options.save:
        picture = picture or RESULTS / f"speed_curves_{options.shape}.png"
    if picture is not None:
        check_picture(picture)
    import torch

    torch.set_num_threads(options.threads)
    count = options.count
    text = sentences_of(options.text, count) if options.text else own_sentences(count)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        model = None if options.shape in SHAPES else options.shape
        _, source = prepare_model(model, options.shape, folder)
        elmo = elmokit.load(source)
        elmo.encode(text)
        found = {
            "shape": options.shape,
            "threads": options.threads,
            "by_call": by_call(elmo, text, options.tokens),
            "by_length": by_length(elmo, text, options.tokens),
            "by_new_words": by_new_words(elmo, text, options.tokens),
            "by_threads": by_threads(elmo, text, options.threads),
            "by_document": by_document(elmo, text),
        }
        del elmo
        found["by_size"] = by_size(source, text, options.threads, folder)
    report(f"speed_curves_{options.shape}", table(found), options.save)
    if picture is not None:
        plot(found, picture)
    if options.save:
        path = RESULTS / f"speed_curves_{options.shape}.json"
        path.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
