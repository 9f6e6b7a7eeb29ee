"""Training: the one loop, and what pretrains and adapts biLMs.

settings holds the settings of a run and the presets, and run_folder is its output folder. data
reads a corpus as windows of parallel rows and makes batches of them, losses holds the softmax
losses, optim the optimizers and learning-rate schedules, cuda_graphs captures a step on a GPU,
distributed averages gradients over processes. trainer puts these together as a `Trainable`; loop
says when to step, evaluate, save and stop, checkpoint stores snapshots, display shows progress and
card writes the model card. pretrain and adapt are what users call. Tasks use the same loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from elmokit.lazy import lazy_names

_HOMES = {
    "PRESETS": "elmokit.training.settings",
    "settings_for": "elmokit.training.settings",
    "PretrainConfig": "elmokit.training.settings",
    "DataConfig": "elmokit.training.settings",
    "LossConfig": "elmokit.training.settings",
    "OptimizerConfig": "elmokit.training.settings",
    "RunConfig": "elmokit.training.settings",
    "AdaptConfig": "elmokit.training.adapt",
    "Adapted": "elmokit.training.adapt",
    "read_log": "elmokit.training.display",
}

if TYPE_CHECKING:
    from elmokit.training.adapt import AdaptConfig, Adapted
    from elmokit.training.display import read_log
    from elmokit.training.settings import (
        PRESETS,
        DataConfig,
        LossConfig,
        OptimizerConfig,
        PretrainConfig,
        RunConfig,
        settings_for,
    )
else:
    __getattr__, __dir__ = lazy_names(__name__, _HOMES)

__all__ = [
    "PRESETS",
    "AdaptConfig",
    "Adapted",
    "DataConfig",
    "LossConfig",
    "OptimizerConfig",
    "PretrainConfig",
    "RunConfig",
    "read_log",
    "settings_for",
]
