"""Every format gives the numbers of the software that wrote the files."""

import json
import shutil
import tarfile
import zipfile
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from golden_models import (
    ALL,
    ALLENNLP,
    GOLDEN,
    HDF5,
    MANY_LANGS,
    SENTENCE_MARKERS,
    TF_CHECKPOINTS,
    TF_HUB,
    WITH_LAYERS,
    assert_same_model,
    assert_same_vectors,
    assert_same_weights,
    by_name,
    golden,
    weights_of,
    write_tensors_as_hdf5,
)

import elmokit
from elmokit.checkpoints.tf_checkpoint import TensorBundle
from elmokit.errors import CheckpointError

STANDARD = golden("bilm-hdf5/standard")
TF_STANDARD = golden("tf-checkpoint/standard")


def assert_close(actual, expected, *, atol=1e-5):
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=atol)
    assert actual.dtype == np.float32


def assert_layers_match(model, **options):
    expected = model.arrays()
    vectors = model.load(**options).encode(model.sentences(), layers="all")
    for number, layers in enumerate(vectors):
        assert_close(layers, expected[f"layers_{number}"])


# All formats.


def test_golden_models_cover_every_format():
    kinds = {
        "bilm-tf HDF5": 9,
        "TensorFlow checkpoint": 9,
        "ELMoForManyLangs": 5,
        "AllenNLP archive": 3,
        "TF-Hub module": 2,
    }
    found = [model.load().kind for model in ALL]
    assert {kind: found.count(kind) for kind in found} == kinds


@pytest.mark.parametrize("model", WITH_LAYERS, ids=by_name)
def test_layers_equal_those_of_the_original_software(model):
    assert_layers_match(model)


# HDF5.


def test_hdf5_file_equals_its_folder():
    by_file = elmokit.load(STANDARD.source / "weights.hdf5")
    assert_same_model(by_file, STANDARD.load(), STANDARD.sentences())
    assert by_file.source == str(STANDARD.source / "weights.hdf5")


def test_hdf5_reads_the_published_file_names(tmp_path):
    for other, highways in (("a", "standard"), ("b", "tanh-m20")):
        for name in ("weights.hdf5", "options.json"):
            shutil.copy(GOLDEN / "bilm-hdf5" / highways / name, tmp_path / f"{other}_{name}")
    for other, name in (("a", "standard"), ("b", "tanh-m20")):
        model = golden(f"bilm-hdf5/{name}")
        elmo = elmokit.load(tmp_path / f"{other}_weights.hdf5")
        assert_same_vectors(elmo, model.load(), model.sentences())


def test_hdf5_folder_with_several_models_is_not_guessed(tmp_path):
    for other in ("a", "b"):
        for name in ("weights.hdf5", "options.json"):
            shutil.copy(STANDARD.source / name, tmp_path / f"{other}_{name}")
    with pytest.raises(CheckpointError, match=r"a_weights\.hdf5, b_weights\.hdf5"):
        elmokit.load(tmp_path)


def test_hdf5_takes_options_from_another_place(tmp_path):
    shutil.copy(STANDARD.source / "weights.hdf5", tmp_path / "x.h5")
    for source in (tmp_path / "x.h5", tmp_path):
        elmo = elmokit.load(source, options=STANDARD.source / "options.json")
        assert_same_vectors(elmo, STANDARD.load(), STANDARD.sentences())


def test_hdf5_is_known_by_its_contents_not_its_name(tmp_path):
    shutil.copy(STANDARD.source / "weights.hdf5", tmp_path / "model.zip")
    shutil.copy(STANDARD.source / "options.json", tmp_path)
    assert elmokit.load(tmp_path / "model.zip").kind == "bilm-tf HDF5"


