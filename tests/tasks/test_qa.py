"""Questions: best spans against brute force, long texts, "no answer", and that it learns."""

from __future__ import annotations

import itertools
import json
import random
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small_tasks import DATA, settings

import elmokit
from elmokit.cli import main
from elmokit.errors import ConfigError, DataError
from elmokit.tasks import Answer, QuestionExample, get_task, read_examples, score_examples
from elmokit.tasks.inputs.token_inputs import Side
from elmokit.tasks.qa.network import (
    all_spans,
    all_windows,
    best_spans,
    cut,
    joint_loss,
    training_windows,
)
from elmokit.tasks.records import Span
from elmokit.text.tokens import get_tokenizer

pytestmark = pytest.mark.usefixtures("no_pictures")

PEOPLE = ["Anna", "Bob", "Carla", "Dan", "Eve", "Finn"]
PLACES = ["Paris", "Rome", "New York", "Berlin", "San Jose"]


def ask(context: str, question: str, answer: str | None, tokenizer: str = "words"):
    split = get_tokenizer(tokenizer)
    spans = tuple(split.spans(context))
    tokens = tuple(context[a:b] for a, b in spans)
    answers = (Answer(answer, context.index(answer)),) if answer else ()
    return QuestionExample(
        "", context, question, tokens, spans, tuple(split.tokenize(question)), answers
    )


def questions(count: int, seed: int = 0, *, facts: int = 3, silent: float = 0.0, pad: int = 0):
    """Who lives where; a share of the questions is about somebody of whom nothing is said."""
    draw = random.Random(seed)
    found = []
    for _ in range(count):
        people = draw.sample(PEOPLE, facts + 1)
        homes = [draw.choice(PLACES) for _ in people]
        said = [f"{a} lives in {b} ." for a, b in zip(people[1:], homes[1:], strict=True)]
        said += ["Nothing else is known about the town ."] * pad
        draw.shuffle(said)
        number = 0 if draw.random() < silent else draw.randint(1, facts)
        context = " ".join(said)
        start = context.find(f"{people[number]} lives in ")
        example = ask(context, f"Where does {people[number]} live ?", None)
        if number:
            home = homes[number]
            where = context.index(home, start)
            example = replace(example, answers=(Answer(home, where),))
        found.append(example)
    return found


def fit(train, dev, *overrides: str, **options):
    config = settings("qa", "inputs.dropout=0.1", "encoder.dropout=0.1", *overrides)
    options = {"elmo": None, "quiet": True, **options}
    return elmokit.tasks.fit("qa", train, dev, config=config, **options)


# Spans.


@given(st.integers(1, 4), st.integers(1, 9), st.integers(1, 10), st.randoms(use_true_random=False))
def test_best_span_equals_brute_force(rows, size, longest, draw):
    start, end = (
        torch.tensor([[draw.uniform(-3, 3) for _ in range(size)] for _ in range(rows)])
        for _ in range(2)
    )
    lengths = [draw.randint(1, size) for _ in range(rows)]
    mask = torch.arange(size)[None, :] < torch.tensor(lengths)[:, None]
    scores, firsts, ends = best_spans(start, end, mask, longest)
    for row, length in enumerate(lengths):
        every = {
            (i, j + 1): float(start[row, i] + end[row, j])
            for i, j in itertools.product(range(length), repeat=2)
            if i <= j < i + longest
        }
        found = (int(firsts[row]), int(ends[row]))
        assert every[found] == max(every.values()) == float(scores[row])


@pytest.mark.parametrize("longest", [1, 3, 9])
def test_all_spans_are_summed(longest):
    generator = torch.Generator().manual_seed(longest)
    start, end = torch.randn(2, 2, 5, generator=generator)
    mask = torch.arange(5)[None, :] < torch.tensor([5, 3])[:, None]
    for row, length in enumerate((5, 3)):
        pairs = itertools.product(range(length), repeat=2)
        every = [start[row, i] + end[row, j] for i, j in pairs if i <= j < i + longest]
        expected = torch.stack(every).logsumexp(0)
        found = all_spans(start, end, mask, longest)[row]
        assert found.item() == pytest.approx(expected.item(), abs=1e-5)


@pytest.mark.parametrize("silent", [0.0, 0.4])
def test_answers_have_offsets_and_probabilities(silent):
    data = questions(24, silent=silent)
    config = settings("qa", "run.epochs=2", "head.window=12", "head.overlap=8", "head.longest=4")
    fitted = elmokit.tasks.fit("qa", data, data, elmo=None, config=config, quiet=True)
    found = fitted.predict(data, details=True)
    assert [details.answer for details in found] == fitted.predict(data)
    for example, details in zip(data, found, strict=True):
        assert 0 < details.score <= 1
        assert details.text == example.context
        if details.answer is not None:
            (span,) = details.spans
            assert example.context[span.start : span.end] == details.answer == span.text
            assert (span.score, span.type) == (details.score, "answer")
            assert example.text_of(span.tokens).start == span.start
        else:
            assert details.spans == ()


