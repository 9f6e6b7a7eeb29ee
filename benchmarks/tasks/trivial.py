"""Baselines without vectors: the most frequent answer, and TF-IDF with logistic regression.

They are what a network must beat. Each is scored by the task's own metric, on the same test data.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from benchmarks.tasks.data import BenchmarkSet
from elmokit.tasks import get_task
from elmokit.tasks.config import TaskConfig
from elmokit.tasks.task import score_examples

_PROPOSES = re.compile(r"\bwe (propose|present|introduce|show|develop)\b", re.IGNORECASE)


def baselines(data: BenchmarkSet, train: Sequence[Any], test: Sequence[Any]) -> dict[str, float]:
    """Scores by the name of the baseline; none for a task where nothing trivial answers."""
    makers = {
        "classify": _classes, "pair": _classes, "relation": _classes, "coref": _classes,
        "tag": _tags, "dialogue": _frames, "seq2seq": _summaries,
    }  # fmt: skip
    if data.task not in makers or data.name.startswith("tatoeba"):
        return {}
    answers: dict[str, list[Any]] = makers[data.task](data, train, test)
    primary = "rougeL" if data.task == "seq2seq" else None
    config: TaskConfig = get_task(data.task).config_type()
    found = {}
    for name, predicted in answers.items():
        if data.task == "tag":
            learned = get_task("tag").learn(train, config)
            score = get_task("tag").score(test, predicted, config=config, learned=learned)
        else:
            score = score_examples(data.task, test, predicted, primary=primary)
        found[name] = score.value
    return found


def _text(data: BenchmarkSet, example: Any) -> str:
    """All texts of an example as tokens with spaces between; those of two texts are told apart."""
    texts = get_task(data.task).texts(example)
    if len(texts) == 1:
        return " ".join(texts[0])
    return " ".join(f"{number}:{word}" for number, text in enumerate(texts) for word in text)


def _chosen(
    data: BenchmarkSet, train: Sequence[Any], test: Sequence[Any], label: Callable[[Any], Any]
) -> dict[str, list[Any]]:
    """Labels by two baselines."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    labels = [label(example) for example in train]
    most = Counter(labels).most_common(1)[0][0]
    longest = 3 if data.language == "zh" else 2  # characters there
    model = make_pipeline(
        TfidfVectorizer(ngram_range=(1, longest), token_pattern=r"\S+", sublinear_tf=True),
        LogisticRegression(C=10.0, max_iter=2000),
    )
    model.fit([_text(data, example) for example in train], labels)
    found = model.predict([_text(data, example) for example in test])
    return {"majority": [most] * len(test), "TF-IDF": [str(name) for name in found]}


def _classes(data: BenchmarkSet, train: Sequence[Any], test: Sequence[Any]) -> dict[str, list[Any]]:
    chosen = _chosen(data, train, test, lambda example: example.label)
    if data.task == "coref":  # which name it is, n-grams cannot say
        chosen.pop("TF-IDF")
    return {
        name: [replace(e, label=answer) for e, answer in zip(test, answers, strict=True)]
        for name, answers in chosen.items()
    }


def _usual(pairs: Sequence[tuple[Sequence[str], Sequence[str]]]) -> Callable[[str], str]:
    """The tag that a word has most often; that of all words for others."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    everything: Counter[str] = Counter()
    for words, tags in pairs:
        for word, tag in zip(words, tags, strict=True):
            counts[word][tag] += 1
            everything[tag] += 1
    best = {word: found.most_common(1)[0][0] for word, found in counts.items()}
    other = everything.most_common(1)[0][0]
    return lambda word: best.get(word, other)


def _tags(data: BenchmarkSet, train: Sequence[Any], test: Sequence[Any]) -> dict[str, list[Any]]:
    usual = _usual([(example.tokens, example.tags) for example in train])
    return {"majority": [replace(e, tags=tuple(map(usual, e.tokens))) for e in test]}


def _frames(data: BenchmarkSet, train: Sequence[Any], test: Sequence[Any]) -> dict[str, list[Any]]:
    usual = _usual([(example.tokens, example.slots) for example in train])
    chosen = _chosen(data, train, test, lambda example: example.intent)
    return {
        name: [
            replace(e, intent=answer, slots=tuple(map(usual, e.tokens)))
            for e, answer in zip(test, answers, strict=True)
        ]
        for name, answers in chosen.items()
    }


def _summaries(
    data: BenchmarkSet, train: Sequence[Any], test: Sequence[Any]
) -> dict[str, list[Any]]:
    """The sentence that says what is proposed; the first one where none does."""
    found = []
    for example in test:
        text = example.source_text or " ".join(example.source)
        sentences = re.split(r"(?<=[.!?])\s+", text)
        own = [sentence for sentence in sentences if _PROPOSES.search(sentence)]
        chosen = (own or sentences)[0]
        found.append(replace(example, target=tuple(chosen.split()), references=(chosen,)))
    return {'"we propose"': found}
