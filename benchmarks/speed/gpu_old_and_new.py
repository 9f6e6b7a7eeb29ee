"""Two commits against each other on one GPU: the lowest and the median of five runs, in turns.

Run: python -m benchmarks.speed.gpu_old_and_new OLD NEW CORPUS [--save] [--seconds 180]

OLD and NEW are commits, or folders of the repository; CORPUS is a folder made by ``elmokit corpus
prepare``. Each checkout and case has a process of its own, and all prepare at the same time; then
one measures at a time. Inference is in bfloat16 and starts with an empty word cache in every run;
nothing is held. Training is end to end, as in `benchmarks.training.presets`. At the end a training
step of NEW is profiled, and its time added up by what the kernels do.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

RUNS = 5
OUTPUTS: dict[str, dict[str, str]] = {
    "mean of layers, on the device": {"layers": "mean", "output": "torch"},
    "all layers, on the device": {"layers": "all", "output": "torch"},
    "mean of layers, as numpy": {"layers": "mean"},
    "all layers, as numpy": {"layers": "all"},
}
TRAINING = {"original": (None, 1), "original, 12 GiB": (None, 8), "small-en": (None, 1),
            "small-en, 2048 rows": (2048, 1)}  # fmt: skip
"""Rows, where they are not the preset's, and windows whose gradients are added up."""
STEPS = {"original": 12, "original, 12 GiB": 6, "small-en": 40, "small-en, 2048 rows": 20}
GROUPS = {
    "matmuls": ("nvjet", "gemm", "cutlass", "cublas"),
    "LSTM cell, element-wise": ("_forward_kernel", "_backward_kernel"),
    "character CNN": ("_best_kernel", "_filter_grad", "_window_grad", "_fold_kernel"),
    "softmax": ("_share_kernel",),
    "rows of tables": ("_sum_kernel", "_adam_kernel", "radix", "gather", "RadixSort", "scatter"),
    "optimizer": ("multi_tensor_apply", "NormTwoOps"),
    "sums over rows (biases)": ("reduce_kernel",),
    "copies": ("copy", "Memcpy", "memcpy", "CatArray", "Memset", "FillFunctor"),
}
"""What kernels do, by parts of their names; the first that fits counts."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--only", choices=("encode", "train"), help="others keep their results")
    parser.add_argument("--sentences", type=int, default=50_000)
    parser.add_argument("--seconds", type=float, default=600.0, help="after which no case begins")
    parser.add_argument("--tiny", action="store_true", help="small shapes, to try the script")
    parser.add_argument("--save", action="store_true", help="write results/speed_gpu_old_new.*")
    options = parser.parse_args()
    from benchmarks.report import RESULTS, report
    from benchmarks.speed.old_and_new import checkout

    end = time.monotonic() + options.seconds
    found: dict[str, Any] = {}
    kept = RESULTS / "speed_gpu_old_new.json"
    if options.only and kept.exists():
        found = json.loads(kept.read_text("utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        sides = [
            checkout(name, Path(folder) / str(i))
            for i, name in enumerate((options.old, options.new))
        ]
        cases = [f"encode:{shape}" for shape in ("original", "small-en")]
        cases += [f"train:{name}" for name in TRAINING]
        cases = [case for case in cases if case.startswith(options.only or "")]
        children = {case: [_Child(path, case, options) for path in sides] for case in cases}

        def save() -> None:
            report("speed_gpu_old_new", show(found), options.save)
            if options.save:
                kept.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")

        for pair in children.values():  # nobody prepares while another is measured
            for child in pair:
                child.ready(end)
        for case, pair in children.items():
            works = list(OUTPUTS) if case.startswith("encode:") else ["steps"]
            for work in works[:: 2 if case == "encode:small-en" else 1]:
                if time.monotonic() > end or not all(child.ready(end) for child in pair):
                    print(f"{case} left out", file=sys.stderr)
                    break
                asked = [child.ask(work) for child in pair]
                if None not in asked:
                    found[f"{case}:{work}"] = asked
                    save()
        if "train:original" in children and time.monotonic() < end:
            new = children["train:original"][1]
            if new.ready(end):
                found["profile"] = new.ask("profile")
                save()
        for pair in children.values():
            for child in pair:
                child.close()


class _Child:
    """One checkout and case in a process of its own."""

    def __init__(self, path: Path, case: str, options: argparse.Namespace) -> None:
        given = {
            "case": case,
            "corpus": str(options.corpus.resolve()),
            "device": options.device,
            "sentences": options.sentences,
            "tiny": options.tiny,
        }
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).resolve()), "--child", json.dumps(given)],
            env={**os.environ, "PYTHONPATH": f"{path / 'src'}{os.pathsep}{path}"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._first: list[str] = []
        self._thread = threading.Thread(target=self._wait_first, daemon=True)
        self._thread.start()

    def _wait_first(self) -> None:
        assert self._process.stdout is not None
        self._first.append(self._process.stdout.readline())

    def ready(self, end: float) -> bool:
        self._thread.join(max(0.0, end - time.monotonic()))
        return bool(self._first and self._first[0].strip())

    def ask(self, work: str) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            print(work, file=self._process.stdin, flush=True)
        except OSError:
            return None
        answer = self._process.stdout.readline()
        return json.loads(answer) if answer.strip() else None

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


def show(found: dict[str, Any]) -> str:
    """The tables."""
    lines = []
    one = next(iter(found.values()))[1]
    if "device" in one:
        lines.append(f"{one['device']}: matmuls at {one['matrix_rate'] / 1e12:.0f} TFLOP/s")
    lines.append(f"{'tokens/s, lowest (median)':<42}{'old':>24}{'new':>24}{'lowest':>8}")
    for name, pair in found.items():
        if name == "profile":
            continue
        case, _, work = name.partition(":")[2].partition(":")
        label = f"{case}: {work}" if name.startswith("encode") else f"training, {case}"
        runs = [side["runs"] for side in pair]
        cells = "".join(f"{f'{min(some):,.0f} ({median(some):,.0f})':>24}" for some in runs)
        ratio = min(runs[1]) / min(runs[0])
        lines.append(f"{label:<42}{cells}{ratio:>7.2f}x")
    shares = [(name, pair[1]) for name, pair in found.items() if name.startswith("train")]
    if shares:
        lines.append(f"\n{'new':<42}{'batch':>12}{'MFLOP/token':>14}{'of rate':>9}{'GiB':>7}")
    for name, side in shares:
        share = side["flops_token"] * median(side["runs"]) / side["matrix_rate"]
        batch = f"{side['rows']} x {side['unroll']}"
        lines.append(
            f"{name.partition(':')[2].partition(':')[0]:<42}{batch:>12}"
            f"{side['flops_token'] / 1e6:>14.0f}{share:>9.1%}{side['gib']:>7.1f}"
        )
    if "profile" in found:
        total = sum(found["profile"].values())
        lines.append(f"\na training step of original by kernel, {total:.1f} ms")
        for name, ms in sorted(found["profile"].items(), key=lambda item: -item[1]):
            lines.append(f"{name:<42}{ms:>12.2f} ms{ms / total:>9.1%}")
    return "\n".join(lines)


# In a checkout's own process


def child(given: dict[str, Any]) -> None:
    """Prepare, say so, and answer each line of standard input with a line of JSON."""
    answers, sys.stdout = sys.stdout, sys.stderr
    kind, _, name = given["case"].partition(":")
    work = (_encoding if kind == "encode" else _training)(given, name)
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        try:
            result = work(line.strip())
        except RuntimeError as error:  # out of memory, for example; the others go on
            print(f"{given['case']}: {error}", file=sys.stderr)
            result = None
        print("" if result is None else json.dumps(result), file=answers, flush=True)


def _synchronise(device: str) -> None:
    import torch

    if device == "cuda":
        torch.cuda.synchronize()


def _rate(device: str) -> dict[str, Any]:
    import torch

    from benchmarks.training.presets import matrix_rate

    name = torch.cuda.get_device_name() if device == "cuda" else "CPU"
    return {"device": name, "matrix_rate": matrix_rate(torch.device(device))}


def _encoding(given: dict[str, Any], shape: str) -> Callable[[str], Any]:
    import elmokit
    from elmokit.checkpoints.checkpoint import Checkpoint
    from elmokit.corpus.shards import TokenCorpus
    from elmokit.model.init import random_model
    from elmokit.training.settings import PRESETS

    device = given["device"]
    config = PRESETS["tiny" if given["tiny"] else shape].model
    checkpoint = Checkpoint(config, random_model(config, seed=0).state_dict(), "random", shape)
    corpus = TokenCorpus(Path(given["corpus"]))
    split = corpus.split("train")
    sentences = [
        [corpus.words[i] for i in split.tokens_of(number).tolist()]
        for number in range(min(given["sentences"], len(split)))
    ]
    tokens = sum(map(len, sentences))
    precision: Any = "bfloat16" if device == "cuda" else "float32"
    made: dict[str, Any] = {}

    def run(how: Any) -> float:
        elmo = made["elmo"]
        elmo.forget()
        elmo.encode([["warm-up"]], **how)
        _synchronise(device)
        start = time.perf_counter()
        deque(elmo.encode_stream(sentences, batch_tokens=262_144, **how), maxlen=0)
        _synchronise(device)
        return tokens / (time.perf_counter() - start)

    def work(name: str) -> Any:
        how = OUTPUTS[name]
        if not made:
            made["elmo"] = elmokit.Elmo(checkpoint, device=device, precision=precision)
            made["rate"] = _rate(device)
            run(how)  # compiles kernels
        return {"runs": [run(how) for _ in range(RUNS)], "tokens": tokens, **made["rate"]}

    return work


def _training(given: dict[str, Any], name: str) -> Callable[[str], Any]:
    import torch

    from benchmarks.training.presets import training, training_token
    from elmokit.training.settings import PRESETS

    device = given["device"]
    preset = name.partition(",")[0]
    rows, accumulate = TRAINING[name]
    run = PRESETS["tiny" if given["tiny"] else preset]
    many = (8 if given["tiny"] else rows) or run.data.rows // accumulate
    run = replace(
        run,
        data=replace(run.data, rows=many),
        optimizer=replace(run.optimizer, accumulate=accumulate),
    )
    if name.endswith("GiB") and device == "cuda":
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(12 * 2**30 / total)
    trainer, config, words = training(run, Path(given["corpus"]), torch.device(device))
    done = 0

    def steps(count: int) -> float:
        nonlocal done
        _synchronise(device)
        start = time.perf_counter()
        tokens = 0
        for _ in range(count):
            tokens += trainer.step(done).tokens
            done += 1
        _synchronise(device)
        return tokens / (time.perf_counter() - start)

    def work(what: str) -> Any:
        if what == "profile":
            return _profile(lambda: steps(3), 3)
        rate = _rate(device)
        count = 1 if given["tiny"] else STEPS[name]
        steps(max(2, count // 2))
        batch = next(iter(trainer._prefetched()))
        distinct = len(batch.word_indices.unique()) / (run.data.rows * run.data.unroll)
        assert config.softmax is not None
        flops = training_token(
            config,
            candidates=min(config.softmax.words, run.loss.negatives),
            distinct=distinct,
            words=words[:10_000],
        )
        found = [steps(count) for _ in range(RUNS)]
        gpu = device == "cuda"
        return {
            "runs": found,
            "rows": run.data.rows,
            "unroll": run.data.unroll,
            "distinct": distinct,
            "flops_token": flops,
            "gib": torch.cuda.max_memory_reserved() / 2**30 if gpu else 0.0,
            **rate,
        }

    return work


def _profile(run: Callable[[], object], steps: int) -> dict[str, float]:
    """Milliseconds of a step by group of kernels."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    gpu = torch.cuda.is_available()
    with profile(activities=[ProfilerActivity.CUDA if gpu else ProfilerActivity.CPU]) as measured:
        run()
    found: dict[str, float] = {}
    for event in measured.key_averages():
        spent = event.self_device_time_total if gpu else event.self_cpu_time_total
        group = next(
            (name for name, parts in GROUPS.items() if any(part in event.key for part in parts)),
            "other element-wise kernels",
        )
        found[group] = found.get(group, 0.0) + spent / 1e3 / steps
    return found


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(json.loads(sys.argv[2]))
    else:
        main()
