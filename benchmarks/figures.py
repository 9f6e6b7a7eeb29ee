"""Single figures for sentences on the pages, read from benchmarks/results and from the catalogue.

A page has ``<!-- figure: NAME -->VALUE<!-- end -->``; `benchmarks.fill_pages` writes the values.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from functools import cache
from statistics import mean, median

from benchmarks.report import RESULTS
from benchmarks.tasks.table import comparable
from elmokit.checkpoints import published_models

MODELS = ("none", "static", "elmo", "both")
"""Kinds of inputs in tasks.json."""


@cache
def result(name: str) -> str:
    return (RESULTS / name).read_text("utf-8")


def found(name: str, pattern: str) -> str:
    """The first group of a pattern in a result."""
    match = re.search(pattern, result(name), flags=re.MULTILINE)
    if match is None:
        raise SystemExit(f"benchmarks/results/{name} has no {pattern!r}")
    return match[1]


@cache
def tasks() -> dict[str, dict[str, float]]:
    """Mean test scores of each set, as a share of the best possible one, by kind of inputs.

    Sets whose kinds are by different measures are left out.
    """
    found: dict[str, dict[str, list[float]]] = {}
    for key, run in json.loads(result("tasks.json")).items():
        name, _, kind = key.partition("/")
        kind = kind.partition("/")[0]
        if kind in MODELS:
            score = run["test"][run["primary"]]
            share = score / 100 if run["primary"] == "bleu" else score
            found.setdefault(name, {}).setdefault(kind, []).append(share)
    means = {name: {kind: mean(some) for kind, some in f.items()} for name, f in found.items()}
    return {
        name: row
        for name, row in means.items()
        if {"none", "static", "elmo"} <= row.keys() and comparable(name, "none", "elmo")
    }


def seeds() -> str:
    """How often each set was trained with ELMo, at least."""
    runs = Counter(key.split("/")[0] for key in json.loads(result("tasks.json")) if "/elmo/" in key)
    return str(min(runs.values()))


def megabytes(name: str) -> str:
    return f"{int(found(name, r'^all +([0-9,]+)').replace(',', '')) / 1e6:.1f}"


def better_than(other: str) -> str:
    return str(sum(row["elmo"] > row[other] for row in tasks().values()))


def median_gain() -> str:
    """The share of the error that goes away with ELMo, in percent."""
    gains = (1 - (1 - row["elmo"]) / (1 - row["none"]) for row in tasks().values())
    return f"{100 * median(gains):.0f}"


def task_score(name: str, model: str) -> str:
    return f"{100 * tasks()[name][model]:.1f}"


def quality(model: str, layer: int, column: str) -> str:
    """A cell of the table in probes_small-en.txt, or of the baselines in quality.txt."""
    name = "probes_small-en.txt" if model == "small-en" else "quality.txt"
    lines = result(name).splitlines()
    head = re.split(r"\s{2,}", next(line for line in lines if line.startswith("model  ")))
    for line in lines:
        cells = re.split(r"\s{2,}", line)
        if cells[:2] == [model, str(layer)]:
            return cells[head.index(column)]
    raise SystemExit(f"benchmarks/results/{name} has no {model}, layer {layer}")


def best_layer(column: str) -> str:
    return str(max(range(3), key=lambda layer: float(quality("small-en", layer, column))))


def learned_share(layer: int) -> str:
    """The mean weight of a layer in the mixes that tasks with ELMo alone have learned."""
    runs = json.loads(result("tasks.json"))
    mixes = [
        run["layers"]["input"]["s"] for key, run in runs.items() if key.split("/")[1] == "elmo"
    ]
    return f"{mean(mix[layer] for mix in mixes):.2f}"


def text_amount(model: str, column: str) -> str:
    lines = result("text_amount.txt").splitlines()
    head = re.split(r"\s{2,}", next(line for line in lines if line.startswith("model  ")))
    row = next(line for line in lines if line.startswith(f"{model}  "))
    return re.split(r"\s{2,}", row)[head.index(column)]


def length(tokens: int) -> str:
    """Tokens per second for sentences of so many tokens."""
    heads, rates = re.search(
        r"^tokens a sentence(.*)\ntokens/s(.*)$", result("speed_curves_small-en.txt"), re.MULTILINE
    ).groups()  # type: ignore[union-attr]
    return rates.split()[heads.split().index(str(tokens))]


def pooling(row: str, name: str) -> str:
    column = {"sst2": 0, "trec6": 1}[name]
    score = found("pooling_small-en.txt", rf"^{row} +(.*)$").split()[column]
    return f"{100 * float(score):.1f}"


def licences(pattern: str) -> str:
    """How many published models have such a licence; none stated: an empty pattern."""
    stated = [model.licence or "" for model in published_models()]
    return str(sum(bool(re.search(pattern, text)) if pattern else not text for text in stated))


FIGURES: dict[str, Callable[[], str]] = {
    "tasks": lambda: str(len(tasks())),
    "tasks better than base": lambda: better_than("none"),
    "tasks better than static": lambda: better_than("static"),
    "seeds": seeds,
    "median gain": median_gain,
    **{
        f"{name} {model}": (lambda name=name, model=model: task_score(name, model))
        for name in ("trec6", "wnut17", "snips", "chnsenticorp")
        for model in ("none", "static", "elmo")
    },
    **{
        f"{column} {layer}": (lambda column=column, layer=layer: quality("small-en", layer, column))
        for column in ("POS", "WSD", "typos")
        for layer in range(3)
    },
    "POS best layer": lambda: best_layer("POS"),
    "WSD best layer": lambda: best_layer("WSD"),
    "typos fastText": lambda: quality("fastText, same text", 0, "typos"),
    **{
        f"typos random {layer}": (
            lambda layer=layer: quality("random weights, shape of small-en", layer, "typos")
        )
        for layer in (0, 2)
    },
    "typos GloVe": lambda: quality("GloVe 6B, 100 d, 40,000 words", 0, "typos"),
    **{f"share {layer}": (lambda layer=layer: learned_share(layer)) for layer in range(3)},
    **{
        f"{column} {model}": (lambda model=model, column=column: text_amount(model, column))
        for model in ("1m", "30m")
        for column in ("perplexity", "POS, layer 1", "NER")
    },
    "small tokens/s": lambda: found("speed_small.txt", r"^elmokit float32 +([\d,]+)"),
    "small allennlp tokens/s": lambda: found("speed_small.txt", r"^allennlp +([\d,]+)"),
    "small times": lambda: found("speed_small.txt", r"^elmokit float32 / allennlp +(\d+)"),
    "original times": lambda: found("speed_original.txt", r"^elmokit float32 / allennlp +(\d+)"),
    "original tokens/s": lambda: found("speed_original.txt", r"^elmokit float32 +([\d,]+)"),
    "original int8 tokens/s": lambda: found("speed_original.txt", r"^elmokit int8 +([\d,]+)"),
    "original GPU tokens/s": lambda: found(
        "speed_gpu_inference.txt", r"^mean of layers, as numpy +[\d,]+(?: \([\d,]+\))? +([\d,]+)"
    ),
    "seconds to load": lambda: found("startup.txt", r"^load small .*native.*? (\d\.\d+)"),
    "small-en ms to load": lambda: found("size_small-en.txt", r"^whole model +(\d+)"),
    **{f"tokens/s at {n}": (lambda n=n: length(n)) for n in (10, 160, 5000)},
    "megabytes": lambda: megabytes("size_small-en.txt"),
    **{
        f"{row} {name}": (lambda row=row, name=name: pooling(row, name))
        for row in (
            "mean, layer 0",
            "mean, mean of layers",
            "max, mean of layers",
            "mean, all layers",
        )
        for name in ("sst2", "trec6")
    },
    "published models": lambda: str(len(published_models())),
    "loadable models": lambda: str(sum(bool(m.reader and m.downloads) for m in published_models())),
    "languages": lambda: str(len({code for m in published_models() for code in m.languages})),
    "licence not stated": lambda: licences(""),
    "licence non-commercial": lambda: licences(r"NC\b"),
}
