"""Chinese in scores: which texts are Chinese, and what counts as one unit of them."""

from __future__ import annotations

import re
from collections.abc import Iterable

from elmokit.text.tokens import get_tokenizer

_HAN = re.compile("[\u4e00-\u9fa5]")
# The signs that CMRC's rules leave out.
PUNCTUATION = frozenset("-:_*^/\\~`+=，。：？！“”；’《》·、「」（）－～『』")
_PIECES = re.compile("[\u4e00-\u9fa5]|[^\u4e00-\u9fa5]+")


def mostly_chinese(texts: Iterable[str]) -> bool:
    """Whether a third or more of what is not white space is Chinese characters."""
    han = signs = 0
    for text in texts:
        han += len(_HAN.findall(text))
        signs += sum(map(len, text.split()))
    return signs > 0 and 3 * han >= signs


def units(text: str) -> list[str]:
    """Chinese characters one by one, other words whole, small letters, no punctuation."""
    kept = "".join(sign for sign in text.lower() if sign not in PUNCTUATION)
    words = get_tokenizer("words")
    return [unit for piece in _PIECES.findall(kept) for unit in words.tokenize(piece)]
