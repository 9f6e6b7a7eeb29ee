"""A linear probe: softmax regression on frozen vectors, in torch.

Layers differ much in the variance of their directions, and plain gradient steps would measure that
instead of what a layer encodes. So vectors are whitened first; this is linear too, and becomes part
of the probe's weights.

Several classifiers of the same vectors (the tags, and the control task's random labels) are
trained together: their weights are in one matrix, their losses are added, and since the optimizer
treats every number by itself, they are independent of each other.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

Labels = NDArray[np.int64]
Features = NDArray[np.float16] | NDArray[np.float32]

BATCH = 512
LEARNING_RATE = 1e-2
EPOCHS = 8
LEAST_STEPS = 200
"""Small training sets are read more often."""
FLOOR = 0.1
"""What is added to each direction's variance, where 1 is the mean: else the faintest directions
would be amplified noise."""
CHUNK = 8192


@dataclass(frozen=True)
class LinearProbe:
    """Weights of one or more classifiers."""

    mean: Tensor
    """(D,), of the training vectors."""
    weight: Tensor
    """(K, D), the classifiers' rows one after another."""
    bias: Tensor
    classes: tuple[int, ...]

    def predict(self, features: Features) -> list[Labels]:
        """The likeliest label of every row, for each classifier."""
        found = [torch.zeros(len(self.classes), 0, dtype=torch.int64)]
        for rows in _chunks(features, self.weight.device):
            scores = F.linear(rows - self.mean, self.weight, self.bias)  # (n, K)
            best = [part.argmax(dim=1) for part in scores.split(self.classes, dim=1)]
            found.append(torch.stack(best).cpu())
        return list(torch.cat(found, dim=1).numpy())


def fit_linear(
    features: Features,
    labels: Sequence[Labels],
    classes: Sequence[int],
    *,
    seed: int = 0,
    device: str | torch.device = "cpu",
) -> LinearProbe:
    """Train a linear probe on features (N, D), a row for each token.

    `labels` has for each classifier a number below its `classes` for every row; the seed sets the
    order in which rows are seen.
    """
    count, dim = features.shape
    device = torch.device(device)
    mean, whiten = _whitening(features, device)
    # All rows, mapped, in half precision: (N, D).
    white = torch.cat([((rows - mean) @ whiten).half() for rows in _chunks(features, device)])
    targets = [torch.from_numpy(np.ascontiguousarray(row)).to(device) for row in labels]
    weight = torch.zeros(sum(classes), dim, device=device, requires_grad=True)  # (K, D)
    bias = torch.zeros(sum(classes), device=device, requires_grad=True)
    steps_per_epoch = math.ceil(count / BATCH)
    epochs = max(EPOCHS, math.ceil(LEAST_STEPS / steps_per_epoch))
    optimizer = torch.optim.Adam([weight, bias], lr=LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: 1.0 - step / (epochs * steps_per_epoch)
    )
    order = torch.Generator().manual_seed(seed)
    for _ in range(epochs):
        for rows in torch.randperm(count, generator=order).split(BATCH):
            chosen = rows.to(device)
            inputs = white.index_select(0, chosen).float()  # (n, D)
            scores = F.linear(inputs, weight, bias).split(list(classes), dim=1)
            losses = [
                F.cross_entropy(part, target.index_select(0, chosen))
                for part, target in zip(scores, targets, strict=True)
            ]
            optimizer.zero_grad(set_to_none=True)
            torch.stack(losses).sum().backward()
            optimizer.step()
            schedule.step()
    with torch.no_grad():
        return LinearProbe(mean, weight @ whiten.T, bias.detach(), tuple(classes))


def _whitening(features: Features, device: torch.device) -> tuple[Tensor, Tensor]:
    """The mean (D,), and the map (D, D) after which all directions have about the same variance."""
    dim = features.shape[1]
    total = torch.zeros(dim, dtype=torch.float64, device=device)
    for rows in _chunks(features, device):
        total += rows.sum(dim=0, dtype=torch.float64)
    mean = (total / len(features)).float()
    scatter = torch.zeros(dim, dim, dtype=torch.float64, device=device)
    for rows in _chunks(features, device):
        centred = rows - mean
        scatter += centred.T @ centred
    spread = (scatter.diagonal() / len(features)).sqrt()  # (D,)
    varies = spread > 1e-6 * mean.abs().clamp_min(1e-3)
    scale = torch.where(varies, 1 / spread.clamp_min(1e-12), torch.zeros_like(spread))
    correlations = scatter / len(features) * scale * scale[:, None]
    variances, directions = torch.linalg.eigh(correlations)  # (D,), (D, D)
    whiten = scale[:, None] * directions / (variances.clamp_min(0) + FLOOR).sqrt()  # (D, D)
    return mean, whiten.float()


def _chunks(features: Features, device: torch.device) -> Iterator[Tensor]:
    for start in range(0, len(features), CHUNK):
        rows = np.ascontiguousarray(features[start : start + CHUNK])
        yield torch.from_numpy(rows).to(device).float()
