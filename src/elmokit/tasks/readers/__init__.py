"""Files to examples and back, for every task.

    for example in read_examples("tag", "train.conll"):
        ...

Each task has a module with its formats. The format follows from the file's name, or, where the
name says nothing, from its first line; `format` says it outright. Examples stream: memory depends
on one example (SQuAD's JSON alone is one value and is read whole). What cannot be read is a
`DataError` that names the file, the line and the way out.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from elmokit.errors import ConfigError, DataError
from elmokit.files import temporary_beside
from elmokit.tasks.readers import classify, coref, dialogue, pair, qa, relation, seq2seq, tag
from elmokit.tasks.readers.packing import endings, whole_text
from elmokit.tasks.readers.sources import Format, ReadOptions, lines
from elmokit.tasks.tag_schemes import Scheme

FORMATS: dict[str, tuple[Format, ...]] = {
    "classify": classify.FORMATS,
    "tag": tag.FORMATS,
    "pair": pair.FORMATS,
    "relation": relation.FORMATS,
    "qa": qa.FORMATS,
    "seq2seq": seq2seq.FORMATS,
    "dialogue": dialogue.FORMATS,
    "coref": coref.FORMATS,
}
TASKS = tuple(FORMATS)


def read_examples(
    task: str,
    path: str | os.PathLike[str],
    *,
    format: str | None = None,
    tokenizer: str = "words",
    target_tokenizer: str | None = None,
    fields: Mapping[str, str] | None = None,
    labelled: bool = True,
    scheme: Scheme | None = None,
) -> Iterator[Any]:
    """Read the examples of a file, one at a time.

    Args:
        task: One of `TASKS`.
        path: A file (also packed: .gz, .bz2, .xz, .zst), a folder where the task has such a
            format, ``"-"`` for standard input; for `seq2seq` also ``"source.txt,target.txt"``.
        format: One of `format_names`; None finds it out.
        tokenizer: Splits text that is not tokenised (`elmokit.text.tokens.get_tokenizer`).
        target_tokenizer: Splits what `seq2seq` writes; None: as `tokenizer`.
        fields: Our names of columns or fields to the file's own (``{"text": "review"}``); numbers
            for tables without a header row (``{"text": "1", "label": "0"}``) and for columns. A
            text that is not there is looked for under its usual names; a label is not.
        labelled: Whether labels are needed. If not, one that is missing or wrong is None.
        scheme: ``iob1``, ``bio`` or ``bioes``: tags that it does not allow are an error.

    Returns:
        The examples, of the task's class in `elmokit.tasks.examples`.

    Raises:
        ConfigError: No such task or format, or one without labels where they are needed.
        DataError: The file cannot be read as what it should be, or has no example with a label.
    """
    name = os.fspath(path)
    if name == "-" and sys.stdin is None:
        raise DataError("standard input is closed. Give the name of a file.")
    chosen = _chosen(task, format) if format else _found(task, name, labelled)
    if labelled and not chosen.labels:
        raise ConfigError(f"{name}: plain text has no labels. It is read for prediction alone.")
    options = ReadOptions(tokenizer, target_tokenizer, fields or {}, labelled, scheme)
    return _not_none(chosen.read(name, options), name, chosen, labelled)


def _not_none(examples: Iterator[Any], name: str, chosen: Format, labelled: bool) -> Iterator[Any]:
    empty = True
    for example in examples:
        empty = False
        yield example
    if empty and labelled:
        raise DataError(
            f"{name}: no examples in it, read as {chosen.name!r}. Check the file, or name its "
            "format."
        )


def example_lines(
    task: str,
    examples: Iterable[Any],
    format: str = "jsonl",
    *,
    fields: Mapping[str, str] | None = None,
) -> Iterator[str]:
    """Examples as lines of a format, without line ends, one at a time.

    Args:
        task: One of `TASKS`.
        examples: The examples; predictions are examples whose labels are filled in.
        format: A format that is made of lines.
        fields: As in `read_examples`: names to write fields under, numbers for columns of tags.
    """
    chosen = _chosen(task, format)
    if chosen.lines is None:
        can = [other.name for other in FORMATS[task] if other.lines]
        raise ConfigError(
            f"{format!r} cannot be written line by line. Formats that can: {', '.join(can)}."
        )
    return chosen.lines(examples, ReadOptions(fields=fields or {}))


def write_examples(
    task: str,
    path: str | os.PathLike[str],
    examples: Iterable[Any],
    *,
    format: str | None = None,
    fields: Mapping[str, str] | None = None,
) -> None:
    """Write examples into a file (or a folder, for SNIPS), whole or not at all.

    Args:
        task: One of `TASKS`.
        path: Where to; packed if it ends in .gz, .bz2, .xz or .zst.
        examples: The examples; predictions are examples whose labels are filled in.
        format: One of `format_names`; None takes it from the name's ending.
        fields: As in `read_examples`: names to write fields under, numbers for columns of tags.
    """
    name = os.fspath(path)
    chosen = _chosen(task, format) if format else _by_ending(task, name)
    if chosen is None:
        raise ConfigError(
            f"{name}: the ending does not say which format to write. Name one: "
            f"{', '.join(format_names(task))}."
        )
    if chosen.lines is None and chosen.whole is None and chosen.write is None:
        raise ConfigError(f"{chosen.name!r} is read, not written. Write .jsonl instead.")
    if chosen.write is not None:
        _write_folder(chosen.write, examples, name)
        return
    with whole_text(path) as file:
        if chosen.whole is not None:
            file.write(chosen.whole(examples))
            return
        for line in example_lines(task, examples, chosen.name, fields=fields):
            file.write(line + "\n")


def _write_folder(
    write: Callable[[Iterable[Any], Path], None], examples: Iterable[Any], name: str
) -> None:
    place = Path(os.path.realpath(name))
    if place.exists() or not place.parent.is_dir():
        raise DataError(f"{name}: give the name of a new folder, in a folder that exists.")
    temporary = temporary_beside(place)
    try:
        write(examples, temporary)
        os.replace(temporary, place)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def format_names(task: str) -> tuple[str, ...]:
    """Names of the formats of a task.

    Raises:
        ConfigError: No such task.
    """
    if task not in FORMATS:
        near = get_close_matches(task, TASKS, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ConfigError(f"no task {task!r}.{hint} Tasks: {', '.join(TASKS)}.")
    return tuple(format.name for format in FORMATS[task])


def _chosen(task: str, name: str) -> Format:
    names = format_names(task)
    if name not in names:
        raise ConfigError(f"{task} has no format {name!r}. It has {', '.join(names)}.")
    return FORMATS[task][names.index(name)]


def _by_ending(task: str, name: str) -> Format | None:
    format_names(task)
    ending, _ = endings(name)
    for format in FORMATS[task]:
        if ending in format.endings:
            return format
    return None


def _found(task: str, name: str, labelled: bool) -> Format:
    """The format of an input: by its kind, its ending, or its first line."""
    names = format_names(task)
    if os.path.isdir(name):
        for format in FORMATS[task]:
            if format.folder:
                return format
    if task == "seq2seq" and seq2seq.two_files(name):
        return _chosen(task, "parallel")
    if name == "-":
        return _chosen(task, "text" if "text" in names and not labelled else "jsonl")
    found = _by_ending(task, name)
    return found or _chosen(task, _by_first_line(task, name, labelled))


def _by_first_line(task: str, name: str, labelled: bool) -> str:
    names = format_names(task)
    if os.path.exists(name) and not os.path.isfile(name) and not os.path.isdir(name):
        raise ConfigError(
            f"{name}: this is a pipe, which can be read once only, so its first line cannot say "
            f"what it is. Name the format: {', '.join(names)}."
        )
    first = next((line for _, line in lines(name) if line.strip()), "")
    if first.lstrip().startswith("{"):
        return "squad" if task == "qa" and '"context"' not in first else "jsonl"
    if task == "tag" and first.startswith(("# sent_id", "# newdoc", "1\t")):
        return "conllu"
    if task == "tag" and (labelled or "\t" in first):
        return "conll"
    if task == "seq2seq" and "\t" in first:
        return "tsv"
    if "text" not in names or labelled:
        raise DataError(
            f"{name}: neither its ending nor its first line says what it is. Name the format: "
            f"{', '.join(names)}."
        )
    return "text"
