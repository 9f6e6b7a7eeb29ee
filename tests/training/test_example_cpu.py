"""The CPU examples: what they measure, and that they train a working model."""

from __future__ import annotations

import importlib.util
import math
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from small_runs import structured_text

from elmokit.corpus.prepare import CorpusConfig, prepare_corpus
from elmokit.corpus.shards import TokenCorpus

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "pretrain_cpu.py"
SCRIPT = ROOT / "examples" / "pretrain_cpu.sh"
BESIDE = ROOT.parent / "shared" / "data" / "corpus-en"


def real_text() -> list[str]:
    """About five megabytes of real text: what ELMOKIT_TEXT names, or what lies beside the clone."""
    if named := os.environ.get("ELMOKIT_TEXT"):
        return [named]
    beside = [BESIDE / name for name in ("dev.txt.xz", "test.txt.xz")]
    if all(path.is_file() for path in beside):
        return [str(path) for path in beside]
    pytest.skip("no text: set ELMOKIT_TEXT to a text file of about 5 MB")


def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("pretrain_cpu", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_unigram_perplexity_counts_ends_and_unknown_words(tmp_path):
    text = tmp_path / "text.txt"
    lines = ["a a b .", "a c .", "b .", "a d ."]
    text.write_text("\n".join(lines), "utf-8")
    lines_alone = CorpusConfig(tokenizer="space", sentences="line", documents="line", heldout=0.3)
    prepare_corpus(text, tmp_path / "corpus", settings=lines_alone, workers=1)
    corpus = TokenCorpus(tmp_path / "corpus")
    train, heldout = corpus.split("train"), corpus.split("heldout")
    assert min(len(train), len(heldout)) > 0, "the hash should put sentences on both sides"
    vocabulary = corpus.words[:5]
    counts = dict.fromkeys(vocabulary, 0)

    def predicted(split) -> list[str]:
        words = []
        for number in range(len(split)):
            tokens = [corpus.words[i] for i in split.tokens_of(number)]
            words += [word if word in vocabulary else "<UNK>" for word in tokens] + ["</S>"]
        return words

    for word in predicted(train):
        counts[word] += 1
    total = sum(counts.values()) + len(vocabulary)
    logs = [math.log((counts[word] + 1) / total) for word in predicted(heldout)]
    expected = math.exp(-sum(logs) / len(logs))
    assert example().unigram_perplexity(corpus, 5) == pytest.approx(expected)


def commands_first() -> dict[str, str]:
    """The environment, with the command of this Python found first."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    return {**os.environ, "PATH": path}


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="a shell script")
def test_example_script_goes_from_text_to_substitutes(tmp_path):
    text = tmp_path / "text.txt"
    sentences = structured_text(800).splitlines()
    text.write_text("\n\n".join([*sentences, "the river flows through the city ."]), "utf-8")
    environment = {**commands_first(), "PRETRAIN": "--max-steps 40", "OMP_NUM_THREADS": "1"}
    for again in (False, True):
        done = subprocess.run(
            ["bash", str(SCRIPT), str(text), "demo"],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert ("resuming from step 40" in done.stderr) == again
        assert re.search(r"^ share +forward +backward +word$", done.stdout, flags=re.MULTILINE)
    assert (tmp_path / "demo" / "vectors.h5").is_file()


@pytest.mark.slow
def test_example_halves_the_perplexity_of_counting_words(tmp_path):
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), *real_text(), "-o", str(tmp_path / "model")],
        capture_output=True,
        text=True,
        timeout=3600,  # a guard against standing still; the machine may be busy
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = dict(re.findall(r"^(unigram|this) model +perplexity ([\d.]+)", done.stdout, re.M))
    assert float(found["this"]) < float(found["unigram"]) / 2
