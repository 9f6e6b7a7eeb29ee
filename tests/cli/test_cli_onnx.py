from __future__ import annotations

import numpy as np
import pytest

import elmokit

pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")

TEXT = "the bank of the river"


def test_convert_writes_onnx(run, tmp_path, model):
    path = tmp_path / "new" / "model.onnx"
    assert run("convert", model, path).code == 0
    ours, want = elmokit.OnnxElmo(path).encode(TEXT), elmokit.load(model).encode(TEXT)
    np.testing.assert_allclose(ours, want, rtol=1e-5, atol=1e-5)
    result = run("convert", model, path)
    assert result.code == 1
    assert "--overwrite" in result.err
    size = path.stat().st_size
    assert run("convert", model, path, "--overwrite", "--storage", "int8").code == 0
    assert path.stat().st_size < size


def test_convert_writes_onnx_under_any_name(run, tmp_path, model):
    assert run("convert", model, tmp_path / "model", "--to", "onnx").code == 0
    assert elmokit.OnnxElmo(tmp_path / "model").dim == 32
