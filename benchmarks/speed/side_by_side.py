"""Vectors of 1,000 real sentences: elmokit, other programs and the machine's limit, in turn.

Run: python -m benchmarks.speed.side_by_side SHAPE [--peer allennlp=/path/to/python ...] [--save]

SHAPE is small, medium or original, with random weights; --model measures any other model. What
``elmokit bench`` measures, with other programs beside it; --save keeps it in benchmarks/results as
text, JSON and a picture. README.md beside this file says how to make the other interpreters.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import elmokit
from benchmarks.report import RESULTS, report
from benchmarks.speed.models import as_hdf5, prepare_many_langs
from benchmarks.speed.plot import check_picture, draw
from benchmarks.speed.processes import Process, ceiling_process, program_process
from benchmarks.speed.worker import BATCHES, PROGRAMS
from elmokit.cli.bench import table as own_table
from elmokit.config import ModelConfig
from elmokit.corpus.workers import default_workers
from elmokit.encode import speed
from elmokit.errors import ConfigError, ElmokitError

PEERS = tuple(name for name in PROGRAMS if name != "elmokit")
OWN_FIGURES = ("difference", "batches", "batch")
"""What is found of a program before the rounds, besides what `elmokit bench` measures."""
AGREEMENT = 1e-4
"""Vectors of another program may differ from ours by this much, or the comparison is void."""
_FIRST = 32  # sentences whose vectors are compared: one batch of every program
_TRIED = 3 * max(BATCHES)  # sentences on which another program's batch sizes are tried


@dataclass(frozen=True, kw_only=True)
class Plan(speed.Plan):
    """What is to be measured."""

    peers: Mapping[str, str] = field(default_factory=dict)
    """Other programs, each with the interpreter that has it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        unknown = [name for name in self.peers if name not in PEERS]
        if unknown:
            raise ConfigError(f"no program {unknown[0]!r} to compare with; use {', '.join(PEERS)}")


