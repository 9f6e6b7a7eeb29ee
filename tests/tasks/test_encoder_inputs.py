"""Encoders of Hugging Face as inputs of tasks, alone and beside ELMo."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from small_tasks import sentences, settings, texts

import elmokit
from elmokit.errors import CheckpointError, ConfigError
from elmokit.tasks.inputs.encoders import EncoderLayers
from elmokit.tasks.inputs.references import as_layers, is_encoder

transformers = pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")
tiny_bert = pytest.importorskip("tiny_bert")
bert, SIZES = tiny_bert.bert, tiny_bert.SIZES

BATCH = [
    ("the", "film", "was", "unbelievable"),
    (),
    ("Zoe", "saw", "New", "York", "!"),
    ("\u200b\u0301", "xyzzy"),
]


def byte_tokenizer(*specials: str) -> tokenizers.Tokenizer:
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    words = {piece: i for i, piece in enumerate([*specials, *alphabet])}
    found = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=words, merges=[]))
    found.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=True)
    return found


def gpt2(folder: Path) -> None:
    backend = byte_tokenizer("<|endoftext|>")
    config = transformers.GPT2Config(
        vocab_size=backend.get_vocab_size(), n_positions=64, n_embd=16, n_layer=2, n_head=2
    )
    transformers.GPT2Model(config).save_pretrained(folder)
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token="<|endoftext|>"
    ).save_pretrained(folder)


def roberta(folder: Path) -> None:
    backend = byte_tokenizer("<s>", "<pad>", "</s>", "<unk>")
    around = [("<s>", 0), ("</s>", 2)]
    backend.post_processor = tokenizers.processors.TemplateProcessing("<s> $A </s>", None, around)
    config = transformers.RobertaConfig(
        vocab_size=backend.get_vocab_size(),
        intermediate_size=32,
        max_position_embeddings=30,
        **SIZES,
    )
    transformers.RobertaModel(config).save_pretrained(folder)
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token="<s>", eos_token="</s>", pad_token="<pad>"
    ).save_pretrained(folder)


def t5(folder: Path) -> None:
    backend = byte_tokenizer("<pad>", "</s>", "<unk>")
    config = transformers.T5Config(
        vocab_size=backend.get_vocab_size(), d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2
    )
    transformers.T5Model(config).save_pretrained(folder)
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token="</s>", pad_token="<pad>"
    ).save_pretrained(folder)


MAKERS = {maker.__name__: maker for maker in (bert, gpt2, roberta, t5)}


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> dict[str, Path]:
    """Tiny encoders with random weights."""
    found = {}
    for name, maker in MAKERS.items():
        found[name] = tmp_path_factory.mktemp(name)
        torch.manual_seed(1)
        maker(found[name])
    return found


def by_hand(folder: Path, tokens: tuple[str, ...]) -> np.ndarray:
    """The layers of one short sentence, by transformers' own word_ids: (L + 1, T, D)."""
    model = transformers.AutoModel.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    if model.config.is_encoder_decoder:
        model = model.get_encoder()
    batch = tokenizer(list(tokens), is_split_into_words=True, return_tensors="pt")
    with torch.no_grad():
        kept = {name: batch[name] for name in ("input_ids", "attention_mask")}
        states = torch.stack(model(**kept, output_hidden_states=True).hidden_states)[:, 0]
    words = batch.word_ids()
    rows = []
    for place in range(len(tokens)):
        own = [i for i, word in enumerate(words) if word == place]
        rows.append(states[:, own].mean(dim=1) if own else torch.zeros(states[:, 0].shape))
    return torch.stack(rows, dim=1).numpy()


@pytest.mark.parametrize("name", MAKERS)
def test_encoder_words_are_means_of_their_pieces(folders, name):
    source = as_layers(folders[name])
    assert isinstance(source, EncoderLayers)
    assert (source.layers, source.dim) == (3, 16)
    streamed = list(source.stream(BATCH))
    for tokens, layers in zip(BATCH, streamed, strict=True):
        assert layers.shape == (3, len(tokens), 16)
        if tokens and (len(tokens) < 4 or name in ("gpt2", "t5")):  # no more than its places
            expected = by_hand(folders[name], tokens)
            np.testing.assert_allclose(layers, expected, rtol=1e-4, atol=1e-5)
    flat = torch.stack(source.flat(BATCH, learn=False)).numpy()
    np.testing.assert_allclose(flat, np.concatenate(streamed, axis=1), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["bert", "roberta"])
def test_encoder_reads_long_sentences_in_pieces_between_words(folders, name):
    """12 and 30 positions hold 10 and 26 pieces of words."""
    source = as_layers(folders[name])
    words = ("film",) * 10 if name == "bert" else ("film",) * 5  # 5 bytes each with its space
    whole = next(iter(source.stream([words * 3])))
    np.testing.assert_allclose(whole[:, : len(words)], by_hand(folders[name], words), atol=1e-5)
    again = whole.reshape(3, 3, len(words), 16)
    np.testing.assert_allclose(again[:, 1], again[:, 0], atol=1e-5)
    np.testing.assert_allclose(again[:, 2], again[:, 0], atol=1e-5)
    (endless,) = source.stream([("unbelievable" * 20,)])
    assert np.isfinite(endless).all()


def test_encoder_folder_is_told_from_a_model_of_elmokit(folders, tmp_path):
    elmokit.load("test-tiny").save(tmp_path / "native")
    assert is_encoder(folders["bert"])
    assert not is_encoder(tmp_path / "native")
    assert not is_encoder(tmp_path)
    damaged = tmp_path / "damaged"
    shutil.copytree(folders["bert"], damaged)
    (damaged / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match="transformers cannot load"):
        as_layers(damaged)


