"""What every layer knows: all probes, for models and baselines, in one table.

Run: python -m benchmarks.quality.run [MODEL ...] [--probes pos wsd ...] [--data FOLDER]
         [--predictors FOLDER ...] [--quick] [--device cuda] [--save NAME]

MODEL is anything that `elmokit.load` takes (the embedded models when left out), a file of word
vectors, or random:MODEL, the same shape with random weights. GloVe, word2vec, fastText and the
random weights of the first model are added unless --only is given. Each probe of each model runs in
a process of its own, so time and memory are its own. Tags and senses are measured on all of their
sets, the rest on samples; --quick thins tags and senses too. The output says what was taken.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from benchmarks.quality.baselines import DIM, EPOCHS, train
from benchmarks.quality.data import FOLDER, Data
from benchmarks.quality.planted import area, plant
from benchmarks.report import report
from elmokit.checkpoints.known_models import embedded_models
from elmokit.probes.report import Table

RANDOM = "random:"
TYPOS = ("swapped", "dropped", "doubled", "replaced")
PUBLISHED: tuple[tuple[Any, ...], ...] = (
    # Peters and others (2018), tables 5 and 6.
    ("published ELMo", 1, 97.3, None, 67.4),
    ("published ELMo", 2, 96.8, None, 69.0),
)
PUBLISHED_PERPLEXITY = 39.7
"""Their mean of both directions, on the 1B-word benchmark: other text, other words."""


@dataclass(frozen=True)
class Sizes:
    """How much of each set is taken."""

    tag_tokens: int | None = None
    """Words of training of `pos`; None: all."""
    sense_uses: int | None = None
    """The most uses of a sense in `wsd`; None: all."""
    pairs: int = 1000
    background: int = 500
    """Sentences whose common directions are removed for the columns that say so."""
    sentences: int = 12_000
    """Of each of two parts of the corpus, for polysemy, change and robustness."""
    perturbed: int = 300
    planted: int = 20
    uses: int = 25
    perplexity: int = 600
    """Sentences."""
    baseline: int = 100_000
    """Sentences that word2vec and fastText are trained on."""


QUICK = Sizes(tag_tokens=60_000, sense_uses=5, pairs=500, perturbed=200, planted=15)
CLEANED = ", cleaned"
Answer = dict[int, dict[str, float]]
"""By layer and column; MODEL: of the model as a whole; SET: of the data, whatever the model."""
MODEL, SET = -1, -2


def load_model(name: str, device: str, *, softmax: bool) -> Any:
    import elmokit
    from elmokit.errors import CheckpointError
    from elmokit.probes.data import open_model, random_weights

    if name.startswith(RANDOM):
        shape = elmokit.load(name.removeprefix(RANDOM), softmax=False, device=device)
        return random_weights(shape)
    try:
        return open_model(elmokit.load(name, softmax=softmax, device=device))
    except CheckpointError:
        return open_model(name)


def ask_pos(model: Any, data: Data, sizes: Sizes) -> Answer:
    from elmokit.probes import pos

    found = pos(
        model,
        data.treebank("train"),
        data.treebank("test"),
        tags="xpos",
        curve=(),
        max_tokens=sizes.tag_tokens,
    )
    rows = {
        one.layer: {"POS": 100 * one.accuracy, "selectivity": 100 * one.selectivity}
        for one in found.layers
    }
    facts = {"POS by each word's usual tag": 100 * found.by_word}
    return {**rows, SET: {**facts, "words of training, POS": found.train_tokens}}


def ask_wsd(model: Any, data: Data, sizes: Sizes) -> Answer:
    from elmokit.probes import wsd

    found = wsd(
        model,
        data.semcor(),
        data.sense_tests(),
        index=data.index(),
        most_uses=sizes.sense_uses,
    )
    sets = {one.name: one for one in found.sets}
    four = [one for name, one in sets.items() if name.startswith("S")]
    total = sum(one.instances for one in four)
    decided = sum(one.decided for one in four)
    unified = sets["ALLamended"]
    rows: Answer = {
        layer: {
            "WSD": 100 * sum(one.layers[layer].f1 * one.instances for one in four) / total,
            "WSD, decided": 100
            * sum(one.layers[layer].decided * one.decided for one in four)
            / decided,
            "WSD, unified": 100 * unified.layers[layer].f1,
        }
        for layer in range(len(unified.layers))
    }
    first = 100 * sum(one.first_sense * one.instances for one in four) / total
    facts = {
        "WSD by the first sense": first,
        "WSD, unified, by the first sense": 100 * unified.first_sense,
        "instances of WSD": total,
        "instances of WSD that WordNet 3.0 does not have": sum(one.left_out for one in four),
        "sentences of SemCor": found.train_sentences,
    }
    return {**rows, SET: facts}


def ask_similarity(model: Any, data: Data, sizes: Sizes) -> Answer:
    from elmokit.probes import similarity

    rows: Answer = {}
    backgrounds = {"": None, CLEANED: data.sentences("dev", sizes.background)}
    for column, path in (("SCWS", data.ratings()), ("WiC", data.semcor()[0])):
        for suffix, background in backgrounds.items():
            found = similarity(
                model, path, pooling=["word"], count=2 * sizes.pairs, background=background
            )
            for one in found.scores:
                if one.layer.isdecimal():
                    rows.setdefault(int(one.layer), {})[column + suffix] = 100 * one.score
    return {**rows, SET: {"sentences for common directions": sizes.background}}


def ask_polysemy(model: Any, data: Data, sizes: Sizes) -> Answer:
    from elmokit.probes import polysemy

    sentences = data.sentences("test", sizes.sentences)
    found = polysemy(model, sentences, ["state", "light", "right"], most_uses=100)
    return {
        one.layer: {
            "anisotropy": one.anisotropy,
            "self-similarity": one.self_similarity - one.anisotropy,
            "intra-sentence": one.intra_sentence - one.anisotropy,
        }
        for one in found.geometry
    }


def ask_change(model: Any, data: Data, sizes: Sizes) -> Answer:
    from elmokit.probes import change

    first, second = (data.sentences(part, sizes.sentences) for part in ("dev", "test"))
    second, planted, steady = plant(first, second, sizes.planted)
    rows: Answer = {}
    for layer in range(model.layers):
        found = change(
            model, first, second, [*planted, *steady], layer=layer, most_uses=sizes.uses
        ).words
        rows[layer] = {
            f"change, {kind}": 100 * area({one.word: getattr(one, kind) for one in found}, planted)
            for kind in ("apd", "prt", "jsd")
        }
    return {**rows, SET: {"words with a planted change": len(planted)}}


def ask_robustness(model: Any, data: Data, sizes: Sizes) -> Answer:
    from elmokit.probes import robustness

    sentences = data.sentences("test", sizes.sentences)
    found = robustness(model, sentences, sample=sizes.perturbed)
    kinds = {one.kind: one.layers for one in found.kinds}
    return {
        layer: {
            "typos": 100 * sum(kinds[kind][layer].found for kind in TYPOS) / len(TYPOS),
            "case": 50 * (kinds["upper"][layer].found + kinds["title"][layer].found),
            "unseen": 100 * kinds["unseen"][layer].found,
        }
        for layer in range(len(kinds["upper"]))
    }


def ask_perplexity(model: Any, data: Data, sizes: Sizes) -> Answer:
    from elmokit.lm.perplexity import perplexity
    from elmokit.tasks.inputs.source import ElmoLayers

    source = getattr(model, "source", None)
    if not isinstance(source, ElmoLayers) or source.elmo.config.softmax is None:
        return {}
    found = perplexity(source.elmo, data.sentences("test", sizes.perplexity))
    facts = {
        "perplexity, held-out text": found.perplexity,
        "words of that text": found.tokens,
        "of them outside the vocabulary, %": 100 * found.oov_rate,
        "vocabulary": found.vocabulary,
    }
    return {MODEL: facts}


PROBES: dict[str, Callable[[Any, Data, Sizes], Answer]] = {
    "pos": ask_pos,
    "wsd": ask_wsd,
    "similarity": ask_similarity,
    "polysemy": ask_polysemy,
    "change": ask_change,
    "robustness": ask_robustness,
    "perplexity": ask_perplexity,
}
COLUMNS = (
    "POS", "selectivity", "WSD", "WSD, decided", "WSD, unified",
    "SCWS", "SCWS, cleaned", "WiC", "WiC, cleaned",
    "anisotropy", "self-similarity", "intra-sentence",
    "change, apd", "change, prt", "change, jsd", "typos", "case", "unseen",
)  # fmt: skip


def run_one(
    probe: str, name: str, folder: Path, sizes: Sizes, device: str
) -> tuple[Answer, float, float]:
    """An answer with its seconds and its process's peak in MiB; runs in a process of its own."""
    from elmokit.probes.report import Stopwatch

    watch = Stopwatch()
    model = load_model(name, device, softmax=probe == "perplexity")
    answer = PROBES[probe](model, Data(folder), sizes)
    cost = watch.cost()
    return answer, cost.seconds, cost.peak_mib


