"""Every block of code in the README and on the pages runs, and prints what the page says.

Training ends after two steps: a page shows lines of a whole run, and only their form is compared.
Pages that a test of their own module runs are left out here.
"""

from __future__ import annotations

import doctest
import itertools
import re
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest
import sequence_models
from pages import DOCS, ROOT, Block, blocks, page_text, run_page

import elmokit

GOLDEN = ROOT / "tests" / "golden"
PAGES = (
    "README.md",
    "docs/index.md",
    "docs/how-it-works.md",
    "docs/migration.md",
    "docs/models.md",
    "docs/published-models.md",
    "docs/tables.md",
    "docs/onnx.md",
    "docs/proteins.md",
    "docs/pretraining.md",
    "docs/pytorch.md",
    "docs/recipes.md",
    "docs/reliability.md",
    "docs/surprisal.md",
    "docs/versions.md",
)
TESTED_ELSEWHERE = {
    "browser.md": "tests/server/test_static_site.py",
    "cli.md": "tests/cli/test_cli_main.py",
    "corpus.md": "tests/corpus/test_prepare.py",
    "faq.md": "tests/test_faq_page.py",
    "huggingface.md": "tests/integrations/test_hf_elmo.py",
    "keras.md": "tests/integrations/test_keras_elmo.py",
    "language-model.md": "tests/cli/test_cli_language_model.py",
    "low-resource.md": "tests/tasks/test_low_resource_page.py",
    "probes.md": "tests/probes/test_probes_page.py",
    "ray.md": "tests/ray/test_ray_encode.py",
    "server.md": "tests/server/test_server_page.py",
    "scikit-learn.md": "tests/integrations/test_sklearn_elmo.py",
    "spacy.md": "tests/integrations/test_spacy_elmo.py",
    "start.md": "tests/test_first_steps.py",
    "task-formats.md": "tests/tasks/test_task_formats_page.py",
    "tasks.md": "tests/tasks/test_tasks_page.py",
    "vector-files.md": "tests/encode/test_writers.py",
}
TRANSLATED = {
    "README.zh-CN.md": "README.md",
    **{f"docs/zh/{page.name}": f"docs/{page.name}" for page in (DOCS / "zh").glob("*.md")},
}
LINKED = sorted(str(path.relative_to(ROOT)) for path in (*ROOT.glob("*.md"), *DOCS.glob("**/*.md")))
TRAINING_VERBS = {"pretrain", "adapt"}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a file under each name that the pages use."""
    folder = tmp_path_factory.mktemp("files")
    standard, checkpoint = GOLDEN / "bilm-hdf5" / "standard", GOLDEN / "tf-checkpoint" / "standard"
    copies = {
        standard / "weights.hdf5": "elmo_weights.hdf5",
        standard / "options.json": "elmo_options.json",
        standard / "vocab.txt": "vocab-2016-09-10.txt",
        GOLDEN / "allennlp-finetuned" / "model.tar.gz": "model.tar.gz",
        GOLDEN / "allennlp-finetuned" / "elmo-two-mixes.th": "weights.th",
        GOLDEN / "many-langs" / "nlpl.zip": "136.zip",
    }
    for source, name in copies.items():
        shutil.copy(source, folder / name)
    shutil.copytree(GOLDEN / "tf-hub" / "google", folder / "tf-hub-elmo")
    shutil.copytree(GOLDEN / "many-langs" / "released", folder / "many-langs")
    shutil.copytree(GOLDEN / "bilm-hdf5" / "word", folder / "word-model")
    shutil.copytree(standard, folder / "seqvec")
    sequence_models.write_hdf5(folder / "catelmo", layers=4)
    cached = folder / "cache" / "allennlp-original"  # as if downloaded
    cached.mkdir(parents=True)
    for name in ("weights.hdf5", "options.json"):
        shutil.copy(standard / name, cached)
    (folder / "bilm").mkdir()
    for path in checkpoint.iterdir():
        name = path.name.replace("model.ckpt-12", "model.ckpt-935588")
        shutil.copy(path, folder / "bilm" / name)
    named = (checkpoint / "checkpoint").read_text("utf-8")
    named = named.replace("model.ckpt-12", "model.ckpt-935588")
    (folder / "bilm" / "checkpoint").write_text(named, "utf-8")
    elmo = elmokit.load(checkpoint)
    weights = elmo.checkpoint().weights
    with h5py.File(folder / "elmo_softmax_weights.hdf5", "w") as file:
        file["softmax/W"] = weights["softmax.weight"].numpy()
        file["softmax/b"] = weights["softmax.bias"].numpy()
    vectors = elmo.encode([[word] for word in elmo.vocabulary], layers=0)
    with h5py.File(folder / "elmo_token_embeddings.hdf5", "w") as file:
        file["embedding"] = np.concatenate(vectors)[:, : elmo.config.lstm.width]
    (folder / "glove.txt").write_text("the 1 0\nbank 0 1\nmoney 0.5 0.5\n", "utf-8")
    subjects, verbs = ("bank", "river", "dog", "city", "old man"), ("lent", "saw", "found", "left")
    objects = ("money", "a house", "the road", "it", "some bread")
    times = ("today", "again", "at night", "in the rain")
    choices = itertools.product(subjects, verbs, objects, times)
    documents = [f"the {subject} {verb} {thing} {when} ." for subject, verb, thing, when in choices]
    for name in ("corpus.txt", "tweets.txt", "heldout.txt"):
        (folder / name).write_text("\n\n".join(documents), "utf-8")
    return folder


@pytest.fixture
def folder(files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few_steps: None) -> Path:
    """The current folder of a page, with files of its own."""
    shutil.copytree(files, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ELMOKIT_CACHE", str(tmp_path / "cache"))
    return tmp_path


@pytest.mark.parametrize("page", PAGES)
def test_page_runs(page, folder, capsys):
    assert blocks(page)
    run_page(page, capsys.readouterr, by_form=TRAINING_VERBS)


def test_text_page_runs(folder):
    failures, tests = doctest.testfile(str(DOCS / "text.md"), module_relative=False)
    assert tests > 10
    assert failures == 0


def test_every_page_is_run_by_some_test():
    runnable = {
        path.name for path in DOCS.glob("*.md") if "```python" in path.read_text(encoding="utf-8")
    }
    here = {Path(page).name for page in PAGES} | {"text.md"}
    assert runnable <= here | set(TESTED_ELSEWHERE)
    for page, test in TESTED_ELSEWHERE.items():
        assert page in (ROOT / test).read_text("utf-8"), f"{test} does not run {page}"


@pytest.mark.parametrize(("page", "original"), TRANSLATED.items())
def test_translation_has_the_code_of_the_original(page, original):
    def code(name: str) -> list[Block]:
        return [block for block in blocks(name) if block.kind]

    assert code(page) == code(original)


@pytest.mark.parametrize("page", LINKED)
def test_links_and_pictures_are_there(page):
    text = re.sub(r"^```.*?^```$", "", page_text(page), flags=re.M | re.S)
    text = re.sub(r"`[^`\n]*`", "", text)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"\w+:", target):
            continue
        name, _, anchor = target.partition("#")
        path = (ROOT / page).parent / name if name else ROOT / page
        assert path.exists(), f"{page}: {target}"
        if anchor:
            assert anchor in anchors(path), f"{page}: {target}"


def anchors(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.*)$", page.read_text("utf-8"), flags=re.MULTILINE)
    plain = (re.sub(r"[^\w\s-]", "", title.lower()).strip() for title in titles)
    return {re.sub(r"\s+", "-", title) for title in plain}


def test_commands_in_the_readme_name_real_targets():
    makefile = (ROOT / "Makefile").read_text("utf-8")
    for page in ("README.md", "CONTRIBUTING.md", "docs/start.md"):
        text = page_text(page)
        targets = set(re.findall(r"(?:`|\$ )make ([a-z]+)", text))
        missing = {target for target in targets if f"\n{target}:" not in makefile}
        assert not missing, page
