"""Training and inference on a GPU: tokens/s, memory, share of the matrix rate, loss curves.

Run: python -m benchmarks.speed.gpu TEXT... [--parts curves] [--save]

TEXT is one folder made by ``elmokit corpus prepare``, or text files, which are prepared first.
Nothing but torch, numpy and Triton is needed. Every part runs in a process of its own.

training   the preset end to end, with its full vocabulary (words that never occur fill it up)
small-gpu  the same within 12 GiB: fewer rows at a time, gradients added up
inference  vectors of real sentences, all layers and their mean, in every precision
curves     the loss of the fast path and of the reference path, two seeds each. The reference
           path has no Triton, no recorded graphs, float32 throughout, and the LSTM is the plain
           loop `elmokit.engines.run_lstm`, step by step, with autograd's gradients.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import fmean, median
from typing import Any

PARTS = ("training", "small-gpu", "inference", "curves")
SMALL_GIB = 12
PRECISIONS = ("float32", "tf32", "bfloat16", "float8")
BUDGETS = (32_768, 131_072, 262_144)
"""Tokens run together; the best number counts."""
ROUNDS, ENOUGH_SECONDS = 5, 4.0
"""There are so many rounds of each, fewer where they take that long."""
OUTPUTS: dict[str, dict[str, str]] = {
    "all layers, on the device": {"layers": "all", "output": "torch"},
    "mean of layers, on the device": {"layers": "mean", "output": "torch"},
    "mean of layers, as numpy": {"layers": "mean"},
    "all layers, as numpy": {"layers": "all"},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("texts", nargs="+", metavar="TEXT")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--preset", default="original")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--steps", type=int, default=100, help="steps that are timed")
    parser.add_argument("--accumulate", type=int, default=5, help="windows a step, small-gpu")
    parser.add_argument("--curve-steps", type=int, default=500)
    parser.add_argument("--curve-rows", type=int, default=256)
    parser.add_argument("--sentences", type=int, default=50_000, help="for inference")
    parser.add_argument("--budgets", type=int, nargs="+", default=BUDGETS, help="for inference")
    parser.add_argument("--save", action="store_true", help="write results/speed_gpu_PART.txt")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(CHILDREN[options.child.partition(":")[0]](options)))
        return
    from benchmarks.report import RESULTS, report

    with tempfile.TemporaryDirectory() as temporary:
        options.texts = [str(prepared(options.texts, Path(temporary)))]
        for part in options.parts:
            found, text = SHOWN[part](options)
            report(f"speed_gpu_{part.replace('-', '_')}", text, options.save)
            if options.save:
                path = RESULTS / f"speed_gpu_{part.replace('-', '_')}.json"
                path.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


def prepared(texts: list[str], folder: Path) -> Path:
    """A corpus folder; made from text files where none is given."""
    if len(texts) == 1 and Path(texts[0]).is_dir():
        return Path(texts[0])
    from elmokit.corpus.prepare import prepare_corpus

    prepare_corpus(texts, folder / "corpus")
    return folder / "corpus"


def child(options: argparse.Namespace, name: str) -> Any:
    """The result of one measurement in a fresh process; what it says else passes through."""
    print(name, file=sys.stderr, flush=True)
    command = [sys.executable, "-m", "benchmarks.speed.gpu", *options.texts, "--child", name]
    shared = "preset device steps accumulate curve_steps curve_rows sentences"
    for key in shared.split():
        command += [f"--{key.replace('_', '-')}", str(getattr(options, key))]
    command += ["--budgets", *map(str, options.budgets)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


# Training


def measure_training(options: argparse.Namespace) -> dict[str, Any]:
    import torch

    from benchmarks.training.presets import matrix_rate, measure
    from elmokit.training.settings import PRESETS

    device, run = torch.device(options.device), PRESETS[options.preset]
    gpu = device.type == "cuda"
    rate = matrix_rate(device)
    if options.child == "training:small":
        if gpu:
            torch.cuda.empty_cache()
            total = torch.cuda.get_device_properties(device).total_memory
            torch.cuda.set_per_process_memory_fraction(SMALL_GIB * 2**30 / total)
        parts = options.accumulate
        run = replace(
            run,
            data=replace(run.data, rows=run.data.rows // parts),
            optimizer=replace(run.optimizer, accumulate=parts),
        )
    found = measure(run, Path(options.texts[0]), device, options.steps, rate)
    name = torch.cuda.get_device_name(device) if gpu else "CPU"
    return {"device": name, "matrix_rate": rate, **found}


def show_training(options: argparse.Namespace) -> tuple[Any, str]:
    found = child(options, "training:full")
    return found, _training_text(options.preset, found)


def show_small(options: argparse.Namespace) -> tuple[Any, str]:
    found = child(options, "training:small")
    text = _training_text(options.preset, found)
    return (
        found,
        f"{text}\nwithin {SMALL_GIB} GiB, gradients of {found['accumulate']} windows a step",
    )


def _training_text(preset: str, found: dict[str, Any]) -> str:
    from benchmarks.training.presets import HEAD, line

    return (
        f"{found['device']}: matmuls at {found['matrix_rate'] / 1e12:.1f} TFLOP/s; "
        f"training is {found['flops_token'] / 1e6:.0f} MFLOP a token\n{HEAD}\n"
        f"{line(preset, found)}"
    )


# Inference


def measure_inference(options: argparse.Namespace) -> dict[str, Any]:
    import torch

    import elmokit
    from elmokit.checkpoints.checkpoint import Checkpoint
    from elmokit.encode.speed import Ceiling, count_flops
    from elmokit.model.init import random_model
    from elmokit.training.settings import PRESETS

    precision = options.child.partition(":")[2]
    device = torch.device(options.device)
    ceiling = Ceiling(options.device, precision.replace("float8", "bfloat16"), threads=1)
    rate = max(ceiling.square() for _ in range(3))  # of float8, that of bfloat16
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    config = PRESETS[options.preset].model
    weights = random_model(config, seed=0).state_dict()
    chosen = {"precision": precision} if precision in ("bfloat16", "float8") else {}
    checkpoint = Checkpoint(config, weights, "random", options.preset)
    elmo = elmokit.Elmo(checkpoint, device=device, **chosen)
    sentences = list(_sentences(Path(options.texts[0]), options.sentences))
    distinct = sorted({word for sentence in sentences for word in sentence})
    tokens = sum(map(len, sentences))
    needed = count_flops(config, distinct).needed(tokens, len(distinct)) / tokens

    def rates_of(rounds: int = ROUNDS, **how: Any) -> list[float]:
        seconds: list[float] = []
        while len(seconds) < rounds and sum(seconds) < ENOUGH_SECONDS:
            elmo.forget()
            elmo.encode([["warm-up"]], **how)
            _synchronise(device)
            start = time.perf_counter()
            deque(elmo.encode_stream(sentences, **how), maxlen=0)  # nothing is held
            _synchronise(device)
            seconds.append(time.perf_counter() - start)
        return [tokens / s for s in seconds]

    first = next(iter(OUTPUTS.values()))
    budgets = {}
    for budget in options.budgets:
        rates_of(1, batch_tokens=budget, **first)  # compiles kernels and fills the allocator
        budgets[budget] = median(rates_of(batch_tokens=budget, **first))
    best = max(budgets, key=lambda budget: budgets[budget])
    found = {name: rates_of(batch_tokens=best, **how) for name, how in OUTPUTS.items()}
    return {
        "budgets": budgets,
        "budget": best,
        "tokens": tokens,
        "distinct": len(distinct),
        "matrix_rate": rate,
        "flops_token": needed,
        "tokens_per_second": {name: median(rates) for name, rates in found.items()},
        "rounds": found,
    }


def _sentences(folder: Path, count: int) -> Iterator[list[str]]:
    """The first sentences of a prepared corpus, as words."""
    from elmokit.corpus.shards import TokenCorpus

    corpus = TokenCorpus(folder)
    split = corpus.split("train")
    for number in range(min(count, len(split))):
        yield [corpus.words[i] for i in split.tokens_of(number).tolist()]


def _synchronise(device: Any) -> None:
    import torch

    if device.type == "cuda":
        torch.cuda.synchronize(device)


def show_inference(options: argparse.Namespace) -> tuple[Any, str]:
    found: dict[str, Any] = {}
    for kind in PRECISIONS if options.device != "cpu" else PRECISIONS[:1]:
        try:
            found[kind] = child(options, f"inference:{kind}")
        except subprocess.CalledProcessError:  # it has said why
            print(f"{kind} left out", file=sys.stderr)
    kinds = list(found)
    first = found[kinds[0]]
    lines = [
        f"{options.preset}: {first['tokens']:,} tokens, {first['distinct']:,} distinct; needed "
        f"{first['flops_token'] / 1e6:.1f} MFLOP a token",
        f"{'tokens/s, median (slowest round)':<34}" + "".join(f"{kind:>24}" for kind in kinds),
    ]
    for name in OUTPUTS:
        pairs = [
            f"{one['tokens_per_second'][name]:,.0f} ({min(one['rounds'][name]):,.0f})"
            for one in found.values()
        ]
        lines.append(f"{name:<34}" + "".join(f"{pair:>24}" for pair in pairs))
    budgets = "".join(f"{found[kind]['budget']:>24,}" for kind in kinds)
    lines.append(f"{'tokens run together':<34}{budgets}")
    products = "".join(f"{found[kind]['matrix_rate'] / 1e12:>24.1f}" for kind in kinds)
    lines.append(f"{'matmuls, TFLOP/s':<34}{products}")
    shares = "".join(
        f"{max(one['tokens_per_second'].values()) * one['flops_token'] / one['matrix_rate']:>24.1%}"
        for one in found.values()
    )
    lines.append(f"{'best, of the matrix rate':<34}{shares}")
    return found, "\n".join(lines)


# Loss curves


def measure_curve(options: argparse.Namespace) -> list[float]:
    path, _, seed = options.child.partition(":")[2].partition(":")
    if path == "reference":
        sys.modules["triton"] = None  # type: ignore[assignment]  # as if it were not installed
    import torch

    from benchmarks.training.presets import training
    from elmokit.training.settings import PRESETS

    run = PRESETS[options.preset]
    precision = "float32" if path == "reference" else run.run.precision
    run = replace(
        run,
        data=replace(run.data, rows=min(run.data.rows, options.curve_rows)),
        optimizer=replace(run.optimizer, warmup=options.curve_steps // 10),
        run=replace(run.run, seed=int(seed), precision=precision, max_steps=options.curve_steps),
    )
    if path == "reference":
        _take_reference()
    work, _, _ = training(run, Path(options.texts[0]), torch.device(options.device), int(seed))
    found = [work.step(number).losses.mean() for number in range(options.curve_steps)]
    work.close()
    return torch.stack(found).tolist()


def _take_reference() -> None:
    """Use the plain loop instead of the training engine, and capture no CUDA graph."""
    import torch
    from torch import Tensor

    from elmokit.engines import LstmState, LstmWeights, Order
    from elmokit.engines.reference import run_lstm
    from elmokit.engines.train import TrainEngine
    from elmokit.training import trainer
    from elmokit.training.cuda_graphs import CudaGraphRunner

    def run(
        self: TrainEngine, x: Tensor, packing: Order, state: LstmState
    ) -> tuple[Tensor, LstmState]:
        directions, ends = [], []
        rows = packing.batch_sizes[0]
        for d in range(len(x)):
            own = LstmWeights(*(None if part is None else part[d] for part in self._weights))
            now = LstmState(state.cell[d], state.hidden[d].to(x.dtype))
            steps = []
            for t, inputs in enumerate(x[d].split(rows)):
                if packing.not_reset is not None:
                    now = LstmState(*(part * packing.not_reset[d, t] for part in now))
                output, now = run_lstm(inputs, [rows], now, own, self._clips, self._forget_bias)
                steps.append(output)  # (B, P)
            directions.append(torch.cat(steps))
            ends.append(now)
        cell, hidden = (torch.stack(parts).detach() for parts in zip(*ends, strict=True))
        return torch.stack(directions), LstmState(cell, hidden.to(state.hidden.dtype))

    def no_graph(function: Any, device: torch.device, *, active: bool) -> Any:
        return CudaGraphRunner(function, device, active=False)

    TrainEngine.run = run  # type: ignore[method-assign]
    trainer.CudaGraphRunner = no_graph  # type: ignore[assignment,misc]


def show_curves(options: argparse.Namespace) -> tuple[Any, str]:
    names = [(path, seed) for path in ("fast", "reference") for seed in (0, 1)]
    curves = {
        f"{path}, seed {seed}": child(options, f"curve:{path}:{seed}") for path, seed in names
    }
    span = max(1, options.curve_steps // 10)
    looks = [
        {name: fmean(curve[max(0, stop - span) : stop]) for name, curve in curves.items()}
        for stop in range(span, options.curve_steps + 1, span)
    ]
    between_paths = [
        fmean(abs(at[f"fast, seed {s}"] - at[f"reference, seed {s}"]) for s in (0, 1))
        for at in looks
    ]
    between_seeds = [
        fmean(abs(at[f"{path}, seed 0"] - at[f"{path}, seed 1"]) for path in ("fast", "reference"))
        for at in looks
    ]
    lines = [
        f"{options.preset}, {options.curve_rows} rows, loss over the last {span} steps",
        f"{'step':>6}" + "".join(f"{name:>20}" for name in curves) + f"{'paths':>9}{'seeds':>9}",
    ]
    for number, at in enumerate(looks):
        values = "".join(f"{value:>20.4f}" for value in at.values())
        lines.append(
            f"{(number + 1) * span:>6}{values}{between_paths[number]:>9.4f}"
            f"{between_seeds[number]:>9.4f}"
        )
    lines.append(
        f"mean difference between paths {fmean(between_paths):.4f}, "
        f"between seeds {fmean(between_seeds):.4f}"
    )
    return {"curves": curves, "paths": between_paths, "seeds": between_seeds}, "\n".join(lines)


CHILDREN = {"training": measure_training, "inference": measure_inference, "curve": measure_curve}
SHOWN = {
    "training": show_training,
    "small-gpu": show_small,
    "inference": show_inference,
    "curves": show_curves,
}


if __name__ == "__main__":
    main()
