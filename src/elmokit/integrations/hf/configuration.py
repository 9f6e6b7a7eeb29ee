"""The config of an ELMo model for `transformers`."""

from __future__ import annotations

from typing import Any

from transformers import PretrainedConfig

from elmokit.checkpoints.transformers_folder import MODEL_TYPE
from elmokit.config import ModelConfig, from_dict


class ElmoConfig(PretrainedConfig):  # type: ignore[misc]
    """Sizes of the biLM and of the heads above it; `from_elmo` makes one.

    Args:
        bilm: The biLM's own config, as `elmokit.config.to_dict` gives it.
        hidden_size: Width of a token's vector, 2P.
        num_hidden_layers: LSTM layers, L; there is one more layer of hidden states.
        marker_characters: Character ids of the words that open and close a sentence.
        marker_words: Word ids of the same.
        character_padding: The character id that fills a word's row.
        pooling: How a text's tokens become one vector for its class: ``"mean"`` or ``"max"``.
        classifier_dropout: Before the classes, in training.
    """

    model_type = MODEL_TYPE

    bilm: dict[str, Any] | None = None
    hidden_size: int = 0
    num_hidden_layers: int = 0
    marker_characters: list[list[int]] | None = None
    marker_words: list[int] | None = None
    character_padding: int = 0
    pooling: str = "mean"
    classifier_dropout: float = 0.1
    pad_token_id: int | None = 0

    def sizes(self) -> ModelConfig:
        """The biLM's own config."""
        return from_dict(ModelConfig, self.bilm or {}, "bilm")
