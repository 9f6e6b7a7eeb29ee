"""Answers with tokens, character offsets and probabilities."""

from __future__ import annotations

import json

import numpy as np
import pytest
from small_tasks import sentences, settings, texts

import elmokit
from elmokit.cli import main
from elmokit.tasks import Details, FrameExample, TaggedExample
from elmokit.tasks.tag.spans import convert_tags, tags_to_spans

pytestmark = pytest.mark.usefixtures("no_pictures")

TEXT = "Anna  saw Rome, and Bob Miller."


def fitted(task, data, *changes):
    config = settings(task, "run.epochs=12", "optimizer.warmup=0", "run.patience=0", *changes)
    return elmokit.tasks.fit(task, data, data, elmo=None, config=config, quiet=True)


@pytest.fixture(scope="module")
def tagger():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("elmokit.tasks.report.draw", lambda *_: False)
        return fitted("tag", sentences(60), "inputs.tokenizer=words")


@pytest.mark.parametrize("crf", [True, False])
def test_tags_have_tokens_offsets_and_scores(tagger, crf):
    if not crf:
        tagger = fitted("tag", sentences(60), "inputs.tokenizer=words", "head.crf=false")
    found = tagger.predict(TEXT, details=True)
    assert isinstance(found, Details)
    assert found.answer == tagger.predict(TEXT)
    assert found.text == TEXT
    assert [token.text for token in found.tokens] == list(tagger.tokenize(TEXT))
    assert [token.tag for token in found.tokens] == found.answer
    chances = tagger.predict_proba(TEXT)
    assert chances.shape == (len(found.tokens), len(tagger.labels))
    np.testing.assert_allclose(chances.sum(axis=1), 1, rtol=1e-9)
    for token, row in zip(found.tokens, chances, strict=True):
        assert TEXT[token.start : token.end] == token.text
        assert token.score == pytest.approx(row[tagger.labels.index(token.tag)])
    assert [(*span.tokens, span.type) for span in found.spans] == tags_to_spans(found.answer)
    assert found.spans
    for span in found.spans:
        assert TEXT[span.start : span.end] == span.text
        assert 0 < span.score <= 1
    assert 0 < found.score <= min(token.score for token in found.tokens) + 1e-9
    # Alone and in a batch alike, and of tokens: offsets in the tokens with spaces.
    many = tagger.predict([TEXT, "Zoe slept", ["Zoe", "slept"], []], details=True)
    assert many[0].score == pytest.approx(found.score, rel=1e-4)
    assert many[1].to_dict() == many[2].to_dict()
    assert (many[3].answer, many[3].score) == ([], 1.0)
    rows = tagger.predict_proba([TEXT, "Zoe slept"])
    assert [row.shape for row in rows] == [chances.shape, (2, len(tagger.labels))]


def test_tokens_that_are_no_pieces_of_the_text_are_joined(tagger):
    example = TaggedExample(("Anna", "slept"), text="ANNA slept")
    found = tagger.predict(example, details=True)
    assert found.text == "Anna slept"
    assert [token.start for token in found.tokens] == [0, 5]


def test_labels_are_in_the_letters_of_the_data():
    data = [TaggedExample(e.tokens, convert_tags(e.tags, "bilou")) for e in sentences(60)]
    tagger = fitted("tag", data)
    assert set(tagger.labels) == {tag for e in data for tag in e.tags}
    found = tagger.predict(data[:20], details=True)
    for details, rows in zip(found, tagger.predict_proba(data[:20]), strict=True):
        for token, row in zip(details.tokens, rows, strict=True):
            assert token.score == pytest.approx(row[tagger.labels.index(token.tag)], abs=1e-6)


def test_parts_of_speech_have_no_spans():
    data = [TaggedExample(e.tokens, tuple(t[0] for t in e.tokens)) for e in sentences(20)]
    found = fitted("tag", data, "run.epochs=1").predict([data[0]], details=True)[0]
    assert found.spans == ()
    assert len(found.tokens) == len(data[0].tokens)


def test_requests_have_slots_and_intents_with_scores():
    data = [FrameExample(e.tokens, e.tags, f"{len(e.tokens) > 5}") for e in sentences(60)]
    requests = fitted("dialogue", data)
    found = requests.predict("Anna saw Rome", details=True)
    assert found.answer == requests.predict("Anna saw Rome")
    assert sum(found.probabilities.values()) == pytest.approx(1)
    assert found.score <= found.probabilities[found.answer["intent"]]
    for span in found.spans:
        assert "Anna saw Rome"[span.start : span.end] == span.text


def test_classes_have_probabilities():
    predictor = fitted("classify", texts(40))
    items = ["a superb plot", "awful"]
    for details, row in zip(
        predictor.predict(items, details=True), predictor.predict_proba(items), strict=True
    ):
        assert details.score == max(row)
        assert list(details.probabilities.values()) == row.tolist()


def test_command_adds_details(tagger, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    tagger.save("tagger")
    (tmp_path / "new.txt").write_text(TEXT + "\n", "utf-8")
    assert main(["predict", "tagger", "new.txt", "--details"]) == 0
    record = json.loads(capsys.readouterr().out)
    expected = tagger.predict(TEXT, details=True).to_dict()
    assert list(record) == ["text", "tokens", "tags", "score", "spans"]
    assert record["tags"] == expected["answer"]
    assert record["spans"][0]["text"] == expected["spans"][0]["text"]
    assert record["spans"][0]["score"] == pytest.approx(expected["spans"][0]["score"], abs=1e-5)
    assert [token["start"] for token in record["tokens"]] == [
        t["start"] for t in expected["tokens"]
    ]
    assert main(["predict", "tagger", "new.txt", "--probabilities"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert len(record["probabilities"]) == len(record["tokens"])
    assert set(record["probabilities"][0]) == set(tagger.labels)
    assert main(["predict", "tagger", "new.txt", "--details", "-o", "a.conll"]) == 2
