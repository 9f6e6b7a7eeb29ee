"""flair's character language models against flair's own vectors, and files that are not theirs."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from elmokit.errors import CheckpointError, ConfigError
from elmokit.files import read_tensors, write_tensors
from elmokit.integrations import FlairVectors
from elmokit.tasks import as_layers

GOLDEN = Path(__file__).parents[1] / "golden" / "flair"
EXPECTED = dict(np.load(GOLDEN / "expected.npz"))
SENTENCES = json.loads(str(EXPECTED["tokens_json"]))
FILES = {"vectors": [("tagger.pt",), ("forward.pt", "backward.pt")], "inside": [("old-tagger.pt",)]}


@pytest.mark.parametrize(("name", "files"), [(n, f) for n, found in FILES.items() for f in found])
def test_flair_vectors_are_those_of_flair(name, files):
    model = FlairVectors(*(GOLDEN / file for file in files))
    assert model.dim == 12
    for number, found in enumerate(model.encode(SENTENCES)):
        np.testing.assert_allclose(found, EXPECTED[f"{name}_{number}"], rtol=1e-5, atol=1e-6)


def test_flair_vectors_do_not_depend_on_the_rest_of_the_batch():
    source = as_layers(GOLDEN / "tagger.pt")
    assert (source.kind, source.layers, source.dim) == ("flair", 1, 12)
    together = list(source.stream([*SENTENCES, [], *SENTENCES]))
    assert together[len(SENTENCES)].shape == (1, 0, 12)
    for number, tokens in enumerate(SENTENCES):
        (alone,) = source.stream([tokens])
        assert np.abs(together[number] - alone).max() < 1e-6
        flat = source.flat([(), tuple(tokens), ()], learn=False)[0]
        assert np.abs(flat.numpy() - alone[0]).max() < 1e-6


def test_flair_vectors_take_text():
    model = FlairVectors(GOLDEN / "tagger.pt")
    text, tokens = model.encode(["The bank lent money.", ["The", "bank", "lent", "money", "."]])
    np.testing.assert_array_equal(text, tokens)


def test_flair_models_are_stored_without_flair(tmp_path):
    first = as_layers(GOLDEN / "old-tagger.pt")
    assert first.save(tmp_path / "own") == first.fingerprint
    assert [path.name for path in (tmp_path / "own").iterdir()] == ["flair.safetensors"]
    again = as_layers(tmp_path / "own")
    assert again.fingerprint == first.fingerprint != as_layers(GOLDEN / "tagger.pt").fingerprint
    for one, other in zip(first.stream(SENTENCES), again.stream(SENTENCES), strict=True):
        np.testing.assert_array_equal(one, other)
    with pytest.raises(ConfigError, match="fine"):
        again.fine_tune()


class Marker:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return os.system, (f"touch '{self.path}'",)


@pytest.mark.parametrize("old", [False, True])
def test_flair_file_runs_nothing(tmp_path, old):
    state = {"is_forward_lm": True, "dictionary": Marker(tmp_path / "ran"), "state_dict": {}}
    file = tmp_path / "lm.pt"
    torch.save(state, file, pickle_protocol=4, _use_new_zipfile_serialization=not old)
    with pytest.raises(CheckpointError, match=str(file)):
        as_layers(file)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("file", ["forward.pt", "tagger.pt", "old-tagger.pt"])
def test_flair_file_that_is_damaged_is_refused(tmp_path, file):
    data = bytearray((GOLDEN / file).read_bytes())
    for number, cut in enumerate((len(data) // 4, len(data) // 2, len(data) - 9)):
        path = tmp_path / f"{number}.pt"
        path.write_bytes(data[:cut])
        with pytest.raises(CheckpointError, match=str(path)):
            as_layers(path)


def test_flair_weights_that_do_not_fit_are_refused(tmp_path):
    as_layers(GOLDEN / "forward.pt").save(tmp_path)
    stored = read_tensors(tmp_path / "flair.safetensors")
    facts = {"flair": stored.metadata["flair"]}
    narrow = {**stored.tensors, "0.rnn.bias_hh_l0": torch.zeros(3)}
    write_tensors(tmp_path / "flair.safetensors", narrow, facts)
    with pytest.raises(CheckpointError, match="fit"):
        as_layers(tmp_path)
    endless = {**stored.tensors, "0.rnn.bias_hh_l0": torch.full((32,), torch.nan)}
    write_tensors(tmp_path / "flair.safetensors", endless, facts)
    with pytest.raises(CheckpointError, match="NaN"):
        as_layers(tmp_path)
    more = json.loads(facts["flair"])
    more[0]["characters"]["z"] = 1000
    write_tensors(tmp_path / "flair.safetensors", stored.tensors, {"flair": json.dumps(more)})
    with pytest.raises(CheckpointError, match="characters"):
        as_layers(tmp_path)
