"""A biLM as a source of layers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from elmokit.checkpoints import hub, native
from elmokit.checkpoints.fingerprint import fingerprint
from elmokit.checkpoints.sources import embedded_models
from elmokit.encode.elmo import Elmo
from elmokit.encode.embedding import flat_layers
from elmokit.encode.loading import load
from elmokit.errors import ConfigError, ElmokitError
from elmokit.lm.forward_reader import ForwardReader
from elmokit.model.bilm import Precision
from elmokit.tasks.examples import Tokens
from elmokit.tasks.inputs.source import LayerModel


class ElmoLayers(LayerModel):
    """The layers of a biLM.

    Args:
        source: A model that `elmokit.load` understands, or a loaded `Elmo`.
        copied: Work on a copy, because the weights are going to learn.
        precision: In which a model computes that is loaded here.
    """

    kind = "elmo"

    def __init__(
        self,
        source: Elmo | str | Path,
        *,
        copied: bool = False,
        precision: Precision = "float32",
    ) -> None:
        self._given = isinstance(source, Elmo)  # and maybe changed since it was loaded
        if isinstance(source, Elmo):
            self.elmo = source
        else:
            self.elmo = load(source, softmax=False, precision=precision)
        if copied:
            checkpoint = self.elmo.checkpoint()
            weights = {name: tensor.clone() for name, tensor in checkpoint.weights.items()}
            self.elmo = Elmo(replace(checkpoint, weights=weights).without_softmax())
        source = self.elmo.source
        self.name = str(Path(source).resolve()) if _on_disk(source) else source
        self.layers = self.elmo.layers
        self.dim = self.elmo.dim
        self.forward_dim = self.elmo.config.lstm.width
        self.begin = self.elmo.config.text.begin
        self.tokenizer = self.elmo.config.text.tokenizer
        self._fingerprint = ""
        self._learns = False

    @property
    def fingerprint(self) -> str:
        """A hash of the weights, sizes and word lists that vectors depend on."""
        if not self._fingerprint or self._learns:
            self._fingerprint = fingerprint(self.elmo)
        return self._fingerprint

    @property
    def lasts(self) -> bool:
        """Whether its name is an embedded model's, or the place that holds it as it is."""
        elsewhere = self.name in embedded_models() or self.name.startswith(hub.PREFIX)
        if self._learns or not (elsewhere or _on_disk(self.name)):
            return False
        # Token vectors from a file are given again whenever the predictor is loaded.
        return not self._given or bool(self.elmo.token_vectors[0]) or self._is_as_stored()

    def _is_as_stored(self) -> bool:
        try:
            stored = load(self.name, softmax=False, precision=self.elmo.bilm.precision)
            return fingerprint(stored) == self.fingerprint
        except ElmokitError:  # not without what was said when it was loaded
            return False

    def copied(self) -> ElmoLayers:
        """The same with weights of its own."""
        return ElmoLayers(self.elmo, copied=True)

    def stream(self, sentences: Sequence[Tokens]) -> Iterator[NDArray[np.float32]]:
        """Layers of each sentence, (L + 1, T, D)."""
        return self.elmo.encode_stream(sentences, layers="all")

    def flat(self, batch: Sequence[Tokens], *, learn: bool) -> list[Tensor]:
        """Layers of a batch's tokens."""
        return flat_layers(self.elmo, batch, learn=learn)

    def forward_reader(self) -> ForwardReader:
        """The forward direction of the biLM as it is now."""
        return ForwardReader(self.elmo, use_cache=not self._learns)

    def to(self, device: torch.device) -> None:
        """Move the biLM."""
        if self.elmo.device != device:
            self.elmo.to(device)

    def learning(self) -> tuple[nn.Module, list[list[nn.Parameter]]]:
        """The biLM, and its layers from the top down to the character CNN."""
        bilm = self.elmo.bilm
        self._learns = True
        self.elmo.forget()
        stacks: list[nn.ModuleList] = [
            stack for stack in bilm.lstm.children() if isinstance(stack, nn.ModuleList)
        ]
        stages = [
            [p for stack in stacks for p in stack[number].parameters()]
            for number in reversed(range(self.layers - 1))
        ]
        stages.append(list(bilm.encoder.parameters()))
        bilm.mixes.requires_grad_(False)
        for stage in stages:
            for parameter in stage:
                parameter.requires_grad_(True)
        return nn.ModuleDict({"encoder": bilm.encoder, "lstm": bilm.lstm}), stages

    def save(self, folder: Path) -> None:
        """Write the biLM in elmokit's own format, without what predicts words.

        Raises:
            ConfigError: It takes token vectors from a file, which the format does not hold.
        """
        if self.elmo.token_vectors[0]:
            raise ConfigError(
                f"{self.name}: a model with token_vectors= cannot be stored with a predictor; save "
                "without bundle, and give the model again: elmokit.tasks.load(folder, elmo=model)"
            )
        native.write(self.elmo.checkpoint().without_softmax(), folder)


def _on_disk(source: str) -> bool:
    """Whether there is such a file or folder, or a TensorFlow checkpoint of that prefix."""
    return bool(source) and (Path(source).exists() or Path(f"{source}.index").is_file())
