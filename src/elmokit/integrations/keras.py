"""`ElmoLayer`: ELMo as a layer of Keras 3, on its torch backend.

Keras trains on arrays, so that text is prepared first: `ElmoLayer.prepare` gives the character ids
of each token, zeros beyond a sentence's end. The layer embeds them, mixes the biLM's layers with
trained weights, and hands a mask to the layers that follow.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elmokit.checkpoints.fingerprint import fingerprint
from elmokit.encode.elmo import Elmo, Sentence
from elmokit.encode.loading import load
from elmokit.engines import no_gradients
from elmokit.errors import CheckpointError, ConfigError, DataError, MissingExtraError
from elmokit.model.packing import Packing, inside
from elmokit.text.inputs import WordInputs

try:
    import keras
except ModuleNotFoundError as _error:
    if _error.name == "keras":
        raise MissingExtraError("keras", "keras", "elmokit.integrations.keras") from _error
    raise ConfigError(
        f"Keras finds no package {_error.name!r}, its backend. Set the environment variable "
        "KERAS_BACKEND=torch before Keras is imported"
    ) from _error

Pool: TypeAlias = Literal["mean", "max"]
Shape: TypeAlias = tuple[int | None, ...]


@keras.saving.register_keras_serializable(package="elmokit")
class ElmoLayer(keras.layers.Layer):  # type: ignore[misc]
    """Character ids (B, T, C) to vectors (B, T, D), or pooled to (B, D).

    The biLM is frozen; the weights of its layers and gamma are trained. At first they are a plain
    mean, so that the vectors are those of `Elmo.encode`. A saved model holds the weights of the
    mix and the name of the biLM, which is checked when it is loaded.

    Args:
        source: Name or path of a model that `elmokit.load` takes; the embedded one when left out.
        pool: ``"mean"`` or ``"max"`` over a sentence's tokens, without padding; left out, one
            vector per token.
        model_hash: The hash of the model that is expected; stored in saved models.
        **options: As for every layer of Keras: ``name``, ``trainable``, ``dtype``.
    """

    def __init__(
        self,
        source: str | Path | None = None,
        *,
        pool: Pool | None = None,
        model_hash: str | None = None,
        **options: Any,
    ) -> None:
        backend = keras.backend.backend()
        if backend != "torch":
            raise ConfigError(
                f"ElmoLayer runs on Keras's backend torch, and this is {backend}: "
                "set the environment variable KERAS_BACKEND=torch before Keras is imported"
            )
        if pool not in (None, "mean", "max"):
            raise ConfigError(f"pool={pool!r}: use 'mean', 'max' or None (one vector per token)")
        # Ids are numbers, which bfloat16 would round.
        super().__init__(**{"autocast": False, **options})
        self.supports_masking = True
        self.supports_jit = False
        self.pool = pool
        self.elmo: Elmo = load(source, softmax=False, device="cpu")
        self.model_hash: str = fingerprint(self.elmo)
        if model_hash not in (None, self.model_hash):
            raise CheckpointError(
                f"{self.elmo.source}: this is not the model with which the Keras layer was saved "
                "(its hash differs). Put that model there, or train the Keras model again"
            )
        self._builder = self.elmo.checkpoint().inputs()
        self._markers = self._rows([self._builder.begin, self._builder.end])
        self.columns: int = self._markers.shape[1]

    def prepare(
        self, sentences: Iterable[Sentence], length: int | None = None
    ) -> NDArray[np.integer[Any]]:
        """What the layer reads: character ids of each token, (B, T, C), zeros are padding.

        Args:
            sentences: Texts, which the model's tokeniser splits, or lists of tokens.
            length: T. Longer sentences are cut there. Left out: as the longest sentence.
        """
        if length is not None and length < 1:
            raise ConfigError(f"length={length}: at least one token is needed")
        batch = [tokens[:length] for tokens in self.elmo.all_tokens(sentences)]
        words = list(dict.fromkeys(token for tokens in batch for token in tokens))
        rows = self._rows(words)  # (V, C)
        number = {word: i for i, word in enumerate(words)}
        longest = length or max(map(len, batch), default=0)
        # The smallest type that holds all ids: arrays of long texts are large.
        kind = np.int16 if max(rows.max(initial=0), self._markers.max()) < 2**15 else np.int32
        found = np.zeros((len(batch), longest, self.columns), kind)
        for row, tokens in enumerate(batch):
            found[row, : len(tokens)] = rows[[number[token] for token in tokens]]
        return found

    def _rows(self, words: list[str]) -> NDArray[np.int64]:
        """Ids of words, shifted by one: those of their characters, then in the word table."""
        parts = []
        if self._builder.alphabet is not None:
            parts.append(self._builder.alphabet.ids(words, trim=False))
        if self._builder.reads_words:
            parts.append(self._builder.word_ids(words)[:, None])
        return np.concatenate(parts, axis=1) + 1

    def build(self, input_shape: Shape) -> None:
        """Make the weights of the mix."""
        self._check(input_shape)
        self.mix_weights = self.add_weight(
            shape=(self.elmo.layers,), initializer="zeros", name="mix_weights"
        )
        self.gamma = self.add_weight(shape=(), initializer="ones", name="gamma")
        self.built = True

    def _check(self, shape: Shape) -> None:
        if len(shape) != 3 or shape[2] not in (None, self.columns):
            raise DataError(
                f"ElmoLayer reads what its prepare(sentences) gives, of shape (sentences, tokens, "
                f"{self.columns}), and got {tuple(shape)}"
            )

    def call(self, inputs: Tensor) -> Tensor:
        """Embed, mix and perhaps pool a batch."""
        self._check(tuple(inputs.shape))
        if inputs.device.type == "meta":  # Keras asks for shapes alone
            shape = (*inputs.shape[: 1 if self.pool else 2], self.elmo.dim)
            return torch.empty(shape, dtype=_dtype(self.compute_dtype), device="meta")
        mask = (inputs != 0).any(dim=2)  # (B, T)
        if self.elmo.device != inputs.device:
            self.elmo.bilm.to(inputs.device)
            self.elmo.forget()
        shares = torch.softmax(_value(self.mix_weights), dim=0)
        layers = self._embed(inputs[mask].long() - 1, mask.sum(dim=1).tolist())
        parts = [share * layer for share, layer in zip(shares, layers, strict=True)]
        flat = torch.stack(parts).sum(dim=0)  # (N, D)
        flat = (_value(self.gamma) * flat).to(_dtype(self.compute_dtype))  # (N, D)
        padded: Tensor = flat.new_zeros(*mask.shape, self.elmo.dim)  # (B, T, D)
        padded = padded.index_put((mask,), flat)
        if self.pool == "mean":
            return padded.sum(dim=1) / mask.sum(dim=1, keepdim=True).clamp(min=1)
        if self.pool == "max":
            # Zeros for a sentence without tokens, as for its mean.
            lowest = padded.masked_fill(~mask[:, :, None], -torch.inf).amax(dim=1)
            return lowest.masked_fill(~mask.any(dim=1)[:, None], 0)
        return padded

    def _embed(self, ids: Tensor, sizes: list[int]) -> list[Tensor]:
        """The L + 1 layers (N, D) of tokens given by their ids (N, C)."""
        markers = torch.from_numpy(self._markers - 1).to(ids.device)  # (2, C)
        with_markers = [size + 2 for size in sizes]
        inner = inside(with_markers, ids.device)
        order = torch.ones(sum(with_markers), dtype=torch.long, device=ids.device)
        order[np.cumsum([0, *with_markers])[:-1]] = 0
        order[inner] = torch.arange(2, 2 + len(ids), device=ids.device)
        with no_gradients():
            distinct, indices = torch.cat([markers, ids]).unique(dim=0, return_inverse=True)
            words = distinct[:, -1] if self._builder.reads_words else None
            characters = distinct if self._builder.alphabet is not None else None
            if characters is not None and words is not None:
                characters = distinct[:, :-1]
            bilm = self.elmo.bilm
            tokens = bilm.embed(WordInputs(characters, words))[indices[order]]
            packing = Packing(with_markers, ids.device, rows=bilm.plan().rows)
            outputs = bilm(tokens, packing, bilm.zero_states(len(sizes)))
            return [output.vectors.index_select(0, inner) for output in outputs]

    def compute_mask(self, inputs: Any, previous_mask: Any = None) -> Any:
        """(B, T), true for tokens; none after pooling."""
        return None if self.pool else keras.ops.any(keras.ops.not_equal(inputs, 0), axis=-1)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        """(B, T, D), or (B, D)."""
        self._check(input_shape)
        batch, tokens, _ = input_shape
        return (batch, self.elmo.dim) if self.pool else (batch, tokens, self.elmo.dim)

    def compute_output_spec(self, inputs: Any) -> Any:
        """The same with a type; nothing is computed."""
        return keras.KerasTensor(self.compute_output_shape(inputs.shape), self.compute_dtype)

    def get_config(self) -> dict[str, Any]:
        """What makes the layer again, except the weights of its mix."""
        own = {"source": self.elmo.source, "pool": self.pool, "model_hash": self.model_hash}
        return {**super().get_config(), **own}


def _value(weight: Any) -> Tensor:
    """A weight in float32, whatever the layer computes in: three numbers, used as exactly."""
    value: Tensor = weight.value
    return value.float()


def _dtype(name: str) -> torch.dtype:
    found: torch.dtype = getattr(torch, name)
    return found
