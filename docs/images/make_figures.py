"""Draw the diagram of the documentation and the map of its first page, in both languages.

Run: python docs/images/make_figures.py
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from xml.sax.saxutils import escape

import elmokit

TOKENS = ("the", "bank", "lent", "money")
SHOWN = 1
"""The token whose layers are mixed at the top."""
WIDTH, HEIGHT = 1000, 640
INK, SOFT, LINE = "#1a1a1a", "#5c5c5c", "#7a7a7a"
TOKEN, FORWARD, BACKWARD = "#e4e4e4", "#bcd7f2", "#f8d3b0"
BOX, STEP, ROW = (84, 30), 104, 64
PANELS = {"forward": 60, "backward": 548}
"""The left edge of each direction's LSTMs."""
LAYERS = {1: 372, 2: 372 - ROW}
"""The middle of a layer's row."""
VECTORS, CNN, CHARACTERS, NAMES = 468, 524, 568, 596
MIDDLE = WIDTH / 2 - 1.5 * STEP
"""The middle of the first token's column at the bottom."""

WORDS = {
    "en": {
        "title": "Characters, character CNN, two separate stacks of LSTMs, mix",
        "forward": "forward LSTMs: read from the left",
        "backward": "backward LSTMs: read from the right",
        "layer": "layer {}",
        "vectors": "token vectors",
        "cnn": "character CNN, once per word",
        "characters": "characters",
        "tokens": "tokens",
        "both": "The directions meet only here: the layers of “{}”, concatenated",
        "mix": "mix",
        "result": "one vector per token",
    },
    "zh": {
        "title": "字符、字符 CNN、两组相互独立的 LSTM、加权混合",
        "forward": "前向 LSTM：从左向右读",
        "backward": "后向 LSTM：从右向左读",
        "layer": "第 {} 层",
        "vectors": "词元向量",
        "cnn": "字符 CNN，每个词只算一次",
        "characters": "字符",
        "tokens": "词元",
        "both": "两个方向只在这里相遇：“{}”各层的前向与后向向量拼接在一起",
        "mix": "混合",
        "result": "每个词元一个向量",
    },
}
USES = {
    "en": (
        *("small-en", "bank"),
        {
            "money": [
                "The bank lent money to the farmer.",
                "She opened an account at the bank.",
                "The bank raised its interest rates again.",
                "He works for a large bank in the city.",
                "The bank refused to pay the money back.",
            ],
            "river": [
                "They sat on the bank of the river.",
                "Grass grew on the bank near the water.",
                "The boat lay by the bank of the stream.",
                "We walked along the bank under the trees.",
                "The river broke its bank after the rain.",
            ],
        },
    ),
    "zh": (
        *("small-zh", "苹果"),
        {
            "水果": [
                "他每天吃一个苹果",
                "树上的苹果红了",
                "她买了苹果和香蕉",
                "这个苹果又大又甜",
                "妈妈洗了一个苹果",
            ],
            "公司": [
                "苹果发布了新手机",
                "他在苹果上班",
                "苹果的股票上涨",
                "苹果的总部在加州",
                "微软和苹果都是科技公司",
            ],
        },
    ),
}
"""A model, a word, and sentences with it by meaning."""
MEANINGS = ("#14578a", "#b03a4a")


