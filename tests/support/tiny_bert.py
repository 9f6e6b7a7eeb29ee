"""A BERT with random weights and a dozen sub-words, as `save_pretrained` writes it."""

from __future__ import annotations

from pathlib import Path

import transformers

transformers.utils.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()

SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
PIECES = ["the", "film", "was", "un", "##believ", "##able", "zoe", "saw", "new", "york", "!"]


def bert(folder: Path) -> None:
    """Write the encoder into a folder that is there."""
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *PIECES]
    (folder / "vocab.txt").write_text("\n".join(words) + "\n", "utf-8")
    tokenizer = transformers.BertTokenizer(vocab={word: i for i, word in enumerate(words)})
    config = transformers.BertConfig(
        vocab_size=len(words), intermediate_size=32, max_position_embeddings=12, **SIZES
    )
    transformers.BertModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
