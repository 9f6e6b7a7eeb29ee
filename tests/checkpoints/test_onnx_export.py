"""Any model that the config allows gives the same vectors as a graph."""

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from random_models import ODD_WORDS, checkpoints

import elmokit
from elmokit.checkpoints.export import softmax_graph, step_graph
from elmokit.checkpoints.quantized import dequantize_int4_rows, quantize_int4_rows
from elmokit.errors import DataError

pytest.importorskip("onnx")
InferenceSession = pytest.importorskip("onnxruntime").InferenceSession
WORDS = "encoder.words.embedding"

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


@settings(max_examples=25)
@given(checkpoint=checkpoints())
def test_page_graph_gives_layers_states_and_predictions_of_any_model(checkpoint):
    elmo = elmokit.Elmo(checkpoint)
    text, lstm = elmo.config.text, elmo.config.lstm
    words = [text.begin, "the", "bank", text.end]
    tokens = np.array([[0, 1, 2, 1, 3]])
    try:
        inputs = vars(checkpoint.inputs()(words))
    except DataError:  # a vocabulary without these words, nor one for the unknown
        assume(False)
    session = InferenceSession(step_graph(checkpoint, int8=False))
    names = [output.name for output in session.get_outputs()]

    def run(part, states):
        feed = {name: rows for name, rows in inputs.items() if rows is not None}
        feed |= {"tokens": part, "lengths": np.array([part.shape[1]]), **states}
        return dict(zip(names, session.run(None, feed), strict=True))

    sides = (lstm.layers, len(lstm.directions), 1)
    sizes = {"cells": lstm.cells, "hidden": lstm.width}
    zeros = {name: np.zeros((*sides, size), np.float32) for name, size in sizes.items()}
    whole = run(tokens, zeros)
    want = elmo.encode([["the", "bank", "the"]], layers="all")[0]
    np.testing.assert_allclose(whole["layers"][:, 0, 1:-1], want, rtol=1e-5, atol=1e-5)
    # The forward direction goes on from its last states.
    first = run(tokens[:, :2], zeros)
    rest = run(tokens[:, 2:], {name: first[f"last_{name}"] for name in sizes})
    ours = rest["layers"][..., : lstm.width]
    np.testing.assert_allclose(ours, whole["layers"][:, :, 2:, : lstm.width], rtol=1e-5, atol=1e-5)

    softmax = elmo.bilm.softmax
    if softmax is None or softmax.adaptive is not None:
        return
    matrix = checkpoint.weights["softmax.weight" if softmax.weight is not None else WORDS]
    x = np.random.default_rng(0).standard_normal((3, lstm.width), np.float32)
    targets = np.array([0, 1, 0])
    table = elmo.bilm.encoder.words
    logps = softmax.log_probabilities(
        torch.from_numpy(x), None if table is None else table.embedding
    )
    for quantized in (False, True):
        graph = softmax_graph(matrix, checkpoint.weights["softmax.bias"], quantized=quantized)
        got, chosen = InferenceSession(graph).run(None, {"x": x, "targets": targets})
        np.testing.assert_array_equal(chosen, got[np.arange(3), targets])
        near = 0.1 if quantized else 1e-4
        np.testing.assert_allclose(got, logps.detach().numpy(), rtol=near, atol=near)


def test_softmax_that_was_int4_stays_so_without_loss():
    weights = torch.randn(50, 7)
    weights = dequantize_int4_rows(*quantize_int4_rows(weights), 7)
    graph = softmax_graph(weights, torch.zeros(50), quantized=True)
    x = np.eye(7, dtype=np.float32)
    (got,) = InferenceSession(graph).run(["logprobs"], {"x": x, "targets": np.zeros(7, np.int64)})
    np.testing.assert_allclose(got, torch.log_softmax(weights.T, dim=1), atol=1e-5)
