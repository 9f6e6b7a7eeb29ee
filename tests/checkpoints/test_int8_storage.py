"""Models stored as int8 and int4: how exact they are, what stays the same, what is refused."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from random_models import checkpoints
from safetensors.torch import load_file

import elmokit
from elmokit.checkpoints import native, quantized
from elmokit.checkpoints.checkpoint import Checkpoint
from elmokit.config import CharacterConfig, LstmConfig, ModelConfig, SoftmaxConfig
from elmokit.encode.elmo import Elmo
from elmokit.encode.similarity import similarity
from elmokit.errors import CheckpointError, ConfigError
from elmokit.files import write_tensors
from elmokit.model.init import random_model

SENTENCES = ["the bank of the river", "she works in a bank in London", "苹果 很 甜 。"]

numbers = st.floats(-(2.0**30), 2.0**30, width=32) | st.floats(-1, 1, width=32)
matrices = arrays.arrays(
    np.float32,
    arrays.array_shapes(min_dims=2, max_dims=3, min_side=1, max_side=6),
    elements=numbers,
)


def files_of(folder) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


# One matrix.


@given(matrices)
def test_int8_moves_no_number_by_more_than_half_a_step_of_its_row(matrix):
    codes, scales = quantized.quantize_int8(torch.from_numpy(matrix))
    assert (codes.dtype, codes.shape, scales.dtype) == (torch.int8, matrix.shape, torch.float32)
    again = (
        quantized.dequantize_int8(codes, scales).numpy().astype(np.float64).reshape(len(matrix), -1)
    )
    rows = matrix.astype(np.float64).reshape(len(matrix), -1)
    step = np.abs(rows).max(axis=1, keepdims=True) / 127
    # The scale is rounded up in its 17th bit, and a quotient in its 24th.
    assert (np.abs(again - rows) <= step * (0.5 + 2**-14) + 2.0**-100).all()


@given(matrices)
def test_int8_of_what_was_unpacked_is_the_same(matrix):
    first = quantized.quantize_int8(torch.from_numpy(matrix))
    second = quantized.quantize_int8(quantized.dequantize_int8(*first))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@given(matrices)
def test_int8_unpacks_without_rounding(matrix):
    codes, scales = quantized.quantize_int8(torch.from_numpy(matrix))
    exact = codes.numpy().astype(np.float64) * scales.numpy().astype(np.float64).reshape(
        -1, *[1] * (matrix.ndim - 1)
    )
    np.testing.assert_array_equal(quantized.dequantize_int8(codes, scales).numpy(), exact)


def test_int8_keeps_rows_of_zeros_and_takes_each_row_by_itself():
    matrix = torch.tensor([[0.0, 0.0], [1e6, -1e6], [1e-6, 5e-7], [2.0**-149, 0.0]])
    again = quantized.dequantize_int8(*quantized.quantize_int8(matrix))
    assert again[0].tolist() == again[3].tolist() == [0, 0]
    np.testing.assert_allclose(again[1:3], matrix[1:3], rtol=0.01)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf"), 3e38])
def test_int8_refuses_what_is_no_weight(bad, tmp_path, tiny):
    checkpoint = tiny.checkpoint()
    name = "encoder.characters.highways.0.weight"
    broken = checkpoint.weights[name].clone()
    broken[3, 5] = bad
    changed = replace(checkpoint, weights={**checkpoint.weights, name: broken})
    with pytest.raises(CheckpointError, match=r"highways\.0\.weight cannot be quantized"):
        native.write(changed, tmp_path / "model", "int8")
    assert list(tmp_path.iterdir()) == []


# Four bits.


@given(matrices.filter(lambda matrix: matrix.ndim == 2))
def test_int4_moves_a_row_by_no_more_than_the_plain_scale_would(matrix):
    codes, scales = quantized.quantize_int4_rows(torch.from_numpy(matrix))
    assert (codes.dtype, codes.shape) == (torch.uint8, (len(matrix), -(-matrix.shape[1] // 2)))
    again = (
        quantized.dequantize_int4_rows(codes, scales, matrix.shape[1]).numpy().astype(np.float64)
    )
    step = np.abs(matrix.astype(np.float64)).max(axis=1, keepdims=True) / 7
    plain = np.round(matrix / np.where(step == 0, 1, step)) * step
    moved, bound = (np.square(rows - matrix).sum(axis=1) for rows in (again, plain))
    assert (moved <= bound * (1 + 1e-3) + step[:, 0] ** 2 * 1e-3 + 2.0**-190).all()


@given(matrices.filter(lambda matrix: matrix.ndim == 2))
def test_int4_of_what_was_unpacked_is_the_same(matrix):
    first = quantized.dequantize_int4_rows(
        *quantized.quantize_int4_rows(torch.from_numpy(matrix)), matrix.shape[1]
    )
    second = quantized.dequantize_int4_rows(*quantized.quantize_int4_rows(first), matrix.shape[1])
    assert torch.equal(first, second)


grouped = arrays.arrays(
    np.float32, st.tuples(st.integers(1, 4), st.sampled_from([64, 128, 192])), elements=numbers
)


@given(grouped)
def test_int4_in_groups_moves_no_number_by_more_than_half_a_step_of_its_group(matrix):
    codes, scales = quantized.quantize_int4(torch.from_numpy(matrix))
    rows, columns = matrix.shape
    assert (codes.dtype, codes.shape) == (torch.uint8, (rows, columns // 2))
    assert (scales.dtype, scales.shape) == (torch.bfloat16, (rows, columns // 64))
    again = quantized.dequantize_int4(codes, scales).double().numpy().reshape(-1, 64)
    groups = matrix.astype(np.float64).reshape(-1, 64)
    step = np.abs(groups).max(axis=1, keepdims=True) / 7
    assert (np.abs(again - groups) <= step * 0.504 + 2.0**-100).all()  # the scale is rounded up


@given(grouped)
def test_int4_in_groups_keeps_what_was_rounded_before(matrix):
    rounded = quantized.round_int4(torch.from_numpy(matrix))
    again = quantized.dequantize_int4(*quantized.quantize_int4(rounded))
    assert torch.equal(again, rounded)
    assert torch.equal(quantized.round_int4(rounded), rounded)


# A model.


def test_int8_model_is_near_the_original_and_smaller(tmp_path, tiny):
    tiny.save(tmp_path / "int8", storage="int8")
    small = elmokit.load(tmp_path / "int8")
    stored, whole = (
        (folder / "model.safetensors").stat().st_size
        for folder in (tmp_path / "int8", native_folder(tmp_path, tiny))
    )
    assert stored < 0.45 * whole  # a third of this tiny model stays float32
    pairs = zip(
        small.encode(SENTENCES, layers="all"), tiny.encode(SENTENCES, layers="all"), strict=True
    )
    for ours, theirs in pairs:
        alike = similarity(ours, theirs)
        assert alike.min() > 0.999
        assert np.abs(ours - theirs).max() > 0  # it is not float32 after all


def native_folder(tmp_path, elmo):
    elmo.save(tmp_path / "float32")
    return tmp_path / "float32"


def test_int8_model_saved_again_is_the_same_file(tmp_path, tiny):
    tiny.save(tmp_path / "first", storage="int8")
    first = elmokit.load(tmp_path / "first")
    first.save(tmp_path / "second", storage="int8")
    assert files_of(tmp_path / "first") == files_of(tmp_path / "second")
    first.save(tmp_path / "float32")
    elmokit.load(tmp_path / "float32").save(tmp_path / "third", storage="int8")
    assert files_of(tmp_path / "first") == files_of(tmp_path / "third")


@settings(max_examples=25)
@given(checkpoint=checkpoints())
def test_int8_folder_holds_any_model(tmp_path_factory, checkpoint):
    """Whatever the limit on what is large: every matrix of these small models is quantized."""
    folder = tmp_path_factory.mktemp("any")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(quantized, "SMALLEST_MATRIX", 1)
        Elmo(checkpoint).save(folder / "first", storage="int8")
        again = elmokit.load(folder / "first")
        again.save(folder / "second", storage="int8")
    assert files_of(folder / "first") == files_of(folder / "second")
    assert (again.config, again.card) == (checkpoint.config, checkpoint.card)
    assert_near(again.checkpoint(), checkpoint)


def assert_near(ours: Checkpoint, theirs: Checkpoint) -> None:
    assert ours.weights.keys() == theirs.weights.keys()
    for name, tensor in theirs.weights.items():
        if tensor.dim() < 2:
            assert torch.equal(ours.weights[name], tensor), name
        else:
            step = tensor.reshape(len(tensor), -1).abs().amax(dim=1) / 127
            error = (ours.weights[name] - tensor).reshape(len(tensor), -1).abs().amax(dim=1)
            assert (error <= 0.501 * step).all(), name


def random_checkpoint(cells: int, width: int) -> Checkpoint:
    config = ModelConfig(
        characters=CharacterConfig(filters=((1, 32), (3, 64)), highways=1),
        lstm=LstmConfig(cells=cells, width=width),
        softmax=SoftmaxConfig(words=500),
    )
    return Checkpoint(config, random_model(config, seed=0).state_dict(), "random", "random")


def test_compact_model_has_the_vectors_of_int8_and_a_rounder_softmax(tmp_path):
    checkpoint = random_checkpoint(cells=64, width=33)
    weights = checkpoint.weights
    read = {}
    for storage in ("int8", "compact"):
        native.write(checkpoint, tmp_path / storage, storage)
        read[storage] = native.read(tmp_path / storage).weights
    for name, tensor in weights.items():
        if name == "softmax.weight":
            error = (read["compact"][name] - tensor).norm() / tensor.norm()
            assert 0.01 < error < 0.15
        else:
            assert torch.equal(read["compact"][name], read["int8"][name]), name
    elmokit.load(tmp_path / "compact").save(tmp_path / "again", storage="compact")
    assert files_of(tmp_path / "again") == files_of(tmp_path / "compact")
    sizes = [(tmp_path / s / "model.safetensors").stat().st_size for s in ("int8", "compact")]
    assert sizes[0] - sizes[1] > 500 * 33 * 0.4


def test_int4_model_has_all_whole_groups_in_int4_and_the_rest_in_int8(tmp_path):
    checkpoint = random_checkpoint(cells=96, width=64)
    weights = checkpoint.weights
    for storage in ("int4", "int8"):
        native.write(checkpoint, tmp_path / storage, storage)
    read, int8 = (native.read(tmp_path / storage).weights for storage in ("int4", "int8"))
    stored = load_file(tmp_path / "int4" / "model.safetensors")
    kinds = {name: str(tensor.dtype).removeprefix("torch.") for name, tensor in stored.items()}
    assert kinds["lstm.forward_stack.1.state_weight"] == kinds["softmax.weight"] == "uint8"
    assert kinds["lstm.forward_stack.0.projection"] == "int8"  # rows of 96: no whole groups
    for name, tensor in weights.items():
        if kinds[name] == "uint8":
            error = (read[name] - tensor).norm() / tensor.norm()
            assert 0.01 < error < 0.15, name
            assert torch.equal(read[name], quantized.round_int4(tensor)), name
        else:
            assert torch.equal(read[name], int8[name]), name
    elmokit.load(tmp_path / "int4").save(tmp_path / "again", storage="int4")
    assert files_of(tmp_path / "again") == files_of(tmp_path / "int4")


INT4_NAME = "lstm.forward_stack.1.state_weight"
INT4_DAMAGES = {
    "no scales": lambda t: t.pop(INT4_NAME + ".scale"),
    "a scale per row": lambda t: t.update(
        {INT4_NAME + ".scale": t[INT4_NAME + ".scale"][:, 0].clone()}
    ),
    "too many groups": lambda t: t.update(
        {INT4_NAME + ".scale": torch.ones(384, 3, dtype=torch.bfloat16)}
    ),
    "parts of groups": lambda t: t.update({INT4_NAME: t[INT4_NAME][:, :-3].clone()}),
    "weights in bfloat16": lambda t: t.update(
        {"lstm.forward_stack.1.bias": torch.ones(384).bfloat16()}
    ),
}


def test_projections_stay_int8_in_int4_storage(tmp_path):
    checkpoint = random_checkpoint(cells=256, width=64)
    native.write(checkpoint, tmp_path / "int4", "int4")
    stored = load_file(tmp_path / "int4" / "model.safetensors")
    read = native.read(tmp_path / "int4").weights
    name = "lstm.forward_stack.0.projection"
    assert stored[name].dtype == torch.int8
    assert stored["lstm.forward_stack.0.state_weight"].dtype == torch.uint8
    exact = checkpoint.weights[name]
    assert float((read[name] - exact).abs().max()) <= float(exact.abs().max()) / 254 * 1.01


def test_projections_that_are_int4_already_stay_so(tmp_path):
    """Models of earlier versions lose nothing and do not grow."""
    own = elmokit.load("nano-en")
    name = "lstm.forward_stack.0.projection"
    weight = own.bilm.state_dict()[name]
    assert not quantized.takes_int4(weight)
    own.save(tmp_path / "again", storage="int4")
    assert load_file(tmp_path / "again" / "model.safetensors")[name].dtype == torch.uint8
    assert torch.equal(elmokit.load(tmp_path / "again").bilm.state_dict()[name], weight)


@pytest.mark.parametrize("damage", INT4_DAMAGES)
def test_int4_file_that_does_not_fit_is_refused(tmp_path, damage):
    native.write(random_checkpoint(cells=96, width=64), tmp_path / "int4", "int4")
    path = tmp_path / "int4" / "model.safetensors"
    tensors = load_file(path)
    INT4_DAMAGES[damage](tensors)
    write_tensors(path, tensors)
    with pytest.raises(CheckpointError, match=r"forward_stack\.1"):
        elmokit.load(tmp_path / "int4")


def test_float32_folder_is_still_of_the_first_version(tmp_path, tiny):
    tiny.save(tmp_path / "model")
    assert json.loads((tmp_path / "model" / "config.json").read_text())["format_version"] == 1
    tiny.save(tmp_path / "model", storage="int8")
    assert json.loads((tmp_path / "model" / "config.json").read_text())["format_version"] == 2


def test_files_of_a_model_may_be_read_by_the_same_people(tmp_path, tiny):
    tiny.save(tmp_path / "model", storage="int8")
    assert len({path.stat().st_mode for path in (tmp_path / "model").iterdir()}) == 1


# What is refused.


@pytest.mark.parametrize("version", [5, 0, "2", None, True, 1.0])
def test_other_version_is_refused(tmp_path, tiny, version):
    tiny.save(tmp_path / "model", storage="int8")
    path = tmp_path / "model" / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "format_version": version}))
    with pytest.raises(CheckpointError, match=r"format_version is .* reads 1 and 2 and 3 and 4"):
        elmokit.load(tmp_path / "model")


def test_unknown_storage_is_refused(tmp_path, tiny):
    with pytest.raises(ConfigError, match="storage='int2': use 'float32' or 'int8' or 'compact'"):
        tiny.save(tmp_path / "model", storage="int2")
    assert list(tmp_path.iterdir()) == []


def test_int8_tensors_in_a_folder_of_the_first_version_are_refused(tmp_path, tiny):
    tiny.save(tmp_path / "model", storage="int8")
    path = tmp_path / "model" / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "format_version": 1}))
    with pytest.raises(CheckpointError, match="not float32"):
        elmokit.load(tmp_path / "model")


NAME = "lstm.forward_stack.0.input_weight"
DAMAGES = {
    "no scales": lambda tensors: tensors.pop(NAME + ".scale"),
    "too few scales": lambda t: t.update({NAME + ".scale": t[NAME + ".scale"][:-1].clone()}),
    "scales of a column": lambda t: t.update({NAME + ".scale": t[NAME + ".scale"][:, None]}),
    "scales of int8": lambda t: t.update({NAME + ".scale": t[NAME + ".scale"].to(torch.int8)}),
    "one number": lambda t: t.update({NAME: t[NAME][0, 0].clone()}),
    "scales without codes": lambda t: t.update({"lstm.none.scale": torch.ones(3)}),
    "codes of no tensor": lambda t: t.update(
        {"lstm.none": torch.ones(3, 2, dtype=torch.int8), "lstm.none.scale": torch.ones(3)}
    ),
    "another shape": lambda t: t.update({NAME: t[NAME].reshape(256, 4, 4)}),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_int8_file_that_does_not_fit_is_refused(tmp_path, tiny, damage):
    tiny.save(tmp_path / "model", storage="int8")
    path = tmp_path / "model" / "model.safetensors"
    tensors = load_file(path)
    DAMAGES[damage](tensors)
    write_tensors(path, tensors)
    with pytest.raises(CheckpointError, match="model"):
        elmokit.load(tmp_path / "model")


@settings(max_examples=40)
@given(share=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_int8_file_has_no_number_whose_bit_may_flip(tmp_path_factory, share, bit):
    folder = tmp_path_factory.mktemp("flip") / "model"
    elmokit.load("test-tiny").save(folder, storage="int8")
    path = folder / "model.safetensors"
    data = bytearray(path.read_bytes())
    start = 8 + int.from_bytes(data[:8], "little")
    data[start + int(share * (len(data) - start))] ^= 1 << bit
    path.write_bytes(data)
    with pytest.raises(CheckpointError, match="checksum"):
        elmokit.load(folder)
