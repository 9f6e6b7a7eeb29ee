"""Tokenisers: what a user types in, what comes out."""

import builtins
import marshal
import os
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elmokit.errors import ConfigError, MissingExtraError
from elmokit.text.tokens import _mark_class, _word_pattern, get_tokenizer, join_tokens

WORDS = get_tokenizer("words")
ALL_MARKS = _word_pattern(_mark_class())

# Looked up, not imported: jieba's own warnings are what one of the tests is about.
needs_jieba = pytest.mark.skipif(not find_spec("jieba"), reason="needs the extra zh")
needs_spacy = pytest.mark.skipif(not find_spec("spacy"), reason="needs the extra spacy")

# Pieces chosen to meet at every seam of the rules; plain `st.text()` hardly ever finds one.
SEAMS = st.lists(
    st.sampled_from("abSsnt5'’.-,:/@#+&·…–—−‐!?()\"“” \t\n_%$=*~״我。é②٫")
    | st.sampled_from("\u0301\u200c\u200d\ufe0f\u2028\x1c\ud800🇺🇸🏽😀")
    | st.sampled_from(["n't", "'s", "'ve", "cannot", "gonna", "'tis", "'n'", "हि", "١٠"])
    | st.sampled_from(["Mr", "etc", "No", "U.S", "http://", "www.", "--", "...", "🇺🇸"]),
    max_size=12,
).map("".join)


def check_spans(text: str, spans: list[tuple[int, int]], tokens: list[str]) -> None:
    """Tokens are the spans' text; spans go forward; only white space is left out."""
    assert [text[start:end] for start, end in spans] == tokens
    position = 0
    for start, end in spans:
        assert position <= start < end
        assert text[position:start].strip() == ""
        position = end
    assert text[position:].strip() == ""
    assert not any(char.isspace() for token in tokens for char in token)


@pytest.mark.parametrize("name", ["space", "words", "chars"])
@given(text=st.text() | SEAMS)
def test_tokens_cover_the_text(name: str, text: str) -> None:
    tokenizer = get_tokenizer(name)
    check_spans(text, tokenizer.spans(text), tokenizer.tokenize(text))


@settings(max_examples=300)
@given(texts=st.lists(st.text() | SEAMS, max_size=4))
def test_words_gives_the_same_tokens_before_and_after_it_has_seen_a_mark(texts: list[str]) -> None:
    get_tokenizer.cache_clear()
    fresh = get_tokenizer("words")
    want = [ALL_MARKS.findall(text.rstrip()) for text in texts]
    assert [fresh.tokenize(text) for text in texts] == want
    found = [[text[a:b] for a, b in fresh.spans(text)] for text in texts]
    assert found == want


@settings(max_examples=400)
@given(text=st.text() | SEAMS)
def test_words_leaves_tokenised_text_alone(text: str) -> None:
    tokens = WORDS.tokenize(text)
    assert WORDS.tokenize(" ".join(tokens)) == tokens
    assert WORDS.tokenize("\n  ".join(tokens)) == tokens


@given(text=st.text())
def test_space_is_str_split(text: str) -> None:
    assert get_tokenizer("space").tokenize(text) == text.split()


