"""Exported models on onnxruntime against torch, and against the original programs' numbers."""

import json
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import elmokit
from elmokit.checkpoints import export as onnx_export
from elmokit.errors import CheckpointError, ConfigError, DataError, MissingExtraError

pytest.importorskip("onnxruntime")
onnx = pytest.importorskip("onnx")

GOLDEN = Path(__file__).parents[1] / "golden"
VARIANTS = sorted(
    str(path.parent.relative_to(GOLDEN))
    for pattern in ("bilm-hdf5/*", "tf-checkpoint/*", "many-langs/*", "many-langs-traps")
    for path in GOLDEN.glob(f"{pattern}/expected.npz")
)
SHAPES = [
    (1, 1),
    (1, 64),
    (2, 3),
    (5, 1),
    (7, 64),
    (20, 32),
    (50, 2),
    (100, 16),
    (500, 1),
    (500, 64),
]
"""(length, batch)"""
SENTENCES = ["the bank of the river", "", "word", ["a", "é" * 40, "<S>", "x"], ["the"] * 9]


def export(model: elmokit.Elmo, path: Path, **options: object) -> elmokit.OnnxElmo:
    model.export(path, **options)
    return elmokit.OnnxElmo(path, threads=1)


@pytest.fixture(scope="module")
def exported(elmo, tmp_path_factory) -> elmokit.OnnxElmo:
    return export(elmo, tmp_path_factory.mktemp("onnx") / "model.onnx")


@pytest.fixture(scope="module")
def exported_int8(elmo, tmp_path_factory) -> elmokit.OnnxElmo:
    return export(elmo, tmp_path_factory.mktemp("onnx") / "model.onnx", storage="int8")


def random_batch(folder: Path, length: int, count: int) -> list[list[str]]:
    """Sentences of which one is as long as said, and the others are not longer."""
    draw = random.Random(length * 1000 + count)
    words = (folder / "vocab_test.txt").read_text("utf-8").split("\n")[:-1]
    lengths = [length, *(draw.randint(0, length) for _ in range(count - 1))]
    return [draw.choices(words, k=size) for size in draw.sample(lengths, count)]