def label(model: str) -> str:
    if model.startswith(RANDOM):
        return f"random weights, shape of {Path(model.removeprefix(RANDOM)).name}"
    name = Path(model).name
    kinds = {"glove": "GloVe 6B, 100 d, 40,000 words", "word2vec": "word2vec, same text"}
    kinds["fasttext"] = "fastText, same text"
    return next((words for start, words in kinds.items() if name.startswith(start)), name)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*")
    parser.add_argument("--probes", nargs="+", choices=PROBES, default=list(PROBES))
    parser.add_argument("--data", type=Path)
    parser.add_argument("--predictors", nargs="*", type=Path, default=[])
    parser.add_argument("--only", action="store_true", help="no baselines")
    parser.add_argument("--quick", action="store_true", help="less of the tags and senses")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--save", help="write benchmarks/results/NAME.txt")
    options = parser.parse_args()
    FOLDER.mkdir(parents=True, exist_ok=True)
    data = Data(options.data)
    sizes = QUICK if options.quick else Sizes()
    embedded = [name for name in embedded_models() if not name.startswith("test-")]
    models = options.models or [name for name in embedded if name.endswith("-en")]
    notes = [f"models: {', '.join(models) or 'none'}"]
    if not options.only:
        if models:
            models.append(RANDOM + models[0])
        models.append(str(data.glove()))
        for kind in ("word2vec", "fasttext"):
            path, seconds = train(kind, data, sizes.baseline)
            models.append(str(path))
            took = f"{seconds:.0f} s" if seconds else "trained before"
            text_read = f"{sizes.baseline:,} sentences of corpus-en, {EPOCHS} times"
            notes.append(f"{kind}: {DIM} d, {text_read}; {took}")
    answers: dict[str, Answer] = {model: {} for model in models}
    costs: list[tuple[Any, ...]] = []
    start = time.perf_counter()
    for probe in options.probes:
        for model in models:
            found, seconds, peak = in_process(probe, model, data.folder, sizes, options.device)
            for layer, values in found.items():
                answers[model].setdefault(layer, {}).update(values)
            costs.append((probe, label(model), f"{seconds:.1f}", round(peak)))
            print(f"{probe:>11}  {label(model):<45} {seconds:7.1f} s", file=sys.stderr)
    notes.append(f"all: {time.perf_counter() - start:.0f} s on {os.cpu_count()} cores")
    notes.append(f"sizes: {_described(sizes)}")
    lines = _page(models, answers, costs, notes, options.predictors)
    report(options.save or "quality", "\n".join(lines), options.save is not None)


