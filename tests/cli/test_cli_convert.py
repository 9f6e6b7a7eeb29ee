from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import elmokit

GOLDEN = Path(__file__).parents[1] / "golden"

TEXT = "the bank of the river"


def test_convert_to_native_and_back(run, tmp_path, model):
    native, hdf5 = tmp_path / "native", tmp_path / "new" / "weights.hdf5"
    assert run("convert", model, native).code == 0
    assert sorted(file.name for file in native.iterdir()) == ["config.json", "model.safetensors"]
    result = run("convert", native, hdf5)
    assert result.code == 0
    assert result.err.startswith(f"elmokit to {hdf5} (")
    assert sorted(file.name for file in hdf5.parent.iterdir()) == ["options.json", "weights.hdf5"]
    expected = elmokit.load(model).encode(TEXT, layers="all")
    for source in (native, hdf5):
        np.testing.assert_array_equal(elmokit.load(source).encode(TEXT, layers="all"), expected)


def test_convert_format_by_option(run, tmp_path, model):
    assert run("convert", model, tmp_path / "a.h5", "--to", "native").code == 0
    assert (tmp_path / "a.h5" / "config.json").is_file()
    assert run("convert", model, tmp_path / "weights", "--to", "hdf5").code == 0
    assert (tmp_path / "options.json").is_file()


def test_convert_names_what_hdf5_cannot_hold(run, tmp_path):
    source = GOLDEN / "allennlp-finetuned" / "model.tar.gz"
    result = run("convert", source, tmp_path / "weights.hdf5")
    assert result.code == 0
    assert "cannot hold the mixes" in result.err


def test_convert_takes_files_from_elsewhere(run, tmp_path):
    source, apart = GOLDEN / "tf-checkpoint" / "standard", tmp_path / "apart"
    apart.mkdir()
    for file in source.glob("model.ckpt-12.*"):
        shutil.copy(file, tmp_path)
    for name in ("options.json", "vocab.txt"):
        shutil.copy(source / name, apart)
    arguments = ("convert", tmp_path / "model.ckpt-12", tmp_path / "native")
    assert run(*arguments).code == 1
    files = ("--options", apart / "options.json", "--vocabulary", apart / "vocab.txt")
    assert run(*arguments, *files).code == 0
    assert (tmp_path / "native" / "vocab.txt").is_file()


@pytest.mark.parametrize("name", ["native", "weights.hdf5"])
def test_convert_replaces_only_when_told(run, tmp_path, model, name):
    dest = tmp_path / name
    assert run("convert", model, dest).code == 0
    result = run("convert", model, dest)
    assert result.code == 1
    assert "--overwrite" in result.err
    assert run("convert", model, dest, "--overwrite").code == 0


