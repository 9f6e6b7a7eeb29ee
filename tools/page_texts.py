"""Odd texts, with their tokens and character ids, for the tests of the page's TypeScript.

    python tools/page_texts.py            # compare page/tests/texts.json with the Python code
    python tools/page_texts.py --write    # write it again

The page without a server splits text in the browser; page/tests/engine.test.ts holds it against
this file. Characters come from blocks that no version of Unicode has changed for long.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from random import Random

from elmokit.config import CharacterConfig, TextConfig
from elmokit.server.static_site import jieba_dictionary
from elmokit.text import get_tokenizer
from elmokit.text.inputs import ByteAlphabet, UnicodeAlphabet
from elmokit.text.tokens import LIST_ENDS, NUMBERED, SHORT_FORMS, TITLES

FILE = Path(__file__).parents[1] / "page" / "tests" / "texts.json"
TEXTS = 1200
BLOCKS = (
    *((0x21, 0x7E), (0xA1, 0x24F), (0x300, 0x36F), (0x391, 0x3A1), (0x400, 0x4FF), (0x5D0, 0x5EA)),
    *((0x620, 0x64A), (0x660, 0x66C), (0x905, 0x939), (0x93E, 0x94D), (0xE01, 0xE3A)),
    *((0x2010, 0x2027), (0x2074, 0x208E), (0x2150, 0x2188), (0x2190, 0x21FF), (0x2460, 0x24FF)),
    *((0x2600, 0x26FF), (0x3001, 0x3029), (0x3041, 0x3096), (0x4E00, 0x9FA5), (0xAC00, 0xD7A3)),
    *((0xFE00, 0xFE0F), (0xFF01, 0xFF5E), (0x10330, 0x1034A), (0x1D400, 0x1D454)),
    *((0x1F1E6, 0x1F1FF), (0x1F300, 0x1F5FF), (0x1F600, 0x1F64F), (0xE0020, 0xE007F)),
)
SPACES = "\t\n\v\f\r\x1c\x1d\x1e\x1f \x85\xa0\u1680\u2003\u2028\u2029\u202f\u205f\u3000"
NO_SPACES = "\u200b\ufeff\u180e\u200c\u200d\u2060\u00ad\x00\x07\x1b"
SIGNS = "...--——……==**~~##++''\"\"``’‘“”«»()[]{}<>,;:!?%&@/\\|^_$€£¥§°·・‧״׳٫٬−‐‑–—―"
WORDS = """I don't can't Won't SHOULDN'T'VE y'all'd've cannot Cannot CANNOTS gimme Gonna wanna gotta
lemme lemme's 'tis 'Twas 'em 'n' 'n 'til 'cause '90s '90 O'Brien John's JOHN'S dogs' it’s
n't N’T e-mail and/or U.S. U.S.-based e.g. i.e. Ph.D. a.m. A. B. vitamin-C. x. No. 5 no.
Fig. 3 vol. 12 pp. 4-7 pre- -5 +3.5 −2 .5 1,000 10:30 3.14. 1.2.3 2/3 50% $5 #tag @name #1
a.b@c.org http://a.b/c?d=e&f#g https://en.org/x_(y). WWW.site.com, ftp://h/ www. http:// C++
C# R&D AT&T naïve café na\u0308ive İS ıt's ſhe'ſ \u212aelvin caNNot ca\u0130not tıl 'TIL 'tİs
r\u00e9sum\u00e9 Größe señor Ελλάδα Москва г-н Иванов 5 тыс. руб. हिन्दी भाषा ภาษาไทย
שלום צה״ל مرحبا ٣٫٥ ١٬٠٠٠ 你好，世界。 我在苹果上班 東京 こんにちは 안녕 ①② Ⅷ ½ x² 👍
👍🏽 👨‍👩‍👧 🏳️‍🌈 🇩🇪🇫🇷 ☺️ :-) ^_^ <S> </S> <UNK> \ud800 a\udfffb
"""
CHINESE = """
我 在 苹果 上班 他 每天 吃 一个 树上 的 红 了
她 买 和 香蕉 银行 工作 河岸 边 长满 草 这部 电影
讲述 爱情 故事 中华人民共和国 研究生 生命 起源 南京市 长江大桥 欧文氏 抹香鲸 小明
硕士 毕业 于 中国科学院 计算所 结婚 和 尚未 结过婚 乒乓球 拍卖 完
李仲生 魑魅 程序员 云计算 大数据
"""


def odd_texts() -> list[str]:
    """The same texts every time."""
    random, words = Random(22), WORDS.split()
    forms = sorted(TITLES | SHORT_FORMS | LIST_ENDS | NUMBERED)
    texts = ["", " ", "\n\n", *(f"{form}. x {form}. 5 {form}.a ({form}.)" for form in forms)]
    texts += [f"x{space}y {space}." for space in SPACES + NO_SPACES]

    def character() -> str:
        first, last = random.choice(BLOCKS)
        return chr(random.randint(first, last))

    def piece() -> str:
        kind = random.random()
        if kind < 0.5:
            return random.choice(words)
        if kind < 0.6:
            return f"{random.choice(forms)}."
        if kind < 0.7:
            return "".join(random.choices(SIGNS, k=random.randint(1, 3)))
        if kind < 0.8:
            return f"{random.choice(words)}{random.choice(SIGNS)}{random.choice(words)}"
        return "".join(character() for _ in range(random.randint(1, 4)))

    while len(texts) < TEXTS:
        gaps = random.choices(["", " ", random.choice(SPACES + NO_SPACES)], [2, 7, 1], k=8)
        texts.append("".join(piece() + gap for gap in gaps[: random.randint(1, 8)]))
    # Two halves that meet would be one character in JavaScript.
    return [
        text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass") for text in texts
    ]


def chinese() -> dict[str, object]:
    """Texts, jieba's tokens of them by a part of its dictionary, and this part."""
    dictionary = jieba_dictionary()
    random = Random(7)
    words = CHINESE.split()
    signs = [
        "，",
        "。",
        " ",
        "\n",
        "\r\n",
        "iPhone",
        "3.5%",
        "GPT-4",
        "C++",
        "2026",
        "&",
        "👍",
        "𠮷",
        "、",
    ]
    texts = []
    for _ in range(300):
        parts = random.choices([*words, *signs], k=random.randint(1, 9))
        # Characters in an order that no dictionary knows.
        strange = random.sample("".join(words), k=random.randint(0, 4))
        texts.append("".join([*parts, *strange, *random.sample(words, k=2)]))
    letters = set("".join(texts))
    known = [
        (word, count)
        for word, count in zip(dictionary["words"], dictionary["counts"], strict=True)
        if set(word) <= letters
    ]
    split = get_tokenizer("jieba").tokenize
    return {
        "words": [word for word, _ in known],
        "counts": [count for _, count in known],
        "total": dictionary["total"],
        "start": dictionary["start"],
        "trans": dictionary["trans"],
        "emit": {
            state: {letter: p for letter, p in row.items() if letter in letters}
            for state, row in dictionary["emit"].items()
        },
        "texts": [{"text": text, "tokens": split(text)} for text in texts],
    }


