"""The page without a server: what `elmokit site` writes, and the built files that it copies."""

from __future__ import annotations

import gzip
import hashlib
import json
import lzma
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import elmokit
from elmokit.checkpoints.export import softmax_graph
from elmokit.checkpoints.known_models import embedded_models
from elmokit.cli import app, main
from elmokit.errors import ConfigError, DataError
from elmokit.server import write_site
from elmokit.server.static_site import RUNTIME, STATIC_PAGE

onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "page"
MOST_BYTES = 400_000
OWN = ("index.html", "licences.txt", "sw.js", "site.json")


def listed(folder: Path) -> dict:
    return json.loads((folder / "site.json").read_text("utf-8"))


def content(folder: Path, entry: dict) -> bytes:
    packed = (folder / entry["path"]).read_bytes()
    assert len(packed) == entry["bytes"]
    assert hashlib.sha256(packed).hexdigest()[:12] in entry["path"]
    return gzip.decompress(packed)


def files_of(folder: Path) -> set[str]:
    return {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}


@pytest.fixture(scope="module")
def site(model, tiny, tmp_path_factory):
    folder = tmp_path_factory.mktemp("site") / "new"
    write_site({"standard": model, "a/b c": tiny}, folder, storage="float32")
    return folder


def test_site_holds_what_its_list_says(site, model, tiny):
    found = listed(site)
    assert files_of(site) == {*OWN, *found["files"]}
    assert found["version"] == elmokit.__version__
    assert content(site, found["runtime"]).startswith(b"\0asm")
    first, second = found["models"]
    assert (first["name"], second["name"]) == ("standard", "a/b c")
    assert (first["predicts_words"], second["predicts_words"]) == (True, False)
    assert second["softmax"] is None
    words = json.loads(content(site, first["vocabulary"]))
    assert words["words"] == model.vocabulary.words
    assert first["config"]["lstm"]["cells"] == model.config.lstm.cells
    assert {first["layers"], second["layers"]} == {model.layers, tiny.layers}


def test_site_holds_the_model_itself(site, model):
    facts = listed(site)["models"][0]
    session = onnxruntime.InferenceSession(content(site, facts["graph"]))
    tokens = ["the", "bank", "lent"]
    text, lstm = model.config.text, model.config.lstm
    words = model.checkpoint().inputs()([text.begin, *tokens, text.end])
    shape = (lstm.layers, len(lstm.directions), 1)
    feed = {
        "tokens": np.arange(5)[None],
        "lengths": np.array([5]),
        "cells": np.zeros((*shape, lstm.cells), np.float32),
        "hidden": np.zeros((*shape, lstm.width), np.float32),
        **{name: rows for name, rows in vars(words).items() if rows is not None},
    }
    (layers,) = session.run(["layers"], feed)
    want = model.encode([tokens], layers="all")[0]
    np.testing.assert_allclose(layers[:, 0, 1:-1], want, atol=1e-5)
    weights = model.checkpoint().weights
    graph = softmax_graph(weights["softmax.weight"], weights["softmax.bias"], int8=False)
    assert content(site, facts["softmax"]) == graph


def test_site_is_the_same_every_time_and_smaller_in_int8(site, tiny, tmp_path):
    for name in ("one", "two"):
        write_site({"tiny": tiny}, tmp_path / name)
    assert files_of(tmp_path / "one") == files_of(tmp_path / "two")
    small = listed(tmp_path / "one")["models"][0]["graph"]["bytes"]
    assert small < listed(site)["models"][1]["graph"]["bytes"]


def test_site_replaces_a_site_and_nothing_else(tiny, tmp_path):
    folder = tmp_path / "site"
    write_site({"old": tiny}, folder)
    (folder / "CNAME").write_text("example.org")
    write_site({"new": tiny}, folder)
    assert files_of(folder) == {*OWN, "CNAME", *listed(folder)["files"]}
    assert not [name for name in files_of(folder) if "old" in name]
    for contents in ({"notes.txt": "mine"}, {"site.json": "[]"}, {"site.json": '{"format": 1}'}):
        other = tmp_path / f"other{len(list(tmp_path.iterdir()))}"
        other.mkdir()
        for name, text in contents.items():
            (other / name).write_text(text)
        with pytest.raises(DataError, match="no site of elmokit"):
            write_site({"tiny": tiny}, other)
        assert files_of(other) == set(contents)


def test_site_refuses_tokenisers_that_a_browser_lacks(tiny, tmp_path):
    pytest.importorskip("spacy")
    checkpoint = tiny.checkpoint()
    with pytest.raises(ConfigError, match="'m' splits text with 'spacy:de'"):
        write_site({"m": elmokit.Elmo(checkpoint, tokenizer="spacy:de")}, tmp_path / "site")
    assert not (tmp_path / "site").exists()


