"""What is written is read again: models in both formats, configs as JSON and TOML."""

import errno
import json
import os
import re
import shutil
import zlib
from dataclasses import replace

import numpy as np
import pytest
import torch
from golden_models import (
    ALL,
    ALLENNLP,
    HDF5,
    TF_CHECKPOINTS,
    TF_HUB,
    assert_same_model,
    assert_same_weights,
    by_name,
    golden,
    weights_of,
)
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from random_models import ODD_WORDS, checkpoints, configs

import elmokit
from elmokit.checkpoints import bilm_hdf5, native
from elmokit.config import (
    CharacterConfig,
    LstmConfig,
    MixConfig,
    ModelConfig,
    SoftmaxConfig,
    TextConfig,
    WordConfig,
    dumps_toml,
    from_dict,
    loads_toml,
    to_dict,
)
from elmokit.encode.elmo import Elmo
from elmokit.errors import CheckpointError, ConfigError
from elmokit.text.vocab import Vocabulary

SENTENCES = [["a", "東京", "x" * 70, "<S>"], ["\u2028", "<bos>", "😀"], ["one"]]
HDF5_CAN_HOLD = [*HDF5, *TF_CHECKPOINTS, *TF_HUB]


@pytest.fixture
def standard_hdf5():
    return golden("bilm-hdf5/standard").load()


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


# Golden models.


@pytest.mark.parametrize("model", ALL, ids=by_name)
def test_native_folder_gives_the_same_model(tmp_path, model):
    elmo = model.load()
    elmo.save(tmp_path / "saved")
    again = elmokit.load(tmp_path / "saved")
    assert again.kind == "elmokit"
    assert_same_model(again, elmo, model.sentences())


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "vocab.txt"])
def test_native_model_loads_from_any_of_its_files(tmp_path, standard_hdf5, name):
    standard_hdf5.save(tmp_path / "saved")
    again = elmokit.load(tmp_path / "saved" / name)
    assert_same_model(again, standard_hdf5, SENTENCES)


def counted(elmo):
    """The model with word counts: 0, 1, 2, ..."""
    counts = {word: number for number, word in enumerate(elmo.vocabulary)}
    return Elmo(elmo.checkpoint().with_counts(counts))


