"""Texts for texts: beams against all texts, copying, spaces, ELMo forwards, and that it learns."""

from __future__ import annotations

import itertools
import math
import random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small_tasks import DATA, settings

import elmokit
from elmokit.cli import main
from elmokit.errors import ConfigError, DataError
from elmokit.tasks import SequencePair, read_examples
from elmokit.tasks.seq2seq.files import Joiner, learn_joins
from elmokit.tasks.seq2seq.network import END, UNKNOWN, Step, beam_search
from elmokit.text.tokens import get_tokenizer

pytestmark = pytest.mark.usefixtures("no_pictures")

NO_DROPOUT = ("inputs.dropout=0", "inputs.word_dropout=0", "encoder.dropout=0", "head.dropout=0")
SMALL = ("head.words=16", "head.cells=48", "head.min_count=1", "run.patience=0", *NO_DROPOUT)


def pair(source: str, target: str) -> SequencePair:
    return SequencePair(tuple(source.split()), tuple(target.split()), source, (target,))


def backwards(count: int, seed: int = 0) -> list[SequencePair]:
    """A language in which words are written in capitals and from the last to the first."""
    draw = random.Random(seed)
    texts = [[draw.choice("abcdef") for _ in range(draw.randint(1, 5))] for _ in range(count)]
    return [pair(" ".join(words), " ".join(reversed(words)).upper()) for words in texts]


def names(count: int, seed: int = 0) -> list[SequencePair]:
    """A summary is a name that no other text has."""
    draw = random.Random(seed)
    found = []
    for _ in range(count):
        name = "".join(draw.choice("aeioukst") for _ in range(6)).capitalize()
        before = [draw.choice(["the", "a", "old", "wise"]) for _ in range(draw.randint(0, 3))]
        found.append(pair(" ".join([*before, "king", name, "came", "home"]), f"{name} came"))
    return found


def fit(train, dev, *overrides: str, **options):
    options = {"elmo": None, "quiet": True, **options}
    config = settings("seq2seq", *SMALL, *overrides)
    return elmokit.tasks.fit("seq2seq", train, dev, config=config, **options)


# Beam search.


