"""Operators that torch may take away, change or break: the vectors stay, or loading says why."""

import numpy as np
import pytest
import torch

import elmokit
from elmokit.engines import cpu, cpu_probe
from elmokit.errors import ConfigError

SENTENCES = [[f"word{i}", "of", f"other{i}", "the"] for i in range(9)]
FLOAT = ("_reorder_linear_weight", "_linear_pointwise")
INT8 = ("qlinear_prepack", "qlinear_pointwise")


class Operator:
    """In the way of torch's operators: callable, and so is its `default`."""

    def __init__(self, call):
        self.default = self.call = call

    def __call__(self, *arguments):
        return self.call(*arguments)


def missing(real):
    return None


def other_signature(real):
    def call(x, weight, *, bias):
        raise AssertionError("never called so")

    return Operator(call)


def raising(real):
    def call(*arguments):
        raise RuntimeError("could not create a primitive\nand more lines")

    return Operator(call)


def wrong_results(real):
    """Numbers of the right shape, of other inputs."""
    return Operator(lambda x, *others: real.default(x.flip(-1), *others))


def not_numbers(real):
    def call(x, *others):
        return real.default(x * torch.nan if x.is_floating_point() else x // 2, *others)

    return Operator(call)


BROKEN = [missing, other_signature, raising, wrong_results, not_numbers]


@pytest.fixture
def break_operator(monkeypatch):
    """Replaces an operator, and makes elmokit try the matmuls again."""

    def replace(space, name, how):
        real = getattr(getattr(torch.ops, space), name)
        changed = how(real)
        namespace = getattr(torch.ops, space)
        if changed is not None:
            monkeypatch.setattr(namespace, name, changed)
        else:
            names = {key: value for key, value in vars(namespace).items() if key != name}
            monkeypatch.setattr(torch.ops, space, type("Namespace", (), names)())
        cpu.works.cache_clear()

    yield replace
    monkeypatch.undo()
    cpu.works.cache_clear()


@pytest.mark.parametrize("how", BROKEN)
@pytest.mark.parametrize("name", FLOAT)
def test_vectors_are_the_same_without_the_private_operator(break_operator, tiny, name, how):
    want = tiny.encode(SENTENCES, layers="all")
    alone = tiny.encode(SENTENCES[:1], layers="all")
    break_operator("mkldnn", name, how)
    elmo = elmokit.load("test-tiny")
    for one, expected in zip(elmo.encode(SENTENCES, layers="all"), want, strict=True):
        np.testing.assert_allclose(one, expected, rtol=0, atol=1e-6)
    found = elmo.encode(SENTENCES[:1], layers="all")
    np.testing.assert_allclose(found[0], alone[0], rtol=0, atol=1e-6)


@pytest.mark.parametrize("how", BROKEN)
@pytest.mark.parametrize(
    ("precision", "space", "name"),
    [
        *(("bfloat16", "mkldnn", name) for name in FLOAT),
        *(("int8", "onednn", name) for name in INT8),
    ],
)
def test_lower_precision_is_refused_when_loading(break_operator, precision, space, name, how):
    if precision not in cpu_probe.probe().precisions:
        pytest.skip("not run by this CPU")
    break_operator(space, name, how)
    with pytest.raises(ConfigError, match=rf"precision='{precision}': torch .*; use 'float32'$"):
        elmokit.load("test-tiny", precision=precision)


def test_matmuls_are_tried_once(monkeypatch):
    cpu.works.cache_clear()
    elmokit.load("test-tiny").encode(SENTENCES)
    monkeypatch.setattr(cpu, "MATMULS", {**cpu.MATMULS, "float32": None})
    assert cpu.works("float32") == ""
