"""Predictors on disk: they come back whole, and say what is missing."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from small_tasks import NEW, change, scores, sentences, settings, texts

import elmokit
from elmokit.checkpoints.fingerprint import fingerprint
from elmokit.errors import CheckpointError, ConfigError, DataError
from elmokit.tasks import TextExample

pytestmark = pytest.mark.usefixtures("no_pictures")

GOLDEN = Path(__file__).parents[1] / "golden"


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
    data = [(f"{name} slept", f"{name} woke") for name in ("Anna", "Zoe", "Bob", "Tom")]
    config = settings("seq2seq", "run.epochs=1", "head.min_count=1")
    writer = elmokit.tasks.fit("seq2seq", data, data, elmo=None, config=config, quiet=True)
    for ask in (lambda: writer.predict_proba(["Anna"]), lambda: writer.labels):
        with pytest.raises(ConfigError, match="seq2seq: this task has no probabilities of classes"):
            ask()
    with pytest.raises(ConfigError, match="seq2seq: answers of this task have no details"):
        writer.predict(["Anna"], details=True)


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
    left = {path.name for path in tmp_path.iterdir() if not path.name.startswith("torchinductor")}
    assert left == {"models"}  # where it was trained is gone; torch may have made a cache
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
    with pytest.raises(CheckpointError, match=r"ELMo model 'gone' cannot be loaded .*--model"):
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
    with pytest.raises(CheckpointError, match=r"weights\.safetensors is missing"):
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


def test_unlabelled_data_cannot_be_scored(folder):
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


def test_a_run_hashes_its_model_once_whatever_the_improvements(files, tmp_path, monkeypatch):
    from elmokit.tasks.inputs import source
    from elmokit.tasks.predictor import Predictor

    calls = {"hash": 0, "load": 0, "save": 0}

    def counted(name, function):
        def call(*args, **kwargs):
            calls[name] += 1
            return function(*args, **kwargs)

        return call

    elmo = elmokit.load(files / "model")
    monkeypatch.setattr(source, "fingerprint", counted("hash", source.fingerprint))
    monkeypatch.setattr(source, "load", counted("load", source.load))
    monkeypatch.setattr(Predictor, "save", counted("save", Predictor.save))
    config = settings("classify", "run.epochs=4", "run.patience=0")
    elmokit.tasks.fit(
        "classify", texts(200), texts(40, seed=1), elmo=elmo, config=config,
        output=tmp_path / "out", quiet=True,
    )  # fmt: skip
    assert calls["save"] > 1
    # The model of the run, and the one in its folder, which must be the same.
    assert (calls["hash"], calls["load"]) == (2, 1)