def test_hdf5_cut_to_one_layer_keeps_the_lower_layers(tmp_path):
    options = json.loads((STANDARD.source / "options.json").read_text())
    options["lstm"]["n_layers"] = 1
    (tmp_path / "cut.json").write_text(json.dumps(options))
    elmo = elmokit.load(STANDARD.source, options=tmp_path / "cut.json")
    assert (elmo.layers, elmo.config.lstm.layers) == (2, 1)
    expected = STANDARD.arrays()
    for number, layers in enumerate(elmo.encode(STANDARD.sentences(), layers="all")):
        assert_close(layers, expected[f"layers_{number}"][:2])


def test_hdf5_one_layer_has_two_spellings_of_the_same_model():
    odd, renamed = golden("bilm-hdf5/one-layer"), golden("bilm-hdf5/one-layer-renamed")
    assert_same_model(odd.load(), renamed.load(), odd.sentences())


@pytest.mark.parametrize("dtype", ["<f8", ">f4", "<f4"])
def test_hdf5_reads_other_floats_and_compressed_datasets(tmp_path, dtype):
    with (
        h5py.File(STANDARD.source / "weights.hdf5") as old,
        h5py.File(tmp_path / "weights.hdf5", "w") as new,
    ):

        def copy(name, item):
            if isinstance(item, h5py.Dataset):
                new.create_dataset(name, data=item[()], dtype=dtype, compression="gzip")

        old.visititems(copy)
    shutil.copy(STANDARD.source / "options.json", tmp_path)
    elmo = elmokit.load(tmp_path)
    assert_same_weights(elmo, STANDARD.load())


def test_hdf5_ignores_n_characters(tmp_path):
    options = json.loads((STANDARD.source / "options.json").read_text())
    for count in (261, 262, 5):
        options["char_cnn"]["n_characters"] = count
        (tmp_path / "options.json").write_text(json.dumps(options))
        elmo = elmokit.load(STANDARD.source, options=tmp_path / "options.json")
        assert elmo.config.characters.rows == 262


def test_hdf5_options_reach_the_config():
    config = golden("bilm-hdf5/tanh-m20").load().config
    assert config.characters.activation == "tanh"
    assert config.characters.max_characters == 20
    assert config.characters.filters == ((1, 4), (5, 9))
    assert (config.lstm.cell_clip, config.lstm.projection_clip) == (3, 3)
    assert config.lstm.residual
    assert not golden("bilm-hdf5/no-cnn-projection").load().config.lstm.residual


def test_word_level_vocabulary_line_maxtermid_takes_no_id():
    model = golden("bilm-hdf5/word")
    assert b"!!!MAXTERMID\n" in (model.source / "vocab.txt").read_bytes()
    vocabulary = model.load().vocabulary
    assert "!!!MAXTERMID" not in vocabulary.words
    assert vocabulary.words[:3] == ["<S>", "</S>", "<UNK>"]


# Token vectors and softmax in files of their own.


def test_token_vectors_give_the_same_layers():
    folder = GOLDEN / "allennlp"
    plain = elmokit.load(folder)
    cached = elmokit.load(
        folder,
        token_vectors=folder / "elmo_token_embeddings.hdf5",
        vocabulary=folder / "vocab_test.txt",
    )
    words = cached.vocabulary.words
    assert len(words) == 458
    outside = ["naïve", "東京", "zyzzyva"]
    assert not set(outside) & set(words)
    sentences = [words[20:40], [*words[40:45], *outside, *words[45:50]], outside]
    for ours, theirs in zip(
        cached.encode(sentences, layers="all"), plain.encode(sentences, layers="all"), strict=True
    ):
        assert_close(ours, theirs, atol=2e-6)


