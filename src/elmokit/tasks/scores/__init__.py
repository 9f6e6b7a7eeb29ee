"""Answers compared with the truth, by the rules of each task's own scorer.

labels are classes, spans are tagged spans (conlleval), relations follow SemEval-2010 task 8,
answers SQuAD and CMRC, sequences BLEU and ROUGE, frames intents and slots, pronouns GAP. Each has
one function on plain lists; `score_examples` does it for the examples of any task.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from elmokit.errors import ConfigError, DataError
from elmokit.tasks.scores.answers import AnswerScore, score_answers
from elmokit.tasks.scores.base import Counts, Score, same_length
from elmokit.tasks.scores.chinese import mostly_chinese
from elmokit.tasks.scores.frames import FrameScore, score_frames
from elmokit.tasks.scores.labels import LabelScore, score_labels
from elmokit.tasks.scores.pronouns import PronounScore, score_pronouns
from elmokit.tasks.scores.relations import RelationScore, score_relations
from elmokit.tasks.scores.sequences import SequenceScore, score_sequences
from elmokit.tasks.scores.spans import SpanScore, score_spans
from elmokit.tasks.tag_schemes import recognise_scheme

__all__ = [
    "AnswerScore",
    "Counts",
    "FrameScore",
    "LabelScore",
    "PronounScore",
    "RelationScore",
    "Score",
    "SequenceScore",
    "SpanScore",
    "score_answers",
    "score_examples",
    "score_frames",
    "score_labels",
    "score_pronouns",
    "score_relations",
    "score_sequences",
    "score_spans",
    "score_tags",
]

_VERB = "V"


def score_examples(
    task: str, gold: Sequence[Any], predicted: Sequence[Any], *, primary: str | None = None
) -> Score:
    """Score predictions with the task's own scorer.

    Tags are scored as spans if the truth is in a scheme of spans, else token by token. Among
    semantic roles the verb's own span does not count. Chinese answers follow CMRC's rules.

    Args:
        task: A task of `elmokit.tasks.readers.TASKS`.
        gold: Examples with their labels.
        predicted: The same examples, in the same order, with predicted labels.
        primary: For `seq2seq`: ``bleu`` (the default) or ``rougeL``.

    Raises:
        ConfigError: No such task.
        DataError: A label is missing, or the two do not have the same length.
    """
    same_length(gold, predicted)
    if task not in _SCORERS:
        raise ConfigError(f"no task {task!r} to score. Tasks: {', '.join(_SCORERS)}.")
    if task == "seq2seq":
        return _score_sequences(gold, predicted, primary or "bleu")
    return _SCORERS[task](gold, predicted)


def _all(examples: Sequence[Any], name: str) -> list[Any]:
    values = [getattr(example, name) for example in examples]
    for number, value in enumerate(values, start=1):
        if value is None:
            raise DataError(f"example {number} has no {name}. Only labelled examples have a score.")
    return values


def _score_tags(gold: Sequence[Any], predicted: Sequence[Any]) -> Score:
    spans = recognise_scheme(_all(gold, "tags")) is not None
    roles = any(example.predicate is not None for example in gold)
    return score_tags(gold, predicted, spans=spans, roles=roles)


def score_tags(
    gold: Sequence[Any], predicted: Sequence[Any], *, spans: bool, roles: bool = False
) -> Score:
    """Score tags, where it is known of what kind they are.

    Args:
        gold: Examples of `tag` with their tags.
        predicted: The same examples, in the same order, with predicted tags.
        spans: Whether they are tags of spans; else they are scored token by token.
        roles: Whether the spans are semantic roles.

    Raises:
        DataError: Tags are missing, or the two do not have the same length.
    """
    same_length(gold, predicted)
    true, found = _all(gold, "tags"), _all(predicted, "tags")
    if spans:
        return score_spans(true, found, ignore=(_VERB,) if roles else ())
    for one, other in zip(true, found, strict=True):
        same_length(one, other)
    return score_labels(
        [tag for tags in true for tag in tags], [tag for tags in found for tag in tags]
    )


def _score_questions(gold: Sequence[Any], predicted: Sequence[Any]) -> Score:
    true = [[answer.text for answer in answers] for answers in _all(gold, "answers")]
    found = [answers[0].text if answers else "" for answers in _all(predicted, "answers")]
    chinese = mostly_chinese(example.context for example in gold[:100])
    return score_answers(true, found, rules="cmrc" if chinese else "squad")


def _score_classes(gold: Sequence[Any], predicted: Sequence[Any]) -> Score:
    return score_labels(_all(gold, "label"), _all(predicted, "label"))


def _score_relations(gold: Sequence[Any], predicted: Sequence[Any]) -> Score:
    return score_relations(_all(gold, "label"), _all(predicted, "label"))


def _score_pronouns(gold: Sequence[Any], predicted: Sequence[Any]) -> Score:
    genders = [example.gender for example in gold]
    return score_pronouns(_all(gold, "label"), _all(predicted, "label"), genders)


def _score_frames(gold: Sequence[Any], predicted: Sequence[Any]) -> Score:
    return score_frames(
        _all(gold, "intent"),
        _all(gold, "slots"),
        _all(predicted, "intent"),
        _all(predicted, "slots"),
    )


def _score_sequences(gold: Sequence[Any], predicted: Sequence[Any], primary: str = "bleu") -> Score:
    outputs = [example.references[0] if example.references else "" for example in predicted]
    return score_sequences([example.references for example in gold], outputs, primary=primary)


_SCORERS: dict[str, Callable[[Sequence[Any], Sequence[Any]], Score]] = {
    "classify": _score_classes,
    "tag": _score_tags,
    "pair": _score_classes,
    "relation": _score_relations,
    "qa": _score_questions,
    "seq2seq": _score_sequences,
    "dialogue": _score_frames,
    "coref": _score_pronouns,
}
