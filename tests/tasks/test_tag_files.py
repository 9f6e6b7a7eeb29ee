"""Files of tags: CoNLL columns, CoNLL-U and JSONL."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from elmokit.errors import DataError
from elmokit.tasks import TaggedExample, fit, task_settings, write_examples

CONLL = """# a comment
-DOCSTART- -X- O O

EU NNP B-NP B-ORG
rejects VBZ B-VP O

# NN B-NP O
"""


def test_conll_columns_comments_and_documents(read):
    found = read("tag", "a.txt", CONLL)
    assert found == [
        TaggedExample(
            ("EU", "rejects"),
            ("B-ORG", "O"),
            columns={"1": ("NNP", "VBZ"), "2": ("B-NP", "B-VP")},
        ),
        TaggedExample(("#",), ("O",), columns={"1": ("NN",), "2": ("B-NP",)}),
    ]


@pytest.mark.parametrize(
    ("start", "tokens"),
    [
        ("# O\nsaw O\n", ("#", "saw")),
        ("# O\n# O\nsaw O\n", ("#", "#", "saw")),
        ("# a comment\n# O\nsaw O\n", ("#", "saw")),
        ("# O\n# a comment\nsaw O\n", ("saw",)),
        ("# comment\n\nsaw O\n", ("saw",)),
        ("# a=b\nsaw O\n", ("saw",)),
        ("# id 7 domain=en\nsaw _ _ O\n", ("saw",)),
    ],
    ids=["token", "tokens", "both", "comments", "alone", "value", "columns"],
)
def test_conll_first_line_may_be_a_token_or_a_comment(read, start, tokens):
    assert [e.tokens for e in read("tag", "a.conll", start)] == [tokens]


def test_conll_comments_with_as_many_columns_are_no_tokens(read):
    sentence = "# id 7 domain=en\nsaw _ _ O\n\n"
    assert [e.tokens for e in read("tag", "a.conll", sentence * 2)] == [("saw",), ("saw",)]


def test_conll_column_of_tags_can_be_chosen(read):
    found = read("tag", "a.conll", CONLL, fields={"tags": "1"})
    assert found[0].tags == ("NNP", "VBZ")
    assert set(found[0].columns) == {"2", "3"}


def test_conll_tabs_keep_hash_tags_and_spaces(read):
    found = read("tag", "a.conll", "#yolo\tO\nNew York\tB-LOC\n \n# hash\tO\n\n# a=b\tO\n")
    assert [e.tokens for e in found] == [("#yolo", "New York"), ("# hash",), ("# a=b",)]


def test_conll_without_tags_is_for_prediction(read):
    assert read("tag", "a.conll", "EU\nrejects\n", labelled=False) == [
        TaggedExample(("EU", "rejects"))
    ]


CONLLU = """# sent_id = 1
# text = Don't go
1-2\tDon't\t_\t_\t_\t_\t_\t_\t_\t_
1\tDo\tdo\tAUX\tVB\t_\t3\taux\t_\t_
2\tn't\tnot\tPART\tRB\t_\t3\tadvmod\t_\t_
2.1\tyou\tyou\tPRON\tPRP\t_\t_\t_\t_\t_
3\tgo\tgo\tVERB\tVB\t_\t0\troot\t_\t_
"""


def test_conllu_skips_multiword_tokens_and_empty_nodes(read):
    (found,) = read("tag", "a.conllu", CONLLU)
    assert found.tokens == ("Do", "n't", "go")
    assert found.tags == ("AUX", "PART", "VERB")
    assert found.columns["xpos"] == ("VB", "RB", "VB")


def test_conllu_column_of_tags_can_be_chosen(read):
    assert read("tag", "a.conllu", CONLLU, fields={"tags": "XPOS"})[0].tags == ("VB", "RB", "VB")
    with pytest.raises(DataError, match="no column 'pos' for tags"):
        read("tag", "a.conllu", CONLLU, fields={"tags": "pos"})


def test_tag_formats_are_told_by_their_first_line(read):
    assert read("tag", "a.txt", CONLLU)[0].tokens == ("Do", "n't", "go")
    assert read("tag", "b", '{"tokens": ["a"], "tags": ["O"]}')[0].tags == ("O",)
    assert read("tag", "c.txt", "EU rejects\n", labelled=False)[0].tokens == ("EU", "rejects")


def test_tag_jsonl_with_frames_is_one_example_a_predicate(read):
    line = json.dumps(
        {
            "tokens": ["I", "ran", "home"],
            "pos": ["PRP", "VBD", "NN"],
            "frames": [
                {"predicate": 1, "tags": ["B-ARG0", "B-V", "B-ARG4"]},
                {"predicate": 2, "tags": ["O", "O", "B-V"]},
            ],
        }
    )
    found = read("tag", "a.jsonl", line + '\n{"tokens": ["no", "verb"], "frames": []}\n')
    assert [(e.predicate, e.tags) for e in found] == [
        (1, ("B-ARG0", "B-V", "B-ARG4")),
        (2, ("O", "O", "B-V")),
    ]
    assert found[0].columns == {"pos": ("PRP", "VBD", "NN")}


# Which columns hold what, by what is in them

UNER = """# sent_id = one
# text = Anna saw Rome
1	Anna	B-PER	-	amy
2	saw	O	-	amy
3	Rome	B-LOC	-	amy

