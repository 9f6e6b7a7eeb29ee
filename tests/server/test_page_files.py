"""The built page: served, small, complete, made of its sources; and docs/page.md about it."""

from __future__ import annotations

import hashlib
import re
import shlex
from pathlib import Path

import pytest
from services import client_of

from elmokit.cli import app as command_line
from elmokit.corpus.cleaning import ENGLISH_STOP_WORDS
from elmokit.server.app import PAGE
from elmokit.server.settings import Access

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "page"
MOST_BYTES = 400_000


def built() -> list[Path]:
    return sorted(path for path in PAGE.rglob("*") if path.is_file())


def test_page_and_all_its_files_are_served(client):
    answer = client.get("/")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/html")
    linked = re.findall(r'(?:src|href)="\./([^"]+)"', answer.text)
    assert {PAGE / name for name in linked} | {PAGE / "index.html"} == set(built())
    kinds = {
        Path(name).suffix: client.get(f"/{name}").headers["content-type"].partition(";")[0]
        for name in linked
    }
    assert kinds == {".js": "text/javascript", ".css": "text/css"}


def test_page_needs_no_token_but_its_data_does(registry):
    with client_of(registry, access=Access(tokens=("a-token-of-the-page-0",))) as client:
        assert client.get("/").status_code == 200
        assert client.get("/v1/models").status_code == 401


def test_built_files_are_small_and_name_no_other_site():
    assert sum(path.stat().st_size for path in built()) < MOST_BYTES
    for path in built():
        # XML namespaces look like addresses, but are never fetched.
        text = re.sub(r"http://www\.w3\.org/[\w/]+", "", path.read_text("utf-8"))
        assert re.findall(r"https?://|//\w+\.\w+/", text) == []


def test_policy_allows_no_other_site():
    text = (PAGE / "index.html").read_text("utf-8")
    (policy,) = re.findall(r'content="(default-src[^"]*)"', text)
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    allowed = {source for rule in rules.values() for source in rule.split()}
    assert allowed == {"'none'", "'self'", "data:", "blob:"}


def test_document_names_real_commands_views_and_buttons():
    text = (ROOT / "docs" / "page.md").read_text("utf-8")
    commands = re.findall(r"^\$ (.*)$", text, flags=re.M)
    for command in commands:
        program, *arguments = shlex.split(command)
        if program == "elmokit":
            call, _, _ = command_line.parse_args(arguments, exit_on_error=False)
            assert call.__name__ == "serve"
        elif program == "make":
            assert f"\n{arguments[0]}: " in (ROOT / "Makefile").read_text("utf-8")
        else:
            assert program == "pip"
    (script,) = PAGE.glob("assets/*.js")
    shown = script.read_text("utf-8")
    titles = re.findall(r"^## (.*)$", text, flags=re.M)
    assert titles[-1] == "For developers"
    for title in titles[:-1]:
        assert f"`{title}`" in shown or f'"{title}"' in shown


@pytest.mark.skipif(not SOURCES.is_dir(), reason="the sources are not here")
def test_page_knows_the_stop_words_of_the_package():
    text = (SOURCES / "src" / "words.ts").read_text("utf-8")
    listed = text.partition("const ENGLISH =")[2].partition(";")[0]
    words = "".join(re.findall(r'"([^"]*)"', listed)).split()
    assert set(words) == ENGLISH_STOP_WORDS


@pytest.mark.skipif(not SOURCES.is_dir(), reason="the sources are not here")
def test_built_files_are_made_of_the_sources():
    """If not: `make page`."""
    names = [p.relative_to(SOURCES).as_posix() for p in SOURCES.glob("src/**/*") if p.is_file()]
    digest = hashlib.sha256()
    for name in sorted([*names, "index.html", "package-lock.json"]):
        digest.update(f"{name}\n".encode())
        digest.update((SOURCES / name).read_bytes())
    text = (PAGE / "index.html").read_text("utf-8")
    assert re.findall(r'<meta name="sources" content="(\w+)"', text) == [digest.hexdigest()]
