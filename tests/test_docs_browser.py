"""The built documentation in a real browser; `make site-test` installs what it needs."""

from __future__ import annotations

import functools
import http.server
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from pages import DOCS, ROOT

from elmokit.cli import main

playwright = pytest.importorskip("playwright.sync_api")
CHROMIUM = shutil.which("chromium")
AXE = ROOT / "page" / "node_modules" / "axe-core" / "axe.min.js"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="Debian's chromium is not installed"),
]
SETTINGS = ("mkdocs.yml", "mkdocs.zh.yml")
LANGUAGES = pytest.mark.parametrize("language", ["en", "zh"])
SCHEMES = pytest.mark.parametrize("scheme", ["light", "dark"])
ROOTS = {"en": "", "zh": "zh/"}
WORDS = {
    "en": {
        "toc": "On this page",
        "search": "Search",
        "dark": "Switch to dark mode",
        "other": "中文",
    },
    "zh": {"toc": "目录", "search": "搜索", "dark": "切换到深色模式", "other": "English"},
}
SAMPLE = ("index", "start", "faq", "course/index", "reference/encode", "published-models", "cli")
"""Pages of every kind."""


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves files and says nothing."""

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """The built site, served."""
    for settings in SETTINGS:
        command = ["zensical", "build", "--clean", "--strict", "--config-file", settings]
        subprocess.run([sys.executable, "-m", *command], cwd=ROOT, check=True, timeout=300)
    handler = functools.partial(Quiet, directory=str(ROOT / "site"))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with playwright.sync_playwright() as play:
        found = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


class Reader:
    """Somebody who reads the site; collects errors and requests to elsewhere."""

    def __init__(self, chromium: Any, address: str, **options: Any) -> None:
        self.address = address
        self.context = chromium.new_context(**options)
        self.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=address)
        self.page = self.context.new_page()
        self.problems: list[str] = []
        self.page.on("console", self._collect)
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("request", self._check)

    def _collect(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.problems.append(message.text)

    def _check(self, request: Any) -> None:
        if not request.url.startswith((self.address, "blob:", "data:")):
            self.problems.append(request.url)

    def open(self, page: str, until: str = "networkidle") -> None:
        self.page.goto(f"{self.address}{page}", wait_until=until)

    def search(self, text: str) -> set[str]:
        """The pages that are found for a text, typed after Ctrl+K."""
        self.page.keyboard.press("Control+k")
        field = self.page.get_by_role("combobox")
        field.wait_for()
        field.fill(text)
        results = self.page.locator("ol a")
        results.first.wait_for()
        found: set[str] = set()
        for _ in range(200):  # the list holds what is in view; the arrow key moves it on
            seen = set(results.evaluate_all("links => links.map(link => link.href)"))
            found |= seen
            self.page.keyboard.press("ArrowDown")
            self.page.wait_for_timeout(10)
        names = (url.removeprefix(self.address).partition("#")[0] for url in found)
        return {name.partition("?")[0] for name in names}


@pytest.fixture
def read(chromium: Any, address: str) -> Iterator[Any]:
    readers = []

    def start(**options: Any) -> Reader:
        readers.append(Reader(chromium, address, **options))
        return readers[-1]

    yield start
    for reader in readers:
        reader.context.close()
        assert reader.problems == []


def site_pages(language: str) -> list[str]:
    folder = DOCS / ("zh" if language == "zh" else "")
    found = (path.relative_to(folder).with_suffix("").as_posix() for path in folder.rglob("*.md"))
    return sorted(name for name in found if not name.startswith("zh/"))


@LANGUAGES
def test_every_page_opens_without_errors_and_asks_nobody_else(read, language):
    reader = read(viewport={"width": 1280, "height": 800})
    for name in site_pages(language):
        reader.open(f"{ROOTS[language]}{name}.html", until="load")
        assert reader.page.locator("html").get_attribute("lang") == language
        assert reader.page.locator("h1").first.inner_text()


@LANGUAGES
def test_interface_speaks_the_language_of_the_page(read, language):
    reader, words = read(viewport={"width": 1280, "height": 800}), WORDS[language]
    reader.open(f"{ROOTS[language]}pretraining.html")
    assert reader.page.locator(".md-sidebar--secondary .md-nav__title").inner_text() == words["toc"]
    reader.page.keyboard.press("Control+k")
    field = reader.page.get_by_role("combobox")
    field.wait_for()
    assert field.get_attribute("placeholder") == words["search"]


@LANGUAGES
def test_language_switch_keeps_the_page(read, language):
    reader = read()
    other = "en" if language == "zh" else "zh"
    for name in ("index", "pretraining", "reference/encode", "course/index"):
        reader.open(f"{ROOTS[language]}{name}.html")
        reader.page.get_by_role("link", name=WORDS[language]["other"], exact=True).click()
        reader.page.wait_for_url(f"**/{ROOTS[other]}{name}.html")
        assert reader.page.locator("html").get_attribute("lang") == other


def test_every_page_has_its_twin(address):
    site = ROOT / "site"
    pages = {path.relative_to(site).as_posix() for path in site.rglob("*.html")}
    chinese = {name.removeprefix("zh/") for name in pages if name.startswith("zh/")}
    assert {name for name in pages if not name.startswith(("zh/", "demo/"))} == chinese


@LANGUAGES
def test_dark_mode_is_chosen_by_the_system_and_by_the_reader(read, language):
    body = "body[data-md-color-scheme={}]"
    dark = read(color_scheme="dark")
    dark.open(f"{ROOTS[language]}index.html")
    dark.page.locator(body.format("slate")).wait_for()
    light = read(color_scheme="light")
    light.open(f"{ROOTS[language]}index.html")
    light.page.locator(body.format("default")).wait_for()
    light.page.get_by_title(WORDS[language]["dark"]).click()
    light.page.locator(body.format("slate")).wait_for()
    light.open(f"{ROOTS[language]}start.html")
    light.page.locator(body.format("slate")).wait_for()


@LANGUAGES
def test_nothing_runs_off_a_phone(read, language):
    reader = read(viewport={"width": 390, "height": 800}, has_touch=True, is_mobile=True)
    for name in SAMPLE:
        reader.open(f"{ROOTS[language]}{name}.html")
        width = reader.page.evaluate("document.documentElement.scrollWidth")
        assert width <= 390, name


def test_long_signatures_stay_inside(read):
    reader = read(viewport={"width": 1280, "height": 800})
    for name in site_pages("en"):
        if not name.startswith("reference/"):
            continue
        reader.open(f"{name}.html", until="load")
        wide = reader.page.evaluate(
            "[...document.querySelectorAll('.doc-signature pre')]"
            ".filter(block => block.scrollWidth > block.clientWidth + 1).length"
        )
        assert wide == 0, name


@LANGUAGES
def test_first_key_skips_to_the_text(read, language):
    reader = read()
    reader.open(f"{ROOTS[language]}start.html")
    reader.page.keyboard.press("Tab")
    assert reader.page.locator(".md-skip").evaluate("link => link === document.activeElement")
    reader.page.keyboard.press("Enter")
    reader.page.wait_for_function("location.hash !== ''")


def test_search_finds_a_chinese_word_on_all_its_pages(read):
    reader = read()
    reader.open("zh/index.html")
    zh = DOCS / "zh"
    holding = {
        f"zh/{path.relative_to(zh).with_suffix('.html').as_posix()}"
        for path in zh.rglob("*.md")
        if "困惑度" in path.read_text("utf-8")
    }
    assert len(holding) > 5
    assert holding <= reader.search("困惑度")


def test_search_finds_an_english_word(read):
    reader = read()
    reader.open("index.html")
    found = reader.search("perplexity")
    assert {"pretraining.html", "language-model.html", "reference/lm.html"} <= found
    assert not any(name.startswith("zh/") for name in found)


@LANGUAGES
def test_copy_button_leaves_out_prompts_and_outputs(read, language):
    reader = read()
    reader.open(f"{ROOTS[language]}start.html")
    block = reader.page.locator(".language-console", has_text="predict my-classifier new.txt")
    block.hover()
    block.get_by_role("button").click()
    reader.page.wait_for_timeout(300)
    copied = reader.page.evaluate("navigator.clipboard.readText()")
    assert copied.splitlines() == [
        "elmokit train classify --train headlines.csv -o my-classifier",
        "elmokit predict my-classifier new.txt",
    ]


@LANGUAGES
@SCHEMES
def test_axe_finds_nothing_serious_on_the_site(read, language, scheme):
    if not AXE.is_file():
        pytest.skip("axe-core is not installed")
    reader = read(color_scheme=scheme, viewport={"width": 1280, "height": 800})
    for name in SAMPLE:
        reader.open(f"{ROOTS[language]}{name}.html")
        reader.page.add_script_tag(path=str(AXE))
        found = reader.page.evaluate("() => axe.run()")["violations"]
        serious = {
            problem["id"]: [node["html"] for node in problem["nodes"]][:3]
            for problem in found
            if problem["impact"] in ("serious", "critical")
        }
        assert serious == {}, name


def test_demo_link_leads_to_a_page_that_says_how_to_build_it(read):
    reader = read()
    for name in ("index.html", "zh/index.html"):
        reader.open(name)
        reader.page.locator(".elmokit-actions a").first.click()
        reader.page.wait_for_url("**/demo/index.html")
        assert "make site" in reader.page.inner_text("body")


def test_demo_runs_inside_the_site(read, address):
    demo = ROOT / "site" / "demo"
    shutil.rmtree(demo)
    assert main(["site", str(demo), "--model", "small-en"]) == 0
    reader = read(locale="en-GB", viewport={"width": 1280, "height": 800})
    reader.open("index.html")
    reader.page.locator(".elmokit-actions a").first.click()
    reader.page.locator("tbody tr", has_text="bank").first.wait_for(timeout=120_000)
