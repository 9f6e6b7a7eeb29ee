"""Products of fewer bits: how near they are, and where they are refused."""

from pathlib import Path

import numpy as np
import pytest
import torch

import elmokit
from elmokit import ConfigError
from elmokit.checkpoints.checkpoint import Checkpoint
from elmokit.config import published_shape
from elmokit.engines import cpu_probe
from elmokit.model.init import random_model

LEAST_COSINE = {"bfloat16": 0.999, "int8": 0.995}
GOLDEN = Path(__file__).parents[1] / "golden"
MODELS = [
    "allennlp",
    "bilm-tf",
    "bilm-hdf5/no-projection",
    "bilm-hdf5/standard",
    "bilm-hdf5/tanh-m20",
    "many-langs/released",
    "nlpl/folder",
    "tf-hub/google",
]
SENTENCES = [
    "the bank of the river lay still in the light of the evening",
    "a",
    "it was the first of many such letters , and nobody answered it .",
    "Apple shares rose after the keynote",
] * 20


@pytest.fixture(params=LEAST_COSINE, scope="module")
def precision(request):
    if request.param not in cpu_probe.probe().precisions:
        pytest.skip("not run by this CPU")
    return request.param


def lowest_cosine(found, want):
    """Of all tokens and layers."""
    lowest = 1.0
    for one, other in zip(found, want, strict=True):
        dots = (one * other).sum(-1)
        lengths = np.linalg.norm(one, axis=-1) * np.linalg.norm(other, axis=-1)
        lowest = min(lowest, float((dots / lengths).min()))
    return lowest


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("state", ["fresh", "warm"])
def test_vectors_of_golden_models_stay_near(precision, name, state):
    exact = elmokit.load(GOLDEN / name)
    rough = elmokit.load(GOLDEN / name, precision=precision)
    sentences = [text.split() for text in SENTENCES]
    want = exact.encode(sentences, layers="all", state=state)
    found = rough.encode(sentences, layers="all", state=state)
    assert lowest_cosine(found, want) >= LEAST_COSINE[precision]
    assert any((one != other).any() for one, other in zip(found, want, strict=True))


def test_vectors_of_the_published_shape_stay_near(precision):
    config = published_shape("small")
    checkpoint = Checkpoint(config, random_model(config, 0).state_dict(), "random", "small")
    want = elmokit.Elmo(checkpoint).encode(SENTENCES[:4], layers="all")
    found = elmokit.Elmo(checkpoint, precision=precision).encode(SENTENCES[:4], layers="all")
    assert lowest_cosine(found, want) >= LEAST_COSINE[precision]


@pytest.mark.parametrize("name", ["small-en", "small-zh"])
def test_error_of_trained_models_is_small(precision, name):
    """They have outliers, which random weights do not have."""
    chinese = ["苹果公司发布了新手机", "银行在河边", "他昨天没有去学校"] * 3
    sentences = chinese if name == "small-zh" else SENTENCES[:9]
    want = elmokit.load(name, softmax=False).encode(sentences, layers="all")
    found = elmokit.load(name, softmax=False, precision=precision).encode(sentences, layers="all")
    one, other = np.concatenate(found, axis=1), np.concatenate(want, axis=1)
    errors = np.linalg.norm(one - other, axis=(1, 2)) / np.linalg.norm(other, axis=(1, 2))
    # Without bfloat16 the character CNN computes in float32, also where int8 is asked for.
    assert (errors[1:] > 0).all()
    assert errors.max() < 0.03


def test_neighbours_have_no_say(precision):
    elmo = elmokit.load(GOLDEN / "allennlp", precision=precision)
    alone = elmo.encode(SENTENCES[0], layers="all")
    together = elmo.encode([*SENTENCES, SENTENCES[0]], layers="all")
    np.testing.assert_allclose(together[0], alone, atol=1e-5)
    np.testing.assert_allclose(together[-1], alone, atol=1e-5)


def test_weights_stay_exact_for_saving_and_training(precision, tmp_path):
    rough = elmokit.load(GOLDEN / "allennlp", precision=precision)
    rough.encode(SENTENCES)
    rough.save(tmp_path / "model")
    want = elmokit.load(GOLDEN / "allennlp").encode(SENTENCES)
    for one, other in zip(elmokit.load(tmp_path / "model").encode(SENTENCES), want, strict=True):
        np.testing.assert_array_equal(one, other)
    embedding = elmokit.ElmoEmbedding(rough, fine_tune=True, dropout=0.0)
    exact = elmokit.ElmoEmbedding(elmokit.load(GOLDEN / "allennlp"), fine_tune=True, dropout=0.0)
    texts = [["a", "bank"], ["river"]]
    torch.testing.assert_close(embedding(texts).vectors, exact(texts).vectors)


def test_precision_this_processor_lacks_is_refused(monkeypatch):
    monkeypatch.setattr(cpu_probe, "probe", lambda: cpu_probe.Support(("float32",), None))
    with pytest.raises(ConfigError, match=r"precision='int8': .* it runs float32"):
        elmokit.load(GOLDEN / "allennlp", precision="int8")
    with pytest.raises(ConfigError, match="precision='half'"):
        elmokit.load(GOLDEN / "allennlp", precision="half")


def test_int8_is_for_cpus():
    with pytest.raises(ConfigError, match="'int8' is for CPUs"):
        elmokit.load(GOLDEN / "allennlp", precision="int8", device="cuda")


def test_float8_is_for_hopper_gpus_and_for_layers_of_some_sizes():
    with pytest.raises(ConfigError, match=r"precision='float8': use .* is for Hopper GPUs"):
        elmokit.load(GOLDEN / "allennlp", precision="float8", device="cpu")
    elmo = elmokit.load(GOLDEN / "allennlp", device="cpu")
    with pytest.raises(ConfigError, match="multiples of 128"):
        elmo.bilm.set_precision("float8")
    assert elmo.bilm.precision == "float32"
