"""The parts of `Elmo` that users know from other libraries, and the one rule for devices."""

import inspect
import json
import re
from xml.etree import ElementTree

import numpy as np
import pytest
import torch

import elmokit
from elmokit import AmbiguousInputWarning, ConfigError, ElmoEmbedding, ElmokitError
from elmokit.cli import main
from elmokit.encode import compare, nearest_uses
from elmokit.encode.embedding import EmbeddingOptions
from elmokit.encode.layers import StreamOptions, TextOptions
from elmokit.encode.loading import LoadOptions
from elmokit.integrations.onnx import OnnxOptions
from elmokit.tasks.fit import FitOptions

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


# What other libraries have, and what the command line does


def test_from_pretrained_is_load(elmo):
    again = elmokit.Elmo.from_pretrained(elmo.source, tokenizer="space", softmax=False)
    assert again.tokenize("don't") == ["don't"]
    np.testing.assert_allclose(
        again.encode([["a"]])[0], elmo.encode([["a"]])[0], rtol=1e-5, atol=1e-6
    )
    options = inspect.signature(elmokit.load).parameters
    assert set(LoadOptions.__annotations__) == set(options) - {"source"}


def test_options_that_type_checkers_know_are_those_of_the_functions():
    for function, known in (
        (elmokit.Elmo.encode, {*TextOptions.__annotations__, "output", "context"}),
        (elmokit.Elmo.encode_stream, {*StreamOptions.__annotations__, "output"}),
        (elmokit.tasks.fit, {*FitOptions.__annotations__, "task", "train", "dev"}),
        (ElmoEmbedding.__init__, {*EmbeddingOptions.__annotations__, "source", "outputs"}),
        (elmokit.OnnxElmo.encode, {*OnnxOptions.__annotations__, "pool"}),
    ):
        own = {*inspect.signature(function).parameters} - {"self", "sentences", "other"}
        assert own == known


def test_notebooks_show_a_table(elmo):
    page = elmo._repr_html_()
    cells = [cell.text for cell in ElementTree.fromstring(page).iter("td")]
    assert elmo.source in cells
    assert "32 wide, layers 0 to 2" in cells
    assert "cpu, float32" in cells
    odd = elmokit.load(elmo.source)
    odd.source = "<b>&"
    assert "<b>&" in [cell.text for cell in ElementTree.fromstring(odd._repr_html_()).iter("td")]


RIVER, MONEY = "the bank of the river", "the bank lent money"


def test_similar_compares_two_uses_as_the_command_does(elmo, capsys):
    found = elmo.similar(RIVER, MONEY, word="bank")
    assert found == compare(elmo, RIVER, MONEY, (1, 1))
    assert elmo.similar(RIVER, MONEY.split(), word=1, word2=2) == compare(
        elmo, RIVER, MONEY, (1, 2)
    )
    assert elmo.similar(RIVER, MONEY) == compare(elmo, RIVER, MONEY)
    main(["similar", RIVER, MONEY, "--word", "bank", "--model", elmo.source, "--json"])
    printed = json.loads(capsys.readouterr().out)["cosine"]
    assert printed["layers"] == pytest.approx(list(found.layers))


def test_similar_finds_the_nearest_uses(elmo, tmp_path):
    corpus = [MONEY, "no such word", "the bank of the lake"]
    uses = elmo.similar(RIVER, word="bank", corpus=corpus, k=2)
    assert [use.sentence for use in uses] == [2, 0]
    assert uses == nearest_uses(elmo, RIVER, 1, corpus, k=2)
    file = tmp_path / "corpus.txt"
    file.write_text("\n".join(corpus))
    for path in (file, str(file)):
        assert elmo.similar(RIVER, word="bank", corpus=path, k=2) == uses
    others = elmo.similar(RIVER, word="bank", word2="lake", corpus=corpus, layers=1)
    assert [use.tokens[use.position] for use in others] == ["lake"]


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ([RIVER], {}, "second sentence or corpus"),
        ([RIVER, MONEY], {"corpus": [MONEY]}, "one of the two"),
        ([RIVER], {"corpus": [MONEY]}, "need a word"),
        ([RIVER, MONEY], {"word2": "bank"}, "need a word"),
        ([RIVER, MONEY], {"word": "lake"}, "its tokens are: the | bank"),
        ([RIVER, MONEY], {"word": 9}, "no token 9"),
        ([RIVER], {"word": "bank", "word2": 1, "corpus": [MONEY]}, "not for a position"),
        ([RIVER], {"word": "bank", "corpus": "no-such-file.txt"}, "no-such-file.txt"),
    ],
)
def test_similar_says_what_is_missing(elmo, arguments, options, message):
    with pytest.raises(ElmokitError, match=re.escape(message)):
        elmo.similar(*arguments, **options)


def test_similar_warns_of_a_repeated_word(elmo):
    with pytest.warns(AmbiguousInputWarning, match=r"'the' is 2 times .* one of \[0, 3\]") as said:
        first = elmo.similar(RIVER, MONEY, word="the")
    assert said[0].filename == __file__
    assert first == elmo.similar(RIVER, MONEY, word=0)
