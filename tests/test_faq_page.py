"""The questions and answers run: Python, commands, lines for other libraries where these are."""

from __future__ import annotations

import importlib
import os
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch
from pages import code_of, page_text, run_page

PAGE = "docs/faq.md"
LIBRARIES = {"JAX": "jax", "TensorFlow": "tensorflow", "PyTorch, CuPy and others": "torch"}


def test_faq_page_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    run_page(PAGE, capsys.readouterr)


@pytest.mark.parametrize("library", LIBRARIES)
def test_vectors_go_to_another_library(library):
    module = pytest.importorskip(LIBRARIES[library])
    line = re.search(rf"^\| {library} \| `(.+)` \|$", page_text(PAGE), flags=re.MULTILINE)
    assert line is not None
    tensor = torch.arange(6.0).reshape(2, 3)
    names = {"tensor": tensor, "array": np.from_dlpack(tensor), "tf": module}
    if library == "JAX":
        importlib.import_module("jax.dlpack")
    taken = eval(line[1], {LIBRARIES[library]: module, **names})
    assert np.array_equal(np.asarray(taken), tensor.numpy())


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("Rscript") is None, reason="R is not installed")
def test_r_calls_elmokit(tmp_path):
    has = ["Rscript", "-e", "quit(status = !requireNamespace('reticulate', quietly = TRUE))"]
    if subprocess.run(has, check=False, timeout=120).returncode:
        pytest.skip("R has no reticulate")
    script = tmp_path / "elmo.R"
    script.write_text("\n".join(code_of(PAGE, "r")), "utf-8")
    done = subprocess.run(
        ["Rscript", script],
        cwd=tmp_path,
        env={**os.environ, "RETICULATE_PYTHON": sys.executable},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=300,
    )
    assert re.search(r"^\[1\] +3 512$", done.stdout, flags=re.MULTILINE)
    first = re.search(r"^\[1,\](.*)$", done.stdout, flags=re.MULTILINE)
    assert first is not None
    itself, river, money = map(float, first[1].split())
    assert itself > river > money
