"""Take the pictures of the page of `elmokit serve`, with the embedded models.

Run: python docs/images/make_page_pictures.py (needs the extras `web`, `zh` and `browser`, and
Debian's chromium)
"""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from elmokit import tasks
from elmokit.tasks import TaggedExample, task_settings

HERE = Path(__file__).parent
COLOURS = 64
NAMES = """
Anna/B-PER lives/O in/O Paris/B-LOC
Peter/B-PER Brown/I-PER went/O to/O London/B-LOC
Maria/B-PER saw/O a/O film/O in/O Berlin/B-LOC
the/O river/O runs/O through/O Rome/B-LOC
John/B-PER Smith/I-PER bought/O a/O house/O
they/O left/O Madrid/B-LOC with/O Helen/B-PER
the/O bank/O in/O Vienna/B-LOC lent/O money/O to/O Thomas/B-PER
it/O rained/O in/O Oslo/B-LOC yesterday/O
"""


def main() -> None:
    """Serve, look, and keep the pictures."""
    with TemporaryDirectory() as folder:
        _train(Path(folder))
        with _served(Path(folder)) as address, sync_playwright() as play:
            browser = play.chromium.launch(
                executable_path=shutil.which("chromium"), args=["--no-sandbox"]
            )
            _take_all(browser, address)
            browser.close()


def _train(folder: Path) -> None:
    """A tagger that has seen a few names."""
    examples = []
    for line in NAMES.strip().splitlines():
        words, tags = zip(*(pair.split("/") for pair in line.split()), strict=True)
        examples.append(TaggedExample(words, tags))
    config = task_settings("tag", None, ["run.epochs=30", "run.batch=2", "run.patience=0"])
    found = tasks.fit("tag", examples, examples, elmo="small-en", config=config, quiet=True)
    found.save(folder / "names")


@contextmanager
def _served(folder: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "elmokit", "serve", "--port", "0"]
    options = ["--model", "small-en", "--model", "small-zh", "--predictor", str(folder / "names")]
    with subprocess.Popen([*command, *options], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if json.loads(line)["event"] == "serving":
                yield json.loads(line)["address"]
                break
        process.terminate()
        process.stderr.read()


def _take_all(browser: Browser, address: str) -> None:
    wide = {"width": 1280, "height": 800}
    light = browser.new_context(locale="en-GB", color_scheme="light", viewport=wide).new_page()
    dark = browser.new_context(locale="en-GB", color_scheme="dark", viewport=wide).new_page()
    for page, view in (
        (light, "context"),
        (dark, "layers"),
        (light, "inspect"),
        (dark, "gap"),
        (light, "tasks"),
    ):
        page.goto(f"{address}/#/{view}")
        _keep(page, view)
    phone = browser.new_context(
        locale="zh-CN", color_scheme="light", viewport={"width": 420, "height": 700}
    ).new_page()
    phone.goto(f"{address}/#/context")
    phone.locator("#model").select_option("small-zh")
    phone.get_by_role("button", name="t-SNE").click()
    _keep(phone, "context-zh")


def _keep(page: Page, name: str) -> None:
    page.locator("figure svg").wait_for()
    page.wait_for_function("() => document.querySelector('main .status')?.textContent === ''")
    picture = Image.open(io.BytesIO(page.screenshot(full_page=True))).convert("RGB")
    # Few colours make small files, and letters stay sharp.
    picture.quantize(COLOURS, Image.Quantize.MAXCOVERAGE).save(
        HERE / f"page-{name}.png", optimize=True
    )


if __name__ == "__main__":
    main()
