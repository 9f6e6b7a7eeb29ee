"""Training: the one loop, and what pretrains and adapts biLMs.

settings holds the settings of a run and the presets, and run_folder is its output folder. data
reads a corpus as windows of parallel rows and makes batches of them, losses holds the softmax
losses, optim the optimizers and learning-rate schedules, cuda_graphs captures a step on a GPU,
distributed averages gradients over processes. trainer puts these together as a `Trainable`; loop
says when to step, evaluate, save and stop, checkpoint stores snapshots, display shows progress.
pretrain and adapt are what users call, and write the model card; calibration rounds a trained model
to int4 without training. Tasks use the same loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from elmokit.lazy import lazy_names

if TYPE_CHECKING:
    from elmokit.training.adapt import AdaptConfig as AdaptConfig, Adapted as Adapted
    from elmokit.training.display import read_log as read_log
    from elmokit.training.settings import (
        PRESETS as PRESETS,
        DataConfig as DataConfig,
        LossConfig as LossConfig,
        OptimizerConfig as OptimizerConfig,
        PretrainConfig as PretrainConfig,
        RunConfig as RunConfig,
        settings_for as settings_for,
    )
else:
    __getattr__, __dir__, __all__ = lazy_names(
        __name__,
        {
            "settings": "DataConfig LossConfig OptimizerConfig PRESETS PretrainConfig RunConfig "
            "settings_for",
            "adapt": "AdaptConfig Adapted",
            "display": "read_log",
        },
    )
