"""The rules of the house: which way imports point, how long files are, what the README promises.

`PYTHONPATH=tests/support python tests/test_house.py` prints what breaks the rules, room by room.
"""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
from pages import code_of

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
FOR_ALL = {"config", "errors", "files", "lazy", "limits"}
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
    for node in ast.walk(parsed(path)):
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
        "heavy = {'torch', 'numpy', 'h5py', 'safetensors', 'requests', 'cyclopts'}\n"
        "heavy &= set(sys.modules)\n"
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


def test_version_is_in_one_place():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    assert "version" in settings["project"]["dynamic"]
    assert settings["tool"]["hatch"]["version"]["path"] == "src/elmokit/__init__.py"


def test_every_module_has_a_docstring():
    assert [name_of(p) for p in MODULES if not ast.get_docstring(parsed(p))] == []


# Rules that are kept room by room. Each gives what breaks it: a module, and what is wrong there.

Broken = Iterator[tuple[str, str]]

SMALL = 100
"""A module shorter than this with one importer in its own room is a part of that one."""
MAY_BE_SMALL = {
    "training/cuda_graphs.py": "CUDA alone; nothing of it runs elsewhere",
    "integrations/spacy_factories.py": "spaCy's entry point imports it, and it must not load torch",
}
"""Small modules with one importer, and why they stay alone."""
SAME_FILE_NAMES = {
    "batching.py": {"text", "server"},  # of sentences; of requests
    "char_cnn.py": {"model", "engines"},  # the module; its kernels
    "checkpoint.py": {"checkpoints", "training"},  # of a model; of a run
    "config.py": {"", "tasks"},
    "data.py": {"training", "probes"},
    "files.py": {"", "tasks"},  # atomic writes; what a task reads and writes
    "layers.py": {"encode", "probes"},
    "lstm.py": {"model", "engines"},
    "report.py": {"tasks", "probes"},
    "settings.py": {"training", "server"},
    "similarity.py": {"encode", "probes"},
    "softmax.py": {"model", "engines"},
    "stats.py": {"corpus", "probes"},
    "train.py": {"engines", "ray"},
}
"""File names that two rooms share on purpose; modules of `cli` have the names of their verbs."""
OLD_PROGRAMS = PACKAGE / "integrations" / "migration"
"""Its modules and classes have the names that older programs gave them."""


def room_of(path: Path) -> str:
    """The folder of a module below the package; "" for modules of the package itself."""
    first, *rest = path.relative_to(PACKAGE).parts
    return first if rest else ""


def dotted(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def parsed(path: Path) -> ast.Module:
    text = path.read_text("utf-8")
    try:
        return ast.parse(text)
    except SystemError:  # Python 3.11 miscounts now and then (its issue 106905)
        return ast.parse(text)


@cache
def by_name() -> dict[str, Path]:
    return {dotted(path): path for path in MODULES}


@cache
def imported_modules(path: Path) -> frozenset[str]:
    """The modules of elmokit that a module imports, or names for a later import."""
    found = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            inside = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= inside & set(by_name()) or {node.module}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value.partition(":")[0])
    return frozenset(found & set(by_name()))


def small_modules_with_one_importer() -> Broken:
    """They are merged into their importer, unless they isolate an optional dependency."""
    settings = (ROOT / "pyproject.toml").read_text("utf-8")
    for path in MODULES:
        if path.stem.startswith("__") or lines_of(path) >= SMALL or dotted(path) in settings:
            continue
        importers = [other for other in MODULES if dotted(path) in imported_modules(other)]
        if len(importers) != 1 or importers[0].name == "__init__.py":
            continue  # what `__init__` alone imports is public, or one of several of a kind
        if room_of(importers[0]) == room_of(path) and name_of(path) not in MAY_BE_SMALL:
            yield name_of(path), f"{lines_of(path)} lines; merge it into {name_of(importers[0])}"


def modules_without_a_word_in_the_docstring_of_their_room() -> Broken:
    for path in MODULES:
        own = path.name == "__init__.py"
        folder = path.parent.parent if own else path.parent
        if folder in (PACKAGE, PACKAGE.parent) or path.name == "__main__.py":
            continue
        word = path.parent.name if own else path.stem
        about = ast.get_docstring(parsed(folder / "__init__.py")) or ""
        if not re.search(rf"(?<!\w){word}(?!\w)", about):
            yield name_of(path), f"is not named in {name_of(folder / '__init__.py')}"


def origin(path: Path, name: str) -> str | None:
    """The module of elmokit from which a module has a name; None if it defines the name."""
    found = None
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.ImportFrom) and name in {a.asname or a.name for a in node.names}:
            found = node.module
    return found if found is not None and found.partition(".")[0] == "elmokit" else None


