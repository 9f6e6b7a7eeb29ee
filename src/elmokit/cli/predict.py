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

from elmokit.cli.options import Device, UsageError, reading_bar, suggest
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
    details: bool = False,
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
        probabilities: Add the probability of each class, for tasks that choose one, or of each tag
            of each token; with jsonl.
        details: Add score, tokens and spans, with character offsets; with jsonl.
    """
    from elmokit.files import check_output
    from elmokit.tasks.files import compressed_text, example_lines, write_examples
    from elmokit.tasks.predictor import Predictor
    from elmokit.text.readers import data_suffix

    as_json = output is None or data_suffix(output.name)[0] in (".jsonl", ".ndjson")
    if (probabilities or details) and write != "jsonl" and (write is not None or not as_json):
        option = "--details" if details else "--probabilities"
        raise UsageError(f"{option} go into JSON lines: write .jsonl, or --write jsonl.")
    if output is not None:
        check_output(output, source, predictor, static, *elmo)
    names = field_names(fields)
    loaded = Predictor.load(predictor, elmo=elmo or None, static=static, device=device)
    task, columns = loaded.facts.task, names or loaded.facts.fields
    examples = loaded.stream(source, format=format, fields=columns)
    live = source == "-" and output is None and not _is_file(sys.stdin)
    if probabilities or details:
        lines = _lines_with_more(loaded, examples, columns, live, details, probabilities)
    elif output is not None:
        with reading_bar(source):
            write_examples(task, output, loaded.annotate(examples), format=write, fields=columns)
        suggest(f"elmokit evaluate {predictor} LABELLED-FILE")
        return
    else:
        answers = loaded.annotate(examples, live=live)
        lines = example_lines(task, answers, write or "jsonl", fields=columns)
    with (
        nullcontext(sys.stdout) if output is None else compressed_text(output) as file,
        reading_bar(source, prints=output is None),
    ):
        for line in lines:
            print(line, file=file, flush=live)
    suggest(f"elmokit evaluate {predictor} LABELLED-FILE")


def _is_file(stream: TextIO) -> bool:
    """Whether all of it is there already."""
    try:
        return stat.S_ISREG(os.fstat(stream.fileno()).st_mode)
    except OSError:  # a stream that is no file of the system
        return False


def _lines_with_more(
    predictor: Predictor,
    examples: Iterator[Any],
    fields: Mapping[str, str],
    live: bool,
    details: bool,
    probabilities: bool,
) -> Iterator[str]:
    """Lines of JSON, each with the details of the answer, or the probabilities of all classes."""
    from elmokit.tasks.files import example_lines

    def shares(row: Any) -> Any:
        """Of classes by their names; of tags, for each token."""
        if row.ndim == 2:
            return [shares(token) for token in row]
        return dict(zip(predictor.labels, row.tolist(), strict=True))

    found: Iterator[tuple[Any, dict[str, Any]]]
    if details:
        both = predictor.with_details(examples, live=live)
        hidden = {"answer", "text"} if probabilities else {"answer", "text", "probabilities"}
        found = ((e, {k: v for k, v in d.to_dict().items() if k not in hidden}) for e, d in both)
    else:
        rows = predictor.with_probabilities(examples, live=live)
        found = ((example, {"probabilities": shares(row)}) for example, row in rows)
    for example, more in found:
        (line,) = example_lines(predictor.facts.task, [example], fields=fields)
        yield json.dumps({**json.loads(line), **_rounded(more)}, ensure_ascii=False)


def _rounded(value: Any) -> Any:
    """Numbers with six digits after the point."""
    if isinstance(value, dict):
        return {name: _rounded(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(one) for one in value]
    return round(value, 6) if isinstance(value, float) else value
