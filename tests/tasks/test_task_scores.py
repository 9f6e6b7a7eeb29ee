"""Scores against other people's scorers, published results and plain recounting."""

from __future__ import annotations

import builtins
import json
import random
import re
import string
from collections import Counter
from dataclasses import replace

import pytest
import seqeval.metrics
import sklearn.metrics
from hypothesis import given
from hypothesis import strategies as st

from elmokit.errors import ConfigError, DataError, MissingExtraError
from elmokit.tasks import (
    Answer,
    CorefExample,
    FrameExample,
    Mention,
    PairExample,
    QuestionExample,
    SequencePair,
    TaggedExample,
    TextExample,
)
from elmokit.tasks.coref.task import score_pronouns
from elmokit.tasks.dialogue.task import score_frames
from elmokit.tasks.qa.task import score_answers
from elmokit.tasks.relation.task import score_relations
from elmokit.tasks.seq2seq.task import score_sequences
from elmokit.tasks.tag.spans import score_spans
from elmokit.tasks.task import mostly_chinese, score_examples, score_labels

LABELS = st.sampled_from(["good", "bad", "so-so", "none"])
TAGS = st.sampled_from(["O", "B-PER", "I-PER", "B-LOC", "I-LOC", "E-LOC", "S-PER"])


def pairs_of(values, **sizes):
    return st.lists(st.tuples(values, values), min_size=1, max_size=30, **sizes)


# Classes.


@given(pairs_of(LABELS))
@pytest.mark.filterwarnings("ignore:A single label was found:UserWarning")
def test_label_scores_are_those_of_scikit_learn(pairs):
    gold, predicted = zip(*pairs, strict=True)
    score = score_labels(gold, predicted)
    names = sorted({*gold, *predicted})
    assert score.accuracy == pytest.approx(sklearn.metrics.accuracy_score(gold, predicted))
    precision, recall, f1, count = sklearn.metrics.precision_recall_fscore_support(
        gold, predicted, labels=names, zero_division=0
    )
    assert score.macro_f1 == pytest.approx(f1.mean())
    for place, name in enumerate(names):
        assert score.labels[name].to_dict() == pytest.approx(
            {
                "precision": precision[place],
                "recall": recall[place],
                "f1": f1[place],
                "count": count[place],
            }
        )
    matrix = sklearn.metrics.confusion_matrix(gold, predicted, labels=names)
    assert score.tables()["confusion"] == {"labels": names, "rows": matrix.tolist()}


def test_label_scores_need_an_answer_for_each_example():
    with pytest.raises(DataError, match="1 answers for 2 examples"):
        score_labels(["a", "b"], ["a"])
    with pytest.raises(DataError, match="no examples"):
        score_labels([], [])


# Spans.


@st.composite
def tagged_pairs(draw):
    lengths = draw(st.lists(st.integers(1, 10), min_size=1, max_size=6))
    sentences = [st.lists(TAGS, min_size=length, max_size=length) for length in lengths]
    return [draw(s) for s in sentences], [draw(s) for s in sentences]


@given(tagged_pairs())
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.UndefinedMetricWarning")
def test_span_scores_of_noisy_tags_are_those_of_seqeval(sentences):
    gold, predicted = sentences
    score = score_spans(gold, predicted)
    assert score.numbers() == pytest.approx(
        {
            "f1": seqeval.metrics.f1_score(gold, predicted, zero_division=0),
            "precision": seqeval.metrics.precision_score(gold, predicted, zero_division=0),
            "recall": seqeval.metrics.recall_score(gold, predicted, zero_division=0),
            "accuracy": seqeval.metrics.accuracy_score(gold, predicted),
        }
    )


def test_span_scores_by_hand():
    gold = [["B-PER", "I-PER", "O", "B-LOC"], ["O", "B-LOC"]]
    found = [["B-PER", "I-PER", "O", "B-PER"], ["B-LOC", "I-LOC"]]
    score = score_spans(gold, found)
    assert (score.total.correct, score.total.predicted, score.total.gold) == (1, 3, 3)
    assert score.numbers()["accuracy"] == 0.5
    assert score.types["PER"].precision == 0.5
    assert score.types["LOC"].f1 == 0
    assert score_spans(gold, found, ignore=["LOC"]).numbers()["recall"] == 1


