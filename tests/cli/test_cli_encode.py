from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import h5py
import numpy as np
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import load_file

import elmokit
from elmokit import engines
from elmokit.cli.encode import encode

GOLDEN = Path(__file__).parents[1] / "golden"

LINES = ["the bank of the river .", "", "Größe 東京 the bank lent money", "a"]


def read_h5(path):
    with h5py.File(path) as file:
        return [file[str(i)][()] for i in range(len(file) - 1)]


def read_parquet(path):
    rows = pq.read_table(path).to_pylist()
    return [np.array(row["vectors"], "f4").reshape(row["shape"]) for row in rows]


def read_named(arrays):
    return [arrays[str(i)] for i in range(len(arrays))]


READERS = {
    "h5": read_h5,
    "parquet": read_parquet,
    "npz": lambda path: read_named(dict(np.load(path))),
    "safetensors": lambda path: read_named(load_file(path)),
}


def assert_same(found, expected, **tolerance):
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert one.shape == other.shape
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6, **tolerance)


@pytest.mark.parametrize("ending", READERS)
def test_encode_process_writes_every_format(run_process, tmp_path, lines_file, model, elmo, ending):
    out = tmp_path / f"vectors.{ending}"
    result = run_process("encode", lines_file, "-o", out, "--model", model, "--layers", "all")
    assert result.code == 0, result.err
    assert result.out == ""
    assert result.err.startswith("4 sentences, 13 tokens in ")
    assert_same(READERS[ending](out), elmo.encode(LINES, layers="all"))


def test_encode_process_reads_standard_input(run_process, tmp_path, lines_file, model, elmo):
    text = lines_file.read_bytes()
    arguments = ("-o", "out.npy", "--model", model, "--pool", "max")
    assert run_process("encode", "-", *arguments, stdin=text).code == 0
    assert_same(np.load(tmp_path / "out.npy"), elmo.encode(LINES, pool="max"))


@pytest.mark.parametrize(
    ("text", "layers"),
    [("mean", "mean"), ("top", "top"), ("0", 0), ("2", 2), ("0.2,0.3,0.5", [0.2, 0.3, 0.5])],
)
def test_encode_layers(run, tmp_path, lines_file, model, elmo, text, layers):
    out = tmp_path / "out.h5"
    assert run("encode", lines_file, "-o", out, "--model", model, "--layers", text).code == 0
    assert_same(read_h5(out), elmo.encode(LINES, layers=layers))


def test_encode_stored_mix(run, tmp_path, lines_file):
    source, out = GOLDEN / "allennlp-finetuned" / "model.tar.gz", tmp_path / "out.h5"
    assert run("encode", lines_file, "-o", out, "--model", source, "--layers", "mix").code == 0
    assert_same(read_h5(out), elmokit.load(source).encode(LINES, layers="mix"))


def test_encode_half_precision(run, tmp_path, lines_file, model, elmo):
    out = tmp_path / "out.npz"
    assert run("encode", lines_file, "-o", out, "--model", model, "--dtype", "float16").code == 0
    found = READERS["npz"](out)
    assert {array.dtype for array in found} == {np.dtype("float16")}
    expected = [array.astype(np.float16) for array in elmo.encode(LINES)]
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-3)


def test_encode_batch_size_changes_nothing(run, tmp_path, lines_file, model, elmo):
    out = tmp_path / "out.h5"
    arguments = ("--model", model, "--batch-tokens", 1)
    assert run("encode", lines_file, "-o", out, *arguments).code == 0
    assert_same(read_h5(out), elmo.encode(LINES))


def test_encode_default_batch_is_the_library_s():
    assert encode.__kwdefaults__["batch_tokens"] is None
    for number in (engines.BATCH_TOKENS, engines.GPU_BATCH_TOKENS):
        assert f"{number} on a" in encode.__doc__


def test_encode_rows_and_tokens_of_jsonl(run, tmp_path, model, elmo):
    source, out = tmp_path / "rows.jsonl.gz", tmp_path / "out.parquet"
    rows = [{"body": "a b"}, {"body": ["c d", "e"]}]
    source.write_bytes(gzip.compress("\n".join(map(json.dumps, rows)).encode()))
    assert run("encode", source, "-o", out, "--model", model, "--field", "body").code == 0
    assert_same(read_parquet(out), elmo.encode(["a b", ["c d", "e"]]))
    table = pq.read_table(out).to_pydict()
    assert table["text"] == ["a b", "c d e"]
    assert table["tokens"] == [["a", "b"], ["c d", "e"]]


@pytest.mark.parametrize(
    ("options", "tokens"),
    [
        ([], ["I", "ca", "n't", "."]),
        (["--tokens"], ["I", "can't."]),
        (["--tokenizer", "space"], ["I", "can't."]),
        (["--tokenizer", "chars"], list("Ican't.")),
    ],
)
def test_encode_tokenizers(run, tmp_path, elmo, options, tokens):
    folder, source, out = tmp_path / "words", tmp_path / "in.txt", tmp_path / "out.parquet"
    elmokit.load(GOLDEN / "allennlp", tokenizer="words").save(folder)
    source.write_text("I can't.\n")
    assert run("encode", source, "-o", out, "--model", folder, *options).code == 0
    assert pq.read_table(out).to_pydict()["tokens"] == [tokens]