class Chain:
    """Log-probabilities of the next word that depend on the last two, at random."""

    def __init__(self, words: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        table = 2 * torch.randn(3, words, words, words, generator=generator)
        self.table = table.log_softmax(dim=3)  # three rows, each with a language of its own
        self.words = words

    def step(self, words: torch.Tensor, before: torch.Tensor) -> Step[torch.Tensor]:
        rows = torch.arange(len(words))[:, None].expand_as(words)
        return Step(self.table[rows, before, words].clone(), words)

    def score(self, row: int, text: tuple[int, ...], power: float) -> float:
        path = (END, END, *text, END)
        total = sum(
            float(self.table[row, path[i], path[i + 1], path[i + 2]]) for i in range(len(path) - 2)
        )
        return total / (len(text) + 1) ** power


def choose(before: torch.Tensor, beginnings: torch.Tensor) -> torch.Tensor:
    return before.gather(1, beginnings)


def search(chain: Chain, beam: int, longest: int, power: float = 0.0, no_repeat: int = 0):
    found = beam_search(
        chain.step,
        choose,
        torch.full((3, beam), END),
        (3, beam),
        torch.device("cpu"),
        longest=longest,
        length_power=power,
        no_repeat=no_repeat,
    )
    texts = [tuple(row[:n]) for row, n in zip(found.numbers.tolist(), found.lengths, strict=True)]
    return texts, found.scores.tolist()


@pytest.mark.parametrize("power", [0.0, 0.8, 2.0])
@pytest.mark.parametrize("seed", range(5))
def test_wide_beam_equals_exhaustive_search(seed, power):
    chain = Chain(4, seed)
    allowed = [word for word in range(4) if word != END]
    every = [t for n in range(1, 5) for t in itertools.product(allowed, repeat=n)]
    texts, scores = search(chain, beam=3**4, longest=4, power=power)
    for row in range(3):
        best = max(every, key=lambda text: chain.score(row, text, power))
        assert texts[row] == best
        assert math.isclose(scores[row], chain.score(row, best, power), abs_tol=1e-5)


@pytest.mark.parametrize("seed", range(3))
def test_narrow_beam_gives_the_score_of_its_text(seed):
    chain = Chain(6, seed)
    wide = search(chain, beam=200, longest=5, power=0.5)[1]
    for beam in (1, 2, 5):
        texts, scores = search(chain, beam=beam, longest=5, power=0.5)
        for row, text in enumerate(texts):
            assert 1 <= len(text) <= 5
            assert math.isclose(scores[row], chain.score(row, text, 0.5), abs_tol=1e-5)
            assert scores[row] <= wide[row] + 1e-6


def test_no_run_is_written_twice():
    chain = Chain(4, seed=3)
    chain.table[:, :, :, END] = -20.0  # texts want to be long
    for size in (1, 2, 3):
        texts, scores = search(chain, beam=8, longest=12, power=1.0, no_repeat=size)
        for text, score in zip(texts, scores, strict=True):
            runs = [text[i : i + size] for i in range(len(text) - size + 1)]
            assert len(runs) == len(set(runs))
            assert score > -torch.inf
    free = search(chain, beam=8, longest=12, power=1.0)[0]
    assert any(len(text) > len(set(text)) for text in free)


# Copying.


@pytest.fixture(scope="module")
def copier():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("elmokit.tasks.report.draw", lambda *_: False)
        head = ("head.copy=true", "head.min_count=2", "head.score=rougeL", "run.epochs=10")
        return fit(names(80), names(20, seed=1), *head)


def test_copying_writes_words_that_training_never_saw(copier):
    new = names(30, seed=2)
    known = {word for e in names(80) for word in e.source}
    assert not known & {e.target[0] for e in new}
    assert copier.evaluate(new)["accuracy"] > 0.9
    assert copier.predict("the king Zqxvw came home") == "Zqxvw came"


def test_copying_takes_empty_tokens(copier):
    assert all(isinstance(text, str) for text in copier.predict([["", "", ""], ["", "a"]]))


def test_copying_is_a_distribution(copier):
    head = copier.model.head.eval()
    pairs = names(5, seed=7)
    with torch.no_grad():
        source, extra = head._read(copier.model.batch(pairs))
        looked, _ = head.decoder(torch.full((5, 1), END), head.decoder.start(source), source)
        everything = head.decoder.log_probabilities(looked, source)  # (B, 1, size)
        assert source.size > len(head._words)
        assert all(extra)
        torch.testing.assert_close(everything.exp().sum(dim=2), torch.ones(5, 1))
        for word in range(source.size):  # what training asks for is what the search sees
            one = head.decoder.log_probability(looked, source, torch.full((5, 1), word))
            found, expected = one.exp(), everything[:, :, word].exp()
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)


def test_unknown_words_are_never_written():
    train = [*backwards(60), *names(10)]
    predictor = fit(train, train[:5], "head.min_count=5", "run.epochs=2")
    head = predictor.model.head.eval()
    batch = predictor.model.batch(names(8))
    with torch.no_grad():
        source, extra = head._read(batch)
        found = head._search(source, extra, None)
    rows = zip(found.numbers.tolist(), found.lengths.tolist(), strict=True)
    assert all({UNKNOWN, END}.isdisjoint(row[:length]) for row, length in rows)
    written = {word for e in predictor.annotate(names(8)) for word in e.target}
    assert written <= set(predictor.facts.learned["words"])


# It learns.


def test_seq2seq_learns_a_language_exactly():
    train = backwards(120)
    predictor = fit(train, train, "run.epochs=16", "head.layers=2")
    assert predictor.evaluate(train)["accuracy"] == 1.0
    assert predictor.evaluate(backwards(40, seed=1))["accuracy"] > 0.6
    assert predictor.predict(["a b c", ["f", "e"]]) == ["C B A", "E F"]


