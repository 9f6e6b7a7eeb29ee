"""A whole comparison: this package, other programs and the machine's limit, in turn."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from elmokit.bench.flops import Work, work
from elmokit.bench.machine import machine
from elmokit.bench.models import prepare_many_langs, prepare_model
from elmokit.bench.processes import Process, ceiling_process, program_process
from elmokit.bench.worker import BATCHES, PROGRAMS
from elmokit.config import ModelConfig, to_dict
from elmokit.errors import ConfigError, DataError, ElmokitError

PEERS = tuple(name for name in PROGRAMS if name != "elmokit")
AGREEMENT = 1e-4
"""Vectors of another program may differ from ours by this much, or the comparison is void."""
_FIRST = 32  # sentences whose vectors are compared: one batch of every program
_TRIED = 3 * max(BATCHES)  # sentences on which another program's batch sizes are tried


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
    peers: Mapping[str, str] = field(default_factory=dict)
    """Other programs, each with the interpreter that has it."""
    threads: int = 1
    rounds: int = 3
    latencies: int = 20
    """Single sentences whose time is taken."""

    def __post_init__(self) -> None:
        unknown = [name for name in self.peers if name not in PEERS]
        if unknown:
            raise ConfigError(f"no program {unknown[0]!r} to compare with; use {', '.join(PEERS)}")
        if not any(len(sentence) >= 20 for sentence in self.sentences):
            raise DataError("the text has no sentence of 20 tokens, whose time is measured")


def measure(plan: Plan, say: Callable[[str], None] = lambda line: None) -> dict[str, Any]:
    """Measure everything in the plan, in rounds: each program once, then each again.

    A program that fails is left out with its reason; the rest goes on.

    Args:
        plan: What to measure.
        say: Is told what is being done.

    Returns:
        The figures, ready for JSON.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="elmokit-bench-")))
        say("preparing the model")
        config, source, weights = prepare_model(plan.model, plan.shape, folder, bool(plan.peers))
        run = _Run(plan, config, source, weights, folder, stack, say)
        run.start()
        run.rounds()
        return run.figures()


