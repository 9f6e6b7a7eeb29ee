"""Loads one HDF5 model with many flipped bits; run as a program, because libhdf5 may crash.

Usage: python damaged_hdf5.py FOLDER SEED COUNT. The folder's ``weights.hdf5`` is overwritten.
Prints one JSON object: how often the model was loaded and refused, and every other outcome.
"""

import json
import random
import sys
import warnings
from collections import Counter
from pathlib import Path

import elmokit
from elmokit.errors import CheckpointError


def metadata_places(data: bytes) -> list[int]:
    """Places in the file that hold no tensor: short runs around HDF5's own signatures."""
    places: set[int] = set(range(96))
    for signature in (b"OHDR", b"TREE", b"HEAP", b"SNOD", b"GCOL", b"\0\0\0\x11\0\x10\0"):
        start = data.find(signature)
        while start >= 0:
            places.update(range(start, min(start + 512, len(data))))
            start = data.find(signature, start + 1)
    return sorted(places)


def main(folder: Path, seed: int, count: int) -> None:
    """Flip one to three bits at a time, three quarters of them where HDF5 keeps its structure."""
    path = folder / "weights.hdf5"
    good = path.read_bytes()
    rng = random.Random(seed)
    structure = metadata_places(good)
    found: Counter[str] = Counter()
    warnings.simplefilter("error")
    for number in range(count):
        data = bytearray(good)
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            place = rng.choice(structure) if rng.random() < 0.75 else rng.randrange(len(data))
            data[place] ^= 1 << rng.randrange(8)
        path.write_bytes(data)
        sys.stderr.write(f"{number}\n")  # the last line tells which one crashed
        sys.stderr.flush()
        try:
            elmokit.load(folder).encode([[]])
            found["loads"] += 1
        except CheckpointError as error:
            found["refused" if str(folder) in str(error) else f"unnamed: {error}"] += 1
        except Exception as error:
            found[f"{type(error).__name__}: {error}"] += 1
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
