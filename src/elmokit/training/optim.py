"""Optimizers for whole parameters and for rows of large ones, and the learning-rate schedules."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn

from elmokit.engines import TRITON
from elmokit.training.settings import OptimizerConfig

_ADAM_EPS = 1e-8
_ADAGRAD_EPS = 1e-10


def learning_rate(config: OptimizerConfig, step: int, max_steps: int) -> float:
    """The learning rate of a step, counted from zero."""
    if step < config.warmup:
        return config.lr * (step + 1) / config.warmup
    if config.schedule == "cosine":
        done = min(1.0, (step - config.warmup) / max(1, max_steps - config.warmup))
        share = 0.5 * (1 + math.cos(math.pi * done))
        return config.lr * (config.min_lr_ratio + (1 - config.min_lr_ratio) * share)
    if config.schedule == "inverse_sqrt":
        return config.lr * math.sqrt(max(1, config.warmup) / max(1, step + 1))
    return config.lr


def dense_optimizer(
    named_parameters: Iterable[tuple[str, nn.Parameter]], config: OptimizerConfig
) -> torch.optim.Optimizer:
    """An optimizer of torch for parameters with whole gradients."""
    named = list(named_parameters)
    if config.name == "adamw":
        decayed = [p for name, p in named if p.ndim > 1 and not name.endswith("embedding")]
        plain = [p for name, p in named if p.ndim <= 1 or name.endswith("embedding")]
        groups = [
            {"params": decayed, "weight_decay": config.weight_decay},
            {"params": plain, "weight_decay": 0.0},
        ]
        betas = (config.betas[0], config.betas[1])
        # One pass over memory: on a CPU, too, ten times as fast as one operation after another.
        fused = bool(named) and named[0][1].device.type in ("cpu", "cuda")
        adamw = torch.optim.AdamW(groups, lr=config.lr, betas=betas, eps=_ADAM_EPS, fused=fused)
        if fused:
            adamw.register_step_post_hook(_count_changes)
        return adamw
    parameters = [{"params": [p for _, p in named]}]  # a group may be empty, a list may not
    if config.name == "adagrad":
        return torch.optim.Adagrad(
            parameters, lr=config.lr, initial_accumulator_value=config.accumulator, eps=_ADAGRAD_EPS
        )
    nesterov = config.momentum > 0
    return torch.optim.SGD(parameters, lr=config.lr, momentum=config.momentum, nesterov=nesterov)


def _count_changes(optimizer: torch.optim.Optimizer, *_: object) -> None:
    """Raise the weights' versions, as other steps do: prepacked copies are compared by them."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            torch.autograd.graph.increment_version(parameter)


def optimizer_tensors(
    optimizer: torch.optim.Optimizer, named: Iterable[tuple[str, nn.Parameter]]
) -> Iterator[tuple[str, Tensor]]:
    """The optimizer state by names that do not depend on the run (``optimiser.`` in snapshots)."""
    for name, parameter in named:
        for key, value in sorted(optimizer.state.get(parameter, {}).items()):
            if isinstance(value, Tensor):
                yield f"optimiser.{name}.{key}", value


