"""Two commits of elmokit against each other on one machine: is the new one as fast as the old?

Run: python -m benchmarks.speed.old_and_new OLD NEW [TEXT] [--rounds 7] [--only ...] [--save]

OLD and NEW are commits, or folders of the repository; TEXT is a file with a sentence per line, or
left out for the package's own sentences. Each checkout has a process of its own with everything
loaded; they are measured in turns, round by round, and each round reads the next sentences of the
text. Printed are the median times of a round, and ratios new : old, below 1 where the new one is
faster: the median of the rounds by the clock, the quarter of the rounds below and above it, and
the median by CPU time, which other programs on the machine disturb least.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Sequence
from io import BytesIO
from pathlib import Path
from statistics import median, quantiles
from typing import Any

CASES = {
    "small": "encode, embedded model",
    "original": "encode, published shape",
    "latency": "one sentence, embedded model",
    "few": "calls of eight sentences, embedded model",
    "cold": "elmokit encode of ten lines, whole process",
    "train": "training steps",
    "tag": "a tagger's epoch on stored layers",
}
SENTENCES = {"small": 600, "original": 100, "latency": 60, "few": 240, "cold": 10, "tag": 600}
GPU_SENTENCES = {**SENTENCES, "small": 20_000, "original": 20_000, "few": 2400}
STEPS, GPU_STEPS = 4, 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("text", type=Path, nargs="?", help="the package's own when left out")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--model", help="instead of the embedded default; a folder that both read")
    parser.add_argument("--preset", default=None, help="of training; tiny, on a GPU original")
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--scale", type=float, default=1.0, help="of the work in a round")
    parser.add_argument("--save", action="store_true", help="write results/speed_old_and_new.txt")
    options = parser.parse_args()
    options.preset = options.preset or ("original" if "cuda" in options.device else "tiny")
    lines = [f"old {options.old}, new {options.new}; {options.rounds} rounds in turns; new : old"]
    head = f"{'':<44}{'old ms':>10}{'new ms':>10}{'median':>9}{'quarters':>15}{'CPU':>8}"
    with tempfile.TemporaryDirectory() as folder:
        options.corpus = Path(folder) / "corpus"
        checkouts = [
            checkout(name, Path(folder) / str(i))
            for i, name in enumerate((options.old, options.new))
        ]
        if options.text is None:
            options.text = Path(folder) / "text"
            with gzip.open(checkouts[1] / "src/elmokit/encode/sentences.txt.gz") as file:
                options.text.write_bytes(file.read())
        if "train" in options.only:
            _prepare(options, checkouts[1])
        print(lines[0], head, sep="\n")
        lines.append(head)
        for case in options.only:
            sides = [_Side(path, case, options) for path in checkouts]
            times = compare(sides, options.rounds)
            for side in sides:
                side.close()
            lines.append(line(CASES[case], *times))
            print(lines[-1], flush=True)
    if options.save:
        from benchmarks.report import report

        report("speed_old_and_new", "\n".join(lines), save=True)


def checkout(name: str, folder: Path) -> Path:
    """A folder of the repository as it is, or the files of a commit."""
    if Path(name).is_dir():
        return Path(name).resolve()
    root = Path(__file__).resolve().parents[2]
    command = ["git", "archive", name, "src", "benchmarks"]
    files = subprocess.run(command, cwd=root, stdout=subprocess.PIPE, check=True).stdout
    with tarfile.open(fileobj=BytesIO(files)) as archive:
        archive.extractall(folder, filter="data")
    return folder


class _Side:
    """One checkout in a process of its own."""

    def __init__(self, checkout: Path, case: str, options: argparse.Namespace) -> None:
        path = [checkout / "src", checkout, checkout / "benchmarks"]
        given = {
            "case": case,
            "text": str(options.text.resolve()),
            "corpus": str(options.corpus),
            "device": options.device,
            "precision": options.precision,
            "model": options.model and str(Path(options.model).resolve()),
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
    ratios = [a / b for a, b in zip(new_wall, old_wall, strict=True)]
    low, middle, high = quantiles(ratios, n=4, method="inclusive")
    cpu = median(a / b for a, b in zip(new_cpu, old_cpu, strict=True))
    shown = f"{middle:>9.3f}{f'{low:.3f} - {high:.3f}':>15}{cpu:>8.3f}"
    return f"{name:<44}{median(old_wall):>10.1f}{median(new_wall):>10.1f}{shown}"


def _prepare(options: argparse.Namespace, new: Path) -> None:
    """The text as a corpus for training, made by the new checkout and read by both."""
    code = (
        "import sys; from elmokit.corpus.prepare import CorpusConfig, prepare_corpus; "
        "settings = CorpusConfig(sentences='line', documents='line'); "
        "prepare_corpus(sys.argv[1], sys.argv[2], settings=settings, workers=1)"
    )
    environment = {**os.environ, "PYTHONPATH": str(new / "src")}
    command = [sys.executable, "-c", code, str(options.text), str(options.corpus)]
    subprocess.run(command, env=environment, check=True)


# In a checkout's own process


def child(given: dict[str, Any]) -> None:
    """Measure a round for each line of standard input."""
    import torch

    makers = {"train": _training, "cold": _cold_start, "tag": _tagging}
    work = makers.get(given["case"], _encoding)(given)
    answers, sys.stdout = sys.stdout, sys.stderr
    for request in sys.stdin:
        wall, cpu = time.perf_counter(), _cpu_seconds()
        work(int(request))
        if "cuda" in given["device"]:
            torch.cuda.synchronize()
        took = time.perf_counter() - wall, _cpu_seconds() - cpu
        print(json.dumps([1e3 * seconds for seconds in took]), file=answers, flush=True)


def _cpu_seconds() -> float:
    """Of all threads, and of the processes that have been waited for."""
    times = os.times()
    return sum(times[:4])


def _cold_start(given: dict[str, Any]) -> Callable[[int], None]:
    folder = Path(given["corpus"]).parent
    text, vectors = folder / "lines.txt", folder / "vectors.npz"
    lines = Path(given["text"]).read_text("utf-8").splitlines()
    text.write_text("\n".join(lines[: SENTENCES["cold"]]) + "\n", "utf-8")
    how = ["--device", given["device"], "--precision", given["precision"]]
    model = ["--model", given["model"]] if given["model"] else []
    command = [sys.executable, "-m", "elmokit", "encode", str(text), "-o", str(vectors)]
    # An installed package has compiled bytecode; the first round, which is not counted, makes it.
    kept = {name: v for name, v in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    env = {**kept, "PYTHONPYCACHEPREFIX": str(folder / "bytecode")}

    def work(number: int) -> None:
        vectors.unlink(missing_ok=True)
        subprocess.run(
            [*command, *how, *model], env=env, check=True, stdout=2, stderr=subprocess.DEVNULL
        )

    return work


def _encoding(given: dict[str, Any]) -> Callable[[int], None]:
    import elmokit

    how = {"device": given["device"], "precision": given["precision"]}
    elmo = (
        _random_original(how)
        if given["case"] == "original"
        else elmokit.load(given["model"], **how)
    )
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


def _tagging(given: dict[str, Any]) -> Callable[[int], None]:
    """An epoch of the recipe for names, with tags that follow from capitals; not the evaluation."""
    from elmokit.tasks import fit, task_settings

    lines = Path(given["text"]).read_text("utf-8").splitlines()
    sentences = [line.split() for line in lines if line][: int(SENTENCES["tag"] * given["scale"])]
    examples = [(words, ["B-X" if w[0].isupper() else "O" for w in words]) for words in sentences]
    store = tempfile.mkdtemp(dir=Path(given["corpus"]).parent)
    settings = task_settings("tag", "tag-ner", ("run.epochs=1", "run.evals_per_epoch=1"))

    def work(number: int) -> None:
        fit(
            "tag", examples, examples[:5], elmo=given["model"] or "small-en", config=settings,
            store=store, device=given["device"], quiet=True,
        )  # fmt: skip

    return work


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(json.loads(sys.argv[2]))
    else:
        main()
