"""N-best lists in a new order."""

import json
from itertools import count
from pathlib import Path

import pytest

import elmokit
from elmokit import ConfigError, DataError
from elmokit.lm.rescoring import read_nbest, rescore
from elmokit.lm.scoring import score

CHECKPOINTS = Path(__file__).parents[1] / "golden" / "tf-checkpoint"
RECORDS = [
    {
        "id": "a1",
        "speaker": 3,
        "hypotheses": [
            {"text": "the cat sat", "score": -10.0, "source": "am"},
            {"text": "the cat sat on the mat .", "score": -12.5},
            {"text": ["the", "dog", "sat"], "score": -11},
        ],
    },
    {"id": "a2", "hypotheses": []},
    {"hypotheses": [{"text": "dog", "score": 0.0}]},
]


@pytest.mark.parametrize("weight", [0, 0.3, 0.5, 1])
def test_rescore_ranks_by_the_weighted_sum(standard, weight):
    results = list(rescore(standard, RECORDS, weight))
    assert [record.get("id") for record in results] == ["a1", "a2", None]
    assert results[0]["speaker"] == 3
    for record, old in zip(results, RECORDS, strict=True):
        for hypothesis in record["hypotheses"]:
            text = hypothesis["text"]
            tokens = text.split() if isinstance(text, str) else text
            want = score(standard, [tokens])[0].logprob
            assert hypothesis["lm_score"] == pytest.approx(want, rel=1e-5)
            plain = {key: value for key, value in hypothesis.items() if key != "lm_score"}
            assert plain in old["hypotheses"]
        assert len(record["hypotheses"]) == len(old["hypotheses"])
        totals = [
            (1 - weight) * hypothesis["score"] + weight * hypothesis["lm_score"]
            for hypothesis in record["hypotheses"]
        ]
        assert totals == sorted(totals, reverse=True)


def test_rescore_keeps_what_it_was_given(standard):
    before = json.dumps(RECORDS)
    list(rescore(standard, RECORDS))
    assert json.dumps(RECORDS) == before


def test_rescore_keeps_the_order_of_equals(standard):
    twins = [{"text": "the cat", "score": -1.0, "n": n} for n in range(4)]
    (record,) = rescore(standard, [{"hypotheses": twins}], 0.5)
    assert [hypothesis["n"] for hypothesis in record["hypotheses"]] == [0, 1, 2, 3]


def test_rescore_streams(standard):
    endless = ({**RECORDS[0], "id": number} for number in count())
    results = rescore(standard, endless, batch_tokens=20)
    assert [next(results)["id"] for _ in range(30)] == list(range(30))


@pytest.mark.parametrize("weight", [-0.1, 1.1, float("nan")])
def test_rescore_refuses_weights_outside_0_to_1(standard, weight):
    with pytest.raises(ConfigError, match="weight="):
        rescore(standard, RECORDS, weight)


def test_rescore_needs_a_softmax():
    with pytest.raises(ConfigError, match="no softmax"):
        rescore(elmokit.load(CHECKPOINTS / "standard", softmax=False), RECORDS)


def test_read_nbest_gives_the_records(tmp_path):
    path = tmp_path / "nbest.jsonl"
    lines = [json.dumps(record, ensure_ascii=False) for record in RECORDS]
    path.write_text("\ufeff" + "\n\n".join(lines) + "\n", "utf-8")
    assert list(read_nbest(path)) == RECORDS


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"{", "line 2: not a line of JSON"),
        (b"\xff", "line 2: byte 0 .0xff. is not valid UTF-8"),
        (b"[1]", "line 2: expected an object with a list 'hypotheses'"),
        (b'{"hypotheses": 1}', "list 'hypotheses'"),
        (b'{"hypotheses": ["a"]}', "line 2, hypothesis 1: expected an object"),
        (b'{"hypotheses": [{"score": 1}]}', "hypothesis 1: 'text'"),
        (b'{"hypotheses": [{"text": ["a", 1], "score": 1}]}', "hypothesis 1: 'text'"),
        (b'{"hypotheses": [{"text": "a"}]}', "'score' must be a number"),
        (b'{"hypotheses": [{"text": "a", "score": true}]}', "'score' must be a number"),
        (b'{"hypotheses": [{"text": "a", "score": NaN}]}', "'score' must be finite"),
        (b'{"hypotheses": [{"text": "a", "score": -Infinity}]}', "'score' must be finite"),
        (b'{"hypotheses": [{"text": "a", "score": 1' + b"0" * 400 + b"}]}", "must be finite"),
    ],
)
def test_read_nbest_names_the_bad_line(tmp_path, line, message):
    path = tmp_path / "nbest.jsonl"
    path.write_bytes(b'{"hypotheses": []}\n' + line + b"\n")
    with pytest.raises(DataError, match=rf"nbest\.jsonl, .*{message}|{message}"):
        list(read_nbest(path))


def test_read_nbest_without_a_file(tmp_path):
    for path in (tmp_path / "none.jsonl", tmp_path):
        with pytest.raises(DataError, match=r"no such file|is a folder"):
            read_nbest(path)


def test_rescore_names_the_bad_record(standard):
    with pytest.raises(DataError, match="record 2: expected"):
        list(rescore(standard, [RECORDS[0], {"id": 1}]))
