"""Small data and settings that the tests of tasks share."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import torch

import elmokit
from elmokit.tasks import TaggedExample, TextExample, get_task
from elmokit.tasks.config import TaskConfig
from elmokit.training.settings import changed

DATA = Path(__file__).parents[1] / "tasks" / "data"
NEW = [("a", "superb", "plot"), ("this", "movie", "was", "awful"), ("the",), ("unseen", "words")]
FILL = [
    "the",
    "a",
    "film",
    "movie",
    "plot",
    "was",
    "very",
    "and",
    "it",
    "with",
    "of",
    "this",
    "actor",
    "story",
]
OPINIONS = {
    "good": ["great", "fine", "lovely", "superb", "charming"],
    "bad": ["awful", "poor", "dull", "terrible", "boring"],
}
NAMES = {"PER": ["Anna", "Bob Miller", "Zoe"], "LOC": ["Paris", "New York", "Rome"]}


def texts(count: int, seed: int = 0) -> list[TextExample]:
    """Texts in which one word among others decides the class."""
    draw = random.Random(seed)
    found = []
    for _ in range(count):
        label = draw.choice(sorted(OPINIONS))
        words = [draw.choice(FILL) for _ in range(draw.randint(3, 9))]
        words.insert(draw.randrange(len(words)), draw.choice(OPINIONS[label]))
        found.append(TextExample(tuple(words), label))
    return found


def sentences(count: int, seed: int = 0) -> list[TaggedExample]:
    """Sentences with names in them."""
    draw = random.Random(seed)
    found = []
    for _ in range(count):
        words: list[str] = []
        tags: list[str] = []
        for _ in range(draw.randint(2, 7)):
            if draw.random() < 0.4:
                kind = draw.choice(sorted(NAMES))
                name = draw.choice(NAMES[kind]).split()
                words += name
                tags += [f"B-{kind}", *[f"I-{kind}"] * (len(name) - 1), "O"]
                words.append(draw.choice(FILL))
            else:
                words.append(draw.choice(FILL))
                tags.append("O")
        found.append(TaggedExample(tuple(words), tuple(tags)))
    return found


def settings(task: str, *overrides: str) -> Any:
    """Settings for a model that learns in a second or two."""
    small = ["encoder.cells=16", "inputs.words=16", "run.epochs=4", "run.batch=8"]
    small += ["head.kind=attention"] if task == "classify" else []  # the network, for all sizes
    known: TaskConfig = get_task(task).config_type()
    return changed(known, [*small, "optimizer.lr=0.01", *overrides])


def majority(labels: list[str]) -> float:
    """Accuracy of the most frequent label."""
    return max(labels.count(label) for label in set(labels)) / len(labels)


def change(folder: Path, **facts: object) -> None:
    path = folder / "predictor.json"
    stored = json.loads(path.read_text("utf-8"))
    path.write_text(json.dumps({**stored, **facts}), "utf-8")


def scores(predictor: elmokit.tasks.Predictor) -> torch.Tensor:
    predictor.model.eval()
    with torch.no_grad():
        batch = predictor.model.batch([TextExample(tokens) for tokens in NEW])
        return predictor.model.head._scores(batch)
