"""Tokens of a text: tokenisers by name.

    >>> from elmokit.text import get_tokenizer
    >>> get_tokenizer("words").tokenize("I don't know Mr. Smith's e-mail.")
    ['I', 'do', "n't", 'know', 'Mr.', 'Smith', "'s", 'e-mail', '.']

Every token is a piece of the text (``text[start:end]``): nothing is rewritten, nothing but white
space is dropped, so a vector can always be traced back to its characters.

`words` is one regular expression. It depends on a token and the few characters after it, never on
what came before, which gives the property that matters most to users of tokenised corpora: text
that is tokenised already comes out as it went in.
"""

import functools
import re
import sys
import unicodedata
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from difflib import get_close_matches
from itertools import islice
from typing import Any, TypeGuard, cast

from elmokit.errors import AmbiguousInputWarning, ConfigError, DataError, MissingExtraError

NAMES = ("space", "words", "chars", "jieba", "spacy:LANGUAGE")
"""What `get_tokenizer` accepts; LANGUAGE is a code such as ``de``."""


def _forms(words: str) -> frozenset[str]:
    """Return the words as they may be written: as given, with a capital, in capitals."""
    return frozenset(
        form for word in words.split() for form in (word, word.capitalize(), word.upper())
    )


# Abbreviations keep their period; they are listed without it. One that is listed with a capital
# needs it ("Rep.", but "one more rep."), and a word that is common in full ("Sun") is left out.
TITLES = _forms(
    "Adm Capt Cmdr Col Cpl Dr Dra Drs Fr Gen Gov Hon Hr Lt Maj Messrs Mlle Mme Mr Mrs Ms Mt Mx Pres"
    " Prof Rep Rev Sen Sgt Sra Srta St Ste approx bzw cf dept eds esp vgl viz vs г-н г-жа им см ул"
)
"""Short forms that something always follows: a name, a number, the other side."""

SHORT_FORMS = _forms(
    "Apr Assn Aug Ave Bldg Blvd Bros Co Corp Dec Feb Inc Intl Jan Jr Jul Jun Ltd Mar Mfg Mon Nov"
    " Oct Pty Rd Sep Sept Sr Univ al ca млн млрд руб тыс"
)
"""Short forms that occur inside a sentence as often as at its end."""

LIST_ENDS = _forms("etc usw др пр")
"""Short forms that close an enumeration, and often its sentence."""

NUMBERED = _forms("art ch fig figs no nos nr pp sec vol")
"""Words that are short forms only when a number follows: "No. 5", but "I said no."."""


class Tokenizer(ABC):
    """Splits text into tokens, each an exact piece of the text.

    Attributes:
        name: the name under which `get_tokenizer` finds it.
    """

    name: str

    @abstractmethod
    def spans(self, text: str) -> list[tuple[int, int]]:
        """Return the (start, end) character offsets of the tokens, in order."""

    def tokenize(self, text: str, most: int | None = None) -> list[str]:
        """Return the tokens, each of them ``text[start:end]`` of its span.

        With `most` it may stop after as many tokens.
        """
        return [text[start:end] for start, end in self.spans(text)][:most]


def is_tokens(sentence: object) -> TypeGuard[Sequence[str]]:
    """Whether it is a sequence of strings."""
    if not isinstance(sentence, (list, Sequence)):  # the check for a list is fast
        return False
    try:
        "".join(sentence)  # the fastest check of all items
    except TypeError:
        return False
    return True


def sentence_tokens(
    sentence: object, number: int, tokenize: Callable[[str], list[str]]
) -> list[str]:
    """The tokens of a sentence, given as text or as tokens; `number` names it when it is neither.

    Raises:
        DataError: It is something else.
    """
    if isinstance(sentence, str):
        return tokenize(sentence)
    if is_tokens(sentence):
        return list(sentence)
    hint = "; give the texts alone, such as data['text']" if isinstance(sentence, Mapping) else ""
    raise DataError(
        f"sentence {number}: expected a text or a list of tokens, found {sentence!r:.80}{hint}"
    )