def exported(path: Path) -> set[str]:
    """What `__all__` of a module names, or what a room imports for type checkers alone."""
    found: set[str] = set()
    for node in parsed(path).body:
        if isinstance(node, ast.If) and "lazy_names" in ast.unparse(node):
            imports = [inner for inner in node.body if isinstance(inner, ast.ImportFrom)]
            found |= {alias.asname or alias.name for inner in imports for alias in inner.names}
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if isinstance(target, ast.Name) and target.id == "__all__":
                found |= set(ast.literal_eval(node.value))
    return found


def names_of_another_room_handed_on() -> Broken:
    """A name is imported from its home; only the package itself collects names of its rooms."""
    rooms = {name: room_of(path) for name, path in by_name().items()}
    for path in MODULES:
        if path.parent == PACKAGE:
            continue
        for name in sorted(exported(path)):
            home = origin(path, name)
            if home is not None and rooms.get(home) != room_of(path):
                yield name_of(path), f"exports {name} of {home}"
        for node in ast.walk(parsed(path)):
            if not isinstance(node, ast.ImportFrom) or node.module not in by_name():
                continue
            giver = by_name()[node.module]
            for alias in node.names:
                home = origin(giver, alias.name)
                if f"{node.module}.{alias.name}" in by_name() or home is None:
                    continue
                if giver.parent != PACKAGE and rooms.get(home) != room_of(giver):
                    yield name_of(path), f"takes {alias.name} of {home} from {node.module}"


def classes_of_one_name() -> Broken:
    seen: dict[str, Path] = {}
    for path in MODULES:
        for node in parsed(path).body:
            if not isinstance(node, ast.ClassDef) or node.name.startswith("_"):
                continue
            if path.parent == OLD_PROGRAMS:
                continue
            first = seen.setdefault(node.name, path)
            if room_of(first) != room_of(path):
                yield name_of(path), f"class {node.name} is also in {name_of(first)}"


def files_of_one_name() -> Broken:
    seen: dict[str, list[Path]] = {}
    for path in MODULES:
        if not path.stem.startswith("__") and path.parent != OLD_PROGRAMS:
            seen.setdefault(path.name, []).append(path)
    for name, paths in seen.items():
        rooms = {room_of(path) for path in paths} - {"cli"}
        for path in paths:
            if len(rooms) > 1 and room_of(path) not in SAME_FILE_NAMES.get(name, set()) | {"cli"}:
                others = ", ".join(name_of(other) for other in paths if other != path)
                yield name_of(path), f"has the name of {others}"


def deep_imports_of_pages_and_examples() -> Broken:
    """Users import the package or a room; one module deeper in `integrations`."""
    pages = [*ROOT.glob("README*.md"), *(ROOT / "docs").rglob("*.md")]
    examples = [*(ROOT / "examples").rglob("*.py"), *(ROOT / "examples").rglob("*.ipynb")]
    for path in sorted([*pages, *examples]):
        for module in re.findall(r"(?:from|import)\s+(elmokit(?:\.\w+)+)", path.read_text("utf-8")):
            _, room, *deeper = module.split(".")
            if len(deeper) > (2 if room == "integrations" else 0):
                yield f"{path.relative_to(ROOT)}", f"imports {module}"


def exceptions_that_are_not_needed() -> Broken:
    for name in set(MAY_BE_SMALL) - set(map(name_of, MODULES)):
        yield name, "is not there; take it out of MAY_BE_SMALL"
    for name, rooms in SAME_FILE_NAMES.items():
        for room in rooms - {room_of(path) for path in MODULES if path.name == name}:
            yield f"{room}/{name}", "is not there; take it out of SAME_FILE_NAMES"


RULES: dict[str, Callable[[], Broken]] = {
    rule.__name__: rule
    for rule in (
        small_modules_with_one_importer,
        modules_without_a_word_in_the_docstring_of_their_room,
        names_of_another_room_handed_on,
        classes_of_one_name,
        files_of_one_name,
        deep_imports_of_pages_and_examples,
        exceptions_that_are_not_needed,
    )
}


@pytest.mark.parametrize("rule", RULES)
def test_house_has_no(rule):
    assert [f"{module}: {why}" for module, why in dict.fromkeys(RULES[rule]())] == []


def test_rooms_are_listed_in_the_order_of_the_imports():
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    table = text.split("\n## Where things are\n")[1].split("\n## ")[0]
    assert tuple(re.findall(r"^\| `(\w+)` \|", table, re.M)) == STAGES
    for page in ("README.md", "README.zh-CN.md"):
        folders = re.findall(r"^src/elmokit/(\w+)/$", "\n".join(tree(page)), re.M)
        assert tuple(name for name in folders if name not in ("configs", "models")) == STAGES, page


def fixtures_of(path: Path) -> set[str]:
    functions = (node for node in parsed(path).body if isinstance(node, ast.FunctionDef))
    return {
        node.name
        for node in functions
        if any("pytest.fixture" in ast.unparse(decorator) for decorator in node.decorator_list)
    }


