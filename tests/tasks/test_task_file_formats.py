"""Every format, read from a small file; and the samples that the training tests use."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from elmokit.errors import ConfigError, DataError
from elmokit.tasks import (
    Answer,
    CorefExample,
    FrameExample,
    Mention,
    PairExample,
    RelationExample,
    SequencePair,
    TextExample,
    task_names,
)
from elmokit.tasks.coref.task import token_span
from elmokit.tasks.files import example_lines, format_names, read_examples
from elmokit.tasks.records import Span, covering_tokens
from elmokit.tasks.tag.spans import recognise_scheme

DATA = Path(__file__).parent / "data"


# Classes.


def test_csv_with_quotes_and_line_breaks(read):
    found = read("classify", "a.csv", 'label,text\ngood,"One, two\n""three"""\nbad,Four.\n')
    assert found == [
        TextExample(("One", ",", "two", '"', "three", '"'), "good", 'One, two\n"three"'),
        TextExample(("Four", "."), "bad", "Four."),
    ]


def test_csv_columns_by_other_names(read):
    fields = {"text": "review", "label": "score"}
    found = read("classify", "a.csv", "id,Review,score\n7,Fine,1\n", fields=fields)
    assert found == [TextExample(("Fine",), "1", "Fine")]


def test_csv_columns_by_number_have_no_header(read):
    fields = {"text": "-1", "label": "0"}
    found = read("classify", "a.csv", '"3","title","Fine day"\n', fields=fields)
    assert found == [TextExample(("Fine", "day"), "3", "Fine day")]


@pytest.mark.parametrize("fields", [{"label": "stars"}, {"text": "0", "label": "1"}], ids=str)
def test_csv_without_the_column_of_labels_is_for_prediction(read, fields):
    (*_, found) = read("classify", "a.csv", "text\nFine\n", fields=fields, labelled=False)
    assert found == TextExample(("Fine",), None, "Fine")


def test_tsv_takes_quotes_literally(read):
    found = read("classify", "a.tsv", 'text\tlabel\n"Hi," he said\tgood\n')
    assert found[0].text == '"Hi," he said'
    quoted = read("classify", "b.tsv", 'text\tlabel\n"Hi ""you"""\tgood\n', format="quoted-tsv")
    assert quoted[0].text == 'Hi "you"'


def test_classify_jsonl_of_texts_tokens_and_numbers(read):
    lines = '{"text": "I\'m here", "label": 1}\n\n{"tokens": ["I", "am"], "label": "x"}\n'
    assert read("classify", "a.jsonl", lines) == [
        TextExample(("I", "'m", "here"), "1", "I'm here"),
        TextExample(("I", "am"), "x"),
    ]


def test_folders_are_classes(tmp_path):
    for label, name, text in (("pos", "1.txt", "Good .\n"), ("neg", "1.txt", "Bad .\n")):
        (tmp_path / label).mkdir(exist_ok=True)
        (tmp_path / label / name).write_text(text)
    (tmp_path / "README").write_text("not a class")
    found = list(read_examples("classify", tmp_path))
    assert [(e.label, e.tokens) for e in found] == [("neg", ("Bad", ".")), ("pos", ("Good", "."))]


def test_tokenizer_is_the_named_one(read):
    found = read("classify", "a.jsonl", '{"text": "很好吃", "label": "1"}', tokenizer="chars")
    assert found[0].tokens == ("很", "好", "吃")


# Pairs and relations.


def test_pair_jsonl_of_snli_leaves_out_pairs_without_agreement(read):
    lines = (
        '{"gold_label": "neutral", "sentence1": "A man.", "sentence2": "He.", "pairID": "1"}\n'
        '{"gold_label": "-", "sentence1": "A.", "sentence2": "B."}\n'
    )
    expected = PairExample(("A", "man", "."), ("He", "."), "neutral", "A man.", "He.")
    assert read("pair", "a.jsonl", lines) == [expected]


