"""The one training loop: steps, evaluations, snapshots, resuming, early stopping.

What is trained is a `Trainable`: it knows how to take a step, how to measure itself, and what its
state is. The loop knows when to do which, shows progress, and never loses more than the steps
since the last snapshot.
"""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from elmokit.errors import ElmokitError
from elmokit.training.checkpoint import Snapshot, latest_snapshot, save_snapshot
from elmokit.training.display import Display
from elmokit.training.distributed import DistContext

REPORT_EVERY = 20
"""Steps between reading the losses, which synchronises host and device."""


class DivergenceError(ElmokitError, ArithmeticError):
    """The loss is NaN or infinite."""


@dataclass(frozen=True)
class StepResult:
    """What a step returns, still on the device so that nothing is synchronised."""

    losses: Tensor
    """Mean loss of each part (direction), (D,)."""
    norm: Tensor
    """Norm of the gradients before clipping."""
    tokens: int
    """Tokens read by all processes together."""
    lr: float


class Trainable(Protocol):
    """Something that can be trained."""

    def step(self, number: int) -> StepResult:
        """Take one optimizer step, counted from zero."""

    def evaluate(self) -> Mapping[str, Any]:
        """Measure on held-out data; the value under ``score`` is better the lower it is.

        While the value under ``has_signal``, where there is one, is 0, nothing is right yet, and
        early stopping does not count evaluations without improvement.
        """

    def save_best(self, measured: Mapping[str, Any]) -> None:
        """Store the present weights as the best so far; called in the main process."""

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Everything that the next step depends on; called in all processes."""

    def restore(self, snapshot: Snapshot) -> None:
        """Load the state of a snapshot."""

    def close(self) -> None:
        """Stop background threads; called when the run ends, however it does."""


@dataclass(frozen=True)
class LoopConfig:
    """When to do what."""

    max_steps: int
    evaluate_every: int
    save_every: int
    patience: int = 0
    evaluate_first: bool = False
    """Evaluate before the first step too: the starting weights must be beaten."""
    warmup: int = 0
    """Steps in which the learning rate rises; early stopping counts no evaluation of them."""


@dataclass
class Progress:
    """How far a run is; stored in its snapshots."""

    best: float = math.inf
    best_step: int = -1
    last_eval_step: int = -1
    without_improvement: int = 0
    """Evaluations since the best one."""
    tokens: int = 0
    seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """As it is stored."""
        return {_STORED_NAMES.get(name, name): value for name, value in vars(self).items()}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Progress:
        """Read what `to_dict` gives."""
        names = {old: name for name, old in _STORED_NAMES.items()}
        return cls(**{names.get(name, name): value for name, value in stored.items()})


_STORED_NAMES = {"last_eval_step": "looked"}
"""Names in snapshots, where they are not the attributes' own."""


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    reason: str
    """``finished``, ``stopped early`` or ``interrupted``."""
    step: int
    progress: Progress = field(default_factory=Progress)


def train(
    trainer: Trainable,
    config: LoopConfig,
    *,
    folder: Path,
    context: DistContext,
    display: Display,
    resume: bool,
) -> Outcome:
    """Train until the last step, until nothing improves, or until interrupted.

    Snapshots go to `folder`; `resume` continues from the newest one, when there is one.

    Raises:
        DivergenceError: The loss is NaN or infinite; the last good snapshot is kept.
    """
    progress = Progress()
    start = 0
    if resume:
        if (snapshot := latest_snapshot(folder, display.note)) is not None:
            trainer.restore(snapshot)
            progress = Progress.from_dict(snapshot.facts["progress"])
            start = snapshot.step
        display.resumed(start, progress.last_eval_step)
    loop = _Loop(trainer, config, folder, context, display, progress, start)
    with _interruptions() as interrupted, closing(trainer):
        return loop.run(interrupted)