@given(text=st.text())
def test_chars_is_every_code_point(text: str) -> None:
    assert get_tokenizer("chars").tokenize(text) == [char for char in text if not char.isspace()]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # contractions
        ("I don't know.", "I do n't know ."),
        ("I'll say John's not here", "I 'll say John 's not here"),
        ("He’d said: we’re, I’m, they’ve", "He ’d said : we ’re , I ’m , they ’ve"),
        ("She can't and isn’t and WON'T", "She ca n't and is n’t and WO N'T"),
        ("I shouldn't've; I'd've", "I should n't 've ; I 'd 've"),
        ("You cannot. Cannot you?", "You can not . Can not you ?"),
        ("gonna gotta wanna gimme lemme", "gon na got ta wan na gim me lem me"),
        (
            "'Tis, 'twas, 'em, the '90s, rock 'n' roll",
            "'T is , 't was , 'em , the '90s , rock 'n' roll",
        ),
        ("the dogs' tails and O'Brien's", "the dogs ' tails and O'Brien 's"),
        ("ma'am o'clock l'homme St. John's-wort", "ma'am o'clock l'homme St. John's-wort"),
        # quotes are separated and left as they are
        ('He said "yes" and ‘no’ «da»', 'He said " yes " and ‘ no ’ « da »'),
        ("'quoted words'", "' quoted words '"),
        # periods
        ("Mr. Smith met Dr. Lee.", "Mr. Smith met Dr. Lee ."),
        ("the U.S. is big. Ok", "the U.S. is big . Ok"),
        ("non-U.S., U.S.-based, e.g. a Ph.D.", "non-U.S. , U.S.-based , e.g. a Ph.D."),
        ("J. R. R. Tolkien, J.R.R. Tolkien", "J. R. R. Tolkien , J.R.R. Tolkien"),
        ("We need vitamin C.", "We need vitamin C ."),
        ("(We need vitamin C.)", "( We need vitamin C . )"),
        ("No. 5 is alive. I said no. Then", "No. 5 is alive . I said no . Then"),
        ("Rep. Lee did one more rep.", "Rep. Lee did one more rep ."),
        ("apples, pears, etc. and so", "apples , pears , etc. and so"),
        ("Well... wait…… no..5", "Well ... wait …… no .. 5"),
        # numbers
        ("3.14 1,000 1,000.50 10:30 -5 +3 .5", "3.14 1,000 1,000.50 10:30 -5 +3 .5"),
        ("In 1999, 50% of $5", "In 1999 , 50 % of $ 5"),
        ("€20-30, £5m, US$7, 20°C", "€ 20-30 , £ 5m , US $ 7 , 20 ° C"),
        ("5−3 2+2 1/2 12/31/2020", "5 − 3 2+2 1/2 12/31/2020"),
        ("١٬٠٠٠ و ٣٫١٤", "١٬٠٠٠ و ٣٫١٤"),
        # things of the web
        ("see https://a.org/x?y=1&z=2#t.", "see https://a.org/x?y=1&z=2#t ."),
        ("(www.a.org/b_(c)), HTTP://X.Y!", "( www.a.org/b_(c) ) , HTTP://X.Y !"),
        ("mail a.b+c@x-y.org, ok", "mail a.b+c@x-y.org , ok"),
        ("@user's #tag #1 C++", "@user 's #tag # 1 C ++"),
        # hyphens and dashes
        ("well-known pre- and post-war", "well-known pre- and post-war"),
        ("yes--no – a—b", "yes -- no – a — b"),
        ("what?! (and/or) [AT&T]; a=b", "what ? ! ( and/or ) [ AT&T ] ; a = b"),
        # other scripts
        ("Привет, мир! Т.е. «да», и т.д. вот", "Привет , мир ! Т.е. « да » , и т.д. вот"),
        ("Καλημέρα, π.χ. εδώ;", "Καλημέρα , π.χ. εδώ ;"),
        ("مرحبا، كيف حالك؟ می‌خواهم", "مرحبا ، كيف حالك ؟ می‌خواهم"),
        ("हिन्दी में किताबें।", "हिन्दी में किताबें ।"),
        ("cafe\u0301s nai\u0308ve!", "cafe\u0301s nai\u0308ve !"),
        ("他说：“你好。”走了……吧", "他说 ： “ 你好 。 ” 走了 …… 吧"),
        ("カタカナ・テスト、です。", "カタカナ・テスト 、 です 。"),
        ("卡拉OK 是 2018年 的 A股", "卡拉OK 是 2018年 的 A股"),
        # emoji
        ("hi😀😀 👨‍👩‍👧‍👦! 👍🏽🇺🇸🇬🇧 1️⃣ ❤️", "hi 😀 😀 👨‍👩‍👧‍👦 ! 👍🏽 🇺🇸 🇬🇧 1️⃣ ❤️"),
    ],
)
def test_words_splits(text: str, expected: str) -> None:
    assert WORDS.tokenize(text) == expected.split(" ")
    assert WORDS.tokenize(expected) == expected.split(" ")


@pytest.mark.parametrize("text", ["", " \n\t\u2028 "])
def test_words_of_nothing_is_nothing(text: str) -> None:
    assert WORDS.tokenize(text) == []
    assert WORDS.spans(text) == []


