"""``elmokit bench``: how fast a model runs here, beside other programs and the machine's limit."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Group, Parameter, validators

from elmokit.cli.options import AtLeastOne, Device, Flag, Json, Tokens, UsageError

EXAMPLES = (
    "elmokit bench --model elmo_weights.hdf5 --quick",
    "elmokit bench --shape original --precision float32 --precision bfloat16 --plot speed.png",
    "elmokit bench --shape original --peer allennlp=/path/to/its/python --json",
)

QUICK_SENTENCES = 100

_one_model = Group(validator=validators.mutually_exclusive)


def bench(  # noqa: D417 - options that verbs share bring their own help
    *,
    model: Annotated[str | None, Parameter(group=("Parameters", _one_model))] = None,
    shape: Annotated[
        Literal["small", "medium", "original"] | None, Parameter(group=("Parameters", _one_model))
    ] = None,
    device: Device = "cpu",
    precision: Annotated[
        list[Literal["float32", "bfloat16", "int8"]] | None, Parameter(show_default=False)
    ] = None,
    peer: Annotated[list[str] | None, Parameter(show_default=False)] = None,
    sentences: str | None = None,
    tokens: Tokens = False,
    count: Annotated[int, AtLeastOne] = 1000,
    rounds: Annotated[int, AtLeastOne] = 3,
    threads: Annotated[int | None, AtLeastOne] = None,
    quick: Annotated[bool, Flag] = False,
    plot: Path | None = None,
    as_json: Json = False,
) -> None:
    """Measure tokens per second, time of one sentence, loading and memory, and the machine's limit.

    Every program runs in a process of its own, in turn, several times; medians are shown. The
    limit is what the machine's matmuls alone would allow.

    Args:
        model: Anything that --model of the other verbs takes.
        shape: Random weights of a published shape (small when no model is given either).
        precision: Numbers of the weights; give it again for each one to be measured. float32
            when left out.
        peer: Another program and the interpreter that has it, such as
            allennlp=/path/to/python: allennlp, simple_elmo or elmoformanylangs. It gets the same
            weights and sentences, and its vectors are compared. Give it again for more.
        sentences: A text to measure with, instead of 1,000 sentences of old novels.
        count: The most sentences.
        rounds: How often each program is measured.
        threads: Threads of each program; all cores when left out.
        quick: 100 sentences, one round: shows that everything works.
        plot: Where a picture goes (.png, .pdf, .svg).
    """
    from elmokit.bench.machine import describe, usable_cores
    from elmokit.bench.plot import check_picture, draw
    from elmokit.bench.report import table
    from elmokit.bench.side_by_side import Plan, measure
    from elmokit.bench.texts import own_sentences, sentences_of

    if tokens and sentences is None:
        raise UsageError("--tokens says how --sentences is split.")
    if plot is not None:
        check_picture(plot)
    peers = dict(_pair(text) for text in peer or ())
    count = min(count, QUICK_SENTENCES) if quick else count
    text = (
        own_sentences(count) if sentences is None else sentences_of(sentences, count, tokens=tokens)
    )
    plan = Plan(
        sentences=text,
        model=model,
        shape=shape or "small",
        device=device,
        precisions=tuple(dict.fromkeys(precision or ("float32",))),
        peers=peers,
        threads=threads or usable_cores(),
        rounds=1 if quick else rounds,
        latencies=5 if quick else 20,
    )
    figures = measure(plan, say=lambda line: print(line, file=sys.stderr))
    if plot is not None:
        draw(figures, plot)
    if as_json:
        print(json.dumps(figures, indent=2))
    else:
        print(describe() + table(figures))


def _pair(text: str) -> tuple[str, str]:
    program, equals, python = text.partition("=")
    if not equals or not python:
        raise UsageError(f"--peer {text}: write it as program=/path/to/its/python.")
    return program, python
