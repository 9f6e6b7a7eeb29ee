"""Options, configs and word lists that are wrong or belong to another model."""

import gzip
import json
from pathlib import Path

import pytest
from bad_checkpoints import (
    copied,
    outcome,
    refused,
)
from golden_models import GOLDEN, golden

import elmokit


def options_changed(folder: Path, source: str, file: str, *keys: str, to: object) -> Path:
    target = copied(GOLDEN / source, folder)
    options = json.loads((target / file).read_bytes())
    inner = options
    for name in keys[:-1]:
        inner = inner[name]
    inner[keys[-1]] = to
    (target / file).write_text(json.dumps(options), encoding="utf-8")
    return target


NO_SIZE = [0, -1, "2", [2], {}, 2.5, True, 10**30, 1e400, float("nan")]


NO_CLIP = ["3", [3], {}, True, False, 0, -3, 10**400, 1e400, float("nan")]


BAD_OPTIONS = [
    *(("lstm", "n_layers", value) for value in [*NO_SIZE, 3, None]),
    *(("lstm", "dim", value) for value in [*NO_SIZE, 23]),
    *(("lstm", "projection_dim", value) for value in [*NO_SIZE, 9]),
    *(("lstm", "cell_clip", value) for value in NO_CLIP),
    *(("lstm", "proj_clip", value) for value in NO_CLIP),
    *(("lstm", "use_skip_connections", value) for value in ["false", "yes", [1], {}, 2, 0.5]),
    *(("char_cnn", "n_highway", value) for value in [*NO_SIZE, 1, 3]),
    *(("char_cnn", "max_characters_per_token", value) for value in [*NO_SIZE, 2]),
    *(("char_cnn", "activation", value) for value in ["gelu", "", 3, None, ["relu"], {}]),
    *(
        ("char_cnn", "filters", value)
        for value in [3, "x", {}, [], [3], [[1, 4]], [[1, 4], [2, 6], [3, 9]], [[1, 4], 2, None]]
    ),
]


@pytest.mark.parametrize("source", ["bilm-hdf5/standard", "tf-checkpoint/standard"])
@pytest.mark.parametrize(("table", "name", "value"), BAD_OPTIONS, ids=repr)
def test_option_that_is_wrong_is_named(tmp_path, source, table, name, value):
    folder = options_changed(tmp_path, source, "options.json", table, name, to=value)
    message = refused(folder, str(folder))
    # The config calls three of them by other names; a number too large is no valid JSON.
    other = {"proj_clip": "projection_clip", "use_skip_connections": "residual"}
    other["max_characters_per_token"] = "max_characters"
    wanted = other.get(name, name)
    assert wanted in message or "too large" in message


@pytest.mark.parametrize("table", ["lstm", "char_cnn"])
@pytest.mark.parametrize("value", [3, "x", [1], None, True])
def test_option_table_that_is_no_table_is_named(tmp_path, table, value):
    folder = options_changed(tmp_path, "bilm-hdf5/standard", "options.json", table, to=value)
    refused(folder, table)


def test_option_bidirectional_must_agree_with_the_tensors(tmp_path):
    folder = options_changed(
        tmp_path, "tf-checkpoint/standard", "options.json", "bidirectional", to=False
    )
    refused(folder, "bidirectional")
    folder = options_changed(
        tmp_path, "tf-checkpoint/unidirectional", "options.json", "bidirectional", to=True
    )
    refused(folder, "bidirectional")


@pytest.mark.parametrize("share", ["yes", 1.5, [1]])
def test_option_of_the_softmax_must_be_a_switch(tmp_path, share):
    folder = options_changed(
        tmp_path, "tf-checkpoint/word-tied", "options.json", "share_embedding_softmax", to=share
    )
    refused(folder, "tied")


