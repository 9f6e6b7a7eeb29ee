"""The training engine against the reference engine."""

import os

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from train_cases import Case

from elmokit.engines import LstmState

shapes = st.fixed_dictionaries(
    {
        "directions": st.integers(1, 2),
        "steps": st.integers(1, 5),
        "rows": st.integers(1, 4),
        "width": st.integers(1, 5),
        "hidden": st.integers(1, 6) | st.none(),
        "cell_clip": st.sampled_from([None, 0.1, 0.3, 3.0]),
        "projection_clip": st.sampled_from([None, 0.07, 0.2, 3.0]),
        "forget_bias": st.sampled_from([0.0, 1.0, 0.37]),
        "seed": st.integers(0, 99),
        "resets": st.booleans(),
    }
)


@pytest.fixture(scope="module", params=[1, 2], ids=["together", "in parallel"])
def one_and_two_threads(request):
    """With more than one thread the directions run in parallel."""
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("one_and_two_threads")
@given(shapes)
@settings(max_examples=60)
def test_outputs_state_and_gradients_are_the_references(shape):
    case = Case(**shape)
    own, plain = case.leaves(), case.leaves()
    found, found_state = case.window(own)
    expected, expected_state = case.reference(plain)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)
    for a, b in zip(found_state, expected_state, strict=True):
        torch.testing.assert_close(a, b.detach(), rtol=1e-10, atol=1e-12)
        assert not a.requires_grad
    (found * case.d_output).sum().backward()
    (expected * case.d_output).sum().backward()
    for a, b in zip(own, plain, strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-8, atol=1e-10)


def test_gradients_are_slopes_where_clips_bite():
    case = Case(
        directions=2, steps=4, rows=2, width=3, hidden=4, cell_clip=0.4, projection_clip=0.3,
        forget_bias=1.0, seed=1, resets=True,
    )  # fmt: skip

    def value(leaves: list[Tensor]) -> Tensor:
        return (case.window(leaves)[0] * case.d_output).sum()

    leaves = case.leaves()
    share = float((case.window(leaves)[0].detach().abs() >= 0.3).double().mean())
    assert 0.1 < share < 0.9
    value(leaves).backward()
    for number, leaf in enumerate(leaves):
        direction = case.draw(*leaf.shape)
        ends = []
        for sign in (1, -1):
            moved = [t.detach() for t in leaves]
            moved[number] = moved[number] + sign * 1e-6 * direction
            ends.append(value(moved).item())
        slope = (ends[0] - ends[1]) / 2e-6
        assert (leaf.grad * direction).sum().item() == pytest.approx(slope, rel=1e-6)


@pytest.mark.parametrize("hidden", [None, 4])
def test_a_gradient_in_any_memory_layout(hidden):
    case = Case(
        directions=2, steps=4, rows=2, width=3, hidden=hidden, cell_clip=0.4, projection_clip=0.3,
        forget_bias=1.0, seed=1,
    )  # fmt: skip
    own, plain, spread = case.leaves(), case.leaves(), case.leaves()
    turned = case.d_output.permute(3, 2, 1, 0).contiguous()
    (case.window(own)[0].permute(3, 2, 1, 0) * turned).sum().backward()
    (case.reference(plain)[0] * case.d_output).sum().backward()
    for a, b in zip(own, plain, strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-8, atol=1e-10)
    case.window(spread)[0].sum().backward()  # its gradient is one number, spread out


@given(shapes, st.integers(1, 4))
@settings(max_examples=30)
def test_carried_state_equals_one_long_window(shape, cut):
    case = Case(**{**shape, "steps": 5})
    leaves = case.leaves()
    whole, end = case.window(leaves)
    x, not_reset = leaves[0].detach(), case.not_reset
    case.not_reset = None if not_reset is None else not_reset[:, :cut]
    first, middle = case.window([x[:, :cut], *leaves[1:]])
    case.not_reset = None if not_reset is None else not_reset[:, cut:]
    case.state = middle
    second, last = case.window([x[:, cut:], *leaves[1:]])
    torch.testing.assert_close(torch.cat([first, second], dim=1), whole, rtol=1e-10, atol=1e-12)
    for a, b in zip(last, end, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)


def test_gradients_stop_at_the_windows_edge():
    case = Case(
        directions=1, steps=3, rows=2, width=3, hidden=4, cell_clip=None, projection_clip=None,
        forget_bias=1.0, seed=4,
    )  # fmt: skip
    case.state = LstmState(*(t.requires_grad_() for t in case.state))
    output, _ = case.window(case.leaves())
    output.sum().backward()
    assert case.state.cell.grad is None
    assert case.state.hidden.grad is None


def test_inputs_are_left_as_they_are():
    case = Case(
        directions=2, steps=3, rows=2, width=3, hidden=None, cell_clip=0.3, projection_clip=None,
        forget_bias=1.0, seed=4,
    )  # fmt: skip
    leaves = case.leaves()
    before = [t.detach().clone() for t in (*leaves, *case.state)]
    output, _ = case.window(leaves)
    kept = output.detach().clone()
    output.sum().backward()
    for a, b in zip((*leaves, *case.state, output), (*before, kept), strict=True):
        assert torch.equal(a.detach(), b)


def test_float32_is_near_float64():
    shape = {
        "directions": 2, "steps": 6, "rows": 3, "width": 8, "hidden": 16, "cell_clip": 3.0,
        "projection_clip": 3.0, "forget_bias": 1.0, "seed": 2,
    }  # fmt: skip
    exact, single = Case(**shape), Case(**shape, dtype=torch.float32)
    results = []
    for case in (exact, single):
        leaves = case.leaves()
        output, _ = case.window(leaves)
        (output * case.d_output).sum().backward()
        results.append([output.detach().double(), *(t.grad.double() for t in leaves)])
    for a, b in zip(*results, strict=True):
        assert float((a - b).norm() / a.norm()) < 1e-5


@pytest.mark.skipif(
    os.environ.get("ONEDNN_MAX_CPU_ISA") != "AVX512_CORE_BF16",
    reason="bfloat16 matmuls are only safe on every CPU with ONEDNN_MAX_CPU_ISA set",
)
@pytest.mark.parametrize("hidden", [None, 16])
@pytest.mark.parametrize("resets", [False, True])
def test_bfloat16_is_near_float64(hidden, resets):
    shape = {
        "resets": resets,
        "directions": 2, "steps": 6, "rows": 3, "width": 8, "hidden": hidden, "cell_clip": 3.0,
        "projection_clip": 0.3, "forget_bias": 1.0, "seed": 2,
    }  # fmt: skip
    exact, half = Case(**shape), Case(**shape, dtype=torch.bfloat16)
    half.state = LstmState(half.state.cell.float(), half.state.hidden)
    results = []
    for case in (exact, half):
        leaves = [0.5 * leaf.detach() for leaf in case.leaves()]
        leaves = [leaf.requires_grad_() for leaf in leaves]
        output, end = case.window(leaves)
        assert output.dtype == case.dtype
        assert end.cell.dtype == case.state.cell.dtype
        (output * case.d_output).sum().backward()
        results.append([output.detach().double(), *(t.grad.double() for t in leaves)])
    for a, b in zip(*results, strict=True):
        # An output on the other side of its clip costs a whole gradient.
        assert float((a - b).norm() / a.norm()) < 0.15
