"""Any model that the config allows gives the same vectors as a graph."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_models import ODD_WORDS, checkpoints

import elmokit

pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")

sentences = st.lists(st.lists(st.sampled_from([*ODD_WORDS, "the", "bank"]), max_size=6), max_size=4)


@settings(max_examples=60)
@given(checkpoint=checkpoints(), batch=sentences)
def test_onnx_equals_torch_for_any_model(checkpoint, batch, tmp_path_factory):
    elmo = elmokit.Elmo(checkpoint)
    path = tmp_path_factory.mktemp("onnx") / "model.onnx"
    elmo.export(path)
    model = elmokit.OnnxElmo(path, threads=1)
    assert model.config == elmo.config
    for ours, want in zip(
        model.encode(batch, layers="all"), elmo.encode(batch, layers="all"), strict=True
    ):
        np.testing.assert_allclose(ours, want, rtol=1e-5, atol=1e-5)
