"""The probe `layers`: mixes of predictors and of fine-tuned models side by side."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from scipy.special import softmax

import elmokit
from elmokit.errors import CheckpointError, ConfigError, DataError
from elmokit.probes import layers
from elmokit.tasks import fit

GOLDEN = Path(__file__).parent.parent / "golden"
EXAMPLES = [
    {"tokens": ["the", "bank", "lent", "money"], "tags": ["D", "N", "V", "N"]},
    {"tokens": ["the", "river", "rose"], "tags": ["D", "N", "V"]},
] * 6


def test_shares_are_the_softmax_of_the_weights():
    weights = [0.3, -1.0, 2.0]
    (mix,) = layers({"mine": elmokit.ScalarMix(3, weights=weights, gamma=0.5)}).mixes
    expected = softmax(weights)
    assert mix.shares == pytest.approx(expected.tolist())
    assert (mix.name, mix.gamma) == ("mine", 0.5)
    assert mix.centre == pytest.approx(expected @ np.arange(3))


def test_fine_tuned_models_show_their_mixes():
    folder = GOLDEN / "allennlp-finetuned"
    paths = [folder / "model.tar.gz", folder / "elmo-two-mixes.th"]
    report = layers(paths)
    assert [(mix.name, mix.position) for mix in report.mixes] == [
        ("model.tar.gz", "0"),
        ("elmo-two-mixes.th", "0"),
        ("elmo-two-mixes.th", "1"),
    ]
    stored = elmokit.load(paths[1]).mixes[1]
    assert report.mixes[2].shares == pytest.approx(stored.shares().tolist())
    assert report.mixes[2].gamma == pytest.approx(stored.gamma.item())


def test_saved_predictors_show_what_they_learned(tmp_path):
    data = tmp_path / "tags.jsonl"
    data.write_text("\n".join(map(json.dumps, EXAMPLES)), "utf-8")
    settings = tmp_path / "settings.toml"
    settings.write_text('[inputs]\nelmo_at = ["input", "output"]\n[run]\nepochs = 2\n', "utf-8")
    predictor = fit(
        "tag",
        data,
        data,
        elmo="test-tiny",
        config=settings,
        output=tmp_path / "tagger",
        quiet=True,
    )
    expected = predictor.model.embedder.learned_mixes()
    report = layers([tmp_path / "tagger"])
    assert {mix.position for mix in report.mixes} == set(expected)
    for mix in report.mixes:
        assert mix.name == "tagger"
        assert mix.shares == pytest.approx(expected[mix.position]["s"])
        assert mix.gamma == pytest.approx(expected[mix.position]["gamma"])
    assert layers({"tagger": predictor}).mixes == report.mixes


def test_mixes_of_all_models_of_a_predictor_are_shown():
    folder = GOLDEN / "first-layout" / "predictors" / "tag"
    report = layers([folder])
    assert [mix.position for mix in report.mixes] == ["input", "input 2"]
    weights = load_file(folder / "weights.safetensors")
    for mix in report.mixes:
        (key,) = (key for key in weights if key.endswith(f"mixes.{mix.position}.weights"))
        assert mix.shares == pytest.approx(softmax(weights[key].numpy()).tolist())
    assert "input 2" in report.table()


def test_bad_input_is_one_line(tmp_path):
    with pytest.raises(ConfigError, match="at least one"):
        layers([])
    with pytest.raises(CheckpointError, match="no such file or folder"):
        layers([tmp_path / "none"])
    with pytest.raises(DataError, match="test-tiny: no mix of layers"):
        layers(["test-tiny"])
    folder = tmp_path / "tagger"
    folder.mkdir()
    (folder / "predictor.json").write_text('{"format": "elmokit-predictor"}', "utf-8")
    with pytest.raises(CheckpointError, match=r"weights\.safetensors is missing"):
        layers([folder])
    (folder / "weights.safetensors").write_bytes(b"damaged")
    with pytest.raises(CheckpointError, match="not a readable safetensors file"):
        layers([folder])
    save_file({"head.weight": torch.ones(2)}, folder / "weights.safetensors")
    with pytest.raises(DataError, match="tagger: no mix of layers in it; does it read ELMo"):
        layers([folder])
