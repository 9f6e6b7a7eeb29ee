"""The same promises on a GPU; passed over where there is none."""

from dataclasses import replace

import pytest
import torch
from small_runs import SMALL, changed, make_corpus
from test_window_engine import Case

from elmokit.kernels.window import WindowState
from elmokit.training.pretrain import pretrain
from elmokit.training.snapshots import latest_snapshot

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


@pytest.mark.parametrize("hidden", [None, 24])
@pytest.mark.parametrize("blanks", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_engine_on_a_gpu_is_near_float64_on_a_cpu(hidden, blanks, dtype):
    shape = {
        "blanks": blanks,
        "directions": 2, "steps": 7, "rows": 5, "width": 16, "hidden": hidden, "cell_clip": 0.6,
        "projection_clip": 0.3, "forget_bias": 1.0, "seed": 2,
    }  # fmt: skip
    exact = Case(**shape)
    results = []
    for device, kind in (("cpu", torch.float64), ("cuda", dtype)):
        case = Case(**shape)
        case.state = WindowState(
            exact.state.cells.to(device, torch.float64 if device == "cpu" else torch.float32),
            exact.state.output.to(device, kind),
        )
        case.keep = None if exact.keep is None else exact.keep.to(device, kind)
        given = [0.5 * t for t in (exact.x, *exact.weights) if t is not None]
        leaves = [t.to(device, kind).requires_grad_() for t in given]
        output, _ = case.window(leaves)
        (output * exact.d_output.to(device, kind)).sum().backward()
        results.append([output.detach().double().cpu(), *(t.grad.double().cpu() for t in leaves)])
    for a, b in zip(*results, strict=True):
        assert float((a - b).norm() / a.norm()) < (0.15 if dtype == torch.bfloat16 else 1e-2)


@pytest.mark.parametrize("loss", ["sampled", "full", "adaptive", "cnn"])
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_run_goes_on_where_it_stopped(tmp_path, monkeypatch, loss, precision):
    monkeypatch.setattr("elmokit.training.pretrain.draw_curves", lambda *_: False)
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
