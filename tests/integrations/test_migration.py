"""The old interfaces, against what the old programs computed."""

import gzip
import json
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

import elmokit
from elmokit.errors import CheckpointError, ConfigError, DataError
from elmokit.integrations.migration import allennlp, embedders, seqvec

GOLDEN = Path(__file__).parents[1] / "golden"
PUBLISHED = {"rtol": 1e-5, "atol": 1e-6}
MADE = {"rtol": 1e-5, "atol": 1e-5}
STANDARD = GOLDEN / "bilm-hdf5" / "standard"
TOP_ONLY = [-9e10, -9e10, 1.0]
"""Before a softmax: AllenNLP's own tests take the top layer by these."""


def files(golden) -> tuple[Path, Path]:
    return golden.folder / "options.json", golden.folder / "lm_weights.hdf5"


def expected_of(path: Path) -> tuple[list[list[str]], dict[str, np.ndarray]]:
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    return json.loads(str(arrays.pop("tokens_json"))), arrays


# AllenNLP


def test_batch_to_ids_gives_character_ids():
    ids = allennlp.batch_to_ids([["ab", "é", "x" * 60], ["<S>"]])
    assert ids.shape == (2, 3, 50)
    assert ids.dtype == torch.long
    assert ids[0, 0].tolist() == [259, 98, 99, 260, *[261] * 46]
    assert ids[0, 1].tolist() == [259, 0xC3 + 1, 0xA9 + 1, 260, *[261] * 46]
    assert ids[0, 2].tolist() == [259, *[ord("x") + 1] * 48, 260]
    assert ids[1, 0].tolist() == [259, 257, 260, *[261] * 47]
    assert not ids[1, 1:].any()


def test_elmo_embedder_without_files_is_the_original_model(tmp_path, monkeypatch):
    monkeypatch.setenv("ELMOKIT_CACHE", str(tmp_path))
    monkeypatch.setenv("ELMOKIT_OFFLINE", "1")
    with pytest.raises(CheckpointError, match="original: not in the cache"):
        allennlp.ElmoEmbedder()
    shutil.copytree(STANDARD, tmp_path / "allennlp-original")
    by_files = allennlp.ElmoEmbedder(STANDARD / "options.json", STANDARD / "weights.hdf5")
    for embedder in (allennlp.ElmoEmbedder(), allennlp.ElmoEmbedder(weight_file="original")):
        want = by_files.elmo.encode([["the", "bank"]])[0]
        np.testing.assert_array_equal(embedder.elmo.encode([["the", "bank"]])[0], want)


def test_elmo_embedder_carries_state_between_batches(golden):
    embedder = allennlp.ElmoEmbedder(*files(golden))
    for _ in range(2):
        for batch, expected in zip(golden.batches, golden.expected, strict=True):
            for layers, want in zip(embedder.embed_batch(batch), expected, strict=True):
                np.testing.assert_allclose(layers[-1], want, **PUBLISHED)
        embedder.reset_states()


def test_elmo_embedder_streams_in_batches(golden):
    embedder = allennlp.ElmoEmbedder(*files(golden))
    sentences = (sentence for batch in golden.batches for sentence in batch)
    vectors = embedder.embed_sentences(sentences, batch_size=3)
    wanted = [want for expected in golden.expected for want in expected]
    for layers, want in zip(vectors, wanted, strict=True):
        np.testing.assert_allclose(layers[-1], want, **PUBLISHED)


def test_elmo_embedder_pads_a_batch(allennlp_golden, embedder):
    batch = [*allennlp_golden.batches[0], []]
    vectors, mask = embedder.batch_to_embeddings(batch)
    assert mask.sum(dim=1).tolist() == [len(sentence) for sentence in batch]
    assert vectors.shape == (4, 3, mask.shape[1], 32)
    assert not vectors.transpose(1, 2)[~mask].any()
    for row, want in zip(vectors, allennlp_golden.expected[0], strict=False):
        np.testing.assert_allclose(row[-1, : len(want)].numpy(), want, **PUBLISHED)


