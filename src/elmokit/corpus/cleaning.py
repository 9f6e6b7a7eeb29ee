"""Optional cleaning of tokens: lower case, letters only, stop words.

ELMo reads the real spelling of every word, capitals, digits and marks included, so nothing is
cleaned by default. Cleaning works on tokens, after sentences and tokens have been found in the
text as it was written: both need its capitals and its punctuation.

    >>> clean = token_cleaner(CleaningConfig(lower=True, strip_non_letters=True))
    >>> clean(["In", "1912", ",", "the", "R.M.S.", "Titanic", "sank", "."])
    ['in', 'the', 'rms', 'titanic', 'sank']
"""

from __future__ import annotations

import functools
import os
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass

from elmokit.config import check
from elmokit.errors import ConfigError

ENGLISH_STOP_WORDS = frozenset(
    "a about above after again against all am an and any are as at be because been before being"  # noqa: SIM905
    " below between both but by can could did do does doing down during each few for from further"
    " had has have having he her here hers herself him himself his how i if in into is it its"
    " itself just me more most my myself no nor not now of off on once only or other our ours"
    " ourselves out over own same she should so some such than that the their theirs them"
    " themselves then there these they this those through to too under until up very was we were"
    " what when where which while who whom why will with would you your yours yourself yourselves"
    " 's 'm 'd 'll 're 've n't ’s ’m ’d ’ll ’re ’ve n’t".split()
)
"""Common English words that say little about a text's subject, as the tokeniser `words` cuts them.

They are what a biLM learns grammar from: leave them in unless a comparison needs their removal.
"""

_CACHED_TOKENS = 1 << 16


@dataclass(frozen=True, kw_only=True)
class CleaningConfig:
    """What is changed in the tokens of a corpus; nothing by default."""

    lower: bool = False
    """Write every token in lower case."""
    strip_non_letters: bool = False
    """Keep nothing but letters (of any script, with their marks); empty tokens are dropped."""
    stop_words: tuple[str, ...] = ()
    """Tokens to leave out, whatever their case."""

    def __post_init__(self) -> None:
        for name in ("lower", "strip_non_letters"):
            check(isinstance(getattr(self, name), bool), self, name, "true or false")
        words: object = self.stop_words
        good = isinstance(words, tuple) and all(isinstance(word, str) for word in words)
        check(good, self, "stop_words", "give a tuple of words")


def read_stop_words(source: str | os.PathLike[str]) -> tuple[str, ...]:
    """Read a list of stop words.

    Args:
        source: ``en`` for the built-in English list, or a text file with one word per line.

    Raises:
        ConfigError: There is neither such a list nor such a file.
    """
    from elmokit.text.readers import read_texts

    if source == "en":
        return tuple(sorted(ENGLISH_STOP_WORDS))
    if not os.path.isfile(source):
        raise ConfigError(
            f"no stop words {os.fspath(source)!r}: give 'en', or a file with one word per line"
        )
    lines = (text if isinstance(text, str) else " ".join(text) for text in read_texts(source))
    return tuple(sorted({line.strip() for line in lines} - {""}))


@functools.lru_cache(maxsize=1)
def token_cleaner(config: CleaningConfig) -> Callable[[list[str]], list[str]] | None:
    """The function that cleans a sentence's tokens, or None if there is nothing to clean."""
    stop_words = frozenset(word.lower() for word in config.stop_words)
    if not (config.lower or config.strip_non_letters or stop_words):
        return None

    # Words repeat: most tokens of a corpus are found here.
    @functools.lru_cache(_CACHED_TOKENS)
    def cleaned(token: str) -> str:
        if token.lower() in stop_words:
            return ""
        if config.strip_non_letters:
            token = "".join(filter(_is_letter, token))
            if token.lower() in stop_words:  # "(the" and "the" are one word
                return ""
        return token.lower() if config.lower else token

    return lambda tokens: [word for token in tokens if (word := cleaned(token))]


def _is_letter(character: str) -> bool:
    # Marks are parts of letters: vowel signs in Devanagari, accents in decomposed Latin.
    return character.isalpha() or unicodedata.category(character)[0] == "M"
