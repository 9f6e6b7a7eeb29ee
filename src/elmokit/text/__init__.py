"""Text: files → texts → sentences → tokens → ids.

readers reads texts from files line by line, sentences and tokens cut them, chars turns words into
character ids and vocab into word ids, inputs joins both for the model, batching groups sentences
of similar length.
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
    "ByteAlphabet": "elmokit.text.chars",
    "UnicodeAlphabet": "elmokit.text.chars",
    "Vocabulary": "elmokit.text.vocab",
    "read_vocabulary": "elmokit.text.vocab",
}

if TYPE_CHECKING:
    from elmokit.text.chars import ByteAlphabet, UnicodeAlphabet
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