@given(pairs_of(st.sampled_from("BIO")))
def test_spans_without_types_are_scored_as_those_of_one_type(pairs):
    gold, found = zip(*pairs, strict=True)
    typed = [[tag if tag == "O" else f"{tag}-X" for tag in tags] for tags in (gold, found)]
    score = score_spans([gold], [found])
    assert score.numbers() == score_spans(*([tags] for tags in typed)).numbers()
    assert set(score.types) <= {""}


def test_example_tags_without_types_are_spans():
    gold = [TaggedExample(("a", "b"), ("B", "I")), TaggedExample(("c", "d"), ("O", "O"))]
    found = [TaggedExample(("a", "b"), ("B", "O")), TaggedExample(("c", "d"), ("O", "O"))]
    assert score_examples("tag", gold, gold).numbers()["f1"] == 1
    assert score_examples("tag", gold, found).numbers()["f1"] == 0


# Relations.

# Counts of a published run of the official scorer: rows are the truth, columns the answers, then
# the right relations with the wrong direction.
OFFICIAL_ROWS = """
Cause-Effect       263   1   0   1  11   3   3   2   3  20 21
Component-Whole      2 187   9   6   4   7  11   7   4  34 41
Content-Container    0   6 156   8   6   0   2   0   1   5  8
Entity-Destination   0   1  16 256   2   1   0   2   3   8  3
Entity-Origin        4   1   2   7 190   2   4   2   7  26 13
Instrument-Agency    2  12   1   1   3  80   2   6   7  35  7
Member-Collection    0  11   1   1   3   2 176   4   6  17 12
Message-Topic        0   7   1   3   0   3   2 179  14  27 25
Product-Producer     7   8   0   5   9   8   5   8 132  28 21
Other               15  49  25  30  43  20  41  38  30 163  0
"""
OFFICIAL_F1 = [81.93, 58.81, 75.91, 83.52, 70.11, 55.36, 71.69, 67.04, 57.52]
OFFICIAL_MACRO_F1 = 69.10
OFFICIAL_ACCURACY = 65.59


def official_answers():
    rows = [line.split() for line in OFFICIAL_ROWS.strip().splitlines()]
    names = [row[0] for row in rows]
    gold, predicted = [], []
    directions = random.Random(1)
    for name, *cells in rows:
        *counts, wrong_direction = map(int, cells)
        for found, count in zip(names, counts, strict=True):
            for _ in range(count):
                way = directions.choice(["(e1,e2)", "(e2,e1)"])
                gold.append(name if name == "Other" else name + way)
                # The direction of an answer that is wrong anyway must not matter.
                way = way if found == name else directions.choice(["(e1,e2)", "(e2,e1)"])
                predicted.append(found if found == "Other" else found + way)
        gold += [f"{name}(e1,e2)"] * wrong_direction
        predicted += [f"{name}(e2,e1)"] * wrong_direction
    return gold, predicted


def test_relation_scores_are_those_of_the_official_scorer():
    score = score_relations(*official_answers())
    assert [round(100 * counts.f1, 2) for counts in score.relations.values()] == OFFICIAL_F1
    assert round(100 * score.f1, 2) == OFFICIAL_MACRO_F1
    assert round(100 * score.numbers()["accuracy"], 2) == OFFICIAL_ACCURACY
    assert score.value == score.f1


def test_relation_scores_do_not_reward_other():
    assert score_relations(["Other", "A(e1,e2)"], ["Other", "Other"]).f1 == 0
    assert score_relations(["Other"], ["A(e1,e2)"]).f1 == 0
    directed = score_relations(["Other(e1,e2)", "A(e1,e2)"], ["Other(e1,e2)", "A(e1,e2)"])
    assert list(directed.relations) == ["A"]
    assert directed.numbers() == {"f1": 1, "accuracy": 1}


# Answers.


def squad_normal(text):
    """SQuAD's four steps, each as its own loop."""
    text = "".join(sign for sign in text.lower() if sign not in set(string.punctuation))
    words = re.split(r"\s+", re.sub(r"\b(a|an|the)\b", " ", text))
    return [word for word in words if word]


