"""Text: files → texts → sentences → tokens → ids.

readers reads texts from files one at a time, with sequences for the residues of proteins; sentences
and tokens split them; vocab turns words into word ids and inputs into what the model reads,
character ids included; batching groups sentences of similar length.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from elmokit.lazy import lazy_names

if TYPE_CHECKING:
    from elmokit.text.inputs import ByteAlphabet as ByteAlphabet, UnicodeAlphabet as UnicodeAlphabet
    from elmokit.text.readers import (
        TextRecord as TextRecord,
        numbered_lines as numbered_lines,
        read_records as read_records,
        read_texts as read_texts,
    )
    from elmokit.text.sentences import (
        sentence_spans as sentence_spans,
        split_sentences as split_sentences,
    )
    from elmokit.text.sequences import residues as residues
    from elmokit.text.tokens import (
        Tokenizer as Tokenizer,
        get_tokenizer as get_tokenizer,
        join_tokens as join_tokens,
    )
    from elmokit.text.vocab import Vocabulary as Vocabulary, read_vocabulary as read_vocabulary
else:
    __getattr__, __dir__, __all__ = lazy_names(
        __name__,
        {
            "readers": "TextRecord numbered_lines read_records read_texts",
            "sequences": "residues",
            "sentences": "sentence_spans split_sentences",
            "tokens": "Tokenizer get_tokenizer join_tokens",
            "inputs": "ByteAlphabet UnicodeAlphabet",
            "vocab": "Vocabulary read_vocabulary",
        },
    )
