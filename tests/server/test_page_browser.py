"""The page in a real browser; `make page-test` installs what it needs."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from services import TRAINING, Live, trained_for_all

from elmokit.server.app import create_app
from elmokit.server.client import Client
from elmokit.server.registry import ModelRegistry
from elmokit.server.settings import Access, Limits

playwright = pytest.importorskip("playwright.sync_api")
CHROMIUM = shutil.which("chromium")
AXE = Path(__file__).parents[2] / "page" / "node_modules" / "axe-core" / "axe.min.js"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="Debian's chromium is not installed"),
]

VIEWS = ("context", "layers", "inspect", "gap", "tasks")
LANGUAGES = pytest.mark.parametrize("language", ["en", "zh"])
LOCALES = {"en": "en-GB", "zh": "zh-CN"}
WORDS: dict[str, dict[str, str]] = {
    "en": {
        "show": "Show",
        "sentences": "Sentences, one per line",
        "sentence": "Sentence",
        "word": "Word",
        "layer": "Layer",
        "groups": "Groups",
        "product": "Dot product",
        "cosine": "Cosine",
        "guesses": "Predictions",
        "predictor": "Predictor",
        "texts": "Texts, one per line",
        "python": "Copy as Python",
        "curl": "Copy as curl",
        "data": "Download data",
        "svg": "Figure as SVG",
        "png": "Figure as PNG",
        "copied": "Copied.",
        "empty": "Enter something first.",
    },
    "zh": {
        "show": "显示",
        "sentences": "句子，每行一句",
        "sentence": "句子",
        "word": "词",
        "layer": "层",
        "groups": "分组数",
        "product": "点积",
        "cosine": "余弦相似度",
        "guesses": "预测数",
        "predictor": "预测器",
        "texts": "文本，每行一条",
        "python": "复制为 Python",
        "curl": "复制为 curl",
        "data": "下载数据",
        "svg": "下载 SVG 图",
        "png": "下载 PNG 图",
        "copied": "已复制。",
        "empty": "请先输入内容。",
    },
}
SENTENCES = [
    "the bank lent money",
    "a bank by the river",
    "the bank of the river",
    "Bank and money",
    "it's the bank",
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as play:
        found = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture(scope="module")
def live(registry: ModelRegistry) -> Iterator[Live]:
    with Live(create_app(registry)) as found:
        yield found


@pytest.fixture(scope="module")
def service(live: Live) -> Iterator[Client]:
    with Client(live.address) as client:
        yield client


class Visitor:
    """A user of the page, who collects its errors and requests."""

    def __init__(self, browser: Any, address: str, language: str, **options: Any) -> None:
        self.words = WORDS[language]
        self.address = address
        self.context = browser.new_context(locale=LOCALES[language], **options)
        self.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=address)
        self.page = self.context.new_page()
        self.errors: list[str] = []
        self.requested: list[str] = []
        self.page.on("console", self._collect)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", lambda request: self.requested.append(request.url))

    def _collect(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.errors.append(message.text)

    def leave(self) -> None:
        self.context.close()
        elsewhere = [
            url
            for url in self.requested
            if not url.startswith((f"{self.address}/", "blob:", "data:"))
        ]
        assert elsewhere == []
        assert self.errors == []

    def open(self, view: str) -> None:
        self.page.goto(f"{self.address}/#/{view}")
        self.page.locator(f'nav a[aria-current][href="#/{view}"]').wait_for()
        self.settled()

    def settled(self) -> None:
        """Wait for the picture of the last request."""
        self.page.locator("figure svg").wait_for()
        self.page.wait_for_function(
            "() => document.querySelector('main .status')?.textContent === ''"
        )

    def field(self, name: str) -> Any:
        return self.page.get_by_label(self.words[name], exact=True)

    def press(self, name: str) -> None:
        self.page.get_by_role("button", name=self.words[name], exact=True).click()

    def show(self) -> None:
        self.press("show")
        self.settled()

    def copied(self, kind: str) -> str:
        self.press(kind)
        self.page.get_by_text(self.words["copied"]).wait_for()
        text: str = self.page.evaluate("() => navigator.clipboard.readText()")
        assert self.page.locator(".takeaway pre").inner_text().strip() == text.strip()
        return text

    def saved(self, kind: str) -> bytes:
        with self.page.expect_download() as download:
            self.press(kind)
        return Path(download.value.path()).read_bytes()

    def data(self) -> Any:
        return json.loads(self.saved("data"))

    def rows(self, selector: str = "main table") -> list[list[str]]:
        found: list[list[str]] = self.page.locator(selector).last.evaluate(
            "table => [...table.tBodies[0].rows].map(row => [...row.cells].map(c => c.innerText))"
        )
        return found


@pytest.fixture
def visit(browser: Any, live: Live) -> Iterator[Callable[..., Visitor]]:
    visitors: list[Visitor] = []

    def enter(language: str = "en", address: str = live.address, **options: Any) -> Visitor:
        visitors.append(Visitor(browser, address, language, **options))
        return visitors[-1]

    yield enter
    for visitor in visitors:
        visitor.leave()


def check_takeaway(visitor: Visitor, capsys: pytest.CaptureFixture[str]) -> None:
    """What a view gives away works elsewhere."""
    exec(compile(visitor.copied("python"), "copied.py", "exec"), {})
    assert capsys.readouterr().out.strip()
    if shutil.which("curl"):
        command = visitor.copied("curl")
        done = subprocess.run(
            ["sh", "-c", f"{command} --noproxy '*' --fail"], capture_output=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)
    picture = ET.fromstring(visitor.saved("svg"))
    assert picture.tag == "{http://www.w3.org/2000/svg}svg"
    png = visitor.saved("png")
    assert png.startswith(b"\x89PNG")
    width, height = (int.from_bytes(png[offset : offset + 4], "big") for offset in (16, 20))
    assert (width, height) == (2 * int(picture.get("width")), 2 * int(picture.get("height")))


@LANGUAGES
def test_context_maps_the_uses_of_a_word(visit, service, language, capsys):
    visitor = visit(language)
    visitor.open("context")
    visitor.field("sentences").fill("\n".join(SENTENCES))
    visitor.show()
    # A content word, although "the" occurs as often.
    assert visitor.field("word").input_value() == "bank"
    points = visitor.page.locator("figure .point")
    assert points.count() == len(SENTENCES)
    captions = visitor.page.locator('figure g[font-size="11"] text').all_text_contents()
    assert len(captions) == len(SENTENCES)

    # The coordinates are those of numpy's components, but for signs; mean of all layers.
    data = visitor.data()
    vectors = [
        array[use["position"]]
        for use, array in zip(data["uses"], service.encode(SENTENCES), strict=True)
    ]
    np.testing.assert_allclose([use["vector"] for use in data["uses"]], vectors, atol=1e-5)
    centred = np.array(vectors, np.float64) - np.mean(vectors, axis=0)
    left, sizes, _ = np.linalg.svd(centred, full_matrices=False)
    found = np.array([use["coordinates"] for use in data["uses"]])
    scale = np.abs(found).max()
    np.testing.assert_allclose(np.abs(found), np.abs(left[:, :2] * sizes[:2]), atol=1e-3 * scale)

    # Hovering shows the sentence; the keyboard moves on and selects.
    points.nth(2).hover()
    assert visitor.page.locator(".tip").inner_text() == SENTENCES[2]
    points.first.focus()
    visitor.page.keyboard.press("ArrowRight")
    visitor.page.keyboard.press("Enter")
    assert points.nth(1).get_attribute("aria-pressed") == "true"
    near = service.similar(SENTENCES[1], word="bank", among=SENTENCES)["uses"]
    expected = {" ".join(use["tokens"]): f"{use['cosine']:.3f}" for use in near}
    shown = {row[1]: row[0] for row in visitor.rows(".nearest table")}
    assert SENTENCES[1] not in shown
    same_word = {
        sentence for sentence in SENTENCES if sentence not in (SENTENCES[1], "Bank and money")
    }
    assert {s: shown[s] for s in same_word} == {s: expected[s] for s in same_word}

    # t-SNE, another layer with the keyboard, three groups.
    visitor.page.get_by_role("button", name="t-SNE").click()
    visitor.settled()
    visitor.field("layer").focus()
    visitor.page.keyboard.press("ArrowLeft")
    visitor.field("groups").select_option("3")
    visitor.settled()
    data = visitor.data()
    assert (data["method"], data["layer"]) == ("tsne", 2)
    assert {use["group"] for use in data["uses"]} == {1, 2, 3}
    again = visitor.data()
    assert again == data
    check_takeaway(visitor, capsys)


@LANGUAGES
def test_layers_compare_tokens_and_mix(visit, service, language, capsys):
    visitor = visit(language)
    visitor.open("layers")
    sentence = SENTENCES[2]
    visitor.field("sentence").fill(sentence)
    visitor.show()
    data = visitor.data()
    answer = service.layers(sentence)
    assert data["tokens"] == answer["tokens"]
    np.testing.assert_allclose(data["layers"], answer["layers"], atol=1e-4)
    assert data["mix"]["s"] == pytest.approx([1 / 3] * 3)
    mean = service.encode(sentence)
    np.testing.assert_allclose(data["mix"]["lengths"], np.linalg.norm(mean, axis=1), rtol=1e-4)

    # Gamma doubles lengths and leaves angles.
    visitor.page.get_by_label("gamma").fill("2")
    doubled = visitor.data()["mix"]
    np.testing.assert_allclose(doubled["lengths"], 2 * np.array(data["mix"]["lengths"]), rtol=1e-9)
    np.testing.assert_allclose(doubled["matrix"], data["mix"]["matrix"], atol=1e-9)
    for number in (1, 2):
        visitor.page.get_by_label(f"s_{number}").fill("0")
    alone = visitor.data()
    np.testing.assert_allclose(alone["mix"]["matrix"], alone["layers"][0], atol=1e-9)
    assert "-1 0 1" in " ".join(visitor.page.locator("figure svg > text").all_text_contents())
    visitor.press("product")
    data = visitor.data()
    assert data["measure"] == "dot"
    most = np.abs(data["layers"]).max()
    ticks = visitor.page.locator("figure svg > text").all_text_contents()[-3:]
    assert [float(tick) for tick in ticks] == pytest.approx([-most, 0, most], rel=0.01)
    square = visitor.page.locator("figure svg g rect").first
    square.hover()
    assert visitor.page.locator(".tip").inner_text().startswith("the · the: ")
    check_takeaway(visitor, capsys)


@LANGUAGES
def test_inspect_shows_the_real_numbers(visit, service, language, capsys):
    visitor = visit(language)
    visitor.open("inspect")
    visitor.field("sentence").fill(SENTENCES[0])
    visitor.show()
    visitor.page.get_by_role("button", name="money", exact=True).click()
    visitor.settled()
    real = service.inspect(SENTENCES[0], word="money", k=8)
    data = visitor.data()
    assert data["position"] == 3
    assert data["characters"] == real["characters"]
    drawn = visitor.page.locator("figure svg").inner_html()
    numbers = [
        real["token_vector"]["norm"],
        *(state["norm"] for layer in real["layers"] for state in layer["directions"].values()),
    ]
    assert all(f"{number:.2f}" in drawn for number in numbers)
    assert all(f">{letter}<" in drawn for letter in "money")
    assert all(f"{width['firing']} / {width['filters']}" in drawn for width in real["widths"])
    guessed = [row[1].split(" ")[0] for row in visitor.rows()]
    assert guessed == [position["forward"][0]["word"] for position in real["guesses"]]
    check_takeaway(visitor, capsys)


@LANGUAGES
def test_gap_lists_both_directions_and_their_product(visit, service, language, capsys):
    visitor = visit(language)
    visitor.open("gap")
    visitor.field("sentence").fill(SENTENCES[0])
    visitor.show()
    visitor.page.get_by_role("button", name="lent", exact=True).click()
    visitor.field("guesses").select_option("5")
    visitor.settled()
    real = service.substitutes(SENTENCES[0], word="lent", k=5)
    data = visitor.data()
    assert [g["word"] for g in data["both"]] == [g["word"] for g in real["both"]]
    assert visitor.rows() == [
        [g["word"], f"{g['logprob']:.3f}", f"{g['forward']:.3f}", f"{g['backward']:.3f}"]
        for g in real["both"]
    ]
    drawn = visitor.page.locator("figure svg").inner_html()
    for direction in ("forward", "backward"):
        best = 100 * np.exp(real[direction][0][direction])
        assert f"{best:.1f} %" in drawn
    assert "the bank ____ money" in drawn
    check_takeaway(visitor, capsys)


@LANGUAGES
def test_tasks_answer_and_show_their_layers(visit, service, language, capsys):
    visitor = visit(language)
    visitor.open("tasks")
    for name, texts in (("classify", ["a fine film", "a dull film"]), ("tag", ["Anna saw Paris"])):
        visitor.field("predictor").select_option(name)
        visitor.field("texts").fill("\n".join(texts))
        visitor.show()
        answers = service.predict(name, texts)
        shown = [row[1] for row in visitor.rows()]
        assert shown == [a if isinstance(a, str) else " ".join(a) for a in answers]
        drawn = visitor.page.locator("figure svg").inner_html()
        for facts in service.models()["predictors"]:
            if facts["name"] == name:
                mix = facts["layers"]["input"]
                assert all(f">{share:.3f}<" in drawn for share in mix["s"])
                assert f"gamma {mix['gamma']:.3f}" in drawn
        assert visitor.data()["items"][0]["answer"] == answers[0]
    check_takeaway(visitor, capsys)


@LANGUAGES
def test_gap_that_is_typed_is_chosen_by_itself(visit, service, language):
    visitor = visit(language)
    visitor.open("gap")
    visitor.field("sentence").fill("the bank ___ money .")
    visitor.show()
    real = service.substitutes("the bank ____ money .", position=2, k=10)
    assert visitor.data()["both"] == real["both"]
    assert "the bank ____ money ." in visitor.page.locator("figure svg").inner_html()
    assert visitor.page.locator("main").get_by_text("____", exact=True).count() == 1  # a token
    # Without a gap it is a content word.
    visitor.field("sentence").fill("the money of a bank")
    visitor.show()
    assert visitor.data()["position"] == 1


@LANGUAGES
def test_every_task_has_an_example(visit, model, tmp_path_factory, language):
    predictors = trained_for_all(tmp_path_factory)
    with Live(create_app(ModelRegistry({"tiny": model}, predictors))) as live:
        visitor = visit(language, live.address)
        visitor.open("tasks")
        for name in TRAINING:
            visitor.field("predictor").select_option(name)
            visitor.settled()
            assert visitor.data()["items"], name
        # Of another predicate the roles are others: the form sends the one that was written.
        predicate = visitor.page.get_by_label({"en": "Predicate", "zh": "谓词"}[language])
        assert predicate.input_value() == "lent"
        predicate.fill("farmer")
        visitor.show()
        assert '["farmer",' in visitor.copied("curl").replace(" ", "")
        predicate.fill("shepherd")
        visitor.press("show")
        visitor.page.locator(".problem").get_by_text("shepherd").wait_for()


@pytest.mark.parametrize(
    "screen",
    [
        {"viewport": {"width": 1280, "height": 800}},
        {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True},
        {"viewport": {"width": 360, "height": 640}, "has_touch": True, "is_mobile": True},
    ],
)
@LANGUAGES
def test_map_is_above_the_fold(visit, language, screen):
    visitor = visit(language, **screen)
    visitor.open("context")
    box = visitor.page.locator("figure svg").bounding_box()
    assert box["y"] + box["height"] <= screen["viewport"]["height"]


def test_nothing_stale_stays_after_an_error(visit, registry):
    with Live(create_app(registry, limits=Limits(tokens=40))) as narrow:
        visitor = visit("en", narrow.address)
        fields = {"context": "sentences", "layers": "sentence", "inspect": "sentence"}
        for view, name in {**fields, "gap": "sentence", "tasks": "texts"}.items():
            visitor.page.goto(f"{narrow.address}/#/{view}")
            field = visitor.field(name)
            for text, problem in (("  ", "Enter something"), ("word " * 50, "more than 40 tokens")):
                field.fill("a bank\na bank" if name == "sentences" else "a bank")
                visitor.show()
                assert visitor.page.locator(".takeaway").is_visible()
                field.fill(text)
                visitor.press("show")
                visitor.page.locator(".problem").get_by_text(problem).wait_for()
                assert visitor.page.locator("figure svg").count() == 0, view
                assert visitor.page.locator(".takeaway").is_hidden(), view
                assert visitor.page.locator("main table").locator("visible=true").count() == 0
                assert visitor.page.locator(".tokens button").count() == 0
        assert all("422" in error for error in visitor.errors)
        visitor.errors.clear()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@LANGUAGES
def test_axe_finds_nothing_serious(visit, language, scheme):
    if not AXE.is_file():
        pytest.skip("axe-core is not installed")
    check_with_axe(visit(language, color_scheme=scheme))


def check_with_axe(visitor: Visitor) -> None:
    found = []
    for view in VIEWS:
        visitor.open(view)
        visitor.press("curl")
        found += serious_problems(visitor, view)
    assert found == []


def serious_problems(visitor: Visitor, view: str) -> list[tuple[Any, ...]]:
    """What axe finds in the view that is shown."""
    visitor.page.evaluate(AXE.read_text("utf-8"))
    return [
        (view, problem["impact"], problem["id"], [node["target"] for node in problem["nodes"]][:3])
        for problem in visitor.page.evaluate("() => axe.run()")["violations"]
        if problem["impact"] in ("serious", "critical")
    ]


def test_phone_has_room_for_everything(visit):
    visitor = visit(viewport={"width": 360, "height": 640}, has_touch=True, is_mobile=True)
    for view in VIEWS:
        visitor.open(view)
        width = visitor.page.evaluate("() => document.documentElement.scrollWidth")
        assert width <= 360, view
        visitor.page.get_by_role("button", name="Show").tap()
        visitor.settled()


def test_axe_finds_nothing_serious_on_a_phone(visit):
    if not AXE.is_file():
        pytest.skip("axe-core is not installed")
    screen = {"width": 360, "height": 640}
    check_with_axe(visit("zh", viewport=screen, has_touch=True, is_mobile=True))


def test_keyboard_alone_is_enough(visit, service):
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
    assert visitor.page.evaluate("document.activeElement.id") == "main"
    press("Tab")
    press("Control+a")
    visitor.page.keyboard.type(SENTENCES[0])
    press("Enter")
    visitor.page.get_by_role("button", name="lent", exact=True).wait_for()
    visitor.settled()
    for _ in range(4):  # the button, then three tokens
        press("Tab")
    press("Enter")
    visitor.page.get_by_text("The hidden word: lent").wait_for()
    # Whoever pressed a button is still there.
    assert visitor.page.evaluate("document.activeElement.textContent") == "lent"


def test_language_and_colours_change_and_are_kept(visit):
    visitor = visit()
    visitor.open("layers")
    visitor.field("sentence").fill(SENTENCES[1])
    visitor.page.get_by_label("Language").select_option("zh")
    visitor.settled()
    page = visitor.page
    assert page.locator("html").get_attribute("lang") == "zh-CN"
    assert page.get_by_label("句子", exact=True).input_value() == SENTENCES[1]
    assert page.get_by_role("heading", level=1).inner_text() == "各层"
    seen = page.locator("main").inner_text()
    assert re.findall(r"\b(?:the mix|layer|show|copy|download|lengths?)\b", seen, re.I) == []
    page.get_by_label("配色").select_option("dark")
    assert page.locator("html").get_attribute("data-theme") == "dark"
    paper = page.locator("figure svg rect").first
    assert paper.get_attribute("fill") == "#14181d"
    page.reload()
    visitor.settled()
    assert page.locator("html").get_attribute("lang") == "zh-CN"
    assert page.locator("figure svg rect").first.get_attribute("fill") == "#14181d"


def test_model_without_softmax_says_so(visit):
    visitor = visit()
    visitor.open("inspect")
    visitor.page.get_by_label("Model", exact=True).select_option("tiny")
    visitor.page.get_by_text("it predicts no words").wait_for()
    visitor.page.goto(f"{visitor.address}/#/gap")
    visitor.page.get_by_text("it predicts no words").wait_for()


@LANGUAGES
def test_input_errors_are_explained(visit, registry, language):
    with Live(create_app(registry, limits=Limits(tokens=8))) as narrow:
        visitor = visit(language, narrow.address)
        visitor.open("inspect")
        visitor.field("sentence").fill("  ")
        visitor.press("show")
        visitor.page.get_by_text(visitor.words["empty"]).wait_for()
        visitor.field("sentence").fill("one two three four five six seven eight nine")
        visitor.press("show")
        visitor.page.get_by_text("more than 8 tokens").wait_for()
        # The browser itself notes every answer that is a refusal.
        assert all("422" in error for error in visitor.errors)
        visitor.errors.clear()
        visitor.field("sentence").fill(SENTENCES[0])
        visitor.show()


def test_token_form_is_shown(visit, registry):
    access = Access(tokens=("a-token-of-the-page-0",))
    with Live(create_app(registry, access=access)) as guarded:
        visitor = visit("en", guarded.address)
        visitor.page.goto(guarded.address)
        field = visitor.page.get_by_label("This service requires a token")
        field.fill("a-wrong-token")
        visitor.page.get_by_role("button", name="Use token").click()
        field.fill("a-token-of-the-page-0")
        visitor.page.get_by_role("button", name="Use token").click()
        visitor.settled()
        assert all("401" in error for error in visitor.errors)
        visitor.errors.clear()
        assert "YOUR TOKEN" in visitor.copied("python")