def test_token_vectors_are_used_instead_of_the_characters(tmp_path):
    folder = GOLDEN / "allennlp"
    with h5py.File(folder / "elmo_token_embeddings.hdf5") as file:
        table = file["embedding"][()]
    words = (folder / "vocab_test.txt").read_text(encoding="utf-8").splitlines()
    table[words.index("the")] = 7.0
    write_tensors_as_hdf5(tmp_path / "vectors.hdf5", {"embedding": table})
    elmo = elmokit.load(
        folder, token_vectors=tmp_path / "vectors.hdf5", vocabulary=folder / "vocab_test.txt"
    )
    np.testing.assert_array_equal(elmo.encode([["the"]], layers=0)[0], np.full((1, 32), 7.0))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda table: table[:-1], "457 token vectors for 458 words"),
        (lambda table: table[:, :-1], "embedding has shape"),
        (lambda table: table.astype(np.int32), "int32"),
    ],
)
def test_token_vectors_that_do_not_fit_are_refused(tmp_path, change, message):
    folder = GOLDEN / "allennlp"
    with h5py.File(folder / "elmo_token_embeddings.hdf5") as file:
        table = change(file["embedding"][()])
    path = write_tensors_as_hdf5(tmp_path / "vectors.hdf5", {"embedding": table})
    with pytest.raises(CheckpointError, match=message) as caught:
        elmokit.load(folder, token_vectors=path, vocabulary=folder / "vocab_test.txt")
    assert str(path) in str(caught.value)


def test_softmax_joins_from_a_file_of_its_own(tmp_path):
    whole = TF_STANDARD.load()
    weights = weights_of(whole)
    path = write_tensors_as_hdf5(
        tmp_path / "softmax_weights.hdf5",
        {
            "softmax/W": weights["softmax.weight"].numpy(),
            "softmax/b": weights["softmax.bias"].numpy(),
        },
    )
    joined = STANDARD.load(softmax=path)
    assert_same_model(joined, whole, STANDARD.sentences())


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"softmax/W": (42, 8), "softmax/b": (41,)}, r"softmax/W has shape \(42, 8\)"),
        ({"softmax/W": (42, 9), "softmax/b": (42,)}, r"softmax/W has shape \(42, 9\)"),
        ({"softmax/W": (42, 8)}, "softmax/b is missing"),
        ({"softmax/b": (42,)}, "no dataset softmax/W"),
        ({"softmax/W": (41, 8), "softmax/b": (41,)}, "vocabulary has 42 words, the softmax 41"),
    ],
)
def test_softmax_that_does_not_fit_is_refused(tmp_path, tensors, message):
    arrays = {name: np.zeros(shape, np.float32) for name, shape in tensors.items()}
    path = write_tensors_as_hdf5(tmp_path / "softmax.hdf5", arrays)
    with pytest.raises(CheckpointError, match=message):
        STANDARD.load(softmax=path)


@pytest.mark.parametrize("argument", ["softmax", "token_vectors", "options", "vocabulary"])
def test_missing_extra_file_is_named(tmp_path, argument):
    path = tmp_path / "missing.file"
    with pytest.raises(CheckpointError, match=r"missing\.file"):
        STANDARD.load(**{argument: path})


def test_softmax_can_be_left_out():
    bare = TF_STANDARD.load(softmax=False)
    assert bare.config.softmax is None
    assert not [name for name in weights_of(bare) if name.startswith("softmax")]
    assert_same_vectors(bare, TF_STANDARD.load(), TF_STANDARD.sentences())


@pytest.mark.parametrize("storage", ["float32", "int8", "int4"])
def test_softmax_of_a_native_folder_can_be_left_out(tmp_path, storage):
    elmokit.load("nano-en").save(tmp_path / "model", storage=storage)
    for source in (tmp_path / "model", tmp_path / "model" / "model.safetensors"):
        bare = elmokit.load(source, softmax=False)
        assert bare.config.softmax is None
        assert not [name for name in weights_of(bare) if name.startswith("softmax")]
        assert_same_vectors(bare, elmokit.load(source), [["a", "bank"], ["the"]])


# TensorFlow checkpoints.


@pytest.mark.parametrize("ending", ["", ".index"])
@pytest.mark.parametrize("name", ["standard", "unidirectional"])
def test_tf_prefix_and_index_file_equal_the_folder(name, ending):
    model = golden(f"tf-checkpoint/{name}")
    elmo = elmokit.load(str(model.source / "model.ckpt-12") + ending)
    assert_same_model(elmo, model.load(), model.sentences())