@pytest.mark.parametrize("copy", ["true", "false"])
def test_seq2seq_with_elmo_on_both_sides(copy):
    train = backwards(60)
    places = 'inputs.elmo_at=["input", "target"]'
    predictor = fit(train, train, "run.epochs=12", places, f"head.copy={copy}", elmo="test-tiny")
    assert predictor.evaluate(train)["accuracy"] > 0.6
    mixes = predictor.model.embedder.learned_mixes()
    assert set(mixes) == {"input", "target"}
    assert mixes["target"]["gamma"] != 1.0


def test_target_elmo_reads_forwards_only():
    train = backwards(20)
    places = 'inputs.elmo_at=["input", "target"]'
    predictor = fit(train, train, "run.epochs=1", places, elmo="test-tiny")
    predictor.model.eval()
    written = predictor.model.embedder.written
    texts = [("the", "king", "came"), ("a", "wise", "old", "man")]
    with torch.no_grad():
        whole = written.whole(texts)  # (B, S, P)
        begun = written.whole([text[:2] for text in texts])
        torch.testing.assert_close(begun, whole[:, :2])  # nothing of what follows is in it
        memory = written.start(2)
        for place in range(3):  # word by word, as a text is written
            vectors, memory = written.step([text[place] for text in texts], memory)
            torch.testing.assert_close(vectors, whole[:, place], rtol=1e-4, atol=1e-5)
            turned = written.choose(memory, torch.tensor([1, 0]))
            other, _ = written.step(["and", "and"], turned)
            again, _ = written.step(["and", "and"], memory)
            torch.testing.assert_close(other.flip(0), again)


def test_seq2seq_answers_alike_alone_and_in_a_batch(copier, monkeypatch):
    new = [*names(6, seed=3), pair("king", "x")]
    together = copier.predict(new)
    assert together == [copier.predict([one])[0] for one in new]
    monkeypatch.setattr("elmokit.tasks.seq2seq.network._BEGINNINGS", 1)
    assert copier.predict(new) == together


@pytest.mark.parametrize(
    ("name", "overrides"),
    [
        ("tatoeba/{}.tsv", ("head.target_tokenizer=chars", "run.epochs=4")),
        ("scitldr/{}.jsonl", ("head.copy=true", "head.score=rougeL", "run.epochs=6")),
    ],
    ids=["translations", "summaries"],
)
def test_seq2seq_learns_from_files(name, overrides):
    split = {"target_tokenizer": "chars"} if "tatoeba" in name else {}
    train = list(read_examples("seq2seq", DATA / name.format("train"), **split))
    dev = list(read_examples("seq2seq", DATA / name.format("dev"), **split))
    untrained = fit(train[:8], dev[:1], *overrides, "run.epochs=1", "optimizer.lr=1e-9")
    trained = fit(train, dev[:20], *overrides)
    before, after = untrained.evaluate(dev), trained.evaluate(dev)
    assert after["rougeL"] > before["rougeL"] + 0.03
    assert after["rouge1"] > 1.5 * before["rouge1"]


def test_seq2seq_writes_and_reads_chinese():
    rows = list(read_examples("seq2seq", DATA / "tatoeba/train.tsv", target_tokenizer="chars"))[:12]
    long = ("run.epochs=40", "run.batch=4")
    there = fit(rows, rows, "head.target_tokenizer=chars", "head.cells=64", *long)
    assert there.evaluate(rows)["accuracy"] > 0.8
    assert " " not in there.predict(rows[0].source_text)
    turned = [
        SequencePair(tuple(e.references[0]), e.source, e.references[0], (e.source_text,))
        for e in rows
    ]
    overrides = ("inputs.tokenizer=chars", "head.target_tokenizer=words", *long)
    back = fit(turned, turned, *overrides, "head.cells=64", elmo="test-tiny")
    assert back.evaluate(turned)["accuracy"] > 0.8
    assert back.predict(rows[0].references[0]) == rows[0].source_text