def test_encoder_is_known_by_its_hash(folders, tmp_path):
    source = as_layers(folders["bert"])
    source.save(tmp_path / "copy")
    assert as_layers(tmp_path / "copy").fingerprint == source.fingerprint
    assert as_layers(folders["roberta"]).fingerprint != source.fingerprint
    other = as_layers(tmp_path / "copy")
    other.model.embeddings.word_embeddings.weight.data[7, 0] += 1
    other.save(tmp_path / "other")
    assert as_layers(tmp_path / "other").fingerprint != source.fingerprint


@pytest.mark.parametrize("name", ["bert", "gpt2"])
@pytest.mark.parametrize("task", ["classify", "tag"])
def test_encoder_is_the_input_of_a_task(folders, no_pictures, tmp_path, name, task):
    make = texts if task == "classify" else sentences
    config = settings(task, "run.epochs=2", "inputs.words=0")
    fitted = elmokit.tasks.fit(
        task, make(40), make(20, 1), elmo=folders[name], config=config, quiet=True
    )
    assert list(fitted.model.embedder.parts) == ["elmo"]
    fitted.save(tmp_path / "predictor")
    facts = json.loads((tmp_path / "predictor" / "predictor.json").read_text("utf-8"))
    assert facts["elmo"]["kind"] == "encoder"
    again = elmokit.tasks.load(tmp_path / "predictor")
    items = [example.tokens for example in make(10, 2)]
    assert again.predict(items) == fitted.predict(items)


def test_encoder_is_concatenated_with_elmo_and_static_vectors(folders, no_pictures, tmp_path):
    static = elmokit.WordVectors.from_dict({"great": [1.0, 0.0], "awful": [0.0, 1.0]})
    config = settings("classify", "run.epochs=2", 'inputs.elmo_at=["input","output"]')
    fitted = elmokit.tasks.fit(
        "classify",
        texts(40),
        texts(20, 1),
        elmo=["test-tiny", folders["bert"], folders["gpt2"]],
        static=static,
        config=config,
        quiet=True,
    )
    embedder = fitted.model.embedder
    assert list(embedder.parts) == ["words", "static", "elmo"]
    assert (embedder.widths.input, embedder.widths.output) == (16 + 2 + 32 + 16 + 16, 64)
    mixes = embedder.learned_mixes()
    assert set(mixes) == {f"{p}{n}" for p in ("input", "output") for n in ("", " 2", " 3")}
    assert [len(mixes[f"input{n}"]["s"]) for n in ("", " 2", " 3")] == [3, 3, 3]
    side = embedder([("the", "great", "film")])
    weights = mixes["output"]["gamma"] * np.array(mixes["output"]["s"])
    elmo = elmokit.load("test-tiny")
    (expected,) = elmo.encode([["the", "great", "film"]], layers=list(weights))
    np.testing.assert_allclose(
        side.output[0, :, :32].detach().numpy(), expected, rtol=1e-4, atol=1e-5
    )

    items = [example.tokens for example in texts(10, 2)]
    answers = fitted.predict(items)
    fitted.save(tmp_path / "predictor", bundle=True)
    assert elmokit.tasks.load(tmp_path / "predictor").predict(items) == answers
    with pytest.raises(ConfigError, match="at least one"):
        elmokit.tasks.fit("classify", texts(9), texts(9), elmo=[], quiet=True)


def test_encoders_are_found_again_one_by_one(folders, no_pictures, tmp_path):
    shutil.copytree(folders["bert"], tmp_path / "bert")
    config = settings("classify", "run.epochs=1")
    models = ["test-tiny", tmp_path / "bert"]
    fitted = elmokit.tasks.fit(
        "classify", texts(20), texts(10, 1), elmo=models, config=config, quiet=True
    )
    fitted.save(tmp_path / "predictor")
    items = [example.tokens for example in texts(10, 2)]
    assert elmokit.tasks.load(tmp_path / "predictor").predict(items) == fitted.predict(items)
    shutil.move(tmp_path / "bert", tmp_path / "moved")
    with pytest.raises(CheckpointError, match="bert"):
        elmokit.tasks.load(tmp_path / "predictor")
    found = elmokit.tasks.load(tmp_path / "predictor", elmo=["test-tiny", tmp_path / "moved"])
    assert found.predict(items) == fitted.predict(items)
    with pytest.raises(CheckpointError, match="hash"):
        elmokit.tasks.load(tmp_path / "predictor", elmo=["test-tiny", folders["gpt2"]])


@pytest.mark.parametrize("models", [("bert",), ("gpt2",), ("test-tiny", "bert")], ids=str)
def test_encoder_can_be_fine_tuned(folders, no_pictures, tmp_path, models):
    elmo = [folders.get(name, name) for name in models]
    before = as_layers(elmo).fingerprint
    changes = ("run.epochs=3", "fine_tune.on=true", "fine_tune.unfreeze_every=1")
    fitted = elmokit.tasks.fit(
        "classify",
        texts(30),
        texts(10, 1),
        elmo=elmo,
        config=settings("classify", *changes),
        output=tmp_path / "predictor",
        quiet=True,
    )
    assert as_layers(elmo).fingerprint == before  # what was given stays as it was
    assert fitted.elmo.fingerprint != before
    items = [example.tokens for example in texts(10, 2)]
    assert elmokit.tasks.load(tmp_path / "predictor").predict(items) == fitted.predict(items)
