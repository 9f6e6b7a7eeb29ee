"""``elmokit download``: published models to the cache, and out of it."""

from __future__ import annotations

import os
from typing import Annotated

from cyclopts import Parameter

from elmokit.cli.options import UsageError, readable_size, size_on_disk, suggest

EXAMPLES = (
    "elmokit download original",
    "elmokit download manylangs-ja seqvec",
    "elmokit download https://example.org/elmo/weights.hdf5",
    "elmokit download --remove original",
)


def download(
    *models: Annotated[str, Parameter(name="MODEL")],
    remove: bool = False,
) -> None:
    """Fetch published models, so that they load by name without the network.

    Mirrors are tried in turn, an interrupted download is resumed, and checksums are compared. The
    cache is ELMOKIT_CACHE, or elmokit in the user's cache folder. ELMOKIT_OFFLINE=1 forbids
    downloads, ELMOKIT_MIRROR is an address where all files are instead, under their host names.

    Args:
        models: Names (elmokit models), https addresses, or hf:OWNER/NAME.
        remove: Remove the models from the cache instead.
    """
    from elmokit.checkpoints.download import download as fetch
    from elmokit.checkpoints.download import remove_cached

    if not models:
        raise UsageError("name a model; elmokit models lists them")
    for model in models:
        if remove:
            print(f"removed {remove_cached(model)}")
        else:
            path = fetch(model)
            folder = path if path.is_dir() else path.parent
            print(f"{model}: {readable_size(size_on_disk(folder))} in {os.fspath(path)}")
    if not remove:
        suggest(f"elmokit info {models[-1]}")
