"""The table of versions: complete, green, and of the bounds that pyproject.toml declares."""

from __future__ import annotations

import json
import re
import tomllib

from benchmarks.report import RESULTS, ROOT
from benchmarks.versions import CORE, ENVIRONMENTS, EXTRAS, table

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
ROWS = json.loads((RESULTS / "versions.json").read_text("utf-8"))


def test_versions_tests_exist_and_extras_are_declared():
    for path in (*CORE, *(path for paths in EXTRAS.values() for path in paths)):
        assert (ROOT / path).exists(), path
    declared = set(PROJECT["optional-dependencies"])
    assert set(EXTRAS) == declared - {"all", "ray"}


def test_versions_table_has_no_failure():
    tried = {row["name"]: row for row in ROWS}
    assert list(tried) == [name for name in ENVIRONMENTS if name in tried]
    assert {"lowest", "3.11", "3.13"} <= set(tried)
    for name, row in tried.items():
        if "result" not in row:
            assert (row["check"], row["failed"]) == ("OK", 0), name
            assert row["passed"] > 50, name
    assert (RESULTS / "versions.txt").read_text("utf-8") == table(ROWS)


def test_versions_lowest_are_the_declared_bounds():
    (lowest,) = (row["versions"] for row in ROWS if row["name"] == "lowest")
    for requirement in PROJECT["dependencies"]:
        package, bound = re.fullmatch(r"([\w-]+)>=([\d.]+)", requirement).groups()
        tried = lowest[package.replace("_", "-")]
        assert f"{tried}.".startswith(f"{bound}."), requirement
