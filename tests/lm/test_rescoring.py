"""N-best lists in a new order."""

import json
import sys
from itertools import count
from pathlib import Path

import pytest

import elmokit
from elmokit import ConfigError, DataError
from elmokit.errors import MissingExtraError
from elmokit.lm.nbest import read_nbest
from elmokit.lm.rescoring import WEIGHTS, forward_only, rescore, tune_weight, word_errors
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


def write(folder, files):
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return folder


WHISPER = {
    "text": " The cat sat.",
    "segments": [
        {"id": 0, "seek": 0, "text": " The cat", "tokens": [50364, 383, 3857], "avg_logprob": -0.5},
        {"id": 1, "seek": 0, "text": " sat.", "tokens": [1], "avg_logprob": -0.25},
    ],
    "language": "en",
}
SHERPA = {
    "lang": "",
    "text": " THE CAT SAT",
    "timestamps": [0.0, 0.4],
    "tokens": [" THE", " CAT SAT"],
    "ys_log_probs": [-0.5, -0.75],
}


def test_kaldi_lists_are_read_as_they_are(tmp_path):
    # nbest-to-linear writes costs; the order of an archive is that of its keys, as text.
    files = {
        "archives.1/words_text": "s1-utt-1 the cat sat\ns1-utt-10 the cad\ns1-utt-2 the cat\n",
        "archives.1/acwt": "s1-utt-1 120.5 \ns1-utt-10 140\ns1-utt-2 130 \n",
        "archives.1/lmwt.nolm": "s1-utt-1 1\ns1-utt-10 1\ns1-utt-2 1\n",
        "archives.1/lmwt.withlm": "s1-utt-1 8.25\ns1-utt-10 9\ns1-utt-2 7.5\n",
        "archives.2/words_text": "b-1\n",
        "archives.2/acwt": "b-1 10\n",
        "archives.2/lmwt.withlm": "b-1 2\n",
        "archives.10/words_text": "c-1 end\n",
        "archives.10/acwt": "c-1 10\n",
        "archives.10/lmwt.withlm": "c-1 2\n",
    }
    records = list(read_nbest(write(tmp_path, files)))
    assert [record["id"] for record in records] == ["s1-utt", "b", "c"]
    first = records[0]["hypotheses"]
    assert [hypothesis["text"] for hypothesis in first] == ["the cat sat", "the cat", "the cad"]
    assert [h["score"] for h in first] == pytest.approx([-20.3, -20.5, -23.0])
    assert records[1]["hypotheses"] == [{"text": "", "score": -3.0, "acoustic": -10.0}]
    (chain,) = list(read_nbest(tmp_path / "archives.2", acoustic_scale=1))
    assert chain["hypotheses"][0]["score"] == -12
    assert list(read_nbest(tmp_path / "archives.2" / "words_text")) == [records[1]]


def test_espnet_lists_are_read_as_they_are(tmp_path):
    files = {
        f"logdir/output.{job}/{n}best_recog/{name}": text
        for job, utterance in ((1, "a"), (2, "b"))
        for n in (1, 2, 10)
        for name, text in {
            "text": f"{utterance} THE CAT {n}\n",
            "score": f"{utterance} tensor(-{n}.5)\n" if n == 2 else f"{utterance} -{n}.25\n",
            "token": f"{utterance} ▁THE ▁CAT\n",
        }.items()
    }
    want = [
        {"text": "THE CAT 1", "score": -1.25},
        {"text": "THE CAT 2", "score": -2.5},
        {"text": "THE CAT 10", "score": -10.25},
    ]
    for folder in (write(tmp_path, files), tmp_path / "logdir"):
        assert list(read_nbest(folder)) == [
            {"id": "a", "hypotheses": want},
            {"id": "b", "hypotheses": want},
        ]
    (first,) = read_nbest(tmp_path / "logdir" / "output.1")
    assert first["id"] == "a"
    outputs = [
        {"name": f"target1[{n}]", "text": "THE CAT", "rec_text": f"THE CAT {n}<eos>", "score": -n}
        for n in (1, 2)
    ]
    old = write(tmp_path / "old", {"data.json": json.dumps({"utts": {"u": {"output": outputs}}})})
    hypotheses = [{"text": "THE CAT 1", "score": -1}, {"text": "THE CAT 2", "score": -2}]
    record = {"id": "u", "hypotheses": hypotheses, "reference": "THE CAT"}
    assert list(read_nbest(old / "data.json")) == [record]


