"""What is written is read back as it was, for every format that can be written."""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmokit.tasks import (
    Answer,
    CorefExample,
    FrameExample,
    Mention,
    PairExample,
    QuestionExample,
    RelationExample,
    SequencePair,
    TaggedExample,
    TextExample,
    read_examples,
    write_examples,
)
from elmokit.tasks.records import Span
from elmokit.tasks.tag.files import DOCUMENT_START
from elmokit.text.tokens import get_tokenizer

DATA = Path(__file__).parent / "data"

# Any text that UTF-8 can hold, NUL left out; with more than its share of awkward signs.
SIGNS = st.one_of(
    st.sampled_from("\"',\t\n\r# -_\\é中\u3000\u2028😀"),
    st.characters(blacklist_categories=("Cs",), blacklist_characters="\0"),
)
TEXTS = st.text(SIGNS, min_size=1, max_size=20).filter(str.strip)
# A line of a table: no tab and no line break.
LINES = TEXTS.map(lambda text: text.translate({9: " ", 10: " ", 13: " "})).filter(str.strip)
WORDS = st.text(SIGNS, min_size=1, max_size=8).filter(
    lambda word: word.split() == [word] and word != DOCUMENT_START
)
TOKENS = st.lists(WORDS, min_size=1, max_size=6).map(tuple)
LABELS = TEXTS.map(str.strip).filter(lambda label: "\r" not in label)
LINE_LABELS = LINES.map(str.strip)