ENGLISH = """\
I don't think she'll come before Tuesday.
The children's toys weren't where they'd left them.
We can't stay, but you're welcome to.
He cannot explain why it happened.
They've been gone for more than three hours, haven't they?
It isn't what I'd call a bargain!
You won't believe what Anna's brother said.
I'm sure that we've met; haven't we?
Mr. Brown and Mrs. Green walked to St. James Park.
Dr. Watson asked Prof. Moriarty a question.
The U.S. economy grew by 2.5% in the third quarter.
Prices rose to $1,250.75 (up from $1,100) last week.
The train leaves at 10:30 and arrives at 12:05.
Her well-known mother-in-law speaks four languages.
Is this the end of the story?
Stop!
Wait, what did you say?
There are two options: stay, or leave.
The recipe needs flour, sugar, eggs, and milk.
We wanna go home, and we're gonna go now.
Gimme the keys; I gotta drive.
Lemme see that letter of yours.
The cat sat on the mat [see the picture].
He paid about 50% of the bill, i.e. twenty euros.
Some animals, e.g. cats and dogs, live with people.
She said nothing -- not even goodbye.
The report (published in 2019) was never read.
O'Brien's car is parked outside O'Hara's house.
What's done can't be undone.
Who'd have thought that it'd work?
The dogs' bowls are empty.
Most of the students' essays were late.
Let's meet at five o'clock.
There're too many of them, aren't there?
I shouldn't say this, but he didn't pay.
That'll be all, thanks.
The pre-war and post-war periods differ.
My sister lives on the 3rd floor of No. 17 now.
A temperature of -5 is common in January.
The ratio was 3.14 to 1, more or less.
They visited Paris, London, and New York.
Ms. Lee won't be back until Nov. 3 at least.
It costs $5 to park here; cash only!
Well... I am not so sure.
The judge's ruling surprised everybody in court.
We had fish and/or chips every Friday.
His e-mail never arrived, so I'll call him.
Twenty-one people signed up; nineteen came.
Yes, no, maybe: that's all he ever says!
The 1990s weren't so bad, were they?
The ship sailed in 1912, didn't it?
Nobody's perfect, I guess.
Ain't that a shame?
Couldn't you ask somebody else's mother?
The quick brown fox jumps over the lazy dog.
J. Smith wrote the second chapter of the book.
At 6:45 a.m. the alarm went off.
He'll have finished by then, won't he?
The company's shares fell 3.5% to $27.10 each.
Turn left, then right, then left again.
You'd better hurry; we mustn't be late.
Nothing (absolutely nothing) can be done.
"""


@pytest.mark.parametrize("sentence", ENGLISH.splitlines())
def test_words_agrees_with_nltk_on_plain_english(sentence: str) -> None:
    nltk = pytest.importorskip("nltk.tokenize")
    assert WORDS.tokenize(sentence) == nltk.TreebankWordTokenizer().tokenize(sentence)


