"""The parts of `Elmo` that users know from other libraries, and the one rule for devices."""

import inspect

import numpy as np
import pytest
import torch

import elmokit
from elmokit import ConfigError, ElmoEmbedding
from elmokit.cli import main

TEXTS = ["the bank of the river", "", "the bank lent money"]


@pytest.mark.parametrize("output", ["numpy", "torch"])
@pytest.mark.parametrize("layers", ["mean", "all", 1])
@pytest.mark.parametrize("pool", ["mean", "max"])
def test_pooled_vectors_of_several_sentences_are_one_array(elmo, output, layers, pool):
    options = {"layers": layers, "pool": pool, "output": output}
    kind, float32 = (np.ndarray, np.float32) if output == "numpy" else (torch.Tensor, torch.float32)
    shape = (elmo.layers, elmo.dim) if layers == "all" else (elmo.dim,)
    pooled = elmo.encode(TEXTS, **options)
    assert isinstance(pooled, kind)
    assert tuple(pooled.shape) == (3, *shape)
    for count in (0, 1):
        some = elmo.encode(TEXTS[:count], **options)
        assert isinstance(some, kind)
        assert (tuple(some.shape), some.dtype) == ((count, *shape), float32)
    for row, text in zip(pooled, TEXTS, strict=True):
        one = elmo.encode(text, **options)
        assert tuple(one.shape) == shape
        np.testing.assert_allclose(row, one, atol=1e-6)
    assert len(list(elmo.encode_stream(TEXTS, **options))) == 3


def test_call_is_encode(elmo):
    np.testing.assert_array_equal(elmo(TEXTS[0], layers=1), elmo.encode(TEXTS[0], layers=1))
    assert [len(vectors) for vectors in elmo(TEXTS)] == [5, 0, 4]


# Devices: None is the best one there is, and nothing else decides.


def device_of(call) -> str:
    """Where a call runs; without a GPU, where it tries to run."""
    try:
        return call().device.type
    except ConfigError as error:
        return str(error).removeprefix("device=").split("'")[1]


@pytest.fixture(params=[False, True], ids=["CPU", "GPU"])
def best(request, monkeypatch) -> str:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: request.param)
    return "cuda" if request.param else "cpu"


def test_model_is_loaded_to_the_best_device(best):
    assert device_of(lambda: elmokit.load("test-tiny")) == best
    for device in (None, "auto"):
        assert device_of(lambda device=device: elmokit.load("test-tiny", device=device)) == best
    assert device_of(lambda: elmokit.load("test-tiny", device="cpu")) == "cpu"
    elmo = elmokit.load("test-tiny", device="cpu")
    assert device_of(lambda: elmo.to("cpu")) == "cpu"
    assert device_of(lambda: elmo.to(None)) == best


def test_module_starts_on_the_cpu_as_modules_do(best):
    assert ElmoEmbedding("test-tiny").elmo.device.type == "cpu"


def test_estimators_run_on_the_best_device(best):
    sklearn = pytest.importorskip("elmokit.integrations.sklearn")
    assert device_of(lambda: sklearn.ElmoVectorizer("test-tiny").elmo) == best
    assert device_of(lambda: sklearn.ElmoVectorizer("test-tiny", device="cpu").elmo) == "cpu"


def test_int8_runs_on_the_cpu(monkeypatch):
    from elmokit.engines import check_device

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert device_of(lambda: torch.empty(0, device=check_device(None, "int8"))) == "cpu"


@pytest.mark.parametrize("room", ["load", "tasks.fit", "tasks.compare", "tasks.Predictor.load",
    "pretrain", "adapt", "probes.pos", "probes.wsd", "probes.similarity", "probes.polysemy",
    "probes.change", "probes.robustness", "ray.encode_files",
    "Elmo"])  # fmt: skip
def test_left_out_device_is_none_everywhere(room):
    function = elmokit
    for name in room.split("."):
        function = getattr(function, name)
    assert inspect.signature(function).parameters["device"].default is None


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU answers")
@pytest.mark.parametrize("verb", ["similar", "score", "substitutes", "encode", "table", "bench"])
def test_commands_run_on_the_best_device(verb, best, tmp_path, capsys):
    text = tmp_path / "text.txt"
    text.write_text("the bank of the river\n")
    calls = {
        "similar": ["a b", "c d"],
        "score": ["the bank"],
        "substitutes": ["the bank", "--position", "0"],
        "encode": [text, "-o", tmp_path / "out.npz"],
        "table": [text, "-o", tmp_path / "out.vec", "--min-count", "1"],
        "bench": ["--sentences", text],  # too short a text, once the device is there
    }
    code = main([verb, *map(str, calls[verb])])
    said = capsys.readouterr().err
    assert ("device='cuda': cannot be used here" in said) == (best == "cuda"), said
    assert code == int(best == "cuda" or verb == "bench")
