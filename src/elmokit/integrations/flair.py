"""`FlairVectors`: the word vectors of flair's character language models, without flair."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from elmokit.engines import Device, check_device
from elmokit.tasks.inputs.flair_layers import FlairLayers
from elmokit.tasks.inputs.references import as_layers
from elmokit.tasks.inputs.source import LayerSource

Sentence = str | Sequence[str]


class FlairVectors:
    """Vectors as flair's ``StackedEmbeddings`` of ``FlairEmbeddings`` gives them.

    Nothing in the files is unpickled or run. Tasks and probes take the files themselves:
    ``elmokit.tasks.fit(..., elmo=["forward.pt", "backward.pt"])``.

    Args:
        sources: Language models, concatenated in this order; or one tagger of flair, which holds
            its models.
        device: As for `elmokit.load`.
    """

    def __init__(self, *sources: str | Path, device: Device = None) -> None:
        self.models: list[FlairLayers] = [FlairLayers(source) for source in sources]
        self.source: LayerSource = as_layers(self.models)
        self.source.to(check_device(device))

    @property
    def dim(self) -> int:
        """Width of a vector."""
        return sum(model.dim for model in self.models)

    def encode(self, sentences: Iterable[Sentence]) -> list[NDArray[np.float32]]:
        """One vector per token, (T, D), of each sentence: text, or a list of tokens."""
        return list(self.encode_stream(sentences))

    def encode_stream(self, sentences: Iterable[Sentence]) -> Iterator[NDArray[np.float32]]:
        """The same, one sentence after another."""
        for sentence in sentences:
            words = self.source.tokenize(sentence) if isinstance(sentence, str) else list(sentence)
            parts = [model.flat([words], learn=False)[0] for model in self.models]
            yield torch.cat(parts, dim=1).cpu().numpy()
