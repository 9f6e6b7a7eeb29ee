"""int4 after training by what a model computes on text."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import elmokit
from elmokit.checkpoints import native
from elmokit.checkpoints.quantized import (
    dequantize_int4,
    quantize_int4,
    round_int4,
    round_int4_for_inputs,
    takes_int4,
)
from elmokit.errors import DataError
from elmokit.text.readers import read_texts
from elmokit.training.calibration import calibrate_int4


def matrix_and_inputs(seed: int, rows: int, groups: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A matrix (R, C), and inputs (n, C) that go along with each other."""
    generator = torch.Generator().manual_seed(seed)
    columns = 64 * groups
    few = torch.randn(300, columns // 4, generator=generator)
    inputs = few @ torch.randn(columns // 4, columns, generator=generator)
    inputs += 0.3 * torch.randn(300, columns, generator=generator)
    return torch.randn(rows, columns, generator=generator), inputs


@given(st.integers(0, 10**6), st.integers(1, 8), st.integers(1, 3))
@settings(max_examples=15, deadline=None)
def test_products_change_less_than_by_plain_rounding_and_storage_changes_nothing(
    seed, rows, groups
):
    matrix, inputs = matrix_and_inputs(seed, rows, groups)
    rounded = round_int4_for_inputs(matrix, inputs.T @ inputs)
    error, plain = (
        float((inputs @ (matrix - other).T).norm()) for other in (rounded, round_int4(matrix))
    )
    assert error < plain
    assert torch.equal(dequantize_int4(*quantize_int4(rounded)), rounded)


@pytest.mark.parametrize("scale", [0.0, 1e-12, 1e12])
def test_inputs_that_are_never_there_and_rows_of_zeros_stay_finite(scale):
    matrix, inputs = matrix_and_inputs(1, 4, 2)
    matrix[2] = 0
    inputs[:, 5:90] = 0
    inputs *= scale
    rounded = round_int4_for_inputs(matrix, inputs.T @ inputs)
    assert bool(rounded.isfinite().all())
    assert not rounded[2].any()
    assert torch.equal(dequantize_int4(*quantize_int4(rounded)), rounded)
    assert float((rounded - matrix).abs().max()) < 2


@pytest.fixture(scope="module")
def sentences() -> list[str]:
    texts = read_texts(Path(__file__).parents[1] / "data" / "heldout_zh.txt")
    return [text for text in texts if text.strip()][:10]


def test_a_trained_model_keeps_its_vectors_better(sentences, tmp_path):
    """Measured on sentences that were not read for the calibration; small-en is int4 already."""
    few_words = elmokit.load("small-zh").checkpoint().with_words(2000)
    native.write(few_words, tmp_path / "small", "float32")
    whole = elmokit.load(tmp_path / "small")
    exact = whole.encode(sentences[5:], layers=2)
    whole.save(tmp_path / "plain", storage="int4")
    assert calibrate_int4(whole, sentences[:5]) > 200
    whole.save(tmp_path / "near", storage="int4")
    errors = {}
    for name in ("plain", "near"):
        stored = elmokit.load(tmp_path / name)
        pairs = zip(stored.encode(sentences[5:], layers=2), exact, strict=True)
        errors[name] = np.mean([np.square(a - b).mean() for a, b in pairs])
    assert errors["near"] < 0.7 * errors["plain"]
    for name, weight in elmokit.load(tmp_path / "near").bilm.state_dict().items():
        if takes_int4(weight):
            assert torch.equal(weight, whole.bilm.state_dict()[name]), name


def test_no_text_is_refused_and_the_model_is_unchanged():
    elmo = elmokit.load("test-tiny")
    before = {name: weight.clone() for name, weight in elmo.bilm.state_dict().items()}
    with pytest.raises(DataError, match="no sentence to calibrate with"):
        calibrate_int4(elmo, [])
    assert all(torch.equal(before[n], weight) for n, weight in elmo.bilm.state_dict().items())