def test_tf_unidirectional_has_one_direction():
    elmo = golden("tf-checkpoint/unidirectional").load()
    assert not elmo.config.lstm.backward
    assert elmo.dim == elmo.config.lstm.width
    assert not [name for name in weights_of(elmo) if "backward" in name]


@pytest.mark.parametrize(
    "name", ["standard", "one-layer", "no-projection", "no-cnn-projection", "word", "tanh-m20"]
)
def test_tf_checkpoint_and_its_hdf5_export_hold_the_same_weights(name):
    checkpoint = golden(f"tf-checkpoint/{name}").load(softmax=False)
    export = golden(f"bilm-hdf5/{name}").load()
    assert checkpoint.config == export.config
    assert_same_weights(checkpoint, export)


@pytest.mark.parametrize("model", TF_CHECKPOINTS, ids=by_name)
def test_tf_softmax_weights_are_those_of_the_file(model):
    elmo = model.load()
    bundle = TensorBundle(model.source / "model.ckpt-12")
    weights = weights_of(elmo)
    np.testing.assert_array_equal(weights["softmax.bias"], bundle.read("lm/softmax/b"))
    assert len(elmo.vocabulary) == elmo.config.softmax.words == len(weights["softmax.bias"])
    tied = "lm/softmax/W" not in bundle.names()
    assert tied == elmo.config.softmax.tied == (model.source.name == "word-tied")
    if not tied:
        np.testing.assert_array_equal(weights["softmax.weight"], bundle.read("lm/softmax/W"))


@pytest.mark.parametrize("model", TF_CHECKPOINTS, ids=by_name)
def test_tf_softmax_gives_the_log_probabilities_of_the_original_software(model):
    elmo = model.load()
    expected = model.arrays()
    width = elmo.config.lstm.width
    tables = weights_of(elmo)
    matrix = tables["encoder.words.embedding" if elmo.config.softmax.tied else "softmax.weight"]
    for number, sentence in enumerate(model.sentences()):
        # Markers as ordinary neighbours, so that their own outputs can be seen as well.
        tokens, packing, _ = elmo.embed_tokens([sentence])
        *_, top = elmo.bilm(tokens, packing, elmo.bilm.zero_states(1))
        scores = top.vectors.reshape(-1, width) @ matrix.T + tables["softmax.bias"]
        logp = torch.log_softmax(scores, dim=1)
        logp = logp.reshape(len(sentence) + 2, -1, logp.shape[1])  # position, direction, word
        ids = [elmo.vocabulary.id(word) for word in ["<S>", *sentence, "</S>"]]
        forward = [float(logp[t - 1, 0, ids[t]]) for t in range(1, len(ids))]
        assert_close(np.float32(forward), expected[f"forward_logp_{number}"], atol=2e-5)
        if elmo.config.lstm.backward:
            backward = [
                float(logp[position + 1, 1, ids[position]]) for position in range(len(ids) - 1)
            ]
            assert_close(np.float32(backward), expected[f"backward_logp_{number}"], atol=2e-5)
        else:
            assert f"backward_logp_{number}" not in expected


# TF-Hub modules.


@pytest.mark.parametrize("model", TF_HUB, ids=by_name)
def test_tf_hub_outputs_equal_those_of_the_module(model):
    elmo = model.load()
    expected = model.arrays()
    half = elmo.config.lstm.width
    compared = 0
    for number, sentence in enumerate(model.sentences()):
        if SENTENCE_MARKERS & set(sentence):
            continue  # a module takes the literal markers for ordinary words
        layers = elmo.encode([sentence], layers="all")[0]
        mixed = elmo.encode([sentence], layers="mix")[0]
        mean = elmo.encode([sentence], layers="mix", pool="mean")[0]
        assert_close(layers[0, :, :half], expected[f"word_emb_{number}"])
        assert_close(layers[0, :, half:], expected[f"word_emb_{number}"])
        assert_close(layers[1], expected[f"lstm_outputs1_{number}"])
        assert_close(layers[2], expected[f"lstm_outputs2_{number}"])
        assert_close(mixed, expected[f"elmo_{number}"])
        # DeepPavlov's exporter leaves the scale out of this one output.
        scale = float(elmo.mixes[0].gamma) if model.source.name == "deeppavlov" else 1.0
        assert_close(mean / np.float32(scale), expected[f"default_{number}"])
        compared += 1
    assert compared == 4


