"""Questions about texts: SQuAD 1.1 and 2.0 (CMRC too) as JSON, and one question a line as JSONL.

An answer that is not a piece of its text has the start -1, as some of CMRC's have: it counts when
answers are scored, and nothing can be trained on it.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from elmokit.errors import DataError
from elmokit.tasks.examples import Answer, QuestionExample, Spans, Tokens
from elmokit.tasks.readers.records import json_line, json_records
from elmokit.tasks.readers.sources import Format, ReadOptions, checked_lines, refuse_halves

NOT_IN_TEXT = -1
ROLES = {
    "id": ("id",),
    "title": ("title",),
    "context": ("context", "text"),
    "question": ("question",),
    "answers": ("answers",),
}


def _read_squad(path: str, options: ReadOptions) -> Iterator[QuestionExample]:
    text = "".join(line for _, line in checked_lines(path))
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: not valid JSON ({error}). Copy the file again.") from error
    refuse_halves(whole, text, path)
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
                yield _example(
                    question, f"{at} (id {name!r})", name, title, context, tokens, spans, options
                )


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


def _example(
    fields: Mapping[str, Any],
    where: str,
    name: str,
    title: str,
    context: str,
    tokens: Tokens,
    spans: Spans,
    options: ReadOptions,
) -> QuestionExample:
    question = _string(fields, "question", where)
    answers = options.answer(_answers, fields, context, where)
    return QuestionExample(
        name, context, question, tokens, spans, options.tokens(question), answers, title
    )


def _answers(fields: Mapping[str, Any], context: str, where: str) -> tuple[Answer, ...]:
    found = fields.get("answers")
    if fields.get("is_impossible") is True:
        return ()  # SQuAD 2.0 lists "plausible" answers elsewhere
    if found is None:
        raise DataError(f"{where}: no 'answers'. An empty list says that there is none.")
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
                f"{where}: the answer {text[:40]!r} does not stand at character {start} of the "
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


def _read_jsonl(path: str, options: ReadOptions) -> Iterator[QuestionExample]:
    for number, record in enumerate(json_records(path, ROLES, options), start=1):
        record.text("question")  # if it is not there, the error says how to name it
        context = record.text("context")
        tokens, spans = options.spans(context)
        name = str(record.values.get("id", number))
        title = str(record.values.get("title", ""))
        yield _example(record.values, record.where, name, title, context, tokens, spans, options)


def _jsonl_lines(examples: Iterable[QuestionExample], options: ReadOptions) -> Iterator[str]:
    for example in examples:
        values = {"title": example.title or None, "context": example.context}
        values |= _question(example)
        values.pop("is_impossible", None)
        yield json_line(values, options.names)


FORMATS = (
    Format("squad", (".json",), _read_squad, whole=_squad),
    Format("jsonl", (".jsonl", ".ndjson"), _read_jsonl, _jsonl_lines),
)
