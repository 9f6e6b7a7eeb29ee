"""SeqVec has two LSTM layers, catELMo two, four and eight: stand-ins in their published layouts."""

from __future__ import annotations

import json
import zipfile
from dataclasses import replace

import numpy as np
import pytest
import sequence_models
import tf_bundles
import torch

import elmokit
from elmokit.model import lstm
from elmokit.text import residues

SEQUENCES = ["MKVLAAGTRELLX", "CASSLGQAYEQYF", "M", "ACDEFGHIKLMNPQRSTVWYBZUO" * 3]
DEPTHS = (1, 2, 4, 8)


def model(folder, layers, kind="hdf5"):
    if kind == "hdf5":
        return sequence_models.write_hdf5(folder, layers)
    records = tf_bundles.records_of(sequence_models.checkpoint_tensors(layers))
    tf_bundles.write(folder, *records)
    (folder / "options.json").write_text(json.dumps(sequence_models.options(layers)), "utf-8")
    return folder


@pytest.mark.parametrize("engine", ["chosen", "reference"])
@pytest.mark.parametrize("kind", ["hdf5", "tf-checkpoint"])
@pytest.mark.parametrize("layers", DEPTHS)
def test_every_layer_is_that_of_the_equations(tmp_path, monkeypatch, layers, kind, engine):
    if engine == "reference":
        choose = lstm.choose_engine
        monkeypatch.setattr(
            lstm, "choose_engine", lambda *a, **o: replace(choose(*a, **o), engine="reference")
        )
    elmo = elmokit.load(model(tmp_path, layers, kind))
    assert elmo.layers == layers + 1
    batch = [residues(sequence) for sequence in SEQUENCES]
    for found, tokens in zip(elmo.encode(batch, layers="all"), batch, strict=True):
        expected = sequence_models.layer_vectors(layers, tokens)
        assert found.shape == (layers + 1, len(tokens), 2 * sequence_models.WIDTH)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=2e-6)


def test_stand_ins_reach_both_clips():
    # Without clips the vectors would differ, so the comparison above sees them.
    limits = dict(sequence_models.CLIPS)
    clipped = sequence_models.layer_vectors(2, list(SEQUENCES[0]))
    try:
        for name in limits:
            sequence_models.CLIPS.update(limits | {name: 1e9})
            free = sequence_models.layer_vectors(2, list(SEQUENCES[0]))
            assert np.abs(free - clipped).max() > 1e-3, name
    finally:
        sequence_models.CLIPS.update(limits)


@pytest.mark.parametrize("layers", DEPTHS)
def test_layer_choices_of_deep_models(tmp_path, layers):
    elmo = elmokit.load(model(tmp_path, layers))
    tokens = residues(SEQUENCES[0])
    (stacked,) = elmo.encode([tokens], layers="all")
    weights = [0.5**i for i in range(layers + 1)]
    choices = {
        "sum": stacked.sum(axis=0),
        "mean": stacked.mean(axis=0),
        "top": stacked[layers],
        layers: stacked[layers],
    }
    for choice, expected in choices.items():
        np.testing.assert_allclose(elmo.encode([tokens], layers=choice)[0], expected, atol=2e-6)
    (weighted,) = elmo.encode([tokens], layers=weights)
    np.testing.assert_allclose(weighted, np.tensordot(weights, stacked, 1), atol=2e-6)
    mix = elmokit.ScalarMix(layers + 1)
    np.testing.assert_allclose(
        elmo.encode([tokens], layers=mix)[0], stacked.mean(axis=0), atol=2e-6
    )
    with pytest.raises(elmokit.ConfigError, match=f"layers 0 to {layers}"):
        elmo.encode([tokens], layers=layers + 1)


@pytest.mark.parametrize("layers", [4, 8])
def test_deep_models_survive_every_format(tmp_path, layers):
    elmo = elmokit.load(model(tmp_path / "published", layers))
    elmo.save(tmp_path / "native")
    elmo.export(tmp_path / "exported" / "weights.hdf5")
    expected = elmo.encode([residues(SEQUENCES[0])], layers="all")[0]
    for folder in ("native", "exported"):
        again = elmokit.load(tmp_path / folder)
        np.testing.assert_array_equal(
            again.encode([residues(SEQUENCES[0])], layers="all")[0], expected
        )
    embedding = elmokit.ElmoEmbedding(tmp_path / "native", dropout=0.0)
    vectors = embedding([residues(SEQUENCES[0])])
    vectors = vectors[0] if isinstance(vectors, tuple) else vectors
    assert torch.as_tensor(vectors).shape[-1] == elmo.dim


def test_zip_of_a_folder_of_dropbox_is_read(tmp_path):
    folder = sequence_models.write_hdf5(tmp_path / "catELMo", 4)
    with zipfile.ZipFile(tmp_path / "catelmo.zip", "w") as archive:
        archive.writestr("/", "")  # what Dropbox begins with
        for path in folder.iterdir():
            archive.write(path, path.name)
    tokens = residues(SEQUENCES[1])
    (found,) = elmokit.load(tmp_path / "catelmo.zip").encode([tokens], layers="all")
    expected = sequence_models.layer_vectors(4, tokens)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=2e-6)


def test_a_long_protein_is_exact_at_both_ends(tmp_path):
    elmo = elmokit.load(model(tmp_path, 2))
    draw = np.random.default_rng(1)
    long = draw.choice(list("ACDEFGHIKLMNPQRSTVWY"), 10_000).tolist()
    short = residues(SEQUENCES[1])
    found = elmo.encode([short, long], layers="sum")
    np.testing.assert_allclose(found[0], elmo.encode([short], layers="sum")[0], atol=1e-6)
    # The forward half depends on nothing behind, the backward half on nothing before.
    half = sequence_models.WIDTH
    start, end = (sequence_models.layer_vectors(2, t).sum(0) for t in (long[:200], long[-200:]))
    np.testing.assert_allclose(found[1][:200, :half], start[:, :half], rtol=1e-5, atol=5e-6)
    np.testing.assert_allclose(found[1][-200:, half:], end[:, half:], rtol=1e-5, atol=5e-6)
