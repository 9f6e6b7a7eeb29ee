"""A tokenizer for `transformers` whose tokens are words with their character ids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer, models
from transformers import BatchEncoding, PreTrainedTokenizerFast

from elmokit.config import ModelConfig, from_dict, to_dict
from elmokit.errors import ConfigError, DataError
from elmokit.files import atomic_file
from elmokit.text.inputs import InputBuilder
from elmokit.text.tokens import get_tokenizer
from elmokit.text.vocab import Vocabulary, read_lines

PAD, WORD = "<pad>", "<unk>"
"""The whole vocabulary of ``input_ids``: padding (0), a word (1)."""


class ElmoTokenizer(PreTrainedTokenizerFast):  # type: ignore[misc]
    """Text, or words, to what an ELMo model reads.

    ``input_ids`` say where words are and no more (every word is an unknown one); ``characters``
    hold each word's character ids, (T, C), and ``words`` its row in the model's word table, if it
    has one. No word is ever split, so token indices are word indices.

    Args:
        bilm: The model's own config, as `elmokit.config.to_dict` gives it.
        vocabulary: The words of the model's word table.
        symbols: The dictionary of a Unicode alphabet.
        words_file: A file with the words, one per line, instead of `vocabulary`.
        symbols_file: A file with the symbols, one per line, instead of `symbols`.
        **options: As for every tokenizer of transformers.
    """

    vocab_files_names: Mapping[str, str] = {
        "words_file": "vocab.txt",
        "symbols_file": "characters.txt",
    }
    model_input_names: Sequence[str] = ("input_ids", "attention_mask", "characters", "words")
    padding_side = "right"

    def __init__(
        self,
        bilm: Mapping[str, Any],
        *,
        vocabulary: Sequence[str] | None = None,
        symbols: Sequence[str] | None = None,
        words_file: str | None = None,
        symbols_file: str | None = None,
        **options: Any,
    ) -> None:
        self.sizes: ModelConfig = from_dict(ModelConfig, bilm, "bilm")
        self.vocabulary: Sequence[str] | None = (
            vocabulary if words_file is None else read_lines(Path(words_file))
        )
        self.symbols: Sequence[str] | None = (
            symbols if symbols_file is None else read_lines(Path(symbols_file))
        )
        words = self.vocabulary
        known = None if words is None else Vocabulary(words, self.sizes.text)
        self.inputs: InputBuilder = InputBuilder(self.sizes, known, self.symbols)
        ids = models.WordLevel({PAD: 0, WORD: 1}, unk_token=WORD)
        options = {"pad_token": PAD, "unk_token": WORD, **options}
        super().__init__(tokenizer_object=Tokenizer(ids), bilm=to_dict(self.sizes), **options)
        read = {"characters": self.inputs.alphabet is not None, "words": self.inputs.reads_words}
        self.model_input_names = [
            name for name in type(self).model_input_names if read.get(name, True)
        ]

    @classmethod
    def convert_to_native_format(cls, **options: Any) -> dict[str, Any]:
        """There is no other format to convert from."""
        return options

    def tokenize(self, text: str, *_: Any, **__: Any) -> list[str]:
        """Split text as the model's tokeniser does."""
        return get_tokenizer(self.sizes.text.tokenizer).tokenize(text)

    def _encode_plus(
        self,
        text: Any,
        text_pair: Any = None,
        *,
        is_split_into_words: bool = False,
        return_tensors: Any = None,
        return_offsets_mapping: bool = False,
        **options: Any,
    ) -> BatchEncoding:
        if text_pair is not None:
            raise ConfigError("ELMo reads one text at a time: give no text_pair")
        if is_split_into_words:
            single = not text or isinstance(text[0], str)
        else:
            single = isinstance(text, str)
        items = [text] if single else text
        texts = [self._split(item, is_split_into_words) for item in items]
        # transformers counts, truncates and pads placeholders; the characters are added below.
        encoded = super()._encode_plus(
            [[WORD] * len(words) for words, _ in texts], is_split_into_words=True, **options
        )
        samples = encoded.get("overflow_to_sample_mapping", range(len(texts)))
        chosen = [
            (texts[sample], encoding.word_ids)
            for sample, encoding in zip(samples, encoded.encodings, strict=True)
        ]
        data = dict(encoded)
        if return_offsets_mapping:
            data["offset_mapping"] = [
                [(0, 0) if index is None else spans[index] for index in word_ids]
                for (_, spans), word_ids in chosen
            ]
        for name in self.model_input_names[2:]:
            data[name] = [self._rows(name, words, word_ids) for (words, _), word_ids in chosen]
        if single and return_tensors is None and not options.get("return_overflowing_tokens"):
            data = {name: values[0] for name, values in data.items()}
        return BatchEncoding(data, encoded.encodings, tensor_type=return_tensors)

    def _split(self, item: Any, split: bool) -> tuple[list[str], list[tuple[int, int]]]:
        """Words, and where their characters are: in the text, or, given as words, in each word."""
        if split:
            if isinstance(item, str) or not all(isinstance(word, str) for word in item):
                raise DataError(f"expected a list of words, found {item!r:.80}")
            return list(item), [(0, len(word)) for word in item]
        if not isinstance(item, str):
            raise DataError(f"expected a text, found {item!r:.80}; for words: is_split_into_words")
        spans = get_tokenizer(self.sizes.text.tokenizer).spans(item)
        return [item[start:end] for start, end in spans], spans

    def _rows(self, name: str, words: Sequence[str], indices: Sequence[int | None]) -> list[Any]:
        """Rows of character ids, or word ids, of the words at these indices; None is padding."""
        kept = [words[index] for index in indices if index is not None]
        if name == "words":
            rows = self.inputs.word_ids(kept)  # (T,)
        else:
            assert self.inputs.alphabet is not None
            # Full width, so that rows of different texts can be stacked; the model trims them.
            rows = self.inputs.alphabet.ids(kept, trim=False)  # (T, C)
        full = np.zeros((len(indices), *rows.shape[1:]), np.int64)
        full[[index is not None for index in indices]] = rows
        return list(full.tolist())

    def _pad(self, encoded_inputs: Any, *arguments: Any, **options: Any) -> Any:
        padded = super()._pad(encoded_inputs, *arguments, **options)
        side = options.get("padding_side") or self.padding_side
        for name in self.model_input_names[2:]:
            if name not in padded:
                continue
            rows = padded[name]
            characters = self.sizes.characters
            empty = 0 if name == "words" or not characters else [0] * characters.max_characters
            more = [empty] * (len(padded["input_ids"]) - len(rows))
            padded[name] = rows + more if side == "right" else more + rows
        return padded

    def _save_pretrained(
        self,
        save_directory: Any,
        file_names: tuple[str, ...],
        legacy_format: bool | None = None,
        filename_prefix: str | None = None,
    ) -> tuple[str, ...]:
        return (*file_names, *self.save_vocabulary(save_directory, filename_prefix))

    def save_vocabulary(
        self, save_directory: str, filename_prefix: str | None = None
    ) -> tuple[str, ...]:
        """Write the model's words and symbols, if it has any."""
        written = []
        for kind, lines in (("words_file", self.vocabulary), ("symbols_file", self.symbols)):
            if lines is None:
                continue
            prefix = f"{filename_prefix}-" if filename_prefix else ""
            path = Path(save_directory) / f"{prefix}{self.vocab_files_names[kind]}"
            with atomic_file(path) as temporary:
                temporary.write_bytes("".join(f"{line}\n" for line in lines).encode("utf-8"))
            written.append(str(path))
        return tuple(written)