@pytest.mark.parametrize("storage", ["float32", "int8", "compact"])
def test_native_folder_holds_word_counts(tmp_path, storage):
    elmo = counted(golden("tf-checkpoint/standard").load())
    elmo.save(tmp_path / "saved", storage=storage)
    again = elmokit.load(tmp_path / "saved")
    np.testing.assert_array_equal(again.vocabulary.counts, np.arange(len(elmo.vocabulary)))
    shorter = again.checkpoint().with_words(9).vocabulary
    assert shorter.words == again.vocabulary.words[:9]
    assert shorter.counts.tolist() == list(range(9))
    # A model without counts takes its turn: nothing of the older one is left.
    golden("tf-checkpoint/standard").load().save(tmp_path / "saved")
    assert elmokit.load(tmp_path / "saved").vocabulary.counts is None
    assert "counts.txt" not in names_in(tmp_path / "saved")


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("1\n2\n", "2 counts for the 42 words of vocab.txt"),
        ("1\n" * 43, "43 counts for the 42 words of vocab.txt"),
        ("1\n" * 41 + "-1\n", "counts.txt, line 42: expected a count, found '-1'"),
        ("1\n" * 41 + "1e3\n", "line 42: expected a count, found '1e3'"),
        ("1\n" * 41 + "\n", "line 42: expected a count, found ''"),
        ("٣\n" * 42, "line 1: expected a count"),
        ("9" * 19 + "\n", "line 1: expected a count"),
        ("9" * 9999 + "\n", "line 1: expected a count"),
        (None, "counts.txt"),
    ],
)
def test_native_folder_with_wrong_counts_is_refused(tmp_path, lines, message):
    folder = tmp_path / "saved"
    counted(golden("tf-checkpoint/standard").load()).save(folder)
    (folder / "counts.txt").unlink()
    if lines is not None:
        (folder / "counts.txt").write_text(lines, encoding="utf-8")
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        config["crc32"]["counts.txt"] = zlib.crc32(lines.encode())
        (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    with pytest.raises(CheckpointError, match=re.escape(message)):
        elmokit.load(folder)


def test_native_folder_with_counts_of_another_model_is_refused(tmp_path):
    counted(golden("tf-checkpoint/standard").load()).save(tmp_path / "saved")
    (tmp_path / "saved" / "counts.txt").write_text("1\n" * 42)
    with pytest.raises(CheckpointError, match=r"counts\.txt: this is not the list that was saved"):
        elmokit.load(tmp_path / "saved")


def test_counts_that_name_no_word_of_the_model_are_refused(standard_hdf5):
    with pytest.raises(ConfigError, match="no word of its vocabulary"):
        standard_hdf5.checkpoint().with_counts({"nowhere": 5})


@pytest.mark.parametrize("model", HDF5_CAN_HOLD, ids=by_name)
def test_hdf5_export_gives_the_same_model_and_so_does_native_after_it(tmp_path, model):
    elmo = model.load(softmax=False)
    elmo.save(tmp_path / "first")
    elmokit.load(tmp_path / "first").export(tmp_path / "export" / "weights.hdf5")
    exported = elmokit.load(tmp_path / "export")
    exported.save(tmp_path / "second")
    again = elmokit.load(tmp_path / "second")
    if elmo.config.mix is not None:  # the layout has no mix
        elmo = Elmo(
            replace(
                elmo.checkpoint(),
                config=replace(elmo.config, mix=None),
                weights={k: t for k, t in weights_of(elmo).items() if not k.startswith("mixes.")},
            )
        )
    assert_same_model(exported, elmo, model.sentences())
    assert_same_model(again, elmo, model.sentences())


@pytest.mark.parametrize("model", ALLENNLP, ids=by_name)
def test_hdf5_export_moves_the_forget_bias_out_of_the_weights(tmp_path, model):
    elmo = model.load()
    elmo.export(tmp_path / "weights.hdf5")
    exported = elmokit.load(tmp_path)
    assert exported.config == replace(
        elmo.config, mix=None, lstm=replace(elmo.config.lstm, forget_bias=1.0)
    )
    for ours, theirs in zip(
        exported.encode(model.sentences(), layers="all"),
        elmo.encode(model.sentences(), layers="all"),
        strict=True,
    ):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=3e-6)


def test_hdf5_export_uses_the_published_names(tmp_path, standard_hdf5):
    standard_hdf5.export(tmp_path / "small_weights.hdf5")
    assert names_in(tmp_path) == ["small_options.json", "small_weights.hdf5", "vocab.txt"]
    assert_same_model(elmokit.load(tmp_path / "small_weights.hdf5"), standard_hdf5, SENTENCES)


def test_hdf5_export_has_the_datasets_of_the_original_software(tmp_path, standard_hdf5):
    import h5py

    def datasets(path):
        found = {}
        with h5py.File(path) as file:
            file.visititems(
                lambda name, item: (
                    found.update({name: item[()]}) if isinstance(item, h5py.Dataset) else None
                )
            )
        return found

    standard_hdf5.export(tmp_path / "weights.hdf5")
    ours = datasets(tmp_path / "weights.hdf5")
    theirs = datasets(golden("bilm-hdf5/standard").source / "weights.hdf5")
    assert ours.keys() == theirs.keys()
    for name, value in theirs.items():
        assert ours[name].dtype == np.float32
        np.testing.assert_array_equal(ours[name], value, err_msg=name)
    options = json.loads((tmp_path / "options.json").read_text())
    original = golden("bilm-hdf5/standard").source / "options.json"
    assert options == json.loads(original.read_text())


@pytest.mark.parametrize("name", ["many-langs/released", "many-langs/characters-only"])
def test_hdf5_export_refuses_what_the_layout_cannot_hold(tmp_path, name):
    with pytest.raises(CheckpointError, match="native format"):
        golden(name).load().export(tmp_path / "weights.hdf5")
    assert names_in(tmp_path) == []


# Any model.


