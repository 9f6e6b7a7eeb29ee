"""``elmokit predict``: a predictor's answers, as a stream."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from elmokit.cli.options import Device
from elmokit.cli.task_options import FileFormat, MovedElmo, MovedStatic, PredictorFolder

EXAMPLES = (
    "elmokit predict my-classifier new.txt",
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
    elmo: MovedElmo = None,
    static: MovedStatic = None,
    device: Device = "cpu",
) -> None:
    """Answer for every example of a file, in order; memory depends on no file's length.

    Args:
        source: Texts, one a line, or examples in a format of the task; labels in it are not
            looked at. - is standard input, also when left out.
        output: Where answers go, its ending picks the format; standard output when left out.
        write: Format of the answers; jsonl on standard output when left out.
    """
    from elmokit.tasks.predictor import Predictor
    from elmokit.tasks.readers import example_lines, write_examples

    loaded = Predictor.load(predictor, elmo=elmo, static=static, device=device)
    answers = loaded.annotate(loaded.stream(source, format=format))
    task, fields = loaded.facts.task, loaded.facts.fields
    if output is not None:
        write_examples(task, output, answers, format=write, fields=fields)
        return
    for line in example_lines(task, answers, write or "jsonl", fields=fields):
        print(line)
