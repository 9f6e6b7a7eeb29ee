"""``elmokit evaluate``: how good a predictor's answers are."""

from __future__ import annotations

import json
from typing import Annotated

from cyclopts import Parameter

from elmokit.cli.options import Device, Json, suggest
from elmokit.cli.task_options import (
    FieldNames,
    FileFormat,
    MovedElmo,
    MovedStatic,
    PredictorFolder,
    field_names,
)

EXAMPLES = (
    "elmokit evaluate my-classifier test.tsv",
    "elmokit evaluate my-classifier test.csv --field text=review --field label=stars",
    "elmokit evaluate my-tagger test.conll --json",
)


def evaluate(  # noqa: D417 - options that verbs share bring their own help
    predictor: PredictorFolder,
    data: Annotated[str, Parameter(name="FILE")],
    /,
    *,
    format: FileFormat = None,
    fields: FieldNames = (),
    elmo: MovedElmo = (),
    static: MovedStatic = None,
    device: Device = None,
    as_json: Json = False,
) -> None:
    """Compare a predictor's answers with the truth.

    Args:
        data: Labelled examples in a format of the task, or - for standard input.
    """
    from elmokit.tasks.predictor import Predictor
    from elmokit.tasks.report import label_table, numbers

    names = field_names(fields) or None  # None: those of training
    loaded = Predictor.load(predictor, elmo=elmo or None, static=static, device=device)
    scores = loaded.evaluate(data, format=format, fields=names)
    if as_json:
        print(json.dumps(scores, indent=2, ensure_ascii=False))
        return
    print(numbers(scores))
    if scores.get("labels"):  # spans and relations may all be absent
        print(f"\n{label_table(scores['labels'])}")
    suggest(f"elmokit predict {predictor} FILE")
