"""A comparison as text for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def table(figures: Mapping[str, Any]) -> str:
    """All figures of `side_by_side.measure`, without the machine."""
    return "\n".join(_lines(figures))


def _lines(figures: Mapping[str, Any]) -> Iterator[str]:
    text, flops = figures["text"], figures["flops"]
    lstm = figures["model"]["lstm"]
    yield (
        f"model    {figures['model']['source']}: {lstm['layers']} layers of {lstm['cells']} cells, "
        f"{lstm['width']} wide"
    )
    yield (
        f"text     {text['sentences']:,} sentences, {text['tokens']:,} tokens, "
        f"{text['distinct']:,} distinct"
    )
    yield f"runs on  {figures['device']}, {figures['threads']} threads"
    yield (
        f"work     LSTM {flops['lstm_token'] / 1e6:.1f} MFLOP a token; character CNN "
        f"{flops['encoder_word'] / 1e6:.1f} MFLOP a distinct word; needed for this text "
        f"{flops['needed_token'] / 1e6:.1f} MFLOP a token"
    )
    for precision, limit in figures["ceiling"].items():
        square = limit["square_flops_per_second"]
        yield (
            f"limit    {precision}: matmuls of these shapes at "
            f"{limit['flops_per_second'] / 1e9:,.0f} GFLOP/s ({limit['way']})"
            + ("" if square is None else f"; one large square product {square / 1e9:,.0f}")
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
        floor, rate = system.get("share_of_floor"), system.get("share_of_matrix_rate")
        yield (
            f"{name:<20}{system['tokens_per_second']:>10,.0f}"
            f"{system['tokens_per_cpu_second']:>11,.0f}{_share(floor):>10}{_share(rate):>9}"
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
    for name, system in systems.items():
        if "batches" in system:
            tried = ", ".join(f"{size}: {rate:,.0f}" for size, rate in system["batches"].items())
            versions = ", ".join(f"{key} {value}" for key, value in system["versions"].items())
            yield (
                f"{name}: best batch size {system['batch']} (tokens/s by batch size {tried}); "
                f"vectors differ from elmokit's by {system['difference']:.1g} at most; {versions}"
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


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.1%}"