@pytest.mark.parametrize(
    ("keys", "value", "named"),
    [
        (("encoder", "cell_clip"), "3", "cell_clip"),
        (("encoder", "proj_clip"), 10**400, "too large"),
        (("encoder", "n_layers"), 3, "n_layers"),
        (("encoder", "dim"), 25, "dim"),
        (("encoder", "projection_dim"), [8], "projection_dim"),
        (("token_embedder", "activation"), "gelu", "activation"),
        (("token_embedder", "max_characters_per_token"), 2, "max_characters"),
        (("token_embedder", "max_characters_per_token"), "20", "max_characters"),
        (("token_embedder", "n_highway"), 2, "n_highway"),
        (("token_embedder", "filters"), [[1, 4]], "filters"),
        (("encoder",), [1], "encoder"),
        (("token_embedder",), "x", "token_embedder"),
    ],
)
def test_many_langs_architecture_that_is_wrong_is_named(tmp_path, keys, value, named):
    file = "cnn_50_100_512_4096_sample.json"
    refused(options_changed(tmp_path, "many-langs/with-config", file, *keys, to=value), named)


@pytest.mark.parametrize(
    "path", [3, None, "", "..", "/", "a" * 5000, "\0", "C:\\x\\", "config.json"]
)
def test_many_langs_architecture_that_is_nowhere_means_the_released_settings(tmp_path, path):
    folder = options_changed(tmp_path, "many-langs/released", "config.json", "config_path", to=path)
    assert elmokit.load(folder).config == golden("many-langs/released").load().config


@pytest.mark.parametrize(
    "text",
    [
        *(b"", b"[]", b"3", b'"x"', b"null", b"{", b"{'lstm': 1}", b"\xff\xfe{}", b"\0", b"<html>"),
        *(b"[" * 100_000, b'{"a":' * 100_000, b'{"lstm": {"dim": ' + b"9" * 5000 + b"}}"),
    ],
    ids=lambda text: repr(text[:12]),
)
@pytest.mark.parametrize(
    ("source", "file"),
    [
        ("bilm-hdf5/standard", "options.json"),
        ("tf-checkpoint/standard", "options.json"),
        ("many-langs/released", "config.json"),
        ("many-langs/with-config", "cnn_50_100_512_4096_sample.json"),
    ],
)
def test_options_that_are_no_json_object_are_refused(tmp_path, source, file, text):
    folder = copied(GOLDEN / source, tmp_path)
    (folder / file).write_bytes(text)
    refused(folder, file)


@pytest.mark.parametrize("source", ["bilm-hdf5/standard", "tf-checkpoint/standard"])
def test_missing_options_are_asked_for(tmp_path, source):
    folder = copied(GOLDEN / source, tmp_path)
    (folder / "options.json").unlink()
    refused(folder, "options.json", "options=PATH")


def test_options_of_another_model_are_refused(tmp_path):
    other = GOLDEN / "bilm-hdf5/tanh-m20/options.json"
    refused(GOLDEN / "bilm-hdf5/standard", "another model", options=other)


def test_native_config_edits_are_refused(tmp_path):
    golden("many-langs/released").load().save(tmp_path / "model")
    path = tmp_path / "model" / "config.json"
    whole = json.loads(path.read_bytes())
    huge = 2**30
    edits = [
        ("format_version", 5, "format_version"),
        ("format_version", "1", "format_version"),
        ("format_version", None, "format_version"),
        ("config", [], "config"),
        ("config", {}, "characters, words or both"),
        ("config.lstm.layers", 3, "missing"),
        ("config.lstm.layers", 1, "does not belong"),
        ("config.lstm.layers", huge, "layers"),
        ("config.lstm.cells", huge, "cells"),
        ("config.lstm.width", huge, "width"),
        ("config.lstm.width", 10**30, "too large"),
        ("config.lstm.forget_bias", 10**400, "too large"),
        ("config.lstm.cell_clip", "3", "cell_clip"),
        ("config.lstm.backward", False, "does not belong"),
        ("config.lstm.surprise", 1, "surprise"),
        ("config.characters.highways", huge, "highways"),
        ("config.characters.filters", [[1, huge]], "filters"),
        ("config.characters.filters", [[50, 2**26]], "filters"),
        ("config.characters.dim", huge, "dim"),
        ("config.characters.rows", huge, "rows"),
        ("config.characters.alphabet", "bytes", "rows"),
        ("config.words.rows", huge, "rows"),
        ("config.words.dim", huge, "dim"),
        ("config.softmax", {"words": huge}, "words"),
        ("config.mix", {"count": huge}, "count"),
        ("config.input_projection", False, "input_projection"),
        ("config.text.begin", "<S>", "<S>"),
        ("config.text.begin", "", "begin"),
    ]
    for field, value, named in edits:
        data = json.loads(json.dumps(whole))
        inner = data
        *outer, last = field.split(".")
        for name in outer:
            inner = inner[name]
        inner[last] = value
        path.write_text(json.dumps(data), encoding="utf-8")
        refused(tmp_path / "model", str(tmp_path / "model"), named)
    path.write_text(json.dumps(whole), encoding="utf-8")
    assert outcome(tmp_path / "model") is not None