@settings(max_examples=60)
@given(checkpoints())
def test_native_folder_holds_any_model(tmp_path_factory, checkpoint):
    folder = tmp_path_factory.mktemp("any")
    elmo = Elmo(checkpoint)
    elmo.save(folder)
    again = elmokit.load(folder)
    sentences = SENTENCES
    if checkpoint.config.words is not None:
        known = [word for word in checkpoint.vocabulary.words if word]
        sentences = [known, known[:1], []]
    assert_same_model(again, elmo, sentences)
    if checkpoint.vocabulary is not None:
        np.testing.assert_array_equal(again.vocabulary.counts, checkpoint.vocabulary.counts)
    shutil.rmtree(folder)


def bilm_configs():
    """Configs that the HDF5 layout holds without loss."""

    def fit(config):
        characters = config.characters
        if characters is not None:
            characters = replace(characters, alphabet="bytes", rows=262, swapped_markers=False)
        words = config.words if characters is None else None
        entering = characters.width if characters is not None else words.dim
        projected = config.input_projection and characters is not None
        width = config.lstm.width if projected else entering
        lstm = replace(
            config.lstm,
            width=width,
            cells=config.lstm.cells if config.lstm.projection else width,
            forget_bias=1.0,
        )
        return ModelConfig(
            text=TextConfig(tokenizer="space"),
            characters=characters,
            words=words,
            input_projection=projected,
            lstm=lstm,
        )

    return configs().map(fit)


@settings(max_examples=40)
@given(checkpoints(bilm_configs()))
def test_hdf5_export_holds_any_model_of_its_kind(tmp_path_factory, checkpoint):
    words = checkpoint.vocabulary.words if checkpoint.vocabulary else []
    assume(all(word == word.strip(" \t\r") and word != "!!!MAXTERMID" for word in words))
    folder = tmp_path_factory.mktemp("any")
    elmo = Elmo(replace(checkpoint, card=None))
    elmo.export(folder / "weights.hdf5")
    sentences = SENTENCES if checkpoint.config.words is None else [[w for w in words if w]]
    assert_same_model(elmokit.load(folder), elmo, sentences)
    shutil.rmtree(folder)


@pytest.mark.parametrize("word", [" x", "x\t", "\r", "!!!MAXTERMID"])
def test_hdf5_export_refuses_words_its_vocabulary_file_would_lose(tmp_path, word):
    elmo = golden("bilm-hdf5/word").load()
    words = [*elmo.vocabulary.words[:-1], word]
    elmo = Elmo(replace(elmo.checkpoint(), vocabulary=Vocabulary(words, elmo.config.text)))
    with pytest.raises(CheckpointError, match="vocab"):
        elmo.export(tmp_path / "weights.hdf5")
    assert names_in(tmp_path) == []


def test_hdf5_export_refuses_word_models_with_other_markers(tmp_path):
    elmo = golden("bilm-hdf5/word").load()
    text = TextConfig(begin="<s>", end="</s>")
    words = ["<s>", "</s>", *elmo.vocabulary.words[2:]]
    checkpoint = replace(
        elmo.checkpoint(),
        config=replace(elmo.config, text=text),
        vocabulary=Vocabulary(words, text),
    )
    with pytest.raises(CheckpointError, match="<s>"):
        Elmo(checkpoint).export(tmp_path / "weights.hdf5")


def test_native_word_lists_keep_every_odd_word(tmp_path):
    model = golden("many-langs/released").load()
    checkpoint = model.checkpoint()
    rows = len(checkpoint.vocabulary)
    words = [*checkpoint.vocabulary.words[:4], *ODD_WORDS][:rows]
    words += [""] * (rows - len(words))
    special = [symbol for symbol in checkpoint.symbols if symbol.startswith("<")]
    odd = [word for word in ODD_WORDS if len(word) == 1]
    symbols = (*special, *odd)[: len(checkpoint.symbols)]
    assert {"\u2028", "\u0085", "\u00a0", "😀", "\r"} <= set(symbols)
    symbols += ("",) * (len(checkpoint.symbols) - len(symbols))
    changed = replace(
        checkpoint, symbols=symbols, vocabulary=Vocabulary(words, checkpoint.config.text)
    )
    Elmo(changed).save(tmp_path / "saved")
    again = elmokit.load(tmp_path / "saved").checkpoint()
    assert again.vocabulary.words == words
    assert again.symbols == symbols


