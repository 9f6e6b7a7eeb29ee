"""A model in many threads, in other processes, and in the modes that torch has."""

import asyncio
import copy
import multiprocessing
import os
import pickle
import random
import signal
import subprocess
import sys
import threading
import time
import traceback
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch

import elmokit
from elmokit import ElmoEmbedding
from elmokit.engines import cpu_probe
from elmokit.lm.perplexity import perplexity

STANDARD = Path(__file__).parents[1] / "golden" / "tf-checkpoint" / "standard"
FEW = [["the", "big", "dog"], ["sat"]]
MANY = [[f"word{i}", f"other{i}", "dog"] for i in range(9)]
PLENTY = [[f"w{i}", "the", "cat", f"sat{i}"] * 4 for i in range(40)]
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
forks = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


def assert_same(found, want):
    for one, other in zip(found, want, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-6)


def in_child(task):
    """Run a task in a forked child, which has half a minute for it."""
    child = os.fork()
    if child == 0:
        signal.alarm(30)
        try:
            task()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    assert status == 0, "it hung" if status == signal.SIGALRM else "see the traceback above"


@contextmanager
def inside_the_encoder(elmo, sentences):
    """Another thread encodes, and is held in the middle of the character CNN for this block."""
    there, go_on, parent = threading.Event(), threading.Event(), os.getpid()

    def hold(*_):
        if os.getpid() == parent and threading.get_ident() == worker.ident:
            there.set()
            go_on.wait(60)

    hook = elmo.bilm.encoder.register_forward_hook(hold)
    found = []
    worker = threading.Thread(target=lambda: found.extend(elmo.encode(sentences)))
    worker.start()
    try:
        assert there.wait(60)
        yield found
    finally:
        go_on.set()
        worker.join(60)
        hook.remove()


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


# Threads


def test_sixteen_threads_share_a_model(threads):
    threads(2)
    texts = [
        [[f"{n}a{i}", "the", f"{n % 3}b{i}"] for i in range(1 + 3 * (n % 4))] for n in range(48)
    ]
    exact = elmokit.load("test-tiny", cache_words=0)
    want = [exact.encode(text) for text in texts]
    elmo = elmokit.load("test-tiny", cache_words=20)
    with ThreadPoolExecutor(16) as pool:
        for found, expected in zip(pool.map(elmo.encode, texts), want, strict=True):
            assert_same(found, expected)
    assert torch.get_num_threads() == 2


def test_tasks_of_an_event_loop_share_a_model(tiny):
    texts = [[[f"{n}a{i}", "the"] for i in range(1 + n)] for n in range(12)]

    async def encode_all():
        return await asyncio.gather(*(asyncio.to_thread(tiny.encode, text) for text in texts))

    other = elmokit.load("test-tiny")
    for found, text in zip(asyncio.run(encode_all()), texts, strict=True):
        assert_same(found, other.encode(text))


def count_in_a_new_thread():
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(torch.get_num_threads).result()


def test_thread_born_while_another_encodes_has_all_cores(threads):
    threads(4)
    elmo = elmokit.load("test-tiny")
    with inside_the_encoder(elmo, [[f"a{i}", f"b{i}"] for i in range(150)]):
        assert count_in_a_new_thread() == 4
    assert count_in_a_new_thread() == 4


def test_number_of_threads_set_from_outside_stays(threads):
    want = elmokit.load("test-tiny").encode(MANY)
    elmo = elmokit.load("test-tiny")
    for count in (1, 3, 2):
        threads(count)
        assert_same(elmo.encode(MANY), want)
        assert torch.get_num_threads() == count_in_a_new_thread() == count
    with inside_the_encoder(elmo, [*MANY, ["new"]]) as found:
        torch.set_num_threads(5)
    assert_same(found[:9], want)
    assert torch.get_num_threads() == count_in_a_new_thread() == 5


# Processes


@needs_fork
@forks
def test_used_model_works_in_a_forked_child(threads):
    threads(2)
    elmo = elmokit.load("small-en")
    want, alone = elmo.encode(PLENTY), elmo.encode(PLENTY[:1])

    def task():
        assert_same(elmo.encode(PLENTY), want)
        assert_same(elmo.encode(PLENTY[:1]), alone)
        with ThreadPoolExecutor(1) as pool:
            assert_same(pool.submit(elmo.encode, PLENTY).result(), want)
            assert pool.submit(torch.get_num_threads).result() == 2

    in_child(task)
    assert torch.get_num_threads() == 2


AFTER_LOADING = """
import os, signal
import torch
import elmokit

torch.set_num_threads(2)
elmo = elmokit.load()
child = os.fork()
if child == 0:
    signal.alarm(60)
    elmo.encode([["the", "cat", f"w{i}"] * 9 for i in range(40)])
    os._exit(0)
print(os.waitpid(child, 0)[1])
"""


@needs_fork
def test_loaded_model_works_in_a_forked_child():
    command = [sys.executable, "-W", "ignore", "-c", AFTER_LOADING]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.split() == ["0"], done.stderr


@needs_fork
@forks
def test_fork_while_another_thread_encodes_new_words(threads):
    threads(2)
    elmo = elmokit.load("test-tiny")
    elmo.encode(FEW)
    want = elmokit.load("test-tiny").encode(MANY)
    with inside_the_encoder(elmo, MANY) as found:
        in_child(lambda: assert_same(elmo.encode(MANY), want))
    assert_same(found, want)


@needs_fork
@forks
def test_forked_child_keeps_the_words_it_knows(monkeypatch):
    elmo = elmokit.load("test-tiny")
    want = elmo.encode(MANY)

    def task():
        elmo.bilm.encoder.forward = None  # nothing is left to encode
        assert_same(elmo.encode(MANY), want)

    in_child(task)


