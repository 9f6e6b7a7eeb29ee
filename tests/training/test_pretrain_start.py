"""How a run begins: what it refuses, and what it leaves behind when it cannot start."""

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from small_runs import LINES, SMALL, changed, make_corpus, structured_text

import elmokit
from elmokit.corpus.prepare import CorpusConfig, prepare_corpus
from elmokit.corpus.shards import TokenCorpus
from elmokit.errors import ConfigError, DataError
from elmokit.training.checkpoint import latest_snapshot
from elmokit.training.pretrain import pretrain
from elmokit.training.settings import DataConfig, PretrainConfig, RunConfig

pytestmark = pytest.mark.usefixtures("no_drawing")

GOLDEN = Path(__file__).parents[1] / "golden"
ONE_DOCUMENT = replace(LINES, documents="blank")
"""Of text without blank lines nothing can be held out, so that it is prepared a second time."""


@pytest.fixture
def config(tmp_path: Path) -> PretrainConfig:
    (tmp_path / "text.txt").write_text(structured_text(80), encoding="utf-8")
    return replace(SMALL, corpus=(str(tmp_path / "text.txt"),), output=str(tmp_path / "model"))


def adaptation(output: Path, **run: int) -> elmokit.AdaptConfig:
    return elmokit.AdaptConfig(
        output=str(output),
        softmax_steps=2,
        data=DataConfig(vocabulary=100, min_count=1, rows=4, unroll=5),
        run=RunConfig(**{"max_steps": 2, "evaluate_every": 2, "save_every": 2, **run}),
    )


def settings_file(folder: Path) -> Path:
    return folder / "training" / "settings.toml"