def test_word_model_without_vocabulary_asks_for_it(tmp_path):
    for source in ("bilm-hdf5/word", "tf-checkpoint/word"):
        folder = copied(GOLDEN / source, tmp_path / source.replace("/", "-"))
        (folder / "vocab.txt").unlink()
        refused(folder, str(folder), "vocab.txt", "vocabulary=")
    golden("bilm-hdf5/word").load().save(tmp_path / "native")
    (tmp_path / "native" / "vocab.txt").unlink()
    refused(tmp_path / "native", "native", "vocab.txt")


@pytest.mark.parametrize("change", [lambda lines: lines[:-1], lambda lines: [*lines, b"more"]])
def test_vocabulary_of_another_length_is_refused(tmp_path, change):
    for source in ("bilm-hdf5/word", "tf-checkpoint/standard"):
        folder = copied(GOLDEN / source, tmp_path / source.replace("/", "-"))
        lines = (folder / "vocab.txt").read_bytes().splitlines()
        (folder / "vocab.txt").write_bytes(b"\n".join(change(lines)) + b"\n")
        refused(folder, str(folder), "words")


def test_vocabulary_without_sentence_markers_is_refused(tmp_path):
    folder = copied(GOLDEN / "bilm-hdf5/word", tmp_path)
    data = (folder / "vocab.txt").read_bytes()
    (folder / "vocab.txt").write_bytes(data.replace(b"</S>\n", b"<E>\n"))
    refused(folder, str(folder), "'</S>'")


@pytest.mark.parametrize(
    "data", [b"\xff\xfe\n", b"\x1f\x8b\x08 cut", gzip.compress(b"a\n", mtime=0)[:-4]]
)
def test_vocabulary_that_is_no_text_is_refused(tmp_path, data):
    folder = copied(GOLDEN / "bilm-hdf5/word", tmp_path)
    (folder / "vocab.txt").write_bytes(data)
    refused(folder, "vocab.txt")


@pytest.mark.parametrize("name", ["char.dic", "word.dic"])
@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda data: data + b"x\t9999\n", "an id below"),
        (lambda data: data + b"x\t-1\n", "an id below"),
        (lambda data: data + b"x 3\n", "a tab"),
        (lambda data: data + b"\xff\t3\n", "line"),
        (lambda data: data + b"x\t" + b"9" * 5000 + b"\n", "line"),
        (lambda data: data.replace(b"<bos>", b"<box>"), "<bos>"),
        (lambda data: b"", "<bos>"),
        (None, "missing"),
    ],
)
def test_dictionary_that_is_wrong_is_refused(tmp_path, name, edit, message):
    folder = copied(GOLDEN / "many-langs/released", tmp_path)
    if edit is None:
        (folder / name).unlink()
    else:
        (folder / name).write_bytes(edit((folder / name).read_bytes()))
    refused(folder, str(folder), message)