def test_elmo_embedder_sentences_without_tokens(allennlp_golden, embedder):
    assert embedder.embed_sentence([]).shape == (3, 0, 32)
    first = embedder.embed_sentence(allennlp_golden.batches[0][0])  # from a zero initial state
    np.testing.assert_allclose(first[-1], allennlp_golden.expected[0][0], **PUBLISHED)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("all", {}),
        ("average", {"output_format": "average"}),
        ("top", {"output_format": "top", "forget_sentences": True}),
        ("sentence-keys", {"output_format": "average", "use_sentence_keys": True}),
    ],
)
def test_embed_file_writes_what_allennlp_wrote(name, options, tmp_path):
    folder, out = GOLDEN / "allennlp-dump", tmp_path / "out.dump"
    embedder = allennlp.ElmoEmbedder(STANDARD / "options.json", STANDARD / "weights.hdf5")
    lines = (folder / "sentences.txt").read_text("utf-8").splitlines(keepends=True)
    embedder.embed_file(lines[2:] if name == "sentence-keys" else lines, out, **options)
    with h5py.File(out) as ours, h5py.File(folder / f"{name}.hdf5") as theirs:
        assert set(ours) == set(theirs)
        for key in theirs:
            if key == "sentence_to_index":
                assert json.loads(ours[key][0]) == json.loads(theirs[key][0])
            else:
                assert ours[key].dtype == theirs[key].dtype
                np.testing.assert_allclose(ours[key][()], theirs[key][()], **MADE)


def test_embed_file_refuses_what_allennlp_refused(embedder, tmp_path):
    for lines, options, message in (
        (["a\n", " \n"], {}, "line 2 is blank"),
        (["a\n", "a\n"], {"use_sentence_keys": True}, "two lines are the same"),
    ):
        with pytest.raises(DataError, match=message):
            embedder.embed_file(lines, tmp_path / "out.h5", **options)
    with pytest.raises(ConfigError, match="output_format='mean'"):
        embedder.embed_file(["a"], tmp_path / "out.h5", "mean")
    assert list(tmp_path.iterdir()) == []


def test_elmo_module_carries_state_between_batches(golden):
    elmo = allennlp.Elmo(*files(golden), 2, dropout=0.0, scalar_mix_parameters=TOP_ONLY)
    for batch, expected in zip(golden.batches, golden.expected, strict=True):
        output = elmo(allennlp.batch_to_ids(batch))
        first, second = output["elmo_representations"]
        torch.testing.assert_close(first, second)
        assert output["mask"].sum(dim=1).tolist() == [len(sentence) for sentence in batch]
        assert not first[~output["mask"]].any()
        for row, want in zip(first, expected, strict=True):
            np.testing.assert_allclose(row[: len(want)].detach().numpy(), want, **PUBLISHED)
    elmo.reset_states()
    again = elmo(allennlp.batch_to_ids(golden.batches[0]))["elmo_representations"][0]
    want = golden.expected[0][0]
    np.testing.assert_allclose(again[0, : len(want)].detach().numpy(), want, **PUBLISHED)


@pytest.mark.parametrize(("name", "norm"), [("plain", False), ("layer_norm", True)])
def test_elmo_module_mixes_as_allennlp(allennlp_golden, name, norm):
    sentences, arrays = expected_of(allennlp_golden.folder / "layer_norm.npz")
    elmo = allennlp.Elmo(*files(allennlp_golden), 1, do_layer_norm=norm, dropout=0.0)
    with torch.no_grad():
        elmo.scalar_mixes[0].weights.copy_(torch.from_numpy(arrays["scalar_parameters"]))
        elmo.scalar_mixes[0].gamma.fill_(float(arrays["gamma"]))
        output = elmo(allennlp.batch_to_ids(sentences))
    np.testing.assert_array_equal(output["mask"].numpy(), arrays["mask"].astype(bool))
    np.testing.assert_allclose(output["elmo_representations"][0].numpy(), arrays[name], **MADE)


def test_elmo_module_learns_across_batches(allennlp_golden):
    torch.manual_seed(0)
    elmo = allennlp.Elmo(*files(allennlp_golden), 1, requires_grad=True)
    for batch in allennlp_golden.batches[:2]:  # no gradient from the second into the first
        elmo.zero_grad()
        elmo(allennlp.batch_to_ids(batch))["elmo_representations"][0].sum().backward()
        assert all(parameter.grad is not None for parameter in elmo.parameters())
    frozen = allennlp.Elmo(*files(allennlp_golden), 1)
    frozen(allennlp.batch_to_ids(batch))["elmo_representations"][0].sum().backward()
    learning = [name for name, value in frozen.named_parameters() if value.grad is not None]
    assert learning == ["scalar_mixes.0.weights", "scalar_mixes.0.gamma"]


