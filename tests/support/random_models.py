"""Any model the config allows, as hypothesis strategies."""

import torch
from hypothesis import strategies as st

from elmokit.checkpoints.checkpoint import Checkpoint
from elmokit.config import (
    CharacterConfig,
    LstmConfig,
    MixConfig,
    ModelConfig,
    SoftmaxConfig,
    TextConfig,
    WordConfig,
)
from elmokit.model.init import random_model
from elmokit.text.vocab import Vocabulary

# Separators that line readers trip over, spaces of all kinds, and characters of up to four bytes.
ODD_WORDS = (
    "\u2028", "\u2029", "\u0085", "\u00a0", "\u3000", "\x0b", "\x0c", "\x1c", "\x1e", "\r", "\t",
    " ", "a\u2028b", "\u0085x", "x\u00a0", "😀", "👩‍👩‍👧", "\ufeff", "\x00", "\x7f", "e\u0301", "é",
    '"', "\\", "#", "!!!MAXTERMID", "東京", "x" * 60,
)  # fmt: skip

sizes = st.integers(1, 5)
clips = st.none() | st.floats(0.25, 100.0, width=32)
words = st.sampled_from(ODD_WORDS) | st.text(
    st.characters(exclude_characters="\n", exclude_categories=["Cs"]), min_size=1, max_size=8
)


@st.composite
def texts(draw) -> TextConfig:
    tokenizer = draw(st.sampled_from(["space", "words", "chars"]))
    if draw(st.booleans()):
        return TextConfig(tokenizer=tokenizer)
    begin, end, unknown = draw(st.lists(words, min_size=3, max_size=3, unique=True))
    return TextConfig(tokenizer=tokenizer, begin=begin, end=end, unknown=unknown)


@st.composite
def characters(draw) -> CharacterConfig:
    limit = draw(st.integers(3, 60))
    pair = st.tuples(st.integers(1, min(limit, 7)), sizes)
    alphabet = draw(st.sampled_from(["bytes", "unicode"]))
    return CharacterConfig(
        alphabet=alphabet,
        rows=262 if alphabet == "bytes" else draw(st.integers(8, 30)),
        dim=draw(sizes),
        max_characters=limit,
        filters=tuple(draw(st.lists(pair, min_size=1, max_size=4))),
        activation=draw(st.sampled_from(["relu", "tanh"])),
        highways=draw(st.integers(0, 3)),
        swapped_markers=draw(st.booleans()),
    )


@st.composite
def lstms(draw, width: int) -> LstmConfig:
    projection = draw(st.booleans())
    return LstmConfig(
        layers=draw(st.integers(1, 3)),
        cells=draw(sizes) if projection else width,
        width=width,
        projection=projection,
        cell_clip=draw(clips),
        projection_clip=draw(clips),
        residual=draw(st.booleans()),
        forget_bias=draw(st.sampled_from([0.0, 1.0, -0.5])),
        backward=draw(st.booleans()),
    )


@st.composite
def configs(draw) -> ModelConfig:
    """A valid config of a tiny model."""
    spelling, table = draw(st.sampled_from([(True, False), (False, True), (True, True)]))
    chars = draw(characters()) if spelling else None
    tied = table and draw(st.booleans())
    width = draw(sizes)
    rows = draw(st.integers(3, 12))
    word_table = WordConfig(rows=rows, dim=width if tied else draw(sizes)) if table else None
    entering = (word_table.dim if word_table else 0) + (chars.width if chars else 0)
    projected = draw(st.booleans())
    if not projected and not tied:
        width = entering
    softmax = None
    if tied or draw(st.booleans()):
        softmax = SoftmaxConfig(words=rows, tied=tied)
    mix = None
    if draw(st.booleans()):
        mix = MixConfig(count=draw(st.integers(1, 3)), layer_norm=draw(st.booleans()))
    return ModelConfig(
        text=draw(texts()),
        characters=chars,
        words=word_table,
        input_projection=projected or entering != width,
        lstm=draw(lstms(width)),
        softmax=softmax,
        mix=mix,
    )


@st.composite
def checkpoints(draw, strategy: st.SearchStrategy[ModelConfig] | None = None) -> Checkpoint:
    """A model with random weights, and the word lists its config asks for."""
    config = draw(configs() if strategy is None else strategy)
    text = config.text
    symbols = None
    if config.characters is not None and config.characters.alphabet == "unicode":
        special = list(dict.fromkeys([text.begin, text.end, "<oov>", "<pad>", "<bow>", "<eow>"]))
        symbols = _filled(draw, special, config.characters.rows)
    vocabulary = None
    size = config.words.rows if config.words else config.softmax.words if config.softmax else 0
    if config.words is not None or (size and draw(st.booleans())):
        names = [text.begin, text.end, text.unknown]
        counts = st.none() | st.lists(st.integers(0, 2**63 - 1), min_size=size, max_size=size)
        vocabulary = Vocabulary(_filled(draw, names, size), text, draw(counts))
    weights = dict(random_model(config, draw(st.integers(0, 9))).state_dict())
    generator = torch.Generator().manual_seed(1)
    for name, tensor in weights.items():
        if name.startswith("mixes.") or name.endswith("bias"):
            weights[name] = torch.randn(tensor.shape, generator=generator)
    card = draw(st.none() | st.sampled_from(["# A model\n", "Größe\u2028\r\n"]))
    return Checkpoint(config, weights, "random", "random", vocabulary, symbols, card)


def _filled(draw, special: list[str], size: int) -> tuple[str, ...]:
    others = draw(
        st.lists(
            (st.just("") | words).filter(lambda word: word not in special),
            min_size=size - len(special),
            max_size=size - len(special),
        )
    )
    return tuple(draw(st.permutations([*special, *others])))