def test_fixtures_that_all_tests_share_are_defined_once():
    """One name is one thing; what is no fixture is in tests/support, not in a conftest."""
    shared = fixtures_of(ROOT / "tests" / "conftest.py")
    for path in (ROOT / "tests").rglob("*.py"):
        if path != ROOT / "tests" / "conftest.py":
            assert not shared & fixtures_of(path), path
        imported = {n.module for n in ast.walk(parsed(path)) if isinstance(n, ast.ImportFrom)}
        assert "conftest" not in imported, path


# The words: CONTRIBUTING's dictionary is their one source.


def dictionary() -> dict[str, str]:
    """The words that CONTRIBUTING rules out, as regular expressions, and what to write instead."""
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    return _ruled_out(text, "Dictionary", words=0, instead=1)


def _ruled_out(text: str, title: str, *, words: int, instead: int) -> dict[str, str]:
    """Two columns of the table below a heading: regular expressions, and what to write."""
    section = text.split(f"\n## {title}\n")[1].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("|")][2:]
    found = {}
    for row in rows:
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]]
        for word in re.findall(r"`([^`]+)`", cells[words]):
            found[word.replace(r"\|", "|")] = cells[instead].replace(r"\|", "|")
    return found


def worded() -> list[Path]:
    """The files whose words are checked."""
    return sorted(
        [
            *(ROOT / "src").rglob("*.py"),
            *(ROOT / "docs").rglob("*.md"),
            *(PACKAGE / "configs").rglob("*.toml"),
            *(ROOT / "page" / "src").rglob("*.ts"),
            *ROOT.glob("README*.md"),
        ]
    )


def _without_results(block: re.Match[str]) -> str:
    """A block without a language holds results as a benchmark printed them."""
    return block[0] if block[1] else "\n" * block[0].count("\n")


def test_dictionary_is_kept():
    """An underscore is a boundary too, so that names in code are covered."""
    words = dictionary()
    assert len(words) > 40
    rules = {
        re.compile(rf"(?<![A-Za-z0-9]){word}(?![A-Za-z0-9])", re.IGNORECASE): instead
        for word, instead in words.items()
    }
    said = []
    for path in worded():
        text = path.read_text("utf-8")
        if path.suffix == ".md":
            text = re.sub(r"^```(\w*)\n.*?^```$", _without_results, text, flags=re.M | re.S)
        for rule, instead in rules.items():
            for match in rule.finditer(text):
                line = text.count("\n", 0, match.start()) + 1
                said.append(f"{path.relative_to(ROOT)}:{line}: {match[0]!r}: write {instead}")
    assert said == []


def chinese() -> list[Path]:
    """The files that are written in Chinese."""
    return sorted(
        [
            ROOT / "README.zh-CN.md",
            ROOT / "page" / "src" / "text" / "zh.ts",
            *(ROOT / "docs" / "zh").rglob("*.md"),
            *(ROOT / "course" / "zh").glob("*.py"),
        ]
    )


def test_chinese_glossary_is_kept():
    """One Chinese word for each term: CONTRIBUTING's glossary is their one source."""
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    glossary = _ruled_out(text, "Chinese glossary", words=2, instead=1)
    assert {"您", "隐藏状态", "处理器"} <= set(glossary)
    wrong = [
        f"{path.relative_to(ROOT)}:{number}: {found[0]}; write {instead}"
        for path in chinese()
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        for word, instead in glossary.items()
        for found in re.finditer(word, line)
    ]
    assert wrong == []


def test_chinese_raw_text_comes_with_its_extra():
    """jieba cuts raw Chinese text: pages that load small-zh by name say how to install it."""
    pages = [ROOT / "README.zh-CN.md", *(ROOT / "docs" / "zh").glob("*.md")]
    loading = [path for path in pages if 'load("small-zh")' in path.read_text("utf-8")]
    assert ROOT / "README.zh-CN.md" in loading
    wrong = [path.name for path in loading if "[zh]'" not in path.read_text("utf-8")]
    assert wrong == [], "name pip install '.[zh]'"


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
    (block,) = code_of(page, "")
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
        importlib.import_module(package._homes[name])
        value = getattr(package, name)
        assert name in dir(package)
        assert getattr(value, "__module__", f"elmokit.{room}.").startswith(f"elmokit.{room}")
        assert not isinstance(value, type(pytest)), f"elmokit.{room}.{name} is a module"


def test_rooms_are_reached_without_importing_them():
    code = "import elmokit\nassert elmokit.lm.perplexity.__name__ == 'perplexity'"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def main() -> None:
    """Print what breaks the rules, room by room."""
    for rule, check in RULES.items():
        broken: dict[str, list[str]] = {}
        for module, why in dict.fromkeys(check()):
            broken.setdefault(module.partition("/")[0], []).append(f"{module}: {why}")
        print(f"{rule.replace('_', ' ')}: {sum(map(len, broken.values()))}")
        for room, lines in sorted(broken.items()):
            print(f"  {room}: {len(lines)}", *lines, sep="\n    ")


if __name__ == "__main__":
    main()
