"""``elmokit predict``: a predictor's answers, as a stream."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from elmokit.cli.options import Device, Flag, UsageError
from elmokit.cli.task_options import FileFormat, MovedElmo, MovedStatic, PredictorFolder

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
    write: str | None = None,
    probabilities: Annotated[bool, Flag] = False,
    elmo: MovedElmo = (),
    static: MovedStatic = None,
    device: Device = "cpu",
) -> None:
    """Answer for every example of a file, in order; memory depends on no file's length.

    Args:
        source: Texts, one a line, or examples in a format of the task; labels in it are not
            looked at. - is standard input, also when left out.
        output: Where answers go, its ending picks the format; standard output when left out.
        write: Format of the answers; jsonl on standard output when left out.
        probabilities: Add the probability of each class, for tasks that choose one; with jsonl.
    """
    from elmokit.tasks.predictor import Predictor
    from elmokit.tasks.readers import example_lines, write_examples
    from elmokit.whole_file import whole_file

    as_json = output is None or output.suffix.lower() in (".jsonl", ".ndjson")
    if probabilities and write != "jsonl" and (write is not None or not as_json):
        raise UsageError("--probabilities go into JSON lines: write .jsonl, or --write jsonl.")
    loaded = Predictor.load(predictor, elmo=elmo or None, static=static, device=device)
    task, fields = loaded.facts.task, loaded.facts.fields
    examples = loaded.stream(source, format=format)
    if probabilities:
        lines = _lines_with_probabilities(loaded, examples)
    elif output is not None:
        write_examples(task, output, loaded.annotate(examples), format=write, fields=fields)
        return
    else:
        lines = example_lines(task, loaded.annotate(examples), write or "jsonl", fields=fields)
    if output is None:
        for line in lines:
            print(line)
        return
    with whole_file(output) as place, place.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(f"{line}\n" for line in lines)


def _lines_with_probabilities(predictor: Predictor, examples: Iterator[Any]) -> Iterator[str]:
    """Lines of JSON, each with the probabilities of all classes."""
    import json

    from elmokit.tasks.readers import example_lines

    labels = predictor.labels
    for example, row in predictor.with_probabilities(examples):
        (line,) = example_lines(predictor.facts.task, [example])
        shares = {name: round(share, 6) for name, share in zip(labels, row.tolist(), strict=True)}
        yield json.dumps({**json.loads(line), "probabilities": shares}, ensure_ascii=False)