@dataclass
class _Loop:
    """One run of `train`."""

    _trainer: Trainable
    _config: LoopConfig
    _folder: Path
    _context: DistContext
    _display: Display
    _progress: Progress
    _saved: int
    """The step of the newest snapshot; 0 without one."""

    def __post_init__(self) -> None:
        self._unsaved = False
        self._pending: list[StepResult] = []
        self._reported = time.monotonic()
        self._began = self._reported - self._progress.seconds

    def run(self, interrupted: threading.Event) -> Outcome:
        """Take steps until there is a reason to stop."""
        config, done = self._config, self._saved
        reason = ""
        while not reason:
            # With several processes an all-reduce, so now and then, not at every step.
            asked = self._context.world_size == 1 or done % REPORT_EVERY == 0
            stop = asked and self._context.any(interrupted.is_set())
            reason = "interrupted" if stop else self._evaluate_if_due(done)
            if self._unsaved and (reason or done % config.save_every == 0):
                self._save(done)
            if not reason:
                self._pending.append(self._trainer.step(done))
                self._unsaved = True
                done += 1
                if done % REPORT_EVERY == 0:
                    self._report(done)
        return Outcome(reason, done, self._progress)

    def _evaluate_if_due(self, done: int) -> str:
        """Evaluate if it is time to; returns a reason to stop if there is one."""
        config, progress = self._config, self._progress
        last = done >= config.max_steps
        # A run that was interrupted before an evaluation that was due does it when resumed.
        first = 0 if config.evaluate_first else 1
        due = last or (done >= first and done % config.evaluate_every == 0)
        if due and progress.last_eval_step != done:
            self._evaluate(done)
        if config.patience and progress.without_improvement >= config.patience:
            return "stopped early"
        return "finished" if last else ""

    def _report(self, done: int) -> None:
        """Show the losses since the last report; stop if one is NaN or infinite."""
        if not self._pending:
            return
        results, self._pending = self._pending, []
        losses = torch.stack([result.losses for result in results])  # (steps, D)
        self._context.average([losses])
        norms = torch.stack([result.norm for result in results])
        good = torch.isfinite(losses).all(dim=1) & torch.isfinite(norms)
        if not bool(good.all()):
            step = done - len(results) + int(good.int().argmin()) + 1
            raise self._divergence(f"step {step}: the loss or its gradient is NaN or infinite")
        now = time.monotonic()
        tokens = sum(result.tokens for result in results)
        self._progress.tokens += tokens
        self._progress.seconds = now - self._began
        self._display.steps(
            done,
            losses=losses.mean(dim=0).tolist(),
            lr=results[-1].lr,
            tokens=self._progress.tokens,
            tokens_per_second=tokens / max(1e-9, now - self._reported),
            eta=(now - self._reported) / len(results) * (self._config.max_steps - done),
        )
        self._reported = now

    def _divergence(self, problem: str) -> DivergenceError:
        kept = f"the snapshot of step {self._saved} is kept" if self._saved else "none is kept"
        return DivergenceError(
            f"{problem}; {kept}. Continue with --resume and a lower optimizer.lr"
        )

    def _evaluate(self, done: int) -> None:
        self._report(done)
        measured = dict(self._trainer.evaluate())
        has_signal = bool(measured.pop("has_signal", 1.0))
        score = self._context.broadcast(measured["score"])
        score = math.inf if math.isnan(score) else score
        better = score < self._progress.best or self._progress.best_step < 0
        self._progress.last_eval_step, self._unsaved = done, True
        if better:
            self._progress.best, self._progress.best_step = score, done
            self._progress.without_improvement = 0
            if self._context.is_main:
                self._trainer.save_best(measured)
        elif has_signal and done > self._config.warmup:
            self._progress.without_improvement += 1
        self._context.barrier()
        self._display.evaluation(done, measured, better=better)
        self._reported = time.monotonic()

    def _save(self, done: int) -> None:
        self._report(done)
        tensors, facts = self._trainer.state()
        for name, tensor in tensors.items():
            if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
                raise self._divergence(f"step {done}: {name} holds NaN or infinite values")
        if self._context.is_main:
            facts = {**facts, "progress": self._progress.to_dict()}
            save_snapshot(self._folder, Snapshot(done, tensors, facts))
        self._context.barrier()
        self._saved, self._unsaved = done, False
        self._reported = time.monotonic()


@contextmanager
def _interruptions() -> Iterator[threading.Event]:
    """SIGINT and SIGTERM end the run after the present step; a second one ends it at once."""
    event = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield event
        return

    def note(number: int, frame: object) -> None:
        if event.is_set():
            raise KeyboardInterrupt
        event.set()

    old = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield event
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