def test_tf_hub_mix_is_the_stored_one():
    for model in TF_HUB:
        (mix,) = model.load().mixes
        np.testing.assert_array_equal(mix.weights.numpy(), np.float32([0.7, -0.4, 1.1]))
        assert float(mix.gamma) == 1.75
        assert mix.gamma.shape == ()


def test_tf_hub_weights_equal_the_hdf5_they_were_made_from():
    for model in TF_HUB:
        assert_same_weights(model.load(), STANDARD.load(), but=frozenset({"mixes."}))


# AllenNLP.


@pytest.mark.parametrize("model", ALLENNLP, ids=by_name)
def test_allennlp_mixes_equal_those_of_the_original_software(model):
    elmo = model.load()
    expected = model.arrays()
    assert len(elmo.mixes) == len({name.partition("_")[0] for name in expected}) - 1
    for k, mix in enumerate(elmo.mixes):
        for number, vectors in enumerate(elmo.encode(model.sentences(), layers=mix)):
            assert_close(vectors, expected[f"mix{k}_{number}"])
    first = elmo.encode(model.sentences(), layers="mix")
    for number, vectors in enumerate(first):
        assert_close(vectors, expected[f"mix0_{number}"])


def test_allennlp_archive_takes_the_trained_weights_not_the_archived_file():
    trained, start = ALLENNLP[0].load(), STANDARD.load()
    ours, theirs = weights_of(trained), weights_of(start)
    for name, tensor in theirs.items():
        if not name.endswith(".bias") or "lstm" not in name:  # forget bias inside or outside
            assert not torch.equal(ours[name], tensor), name


def test_allennlp_published_tagger_equals_its_fixture():
    tagger = elmokit.load(GOLDEN / "allennlp/simple_tagger_with_elmo/model.tar.gz")
    fixture = elmokit.load(GOLDEN / "allennlp")
    sentences = [["The", "cat", "sat", "."], ["naïve", "x" * 70]]
    for ours, theirs in zip(
        tagger.encode(sentences, layers="all"), fixture.encode(sentences, layers="all"), strict=True
    ):
        assert_close(ours, theirs, atol=3e-6)


def test_allennlp_unpacked_folder_and_bare_weights_equal_the_archive(tmp_path):
    model = ALLENNLP[0]
    with tarfile.open(model.source) as archive:
        archive.extractall(tmp_path, filter="data")
    for source in (tmp_path, tmp_path / "weights.th"):
        assert_same_model(elmokit.load(source), model.load(), model.sentences())


@pytest.mark.parametrize("layer_norm", [True, False])
def test_allennlp_layer_norm_comes_from_the_settings(tmp_path, layer_norm):
    with tarfile.open(ALLENNLP[0].source) as archive:
        archive.extractall(tmp_path, filter="data")
    settings = {"model": {"embedders": [{"elmo": {"do_layer_norm": layer_norm}}]}}
    (tmp_path / "config.json").write_text(json.dumps(settings))
    assert elmokit.load(tmp_path).config.mix.layer_norm is layer_norm


def test_allennlp_zip_based_torch_file_equals_the_old_kind(tmp_path):
    model = ALLENNLP[2]
    tensors = torch.load(model.source, weights_only=True)
    torch.save(tensors, tmp_path / "weights.th")
    assert zipfile.is_zipfile(tmp_path / "weights.th")
    assert_same_model(elmokit.load(tmp_path / "weights.th"), model.load(), model.sentences())


# ELMoForManyLangs.


@pytest.mark.parametrize("model", MANY_LANGS, ids=by_name)
def test_many_langs_markers_are_its_own(model):
    elmo = model.load()
    text = elmo.config.text
    assert (text.begin, text.end, text.unknown) == ("<bos>", "<eos>", "<oov>")
    assert elmo.config.characters.swapped_markers
    assert elmo.config.lstm.forget_bias == 0.0


