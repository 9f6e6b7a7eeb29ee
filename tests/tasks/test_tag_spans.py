"""IOB1, BIO, BIOES, BILOU and BMES, compared with seqeval and with each other."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from seqeval.metrics.sequence_labeling import get_entities
from seqeval.scheme import BILOU, IOB1, IOB2, IOBES, Entities

from elmokit.errors import ConfigError, DataError
from elmokit.tasks.tag.spans import (
    SCHEMES,
    TagSpan,
    check_recognised,
    convert_tags,
    illegal_index,
    may_follow,
    recognise_scheme,
    spans_to_tags,
    tags_to_spans,
)

PREFIXES = {"iob1": "BI", "bio": "BI", "bioes": "BIES", "bilou": "BILU", "bmes": "BMES"}
STRICT = {"iob1": IOB1, "bio": IOB2, "bioes": IOBES, "bilou": BILOU}
AS_BIOES = str.maketrans("LUM", "ESI")


def any_tags(prefixes: str = "BIES") -> st.SearchStrategy[list[str]]:
    known = ["O", *(f"{prefix}-{kind}" for prefix in prefixes for kind in ("PER", "LOC-X"))]
    return st.lists(st.sampled_from(known), min_size=1, max_size=12)


@st.composite
def spans_in_sentence(draw):
    """Spans without overlap, often adjacent and of one type."""
    kinds = draw(st.sampled_from([("A", "B"), ("",)]))
    edges = sorted(draw(st.sets(st.integers(0, 12), max_size=8)))
    spans = [
        TagSpan(start, end, draw(st.sampled_from(kinds)))
        for start, end in itertools.pairwise(edges)
        if draw(st.booleans())
    ]
    return spans, 12


@given(any_tags())
def test_spans_of_noisy_tags_are_those_of_seqeval(tags):
    """seqeval's default mode is a port of conlleval."""
    expected = [(start, end + 1, kind) for kind, start, end in get_entities(tags)]
    assert tags_to_spans(tags) == expected


@given(any_tags("BILUMES"))
def test_spans_of_other_letters_are_those_of_bioes(tags):
    same = [tag[0].translate(AS_BIOES) + tag[1:] for tag in tags]
    assert tags_to_spans(tags) == tags_to_spans(same)


@given(spans_in_sentence(), st.sampled_from(SCHEMES))
def test_spans_survive_every_scheme(sentence, scheme):
    spans, length = sentence
    tags = spans_to_tags(spans, length, scheme)
    assert tags_to_spans(tags) == spans
    assert illegal_index(tags, scheme) is None
    if scheme == "bmes":  # which seqeval does not know
        tags, scheme = tuple(tag[0].translate(AS_BIOES) + tag[1:] for tag in tags), "bioes"
    strict = [e.to_tuple()[1:] for e in Entities([list(tags)], STRICT[scheme]).entities[0]]
    no_type = "_"  # in seqeval
    assert sorted(strict) == sorted((s.type or no_type, s.start, s.end) for s in spans)


@given(spans_in_sentence(), st.permutations(SCHEMES))
def test_conversion_goes_both_ways(sentence, schemes):
    spans, length = sentence
    first, second, *_ = schemes
    tags = spans_to_tags(spans, length, first)
    assert convert_tags(convert_tags(tags, second), first) == tags


@pytest.mark.parametrize("scheme", SCHEMES)
def test_legal_is_what_some_spans_give(scheme):
    """All tag sequences of four tokens: the legal ones are those that a set of spans produces."""
    known = ["O", *(p + kind for p in PREFIXES[scheme] for kind in ("", "-A", "-B"))]
    for tags in itertools.product(known, repeat=4):
        produced = spans_to_tags(tags_to_spans(tags), 4, scheme) == tags
        assert (illegal_index(tags, scheme) is None) == produced, tags


def test_may_follow_is_the_rule_behind_illegal_place():
    assert may_follow(None, "I-A", "iob1")
    assert not may_follow(None, "I-A", "bio")
    assert not may_follow("B-A", None, "bioes")
    assert illegal_index(["B-A", "I-A"], "bioes") == 2
    assert illegal_index(["B-A", "I-B"], "bio") == 1
    assert illegal_index(["NOUN"], "bio") == 0


@pytest.mark.parametrize(
    ("sentences", "scheme"),
    [
        ([["B-A", "I-A", "O"]], "bio"),
        ([["I-A", "I-A", "O"], ["I-A", "B-A"]], "iob1"),
        ([["S-A", "O"], ["B-A", "E-A"]], "bioes"),
        ([["B-A", "O", "I-A"]], "bio"),
        ([["DET", "NOUN"]], None),
        ([["O", "O"]], None),
        ([["B", "O"], ["B", "I"]], "bio"),
        ([["B", "I", "O"], ["I", "B"]], "bio"),
        ([["I", "O"], ["I", "B"]], "iob1"),
        ([["S", "O"], ["B", "E"]], "bioes"),
        ([["U-A", "O"], ["B-A", "I-A", "L-A"]], "bilou"),
        ([["S-A", "O"], ["B-A", "M-A", "E-A"]], "bmes"),
        ([["U", "O"], ["B", "L"]], "bilou"),
        ([["U-A", "O"], ["B-A", "E-A"]], None),
        ([["B", "I", "B"]], None),
        ([["I", "O"]], None),
        ([["B", "I", "O", "V"]], None),
        ([["B", "O", "B-A"]], None),
        ([["B-", "O"]], None),
    ],
    ids=[
        "bio",
        "iob1",
        "bioes",
        "noisy",
        "parts-of-speech",
        "nothing",
        "untyped-bio",
        "untyped-noisy",
        "untyped-iob1",
        "untyped-bioes",
        "bilou",
        "bmes",
        "untyped-bilou",
        "two-schemes",
        "words",
        "no-start",
        "letters",
        "mixed",
        "half",
    ],
)
def test_scheme_is_recognised(sentences, scheme):
    assert recognise_scheme(sentences) == scheme


@pytest.mark.parametrize("span", [(0, 4), (2, 2), (-1, 2)], ids=str)
def test_impossible_spans_are_refused(span):
    with pytest.raises(ConfigError, match="overlaps another, is empty or leaves"):
        spans_to_tags([TagSpan(*span, "A")], 3, "bio")


@pytest.mark.parametrize(
    ("tags", "named"),
    [
        (["W-PER", "O", "B-PER"], "'W-PER' fit none"),
        (["PER", "O", "B-PER"], "'PER' fit none"),
        (["U-A", "B-A", "E-A", "O"], "'U-A' fit none"),
        (["O", *(f"{letter}-A" for letter in "FGHJKN")], r"'K-A', \.\.\. fit none"),
    ],
)
def test_tags_that_look_like_spans_are_named(tags, named):
    with pytest.raises(DataError, match=f"{named} of the schemes IOB1, BIO, BIOES, BILOU and BMES"):
        check_recognised([tags[:2], tags[2:]])


@pytest.mark.parametrize("tags", [["DET", "X-Y"], ["O", "NOUN"], ["n-s---fn-", "O"], ["O"], []])
def test_other_tags_are_left_alone(tags):
    check_recognised([tags])
