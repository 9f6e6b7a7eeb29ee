"""`qa`: the piece of a text that answers a question."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypedDict

from elmokit.errors import DataError
from elmokit.tasks.config import TaskConfig
from elmokit.tasks.qa.files import FORMATS, RECORDS, QuestionExample
from elmokit.tasks.qa.network import QaConfig, QaHead
from elmokit.tasks.records import Format, offsets_of
from elmokit.tasks.task import (
    PUNCTUATION,
    FormField,
    Task,
    TaskScore,
    Tokenize,
    all_of,
    known,
    mostly_chinese,
    same_length,
    share,
    units,
    value_of,
)

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


class LearnedAnswers(TypedDict):
    """What `qa` learns from its data."""

    no_answer: bool


class QaTask(Task[QuestionExample]):
    """A piece of a text, or none."""

    name = "qa"
    learned_type = LearnedAnswers
    config_type: type[QaConfig] = QaConfig
    head_type: type[QaHead] = QaHead
    records = RECORDS
    formats: tuple[Format, ...] = FORMATS
    text_fields: tuple[str, ...] = ("context_tokens", "question_tokens")
    takes = "a pair (text, question), a dictionary with 'context' and 'question'"
    item_type = tuple[str, str]
    item = "[text, question]"
    form: tuple[FormField, ...] = (
        FormField("text", "text", "Text"),
        FormField("question", "line", "Question"),
    )

    def learn(self, examples: Sequence[QuestionExample], config: TaskConfig) -> dict[str, Any]:
        """Whether "no answer" is one of the answers."""
        assert isinstance(config, QaConfig)
        silent = [known(e.answers, i) == () for i, e in enumerate(examples, 1)]
        if not any(example.answer_spans() for example in examples):
            raise DataError(
                "no question of the training data has an answer that is a piece of its text: "
                "nothing to learn"
            )
        return {"no_answer": config.head.no_answer and any(silent)}

    def score(
        self, gold: Sequence[QuestionExample], predicted: Sequence[QuestionExample], **_: Any
    ) -> TaskScore:
        """By the rules of SQuAD, or of CMRC for Chinese."""
        true = [[answer.text for answer in answers] for answers in all_of(gold, "answers")]
        found = [answers[0].text if answers else "" for answers in all_of(predicted, "answers")]
        chinese = mostly_chinese(example.context for example in gold[:100])
        return score_answers(true, found, rules="cmrc" if chinese else "squad")

    def from_item(self, item: Any, tokenize: Tokenize) -> QuestionExample | None:
        """From a text and a question: a pair, or a dictionary with both."""
        name = ""
        if isinstance(item, Mapping):
            names = RECORDS.names()
            name = str(item.get("id", ""))
            item = tuple(value_of(item, names[field]) for field in ("context", "question"))
        match item:
            case (str(context), str(question)):
                tokens = tokenize(context)
                spans = offsets_of(context, tokens)
                return QuestionExample(name, context, question, tokens, spans, tokenize(question))
        return None

    def answer(self, example: QuestionExample) -> str | None:
        """The piece of the text; None for no answer."""
        return example.answers[0].text if example.answers else None


# The score. SQuAD compares words without capitals, punctuation and articles; F1 counts words in
# common. CMRC compares Chinese characters (and other words whole); F1 counts the longest run in
# common. Of several true answers the one that fits best counts. "No answer" is right or wrong.


@dataclass(frozen=True)
class AnswerScore(TaskScore):
    """The score of answers.

    Attributes:
        exact_match: The share of answers that are the same as a true one.
        f1: The mean of F1.
        answered_f1: The same over questions that have an answer; None if there are none.
        no_answer_accuracy: The share of questions without an answer for which none was given;
            None if there are none.
    """

    exact_match: float
    f1: float
    answered_f1: float | None
    no_answer_accuracy: float | None
    primary: str = "f1"

    def numbers(self) -> dict[str, float]:
        """F1 and exact match; the two parts only if both kinds of questions are there."""
        numbers = {"f1": self.f1, "exact_match": self.exact_match}
        if self.answered_f1 is not None and self.no_answer_accuracy is not None:
            numbers["answered_f1"] = self.answered_f1
            numbers["no_answer_accuracy"] = self.no_answer_accuracy
        return numbers


def squad_words(text: str) -> list[str]:
    """The words of an answer that SQuAD's rules compare."""
    return _ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split()


def squad_f1(true: str, found: str) -> float:
    """F1 of the words that two answers have in common."""
    true_words, found_words = squad_words(true), squad_words(found)
    if not true_words or not found_words:
        return float(true_words == found_words)
    common = (Counter(true_words) & Counter(found_words)).total()
    return share(2 * common, len(true_words) + len(found_words))


def cmrc_f1(true: str, found: str) -> float:
    """F1 of the longest run of characters (or words) that two answers have in common."""
    true_units, found_units = units(true), units(found)
    if not true_units or not found_units:
        return float(true_units == found_units)
    run = _longest_common_run(true_units, found_units)
    return share(2 * run, len(true_units) + len(found_units))


def _longest_common_run(first: Sequence[str], second: Sequence[str]) -> int:
    longest = 0
    before = [0] * (len(second) + 1)  # lengths of the runs that end at each index
    for unit in first:
        now = [0]
        for index, other in enumerate(second):
            now.append(before[index] + 1 if unit == other else 0)
        longest = max(longest, *now)
        before = now
    return longest


def _cmrc_text(text: str) -> str:
    return "".join(sign for sign in text.lower().strip() if sign not in PUNCTUATION)


def score_answers(
    gold: Sequence[Sequence[str]],
    predicted: Sequence[str],
    *,
    rules: Literal["squad", "cmrc"] = "squad",
) -> AnswerScore:
    """Compare answers with the true ones, by SQuAD's rules or, for Chinese, CMRC's.

    A question that has no answer has no true ones, and the empty string says so.
    """
    same_length(gold, predicted)
    f1: Callable[[str, str], float] = squad_f1 if rules == "squad" else cmrc_f1
    normal: Callable[[str], object] = squad_words if rules == "squad" else _cmrc_text
    exact, answered, unanswerable = list[float](), list[float](), list[float]()
    for answers, found in zip(gold, predicted, strict=True):
        # As SQuAD 2.0: an answer of which nothing is left to compare is no answer.
        true = [answer for answer in answers if normal(answer)] or [""]
        exact.append(max(float(normal(answer) == normal(found)) for answer in true))
        scores = unanswerable if true == [""] else answered
        scores.append(max(f1(answer, found) for answer in true))
    return AnswerScore(
        share(sum(exact), len(exact)),
        share(sum(answered) + sum(unanswerable), len(exact)),
        share(sum(answered), len(answered)) if answered else None,
        share(sum(unanswerable), len(unanswerable)) if unanswerable else None,
    )


TASK = QaTask()
