"""The rules of the house: which way imports point, how long files are, what the README promises."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import elmokit

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "elmokit"
MODULES = sorted(PACKAGE.rglob("*.py"))

STAGES = (
    "text",
    "corpus",
    "engines",
    "model",
    "checkpoints",
    "encode",
    "lm",
    "word_vectors",
    "training",
    "tasks",
    "probes",
    "integrations",
    "server",
    "ray",
    "cli",
)
"""Each may import the ones before it."""
FOR_ALL = {"config", "errors", "files", "lazy"}
FACADE = {"encode/elmo.py": {"lm"}, "encode/embedding.py": {"word_vectors"}}
"""Methods of `Elmo` that lead to a later stage, imported where they are called."""
MOST_LINES = 600

NOT_SAID = {
    "a path of somebody's machine": r"(?:/home/|/Users/)\w",
    "an index of packages": r"--(?:extra-)?index-url|PIP_INDEX|files\.pythonhosted",
    "a badge": r"img\.shields\.io",
    "work left undone": r"\b(?:TODO|FIXME|XXX)\b",
}
"""What no tracked file may say, as regular expressions."""
MAY_SAY = (
    "src/elmokit/models/",
    "tests/golden/",
    "tests/checkpoints/test_tf_bundle.py",
    "tests/test_house.py",
)
"""Paths that stand for an author's machine are what these test."""


def name_of(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def stage_of(path: Path) -> str:
    first, *rest = path.relative_to(PACKAGE).parts
    return first if rest else first.removesuffix(".py")


def imported_stages(path: Path) -> Iterator[str]:
    """The parts of elmokit that a module imports, at whatever place in it."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name_of(path)}: write imports in full"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        for name in names:
            package, _, rest = name.partition(".")
            if package == "elmokit" and rest:
                yield rest.split(".")[0]


def allowed(path: Path) -> set[str]:
    before = set(STAGES[: STAGES.index(stage_of(path)) + 1])
    return before | FOR_ALL | {"__version__"} | FACADE.get(name_of(path), set())


@pytest.mark.parametrize("path", [path for path in MODULES if path.parent != PACKAGE], ids=name_of)
def test_imports_point_one_way(path):
    assert set(imported_stages(path)) <= allowed(path)


def test_what_all_may_import_imports_nothing_above_it():
    for name in FOR_ALL:
        assert set(imported_stages(PACKAGE / f"{name}.py")) <= FOR_ALL


def lines_of(path: Path) -> int:
    return len(path.read_text("utf-8").splitlines())


def test_modules_are_short_enough_to_read():
    assert [name_of(path) for path in MODULES if lines_of(path) > MOST_LINES] == []


def test_test_files_have_names_of_their_own():
    """Folders of tests are no packages, so two files of one name cannot both be read."""
    names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    assert sorted(names) == sorted(set(names))


def test_every_folder_is_a_known_stage():
    folders = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert folders == set(STAGES)


def test_import_loads_no_torch():
    code = (
        "import sys, elmokit\n"
        "heavy = {'torch', 'numpy', 'h5py', 'safetensors', 'cyclopts'} & set(sys.modules)\n"
        "sys.exit(f'loaded {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("name", sorted(elmokit.__all__))
def test_public_name_is_there_and_described(name):
    value = getattr(elmokit, name)
    assert name in dir(elmokit)
    if name != "__version__":
        assert value.__doc__
        assert value.__module__.startswith("elmokit.")


def test_version_is_that_of_the_package():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    assert elmokit.__version__ == settings["project"]["version"]


def test_every_module_has_a_docstring():
    assert [name_of(p) for p in MODULES if not ast.get_docstring(ast.parse(p.read_text()))] == []


# What git knows.


def tracked() -> list[str]:
    """Files that are, or would be, in the repository."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a clone")
    command = [
        "git",
        "-C",
        str(ROOT),
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
    ]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return sorted(name for name in set(listed.split("\0")) if name and (ROOT / name).is_file())


def tree(page: str) -> dict[str, str]:
    """The tree of a README: paths and their phrases. Two spaces lead one folder deeper."""
    text = (ROOT / page).read_text("utf-8")
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    (block,) = (code for kind, code in blocks if not kind)
    found: dict[str, str] = {}
    folder = ""
    for line in block.splitlines():
        name, _, phrase = line.strip().partition("  ")
        if not line.startswith(" "):
            folder = name if name.endswith("/") else ""
            found[name] = phrase.strip()
        else:
            found[folder + name] = phrase.strip()
    return found


@pytest.mark.parametrize("page", ["README.md", "README.zh-CN.md"])
def test_readme_tree_is_the_folder(page):
    expected = set()
    for name in tracked():
        parts = Path(name).parts
        if parts[:2] == ("src", "elmokit"):
            expected |= {"src/elmokit/", "src/elmokit/" + parts[2] + "/" * (len(parts) > 3)}
        else:
            expected.add(parts[0] + "/" * (len(parts) > 1))
    found = tree(page)
    assert set(found) == expected
    assert all(found.values()), "each line needs a phrase"


def test_tracked_files_say_nothing_private():
    said = []
    for name in tracked():
        if name.startswith(MAY_SAY):
            continue
        try:
            text = (ROOT / name).read_text("utf-8")
        except UnicodeDecodeError:  # pictures, weights
            continue
        for what, pattern in NOT_SAID.items():
            said += [f"{name}: {what}: {match[0]}" for match in re.finditer(pattern, text)]
    assert said == []


def test_pictures_are_small():
    for path in (ROOT / "docs" / "images").glob("*.png"):
        assert path.stat().st_size < 150_000, path.name


ROOMS_WITH_NAMES = [
    path.parent.name
    for path in sorted(PACKAGE.glob("*/__init__.py"))
    if "lazy_names(" in path.read_text("utf-8")
]


@pytest.mark.parametrize("room", ROOMS_WITH_NAMES)
def test_public_names_of_a_room_are_what_they_say(room):
    """In whatever order: a module that is imported first does not hide a function of its name."""
    package = importlib.import_module(f"elmokit.{room}")
    for name in package.__all__:
        if name in package._HOMES:
            importlib.import_module(package._HOMES[name])
        value = getattr(package, name)
        assert name in dir(package)
        assert getattr(value, "__module__", f"elmokit.{room}.").startswith(f"elmokit.{room}")
        assert not isinstance(value, type(pytest)), f"elmokit.{room}.{name} is a module"


def test_rooms_are_reached_without_importing_them():
    code = "import elmokit\nassert elmokit.lm.perplexity.__name__ == 'perplexity'"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