def test_pair_tsv_with_names_or_numbers(read):
    named = read("pair", "a.tsv", "premise\thypothesis\tlabel\nx y\tz\tyes\n")
    fields = {"first": "1", "second": "2", "label": "0"}
    numbered = read("pair", "b.tsv", "yes\tx y\tz\n", fields=fields)
    assert named == numbered == [PairExample(("x", "y"), ("z",), "yes", "x y", "z")]


SEMEVAL = (
    '1\t"The <e1>press</e1>-made <e2>oil can</e2>."\r\nProduct-Producer(e2,e1)\r\nComment: x\r\n'
    '\r\n2\t"In a <e2>jar</e2>, <e1>jam</e1>"\r\nOther\r\nComment:\r\n\r\n'
)


def test_semeval_text(read):
    tokens = ("The", "press", "-", "made", "oil", "can", ".")
    found = read("relation", "a.txt", SEMEVAL)
    assert [e.label for e in found] == ["Product-Producer(e2,e1)", "Other"]
    assert "".join(found[0].tokens) == "".join(tokens)
    assert found[0].tokens[found[0].first.start : found[0].first.end] == ("press",)
    assert found[0].tokens[found[0].second.start : found[0].second.end] == ("oil", "can")
    assert (found[1].first, found[1].second) == (Span(4, 5), Span(2, 3))
    assert [e.id for e in found] == ["1", "2"]


def test_semeval_text_without_relations_is_for_prediction(read):
    text = '8001\t"<e1>A</e1> <e2>B</e2>"\n8002\t"<e1>C</e1> <e2>D</e2>"\n'
    found = read("relation", "a.txt", text, labelled=False)
    assert [(e.id, e.label) for e in found] == [("8001", None), ("8002", None)]


def test_relation_jsonl_of_spans_or_marks(read):
    lines = (
        '{"tokens": ["a", "b", "c"], "first": [2, 3], "second": [0, 1], "label": "R(e1,e2)"}\n'
        '{"text": "<e2>a</e2> b <e1>c</e1>", "relation": "R(e1,e2)"}\n'
    )
    example = RelationExample(("a", "b", "c"), Span(2, 3), Span(0, 1), "R(e1,e2)")
    assert read("relation", "a.jsonl", lines) == [example, example]


# Questions.


def squad(*questions, context="The cat (Tom) sat.", title="Cats"):
    paragraph = {"context": context, "qas": list(questions)}
    return json.dumps({"version": "2.0", "data": [{"title": title, "paragraphs": [paragraph]}]})


def test_squad_answers_become_token_spans(read):
    answers = [{"text": "Tom", "answer_start": 9}, {"text": "cat (Tom", "answer_start": 4}]
    question = {"id": "7", "question": "Who sat?", "answers": answers}
    (found,) = read("qa", "a.json", squad(question))
    assert found.context_tokens == ("The", "cat", "(", "Tom", ")", "sat", ".")
    assert found.question_tokens == ("Who", "sat", "?")
    assert found.answer_spans() == [Span(3, 4), Span(1, 4)]
    assert [found.text_of(span) for span in found.answer_spans()] == [("Tom", 9), ("cat (Tom", 4)]
    assert (found.id, found.title, found.impossible) == ("7", "Cats", False)


def test_squad_answer_inside_a_token_takes_the_token(read):
    question = {"id": "7", "question": "?", "answers": [{"text": "ca", "answer_start": 4}]}
    assert read("qa", "a.json", squad(question))[0].answer_spans() == [Span(1, 2)]


def test_squad_2_has_questions_without_answers(read):
    none = {
        "id": "1",
        "question": "?",
        "is_impossible": True,
        "answers": [],
        "plausible_answers": [],
    }
    (found,) = read("qa", "a.json", squad(none))
    assert found.impossible
    assert found.answers == ()
    (unknown,) = read("qa", "b.json", squad({"id": "1", "question": "?"}), labelled=False)
    assert unknown.answers is None
    assert not unknown.impossible