def test_results_of_whisper_and_sherpa_onnx_are_read_as_they_are(tmp_path):
    whisper = {"text": "The cat sat.", "score": -1.75}
    sherpa = {"text": "THE CAT SAT", "score": -1.25}
    files = {"a.json": json.dumps(WHISPER, indent=2), "b.json": json.dumps([WHISPER, SHERPA])}
    assert list(read_nbest(write(tmp_path / "folder", files))) == [
        {"id": "a", "hypotheses": [whisper]},
        {"id": "b", "hypotheses": [whisper, sherpa]},
    ]
    nbest = {"text": "THE CAT", "hypotheses": [{"text": "THE CAT", "score": -2.5, "tokens": []}]}
    lines = "".join(f"{json.dumps(value)}\n" for value in (WHISPER, {"id": 3, **SHERPA}, nbest))
    records = list(read_nbest(write(tmp_path, {"lines.jsonl": lines}) / "lines.jsonl"))
    assert records == [{"hypotheses": [whisper]}, {"id": 3, "hypotheses": [sherpa]}, nbest]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"words_text": "a-1 b\n", "acwt": "a-1 1\n"}, "lmwt.withlm or lmwt"),
        ({"words_text": "a-1 b\n", "acwt": "", "lmwt": "a-1 1\n"}, "no line for 'a-1'"),
        ({"words_text": "a b\n", "acwt": "", "lmwt": ""}, "'a' is not UTTERANCE-NUMBER"),
        ({"words_text": "a-1 b\n", "acwt": "a-1 x\n", "lmwt": ""}, "'a-1' has no number: 'x'"),
        ({"words_text": "a-1 b\n", "lmwt": ""}, "no such file: .*acwt"),
        ({"1best_recog/text": "a b\n", "1best_recog/score": "c 1\n"}, "score: no line for 'a'"),
        ({"1best_recog/text": "a b\n", "1best_recog/score": "a nan\n"}, "must be finite"),
        ({"a.json": '{"text": "b"}'}, "a.json: the result has no score"),
        ({"a.json": '{"text": "b", "segments": [1]}'}, "probabilities cannot be read"),
        ({"a.json": "{"}, "a.json: not valid JSON"),
        ({"a.json": '{"utts": {"u": 1}}'}, "'u' has no list 'output'"),
        ({"a.json": '{"utts": {"u": {"output": [1]}}}'}, "without 'rec_text'"),
    ],
)
def test_read_nbest_names_what_is_wrong_with_a_folder(tmp_path, files, message):
    with pytest.raises(DataError, match=message):
        list(read_nbest(write(tmp_path, files)))


def test_word_errors_are_those_of_jiwer():
    jiwer = pytest.importorskip("jiwer")
    record = {
        "id": 7,
        "reference": "the cat sat on  the mat",
        "hypotheses": [
            {"text": "the cat sat on the mat"},
            {"text": ["the", "cad", "on", "the", "the", "mat"]},
            {"text": ""},
        ],
    }
    found = word_errors(record)
    assert [errors.errors for errors in found] == [0, 3, 6]
    both = found[0] + found[1]
    texts = ["the cat sat on the mat"] * 2, ["the cat sat on the mat", "the cad on the the mat"]
    assert both.rate == pytest.approx(jiwer.wer(*texts))
    assert word_errors(record, {"7": ""})[1].errors == 6
    with pytest.raises(DataError, match="utterance '7': no reference"):
        word_errors(record, {"8": "a"})


def test_word_errors_name_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "jiwer", None)
    with pytest.raises(MissingExtraError, match=r"elmokit\[asr\]"):
        word_errors({"reference": "a", "hypotheses": []})


def test_tune_weight_finds_the_weight_with_the_fewest_errors(standard):
    pytest.importorskip("jiwer")
    texts = ["the cat sat", "a big dog ran", "it was the end", "."]
    records = [
        {
            "id": str(n),
            "reference": texts[n % 4],
            "hypotheses": [
                {"text": t, "score": -float((i * 7 + n) % 5)} for i, t in enumerate(texts)
            ],
        }
        for n in range(6)
    ]
    tuned = tune_weight(standard, [*records, {"id": "none", "hypotheses": []}])
    assert set(tuned) == set(WEIGHTS)
    for weight, total in tuned.items():
        ranked = rescore(standard, records, weight)
        assert total.errors == sum(word_errors(record)[0].errors for record in ranked)
    assert list(tuned) == sorted(tuned, key=lambda weight: (tuned[weight].errors, weight))
    with pytest.raises(DataError, match="nothing to tune"):
        tune_weight(standard, [])


def test_forward_only_scores_from_the_left(standard):
    sentences = ["the cat sat on the mat .", "unseen dogs"]
    for found, want in zip(
        score(forward_only(standard, "float32"), sentences), score(standard, sentences), strict=True
    ):
        assert found.backward is None
        assert found.logprob == pytest.approx(want.forward_logprob, abs=1e-4)
    fast = score(forward_only(standard), sentences)
    exact = [found.forward_logprob for found in score(standard, sentences)]
    assert [found.logprob for found in fast] == pytest.approx(exact, rel=0.02)
