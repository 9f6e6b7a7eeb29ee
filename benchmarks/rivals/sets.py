"""The sets of the comparison: what is encoded of each, and how vectors are scored.

A set says which sentences it needs (`texts`) and what it keeps of their layers (`reduce`), so that
a model reads each set once; `score` works on what was kept, for a seed. The head is the same for
all: a linear classifier for tokens and sentences, the nearest centroid for senses, the cosine for
pairs. Which layer is read is chosen on the development part, among each layer and the mean of all;
for tokens also a learned mix of them, for sentences all of them concatenated.
"""

from __future__ import annotations

import math
import random
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional as F

from benchmarks.quality import data as quality_data
from benchmarks.tasks.data import benchmark_data
from elmokit.encode import CommonDirections
from elmokit.probes import similarity, wsd
from elmokit.probes.inventory import choose_sentences
from elmokit.probes.linear import fit_linear
from elmokit.probes.similarity import (
    Pair,
    WordInContext,
    read_pairs,
    sense_pairs,
)
from elmokit.probes.wsd_data import SenseSentence, SenseUse, read_senses
from elmokit.tasks import read_examples
from elmokit.tasks.few_labels import STRENGTHS, fit_logistic
from elmokit.tasks.tag.spans import recognise_scheme, score_tags

Array = NDArray[Any]
POOL, DEV, TEST = 2_400, 500, 1_000
"""Sentences that are encoded, at most."""
SHARE = 0.75
"""Part of the pool that a seed trains on."""
LEMMAS, USES = 100, 6
"""Words of the set of senses, and the most uses of each sense that are encoded."""
BACKGROUND = 500
"""Sentences whose common directions are removed."""
MEAN, MIX, ALL = "mean", "mix", "all"


@dataclass(frozen=True)
class Sizes:
    """The most sentences (or pairs) of each part; smaller ones are for tries."""

    pool: int = POOL
    dev: int = DEV
    test: int = TEST


@dataclass(frozen=True)
class Outcome:
    """A score, and how it came about."""

    score: float
    layer: str
    dev: dict[str, float] = field(default_factory=dict)
    baseline: dict[str, float] = field(default_factory=dict)


class RivalSet(ABC):
    """A set.

    Attributes:
        name: Its name.
        title: What the table calls it.
        language: ``en`` or ``zh``.
        measure: What is scored, in percent.
        seeds: How many draws have different results.
    """

    measure: str
    seeds = 3

    def __init__(self, name: str, title: str, language: str, sizes: Sizes | None = None) -> None:
        self.name, self.title, self.language = name, title, language
        self.sizes = sizes or Sizes()

    @abstractmethod
    def load(self, data: Path | None, tokenizer: str) -> None:
        """Read the files; Chinese text that is not split yet is split by the tokenizer."""

    @abstractmethod
    def texts(self) -> list[tuple[str, ...]]:
        """All sentences, in a fixed order."""

    @abstractmethod
    def rows(self) -> int:
        """How many vectors are kept of each layer."""

    @abstractmethod
    def reduce(self, number: int, layers: Array) -> Array:
        """What is kept of the layers (L, T, D) of a sentence: (L, rows, D)."""

    @abstractmethod
    def score(self, kept: Array, seed: int) -> Outcome:
        """Score what was kept, (L, N, D)."""

    @abstractmethod
    def counts(self) -> dict[str, int]:
        """Examples by part."""

    def setup(self, tokenizer: str) -> dict[str, Any]:
        """What a finished cell must have in common with a new one."""
        split = {"tokenizer": tokenizer} if self.language == "zh" else {}
        return {**vars(self.sizes), "share": SHARE, **split}


def _drawn(items: Sequence[Any], most: int, seed: int = 0) -> list[Any]:
    """At most so many of the items, in random order."""
    return random.Random(seed).sample(list(items), min(most, len(items)))


def _candidates(kept: Array) -> Iterator[tuple[str, Array]]:
    """Each layer by its number, and their mean."""
    for layer in range(len(kept)):
        yield str(layer), np.asarray(kept[layer], np.float32)
    if len(kept) > 1:
        yield MEAN, np.mean(kept, axis=0, dtype=np.float32)


