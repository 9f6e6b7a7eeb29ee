"""One word, several senses: what the layers of the embedded models make of it.

Run: make demo, or python examples/demo.py [MODEL]
MODEL is anything that elmokit.load reads, and is shown English sentences; by default all embedded
models with a language are shown. A plot and the vectors are written to demo-output/ in the current
folder.
"""

from __future__ import annotations

import re
import sys
import time
import unicodedata
import warnings
from itertools import combinations, product
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

import elmokit
from elmokit.checkpoints import embedded_models
from elmokit.encode import open_writer, similarity

ENGLISH = {
    "bank": {
        "river": [
            "Willows grew along the bank of the river .",
            "They sat on the bank of the river .",
            "We walked along the bank under the trees .",
            "The boat lay by the bank of the stream .",
        ],
        "money": [
            "The bank lent him the money for a new house .",
            "The bank raised its interest rates again .",
            "The bank refused to pay the money back .",
            "A bank in London bought the company .",
        ],
    },
    "Apple": {
        "fruit": [
            "Apple trees grow in the valley .",
            "Apple juice is sold in most shops .",
            "Apple pie is a favourite dessert in America .",
            "Apple and pear trees stand along the road .",
        ],
        "company": [
            "Apple announced a new computer that year .",
            "Apple sold millions of phones all over the world .",
            "Apple hired the engineer to design its software .",
            "Apple opened its first store in London .",
        ],
    },
    "bat": {
        "animal": [
            "A bat flew out of the cave .",
            "The bat feeds on insects and sleeps during the day .",
            "This bat lives in the forests of South America .",
            "We found a small bat with brown fur in the attic .",
        ],
        "sport": [
            "He hit the ball with his bat .",
            "She swung the bat and ran to first base .",
            "The player broke his bat in the second inning .",
            "He was named man of the match for his work with the bat .",
        ],
    },
}
CHINESE = {
    "苹果": {
        "水果": [
            "他 每天 早上 吃 一个 苹果 。",
            "这里 的 农民 种植 苹果 和 梨 。",
            "秋天 ， 树 上 的 苹果 都 红 了 。",
            "她 用 苹果 和 面粉 做 了 一个 蛋糕 。",
        ],
        "公司": [
            "苹果 公布 了 新 的 手机 。",
            "他 在 苹果 担任 软件 工程师 。",
            "苹果 的 股价 去年 上涨 了 很多 。",
            "微软 和 苹果 都 开发 了 操作系统 。",
        ],
    },
    "制服": {
        "服装": [
            "警察 穿着 制服 。",
            "学生 必须 穿 制服 上学 。",
            "他 脱下 制服 。",
            "军队 换 了 新 的 制服 。",
        ],
        "制伏": [
            "警察 制服 了 歹徒 。",
            "他 很快 制服 了 对手 。",
            "三名 保安 制服 了 小偷 。",
            "士兵 制服 了 敌人 。",
        ],
    },
}
LANGUAGES = {"small-en": ENGLISH, "small-zh": CHINESE}
OUTPUT = Path("demo-output")
Senses = dict[str, list[str]]
Array = NDArray[np.float32]


class Uses(NamedTuple):
    """A word in the sentences of its senses."""

    word: str
    senses: Senses
    vectors: dict[str, Array]
    """(sentences, L + 1, D) of each sense."""


def main() -> None:
    """Load, compare, plot, write."""
    start = time.perf_counter()
    OUTPUT.mkdir(exist_ok=True)
    named = sys.argv[1:2]
    known = [name for name in embedded_models() if name in LANGUAGES]
    for source in named or known or [None]:
        elmo = load(source)
        print(f"{Path(elmo.source).name}: {elmo.layers} layers, {elmo.dim} dimensions\n")
        uses = [
            look_up(elmo, word, senses)
            for word, senses in LANGUAGES.get(str(source), ENGLISH).items()
        ]
        show_similarities(elmo, uses)
        show_reproducible(elmo, uses)
        name = Path(elmo.source).name.split(".")[0]
        draw_maps(elmo, uses, OUTPUT / f"map-{name}.svg")
        write_vectors(elmo, uses, OUTPUT / f"vectors-{name}.h5")
    print(f"{time.perf_counter() - start:.1f} seconds")


def load(source: str | None) -> elmokit.Elmo:
    """Load a model, and warn when it is a test model."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a longer message follows below
        elmo = elmokit.load(source)
    if elmo.source.startswith("test-"):
        print(
            f"The embedded model {elmo.source!r} is a test model without useful weights.\n"
            "The numbers below show the mechanics only. Pass a real model:\n"
            "    python examples/demo.py elmo_weights.hdf5\n"
        )
    return elmo


def look_up(elmo: elmokit.Elmo, word: str, senses: Senses) -> Uses:
    """The word's vectors in all of its sentences, which are split on spaces."""
    vectors = {}
    for sense, texts in senses.items():
        sentences = [text.split() for text in texts]
        arrays = elmo.encode(sentences, layers="all")
        vectors[sense] = np.stack(
            [array[:, tokens.index(word)] for array, tokens in zip(arrays, sentences, strict=True)]
        )
    return Uses(word, senses, vectors)


