"""Small files that claim gigabytes or never end: memory and time of reading them.

Run: python -m benchmarks.reliability.hostile_files [--before SRC] [--save]

``--before`` is the ``src`` folder of another version, measured beside this one. Each file is read
in a process of its own that may allocate 4 GiB and take 45 s. Seconds are CPU time.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import os
import resource
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import torch

from benchmarks.report import ROOT, report

SECONDS = 45
ADDRESS_SPACE = 4 << 30
GOLDEN = ROOT / "tests" / "golden"
READ = """
import resource, sys, time, torch, h5py, elmokit
elmokit.load("test-tiny")
idle = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
start = time.process_time()
try:
    elmokit.load(sys.argv[1])
    end = "loads"
except elmokit.ElmokitError:
    end = "refused"
except BaseException as error:
    end = type(error).__name__
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print((peak - idle) // 1024, round(time.process_time() - start, 1), end)
"""


def stride_zero(folder: Path) -> Path:
    tensors = dict(torch.load(GOLDEN / "allennlp-finetuned/elmo-two-mixes.th", weights_only=True))
    tensors |= {f"x{i}": torch.zeros(1).expand(2_300_000) for i in range(100)}
    torch.save(tensors, folder / "weights.th")
    return folder / "weights.th"


def allocating_pickle(folder: Path) -> Path:
    code = b"\x80\x02}X\x01\0\0\0ac__builtin__\nbytearray\nJ\0\0\0\x40\x85Rs."  # 1 GiB
    with zipfile.ZipFile(folder / "weights.th", "w") as archive:
        archive.writestr("x/data.pkl", code)
        archive.writestr("x/version", "3\n")
        archive.writestr("x/byteorder", "little")
    return folder / "weights.th"


def unallocated(folder: Path) -> Path:
    with h5py.File(folder / "weights.hdf5", "w") as file:
        for direction, layer in itertools.product(range(2), range(10)):
            cell = f"RNN_{direction}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"
            file.create_dataset(f"{cell}/W_0", (2048, 4096), "f4", chunks=(64, 1024))
            file[f"{cell}/B"] = np.zeros(4096, "f4")
    options = {"lstm": {"dim": 1024, "projection_dim": 1024, "n_layers": 10}}
    (folder / "options.json").write_text(json.dumps(options))
    return folder


def nested_groups(folder: Path) -> Path:
    with h5py.File(folder / "weights.hdf5", "w") as file:
        group = file
        for _ in range(1500):
            group = group.create_group("g")
    (folder / "options.json").write_text("{}")
    return folder


def vocabulary(content: bytes) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        for name in ("weights.hdf5", "options.json"):
            (folder / name).write_bytes((GOLDEN / "bilm-hdf5/standard" / name).read_bytes())
        with gzip.open(folder / "vocab.txt.gz", "wb") as file:
            for _ in range(100):
                file.write(content)
        return folder

    return make


def lzma_zip(folder: Path) -> Path:
    with zipfile.ZipFile(folder / "z.zip", "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("z", bytes(200 << 20))
    return folder / "z.zip"


def pipe(folder: Path) -> Path:
    (folder / "weights.hdf5").write_bytes((GOLDEN / "bilm-hdf5/standard/weights.hdf5").read_bytes())
    os.mkfifo(folder / "options.json")
    return folder


FILES: dict[str, Callable[[Path], Path]] = {
    ".th, 100 tensors of stride 0": stride_zero,
    ".th that calls bytearray": allocating_pickle,
    "HDF5, 20 datasets without data": unallocated,
    "HDF5, 1,500 nested groups": nested_groups,
    "vocab.txt.gz, one long word": vocabulary(b"a" * (6 << 20)),
    "vocab.txt.gz of newlines": vocabulary(b"\n" * (1 << 19)),
    "zip with LZMA": lzma_zip,
    "options.json is a named pipe": pipe,
}


def measure(source: Path, code: Path) -> tuple[str, str, str]:
    """MiB, seconds and end of reading a file."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE,) * 2)

    try:
        done = subprocess.run(
            [sys.executable, "-c", READ, str(source)],
            env={**os.environ, "PYTHONPATH": str(code), "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=SECONDS,
            preexec_fn=limit,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "-", f"> {SECONDS}", "no end"
    mib, seconds, end = (done.stdout.split() or ["-", "-", "killed"])[:3]
    return mib, seconds, end


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", type=Path, help="the src folder of another version")
    parser.add_argument("--save", action="store_true")
    given = parser.parse_args()
    versions = {"before": given.before} if given.before else {}
    versions |= {"now": ROOT / "src"}
    head = f"{'':38}{'KiB':>7}" + "".join(f"{name + ': MiB':>14}{'s':>7}  end" for name in versions)
    lines = [head]
    for name, make in FILES.items():
        with tempfile.TemporaryDirectory() as folder:
            source = make(Path(folder))
            size = sum(f.stat().st_size for f in Path(folder).rglob("*") if f.is_file()) >> 10
            row = f"{name:38}{size:7,}"
            for code in versions.values():
                mib, seconds, end = measure(source, code)
                row += f"{mib:>14}{seconds:>7}  {end:12}"
        lines.append(row.rstrip())
        print(lines[-1], flush=True)
    report("hostile_files", "\n".join(lines), given.save)


if __name__ == "__main__":
    main()