def test_elmo_module_shapes(allennlp_golden):
    elmo = allennlp.Elmo(*files(allennlp_golden), 1, keep_sentence_boundaries=True).eval()
    ids = allennlp.batch_to_ids([["a"], ["b", "c"]])
    output = elmo(ids)
    assert elmo.get_output_dim() == 32
    assert output["elmo_representations"][0].shape == (2, 4, 32)
    assert output["mask"].tolist() == [[True] * 3 + [False], [True] * 4]
    elmo.keep_sentence_boundaries = False
    output = elmo(ids.reshape(1, 2, 2, 50))
    assert output["elmo_representations"][0].shape == (1, 2, 2, 32)
    assert output["mask"].shape == (1, 2, 2)


def test_elmo_module_is_for_byte_models():
    word = GOLDEN / "bilm-hdf5" / "word"
    with pytest.raises(ConfigError, match="read bytes"):
        allennlp.Elmo(word / "options.json", word / "weights.hdf5", 1)


@pytest.fixture
def embedder(allennlp_golden) -> allennlp.ElmoEmbedder:
    return allennlp.ElmoEmbedder(*files(allennlp_golden))


@pytest.fixture
def allennlp_golden(request):
    """The fixture ``allennlp`` under a name that the module does not have."""
    return request.getfixturevalue("allennlp")


# simple_elmo


@pytest.mark.parametrize("source", ["model.zip", "folder"])
def test_simple_elmo_gives_its_vectors(source):
    sentences, arrays = expected_of(GOLDEN / "nlpl" / "expected.npz")
    model = embedders.ElmoModel()
    model.load(str(GOLDEN / "nlpl" / source))
    assert (model.vector_size, model.n_layers) == (16, 3)
    for i, sentence in enumerate(
        sentences
    ):  # every call starts from a zero initial state, as the original's
        vectors = model.get_elmo_vectors([sentence], warmup=False, layers="all")
        np.testing.assert_allclose(vectors[0], arrays[f"layers_{i}"], **MADE)


def test_simple_elmo_carries_state_inside_a_call(golden):
    model = embedders.ElmoModel()
    options, weights = files(golden)
    model.load(options_file=options, weight_file=weights, max_batch_size=3)
    texts = [sentence for batch in golden.batches for sentence in batch]
    vectors = model.get_elmo_vectors(texts, warmup=False, layers="top")
    assert vectors.shape == (30, max(map(len, texts)), 32)
    wanted = [want for expected in golden.expected for want in expected]
    for row, want in zip(vectors, wanted, strict=True):
        np.testing.assert_allclose(row[: len(want)], want, **PUBLISHED)
        assert not row[len(want) :].any()


def test_simple_elmo_warms_up_on_the_first_batch(golden):
    model = embedders.ElmoModel()
    model.load(golden.folder, max_batch_size=3)
    first, second = golden.batches[:2]
    warm = model.get_elmo_vectors([*first, *second], layers="top")
    cold = model.get_elmo_vectors([*first, *first, *second], warmup=False, layers="top")
    np.testing.assert_allclose(warm, cold[3:, : warm.shape[1]], **PUBLISHED)
    assert np.abs(warm[:3] - cold[:3, : warm.shape[1]]).max() > 0.01


@pytest.mark.parametrize("layers", ["average", "top", "all"])
def test_simple_elmo_averages_real_tokens(golden, layers):
    model = embedders.ElmoModel()
    model.load(golden.folder)
    texts = [["the", "bank"], ["a"], []]
    averages = model.get_elmo_vector_average(texts, warmup=False, layers=layers)
    vectors = model.get_elmo_vectors(texts, warmup=False, layers=layers)
    for row, part, tokens in zip(averages, vectors, texts, strict=True):
        if not tokens:
            assert not row.any()
            continue
        mean = part[..., : len(tokens), :].mean(axis=-2)
        np.testing.assert_allclose(row, mean / np.linalg.norm(mean), **MADE)