def in_process(
    probe: str, model: str, folder: Path, sizes: Sizes, device: str
) -> tuple[Answer, float, float]:
    """An answer with its seconds and its peak in MiB, from a process of its own."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(run_one, probe, model, folder, sizes, device).result()


def _described(sizes: Sizes) -> str:
    return ", ".join(f"{name} {value}" for name, value in vars(sizes).items())


def _page(
    models: Sequence[str],
    answers: dict[str, Answer],
    costs: Sequence[tuple[Any, ...]],
    notes: Sequence[str],
    predictors: Sequence[Path],
) -> list[str]:
    columns = [c for c in COLUMNS if any(c in row for a in answers.values() for row in a.values())]
    rows: list[tuple[Any, ...]] = []
    for model in models:
        for layer in sorted(layer for layer in answers[model] if layer >= 0):
            values = answers[model][layer]
            rows.append((label(model), layer, *(_rounded(values.get(c)) for c in columns)))
    shown = dict(zip(COLUMNS, range(2, 2 + len(COLUMNS)), strict=True))
    for row in PUBLISHED:
        padded = (*row, *(None,) * len(COLUMNS))
        rows.append((*row[:2], *(_rounded(padded[shown[c]]) for c in columns)))
    whole = [
        (label(model), name, _rounded(value))
        for model in models
        for name, value in answers[model].get(MODEL, {}).items()
    ]
    name = "perplexity, 1B-word benchmark"
    whole.append(("published ELMo", name, _rounded(PUBLISHED_PERPLEXITY)))
    facts = {k: v for model in models for k, v in answers[model].get(SET, {}).items()}
    tables = [
        Table("quality by layer", ("model", "layer", *columns), tuple(rows)),
        Table("language model", ("model", "what", "value"), tuple(whole)),
        Table("the sets", ("what", "value"), tuple((k, _rounded(v)) for k, v in facts.items())),
        Table("cost of each probe", ("probe", "model", "seconds", "peak MiB"), tuple(costs)),
    ]
    lines = [line for table in tables for line in (*str(table).splitlines(), "")]
    if predictors:
        from elmokit.probes import layers

        lines += [*layers(predictors).table().splitlines(), ""]
    return [*lines, *LEGEND.strip().splitlines(), "", *notes]


LEGEND = """
POS: linear probe, share of words of UD English EWT (test) with the right xpos tag; published: Penn
  Treebank, a linear layer. selectivity: less the share right with random tags by word type.
WSD: F1 by the nearest SemCor centroid, first sense where the lemma is unknown, on Senseval-2,
  Senseval-3, SemEval-2007 and SemEval-2013 together; decided: where two senses or more are known;
  unified: the amended unified set; published: the unified set as it was.
SCWS: Spearman's correlation, the word's own vector. WiC: share right of one sense or two, pairs
  made from SemCor, half of them to tune the threshold (chance 50). cleaned: the common directions
  of other text are removed from all vectors first (elmokit.CommonDirections).
anisotropy: mean cosine of two words; self-similarity, intra-sentence: above it.
change: chance that a word with a planted change scores above one without, by three measures.
typos, case, unseen: share of perturbed words whose nearest word is the right one.
"""


def _rounded(value: float | None) -> str | None:
    """A score with the digits it deserves."""
    if value is None or math.isnan(value):
        return None
    if value == int(value):
        return f"{int(value):,}"
    return f"{value:.1f}" if abs(value) >= 2 else f"{value:.3f}"


if __name__ == "__main__":
    main()
