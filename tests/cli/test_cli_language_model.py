from __future__ import annotations

import io
import json
import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest
from pages import code_of, commands, run_page

from elmokit.cli import main
from elmokit.lm.generation import generate
from elmokit.lm.perplexity import perplexity
from elmokit.lm.scoring import score
from elmokit.lm.stimuli import read_stimuli
from elmokit.lm.substitutes import substitutes
from elmokit.text import join_tokens

GOLDEN = Path(__file__).parents[1] / "golden"
STANDARD = GOLDEN / "tf-checkpoint" / "standard"
PAGE = "docs/language-model.md"
EXAMPLES = dict.fromkeys(command.line for command in commands(PAGE))
LINES = ["the cat sat on the mat .", "", "unseen dogs", "The big red house !"]
NBEST = [
    {"id": "u1", "hypotheses": [{"text": t, "score": -n} for n, t in enumerate(LINES)]},
    {"id": "u2", "hypotheses": []},
]


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "lines.txt"
    path.write_text("".join(f"{line}\n" for line in LINES), "utf-8")
    return path


@pytest.fixture
def nbest(tmp_path):
    path = tmp_path / "nbest.jsonl"
    path.write_text("".join(f"{json.dumps(record)}\n" for record in NBEST), "utf-8")
    return path


def test_score_prints_one_line_a_sentence(run, standard, text):
    result = run("score", "--model", STANDARD, text)
    assert result.code == 0, result.err
    header, *lines = result.out.splitlines()
    assert header.split() == ["logprob", "perplexity", "sentence"]
    for line, want in zip(lines, score(standard, LINES), strict=True):
        logprob, perplexed, *words = line.split()
        assert float(logprob) == pytest.approx(want.logprob, abs=6e-4)
        assert float(perplexed) == pytest.approx(want.perplexity, rel=1e-3)
        assert words == want.tokens


def test_score_json_has_every_number(run, standard, text):
    lines = run("score", "--model", STANDARD, text, "--json").out.splitlines()
    for line, want in zip(lines, score(standard, LINES), strict=True):
        report = json.loads(line)
        assert set(report) == set(want.to_dict())
        assert (report["tokens"], report["unknown"]) == (want.tokens, want.unknown.tolist())
        assert report["perplexity"] == pytest.approx(want.perplexity, rel=1e-5)
        np.testing.assert_allclose(report["forward"], want.forward, atol=1e-5)
        np.testing.assert_allclose(report["backward"], want.backward, atol=1e-5)


def test_score_takes_a_sentence_and_standard_input(run, monkeypatch):
    sentence = run("score", "--model", STANDARD, LINES[0])
    assert sentence.code == 0
    for arguments in ([], ["-"], ["-", "--tokens"]):
        stdin = io.TextIOWrapper(io.BytesIO(LINES[0].encode() + b"\n"))
        monkeypatch.setattr("sys.stdin", stdin)
        assert run("score", "--model", STANDARD, *arguments) == sentence
    missing = run("score", "--model", STANDARD, "no-such-file.txt")
    assert missing.code == 1
    assert "no such file" in missing.err


@pytest.mark.parametrize("sentence", ["hello", "我爱北京。", "Hello.", "and / or.txt"])
def test_score_takes_a_sentence_of_one_word(run, sentence):
    result = run("score", "--model", STANDARD, sentence, "--json")
    assert result.code == 0, result.err
    tokens = json.loads(result.out)["tokens"]
    assert "".join(tokens) == sentence.replace(" ", "")


@pytest.mark.parametrize("name", ["lines.TXT", "lines.jsonl.gz", "folder/lines", "lines.csv"])
def test_score_takes_no_missing_file_for_a_sentence(run, name):
    result = run("score", "--model", STANDARD, name)
    assert (result.code, "no such file" in result.err) == (1, True)


def test_score_ranks_nbest_lists(run, nbest, tmp_path):
    shown = run("score", "--model", STANDARD, "--nbest", nbest, "--weight", 0.25)
    assert shown.code == 0, shown.err
    records = [json.loads(line) for line in shown.out.splitlines()]
    assert [record["id"] for record in records] == ["u1", "u2"]
    totals = [0.75 * h["score"] + 0.25 * h["lm_score"] for h in records[0]["hypotheses"]]
    assert totals == sorted(totals, reverse=True)
    output = tmp_path / "ranked.jsonl"
    written = run("score", "--model", STANDARD, "--nbest", nbest, "-o", output, "--weight", 0.25)
    assert (written.code, written.out) == (0, "")
    assert output.read_text("utf-8") == shown.out


