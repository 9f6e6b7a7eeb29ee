"""Character ids against the arrays that the original code documents, id by id."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmokit.config import CharacterConfig, TextConfig
from elmokit.errors import CheckpointError
from elmokit.text.inputs import ByteAlphabet, UnicodeAlphabet

FILTERS = ((1, 4), (3, 4))
TEXT = TextConfig()


def byte_alphabet(max_characters: int = 50) -> ByteAlphabet:
    config = CharacterConfig(max_characters=max_characters, filters=FILTERS)
    return ByteAlphabet(config, TEXT)


def test_bytes_of_a_word_are_shifted_by_one_between_markers():
    row = byte_alphabet().ids(["The"], trim=False)[0]
    assert row.tolist() == [259, ord("T") + 1, ord("h") + 1, ord("e") + 1, 260] + [261] * 45


def test_sentence_markers_have_rows_of_their_own():
    begin, end = byte_alphabet().ids(["<S>", "</S>"], trim=False)
    assert begin.tolist() == [259, 257, 260] + [261] * 47
    assert end.tolist() == [259, 258, 260] + [261] * 47


def test_non_ascii_word_is_its_utf8_bytes():
    row = byte_alphabet().ids(["ñ"], trim=False)[0]
    assert row[:4].tolist() == [259, 0xC3 + 1, 0xB1 + 1, 260]


def test_long_word_is_cut_at_max_characters():
    # bilm-tf's own test cuts at five columns: "their" keeps three letters.
    assert byte_alphabet(5).ids(["their"], trim=False).tolist() == [
        [259, ord("t") + 1, ord("h") + 1, ord("e") + 1, 260]
    ]


def test_cut_may_fall_inside_a_character():
    # Two bytes each: the fourth column holds the first half of the second letter.
    row = byte_alphabet(5).ids(["äöü"], trim=False)[0]
    assert row.tolist() == [259, 0xC3 + 1, 0xA4 + 1, 0xC3 + 1, 260]


@pytest.mark.parametrize(
    ("word", "inside"),
    [("", []), ("\ud800", []), ("a\udfffb", [98, 99]), ("\0", [1]), ("\0\0", [1, 1])],
)
def test_odd_words_are_defined(word, inside):
    row = byte_alphabet().ids([word], trim=False)[0].tolist()
    assert row == [259, *inside, 260] + [261] * (48 - len(inside))


def test_ten_thousand_characters_are_cut_to_forty_eight_bytes():
    row = byte_alphabet().ids(["x" * 10_000], trim=False)[0]
    assert row.tolist() == [259] + [ord("x") + 1] * 48 + [260]


@given(st.lists(st.text(max_size=60), min_size=1, max_size=5))
def test_trimmed_rows_are_the_full_rows_without_needless_padding(words):
    alphabet = byte_alphabet()
    full, trimmed = alphabet.ids(words, trim=False), alphabet.ids(words)
    columns = trimmed.shape[1]
    np.testing.assert_array_equal(trimmed, full[:, :columns])
    assert (full[:, columns:] == 261).all()
    # Room for a window of padding alone behind the longest word.
    longest = max(len(word.encode("utf-8", "ignore")[:48]) for word in words) + 2
    assert columns == min(50, longest + 3)


SYMBOLS = ["a", "é", "中", "<bos>", "<eos>", "<oov>", "<pad>", "<bow>", "<eow>"]
MANY_LANGS = TextConfig(begin="<bos>", end="<eos>", unknown="<oov>")


def unicode_alphabet(swapped: bool) -> UnicodeAlphabet:
    config = CharacterConfig(
        alphabet="unicode", rows=9, max_characters=6, filters=FILTERS, swapped_markers=swapped
    )
    return UnicodeAlphabet(config, MANY_LANGS, SYMBOLS)


@pytest.mark.parametrize(("swapped", "first", "last"), [(False, 7, 8), (True, 8, 7)])
def test_unicode_characters_use_the_dictionary(swapped, first, last):
    ids = unicode_alphabet(swapped).ids(["aé", "中x", "<bos>", "<eos>", "aaaaaa"], trim=False)
    assert ids.tolist() == [
        [first, 0, 1, last, 6, 6],
        [first, 2, 5, last, 6, 6],
        [first, 3, last, 6, 6, 6],
        [first, 4, last, 6, 6, 6],
        [first, 0, 0, 0, 0, last],
    ]


def test_unicode_dictionary_without_a_marker_is_refused():
    config = CharacterConfig(alphabet="unicode", rows=9, max_characters=6, filters=FILTERS)
    with pytest.raises(CheckpointError, match="<pad>"):
        UnicodeAlphabet(config, MANY_LANGS, [s.replace("<pad>", "x") for s in SYMBOLS])


@pytest.mark.parametrize("symbols", [SYMBOLS[1:], ["q", *SYMBOLS]])
def test_unicode_dictionary_of_another_size_is_refused(symbols):
    config = CharacterConfig(alphabet="unicode", rows=9, max_characters=6, filters=FILTERS)
    with pytest.raises(CheckpointError, match=f"{len(symbols)} symbols, the model's table 9 rows"):
        UnicodeAlphabet(config, MANY_LANGS, symbols)