def test_site_of_a_chinese_model_holds_jiebas_dictionary(tiny, tmp_path):
    jieba = pytest.importorskip("jieba")
    chinese = elmokit.Elmo(tiny.checkpoint(), tokenizer="jieba")
    write_site({"a": chinese, "b": chinese, "c": tiny}, tmp_path / "site")
    first, second, third = listed(tmp_path / "site")["models"]
    assert first["segmenter"] == second["segmenter"]
    assert third["segmenter"] is None
    held = json.loads(content(tmp_path / "site", first["segmenter"]))
    assert dict(zip(held["words"], held["counts"], strict=True))["银行"] == jieba.dt.FREQ["银行"]
    assert set(held["emit"]) == set("BMES")


def test_command_writes_a_site_or_one_line(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["site", "out", "--model", "my=test-tiny"]) == 0
    assert capsys.readouterr().out.startswith("my in out (")
    assert [facts["name"] for facts in listed(tmp_path / "out")["models"]] == ["my"]
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    assert main(["site", "mine", "--model", "test-tiny"]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "mine holds other files" in error


def test_built_page_is_small_and_names_no_other_site():
    built = [path for path in STATIC_PAGE.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in built) < MOST_BYTES
    for path in built:
        text = re.sub(r"http://www\.w3\.org/[\w/]+", "", path.read_text("utf-8"))
        # Addresses in messages, about threads and about a bundler: nothing fetches them.
        text = re.sub(r"See https://(web\.dev|rolldown\.rs)/[\w/#-]+", "", text)
        assert re.findall(r"https?://\w", text) == [], path.name
    policy = re.findall(r'content="(default-src[^"]*)"', (STATIC_PAGE / "index.html").read_text())
    rules = dict(rule.strip().split(" ", 1) for rule in policy[0].split(";"))
    assert rules["default-src"] == "'none'"
    allowed = {source for rule in rules.values() for source in rule.split()}
    assert allowed == {"'none'", "'self'", "data:", "blob:", "'wasm-unsafe-eval'"}


def test_built_page_is_that_of_the_service():
    """Both are built at once; tests/server/test_page_files.py compares one with the sources."""
    both = [
        re.findall(r'<meta name="sources" content="(\w+)"', (folder / "index.html").read_text())
        for folder in (STATIC_PAGE, STATIC_PAGE.with_name("page"))
    ]
    assert both[0] == both[1] != []


@pytest.mark.skipif(not SOURCES.is_dir(), reason="the sources are not here")
@pytest.mark.parametrize("tool", ["page_texts", "page_runtime"])
def test_files_for_the_page_are_current(tool):
    """If not: `python tools/NAME.py --write`."""
    if tool == "page_texts":
        pytest.importorskip("jieba")
    if tool == "page_runtime" and not (SOURCES / "node_modules" / "onnxruntime-web").is_dir():
        version = json.loads((SOURCES / "package.json").read_text())["dependencies"]
        wasm = lzma.decompress(RUNTIME.read_bytes())
        assert version["onnxruntime-web"].encode() in wasm
        return
    done = subprocess.run([sys.executable, ROOT / "tools" / f"{tool}.py"], check=False)
    assert done.returncode == 0


def test_document_shows_what_runs(tmp_path, monkeypatch):
    text = (ROOT / "docs" / "browser.md").read_text("utf-8")
    (call,) = re.findall(r"^\$ elmokit (.*)$", text, flags=re.M)
    command, bound, _ = app.parse_args(shlex.split(call), exit_on_error=False)
    assert (command.__name__, bound.args) == ("site", (Path("my-site"),))
    assert set(bound.kwargs["model"]) <= set(embedded_models())
    arguments = app["site"].assemble_argument_collection(default_parameter=app.default_parameter)
    options = {name for argument in arguments for name in argument.names if name[:2] == "--"}
    assert {name for name in options if f"`{name}`" not in text} == set()
    for line in re.findall(r"`make ([\w-]+)`", text):
        assert f"\n{line}: " in (ROOT / "Makefile").read_text("utf-8")
    fixtures = ROOT / "tests" / "golden" / "bilm-tf"
    for name, copy in (("weights", "elmo_weights.hdf5"), ("options", "elmo_options.json")):
        (source,) = fixtures.glob(f"*{name}*")
        shutil.copy(source, tmp_path / copy)
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"^```python\n(.*?)^```", text, flags=re.M | re.S)
    exec(compile(code, "browser.md", "exec"), {})
    written = Path("my-python-site")
    # Every file that the page names is there, and every file is named.
    (table,) = re.findall(r"^\| file \|.*?\n\n", text, flags=re.M | re.S)
    named = set(
        re.findall(r"`([^`]+)`", "".join(row.split("|")[1] for row in table.split("\n")[2:-2]))
    )
    assert named == {path.name for path in written.iterdir()}
