"""``elmokit encode`` on FASTA files and on columns of sequences."""

from __future__ import annotations

import gzip
import io
import json
import sys
import zipfile

import h5py
import numpy as np
import pyarrow.parquet as pq
import pytest
import sequence_models
from safetensors.numpy import load_file

import elmokit
from elmokit.encode import open_writer
from elmokit.errors import DataError

FASTA = ">sp|P1|A first\nmkvla\nAGTRE*\n>P2/1-4\nCA-SS\n>P3\nM\n"
IDS = ["sp|P1|A", "P2/1-4", "P3"]
SEQUENCES = ["MKVLAAGTRE", "CASS", "M"]


@pytest.fixture
def model(tmp_path):
    return sequence_models.write_hdf5(tmp_path / "catelmo", layers=4)


@pytest.fixture
def fasta(tmp_path):
    path = tmp_path / "proteins.fasta.gz"
    path.write_bytes(gzip.compress(FASTA.encode()))
    return path


def expected(model, **options):
    return elmokit.load(model).encode([list(s) for s in SEQUENCES], **options)


def read_h5(path):
    with h5py.File(path) as file:
        return {data.attrs["original_id"]: data[()] for data in file.values()}


def read_parquet(path):
    rows = pq.read_table(path).to_pylist()
    assert [row["text"] for row in rows] == SEQUENCES
    assert [row["tokens"] for row in rows] == list(map(list, SEQUENCES))
    return {row["id"]: np.array(row["vectors"], "f4").reshape(row["shape"]) for row in rows}


READERS = {
    "h5": read_h5,
    "npz": lambda path: dict(np.load(path)),
    "safetensors": load_file,
    "parquet": read_parquet,
}


@pytest.mark.parametrize("ending", READERS)
@pytest.mark.parametrize("pool", [None, "mean"])
def test_encode_fasta_keeps_identifiers(run, tmp_path, model, fasta, ending, pool):
    out = tmp_path / f"vectors.{ending}"
    options = () if pool is None else ("--pool", pool)
    result = run("encode", fasta, "-o", out, "-m", model, "--layers", "sum", *options)
    assert result.code == 0, result.err
    assert result.err.startswith("3 sentences, 15 tokens in ")
    found = READERS[ending](out)
    assert set(found) == set(IDS)
    for name, want in zip(IDS, expected(model, layers="sum", pool=pool), strict=True):
        np.testing.assert_allclose(found[name], want, atol=1e-6)


def test_encode_fasta_keys_of_hdf5_are_names_without_groups(run, tmp_path, model, fasta):
    out = tmp_path / "vectors.h5"
    assert run("encode", fasta, "-o", out, "-m", model, "--layers", "all").code == 0
    with h5py.File(out) as file:
        assert set(file) == {"sp|P1|A", "P2_1-4", "P3"}
        assert file["P3"].shape == (5, 1, 12)


def test_encode_fasta_rows_of_an_array_have_their_names_beside_them(run, tmp_path, model, fasta):
    out = tmp_path / "chains.npy"
    assert run("encode", fasta, "-o", out, "-m", model, "--pool", "mean").code == 0
    np.testing.assert_allclose(np.load(out), expected(model, pool="mean"), atol=1e-6)
    assert json.loads((tmp_path / "chains.json").read_text("utf-8")) == IDS


@pytest.mark.parametrize("layers", [2, 4, 8])
def test_encode_column_of_receptors_with_any_depth(run, tmp_path, layers):
    model = sequence_models.write_hdf5(tmp_path / f"catelmo-{layers}", layers)
    rows, out = tmp_path / "tcr.csv", tmp_path / "out.npz"
    rows.write_text("clone,cdr3,epitope\nc1,CASSLGQAYEQYF,GILG\nc2,cassf,NLVP\n", "utf-8")
    options = ("-m", model, "--sequences", "--field", "cdr3", "--ids", "clone")
    assert run("encode", rows, "-o", out, *options, "--layers", "all").code == 0
    found = dict(np.load(out))
    assert {name: array.shape for name, array in found.items()} == {
        "c1": (layers + 1, 13, 12),
        "c2": (layers + 1, 5, 12),
    }
    want = sequence_models.layer_vectors(layers, list("CASSF"))
    np.testing.assert_allclose(found["c2"], want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("data", "keys"), [(FASTA, IDS), ("MKV\nCASS\n", ["0", "1"])])