def test_simple_elmo_substitutes():
    source = GOLDEN / "tf-checkpoint" / "standard"
    sentences, arrays = expected_of(source / "expected.npz")
    model = embedders.ElmoModel()
    model.load(source, full=True)
    words = model.elmo.vocabulary.words
    found = model.get_elmo_substitutes(sentences[:1], topn=len(words))
    assert [entry["word"] for entry in found[0]] == sentences[0]
    # The original program's log-probabilities of the words at these positions.
    compared = 0
    for direction, offset in (("forward", 0), ("backward", 1)):
        for position, (word, entry) in enumerate(zip(sentences[0], found[0], strict=True)):
            part = entry[direction]
            assert part["logp"] == sorted(part["logp"], reverse=True)
            assert [words[i] for i in part["candidates"]] == part["candidate_words"]
            if word in part["candidate_words"]:
                logp = part["logp"][part["candidate_words"].index(word)]
                want = arrays[f"{direction}_logp_0"][position + offset]
                assert logp == pytest.approx(want, abs=1e-3)
                compared += 1
    assert compared > 4
    assert len(model.get_elmo_substitutes(sentences[:1])[0][0]["forward"]["logp"]) == 3


def test_simple_elmo_rejects_bad_arguments():
    model = embedders.ElmoModel()
    with pytest.raises(ConfigError, match="load"):
        model.get_elmo_vectors([["a"]])
    with pytest.raises(ConfigError, match="folder or zip"):
        model.load()
    model.load(STANDARD)
    with pytest.raises(ConfigError, match="layers='mean'"):
        model.get_elmo_vectors([["a"]], layers="mean")


# ELMoForManyLangs


@pytest.mark.parametrize("name", ["released", "with-config", "characters-only"])
def test_many_langs_gives_its_vectors(name):
    folder = GOLDEN / "many-langs" / name
    sentences, arrays = expected_of(folder / "expected.npz")
    embedder = embedders.Embedder(str(folder))
    expected = [arrays[f"layers_{i}"] for i in range(len(sentences))]
    for layer, reduce in (
        (-2, lambda layers: layers),
        (-1, lambda layers: layers.mean(axis=0)),
        (0, lambda layers: layers[0]),
        (2, lambda layers: layers[2]),
    ):
        for ours, want in zip(embedder.sents2elmo(sentences, layer), expected, strict=True):
            np.testing.assert_allclose(ours, reduce(want), **MADE)
    with pytest.raises(ConfigError, match="output_layer=3"):
        embedder.sents2elmo(sentences, 3)


# TF-Hub


@pytest.mark.parametrize("name", ["google", "deeppavlov"])
def test_tf_hub_gives_its_outputs(name):
    sentences, arrays = expected_of(GOLDEN / "tf-hub" / name / "expected.npz")
    # A module reads the literal markers as words (see docs/models.md); DeepPavlov's pooled output
    # leaves out the scale of the mix.
    sentences = [tokens for tokens in sentences if "<S>" not in tokens]
    names = ["word_emb", "lstm_outputs1", "lstm_outputs2", "elmo", "default"]
    names = names[: -1 if name == "deeppavlov" else None]
    module = embedders.Module(GOLDEN / "tf-hub" / name)
    lengths = [len(tokens) for tokens in sentences]
    padded = [tokens + [""] * (max(lengths) - len(tokens)) for tokens in sentences]
    for outputs in (
        module([" ".join(tokens) for tokens in sentences], as_dict=True),
        embedders.load(GOLDEN / "tf-hub" / name).signatures["default"](
            ["  ".join(tokens) for tokens in sentences]
        ),
        module({"tokens": padded, "sequence_len": lengths}, signature="tokens", as_dict=True),
    ):
        assert set(names) <= set(outputs)
        for key in names:
            for i, length in enumerate(lengths):
                ours, want = outputs[key][i], arrays[f"{key}_{i}"]
                if key != "default":
                    assert not ours[length:].any()
                    ours = ours[:length]
                np.testing.assert_allclose(ours, want, **MADE)


def test_tf_hub_default_output_and_errors():
    module = embedders.Module(STANDARD)  # no mix is stored there: the plain average
    text = "the cat sat"
    want = elmokit.load(STANDARD).encode(text, pool="mean")
    np.testing.assert_allclose(module([text, ""]), [want, np.zeros(16)], **MADE)
    with pytest.raises(DataError, match="list of texts"):
        module("the cat")
    with pytest.raises(ConfigError, match="signature='words'"):
        module(["a"], signature="words")
    with pytest.raises(DataError, match="2 rows of tokens, but 1 lengths"):
        module({"tokens": [["a"], ["b"]], "sequence_len": [1]}, signature="tokens")


# SeqVec

