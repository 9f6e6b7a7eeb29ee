"""A model in another process, in inference mode, under autocast, in threads that live longest."""

import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import elmokit
from elmokit import ElmoEmbedding
from elmokit.lm.perplexity import perplexity

STANDARD = Path(__file__).parents[1] / "golden" / "tf-checkpoint" / "standard"
FEW = [["the", "big", "dog"], ["sat"]]
MANY = [[f"word{i}", f"other{i}", "dog"] for i in range(9)]

IN_ANOTHER_PROCESS = """
import pickle, sys
import numpy as np
import elmokit

elmo = pickle.load(open(sys.argv[1], "rb"))
texts = [[[f"{text}a{i}", f"{text}b{i}"] for i in range(8)] for text in (2, 3, 4, 1, 0, 5)]
found = [elmo.encode(text) for text in texts]
for text, vectors in zip(texts, found, strict=True):
    want = elmokit.load("test-tiny").encode(text)
    for one, other in zip(vectors, want, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
"""

AFTER_THE_MAIN_THREAD = """
import threading
import torch
import elmokit

torch.set_num_threads(2)
elmo = elmokit.load("test-tiny")
sentences = [[f"w{i}", "x"] for i in range(9)]
elmo.encode(sentences)

def work():
    threading.main_thread().join()
    print(len(elmo.encode(sentences)))

threading.Thread(target=work).start()
"""


def test_used_model_goes_on_in_another_process(tmp_path):
    elmo = elmokit.load("test-tiny")
    for text in (0, 1):
        elmo.encode([[f"{text}a{i}", f"{text}b{i}"] for i in range(8)])
    (tmp_path / "elmo.pickle").write_bytes(pickle.dumps(elmo))
    command = [sys.executable, "-c", IN_ANOTHER_PROCESS, str(tmp_path / "elmo.pickle")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


def test_threads_may_outlive_the_main_thread():
    command = [sys.executable, "-c", AFTER_THE_MAIN_THREAD]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.split() == ["9"], done.stderr


@pytest.mark.parametrize("used", ["score", "perplexity", "substitutes", "generate", "layer"])
def test_inference_mode_leaves_nothing_behind(used):
    elmo = elmokit.load(STANDARD)
    with torch.inference_mode():
        match used:
            case "score":
                elmo.score(MANY)
            case "perplexity":
                perplexity(elmo, MANY, state="carry", rows=2)
            case "substitutes":
                elmo.substitutes(FEW[0], 1)
            case "generate":
                elmo.generate(FEW[0], 3, seed=0)
            case "layer":
                ElmoEmbedding(elmo).eval()(MANY)
    for sentences in (FEW, MANY, [["new", "words"], *MANY]):
        want = elmokit.load(STANDARD).encode(sentences)
        for one, expected in zip(elmo.encode(sentences), want, strict=True):
            np.testing.assert_allclose(one, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("sentences", [FEW[:1], FEW, MANY])
def test_autocast_does_not_change_what_a_model_says(sentences):
    elmo = elmokit.load(STANDARD)
    embedding = ElmoEmbedding(elmo).eval()
    want, scores = elmo.encode(sentences), elmo.score(sentences)
    vectors = embedding(sentences).vectors
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found, scores_then = elmo.encode(sentences), elmo.score(sentences)
        vectors_then = embedding(sentences).vectors
    for one, other in zip(found, want, strict=True):
        np.testing.assert_array_equal(one, other)
    for score, other in zip(scores_then, scores, strict=True):
        np.testing.assert_array_equal(score.forward, other.forward)
    torch.testing.assert_close(vectors_then.float(), vectors, rtol=2e-2, atol=2e-2)


def test_generating_leaves_the_words_that_may_be_said():
    elmo = elmokit.load(STANDARD)
    before = elmo.substitutes(FEW[0], 1, k=10_000)
    elmo.generate(FEW[0], 3, seed=0)
    assert elmo.substitutes(FEW[0], 1, k=10_000) == before