def squad_oracle(answers, found):
    answers = [answer for answer in answers if squad_normal(answer)] or [""]
    best_f1 = best_exact = 0.0
    for answer in answers:
        left, right = squad_normal(answer), squad_normal(found)
        best_exact = max(best_exact, float(left == right))
        if not left or not right:
            best_f1 = max(best_f1, float(left == right))
            continue
        rest, common = list(left), 0
        for word in right:
            if word in rest:
                rest.remove(word)
                common += 1
        if common:
            precision, recall = common / len(right), common / len(left)
            best_f1 = max(best_f1, 2 * precision * recall / (precision + recall))
    return best_exact, best_f1


ANSWER = st.lists(
    st.sampled_from(["the", "The", "a", "cat", "cats.", "U.S.", "an", "1973", "-", "mat"]),
    max_size=6,
).map(" ".join)


@given(st.lists(st.tuples(st.lists(ANSWER, max_size=3), ANSWER), min_size=1, max_size=8))
def test_answer_scores_follow_the_rules_of_squad(questions):
    score = score_answers([answers for answers, _ in questions], [found for _, found in questions])
    expected = [squad_oracle(answers, found) for answers, found in questions]
    assert score.exact_match == pytest.approx(sum(e for e, _ in expected) / len(expected))
    assert score.f1 == pytest.approx(sum(f for _, f in expected) / len(expected))


def test_answer_scores_by_hand():
    score = score_answers([["the cat sat", "a mat"], []], ["Cat sat down.", "mat"])
    assert score.f1 == pytest.approx(0.8 / 2)
    assert score.numbers()["answered_f1"] == pytest.approx(0.8)
    assert score.numbers()["no_answer_accuracy"] == 0
    assert score_answers([[]], [""]).exact_match == 1


def test_answer_scores_need_no_parts_when_all_questions_have_answers():
    assert set(score_answers([["x"]], ["x"]).numbers()) == {"f1", "exact_match"}


HANZI = st.text(alphabet="我你他的，。", max_size=8)


@given(HANZI, HANZI)
def test_chinese_answer_scores_count_the_longest_common_run(true, found):
    score = score_answers([[true]], [found], rules="cmrc")
    left, right = (re.sub("[，。]", "", text) for text in (true, found))
    runs = [left[i:j] for i in range(len(left)) for j in range(i + 1, len(left) + 1)]
    longest = max((len(run) for run in runs if run in right), default=0)
    if left and right:
        assert score.f1 == pytest.approx(2 * longest / (len(left) + len(right)))
    else:
        assert score.f1 == float(left == right)
    assert score.exact_match == float(left == right)


def test_chinese_answer_scores_keep_other_words_whole():
    score = score_answers([["由Nexon开发"]], ["Nexon开发商"], rules="cmrc")
    assert score.f1 == pytest.approx(2 * 3 / (4 + 4))


def test_chinese_is_told_from_other_languages():
    assert mostly_chinese(["由韩国Nexon开发与发行。"])
    assert not mostly_chinese(["the word 中 means middle"])
    assert not mostly_chinese([])


# Texts.


def test_sequence_scores_of_copies_and_of_rubbish():
    texts = ["the cat sat on the mat today", "a dog ran through the old park"]
    same = score_sequences([[text] for text in texts], texts)
    assert same.numbers() == pytest.approx(
        {"bleu": 100, "rouge1": 1, "rouge2": 1, "rougeL": 1, "f1": 1, "accuracy": 1}
    )
    other = score_sequences([[text] for text in texts], ["zzz yyy", "xxx www"])
    assert other.numbers()["f1"] == other.numbers()["accuracy"] == 0


def test_sequence_scores_of_words_by_hand():
    """Six words, five right, one reference of six: ROUGE-1 and L 5/6, ROUGE-2 4/5 pairs."""
    score = score_sequences([["one two three four five six"]], ["one two three four five seven"])
    assert score.rouge == pytest.approx({"rouge1": 5 / 6, "rouge2": 4 / 5, "rougeL": 5 / 6})
    # BLEU: 5/6, 4/5, 3/4, 2/3 of the n-grams, no penalty for length.
    assert score.bleu == pytest.approx(100 * (5 / 6 * 4 / 5 * 3 / 4 * 2 / 3) ** 0.25)


