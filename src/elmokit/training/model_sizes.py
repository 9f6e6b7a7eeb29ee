"""What a corpus decides about the model: sizes of vocabulary and softmax, the alphabet."""

from __future__ import annotations

from dataclasses import replace

from elmokit.config import ModelConfig, SoftmaxConfig, WordConfig
from elmokit.corpus.shards import TokenCorpus
from elmokit.errors import ConfigError
from elmokit.training.settings import PretrainConfig


def model_config(config: PretrainConfig, corpus: TokenCorpus) -> ModelConfig:
    """The model's config with the sizes that the corpus decides."""
    words = len(corpus.vocabulary(config.data.vocabulary, config.data.min_count))
    cutoffs: tuple[int, ...] = ()
    if config.loss.kind == "adaptive":
        cutoffs = tuple(cutoff for cutoff in config.loss.cutoffs if cutoff < words)
        if not cutoffs:
            raise ConfigError(
                f"loss.cutoffs = {list(config.loss.cutoffs)}: all beyond the {words} words of the "
                "vocabulary; give smaller ones or another loss"
            )
    model = config.model
    characters = model.characters
    if characters is not None and characters.alphabet == "unicode":
        characters = replace(characters, rows=len(unicode_symbols(corpus, model)))
    return replace(
        model,
        text=replace(model.text, tokenizer=corpus.tokenizer),
        characters=characters,
        words=WordConfig(rows=words, dim=model.words.dim) if model.words is not None else None,
        softmax=SoftmaxConfig(words=words, tied=config.loss.tied, cutoffs=cutoffs),
    )


def unicode_symbols(corpus: TokenCorpus, config: ModelConfig) -> tuple[str, ...]:
    """The characters of the training text, most frequent first, and the markers."""
    counts: dict[str, int] = {}
    for word, count in zip(corpus.words, corpus.counts.tolist(), strict=True):
        if count:
            for character in word:
                counts[character] = counts.get(character, 0) + count
    found = sorted(counts, key=lambda character: (-counts[character], character))
    text = config.text
    return (*found, text.begin, text.end, "<oov>", "<pad>", "<bow>", "<eow>")
