"""Sentence splitting: where sentences end, and where they only seem to."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elmokit.text.sentences import sentence_spans, split_sentences

SEAMS = st.lists(
    st.sampled_from("aAI1.!?…。！؟।\"'”’“»«)(我」 \t\n\r\u2028\u2029\x85\xa0,;")
    | st.sampled_from(["Mr", "U.S", "etc", "No", "The", "Inc", "\n\n", "\r\n"]),
    max_size=20,
).map("".join)


@settings(max_examples=300)
@given(text=st.text() | SEAMS)
def test_sentences_lose_only_white_space(text: str) -> None:
    spans = sentence_spans(text)
    position = 0
    for start, end in spans:
        assert position <= start < end
        assert text[position:start].strip() == ""
        assert text[start:end] == text[start:end].strip()
        position = end
    assert text[position:].strip() == ""
    assert split_sentences(text) == [text[start:end] for start, end in spans]


@pytest.mark.parametrize(
    "sentences",
    [
        ["It rained.", "We stayed in.", "Did you?", "Yes!"],
        ["What?!", "No way!!!", "Well...", "Perhaps.", "Then"],
        # quotes and brackets close with their sentence
        ['He said "Stop."', "Then he left."],
        ["She said: “Go!”", "‘Why?’", "(Nobody knew.)", "[So it was.]", "Right."],
        ["„Ja.“", "»Nein!«", "Gut."],
        ["« Ça va ? »", "Oui."],
        # the sentence continues in lower case
        ['"Really?" she asked.', "Wait... what?", "« Bonjour ! » dit-il."],
        # abbreviations, initials, numbers
        ["Mr. Smith met Dr. Lee.", "Prof. J. K. Brown did not."],
        ["The U.S. Senate met in the U.S.", "The House did too."],
        ["We sell apples, pears, etc. at noon.", "We like them, etc.", "Apples above all."],
        ["Apple Inc. Chairman Lee spoke in Jan. 2020.", "He left."],
        ["See No. 5, Fig. 3 and pp. 7-9.", "I said no.", "Then I left."],
        ["Pi is 3.14.", "See example.com.", "It opens at 10 a.m. daily."],
        ["We use some, e.g. Python and Rust.", "It was I.", "Go."],
        ["1. First we cook.", "2. Then we eat.", "A. Alone."],
        ["It happened in 1999.", "Nobody saw it."],
        # other languages with Latin marks
        ["¿Qué hora es?", "¡Hola!", "¿Sí?"],
        ["Das kostet ca. 5 Euro, z.B. hier.", "Gut."],
        ["Он живёт на ул. Ленина.", "Т.е. далеко.", "Да!"],
        # tokenised text
        ["I do n't know .", "He left .", "( So he did . )", "Good ."],
    ],
)
def test_sentences_of_running_text(sentences: list[str]) -> None:
    assert split_sentences(" ".join(sentences)) == sentences
    assert split_sentences("\n".join(sentences)) == sentences
    assert split_sentences("\n\n".join(sentences)) == sentences


@pytest.mark.parametrize(
    "sentences",
    [
        ["我看见了。", "他走了！", "真的？", "是的……", "好吧"],
        ["他说：“你好。”", "（真的！）", "「はい。」", "『そう？』", "走った。"],
        ["好!", "不好?", "我用Python 3.11。", "嗯"],
        ["यह एक वाक्य है।", "यह दूसरा है॥", "और"],
        ["هل أنت بخير؟", "یہ جملہ ہے۔", "دوسرا"],
        ["ሰላም።", "እንዴት ነህ፧", "ደህና"],
        ["Բարեւ։", "Լավ"],
    ],
)
def test_sentences_need_no_space_in_other_scripts(sentences: list[str]) -> None:
    assert split_sentences("".join(sentences)) == sentences
    assert split_sentences(" ".join(sentences)) == sentences


def test_a_blank_line_ends_a_sentence_and_a_line_break_does_not() -> None:
    text = "A title\n\nsmall letters go on\nafter a break. End\r\n \t\r\nof it\u2029and it"
    assert split_sentences(text) == [
        "A title",
        "small letters go on\nafter a break.",
        "End",
        "of it",
        "and it",
    ]
    assert split_sentences("one\r\ntwo") == ["one\r\ntwo"]


@pytest.mark.parametrize("text", ["", " \n\n\t", "\u2029"])
def test_no_text_has_no_sentences(text: str) -> None:
    assert split_sentences(text) == []


@pytest.mark.parametrize(
    "piece", ["A. ", "a. ", ".", "\n", "\r\n", "Mr. ", "1. ", "。", '"', ". »", " "]
)
def test_sentences_take_linear_time(piece: str) -> None:
    text = "Mr. " + piece * 100_000
    started = time.perf_counter()
    spans = sentence_spans(text)
    assert time.perf_counter() - started < 5
    assert spans