def test_many_langs_dictionaries_are_read_by_bytes():
    folder = GOLDEN / "many-langs-traps"
    checkpoint = golden("many-langs-traps").load().checkpoint()
    for name, words in (
        ("char.dic", checkpoint.symbols),
        ("word.dic", checkpoint.vocabulary.words),
    ):
        lines = (folder / name).read_bytes().decode("utf-8").removesuffix("\n").split("\n")
        assert len(lines) == len(words)
        for line in lines:
            symbol, _, number = line.rpartition("\t")
            assert words[int(number)] == symbol
    separators = {"\u2028", "\u0085", "\t", "\r", "\u00a0", "\u3000"} & set(checkpoint.symbols)
    assert {"\u2028", "\u0085", "\t", "\r"} <= separators


def test_many_langs_sizes_come_from_the_tensors_and_the_rest_from_the_architecture_file():
    plain = golden("many-langs/released").load().config
    assert (plain.lstm.cell_clip, plain.lstm.projection_clip) == (3, 3)
    assert (plain.characters.max_characters, plain.characters.activation) == (50, "relu")
    given = golden("many-langs/with-config").load().config
    assert (given.lstm.cell_clip, given.lstm.projection_clip) == (2, 1.5)
    assert (given.characters.max_characters, given.characters.activation) == (20, "tanh")
    assert (given.characters.highways, plain.characters.highways) == (1, 2)
    assert golden("many-langs/characters-only").load().config.words is None


def test_many_langs_without_any_json_uses_the_released_settings(tmp_path):
    model = golden("many-langs/released")
    for name in ("char.dic", "word.dic", "encoder.pkl", "token_embedder.pkl"):
        shutil.copy(model.source / name, tmp_path)
    assert_same_model(elmokit.load(tmp_path), model.load(), model.sentences())


# Archives.


def as_tar(folder: Path, path: Path, inside: str) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for file in sorted(folder.rglob("*")):
            archive.add(file, f"{inside}{file.relative_to(folder)}", recursive=False)
    return path


def as_zip(folder: Path, path: Path, inside: str) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(folder.rglob("*")):
            archive.write(file, f"{inside}{file.relative_to(folder)}")
    return path


@pytest.mark.parametrize("inside", ["", "./", "model/", "a/b/"])
@pytest.mark.parametrize("archive", [as_tar, as_zip])
@pytest.mark.parametrize(
    "name", ["tf-checkpoint/standard", "tf-hub/google", "bilm-hdf5/word", "many-langs/released"]
)
def test_archive_equals_the_folder_inside(tmp_path, name, archive, inside):
    model = golden(name)
    if archive is as_zip and inside == "./":
        inside = "model with spaces/"
    path = archive(model.source, tmp_path / "archived.bin", inside)
    elmo = elmokit.load(path)
    assert elmo.source == str(path)
    assert_same_model(elmo, model.load(), model.sentences()[:2])


@pytest.mark.parametrize("compression", ["", "bz2", "xz"])
def test_archive_may_be_compressed_otherwise_or_not_at_all(tmp_path, compression):
    path = tmp_path / "model.tar"
    with tarfile.open(path, f"w:{compression}") as archive:
        archive.add(STANDARD.source, "standard")
    assert_same_model(elmokit.load(path), STANDARD.load(), STANDARD.sentences()[:1])


def test_archive_of_a_native_model_outlives_the_archive(tmp_path):
    elmo = STANDARD.load()
    elmo.save(tmp_path / "model")
    path = as_zip(tmp_path / "model", tmp_path / "model.zip", "")
    archived = elmokit.load(path)
    path.unlink()
    assert archived.kind == "elmokit"
    assert_same_model(archived, elmo, STANDARD.sentences())


def test_hdf5_models_share_one_reader():
    assert {model.load().kind for model in HDF5} == {"bilm-tf HDF5"}
