"""What is read for prediction and written after it: names of fields, labels that are no use."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from elmokit.errors import DataError
from elmokit.tasks import FrameExample, TaggedExample, TextExample
from elmokit.tasks.files import example_lines, read_examples, write_examples


@pytest.fixture
def read(tmp_path):
    """Read a text for prediction."""

    def from_text(task, name, text, **options):
        path = tmp_path / name
        path.write_text(text, "utf-8")
        return list(read_examples(task, path, **{"labelled": False, **options}))

    return from_text


# Answers under the file's own names.


def test_answers_go_under_the_files_own_name_beside_its_other_columns(read):
    fields = {"tags": "ner"}
    line = '{"tokens":["Peter","sings"],"tags":["NOUN","VERB"],"ner":["B-PER","O"]}'
    (example,) = read("tag", "a.jsonl", line, fields=fields)
    assert (example.tags, example.columns) == (("B-PER", "O"), {"tags": ("NOUN", "VERB")})
    answer = replace(example, tags=("O", "O"))
    (written,) = example_lines("tag", [answer], fields=fields)
    assert json.loads(written) == {
        "tokens": ["Peter", "sings"],
        "tags": ["NOUN", "VERB"],
        "ner": ["O", "O"],
    }
    assert read("tag", "b.jsonl", written, fields=fields, labelled=True) == [answer]


def test_answers_go_under_the_name_even_if_the_file_did_not_have_it(read):
    fields = {"tokens": "words", "tags": "NER"}
    line = '{"tokens": ["x", "y"], "words": ["a", "b"], "tags": ["N", "V"]}'
    (example,) = read("tag", "a.jsonl", line, fields=fields)
    assert (example.tokens, example.tags) == (("a", "b"), None)
    (written,) = example_lines("tag", [replace(example, tags=("O", "O"))], fields=fields)
    assert json.loads(written) == {
        "words": ["a", "b"],
        "NER": ["O", "O"],
        "tokens": ["x", "y"],
        "tags": ["N", "V"],
    }


def test_no_column_takes_the_place_of_an_answer():
    example = TaggedExample(("a",), ("O",), columns={"tags": ("X",), "tokens": ("Y",), "2": ("Z",)})
    (written,) = example_lines("tag", [example])
    assert json.loads(written) == {"tokens": ["a"], "tags": ["O"], "2": ["Z"]}


OWN = {
    "classify": ({"text": "review", "label": "stars"}, {"text": "Fine.", "label": "5"}),
    "tag": ({"tokens": "w", "tags": "ner"}, {"tokens": ["a", "b"], "tags": ["O", "B-X"]}),
    "pair": (
        {"first": "question1", "second": "question2", "label": "same"},
        {"first": "A.", "second": "B.", "label": "1"},
    ),
    "relation": (
        {"first": "head", "label": "tie"},
        {"tokens": ["a", "b"], "first": [0, 1], "second": [1, 2], "label": "R"},
    ),
    "qa": (
        {"context": "text", "answers": "gold"},
        {
            "id": "1",
            "context": "Tom sat.",
            "question": "Who?",
            "answers": [{"text": "Tom", "answer_start": 0}],
        },
    ),
    "seq2seq": ({"source": "en", "target": "zh"}, {"source": "Hi.", "target": "Ho."}),
    "dialogue": (
        {"slots": "label", "intent": "act"},
        {"tokens": ["play"], "slots": ["O"], "intent": "Play"},
    ),
    "coref": (
        {"label": "gold", "text": "passage"},
        {
            "id": "1",
            "text": "a b c",
            "pronoun": {"text": "a", "start": 0},
            "a": {"text": "b", "start": 2},
            "b": {"text": "c", "start": 4},
            "label": "A",
        },
    ),
}


@pytest.mark.parametrize("task", OWN)
def test_each_task_writes_the_names_it_read(read, task):
    fields, values = OWN[task]
    own = {fields.get(role, role): value for role, value in values.items()}
    examples = read(task, "a.jsonl", json.dumps(own), fields=fields, labelled=True)
    (written,) = example_lines(task, examples, fields=fields)
    assert json.loads(written) == own
    assert read(task, "b.jsonl", written, fields=fields, labelled=True) == examples


@pytest.mark.parametrize(
    ("task", "name"),
    [
        ("classify", "a.csv"),
        ("classify", "a.tsv"),
        ("pair", "a.csv"),
        ("pair", "a.tsv"),
        ("seq2seq", "a.tsv"),
    ],
)
def test_tables_have_the_names_that_were_read(read, tmp_path, task, name):
    fields, values = OWN[task]
    examples = read(task, "a.jsonl", json.dumps(values), labelled=True)
    write_examples(task, tmp_path / name, examples, fields=fields)
    header = (tmp_path / name).read_text("utf-8").splitlines()[0]
    assert header.replace(",", "\t").split("\t") == [fields[role] for role in values]
    assert list(read_examples(task, tmp_path / name, fields=fields)) == examples


# A file with the usual names, for what was trained on one with others.


@pytest.mark.parametrize("fields", [{"text": "review"}, {"text": "1", "label": "0"}], ids=str)
@pytest.mark.parametrize(
    ("name", "text"),
    [("a.jsonl", '{"text": "good"}\n'), ("a.csv", "text\ngood\n"), ("a.tsv", "text\ngood\n")],
)
def test_usual_names_count_where_the_given_ones_are_absent(read, fields, name, text):
    assert read("classify", name, text, fields=fields) == [TextExample(("good",), None, "good")]


def test_given_names_come_before_usual_ones(read):
    (found,) = read(
        "classify", "a.jsonl", '{"text": "a", "review": "b"}', fields={"text": "review"}
    )
    assert found.text == "b"


def test_numbers_of_columns_are_no_names_of_jsonl(read):
    line = '{"text": "good", "label": "x"}'
    (found,) = read("classify", "a.jsonl", line, fields={"text": "1", "label": "0"}, labelled=True)
    assert found == TextExample(("good",), "x", "good")


def test_a_name_that_was_given_to_one_field_is_no_other_field(read):
    line = '{"tokens": ["a"], "text": ["O"]}'
    (found,) = read("tag", "a.jsonl", line, fields={"tags": "text"}, labelled=True)
    assert found == TaggedExample(("a",), ("O",))


def test_prediction_of_neither_name_says_what_was_looked_for(read):
    with pytest.raises(
        DataError, match=r"looked for 'review', 'text', 'sentence'\); found 'label'"
    ):
        read("classify", "a.csv", "label,body\nx,a\n", fields={"text": "review"})


def test_a_column_of_labels_that_is_named_twice_does_not_stop_prediction(read):
    assert read("classify", "a.csv", "text,label,label\ngood,x,y\n") == [
        TextExample(("good",), None, "good")
    ]


# Columns of tags.

TAGS_LAST_OF_FOUR = {"tags": "3"}


def test_conll_without_the_column_of_tags_is_for_prediction(read):
    (found,) = read("tag", "a.conll", "EU NNP B-NP\n", fields=TAGS_LAST_OF_FOUR)
    assert found == TaggedExample(("EU",), columns={"1": ("NNP",), "2": ("B-NP",)})
    answer = replace(found, tags=("B-ORG",))
    lines = list(example_lines("tag", [answer], "conll", fields=TAGS_LAST_OF_FOUR))
    assert lines == ["EU\tNNP\tB-NP\tB-ORG", ""]


@pytest.mark.parametrize(
    ("columns", "fields", "line"),
    [
        ({}, {"tags": "3"}, "EU\tB-ORG"),
        ({"1": ("NNP",)}, {"tags": "3"}, "EU\tNNP\tB-ORG"),
        ({}, {"tokens": "1", "tags": "3"}, "EU\tB-ORG"),
        ({}, {"tokens": "words", "tags": "ner"}, "EU\tB-ORG"),
        ({}, {"tokens": "1", "tags": "0"}, "B-ORG\tEU"),
    ],
    ids=str,
)
def test_tags_go_last_where_their_column_does_not_fit(columns, fields, line):
    example = TaggedExample(("EU",), ("B-ORG",), columns=columns)
    assert list(example_lines("tag", [example], "conll", fields=fields)) == [line, ""]


def test_names_of_json_fields_are_no_columns(read):
    fields = {"tokens": "words", "tags": "ner"}
    (found,) = read("tag", "a.conll", "EU\nrejects\n", fields=fields)
    assert found == TaggedExample(("EU", "rejects"))
    with pytest.raises(DataError, match="there is no column words for 'tokens'"):
        read("tag", "a.conll", "EU O\n", fields=fields, labelled=True)


def test_conllu_without_the_column_of_tags_is_for_prediction(read):
    line = "1\tgo\tgo\tVERB\tVB\t_\t0\troot\t_\t_\n"
    (found,) = read("tag", "a.conllu", line, fields={"tags": "ner"})
    assert found.tags is None
    assert found.columns["upos"] == ("VERB",)


def test_numbers_of_columns_are_no_names_of_conllu():
    example = TaggedExample(("go",), ("VERB",), columns={"2": ("x",)})
    for fields in ({"tags": "1"}, {"tokens": "0", "tags": "-1"}):
        found = list(example_lines("tag", [example], "conllu", fields=fields))
        assert found == ["1\tgo\t_\tVERB\t_\t_\t_\t_\t_\t_", ""]


# Labels that are no use.

MENTIONS = (
    '{"text": "a b c", "pronoun": {"text": "a", "start": 0}, "a": {"text": "b", "start": 2},'
    ' "b": {"text": "c", "start": 4}, "label": "?"}'
)
GAP_HEADER = "ID\tText\tPronoun\tPronoun-offset\tA\tA-offset\tA-coref\tB\tB-offset\tB-coref\tURL\n"
GAP = "1\ta b c\ta\t0\tb\t2\t{}\tc\t4\t{}\t\n"
ANSWER = (
    '{"context": "Tom sat.", "question": "Who?", "answers": [{"text": "Tim", "answer_start": 0}]}'
)
SQUAD = '{"id": "1", "question": "Who?", "answers": 7}'

# task, file name, contents, the field that holds the label
USELESS = {
    "classify-list": ("classify", "a.jsonl", '{"text": "a", "label": ["x"]}', "label"),
    "tag-count": ("tag", "a.jsonl", '{"tokens": ["a", "b"], "tags": ["O"]}', "tags"),
    "tag-kind": ("tag", "a.jsonl", '{"tokens": ["a"], "tags": "O"}', "tags"),
    "tag-frame": (
        "tag",
        "a.jsonl",
        '{"tokens": ["a", "b"], "frames": [{"predicate": 0, "tags": ["B-V"]}]}',
        "tags",
    ),
    "tag-empty": ("tag", "a.conll", "a\tO\nb\t\n", "tags"),
    "pair-list": ("pair", "a.jsonl", '{"first": "a", "second": "b", "label": {}}', "label"),
    "qa-start": ("qa", "a.jsonl", ANSWER, "answers"),
    "qa-squad": (
        "qa",
        "a.json",
        f'{{"data": [{{"paragraphs": [{{"context": "Tom sat.", "qas": [{SQUAD}]}}]}}]}}',
        "answers",
    ),
    "seq2seq-empty": ("seq2seq", "a.jsonl", '{"source": "a", "target": ""}', "target"),
    "seq2seq-number": ("seq2seq", "a.jsonl", '{"source": "a", "target": 3}', "target"),
    "seq2seq-tsv": ("seq2seq", "a.tsv", "source\ttarget\na\t \n", "target"),
    "dialogue-slots": (
        "dialogue",
        "a.jsonl",
        '{"tokens": ["a", "b"], "slots": ["O"], "intent": "x"}',
        "slots",
    ),
    "coref-label": ("coref", "a.jsonl", MENTIONS, "label"),
    "gap-unknown": ("coref", "a.tsv", GAP_HEADER + GAP.format("?", "?"), "label"),
    "gap-both": ("coref", "a.tsv", GAP_HEADER + GAP.format("TRUE", "TRUE"), "label"),
}


@pytest.mark.parametrize("case", USELESS)
def test_labels_that_are_no_use_do_not_stop_prediction(read, case):
    task, name, contents, role = USELESS[case]
    (found,) = read(task, name, contents)
    assert getattr(found, role) is None
    with pytest.raises(DataError):
        read(task, name, contents, labelled=True)


def test_pairs_without_agreement_are_predicted(read):
    lines = (
        '{"gold_label": "neutral", "sentence1": "A.", "sentence2": "B."}\n'
        '{"gold_label": "-", "sentence1": "C.", "sentence2": "D."}\n'
    )
    found = read("pair", "a.jsonl", lines)
    assert [(e.first_text, e.label) for e in found] == [("A.", "neutral"), ("C.", None)]


def test_snips_folder_needs_no_labels_for_prediction(tmp_path):
    (tmp_path / "seq.in").write_text("play queen\nstop\n\n")
    (tmp_path / "seq.out").write_text("O B-artist\n")
    found = list(read_examples("dialogue", tmp_path, labelled=False))
    assert found == [FrameExample(("play", "queen"), ("O", "B-artist")), FrameExample(("stop",))]
    with pytest.raises(DataError, match=r"no such file: .*label"):
        list(read_examples("dialogue", tmp_path))


# Blank lines.


@pytest.mark.parametrize("blank", ["\n", "  \n", "\n \n\n"], ids=["empty", "spaces", "several"])
def test_blank_lines_are_skipped(read, tmp_path, blank):
    rows = f"text,label\n{blank}good,x\n{blank}"
    expected = TextExample(("good",), "x", "good")
    assert read("classify", "a.csv", rows, labelled=True) == [expected]
    quoted = read("classify", "a.tsv", rows.replace(",", "\t"), format="quoted-tsv", labelled=True)
    assert quoted == [expected]
    for name, line in (("seq.in", "play"), ("seq.out", "O"), ("label", "x")):
        (tmp_path / name).write_text(f"{line}\n{blank}")
    assert list(read_examples("dialogue", tmp_path)) == [FrameExample(("play",), ("O",), "x")]


def test_blank_lines_inside_quotes_belong_to_the_text(read):
    (found,) = read("classify", "a.csv", 'text\n"a\n \nb"\n')
    assert found.text == "a\n \nb"