class LabelledSet(RivalSet):
    """A set of `benchmarks.tasks.data`, with a drawn part for training."""

    def load(self, data: Path | None, tokenizer: str) -> None:
        found = benchmark_data(self.name, None if data is None else data / "tasks")
        reading = dict(found.reading)
        if "tokenizer" in reading:
            reading["tokenizer"] = tokenizer
        most = vars(self.sizes)
        parts = {
            part: _drawn(list(read_examples(found.task, path, **reading)), most[size])
            for (part, path), size in zip(found.paths.items(), most, strict=True)
        }
        self.fill(parts)

    def fill(self, parts: dict[str, list[Any]]) -> None:
        """Take train, dev and test examples."""
        self.parts = parts
        self.examples = [example for part in parts.values() for example in part]

    def texts(self) -> list[tuple[str, ...]]:
        return [tuple(example.tokens) for example in self.examples]

    def counts(self) -> dict[str, int]:
        found = {part: len(examples) for part, examples in self.parts.items()}
        return {**found, "train": int(SHARE * found["train"])}

    def _bounds(self, lengths: Sequence[int]) -> dict[str, slice]:
        """Which rows belong to each part, where an example has so many rows."""
        bounds, start, row = {}, 0, 0
        for part, examples in self.parts.items():
            size = sum(lengths[start : start + len(examples)])
            bounds[part] = slice(row, row + size)
            start, row = start + len(examples), row + size
        return bounds

    def _training(self, seed: int) -> list[int]:
        """Numbers of the training examples of a seed."""
        count = len(self.parts["train"])
        return sorted(_drawn(range(count), int(SHARE * count), seed + 1))


class TagSet(LabelledSet):
    """Tags of tokens, by a linear probe."""

    def fill(self, parts: dict[str, list[Any]]) -> None:
        super().fill(parts)
        self.spans = recognise_scheme([example.tags for example in parts["train"]]) is not None
        self.measure = "span F1" if self.spans else "accuracy"

    def rows(self) -> int:
        return sum(len(example.tokens) for example in self.examples)

    def reduce(self, number: int, layers: Array) -> Array:
        return layers

    def score(self, kept: Array, seed: int) -> Outcome:
        lengths = [len(example.tokens) for example in self.examples]
        bounds = self._bounds(lengths)
        starts = np.cumsum([0, *lengths])
        chosen = self._training(seed)
        rows = np.concatenate([np.arange(starts[n], starts[n + 1]) for n in chosen])
        train = [self.parts["train"][number] for number in chosen]
        names = sorted({tag for example in train for tag in example.tags})
        ids = {name: number for number, name in enumerate(names)}
        labels = np.array([ids[tag] for example in train for tag in example.tags], np.int64)
        best: tuple[float, str, Array] | None = None
        dev = {}
        for layer, vectors in self._inputs(kept, rows, labels, len(names), seed):
            probe = fit_linear(vectors[rows], [labels], [len(names)], seed=seed)
            (found,) = probe.predict(vectors[bounds["dev"]])
            dev[layer] = self._value("dev", found, names)
            if best is None or dev[layer] > best[0]:
                best = dev[layer], layer, probe.predict(vectors[bounds["test"]])[0]
        assert best is not None
        return Outcome(self._value("test", best[2], names), best[1], dev)

    def _inputs(
        self, kept: Array, rows: Array, labels: Array, classes: int, seed: int
    ) -> Iterator[tuple[str, Array]]:
        yield from _candidates(kept)
        if len(kept) > 1:
            weights = learned_mix(kept[:, rows], labels, classes, seed)
            total = np.zeros(kept.shape[1:], np.float32)
            for weight, layer in zip(weights, kept, strict=True):
                total += np.float32(weight) * np.asarray(layer, np.float32)
            yield MIX, total

    def _value(self, part: str, found: Array, names: Sequence[str]) -> float:
        gold = self.parts[part]
        tags, start = [], 0
        for example in gold:
            end = start + len(example.tokens)
            tags.append(tuple(names[number] for number in found[start:end]))
            start = end
        answers = [type(e)(e.tokens, t) for e, t in zip(gold, tags, strict=True)]
        return 100 * score_tags(gold, answers, spans=self.spans).value