def test_encode_sequences_of_standard_input(run, tmp_path, monkeypatch, model, data, keys):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data.encode())))
    out = tmp_path / "out.npz"
    assert run("encode", "-", "-o", out, "--model", model, "--sequences").code == 0
    assert list(np.load(out)) == keys


def test_encode_text_may_have_identifiers(run, tmp_path):
    rows, out = tmp_path / "rows.tsv", tmp_path / "out.h5"
    rows.write_text("name\ttext\na\tthe bank\nb\tlent money .\n", "utf-8")
    assert run("encode", rows, "-o", out, "-m", "test-tiny", "--ids", "name").code == 0
    assert {name: len(array) for name, array in read_h5(out).items()} == {"a": 2, "b": 3}


def test_encode_finds_a_wrong_record_before_the_model_is_loaded(run, tmp_path):
    source = tmp_path / "proteins.faa"
    source.write_text(">a\nMKV\n>b\nMK9\n", "utf-8")
    result = run("encode", source, "-o", tmp_path / "out.h5", "-m", tmp_path / "no-such-model")
    assert result.code == 1
    assert f"{source}, line 4: '9' is no residue" in result.err
    assert [path.name for path in tmp_path.iterdir()] == ["proteins.faa"]


def test_encode_refuses_identifiers_that_hdf5_cannot_tell_apart(run, tmp_path, model):
    source = tmp_path / "proteins.faa"
    source.write_text(">a/1\nMKV\n>a_1\nMK\n", "utf-8")
    result = run("encode", source, "-o", tmp_path / "out.h5", "-m", model)
    assert result.code == 1
    assert "'a_1' names vectors in this file already" in result.err
    assert not (tmp_path / "out.h5").exists()
    assert run("encode", source, "-o", tmp_path / "out.npz", "-m", model).code == 0


@pytest.mark.parametrize("option", [("--tokens",), ("--tokenizer", "words"), ("--sentences",)])
def test_encode_sequences_have_no_tokenizer(run, tmp_path, fasta, option):
    result = run("encode", fasta, "-o", tmp_path / "out.h5", *option)
    assert result.code == 2
    assert "Sequences are split into residues" in result.err


@pytest.mark.parametrize("ending", ["h5", "npz", "safetensors", "parquet"])
def test_writer_refuses_missing_and_second_identifiers(tmp_path, ending):
    path, word = tmp_path / f"out.{ending}", ("a", ["a"], np.zeros((1, 4), "f4"))

    def write(*names):
        with open_writer(path, ids=True) as writer:
            for index, name in enumerate(names):
                writer.write(index, *word, id=name)

    with pytest.raises(DataError, match="identifier is None, and the file was opened with ids=Tr"):
        write(None)
    if ending != "parquet":  # rows may have the same name
        with pytest.raises(DataError, match="'x' names vectors in this file already"):
            write("x", "x")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "layers"), [("catelmo-shallow", 2), ("catelmo", 4), ("catelmo-deep", 8)]
)
def test_encode_with_models_by_name_that_were_put_into_the_cache(
    run, tmp_path, monkeypatch, name, layers
):
    monkeypatch.setenv("ELMOKIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("ELMOKIT_OFFLINE", "1")
    folder = sequence_models.write_hdf5(tmp_path / "made", layers)
    (tmp_path / "cache" / name).mkdir(parents=True)
    with zipfile.ZipFile(tmp_path / "cache" / name / f"{name}.zip", "w") as archive:
        for path in folder.iterdir():
            archive.write(path, path.name)
    rows, out = tmp_path / "tcr.tsv", tmp_path / "out.npz"
    rows.write_text("id\tcdr3\na\tCASSLGQAYEQYF\nb\tcassf\n", "utf-8")
    columns = ("--sequences", "--field", "cdr3", "--ids", "id")
    assert run("encode", rows, "-o", out, "-m", name, *columns, "--layers", "all").code == 0
    want = sequence_models.layer_vectors(layers, list("CASSF"))
    np.testing.assert_allclose(np.load(out)["b"], want, rtol=1e-5, atol=2e-6)
    elmo = elmokit.load(name)
    assert elmo.config.text.tokenizer == "chars"
    np.testing.assert_allclose(elmo.encode("CASSF", layers="all"), want, rtol=1e-5, atol=2e-6)