def test_best_span_of_nothing_has_no_score():
    none = torch.zeros(1, 2, dtype=torch.bool)
    assert best_spans(torch.zeros(1, 2), torch.zeros(1, 2), none, 3)[0].item() == -torch.inf


def test_joint_loss_is_a_softmax_over_all_pieces():
    scores = torch.tensor([[1.0, 2.0], [0.5, -1.0], [3.0, 0.0]])
    gold = torch.tensor([[False, True], [True, False], [False, False]])
    rows = torch.tensor([0, 0, 1])
    none = torch.tensor([0.2, 0.7])
    found = joint_loss(scores, gold, rows, none, torch.tensor([False, True]))
    first = torch.tensor([1.0, 2.0, 0.5, -1.0, 0.2]).softmax(0)
    second = torch.tensor([3.0, 0.0, 0.7]).softmax(0)
    expected = -torch.stack([first[1] + first[2], second[2]]).log()
    torch.testing.assert_close(found, expected)


# Long texts.


@given(st.integers(0, 500), st.integers(2, 60), st.data())
def test_windows_hold_every_answer_whole(length, size, data):
    overlap = data.draw(st.integers(1, size - 1))
    windows = all_windows(3, length, size, overlap)
    assert all(w.row == 3 and w.end - w.start == min(size, length) for w in windows)
    assert windows[0].start == 0
    assert windows[-1].end == length
    for one, two in itertools.pairwise(windows):
        assert one.start < two.start <= one.end - overlap


@given(st.integers(1, 200), st.integers(1, 40), st.data())
def test_training_windows_hold_an_answer(length, size, data):
    start = data.draw(st.integers(0, length - 1))
    end = data.draw(st.integers(start + 1, min(length, start + size)))
    windows = training_windows(0, length, size, [Span(start, end)])
    assert windows[0].start <= start
    assert end <= windows[0].end
    assert all(0 <= w.start <= w.end <= length and w.end - w.start <= size for w in windows)


def test_cut_takes_pieces_of_the_vectors():
    vectors = torch.arange(12.0).view(2, 6, 1)
    mask = torch.tensor([[True] * 6, [True] * 2 + [False] * 4])
    side = Side(vectors, None, torch.tensor([6, 2]), mask)
    piece = cut(side, [*all_windows(0, 6, 4, 2), *all_windows(1, 2, 4, 2)])
    assert piece.vectors[:, :, 0].tolist() == [[0, 1, 2, 3], [2, 3, 4, 5], [6, 7, 0, 0]]
    assert piece.lengths.tolist() == [4, 4, 2]
    assert piece.mask.sum().item() == 10


@pytest.fixture(scope="module")
def answerer():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("elmokit.tasks.report.draw", lambda *_: False)
        train = questions(150, silent=0.3)
        small = ("head.window=24", "head.overlap=6", "head.longest=4")
        return fit(train, train[:60], "run.epochs=12", "run.patience=0", *small)


def test_qa_learns_where_people_live(answerer):
    dev = questions(60, seed=1)
    scores = answerer.evaluate(dev)
    guesses = [ask(e.context, e.question, random.Random(0).choice(e.context_tokens)) for e in dev]
    guessed = score_examples("qa", dev, guesses).to_dict()
    assert scores["f1"] > 0.8
    assert guessed["f1"] < 0.3


def test_qa_says_when_there_is_no_answer(answerer):
    scores = answerer.evaluate(questions(80, seed=2, silent=0.4))
    assert scores["no_answer_accuracy"] > 0.7
    assert scores["answered_f1"] > 0.7


def test_qa_finds_answers_in_texts_longer_than_a_window(answerer, monkeypatch):
    dev = questions(20, seed=3, pad=12)
    assert min(len(e.context_tokens) for e in dev) > 4 * 24
    sizes = []
    encode = type(answerer.model.head)._point

    def watch(self, batch, question, windows):
        sizes.append(sum(window.end - window.start for window in windows))
        return encode(self, batch, question, windows)

    monkeypatch.setattr(type(answerer.model.head), "_point", watch)
    monkeypatch.setattr("elmokit.tasks.qa.network._TOGETHER", 100)
    scores = answerer.evaluate(dev)
    assert max(sizes) <= 100 < sum(sizes)  # what is read together does not grow with the text
    assert scores["f1"] > 0.5


def test_qa_learns_from_texts_longer_than_a_window():
    train = questions(60, pad=4)
    short = ("head.window=20", "head.overlap=5", "head.longest=3", "run.patience=0")
    predictor = fit(train, train[:20], "run.epochs=10", *short)
    assert predictor.evaluate(train)["f1"] > 0.5


def test_qa_answers_alike_alone_and_in_a_batch(answerer):
    dev = questions(12, seed=4, pad=3)
    together = [e.answers for e in answerer.annotate(dev)]
    assert together == [e.answers for one in dev for e in answerer.annotate([one])]


