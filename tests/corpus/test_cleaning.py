"""Cleaning tokens."""

from pathlib import Path

import pytest

from elmokit.corpus.cleaning import (
    ENGLISH_STOP_WORDS,
    CleaningConfig,
    read_stop_words,
    token_cleaner,
)
from elmokit.errors import ConfigError


def clean(tokens: str, **options: object) -> str:
    cleaner = token_cleaner(CleaningConfig(**options))
    assert cleaner is not None
    return " ".join(cleaner(tokens.split()))


def test_cleaning_is_off_by_default() -> None:
    assert token_cleaner(CleaningConfig()) is None


def test_cleaning_lowers_every_script() -> None:
    assert clean("The ÄRGER Ωμέγα NATO 123", lower=True) == "the ärger ωμέγα nato 123"


def test_cleaning_keeps_letters_with_their_marks() -> None:
    text = "In 1912 , R.M.S. Titanic ; हिन्दी e\u0301te\u0301 don't 東京2020 _ --"
    expected = "In RMS Titanic हिन्दी e\u0301te\u0301 dont 東京"
    assert clean(text, strip_non_letters=True) == expected


def test_cleaning_drops_stop_words_in_any_case() -> None:
    assert clean("The cat and THE dog", stop_words=("the", "AND")) == "cat dog"
    assert clean("(the) cat", stop_words=("the",), strip_non_letters=True) == "cat"
    assert clean("do n't", stop_words=("n't",), strip_non_letters=True) == "do"


def test_cleaning_stop_words_from_file_or_list(tmp_path: Path) -> None:
    path = tmp_path / "words.txt"
    path.write_bytes(b"und\r\noder\n\n  der \n")
    assert read_stop_words(path) == ("der", "oder", "und")
    assert set(read_stop_words("en")) == ENGLISH_STOP_WORDS
    assert all(word == word.lower() for word in ENGLISH_STOP_WORDS)
    with pytest.raises(ConfigError, match="no stop words 'de'"):
        read_stop_words("de")


@pytest.mark.parametrize("wrong", [{"lower": 1}, {"stop_words": "the"}, {"stop_words": (1,)}])
def test_cleaning_config_is_checked(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="CleaningConfig"):
        CleaningConfig(**wrong)