def check_sentences(sentences: object, tokenizer: str = "words") -> None:
    """Refuse what Python would iterate over, but as other sentences than the caller means.

    The tokens of one sentence in the position of several sentences are possible, so they get a
    warning; where the `tokenizer` is ``chars``, only characters are such tokens. Nothing is read of
    an iterator, and of a list nothing after its first sentence.

    Raises:
        DataError: It is one text, a mapping, a set, a table, or nothing to iterate over.
    """
    kind = type(sentences).__name__
    columns = getattr(sentences, "column_names", None) or getattr(sentences, "columns", None)
    if isinstance(sentences, list | tuple):
        is_text = _is_no_character if tokenizer == "chars" else _is_no_word
        if len(sentences) >= _WORDS and not any(map(is_text, sentences)):
            _warn_of_words(sentences)
    elif isinstance(sentences, str | bytes):
        raise DataError(
            f"expected several sentences, found one text: {sentences!r:.80}; write [text]"
        )
    elif isinstance(sentences, Mapping):
        raise DataError(
            f"expected sentences, found a {kind} with the keys {list(sentences)!r:.80}: a list of "
            "its keys is hardly meant; give the texts, such as data['text'] or list(data.values())"
        )
    elif isinstance(sentences, Set):
        raise DataError(f"expected sentences in an order, found a {kind}; write sorted(...)")
    elif columns is not None:
        raise DataError(
            f"expected sentences, found a {kind} with the columns {', '.join(map(str, columns))}; "
            "give the column of the texts, such as df['text']"
        )
    elif not isinstance(sentences, Iterable) or getattr(sentences, "ndim", 1) != 1:
        raise DataError(f"expected a text or several sentences, found {sentences!r:.80}")


_WORDS = 4
"""So many words in a row are likely to be one sentence."""
_NO_WORD = re.compile(
    r"\s|[\u0e00-\u10ff\u1780-\u17ff\u2e80-\ua4cf\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff]"
)
"""White space, or a character of a script whose sentences have none (Thai to Chinese)."""


def _is_no_word(item: object) -> bool:
    return not (isinstance(item, str) and item) or _NO_WORD.search(item) is not None


def _is_no_character(item: object) -> bool:
    return _is_no_word(item) or len(cast(str, item)) > 1


def _warn_of_words(words: Sequence[str]) -> None:
    shown = ", ".join(map(repr, words[:_WORDS]))
    warn_ambiguous(
        f"[{shown}{', …' if len(words) > _WORDS else ''}]: {len(words)} strings without a space "
        f"are read as {len(words)} sentences. For one sentence of {len(words)} tokens write "
        "[tokens]; if each is a sentence, write [[word] for word in words]"
    )