# Files, both languages.


def first_sentence(example: QuestionExample) -> QuestionExample:
    """What one can say without reading the question."""
    ends = [i for i, token in enumerate(example.context_tokens) if token in ".。"]
    end = (ends or [len(example.context_tokens) - 1])[0] + 1
    return replace(example, answers=(example.text_of((0, end)),))


def some_span(example: QuestionExample) -> QuestionExample:
    """What one can say without reading anything."""
    draw = random.Random(example.id)
    start = draw.randrange(len(example.context_tokens))
    end = min(len(example.context_tokens), start + draw.randint(1, 6))
    return replace(example, answers=(example.text_of((start, end)),))


def test_qa_learns_from_squad():
    train, dev = (list(read_examples("qa", DATA / "squad" / f"{p}.json")) for p in ("train", "dev"))
    few = ("run.batch=16", "inputs.min_count=3", "inputs.characters=16", "run.epochs=8")
    found = fit(train, dev, *few, "run.patience=0").evaluate(dev)
    lazy = score_examples("qa", dev, [first_sentence(e) for e in dev]).to_dict()
    blind = score_examples("qa", dev, [some_span(e) for e in dev]).to_dict()
    assert found["f1"] > max(lazy["f1"], 1.5 * blind["f1"])
    assert found["exact_match"] > lazy["exact_match"] == 0


def test_qa_reads_chinese():
    every = read_examples("qa", DATA / "cmrc" / "train.json", tokenizer="chars")
    whole = [example for example in every if example.answer_spans()]
    train = sorted(whole, key=lambda example: len(example.context_tokens))[:8]
    wide = ("inputs.tokenizer=chars", "run.epochs=25", "run.batch=4", "run.patience=0")
    pieces = ("head.longest=40", "head.window=120", "head.overlap=40")
    predictor = fit(train, train, *wide, *pieces, elmo="test-tiny")
    lazy = score_examples("qa", train, [first_sentence(e) for e in train]).to_dict()
    assert predictor.evaluate(train)["f1"] > lazy["f1"] + 0.1
    context, question = train[0].context, train[0].question
    (answer,) = predictor.predict([{"context": context, "question": question}])
    assert answer in context
    assert predictor.predict([(context, question)]) == [answer]


# Around it.


def test_qa_learns_in_mixed_precision():
    train = questions(24, silent=0.2)
    predictor = fit(train, train, "run.epochs=2", "run.precision=bfloat16")
    assert len(predictor.predict(train)) == 24


def test_qa_comes_back(answerer, tmp_path, capsys):
    answerer.save(tmp_path / "qa")
    again = elmokit.tasks.load(tmp_path / "qa")
    dev = questions(20, seed=5, silent=0.3)
    assert again.predict(dev) == answerer.predict(dev)
    assert None in again.predict(dev)
    assert again.predict([("", "Who ?")]) == [None]
    line = {"context": dev[0].context, "question": dev[0].question}
    (tmp_path / "new.jsonl").write_text(json.dumps(line) + "\n", "utf-8")
    assert main(["predict", str(tmp_path / "qa"), str(tmp_path / "new.jsonl")]) == 0
    answers = json.loads(capsys.readouterr().out)["answers"]
    assert [answer["text"] for answer in answers] == [a for a in again.predict(dev[:1]) if a]


def test_qa_trains_on_what_is_in_the_text():
    train = questions(6)
    lost = replace(train[0], answers=(Answer("elsewhere", -1),))
    assert fit([*train, lost, lost], train, "run.epochs=1", "run.batch=1")
    with pytest.raises(DataError, match="piece of its text: nothing to learn"):
        fit([lost], train)
    with pytest.raises(DataError, match="example 2 has no label"):
        fit([train[0], replace(train[1], answers=None)], train)


def test_qa_never_silent_unless_asked():
    train = questions(20, silent=0.5)
    predictor = fit(train, train, "run.epochs=1", "head.no_answer=false")
    assert None not in predictor.predict(train)


def test_qa_names_what_is_wrong(answerer):
    with pytest.raises(DataError, match=r"item 1: .*qa takes a pair \(text, question\)"):
        answerer.predict(["Where is Anna ?"])
    for wrong in ("head.overlap=20", "head.window=100", "head.longest=0"):
        with pytest.raises(ConfigError, match=r"head\.(overlap|longest)"):
            settings("qa", wrong)
    with pytest.raises(ConfigError, match="qa writes no text"):
        fit(questions(4), questions(4), 'inputs.elmo_at=["input", "target"]', elmo="test-tiny")


def test_qa_example_keeps_offsets():
    text = "Don't  go to New York, she said."
    example = get_task("qa").example((text, "Where ?"), get_tokenizer("words").tokenize)
    assert tuple(text[a:b] for a, b in example.context_spans) == tuple(example.context_tokens)