def test_score_tunes_the_weight_and_prints_word_error_rates(run, standard, tmp_path):
    pytest.importorskip("jiwer")
    texts = sorted(["the cat sat .", "mat end to"], key=lambda t: score(standard, t).logprob)
    # Kaldi's costs: the recogniser slightly prefers what the language model likes less.
    for name, costs in {"words_text": texts, "acwt": (10, 11), "lmwt": (2, 2)}.items():
        lines = [f"u-{n} {cost}\n" for n, cost in enumerate(costs, start=1)]
        (tmp_path / name).write_text("".join(lines), "utf-8")
    said = tmp_path / "said"
    said.write_text(f"u {texts[1]}\n", "utf-8")
    nbest = ["score", "--model", STANDARD, "--nbest", tmp_path, "--references", said]
    tuned = run(*nbest, "--dev", tmp_path, "--dev-references", said, "-o", tmp_path / "ranked")
    assert (tuned.code, tuned.out) == (0, "")
    dev, test = tuned.err.splitlines()
    assert re.fullmatch(r"word error rate, .*: 1\d\d.*% before, 0.00% with weight 0\.\d+", dev)
    assert re.fullmatch(r"word error rate: 1\d\d.*% before, 0.00% after", test)
    assert json.loads((tmp_path / "ranked").read_text("utf-8"))["hypotheses"][0]["text"] == texts[1]
    same = run(*nbest, "--weight", 0)
    before, after = re.findall(r"[\d.]+%", same.err)
    assert before == after
    fast = json.loads(run(*nbest, "--forward", "--acoustic-scale", 1).out)
    assert sorted(h["score"] for h in fast["hypotheses"]) == [-13, -12]
    for hypothesis in fast["hypotheses"]:
        want = score(standard, hypothesis["text"]).forward_logprob
        assert hypothesis["lm_score"] == pytest.approx(want, rel=0.02)


def test_score_leaves_no_half_file(run, nbest, tmp_path):
    with nbest.open("a") as file:
        file.write("no json\n")
    output = tmp_path / "ranked.jsonl"
    result = run("score", "--model", STANDARD, "--nbest", nbest, "-o", output)
    assert result.code == 1
    assert "nbest.jsonl, line 3: not a line of JSON" in result.err
    assert list(tmp_path.iterdir()) == [nbest]
    same = run("score", "--model", STANDARD, "--nbest", nbest, "-o", nbest)
    assert (same.code, "same file" in same.err) == (1, True)


def test_score_writes_lone_surrogates_of_nbest_lists(run, tmp_path):
    nbest, output = tmp_path / "nbest.jsonl", tmp_path / "ranked.jsonl"
    record = {"id": "\ud800", "hypotheses": [{"text": "the cat", "score": -1}]}
    nbest.write_text(json.dumps(record) + "\n", "utf-8")
    result = run("score", "--model", STANDARD, "--nbest", nbest, "-o", output)
    assert (result.code, result.err) == (0, "")
    assert json.loads(output.read_text("utf-8"))["id"] == "\ud800"


def test_perplexity_prints_text_and_json(run, standard, text):
    want = perplexity(standard, LINES)
    plain = run("perplexity", "--model", STANDARD, text)
    assert (plain.code, plain.err) == (0, "")
    assert plain.out == f"{want}\n"
    report = json.loads(run("perplexity", "--model", STANDARD, text, "--json", "--tokens").out)
    assert set(report) == {"model", "text", *want.to_dict()}
    assert (report["model"], report["text"]) == (str(STANDARD), str(text))
    assert (report["tokens"], report["predictions"]) == (want.tokens, want.predictions)
    assert report["perplexity"] == pytest.approx(want.perplexity, rel=1e-5)


def test_perplexity_carries_state(run, standard, text):
    options = ["--state", "carry", "--carry-rows", 2, "--json"]
    report = json.loads(run("perplexity", "--model", STANDARD, text, *options).out)
    want = perplexity(standard, LINES, state="carry", rows=2)
    assert report["perplexity"] == pytest.approx(want.perplexity, rel=1e-5)
    assert report["state"] == "carry"
    few = run("perplexity", "--model", STANDARD, text, "--state", "carry")
    assert (few.code, few.out) == (1, "")
    assert "3 sentences, fewer than the 256 rows" in few.err


