"""Questions about texts: the example, its fields, SQuAD 1.1 and 2.0 (CMRC too) as JSON.

An answer that is not a piece of its text has the start -1, as some of CMRC's have: it counts when
answers are scored, and nothing can be trained on it.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from elmokit.errors import DataError
from elmokit.tasks.files import Field, NameField, Records, TextField
from elmokit.tasks.records import (
    Format,
    ReadOptions,
    Record,
    Span,
    Spans,
    Tokens,
    checked_lines,
    covering_tokens,
    parse_json,
)

NOT_IN_TEXT = -1


class Answer(NamedTuple):
    """A piece of a text and the character at which it starts."""

    text: str
    start: int


@dataclass(frozen=True)
class QuestionExample:
    """A text, a question about it and the pieces of the text that answer it.

    Attributes:
        id: The question's id.
        context: The text.
        question: The question.
        context_tokens: Tokens of the text.
        context_spans: Character offsets (start, end) of these tokens in `context`.
        question_tokens: Tokens of the question.
        answers: The answers, with character starts (-1: not a piece of the text); empty if the text
            holds none; None if not known.
        title: The article's title, where the file has one.
    """

    id: str
    context: str
    question: str
    context_tokens: Tokens
    context_spans: Spans
    question_tokens: Tokens
    answers: tuple[Answer, ...] | None = None
    title: str = ""

    @property
    def impossible(self) -> bool:
        """Whether the question is known to have no answer in the text."""
        return self.answers == ()

    def answer_spans(self) -> list[Span]:
        """Token spans of the answers: the fewest tokens that hold each."""
        spans = (
            covering_tokens(self.context_spans, start, start + len(text))
            for text, start in self.answers or ()
            if start >= 0  # else it is not a piece of the text
        )
        return [span for span in spans if span is not None]

    def text_of(self, span: tuple[int, int]) -> Answer:
        """The piece of the text that these tokens cover."""
        start = self.context_spans[span[0]][0]
        end = self.context_spans[span[1] - 1][1]
        return Answer(self.context[start:end], start)


def _read_squad(path: str, options: ReadOptions) -> Iterator[QuestionExample]:
    text = "".join(line for _, line in checked_lines(path))
    whole = parse_json(text, path, "Copy the file again.")
    for i, article in enumerate(_items(whole, "data", path)):
        title = article.get("title", "") if isinstance(article, dict) else ""
        for j, paragraph in enumerate(_items(article, "paragraphs", f"{path}, data[{i}]")):
            where = f"{path}, data[{i}], paragraphs[{j}]"
            questions = _items(paragraph, "qas", where)
            context = _string(paragraph, "context", where)
            tokens, spans = options.spans(context)
            for k, question in enumerate(questions):
                at = f"{where}, qas[{k}]"
                if not isinstance(question, dict):
                    raise DataError(f"{at}: must be an object with 'id', 'question', 'answers'.")
                name = _string(question, "id", at)
                at = f"{at} (id {name!r})"
                query = _string(question, "question", at)
                words = options.tokens(query)
                answers = options.answer(_answers, question, context, at)
                yield QuestionExample(name, context, query, tokens, spans, words, answers, title)


def _items(value: Any, name: str, where: str) -> list[Any]:
    found = value.get(name) if isinstance(value, dict) else None
    if not isinstance(found, list):
        raise DataError(
            f"{where}: no list {name!r}. A SQuAD file is an object: data, in it paragraphs, in it "
            "context and qas."
        )
    return found


def _string(value: Mapping[str, Any], name: str, where: str) -> str:
    found = value.get(name)
    if not isinstance(found, str) or not found.strip():
        raise DataError(f"{where}: {name!r} must be a string that is not empty.")
    return found


def _answers(fields: Mapping[str, Any], context: str, where: str) -> tuple[Answer, ...]:
    found = fields.get("answers")
    if fields.get("is_impossible") is True:
        return ()  # SQuAD 2.0 lists "plausible" answers elsewhere
    if found is None:
        raise DataError(f"{where}: no 'answers'. An empty list says that there is none.")
    if isinstance(found, str):  # the answer alone: where the text has it first
        found = [{"text": found, "answer_start": context.find(found)}] if found else []
    if not isinstance(found, list):
        raise DataError(f"{where}: 'answers' must be a list.")
    answers = []
    for answer in found:
        match answer:
            case {"text": str(text), "answer_start": int(start)}:
                pass
            case _:
                raise DataError(
                    f"{where}: each answer must be an object with 'text' and 'answer_start', a "
                    "character of the context (from 0)."
                )
        if start != NOT_IN_TEXT and (start < 0 or not text or not context.startswith(text, start)):
            raise DataError(
                f"{where}: the answer {text[:40]!r} is not at character {start} of the "
                f"text, where it says {context[max(start, 0) :][: min(len(text), 40)]!r}. Correct "
                f"'answer_start' ({NOT_IN_TEXT} if the text does not hold the answer)."
            )
        answers.append(Answer(text, start))
    return tuple(answers)


def _squad(examples: Iterable[QuestionExample]) -> str:
    data = []
    for title, article in itertools.groupby(examples, key=lambda example: example.title):
        paragraphs = [
            {"context": context, "qas": [_question(example) for example in questions]}
            for context, questions in itertools.groupby(article, key=lambda e: e.context)
        ]
        data.append({"title": title, "paragraphs": paragraphs})
    return json.dumps({"version": "2.0", "data": data}, ensure_ascii=False)


def _question(example: QuestionExample) -> dict[str, Any]:
    question: dict[str, Any] = {"id": example.id, "question": example.question}
    if example.answers is not None:
        question["is_impossible"] = example.impossible
        question["answers"] = [
            {"text": answer.text, "answer_start": answer.start} for answer in example.answers
        ]
    return question


class _QuestionField(Field):
    """The question and its tokens."""

    def read(self, record: Record, found: dict[str, Any], options: ReadOptions) -> dict[str, Any]:
        """Both."""
        record.text("question")  # if it is not there, the error says how to name it
        question = _string(record.values, "question", record.where)
        return {"question": question, "question_tokens": options.tokens(question)}


class _AnswersField(Field):
    """The answers, as SQuAD has them."""

    def value(
        self, record: Record, found: dict[str, Any], options: ReadOptions
    ) -> tuple[Answer, ...]:
        """The answers, checked."""
        fields = {**record.rest, **record.values}  # with SQuAD's is_impossible
        return _answers(fields, found["context"], record.where)

    def write(self, example: Any) -> dict[str, Any]:
        """The same."""
        return {"answers": _question(example).get("answers")}


RECORDS = Records(
    QuestionExample,
    (
        NameField("title", default=""),
        TextField("context", "text", tokens_at="context_tokens", spans_at="context_spans"),
        NameField("id", default="number"),
        _QuestionField("question"),
        _AnswersField("answers", answer=True),
    ),
)
FORMATS = (
    Format(
        "squad",
        (".json",),
        _read_squad,
        whole=_squad,
        begins=lambda line, labelled: line.lstrip().startswith("{") and '"context"' not in line,
    ),
    RECORDS.jsonl(),
)
