"""Layers on disk are the layers of the model, computed once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import h5py
import numpy as np
import pytest
import torch
from small_tasks import settings, texts

import elmokit
from elmokit.checkpoints.fingerprint import fingerprint
from elmokit.errors import CheckpointError, ConfigError
from elmokit.tasks.inputs.mixed import LayerStore
from elmokit.tasks.inputs.source import ElmoLayers
from elmokit.tasks.inputs.token_inputs import Embedder

GOLDEN = Path(__file__).parents[1] / "golden" / "allennlp"
SENTENCES = [("the", "bank"), (), ("a", "river", "bank"), ("the", "bank"), ("Größe",)]
CPU = torch.device("cpu")
PLENTY = 10**9


@pytest.fixture
def source() -> ElmoLayers:
    return ElmoLayers("test-tiny")


def test_store_gives_the_layers_of_the_model(tmp_path, source):
    store = LayerStore(tmp_path, PLENTY)
    path = store.fill(source, SENTENCES)
    assert path.stat().st_size == 2 * 6 * 3 * 32  # bytes, distinct tokens, layers, width
    batch = [SENTENCES[2], SENTENCES[0], SENTENCES[1]]
    assert store.holds(batch)
    expected = np.concatenate(source.elmo.encode(batch, layers="all"), axis=1)
    found = torch.stack(store.layers(batch, CPU)).numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)
    direct = torch.stack(source.flat(batch, learn=False)).numpy()
    np.testing.assert_allclose(direct, expected, rtol=1e-5, atol=1e-6)


def test_store_is_found_again_by_the_same_model_and_data(tmp_path, source, monkeypatch):
    first = LayerStore(tmp_path, PLENTY).fill(source, SENTENCES)
    with monkeypatch.context() as patch:
        patch.setattr(ElmoLayers, "stream", lambda *_: pytest.fail("computed again"))
        assert LayerStore(tmp_path, PLENTY).fill(ElmoLayers("test-tiny"), SENTENCES) == first
    assert LayerStore(tmp_path, PLENTY).fill(source, SENTENCES[:2]) != first
    with torch.no_grad():
        source.elmo.bilm.encoder.projection.bias += 1
    other = ElmoLayers(source.elmo)
    assert LayerStore(tmp_path, PLENTY).fill(other, SENTENCES) != first
    first.write_bytes(first.read_bytes()[:-1])  # cut short: made again
    store = LayerStore(tmp_path, PLENTY)
    store.fill(ElmoLayers("test-tiny"), SENTENCES)
    assert store.holds(SENTENCES)
    assert len(list(tmp_path.iterdir())) == 3


def with_token_vectors(path: Path, the: float) -> elmokit.Elmo:
    """A model whose token vectors come from a file, that of one word as given."""
    with h5py.File(GOLDEN / "elmo_token_embeddings.hdf5") as file:
        table = file["embedding"][()]
    words = (GOLDEN / "vocab_test.txt").read_text("utf-8").splitlines()
    table[words.index("the")] = the
    with h5py.File(path, "w") as file:
        file["embedding"] = table
    return elmokit.load(GOLDEN, token_vectors=path, vocabulary=GOLDEN / "vocab_test.txt")


def test_store_is_not_shared_by_models_with_other_token_vectors(tmp_path):
    plain = elmokit.load(GOLDEN, vocabulary=GOLDEN / "vocab_test.txt")
    one, same, other = (
        with_token_vectors(tmp_path / f"{number}.hdf5", the)
        for number, the in enumerate((7.0, 7.0, 8.0))
    )
    assert fingerprint(one) == fingerprint(same)
    assert len({fingerprint(plain), fingerprint(one), fingerprint(other)}) == 3
    stored = {LayerStore(tmp_path / "store", PLENTY).fill(ElmoLayers(elmo), SENTENCES)
              for elmo in (plain, one, same, other)}  # fmt: skip
    assert len(stored) == 3
    store = LayerStore(tmp_path / "store", PLENTY)
    store.fill(ElmoLayers(other), SENTENCES)
    first = store.layers([("the", "bank")], CPU)[0]  # (T, D)
    assert first[0].unique().tolist() == [8.0]


def test_predictor_refers_to_a_model_with_token_vectors(tmp_path, no_pictures):
    config = settings("classify", "run.epochs=1")
    model = with_token_vectors(tmp_path / "vectors.hdf5", 7.0)
    fitted = elmokit.tasks.fit(
        "classify", texts(20), texts(9, 1), elmo=model, config=config, quiet=True
    )
    fitted.save(tmp_path / "predictor")
    items = [example.tokens for example in texts(9, 2)]
    again = elmokit.tasks.load(tmp_path / "predictor", elmo=model)
    np.testing.assert_allclose(again.predict_proba(items), fitted.predict_proba(items), rtol=1e-5)
    with pytest.raises(CheckpointError, match="hash"):  # the name alone says nothing of them
        elmokit.tasks.load(tmp_path / "predictor")
    with pytest.raises(ConfigError, match="token_vectors"):
        fitted.save(tmp_path / "bundle", bundle=True)
    assert not (tmp_path / "bundle" / "predictor.json").exists()


def test_store_keeps_to_its_limit(tmp_path, source):
    limit = 4 * 2 * 3 * 32  # four tokens
    store = LayerStore(tmp_path, limit)
    path = store.fill(source, SENTENCES)
    assert path.stat().st_size <= limit
    assert store.holds([SENTENCES[0], SENTENCES[4]])
    assert not store.holds([SENTENCES[2]])


def test_training_beyond_the_limit_computes_the_rest(tmp_path, monkeypatch):
    # The same vectors come from the store and from the model: so does what is trained on them.
    found = []
    data, dev = texts(40), texts(10, seed=1)
    config = settings("classify", "run.epochs=1", "inputs.words=0", "inputs.dropout=0")
    monkeypatch.setattr("elmokit.tasks.report.draw", lambda *_: False)
    for name, limit in (("all", PLENTY), ("some", 3000), ("none", 0)):
        limited = replace(config, inputs=replace(config.inputs, store_gb=limit / 1e9))
        predictor = elmokit.tasks.fit(
            "classify", data, dev, elmo="test-tiny", config=limited, store=tmp_path / name,
            quiet=True,
        )  # fmt: skip
        found.append(predictor.weights())
        (stored,) = (tmp_path / name).iterdir()
        assert stored.stat().st_size <= limit
    for name, tensor in found[0].items():
        for other in found[1:]:
            torch.testing.assert_close(tensor, other[name], rtol=0.05, atol=0.01)


def test_layers_go_away_unless_a_folder_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr("elmokit.tasks.report.draw", lambda *_: False)
    seen = []
    fill = LayerStore.fill
    monkeypatch.setattr(LayerStore, "fill", lambda *a: seen.append(fill(*a)) or seen[-1])
    config = settings("classify", "run.epochs=1")
    elmokit.tasks.fit("classify", texts(20), texts(5), elmo="test-tiny", config=config, quiet=True)
    assert len(seen) == 1
    assert not seen[0].exists()
    assert list(tmp_path.iterdir()) == []


def test_embedder_pads_without_mixing_sentences(source):
    config = settings("tag", "inputs.characters=8", 'inputs.elmo_at=["output"]')
    embedder = Embedder(config, ["the", "bank"], source, None).eval()
    with torch.no_grad():
        side = embedder(SENTENCES)
        for row, tokens in enumerate(SENTENCES):
            alone = embedder([tokens])
            length = len(tokens)
            assert side.lengths[row] == side.mask[row].sum() == length
            torch.testing.assert_close(side.vectors[row, :length], alone.vectors[0, :length])
            torch.testing.assert_close(side.output[row, :length], alone.output[0, :length])
            assert not side.vectors[row, length:].any()
    assert embedder([()]).vectors.shape == (1, 1, 24)


def test_store_is_found_again_on_a_disk_that_it_has_filled(tmp_path, source, monkeypatch):
    # The store's own file is no reason to store less the next time.
    disk = 10 * 2 * 3 * 32  # ten tokens

    def usage(folder):
        used = sum(path.stat().st_size for path in Path(folder).iterdir())
        return SimpleNamespace(free=disk - used)

    monkeypatch.setattr("elmokit.tasks.inputs.mixed.shutil.disk_usage", usage)
    first = LayerStore(tmp_path, PLENTY).fill(source, SENTENCES)  # six tokens: more than is left
    again = LayerStore(tmp_path, PLENTY)
    assert again.fill(source, SENTENCES) == first
    assert again.holds(SENTENCES)
    other = LayerStore(tmp_path, PLENTY)
    assert other.fill(source, [("more", "words"), *SENTENCES]) != first
    assert other.holds([("more", "words")])
    assert not other.holds([SENTENCES[0]])  # for others there is what is left
    small = LayerStore(tmp_path, 4 * 2 * 3 * 32)
    assert small.fill(source, SENTENCES).stat().st_size <= 4 * 2 * 3 * 32  # as was asked for
