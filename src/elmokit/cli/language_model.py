"""What the verbs of the language model share: how a model comes with its softmax."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from elmokit.cli.options import Device, OptionsFile, Tokenizer, VocabularyFile

if TYPE_CHECKING:
    from elmokit.encode.elmo import Elmo

PredictingModel = Annotated[
    str,
    Parameter(
        name="MODEL",
        help="Folder, weights file, archive, checkpoint prefix, embedded name or hf:OWNER/NAME; "
        "with a softmax and a vocabulary.",
    ),
]


@Parameter(name="*")  # the fields are options of the verb itself
@dataclass(frozen=True, kw_only=True)
class Loading:
    """Where the parts of a model are, and where it runs."""

    softmax_file: Annotated[
        Path | None,
        Parameter(name="--softmax", help="HDF5 file with the softmax, when the model has none."),
    ] = None
    vocabulary_file: VocabularyFile = None
    options_file: OptionsFile = None
    tokenizer: Tokenizer = None
    device: Device = "cpu"


AS_IT_IS = Loading()
"""All parts come with the model."""


def load_predicting(model: str, loading: Loading, *, tokens: bool = False) -> Elmo:
    """Load a model as the verbs' options ask."""
    import elmokit

    return elmokit.load(
        model,
        tokenizer="space" if tokens else loading.tokenizer,
        options=loading.options_file,
        vocabulary=loading.vocabulary_file,
        softmax=True if loading.softmax_file is None else loading.softmax_file,
        device=loading.device,
    )