@pytest.mark.parametrize(
    "piece", ["'s", "a", ".", "A. ", "http://", "xn't", "a-", " ", 'J."', "1,", "\u0301"]
)
def test_words_takes_linear_time(piece: str) -> None:
    """A hostile text may be slow by a constant, never by its own length again."""
    text = "x" + piece * (200_000 // len(piece)) + "-x" + " " * 200_000
    started = time.perf_counter()
    check = WORDS.tokenize(text)
    assert time.perf_counter() - started < 5
    assert "".join(check) == "".join(text.split())


def test_get_tokenizer_returns_the_same_object() -> None:
    assert get_tokenizer("words") is get_tokenizer("words")
    assert WORDS.name == "words"


@pytest.mark.parametrize(
    ("name", "hint"),
    [("word", "words"), ("Spaces", "space"), ("spcay:en", "spacy:"), ("spacy", "spacy:")],
)
def test_get_tokenizer_suggests_a_name(name: str, hint: str) -> None:
    with pytest.raises(ConfigError, match=f"(?i)did you mean '{hint}") as caught:
        get_tokenizer(name)
    for known in ("space", "words", "chars", "jieba", "spacy:LANGUAGE"):
        assert known in str(caught.value)


def test_get_tokenizer_without_a_likeness_lists_the_names() -> None:
    with pytest.raises(ConfigError, match=r"unknown tokeniser 'zzzz'\. Known: space, words"):
        get_tokenizer("zzzz")


@pytest.mark.parametrize(("name", "extra"), [("jieba", "zh"), ("spacy:de", "spacy")])
def test_get_tokenizer_names_the_missing_extra(
    name: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_import = builtins.__import__

    def no_extras(module: str, *args: object, **kwargs: object) -> object:
        if module in ("jieba", "spacy"):
            raise ImportError(module)
        return real_import(module, *args, **kwargs)  # type: ignore[arg-type]

    get_tokenizer.cache_clear()
    monkeypatch.setattr(builtins, "__import__", no_extras)
    with pytest.raises(MissingExtraError, match=rf"elmokit\[{extra}\]"):
        get_tokenizer(name)


@needs_jieba
def test_jieba_reads_no_cache_of_the_shared_temporary_folder(tmp_path: Path) -> None:
    # A cache that another user left: it knows two words that the dictionary does not have.
    words = {"我来到北": 10**9, "京清华大学": 10**9}
    prefixes = {word[:end]: 0 for word in words for end in range(1, len(word))}
    (tmp_path / "jieba.cache").write_bytes(marshal.dumps((prefixes | words, 2 * 10**9)))
    code = "from elmokit.text import get_tokenizer\n"
    code += "print(*get_tokenizer('jieba').tokenize('我来到北京清华大学'))"
    command = [sys.executable, "-X", "utf8", "-c", code]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    assert done.stdout == "我 来到 北京 清华大学\n"
    assert [path.name for path in tmp_path.iterdir()] == ["jieba.cache"]


@needs_jieba
def test_jieba_splits_chinese_without_a_word_on_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    tokenizer = get_tokenizer("jieba")
    text = " 我来到北京清华大学。\n 3.5%  OK"
    tokens = tokenizer.tokenize(text)
    assert tokens == ["我", "来到", "北京", "清华大学", "。", "3.5%", "OK"]
    check_spans(text, tokenizer.spans(text), tokens)
    assert capfd.readouterr() == ("", "")


@needs_spacy
def test_spacy_splits_with_the_language_s_rules() -> None:
    tokenizer = get_tokenizer("spacy:fr")
    text = "  C'est l'homme.\n\nOui !"
    tokens = tokenizer.tokenize(text)
    assert tokens == ["C'", "est", "l'", "homme", ".", "Oui", "!"]
    check_spans(text, tokenizer.spans(text), tokens)
    assert tokenizer.name == "spacy:fr"


@needs_spacy
def test_spacy_without_the_language_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match="no tokeniser for 'qq'"):
        get_tokenizer("spacy:qq")


@pytest.mark.parametrize(
    "name",
    [pytest.param("jieba", marks=needs_jieba), pytest.param("spacy:en", marks=needs_spacy)],
)
@settings(max_examples=50, deadline=None)
@given(text=st.text(st.characters(exclude_categories=["Cs"])))
def test_borrowed_tokenisers_cover_the_text(name: str, text: str) -> None:
    tokenizer = get_tokenizer(name)
    check_spans(text, tokenizer.spans(text), tokenizer.tokenize(text))


@pytest.mark.parametrize(
    "text",
    [
        "The city's mayor (55) didn't come.",
        '"I know," he said, "it\'s 5% of $10."',
        "The boys' house isn't far; they'll see.",
        "He said 'yes' and left [again] …",
        "我爱北京。",
        "她说：“好！”",
        "",
    ],
)
def test_join_tokens_writes_text_as_it_was(text):
    tokens = get_tokenizer("chars" if "我" in text or "她" in text else "words").tokenize(text)
    joined = join_tokens(tokens)
    assert joined.replace(" ", "") == text.replace(" ", "")
    assert joined == text.replace(" …", "…")


def test_join_tokens_of_chinese_words_has_no_spaces():
    assert (
        join_tokens(["我们", "在", "北京", "，", "用", "Python", "。"]) == "我们在北京，用Python。"
    )
    assert join_tokens(["저는", "학생입니다", "."]) == "저는 학생입니다."
