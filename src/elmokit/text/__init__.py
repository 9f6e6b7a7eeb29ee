"""Text: files → texts → sentences → tokens → ids.

readers reads texts from files one at a time; sentences and tokens split them; vocab turns words
into word ids and inputs into what the model reads, character ids included; batching groups
sentences of similar length.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from elmokit.lazy import lazy_names

_HOMES = {
    "read_texts": "elmokit.text.readers",
    "numbered_lines": "elmokit.text.readers",
    "split_sentences": "elmokit.text.sentences",
    "sentence_spans": "elmokit.text.sentences",
    "get_tokenizer": "elmokit.text.tokens",
    "Tokenizer": "elmokit.text.tokens",
    "ByteAlphabet": "elmokit.text.inputs",
    "UnicodeAlphabet": "elmokit.text.inputs",
    "Vocabulary": "elmokit.text.vocab",
    "read_vocabulary": "elmokit.text.vocab",
}

if TYPE_CHECKING:
    from elmokit.text.inputs import ByteAlphabet, UnicodeAlphabet
    from elmokit.text.readers import numbered_lines, read_texts
    from elmokit.text.sentences import sentence_spans, split_sentences
    from elmokit.text.tokens import Tokenizer, get_tokenizer
    from elmokit.text.vocab import Vocabulary, read_vocabulary
else:
    __getattr__, __dir__ = lazy_names(__name__, _HOMES)

__all__ = [
    "ByteAlphabet",
    "Tokenizer",
    "UnicodeAlphabet",
    "Vocabulary",
    "get_tokenizer",
    "numbered_lines",
    "read_texts",
    "read_vocabulary",
    "sentence_spans",
    "split_sentences",
]
