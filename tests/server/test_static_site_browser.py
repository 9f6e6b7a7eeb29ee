"""The page without a server, given out by a plain file server, in a real browser."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_page_browser import (
    AXE,
    LANGUAGES,
    SENTENCES,
    Visitor,
    browser,  # noqa: F401 - a fixture
    pytestmark,  # noqa: F401
    serious_problems,
)

import elmokit
from elmokit.lm.substitutes import guesses, substitutes
from elmokit.server import write_site
from elmokit.server.inspect import inspect_word

pytest.importorskip("onnx")

ROOT = Path(__file__).parents[2]
VIEWS = ("context", "layers", "inspect", "gap")
LOADING = 120_000
"""Milliseconds: a model is tens of megabytes, and the machine may be busy."""
CHINESE = "他在银行工作"


class Files(ThreadingHTTPServer):
    """Folders under an address, with nothing but Python's own file server."""

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
        self.address = f"http://127.0.0.1:{self.server_port}"
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *arguments: Any) -> None:
        pass


@pytest.fixture(scope="module")
def embedded() -> dict[str, elmokit.Elmo]:
    pytest.importorskip("jieba")
    return {name: elmokit.load(name) for name in ("small-en", "small-zh")}


@pytest.fixture(scope="module")
def files(model, tiny, embedded, tmp_path_factory) -> Iterator[Files]:
    folder = tmp_path_factory.mktemp("sites")
    write_site({"standard": model, "tiny": tiny}, folder / "small", storage="float32")
    write_site(embedded, folder / "exact", storage="float32")
    write_site(embedded, folder / "int8")
    with Files(folder) as server:
        yield server
        server.shutdown()


@pytest.fixture
def visit(browser: Any, files: Files) -> Iterator[Callable[..., Visitor]]:  # noqa: F811
    visitors: list[Visitor] = []

    def enter(language: str = "en", site: str = "small", **options: Any) -> Visitor:
        visitor = Visitor(browser, f"{files.address}/{site}", language, **options)
        visitor.page.set_default_timeout(LOADING)
        # Those of the workers, too.
        visitor.context.on("request", lambda request: visitor.requested.append(request.url))
        visitors.append(visitor)
        return visitor

    yield enter
    for visitor in visitors:
        visitor.leave()


def substitutes_in_python(elmo: elmokit.Elmo, tokens: list[str], position: int) -> dict[str, Any]:
    return {
        "both": substitutes(elmo, tokens, position, 10),
        "forward": guesses(elmo, tokens, position, "forward", 10),
        "backward": guesses(elmo, tokens, position, "backward", 10),
    }


def check_vectors(visitor: Visitor, elmo: elmokit.Elmo, sentence: str, atol: float) -> None:
    """The data of the context view holds the vectors: those of Python, layer by layer."""
    visitor.open("context")
    word = elmo.tokenize(sentence)[0].lower()
    visitor.field("sentences").fill(f"{sentence}\n{sentence}")
    visitor.show()
    visitor.field("word").select_option(word)
    visitor.settled()
    for layer in range(elmo.layers):
        visitor.field("layer").fill(str(layer))
        visitor.settled()
        data = visitor.data()
        assert data["layer"] == layer
        want = elmo.encode(sentence, layers=layer)
        for use in data["uses"]:
            assert use["tokens"] == elmo.tokenize(sentence)
            np.testing.assert_allclose(use["vector"], want[use["position"]], atol=atol)


def check_inspection(found: Any, want: Any, near: float) -> None:
    """Two reports are equal, numbers nearly so."""
    if isinstance(want, dict):
        for name, value in want.items():
            check_inspection(found[name], value, near)
    elif isinstance(want, list):
        assert len(found) == len(want)
        for one, other in zip(found, want, strict=True):
            check_inspection(one, other, near)
    elif isinstance(want, float):
        assert found == pytest.approx(want, rel=near, abs=near)
    else:
        assert found == want