def test_chinese_questions_by_character(read):
    answers = [{"text": "汤姆", "answer_start": 1}, {"text": "不在文中", "answer_start": -1}]
    question = {"id": "1", "question": "谁？", "answers": answers}
    (found,) = read("qa", "a.json", squad(question, context="猫汤姆 跑。"), tokenizer="chars")
    assert found.context_tokens == ("猫", "汤", "姆", "跑", "。")
    assert found.answer_spans() == [Span(1, 3)]
    assert len(found.answers) == 2


def test_qa_jsonl_is_one_question_a_line(read):
    answers = [{"text": "Tom", "answer_start": 0}]
    line = json.dumps({"context": "Tom sat.", "question": "Who?", "answers": answers})
    (found,) = read("qa", "a.jsonl", line)
    assert (found.id, found.answers) == ("1", (Answer("Tom", 0),))


# Sequences.


def test_parallel_files(tmp_path):
    (tmp_path / "a.en").write_text("Hi .\n\nGo on .\n")
    (tmp_path / "a.zh").write_text("你好 。\n\n继续 。\n")
    found = list(
        read_examples(
            "seq2seq", f"{tmp_path / 'a.en'},{tmp_path / 'a.zh'}", target_tokenizer="chars"
        )
    )
    assert found == [
        SequencePair(("Hi", "."), ("你", "好", "。"), "Hi .", ("你好 。",)),
        SequencePair(("Go", "on", "."), ("继", "续", "。"), "Go on .", ("继续 。",)),
    ]


def test_seq2seq_tsv_with_and_without_header(read):
    expected = [SequencePair(("a",), ("b",), "a", ("b",))]
    assert read("seq2seq", "a.tsv", "a\tb\tCC BY\n") == expected
    assert read("seq2seq", "b.tsv", "target\tsource\nb\ta\n") == expected


def test_seq2seq_jsonl_of_scitldr(read):
    line = '{"source": ["One.", "Two."], "target": ["Short.", "Brief."], "paper_id": "x"}'
    (found,) = read("seq2seq", "a.jsonl", line)
    assert found.source_text == "One. Two."
    assert found.target == ("Short", ".")
    assert (found.references, found.id) == (("Short.", "Brief."), "x")


# Requests and pronouns.


def test_snips_folder(tmp_path):
    (tmp_path / "seq.in").write_text("play queen \n")
    (tmp_path / "seq.out").write_text("O B-artist\n")
    (tmp_path / "label").write_text("PlayMusic\n")
    expected = FrameExample(("play", "queen"), ("O", "B-artist"), "PlayMusic")
    assert list(read_examples("dialogue", tmp_path)) == [expected]
    (tmp_path / "seq.out").unlink()
    (tmp_path / "label").unlink()
    found = list(read_examples("dialogue", tmp_path, labelled=False))
    assert found == [FrameExample(("play", "queen"))]


def test_dialogue_jsonl(read):
    line = '{"tokens": ["play", "queen"], "slots": ["O", "B-artist"], "intent": "PlayMusic"}'
    expected = FrameExample(("play", "queen"), ("O", "B-artist"), "PlayMusic")
    assert read("dialogue", "a.jsonl", line) == [expected]


GAP = (
    "ID\tText\tPronoun\tPronoun-offset\tA\tA-offset\tA-coref\tB\tB-offset\tB-coref\tURL\n"
    "d-1\tAnn saw Eve Hill; she waved.\tshe\t18\tAnn\t0\tFALSE\tEve Hill\t8\tTRUE\thttp://x\n"
)


def test_gap_tsv(read):
    (found,) = read("coref", "a.tsv", GAP)
    assert found == CorefExample(
        "d-1",
        "Ann saw Eve Hill; she waved.",
        Mention("she", 18),
        Mention("Ann", 0),
        Mention("Eve Hill", 8),
        ("Ann", "saw", "Eve", "Hill", ";", "she", "waved", "."),
        ((0, 3), (4, 7), (8, 11), (12, 16), (16, 17), (18, 21), (22, 27), (27, 28)),
        "B",
        "http://x",
    )
    assert found.gender == "feminine"
    assert [token_span(found, m) for m in (found.a, found.b, found.pronoun)] == [
        (0, 1),
        (2, 4),
        (5, 6),
    ]


