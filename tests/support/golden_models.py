"""The golden models by name, and what the tests of this folder do with models again and again."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

import elmokit
from elmokit.encode.elmo import Elmo

GOLDEN = Path(__file__).parents[1] / "golden"
SENTENCE_MARKERS = {"<S>", "</S>"}


@dataclass(frozen=True)
class Golden:
    """A model that other software wrote, and the numbers that software computed with it."""

    source: Path
    expected: Path

    @property
    def name(self) -> str:
        return str(self.source.relative_to(GOLDEN))

    def load(self, **options) -> Elmo:
        return elmokit.load(self.source, **options)

    def arrays(self) -> dict[str, np.ndarray]:
        with np.load(self.expected) as file:
            return {name: file[name] for name in file.files if name != "tokens_json"}

    def sentences(self) -> list[list[str]]:
        with np.load(self.expected) as file:
            return json.loads(str(file["tokens_json"]))


def _folders(pattern: str) -> list[Golden]:
    paths = sorted(path.parent for path in GOLDEN.glob(f"{pattern}/expected.npz"))
    return [Golden(path, path / "expected.npz") for path in paths]


def _pair(source: str, expected: str) -> Golden:
    return Golden(GOLDEN / source, GOLDEN / expected)


HDF5 = [
    *_folders("bilm-hdf5/*"),
    _pair("nlpl/model.zip", "nlpl/expected.npz"),
    _pair("nlpl/folder", "nlpl/expected.npz"),
]
TF_CHECKPOINTS = _folders("tf-checkpoint/*")
TF_HUB = _folders("tf-hub/*")
MANY_LANGS = [
    *_folders("many-langs/*"),
    *_folders("many-langs-traps"),
    _pair("many-langs/nlpl.zip", "many-langs/released/expected.npz"),
]
ALLENNLP = [
    _pair("allennlp-finetuned/model.tar.gz", "allennlp-finetuned/expected.npz"),
    _pair("allennlp-finetuned/model-weights-only.tar.gz", "allennlp-finetuned/expected.npz"),
    _pair("allennlp-finetuned/elmo-two-mixes.th", "allennlp-finetuned/expected-two-mixes.npz"),
]
WITH_LAYERS = [*HDF5, *TF_CHECKPOINTS, *MANY_LANGS, *ALLENNLP]
ALL = [*WITH_LAYERS, *TF_HUB]


def golden(name: str) -> Golden:
    """One of them by its path below the golden folder."""
    return next(model for model in ALL if model.name == name)


def by_name(model: Golden) -> str:
    """The id of a parametrized test."""
    return model.name


def weights_of(elmo: Elmo) -> dict[str, torch.Tensor]:
    return dict(elmo.checkpoint().weights)


def assert_same_weights(left: Elmo, right: Elmo, *, but: frozenset[str] = frozenset()) -> None:
    """Equal bit by bit, apart from tensors whose names begin with one of `but`."""
    ours, theirs = (
        {name: t for name, t in weights_of(elmo).items() if not name.startswith(tuple(but))}
        for elmo in (left, right)
    )
    assert list(ours) == list(theirs)
    for name, tensor in ours.items():
        assert tensor.shape == theirs[name].shape, name
        assert tensor.numpy().tobytes() == theirs[name].numpy().tobytes(), name


def assert_same_vectors(left: Elmo, right: Elmo, sentences: list[list[str]]) -> None:
    """Equal bit by bit in all layers."""
    for ours, theirs in zip(
        left.encode(sentences, layers="all"), right.encode(sentences, layers="all"), strict=True
    ):
        np.testing.assert_array_equal(ours, theirs)


def assert_same_model(left: Elmo, right: Elmo, sentences: list[list[str]]) -> None:
    """The same config, weights, word lists and vectors."""
    ours, theirs = left.checkpoint(), right.checkpoint()
    assert ours.config == theirs.config
    assert_same_weights(left, right)
    assert ours.symbols == theirs.symbols
    assert (ours.vocabulary is None) == (theirs.vocabulary is None)
    if ours.vocabulary is not None:
        assert ours.vocabulary.words == theirs.vocabulary.words
    assert ours.card == theirs.card
    assert_same_vectors(left, right, sentences)


def write_tensors_as_hdf5(path: Path, tensors: dict[str, np.ndarray]) -> Path:
    import h5py

    with h5py.File(path, "w") as file:
        for name, value in tensors.items():
            file.create_dataset(name, data=value)
    return path
