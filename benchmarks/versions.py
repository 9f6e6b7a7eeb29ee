"""Try elmokit in throwaway environments: lowest and newest versions, several Pythons.

Run: python -m benchmarks.versions [NAME ...] --save      (needs uv, and some GB of disk)

Every environment is resolved by uv from pyproject.toml, gets elmokit as a wheel, and runs
``elmokit info --check`` and the tests named here. Environments are named below; one whose Python
is not on this machine is shown as such. With names, only these are run again, and the rest of the
table stays.

The index has builds of torch for Linux with CUDA only, whose libraries are gigabytes that a CPU
does not need: they are not installed, and empty libraries of the same names let torch be imported.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from benchmarks.report import RESULTS, ROOT

CORE = (
    "tests/text/test_chars.py",
    "tests/encode/test_golden.py",
    "tests/checkpoints/test_formats.py",
    "tests/checkpoints/test_tf_bundle.py",
    "tests/checkpoints/test_round_trips.py",
    "tests/checkpoints/test_downloads.py",
    "tests/engines",
    "tests/training/test_losses.py",
    "tests/training/test_trainer.py",
    "tests/word_vectors/test_word_vectors.py",
    "tests/test_first_layout_files.py",
    "tests/cli/test_cli_info.py",
)
"""Golden files, formats, engines, training steps, old files: what the core packages can break."""
EXTRAS = {
    "data": ("tests/encode/test_writers.py", "tests/text/test_readers.py"),
    "spacy": ("tests/integrations/test_spacy_elmo.py",),
    "sklearn": ("tests/integrations/test_sklearn_elmo.py",),
    "hf": ("tests/integrations/test_hf_elmo.py", "tests/integrations/test_hf_token_embeddings.py"),
    "tf": ("tests/checkpoints/test_tf_bundle.py",),
    "zh": ("tests/text/test_tokens.py",),
    "plots": (),
    "seq2seq": ("tests/tasks/test_task_scores.py",),
    "track": ("tests/training/test_tensorboard.py",),
    "onnx": ("tests/checkpoints/test_onnx_export.py", "tests/integrations/test_onnx_elmo.py"),
    "keras": ("tests/integrations/test_keras_elmo.py",),
    "web": ("tests/server/test_routes.py",),
    "asr": ("tests/lm/test_rescoring.py",),
}
SHOWN = (
    "torch", "numpy", "h5py", "safetensors", "huggingface-hub", "requests", "urllib3", "cyclopts",
    "tqdm",
)  # fmt: skip
TEST_TOOLS = ("pytest", "hypothesis")
TEST_TOOLS_OF_EXTRAS = ("httpx", "httpx2", "seqeval")
CUDA_PACKAGE = re.compile(r"(nvidia|cuda|triton)")
CUDA_LIBRARY = re.compile(r"lib(cu|nccl|nv)")
CUDA_SYMBOL = re.compile(r"_*(cu|nccl|nv)")
NO_DEVICE = 100  # cudaErrorNoDevice


@dataclass(frozen=True)
class Environment:
    """What to install."""

    python: str
    resolution: str = "highest"
    constraint: str = ""
    """A version that the resolution would not choose by itself."""
    extras: tuple[str, ...] = ()
    """Those whose own tests run, instead of the core's."""

    @property
    def tests(self) -> tuple[str, ...]:
        """What runs there."""
        return tuple(path for extra in self.extras for path in EXTRAS[extra]) or CORE


ENVIRONMENTS = {
    "lowest": Environment("3.11", "lowest-direct"),
    # hf needs a newer huggingface_hub than the lowest version of datasets takes.
    "lowest-extras": Environment(
        "3.11", "lowest-direct", "datasets<3.1", tuple(extra for extra in EXTRAS if extra != "hf")
    ),
    "lowest-hf": Environment("3.11", "lowest-direct", extras=("hf",)),
    "3.11": Environment("3.11", constraint="torch==2.13.0"),
    "3.12": Environment("3.12"),
    "3.13": Environment("3.13"),
    "3.14": Environment("3.14"),
}


