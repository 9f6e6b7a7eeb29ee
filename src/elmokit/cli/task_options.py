"""What the verbs of tasks share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from elmokit.cli.options import MODEL_NAMES, UsageError

PredictorFolder = Annotated[
    Path, Parameter(name="PREDICTOR", help="Folder that elmokit train has made.")
]
StaticFile = Annotated[
    Path | None, Parameter(help="Static word vectors: a file of GloVe, word2vec or fastText.")
]
MovedElmo = Annotated[
    tuple[str, ...],
    Parameter(
        name=MODEL_NAMES,
        consume_multiple=False,
        help="Where the predictor's model is, if it was moved; all of them, in their order, for a "
        "predictor that reads several.",
    ),
]
MovedStatic = Annotated[
    Path | None,
    Parameter(name="--static", help="Where its static vectors are, if they were moved."),
]
FileFormat = Annotated[
    str | None, Parameter(help="Format of the files, where their names do not say it.")
]
FieldNames = Annotated[
    tuple[str, ...],
    Parameter(
        name="--field",
        consume_multiple=False,
        help="Column or key of the files, OURS=THEIRS, such as text=review; numbers for tables "
        "without a header; as often as needed.",
    ),
]


def field_names(given: Sequence[str]) -> dict[str, str]:
    """Pairs OURS=THEIRS as a dictionary."""
    names = {}
    for text in given:
        ours, equals, theirs = text.partition("=")
        if not equals or not ours or not theirs:
            raise UsageError(f"--field {text}: write it as OURS=THEIRS, such as text=review.")
        names[ours] = theirs
    return names