class _Run:
    """The processes of one comparison and what they have said so far."""

    def __init__(
        self,
        plan: Plan,
        config: ModelConfig,
        source: str,
        weights: Path | None,
        folder: Path,
        stack: ExitStack,
        say: Callable[[str], None],
    ) -> None:
        self._plan, self._config, self._source, self._weights = plan, config, source, weights
        self._folder, self._stack, self._say = folder, stack, say
        self._processes: dict[str, Process] = {}
        self._found: dict[str, dict[str, Any]] = {}
        self._ceilings: dict[str, Process] = {}
        self._limits: dict[str, dict[str, Any]] = {}
        self._failed: dict[str, str] = {}
        self._text = folder / "sentences.json"
        self._text.write_text(json.dumps([list(s) for s in plan.sentences]), encoding="utf-8")
        self._distinct = sorted({token for sentence in plan.sentences for token in sentence})
        self._tokens = sum(map(len, plan.sentences))

    # Starting

    def start(self) -> None:
        """Start every process, load the weights, take single sentences' times."""
        for precision in self._plan.precisions:
            self._try(f"matmuls, {precision}", partial(self._limit, precision))
            self._try(f"elmokit {precision}", partial(self._own, precision))
        for program, python in self._plan.peers.items():
            self._try(program, partial(self._peer, program, python))

    def _try(self, name: str, do: Callable[[], None]) -> None:
        self._say(name)
        try:
            do()
        except ElmokitError as error:
            reason = str(error).removeprefix(f"{name}: ")
            self._failed[name] = reason
            self._say(f"{name} left out: {reason}")
            for table in (self._processes, self._found, self._ceilings, self._limits):
                table.pop(name, None)

    def _spec(self, model: str, precision: str = "float32") -> dict[str, Any]:
        return {
            "model": model,
            "options": str(self._folder / "hdf5" / "options.json"),
            "device": self._plan.device,
            "precision": precision,
            "sentences": str(self._text),
        }

    def _limit(self, precision: str) -> None:
        name = f"matmuls, {precision}"
        lstm = self._config.lstm
        layer = [(lstm.width, 4 * lstm.cells), (lstm.width, 4 * lstm.cells)]
        layer += [(lstm.cells, lstm.width)] if lstm.projection else []
        spec = {
            "device": self._plan.device,
            "precision": precision,
            "threads": self._plan.threads,
            "products": [layer * lstm.layers for _ in lstm.directions],
        }
        process = self._stack.enter_context(ceiling_process(spec, name))
        ways = process.ask("search")
        self._limits[name] = {"ways": ways, "rounds": []}
        if self._plan.device != "cpu":  # a card's rate is usually given for such a product
            self._limits[name]["square"] = process.ask("square")
        self._ceilings[name] = process

    def _own(self, precision: str) -> None:
        name = f"elmokit {precision}"
        spec = self._spec(self._source, precision)
        process = program_process("elmokit", sys.executable, spec, self._threads, name)
        self._begin(name, process)
        if precision != "float32":
            self._found[name]["cosines"] = self._cosines(process)

    def _peer(self, program: str, python: str) -> None:
        if program == "elmoformanylangs":
            model = str(prepare_many_langs(self._config, self._distinct, self._folder))
        elif self._weights is None:
            raise ConfigError("this model cannot be written as HDF5, which the program reads")
        else:
            model = str(self._weights)
        process = program_process(program, python, self._spec(model), self._threads)
        self._begin(program, process)
        self._found[program]["difference"] = self._compare(process, model)
        tried = {batch: process.ask("rate", batch=batch, count=_TRIED) for batch in BATCHES}
        rates = {batch: one["tokens"] / one["seconds"] for batch, one in tried.items()}
        best = max(rates, key=lambda batch: rates[batch])
        self._found[program] |= {"batches": rates, "batch": best}

    @property
    def _threads(self) -> int:
        return self._plan.threads

    def _begin(self, name: str, process: Process) -> None:
        self._stack.enter_context(process)
        loaded = process.ask("load")
        times = process.ask("latency", times=self._plan.latencies)
        self._found[name] = {
            "versions": loaded["versions"],
            "load_seconds": loaded["seconds"],
            "latency_seconds": median(times),
            "batch": 0,
            "rounds": [],
            "warm_rounds": [],
        }
        self._processes[name] = process

    def _compare(self, process: Process, model: str) -> float:
        """The largest difference of another program's vectors from ours, for the same weights."""
        pairs = self._pairs(process, model)
        difference = max(float(abs(theirs - ours).max()) for theirs, ours in pairs)
        if not difference <= AGREEMENT:
            raise ConfigError(f"its vectors differ from elmokit's by {difference:.2g}")
        return difference

    def _cosines(self, process: Process) -> dict[str, float]:
        """How like those of float32 the vectors of another precision are, over all layers."""
        import numpy as np

        found = []
        for other, exact in self._pairs(process, self._source):
            lengths = np.linalg.norm(other, axis=-1) * np.linalg.norm(exact, axis=-1)
            found.append(((other * exact).sum(axis=-1) / lengths).ravel())
        cosines = np.concatenate(found)
        return {"mean": float(cosines.mean()), "least": float(cosines.min())}

    def _pairs(self, process: Process, model: str) -> list[tuple[Any, Any]]:
        """Vectors of the first sentences by a process, and ours in float32."""
        import numpy as np

        theirs, ours = self._folder / "theirs.npz", self._folder / "ours.npz"
        process.ask("vectors", path=str(theirs), count=_FIRST, batch=_FIRST)
        spec = self._spec(model)
        with program_process("elmokit", sys.executable, spec, self._threads) as own:
            own.ask("load")
            own.ask("vectors", path=str(ours), count=_FIRST, batch=0)
        with np.load(theirs) as a, np.load(ours) as b:
            return [(a[name], b[name]) for name in b.files]

    # Measuring

    def rounds(self) -> None:
        """Every process in turn, several times over."""
        count = len(self._plan.sentences)
        for number in range(self._plan.rounds):
            self._say(f"round {number + 1} of {self._plan.rounds}")
            for name in [*self._ceilings]:
                self._try(name, partial(self._limit_round, name))
            for name in [*self._processes]:
                self._try(name, partial(self._round, name, count))

    def _limit_round(self, name: str) -> None:
        self._limits[name]["rounds"].append(self._ceilings[name].ask("rate"))

    def _round(self, name: str, count: int) -> None:
        found, process = self._found[name], self._processes[name]
        found["rounds"].append(process.ask("rate", batch=found["batch"], count=count))
        if name.startswith("elmokit "):
            again = process.ask("rate", batch=0, count=count, blank=False)
            found["warm_rounds"].append(again)
        found["peak_mib"] = process.ask("memory")

    # Adding up

    def figures(self) -> dict[str, Any]:
        """Everything that was found."""
        count = work(self._config, self._distinct)
        limits = {
            name.rpartition(" ")[2]: {
                "flops_per_second": median([one["rate"] for one in found["rounds"]]),
                "way": found["rounds"][-1]["way"],
                "square_flops_per_second": found.get("square"),
                "ways": found["ways"],
            }
            for name, found in self._limits.items()
        }
        systems = {name: _system(found, self._tokens) for name, found in self._found.items()}
        for name, system in systems.items():
            limit = limits.get(name.removeprefix("elmokit "))
            if limit is not None:
                shares = _shares(system, limit, count, self._tokens, len(self._distinct))
                system.update(shares)
        return {
            "machine": machine(),
            "device": self._plan.device,
            "threads": self._threads,
            "model": {"source": self._plan.model or f"{self._plan.shape}, random weights"}
            | to_dict(self._config),
            "text": {
                "sentences": len(self._plan.sentences),
                "tokens": self._tokens,
                "distinct": len(self._distinct),
            },
            "flops": {
                "lstm_token": count.lstm_token,
                "first_input_token": count.first_input_token,
                "encoder_word": count.encoder_word,
                "needed_token": count.needed(self._tokens, len(self._distinct)) / self._tokens,
            },
            "ceiling": limits,
            "systems": systems,
            "ratios": _ratios(systems),
            "failed": self._failed,
        }