def test_surprisal_writes_tables(run, standard, tmp_path):
    stimuli, output = tmp_path / "stimuli.csv", tmp_path / "table.csv"
    stimuli.write_text(
        'item,regions\n"1, a",the cat|sat||on the mat .\n2,東京 |unseen !\n', "utf-8"
    )
    table = standard.surprisal(read_stimuli(stimuli))
    table.save(tmp_path / "expected.csv")
    want = (tmp_path / "expected.csv").read_text("utf-8")
    result = run("surprisal", "--model", STANDARD, stimuli, "-o", output)
    assert (result.code, result.out, result.err) == (0, "", f"{len(table)} words: {output}\n")
    assert output.read_text("utf-8") == want
    assert run("surprisal", "--model", STANDARD, stimuli).out == want
    shown = run("surprisal", "--model", STANDARD, stimuli, "--json", "--state", "carry")
    carried = standard.surprisal(read_stimuli(stimuli), state="carry")
    assert [json.loads(line) for line in shown.out.splitlines()] == carried
    parquet = tmp_path / "table.parquet"
    assert run("surprisal", "--model", STANDARD, stimuli, "-o", parquet).code == 0
    assert parquet.read_bytes()[:4] == b"PAR1"


def test_surprisal_takes_a_sentence_and_standard_input(run, monkeypatch):
    sentence = run("surprisal", "--model", STANDARD, LINES[0], "--json")
    assert [json.loads(line)["word"] for line in sentence.out.splitlines()] == LINES[0].split()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(LINES[0].encode() + b"\n")))
    piped = run("surprisal", "-", "--model", STANDARD, "--json")
    for one, two in zip(piped.out.splitlines(), sentence.out.splitlines(), strict=True):
        assert json.loads(one) == {"document": 1, **json.loads(two)}


def test_surprisal_leaves_no_half_file(run, tmp_path):
    stimuli = tmp_path / "stimuli.csv"
    stimuli.write_text("item,text\n" + "1,the cat sat .\n" * 3000 + "1\n", "utf-8")
    result = run("surprisal", "--model", STANDARD, stimuli, "-o", tmp_path / "table.csv")
    assert result.code == 1
    assert "stimuli.csv, line 3002: 1 columns where the header has 2" in result.err
    assert list(tmp_path.iterdir()) == [stimuli]


def test_substitutes_prints_text_and_json(run, standard):
    want = substitutes(standard, LINES[0].split(), 2, k=4)
    plain = run("substitutes", "--model", STANDARD, LINES[0], "--word", "sat", "-k", 4)
    assert plain.code == 0, plain.err
    assert [line.split()[-1] for line in plain.out.splitlines()[1:]] == [s.word for s in want]
    by_place = run("substitutes", "--model", STANDARD, LINES[0], "--position", 2, "-k", 4)
    assert by_place.out == plain.out
    gap = run("substitutes", "--model", STANDARD, LINES[0].replace("sat", "____"), "-k", 4)
    assert gap.out == plain.out
    options = ["--position", 2, "-k", 4, "--json", "--tokens"]
    report = json.loads(run("substitutes", "--model", STANDARD, LINES[0], *options).out)
    assert (report["tokens"], report["position"]) == (LINES[0].split(), 2)
    assert [found["word"] for found in report["substitutes"]] == [s.word for s in want]
    assert report["substitutes"][0]["backward"] == pytest.approx(want[0].backward, abs=1e-5)


def test_substitutes_of_a_repeated_word_takes_the_first(run):
    result = run("substitutes", "--model", STANDARD, LINES[0], "--word", "the", "--json")
    assert json.loads(result.out)["position"] == 0
    assert "2 times" in result.err


def test_substitutes_of_a_left_to_right_model(run):
    model = GOLDEN / "tf-checkpoint" / "unidirectional"
    assert run("substitutes", "--model", model, LINES[0], "--word", "cat").code == 0


