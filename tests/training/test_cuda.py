"""The same promises on a GPU; passed over where there is none."""

from dataclasses import replace

import pytest
import torch
from small_runs import SMALL, changed, make_corpus
from train_cases import Case

from elmokit.checkpoints.quantized import round_int4_for_inputs
from elmokit.engines import LstmState
from elmokit.training.checkpoint import latest_snapshot
from elmokit.training.pretrain import pretrain

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


@pytest.mark.parametrize("hidden", [None, 24])
@pytest.mark.parametrize("resets", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_engine_on_a_gpu_is_near_float64_on_a_cpu(hidden, resets, dtype):
    shape = {
        "resets": resets,
        "directions": 2, "steps": 7, "rows": 5, "width": 16, "hidden": hidden, "cell_clip": 0.6,
        "projection_clip": 0.3, "forget_bias": 1.0, "seed": 2,
    }  # fmt: skip
    exact = Case(**shape)
    results = []
    for device, kind in (("cpu", torch.float64), ("cuda", dtype)):
        case = Case(**shape)
        case.state = LstmState(
            exact.state.cell.to(device, torch.float64 if device == "cpu" else torch.float32),
            exact.state.hidden.to(device, kind),
        )
        case.not_reset = None if exact.not_reset is None else exact.not_reset.to(device, kind)
        given = [0.5 * t for t in (exact.x, *exact.weights) if t is not None]
        leaves = [t.to(device, kind).requires_grad_() for t in given]
        output, _ = case.window(leaves)
        (output * exact.d_output.to(device, kind)).sum().backward()
        results.append([output.detach().double().cpu(), *(t.grad.double().cpu() for t in leaves)])
    for a, b in zip(*results, strict=True):
        assert float((a - b).norm() / a.norm()) < (0.15 if dtype == torch.bfloat16 else 1e-2)


@pytest.mark.parametrize("loss", ["sampled", "full", "adaptive", "cnn"])
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_run_is_resumed_where_it_stopped(tmp_path, no_drawing, loss, precision):
    corpus = make_corpus(tmp_path, 80)
    config = replace(
        changed(
            SMALL,
            loss={"kind": loss},
            run={"precision": precision, "dropout": 0.2, "save_every": 10, "evaluate_every": 10},
        ),
        corpus=(str(corpus.folder),),
    )
    for name in ("whole", "parts"):
        pretrain(replace(config, output=str(tmp_path / name)), device="cuda")
    first, second = (latest_snapshot(tmp_path / n / "training") for n in ("whole", "parts"))
    for path in (tmp_path / "parts" / "training").glob("snapshot-000000020*"):
        path.unlink()
    pretrain(replace(config, output=str(tmp_path / "parts")), device="cuda", resume=True)
    resumed = latest_snapshot(tmp_path / "parts" / "training")
    assert resumed.step == first.step == second.step == 20
    for key, tensor in first.tensors.items():
        # How near two undisturbed runs come is how near a resumed one must come.
        near = torch.equal(tensor, second.tensors[key])
        if near:
            assert torch.equal(resumed.tensors[key], tensor), key
        elif tensor.is_floating_point():
            torch.testing.assert_close(resumed.tensors[key], tensor, rtol=0.05, atol=1e-3)


def relative(found: torch.Tensor, exact: torch.Tensor) -> float:
    found, exact = found.detach().double().cpu(), exact.detach().double().cpu()
    return float((found - exact).norm() / exact.norm())


def test_fused_filters_are_the_convolutions_maxima():
    from elmokit.engines.triton.char_cnn import filter_maxima

    random = torch.Generator().manual_seed(0)
    ids = torch.randint(0, 30, (200, 20), generator=random)
    ids[::2, 7:] = 29  # padding, which ends most words
    shapes = ((1, 8), (3, 40), (5, 150))
    embedding = torch.randn(30, 16, generator=random)
    weights = [0.2 * torch.randn(count, 16, width, generator=random) for width, count in shapes]
    biases = [torch.randn(count, generator=random) for _, count in shapes]
    gradient = torch.randn(200, 198, generator=random)
    results = []
    for device, kind in (("cpu", torch.float64), ("cuda", torch.float32)):
        leaves = [t.to(device, kind).requires_grad_() for t in (embedding, *weights, *biases)]
        own_embedding, own_weights, own_biases = leaves[0], leaves[1:4], leaves[4:]
        if device == "cpu":
            characters = torch.nn.functional.embedding(ids, own_embedding).mT
            maxima = torch.cat(
                [
                    torch.nn.functional.conv1d(characters, w, b).amax(dim=2)
                    for w, b in zip(own_weights, own_biases, strict=True)
                ],
                dim=1,
            )
        else:
            maxima = filter_maxima(
                ids.cuda(), own_embedding, own_weights, own_biases, torch.bfloat16
            )
        maxima.backward(gradient.to(device, maxima.dtype))
        results.append([maxima, *(leaf.grad for leaf in leaves)])
    assert relative(results[1][0], results[0][0]) < 0.01
    for found, exact in zip(results[1][1:], results[0][1:], strict=True):
        assert relative(found, exact) < 0.15  # a near tie may fall to another index


def test_the_fused_loss_is_the_plain_one():
    from elmokit.training.losses import sampled_loss

    random = torch.Generator().manual_seed(1)
    x = torch.randn(300, 64, generator=random)
    weight = 0.3 * torch.randn(900, 64, generator=random)
    bias = torch.randn(900, generator=random)
    targets = torch.randint(0, 900, (300,), generator=random)
    negatives = torch.randperm(900, generator=random)[:200]
    column = torch.full((900,), -1).index_copy(0, negatives, torch.arange(200))
    results = []
    for device, kind in (("cpu", torch.float64), ("cuda", torch.bfloat16)):
        leaves = [t.bfloat16().to(device, kind).requires_grad_() for t in (x, weight)] + [
            bias.to(device, torch.float64 if device == "cpu" else torch.float32).requires_grad_()
        ]
        loss = sampled_loss(*leaves, *(t.to(device) for t in (targets, negatives, column[targets])))
        (loss / 300).backward()
        results.append([loss, *(leaf.grad for leaf in leaves)])
    for found, exact in zip(results[1], results[0], strict=True):
        assert relative(found, exact) < 0.01


def test_rows_are_taken_and_their_gradients_summed_in_one_order():
    from elmokit.engines.train import take_rows

    random = torch.Generator().manual_seed(2)
    table = torch.randn(50, 70, generator=random)
    indices = torch.randint(0, 45, (2, 9, 130), generator=random)
    gradient = torch.randn(2, 9, 130, 70, generator=random)
    found = []
    for _ in range(2):
        leaf = table.cuda().requires_grad_()
        taken = take_rows(leaf, indices.cuda())
        assert torch.equal(taken.cpu(), table[indices])
        taken.backward(gradient.cuda())
        found.append(leaf.grad.cpu())
    assert torch.equal(*found)
    exact = torch.zeros(50, 70).index_add_(0, indices.flatten(), gradient.flatten(0, 2))
    torch.testing.assert_close(found[0], exact, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shape", [(40, 600), (40,)])
def test_rows_are_updated_on_a_gpu_as_on_a_cpu(shape):
    from elmokit.training.optim import RowOptimizer
    from elmokit.training.settings import OptimizerConfig

    random = torch.Generator().manual_seed(3)
    start = torch.randn(shape, generator=random)
    tables = [torch.nn.Parameter(start.clone().to(device)) for device in ("cpu", "cuda")]
    rules = [RowOptimizer([table], OptimizerConfig()) for table in tables]
    for step in range(1, 5):
        rows = torch.randperm(40, generator=random)[:11]
        gradient = torch.randn(11, *shape[1:], generator=random)
        for table, rule in zip(tables, rules, strict=True):
            rule.step([(table, rows.to(table.device), gradient.to(table.device))], 0.01, step)
    torch.testing.assert_close(tables[1].detach().cpu(), tables[0].detach(), rtol=1e-5, atol=1e-6)


def test_a_captured_step_is_the_eager_one(tmp_path, monkeypatch):
    from small_runs import make_trainer

    from elmokit.training.distributed import DistContext

    corpus = make_corpus(tmp_path, 80)
    config = changed(SMALL, run={"precision": "bfloat16", "dropout": 0.2})
    weights = []
    for most in (0, 12):
        monkeypatch.setattr("elmokit.training.cuda_graphs._MOST_GRAPHS", most)
        trainer = make_trainer(
            config, corpus, tmp_path, context=DistContext(0, 1, torch.device("cuda"))
        )
        for number in range(12):
            trainer.step(number)
        assert bool(trainer._compute._graphs) == bool(most)
        weights.append({name: p.detach().cpu() for name, p in trainer._named_parameters()})
        trainer.close()
    for name, tensor in weights[0].items():
        assert torch.equal(tensor, weights[1][name]), name


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_vectors_on_a_gpu_are_those_of_a_processor(precision):
    from elmokit.checkpoints.checkpoint import Checkpoint
    from elmokit.config import published_shape
    from elmokit.encode.elmo import Elmo
    from elmokit.model.init import random_model

    config = published_shape("small")
    weights = random_model(config, seed=0).state_dict()
    sentences = [["a", "b", "cc"], [], ["a"] * 40, ["x", "yz", "word", "."], ["q"]]
    exact = Elmo(Checkpoint(config, weights, "random", "small")).encode(sentences, layers="all")
    model = Elmo(Checkpoint(config, weights, "random", "small"), device="cuda", precision=precision)
    for state in ("fresh", "carry", "warm"):
        found = model.encode(sentences, layers="all", state=state)
        again = model.encode(sentences[:1], layers="all", state="fresh")
        assert [f.shape for f in found] == [e.shape for e in exact]
    found = model.encode(sentences, layers="all")
    for a, b in zip(found, exact, strict=True):
        if b.size:
            assert relative(torch.from_numpy(a), torch.from_numpy(b)) < (
                1e-5 if precision == "float32" else 0.02
            )
    if precision == "float32":
        assert abs(again[0] - found[0]).max() < 1e-5


def test_calibration_on_a_gpu_rounds_as_on_a_cpu():
    matrix, inputs = torch.randn(8, 128), torch.randn(300, 128)
    moments = inputs.T @ inputs
    exact = round_int4_for_inputs(matrix, moments)
    rounded = round_int4_for_inputs(matrix.cuda(), moments.cuda()).cpu()
    assert float((rounded != exact).float().mean()) < 0.02  # a value near the middle of two codes


@pytest.mark.parametrize("clip", [0.3, 0.7, 3.0])
def test_no_gradient_passes_a_clipped_output(clip):
    # bfloat16 holds 0.7 as a smaller number: what was clipped is not below the bound all the same.
    from elmokit.engines.triton.lstm import add_next, finish_output

    output = torch.tensor([[[9.0, -9.0, clip / 2]]], dtype=torch.bfloat16, device="cuda")
    finish_output(output, clip, None, None)
    total = torch.empty_like(output)
    add_next(torch.ones_like(output), None, None, output, clip, total)
    assert total.flatten().tolist() == [0, 0, 1]
