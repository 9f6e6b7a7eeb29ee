"""Model files to damage, and the check that a bad one is refused clearly."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from golden_models import GOLDEN, weights_of

import elmokit
from elmokit.errors import CheckpointError

ALLENNLP_FILE = GOLDEN / "allennlp-finetuned/elmo-two-mixes.th"


ARCHIVE = GOLDEN / "allennlp-finetuned/model-weights-only.tar.gz"


def refused(source: Path, *parts: str, **options) -> str:
    """Loading must end in exactly a CheckpointError whose message has these parts."""
    with pytest.raises(CheckpointError) as caught:
        elmokit.load(source, **options).encode([[]])
    assert type(caught.value) is CheckpointError
    message = str(caught.value)
    for part in parts:
        assert part in message
    return message


def copied(source: Path, folder: Path) -> Path:
    """A copy to damage, with files that may be written."""
    target = folder / source.name
    if source.is_dir():
        shutil.copytree(source, target, copy_function=shutil.copyfile)
    else:
        shutil.copyfile(source, target)
    return target


@dataclass(frozen=True)
class Victim:
    """A model on disk and the file in it that gets damaged."""

    name: str
    make: Callable[[Path], tuple[Path, Path]]
    checksums: bool = False
    """Whether damage to numbers cannot stay unseen."""

    def __str__(self) -> str:
        return self.name


def inside(source: str, file: str, **options) -> Victim:
    def make(folder: Path) -> tuple[Path, Path]:
        target = copied(GOLDEN / source, folder)
        return target, target / file

    return Victim(f"{source}/{file}", make, **options)


def alone(source: str, **options) -> Victim:
    def make(folder: Path) -> tuple[Path, Path]:
        target = copied(GOLDEN / source, folder)
        return target, target

    return Victim(source, make, **options)


def native(source: str, file: str, **options) -> Victim:
    def make(folder: Path) -> tuple[Path, Path]:
        elmokit.load(GOLDEN / source).save(folder / "model")
        return folder / "model", folder / "model" / file

    return Victim(f"native {source}/{file}", make, **options)


def zip_torch_file(folder: Path) -> tuple[Path, Path]:
    path = folder / "weights.th"
    torch.save(torch.load(ALLENNLP_FILE, weights_only=True), path)
    return path, path


NATIVE = native("many-langs/released", "model.safetensors", checksums=True)


TENSOR_FILES = [
    NATIVE,
    inside("bilm-hdf5/word", "weights.hdf5"),
    inside("tf-checkpoint/standard", "model.ckpt-12.index", checksums=True),
    inside("tf-checkpoint/standard", "model.ckpt-12.data-00000-of-00001", checksums=True),
    inside("tf-hub/deeppavlov", "variables/variables.index", checksums=True),
    inside("tf-hub/deeppavlov", "variables/variables.data-00000-of-00002", checksums=True),
    inside("many-langs/released", "encoder.pkl"),
    inside("many-langs/released", "token_embedder.pkl"),
    alone("allennlp-finetuned/elmo-two-mixes.th"),
    Victim("allennlp-finetuned, zip-based", zip_torch_file),
    alone("allennlp-finetuned/model-weights-only.tar.gz", checksums=True),
    alone("nlpl/model.zip", checksums=True),
]


def outcome(source: Path) -> dict[str, torch.Tensor] | None:
    """The weights of what is loaded, or None when it is refused; anything else is raised."""
    try:
        elmo = elmokit.load(source)
        elmo.encode([[]])
    except CheckpointError as error:
        if source.name not in str(error):
            raise AssertionError(f"{source.name} is not named") from error
        return None
    return weights_of(elmo)
