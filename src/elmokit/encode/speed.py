"""How fast a model runs here, and how fast the CPU or GPU could: what ``elmokit bench`` measures.

The limit is what the matmuls of the LSTM alone would allow. Model and matmuls are measured in
processes of their own, because a CPU can lack what its flags promise: some virtual machines end a
bfloat16 matmul with SIGILL. The processes take turns, and medians are shown.

Operations are counted from the config: a multiplication or an addition is one, so the matmul of an
(n, k) with a (k, m) matrix counts 2 n k m. Only matmuls and convolutions are counted; everything
else (activations, clips, biases) is smaller by the width of a matrix.
"""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import math
import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from elmokit.checkpoints.checkpoint import Checkpoint
from elmokit.config import CharacterConfig, ModelConfig, published_shape, to_dict
from elmokit.encode.elmo import Elmo
from elmokit.encode.loading import load
from elmokit.errors import DataError, ElmokitError
from elmokit.model.init import random_model
from elmokit.text.readers import read_texts
from elmokit.text.sentences import split_sentences
from elmokit.text.tokens import get_tokenizer

PACKAGES = ("torch", "numpy", "elmokit")
OWN_TEXT = Path(__file__).with_name("sentences.txt.gz")
LONGEST = 120
"""Longer sentences are left out: nearly always they are tables or lists."""
LATENCY_TOKENS = 20
"""Length of the sentence whose latency is measured."""
ROWS = {"cpu": (64, 128, 256, 512), "cuda": (1024, 4096, 16384)}
SQUARE = {"cpu": 2048, "cuda": 8192}
CPU_KINDS = {
    "float32": ("linear", "oneDNN packed", "MKL packed"),
    "bfloat16": ("linear", "oneDNN packed"),
    "int8": ("x86", "onednn", "fbgemm"),
}
"""Ways to multiply on a CPU; those of int8 are torch's engines for quantized matmuls."""
RATIOS = {
    "speed": "tokens_per_second",
    "speed_per_cpu": "tokens_per_cpu_second",
    "latency": "latency_seconds",
    "load": "load_seconds",
    "memory": "peak_mib",
}
"""The figures of two systems that are divided by each other."""
_REPEATS = 3
_COMPARED = 32  # sentences whose vectors are compared with those of float32
_LONGEST_REASON = 200


def machine() -> dict[str, str | int | float]:
    """What every measurement writes down: date, CPU, cores, memory and versions."""
    cpu, information = platform.machine(), Path("/proc/cpuinfo")
    if information.is_file():
        found = re.search(r"model name\s*:\s*(.+)", information.read_text())
        cpu = found[1] if found else cpu
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "date": str(datetime.date.today()),
        "cpu": cpu,
        "cores": os.cpu_count() or 1,
        "memory_gib": round(memory, 1),
        "python": platform.python_version(),
        **{name: _version(name) for name in PACKAGES},
    }


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:  # run from a checkout
        return "not installed"


def describe() -> str:
    """The same for people, a line each for date, machine and software."""
    found = machine()
    packages = ", ".join(f"{name} {found[name]}" for name in PACKAGES)
    return (
        f"date     {found['date']}\n"
        f"machine  {found['cpu']}, {found['cores']} cores, {found['memory_gib']:.0f} GiB\n"
        f"software Python {found['python']}, {packages}\n"
    )


def own_sentences(count: int) -> list[list[str]]:
    """The first of the package's own sentences, in a random order that is always the same."""
    return [str(line).split() for line in islice(read_texts(str(OWN_TEXT)), count)]


def sentences_of(source: str, count: int, *, tokens: bool = False) -> list[list[str]]:
    """The first sentences of a file as `elmokit encode` takes it.

    With `tokens` it has one sentence per line, its tokens between spaces; otherwise the text is
    split into sentences and words.
    """
    words = get_tokenizer("words")
    found: list[list[str]] = []
    for text in read_texts(source):
        if isinstance(text, str):
            pieces = [text.split()] if tokens else map(words.tokenize, split_sentences(text))
        else:
            pieces = [text]
        found += [piece for piece in pieces if 0 < len(piece) <= LONGEST]
        if len(found) >= count:
            break
    if not found:
        raise DataError(f"{source}: no sentence in it")
    return found[:count]