@pytest.mark.parametrize("name", ["options.json", "vocab.txt"])
def test_convert_keeps_files_beside_hdf5(run, tmp_path, name):
    (tmp_path / name).write_text("mine")
    result = run("convert", GOLDEN / "tf-checkpoint" / "standard", tmp_path / "weights.hdf5")
    assert result.code == 1
    assert name in result.err
    assert [file.name for file in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == "mine"


def test_convert_never_replaces_a_foreign_folder(run, tmp_path, model):
    (tmp_path / "notes.txt").write_text("mine")
    for options in ([], ["--overwrite"]):
        assert run("convert", model, tmp_path, *options).code == 1
    result = run("convert", model, tmp_path, "--to", "hdf5", "--overwrite")
    assert result.code == 1
    assert "folder" in result.err
    assert [file.name for file in tmp_path.iterdir()] == ["notes.txt"]


def test_convert_joins_a_softmax(run, tmp_path):
    import h5py

    source = GOLDEN / "bilm-hdf5" / "standard"
    weights, vocabulary = source / "weights.hdf5", source / "vocab.txt"
    elmo = elmokit.load(weights, vocabulary=vocabulary)
    assert elmo.vocabulary is not None
    path = tmp_path / "softmax.hdf5"
    with h5py.File(path, "w") as file:
        file["softmax/W"] = np.ones((len(elmo.vocabulary), elmo.config.lstm.width), "f4")
        file["softmax/b"] = np.zeros(len(elmo.vocabulary), "f4")
    assert run("convert", weights, tmp_path / "native", "--softmax", path).code == 0
    softmax = elmokit.load(tmp_path / "native").config.softmax
    assert softmax is not None
    assert softmax.words == len(elmo.vocabulary)


def test_convert_stores_int8(run, tmp_path, model):
    for storage in ("float32", "int8"):
        assert run("convert", model, tmp_path / storage, "--storage", storage).code == 0
    sizes = [
        (tmp_path / storage / "model.safetensors").stat().st_size for storage in ("int8", "float32")
    ]
    assert sizes[0] < sizes[1] / 2
    vectors = elmokit.load(tmp_path / "int8").encode(TEXT, layers="all")
    assert vectors.shape == elmokit.load(model).encode(TEXT, layers="all").shape
    result = run("convert", model, tmp_path / "weights.hdf5", "--storage", "int8")
    assert result.code == 1
    assert "--storage int8" in result.err
    assert not (tmp_path / "weights.hdf5").exists()


def test_convert_keeps_the_most_frequent_words(run, tmp_path):
    source = "small-en"
    dest = tmp_path / "fewer"
    assert run("convert", source, dest, "--words", 500, "--storage", "int4").code == 0
    whole, fewer = elmokit.load(source), elmokit.load(dest)
    assert fewer.vocabulary.words == whole.vocabulary.words[:500]
    np.testing.assert_array_equal(fewer.encode(TEXT), whole.encode(TEXT))
    found = [word.word for word in fewer.substitutes("the bank of the river", 4, k=20)]
    assert set(found) <= set(whole.vocabulary.words[:500])


def test_convert_adds_word_counts_of_a_corpus(run, tmp_path):
    text = "\n\n".join(["the dog sat .", "the big dog sat on the dog ."])
    (tmp_path / "text.txt").write_text(text, encoding="utf-8")
    corpus = ("corpus", "prepare", tmp_path / "text.txt", "-o", tmp_path / "corpus")
    assert run(*corpus, "--heldout", 0).code == 0
    source, dest = GOLDEN / "tf-checkpoint" / "standard", tmp_path / "counted"
    assert run("convert", source, dest, "--counts", tmp_path / "corpus").code == 0
    elmo = elmokit.load(dest)
    counts = dict(zip(elmo.vocabulary, elmo.vocabulary.counts.tolist(), strict=True))
    words = {word: n for word, n in counts.items() if n}
    assert words == {"the": 3, "dog": 3, "sat": 2, ".": 2, "big": 1, "on": 1}
    assert "words, with counts" in run("info", dest).out
    assert json.loads(run("info", dest, "--json").out)["word_counts"] is True
    assert json.loads(run("info", source, "--json").out)["word_counts"] is False
    result = run("convert", source, tmp_path / "x.hdf5", "--counts", tmp_path / "corpus")
    assert result.code == 1
    assert "--counts" in result.err
    result = run("convert", source, tmp_path / "x", "--counts", tmp_path / "text.txt")
    assert result.code == 1
    assert "text.txt" in result.err
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("name", ["fewer.hdf5", "fewer.onnx"])
def test_convert_keeps_words_where_there_is_a_place_for_them(run, tmp_path, name):
    result = run("convert", "small-en", tmp_path / name, "--words", 500)
    assert result.code == 1
    assert "--words 500" in result.err
    assert not (tmp_path / name).exists()


@pytest.mark.parametrize(("source", "count"), [("small-en", 3), ("small-en", 10**6), (None, 10)])
def test_convert_refuses_impossible_numbers_of_words(run, tmp_path, model, source, count):
    result = run("convert", source or model, tmp_path / "fewer", "--words", count)
    assert result.code == 1
    assert "words" in result.err or "softmax" in result.err
    assert not (tmp_path / "fewer").exists()