def back_and_forth(task, examples, name, *, written=None, **options):
    """Write into a file of that name, read it, and compare."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        write_examples(task, path, examples, **(written or {}))
        assert list(read_examples(task, path, labelled=False, **options)) == examples


def tokenised(text, tokenizer="words"):
    return tuple(get_tokenizer(tokenizer).tokenize(text))


def spans_of(text):
    spans = tuple(get_tokenizer("words").spans(text))
    return tuple(text[start:end] for start, end in spans), spans


def lists(strategy):
    return st.lists(strategy, min_size=1, max_size=4)


@given(lists(st.tuples(TEXTS, st.none() | LABELS)), st.sampled_from(["a.csv", "a.jsonl"]))
def test_classify_texts(rows, name):
    examples = [TextExample(tokenised(text), label, text) for text, label in rows]
    back_and_forth("classify", examples, name)


@given(lists(st.tuples(TEXTS, LABELS)))
def test_classify_quoted_tsv(rows):
    examples = [TextExample(tokenised(text), label, text) for text, label in rows]
    options = {"format": "quoted-tsv"}
    back_and_forth("classify", examples, "a.tsv", written=options, **options)


@given(lists(st.tuples(LINES, st.none() | LINE_LABELS)))
def test_classify_tsv(rows):
    examples = [TextExample(tokenised(text), label, text) for text, label in rows]
    back_and_forth("classify", examples, "a.tsv")


@given(lists(st.tuples(TOKENS, st.none() | LABELS)))
def test_classify_tokens(rows):
    back_and_forth("classify", [TextExample(*row) for row in rows], "a.jsonl")


@st.composite
def tagged(draw, columns=()):
    tokens = draw(TOKENS)
    same = st.lists(WORDS, min_size=len(tokens), max_size=len(tokens)).map(tuple)
    return TaggedExample(tokens, draw(same), columns={name: draw(same) for name in columns})


@given(lists(tagged(columns=("1", "2"))))
def test_tag_conll(examples):
    back_and_forth("tag", examples, "a.conll")


@given(lists(tagged(columns=("0", "3"))))
def test_tag_conll_with_columns_of_ones_own(examples):
    fields = {"tokens": "2", "tags": "1"}
    back_and_forth("tag", examples, "a.conll", written={"fields": fields}, fields=fields)


@given(lists(TOKENS))
def test_tag_conll_without_tags(sentences):
    back_and_forth("tag", [TaggedExample(tokens) for tokens in sentences], "a.conll")


@given(lists(tagged(columns=("lemma", "upos", "feats", "head", "deprel", "misc"))))
def test_tag_conllu(examples):
    fields = {"tags": "xpos"}
    examples = [e for e in examples if set(e.tags or ()) != {"_"}]  # which says: no tags
    back_and_forth("tag", examples, "a.conllu", written={"fields": fields}, fields=fields)


@given(lists(tagged(columns=("pos",))), st.booleans())
def test_tag_jsonl(examples, labelled):
    examples = [
        TaggedExample(e.tokens, e.tags if labelled else None, len(e.tokens) - 1, e.columns, "a b")
        for e in examples
    ]
    back_and_forth("tag", examples, "a.jsonl")


@given(lists(tagged(columns=("tags", "tokens", "pos"))))
def test_tag_jsonl_with_names_of_ones_own(examples):
    fields = {"tokens": "w", "tags": "ner"}
    back_and_forth("tag", examples, "a.jsonl", written={"fields": fields}, fields=fields)


@given(lists(st.tuples(TEXTS, TEXTS, st.none() | LABELS.filter(lambda label: label != "-"))))
def test_pair_jsonl(rows):
    examples = [PairExample(tokenised(a), tokenised(b), label, a, b) for a, b, label in rows]
    back_and_forth("pair", examples, "a.jsonl")
    back_and_forth("pair", examples, "a.csv")
    tokens = [PairExample(e.first, e.second, e.label) for e in examples]
    back_and_forth("pair", tokens, "a.jsonl")


@given(lists(st.tuples(LINES, LINES, LINE_LABELS.filter(lambda label: label != "-"))))
def test_pair_tsv(rows):
    examples = [PairExample(tokenised(a), tokenised(b), label, a, b) for a, b, label in rows]
    back_and_forth("pair", examples, "a.tsv")


@st.composite
def relations(draw):
    plain = WORDS.filter(lambda word: not set("<>\t\n\r") & set(word))
    tokens = draw(st.lists(plain, min_size=2, max_size=7).map(tuple))
    places = st.integers(0, len(tokens))
    edges = draw(st.lists(places, min_size=4, max_size=4).map(sorted).filter(_are_two_spans))
    spans = [Span(*edges[:2]), Span(*edges[2:])]
    first, second = draw(st.permutations(spans))
    label = draw(st.sampled_from(["Cause-Effect(e1,e2)", "Cause-Effect(e2,e1)", "Other", None]))
    return RelationExample(tokens, first, second, label, draw(st.sampled_from(["1", "8001"])))


def _are_two_spans(edges):
    return edges[0] < edges[1] <= edges[2] < edges[3]


@given(lists(relations()), st.sampled_from(["a.txt", "a.jsonl"]))
def test_relations(examples, name):
    back_and_forth("relation", examples, name, tokenizer="space")


@st.composite
def questions(draw):
    context = draw(TEXTS)
    pieces = st.tuples(st.integers(0, len(context)), st.integers(0, len(context))).map(sorted)
    answers = draw(st.none() | st.lists(pieces.filter(lambda p: p[0] < p[1]), max_size=2))
    if answers is not None:
        answers = tuple(Answer(context[start:end], start) for start, end in answers)
    question = draw(TEXTS)
    tokens, spans = spans_of(context)
    name, title = draw(TEXTS), draw(TEXTS)
    return QuestionExample(
        name, context, question, tokens, spans, tokenised(question), answers, title
    )


@given(lists(questions()), st.sampled_from(["a.json", "a.jsonl"]))
def test_questions(examples, name):
    back_and_forth("qa", examples, name)


@given(lists(st.tuples(TEXTS, st.lists(TEXTS, max_size=3))))
def test_seq2seq_jsonl(rows):
    examples = [
        SequencePair(
            tokenised(source),
            tokenised(references[0], "chars") if references else None,
            source,
            tuple(references),
            str(number),
        )
        for number, (source, references) in enumerate(rows)
    ]
    back_and_forth("seq2seq", examples, "a.jsonl", target_tokenizer="chars")


@given(lists(st.tuples(LINES, LINES)))
def test_seq2seq_tsv(rows):
    examples = [SequencePair(tokenised(a), tokenised(b), a, (b,)) for a, b in rows]
    back_and_forth("seq2seq", examples, "a.tsv")


@st.composite
def frames(draw):
    tokens = draw(TOKENS)
    slots = draw(st.lists(WORDS, min_size=len(tokens), max_size=len(tokens)).map(tuple))
    return FrameExample(tokens, slots, draw(WORDS))


@given(lists(frames()))
def test_frames(examples):
    back_and_forth("dialogue", examples, "a.jsonl")
    back_and_forth("dialogue", examples, "folder", written={"format": "snips"})


@st.composite
def pronouns(draw):
    words = draw(st.lists(WORDS, min_size=3, max_size=8))
    text = " ".join(words)
    starts = [0, *itertools.accumulate(len(word) + 1 for word in words)]
    places = draw(st.permutations(range(len(words))))[:3]
    pronoun, a, b = (Mention(words[place], starts[place]) for place in places)
    tokens, spans = spans_of(text)
    label = draw(st.sampled_from(["A", "B", "neither", None]))
    return CorefExample(draw(WORDS), text, pronoun, a, b, tokens, spans, label, draw(WORDS))


@given(lists(pronouns()), st.sampled_from(["a.tsv", "a.jsonl"]))
def test_pronouns(examples, name):
    back_and_forth("coref", examples, name)


@pytest.mark.parametrize(
    ("task", "name", "other"),
    [
        ("classify", "polarity/dev.csv", "out.csv"),
        ("tag", "wnut17/dev.conll", "out.conll"),
        ("tag", "ewt/dev.conllu", "out.conllu"),
        ("tag", "propbank/dev.jsonl", "out.jsonl"),
        ("pair", "nli/dev.jsonl", "out.tsv"),
        ("relation", "semeval2010/dev.txt", "out.jsonl"),
        ("qa", "squad/dev.json", "out.json"),
        ("seq2seq", "tatoeba/dev.tsv", "out.jsonl"),
        ("seq2seq", "scitldr/dev.jsonl", "out.jsonl"),
        ("dialogue", "snips/dev", "out.jsonl"),
        ("coref", "gap/dev.tsv", "out.tsv"),
    ],
    ids=lambda value: value.replace("/", "-"),
)
def test_real_data(task, name, other, tmp_path):
    examples = list(read_examples(task, DATA / name))
    write_examples(task, tmp_path / other, examples)
    assert list(read_examples(task, tmp_path / other)) == examples
