"""Models by name: the list of them, and what is said of one that was never downloaded."""

from __future__ import annotations

import json
import socket
import subprocess
import sys

import pytest

import elmokit
from elmokit.checkpoints import known_models, published_models
from elmokit.checkpoints.download import cache_folder
from elmokit.errors import ConfigError


@pytest.fixture(autouse=True)
def no_network(monkeypatch, tmp_path):
    """An empty cache, and an error for whatever opens a connection."""

    def refuse(*_):
        raise AssertionError("the network was used")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setenv("ELMOKIT_CACHE", str(tmp_path / "cache"))


def names(run, *arguments) -> list[str]:
    lines = run("models", *arguments).out.splitlines()
    return [line.split()[0] for line in lines if line.startswith("  ")]


def test_models_lists_embedded_and_published_ones(run):
    assert names(run) == known_models.embedded_models() + [m.name for m in published_models()]
    assert names(run, "--language", "zh") == [
        "small-zh",
        "nano-zh",
        "manylangs-zh",
        "manylangs-zhs",
    ]
    assert names(run, "--language", "zh-Hans") == ["small-zh", "nano-zh", "manylangs-zhs"]
    assert names(run, "--domain", "protein")[0] == "seqvec"
    assert names(run, "--language", "pt", "--domain", "web") == ["pt-brwac", "manylangs-pt"]


def test_models_groups_its_lines(run):
    lines = run("models").out.splitlines()
    assert lines[0] == "embedded: in the package"
    assert [line.partition(":")[0] for line in lines if not line.startswith(" ")] == [
        "embedded",
        *["published"] * 13,
    ]
    (line,) = [line for line in lines if line.startswith("  allennlp-small ")]
    assert line.endswith(
        "en, news, 256 wide, 3 layers, about 54.4 MB "
        "(also small, en-small, elmo_2x1024_128_2048cnn_1xhighway)"
    )
    (line,) = [line for line in lines if line.startswith(f"  {known_models.DEFAULT_MODEL} ")]
    assert line.endswith(" (default)")
    marks = {line.split()[0]: line for line in lines if line.startswith("  ")}
    assert "no reader" in marks["transformer-elmo"]
    assert "by hand" in marks["materials-science"]
    assert "unverified" in marks["india-as"]


def test_models_gives_sizes_of_what_is_embedded(run, monkeypatch, tmp_path, model):
    monkeypatch.setattr(known_models, "EMBEDDED", tmp_path)
    assert json.loads(run("models", "--json").out)[0]["kind"] == "published"
    for name in ("other", known_models.DEFAULT_MODEL):
        assert run("convert", model, tmp_path / name).code == 0
    lines = run("models").out.splitlines()
    assert "  test, 32 wide, 3 layers, 105,124 parameters, 42" in lines[1]
    assert "  en, general, 32 wide" in lines[2]
    found = json.loads(run("models", "--json").out)[:2]
    assert [entry["default"] for entry in found] == [False, True]
    assert json.loads(run("info", "other", "--json").out)["bytes"] == found[0]["bytes"]


def test_models_counts_parameters_of_quantized_files():
    for model in elmokit.models()[: len(known_models.embedded_models())]:
        bilm = elmokit.load(model.name).bilm
        assert model.parameters == sum(tensor.numel() for tensor in bilm.parameters())


def test_models_loads_no_torch():
    script = "import sys, elmokit; elmokit.models('zh'); print('torch' in sys.modules)"
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout == "False\n", done.stderr


def test_models_names_the_languages_that_there_are(run):
    result = run("models", "--language", "klingon")
    assert result.code == 1
    assert "no published model of the language 'klingon'; there are ar, as, bg, " in result.err
    with pytest.raises(ConfigError, match="no published model of the domain 'soup'"):
        elmokit.models(domain="soup")


def test_models_json_has_all_facts(run):
    found = {entry["name"]: entry for entry in json.loads(run("models", "--json").out)}
    original = found["allennlp-original"]
    assert (original["dim"], original["layers"], original["parameters"]) == (1024, 3, 93_600_000)
    assert original["path"] is original["bytes"] is None
    assert [file["role"] for file in original["downloads"][0]] == ["weights", "options"]
    assert found["small-zh"]["kind"] == "embedded"


def test_info_tells_a_published_model_without_a_download(run):
    result = run("info", "Original")
    assert (result.code, result.err) == (0, "")
    title, *lines = result.out.splitlines()
    assert title == "allennlp-original: ELMo Original"
    facts: dict[str, list[str]] = {}
    for line in lines:
        facts.setdefault(line[2:13].strip(), []).append(line[14:])
    assert facts["sizes"] == [
        "2 LSTM layers, 4096 cells, projection 512, vectors 1024 wide, 2048 filters, 2 highways"
    ]
    assert facts["here"] == ["not in the cache"]
    assert facts["weights"][0].endswith("_2xhighway_weights.hdf5 (about 374 MB)")
    assert len(facts["mirror"]) == 4
    assert facts["status"] == ["documented"]
    assert len(facts["source"]) == 6
    assert "not stated" not in facts
    unknown = run("info", "pt-brwac").out
    assert "not stated  licence, layers, cells, projection, highways, filters\n" in unknown
    assert "elmokit cannot read it: a transformer" in run("info", "transformer-elmo").out
    report = json.loads(run("info", "217", "--json").out)
    assert (report["name"], report["nlpl"]) == ("nlpl-217", 217)


@pytest.mark.parametrize("model", published_models(), ids=lambda model: model.name)
def test_info_has_words_for_every_published_model(run, model):
    result = run("info", model.name)
    assert (result.code, result.err) == (0, "")
    assert f"\n  status      {model.status}\n" in result.out
    assert "None" not in result.out


def test_a_file_of_that_name_comes_first(run, tmp_path, monkeypatch, model):
    assert run("convert", model, tmp_path / "original").code == 0
    monkeypatch.chdir(tmp_path)
    assert "105,124" in run("info", "original").out


def test_a_cached_model_is_listed_and_described_with_both(run, model, monkeypatch):
    folder = cache_folder() / "allennlp-small"
    assert run("convert", model, folder / "weights.hdf5").code == 0
    assert names(run, "--language", "en")[:3] == ["small-en", "nano-en", "allennlp-small"]
    (line,) = [x for x in run("models").out.splitlines() if x.startswith("  allennlp-small ")]
    assert "about" not in line
    shown = run("info", "small").out
    assert "105,124" in shown
    assert f"here        {folder} (" in shown
    report = json.loads(run("info", "small", "--json").out)
    assert report["dim"] == 32
    assert report["published"]["dim"] == 256
    (entry,) = [known for known in elmokit.models() if known.path == folder]
    assert (entry.name, entry.kind) == ("allennlp-small", "published")