def run(*command: str | Path, **options: Any) -> str:
    """What a command prints; its errors are shown."""
    done = subprocess.run(
        list(map(str, command)), cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True, **options
    )
    return done.stdout


def succeeds(*command: str | Path, **options: Any) -> bool:
    """Whether a command ends with exit code 0."""
    return not subprocess.run(list(map(str, command)), check=False, **options).returncode


def find_python(version: str) -> str | None:
    """An interpreter of this version: on the path, or one of pyenv's."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    installed = [str(path / "bin/python") for path in pyenv.glob(f"{version}.*")]
    for candidate in (*installed, shutil.which(f"python{version}")):
        if candidate and succeeds(candidate, "-c", "", capture_output=True):
            return candidate
    return None


def resolve(environment: Environment, folder: Path) -> list[str]:
    """Pins of all packages, without those of CUDA."""
    extras = [f"--extra={name}" for name in environment.extras]
    constraints = folder / "constraints.txt"
    constraints.write_text(environment.constraint)
    pins = run(
        *("uv", "pip", "compile", "--quiet", "--no-header", "--no-annotate", "pyproject.toml"),
        *("--resolution", environment.resolution, "--python-version", environment.python),
        *("--constraint", constraints, *extras),
    )
    return [pin for pin in pins.splitlines() if not CUDA_PACKAGE.match(pin)]


def install(environment: Environment, python: str, folder: Path) -> Path:
    """Make the environment; returns its Python."""
    run("uv", "venv", "--quiet", "--python", python, folder / "venv")
    own = folder / "venv" / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    pins = folder / "pins.txt"
    pins.write_text("\n".join(resolve(environment, folder)))
    put = ("uv", "pip", "install", "--quiet", "--python", own)
    run(*put, "--no-deps", "-r", pins)
    run(*put, "--no-deps", ROOT)
    run(*put, *TEST_TOOLS, *(TEST_TOOLS_OF_EXTRAS if environment.extras else ()))
    torch_found = "import importlib.util as u; print(u.find_spec('torch').origin)"
    libraries = Path(run(own, "-c", torch_found).strip()).parent / "lib"
    if not succeeds(own, "-c", "import torch", capture_output=True):
        write_empty_libraries(libraries)
    return own


def write_empty_libraries(folder: Path) -> None:
    """Put CUDA libraries beside torch's whose functions all return "no device"."""
    needed: set[str] = set()
    wanted: dict[str, str] = {}  # symbol: the library that its version names
    for library in folder.glob("*.so*"):
        needed |= set(re.findall(r"NEEDED.*\[(.*)\]", run("readelf", "--wide", "-d", library)))
        for line in run("nm", "-D", "--undefined-only", library).splitlines():
            symbol, _, version = line.split()[-1].partition("@")
            if CUDA_SYMBOL.match(symbol):
                wanted.setdefault(symbol, version)
    missing = sorted(n for n in needed if CUDA_LIBRARY.match(n) and not (folder / n).exists())
    for name in missing:
        versioned = [symbol for symbol, version in wanted.items() if version == name]
        # Symbols without a version are looked for in all libraries.
        others = [s for s, version in wanted.items() if version not in missing]
        symbols = versioned or (others if "cudnn" in name or "nccl" in name else [])
        source, script = folder / "empty.c", folder / "empty.map"
        source.write_text("".join(f"int {s}(void) {{ return {NO_DEVICE}; }}\n" for s in symbols))
        script.write_text(f"{name} {{ global: *; }};\n")
        flags = [f"-Wl,-soname,{name}", *([f"-Wl,--version-script={script}"] if versioned else [])]
        run("cc", "-shared", "-fPIC", "-w", "-o", folder / name, source, *flags)


