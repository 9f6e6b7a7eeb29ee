"""A folder of output appears whole or not at all.

It is written under a hidden name beside its final place and moved there, by one rename, when
nothing went wrong. After an error or Ctrl-C the hidden folder is removed; after a kill it may stay
behind, but what stood at the final place is as it was.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from elmokit.corpus.shards import DESCRIPTION
from elmokit.errors import DataError
from elmokit.files import temporary_beside


@contextmanager
def atomic_folder(path: str | os.PathLike[str], *, overwrite: bool) -> Iterator[Path]:
    """Give a temporary folder to fill; it becomes `path` when the block ends without an error.

    Args:
        path: The final place: nothing stands there, or an empty folder, or, to be overwritten, a
            prepared corpus.
        overwrite: Replace a prepared corpus.

    Raises:
        DataError: Something else stands there, or the folder above does not exist.
    """
    place = Path(os.path.realpath(path))
    _check_free(place, overwrite)
    temporary = temporary_beside(place)
    temporary.mkdir()
    try:
        yield temporary
        if place.exists():
            _check_free(place, overwrite)  # hours may have passed
            old = temporary_beside(place)
            os.replace(place, old)
            os.replace(temporary, place)
            shutil.rmtree(old)
        else:
            os.replace(temporary, place)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _check_free(place: Path, overwrite: bool) -> None:
    if not place.parent.is_dir():
        raise DataError(f"{place}: the folder {place.parent} does not exist. Create it first.")
    if not place.exists():
        return
    if not place.is_dir():
        raise DataError(f"{place}: a file stands there. Give the name of a new folder.")
    if any(place.iterdir()):
        if not (place / DESCRIPTION).is_file():
            raise DataError(f"{place}: the folder has other files in it. Give a new folder.")
        if not overwrite:
            raise DataError(
                f"{place}: a corpus stands there. Give a new folder, or allow it to be replaced "
                "(--overwrite)."
            )
