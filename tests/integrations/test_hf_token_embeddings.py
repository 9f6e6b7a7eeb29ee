"""ELMo as a module of sentence-transformers."""

import json

import numpy as np
import pytest
import torch

import elmokit

pytest.importorskip("sentence_transformers")
pytest.importorskip("transformers")

import transformers
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling

from elmokit.integrations import hf

TEXTS = ["the bank of the river", "the bank lent money", "don't", ""]

transformers.utils.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()


def encoder(pooling: str = "mean", **options: object) -> SentenceTransformer:
    words = hf.ElmoTokenEmbeddings("test-tiny", **options)
    parts = [words, Pooling(words.get_embedding_dimension(), pooling)]
    return SentenceTransformer(modules=parts, device="cpu")


@pytest.mark.parametrize("layers", ["mean", "top", 0, [0.5, 0.0, 0.5], "all", "learned"], ids=str)
def test_sentences_have_the_models_vectors(layers):
    wanted = "mean" if layers == "learned" else layers
    expected = elmokit.load("test-tiny").encode(TEXTS, layers=wanted, pool="mean")
    found = encoder(layers=layers).encode(TEXTS)
    np.testing.assert_allclose(found, [row.ravel() for row in expected], rtol=1e-5, atol=1e-6)


def test_sentences_may_be_cut_and_prompted():
    model = encoder(max_seq_length=3)
    np.testing.assert_allclose(
        model.encode(["the bank of the river"]), encoder().encode(["the bank of"]), rtol=1e-5
    )
    np.testing.assert_allclose(
        encoder().encode("lent money", prompt="the bank "),
        encoder().encode("the bank lent money"),
        rtol=1e-5,
    )


def test_sentence_encoder_is_saved_and_loaded(tmp_path):
    model = encoder(layers="learned", max_seq_length=4)
    with torch.no_grad():
        model[0].mix.weights[1] = 2.0
        model[0].mix.gamma.fill_(0.3)
    expected = model.encode(TEXTS)
    model.save(str(tmp_path / "model"))
    again = SentenceTransformer(str(tmp_path / "model"), trust_remote_code=True, device="cpu")
    np.testing.assert_allclose(again.encode(TEXTS), expected, rtol=1e-5, atol=1e-6)
    assert again.similarity(again.encode(TEXTS[:1]), again.encode(TEXTS[:2])).shape == (1, 2)
    modules = json.loads((tmp_path / "model" / "modules.json").read_text("utf-8"))
    assert modules[0]["type"] == "elmokit.integrations.hf.ElmoTokenEmbeddings"


def test_sentence_encoder_learns():
    model = encoder(layers="learned")
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    pairs = ["a great film", "a lovely film"], ["an awful film", "an awful film"]

    def distance() -> torch.Tensor:
        first, second = (
            model(model.preprocess(list(texts)))["sentence_embedding"] for texts in pairs
        )
        return torch.cosine_similarity(first, second).mean()

    before = distance().item()
    for _ in range(10):
        optimizer.zero_grad()
        distance().backward()
        optimizer.step()
    assert model[0].mix.weights.grad.abs().sum() > 0
    assert all(p.grad is not None for p in model[0].model.parameters())
    assert distance().item() < before - 0.1


def test_sentence_encoder_is_made_from_a_folder_of_transformers(tmp_path):
    for part in hf.from_elmo("test-tiny"):
        part.save_pretrained(tmp_path)
    expected = elmokit.load("test-tiny").encode(TEXTS, layers="top", pool="mean")
    found = SentenceTransformer(str(tmp_path), device="cpu").encode(TEXTS)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