def try_one(name: str, folder: Path) -> dict[str, object]:
    """Install an environment and run the tests there: a row of the table."""
    environment = ENVIRONMENTS[name]
    row: dict[str, object] = {"name": name, "python": environment.python}
    interpreter = find_python(environment.python)
    if interpreter is None:
        return row | {"result": "no such Python on this machine"}
    python = install(environment, interpreter, folder)
    frozen = run("uv", "pip", "freeze", "--quiet", "--python", python).splitlines()
    versions = dict(line.split("==") for line in frozen if "==" in line)
    row["python"] = run(python, "-c", "import platform; print(platform.python_version())").strip()
    row["versions"] = {package: versions[package] for package in SHOWN}
    if environment.extras:
        row["extras"] = versions_of_extras(environment, versions)
    settings = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    right = succeeds(python, "-m", "elmokit", "info", "--check", cwd=folder, env=settings)
    report = folder / "tests.xml"
    # Lowest versions of some packages warn about newer ones of others: no errors there.
    warnings = ("-W", "default") if environment.extras else ()
    tests = ("-p", "no:cacheprovider", f"--junitxml={report}", "-rfE", *environment.tests)
    succeeds(python, "-m", "pytest", *warnings, *tests, cwd=ROOT, env=settings)
    suite = next(ElementTree.parse(report).iter("testsuite"))
    counts = {key: int(suite.get(key, 0)) for key in ("tests", "failures", "errors", "skipped")}
    wrong = counts["failures"] + counts["errors"]
    row |= {
        "check": "OK" if right else "wrong",
        "passed": counts["tests"] - wrong - counts["skipped"],
        "failed": wrong,
        "skipped": counts["skipped"],
    }
    return row


def versions_of_extras(environment: Environment, versions: dict[str, str]) -> dict[str, str]:
    """Versions of the packages that pyproject.toml names in the extras tried."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    named = [r for extra in environment.extras for r in project["optional-dependencies"][extra]]
    names = sorted({re.split(r"[\[><=;~ ]", requirement)[0].lower() for requirement in named})
    return {name: versions[name] for name in names if name in versions}


def table(rows: list[dict[str, object]]) -> str:
    """The rows as text."""
    lines = []
    for row in rows:
        lines.append(f"{row['name']}: Python {row['python']}")
        if "result" in row:
            lines += [f"  {row['result']}", ""]
            continue
        for versions in (row["versions"], row.get("extras", {})):
            assert isinstance(versions, dict)
            pairs = [f"{package} {version}" for package, version in versions.items()]
            lines += ["  " + ", ".join(pairs[i : i + 6]) for i in range(0, len(pairs), 6)]
        lines.append(
            f"  info --check {row['check']}; tests: {row['passed']} passed, {row['failed']} "
            f"failed, {row['skipped']} skipped"
        )
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(ENVIRONMENTS))
    parser.add_argument("--list", action="store_true", help="print the tests of the core, and end")
    parser.add_argument("--save", action="store_true")
    parser.add_argument("--folder", type=Path, help="environments are made and removed here")
    arguments = parser.parse_args()
    if arguments.list:
        print(*CORE)
        return
    stored = RESULTS / "versions.json"
    rows = {}
    if arguments.names and stored.is_file():
        rows = {row["name"]: row for row in json.loads(stored.read_text("utf-8"))}
    for name in arguments.names or ENVIRONMENTS:
        with tempfile.TemporaryDirectory(prefix="elmokit-", dir=arguments.folder) as folder:
            rows[name] = try_one(name, Path(folder))
        print(table([rows[name]]), flush=True)
        if arguments.save:
            done = [rows[known] for known in ENVIRONMENTS if known in rows]
            stored.write_text(json.dumps(done, indent=1) + "\n", encoding="utf-8")
            (RESULTS / "versions.txt").write_text(table(done), encoding="utf-8")
    raise SystemExit(any(row.get("failed") or row.get("check") == "wrong" for row in rows.values()))


if __name__ == "__main__":
    main()
