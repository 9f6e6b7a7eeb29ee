"""The training of a task as the loop's `Trainable`: batches, steps, evaluation, snapshots."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

import torch
from torch import Tensor, nn

from elmokit.errors import CheckpointError, ConfigError
from elmokit.tasks.config import TaskConfig
from elmokit.tasks.model import TaskModel
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
"""What other scores count beside the one that training watches: only where that one is equal."""


class TaskTrainer:
    """A `Trainable` for the training loop.

    Args:
        model: The model, on its device; its weights are changed.
        config: The settings.
        train: The training examples.
        dev: Examples to judge by.
        keep: Writes the present weights as the best so far.
    """

    def __init__(
        self,
        model: TaskModel,
        config: TaskConfig,
        train: Sequence[Any],
        dev: Sequence[Any],
        keep: Callable[[], None],
    ) -> None:
        self._model = model
        self._config = config
        self._train = train
        self._dev = dev
        self._keep = keep
        self._lengths = [model.length(example) for example in train]
        self._plan = loop_config(config, len(train))
        own, tuned = self._parameters()
        self._groups = [(1.0, own, dense_optimizer(own, config.optimizer))]
        if tuned:
            share = config.fine_tune.lr_ratio
            self._groups.append((share, tuned, dense_optimizer(tuned, config.optimizer)))
        self._epoch = -1
        self._batches: list[list[int]] = []
        torch.manual_seed(config.run.seed)

    def _parameters(self) -> tuple[list[tuple[str, nn.Parameter]], list[tuple[str, nn.Parameter]]]:
        """What learns at the full rate, and what learns slowly."""
        layers = self._model.embedder.layers
        slow = {id(p) for p in layers.fine_tuned()} if layers is not None else set()
        named = [(name, p) for name, p in self._model.named_parameters() if p.requires_grad]
        return [n for n in named if id(n[1]) not in slow], [n for n in named if id(n[1]) in slow]

    # One step

    def step(self, number: int) -> StepResult:
        """Read a batch (or several), take gradients, change the weights."""
        settings = self._config.optimizer
        rate = learning_rate(settings, number, self._plan.max_steps)
        self._model.train()
        self._model.embedder.begin(self._epoch_at(number))
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
                group["lr"] = rate * share
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        return StepResult(torch.stack(losses).mean()[None], norm, tokens, rate)

    def _epoch_at(self, step: int) -> float:
        return (
            step * self._config.optimizer.accumulate / batch_count(len(self._train), self._config)
        )

    def _batch(self, position: int) -> list[int]:
        """The numbers of a batch's examples; `position` counts batches from the start."""
        epoch, place = divmod(position, batch_count(len(self._train), self._config))
        if epoch != self._epoch:
            run = self._config.run
            self._batches = epoch_batches(self._lengths, run.batch, seed=run.seed, epoch=epoch)
            self._epoch = epoch
        return self._batches[place]

    # Measuring and keeping

    def evaluate(self) -> Mapping[str, float]:
        """The task's scores on the dev data."""
        score = self._model.score(self._dev)
        numbers = score.numbers()
        others = [v for name, v in numbers.items() if name != score.primary]
        # The loop looks for the lowest. Of equal looks the one is better that is so otherwise.
        watched = score.value + _TIE * fmean(others) if others else score.value
        return {"score": -watched, "has_signal": float(score.value > 0), **numbers}

    def save_best(self, measured: Mapping[str, float]) -> None:
        """Store the present weights as the best so far."""
        self._keep()

    # Going on

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Weights, optimizers, random states; which data they belong to."""
        tensors = {f"model.{name}": t.detach() for name, t in self._model.state_dict().items()}
        tensors.update(self._optimizer_tensors())
        tensors["random.cpu"] = torch.get_rng_state()
        if self._model.embedder.device.type == "cuda":
            tensors["random.cuda"] = torch.cuda.get_rng_state(self._model.embedder.device)
        return tensors, {"data": data_hash(self._train)}

    def restore(self, snapshot: Snapshot) -> None:
        """Go back to a state."""
        if snapshot.facts.get("data") != data_hash(self._train):
            raise ConfigError(
                "the run was started with other training data; resume it with the same, or start "
                "anew in another folder"
            )
        tensors = dict(snapshot.tensors)
        try:
            weights = {
                name: tensors[f"model.{name}"] for name, _ in self._model.state_dict().items()
            }
            self._model.load_state_dict(weights)
            for _, named, optimizer in self._groups:
                load_optimizer_state(optimizer, named, tensors)
            torch.set_rng_state(tensors["random.cpu"])
            if "random.cuda" in tensors and self._model.embedder.device.type == "cuda":
                torch.cuda.set_rng_state(tensors["random.cuda"], self._model.embedder.device)
        except (KeyError, RuntimeError) as error:
            raise CheckpointError(
                f"the snapshot of step {snapshot.step} belongs to a run with other settings "
                f"({error}); start anew in another folder"
            ) from None

    def close(self) -> None:
        """Nothing runs in the background."""

    def _optimizer_tensors(self) -> Iterator[tuple[str, Tensor]]:
        return itertools.chain.from_iterable(
            optimizer_tensors(optimizer, named) for _, named, optimizer in self._groups
        )


def batch_count(examples: int, config: TaskConfig) -> int:
    """Batches of an epoch."""
    return -(-examples // config.run.batch)


def loop_config(config: TaskConfig, examples: int) -> LoopConfig:
    """When the loop does what, for so many training examples."""
    run = config.run
    steps = max(1, batch_count(examples, config) // config.optimizer.accumulate)
    every = max(1, steps // run.evals_per_epoch)
    return LoopConfig(run.epochs * steps, every, every, run.patience)


def epoch_batches(lengths: Sequence[int], size: int, *, seed: int, epoch: int) -> list[list[int]]:
    """All examples once, shuffled, those of similar length in one batch.

    Args:
        lengths: Tokens of each example.
        size: Examples of a batch.
        seed: Decides the order, together with the epoch.
        epoch: Which pass it is.
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


def data_hash(examples: Sequence[Any]) -> str:
    """A hash of examples, to tell one data set from another."""
    digest = hashlib.sha256()
    for example in examples:
        digest.update(repr(example).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()