def test_encode_splits_sentences(run, tmp_path, model):
    source, out = tmp_path / "rows.jsonl", tmp_path / "out.parquet"
    source.write_text('"It rained. We left."\n""\n{"text": ["One.", "Two."]}\n')
    assert run("encode", source, "-o", out, "--model", model, "--sentences").code == 0
    table = pq.read_table(out).to_pydict()
    assert table["text"] == ["It rained.", "We left.", "One. Two."]
    assert table["index"] == [0, 1, 2]


def test_encode_carry_equals_calls_of_so_many_rows(run, tmp_path, lines_file, model):
    out = tmp_path / "out.h5"
    arguments = ("--model", model, "--state", "carry", "--carry-rows", 2)
    assert run("encode", lines_file, "-o", out, *arguments).code == 0
    elmo = elmokit.load(model)
    expected = elmo.encode(LINES[:2], state="carry") + elmo.encode(LINES[2:], state="carry")
    assert_same(read_h5(out), expected)


@pytest.mark.parametrize("state", ["fresh", "carry"])
@pytest.mark.parametrize(("name", "layers"), [("all", "all"), ("average", "mean"), ("top", "top")])
def test_encode_equals_allennlp_s_command(run, tmp_path, name, layers, state):
    # The golden file is one block of lines, so nothing is carried into it.
    folder, out = GOLDEN / "allennlp-dump", tmp_path / "out.hdf5"
    weights = GOLDEN / "bilm-hdf5" / "standard" / "weights.hdf5"
    arguments = ("--model", weights, "--tokens", "--layers", layers, "--state", state)
    assert run("encode", folder / "sentences.txt", "-o", out, *arguments).code == 0
    with h5py.File(out) as ours, h5py.File(folder / f"{name}.hdf5") as theirs:
        keys = [key for key in theirs if key.isdecimal()]
        assert len(keys) == 5
        for key in keys:
            np.testing.assert_allclose(ours[key][()], theirs[key][()], rtol=1e-5, atol=1e-5)
        if "sentence_to_index" in theirs:
            found, expected = (
                json.loads(file["sentence_to_index"][0].decode()) for file in (ours, theirs)
            )
            assert found == expected


@pytest.mark.parametrize("ending", ["h5", "parquet", "npz", "npy", "safetensors"])
def test_encode_failure_in_the_middle_leaves_nothing(run, tmp_path, model, ending):
    source, out = tmp_path / "bad.txt", tmp_path / f"out.{ending}"
    source.write_bytes(b"one line\nanother\nbad \xff line\nlast\n")
    # One token a batch, so that the first lines are written before the third is read.
    arguments = ("--model", model, "--pool", "mean", "--batch-tokens", 1)
    result = run("encode", source, "-o", out, *arguments)
    assert result.code == 1
    assert len(result.err.splitlines()) == 1
    assert f"{source}, line 3" in result.err
    assert list(tmp_path.iterdir()) == [source]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["-o", "out.foo"], "'.foo'"),
        (["-o", "missing/out.h5"], "does not exist"),
        (["-o", "out.npy"], "Pool"),
        (["-o", "corpus.txt"], "same file"),
        (["-o", "out.h5", "--layers", "7"], "0 to 2"),
        (["-o", "out.h5", "--layers", "1.0,2"], "2 weights"),
        (["-o", "out.h5", "--layers", "0,1,2"], "numbers of layers"),
        (["-o", "out.h5", "--layers", "1,x,2"], "1,x,2"),
        (["-o", "out.h5", "--layers", "last"], "'last'"),
        (["-o", "out.h5", "--layers", "mix"], "no mix"),
        (["-o", "out.h5", "--tokenizer", "wrds"], "Did you mean 'words'?"),
        (["-o", "out.h5", "--device", "abacus"], "device='abacus'"),
        (["-o", "out.h5", "--device", "meta"], "device='meta'"),
    ],
)
def test_encode_bad_options_leave_nothing(
    run, monkeypatch, tmp_path, lines_file, model, options, expected
):
    monkeypatch.chdir(tmp_path)
    result = run("encode", "corpus.txt", "--model", model, *options)
    assert result.code == 1
    assert len(result.err.splitlines()) == 1
    assert expected in result.err
    assert list(tmp_path.iterdir()) == [lines_file]


def test_encode_does_not_replace_a_pipe(run, tmp_path, lines_file, model):
    pipe = tmp_path / "pipe.h5"
    os.mkfifo(pipe)
    result = run("encode", lines_file, "--model", model, "-o", pipe)
    assert result.code == 1
    assert "a device or a pipe" in result.err
    assert pipe.is_fifo()


def test_encode_missing_input(run, tmp_path, model):
    result = run("encode", tmp_path / "none.txt", "-o", tmp_path / "out.h5", "--model", model)
    assert result.code == 1
    assert "none.txt" in result.err


def test_encode_empty_input(run, tmp_path, model):
    source = tmp_path / "empty.txt"
    source.touch()
    result = run("encode", source, "-o", tmp_path / "out.h5", "--model", model)
    assert result.code == 0
    assert result.err.startswith("0 sentences, 0 tokens")
