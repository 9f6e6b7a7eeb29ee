"""Training a task's network: what the training loop drives.

A step reads a batch of examples of similar length; an evaluation scores the dev data, with the
weights as they are or with their moving average, and what is best is saved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from statistics import fmean
from typing import Any

import torch
from torch import Tensor, nn

from elmokit.errors import CheckpointError, ConfigError
from elmokit.tasks.config import TaskConfig
from elmokit.tasks.model import TaskModel
from elmokit.tasks.report import data_hash
from elmokit.training.checkpoint import Snapshot
from elmokit.training.loop import LoopConfig, StepResult
from elmokit.training.optim import (
    clip_gradients,
    dense_optimizer,
    learning_rate,
    load_optimizer_state,
    optimizer_tensors,
)
from elmokit.training.settings import SEEDS

_SORTED_BATCHES = 32
"""Batches among which examples are sorted by length, so that similar ones meet."""
_TIE = 1e-6
"""Weight of the other metrics beside the one that training watches: it decides ties alone."""


class TaskTrainer:
    """A `Trainable` for the training loop; `save` writes the present weights as the best so far."""

    def __init__(
        self,
        model: TaskModel,
        config: TaskConfig,
        train: Sequence[Any],
        dev: Sequence[Any],
        save: Callable[[], None],
    ) -> None:
        self._model = model
        self._config = config
        self._train = train
        self._dev = dev
        self._save = save
        self._lengths = [model.length(example) for example in train]
        self._plan = loop_config(config, len(train))
        # What a parameter's learning rate is to the others', by the part that it belongs to.
        ratios = {id(p): config.fine_tune.lr_ratio for p in model.embedder.fine_tuned()}
        ratios |= {id(p): config.inputs.mix_lr_ratio for p in model.embedder.mix_weights()}
        named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
        groups: dict[float, list[tuple[str, nn.Parameter]]] = {1.0: []}
        for name, parameter in named:
            groups.setdefault(ratios.get(id(parameter), 1.0), []).append((name, parameter))
        self._groups = [
            (ratio, members, dense_optimizer(members, config.optimizer))
            for ratio, members in groups.items()
        ]
        self._ema = WeightEma(named, config.run.ema) if config.run.ema else None
        self._epoch = -1
        self._batches: list[list[int]] = []
        torch.manual_seed(config.run.seed)

    # One step

    def step(self, number: int) -> StepResult:
        """Read a batch (or several), take gradients, change the weights."""
        settings = self._config.optimizer
        lr = learning_rate(settings, number, self._plan.max_steps)
        self._model.train()
        batches = batch_count(len(self._train), self._config)
        self._model.embedder.begin(number * settings.accumulate / batches)
        losses, tokens = [], 0
        for position in range(number * settings.accumulate, (number + 1) * settings.accumulate):
            chosen = self._batch(position)
            loss = self._model.loss([self._train[i] for i in chosen])
            (loss / settings.accumulate).backward()
            losses.append(loss.detach())
            tokens += sum(self._lengths[i] for i in chosen)
        gradients = [p.grad for _, named, _ in self._groups for _, p in named if p.grad is not None]
        norm = clip_gradients(gradients, [], settings.clip_norm)
        for share, _, optimizer in self._groups:
            for group in optimizer.param_groups:
                group["lr"] = lr * share
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        if self._ema is not None:
            self._ema.update(number)
        return StepResult(torch.stack(losses).mean()[None], norm, tokens, lr)

    def _batch(self, position: int) -> list[int]:
        """The numbers of a batch's examples; `position` counts batches from the start."""
        epoch, index = divmod(position, batch_count(len(self._train), self._config))
        if epoch != self._epoch:
            run = self._config.run
            self._batches = epoch_batches(self._lengths, run.batch, seed=run.seed, epoch=epoch)
            self._epoch = epoch
        return self._batches[index]

    # Evaluation

    def evaluate(self) -> Mapping[str, Any]:
        """The task's scores on the dev data, and the layers' shares at this step."""
        with self._evaluated_weights():
            score = self._model.score(self._dev)
            mixes = self._model.embedder.learned_mixes()
        metrics = score.numbers()
        others = [v for name, v in metrics.items() if name != score.primary]
        # The loop takes the lowest; ties are broken by the mean of the other metrics.
        watched = score.value + _TIE * fmean(others) if others else score.value
        shares = {"layers": {name: mix["s"] for name, mix in mixes.items()}} if mixes else {}
        return {"score": -watched, "has_signal": float(score.value > 0), **metrics, **shares}

    def save_best(self, measured: Mapping[str, Any]) -> None:
        """Store the present weights, or their average, as the best so far."""
        with self._evaluated_weights():
            self._save()

    def _evaluated_weights(self) -> AbstractContextManager[None]:
        return nullcontext() if self._ema is None else self._ema.as_weights()

    # Resuming

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Weights, optimizer states, random states; which data they belong to."""
        tensors = {f"model.{name}": t.detach() for name, t in self._model.state_dict().items()}
        for _, named, optimizer in self._groups:
            tensors.update(optimizer_tensors(optimizer, named))
        if self._ema is not None:
            tensors |= self._ema.tensors()
        tensors["random.cpu"] = torch.get_rng_state()
        if self._model.embedder.device.type == "cuda":
            tensors["random.cuda"] = torch.cuda.get_rng_state(self._model.embedder.device)
        return tensors, {"data": data_hash(self._train)}

    def restore(self, snapshot: Snapshot) -> None:
        """Load the state of a snapshot."""
        if snapshot.facts.get("data") != data_hash(self._train):
            raise ConfigError(
                "the run was started with other training data; resume it with the same, or start "
                "a new one in another folder"
            )
        tensors = dict(snapshot.tensors)
        try:
            self._model.load_state_dict(
                {name: tensors[f"model.{name}"] for name in self._model.state_dict()}
            )
            for _, named, optimizer in self._groups:
                load_optimizer_state(optimizer, named, tensors)
            if self._ema is not None:
                self._ema.restore(tensors)
            torch.set_rng_state(tensors["random.cpu"])
            if "random.cuda" in tensors and self._model.embedder.device.type == "cuda":
                torch.cuda.set_rng_state(tensors["random.cuda"], self._model.embedder.device)
        except (KeyError, RuntimeError) as error:
            raise CheckpointError(
                f"the snapshot of step {snapshot.step} belongs to a run with other settings "
                f"({error}); start a new run in another folder"
            ) from None

    def close(self) -> None:
        """Nothing runs in the background."""


class WeightEma:
    """An exponential moving average of trained weights.

    Args:
        named: The weights.
        decay: What stays of the average at a step; less at the first steps, so that the weights
            before training count for little.
    """

    def __init__(self, named: Sequence[tuple[str, nn.Parameter]], decay: float) -> None:
        self._weights = dict(named)
        self._decay = decay
        self._average = {name: weight.detach().clone() for name, weight in named}

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Take in the weights after a step, counted from 0."""
        decay = min(self._decay, (1 + step) / (10 + step))
        for name, weight in self._weights.items():
            self._average[name].lerp_(weight, 1 - decay)

    @contextmanager
    def as_weights(self) -> Iterator[None]:
        """In this block the weights are their average."""
        kept = {name: weight.detach().clone() for name, weight in self._weights.items()}
        self._set(self._average)
        try:
            yield
        finally:
            self._set(kept)

    @torch.no_grad()
    def _set(self, values: Mapping[str, Tensor]) -> None:
        for name, weight in self._weights.items():
            weight.copy_(values[name])

    def tensors(self) -> dict[str, Tensor]:
        """The averages, for a snapshot."""
        return {f"ema.{name}": average for name, average in self._average.items()}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Take the averages of a snapshot."""
        for name, average in self._average.items():
            average.copy_(tensors[f"ema.{name}"])


def batch_count(examples: int, config: TaskConfig) -> int:
    """Batches of an epoch."""
    return -(-examples // config.run.batch)


def loop_config(config: TaskConfig, examples: int) -> LoopConfig:
    """When the loop does what, for so many training examples."""
    run = config.run
    steps = max(1, batch_count(examples, config) // config.optimizer.accumulate)
    every = max(1, steps // run.evals_per_epoch)
    warmup = config.optimizer.warmup
    return LoopConfig(run.epochs * steps, every, every, run.patience, warmup=warmup)


def epoch_batches(lengths: Sequence[int], size: int, *, seed: int, epoch: int) -> list[list[int]]:
    """All examples once, shuffled, those of similar length in one batch of `size`.

    Seed and epoch together decide the order; `lengths` are in tokens.
    """
    generator = torch.Generator().manual_seed((seed * 1_000_003 + epoch) % SEEDS)
    order = torch.randperm(len(lengths), generator=generator).tolist()
    stretch = size * _SORTED_BATCHES
    batches = []
    for start in range(0, len(order), stretch):
        similar = sorted(order[start : start + stretch], key=lambda i: lengths[i])
        batches += [similar[i : i + size] for i in range(0, len(similar), size)]
    mixed = torch.randperm(len(batches), generator=generator).tolist()
    return [batches[i] for i in mixed]