def measure(plan: Plan, say: Callable[[str], None] = lambda line: None) -> dict[str, Any]:
    """Measure everything in the plan, in rounds: each program once, then each again.

    A program that fails is left out with its reason; the rest continues.

    Args:
        plan: What to measure.
        say: Is told what is being done.

    Returns:
        The figures, ready for JSON.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="elmokit-bench-")))
        say("preparing the model")
        config, source = speed.prepare_model(plan.model, plan.shape, folder)
        run = _Run(plan, config, source, folder, stack, say)
        run.start()
        run.rounds()
        return run.figures()


class _Run:
    """The processes of one comparison and what they have answered so far."""

    def __init__(
        self,
        plan: Plan,
        config: ModelConfig,
        source: str,
        folder: Path,
        stack: ExitStack,
        say: Callable[[str], None],
    ) -> None:
        self._plan, self._config, self._source = plan, config, source
        self._folder, self._stack, self._say = folder, stack, say
        self._weights = as_hdf5(source, folder) if plan.peers else None
        self._processes: dict[str, Process] = {}
        self._found: dict[str, dict[str, Any]] = {}
        self._rounds: dict[str, list[dict[str, Any]]] = {}
        self._failed: dict[str, str] = {}
        self._text = folder / "sentences.json"
        self._text.write_text(json.dumps([list(s) for s in plan.sentences]), encoding="utf-8")

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
            for entries in (self._processes, self._found, self._rounds):
                entries.pop(name, None)

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
        spec = {
            "device": self._plan.device,
            "precision": precision,
            "threads": self._plan.threads,
            "shapes": speed.lstm_shapes(self._config),
        }
        process = self._stack.enter_context(ceiling_process(spec, name))
        self._found[name] = {"ways": process.ask("search")}
        if self._plan.device != "cpu":  # a GPU's rate is usually given for such a matmul
            self._found[name]["square"] = process.ask("square")
        self._processes[name], self._rounds[name] = process, []

    def _own(self, precision: str) -> None:
        name = f"elmokit {precision}"
        spec = self._spec(self._source, precision)
        threads = self._plan.threads
        self._begin(name, program_process("elmokit", sys.executable, spec, threads, name))
        if precision != "float32":
            cosines = np.concatenate(
                [
                    (one * other).sum(-1).ravel()
                    / (np.linalg.norm(one, axis=-1) * np.linalg.norm(other, axis=-1)).ravel()
                    for one, other in self._pairs(self._processes[name], self._source)
                ]
            )
            self._found[name]["cosines"] = {
                "mean": float(cosines.mean()),
                "least": float(cosines.min()),
            }

    def _peer(self, program: str, python: str) -> None:
        if program == "elmoformanylangs":
            words = sorted({token for sentence in self._plan.sentences for token in sentence})
            model = str(prepare_many_langs(self._config, words, self._folder))
        elif self._weights is None:
            raise ConfigError("this model cannot be written as HDF5, which the program reads")
        else:
            model = str(self._weights)
        process = program_process(program, python, self._spec(model), self._plan.threads)
        self._begin(program, process)
        pairs = self._pairs(process, model)
        difference = max(float(abs(theirs - ours).max()) for theirs, ours in pairs)
        if not difference <= AGREEMENT:
            raise ConfigError(f"its vectors differ from elmokit's by {difference:.2g}")
        tried = {batch: process.ask("rate", batch=batch, count=_TRIED) for batch in BATCHES}
        rates = {batch: one["tokens"] / one["seconds"] for batch, one in tried.items()}
        best = max(rates, key=lambda batch: rates[batch])
        self._found[program] |= {"difference": difference, "batches": rates, "batch": best}

    def _begin(self, name: str, process: Process) -> None:
        self._stack.enter_context(process)
        loaded = process.ask("load")
        times = process.ask("latency", times=self._plan.latencies)
        self._found[name] = {
            "versions": loaded["versions"],
            "load_seconds": loaded["seconds"],
            "latency_seconds": median(times),
            "batch": 0,
        }
        self._processes[name], self._rounds[name] = process, []

    def _pairs(self, process: Process, model: str) -> Iterator[tuple[Any, Any]]:
        """Vectors of the first sentences by a process, and ours in float32 of the same weights."""
        theirs = self._folder / "theirs.npz"
        process.ask("vectors", path=str(theirs), count=_FIRST, batch=_FIRST)
        elmo = elmokit.load(model, tokenizer="space", device=self._plan.device, softmax=False)
        ours = elmo.encode([list(s) for s in self._plan.sentences[:_FIRST]], layers="all")
        with np.load(theirs) as found:
            yield from ((found[str(number)], own) for number, own in enumerate(ours))

    # Measuring

    def rounds(self) -> None:
        """Every process in turn, several times over; the matmuls first."""
        for number in range(self._plan.rounds):
            self._say(f"round {number + 1} of {self._plan.rounds}")
            for name in sorted(self._processes, key=lambda name: not name.startswith("matmuls, ")):
                self._try(name, partial(self._round, name))

    def _round(self, name: str) -> None:
        found, process = self._found[name], self._processes[name]
        if name.startswith("matmuls, "):
            self._rounds[name].append(found | process.ask("rate"))
            return
        count = len(self._plan.sentences)
        measured = process.ask("rate", batch=found["batch"], count=count)
        if name.startswith("elmokit "):
            again = process.ask("rate", batch=0, count=count, seen=True)
            measured["warm_seconds"] = again["seconds"]
        self._rounds[name].append(found | measured | {"peak_mib": process.ask("memory")})

    def figures(self) -> dict[str, Any]:
        """Everything that was found, with ratios to the other programs too."""
        limits, systems = {}, {}
        for name, rounds in self._rounds.items():
            if name.startswith("matmuls, "):
                limits[name.removeprefix("matmuls, ")] = speed.summarize_limit(rounds)
            else:
                own = {key: rounds[0][key] for key in OWN_FIGURES if key in rounds[0]}
                systems[name] = speed.summarize_rounds(rounds) | own
        found = speed.figures(self._plan, self._config, limits, systems, self._failed)
        others = [name for name in systems if name in PEERS or name == "elmokit float32"]
        return found | {"ratios": speed.ratios(systems, others)}


def table(figures: Mapping[str, Any]) -> str:
    """All figures for people, without the machine."""
    lines = [own_table(figures), ""]
    for name, system in figures["systems"].items():
        if "batches" in system:
            tried = ", ".join(f"{size}: {rate:,.0f}" for size, rate in system["batches"].items())
            versions = ", ".join(f"{key} {value}" for key, value in system["versions"].items())
            lines.append(
                f"{name}: best batch size {system['batch']} (tokens/s by batch size {tried}); "
                f"vectors differ from elmokit's by {system['difference']:.1g} at most; {versions}"
            )
    return "\n".join(lines).rstrip()


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("shape", nargs="?", default="small", help="small, medium or original")
    parser.add_argument("--model", help="anything that elmokit.load reads, instead of a shape")
    parser.add_argument("--peer", action="append", default=[], metavar="PROGRAM=PYTHON")
    parser.add_argument("--precision", action="append", metavar="float32|bfloat16|int8")
    parser.add_argument("--sentences", metavar="FILE", help="a text instead of the package's own")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=default_workers())
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where the figures go")
    parser.add_argument("--plot", type=Path, metavar="PICTURE", help=".png, .pdf or .svg")
    parser.add_argument("--save", action="store_true", help="write results/speed_SHAPE.*, _model.*")
    options = parser.parse_args(arguments)
    for peer in options.peer:
        if not peer.partition("=")[2]:
            parser.error(f"--peer {peer}: write it as program=/path/to/its/python")
    return options


def main(arguments: Sequence[str] | None = None) -> None:
    options = parsed(arguments)
    name = "speed_model" if options.model else f"speed_{options.shape}"
    if options.save:
        options.json = options.json or RESULTS / f"{name}.json"
        options.plot = options.plot or RESULTS / f"{name}.png"
    if options.plot is not None:
        check_picture(options.plot)
    plan = Plan(
        sentences=speed.sentences_of(options.sentences, options.count)
        if options.sentences
        else speed.own_sentences(options.count),
        model=options.model,
        shape=options.shape,
        device=options.device,
        precisions=options.precision or ["float32"],
        peers=dict(peer.split("=", 1) for peer in options.peer),
        threads=options.threads,
        rounds=options.rounds,
    )
    figures = measure(plan, say=lambda line: print(line, file=sys.stderr, flush=True))
    report(name, table(figures), options.save)
    if options.json is not None:
        options.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    if options.plot is not None:
        draw(figures, options.plot)


if __name__ == "__main__":
    main()