def test_sequence_scores_take_the_best_of_several_references():
    references = [
        ["something else entirely here", "we study cats and dogs"],
        ["only one text here"],
    ]
    score = score_sequences(references, ["we study cats and dogs", "only one text here"])
    assert score.rouge["rougeL"] == pytest.approx(1)
    assert score.bleu == pytest.approx(100)
    assert "nrefs:var" in score.signature


def test_sequence_scores_of_chinese_are_by_character():
    score = score_sequences([["我喜欢吃苹果。"]], ["我喜欢吃香蕉。"])
    assert "tok:zh" in score.signature
    assert score.rouge["rouge1"] == pytest.approx(4 / 6)
    assert score.bleu > 0


def test_sequence_scores_watch_what_is_asked_for():
    score = score_sequences([["a b c d"]], ["a b c d"], primary="rougeL")
    assert score.value == score.rouge["rougeL"]


def test_sequence_scores_name_the_extra(monkeypatch):
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name.startswith("sacrebleu"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtraError, match=r"elmokit\[seq2seq\]"):
        score_sequences([["a"]], ["a"])


# Frames and pronouns.


def test_frame_scores_want_all_of_a_frame():
    score = score_frames(
        ["Play", "Play", "Book"],
        [["O", "B-artist"], ["O", "O"], ["B-city", "I-city"]],
        ["Play", "Book", "Book"],
        [["O", "B-artist"], ["O", "O"], ["B-city", "O"]],
    )
    assert score.frame_accuracy == pytest.approx(1 / 3)
    assert score.numbers()["accuracy"] == pytest.approx(2 / 3)
    assert score.numbers()["f1"] == pytest.approx(0.5)
    assert score.value == score.frame_accuracy


ANSWERS = st.sampled_from(["A", "B", "neither"])


@given(
    st.lists(st.tuples(ANSWERS, ANSWERS, st.sampled_from(["feminine", "masculine"])), min_size=1)
)
def test_pronoun_scores_are_those_of_two_decisions_each(rows):
    """GAP's scorer counts A and B as two yes-or-no questions."""
    gold, predicted, genders = zip(*rows, strict=True)
    score = score_pronouns(gold, predicted, genders)
    parts = {"f1": None, "feminine_f1": "feminine", "masculine_f1": "masculine"}
    for name, gender in parts.items():
        kept = [row for row in rows if gender in (None, row[2])]
        truth = [row[0] == candidate for row in kept for candidate in "AB"]
        found = [row[1] == candidate for row in kept for candidate in "AB"]
        counts = Counter(zip(truth, found, strict=True))
        whole = 2 * counts[True, True] + counts[True, False] + counts[False, True]
        expected = 2 * counts[True, True] / whole if whole else 0
        assert score.numbers()[name] == pytest.approx(expected)
    numbers = score.numbers()
    if numbers["masculine_f1"]:
        assert numbers["bias"] == pytest.approx(numbers["feminine_f1"] / numbers["masculine_f1"])
    else:
        assert "bias" not in numbers


# Examples of every task.