@LANGUAGES
def test_site_shows_what_python_computes(visit, model, language):
    visitor = visit(language)
    check_vectors(visitor, model, SENTENCES[0], 1e-5)

    visitor.open("layers")
    visitor.field("sentence").fill(SENTENCES[2])
    visitor.show()
    visitor.press("product")
    vectors = model.encode(SENTENCES[2], layers="all")
    np.testing.assert_allclose(
        visitor.data()["layers"], vectors @ vectors.transpose(0, 2, 1), rtol=1e-4, atol=1e-4
    )

    visitor.open("inspect")
    visitor.field("sentence").fill(SENTENCES[0])
    visitor.show()
    visitor.page.get_by_role("button", name="money", exact=True).click()
    visitor.settled()
    tokens = model.tokenize(SENTENCES[0])
    check_inspection(visitor.data(), inspect_word(model, tokens, 3, 8), 1e-4)

    visitor.open("gap")
    visitor.field("sentence").fill(SENTENCES[0])
    visitor.show()
    visitor.page.get_by_role("button", name="lent", exact=True).click()
    visitor.settled()
    data = visitor.data()
    for name, real in substitutes_in_python(model, tokens, 2).items():
        assert [guess["word"] for guess in data[name]] == [guess.word for guess in real]
    assert visitor.page.get_by_role("link", name="Tasks").count() == 0


def test_embedded_models_in_float32_are_exact(visit, embedded):
    visitor = visit(site="exact")
    for name, sentence in (("small-en", "The bank of the river, isn't it?"), ("small-zh", CHINESE)):
        elmo = embedded[name]
        visitor.open("context")
        visitor.page.get_by_label("Model", exact=True).select_option(name)
        visitor.settled()
        check_vectors(visitor, elmo, sentence, 1e-4)
        tokens = elmo.tokenize(sentence)
        position = 2
        visitor.open("gap")
        visitor.field("sentence").fill(sentence)
        visitor.show()
        visitor.page.get_by_role("button", name=tokens[position], exact=True).first.click()
        visitor.settled()
        data = visitor.data()
        assert data["position"] == tokens.index(tokens[position])
        for kind, real in substitutes_in_python(elmo, tokens, data["position"]).items():
            assert [guess["word"] for guess in data[kind]] == [guess.word for guess in real], kind
            for guess, want in zip(data[kind], real, strict=True):
                assert guess["logprob"] == pytest.approx(want.logprob, abs=1e-3)
        visitor.open("inspect")
        visitor.field("sentence").fill(sentence)
        visitor.show()
        found = visitor.data()
        check_inspection(found, inspect_word(elmo, tokens, found["position"], 8), 1e-3)


def test_int8_loses_nothing_of_a_model_that_was_stored_so(visit, embedded):
    visitor = visit(site="int8")
    for name, elmo in embedded.items():
        visitor.open("context")
        visitor.page.get_by_label("Model", exact=True).select_option(name)
        visitor.settled()
        for use in visitor.data()["uses"]:
            want = elmo.encode([use["tokens"]])[0][use["position"]]
            np.testing.assert_allclose(use["vector"], want, atol=1e-4)


def test_chinese_is_split_as_jieba_splits_it(visit, embedded):
    visitor = visit(site="int8")
    visitor.open("layers")
    visitor.page.get_by_label("Model", exact=True).select_option("small-zh")
    visitor.settled()
    lines = (ROOT / "tests" / "data" / "heldout_zh.txt").read_text("utf-8").split("\n")
    for line in [line.strip()[:100] for line in lines if line.strip()][:12]:
        visitor.field("sentence").fill(line)
        visitor.show()
        assert visitor.data()["tokens"] == embedded["small-zh"].tokenize(line)


