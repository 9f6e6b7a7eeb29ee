"""Labelled examples from what a user has in Python: a list, a table of pandas, a data set.

Rows of tables and dictionaries are read by the names of the task's JSONL; a tuple has the same
values in the order of the task's fields: text and label, tokens and tags, two texts and a label.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from elmokit.tasks.files import NameField, TextField
from elmokit.tasks.records import ReadOptions, errors_at, object_record, tried_names, wrong_item
from elmokit.tasks.task import Task


def from_items(task: Task[Any], data: Any, options: ReadOptions) -> Iterator[Any]:
    """The examples of a list, a DataFrame or a Dataset.

    Raises:
        DataError: One is not labelled, or not what the task takes.
    """
    row = [field for field in task.records.fields if not isinstance(field, NameField)]
    expected = (
        f"{task.name} is trained and scored on ({', '.join(field.name for field in row)}), on "
        f"dictionaries with these names, or on {task.example_type.__name__} with a label; or on a "
        "file or a table of them"
    )
    if not isinstance(data, Iterable) or isinstance(data, Mapping):
        raise wrong_item(data, f"{expected}: give a list of them.")
    names = tried_names(task.records.names(), task.records.answers, options)
    for number, item in enumerate(table_rows(data), 1):
        where = f"item {number}"
        with errors_at(where):
            if isinstance(item, task.example_type):
                yield task.checked(item)
                continue
            value = item if isinstance(item, Mapping) else _named(row, item)
            if value is None:
                raise wrong_item(item, f"{expected}.")
            record = object_record({k: _plain(v) for k, v in value.items()}, where, number, names)
            yield from task.records.examples([record], options)


def table_rows(data: Any) -> Iterator[Any]:
    """The rows of a table as dictionaries; other data as they are."""
    if hasattr(data, "to_dicts"):  # polars
        yield from data.to_dicts()
        return
    if hasattr(data, "to_dict") and hasattr(data, "columns"):  # pandas
        yield from data.to_dict("records")
        return
    features = getattr(data, "features", None)
    if isinstance(features, Mapping):  # datasets, which may store the numbers of classes
        decoders = {name: found for name in features if (found := _decoder(features[name]))}
        for row in data:
            yield row | {k: decoders[k](row[k]) for k in decoders if row[k] is not None}
        return
    yield from data


def _decoder(feature: Any) -> Callable[[Any], Any] | None:
    """What turns numbers of classes, alone or in a list, into their names; None: nothing to do."""
    inner = getattr(feature, "feature", feature)
    decode: Callable[[Any], Any] | None = getattr(inner, "int2str", None)
    return decode


def _named(row: Sequence[Any], item: Any) -> dict[str, Any] | None:
    """The values of a tuple by the names of the fields; None if it is not one for them."""
    values = list(item) if isinstance(item, tuple | list) else []
    if len(values) == 2 and len(row) > 2:
        first, second = values
        if isinstance(second, Mapping):  # tokens and a dictionary of answers
            named = _named(row[:1], [first])
            return None if named is None else {**named, **second}
        if isinstance(first, tuple | list):  # what `predict` takes, and the answer
            values = [*first, second]
    if len(values) != len(row):
        return None
    return {
        field.tokens if _is_tokens(field, value) else field.name: value
        for field, value in zip(row, values, strict=True)
    }


def _is_tokens(field: Any, value: Any) -> bool:
    return isinstance(field, TextField) and bool(field.tokens) and not isinstance(value, str)


def _plain(value: Any) -> Any:
    """A value of numpy or pandas as JSON has it; what is missing there is None."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, tuple | list):
        return [_plain(one) for one in value]
    if isinstance(value, Mapping):
        return {name: _plain(one) for name, one in value.items()}
    missing = type(value).__name__ in ("NAType", "NaTType")
    return None if missing or (isinstance(value, float) and math.isnan(value)) else value