QUESTION = QuestionExample(
    "q1", "Tom ran .", "Who ran ?", ("Tom", "ran", "."), ((0, 3), (4, 7), (8, 9)), ("Who", "?")
)
PRONOUN = CorefExample(
    "c1",
    "Ann met Eve, she",
    Mention("she", 13),
    Mention("Ann", 0),
    Mention("Eve", 8),
    ("Ann", "met", "Eve", ",", "she"),
    ((0, 3), (4, 7), (8, 11), (11, 12), (13, 16)),
    "A",
)
FRAME = FrameExample(("play", "queen"), ("O", "B-artist"), "PlayMusic")
CASES = {
    "classify": (
        TextExample(("good",), "yes"),
        TextExample(("good",), "no"),
        "accuracy",
    ),
    "pair": (PairExample(("a",), ("b",), "yes"), PairExample(("a",), ("b",), "no"), "accuracy"),
    "tag": (
        TaggedExample(("Tom", "ran"), ("B-PER", "O")),
        TaggedExample(("Tom", "ran"), ("O", "O")),
        "f1",
    ),
    "qa": (
        replace(QUESTION, answers=(Answer("Tom", 0),)),
        replace(QUESTION, answers=()),
        "f1",
    ),
    "seq2seq": (
        SequencePair(("a",), ("b",), "a", ("b c d e",)),
        SequencePair(("a",), ("z",), "a", ("z",)),
        "bleu",
    ),
    "dialogue": (FRAME, replace(FRAME, slots=("O", "O")), "frame_accuracy"),
    "coref": (PRONOUN, replace(PRONOUN, label="B"), "f1"),
}


@pytest.mark.parametrize("task", CASES)
def test_examples_of_each_task_are_scored(task):
    gold, wrong, primary = CASES[task]
    right = score_examples(task, [gold], [gold])
    assert right.primary == primary
    assert right.value == pytest.approx(100 if primary == "bleu" else 1)
    assert right.value > score_examples(task, [gold], [wrong]).value
    assert {"accuracy", "f1"} & set(right.to_dict())
    assert json.loads(json.dumps(right.to_dict())) == right.to_dict()


def test_example_tags_that_are_no_spans_are_scored_by_token():
    gold = TaggedExample(("Tom", "ran"), ("PROPN", "VERB"))
    score = score_examples("tag", [gold], [replace(gold, tags=("PROPN", "NOUN"))])
    assert (score.primary, score.value) == ("accuracy", 0.5)


ROLES = "B-ARG1 O B-V B-C-ARG1 I-C-ARG1 B-C-V"


@pytest.mark.parametrize(
    ("found", "counts"),  # right, found, true
    [
        (ROLES, (1, 1, 1)),
        ("B-ARG1 O B-V B-C-ARG1 I-C-ARG1 O", (1, 1, 1)),  # C-V is a part of the verb
        ("B-ARG1 O B-V O O B-C-V", (0, 1, 1)),  # half of an argument
        ("B-ARG1 O B-V B-C-ARG1 B-C-ARG1 B-C-V", (0, 1, 1)),
        ("B-ARG1 O B-V B-ARG1 I-ARG1 B-C-V", (0, 2, 1)),
        ("O O B-V B-C-ARG1 I-C-ARG1 O", (0, 1, 1)),  # nothing to continue: one of its own
        ("B-ARG1 O B-V B-R-ARG1 I-R-ARG1 O", (0, 2, 1)),
    ],
)
def test_example_roles_are_joined_as_in_conll(found, counts):
    gold = TaggedExample(tuple("abcdef"), tuple(ROLES.split()), predicate=2)
    score = score_examples("tag", [gold], [replace(gold, tags=tuple(found.split()))])
    total = score.total
    assert (total.correct, total.predicted, total.gold) == counts
    alone = score_examples(
        "tag", [replace(gold, predicate=None)], [replace(gold, tags=tuple(found.split()))]
    )
    assert alone.total.gold == 4  # spans that are no roles stay as they are


def test_example_roles_are_scored_without_the_verb():
    gold = TaggedExample(("Tom", "ran"), ("B-ARG0", "B-V"), predicate=1)
    score = score_examples("tag", [gold], [replace(gold, tags=("O", "B-V"))])
    assert score.value == 0


def test_example_answers_in_chinese_follow_cmrc():
    gold = replace(QUESTION, context="汤姆跑了很远。", answers=(Answer("汤姆", 0),))
    found = replace(gold, answers=(Answer("汤姆，", 0),))
    assert score_examples("qa", [gold], [found]).to_dict()["exact_match"] == 1


def test_example_without_a_label_has_no_score():
    with pytest.raises(DataError, match="example 2 has no label"):
        score_examples("classify", [TextExample(("a",), "x"), TextExample(("a",))], [None, None])


def test_example_task_must_exist():
    with pytest.raises(ConfigError, match="no task 'parse'"):
        score_examples("parse", [1], [1])