# sent_id = two
1	She	O	-	amy
2	slept	O	-	amy
"""
CONLL03 = """-DOCSTART- -X- -X- O

EU NNP B-NP B-ORG
rejects VBZ B-VP O
German JJ B-NP B-MISC
call NN I-NP O
. . O O
"""
ONTONOTES = """bc/cctv 0 0 In IN -
bc/cctv 0 1 Rome NNP -
bc/cctv 0 2 we PRP -
bc/cctv 0 3 slept VBD -
bc/cctv 0 4 . . -
"""


@pytest.mark.parametrize("name", ["a.iob2", "a.conll", "a.txt"])
def test_numbered_words_with_annotators_are_told(read, name):
    first, second = read("tag", name, UNER)
    assert (first.tokens, first.tags) == (("Anna", "saw", "Rome"), ("B-PER", "O", "B-LOC"))
    assert (second.tokens, second.tags) == (("She", "slept"), ("O", "O"))
    assert read("tag", name, UNER, labelled=False) == [first, second]
    other = read("tag", name, UNER, fields={"tags": "4"})[0]
    assert (other.tokens, other.tags) == (first.tokens, ("amy",) * 3)


def test_told_columns_are_written_where_they_were(read, tmp_path):
    examples = read("tag", "a.iob2", UNER)
    answers = [replace(e, tags=("O",) * len(e.tokens)) for e in examples]
    write_examples("tag", tmp_path / "b.iob2", answers)
    lines = (tmp_path / "b.iob2").read_text("utf-8").splitlines()
    assert lines[:2] == ["1\tAnna\tO\t-\tamy", "2\tsaw\tO\t-\tamy"]


def test_numbers_and_tags_alone_are_told(read):
    (found,) = read("tag", "a.conll", "1 Anna NOUN\n2 slept VERB\n")
    assert (found.tokens, found.tags) == (("Anna", "slept"), ("NOUN", "VERB"))
    (found,) = read("tag", "a.conll", "1 Anna\n2 slept\n", labelled=False)
    assert found.tokens == ("Anna", "slept")
    (found,) = read("tag", "a.conll", "1 CARD\n2 CARD\n")  # two columns: the words are numbers
    assert (found.tokens, found.tags) == (("1", "2"), ("CARD", "CARD"))


def test_tags_before_tokens_are_told(read, tmp_path):
    text = "O\tshow\nB-ACTOR\tclint\nI-ACTOR\teastwood\n\n"
    (found,) = read("tag", "a.bio", text)
    assert found.tokens == ("show", "clint", "eastwood")
    assert found.tags == ("O", "B-ACTOR", "I-ACTOR")


def test_conllu_under_another_name_is_told(read):
    for name in ("a.conll", "a.iob2", "a.txt"):
        (found,) = read("tag", name, CONLLU)
        assert found == read("tag", "a.conllu", CONLLU)[0]
        assert read("tag", name, "# sent_id = 1\n" + CONLLU, labelled=False) == [found]
        assert read("tag", name, CONLLU, fields={"tags": "xpos"})[0].tags == ("VB", "RB", "VB")


def test_last_column_of_several_holds_the_tags(read):
    (found,) = read("tag", "a.conll", CONLL03)
    assert found.tokens == ("EU", "rejects", "German", "call", ".")
    assert found.tags == ("B-ORG", "O", "B-MISC", "O", "O")
    same = read("tag", "a.conll", CONLL03.replace(" ", "\t"))
    assert same == [found]


@pytest.mark.parametrize(
    "text",
    [
        ONTONOTES,
        "a NN -\nb VB -\nc NN -\nd VB -\ne NN -\n",
        "1 a NN x\n2 b VB y\n3 c NN x\n",
    ],
    ids=["ontonotes", "dull", "numbered"],
)
def test_columns_that_cannot_be_told_are_an_error(read, text):
    advice = r"cannot be told from .*--field tokens=1 --field tags=2 on the command line, fields="
    with pytest.raises(DataError, match=rf"a\.conll, line 1: which .*{advice}"):
        read("tag", "a.conll", text)
    assert read("tag", "a.conll", text, fields={"tokens": "0", "tags": "1"})


def test_what_was_assumed_is_said_once(tmp_path, capsys):
    for part in ("train", "dev"):
        (tmp_path / f"{part}.iob2").write_text((UNER + "\n") * 3, "utf-8")
    files = tmp_path / "train.iob2", tmp_path / "dev.iob2"
    config = task_settings("tag", None, ["run.epochs=1", "inputs.words=4", "encoder.cells=4"])
    fit("tag", *files, elmo=None, config=config)
    told = [line for line in capsys.readouterr().err.splitlines() if "read as" in line]
    assert told == [f"{file}: read as --field tokens=1 --field tags=2" for file in files]
    fit("tag", *files, elmo=None, config=config, fields={"tokens": "1", "tags": "2"})
    assert "read as" not in capsys.readouterr().err
