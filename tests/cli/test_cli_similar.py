from __future__ import annotations

import json

import pytest

import elmokit

BANKS = ("the bank of the river", "the bank lent money")


def test_similar_prints_every_layer(run, model):
    result = run("similar", *BANKS, "--word", "bank", "--model", model)
    assert result.code == 0
    assert result.err == ""
    header, *rows = (line.split() for line in result.out.splitlines())
    assert header == ["layer", "cosine"]
    assert [row[0] for row in rows] == ["0", "1", "2", "mean"]
    assert rows[0][1] == "1.0000"  # the token vector knows no context
    assert all(-1 <= float(value) < 1 for _, value in rows[1:])


def test_similar_json_holds_what_the_table_shows(run, model):
    arguments = ("similar", *BANKS, "--word", "river", "--word2", "money", "--model", model)
    table = [line.split()[1] for line in run(*arguments).out.splitlines()[1:]]
    report = json.loads(run(*arguments, "--json").out)
    cosines = [*report["cosine"]["layers"], report["cosine"]["mean"]]
    assert [f"{value:.4f}" for value in cosines] == table
    assert [use["position"] for use in report["uses"]] == [4, 3]
    assert report["uses"][1]["tokens"] == BANKS[1].split()


def test_similar_whole_sentences(run, model):
    report = json.loads(run("similar", BANKS[0], BANKS[0], "--model", model, "--json").out)
    assert report["cosine"]["mean"] == pytest.approx(1)
    assert report["uses"][0]["position"] is None


def test_similar_finds_uses_in_a_file(run, lines_file, model):
    arguments = ("similar", "the bank of the river .", "--word", "bank", "--in", lines_file)
    result = run(*arguments, "--model", model)
    assert result.code == 0
    assert result.out.splitlines()[1:] == [
        " 1.0000       1  the [bank] of the river .",
        result.out.splitlines()[2],
    ]
    assert result.out.splitlines()[2].endswith("       3  Größe 東京 the [bank] lent money")
    uses = json.loads(run(*arguments, "--model", model, "-k", 1, "--json").out)["uses"]
    assert [(use["line"], use["position"]) for use in uses] == [(1, 1)]


def test_similar_shows_a_long_sentence_in_part(run, tmp_path, model):
    path = tmp_path / "long.txt"
    path.write_text("x " * 30 + "bank" + " y" * 30)
    result = run("similar", BANKS[0], "--word", "bank", "--in", path, "--model", model)
    assert result.out.splitlines()[1].endswith("  … " + "x " * 10 + "[bank]" + " y" * 10 + " …")


def test_similar_other_word_in_a_file(run, lines_file, model):
    arguments = ("--word", "bank", "--word2", "money", "--in", lines_file, "--layers", "top")
    result = run("similar", BANKS[0], *arguments, "--model", model)
    assert "lent [money]" in result.out


def test_similar_word_that_the_file_lacks(run, lines_file, model):
    result = run("similar", "a Bank", "--word", "Bank", "--in", lines_file, "--model", model)
    assert (result.code, result.out) == (0, "")
    assert "no token 'Bank'" in result.err


def test_similar_word_that_the_sentence_lacks(run, model):
    result = run("similar", *BANKS, "--word", "money", "--model", model)
    assert result.code == 1
    assert result.err == (
        "elmokit: error: no token 'money' in the sentence; its tokens are: "
        "the | bank | of | the | river\n"
    )


def test_similar_tells_which_of_several_it_takes(run, model):
    result = run("similar", *BANKS, "--word", "the", "--model", model)
    assert result.code == 0
    assert "2 times" in result.err


def test_similar_hyphen_is_a_word(run, model):
    assert run("similar", "a - b", "c - d", "--word", "-", "--model", model).code == 0


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["a", " "], "no tokens"),
        (["a", "--word", "a", "--in", "none.txt"], "none.txt"),
        (["a", "--word", "a", "--in", "-", "--layers", "all"], "'all'"),
    ],
)
def test_similar_bad_input(run, model, arguments, expected):
    result = run("similar", *arguments, "--model", model)
    assert result.code == 1
    assert expected in result.err


def test_similar_removes_what_a_text_has_in_common(run, model, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("the bank of the river .\na bank lent me the money .\n\n" * 40, "utf-8")
    arguments = ("similar", *BANKS, "--word", "bank", "--model", model, "--json")
    elmo = elmokit.load(model)
    stream = elmo.encode_stream(text.read_text("utf-8").splitlines(), layers="all")
    common = elmokit.CommonDirections.fit(stream)
    plain, clean = (
        json.loads(run(*arguments, *more).out)["cosine"] for more in ((), ("--background", text))
    )
    expected = elmo.similar(*BANKS, word="bank", without=common)
    assert clean["layers"] == pytest.approx(expected.layers)
    assert clean["mean"] == pytest.approx(expected.mean) != plain["mean"]
    search = ("similar", BANKS[0], "--word", "bank", "--in", text, "-k", "1", "--json")
    (use,) = json.loads(run(*search, "--model", model, "--background", text).out)["uses"]
    assert use["tokens"] == ["the", "bank", "of", "the", "river", "."]


def test_similar_background_without_enough_tokens_is_one_line(run, model, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("the bank\n", "utf-8")
    result = run("similar", *BANKS, "--model", model, "--background", text)
    assert result.code == 1
    assert result.err.startswith(f"elmokit: error: {text}: 2 tokens are too few")
    assert len(result.err.splitlines()) == 1