@dataclass(frozen=True)
class Flops:
    """The operations of making vectors."""

    lstm_token: int
    """All LSTM layers and directions, for one token."""
    first_input_token: int
    """The part of it that the word alone decides: the first layer's input matmul."""
    encoder_word: float
    """Characters to token vector, for one distinct word."""

    def needed(self, tokens: int, distinct: int) -> float:
        """The least for a text: what the word alone decides, once per distinct word."""
        shared = distinct * (self.encoder_word + self.first_input_token)
        return tokens * (self.lstm_token - self.first_input_token) + shared


def count_flops(config: ModelConfig, words: Iterable[str] = ()) -> Flops:
    """Count a model's operations.

    The distinct words to be read decide how many columns the character CNN has to look at; without
    words it looks at all of them.
    """
    lstm, characters = config.lstm, config.characters
    gates = 4 * lstm.cells * lstm.width
    layer = 2 * gates + (lstm.cells * lstm.width if lstm.projection else 0)
    directions = len(lstm.directions)
    encoder = 0.0
    if characters is not None:
        lengths = [columns(characters, word) for word in words] or [characters.max_characters]
        encoder += sum(
            2 * width * characters.dim * count * (length - width + 1)
            for length in lengths
            for width, count in characters.filters
        ) / len(lengths)
        encoder += characters.highways * 2 * 2 * characters.width**2
    if config.input_projection:
        encoder += 2 * config.input_width * lstm.width
    return Flops(2 * directions * lstm.layers * layer, 2 * directions * gates, encoder)


def columns(config: CharacterConfig, word: str) -> int:
    """Columns that the CNN must see of a word: its characters, two markers, one blank window."""
    length = len(word.encode("utf-8", "ignore")) if config.alphabet == "bytes" else len(word)
    return min(config.max_characters, length + 2 + config.widest_filter)


class Way(NamedTuple):
    """One way to compute the matmuls of a step."""

    kind: str
    rows: int
    apart: bool

    def __str__(self) -> str:
        cores = "each direction on its own cores" if self.apart else "all cores on one matmul"
        return f"{self.kind}, {self.rows} rows, {cores}"