@pytest.mark.parametrize(("length", "count"), SHAPES)
def test_onnx_equals_torch_at_any_shape(allennlp, elmo, exported, length, count):
    batch = random_batch(allennlp.folder, length, count)
    expected = elmo.encode(batch, layers="all")
    for ours, want in zip(exported.all_layers(batch), expected, strict=True):
        np.testing.assert_allclose(ours, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", VARIANTS)
def test_onnx_has_the_numbers_of_the_original_program(name, tmp_path):
    model = export(elmokit.load(GOLDEN / name), tmp_path / "model.onnx")
    with np.load(GOLDEN / name / "expected.npz") as file:
        sentences = json.loads(str(file["tokens_json"]))
        expected = [file[f"layers_{i}"] for i in range(len(sentences))]
    for ours, want in zip(model.encode(sentences, layers="all"), expected, strict=True):
        np.testing.assert_allclose(ours, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("layers", ["mean", "top", "all", 0, -1, [0.5, 0, 2]], ids=str)
@pytest.mark.parametrize("pool", [None, "mean", "max"])
def test_onnx_encode_takes_what_encode_takes(elmo, exported, layers, pool):
    ours = exported.encode(SENTENCES, layers=layers, pool=pool)
    theirs = elmo.encode(SENTENCES, layers=layers, pool=pool)
    for left, right in zip(ours, theirs, strict=True):
        assert (left.shape, left.dtype) == (right.shape, right.dtype)
        np.testing.assert_allclose(left, right, rtol=1e-5, atol=1e-5)


def test_onnx_encodes_one_text(elmo, exported):
    text = "the bank lent money ."
    np.testing.assert_allclose(exported.encode(text), elmo.encode(text), rtol=1e-5, atol=1e-5)
    assert exported.tokenize(text) == elmo.tokenize(text)
    assert (exported.dim, exported.layers, exported.config) == (elmo.dim, elmo.layers, elmo.config)
    assert "dim=32" in repr(exported)


def test_onnx_stream_in_small_batches(elmo, exported):
    stream = exported.encode_stream(iter(SENTENCES * 5), layers="top", batch_tokens=20)
    for ours, want in zip(stream, elmo.encode(SENTENCES * 5, layers="top"), strict=True):
        np.testing.assert_allclose(ours, want, rtol=1e-5, atol=1e-5)


def test_onnx_sentences_without_words(exported):
    assert [part.shape for part in exported.encode(["", []], layers="all")] == [(3, 0, 32)] * 2
    assert exported.encode([]) == []


@pytest.mark.parametrize("room", [0, 2, 1000])
def test_onnx_words_seen_before_change_nothing(elmo, tmp_path, monkeypatch, room):
    monkeypatch.setattr("elmokit.integrations.onnx.CACHE_WORDS", room)
    model = export(elmo, tmp_path / "model.onnx")
    batches = [["the bank"], ["the bank"], ["bank of the river", "the"], SENTENCES, SENTENCES]
    for batch in batches:
        ours = model.encode(batch, layers="all")
        for left, right in zip(ours, elmo.encode(batch, layers="all"), strict=True):
            np.testing.assert_allclose(left, right, rtol=1e-5, atol=1e-5)
        assert len(model._kept) <= room
    assert bool(model._kept) == bool(room)


def test_onnx_files_without_known_words_are_read(elmo, exported, tmp_path):
    elmo.export(tmp_path / "model.onnx")
    model = onnx.load(tmp_path / "model.onnx")
    for values, name in ((model.graph.input, "known"), (model.graph.output, "vectors")):
        values.remove(next(value for value in values if value.name == name))
    onnx.save(model, tmp_path / "old.onnx")
    old = elmokit.OnnxElmo(tmp_path / "old.onnx", threads=1)
    for _ in range(2):
        for left, right in zip(old.encode(SENTENCES), exported.encode(SENTENCES), strict=True):
            np.testing.assert_allclose(left, right, rtol=1e-5, atol=1e-5)


def test_onnx_pads_little(exported, monkeypatch):
    sizes = []
    run = exported.all_layers
    monkeypatch.setattr(
        exported, "all_layers", lambda batch: sizes.append([*map(len, batch)]) or run(batch)
    )
    lengths = [90, 60, *[20] * 12, *[5] * 30]
    found = exported.encode([["word"] * length for length in lengths])
    assert [len(vectors) for vectors in found] == lengths
    padded = sum(max(part) * len(part) for part in sizes)
    assert padded < 1.3 * sum(lengths)
    assert len(sizes) < 8


def test_onnx_stored_mix(tmp_path):
    elmo = elmokit.load(GOLDEN / "allennlp-finetuned" / "model.tar.gz")
    model = export(elmo, tmp_path / "model.onnx")
    ours, want = (m.encode("the bank", layers="mix") for m in (model, elmo))
    np.testing.assert_allclose(ours, want, rtol=1e-5, atol=1e-5)


WITHOUT_TORCH = """
import sys
sys.modules["torch"] = sys.modules["onnx"] = sys.modules["h5py"] = None  # an import fails
import numpy as np
import elmokit
model = elmokit.OnnxElmo(sys.argv[1])
np.savez(sys.argv[2], mean=model.encode("the bank of the river"),
         pooled=model.encode([["the", "bank"]], layers="all", pool="max")[0])
"""


def test_onnx_runs_without_torch(elmo, tmp_path):
    elmo.export(tmp_path / "model.onnx")
    command = [sys.executable, "-c", WITHOUT_TORCH, tmp_path / "model.onnx", tmp_path / "out.npz"]
    subprocess.run(command, check=True, timeout=120)
    with np.load(tmp_path / "out.npz") as file:
        mean, pooled = file["mean"], file["pooled"]
    np.testing.assert_allclose(mean, elmo.encode("the bank of the river"), rtol=1e-5, atol=1e-5)
    want = elmo.encode([["the", "bank"]], layers="all", pool="max")[0]
    np.testing.assert_allclose(pooled, want, rtol=1e-5, atol=1e-5)


def test_onnx_file_is_valid_and_fixes_no_size(elmo, tmp_path):
    for storage in ("float32", "int8"):
        elmo.export(tmp_path / "model.onnx", storage=storage)
        model = onnx.load(tmp_path / "model.onnx")
        onnx.checker.check_model(model, full_check=True)
        assert model.opset_import[0].version == 17
        dims = {
            value.name: [d.dim_param or d.dim_value for d in value.type.tensor_type.shape.dim]
            for value in (*model.graph.input, *model.graph.output)
        }
        assert dims == {
            "characters": ["words", "columns"],
            "tokens": ["batch", "length"],
            "lengths": ["batch"],
            "known": ["known", 16],
            "layers": [3, "batch", "length", 32],
            "vectors": ["words", 16],
        }


def test_onnx_int8_of_a_trained_model_is_close(tmp_path):
    elmo = elmokit.load("small-en", softmax=False)
    elmo.export(tmp_path / "model.onnx", storage="int8")
    sentences = ["The bank of the river lay still .", "Apple shares rose after the keynote ."]
    found = elmokit.OnnxElmo(tmp_path / "model.onnx").encode(sentences, layers="all")
    one, other = (np.concatenate(x, axis=1) for x in (found, elmo.encode(sentences, layers="all")))
    errors = np.linalg.norm(one - other, axis=(1, 2)) / np.linalg.norm(other, axis=(1, 2))
    assert errors.max() < 0.06


def test_onnx_int8_is_close_and_small(allennlp, elmo, exported_int8, tmp_path):
    batch = random_batch(allennlp.folder, 20, 16)
    ours, theirs = (
        np.concatenate(model.encode(batch, layers="all"), axis=1) for model in (exported_int8, elmo)
    )
    for layer, want in zip(ours, theirs, strict=True):
        error = np.linalg.norm(layer - want) / np.linalg.norm(want)
        assert 1e-4 < error < 0.05, "int8 is not exact, and not far off"
    elmo.export(tmp_path / "float32.onnx")
    small, large = Path(exported_int8.source), tmp_path / "float32.onnx"
    assert small.stat().st_size < 0.5 * large.stat().st_size


@pytest.mark.parametrize("name", ["exported", "exported_int8"])
def test_onnx_sentence_does_not_depend_on_its_batch(allennlp, name, request):
    model = request.getfixturevalue(name)
    batch = random_batch(allennlp.folder, 12, 8)
    for alone, together in zip(
        (model.all_layers([sentence])[0] for sentence in batch),
        model.all_layers(batch),
        strict=True,
    ):
        np.testing.assert_allclose(alone, together, rtol=1e-6, atol=1e-6)


def test_onnx_padding_may_hold_anything(elmo, exported):
    import onnxruntime

    session = onnxruntime.InferenceSession(exported.source)
    ids = elmo._inputs(["the", "bank"]).characters
    outputs = [
        session.run(
            ["layers"],
            {
                "characters": ids,
                "tokens": np.array([[0, 1, 1], [1, padding, padding]]),
                "lengths": np.array([3, 1]),
            },
        )[0]
        for padding in (0, 1)
    ]
    np.testing.assert_array_equal(*outputs)
    assert not outputs[0][:, 1, 1:].any()


def test_onnx_large_weights_lie_beside_the_file(elmo, exported, tmp_path, monkeypatch):
    monkeypatch.setattr(onnx_export, "LARGEST_FILE", 1000)
    model = export(elmo, tmp_path / "new" / "model.onnx")
    names = sorted(path.name for path in (tmp_path / "new").iterdir())
    assert names == ["model.onnx", "model.onnx.data"]
    ours, want = (m.encode(SENTENCES, layers="all") for m in (model, exported))
    for left, right in zip(ours, want, strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-6, atol=1e-6)


def test_onnx_wrong_arguments_are_named(elmo, exported, tmp_path):
    with pytest.raises(ConfigError, match="layers 0 to 2"):
        exported.encode("a", layers=3)
    with pytest.raises(ConfigError, match="no mix is stored"):
        exported.encode("a", layers="mix")
    with pytest.raises(ConfigError, match="pool='sum'"):
        exported.encode("a", pool="sum")
    with pytest.raises(ConfigError, match="batch_tokens=0"):
        exported.encode("a", batch_tokens=0)
    with pytest.raises(DataError, match="sentence 1"):
        exported.encode(["a", 3])
    with pytest.raises(DataError, match="found 5"):
        exported.encode(5)
    with pytest.raises(ConfigError, match="format='tflite'"):
        elmo.export(tmp_path / "model", format="tflite")
    with pytest.raises(ConfigError, match="HDF5 files hold float32"):
        elmo.export(tmp_path / "weights.hdf5", storage="int8")
    with pytest.raises(ConfigError, match="storage='int4'"):
        elmo.export(tmp_path / "model.onnx", storage="int4")


def test_onnx_bad_files_are_named(tmp_path):
    with pytest.raises(CheckpointError, match=r"none\.onnx is missing"):
        elmokit.OnnxElmo(tmp_path / "none.onnx")
    (tmp_path / "text.onnx").write_text("no graph")
    with pytest.raises(CheckpointError, match=r"text\.onnx: onnxruntime cannot open"):
        elmokit.OnnxElmo(tmp_path / "text.onnx")
    value = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1])
    other = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1])
    node = onnx.helper.make_node("Identity", ["x"], ["y"])
    graph = onnx.helper.make_graph([node], "other", [value], [other])
    model = onnx.helper.make_model(graph, ir_version=8)
    model.opset_import[0].version = 17
    onnx.save_model(model, tmp_path / "other.onnx")
    with pytest.raises(CheckpointError, match=r"other\.onnx: no elmokit model"):
        elmokit.OnnxElmo(tmp_path / "other.onnx")