def _system(found: Mapping[str, Any], tokens: int) -> dict[str, Any]:
    """Medians over the rounds."""
    kept = ("versions", "load_seconds", "latency_seconds", "peak_mib")
    result = {name: found[name] for name in kept}
    extra = ("difference", "cosines", "batches", "batch")
    result |= {name: found[name] for name in extra if name in found}
    result["tokens_per_second"] = _rate(found["rounds"], "seconds", tokens)
    result["tokens_per_cpu_second"] = _rate(found["rounds"], "cpu", tokens)
    if found["warm_rounds"]:
        result["warm_tokens_per_second"] = _rate(found["warm_rounds"], "seconds", tokens)
    result["round_seconds"] = [one["seconds"] for one in found["rounds"]]
    return result


def _rate(rounds: Iterable[Mapping[str, float]], unit: str, tokens: int) -> float:
    return tokens / median([one[unit] for one in rounds])


def _shares(
    system: Mapping[str, Any], limit: Mapping[str, Any], count: Work, tokens: int, distinct: int
) -> dict[str, float]:
    """How near to the machine's limit.

    The floor is the time of the LSTMs' products for every token. The needed work is less, by what
    distinct words share, and more, by the character CNN.
    """
    rate, limit_rate = system["tokens_per_second"], limit["flops_per_second"]
    needed = count.needed(tokens, distinct) / tokens
    return {
        "floor_tokens_per_second": limit_rate / count.lstm_token,
        "share_of_floor": rate * count.lstm_token / limit_rate,
        "share_of_matrix_rate": rate * needed / limit_rate,
    }


def _ratios(systems: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """How many times better than each other program, and than our own float32."""
    found: dict[str, dict[str, float]] = {}
    for own in (name for name in systems if name.startswith("elmokit ")):
        for other in (name for name in systems if name != own):
            if other.startswith("elmokit ") and other != "elmokit float32":
                continue
            ours, theirs = systems[own], systems[other]
            found[f"{own} / {other}"] = {
                "speed": ours["tokens_per_second"] / theirs["tokens_per_second"],
                "speed_per_cpu": ours["tokens_per_cpu_second"] / theirs["tokens_per_cpu_second"],
                "latency": ours["latency_seconds"] / theirs["latency_seconds"],
                "load": ours["load_seconds"] / theirs["load_seconds"],
                "memory": ours["peak_mib"] / theirs["peak_mib"],
            }
    return found
