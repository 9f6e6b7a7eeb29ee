"""Encoding, training and serving on Ray, on one machine or a cluster.

cluster imports Ray, connects to it and divides its CPUs and GPUs among workers. encode distributes
files of texts with Ray Data; pieces says what a worker reads and writes. train starts pretraining
with Ray Train, serve the service with Ray Serve.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from elmokit.lazy import lazy_names

if TYPE_CHECKING:
    from elmokit.ray.encode import encode_files as encode_files
    from elmokit.ray.serve import deployed as deployed
    from elmokit.ray.train import pretrain_with_ray as pretrain_with_ray
else:
    __getattr__, __dir__, __all__ = lazy_names(
        __name__,
        {
            "encode": "encode_files",
            "train": "pretrain_with_ray",
            "serve": "deployed",
        },
    )
