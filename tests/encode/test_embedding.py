"""`ElmoEmbedding` inside a PyTorch model."""

import copy
import pickle

import numpy as np
import pytest
import torch

from elmokit import ConfigError, ElmoEmbedding, WordVectors

BATCH = [["the", "bank", "lent", "money"], ["the", "river"], []]


@pytest.fixture(scope="module")
def static() -> WordVectors:
    return WordVectors.from_dict({"the": np.full(3, 1.0), "river": np.full(3, 2.0)})


def test_embedding_starts_as_the_mean_of_the_layers(elmo):
    vectors, mask = ElmoEmbedding(elmo, dropout=0.0)(BATCH)
    assert vectors.shape == (3, 4, 32)
    assert mask.tolist() == [[True] * 4, [True, True, False, False], [False] * 4]
    assert not vectors[~mask].any()
    for row, want in zip(vectors, elmo.encode(BATCH), strict=True):
        np.testing.assert_allclose(row[: len(want)].detach().numpy(), want, rtol=1e-5, atol=1e-6)


def test_embedding_takes_texts(elmo):
    embedding = ElmoEmbedding(elmo, dropout=0.0)
    torch.testing.assert_close(
        embedding(["the river"]).vectors, embedding([["the", "river"]]).vectors
    )


def test_embedding_gives_several_outputs_with_mixes_of_their_own(elmo):
    embedding = ElmoEmbedding(elmo, outputs=2, dropout=0.0)
    with torch.no_grad():
        embedding.mixes[1].gamma.fill_(3.0)
    first, second = embedding(BATCH).vectors
    torch.testing.assert_close(second, 3 * first)
    with pytest.raises(ConfigError, match="outputs=0"):
        ElmoEmbedding(elmo, outputs=0)


def test_embedding_puts_static_vectors_in_front(elmo, static):
    embedding = ElmoEmbedding(elmo, dropout=0.0, static=static)
    assert embedding.dim == 35
    vectors, _ = embedding(BATCH)
    assert vectors[0, :, 0].tolist() == [1.0, 0.0, 0.0, 0.0]
    assert vectors[1, :, 2].tolist() == [1.0, 2.0, 0.0, 0.0]
    torch.testing.assert_close(vectors[..., 3:], ElmoEmbedding(elmo, dropout=0.0)(BATCH).vectors)


def test_embedding_projects_to_the_width_asked_for(elmo):
    embedding = ElmoEmbedding(elmo, projection=7)
    assert embedding(BATCH).vectors.shape == (3, 4, 7)
    assert embedding.dim == 7


def test_frozen_embedding_learns_and_saves_its_mix_alone(elmo):
    embedding = ElmoEmbedding(elmo)
    names = {"mixes.0.weights", "mixes.0.gamma"}
    assert set(embedding.state_dict()) == names
    assert {name for name, _ in embedding.named_parameters()} == names
    embedding(BATCH).vectors.sum().backward()
    assert all(parameter.grad is not None for parameter in embedding.parameters())
    assert not any(parameter.requires_grad for parameter in elmo.bilm.parameters())


def test_dropout_works_in_training_alone(elmo):
    embedding = ElmoEmbedding(elmo, dropout=0.5)
    assert (embedding(BATCH).vectors[0] == 0).float().mean() > 0.2
    embedding.eval()
    assert (embedding(BATCH).vectors[0] == 0).float().mean() < 0.05


def test_fine_tuning_changes_the_bilm(allennlp):
    embedding = ElmoEmbedding(allennlp.folder, fine_tune=True, dropout=0.0)
    embedding.elmo.encode(BATCH)  # fills all caches
    before = embedding(BATCH).vectors.detach().clone()
    optimizer = torch.optim.SGD(embedding.parameters(), lr=0.01)
    for _ in range(2):
        optimizer.zero_grad()
        embedding(BATCH).vectors.square().sum().backward()
        missing = [n for n, p in embedding.named_parameters() if p.grad is None]
        assert missing == []
        optimizer.step()
    after = embedding(BATCH).vectors.detach()
    assert after.square().sum() < before.square().sum()
    # Vectors of the model inside follow.
    want = embedding.elmo.encode(
        BATCH[:1], layers=list((embedding.mixes[0].gamma * embedding.mixes[0].shares()).tolist())
    )[0]
    np.testing.assert_allclose(after[0].numpy(), want, rtol=1e-4, atol=1e-5)


def test_embedding_can_be_copied_pickled_and_moved(elmo):
    embedding = ElmoEmbedding(elmo, dropout=0.0)
    want = embedding(BATCH).vectors
    for twin in (copy.deepcopy(embedding), pickle.loads(pickle.dumps(embedding))):
        torch.testing.assert_close(twin(BATCH).vectors, want)
    # The meta device shows that the frozen model follows without being a submodule.
    moved = copy.deepcopy(embedding).to("meta")
    assert moved.elmo.device.type == "meta"


def test_what_was_learned_counts_whatever_the_optimizer():
    """A fused optimizer changes weights unnoticed, and prepacked weights must not stay."""
    embedding = ElmoEmbedding("test-tiny", fine_tune=True, dropout=0.0)
    embedding.eval()
    optimizer = torch.optim.AdamW(embedding.parameters(), lr=0.1, fused=True)
    batch = [["the", "bank"], ["a", "river", "."]]
    with torch.no_grad():
        embedding(batch)
    for _ in range(2):
        embedding(batch).vectors.square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    learned = embedding(batch).vectors.detach()
    with torch.no_grad():
        torch.testing.assert_close(embedding(batch).vectors, learned, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("kind", "fine_tune"),
    [
        (torch.float64, False),
        (torch.float16, False),
        (torch.bfloat16, False),
        (torch.float64, True),
    ],
)
def test_embedding_in_another_type(allennlp, static, kind, fine_tune):
    exact = ElmoEmbedding(allennlp.load(), static=static, projection=4).eval()
    other = ElmoEmbedding(allennlp.load(), static=static, projection=4, fine_tune=fine_tune).eval()
    other.load_state_dict(exact.state_dict(), strict=False)
    other.to(kind)
    for batch in (BATCH, [["a", str(i)] for i in range(9)]):
        with torch.no_grad():
            want, found = exact(batch).vectors, other(batch).vectors
        assert found.dtype == kind
        torch.testing.assert_close(found.float(), want, rtol=2e-2, atol=2e-2)


def test_no_sentences_are_an_empty_batch(elmo):
    vectors, mask = ElmoEmbedding(elmo, outputs=2)([])
    assert [part.shape for part in vectors] == [(0, 0, elmo.dim)] * 2
    assert mask.shape == (0, 0)