def warn_ambiguous(message: str) -> None:
    """Warn at the caller's line, not at one of elmokit or torch."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals["__name__"].startswith(
        ("elmokit.", "torch.")
    ):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, AmbiguousInputWarning, stacklevel=level)


@functools.lru_cache(maxsize=64)
def get_tokenizer(name: str) -> Tokenizer:
    """Return the tokeniser of that name; the same object every time.

    Args:
        name: ``space``, ``words``, ``chars``, ``jieba`` or ``spacy:LANGUAGE`` (``spacy:de``).

    Returns:
        A tokeniser that may be shared between threads.

    Raises:
        ConfigError: if there is no such tokeniser, or spaCy does not know the language.
        MissingExtraError: if the package behind it is not installed.
    """
    if name.startswith("spacy:") and len(name) > len("spacy:"):
        return _SpacyTokenizer(name)
    makers: dict[str, Callable[[], Tokenizer]] = {
        "space": lambda: _SpaceTokenizer(name, re.compile(r"(\S++)")),
        "words": lambda: _WordTokenizer(name, _word_pattern(_ONE_MARK)),
        # A combining mark is a code point of its own, and so is a token of its own.
        "chars": lambda: _PatternTokenizer(name, re.compile(r"(\S)")),
        "jieba": _JiebaTokenizer,
    }
    if name not in makers:
        if ":" in name or name == "spacy":
            near = ["spacy:LANGUAGE"]
        else:
            near = get_close_matches(name.lower(), NAMES, n=1, cutoff=0.5)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ConfigError(f"unknown tokeniser {name!r}.{hint} Known: {', '.join(NAMES)}.")
    return makers[name]()


def check_tokenizer(name: object) -> None:
    """Raise if `get_tokenizer` has none of that name, or it is no name."""
    if not isinstance(name, str):
        raise ConfigError(
            f"tokenizer={name!r:.80}: give a name ({', '.join(NAMES)}). To split text with a "
            "function of your own, give its tokens: encode([split(text) for text in texts])"
        )
    get_tokenizer(name)


_TO_THE_LEFT = re.compile(
    r"[.,;:!?%)\]}”’»…，。；：！？、）」』》]+|['’](?i:s|m|d|ll|re|ve)|(?i:n['’]t)|''"
)
_TO_THE_RIGHT = re.compile(r"[(\[{“‘«$£€#（「『《]|``")
_NO_SPACES = re.compile(
    r"[\u2e80-\u312f\u3400-\u9fff\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff]"
)
"""Scripts without spaces between words, and their punctuation."""
_PLAIN_QUOTES = ('"', "'")


def join_tokens(tokens: Iterable[str]) -> str:
    """Tokens as a text that people would write, the opposite of ``tokenize``.

        >>> join_tokens(["The", "city", "'s", "mayor", "(", "55", ")", "did", "n't", "come", "."])
        "The city's mayor (55) didn't come."

    Clitics and closing punctuation follow the word directly, opening punctuation precedes it, and
    Chinese and Japanese have no spaces.
    """
    text, glued = "", True  # glued: no space before the next token
    opened: set[str] = set()
    for token in tokens:
        closes = token in opened or (token == "'" and text.endswith("s"))
        left = closes or _TO_THE_LEFT.fullmatch(token) is not None
        meet = _NO_SPACES.fullmatch(text[-1:]) or _NO_SPACES.match(token)
        text += token if glued or left or meet or not text else f" {token}"
        glued = not closes and (token in _PLAIN_QUOTES or bool(_TO_THE_RIGHT.fullmatch(token)))
        if token in _PLAIN_QUOTES:
            opened ^= {token} if glued or token in opened else set()
    return text


class _PatternTokenizer(Tokenizer):
    """A tokeniser that is one regular expression whose first group is the token."""

    def __init__(self, name: str, pattern: re.Pattern[str]) -> None:
        self.name = name
        self._pattern = pattern

    def spans(self, text: str) -> list[tuple[int, int]]:
        # Without rstrip, a pattern that skips white space would try each of a million blanks.
        return [match.span(1) for match in self._pattern.finditer(text.rstrip())]

    def tokenize(self, text: str, most: int | None = None) -> list[str]:
        if most is None:
            return self._pattern.findall(text.rstrip())
        # Slower than findall, but other threads can run between two tokens.
        return [match[1] for match in islice(self._pattern.finditer(text.rstrip()), most)]


class _WordTokenizer(_PatternTokenizer):
    """Splits as `_word_pattern` says.

    The combining marks of all scripts are most of what it takes to compile that expression. It has
    one of them until a text with any arrives; a text without gives the same tokens either way.
    """

    _no_marks: frozenset[str] | None = frozenset()
    """Characters seen so far; None: all marks are compiled."""

    def spans(self, text: str) -> list[tuple[int, int]]:
        self._look_for_marks(text)
        return super().spans(text)

    def tokenize(self, text: str, most: int | None = None) -> list[str]:
        self._look_for_marks(text)
        return super().tokenize(text, most)

    def _look_for_marks(self, text: str) -> None:
        if self._no_marks is None or text.isascii() or self._no_marks.issuperset(text):
            return
        new = set(text) - self._no_marks
        if any(unicodedata.category(char)[0] == "M" for char in new):
            self._pattern = _word_pattern(_mark_class())
            self._no_marks = None
        else:
            self._no_marks = self._no_marks | new


class _SpaceTokenizer(_PatternTokenizer):
    """Splits on Unicode white space, exactly as ``str.split()`` does."""

    def tokenize(self, text: str, most: int | None = None) -> list[str]:
        return text.split() if most is None else text.split(maxsplit=most)[:most]


class _JiebaTokenizer(Tokenizer):
    """Splits Chinese with jieba, in its default mode and with whatever dictionary it was given."""

    name = "jieba"

    def __init__(self) -> None:
        import logging
        import warnings

        with warnings.catch_warnings():
            # Its source has invalid escapes and imports pkg_resources: nothing a user can fix.
            warnings.simplefilter("ignore")
            try:
                import jieba
            except ImportError as error:
                raise MissingExtraError("jieba", "zh", "the tokeniser 'jieba'") from error
            jieba.setLogLevel(logging.WARNING)
            self._jieba: Any = jieba.dt
            self._read_dictionary()

    def _read_dictionary(self) -> None:
        """Read the dictionary itself.

        Left to itself, jieba reads ``jieba.cache`` from the temporary folder, which other users can
        write to.
        """
        jieba = self._jieba
        with jieba.lock:
            if not jieba.initialized:
                jieba.FREQ, jieba.total = jieba.gen_pfdict(jieba.get_dict_file())
                jieba.initialized = True

    def spans(self, text: str) -> list[tuple[int, int]]:
        if not self._jieba.initialized:  # it was given another dictionary since
            self._read_dictionary()
        pieces = self._jieba.tokenize(text)
        return [(start, end) for piece, start, end in pieces if not piece.isspace()]


class _SpacyTokenizer(Tokenizer):
    """Splits with the rules of spaCy's blank pipeline of a language; no model is needed."""

    def __init__(self, name: str) -> None:
        self.name = name
        try:
            import spacy
        except ImportError as error:
            raise MissingExtraError("spacy", "spacy", f"the tokeniser {name!r}") from error
        language = name.removeprefix("spacy:")
        try:
            self._tokenizer: Any = spacy.blank(language).tokenizer
        except ImportError as error:  # an unknown language, or one that needs a further package
            raise ConfigError(f"spaCy has no tokeniser for {language!r}: {error}") from error

    def spans(self, text: str) -> list[tuple[int, int]]:
        tokens = self._tokenizer(text)
        return [(token.idx, token.idx + len(token)) for token in tokens if not token.is_space]