KILLED_BEFORE_THE_SECOND_PREPARATION = """
import os, signal, sys
from elmokit.config import loads_toml
from elmokit.corpus.prepare import CorpusConfig
from elmokit.training import pretrain as module
from elmokit.training.settings import PretrainConfig

prepare = module.prepare_corpus

def prepare_or_die(*arguments, settings, **options):
    if settings.documents == "line":
        os.kill(os.getpid(), signal.SIGKILL)
    return prepare(*arguments, settings=settings, workers=1, **options)

module.prepare_corpus = prepare_or_die
settings = CorpusConfig(tokenizer="space", sentences="line", heldout=0.1)
module.pretrain(loads_toml(PretrainConfig, sys.argv[1]), device="cpu", preparation=settings)
"""


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_a_run_killed_while_its_text_is_prepared_is_resumed(config, tmp_path):
    done = subprocess.run(
        [
            *(sys.executable, "-c", KILLED_BEFORE_THE_SECOND_PREPARATION),
            elmokit.config.dumps_toml(config),
        ],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        timeout=120,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    pretrain(config, device="cpu", preparation=ONE_DOCUMENT, resume=True)
    corpus = TokenCorpus(tmp_path / "model" / "training" / "corpus")
    assert corpus.settings["documents"] == "line"
    assert len(corpus.split("heldout"))
    assert not list((tmp_path / "model").rglob("*.part"))


def test_another_text_is_refused(config, tmp_path):
    pretrain(config, device="cpu", preparation=ONE_DOCUMENT)
    stored = settings_file(tmp_path / "model").read_text("utf-8")
    longer = changed(config, run={"max_steps": 24})
    (tmp_path / "other.txt").write_text(structured_text(80, seed=5), encoding="utf-8")
    for name in ("other.txt", "nowhere.txt"):
        other = replace(longer, corpus=(str(tmp_path / name),))
        with pytest.raises(ConfigError, match=rf"started with text\.txt, not with {name}"):
            pretrain(other, device="cpu", preparation=ONE_DOCUMENT, resume=True)
    changes: dict[str, object] = {
        "heldout": 0.4,
        "tokenizer": "chars",
        "sentences": "split",
        "max_tokens": 50,
    }
    for name, value in changes.items():
        preparation = replace(ONE_DOCUMENT, **{name: value})
        with pytest.raises(ConfigError, match=rf"{name} = .* not {value!r}"):
            pretrain(longer, device="cpu", preparation=preparation, resume=True)
    assert settings_file(tmp_path / "model").read_text("utf-8") == stored
    # The text is no longer needed, and may lie elsewhere.
    moved = replace(longer, corpus=(str(tmp_path / "elsewhere" / "text.txt"),))
    pretrain(moved, device="cpu", preparation=ONE_DOCUMENT, resume=True)
    assert latest_snapshot(tmp_path / "model" / "training").step == 24


def bad_starts(config: PretrainConfig) -> dict[str, PretrainConfig]:
    return {
        "nowhere": replace(config, corpus=("nowhere.txt",)),
        "cutoffs": changed(config, loss={"kind": "adaptive", "cutoffs": (5000,)}),
        "tied": changed(config, loss={"tied": True}),
    }


@pytest.mark.parametrize("existing", ["nothing", "an empty folder", "a folder named training"])
def test_a_run_that_cannot_start_leaves_the_folder_as_it_was(config, tmp_path, existing):
    model = tmp_path / "model"
    if existing != "nothing":
        model.mkdir()
    if existing == "a folder named training":
        (model / "training").mkdir()
        (model / "training" / "notes.txt").write_text("mine", encoding="utf-8")
    before = sorted(tmp_path.rglob("*"))
    for problem, bad in bad_starts(config).items():
        with pytest.raises((ConfigError, DataError), match=problem):
            pretrain(bad, device="cpu", preparation=LINES)
        assert sorted(tmp_path.rglob("*")) == before
    pretrain(config, device="cpu", preparation=LINES)


def test_an_adaptation_that_cannot_start_leaves_the_folder_as_it_was(config, tmp_path):
    settings = adaptation(tmp_path / "adapted")
    for existing in (False, True):
        if existing:
            (tmp_path / "adapted").mkdir()
        before = sorted(tmp_path.rglob("*"))
        with pytest.raises(DataError, match="nowhere"):
            elmokit.adapt(GOLDEN / "allennlp", "nowhere.txt", settings, device="cpu")
        assert sorted(tmp_path.rglob("*")) == before
    elmokit.adapt(
        GOLDEN / "allennlp", tmp_path / "text.txt", settings, device="cpu", preparation=LINES
    )


def test_a_run_that_cannot_be_resumed_is_not_changed(config, tmp_path):
    pretrain(config, device="cpu", preparation=LINES)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    (tmp_path / "model" / "training" / "corpus" / "words.txt").unlink()
    longer = changed(config, run={"max_steps": 24})
    with pytest.raises(DataError, match=r"words\.txt"):
        pretrain(longer, device="cpu", preparation=LINES, resume=True)
    after = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert after == {path: data for path, data in before.items() if path.name != "words.txt"}


def test_adapting_to_a_corpus_without_heldout_text_is_refused_at_once(config, tmp_path):
    settings = replace(LINES, heldout=0.0)
    prepare_corpus(config.corpus[0], tmp_path / "corpus", settings=settings, workers=1)
    with pytest.raises(DataError, match="no held-out text"):
        elmokit.adapt(GOLDEN / "allennlp", tmp_path / "corpus", adaptation(tmp_path / "adapted"))
    assert not (tmp_path / "adapted").exists()


def test_adapting_to_a_corpus_of_another_tokeniser_is_refused(tmp_path):
    corpus = make_corpus(tmp_path, 80)
    words = elmokit.load(GOLDEN / "allennlp", tokenizer="words")
    with pytest.raises(ConfigError, match=r"split by 'space', and .* by 'words'; .*--tokenizer"):
        elmokit.adapt(words, corpus.folder, adaptation(tmp_path / "adapted"), device="cpu")
    assert not (tmp_path / "adapted").exists()


@pytest.mark.parametrize(
    ("device", "said"),
    [
        ("nonsense", "no such device; use cpu, cuda, cuda:1 or mps"),
        ("cpu:x", "no such device"),
        ("cuda:99", "cannot be used here"),
    ],
)
def test_a_device_that_is_not_there_is_named(config, tmp_path, device, said):
    with pytest.raises(ConfigError, match=f"device='{device}': {said}"):
        pretrain(config, device=device, preparation=LINES)
    with pytest.raises(ConfigError, match=f"device='{device}': {said}"):
        elmokit.adapt(
            GOLDEN / "allennlp", config.corpus[0], adaptation(tmp_path / "a"), device=device
        )
    assert [path.name for path in tmp_path.iterdir()] == ["text.txt"]


def test_a_run_needs_heldout_text(config, tmp_path):
    with pytest.raises(ConfigError, match=r"heldout = 0: .* needs held-out text"):
        pretrain(config, device="cpu", preparation=CorpusConfig(heldout=0.0))
    assert not (tmp_path / "model").exists()


def test_standard_input_is_refused(config, tmp_path):
    with pytest.raises(ConfigError, match="standard input; write it to a file"):
        pretrain(replace(config, corpus=("-",)), device="cpu")
    assert not (tmp_path / "model").exists()
