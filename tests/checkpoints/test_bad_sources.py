"""Files and folders of another kind, and sources that are nowhere."""

import gzip
import os
import pickle

import h5py
import numpy as np
import pytest
from bad_checkpoints import (
    TENSOR_FILES,
    copied,
    refused,
)
from golden_models import GOLDEN

OTHER_FILES = {
    "empty": b"",
    "web page": b"<!DOCTYPE html>\n<html><body>404 Not Found</body></html>",
    "jpeg": b"\xff\xd8\xff\xe0\0\x10JFIF\0\x01\x01" + bytes(range(256)),
    "text": b"the cat sat on the mat\n" * 50,
    "pickle": pickle.dumps({"a": [1, 2]}, protocol=2),
    "newer pickle": pickle.dumps({"a": [1, 2]}, protocol=5),
    "gzip": gzip.compress(b"hello", mtime=0),
    "zeros": bytes(2048),
    "git-lfs": b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 374434792\n",
    "numpy": b"\x93NUMPY\x01\0",
    "elf": b"\x7fELF\x02\x01\x01" + bytes(100),
}


@pytest.mark.parametrize("name", ["weights.hdf5", "model.zip", "model.tar.gz", "x.th", "x"])
@pytest.mark.parametrize("kind", OTHER_FILES)
def test_file_of_another_kind_is_refused(tmp_path, kind, name):
    (tmp_path / name).write_bytes(OTHER_FILES[kind])
    refused(tmp_path / name, str(tmp_path / name))


@pytest.mark.parametrize("kind", OTHER_FILES)
def test_folder_with_a_file_of_another_kind_is_refused(tmp_path, kind):
    folder = copied(GOLDEN / "bilm-hdf5/standard", tmp_path)
    (folder / "weights.hdf5").write_bytes(OTHER_FILES[kind])
    refused(folder, str(folder))


@pytest.mark.parametrize("kind", OTHER_FILES)
@pytest.mark.parametrize("victim", TENSOR_FILES[:-2], ids=str)
def test_tensor_file_replaced_by_another_kind_is_refused(tmp_path, victim, kind):
    source, file = victim.make(tmp_path)
    file.write_bytes(OTHER_FILES[kind])
    refused(source, source.name)


def test_folder_without_a_model_says_what_was_looked_for(tmp_path):
    (tmp_path / "notes.txt").write_text("hello")
    refused(tmp_path, str(tmp_path), "model.safetensors", "weights.th", "variables.index")


def test_source_that_is_nowhere_names_the_embedded_models(tmp_path):
    refused(tmp_path / "nothing", "nothing", "test-tiny")


@pytest.mark.parametrize("source", ["x" * 5000, "a\0b", "~nobody-here/x", "/", "nothing/"])
def test_source_that_cannot_be_a_path_is_refused(source):
    refused(source)


def test_named_pipe_is_refused_without_waiting(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    refused(tmp_path / "pipe", "pipe", "not a regular file")


def test_named_pipes_in_a_folder_are_passed_over(tmp_path):
    for name in ("weights.hdf5", "config.json", "encoder.pkl", "token_embedder.pkl", "x.index"):
        os.mkfifo(tmp_path / name)
    refused(tmp_path, str(tmp_path))


def test_hdf5_with_other_content_is_refused(tmp_path):
    with h5py.File(tmp_path / "weights.hdf5", "w") as file:
        file["a/b"] = np.zeros(3)
        file["RNN_0"] = np.zeros(3)
        file["char_embed"] = h5py.Empty("f4")
        file.create_group("CNN")
    (tmp_path / "options.json").write_text("{}")
    refused(tmp_path, "no LSTM weights")
    refused(tmp_path / "weights.hdf5", "weights.hdf5", "no LSTM weights")