_ONE_MARK = "\u0300"


@functools.cache
def _mark_class() -> str:
    r"""Return the combining marks of all scripts, as the inside of a regex character class.

    ``\w`` leaves them out, and would break Devanagari or decomposed Latin words at each of them.
    All of Unicode's marks are below U+1F000, but for the variation selectors at U+E0100.
    """
    runs: list[list[int]] = []
    for code in (*range(0x300, 0x1F000), *range(0xE0100, 0xE01F0)):
        if unicodedata.category(chr(code))[0] == "M":
            if runs and runs[-1][1] == code - 1:
                runs[-1][1] = code
            else:
                runs.append([code, code])
    # As they are: the pattern has them forty times, and escapes would take long to parse.
    return "".join(f"{chr(first)}-{chr(last)}" for first, last in runs)


def _word_pattern(marks: str) -> re.Pattern[str]:
    """Build the expression behind `words`; its comments are the tokeniser's rules.

    It splits running text as the Penn Treebank does, in any script that puts spaces between words.
    A period stays with the word before it if the word is a known abbreviation (Mr., etc.), has
    periods inside and ends in a single letter (U.S., e.g., Ph.D.), or is one letter (an initial;
    not at the end of the text, where it is "vitamin C" and a full stop). Every other period at
    the end of a word is a token.

    Two properties keep tokenised text unchanged: each token alone matches as itself; and no rule
    needs the characters before a token (that of a number's sign only checks that it is no hyphen).
    `marks` is the inside of a class of combining marks.
    """
    letter = r"[^\W\d_]"
    # Letters, digits, "_", marks, and the invisible joiners (Persian, Indic; soft hyphen).
    char = rf"[\w{marks}\u00ad\u200c\u200d\u2060]"
    apostrophe = "['’]"
    # Between two word characters these hold a word together. The digits' own are in the loop.
    joiner = "[-‐‑./+&@·・‧״׳]"
    clitic = rf"{apostrophe}(?i:s|m|d|ll|re|ve)"
    # A contraction is split where up to three clitics, and then no further part, end the word.
    no_part = rf"(?!{char}|{joiner}{char}|{apostrophe}{char})"
    clitic_end = rf"(?=(?:{clitic}){{0,2}}+{no_part})"
    end = rf"(?=(?:{clitic}){{0,3}}+{no_part})"
    verb_end = rf"(?i:n{apostrophe}t)?+{end}"
    not_in_word = rf"(?!\.|{char}|-{char})"
    closing = r"""["'”’»›)\]}」』）]"""
    url_char = r"""[^\s()<>"'“”‘’«»，。；：！？、（）「」『』《》]"""
    emoji = "[\u2190-\u2bff\u3030\u303d\u3297\u3299\U0001f000-\U0001faff]"
    emoji_suffix = rf"[{marks}\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f]*+"

    return re.compile(
        rf"""
        \s*+(
        # Web addresses, without the punctuation that follows them; balanced (…) inside is kept.
          (?i:https?://|ftp://|www\.)(?:{url_char}*(?:\({url_char}*\)|[\w/&=#+~%$-]))+
        # The Treebank's split verbs: can|not, gim|me, gon|na, got|ta, lem|me, wan|na.
        | (?i:can(?=not{verb_end})|(?:gim|lem)(?=me{verb_end})
             |(?:gon|wan)(?=na{verb_end})|got(?=ta{verb_end}))
        # The usual word: nothing after it that could hold it together with more.
        | {char}++(?!{joiner}|{apostrophe}|(?<=\d)[,:٫٬]\d)
        # Abbreviations and initials.
        | (?:{_alternatives(TITLES | SHORT_FORMS | LIST_ENDS)})\.{not_in_word}
        | (?:{_alternatives(NUMBERED)})\.(?=\s++\d)
        | {letter}\.{not_in_word}(?!{closing}*+\s*+\Z)
        # The verb before n't: do|n't, ca|n't, should|n't|'ve.
        | {char}+?(?=(?i:n{apostrophe}t){end})
        # Any other word, perhaps with a sign, a leading decimal point, # or @ before it ...
        | (?:[\#@](?=[^\W\d])|(?<!\w)[-+−]\.?(?=\d)|\.(?=\d))?{char}++
          (?:                                       # ... and more parts:
              (?:{joiner}|\.-){char}++              # e-mail, and/or, U.S.-based, a.b@c.org
            | (?<=\d)[,:٫٬](?=\d){char}++           # 1,000  10:30
            | (?!{clitic}{clitic_end})              # O'Brien, but John|'s
              (?:(?:{clitic}(?!{char}))++|{apostrophe}{char}++)
          )*+
          (?:(?<=\w\.{letter})\.{not_in_word}|-(?!-))?  # U.S., e.g., Ph.D.; the hyphen of "pre-"
        # Clitics, and words that begin with an apostrophe: 't|is, 't|was, 'em, 'n', '90s.
        | {clitic}{clitic_end}
        | {apostrophe}(?i:t(?=(?:is|was){end})|(?:t|em|til|cause|n{apostrophe}?|\d\ds?){end})
        # Emoji: flags (two letters), or a base with its modifiers, and more of them after a ZWJ.
        | [\U0001f1e6-\U0001f1ff]{{2}}
        | {emoji}{emoji_suffix}(?:\u200d{emoji}{emoji_suffix})*+
        # Runs of one sign: ... -- —— …… === ***; then any other sign alone, marks included.
        | (?:\.++|-++|–++|—++|―++|…++|=++|\+++|\*++|~++|\#++)[{marks}]*+
        | \S[{marks}]*+
        )
        """,
        re.VERBOSE,
    )


def _alternatives(words: frozenset[str]) -> str:
    """Return the words as regex alternatives, longest first."""
    return "|".join(re.escape(word) for word in sorted(words, key=lambda w: (-len(w), w)))