def test_onnx_damaged_metadata_is_named(elmo, tmp_path):
    elmo.export(tmp_path / "model.onnx")
    model = onnx.load(tmp_path / "model.onnx")
    (config,) = (prop for prop in model.metadata_props if prop.key == "elmokit.config")
    for value, message in (("{", "elmokit.config is damaged"), ('{"x": 1}', "unknown field")):
        config.value = value
        onnx.save_model(model, tmp_path / "damaged.onnx")
        with pytest.raises(CheckpointError, match=message):
            elmokit.OnnxElmo(tmp_path / "damaged.onnx")


def test_onnx_missing_word_list_is_named(tmp_path):
    elmokit.load(GOLDEN / "bilm-hdf5" / "word").export(tmp_path / "model.onnx")
    model = onnx.load(tmp_path / "model.onnx")
    kept = [prop for prop in model.metadata_props if prop.key != "elmokit.vocabulary"]
    props = {prop.key: prop.value for prop in kept}
    del model.metadata_props[:]
    onnx.helper.set_model_props(model, props)
    onnx.save_model(model, tmp_path / "model.onnx")
    with pytest.raises(CheckpointError, match=r"model\.onnx: the model reads words"):
        elmokit.OnnxElmo(tmp_path / "model.onnx")


def test_onnx_names_the_extra(elmo, exported, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(MissingExtraError, match=r"elmokit\[onnx\]"):
        elmo.export(tmp_path / "model.onnx")
    with pytest.raises(MissingExtraError, match=r"elmokit\[onnx\]"):
        elmokit.OnnxElmo(exported.source)


def test_load_points_to_the_class_for_onnx_files(tmp_path):
    path = tmp_path / "model.onnx"
    elmokit.load("test-tiny").export(path)
    with pytest.raises(elmokit.CheckpointError, match=r"elmokit\.OnnxElmo"):
        elmokit.load(path)
