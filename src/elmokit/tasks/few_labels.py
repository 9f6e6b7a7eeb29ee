"""Few labels: logistic regression on pooled vectors, alone or beside the network.

With a few hundred labels a network learns less than L2-regularised logistic regression on the mean
of a text's pretrained vectors (all layers, and static vectors, concatenated). `choose_kind` decides
by cross-validation between the regression, the network, and the mean of their probabilities;
`start_linear` trains the regression of a model that has one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from elmokit.tasks.config import TaskConfig
from elmokit.tasks.model import ClassHead, TaskModel

FEW = 500
"""Training examples from which on the network alone is trained."""
LEAST_FOR_NETWORKS = 100
"""Training examples below which no network is tried: the regression is better on all sets of
benchmarks/tasks/few_labels.py."""
FOLDS = 3
STRENGTHS = (1e-3, 1e-2, 1e-1, 1.0, 10.0)
"""Weights of the loss against the penalty among which cross-validation chooses."""
_BATCH = 32
_MOST_STEPS = 200


def with_kind(config: Any, kind: str) -> Any:
    """Settings of a task with this kind of head; the regression reads pretrained vectors alone."""
    inputs = config.inputs
    if kind == "linear":
        inputs = replace(inputs, words=0, characters=0, elmo_at=("input",))
    return replace(config, inputs=inputs, head=replace(config.head, kind=kind))


def is_undecided(config: TaskConfig) -> bool:
    """Whether the kind of head follows from the data."""
    return getattr(getattr(config, "head", None), "kind", None) == "auto"


def choose_kind(
    model: TaskModel,
    examples: Sequence[Any],
    train_network: Callable[[Sequence[Any]], TaskModel],
    seed: int,
) -> tuple[str, str]:
    """The kind of head that is best in cross-validation, and a line that says so.

    Args:
        model: One with the inputs in question.
        examples: The training examples.
        train_network: Gives a network that was trained on some of them.
        seed: Sets the folds.
    """
    head = model.head
    assert isinstance(head, ClassHead)
    features, targets = _pooled(model, examples), head.targets(examples)
    folds = _folds(targets.tolist(), seed)
    linear = _held_out(features, targets, _class_weights(head), folds)[1]
    found = {"linear": linear}
    if len(examples) >= LEAST_FOR_NETWORKS:
        network = torch.zeros_like(linear)
        for fold in folds:
            trained = train_network([e for i, e in enumerate(examples) if i not in set(fold)])
            rows = [row for _, row in trained.with_probabilities([examples[i] for i in fold])]
            network[fold] = torch.from_numpy(np.stack(rows))
        found |= {"ensemble": (linear + network) / 2, "attention": network}
    scores = {
        kind: float((shares.argmax(dim=1) == targets).double().mean())
        for kind, shares in found.items()
    }
    kind = max(scores, key=lambda name: scores[name])  # the simplest of equals
    measured = ", ".join(f"{name} {value:.3f}" for name, value in scores.items())
    return kind, f"few labels: head.kind = {kind} (accuracy in cross-validation: {measured})"


def start_linear(model: TaskModel, examples: Sequence[Any], seed: int) -> None:
    """Train the logistic regression of a head that has one; nothing else changes it later."""
    head = model.head
    linear = getattr(head, "linear", None)
    if linear is None:
        return
    assert isinstance(head, ClassHead)
    features, targets = _pooled(model, examples), head.targets(examples)
    weight, bias = cross_validated(features, targets, _class_weights(head), seed)
    with torch.no_grad():
        linear.weight.copy_(weight)
        linear.bias.copy_(bias)


def cross_validated(
    features: Tensor, targets: Tensor, class_weights: Tensor, seed: int
) -> tuple[Tensor, Tensor]:
    """`fit_logistic` with the strength that is best in cross-validation."""
    folds = _folds(targets.tolist(), seed)
    best = STRENGTHS[1]
    if len(folds) > 1:
        best = _held_out(features, targets, class_weights, folds)[0]
    return fit_logistic(features, targets, class_weights, best)


def fit_logistic(
    features: Tensor, targets: Tensor, class_weights: Tensor, strength: float
) -> tuple[Tensor, Tensor]:
    """Softmax regression with an L2 penalty on standardised features, by L-BFGS.

    Args:
        features: (N, F), float64.
        targets: Classes, (N,).
        class_weights: What an example of each class counts for, (K,).
        strength: Weight of the loss, summed over examples, against half the squared weights.

    Returns:
        Weights (K, F) and biases (K,) for features as they were given.
    """
    mean = features.mean(dim=0)
    scale = features.std(dim=0, correction=0).clamp(min=1e-6)
    rows = (features - mean) / scale
    weight = rows.new_zeros(len(class_weights), rows.shape[1], requires_grad=True)  # (K, F)
    bias = rows.new_zeros(len(class_weights), requires_grad=True)
    optimizer = torch.optim.LBFGS(
        [weight, bias], max_iter=_MOST_STEPS, line_search_fn="strong_wolfe"
    )

    def closure() -> Tensor:
        optimizer.zero_grad()
        scores = F.linear(rows, weight, bias)
        loss = F.cross_entropy(scores, targets, weight=class_weights, reduction="sum")
        total = strength * loss + weight.square().sum() / 2
        total.backward()
        return total

    optimizer.step(closure)
    with torch.no_grad():
        scaled = weight / scale
        return scaled, bias - scaled @ mean


def _held_out(
    features: Tensor, targets: Tensor, class_weights: Tensor, folds: Sequence[Sequence[int]]
) -> tuple[float, Tensor]:
    """The best strength, and the probabilities (N, K) of examples that were held out with it."""
    best: tuple[float, float, Tensor] | None = None
    for strength in STRENGTHS:
        shares = features.new_zeros(len(targets), len(class_weights))
        for fold in folds:
            kept = torch.ones(len(targets), dtype=torch.bool)
            kept[fold] = False
            weight, bias = fit_logistic(features[kept], targets[kept], class_weights, strength)
            shares[fold] = F.linear(features[fold], weight, bias).softmax(dim=1)
        loss = float(F.nll_loss(shares.clamp(min=1e-12).log(), targets))
        if best is None or loss < best[0]:
            best = loss, strength, shares
    assert best is not None
    return best[1], best[2]


def _class_weights(head: ClassHead[Any]) -> Tensor:
    return head.class_loss.weights.detach().cpu().double()


def _folds(targets: Sequence[int], seed: int) -> list[list[int]]:
    """Numbers of examples in parts that have the same share of each class, as far as may be."""
    by_class: dict[int, list[int]] = defaultdict(list)
    draw: NDArray[np.int64] = np.random.default_rng(seed).permutation(len(targets))
    for number in draw.tolist():
        by_class[targets[number]].append(number)
    dealt = [number for name in sorted(by_class) for number in by_class[name]]
    return [sorted(dealt[start::FOLDS]) for start in range(min(FOLDS, len(dealt)))]


@torch.no_grad()
def _pooled(model: TaskModel, examples: Sequence[Any]) -> Tensor:
    """Pooled pretrained vectors of each example's text, (N, F), on the host."""
    model.eval()
    texts = [model.task.texts(example)[0] for example in examples]
    parts = [
        model.embedder.pooled(texts[start : start + _BATCH]).cpu().double()
        for start in range(0, len(texts), _BATCH)
    ]
    return torch.cat(parts)
