"""``elmokit predict``: a predictor's answers, as a stream."""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

from cyclopts import Parameter

from elmokit.cli.options import Device, UsageError
from elmokit.cli.task_options import (
    FieldNames,
    FileFormat,
    MovedElmo,
    MovedStatic,
    PredictorFolder,
    field_names,
)

if TYPE_CHECKING:
    from elmokit.tasks.predictor import Predictor

EXAMPLES = (
    "elmokit predict my-classifier new.txt",
    "elmokit predict my-classifier new.txt --probabilities -o answers.jsonl",
    "elmokit predict my-tagger new.txt -o tagged.conll",
    "cat new.txt | elmokit predict my-tagger - --write conll",
)


def predict(  # noqa: D417 - options that verbs share bring their own help
    predictor: PredictorFolder,
    source: Annotated[str, Parameter(name="FILE")] = "-",
    /,
    *,
    output: Annotated[Path | None, Parameter(name=["--output", "-o"])] = None,
    format: FileFormat = None,
    fields: FieldNames = (),
    write: str | None = None,
    probabilities: bool = False,
    elmo: MovedElmo = (),
    static: MovedStatic = None,
    device: Device = None,
) -> None:
    """Answer for every example of a file, in order; memory depends on no file's length.

    From standard input to standard output, an answer is there as soon as no more input is waiting.

    Args:
        source: Texts, one per line, or examples in a format of the task; labels in it are not
            looked at. - is standard input, also when left out.
        output: Where answers go, its ending picks the format (.gz and the like compress it);
            standard output when left out.
        write: Format of the answers; jsonl on standard output when left out.
        probabilities: Add the probability of each class, for tasks that choose one; with jsonl.
    """
    from elmokit.files import check_output
    from elmokit.tasks.files import compressed_text, example_lines, write_examples
    from elmokit.tasks.predictor import Predictor
    from elmokit.text.readers import data_suffix

    as_json = output is None or data_suffix(output.name)[0] in (".jsonl", ".ndjson")
    if probabilities and write != "jsonl" and (write is not None or not as_json):
        raise UsageError("--probabilities go into JSON lines: write .jsonl, or --write jsonl.")
    if output is not None:
        check_output(output, source, predictor, static, *elmo)
    names = field_names(fields)
    loaded = Predictor.load(predictor, elmo=elmo or None, static=static, device=device)
    task, columns = loaded.facts.task, names or loaded.facts.fields
    examples = loaded.stream(source, format=format, fields=columns)
    live = source == "-" and output is None and not _is_file(sys.stdin)
    if probabilities:
        lines = _lines_with_probabilities(loaded, examples, columns, live)
    elif output is not None:
        write_examples(task, output, loaded.annotate(examples), format=write, fields=columns)
        return
    else:
        answers = loaded.annotate(examples, live=live)
        lines = example_lines(task, answers, write or "jsonl", fields=columns)
    with nullcontext(sys.stdout) if output is None else compressed_text(output) as file:
        for line in lines:
            print(line, file=file, flush=live)


def _is_file(stream: TextIO) -> bool:
    """Whether all of it is there already."""
    try:
        return stat.S_ISREG(os.fstat(stream.fileno()).st_mode)
    except OSError:  # a stream that is no file of the system
        return False


def _lines_with_probabilities(
    predictor: Predictor, examples: Iterator[Any], fields: Mapping[str, str], live: bool
) -> Iterator[str]:
    """Lines of JSON, each with the probabilities of all classes."""
    from elmokit.tasks.files import example_lines

    labels = predictor.labels
    for example, row in predictor.with_probabilities(examples, live=live):
        (line,) = example_lines(predictor.facts.task, [example], fields=fields)
        shares = {name: round(share, 6) for name, share in zip(labels, row.tolist(), strict=True)}
        yield json.dumps({**json.loads(line), "probabilities": shares}, ensure_ascii=False)
