"""Predictors on disk: they come back whole, and say what is missing."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from small_tasks import sentences, settings, texts

import elmokit
from elmokit.errors import CheckpointError, ConfigError, DataError
from elmokit.tasks.examples import TextExample
from elmokit.tasks.inputs.elmo import fingerprint
from elmokit.tasks.inputs.references import StaticVectors

pytestmark = pytest.mark.usefixtures("no_pictures")

GOLDEN = Path(__file__).parents[1] / "golden"
NEW = [("a", "superb", "plot"), ("this", "movie", "was", "awful"), ("the",), ("unseen", "words")]


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> Path:
    """A model and static vectors in files of their own."""
    folder = tmp_path_factory.mktemp("files")
    elmokit.load("test-tiny").save(folder / "model")
    static = elmokit.WordVectors.from_dict({"superb": [1.0, 0.0], "awful": [0.0, 1.0]})
    static.save(folder / "static.txt")
    return folder


@pytest.fixture(scope="module")
def trained(files, tmp_path_factory) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("elmokit.tasks.report.draw", lambda *_: False)
        folder = tmp_path_factory.mktemp("trained") / "predictor"
        elmokit.tasks.fit(
            "classify",
            texts(80),
            texts(30, seed=1),
            elmo=files / "model",
            static=files / "static.txt",
            config=settings("classify", "run.epochs=2", "inputs.characters=8"),
            output=folder,
            quiet=True,
        )
    return folder


@pytest.fixture
def folder(trained, tmp_path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "predictor"))


def change(folder: Path, **facts: object) -> None:
    path = folder / "predictor.json"
    stored = json.loads(path.read_text("utf-8"))
    path.write_text(json.dumps({**stored, **facts}), "utf-8")


def scores(predictor: elmokit.tasks.Predictor) -> torch.Tensor:
    predictor.model.eval()
    with torch.no_grad():
        batch = predictor.model.batch([TextExample(tokens) for tokens in NEW])
        return predictor.model.head._scores(batch)


def test_predictor_comes_back_with_the_same_numbers(folder, tmp_path):
    one = elmokit.tasks.load(folder)
    one.save(tmp_path / "again")
    two = elmokit.tasks.load(tmp_path / "again")
    assert torch.equal(scores(one), scores(two))
    assert one.predict(NEW) == two.predict(NEW)


def test_predictor_answers_alike_alone_and_in_a_batch(folder):
    predictor = elmokit.tasks.load(folder)
    together = scores(predictor)
    for row, tokens in enumerate(NEW):
        with torch.no_grad():
            alone = predictor.model.head._scores(predictor.model.batch([TextExample(tokens)]))
        torch.testing.assert_close(alone[0], together[row], rtol=1e-5, atol=1e-5)


def test_predictor_gives_probabilities(folder):
    predictor = elmokit.tasks.load(folder)
    found = predictor.predict_proba(NEW)
    assert found.shape == (len(NEW), 2)
    assert [predictor.labels[number] for number in found.argmax(axis=1)] == predictor.predict(NEW)
    torch.testing.assert_close(
        torch.from_numpy(found).float(), scores(predictor).softmax(dim=1), rtol=1e-5, atol=1e-6
    )
    one = predictor.predict_proba("a superb plot")
    torch.testing.assert_close(one, found[0], rtol=1e-5, atol=1e-6)
    assert predictor.predict_proba([]).shape == (0, 2)


def test_tasks_without_classes_have_no_probabilities():
    data = sentences(12)
    config = settings("tag", "run.epochs=1")
    tagger = elmokit.tasks.fit("tag", data, data, elmo=None, config=config, quiet=True)
    for ask in (lambda: tagger.predict_proba([["Anna"]]), lambda: tagger.labels):
        with pytest.raises(ConfigError, match="tag: this task has no probabilities of classes"):
            ask()


def test_predictor_streams_in_order(folder):
    predictor = elmokit.tasks.load(folder)
    many = [tokens[: 1 + i % 3] for i in range(40) for tokens in NEW]
    stream = predictor.annotate(iter(many))
    assert [example.tokens for example in stream] == many


def test_bundled_predictor_needs_nothing_else(folder, files, tmp_path):
    one = elmokit.tasks.load(folder)
    one.save(tmp_path / "bundle", bundle=True)
    change(tmp_path / "bundle")
    shutil.move(tmp_path / "bundle", tmp_path / "moved")
    facts = json.loads((tmp_path / "moved" / "predictor.json").read_text("utf-8"))
    assert str(files) not in json.dumps(facts)
    assert torch.equal(scores(elmokit.tasks.load(tmp_path / "moved")), scores(one))


@pytest.mark.parametrize("fine_tune", [False, True], ids=["frozen", "fine-tuned"])
@pytest.mark.parametrize("count", [1, 2], ids=["one", "two"])
def test_predictor_takes_along_what_is_in_memory_alone(tmp_path, monkeypatch, fine_tune, count):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    (tmp_path / "models").mkdir()
    shutil.copytree(GOLDEN / "bilm-hdf5" / "standard", tmp_path / "models" / "gone")
    gone = elmokit.load(tmp_path / "models" / "gone")
    if not fine_tune:
        shutil.rmtree(tmp_path / "models" / "gone")
    static = elmokit.WordVectors.from_dict({"superb": [1.0, 0.0], "awful": [0.0, 1.0]})
    config = settings("classify", "run.epochs=1", f"fine_tune.on={str(fine_tune).lower()}")
    fitted = elmokit.tasks.fit(
        "classify", texts(30), texts(9, seed=1), elmo=[gone, "test-tiny"][:count], static=static,
        config=config, quiet=True,
    )  # fmt: skip
    assert list(tmp_path.iterdir()) == [tmp_path / "models"]  # where it was trained is gone
    fitted.save(tmp_path / "predictor")
    facts = json.loads((tmp_path / "predictor" / "predictor.json").read_text("utf-8"))
    assert facts["elmo"]["bundled"]
    assert facts["static"]["bundled"]
    shutil.rmtree(tmp_path / "models")
    again = elmokit.tasks.load(shutil.move(tmp_path / "predictor", tmp_path / "moved"))
    torch.testing.assert_close(scores(again), scores(fitted), rtol=1e-5, atol=1e-6)
    again.save(tmp_path / "copy")
    shutil.rmtree(tmp_path / "moved")
    assert torch.equal(scores(elmokit.tasks.load(tmp_path / "copy")), scores(again))


@pytest.mark.parametrize(
    "source", ["test-tiny", "bilm-hdf5/standard", "tf-checkpoint/standard/model.ckpt-12"]
)
def test_predictor_refers_to_what_others_find(tmp_path, monkeypatch, source):
    monkeypatch.chdir(GOLDEN)
    config = settings("classify", "run.epochs=1")
    fitted = elmokit.tasks.fit(
        "classify", texts(30), texts(9, seed=1), elmo=source, config=config, quiet=True
    )
    fitted.save(tmp_path / "predictor")
    assert not (tmp_path / "predictor" / "elmo").exists()
    monkeypatch.chdir(tmp_path)  # names of files do not depend on where one stands
    again = elmokit.tasks.load("predictor")
    again.save("bundle", bundle=True)
    for other in (again, elmokit.tasks.load("bundle")):
        torch.testing.assert_close(scores(other), scores(fitted), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("source", ["test-tiny", ""])
def test_model_that_was_changed_in_memory_is_taken_along(tmp_path, source):
    elmo = elmokit.load("test-tiny")
    elmo = elmokit.Elmo(replace(elmo.checkpoint(), source=source))
    with torch.no_grad():
        for parameter in elmo.bilm.lstm.parameters():
            parameter.mul_(0.9)
    elmo.forget()
    fitted = elmokit.tasks.fit(
        "classify", texts(30), texts(9, seed=1), elmo=elmo,
        config=settings("classify", "run.epochs=1"), quiet=True,
    )  # fmt: skip
    fitted.save(tmp_path / "predictor")
    again = elmokit.tasks.load(tmp_path / "predictor")
    torch.testing.assert_close(scores(again), scores(fitted), rtol=1e-5, atol=1e-6)


def test_moved_model_is_found_where_the_user_says(folder, files, tmp_path):
    shutil.copytree(files / "model", tmp_path / "elsewhere")
    facts = json.loads((folder / "predictor.json").read_text("utf-8"))
    change(folder, elmo={**facts["elmo"], "name": "gone"})
    with pytest.raises(CheckpointError, match=r"ELMo model 'gone' cannot be loaded .*--elmo"):
        elmokit.tasks.load(folder)
    predictor = elmokit.tasks.load(folder, elmo=tmp_path / "elsewhere")
    assert predictor.predict(NEW)
    change(folder, static={**facts["static"], "name": "gone.txt"})
    with pytest.raises(
        CheckpointError, match=r"static vectors 'gone.txt' cannot be read .*--static"
    ):
        elmokit.tasks.load(folder, elmo=tmp_path / "elsewhere")


def test_another_model_is_refused(folder, files, tmp_path):
    elmo = elmokit.load(files / "model")
    with torch.no_grad():
        next(elmo.bilm.parameters())[5] += 1e-3
    elmo.save(tmp_path / "other")
    with pytest.raises(CheckpointError, match="is not what the predictor was trained with"):
        elmokit.tasks.load(folder, elmo=tmp_path / "other")
    other = elmokit.WordVectors.from_dict({"superb": [0.5, 0.0], "awful": [0.0, 1.0]})
    with pytest.raises(CheckpointError, match="static vectors"):
        elmokit.tasks.load(folder, static=other)


@pytest.mark.parametrize(
    ("version", "advice"),
    [(0, "Train it again"), (2, "Install a newer"), (None, "Install a newer")],
)
def test_other_versions_of_the_format_are_named(folder, version, advice):
    change(folder, format_version=version, elmokit_version="9.9")
    with pytest.raises(CheckpointError, match=f"{advice} ?.*elmokit 9.9, which wrote it"):
        elmokit.tasks.load(folder)


def test_damaged_folders_are_named(folder, tmp_path):
    with pytest.raises(CheckpointError, match="no predictor there"):
        elmokit.tasks.load(tmp_path)
    weights = folder / "weights.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:100])
    with pytest.raises(CheckpointError, match="not a readable safetensors file"):
        elmokit.tasks.load(folder)
    weights.unlink()
    with pytest.raises(CheckpointError, match="not a readable safetensors file"):
        elmokit.tasks.load(folder)
    weights.write_bytes(whole)
    facts = json.loads((folder / "predictor.json").read_text("utf-8"))
    change(folder, words=[*facts["words"], "one-more"])
    with pytest.raises(CheckpointError, match=r"not the weights of predictor\.json"):
        elmokit.tasks.load(folder)
    change(folder, config={**facts["config"], "colour": "red"})
    with pytest.raises(CheckpointError, match="colour"):
        elmokit.tasks.load(folder)
    change(folder, format="something")
    with pytest.raises(CheckpointError, match="no predictor of elmokit"):
        elmokit.tasks.load(folder)
    (tmp_path / "file").write_text("", "utf-8")
    with pytest.raises(ConfigError, match="this is a file"):
        elmokit.tasks.Predictor.save(None, tmp_path / "file")


def test_unlabelled_data_cannot_be_judged(folder):
    with pytest.raises(DataError, match="no label"):
        elmokit.tasks.load(folder).evaluate([TextExample(("a",))])


def test_fingerprint_is_of_what_decides_vectors(files, tmp_path):
    elmo = elmokit.load(files / "model")
    same = elmokit.load(files / "model", tokenizer="chars", softmax=False)
    assert fingerprint(elmo) == fingerprint(same)
    assert fingerprint(elmo) == fingerprint(elmokit.load(GOLDEN / "allennlp"))  # in other files
    assert fingerprint(elmo) != fingerprint(elmokit.load(GOLDEN / "bilm-hdf5" / "standard"))
    shutil.copytree(files / "model", tmp_path / "clipped")
    path = tmp_path / "clipped" / "config.json"
    facts = json.loads(path.read_text("utf-8"))
    facts["config"]["lstm"]["cell_clip"] = 2.0
    path.write_text(json.dumps(facts), "utf-8")
    assert fingerprint(elmo) != fingerprint(elmokit.load(tmp_path / "clipped"))


def test_tagger_comes_back(tmp_path):
    config = settings("tag", "run.epochs=2", "head.scheme=bioes")
    data = sentences(40)
    predictor = elmokit.tasks.fit(
        "tag", data, data[:10], elmo=None, config=config, output=tmp_path / "tagger", quiet=True
    )
    again = elmokit.tasks.load(tmp_path / "tagger")
    assert again.predict([e.tokens for e in data]) == predictor.predict([e.tokens for e in data])
    assert again.predict([()]) == [[]]


# What a predictor takes along is all that it was trained with.


def fasttext_model(path: Path) -> Path:
    """A fastText model of two words and 50 rows of n-grams."""
    rows = np.random.default_rng(0).normal(size=(52, 4)).astype("<f4")
    words = b"".join(word + b"\0" + struct.pack("<qb", 1, 0) for word in (b"superb", b"awful"))
    path.write_bytes(
        struct.pack("<2i12id", 793712314, 12, 4, 5, 1, 1, 5, 1, 2, 1, 50, 2, 3, 100, 1e-4)
        + struct.pack("<3i2q", 2, 2, 0, 9, -1)
        + words
        + struct.pack("<?2q", False, 52, 4)
        + rows.tobytes()
        + struct.pack("<?2q", False, 0, 0)
    )
    return path


def fit_on_static(static, **options):
    config = settings("classify", "run.epochs=2", "inputs.words=0")
    return elmokit.tasks.fit(
        "classify", texts(30), texts(9, seed=1), elmo=None, static=static, config=config,
        quiet=True, **options,
    )  # fmt: skip


def test_bundled_fasttext_vectors_keep_their_ngrams(tmp_path):
    model = fasttext_model(tmp_path / "ft.bin")
    table = elmokit.WordVectors.load(model)
    table.save(tmp_path / "ft.vec")  # the same words without n-grams
    fitted = fit_on_static(model, output=tmp_path / "run", bundle=True)
    with pytest.raises(CheckpointError, match="static vectors"):
        elmokit.tasks.load(tmp_path / "run", static=tmp_path / "ft.vec")
    expected = scores(fitted)
    model.unlink()
    again = elmokit.tasks.load(tmp_path / "run")
    assert torch.equal(scores(again), expected)
    again.save(tmp_path / "run")  # over itself
    again.save(tmp_path / "copy")
    shutil.rmtree(tmp_path / "run")
    copied = elmokit.tasks.load(tmp_path / "copy")
    assert torch.equal(scores(copied), expected)
    np.testing.assert_array_equal(copied.static.table["unseen"], table["unseen"])


def test_ngrams_without_a_file_are_refused_before_training(tmp_path):
    table = elmokit.WordVectors.load(fasttext_model(tmp_path / "ft.bin"))
    with pytest.raises(ConfigError, match=r"n-grams .*give their \.bin file"):
        fit_on_static(table, output=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_file_of_vectors_that_was_changed_is_not_taken_along(tmp_path):
    fitted = fit_on_static(fasttext_model(tmp_path / "ft.bin"))
    os.utime(tmp_path / "ft.bin", (0, 0))
    fitted.save(tmp_path / "touched", bundle=True)
    assert torch.equal(scores(elmokit.tasks.load(tmp_path / "touched")), scores(fitted))
    changed = bytearray((tmp_path / "ft.bin").read_bytes())
    changed[-40:-30] = bytes(10)
    (tmp_path / "ft.bin").write_bytes(changed)
    with pytest.raises(ConfigError, match="changed after it had been read"):
        fitted.save(tmp_path / "changed", bundle=True)
    assert not (tmp_path / "changed" / "predictor.json").exists()


def test_hash_of_vectors_without_ngrams_stays_what_it_was():
    table = elmokit.WordVectors.from_dict({"superb": [1.0, 0.0], "awful": [0.0, 1.0]})
    digest = hashlib.sha256(b"superb\nawful" + np.eye(2, dtype="<f4").tobytes())
    assert StaticVectors(table).fingerprint == digest.hexdigest()


def test_words_with_spaces_are_taken_along(tmp_path):
    vectors = {"superb": [1.0, 0.0], "awful": [0.0, 1.0], "New York": [0.5, 0.5]}
    table = elmokit.WordVectors.from_dict(vectors)
    with pytest.raises(ConfigError, match=r"give a file .*'New York' has a space"):
        fit_on_static(table, output=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    table.save(tmp_path / "vectors.txt")
    fitted = fit_on_static(tmp_path / "vectors.txt", output=tmp_path / "run", bundle=True)
    (tmp_path / "vectors.txt").unlink()
    again = elmokit.tasks.load(tmp_path / "run")
    assert torch.equal(scores(again), scores(fitted))
    assert "New York" in again.static.table


@pytest.mark.parametrize("bundle", [False, True], ids=["named", "bundled"])
@pytest.mark.parametrize("precision", ["bfloat16", "int8"])
def test_predictor_computes_in_the_precision_of_its_training(tmp_path, precision, bundle):
    elmo = elmokit.load("test-tiny", precision=precision)
    fitted = elmokit.tasks.fit(
        "classify", texts(30), texts(9, seed=1), elmo=elmo, bundle=bundle,
        config=settings("classify", "run.epochs=1"), output=tmp_path / "run", quiet=True,
    )  # fmt: skip
    assert (tmp_path / "run" / "elmo").exists() == bundle
    again = elmokit.tasks.load(tmp_path / "run")
    assert again.elmo.elmo.bilm.precision == precision
    torch.testing.assert_close(scores(again), scores(fitted), rtol=1e-5, atol=1e-6)
    elmokit.tasks.load(tmp_path / "run", elmo="test-tiny")  # its name says as much as before
    facts = json.loads((tmp_path / "run" / "predictor.json").read_text("utf-8"))
    facts["elmo"].pop("precision")  # as older predictors are
    change(tmp_path / "run", elmo=facts["elmo"])
    with pytest.raises(CheckpointError, match="is not what the predictor was trained with"):
        elmokit.tasks.load(tmp_path / "run")
    elmokit.tasks.load(tmp_path / "run", elmo=elmo)


def test_several_models_keep_their_precisions(tmp_path):
    models = [elmokit.load("test-tiny", precision=kind) for kind in ("float32", "bfloat16")]
    fitted = elmokit.tasks.fit(
        "classify", texts(30), texts(9, seed=1), elmo=models,
        config=settings("classify", "run.epochs=1"), quiet=True,
    )  # fmt: skip
    fitted.save(tmp_path / "run", bundle=True)
    for elmo in (None, ["test-tiny", "test-tiny"]):
        again = elmokit.tasks.load(tmp_path / "run", elmo=elmo)
        torch.testing.assert_close(scores(again), scores(fitted), rtol=1e-5, atol=1e-6)


def test_bundle_takes_the_place_of_another_kind(tmp_path, monkeypatch):
    one, two = (
        elmokit.tasks.fit(
            "classify", texts(30), texts(9, seed=1), elmo=["test-tiny"] * count,
            config=settings("classify", "run.epochs=1"), quiet=True,
        )
        for count in (1, 2)
    )  # fmt: skip
    for predictor in (two, one, two, one):
        predictor.save(tmp_path / "run", bundle=True)
        again = elmokit.tasks.load(tmp_path / "run")
        torch.testing.assert_close(scores(again), scores(predictor), rtol=1e-5, atol=1e-6)
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert names == {"predictor.json", "weights.safetensors", "elmo"}

    def full(*_):
        raise OSError("no space left")

    monkeypatch.setattr("elmokit.checkpoints.native.write", full)
    with pytest.raises(OSError, match="no space"):
        two.save(tmp_path / "run", bundle=True)
    assert torch.equal(scores(elmokit.tasks.load(tmp_path / "run")), scores(again))


def test_bundle_leaves_a_folder_alone_that_no_predictor_made(tmp_path):
    predictor = elmokit.tasks.fit(
        "classify", texts(30), texts(9, seed=1), elmo="test-tiny",
        config=settings("classify", "run.epochs=1"), quiet=True,
    )  # fmt: skip
    (tmp_path / "run" / "elmo").mkdir(parents=True)
    (tmp_path / "run" / "elmo" / "mine.txt").write_text("mine", "utf-8")
    with pytest.raises(CheckpointError, match="is no elmokit model"):
        predictor.save(tmp_path / "run", bundle=True)
    assert (tmp_path / "run" / "elmo" / "mine.txt").read_text("utf-8") == "mine"
