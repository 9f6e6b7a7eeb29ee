"""One LSTM layer of the published shape on a GPU: elmokit's engines against cuDNN's.

Run: python -m benchmarks.speed.cudnn [--steps 20] [--save]

cuDNN knows neither clips nor resets nor rows that end, so the layer has none of them here: all
sentences are equally long. Both get the same weights, their outputs are compared, and they are
timed in turns, both directions, bfloat16.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from statistics import median

import torch
from torch import Tensor, nn

from benchmarks.report import report
from elmokit.engines import Clips, LstmState, LstmWeights
from elmokit.engines.batched import BatchedEngine, stack_weights
from elmokit.engines.train import TrainEngine
from elmokit.model.packing import Windows

ROUNDS = 7
NO_CLIPS = Clips(None, None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--cells", type=int, default=4096)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--rows", type=int, default=2048)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--save", action="store_true", help="write results/speed_cudnn.txt")
    options = parser.parse_args()
    device, dtype = torch.device(options.device), torch.bfloat16
    torch.manual_seed(0)
    theirs = nn.LSTM(
        options.width, options.cells, proj_size=options.width, bidirectional=True, device=device
    ).to(dtype)
    theirs.flatten_parameters()
    weights = [_weights(theirs, suffix) for suffix in ("", "_reverse")]
    x = torch.randn(options.steps, options.rows, options.width, device=device, dtype=dtype)
    both = torch.stack([x, x.flip(0)])  # (D, T, B, P), each in its own order
    packing = Windows(torch.zeros(both.shape[:3], dtype=torch.int64, device=device), None)
    state = LstmState(
        torch.zeros(2, options.rows, options.cells, device=device),
        torch.zeros(2, options.rows, options.width, device=device),
    )
    inference = BatchedEngine(weights, NO_CLIPS, 0.0, dtype)
    stacked = stack_weights(weights, dtype)
    learned_weights = LstmWeights(*map(nn.Parameter, stacked))  # type: ignore[arg-type]
    training = TrainEngine(learned_weights, NO_CLIPS, 0.0)
    learned = both.clone().requires_grad_()
    also_learned = x.clone().requires_grad_()

    @torch.no_grad()
    def infer() -> Tensor:
        return inference.run(both.flatten(1, 2), packing, state)[0].view_as(both)

    @torch.no_grad()
    def infer_cudnn() -> Tensor:
        return theirs(x)[0]

    def train() -> Tensor:
        output, _ = training.run(learned.flatten(1, 2), packing, state)
        output.sum().backward()
        return output.view_as(both)

    def train_cudnn() -> Tensor:
        output = theirs(also_learned)[0]
        output.sum().backward()
        return output

    lines = [
        f"cells {options.cells}, width {options.width}, {options.rows} rows, "
        f"{options.steps} steps, both directions, bfloat16",
        f"{'':<24}{'elmokit ms':>12}{'cuDNN ms':>12}{'times as fast':>15}{'difference':>12}",
    ]
    for name, own, other in (
        ("inference", infer, infer_cudnn),
        ("forward and backward", train, train_cudnn),
    ):
        there = other().detach().float().unflatten(2, (2, -1))  # (T, B, D, P)
        here = own().detach().float()
        here = torch.stack([here[0], here[1].flip(0)], dim=2)
        difference = float((here - there).abs().max())
        own_ms, other_ms = in_turns(own, other, device)
        lines.append(
            f"{name:<24}{own_ms:>12.2f}{other_ms:>12.2f}{other_ms / own_ms:>15.2f}"
            f"{difference:>12.4f}"
        )
    report("speed_cudnn", "\n".join(lines), options.save)


def _weights(lstm: nn.LSTM, suffix: str) -> LstmWeights:
    names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr")
    of_input, of_state, bias, more_bias, projection = (
        getattr(lstm, f"{name}_l0{suffix}").detach() for name in names
    )
    return LstmWeights(of_input, of_state, bias + more_bias, projection)


def in_turns(
    first: Callable[[], object], second: Callable[[], object], device: torch.device
) -> tuple[float, float]:
    """Median milliseconds of each."""
    seconds: tuple[list[float], list[float]] = ([], [])
    for _ in range(ROUNDS):
        for work, taken in zip((first, second), seconds, strict=True):
            _synchronise(device)
            start = time.perf_counter()
            work()
            _synchronise(device)
            taken.append(time.perf_counter() - start)
    return 1e3 * median(seconds[0]), 1e3 * median(seconds[1])


def _synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


if __name__ == "__main__":
    main()