def test_after_the_first_visit_it_works_offline(visit, files):
    visitor = visit()
    visitor.open("gap")
    visitor.page.wait_for_function("() => document.querySelector('.loading').hidden")
    visitor.context.set_offline(True)
    visitor.page.reload()
    visitor.settled()
    for view in VIEWS:
        visitor.open(view)
        visitor.page.reload()
        visitor.show()
    # A new tab, and another way to write the address.
    page = visitor.context.new_page()
    page.goto(f"{files.address}/small/index.html")
    page.locator("figure svg").wait_for(timeout=LOADING)


def test_new_site_is_seen_and_old_files_are_forgotten(visit, tiny, model, files, tmp_path):
    folder = Path(files.RequestHandlerClass.keywords["directory"]) / "changing"
    write_site({"before": tiny}, folder)
    visitor = visit(site="changing")
    visitor.open("context")
    write_site({"after": model}, folder)
    visitor.page.reload()
    visitor.settled()
    assert visitor.page.get_by_label("Model", exact=True).input_value() == "after"
    kept = "async () => (await (await caches.open('elmokit-site')).keys()).map((r) => r.url)"
    urls = visitor.page.evaluate(kept)
    assert [url for url in urls if "after" in url] != []
    assert [url for url in urls if "before" in url] == []


def test_progress_is_shown_and_a_failed_download_is_tried_again(visit):
    visitor = visit(service_workers="block")  # so that requests can be changed here
    page = visitor.page
    failing = True

    def answer(route: Any) -> None:
        if failing:
            route.abort()
        else:
            route.continue_()

    visitor.context.route(re.compile(r"/data/standard-graph"), answer)
    page.goto(f"{visitor.address}/#/layers")
    page.get_by_text("A file of the model cannot be loaded.").wait_for()
    assert page.locator(".loading").is_visible()
    assert "Loading the model" in page.locator(".loading").inner_text()
    failing = False
    visitor.show()
    visitor.open("gap")
    page.wait_for_function("() => document.querySelector('.loading').hidden")
    told = ("ERR_FAILED", "Service Worker registration blocked by Playwright")
    assert [error for error in visitor.errors if not any(part in error for part in told)] == []
    visitor.errors.clear()


def test_copied_python_runs_alone(visit, capsys):
    visitor = visit(site="int8")
    for view in ("context", "layers", "gap"):
        visitor.open(view)
        exec(compile(visitor.copied("python"), "copied.py", "exec"), {})
        assert capsys.readouterr().out.strip()
        assert visitor.page.get_by_role("button", name="Copy as curl").count() == 0
    visitor.open("inspect")
    assert visitor.page.get_by_role("button", name="Copy as Python").count() == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
@LANGUAGES
def test_axe_finds_nothing_serious(visit, language, scheme):
    if not AXE.is_file():
        pytest.skip("axe-core is not installed")
    visitor = visit(language, color_scheme=scheme)
    found = []
    for view in VIEWS:
        visitor.open(view)
        found += serious_problems(visitor, view)
    assert found == []


def test_phone_has_room_for_everything(visit):
    visitor = visit(viewport={"width": 360, "height": 640}, has_touch=True, is_mobile=True)
    for view in VIEWS:
        visitor.open(view)
        assert visitor.page.evaluate("() => document.documentElement.scrollWidth") <= 360, view
        visitor.page.get_by_role("button", name="Show").tap()
        visitor.settled()


def test_keyboard_alone_is_enough(visit):
    visitor = visit()
    visitor.open("context")
    press = visitor.page.keyboard.press
    press("Tab")
    assert visitor.page.evaluate("document.activeElement.className") == "skip"
    for _ in range(4):
        press("Tab")
    press("Enter")  # the fourth view
    visitor.page.get_by_role("heading", level=1, name="Fill the gap").wait_for()
    visitor.settled()
    press("Tab")
    press("Control+a")
    visitor.page.keyboard.type(SENTENCES[0])
    press("Enter")
    visitor.page.get_by_role("button", name="lent", exact=True).wait_for()
    visitor.settled()
    assert json.loads(visitor.saved("data"))["tokens"] == SENTENCES[0].split()
