"""Prepacked matmuls against matmuls in float64."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from elmokit.engines import cpu, cpu_probe
from elmokit.engines.cpu import prepack
from elmokit.errors import ConfigError

ERRORS = {"float32": 1e-6, "bfloat16": 1e-2, "int8": 2e-2}


@pytest.fixture(params=ERRORS, scope="module")
def precision(request):
    if request.param not in cpu_probe.probe().precisions:
        pytest.skip("not run by this CPU")
    return request.param


@settings(max_examples=25)
@given(data=st.data())
def test_matmul_is_near_the_exact_one(precision, data):
    n, k = data.draw(st.integers(1, 70)), data.draw(st.integers(1, 70))
    rows, seed = data.draw(st.integers(1, 40)), data.draw(st.integers(0, 10_000))
    g = torch.Generator().manual_seed(seed)
    # Rows of very different sizes: each has its own scale.
    sizes = 10 ** torch.empty(n, 1).uniform_(-3, 3, generator=g)
    matrix = torch.randn(n, k, generator=g) * sizes
    x = torch.randn(rows, k, generator=g) * 10 ** torch.empty(rows, 1).uniform_(-3, 3, generator=g)
    exact = x.double() @ matrix.double().t()
    scale = x.double().norm(dim=1)[:, None] * matrix.double().norm(dim=1)  # (rows, n)
    matmul = prepack(matrix, precision)
    with torch.no_grad():
        assert ((matmul(x) - exact).abs() / scale).max() < ERRORS[precision]
        other = torch.randn(rows, n, generator=g) * scale.float()
        found = matmul.linear_add(other, x, out=torch.empty(rows, n))
        assert ((found - exact - other).abs() / scale).max() < 5 * ERRORS[precision]
        bias = torch.randn(n, generator=g)
        found = matmul.linear_add(bias, x, out=torch.empty(rows, n))
        assert ((found - exact - bias).abs() / (scale + 10)).max() < 5 * ERRORS[precision]


def test_rows_do_not_see_each_other(precision):
    g = torch.Generator().manual_seed(0)
    matmul = prepack(torch.randn(96, 48, generator=g), precision)
    x = torch.randn(64, 48, generator=g) * torch.arange(64)[:, None]
    with torch.no_grad():
        together = matmul(x)
        for rows in (1, 2, 7, 33):
            torch.testing.assert_close(matmul(x[:rows]), together[:rows], rtol=1e-6, atol=1e-5)


def test_rows_of_zeros_give_zeros(precision):
    matmul = prepack(torch.randn(8, 6), precision)
    with torch.no_grad():
        assert not matmul(torch.zeros(3, 6)).any()
        assert not prepack(torch.zeros(8, 6), precision)(torch.randn(3, 6)).any()


def test_without_onednn_float32_is_left(monkeypatch):
    monkeypatch.setattr(cpu, "works", lambda precision: "this torch was built without oneDNN")
    matrix, x = torch.randn(5, 4), torch.randn(3, 4)
    matmul = prepack(matrix, "float32")
    torch.testing.assert_close(matmul(x), x @ matrix.t())
    bias = torch.randn(5)
    want = x @ matrix.t() + bias
    torch.testing.assert_close(matmul.linear_add(bias, x, out=torch.empty(3, 5)), want)
    for precision in ("bfloat16", "int8"):
        with pytest.raises(ConfigError, match="without oneDNN"):
            prepack(matrix, precision)
