"""What cannot be read: the error names the file, the line and what to do."""

from __future__ import annotations

import json
import re

import pytest

from elmokit.errors import ConfigError, DataError
from elmokit.tasks import FrameExample, RelationExample, TaggedExample, TextExample
from elmokit.tasks.files import example_lines, read_examples, write_examples
from elmokit.tasks.records import Span

BAD = "\t_" * 6
GAP_HEADER = "ID\tText\tPronoun\tPronoun-offset\tA\tA-offset\tA-coref\tB\tB-offset\tB-coref\tURL\n"


def squad(answer, start, question="Who?"):
    answers = [{"text": answer, "answer_start": start}]
    qas = [{"id": "q7", "question": question, "answers": answers}]
    return json.dumps({"data": [{"paragraphs": [{"context": "Tom sat.", "qas": qas}]}]})


# task, file name, contents, further arguments, what the message says
CASES = {
    "squad-half-character": (
        "qa",
        "a.json",
        squad("\ud83d", 0),
        {},
        "the text holds half a character",
    ),
    "csv-columns": ("classify", "a.csv", "text,label\na,x\nb,c,x\n", {}, "line 3: 3 columns where"),
    "csv-quote": ("classify", "a.csv", 'text,label\na,x\n"b,x\n', {}, "line 3: not valid CSV"),
    "csv-no-column": ("classify", "a.csv", "body,label\na,x\n", {}, "line 2: no 'text' (looked"),
    "csv-no-header": ("classify", "a.csv", "fine,x\n", {}, "line 1: the header names none of"),
    "csv-no-such-name": (
        "classify",
        "a.csv",
        "text,label\na,x\n",
        {"fields": {"label": "stars"}},
        "line 1: the header has no column 'stars'",
    ),
    "csv-twice": ("classify", "a.csv", "text,label,Text\na,x,b\n", {}, "names the column 'text' m"),
    "tsv-twice": (
        "classify",
        "a.tsv",
        "review\tlabel\treview\na\tx\tb\n",
        {"fields": {"text": "review"}},
        "line 1: the header names the column 'review' more than once",
    ),
    "csv-blank-lines": (
        "classify",
        "a.csv",
        'text,label\n  \n"a\n\nb",x\n \t \nc,\n',
        {},
        "line 7: 'label' is empty",
    ),
    "csv-other-names": (
        "classify",
        "a.csv",
        "review text,when,stars\nfine,now,5\n",
        {},
        "line 1: the header names none of text, label; it has 'review text', 'when', 'stars'. Name "
        "the columns that hold them, such as --field text='review text' --field label=stars on the "
        "command line, fields={'text': 'review text', 'label': 'stars'} in Python; by number, "
        "from 0, if this row is no header: --field text=0 --field label=1.",
    ),
    "csv-semicolons": (
        "classify",
        "a.csv",
        "text;label\nfine;x\n",
        {},
        "line 1: one column, 'text;label'. If its columns are separated by ';', save the file with",
    ),
    "csv-other-label": (
        "classify",
        "a.csv",
        "text,stars\nfine,5\n",
        {},
        "line 2: no 'label'; found 'text', 'stars'. Name the field that holds it: --field "
        "label=stars on the command line",
    ),
    "csv-neither-name": (
        "classify",
        "a.csv",
        "body,label\na,x\n",
        {"fields": {"text": "review"}},
        "the header has no column 'review' for 'text'; it has 'body', 'label'. Name the column "
        "that holds it: --field text=body on the command line, fields={'text': 'body'} in Python.",
    ),
    "jsonl-neither-name": (
        "classify",
        "a.jsonl",
        '{"body": "a", "label": "x"}',
        {"fields": {"text": "review"}},
        "line 1: no 'text' (looked for 'review', 'text', 'sentence'); found 'body', 'label'. Name "
        "the field that holds it: --field text=body on the command line, fields={'text': 'body'} "
        "in Python.",
    ),
    "jsonl-other-label": (
        "tag",
        "a.jsonl",
        '{"tokens": ["a"], "tags": ["NOUN"]}',
        {"fields": {"tags": "ner"}},
        "line 1: no 'tags' (looked for 'ner'); found 'tokens', 'tags'",
    ),
    "csv-no-such-number": (
        "classify",
        "a.csv",
        "a,x\n",
        {"fields": {"text": "0", "label": "2"}},
        "line 1: there is no column 2",
    ),
    "csv-no-label": ("classify", "a.csv", "text,label\na,x\nb,\n", {}, "line 3: 'label' is empty"),
    "csv-no-text": ("classify", "a.csv", "text,label\n ,x\n", {}, "line 2: the text is empty"),
    "tsv-columns": ("classify", "a.tsv", "text\tlabel\na\tb\tx\n", {}, "line 2: 3 columns"),
    "jsonl-broken": (
        "classify",
        "a.jsonl",
        '{"text": "a", "label": "x"}\n{"text"',
        {},
        "line 2: no",
    ),
    "jsonl-list": ("classify", "a.jsonl", "[1]\n", {}, "line 1: found a value of type list"),
    "jsonl-no-text": ("classify", "a.jsonl", '{"label": "x"}', {}, "line 1: no 'text' (looked"),
    "jsonl-no-label": ("classify", "a.jsonl", '{"text": "a"}', {}, "line 1: no 'label'; found"),
    "jsonl-bad-label": (
        "classify",
        "a.jsonl",
        '{"text": "a", "label": []}',
        {},
        "line 1: 'label' h",
    ),
    "jsonl-half": (
        "classify",
        "a.jsonl",
        '{"text": "\\ud83d", "label": 1}',
        {},
        "half a character",
    ),
    "jsonl-empty-token": (
        "classify",
        "a.jsonl",
        '{"tokens": ["a", ""], "label": 1}',
        {},
        "line 1: token 2 is empty",
    ),
    "empty": ("classify", "a.csv", "", {}, "no examples in it, read as 'csv'"),
    "empty-tags": ("tag", "a.conll", "\n\n", {}, "no examples in it"),
    "nul": ("tag", "a.conll", "a\tO\n\0\tO\n", {}, "line 2: the line holds a NUL"),
    "unknown-format": ("classify", "a.dat", "hello\n", {}, "neither its ending nor its first line"),
    "conll-columns": (
        "tag",
        "a.conll",
        "a B O\nb O\n",
        {},
        "line 2: 2 columns where the lines bef",
    ),
    "conll-one-column": ("tag", "a.conll", "a\nb\n", {}, "line 1: one column alone"),
    "conll-no-column": (
        "tag",
        "a.conll",
        "a O\n",
        {"fields": {"tags": "4"}},
        "line 1: there is no column 4 for 'tags'",
    ),
    "conll-empty-token": ("tag", "a.conll", "a\tO\n\tO\n", {}, "line 2: the token is empty"),
    "conll-empty-tag": ("tag", "a.conll", "a\tO\nb\t\n", {}, "line 2: the tag is empty"),
    "conll-illegal": (
        "tag",
        "a.conll",
        "a O\nb I-PER\n",
        {"scheme": "bio"},
        "line 2: token 2 has the tag 'I-PER' after 'O'",
    ),
    "conll-unclosed": (
        "tag",
        "a.conll",
        "a B-PER\nb I-PER\n\nc O\n",
        {"scheme": "bioes"},
        "line 2: the sentence ends after 'I-PER', a span that is not closed",
    ),
    "conllu-columns": ("tag", "a.conllu", "1\ta\tb\n", {}, "line 1: 3 columns; CoNLL-U has 10"),
    "conllu-number": (
        "tag",
        "a.conllu",
        f"1\ta\t_\tX{BAD}\n3\tb\t_\tX{BAD}\n",
        {},
        "line 2: the word has the number '3', not 2",
    ),
    "tags-count": (
        "tag",
        "a.jsonl",
        '{"tokens": ["a", "b"], "tags": ["O"]}',
        {},
        "line 1: 1 tags for 2 tokens",
    ),
    "tags-missing": ("tag", "a.jsonl", '{"tokens": ["a"]}', {}, "line 1: no 'tags'"),
    "tags-illegal": (
        "tag",
        "a.jsonl",
        '{"tokens": ["a"], "tags": ["I-X"]}',
        {"scheme": "bio"},
        "line 1: token 1 has the tag 'I-X' at the start",
    ),
    "predicate": (
        "tag",
        "a.jsonl",
        '{"tokens": ["a"], "frames": [{"predicate": 1, "tags": ["B-V"]}]}',
        {},
        "line 1: 'predicate' is 1; it must be the index of a token, from 0 to 0",
    ),
    "pair-second": ("pair", "a.jsonl", '{"sentence1": "a", "label": 1}', {}, "line 1: no 'second'"),
    "semeval-marks": (
        "relation",
        "a.txt",
        '1\t"<e1>a</e1> and <e2>b"\nOther\n',
        {},
        "line 1: the two mentions are not marked",
    ),
    "semeval-nothing": (
        "relation",
        "a.txt",
        '1\t"<e1></e1> and <e2>b</e2>"\nOther\n',
        {},
        "line 1: there is nothing between <e1>",
    ),
    "semeval-no-label": (
        "relation",
        "a.txt",
        '1\t"<e1>a</e1> <e2>b</e2>"\n\n2\t"<e1>a</e1> <e2>b</e2>"\nOther\n',
        {},
        "line 1: no relation on the line after",
    ),
    "semeval-stray": ("relation", "a.txt", "Other\n", {}, "line 1: expected a number, a tab"),
    "relation-span": (
        "relation",
        "a.jsonl",
        '{"tokens": ["a", "b"], "first": [0, 1], "second": [1, 3], "label": "R"}',
        {},
        "line 1: 'second' is [1, 3]; it must be [start, end]",
    ),
    "relation-overlap": (
        "relation",
        "a.jsonl",
        '{"tokens": ["a", "b"], "first": [0, 2], "second": [1, 2], "label": "R"}',
        {},
        "line 1: the mentions overlap",
    ),
    "squad-json": ("qa", "a.json", '{"data": [\n{]}', {}, "a.json: not valid JSON"),
    "squad-shape": ("qa", "a.json", '{"data": [{}]}', {}, "data[0]: no list 'paragraphs'"),
    "squad-answer": (
        "qa",
        "a.json",
        squad("Tim", 0),
        {},
        "qas[0] (id 'q7'): the answer 'Tim' is not at character 0 of the text, where it says 'Tom'",
    ),
    "squad-negative": ("qa", "a.json", squad("Tom", -3), {}, "is not at character -3"),
    "squad-question": ("qa", "a.json", squad("Tom", 0, " "), {}, "'question' must be a string"),
    "qa-no-answers": (
        "qa",
        "a.jsonl",
        '{"context": "a", "question": "b"}',
        {},
        "line 1: no 'answers'",
    ),
    "seq2seq-target": ("seq2seq", "a.jsonl", '{"source": "a"}', {}, "line 1: no 'target'"),
    "seq2seq-empty": ("seq2seq", "a.tsv", "a\tb\na\t \n", {}, "line 2: the target is empty"),
    "dialogue-slots": (
        "dialogue",
        "a.jsonl",
        '{"tokens": ["a"], "intent": "x"}',
        {},
        "line 1: no 'slots'",
    ),
    "gap-offset": (
        "coref",
        "a.tsv",
        f"{GAP_HEADER}1\tAnn, she\tshe\t4\tAnn\t0\tTRUE\tEve\t0\tFALSE\t\n",
        {},
        "line 2: pronoun 'she' is not at character 4 of the text, where it says ' sh'",
    ),
    "gap-number": (
        "coref",
        "a.tsv",
        f"{GAP_HEADER}1\tAnn, she\tshe\tx\tAnn\t0\tTRUE\tEve\t0\tFALSE\t\n",
        {},
        "line 2: 'pronoun-offset' is 'x'",
    ),
    "gap-both": (
        "coref",
        "a.tsv",
        f"{GAP_HEADER}1\tAnn, she\tshe\t5\tAnn\t0\tTRUE\tAnn\t0\tTRUE\t\n",
        {},
        "line 2: 'A-coref' and 'B-coref' are both TRUE",
    ),
    "coref-label": (
        "coref",
        "a.jsonl",
        '{"text": "a b c", "pronoun": {"text": "a", "start": 0}, "a": {"text": "b", "start": 2},'
        ' "b": {"text": "c", "start": 4}, "label": "C"}',
        {},
        "line 1: 'label' is 'C'",
    ),
    "coref-mention": (
        "coref",
        "a.jsonl",
        '{"text": "a b c", "pronoun": "a", "label": "A"}',
        {},
        "line 1: 'pronoun' must be an object",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_error_names_the_location(case, tmp_path):
    task, name, contents, options, message = CASES[case]
    path = tmp_path / name
    path.write_text(contents, "utf-8")
    with pytest.raises(DataError, match=re.escape(message)) as caught:
        list(read_examples(task, path, **options))
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
def test_wrong_encoding_names_the_line(tmp_path, encoding):
    path = tmp_path / "a.csv"
    path.write_text("text,label\ncafé,x\n", encoding)
    with pytest.raises(DataError, match=rf"a\.csv, line {2 if encoding == 'latin-1' else 1}"):
        list(read_examples("classify", path))


def test_missing_file_is_named(tmp_path):
    with pytest.raises(DataError, match=r"no such file: .*none\.conll"):
        list(read_examples("tag", tmp_path / "none.conll"))
    with pytest.raises(DataError, match="is a folder"):
        list(read_examples("tag", tmp_path))


def test_folder_without_classes(tmp_path):
    with pytest.raises(DataError, match="no folders in it"):
        list(read_examples("classify", tmp_path))


def test_snips_files_of_different_lengths(tmp_path):
    (tmp_path / "seq.in").write_text("a b\nc\n")
    (tmp_path / "seq.out").write_text("O O\nO\n")
    (tmp_path / "label").write_text("x\n")
    with pytest.raises(DataError, match=r"label ends before line 2"):
        list(read_examples("dialogue", tmp_path))
    (tmp_path / "label").write_text("x\ny\n")
    (tmp_path / "seq.out").write_text("O\nO\n")
    with pytest.raises(DataError, match=r"seq\.out, line 1: 1 tags for 2 tokens"):
        list(read_examples("dialogue", tmp_path))


def test_snips_blank_lines_do_not_move_later_lines(tmp_path):
    (tmp_path / "seq.in").write_text("a b\n\nc d\n")
    (tmp_path / "seq.out").write_text("O O\n \nO\n")
    (tmp_path / "label").write_text("x\n\ny\n")
    with pytest.raises(DataError, match=r"seq\.out, line 3: 1 tags for 2 tokens"):
        list(read_examples("dialogue", tmp_path))


def test_parallel_files_of_different_lengths(tmp_path):
    (tmp_path / "a").write_text("x\ny\n")
    (tmp_path / "b").write_text("x\n")
    with pytest.raises(DataError, match=r"a, line 2: .*b has no line 2"):
        list(read_examples("seq2seq", f"{tmp_path / 'a'},{tmp_path / 'b'}"))


def test_plain_text_cannot_be_trained_on(tmp_path):
    with pytest.raises(ConfigError, match="plain text has no labels"):
        read_examples("tag", tmp_path / "a.txt", format="text")


def test_prediction_from_nothing_is_nothing(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("")
    assert list(read_examples("classify", path, labelled=False)) == []


@pytest.mark.parametrize(
    ("task", "format_", "example"),
    [
        ("classify", "tsv", TextExample(("a",), "x", "a\tb")),
        ("tag", "conll", TaggedExample(("New York",), ("O",))),
        ("tag", "conll", TaggedExample(("-DOCSTART-",), ("O",))),
        ("tag", "conllu", TaggedExample(("a\tb",), ("O",))),
        ("relation", "semeval", RelationExample(("<e1>", "b"), Span(0, 1), Span(1, 2), "R")),
    ],
    ids=["tab", "space", "docstart", "conllu", "mark"],
)
def test_what_a_format_cannot_hold_is_not_written(tmp_path, task, format_, example):
    path = tmp_path / "out"
    with pytest.raises(DataError, match="JSONL"):
        write_examples(task, path, [example], format=format_)
    assert list(tmp_path.iterdir()) == []


def test_formats_that_cannot_be_written_say_so(tmp_path):
    with pytest.raises(ConfigError, match="is read, not written"):
        write_examples("classify", tmp_path / "x", [], format="folders")
    with pytest.raises(ConfigError, match="ending does not say"):
        write_examples("classify", tmp_path / "x", [])
    with pytest.raises(ConfigError, match="cannot be written line by line"):
        example_lines("qa", [], "squad")
    with pytest.raises(DataError, match="name of a new folder"):
        write_examples("dialogue", tmp_path, [], format="snips")
    with pytest.raises(DataError, match="without slots"):
        write_examples("dialogue", tmp_path / "new", [FrameExample(("a",))], format="snips")
    assert list(tmp_path.iterdir()) == []