@pytest.mark.parametrize("part", ["vocabulary", "symbols"])
def test_native_write_refuses_words_that_span_lines(tmp_path, part):
    checkpoint = golden("many-langs/released").load().checkpoint()
    if part == "vocabulary":
        words = [*checkpoint.vocabulary.words[:-1], "a\nb"]
        broken = replace(checkpoint, vocabulary=Vocabulary(words, checkpoint.config.text))
    else:
        broken = replace(checkpoint, symbols=(*checkpoint.symbols[:-1], "\n"))
    with pytest.raises(CheckpointError, match=r"\\n"):
        native.write(broken, tmp_path / "saved")
    assert names_in(tmp_path) == []


@pytest.mark.parametrize("model", ALL, ids=by_name)
def test_native_write_takes_what_a_reader_returns(tmp_path, model):
    elmo = model.load()
    native.write(elmo._checkpoint, tmp_path / "saved")
    assert_same_weights(elmokit.load(tmp_path / "saved"), elmo)


# Configs.


@given(configs())
def test_config_survives_dictionaries_and_json(config):
    assert from_dict(ModelConfig, to_dict(config)) == config
    assert from_dict(ModelConfig, json.loads(json.dumps(to_dict(config)))) == config


@given(configs())
def test_config_survives_toml(config):
    config = replace(config, text=TextConfig(tokenizer=config.text.tokenizer))
    assert loads_toml(ModelConfig, dumps_toml(config)) == config


@pytest.mark.parametrize("word", ODD_WORDS)
def test_text_config_survives_toml_with_odd_words(word):
    text = TextConfig(begin=word, end=f"</{word}>")
    assert loads_toml(TextConfig, dumps_toml(text)) == text


VALID = to_dict(
    ModelConfig(
        characters=CharacterConfig(
            alphabet="unicode", rows=20, dim=3, max_characters=9, filters=((1, 2), (3, 4))
        ),
        words=WordConfig(rows=10, dim=2),
        lstm=LstmConfig(cells=5, width=4, cell_clip=3.0, projection_clip=2.0),
        softmax=SoftmaxConfig(words=10),
        mix=MixConfig(count=2),
    )
)
NUMBER = st.integers() | st.floats() | st.just(10**25)
WRONG_KIND = st.none() | st.text(max_size=3) | st.lists(st.integers(), max_size=2)
BAD_SIZE = WRONG_KIND | st.booleans() | st.floats() | st.integers(max_value=-1) | st.just(2**31)
BAD_SWITCH = WRONG_KIND | NUMBER
BAD_CLIP = (
    WRONG_KIND.filter(lambda value: value is not None)
    | st.booleans()
    | st.floats(max_value=0)
    | st.integers(max_value=0)
    | st.sampled_from([float("nan"), float("inf")])
)
BAD_NAME = st.none() | NUMBER | st.booleans() | st.just("") | st.lists(st.text(), max_size=2)
BAD_CHOICE = st.none() | NUMBER | st.booleans() | st.text(max_size=9) | st.lists(st.text())
BAD_FILTERS = (
    NUMBER
    | st.text(max_size=3)
    | st.none()
    | st.sampled_from(
        [[], [[]], [3, 4], [[1]], [[1, 2, 3]], [[0, 2]], [[1, 0]], [[1, -2]], [["1", 2]]]
    )
    | st.sampled_from([[[1.0, 2]], [[True, 2]], [[10, 2]], [[1, 2], None], [[1, 2**31]], {}])
)
BAD_VALUES = {
    "characters.rows": BAD_SIZE,
    "characters.dim": BAD_SIZE,
    "characters.max_characters": BAD_SIZE,
    "characters.highways": BAD_SIZE,
    "characters.filters": BAD_FILTERS,
    "characters.alphabet": BAD_CHOICE,
    "characters.activation": BAD_CHOICE,
    "characters.swapped_markers": BAD_SWITCH,
    "words.rows": BAD_SIZE,
    "words.dim": BAD_SIZE,
    "lstm.layers": BAD_SIZE,
    "lstm.cells": BAD_SIZE,
    "lstm.width": BAD_SIZE,
    "lstm.cell_clip": BAD_CLIP,
    "lstm.projection_clip": BAD_CLIP,
    "lstm.projection": BAD_SWITCH,
    "lstm.residual": BAD_SWITCH,
    "lstm.backward": BAD_SWITCH,
    "lstm.forget_bias": WRONG_KIND | st.booleans() | st.sampled_from([float("nan"), float("inf")]),
    "softmax.words": BAD_SIZE,
    "softmax.tied": BAD_SWITCH,
    "mix.count": BAD_SIZE,
    "mix.layer_norm": BAD_SWITCH,
    "text.tokenizer": BAD_NAME,
    "text.begin": BAD_NAME,
    "text.end": BAD_NAME,
    "text.unknown": BAD_NAME,
    "input_projection": BAD_SWITCH,
}


