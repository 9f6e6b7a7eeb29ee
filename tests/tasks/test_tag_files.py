"""Files of tags: CoNLL columns, CoNLL-U and JSONL."""

from __future__ import annotations

import json

import pytest

from elmokit.errors import DataError
from elmokit.tasks import TaggedExample

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