def learned_mix(layers: Array, labels: Array, classes: int, seed: int) -> list[float]:
    """Weights of layers (L, N, D), learned with a linear classifier of their mix.

    Each layer is scaled to unit variance first; the weights are for layers as they were given.
    """
    torch.manual_seed(seed)
    count, dim = layers.shape[1:]
    scales, centres = [], []
    for layer in layers:
        rows = np.asarray(layer[:: max(1, count // 4096)], np.float32)
        centres.append(rows.mean(axis=0))
        scales.append(float((rows - centres[-1]).std()) or 1.0)
    centre, scale = torch.from_numpy(np.stack(centres)), torch.tensor(scales)
    shares = torch.zeros(len(layers), requires_grad=True)
    weight = torch.zeros(classes, dim, requires_grad=True)
    bias = torch.zeros(classes, requires_grad=True)
    optimizer = torch.optim.Adam(
        [{"params": [weight, bias], "lr": 1e-2}, {"params": [shares], "lr": 5e-2}]
    )
    targets = torch.from_numpy(labels)
    for _ in range(max(3, math.ceil(300 / math.ceil(count / 512)))):
        for chosen in torch.randperm(count).split(512):
            inputs = torch.from_numpy(np.asarray(layers[:, chosen.numpy()], np.float32))
            inputs = (inputs - centre[:, None]) / scale[:, None, None]  # (L, n, D)
            mixed = torch.einsum("l,lnd->nd", shares.softmax(0), inputs)
            loss = F.cross_entropy(F.linear(mixed, weight, bias), targets[chosen])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
    found: list[float] = (shares.detach().softmax(0) / scale).tolist()
    return found


class SentenceSet(LabelledSet):
    """Classes of sentences, by logistic regression on the mean of the tokens' vectors."""

    measure = "accuracy"

    def rows(self) -> int:
        return len(self.examples)

    def reduce(self, number: int, layers: Array) -> Array:
        return layers.mean(axis=1, keepdims=True)

    def score(self, kept: Array, seed: int) -> Outcome:
        bounds = self._bounds([1] * len(self.examples))
        chosen = self._training(seed)
        names = sorted({example.label for example in self.examples})
        targets = {
            part: torch.tensor([names.index(example.label) for example in examples])
            for part, examples in self.parts.items()
        }
        even = torch.ones(len(names), dtype=torch.float64)
        best: tuple[float, str, float] | None = None
        dev = {}
        for layer, vectors in self._inputs(kept):
            rows = torch.from_numpy(vectors).double()
            train = rows[chosen]
            found = []
            for strength in STRENGTHS:
                weight, bias = fit_logistic(train, targets["train"][chosen], even, strength)
                shares = {
                    part: ((rows[bounds[part]] @ weight.T + bias).argmax(dim=1) == targets[part])
                    .double().mean().item()
                    for part in ("dev", "test")
                }  # fmt: skip
                found.append((100 * shares["dev"], 100 * shares["test"]))
            value, score = max(found, key=lambda pair: pair[0])
            dev[layer] = value
            if best is None or value > best[0]:
                best = value, layer, score
        assert best is not None
        return Outcome(best[2], best[1], dev)

    def _inputs(self, kept: Array) -> Iterator[tuple[str, Array]]:
        yield from _candidates(kept)
        if len(kept) > 1:
            yield ALL, np.concatenate([np.asarray(layer, np.float32) for layer in kept], axis=1)


class Stored:
    """Vectors that were kept, as the probes read them: the word ``7`` has vector 7.

    The last layer is the mean of the others.
    """

    name = "stored"

    def __init__(self, kept: Array) -> None:
        layers = [np.asarray(layer, np.float32) for layer in kept]
        self._kept = np.stack([*layers, np.mean(layers, axis=0)])
        self.layers, _, self.dim = self._kept.shape

    def array(self) -> NDArray[np.float32]:
        return self._kept

    def layer(self, number: int) -> str:
        """What a layer is called; the mean of one layer is that layer."""
        return MEAN if number == self.layers - 1 else str(number)

    def tokenize(self, text: str) -> list[str]:
        return text.split()

    def stream(self, sentences: Any) -> Iterator[NDArray[np.float32]]:
        for words in sentences:
            yield self._kept[:, [int(word) for word in words]]


class SenseSet(RivalSet):
    """Senses of frequent words, by the nearest centroid.

    The words are those with the most instances in the test set that have two senses with several
    uses in SemCor, so that the vectors decide each instance. The development part is from SemCor.
    """

    measure = "accuracy"

    def load(self, data: Path | None, tokenizer: str) -> None:
        files = _sense_files(data)
        test = list(read_senses(files.sense_tests()["ALLamended"]))
        text = [sentence for path in files.semcor() for sentence in read_senses(path)]
        random.Random(0).shuffle(text)
        senses = sense_counts(text)
        instances = Counter(use.lemma for sentence in test for use in sentence.uses)
        several = [
            lemma
            for lemma, _ in instances.most_common()
            if sum(count >= USES for count in senses[lemma].values()) > 1
        ]
        lemmas = set(several[:LEMMAS])
        train = choose_sentences(text, lemmas, USES)[: self.sizes.pool]
        taken = {sentence.tokens for sentence in train}
        rest = [sentence for sentence in text if sentence.tokens not in taken]
        dev = choose_sentences(rest, lemmas, USES)[: self.sizes.dev]
        test = choose_sentences(test, lemmas, None)[: self.sizes.test]
        self.index = files.index()
        self.parts = {"train": train, "dev": dev, "test": test}
        self.sentences = [sentence for part in self.parts.values() for sentence in part]

    def texts(self) -> list[tuple[str, ...]]:
        return [sentence.tokens for sentence in self.sentences]

    def rows(self) -> int:
        return sum(len(sentence.uses) for sentence in self.sentences)

    def reduce(self, number: int, layers: Array) -> Array:
        uses = self.sentences[number].uses
        if not uses:
            return layers[:, :0]
        return np.stack([layers[:, use.start : use.end].mean(axis=1) for use in uses], axis=1)

    def counts(self) -> dict[str, int]:
        found = {part: len(sentences) for part, sentences in self.parts.items()}
        return {**found, "train": int(SHARE * found["train"])}

    def score(self, kept: Array, seed: int) -> Outcome:
        count = len(self.parts["train"])
        chosen = set(_drawn(range(count), int(SHARE * count), seed + 1))
        parts: dict[str, list[SenseSentence]] = {}
        row = 0
        for part, sentences in self.parts.items():
            parts[part] = []
            for number, sentence in enumerate(sentences):
                for use in sentence.uses:
                    alone = SenseSentence((str(row),), (SenseUse(0, 1, use.lemma, use.keys),))
                    if part != "train" or number in chosen:
                        parts[part].append(alone)
                    row += 1
        vectors = Stored(kept)
        tests = {"dev": parts["dev"], "test": parts["test"]}
        report = wsd(vectors, parts["train"], tests, index=self.index)
        found = {one.name: one for one in report.sets}
        dev, test = ([100 * one.f1 for one in found[part].layers] for part in ("dev", "test"))
        baseline = {"first sense": round(100 * found["test"].first_sense, 3)}
        return replace(_by_best(vectors, dev, test), baseline=baseline)


def _sense_files(data: Path | None) -> quality_data.Data:
    quality_data.FOLDER.mkdir(parents=True, exist_ok=True)
    return quality_data.Data(data)


def sense_counts(text: Sequence[SenseSentence]) -> dict[str, Counter[str]]:
    """How often each sense of a lemma occurs."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for sentence in text:
        for use in sentence.uses:
            found[use.lemma].update(use.keys)
    return found


def distant_senses(text: Sequence[SenseSentence]) -> list[SenseSentence]:
    """Two senses of each lemma: the most frequent one, and the next of another field of WordNet.

    Fields (the second number of a key: body, food, motion, ...) keep apart what people do.
    """
    kept: dict[str, set[str]] = {}
    for lemma, counts in sense_counts(text).items():
        first, *others = (key for key, _ in counts.most_common())
        field_of = {key: key.split("%")[1].split(":")[1] for key in counts}
        other = next((key for key in others if field_of[key] != field_of[first]), None)
        kept[lemma] = {first} if other is None else {first, other}
    return [
        SenseSentence(
            sentence.tokens, tuple(u for u in sentence.uses if set(u.keys) <= kept[u.lemma])
        )
        for sentence in text
    ]


class PairSet(RivalSet):
    """How alike are two words in context? Cosines against people's ratings.

    The layer is chosen on a half of the pairs, which a seed draws.
    """

    measure = "Spearman"

    def load(self, data: Path | None, tokenizer: str) -> None:
        self.pairs: list[Pair] = _drawn(read_pairs(_sense_files(data).ratings()), self.sizes.pool)

    def texts(self) -> list[tuple[str, ...]]:
        return [word.tokens for pair in self.pairs for word in (pair.first, pair.second)]

    def rows(self) -> int:
        return 2 * len(self.pairs)

    def reduce(self, number: int, layers: Array) -> Array:
        pair = self.pairs[number // 2]
        position = (pair.first, pair.second)[number % 2].position
        return layers[:, position : position + 1]

    def counts(self) -> dict[str, int]:
        half = len(self.pairs) // 2
        return {"train": 0, "dev": half, "test": len(self.pairs) - half}

    def score(self, kept: Array, seed: int) -> Outcome:
        vectors = Stored(kept)
        pairs = [
            Pair(WordInContext((str(2 * n),), 0), WordInContext((str(2 * n + 1),), 0), pair.score)
            for n, pair in enumerate(self.pairs)
        ]
        random.Random(seed).shuffle(pairs)
        by_layer = []
        for part in (pairs[: len(pairs) // 2], pairs[len(pairs) // 2 :]):
            scores = similarity(vectors, part, pooling=["word"]).scores
            by_layer.append([100 * one.score for one in scores if one.layer.isdecimal()])
        return _by_best(vectors, *by_layer)


class CleanedPairSet(PairSet):
    """The same after the common directions of other text are removed from all vectors."""

    def load(self, data: Path | None, tokenizer: str) -> None:
        super().load(data, tokenizer)
        self.background = _sense_files(data).sentences("dev", BACKGROUND)

    def texts(self) -> list[tuple[str, ...]]:
        return [*super().texts(), *map(tuple, self.background)]

    def rows(self) -> int:
        return super().rows() + sum(map(len, self.background))

    def reduce(self, number: int, layers: Array) -> Array:
        return layers if number >= super().rows() else super().reduce(number, layers)

    def setup(self, tokenizer: str) -> dict[str, Any]:
        return {**super().setup(tokenizer), "background": BACKGROUND}

    def score(self, kept: Array, seed: int) -> Outcome:
        words = super().rows()
        common = CommonDirections.fit([kept[:, words:]])
        return super().score(common.remove(kept[:, :words]), seed)


class UseSet(PairSet):
    """Which use of a word has the sense of a third use? The one with the higher cosine.

    Pairs come two by two: uses a and b, then c and d; all but d have one sense. Each of a, b, c is
    compared with each other one of them against d; equal cosines count half.
    """

    measure = "share right"

    def load(self, data: Path | None, tokenizer: str) -> None:
        text = [s for path in _sense_files(data).semcor() for s in read_senses(path)]
        self.pairs = sense_pairs(distant_senses(text), count=self.sizes.pool)

    def counts(self) -> dict[str, int]:
        words = len(self.pairs) // 2
        return {"train": 0, "dev": words // 2, "test": words - words // 2}

    def score(self, kept: Array, seed: int) -> Outcome:
        vectors = Stored(kept)
        four = vectors.array().reshape(vectors.layers, -1, 4, vectors.dim)
        norms = np.linalg.norm(four, axis=-1, keepdims=True)
        four = four / np.maximum(norms, 1e-9)
        cosines = np.round(np.einsum("lnad,lnbd->lnab", four, four), 5)  # (L, N, 4, 4)
        right = np.mean(
            [
                (np.sign(cosines[:, :, x, y] - cosines[:, :, x, 3]) + 1) / 2
                for x in range(3)
                for y in range(3)
                if x != y
            ],
            axis=0,
        )  # (L, N)
        order = np.random.default_rng(seed).permutation(right.shape[1])
        halves = np.split(order, [len(order) // 2])
        return _by_best(vectors, *(100 * right[:, half].mean(axis=1) for half in halves))


def _by_best(vectors: Stored, dev: Sequence[float], test: Sequence[float]) -> Outcome:
    """The score of the layer that is best on the development part."""
    best = int(np.argmax(dev))
    named = {vectors.layer(number): float(value) for number, value in enumerate(dev)}
    return Outcome(float(test[best]), vectors.layer(best), named)


def all_sets() -> list[RivalSet]:
    """In the order of the table."""
    return [
        TagSet("ewt_pos", "POS, EWT", "en"),
        TagSet("conll2000", "chunks", "en"),
        TagSet("wnut17", "names, WNUT17", "en"),
        SenseSet("wsd", "senses", "en", Sizes(pool=2_600, dev=500, test=1_000)),
        UseSet("uses", "same sense", "en", Sizes(pool=1_000)),
        PairSet("scws", "SCWS", "en", Sizes(pool=1_000)),
        CleanedPairSet("scws_cleaned", "SCWS, cleaned", "en", Sizes(pool=1_000)),
        SentenceSet("sst2", "SST-2", "en"),
        SentenceSet("trec6", "TREC-6", "en"),
        TagSet("gsd_pos", "POS, GSD", "zh"),
        TagSet("weibo_ner", "names, Weibo", "zh"),
        SentenceSet("chnsenticorp", "ChnSentiCorp", "zh", Sizes(pool=1_600)),
    ]