@pytest.mark.parametrize("field", BAD_VALUES)
def test_config_names_the_field_that_is_wrong(field):
    @settings(max_examples=25)
    @given(BAD_VALUES[field])
    def check(value):
        data = json.loads(json.dumps(VALID))
        table, _, name = field.rpartition(".")
        (data[table] if table else data)[name] = value
        with pytest.raises(ConfigError) as caught:
            from_dict(ModelConfig, data, "file")
        assert name in str(caught.value)
        assert "file" in str(caught.value)

    check()


@pytest.mark.parametrize("table", ["text", "characters", "words", "lstm", "softmax", "mix"])
@pytest.mark.parametrize("value", [3, "x", [1], None, True])
def test_config_names_the_table_that_is_no_table(table, value):
    with pytest.raises(ConfigError, match=table):
        from_dict(ModelConfig, {**VALID, table: value})


@pytest.mark.parametrize("part", ["", "lstm", "characters", "text"])
def test_config_names_an_unknown_field(part):
    data = json.loads(json.dumps(VALID))
    (data[part] if part else data)["surprise"] = 1
    with pytest.raises(ConfigError, match="unknown field 'surprise'"):
        from_dict(ModelConfig, data)


def test_config_names_a_missing_field():
    data = json.loads(json.dumps(VALID))
    del data["words"]["rows"]
    with pytest.raises(ConfigError, match=r"words\.rows is missing"):
        from_dict(ModelConfig, data)


@pytest.mark.parametrize("text", ["[lstm", "lstm = ", "a = 1\na = 2", "\x00", "[lstm]\nlayers='2"])
def test_config_that_is_no_toml_is_refused(text):
    with pytest.raises(ConfigError, match=r"file\.toml"):
        loads_toml(ModelConfig, text, "file.toml")


# Writing safely.


def out_of_space(*_args, **_kwargs):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_save_replaces_an_older_model_whole(tmp_path, standard_hdf5):
    folder = tmp_path / "model"
    with_dictionary = golden("many-langs/released").load()
    with_dictionary.save(folder)
    assert "characters.txt" in names_in(folder)
    standard_hdf5.save(folder)
    assert names_in(folder) == ["config.json", "model.safetensors", "vocab.txt"]
    assert names_in(tmp_path) == ["model"]
    assert_same_model(elmokit.load(folder), standard_hdf5, SENTENCES)


def test_save_keeps_files_beside_the_model(tmp_path, standard_hdf5):
    folder = tmp_path / "model"
    standard_hdf5.save(folder)
    (folder / "notes.txt").write_text("mine")
    (folder / "logs").mkdir()
    (folder / "logs" / "a.log").write_text("mine too")
    standard_hdf5.save(folder)
    assert (folder / "notes.txt").read_text() == "mine"
    assert (folder / "logs" / "a.log").read_text() == "mine too"
    assert names_in(tmp_path) == ["model"]


def test_save_over_the_folder_it_was_loaded_from_keeps_the_model(tmp_path, standard_hdf5):
    folder = tmp_path / "model"
    standard_hdf5.save(folder)
    loaded = elmokit.load(folder)
    loaded.save(folder)
    assert_same_model(elmokit.load(folder), standard_hdf5, SENTENCES)
    assert_same_model(loaded, standard_hdf5, SENTENCES)