def test_coref_jsonl_is_the_same_as_gap(read):
    (found,) = read("coref", "a.tsv", GAP)
    lines = "\n".join(example_lines("coref", [found], "jsonl"))
    assert read("coref", "a.jsonl", lines) == [found]


# What all share.


@pytest.mark.parametrize("task", task_names())
def test_each_task_reads_jsonl(task):
    assert "jsonl" in format_names(task)


def test_unknown_names_are_explained(tmp_path):
    with pytest.raises(ConfigError, match="Did you mean 'classify'"):
        read_examples("clasify", "a.csv")
    with pytest.raises(ConfigError, match=r"tag has no format 'csv'. It has conll"):
        read_examples("tag", "a.csv", format="csv")


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl"])
def test_unknown_fields_are_refused(read, name):
    with pytest.raises(ConfigError, match="no field 'lable' here"):
        read("classify", name, "{}", fields={"lable": "x"})


def test_examples_stream(tmp_path):
    """The first examples are there before a later line is found to be broken."""
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "a", "label": "x"}\n' * 3 + "{\n")
    examples = read_examples("classify", path)
    assert [next(examples).label for _ in range(3)] == ["x"] * 3
    with pytest.raises(DataError, match="line 4"):
        next(examples)


def test_covering_tokens_holds_the_characters():
    spans = [(0, 3), (4, 7), (7, 8)]
    assert covering_tokens(spans, 0, 8) == Span(0, 3)
    assert covering_tokens(spans, 5, 6) == Span(1, 2)
    assert covering_tokens(spans, 2, 5) == Span(0, 2)
    assert covering_tokens(spans, 3, 4) is None


# The samples under data.

SAMPLES = [
    ("classify", "polarity/{}.csv", 300, 100),
    ("tag", "wnut17/{}.conll", 300, 100),
    ("tag", "ewt/{}.conllu", 250, 80),
    ("tag", "propbank/{}.jsonl", None, None),
    ("pair", "nli/{}.jsonl", 500, 120),
    ("relation", "semeval2010/{}.txt", 300, 100),
    ("qa", "squad/{}.json", None, None),
    ("qa", "cmrc/{}.json", None, None),
    ("seq2seq", "tatoeba/{}.tsv", 400, 100),
    ("seq2seq", "scitldr/{}.jsonl", 80, 25),
    ("dialogue", "snips/{}", 300, 100),
    ("coref", "gap/{}.tsv", 120, 40),
]


@pytest.mark.parametrize(("task", "name", "train", "dev"), SAMPLES, ids=[s[1] for s in SAMPLES])
def test_samples_are_read(task, name, train, dev):
    tokenizer = "chars" if "cmrc" in name else "words"
    for part, count in (("train", train), ("dev", dev)):
        found = list(read_examples(task, DATA / name.format(part), tokenizer=tokenizer))
        assert len(found) == count or (count is None and len(found) > 30)


def test_samples_of_spans_are_in_bio():
    for name in ("wnut17/train.conll", "propbank/train.jsonl"):
        found = read_examples("tag", DATA / name, scheme="bio")
        assert recognise_scheme(e.tags for e in found) == "bio"


def test_samples_have_no_class_that_is_nearly_all():
    labels = {
        "polarity/train.csv": ("classify", "label"),
        "nli/train.jsonl": ("pair", "label"),
        "semeval2010/train.txt": ("relation", "label"),
        "snips/train": ("dialogue", "intent"),
        "gap/train.tsv": ("coref", "label"),
    }
    for name, (task, label) in labels.items():
        counts = Counter(getattr(e, label) for e in read_examples(task, DATA / name))
        assert max(counts.values()) < 0.6 * counts.total(), name
