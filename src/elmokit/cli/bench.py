"""``elmokit bench``: how fast a model runs here, beside the limit of the CPU or GPU."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from cyclopts import Group, Parameter, validators

from elmokit.cli.options import (
    AtLeastOne,
    Device,
    Json,
    Model,
    Tokens,
    UsageError,
    model_option,
    suggest,
)

EXAMPLES = (
    "elmokit bench --quick",
    "elmokit bench --model elmo_weights.hdf5 --quick --json",
    "elmokit bench --shape small --precision float32 --precision int8 --quick",
)

QUICK_SENTENCES = 100

_one_model = Group(validator=validators.mutually_exclusive)


def bench(  # noqa: D417 - options that verbs share bring their own help
    *,
    model: Annotated[Model, Parameter(group=("Parameters", _one_model))] = None,
    shape: Annotated[
        Literal["small", "medium", "original"] | None, Parameter(group=("Parameters", _one_model))
    ] = None,
    device: Device = None,
    precision: Annotated[
        list[Literal["float32", "bfloat16", "int8"]] | None, Parameter(show_default=False)
    ] = None,
    sentences: str | None = None,
    tokens: Tokens = False,
    count: Annotated[int, AtLeastOne] = 1000,
    rounds: Annotated[int, AtLeastOne] = 3,
    threads: Annotated[int | None, AtLeastOne] = None,
    quick: bool = False,
    as_json: Json = False,
) -> None:
    """Measure tokens per second, time of one sentence, loading and memory, and the machine's limit.

    Every measurement runs in a process of its own, in turn, several times; medians are shown. The
    limit is what the machine's matmuls alone would allow.

    Args:
        shape: Random weights of a published shape, instead of a model.
        precision: Numbers of the weights; give it again for each one to be measured. float32
            when left out.
        sentences: A text to measure with, instead of 1,000 sentences of old novels.
        count: The most sentences.
        rounds: How often everything is measured.
        threads: Threads of the matmuls; all cores when left out.
        quick: 100 sentences, one round: shows that everything works.
    """
    from elmokit.checkpoints.known_models import DEFAULT_MODEL
    from elmokit.corpus.workers import default_workers
    from elmokit.encode.speed import Plan, describe, measure, own_sentences, sentences_of
    from elmokit.engines import check_device

    if tokens and sentences is None:
        raise UsageError("--tokens says how --sentences is split.")
    count = min(count, QUICK_SENTENCES) if quick else count
    plan = Plan(
        sentences=own_sentences(count)
        if sentences is None
        else sentences_of(sentences, count, tokens=tokens),
        model=model if shape is not None else model or DEFAULT_MODEL,
        shape=shape or "small",
        device=str(check_device(device)),
        precisions=tuple(dict.fromkeys(precision or ("float32",))),
        threads=threads or default_workers(),
        rounds=1 if quick else rounds,
        latencies=5 if quick else 20,
    )
    figures = measure(plan, say=lambda line: print(line, file=sys.stderr))
    print(json.dumps(figures, indent=2) if as_json else describe() + table(figures))
    if not as_json and precision is None:
        suggest(f"elmokit bench{model_option(model)} --precision float32 --precision int8")


def table(figures: Mapping[str, Any]) -> str:
    """All figures of `elmokit.encode.speed.measure` for people, without the machine."""
    return "\n".join(_lines(figures))


def _lines(figures: Mapping[str, Any]) -> Iterator[str]:
    lstm, flops = figures["model"]["lstm"], figures["flops"]
    shape = f"{lstm['layers']} layers of {lstm['cells']} cells, {lstm['width']} wide"
    yield f"model    {figures['model']['source']}: {shape}"
    counts = ", ".join(f"{count:,} {name}" for name, count in figures["text"].items())
    yield f"text     {counts}"
    yield f"runs on  {figures['device']}, {figures['threads']} threads"
    yield (
        f"work     LSTM {flops['lstm_token'] / 1e6:.1f} MFLOP per token; character CNN "
        f"{flops['encoder_word'] / 1e6:.1f} MFLOP per distinct word; needed for this text "
        f"{flops['needed_token'] / 1e6:.1f} MFLOP per token"
    )
    for precision, limit in figures["ceiling"].items():
        square = limit["square_flops_per_second"]
        yield (
            f"limit    {precision}: matmuls of these shapes at "
            f"{limit['flops_per_second'] / 1e9:,.0f} GFLOP/s ({limit['way']})"
            + ("" if square is None else f"; one large square matmul {square / 1e9:,.0f}")
        )
    yield ""
    yield from _systems(figures["systems"])
    yield from _ratios(figures["ratios"])
    if figures["failed"]:
        yield ""
    for name, reason in figures["failed"].items():
        yield f"left out: {name}: {reason}"


def _systems(systems: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    yield (
        f"{'':<20}{'tokens/s':>10}{'per CPU s':>11}{'of floor':>10}{'of rate':>9}"
        f"{'20 tokens':>11}{'load':>8}{'peak':>10}"
    )
    for name, system in systems.items():
        keys = ("share_of_floor", "share_of_matrix_rate")
        floor, rate = (f"{system[key]:.1%}" if key in system else "" for key in keys)
        yield (
            f"{name:<20}{system['tokens_per_second']:>10,.0f}"
            f"{system['tokens_per_cpu_second']:>11,.0f}{floor:>10}{rate:>9}"
            f"{system['latency_seconds'] * 1e3:>8.1f} ms{system['load_seconds']:>6.2f} s"
            f"{system['peak_mib']:>6,.0f} MiB"
        )
    for name, system in systems.items():
        if "warm_tokens_per_second" in system:
            yield f"{name}, all words seen before: {system['warm_tokens_per_second']:,.0f} tokens/s"
        if "cosines" in system:
            cosines = system["cosines"]
            yield (
                f"{name}, cosine with the vectors of float32: {cosines['mean']:.5f} on average, "
                f"{cosines['least']:.5f} at least"
            )


def _ratios(ratios: Mapping[str, Mapping[str, float]]) -> Iterator[str]:
    if not ratios:
        return
    yield ""
    width = max(map(len, ratios)) + 2
    yield (
        f"{'ratios':<{width}}{'tokens/s':>10}{'per CPU s':>11}{'20 tokens':>11}{'load':>8}"
        f"{'peak':>8}"
    )
    for name, ratio in ratios.items():
        yield (
            f"{name:<{width}}{ratio['speed']:>10.2f}{ratio['speed_per_cpu']:>11.2f}"
            f"{ratio['latency']:>11.3f}{ratio['load']:>8.3f}{ratio['memory']:>8.3f}"
        )
