"""Models and corpora that earlier code wrote are read, and mean what they meant.

Runs are tested in tests/training/test_first_layout.py, predictors in tests/tasks.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from small_runs import LINES

import elmokit
from elmokit.corpus.prepare import prepare_corpus
from elmokit.corpus.shards import TokenCorpus

FIRST_LAYOUT = Path(__file__).parent / "golden" / "first-layout"
SENTENCE = "the old cat sees a señor ."
VECTORS = np.load(FIRST_LAYOUT / "model.vectors.npy")


@pytest.fixture
def prepared(tmp_path: Path) -> TokenCorpus:
    """The same text, prepared by the present code."""
    shutil.copy(FIRST_LAYOUT / "text.txt", tmp_path)
    prepare_corpus(tmp_path / "text.txt", tmp_path / "corpus", settings=LINES, workers=1)
    return TokenCorpus(tmp_path / "corpus")


def test_model_gives_the_vectors_it_gave():
    found = elmokit.load(FIRST_LAYOUT / "model").encode(SENTENCE, layers="all")
    assert found.dtype == VECTORS.dtype
    np.testing.assert_allclose(found, VECTORS, rtol=1e-5, atol=1e-6)


def test_model_saved_again_has_the_same_weights_and_vocabulary(tmp_path):
    elmokit.load(FIRST_LAYOUT / "model").save(tmp_path / "again")
    again = elmokit.load(tmp_path / "again")
    np.testing.assert_allclose(again.encode(SENTENCE, layers="all"), VECTORS, rtol=1e-5, atol=1e-6)
    first = elmokit.load(FIRST_LAYOUT / "model").checkpoint()
    assert again.config == first.config
    assert list(again.vocabulary) == (FIRST_LAYOUT / "model" / "vocab.txt").read_text().split()
    weights = again.checkpoint().weights
    assert weights.keys() == first.weights.keys()
    assert all(weights[name].equal(tensor) for name, tensor in first.weights.items())


def test_corpus_is_whole_and_is_the_one_prepared_today(prepared):
    stored = TokenCorpus(FIRST_LAYOUT / "corpus", verify=True)
    assert list(stored.words) == list(prepared.words)
    for split in ("train", "heldout"):
        old, new = stored.split(split), prepared.split(split)
        assert len(old) == len(new) > 0
        for number in range(len(old)):
            np.testing.assert_array_equal(old.tokens_of(number), new.tokens_of(number))


def test_corpus_of_today_has_the_files_of_then(prepared):
    """Byte for byte, so that a corpus prepared today can be read by earlier code."""
    old = FIRST_LAYOUT / "corpus"
    assert {path.name for path in old.iterdir()} == {p.name for p in prepared.folder.iterdir()}
    for path in old.iterdir():
        if path.name != "corpus.json":
            assert path.read_bytes() == (prepared.folder / path.name).read_bytes(), path.name
    then, today = (
        json.loads((folder / "corpus.json").read_text("utf-8")) for folder in (old, prepared.folder)
    )
    assert today == then