FASTA = ">sp|P1|one\nSEQW\nence\n>sp|P2|two\nPR OT\n\n>sp|P3|three\nMSEQWENCEMSEQWENCE\n"
PROTEINS = {"P1": "SEQWENCE", "P2": "PROT", "P3": "MSEQWENCEMSEQWENCE"}


@pytest.fixture
def seqvec_model(tmp_path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    for name in ("weights.hdf5", "options.json"):
        (folder / name).write_bytes((STANDARD / name).read_bytes())
    return folder


def old_vectors(batches: list[list[str]]) -> dict[str, np.ndarray]:
    """Batches of names as the original runs them, shortest first: all layers."""
    embedder = allennlp.ElmoEmbedder(STANDARD / "options.json", STANDARD / "weights.hdf5")
    return {
        name: layers
        for batch in batches
        for name, layers in zip(
            batch, embedder.embed_batch([list(PROTEINS[name]) for name in batch]), strict=True
        )
    }


def test_seqvec_writes_hdf5(seqvec_model, tmp_path, capsys):
    source, out = tmp_path / "seqs.fasta", tmp_path / "out.h5"
    source.write_text(FASTA)
    command = ["-i", str(source), "-o", str(out), "--model", str(seqvec_model), "--cpu"]
    assert seqvec.main(command) == 0
    assert "3 sequences" in capsys.readouterr().err
    with h5py.File(out) as file:
        assert set(file) == set(PROTEINS)
        for name, layers in old_vectors([["P2", "P1", "P3"]]).items():
            np.testing.assert_allclose(file[name][()], layers.sum(axis=0), **MADE)


@pytest.mark.parametrize("layer", ["all", "CNN", "LSTM1", "LSTM2"])
def test_seqvec_carries_state_between_batches(seqvec_model, tmp_path, layer):
    with gzip.open(tmp_path / "seqs.fasta.gz", "wt") as file:
        file.write(FASTA)
    out = tmp_path / "out.npz"
    command = ["-i", tmp_path, "-o", out, "--model", seqvec_model, "--cpu", "--silent"]
    # More than 11 residues end a batch, and so does one sequence of more than 5.5.
    assert seqvec.main([*map(str, command), "--layer", layer, "--batchsize", "11"]) == 0
    with np.load(out) as file:
        for name, layers in old_vectors([["P2", "P1"], ["P3"]]).items():
            number = {"CNN": 0, "LSTM1": 1, "LSTM2": 2}.get(layer)
            want = np.concatenate(list(layers), axis=1) if number is None else layers[number]
            np.testing.assert_allclose(file[name], want, **MADE)


def test_seqvec_averages_proteins(seqvec_model, tmp_path):
    source, out = tmp_path / "seqs.fasta", tmp_path / "out.npy"
    source.write_text(FASTA)
    command = ["-i", source, "-o", out, "--model", seqvec_model, "--cpu", "--protein"]
    assert seqvec.main([*map(str, command), "--id", "-1"]) == 0
    names = json.loads(out.with_suffix(".json").read_text())
    assert names == ["sp|P2|two", "sp|P1|one", "sp|P3|three"]
    wanted = old_vectors([["P2", "P1", "P3"]]).values()
    for row, layers in zip(np.load(out), wanted, strict=True):
        np.testing.assert_allclose(row, layers.sum(axis=0).mean(axis=0), **MADE)


@pytest.mark.parametrize(
    ("text", "out", "options", "message"),
    [
        (FASTA, "out.npy", [], "add --protein"),
        (FASTA, "out.txt", [], "must end in"),
        (FASTA, "out.h5", ["--id", "5"], "no field 5"),
        ("SEQ\n", "out.h5", [], "line 1: a header"),
        ("", "out.h5", [], "no sequence found"),
        (FASTA, "out.h5", ["--model", "none"], "none"),
        (FASTA, "out.h5", ["-i", "none.fasta"], "none.fasta: no such file"),
    ],
)
def test_seqvec_rejects_bad_input(seqvec_model, tmp_path, capsys, text, out, options, message):
    (tmp_path / "seqs.fasta").write_text(text)
    command = ["-i", tmp_path / "seqs.fasta", "-o", tmp_path / out, "--model", seqvec_model]
    assert seqvec.main([*map(str, command), "--cpu", *options]) == 1
    error = capsys.readouterr().err
    assert error.startswith("seqvec: error: ")
    assert message in error
    assert not (tmp_path / out).exists()