class Ceiling:
    """How fast matmuls are: all of one step of the LSTMs, in every way that torch has.

    The precision may also be ``"tf32"``; shapes are those of `lstm_shapes`.
    """

    def __init__(
        self,
        device: str,
        precision: str,
        threads: int,
        shapes: Sequence[Sequence[tuple[int, int]]] = (),
    ) -> None:
        warnings.simplefilter("ignore")  # parts of torch that are on their way out
        self._device, self._precision = torch.device(device), precision
        self._threads, self._shapes = threads, shapes
        self._best: list[Way] = []
        torch.set_num_threads(threads)
        torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"

    def search(self, names: Sequence[str] | None = None) -> dict[str, float]:
        """Operations per second of every way, or of those named; `rate` repeats the best two."""
        ways = [way for way in self._ways() if names is None or str(way) in names]
        found = {way: self._measure(way) for way in ways}
        ranked = sorted(found, key=lambda way: -found[way])
        self._best = ranked[:2]
        return {str(way): found[way] for way in ranked}

    def rate(self) -> dict[str, Any]:
        """Operations per second of the best way."""
        found = {way: self._measure(way) for way in self._best}
        best = max(found, key=lambda way: found[way])
        return {"rate": found[best], "way": str(best)}

    def square(self) -> float:
        """Operations per second of one large square matmul."""
        size = SQUARE[self._device.type]
        x, weight = self._random(size, size), self._random(size, size)
        return 2.0 * size**3 / self._seconds(lambda: x @ weight)

    def _ways(self) -> Iterator[Way]:
        gpu = self._device.type == "cuda"
        apart = (False, True) if len(self._shapes) > 1 and self._threads > 1 else (False,)
        for kind in ("linear",) if gpu else CPU_KINDS[self._precision]:
            try:
                self._matmul(kind, 8, 8, 8)()
            except (RuntimeError, AttributeError):  # not built into this torch
                continue
            for rows in ROWS[self._device.type]:
                yield from (Way(kind, rows, each) for each in ((False,) if gpu else apart))

    def _measure(self, way: Way) -> float:

        def run(matmuls: list[Callable[[], Tensor]]) -> None:
            with torch.no_grad():
                for matmul in matmuls:
                    matmul()

        steps = [
            [self._matmul(way.kind, way.rows, *shape) for shape in direction]
            for direction in self._shapes
        ]
        flops = sum(2.0 * way.rows * a * b for direction in self._shapes for a, b in direction)
        if not way.apart:
            return flops / self._seconds(lambda: list(map(run, steps)))
        own = max(1, self._threads // len(steps))
        with ThreadPoolExecutor(
            len(steps), initializer=torch.set_num_threads, initargs=(own,)
        ) as pool:
            seconds = self._seconds(lambda: list(pool.map(run, steps)))
        torch.set_num_threads(self._threads)
        return flops / seconds

    def _seconds(self, run: Callable[[], object]) -> float:
        best = float("inf")
        for _ in range(_REPEATS + 1):
            start = time.perf_counter()
            run()
            if self._device.type == "cuda":
                torch.cuda.synchronize(self._device)
            best = min(best, time.perf_counter() - start)
        return best

    def _random(self, *shape: int) -> Tensor:
        numbers = torch.randn(*shape, device=self._device).mul_(float(shape[-1]) ** -0.5)
        return numbers.bfloat16() if self._precision == "bfloat16" else numbers

    def _matmul(self, kind: str, rows: int, width_in: int, width_out: int) -> Callable[[], Any]:
        ops, x, weight = torch.ops, self._random(rows, width_in), self._random(width_out, width_in)
        if kind == "linear":
            return lambda: torch.nn.functional.linear(x, weight)
        if kind == "oneDNN packed":
            packed = ops.mkldnn._reorder_linear_weight(weight, rows)
            return lambda: ops.mkldnn._linear_pointwise(x, packed, None, "none", [], "")
        if kind == "MKL packed":
            packed = ops.mkl._mkl_reorder_linear_weight(weight, rows)
            return lambda: ops.mkl._mkl_linear(x, packed, weight, None, rows)
        torch.backends.quantized.engine = kind
        scale = float(weight.abs().max()) / 127
        quantized = torch.quantize_per_tensor(weight, scale, 0, torch.qint8)
        packed = ops.quantized.linear_prepack(quantized, None)
        return lambda: ops.quantized.linear_dynamic(x, packed)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is to be measured."""

    sentences: Sequence[Sequence[str]]
    """The text, as tokens."""
    model: str | None = None
    """A source of `elmokit.load`; otherwise random weights of `shape`."""
    shape: str = "small"
    """A published shape."""
    device: str = "cpu"
    precisions: Sequence[str] = ("float32",)
    threads: int = 1
    rounds: int = 3
    latencies: int = 20
    """Single sentences whose time is taken."""

    def __post_init__(self) -> None:
        if not any(len(sentence) >= LATENCY_TOKENS for sentence in self.sentences):
            raise DataError("the text has no sentence of 20 tokens, whose time is measured")


def measure(plan: Plan, say: Callable[[str], None] = lambda line: None) -> dict[str, Any]:
    """Measure a model and its matmuls in every precision, in rounds: each once, then each again.

    What fails is left out with its reason; the rest continues. `say` is told what is being done.

    Returns:
        The figures, ready for JSON.
    """
    limits: dict[str, list[dict[str, Any]]] = {name: [] for name in plan.precisions}
    systems: dict[str, list[dict[str, Any]]] = {f"elmokit {name}": [] for name in plan.precisions}
    failed: dict[str, str] = {}

    def attempt(name: str, rounds: list[dict[str, Any]], kind: str, spec: dict[str, Any]) -> None:
        if name not in failed:
            say(name)
            try:
                rounds.append(_in_process(kind, spec, plan.threads))
            except ElmokitError as error:
                failed[name] = str(error)
                say(f"{name} left out: {error}")
                rounds.clear()

    with tempfile.TemporaryDirectory(prefix="elmokit-bench-") as folder:
        say("preparing the model")
        config, source = prepare_model(plan.model, plan.shape, Path(folder))
        text = Path(folder) / "sentences.json"
        text.write_text(json.dumps([list(s) for s in plan.sentences]), encoding="utf-8")
        shared = {"device": plan.device}
        own = {"model": source, "sentences": str(text), "latencies": plan.latencies}
        for number in range(plan.rounds):
            say(f"round {number + 1} of {plan.rounds}")
            for precision, rounds in limits.items():
                best = list(rounds[0]["ways"])[:2] if rounds else None
                limit = {"threads": plan.threads, "shapes": lstm_shapes(config), "best": best}
                spec = {**shared, "precision": precision, **limit}
                attempt(f"matmuls, {precision}", rounds, "matmuls", spec)
            for precision in plan.precisions:
                name = f"elmokit {precision}"
                compare = number == 0 and precision != "float32"
                spec = {**shared, "precision": precision, **own, "compare": compare}
                attempt(name, systems[name], "model", spec)
    return figures(
        plan,
        config,
        {name: summarize_limit(rounds) for name, rounds in limits.items() if rounds},
        {name: summarize_rounds(rounds) for name, rounds in systems.items() if rounds},
        failed,
    )


def prepare_model(model: str | None, shape: str, folder: Path) -> tuple[ModelConfig, str]:
    """The model to be measured: its config, and what `elmokit.load` is given.

    Without a model it is random weights of a published shape, written to the folder.
    """
    if model is not None:
        return load(model, softmax=False, device="cpu").config, model
    config = published_shape(shape)
    weights = folder / "hdf5" / "weights.hdf5"
    tensors = random_model(config, seed=0).state_dict()
    Elmo(Checkpoint(config, tensors, "random", shape), device="cpu").export(weights)
    return config, str(weights)


def lstm_shapes(config: ModelConfig) -> list[list[tuple[int, int]]]:
    """For each direction the (width in, width out) of the matrices of one step."""
    lstm = config.lstm
    layer = [(lstm.width, 4 * lstm.cells), (lstm.width, 4 * lstm.cells)]
    layer += [(lstm.cells, lstm.width)] if lstm.projection else []
    return [layer * lstm.layers for _ in lstm.directions]


def _in_process(kind: str, spec: dict[str, Any], threads: int) -> dict[str, Any]:
    """One measurement by this module in a process of its own."""
    command = [sys.executable, "-m", "elmokit.encode.speed", kind, json.dumps(spec)]
    counts = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(threads))
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, **counts}, check=False
    )
    if done.returncode:
        raise ElmokitError(reason_of_death(done.returncode, done.stderr))
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def reason_of_death(code: int, errors: str) -> str:
    """Why a process ended, in one line: its signal, or the last thing it said."""
    if code < 0:
        return f"ended by {signal.Signals(-code).name}"
    # The last line that does not begin with a blank is Python's own summary of an error.
    said = [line for line in errors.splitlines() if re.match(r"\S", line)]
    return said[-1][:_LONGEST_REASON] if said else f"exit code {code}, no message"


def _measure_matmuls(best: Sequence[str] | None, **spec: Any) -> dict[str, Any]:
    ceiling = Ceiling(**spec)
    ways = ceiling.search(best)
    found: dict[str, Any] = {"ways": ways, **ceiling.rate()}
    if spec["device"] != "cpu" and best is None:  # a GPU's rate is usually given for such a matmul
        found["square"] = ceiling.square()
    return found


def _measure_model(
    model: str, device: str, precision: Any, sentences: str, latencies: int, compare: bool
) -> dict[str, Any]:
    """Load a model and encode a text, with an empty word cache and with all words seen before."""
    opened = partial(load, model, tokenizer="space", device=device, softmax=False)
    start = time.perf_counter()
    elmo = opened(precision=precision)
    loaded = time.perf_counter() - start
    text = json.loads(Path(sentences).read_text("utf-8"))

    def forget() -> None:
        """Empty the word cache, and compute again what depends on the weights alone."""
        elmo.forget()
        elmo.encode([["warm-up"]], layers="all")

    def timed(some: Sequence[Sequence[str]]) -> tuple[float, float]:
        wall, cpu = time.perf_counter(), time.process_time()
        deque(elmo.encode_stream(some, layers="all"), maxlen=0)
        return time.perf_counter() - wall, time.process_time() - cpu

    forget()
    short = [sentence[:LATENCY_TOKENS] for sentence in text if len(sentence) >= LATENCY_TOKENS]
    times = [timed([short[number % len(short)]])[0] for number in range(latencies + 1)]
    forget()
    cold, warm = timed(text), timed(text)
    versions = {name: importlib.metadata.version(name) for name in PACKAGES}
    return {
        "versions": {**versions, "python": platform.python_version()},
        "load_seconds": loaded,
        "latency_seconds": median(times[1:]),  # the first one warms up
        "tokens": sum(map(len, text)),
        "seconds": cold[0],
        "cpu": cold[1],
        "warm_seconds": warm[0],
        "peak_mib": peak_mib(),
        **({"cosines": _cosines(elmo, opened(), text)} if compare else {}),
    }


def peak_mib() -> float:
    """The most memory that this process has held, in MiB.

    Linux's own count for a process, ru_maxrss, begins with what its parent held.
    """
    status = Path("/proc/self/status")
    found = re.search(r"VmHWM:\s*(\d+) kB", status.read_text()) if status.exists() else None
    if found:
        return int(found[1]) / 2**10
    try:
        import resource
    except ImportError:  # Windows
        return math.nan
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return used / (2**20 if sys.platform == "darwin" else 2**10)


def _cosines(elmo: Elmo, exact: Elmo, text: Sequence[Sequence[str]]) -> dict[str, float]:
    """How like those of float32 the vectors of another precision are, over all layers."""
    found = []
    for sentence in text[:_COMPARED]:
        one, other = (model.encode([sentence], layers="all")[0] for model in (elmo, exact))
        lengths = np.linalg.norm(one, axis=-1) * np.linalg.norm(other, axis=-1)
        found.append(((one * other).sum(axis=-1) / lengths).ravel())
    cosines = np.concatenate(found)
    return {"mean": float(cosines.mean()), "least": float(cosines.min())}


def summarize_limit(rounds: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The figures of one precision's matmuls."""
    return {
        "flops_per_second": median([one["rate"] for one in rounds]),
        "way": rounds[-1]["way"],
        "square_flops_per_second": rounds[0].get("square"),
        "ways": rounds[0]["ways"],
    }


def summarize_rounds(rounds: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The figures of one system: medians over the rounds, and the rest of the first one."""
    tokens = rounds[0]["tokens"]

    def middle(name: str) -> float:
        return float(median([one[name] for one in rounds]))

    found = {name: middle(name) for name in ("load_seconds", "latency_seconds", "peak_mib")}
    found["tokens_per_second"] = tokens / middle("seconds")
    found["tokens_per_cpu_second"] = tokens / middle("cpu")
    if "warm_seconds" in rounds[0]:
        found["warm_tokens_per_second"] = tokens / middle("warm_seconds")
    other = {name: rounds[0][name] for name in ("versions", "cosines") if name in rounds[0]}
    return {**found, **other, "round_seconds": [one["seconds"] for one in rounds]}


def figures(
    plan: Plan,
    config: ModelConfig,
    limits: Mapping[str, Mapping[str, Any]],
    systems: Mapping[str, dict[str, Any]],
    failed: Mapping[str, str],
) -> dict[str, Any]:
    """Everything that was found, with each system's share of the limit and ratios to our float32.

    The floor is the time of the LSTMs' matmuls for every token. The needed operations are fewer,
    by what distinct words share, and more, by the character CNN.
    """
    distinct = {token for sentence in plan.sentences for token in sentence}
    tokens = sum(map(len, plan.sentences))
    flops = count_flops(config, distinct)
    needed = flops.needed(tokens, len(distinct)) / tokens
    for name, system in systems.items():
        limit = limits.get(name.removeprefix("elmokit "))
        if limit is not None:
            rate, most = system["tokens_per_second"], limit["flops_per_second"]
            system["floor_tokens_per_second"] = most / flops.lstm_token
            system["share_of_floor"] = rate * flops.lstm_token / most
            system["share_of_matrix_rate"] = rate * needed / most
    return {
        "machine": machine(),
        "device": plan.device,
        "threads": plan.threads,
        "model": {"source": plan.model or f"{plan.shape}, random weights"} | to_dict(config),
        "text": {"sentences": len(plan.sentences), "tokens": tokens, "distinct": len(distinct)},
        "flops": {**asdict(flops), "needed_token": needed},
        "ceiling": dict(limits),
        "systems": dict(systems),
        "ratios": ratios(systems, ["elmokit float32"]),
        "failed": dict(failed),
    }


def ratios(
    systems: Mapping[str, Mapping[str, Any]], others: Iterable[str]
) -> dict[str, dict[str, float]]:
    """How many times better each of our systems is than each of the others that were measured."""
    return {
        f"{own} / {other}": {
            ratio: systems[own][name] / systems[other][name] for ratio, name in RATIOS.items()
        }
        for own in systems
        for other in others
        if own.startswith("elmokit ") and own != other and other in systems
    }


if __name__ == "__main__":
    _measured = _measure_matmuls if sys.argv[1] == "matmuls" else _measure_model
    print(json.dumps(_measured(**json.loads(sys.argv[2]))))
