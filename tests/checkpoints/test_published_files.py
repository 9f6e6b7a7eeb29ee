"""The files of published models are as large as their documents say."""

from __future__ import annotations

import math

import pytest
import torch

import elmokit
from elmokit.checkpoints import (
    Checkpoint,
    PublishedModel,
    bilm_hdf5,
    find_published,
    published_models,
)
from elmokit.config import CharacterConfig, LstmConfig, ModelConfig, WordConfig, published_shape
from elmokit.model.bilm import tensor_shapes

SIZES = [m for m in published_models() if m.architecture.filters]


def config_of(model: PublishedModel) -> ModelConfig:
    """The config that a reader would find in files of these sizes."""
    sizes = model.architecture
    is_unicode = sizes.alphabet == "unicode"
    return ModelConfig(
        characters=CharacterConfig(
            alphabet=sizes.alphabet,
            rows=6000 if is_unicode else 262,  # of a dictionary, which differs by language
            dim=sizes.character_dim or 16,
            filters=sizes.filters,
            highways=sizes.highways,
        ),
        words=WordConfig(rows=70_000, dim=sizes.word_dim) if sizes.word_dim else None,
        lstm=LstmConfig(
            layers=sizes.layers,
            cells=sizes.cells,
            width=sizes.projection,
            cell_clip=3.0,
            projection_clip=3.0,
        ),
    )


def parameters(config: ModelConfig) -> int:
    return sum(map(math.prod, tensor_shapes(config).values()))


@pytest.mark.parametrize("model", SIZES, ids=lambda model: model.name)
def test_documented_sizes_make_a_model_of_the_documented_size(model):
    config = config_of(model)
    count = parameters(config)
    assert config.dim == model.architecture.dim
    if model.parameters_millions is not None:
        assert round(count / 1e6, 1) == model.parameters_millions
    for file in (file for files in model.downloads for file in files if file.role == "weights"):
        if file.size is not None:  # HDF5 adds some kB
            assert 0 <= file.size - 4 * count < 50_000
        if file.approximate_size is not None:
            assert file.approximate_size == pytest.approx(4 * count, rel=0.05)


def test_enough_documents_state_sizes_to_compare():
    stated = [m for m in SIZES if m.parameters_millions]
    assert len(SIZES) == 69
    assert [m.name.partition("-")[2] for m in stated] == [
        "small",
        "medium",
        "original",
        "original-5.5b",
    ]
    for model in stated[:3]:
        ours = config_of(model)
        theirs = published_shape(model.name.partition("-")[2])
        assert (ours.characters, ours.lstm) == (theirs.characters, theirs.lstm)


@pytest.mark.parametrize(
    "name", ["small", *(pytest.param(n, marks=pytest.mark.slow) for n in ("medium", "original"))]
)
def test_a_file_of_the_documented_sizes_is_as_large_as_documented(name, tmp_path):
    model = find_published(name)
    (weights, _) = model.downloads[0]
    config = config_of(model)
    zeros = {key: torch.zeros(shape) for key, shape in tensor_shapes(config).items()}
    path = tmp_path / weights.name
    bilm_hdf5.write(Checkpoint(config, zeros, "test", "test"), path)
    assert path.stat().st_size == pytest.approx(weights.approximate_size, abs=0.06e6)
    found = elmokit.load(path).config
    assert (found.characters, found.lstm) == (config.characters, config.lstm)
