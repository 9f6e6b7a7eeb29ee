"""Two checkouts of elmokit against each other on one machine: is the new one as fast as the old?

Run: python -m benchmarks.speed.old_and_new OLD NEW TEXT [--rounds 7] [--device cuda] [--only ...]

OLD and NEW are folders of the repository at two commits, TEXT a file with a sentence per line. Each
checkout has a process of its own with everything loaded; they are measured in turns, round by
round, and each round reads the next sentences of the text. Printed are the lowest times of a round
and ratios new : old, below 1 where the new one is faster: of the lowest times, the median of the
rounds by the clock, and that by CPU time, which other programs on the machine disturb least.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

CASES = {
    "small": "encode, embedded model",
    "original": "encode, published shape",
    "latency": "one sentence, embedded model",
    "few": "calls of eight sentences, embedded model",
    "train": "training steps",
}
SENTENCES = {"small": 600, "original": 100, "latency": 60, "few": 240}
GPU_SENTENCES = {"small": 20_000, "original": 20_000, "latency": 60, "few": 2400}
STEPS, GPU_STEPS = 4, 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("text", type=Path)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--preset", default=None, help="of training; tiny, on a GPU original")
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--scale", type=float, default=1.0, help="of the work in a round")
    options = parser.parse_args()
    options.preset = options.preset or ("original" if "cuda" in options.device else "tiny")
    with tempfile.TemporaryDirectory() as folder:
        options.corpus = Path(folder) / "corpus"
        if "train" in options.only:
            _prepare(options)
        print(f"{'':<44}{'old ms':>10}{'new ms':>10}{'lowest':>9}{'median':>9}{'CPU':>9}")
        for case in options.only:
            sides = [_Side(checkout, case, options) for checkout in (options.old, options.new)]
            times = compare(sides, options.rounds)
            for side in sides:
                side.close()
            print(line(CASES[case], *times), flush=True)


class _Side:
    """One checkout in a process of its own."""

    def __init__(self, checkout: Path, case: str, options: argparse.Namespace) -> None:
        checkout = checkout.resolve()
        path = [checkout / "src", checkout, checkout / "benchmarks"]
        given = {
            "case": case,
            "text": str(options.text.resolve()),
            "corpus": str(options.corpus),
            "device": options.device,
            "precision": options.precision,
            "preset": options.preset,
            "scale": options.scale,
        }
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--child", json.dumps(given)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))},
            cwd=checkout,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.measure(-1)  # what is done once is done now

    def measure(self, number: int) -> tuple[float, float]:
        """Milliseconds of a round, by the clock and of all threads."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(number, file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        if not answer:
            raise SystemExit("a checkout ended; its error is above")
        wall, cpu = json.loads(answer)
        return wall, cpu

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


Times = list[tuple[float, float]]


def compare(sides: Sequence[_Side], rounds: int) -> tuple[Times, Times]:
    """The rounds of both, in turns; who comes first alternates."""
    found: tuple[Times, Times] = ([], [])
    for number in range(rounds):
        for which in (0, 1) if number % 2 else (1, 0):
            found[which].append(sides[which].measure(number))
    return found


def line(name: str, old: Times, new: Times) -> str:
    """A row of the table."""
    (old_wall, old_cpu), (new_wall, new_cpu) = (zip(*side, strict=True) for side in (old, new))
    ratios = (
        min(new_wall) / min(old_wall),
        median(a / b for a, b in zip(new_wall, old_wall, strict=True)),
        median(a / b for a, b in zip(new_cpu, old_cpu, strict=True)),
    )
    shown = "".join(f"{ratio:>9.3f}" for ratio in ratios)
    return f"{name:<44}{min(old_wall):>10.1f}{min(new_wall):>10.1f}{shown}"


def _prepare(options: argparse.Namespace) -> None:
    """The text as a corpus for training, made by the new checkout and read by both."""
    code = (
        "import sys; from elmokit.corpus.prepare import CorpusConfig, prepare_corpus; "
        "settings = CorpusConfig(sentences='line', documents='line'); "
        "prepare_corpus(sys.argv[1], sys.argv[2], settings=settings, workers=1)"
    )
    environment = {**os.environ, "PYTHONPATH": str(options.new.resolve() / "src")}
    command = [sys.executable, "-c", code, str(options.text), str(options.corpus)]
    subprocess.run(command, env=environment, check=True)


# In a checkout's own process


def child(given: dict[str, Any]) -> None:
    """Measure a round for each line of standard input."""
    import torch

    work = _training(given) if given["case"] == "train" else _encoding(given)
    answers, sys.stdout = sys.stdout, sys.stderr
    for request in sys.stdin:
        wall, cpu = time.perf_counter(), time.process_time()
        work(int(request))
        if "cuda" in given["device"]:
            torch.cuda.synchronize()
        took = time.perf_counter() - wall, time.process_time() - cpu
        print(json.dumps([1e3 * seconds for seconds in took]), file=answers, flush=True)


def _encoding(given: dict[str, Any]) -> Callable[[int], None]:
    import elmokit

    how = {"device": given["device"], "precision": given["precision"]}
    elmo = _random_original(how) if given["case"] == "original" else elmokit.load(**how)
    counts = GPU_SENTENCES if "cuda" in given["device"] else SENTENCES
    count = max(1, int(counts[given["case"]] * given["scale"]))
    lines = Path(given["text"]).read_text("utf-8").splitlines()
    sentences = [words for text in lines if (words := elmo.tokenize(text))]
    if given["case"] == "latency":
        sentences = [words[:18] for words in sentences if len(words) >= 10]

    def work(number: int) -> None:
        start = (number + 1) * count
        some = [sentences[i % len(sentences)] for i in range(start, start + count)]
        size = {"latency": 1, "few": 8}.get(given["case"], count)
        for first in range(0, count, size):
            elmo.encode(some[first : first + size], progress=False)

    return work


def _random_original(how: dict[str, Any]) -> Any:
    import elmokit
    from elmokit.checkpoints.checkpoint import Checkpoint
    from elmokit.config import published_shape

    try:
        from elmokit.model.init import random_model
    except ImportError:  # before the modules were renamed
        from elmokit.model.initial import random_model  # type: ignore[import-not-found,no-redef]
    config = published_shape("original")
    weights = random_model(config, seed=0).state_dict()
    return elmokit.Elmo(Checkpoint(config, weights, "random", "original"), **how)


def _training(given: dict[str, Any]) -> Callable[[int], None]:
    import torch

    try:
        from benchmarks.training.presets import training
    except ImportError:  # before benchmarks became a package
        from pretrain_speed import training  # type: ignore[import-not-found,no-redef]
    from elmokit.training.settings import PRESETS

    device = torch.device(given["device"])
    trainer = training(PRESETS[given["preset"]], Path(given["corpus"]), device)[0]
    steps = max(1, int((GPU_STEPS if device.type == "cuda" else STEPS) * given["scale"]))

    def work(number: int) -> None:
        for step in range(steps):
            trainer.step((number + 1) * steps + step)

    return work


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(json.loads(sys.argv[2]))
    else:
        main()