def load_optimizer_state(
    optimizer: torch.optim.Optimizer,
    named: Iterable[tuple[str, nn.Parameter]],
    tensors: Mapping[str, Tensor],
) -> None:
    """Load a new optimizer's state from a snapshot; otherwise its first step makes one."""
    fused = optimizer.defaults.get("fused")  # needs its step counts on the device
    for name, parameter in named:
        prefix = f"optimiser.{name}."
        found = {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
        if found:
            state = optimizer.state[parameter]
            for key, value in found.items():
                where = parameter.device if value.ndim or fused else value.device
                # A fused step takes moments to lie in memory as their parameter does.
                like = parameter.detach() if value.shape == parameter.shape else value
                state[key] = torch.empty_like(like, dtype=value.dtype, device=where).copy_(value)


class RowOptimizer:
    """The same update rules for parameters of which a step touches few rows.

    Adagrad and plain SGD give what they would give with dense gradients. AdamW's moments and
    SGD's momentum change only when a row is touched.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], config: OptimizerConfig) -> None:
        self._config = config
        self._parameters = list(parameters)
        kinds = {"adamw": 2, "adagrad": 1, "sgd": 1}[config.name]
        start = config.accumulator if config.name == "adagrad" else 0.0
        self.state: list[list[Tensor]] = [
            [torch.full_like(p, start) for _ in range(kinds)] for p in self._parameters
        ]
        """Moments or accumulators of each parameter."""

    @torch.no_grad()
    def step(self, gradients: Iterable[RowGradient], lr: float, steps: int) -> None:
        """Change rows; `steps` were taken so far, this one included."""
        for parameter, rows, gradient in gradients:
            index = next(i for i, p in enumerate(self._parameters) if p is parameter)
            state = self.state[index]
            if parameter.is_cuda and TRITON and self._config.name == "adamw":
                from elmokit.engines.triton.rows import adam_rows

                betas, moments = (
                    (self._config.betas[0], self._config.betas[1]),
                    (state[0], state[1]),
                )
                adam_rows(
                    parameter,
                    moments,
                    rows,
                    gradient,
                    lr=lr,
                    betas=betas,
                    eps=_ADAM_EPS,
                    steps=steps,
                )
            else:
                change = self._rule(state, rows, gradient.float(), lr, steps)
                parameter.index_add_(0, rows, change, alpha=-1)

    def _rule(
        self, state: list[Tensor], rows: Tensor, gradient: Tensor, lr: float, steps: int
    ) -> Tensor:
        config = self._config
        first = state[0].index_select(0, rows)
        if config.name == "adagrad":
            first.addcmul_(gradient, gradient)
            state[0].index_copy_(0, rows, first)
            return gradient / (first.sqrt() + _ADAGRAD_EPS) * lr
        if config.name == "sgd":
            first.mul_(config.momentum).add_(gradient)
            state[0].index_copy_(0, rows, first)
            return (gradient + config.momentum * first) * lr
        beta1, beta2 = config.betas
        second = state[1].index_select(0, rows)
        first.lerp_(gradient, 1 - beta1)
        second.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        state[0].index_copy_(0, rows, first)
        state[1].index_copy_(0, rows, second)
        scale = (second / (1 - beta2**steps)).sqrt_().add_(_ADAM_EPS)
        change: Tensor = first / (1 - beta1**steps) / scale * lr
        return change


RowGradient = tuple[nn.Parameter, Tensor, Tensor]
"""A parameter, some of its rows (R,), distinct, and their gradient (R, ...)."""


def merge_rows(used: Sequence[RowGradient]) -> list[RowGradient]:
    """Gradients of several windows added up, distinct rows each."""
    by_parameter: dict[int, list[RowGradient]] = {}
    for item in used:
        by_parameter.setdefault(id(item[0]), []).append(item)
    merged: list[RowGradient] = []
    for items in by_parameter.values():
        if len(items) == 1:
            merged.append(items[0])
            continue
        rows, indices = torch.unique(torch.cat([rows for _, rows, _ in items]), return_inverse=True)
        values = torch.cat([gradient for _, _, gradient in items])
        total = values.new_zeros(len(rows), *values.shape[1:]).index_add_(0, indices, values)
        merged.append((items[0][0], rows, total))
    return merged


def clip_gradients(dense: Sequence[Tensor], rows: Sequence[Tensor], bound: float) -> Tensor:
    """Scale all gradients so that their norm is at most `bound`; returns the norm before."""
    everything = [*dense, *rows]
    norms = [torch.linalg.vector_norm(gradient.float()) for gradient in everything]
    norm: Tensor = torch.linalg.vector_norm(torch.stack(norms))
    scale = (bound / (norm + 1e-6)).clamp(max=1.0)
    torch._foreach_mul_(everything, scale)
    return norm