def test_save_goes_where_a_link_points(tmp_path, standard_hdf5):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    standard_hdf5.save(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert names_in(tmp_path) == ["link", "real"]
    assert_same_model(elmokit.load(tmp_path / "real"), standard_hdf5, SENTENCES)


def test_save_to_the_current_folder(tmp_path, standard_hdf5, monkeypatch):
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    standard_hdf5.save(".")
    assert_same_model(elmokit.load(folder), standard_hdf5, SENTENCES)


def test_save_makes_missing_parent_folders(tmp_path, standard_hdf5):
    standard_hdf5.save(tmp_path / "a" / "b")
    assert_same_model(elmokit.load(tmp_path / "a" / "b"), standard_hdf5, SENTENCES)


@pytest.mark.parametrize("old", [True, False])
@pytest.mark.parametrize("culprit", ["safetensors.torch.save_file", "os.replace"])
def test_save_that_fails_leaves_the_old_model(tmp_path, standard_hdf5, monkeypatch, old, culprit):
    folder = tmp_path / "model"
    previous = golden("tf-checkpoint/word").load()
    if old:
        previous.save(folder)
    before = names_in(tmp_path)
    if culprit == "os.replace":
        genuine = os.replace

        def failing(source, target):
            if source.name == folder.name:  # the new one, to its path
                out_of_space()
            genuine(source, target)

        monkeypatch.setattr(os, "replace", failing)
        monkeypatch.setattr("elmokit.files._exchange", lambda one, other: False)
    else:
        monkeypatch.setattr(culprit, out_of_space)
    with pytest.raises(OSError, match="No space left"):
        standard_hdf5.save(folder)
    monkeypatch.undo()
    assert names_in(tmp_path) == before
    if old:
        assert_same_model(elmokit.load(folder), previous, [["cat"]])


@pytest.mark.parametrize("content", ["notes.txt", "config.json", ".git"])
def test_save_refuses_a_folder_that_is_something_else(tmp_path, standard_hdf5, content):
    (tmp_path / content).write_text("{}")
    with pytest.raises(CheckpointError, match="no elmokit model"):
        standard_hdf5.save(tmp_path)
    assert names_in(tmp_path) == [content]
    assert (tmp_path / content).read_text() == "{}"


def test_save_refuses_a_file(tmp_path, standard_hdf5):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(CheckpointError, match="no elmokit model"):
        standard_hdf5.save(tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize("stage", ["dataset", "options", "vocabulary"])
@pytest.mark.parametrize("old", [True, False])
def test_export_that_fails_changes_nothing(tmp_path, standard_hdf5, monkeypatch, stage, old):
    if old:
        golden("bilm-hdf5/word").load().export(tmp_path / "weights.hdf5")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    culprit = {
        "dataset": "h5py.File.create_dataset",
        "options": "pathlib.Path.write_text",
        "vocabulary": "pathlib.Path.write_bytes",
    }[stage]
    monkeypatch.setattr(culprit, out_of_space)
    with pytest.raises(OSError, match="No space left"):
        standard_hdf5.export(tmp_path / "weights.hdf5")
    monkeypatch.undo()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_export_replaces_an_older_export(tmp_path, standard_hdf5):
    golden("bilm-hdf5/tanh-m20").load().export(tmp_path / "weights.hdf5")
    standard_hdf5.export(tmp_path / "weights.hdf5")
    assert names_in(tmp_path) == ["options.json", "vocab.txt", "weights.hdf5"]
    assert_same_model(elmokit.load(tmp_path), standard_hdf5, SENTENCES)


def test_hdf5_write_takes_what_a_reader_returns(tmp_path):
    model = ALLENNLP[1].load()
    bilm_hdf5.write(model._checkpoint, tmp_path / "weights.hdf5")
    assert elmokit.load(tmp_path).config.lstm.forget_bias == 1.0
    assert not torch.equal(
        weights_of(elmokit.load(tmp_path))["lstm.forward_stack.0.bias"],
        weights_of(model)["lstm.forward_stack.0.bias"],
    )