# Spaces.


@pytest.mark.parametrize(
    ("tokenizer", "text"),
    [
        ("words", "I don't know (yet), but she's here. It costs $5."),
        ("chars", "你怎么敢那么说。"),
        ("words", "Tom isn't at home, and Anna won't come."),
    ],
)
def test_spaces_come_back(tokenizer, text):
    split = get_tokenizer(tokenizer)
    others = [
        "She doesn't see it. He isn't here (now), it's $3.",
        "They don't. It's $9 (or so), and he's gone. He won't, I won't.",
        "我们在这里下车吧，好。",
    ]
    texts = [(tuple(split.tokenize(other)), other) for other in others]
    join = Joiner(learn_joins(texts))
    assert join(tuple(split.tokenize(text))) == text


@given(st.lists(st.text(st.characters(exclude_categories=["Cs", "Z", "C"]), min_size=1)))
def test_joining_keeps_the_tokens(tokens):
    for joins in (learn_joins([]), learn_joins([(tuple(tokens), " ".join(tokens))])):
        joined = Joiner(joins)(tuple(tokens))
        assert "".join(joined.split()) == "".join("".join(tokens).split())


def test_joining_leaves_empty_tokens_out():
    texts = [(("a", "", "b", "."), "a b.")]
    join = Joiner(learn_joins(texts))
    assert join(("", "a", "", "b", ".", "")) == "a b."
    assert join(("", "")) == ""


def test_foreign_tokens_teach_no_spaces():
    assert learn_joins([(("a", "b"), "something else")]) == {"pairs": {}, "clitics": []}


# Around it.


def test_seq2seq_comes_back(copier, tmp_path, capsys):
    copier.save(tmp_path / "writer")
    again = elmokit.tasks.load(tmp_path / "writer")
    new = names(10, seed=5)
    assert again.predict(new) == copier.predict(new)
    path = tmp_path / "new.txt"
    path.write_text("the king Oooo came home\n", "utf-8")
    assert [e.references for e in again.annotate(again.stream(path))] == [("Oooo came",)]
    assert isinstance(again.predict(""), str)
    assert main(["predict", str(tmp_path / "writer"), str(path), "--write", "text"]) == 0
    assert capsys.readouterr().out == "Oooo came\n"


def test_seq2seq_names_what_is_wrong():
    train = backwards(4)
    with pytest.raises(DataError, match="example 1 has no label"):
        fit([SequencePair(("a",), None, "a")], train)
    with pytest.raises(DataError, match=r"occurs 9 times.*head\.min_count"):
        fit([pair("a b", "c d")], train, "head.min_count=9")
    with pytest.raises(ConfigError, match="copy = false"):
        settings("seq2seq", "head.copy=true", "head.label_smoothing=0.1")
    with pytest.raises(ConfigError, match=r"head\.score = 'f1'"):
        settings("seq2seq", "head.score=f1")
    with pytest.raises(ConfigError, match=r"layer_norm.*target"):
        settings("seq2seq", "inputs.layer_norm=true", 'inputs.elmo_at=["target"]')


@pytest.mark.parametrize("copy", ["true", "false"])
def test_seq2seq_learns_in_mixed_precision(copy):
    train = backwards(24)
    places = 'inputs.elmo_at=["input", "output", "target"]'
    head = (f"head.copy={copy}", "head.layers=2", "run.precision=bfloat16", places)
    predictor = fit(train, train, "run.epochs=2", *head, elmo="test-tiny")
    assert len(predictor.predict(train)) == 24


def test_label_smoothing_trains():
    train = backwards(40)
    predictor = fit(train, train, "head.label_smoothing=0.1", "run.epochs=8")
    assert predictor.evaluate(train)["rouge1"] > 0.5
