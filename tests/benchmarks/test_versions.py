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


def test_versions_table_has_every_environment_and_no_failure():
    assert [row["name"] for row in ROWS] == list(ENVIRONMENTS)
    for row in ROWS:
        assert "result" in row or (row["check"], row["failed"]) == ("OK", 0), row["name"]
        assert row.get("passed", 100) >= 100
    assert (RESULTS / "versions.txt").read_text("utf-8") == table(ROWS)


def test_versions_lowest_are_the_declared_bounds():
    (lowest,) = (row["versions"] for row in ROWS if row["name"] == "lowest")
    for requirement in PROJECT["dependencies"]:
        package, bound = re.fullmatch(r"([\w-]+)>=([\d.]+)", requirement).groups()
        tried = lowest[package.replace("_", "-")]
        assert f"{tried}.".startswith(f"{bound}."), requirement
