"""Pairs, relations, pronouns, requests: they learn, come back, and say what is wrong."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
import torch
from small_tasks import DATA, FILL, majority, settings

import elmokit
from elmokit.errors import CheckpointError, ConfigError, DataError
from elmokit.tasks import (
    CorefExample,
    FrameExample,
    Mention,
    PairExample,
    RelationExample,
    read_examples,
)
from elmokit.tasks.fit import task_settings
from elmokit.tasks.records import Span
from elmokit.tasks.relation.task import _between
from elmokit.tasks.tag.spans import illegal_index

pytestmark = pytest.mark.usefixtures("no_pictures")

OPPOSITES = {"big": "small", "small": "big", "old": "young", "young": "old", "hot": "cold"}


def fit(task, train, dev, *overrides, **options):
    config = settings(task, *overrides)
    return elmokit.tasks.fit(task, train, dev, config=config, quiet=True, **options)


def pairs(count: int, seed: int = 0) -> list[PairExample]:
    """The second text says again what the first one says, or its opposite, or something else."""
    draw = random.Random(seed)
    found = []
    for _ in range(count):
        word = draw.choice(sorted(OPPOSITES))
        label = draw.choice(["contradiction", "entailment", "neutral"])
        others = [other for other in OPPOSITES if other not in (word, OPPOSITES[word])]
        said = {"contradiction": OPPOSITES[word], "entailment": word, "neutral": others[0]}[label]
        first = [*draw.sample(FILL, 3), word, draw.choice(FILL)]
        found.append(PairExample(tuple(first), (draw.choice(FILL), "is", said), label))
    return found


def pronouns(count: int, seed: int = 0) -> list[CorefExample]:
    """The pronoun is the one who spoke, if one of the two did."""
    draw = random.Random(seed)
    found = []
    for number in range(count):
        names = draw.sample(["Anna", "Bob", "Zoe", "Carl", "Dora"], 2)
        verbs = draw.choice([("spoke", "slept"), ("slept", "spoke"), ("slept", "slept")])
        text = f"{names[0]} {verbs[0]} and {names[1]} {verbs[1]} because they said so"
        tokens, spans, start = text.split(), [], 0
        for token in tokens:
            spans.append((start, start + len(token)))
            start += len(token) + 1
        a, b, pronoun = (Mention(word, text.index(word)) for word in (*names, "they"))
        label = "neither" if "spoke" not in verbs else "AB"[verbs.index("spoke")]
        found.append(
            CorefExample(str(number), text, pronoun, a, b, tuple(tokens), tuple(spans), label)
        )
    return found


# They learn.


@pytest.mark.parametrize("elmo", ["test-tiny", None])
def test_pair_compares_both_texts(elmo):
    train, dev = pairs(240), pairs(60, seed=1)
    less = ("head.dropout=0", "encoder.dropout=0", "inputs.dropout=0.1", "inputs.word_dropout=0")
    predictor = fit("pair", train, dev, "run.epochs=7", *less, elmo=elmo)
    assert predictor.evaluate(dev)["accuracy"] > majority([e.label for e in dev]) + 0.3
    first, second = ["the", "story", "was", "big"], ["it", "is", "big"]
    assert predictor.predict([(first, second), ("the story was big", "it is small")]) == [
        "entailment",
        "contradiction",
    ]


def test_pair_learns_from_a_file(tmp_path):
    folder = DATA / "nli"
    train = list(read_examples("pair", folder / "train.jsonl"))[:60]
    predictor = fit("pair", train, folder / "dev.jsonl", "run.epochs=1", elmo="test-tiny")
    scores = predictor.evaluate(folder / "dev.jsonl")
    assert set(scores["confusion"]["labels"]) == {"contradiction", "entailment", "neutral"}


def test_relation_beats_the_most_frequent_relation():
    folder = DATA / "semeval2010"
    predictor = fit(
        "relation", folder / "train.txt", folder / "dev.txt", "run.epochs=8", elmo="test-tiny"
    )
    gold = list(read_examples("relation", folder / "dev.txt"))
    scores = predictor.evaluate(folder / "dev.txt")
    assert scores["accuracy"] > majority([e.label for e in gold]) + 0.15
    assert scores["f1"] > 0.3  # the most frequent relation alone has less than 0.1
    text = "The <e1>factory</e1> makes <e2>cars</e2>."
    tokens = ["The", "factory", "makes", "cars", "."]
    assert predictor.predict(text) == predictor.predict([(tokens, (1, 2), (3, 4))])[0]


def test_relation_reads_how_far_a_token_is_from_both_mentions(tmp_path):
    draw = random.Random(3)
    data = []
    for _ in range(24):
        length = draw.randint(6, 70)  # distances beyond the farthest occur
        near = Span(0, 1), Span(draw.randint(2, 3), 4)
        far = Span(draw.randint(2, 3), 4), Span(length - 1, length)
        first, second = draw.choice((near, far))
        label = "Near(e1,e2)" if (first, second) == near else "Far(e1,e2)"
        data.append(RelationExample(tuple("x" * length), first, second, label))
    overrides = ("run.epochs=2", "head.positions=4")
    predictor = fit("relation", data, data[:4], *overrides, elmo=None)
    together = predictor.predict_proba(data)
    alone = np.concatenate([predictor.predict_proba([example]) for example in data[:5]])
    assert np.allclose(alone, together[:5], atol=1e-6)
    predictor.save(tmp_path / "relations")
    again = elmokit.tasks.load(tmp_path / "relations")
    assert np.array_equal(again.predict_proba(data), together)
    with torch.no_grad():
        for name, weight in again.model.named_parameters():
            if ".positions.1." in name:  # from the second mention
                weight.zero_()
    assert not np.allclose(again.predict_proba(data), together, atol=1e-6)
    with pytest.raises(ConfigError, match=r"positions"):
        settings("relation", "head.positions=-1")


def test_relation_reads_the_order_of_the_mentions():
    words = ("the", "dog", "saw", "a", "cat")
    one, other = Span(1, 2), Span(4, 5)
    data = [
        RelationExample(words, one, other, "Sees(e1,e2)"),
        RelationExample(words, other, one, "Sees(e2,e1)"),
    ] * 30
    predictor = fit("relation", data, data[:2], "run.epochs=6", "inputs.dropout=0", elmo=None)
    assert predictor.evaluate(data)["accuracy"] == 1


def test_between_is_what_is_between_two_mentions():
    first = torch.tensor([[0, 1, 1, 0, 0, 0, 0], [0, 0, 0, 0, 0, 1, 0], [0, 1, 0, 0, 0, 0, 0]])
    second = torch.tensor([[0, 0, 0, 0, 0, 1, 0], [1, 1, 0, 0, 0, 0, 0], [0, 0, 1, 1, 0, 0, 0]])
    wanted = torch.tensor([[0, 0, 0, 1, 1, 0, 0], [0, 0, 1, 1, 1, 0, 0], [0, 0, 0, 0, 0, 0, 0]])
    assert torch.equal(_between(first.bool(), second.bool()), wanted.bool())


def test_coref_finds_who_is_meant():
    train, dev = pronouns(200), pronouns(60, seed=1)
    predictor = fit("coref", train, dev, "run.epochs=6", elmo="test-tiny")
    scores = predictor.evaluate(dev)
    assert scores["accuracy"] > majority([e.label for e in dev]) + 0.3
    assert scores["f1"] > 0.8
    text = "Zoe slept and Carl spoke because they said so"
    question = (text, ("they", 33), ("Zoe", 0), ("Carl", 14))
    assert predictor.predict([question]) == ["B"]


def test_coref_learns_from_a_file():
    folder = DATA / "gap"
    predictor = fit(
        "coref", folder / "train.tsv", folder / "dev.tsv", "run.epochs=2", elmo="test-tiny"
    )
    scores = predictor.evaluate(folder / "dev.tsv")
    assert {"f1", "feminine_f1", "masculine_f1", "bias"} <= scores.keys()


def test_dialogue_finds_intents_and_slots():
    folder = DATA / "snips"
    predictor = fit("dialogue", folder / "train", folder / "dev", "run.epochs=8", elmo="test-tiny")
    gold = list(read_examples("dialogue", folder / "dev"))
    scores = predictor.evaluate(folder / "dev")
    assert scores["accuracy"] > majority([e.intent for e in gold]) + 0.3
    assert scores["f1"] > 0.05  # O everywhere has none
    assert {"frame_accuracy", "accuracy", "f1", "labels", "confusion"} <= scores.keys()
    answer = predictor.predict("play some jazz music")
    assert answer.keys() == {"intent", "slots"}
    for answer in predictor.predict([example.tokens for example in gold]):
        assert illegal_index(answer["slots"], "bio") is None


# They come back, whatever stands beside an example.


def data_of(task: str) -> tuple[list, list]:
    made = {"pair": pairs, "coref": pronouns}
    if task in made:
        return made[task](40), made[task](12, seed=1)
    names = {"relation": "semeval2010/{}.txt", "dialogue": "snips/{}"}
    train, dev = (
        list(read_examples(task, DATA / names[task].format(part))) for part in ("train", "dev")
    )
    known = {getattr(e, "label", None) or e.intent for e in train[:40]}
    dev = [e for e in dev if (getattr(e, "label", None) or e.intent) in known]
    return train[:40], dev[:12]


@pytest.mark.parametrize("task", ["pair", "relation", "coref", "dialogue"])
def test_predictor_comes_back_and_answers_alike_alone(task, tmp_path):
    train, dev = data_of(task)
    places = 'inputs.elmo_at=["input","output"]'
    one = fit(task, train, dev, "run.epochs=1", places, elmo="test-tiny", output=tmp_path / "one")
    again = elmokit.tasks.load(tmp_path / "one")
    together = again.predict(dev)
    assert together == one.predict(dev)
    assert [again.predict([example])[0] for example in dev] == together
    assert again.evaluate(dev) == one.evaluate(dev)
    scores = [again.model.head._scores(again.model.batch(batch)) for batch in (dev, dev[:1])]
    firsts = [s[0][0] if isinstance(s, tuple) else s[0] for s in scores]
    torch.testing.assert_close(firsts[0], firsts[1], rtol=1e-4, atol=1e-5)
    (tmp_path / "one" / "weights.safetensors").write_bytes(b"")
    with pytest.raises(CheckpointError):
        elmokit.tasks.load(tmp_path / "one")


@pytest.mark.parametrize("task", ["pair", "relation", "coref"])
def test_probabilities_stand_in_the_order_of_the_labels(task):
    train, dev = data_of(task)
    predictor = fit(task, train, dev, "run.epochs=2", elmo=None)
    found = predictor.predict_proba(dev)
    labels = ("A", "B", "neither") if task == "coref" else tuple(predictor.facts.learned["labels"])
    assert predictor.labels == labels
    assert found.shape == (len(dev), len(labels))
    np.testing.assert_allclose(found.sum(axis=1), 1)
    assert [labels[number] for number in found.argmax(axis=1)] == predictor.predict(dev)
    with torch.no_grad():
        scores = predictor.model.head._scores(predictor.model.batch(dev)).numpy()
    np.testing.assert_allclose(np.exp(scores) / np.exp(scores).sum(1)[:, None], found, rtol=1e-4)
    alone = np.concatenate([predictor.predict_proba([example]) for example in dev])
    np.testing.assert_allclose(alone, found, rtol=1e-4, atol=1e-6)


def test_pair_with_an_empty_text_has_an_answer():
    predictor = fit("pair", pairs(20), pairs(10, 1), "run.epochs=1", elmo=None)
    assert predictor.predict([((), ("it",)), (("it",), ()), ((), ())])
    batch = predictor.model.batch([PairExample((), ("it",))])
    assert predictor.model.head._scores(batch).isfinite().all()


# What is wrong.


def test_unknown_labels_are_named():
    data = pairs(12)
    wrong = [*data, replace(data[0], label="maybe")]
    message = r"example 13: the training data does not have the label 'maybe'\. It has"
    with pytest.raises(DataError, match=message):
        fit("pair", data, wrong, elmo=None)
    with pytest.raises(DataError, match=message):
        fit("pair", data, data, elmo=None, test=wrong)
    predictor = fit("pair", data, data, "run.epochs=1", elmo=None)
    with pytest.raises(DataError, match=message):
        predictor.evaluate(wrong)
    relations = [
        RelationExample(("a", "b"), Span(0, 1), Span(1, 2), label)
        for label in ("Cause-Effect(e1,e2)", "Other")
    ] * 4
    predictor = fit("relation", relations, relations, "run.epochs=1", elmo=None)
    turned = [replace(relations[0], label="Cause-Effect(e2,e1)")]  # rare, and no mistake
    assert predictor.evaluate(turned)["accuracy"] == 0
    with pytest.raises(DataError, match="'Content-Container'"):
        predictor.evaluate([replace(relations[0], label="Content-Container(e1,e2)")])
    frames = [FrameExample(("go", "home"), ("O", "B-place"), name) for name in ("go", "ask")] * 4
    predictor = fit("dialogue", frames, frames, "run.epochs=1", elmo=None)
    with pytest.raises(DataError, match="'sing'"):
        predictor.evaluate([replace(frames[0], intent="sing")])


def test_mentions_outside_the_text_are_named(tmp_path):
    good = RelationExample(("a", "b", "c"), Span(0, 1), Span(2, 3), "x")
    data = [good, replace(good, label="y")] * 4
    predictor = fit("relation", data, data, "run.epochs=1", elmo=None)
    for span in ((2, 4), (1, 1), (-1, 1)):
        with pytest.raises(DataError, match=r"not inside its text, which has 3 tokens: 'a b c'"):
            predictor.predict([(("a", "b", "c"), (0, 1), span)])
        wrong = replace(good, second=Span(*span))
        with pytest.raises(DataError, match=r"^item 2: a mention .* not inside its text"):
            predictor.predict([good, wrong])
        with pytest.raises(DataError, match=r"^example 2: a mention"):
            predictor.evaluate([good, wrong])
        for train, dev, place in (
            ([*data, wrong], data, "the train data: example 9"),
            (data, [replace(wrong, where="dev.txt, line 7")], "the dev data: dev.txt, line 7"),
        ):
            with pytest.raises(DataError, match=f"^{place}: a mention"):
                fit("relation", train, dev, elmo=None, output=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    with pytest.raises(DataError, match="not marked as <e1>"):
        predictor.predict("nothing is marked")
    texts = pronouns(8)
    predictor = fit("coref", texts, texts, "run.epochs=1", elmo=None)
    moved = replace(texts[0], a=Mention("Anna", 200))
    for call in (predictor.evaluate, predictor.predict):
        with pytest.raises(DataError, match="'Anna' is not at character 200"):
            call([moved])
    with pytest.raises(DataError, match="is not at character 200"):
        fit("coref", [*texts, moved], texts, elmo=None)


def test_wrong_data_and_settings_are_named():
    with pytest.raises(DataError, match=r"item 1: .*pair takes two texts \(first, second\)"):
        fit("pair", pairs(8), pairs(8), "run.epochs=1", elmo=None).predict("one text")
    frames = [FrameExample(("go",), ("VERB",), name) for name in ("go", "ask")]
    with pytest.raises(DataError, match="not tags of spans"):
        fit("dialogue", frames, frames, elmo=None)
    with pytest.raises(DataError, match="training example 2 has no label"):
        fit("coref", [*pronouns(1), replace(pronouns(1)[0], label=None)], pronouns(4), elmo=None)
    for task, override in (
        ("pair", "head.compared=0"),
        ("relation", "head.mark=0"),
        ("coref", "head.hidden=0"),
        ("dialogue", "head.dropout=1.0"),
    ):
        with pytest.raises(ConfigError, match=override.partition("=")[0].replace("head.", "")):
            task_settings(task, None, [override])
