"""The documentation site: every page is found, in both languages; the reference is complete."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from pages import DOCS, ROOT

LANGUAGES = {"en": (ROOT / "mkdocs.yml", DOCS), "zh": (ROOT / "mkdocs.zh.yml", DOCS / "zh")}
GROUPS = {
    "en": ["Learn", "Guides", "Models", "Reference", "Project"],
    "zh": ["入门", "指南", "模型", "参考", "项目"],
}


def pages(language: str) -> list[str]:
    """The pages of a language, named as its settings name them."""
    folder = LANGUAGES[language][1]
    found = (path.relative_to(folder).as_posix() for path in folder.rglob("*.md"))
    return sorted(name for name in found if not name.startswith("zh/"))


def navigation(language: str) -> list[str]:
    settings = LANGUAGES[language][0].read_text("utf-8")
    return settings.partition("\nnav:\n")[2].splitlines()


@pytest.mark.parametrize("language", LANGUAGES)
def test_navigation_has_every_page_once(language):
    named = [line.split()[-1] for line in navigation(language) if line.endswith(".md")]
    assert sorted(named) == pages(language)


@pytest.mark.parametrize("language", LANGUAGES)
def test_navigation_has_the_five_groups(language):
    groups = [line.strip(" -:") for line in navigation(language) if re.match(r"  - .*:$", line)]
    assert groups == GROUPS[language]


def test_every_page_has_a_twin_and_the_same_neighbours():
    assert pages("en") == pages("zh")
    orders = [
        [line.split()[-1] for line in navigation(language) if line.endswith(".md")]
        for language in LANGUAGES
    ]
    assert orders[0] == orders[1]


def test_reference_has_all_public_names():
    tool = Path("tools", "reference_pages.py")
    subprocess.run([sys.executable, tool], cwd=ROOT, check=True, timeout=120)


def test_chinese_lines_are_not_broken_between_characters():
    """A browser shows a line break between two Chinese characters as a space."""
    broken = re.compile(r"(?<=[一-鿿，。：；、）”])\n *(?=[一-鿿“（])")
    for path in (DOCS / "zh").rglob("*.md"):
        text = re.sub(r"^```.*?^```$", "", path.read_text("utf-8"), flags=re.M | re.S)
        assert not broken.search(text), path
