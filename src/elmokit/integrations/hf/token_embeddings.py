"""ELMo as the first module of a `SentenceTransformer`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from elmokit.encode.elmo import Elmo
from elmokit.encode.layers import layer_weights
from elmokit.errors import MissingExtraError
from elmokit.integrations.hf.modeling import ElmoModel, from_elmo
from elmokit.integrations.hf.tokenization import ElmoTokenizer
from elmokit.model.scalar_mix import ScalarMix

try:
    from sentence_transformers.base.modules import InputModule
except ImportError as _error:
    raise MissingExtraError(
        "sentence-transformers", "hf", "elmokit.integrations.hf.token_embeddings"
    ) from _error

LEARNED = "learned"


class ElmoTokenEmbeddings(InputModule):  # type: ignore[misc]
    """Texts to token vectors; a pooling comes after it.

    Args:
        model: The biLM, or what `elmokit.load` takes, or a loaded `Elmo`.
        tokenizer: Of a model of transformers.
        layers: ``"mean"``, ``"top"``, a layer's number, or weights; ``"all"`` concatenates the
            layers; ``"learned"`` is a trained mix, at first a plain average.
        max_seq_length: The most words of a text that are read; all when left out.
        mix: Where a learned mix starts: its ``weights`` before the softmax, and ``gamma``.
    """

    config_keys: Sequence[str] = ("layers", "max_seq_length")
    config_file_name = "elmokit_layers.json"

    def __init__(
        self,
        model: ElmoModel | Elmo | str | Path | None = None,
        tokenizer: ElmoTokenizer | None = None,
        *,
        layers: str | int | Sequence[float] = "mean",
        max_seq_length: int | None = None,
        mix: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(model, ElmoModel):
            model, tokenizer = from_elmo(model)
        assert tokenizer is not None
        self.model = model
        self.tokenizer: ElmoTokenizer = tokenizer
        self.layers = layers
        self.max_seq_length = max_seq_length
        count = model.config.num_hidden_layers + 1
        self.mix: ScalarMix | None = ScalarMix(count, **(mix or {})) if layers == LEARNED else None
        self._weights = layer_weights("mean" if layers == LEARNED else layers, count)

    def preprocess(
        self, inputs: Sequence[str], prompt: str | None = None, **_: Any
    ) -> dict[str, Tensor]:
        """Tokenise texts."""
        texts = [(prompt or "") + text for text in inputs]
        cut = {"truncation": True, "max_length": self.max_seq_length} if self.max_seq_length else {}
        return dict(self.tokenizer(texts, padding=True, return_tensors="pt", **cut))

    def forward(self, features: dict[str, Any], **_: Any) -> dict[str, Any]:
        """Add ``token_embeddings``, (B, T, D), to the features."""
        names = ("input_ids", "attention_mask", "characters", "words")
        layers = self.model.all_layers(*(features.get(name) for name in names))
        if self.mix is not None:
            vectors = self.mix(layers)
        elif self._weights is not None:
            shares = torch.tensor(self._weights, device=layers[0].device)
            vectors = torch.einsum("l,lbtd->btd", shares, torch.stack(layers))
        else:
            vectors = torch.cat(layers, dim=2)  # (B, T, (L + 1) D)
        features["token_embeddings"] = vectors
        return features

    def get_embedding_dimension(self) -> int:
        """Width of a token's vector."""
        config = self.model.config
        concatenated = config.num_hidden_layers + 1 if self._weights is None else 1
        return int(config.hidden_size * concatenated)

    def get_config_dict(self) -> dict[str, Any]:
        """The settings, and the weights of a trained mix."""
        settings = {"layers": self.layers, "max_seq_length": self.max_seq_length}
        if self.mix is None:
            return settings
        mix = {"weights": self.mix.weights.tolist(), "gamma": self.mix.gamma.item()}
        return {**settings, "mix": mix}

    def save(self, output_path: str, *_: Any, **__: Any) -> None:
        """Write model, tokenizer and settings."""
        self.model.save_pretrained(output_path)
        self.tokenizer.save_pretrained(output_path)
        self.save_config(output_path)

    @classmethod
    def load(
        cls, model_name_or_path: str, subfolder: str = "", **options: Any
    ) -> ElmoTokenEmbeddings:
        """Read what `save` wrote."""
        names = ("token", "cache_folder", "revision", "local_files_only")
        location = {name: options[name] for name in names if name in options}
        settings = cls.load_config(model_name_or_path, subfolder, **location)
        folder = cls.load_dir_path(model_name_or_path, subfolder, **location)
        model = ElmoModel.from_pretrained(folder, trust_remote_code=False)
        tokenizer = ElmoTokenizer.from_pretrained(folder, trust_remote_code=False)
        return cls(model, tokenizer, **settings)


# sentence-transformers stores this name in modules.json: the public one, which stays.
ElmoTokenEmbeddings.__module__ = "elmokit.integrations.hf"