def make() -> dict[str, object]:
    """The contents of the file."""
    texts = odd_texts()
    names = ("words", "space")
    tokens = [{name: get_tokenizer(name).tokenize(text) for name in names} for text in texts]
    distinct = sorted({word for found in tokens for word in found["space"]})
    words = [*Random(5).sample(distinct, 250), "x" * 60, "你" * 20, "<S>", "</S>"]
    config = CharacterConfig(filters=((1, 4), (3, 4)))
    symbols = ["<S>", "</S>", "<oov>", "<pad>", "<bow>", "<eow>", *"abcdet你好👍"]
    unicode = CharacterConfig(
        alphabet="unicode", rows=len(symbols), filters=((1, 4), (3, 4)), max_characters=20
    )
    alphabets = {
        "bytes": ByteAlphabet(config, TextConfig()),
        "unicode": UnicodeAlphabet(unicode, TextConfig(), symbols),
    }
    split = get_tokenizer("chars").tokenize
    return {
        "symbols": symbols,
        "chars": ["".join(split(text)) for text in texts],
        "texts": [{"text": text, **found} for text, found in zip(texts, tokens, strict=True)],
        "words": words,
        "jieba": chinese(),
        "ids": {
            name: [alphabet.ids([word])[0].tolist() for word in words]
            for name, alphabet in alphabets.items()
        },
    }


def main() -> int:
    """Compare or write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--write", action="store_true")
    text = json.dumps(make(), separators=(",", ":")) + "\n"
    if parser.parse_args().write:
        FILE.write_text(text, encoding="utf-8")
    elif FILE.read_text("utf-8") != text:
        print(f"{FILE.name} is not what the Python code gives; write it with --write")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
