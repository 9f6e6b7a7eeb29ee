"""Any model that the config allows gives the same vectors as a graph."""

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from random_models import ODD_WORDS, checkpoints

import elmokit
from elmokit.checkpoints.export import softmax_graph, step_graph
from elmokit.checkpoints.quantized import dequantize_int4_rows, quantize_int4_rows, round_int4
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
    for int8 in (False, True):
        graph = softmax_graph(matrix, checkpoint.weights["softmax.bias"], int8=int8)
        got, chosen = InferenceSession(graph).run(None, {"x": x, "targets": targets})
        np.testing.assert_array_equal(chosen, got[np.arange(3), targets])
        near = 0.1 if int8 else 1e-4
        np.testing.assert_allclose(got, logps.detach().numpy(), rtol=near, atol=near)


@pytest.mark.parametrize(
    "weights",
    [
        dequantize_int4_rows(*quantize_int4_rows(torch.randn(2000, 7)), 7),
        round_int4(torch.randn(500, 64)),
    ],
    ids=["rows", "groups"],
)
def test_weights_that_were_int4_stay_so_without_loss(weights):
    words, width = weights.shape
    graph = softmax_graph(weights, torch.zeros(words), int8=True)
    # Half a byte per number; a bias and a scale per row; the graph around them.
    assert len(graph) < weights.numel() / 2 + 10 * words + 4000
    x = np.eye(width, dtype=np.float32)
    feed = {"x": x, "targets": np.zeros(width, np.int64)}
    (got,) = InferenceSession(graph).run(["logprobs"], feed)
    np.testing.assert_allclose(got, torch.log_softmax(weights.T, dim=1), atol=1e-5)