def test_generate_prints_prompt_and_text(run, standard):
    result = run("generate", "--model", STANDARD, "the cat", "--tokens", 8, "--seed", 4)
    assert result.code == 0, result.err
    want = ["the", "cat", *generate(standard, "the cat", tokens=8, seed=4)]
    assert result.out == join_tokens(want) + "\n"
    assert result.out == standard.generate("the cat", 8, seed=4) + "\n"
    greedy = run(
        "generate", "--model", STANDARD, "the cat", "--temperature", 0, "--top-p", 0.5, "--top-k", 3
    )
    assert greedy.out == standard.generate("the cat", temperature=0) + "\n"
    assert run("generate", "--model", STANDARD).code == 0


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["score", "the bank lent money ."], "the bank lent money ."),
        (["perplexity", "lines.txt"], "perplexity"),
        (["substitutes", "the bank lent money .", "--word", "money"], "backward"),
        (["generate", "the bank", "--tokens", 3], "the bank"),
        (["info"], "LSTM"),
    ],
)
def test_verbs_take_the_embedded_model_when_none_is_given(
    run, monkeypatch, text, arguments, expected
):
    monkeypatch.chdir(text.parent)
    result = run(*arguments)
    assert (result.code, expected in result.out) == (0, True), result.err


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        (["score", "--model", GOLDEN / "allennlp", "a b"], 1, "no softmax"),
        (["perplexity", "--model", GOLDEN / "allennlp", "-"], 1, "--softmax"),
        (["substitutes", "--model", GOLDEN / "allennlp", "a b", "--word", "a"], 1, "no softmax"),
        (["generate", "--model", GOLDEN / "allennlp", "a b"], 1, "no softmax"),
        (["score", "--model", STANDARD, "a b", "--nbest", "x.jsonl"], 2, "--nbest"),
        (["score", "--model", STANDARD, "a b", "-o", "x.jsonl"], 2, "--output"),
        (["score", "--model", STANDARD, "--nbest", "x.jsonl", "--weight", "2"], 2, "--weight"),
        (["score", "--model", STANDARD, "--nbest", "none.jsonl"], 1, "no such file"),
        (
            ["score", "--model", STANDARD, "a b", "--tokens", "--tokenizer", "words"],
            2,
            "--tokenizer",
        ),
        (["score", "--model", STANDARD, "a b", "--device", "nowhere"], 1, "nowhere"),
        (["perplexity", "--model", STANDARD], 2, "TEXT"),
        (["perplexity", "--model", STANDARD, "a.txt", "--state", "warm"], 2, "fresh"),
        (["surprisal", "--model", STANDARD, "a b", "-o", "a.xlsx"], 1, "ends in .csv, .tsv"),
        (["surprisal", "--model", STANDARD, "a b", "-o", "a.csv", "--json"], 2, "--json"),
        (["surprisal", "--model", STANDARD, "missing.csv"], 1, "no such file"),
        (["substitutes", "--model", STANDARD, "a b"], 2, "or a sentence with ____"),
        (
            ["substitutes", "--model", STANDARD, "a b", "--word", "a", "--position", "0"],
            2,
            "--position",
        ),
        (["substitutes", "--model", STANDARD, "a b", "--word", "c"], 1, "a | b"),
        (["substitutes", "--model", STANDARD, "a b", "--position", "2"], 1, "outside the sentence"),
        (
            ["substitutes", "--model", STANDARD, "a b", "--position", "-1"],
            1,
            "outside the sentence",
        ),
        (["generate", "--model", STANDARD, "a", "--temperature", "-1"], 2, "--temperature"),
        (["generate", "--model", STANDARD, "a", "--top-p", "0"], 2, "--top-p"),
    ],
)
def test_language_model_errors_are_one_line(run, monkeypatch, arguments, code, expected):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"a b\n")))
    result = run(*arguments)
    assert (result.code, result.out) == (code, "")
    assert expected in result.err
    assert len(result.err.splitlines()) == 1


@pytest.fixture
def example_folder(tmp_path, monkeypatch, standard):
    """A folder with the files that the examples name."""
    import h5py

    monkeypatch.chdir(tmp_path)
    standard.save("my-model")
    shutil.copy(GOLDEN / "bilm-hdf5" / "standard" / "weights.hdf5", tmp_path)
    for file in STANDARD.iterdir():
        shutil.copy(file, tmp_path / file.name.replace("ckpt-12", "ckpt-935588"))
    weights = standard.checkpoint().weights
    with h5py.File("softmax.hdf5", "w") as file:
        file["softmax/W"] = weights["softmax.weight"].numpy()
        file["softmax/b"] = weights["softmax.bias"].numpy()
    Path("heldout.txt").write_text("".join(f"{line}\n" for line in LINES), "utf-8")
    documents = [f"{line} {number}\n\n" for number in range(200) for line in LINES if line]
    Path("corpus.txt").write_text("".join(documents), "utf-8")
    (record,) = code_of(PAGE, "json")
    Path("nbest.jsonl").write_text(record, "utf-8")
    dev = {**json.loads(record), "reference": "the cat sat ."}
    Path("dev.jsonl").write_text(json.dumps(dev), "utf-8")
    Path("text").write_text("u1 the cat sat .\n", "utf-8")
    return tmp_path


@pytest.mark.parametrize("example", EXAMPLES)
def test_language_model_examples_run(example_folder, capsys, example):
    program, *arguments = shlex.split(example)
    assert program == "elmokit"
    if "--counts" in arguments:
        assert main(["corpus", "prepare", "corpus.txt", "-o", "corpus"]) == 0
    assert main(arguments) == 0, capsys.readouterr().err


def test_language_model_page_runs(example_folder, capsys):
    assert len(code_of(PAGE, "python")) == 6
    run_page(PAGE, capsys.readouterr, shows_output=False)
