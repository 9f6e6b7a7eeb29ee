"""Taggers trained on span schemes: scores, constraints, and answers in the data's own scheme."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from small_tasks import sentences, settings

import elmokit
from elmokit.errors import DataError
from elmokit.tasks import FrameExample, TaggedExample, score_examples
from elmokit.tasks.tag.spans import convert_tags, illegal_index

pytestmark = pytest.mark.usefixtures("no_pictures")


def names(count: int, seed: int = 0) -> list[TaggedExample]:
    """Sentences with names of one, two and three tokens."""
    found = []
    for example in sentences(count, seed):
        pairs = zip(example.tokens, example.tags, strict=True)
        longer = [p for t, tag in pairs for p in [(t, tag), ("City", tag)][: 1 + (t == "York")]]
        found.append(TaggedExample(*(tuple(part) for part in zip(*longer, strict=True))))
    return found


def in_scheme(examples, scheme):
    return [replace(example, tags=convert_tags(example.tags, scheme)) for example in examples]


@pytest.mark.parametrize("crf", ["true", "false"])
@pytest.mark.parametrize("scheme", ["bilou", "bmes", "bioes"])
def test_tagger_learns_and_answers_in_the_scheme_of_its_data(scheme, crf, tmp_path):
    train, dev = (in_scheme(names(60, seed), scheme) for seed in (0, 1))
    config = settings("tag", "run.epochs=12", "optimizer.warmup=0", f"head.crf={crf}")
    fitted = elmokit.tasks.fit(
        "tag", train, dev, elmo=None, config=config, output=tmp_path / "o", quiet=True
    )
    learned = json.loads((tmp_path / "o" / "predictor.json").read_text("utf-8"))["learned"]
    assert (learned["scheme"], learned["data_scheme"]) == ("bioes", scheme)
    scores = fitted.evaluate(dev)
    assert scores["f1"] > 0.5
    assert set(scores["labels"]) == {"PER", "LOC"}
    found = fitted.predict([example.tokens for example in dev])
    assert any(tag != "O" for tags in found for tag in tags)
    if crf == "true":
        assert all(illegal_index(tags, scheme) is None for tags in found)
    # A file in another scheme is scored alike.
    assert fitted.evaluate(in_scheme(dev, "bio"))["f1"] == scores["f1"]


def test_scores_of_other_letters_are_those_of_bio():
    gold, found = sentences(20), sentences(20, seed=1)
    found = [replace(g, tags=(f.tags * 9)[: len(g.tags)]) for g, f in zip(gold, found, strict=True)]
    expected = score_examples("tag", gold, in_scheme(found, "bio")).numbers()
    for scheme in ("bilou", "bmes"):
        score = score_examples("tag", in_scheme(gold, scheme), in_scheme(found, scheme))
        assert {**score.numbers(), "accuracy": 0} == {**expected, "accuracy": 0}


def test_slots_are_answered_in_the_scheme_of_the_data():
    data = [
        FrameExample(e.tokens, convert_tags(e.tags, "bilou"), f"{len(e.tokens) > 5}")
        for e in names(60)
    ]
    config = settings("dialogue", "run.epochs=12", "optimizer.warmup=0", "run.patience=0")
    fitted = elmokit.tasks.fit("dialogue", data, data, elmo=None, config=config, quiet=True)
    answers = fitted.predict([example.tokens for example in data])
    tags = {tag for answer in answers for tag in answer["slots"]}
    assert any(tag[0] in "LU" for tag in tags)
    assert not any(tag[0] in "ES" for tag in tags)


def test_tags_that_only_look_like_spans_are_refused_unless_taken_as_they_are():
    data = [
        replace(example, tags=tuple(tag.replace("B-", "W-") for tag in example.tags))
        for example in sentences(20)
    ]
    with pytest.raises(DataError, match=r"the train data: .*'W-LOC', 'W-PER' fit .*scheme=none"):
        elmokit.tasks.fit("tag", data, data, elmo=None, quiet=True)
    config = settings("tag", "run.epochs=1", "head.scheme=none")
    fitted = elmokit.tasks.fit("tag", data, data, elmo=None, config=config, quiet=True)
    assert "f1" not in fitted.evaluate(data)
    with pytest.raises(DataError, match="fit none of the schemes"):
        score_examples("tag", data, data)
