from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

import elmokit
from elmokit.checkpoints import known_models
from elmokit.encode import ModelCheck
from elmokit.text import inputs

GOLDEN = Path(__file__).parents[1] / "golden"


def test_info_block(run, model):
    result = run("info", model)
    assert result.code == 0
    lines = dict(line.strip().split(maxsplit=1) for line in result.out.splitlines()[1:])
    assert result.out.splitlines()[0] == model
    assert lines["format"].startswith("bilm-tf HDF5, ")
    assert lines["vectors"] == "32 wide, layers 0 to 2"
    assert lines["parameters"] == "105,124: token encoder 67,236, LSTM 37,888"
    assert "2 highways" in lines["characters"]
    assert "clips: cell 3, projection 3; residual: yes" in lines["LSTM"]
    assert (lines["softmax"], lines["vocabulary"]) == ("none", "none")


def test_info_shows_mixes_softmax_and_words(run):
    mix = run("info", GOLDEN / "allennlp-finetuned" / "model.tar.gz").out
    assert "mix         shares 0.326, 0.080, 0.594; gamma 1.4\n" in mix
    assert "softmax     42 words\n" in run("info", GOLDEN / "tf-checkpoint" / "standard").out
    tied = run("info", GOLDEN / "tf-checkpoint" / "word-tied").out
    assert ", tied\n" in tied
    assert "  words " in tied


@pytest.mark.parametrize("name", ["standard", "standard/model.ckpt-12"])
def test_info_json(run, name):
    source = GOLDEN / "tf-checkpoint" / name
    report = json.loads(run("info", source, "--json").out)
    assert report["source"] == str(source)
    assert (report["dim"], report["layers"], report["vocabulary"]) == (16, 3, 42)
    parts = report["parameters"]
    assert parts.pop("total") == sum(parts.values())
    assert set(parts) == {"token encoder", "LSTM", "softmax"}
    assert report["bytes"] > 10_000
    assert report["config"]["softmax"]["words"] == 42


def test_info_check_finds_every_embedded_model_right(run):
    result = run("info", "--check")
    assert (result.code, result.err) == (0, "")
    versions, *lines = result.out.splitlines()
    assert f"elmokit {elmokit.__version__}, torch " in versions
    assert [line.partition(";")[0] for line in lines] == [
        f"{name}: OK" for name in known_models.embedded_models()
    ]


def test_info_check_names_the_layers_that_are_wrong(run, monkeypatch):
    monkeypatch.setattr(inputs, "BYTE_BEGIN_SENTENCE", 1)  # what an overflow in 8 bits made of 257
    result = run("info", "test-tiny", "--check")
    assert result.code == 1
    assert "\ntest-tiny: wrong; " in result.out
    assert "error: layer 1 of test-tiny, layer 2 of test-tiny: off by more" in result.err
    report = run("info", "test-tiny", "--check", "--json")
    assert report.code == 1
    assert json.loads(report.out)["models"][0]["wrong_layers"] == [1, 2]


def test_info_check_sees_vectors_in_the_wrong_order(monkeypatch):
    encode = elmokit.Elmo.encode
    monkeypatch.setattr(
        elmokit.Elmo, "encode", lambda *a, **b: [v[:, ::-1] for v in encode(*a, **b)]
    )
    (check,) = elmokit.check_models("test-tiny")
    assert check.wrong_layers == [0, 1, 2]


def test_info_check_sees_a_batch_that_is_wrong(monkeypatch):
    encode = elmokit.Elmo.encode
    monkeypatch.setattr(
        elmokit.Elmo, "encode", lambda *a, **b: [v + (len(a[1]) > 1) for v in encode(*a, **b)]
    )
    (check,) = elmokit.check_models("test-tiny")
    assert check.wrong_layers == [0, 1, 2]


def test_model_check_takes_nan_for_wrong():
    assert ModelCheck("m", (0.0, math.nan, 9e-5, 2e-4)).wrong_layers == [1, 3]


def test_info_check_is_for_embedded_models(run, model):
    result = run("info", model, "--check")
    assert result.code == 1
    known = ", ".join(known_models.embedded_models())
    assert f"no stored numbers; those that have are {known}" in result.err
    assert run("info", "--check", "--vocabulary", "words.txt").code == 2