class Drawing:
    """An SVG picture; its text is text, so that the reader's fonts are used."""

    def __init__(self, title: str, height: float = HEIGHT) -> None:
        self.parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
            f'font-family="sans-serif" font-size="15" fill="{INK}">',
            f"<title>{escape(title)}</title>",
            '<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" '
            f'markerHeight="7" orient="auto"><path d="M0 0 10 5 0 10z" fill="{LINE}"/>'
            "</marker></defs>",
            f'<rect width="{WIDTH}" height="{height}" rx="10" fill="#ffffff"/>',
        ]

    def text(self, x: float, y: float, text: str, **style: str) -> None:
        """Text with its middle at (x, y)."""
        styles = {"text_anchor": "middle", **style}
        named = " ".join(f'{name.replace("_", "-")}="{value}"' for name, value in styles.items())
        self.parts.append(f'<text x="{x:g}" y="{y + 5:g}" {named}>{escape(text)}</text>')

    def box(
        self, x: float, y: float, fill: str, width: float = BOX[0], *, bold: bool = False
    ) -> None:
        """A box around (x, y)."""
        self.parts.append(
            f'<rect x="{x - width / 2:g}" y="{y - BOX[1] / 2:g}" width="{width:g}" '
            f'height="{BOX[1]}" rx="5" fill="{fill}" stroke="{INK}" '
            f'stroke-width="{2.5 if bold else 1}"/>'
        )

    def line(self, *points: tuple[float, float], end: str = "") -> None:
        """A line through the points."""
        path = " ".join(f"{x:g} {y:g}" for x, y in points)
        self.parts.append(
            f'<path d="M{path}" fill="none" stroke="{LINE}" stroke-width="1.5"{end}/>'
        )

    def arrow(self, *points: tuple[float, float]) -> None:
        """A line with a tip."""
        self.line(*points, end=' marker-end="url(#tip)"')

    def save(self, path: Path) -> None:
        """Write the picture."""
        path.write_text("\n".join([*self.parts, "</svg>\n"]), "utf-8")


def data_way(words: dict[str, str]) -> Drawing:
    """From the characters at the bottom to the mix at the top."""
    drawing = Drawing(words["title"])
    bottom(drawing, words)
    for direction, left in PANELS.items():
        panel(drawing, words, direction, left)
    top(drawing, words)
    return drawing


def bottom(drawing: Drawing, words: dict[str, str]) -> None:
    """What both directions share: tokens, characters, token vectors."""
    for number, token in enumerate(TOKENS):
        x = MIDDLE + number * STEP
        drawing.text(x, NAMES + 12, token, font_weight="bold")
        drawing.text(x, CHARACTERS + 6, " ".join(token), font_family="monospace", font_size="14")
        drawing.arrow((x, CHARACTERS - 8), (x, CNN + 17))
        drawing.box(x, CNN, "#ffffff")
        drawing.text(x, CNN, "CNN")
        drawing.arrow((x, CNN - 15), (x, VECTORS + 17))
        drawing.box(x, VECTORS, TOKEN, bold=number == SHOWN)
        drawing.text(x, VECTORS, f"x{'₁₂₃₄'[number]}")
    label = MIDDLE - STEP / 2 - 12
    for y, key in ((NAMES + 12, "tokens"), (CHARACTERS + 6, "characters"), (CNN, "cnn")):
        drawing.text(label, y, words[key], text_anchor="end", fill=SOFT)
    drawing.text(label, VECTORS, words["vectors"], text_anchor="end", fill=SOFT)
    for left in PANELS.values():  # all four go to both directions
        middle, y = left + 1.5 * STEP + BOX[0] / 2, VECTORS - 32
        drawing.arrow((WIDTH / 2, y), (middle, y), (middle, LAYERS[1] + 30))
    for number in range(len(TOKENS)):
        x = MIDDLE + number * STEP
        drawing.line((x, VECTORS - 15), (x, VECTORS - 32))


