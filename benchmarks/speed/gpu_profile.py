"""Where the time on a GPU goes, kernel by kernel, and where the GPU waits for the host.

Run: python -m benchmarks.speed.gpu_profile CORPUS [--presets original small-en]
         [--precisions bfloat16 float8] [--kernels 12] [--save [NAME]]

CORPUS is a folder made by ``elmokit corpus prepare``. For each preset a part of a training run, as
in `benchmarks.training.presets`, and of encoding, as in `benchmarks.speed.gpu`, is recorded with
torch's profiler. Kernels are grouped by what they do; *waits* is the time in which no kernel ran.
The profiler itself slows the host, so waits are upper bounds; the speeds above each table are of
the same run without it.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter, deque
from collections.abc import Callable
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

import elmokit
from benchmarks.report import report
from benchmarks.speed.gpu import _sentences
from benchmarks.training.presets import synchronise, training
from elmokit.checkpoints.checkpoint import Checkpoint
from elmokit.engines import Precision
from elmokit.model.init import random_model
from elmokit.training.settings import PRESETS

GROUPS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("LSTM step, fused (Triton)", ("_step_kernel", "_project_kernel")),
    ("LSTM cells (Triton)", ("_forward_kernel", "_backward_kernel", "_cell_kernel")),
    ("LSTM outputs (Triton)", ("_finish_kernel", "_add_next_kernel")),
    ("character CNN (Triton)", ("_best_kernel", "_filter_", "_window_", "_fold_")),
    ("sampled softmax (Triton)", ("_share_kernel",)),
    ("rows of tables (Triton)", ("_sum_kernel", "_adam_kernel")),
    ("matmuls (cuBLAS)", ("gemm", "nvjet", "cutlass", "xmma", "splitK", "cublas")),
    ("copies", ("Memcpy", "Memset", "copy_kernel")),
    ("AdamW and norms", ("multi_tensor", "FusedAdam", "foreach", "lpnorm", "norm")),
    ("sorting and unique", ("sort", "radix", "scan", "unique", "Radix", "Scan", "bucket")),
    ("lookups", ("index", "gather", "scatter", "embedding")),
    ("reductions", ("reduce",)),
    ("other element-wise", ("elementwise", "vectorized", "Cat", "cat", "fill", "arange")),
)
STEPS = 20
"""Training steps that are recorded."""


def group_of(kernel: str) -> str:
    """What a kernel does, by its name."""
    return next((name for name, parts in GROUPS if any(p in kernel for p in parts)), "other")


def recorded(run: Callable[[], int], device: torch.device, kernels: int) -> list[str]:
    """Run once plainly and once under the profiler; lines of the table, and the longest kernels."""
    synchronise(device)
    start = time.perf_counter()
    tokens = run()
    synchronise(device)
    seconds = time.perf_counter() - start
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as record:
        start = time.perf_counter()
        run()
        synchronise(device)
        slowed = time.perf_counter() - start
    spans: list[tuple[float, float]] = []
    times: Counter[str] = Counter()
    calls: Counter[str] = Counter()
    names: Counter[str] = Counter()
    for event in record.events() or ():
        if event.device_type != torch.autograd.DeviceType.CUDA:
            continue
        spans.append((event.time_range.start, event.time_range.end))
        length = event.time_range.elapsed_us()
        times[group_of(event.name)] += length
        calls[group_of(event.name)] += 1
        names[event.name[:90]] += length
    spans.sort()
    busy, end, gaps = 0.0, spans[0][0] if spans else 0.0, []
    for first, last in spans:
        if first > end:
            gaps.append((first - end, end - spans[0][0]))
        busy += max(0.0, last - max(first, end))
        end = max(end, last)
    lines = [
        f"{tokens / seconds:,.0f} tokens/s ({seconds * 1e3:.0f} ms; {slowed * 1e3:.0f} ms with "
        f"the profiler, the GPU busy {busy / slowed / 1e4:.1f}% of them)",
        f"{'':<28}{'ms':>9}{'of busy':>9}{'kernels':>9}",
    ]
    lines += [
        f"{name:<28}{total / 1e3:>9.1f}{total / max(busy, 1e-9):>9.1%}{calls[name]:>9,}"
        for name, total in times.most_common()
    ]
    lines.append("longest waits, ms (at ms): " + ", ".join(
        f"{gap / 1e3:.1f} ({at / 1e3:.0f})" for gap, at in sorted(gaps, reverse=True)[:8]
    ))  # fmt: skip
    lines.append(f"all waits: {sum(gap for gap, _ in gaps) / 1e3:.1f} ms")
    lines += [f"  {total / 1e3:>8.1f} ms  {name}" for name, total in names.most_common(kernels)]
    return lines


def profile_training(preset: str, folder: Path, device: torch.device, kernels: int) -> list[str]:
    """A window of training steps."""
    run = PRESETS[preset]
    trainer, _, _ = training(run, folder, device)
    number = 0

    def steps() -> int:
        nonlocal number
        tokens = 0
        for _ in range(STEPS):
            tokens += trainer.step(number).tokens
            number += 1
        return tokens

    steps()
    lines = recorded(steps, device, kernels)
    trainer.close()
    return [f"training {preset}, {STEPS} steps: " + lines[0], *lines[1:]]


def profile_encoding(
    preset: str, folder: Path, device: torch.device, kernels: int, precision: Precision, count: int
) -> list[str]:
    """Encoding of real sentences, all layers, on the device."""
    config = PRESETS[preset].model
    weights = random_model(config, seed=0).state_dict()
    checkpoint = Checkpoint(config, weights, "random", preset)
    elmo = elmokit.Elmo(checkpoint, device=device, precision=precision)
    sentences = list(_sentences(folder, count))
    tokens = sum(map(len, sentences))

    def encode() -> int:
        elmo.forget()
        deque(elmo.encode_stream(sentences, layers="all", output="torch", batch_tokens=262_144), 0)
        return tokens

    encode()
    return [f"encoding {preset} in {precision}:", *recorded(encode, device, kernels)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--presets", nargs="+", default=["original", "small-en"])
    parser.add_argument("--precisions", nargs="*", default=["bfloat16"])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--sentences", type=int, default=50_000)
    parser.add_argument("--kernels", type=int, default=0, help="list so many kernels by name")
    parser.add_argument("--save", nargs="?", const="gpu_profile", metavar="NAME")
    options = parser.parse_args()
    device = torch.device(options.device)
    parts: list[str] = []
    for preset in options.presets:
        where = options.corpus, device, options.kernels
        parts.append("\n".join(profile_training(preset, *where)))
        print(parts[-1], flush=True)
        for precision in options.precisions:
            parts.append("\n".join(profile_encoding(preset, *where, precision, options.sentences)))
            print(parts[-1], flush=True)
    report(options.save or "", "\n\n".join(parts), bool(options.save))


if __name__ == "__main__":
    main()