def show_similarities(elmo: elmokit.Elmo, words: list[Uses]) -> None:
    """Mean cosine of a word's uses within and across its senses, layer by layer."""
    print("mean cosine of a word with itself in other sentences")
    head = "".join(f"{f'layer {number}':>10}" for number in range(elmo.layers))
    print(f"{'word':<8}{'senses':<20}{head}")
    for uses in words:
        first, second = uses.vectors.values()
        one, two = uses.senses
        rows = {
            f"both {one}": list(combinations(first, 2)),
            f"both {two}": list(combinations(second, 2)),
            f"{one} and {two}": list(product(first, second)),
        }
        for label, pairs in rows.items():
            cosines = np.mean([similarity(a, b) for a, b in pairs], axis=0)  # (L + 1,)
            print(padded(uses.word, 8) + padded(label, 20), end="")
            print("".join(f"{value:>10.3f}" for value in cosines))
        right = nearest_of_same_sense(uses)
        label = f"nearest fits, of {len(first) + len(second)}"
        print(padded(uses.word, 8) + padded(label, 20) + f"{'–':>10}", end="")
        print("".join(f"{count:>10}" for count in right[1:]))
    print("Layer 0 sees only the characters, so it cannot separate the senses.")
    print("'nearest fits': number of uses whose nearest neighbour has the same sense.")
    print("These contexts are clear; benchmarks/models/senses.py also has harder ones.\n")


def padded(text: str, width: int) -> str:
    """The text with blanks to the width; Chinese characters take two columns of a terminal."""
    return text + " " * (width - len(text) - sum(map(is_wide, text)))


def is_wide(character: str) -> bool:
    """Whether a terminal gives the character two columns."""
    return unicodedata.east_asian_width(character) in "WF"


def nearest_of_same_sense(uses: Uses) -> NDArray[np.int64]:
    """Per layer, the number of uses whose nearest neighbour has the same sense: (L + 1,)."""
    vectors = np.concatenate(list(uses.vectors.values())).swapaxes(0, 1)  # (L + 1, uses, D)
    senses = np.repeat(np.arange(len(uses.senses)), [len(v) for v in uses.vectors.values()])
    alike = similarity(vectors[:, :, None], vectors[:, None])  # (L + 1, uses, uses)
    alike[:, np.arange(len(senses)), np.arange(len(senses))] = -2.0  # not itself
    return (senses[alike.argmax(axis=2)] == senses).sum(axis=1)


def show_reproducible(elmo: elmokit.Elmo, words: list[Uses]) -> None:
    """The same sentence alone, again, and among others."""
    sentences = all_sentences(words)
    alone = elmo.encode(sentences[:1], layers="all")[0]
    again = elmo.encode(sentences[:1], layers="all")[0]
    in_batch = elmo.encode(sentences[::-1], layers="all")[-1]
    print(f'"{" ".join(sentences[0])}": largest difference in any number')
    print(f"  encoded twice             {np.abs(alone - again).max():.1e}")
    print(f"  alone, and in a batch     {np.abs(alone - in_batch).max():.1e}\n")


def all_sentences(words: list[Uses]) -> list[list[str]]:
    """Every sentence of the demonstration."""
    return [text.split() for uses in words for texts in uses.senses.values() for text in texts]


def draw_maps(elmo: elmokit.Elmo, words: list[Uses], path: Path) -> None:
    """A map of each word's uses in the top layer, next to each other, as SVG."""
    parts = []
    width = height = 0
    for uses in words:
        texts = [text.split() for texts in uses.senses.values() for text in texts]
        senses = [sense for sense, texts in uses.senses.items() for _ in texts]
        picture = elmo.map(texts, uses.word, labels=senses).svg
        wide, high = map(int, re.findall(r'^<svg .* width="(\d+)" height="(\d+)"', picture)[0])
        parts.append(f'<svg x="{width}"' + picture.removeprefix("<svg"))
        width, height = width + wide, max(height, high)
    start = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}">\n'
    path.write_text(start + "".join(parts) + "</svg>\n", encoding="utf-8")
    print(f"a plot of the uses: {path}")


def write_vectors(elmo: elmokit.Elmo, words: list[Uses], path: Path) -> None:
    """All layers of all sentences, as HDF5."""
    sentences = all_sentences(words)
    arrays = elmo.encode(sentences, layers="all")
    with open_writer(path, layers="all", model=elmo.source) as writer:
        for number, (tokens, array) in enumerate(zip(sentences, arrays, strict=True)):
            writer.write(number, " ".join(tokens), tokens, array)
    print(f"vectors of {len(sentences)} sentences: {path}\n")


if __name__ == "__main__":
    main()