def panel(drawing: Drawing, words: dict[str, str], direction: str, left: float) -> None:
    """The LSTMs of one direction."""
    fill = FORWARD if direction == "forward" else BACKWARD
    columns = [left + BOX[0] / 2 + number * STEP for number in range(len(TOKENS))]
    drawing.parts.append(
        f'<rect x="{left - 14}" y="{LAYERS[2] - 56}" width="{columns[-1] - left + 70:g}" '
        f'height="{ROW + 84}" rx="8" fill="none" stroke="{SOFT}" stroke-dasharray="5 4"/>'
    )
    drawing.text((columns[0] + columns[-1]) / 2, LAYERS[2] - 36, words[direction])
    for layer, y in LAYERS.items():
        for number, x in enumerate(columns):
            drawing.box(x, y, fill, bold=number == SHOWN)
            drawing.text(x, y, f"{'→' if direction == 'forward' else '←'} {layer}")
            if layer == 1:
                drawing.arrow((x, y - 15), (x, LAYERS[2] + 17))
        for a, b in pairwise(columns):
            ends = ((a + BOX[0] / 2, y), (b - BOX[0] / 2 - 2, y))
            if direction == "backward":
                ends = ((b - BOX[0] / 2, y), (a + BOX[0] / 2 + 2, y))
            drawing.arrow(*ends)
        drawing.text(WIDTH / 2, y, words["layer"].format(layer), fill=SOFT)


def top(drawing: Drawing, words: dict[str, str]) -> None:
    """The layers of one token, and their mix."""
    drawing.text(WIDTH / 2, 26, words["both"].format(TOKENS[SHOWN]))
    mix, half = 690, 92
    for layer in (0, *LAYERS):
        fills = (FORWARD, BACKWARD) if layer else (TOKEN, TOKEN)
        y = 178 - layer * 48
        drawing.text(292, y, words["layer"].format(layer), text_anchor="end", fill=SOFT)
        names = (f"→ {layer}", f"← {layer}") if layer else (f"x{'₁₂₃₄'[SHOWN]}",) * 2
        for x, fill, name in zip((350, 350 + half), fills, names, strict=True):
            drawing.box(x, y, fill, width=half)
            drawing.text(x, y, name)
        drawing.arrow((350 + 1.5 * half, y), (mix - 40, 130 + (layer - 1) * -8))
        drawing.text(546, 158 - layer * 38, f"s{'₀₁₂'[layer]}", font_style="italic")
    drawing.box(mix, 130, "#ffffff", width=76, bold=True)
    drawing.text(mix, 130, words["mix"])
    drawing.text(mix, 162, "γ · Σ sⱼ · hⱼ", font_size="14", fill=SOFT)
    drawing.arrow((mix + 38, 130), (mix + 80, 130))
    drawing.text(mix + 90, 130, words["result"], text_anchor="start")


def use_map(model: str, word: str, meanings: dict[str, list[str]]) -> Drawing:
    """The uses of a word in the top layer, and their sentences beside them."""
    sentences = [sentence for some in meanings.values() for sentence in some]
    points = elmokit.load(model, device="cpu").map(sentences, word).points
    low, high = points.min(0), points.max(0)
    drawing = Drawing(f"{word}: {model}", 400)
    drawing.parts.append(
        f'<rect x="20" y="20" width="460" height="360" rx="6" fill="none" stroke="{LINE}"/>'
    )
    labels = [label for label, some in meanings.items() for _ in some]
    for number, (label, sentence) in enumerate(zip(labels, sentences, strict=True), start=1):
        fill = MEANINGS[list(meanings).index(label)]
        x, y = (points[number - 1] - low) / (high - low)
        x, y = 50 + 400 * float(x), 350 - 300 * float(y)
        drawing.parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="14" fill="{fill}"/>')
        drawing.text(x, y, str(number), fill="#ffffff")
        line = 30 + 34 * number
        drawing.text(530, line, str(number), fill=fill, font_weight="bold")
        drawing.text(552, line, sentence, fill=fill, text_anchor="start")
    for index, label in enumerate(meanings):
        drawing.text(552 + 120 * index, 30, label, fill=MEANINGS[index], font_weight="bold")
    return drawing


def main() -> None:
    """Write the pictures beside this script."""
    folder = Path(__file__).parent
    for language, words in WORDS.items():
        ending = "-zh.svg" if language == "zh" else ".svg"
        data_way(words).save(folder / f"data-way{ending}")
        use_map(*USES[language]).save(folder / f"word-map{ending}")


if __name__ == "__main__":
    main()
