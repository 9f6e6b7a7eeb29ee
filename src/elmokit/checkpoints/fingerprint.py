"""A hash of a model, by which predictors, spaCy pipelines and Ray jobs recognise it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from torch import Tensor

from elmokit.checkpoints.checkpoint import Checkpoint
from elmokit.config import ModelConfig, from_dict, to_dict
from elmokit.model.bilm import BiLM


class Model(Protocol):
    """What is hashed of an `Elmo`."""

    @property
    def bilm(self) -> BiLM:
        """The network."""

    @property
    def token_vectors(self) -> tuple[Sequence[str], Tensor]:
        """Words whose token vectors come from a file, and these vectors."""

    def checkpoint(self) -> Checkpoint:
        """Config, weights and word lists."""


def fingerprint(elmo: Model) -> str:
    """A hash of what decides a model's vectors; softmax, stored mixes and tokeniser do not."""
    checkpoint = elmo.checkpoint().without_softmax()
    sizes = to_dict(replace(checkpoint.config, mix=None))
    sizes = to_dict(from_dict(ModelConfig, sizes))  # a clip of 3 in one format is 3.0 in another
    sizes["text"].pop("tokenizer")
    if elmo.bilm.precision != "float32":
        sizes["precision"] = elmo.bilm.precision
    digest = hashlib.sha256(json.dumps(sizes, sort_keys=True).encode())
    if checkpoint.config.words is not None and checkpoint.vocabulary is not None:
        digest.update("\n".join(checkpoint.vocabulary.words).encode("utf-8", "surrogatepass"))
    digest.update("\n".join(checkpoint.symbols or ()).encode("utf-8", "surrogatepass"))
    for name, tensor in sorted(checkpoint.weights.items()):
        if not name.startswith("mixes."):
            digest.update(name.encode())
            digest.update(tensor.contiguous().numpy().data)
    words, vectors = elmo.token_vectors
    if words:
        digest.update("\n".join(words).encode("utf-8", "surrogatepass"))
        digest.update(vectors.cpu().contiguous().numpy().data)
    return digest.hexdigest()
