"""Text: files → texts → sentences → tokens → ids.

readers reads texts from files one at a time; sentences and tokens split them; vocab turns words
into word ids and inputs into what the model reads, character ids included; batching groups
sentences of similar length.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from elmokit.lazy import lazy_names

if TYPE_CHECKING:
    from elmokit.text.inputs import ByteAlphabet, UnicodeAlphabet
    from elmokit.text.readers import numbered_lines, read_texts
    from elmokit.text.sentences import sentence_spans, split_sentences
    from elmokit.text.tokens import Tokenizer, get_tokenizer, join_tokens
    from elmokit.text.vocab import Vocabulary, read_vocabulary
else:
    __getattr__, __dir__, __all__ = lazy_names(
        __name__,
        {
            "readers": "numbered_lines read_texts",
            "sentences": "sentence_spans split_sentences",
            "tokens": "Tokenizer get_tokenizer join_tokens",
            "inputs": "ByteAlphabet UnicodeAlphabet",
            "vocab": "Vocabulary read_vocabulary",
        },
    )