def encode_in_a_worker(elmo, text):
    return elmo.encode(text)


@pytest.mark.slow
@forks
@pytest.mark.parametrize("start", ["fork", "spawn", "forkserver"])
def test_pool_of_processes_shares_a_used_model(threads, start):
    if start not in multiprocessing.get_all_start_methods():
        pytest.skip("not here")
    threads(2)
    elmo = elmokit.load("test-tiny")
    texts = [[[f"{n}a{i}", "the"] for i in range(1 + n)] for n in range(12)]
    want = [elmo.encode(text) for text in texts]
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context(start)) as pool:
        for found, expected in zip(
            pool.map(encode_in_a_worker, [elmo] * 12, texts, timeout=120), want, strict=True
        ):
            assert_same(found, expected)


@pytest.mark.slow
@needs_fork
@forks
def test_many_forks_while_threads_encode(threads):
    threads(2)
    elmo = elmokit.load("test-tiny", cache_words=200)
    want = elmokit.load("test-tiny").encode(MANY)
    draw, stop = random.Random(0), threading.Event()

    def work():
        while not stop.is_set():
            numbers = [draw.randrange(10**6) for _ in range(30)]
            elmo.encode([[f"w{n}", "the", f"v{n}"] for n in numbers[: draw.randrange(1, 30)]])

    workers = [threading.Thread(target=work) for _ in range(3)]
    for worker in workers:
        worker.start()
    try:
        for _ in range(200):
            time.sleep(draw.random() * 0.03)
            in_child(lambda: assert_same(elmo.encode(MANY), want))
    finally:
        stop.set()
        for worker in workers:
            worker.join()


# Copies and modes


@pytest.mark.parametrize(
    "copied", [copy.deepcopy, copy.copy, lambda x: pickle.loads(pickle.dumps(x))]
)
def test_copy_of_a_used_model_gives_the_same_vectors(copied):
    elmo = elmokit.load(STANDARD)
    want, scores = elmo.encode(MANY), elmo.score(FEW)
    other = copied(elmo)
    assert_same(other.encode(MANY), want)
    assert_same([score.forward for score in other.score(FEW)], [s.forward for s in scores])
    assert_same(elmo.encode(MANY), want)


@contextmanager
def default_device(name):
    torch.set_default_device(name)
    try:
        yield
    finally:
        torch.set_default_device(None)


@contextmanager
def default_dtype(dtype):
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


MODES = {
    "device": lambda: torch.device("meta"),
    "default_device": lambda: default_device("meta"),
    "float64": lambda: default_dtype(torch.float64),
    "float16": lambda: default_dtype(torch.float16),
    "grad": torch.enable_grad,
    "inference": torch.inference_mode,
    "anomalies": torch.autograd.set_detect_anomaly,
}


@pytest.mark.filterwarnings("ignore:Anomaly Detection:UserWarning")
@pytest.mark.parametrize("precision", ["float32", "int8"])
@pytest.mark.parametrize("mode", MODES)
def test_modes_of_torch_do_not_change_what_a_model_says(mode, precision):
    if precision not in cpu_probe.probe().precisions:
        pytest.skip("not run by this CPU")
    enter = MODES[mode] if mode != "anomalies" else lambda: MODES[mode](True)
    loaded = elmokit.load(STANDARD, precision=precision)
    embedding = ElmoEmbedding(loaded).eval()
    want, few = loaded.encode(MANY, layers="all"), loaded.encode(FEW)
    score, vectors = loaded.score(MANY)[0], embedding(MANY).vectors.detach()
    substitutes, said = loaded.substitutes(FEW[0], 1), loaded.generate(FEW[0], 3, seed=0)
    with enter():
        elmo = elmokit.load(STANDARD, precision=precision)
        assert_same(elmo.encode(MANY, layers="all"), want)
        assert_same(elmo.encode(FEW), few)
        assert_same([elmo.score(MANY)[0].forward], [score.forward])
        assert_same([embedding(MANY).vectors.detach()], [vectors])
        assert elmo.substitutes(FEW[0], 1) == substitutes
        assert elmo.generate(FEW[0], 3, seed=0) == said
    for model in (elmo, loaded):
        assert_same(model.encode(MANY, layers="all"), want)


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("fine_tune", [False, True])
def test_compiled_module_gives_the_same_vectors_and_gradients(fine_tune):
    class Tagger(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.elmo = ElmoEmbedding(elmokit.load(STANDARD), dropout=0.0, fine_tune=fine_tune)
            self.linear = torch.nn.Linear(self.elmo.dim, 3)

        def forward(self, sentences):
            return torch.relu(self.linear(self.elmo(sentences).vectors))

    tagger = Tagger()
    compiled = torch.compile(tagger, backend="eager")
    for sentences in (MANY, FEW, [["new", "words"], ["here"]]):
        gradients = []
        for module in (tagger, compiled):
            tagger.zero_grad(set_to_none=True)
            scores = module(sentences)
            scores.sum().backward()
            gradients.append([scores.detach(), *(p.grad for p in tagger.parameters())])
        for one, other in zip(*gradients, strict=True):
            if one is not None:
                torch.testing.assert_close(one, other, rtol=0, atol=1e-6)
    alone = torch.compile(tagger.elmo, backend="eager")
    torch.testing.assert_close(alone(MANY).vectors, tagger.elmo(MANY).vectors, rtol=0, atol=1e-6)


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
def test_compiled_bilm_gives_the_same_vectors():
    elmo = elmokit.load(STANDARD)
    want = elmo.encode(MANY)
    elmo.bilm.compile(backend="eager")
    assert_same(elmo.encode(MANY), want)
