"""Pretrained models that give each token several layers: the inputs of tasks, the object of probes.

`LayerSource` is a model, or several at once; `LayerModel` is one of them: a biLM
(`ElmoLayers`), a table of static vectors (`StaticVectors`), an encoder of Hugging Face or in ONNX
(`elmokit.tasks.inputs.encoders`), flair's language models (`elmokit.tasks.inputs.flair_layers`).
`elmokit.tasks.inputs.references` opens them.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from elmokit.checkpoints import native
from elmokit.checkpoints.download import HUB_PREFIX, cached_path
from elmokit.checkpoints.fingerprint import fingerprint
from elmokit.checkpoints.known_models import embedded_models
from elmokit.encode.elmo import Elmo
from elmokit.encode.embedding import flat_layers
from elmokit.encode.loading import load
from elmokit.engines import Device, Precision
from elmokit.errors import ConfigError, DataError, ElmokitError
from elmokit.files import atomic_file
from elmokit.lm.generation import ForwardReader
from elmokit.tasks.records import Tokens
from elmokit.text.tokens import get_tokenizer
from elmokit.word_vectors.table import WordVectors
from elmokit.word_vectors.word2vec import write_binary

T = TypeVar("T")


class LayerVectors(Protocol):
    """Gives every token one vector per layer; write one for any other system to probe it."""

    @property
    def name(self) -> str:
        """What reports call it."""

    @property
    def layers(self) -> int:
        """How many layers it has; static vectors have one."""

    @property
    def dim(self) -> int:
        """Width of a vector."""

    def tokenize(self, text: str) -> list[str]:
        """Split a text as the vectors' words were split."""

    def stream(self, sentences: Iterable[Sequence[str]]) -> Iterator[NDArray[np.float32]]:
        """For each sentence, in order, an array (layers, T, D)."""


def with_layers(
    source: LayerVectors, items: Iterable[tuple[Sequence[str], T]]
) -> Iterator[tuple[Sequence[str], T, NDArray[np.float32]]]:
    """Encode a stream of (tokens, anything) and yield both with their layers, (L + 1, T, D).

    Memory is bounded: only a window of sentences is prefetched and buffered.

    Raises:
        DataError: The vectors do not fit the tokens, or are not finite.
    """
    kept, read = itertools.tee(items)
    arrays = source.stream(tokens for tokens, _ in read)
    for (tokens, item), array in zip(kept, arrays, strict=True):
        if array.shape != (source.layers, len(tokens), source.dim):
            raise DataError(
                f"{source.name}: vectors of shape {array.shape} for {len(tokens)} tokens, "
                f"{source.layers} layers and {source.dim} dimensions"
            )
        if not np.isfinite(array).all():
            raise DataError(f"{source.name}: vectors that are not finite: {' '.join(tokens):.80}")
        yield tokens, item, array


class LayerSource(ABC):
    """A pretrained model that gives each token several layers, or several such models.

    Its weights are no part of a task's model unless they are fine-tuned.
    """

    kind: str
    """What it is; stored with a predictor."""
    name: str
    """What a user gives to find the model."""
    tokenizer: str
    """How it splits text."""
    forward_dim: int = 0
    """Width of the vectors that the forward direction alone gives; 0: it has none."""
    begin: str = ""
    """The word that opens every text, for the forward direction."""

    @property
    @abstractmethod
    def models(self) -> Sequence[LayerModel]:
        """The models, in the order of their vectors."""

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """A hash of everything that decides its vectors."""

    @property
    @abstractmethod
    def is_stored(self) -> bool:
        """Whether another process finds the model by its name; else it is in memory alone."""

    @abstractmethod
    def copied(self) -> LayerSource:
        """The same with weights of its own, because they are going to be trained."""

    def forward_reader(self) -> ForwardReader:
        """What reads text from left to right alone, with the model as it is now."""
        raise ConfigError(f"{self.name}: this model has no forward direction of its own")

    def tokenize(self, text: str) -> list[str]:
        """Split a text as the model does."""
        return list(get_tokenizer(self.tokenizer).tokenize(text))

    @abstractmethod
    def to(self, device: torch.device) -> None:
        """Move the model."""

    @abstractmethod
    def fine_tune(self) -> tuple[nn.Module, list[list[nn.Parameter]]]:
        """The module that is to be trained, and its parameters in stages, the top layer's first."""

    @abstractmethod
    def save(self, path: Path) -> str:
        """Write the model as it is now; the fingerprint of what was written."""


class LayerModel(LayerSource):
    """One model with layers."""

    layers: int
    dim: int

    @property
    def models(self) -> Sequence[LayerModel]:
        """The model itself."""
        return (self,)

    @abstractmethod
    def copied(self) -> LayerModel:
        """The same with weights of its own, because they are going to be trained."""

    @abstractmethod
    def stream(self, sentences: Iterable[Sequence[str]]) -> Iterator[NDArray[np.float32]]:
        """Layers of each sentence, (L + 1, T, D), in order, without gradients."""

    @abstractmethod
    def flat(self, batch: Sequence[Tokens], *, learn: bool) -> list[Tensor]:
        """Layers of a batch's tokens, L + 1 tensors (N, D); `learn`: with gradients."""


class ElmoLayers(LayerModel):
    """The layers of a biLM.

    Args:
        source: A model that `elmokit.load` understands, or a loaded `Elmo`.
        copied: Work on a copy, because the weights are going to be trained.
        precision: In which a model computes that is loaded here.
        device: Where such a model is loaded to.
    """

    kind = "elmo"

    def __init__(
        self,
        source: Elmo | str | Path | None,
        *,
        copied: bool = False,
        precision: Precision = "float32",
        device: Device = "cpu",
    ) -> None:
        self._given = isinstance(source, Elmo)  # and maybe changed since it was loaded
        if isinstance(source, Elmo):
            self.elmo: Elmo = source
        else:
            self.elmo = load(source, softmax=False, precision=precision, device=device)
        if copied:
            checkpoint = self.elmo.checkpoint()
            weights = {name: tensor.clone() for name, tensor in checkpoint.weights.items()}
            self.elmo = Elmo(
                replace(checkpoint, weights=weights).without_softmax(), device=self.elmo.device
            )
        path = self.elmo.source
        self.name: str = str(Path(path).resolve()) if on_disk(path) else path
        self.layers: int = self.elmo.layers
        self.dim: int = self.elmo.dim
        self.forward_dim: int = self.elmo.config.lstm.width
        self.begin: str = self.elmo.config.text.begin
        self.tokenizer: str = self.elmo.config.text.tokenizer
        self._fingerprint = ""
        self._trained = False

    @property
    def fingerprint(self) -> str:
        """A hash of the weights, sizes and word lists that vectors depend on."""
        if not self._fingerprint or self._trained:
            self._fingerprint = fingerprint(self.elmo)
        return self._fingerprint

    @property
    def is_stored(self) -> bool:
        """Whether its name is an embedded or published model's, or the path that holds it."""
        elsewhere = self.name in embedded_models() or self.name.startswith(HUB_PREFIX)
        elsewhere = elsewhere or cached_path(self.name) is not None
        if self._trained or not (elsewhere or on_disk(self.name)):
            return False
        # Token vectors from a file are given again whenever the predictor is loaded.
        return not self._given or bool(self.elmo.token_vectors[0]) or self._is_as_stored

    @cached_property
    def _is_as_stored(self) -> bool:
        """Whether the given model is the one on disk; found once, since that reads all of it."""
        try:
            precision = self.elmo.bilm.precision
            on_cpu: Precision = "float32" if precision == "float8" else precision  # is for GPUs
            stored = load(self.name, softmax=False, precision=on_cpu, device="cpu")
            stored.bilm.set_precision(precision)
            return fingerprint(stored) == self.fingerprint
        except ElmokitError:  # not without what was said when it was loaded
            return False

    def copied(self) -> ElmoLayers:
        """The same with weights of its own."""
        return ElmoLayers(self.elmo, copied=True)

    def stream(self, sentences: Iterable[Sequence[str]]) -> Iterator[NDArray[np.float32]]:
        """Layers of each sentence, (L + 1, T, D)."""
        return self.elmo.encode_stream(sentences, layers="all")

    def flat(self, batch: Sequence[Tokens], *, learn: bool) -> list[Tensor]:
        """Layers of a batch's tokens."""
        return flat_layers(self.elmo, batch, train=learn)

    def forward_reader(self) -> ForwardReader:
        """The forward direction of the biLM as it is now."""
        return ForwardReader(self.elmo, use_cache=not self._trained)

    def to(self, device: torch.device) -> None:
        """Move the biLM."""
        if self.elmo.device != device:
            self.elmo.to(device)

    def fine_tune(self) -> tuple[nn.Module, list[list[nn.Parameter]]]:
        """The biLM, and its layers from the top down to the character CNN."""
        bilm = self.elmo.bilm
        self._trained = True
        self.elmo.forget()
        stacks = [stack for stack in bilm.lstm.children() if isinstance(stack, nn.ModuleList)]
        stages = [
            [p for stack in stacks for p in stack[number].parameters()]
            for number in reversed(range(self.layers - 1))
        ]
        stages.append(list(bilm.encoder.parameters()))
        bilm.mixes.requires_grad_(False)
        return nn.ModuleDict({"encoder": bilm.encoder, "lstm": bilm.lstm}), stages

    def save(self, path: Path) -> str:
        """Write the biLM in elmokit's own format, without what predicts words.

        Raises:
            ConfigError: It takes token vectors from a file, which the format does not hold.
        """
        if self.elmo.token_vectors[0]:
            raise ConfigError(
                f"{self.name}: a model with token_vectors= cannot be stored with a predictor; save "
                "without bundle, and give the model again: elmokit.tasks.load(folder, elmo=model)"
            )
        native.write(self.elmo.checkpoint().without_softmax(), path)
        return self.fingerprint


def on_disk(source: str) -> bool:
    """Whether there is such a file or folder, or a TensorFlow checkpoint of that prefix."""
    return bool(source) and (Path(source).exists() or Path(f"{source}.index").is_file())


class StaticVectors(LayerModel):
    """A table of static vectors: one layer that sees no context.

    A word is looked up as it is written, then in lower case; one without a vector is zeros.

    Args:
        source: The table, or its file.
    """

    kind = "static"
    layers = 1
    tokenizer = "space"

    def __init__(self, source: WordVectors | str | Path) -> None:
        self.table: WordVectors = (
            source if isinstance(source, WordVectors) else WordVectors.load(source)
        )
        self.dim: int = self.table.dim
        self.name: str = "" if isinstance(source, WordVectors) else str(Path(source).resolve())
        self._stamp = _stamp(self.name) if self.is_stored else None

    @cached_property
    def fingerprint(self) -> str:
        """A hash of words and vectors, and of n-gram rows where there are some."""
        digest = hashlib.sha256("\n".join(self.table.words).encode("utf-8", "surrogatepass"))
        digest.update(self.table.vectors.tobytes())
        if (subwords := self.table.subwords) is not None:
            digest.update(f"n-grams {subwords.min_n} {subwords.max_n}".encode())
            digest.update(np.ascontiguousarray(subwords.buckets).data)
        return digest.hexdigest()

    @property
    def is_stored(self) -> bool:
        """Whether the file is there; a table may have none."""
        return bool(self.name) and Path(self.name).is_file()

    def copied(self) -> StaticVectors:
        """Itself: nothing of it is trained."""
        return self

    def stream(self, sentences: Iterable[Sequence[str]]) -> Iterator[NDArray[np.float32]]:
        """The vectors of each sentence, (1, T, D)."""
        for tokens in sentences:
            yield self.table.lookup(list(tokens))[None]

    def flat(self, batch: Sequence[Tokens], *, learn: bool) -> list[Tensor]:
        """The vectors of a batch's tokens, one tensor (N, D) on the host."""
        return [torch.from_numpy(self.table.lookup([word for text in batch for word in text]))]

    def to(self, device: torch.device) -> None:
        """Do nothing: the table stays on the host."""

    def fine_tune(self) -> tuple[nn.Module, list[list[nn.Parameter]]]:
        """Refuse: static vectors are not trained."""
        raise ConfigError("static vectors are not fine-tuned; inputs.words has vectors that are")

    def check_storable(self) -> None:
        """Check that `save` can write the table.

        Raises:
            ConfigError: It has no file, and what it holds is in no file of ours: n-grams, a word
                with a space.
        """
        if self.is_stored:
            return
        if self.table.subwords is not None:
            raise ConfigError(
                "static: these vectors have n-grams of fastText and no file, so they cannot be "
                "stored with the predictor; give their .bin file instead of the loaded table"
            )
        try:
            with open(os.devnull, "wb") as nowhere:
                write_binary(nowhere, self.table.words, self.table.vectors)
        except DataError as error:
            raise ConfigError(
                f"static: these vectors cannot be stored with the predictor; give a file of them "
                f"instead of the table. {error}"
            ) from None

    def save(self, path: Path) -> str:
        """Write the table in binary, or copy its file where that would lose something.

        Raises:
            ConfigError: It can be neither written nor copied.
        """
        self.check_storable()
        if self.table.subwords is None:
            try:
                self.table.save(path)
            except DataError:  # a word with a space
                pass
            else:
                return StaticVectors(path).fingerprint
        # Training saves often, and these files are large: one that is there is not copied again.
        if not path.is_file() or _stamp(path) != _stamp(self.name):
            with atomic_file(path) as temporary:
                shutil.copy2(self.name, temporary)
        if _stamp(path) != self._stamp and StaticVectors(path).fingerprint != self.fingerprint:
            raise ConfigError(f"{self.name}: the file was changed after it had been read")
        return self.fingerprint


def _stamp(path: str | Path) -> tuple[int, int]:
    """Size and time of a file: equal for a file and its copy, until one of them is written."""
    found = os.stat(path)
    return found.st_size, found.st_mtime_ns


class SeveralLayers(LayerSource):
    """Models whose vectors are concatenated, each with a mix of its own: ELMo and BERT, say.

    Args:
        models: The models. Text is split as the first one does it.
    """

    kind = "several"

    def __init__(self, models: Sequence[LayerModel]) -> None:
        if not models:
            raise ConfigError("elmo=[]: give at least one model, or None to train without")
        self._models = tuple(models)
        self.name: str = " + ".join(model.name for model in models)
        self.tokenizer: str = models[0].tokenizer
        self._forward = next((model for model in models if model.forward_dim), models[0])
        self.forward_dim: int = self._forward.forward_dim
        self.begin: str = self._forward.begin

    @property
    def models(self) -> Sequence[LayerModel]:
        """The models, in the order of their vectors."""
        return self._models

    @property
    def fingerprint(self) -> str:
        """A hash of their hashes."""
        together = "+".join(model.fingerprint for model in self._models)
        return hashlib.sha256(together.encode()).hexdigest()

    @property
    def is_stored(self) -> bool:
        """Whether all of them are found by their names."""
        return all(model.is_stored for model in self._models)

    def copied(self) -> SeveralLayers:
        """The same with weights of their own."""
        return SeveralLayers([model.copied() for model in self._models])

    def forward_reader(self) -> ForwardReader:
        """That of the first model that has one."""
        return self._forward.forward_reader()

    def to(self, device: torch.device) -> None:
        """Move all models."""
        for model in self._models:
            model.to(device)

    def fine_tune(self) -> tuple[nn.Module, list[list[nn.Parameter]]]:
        """All models; their top layers are unfrozen first, together, and so on."""
        found = [model.fine_tune() for model in self._models]
        depths = itertools.zip_longest(*(stages for _, stages in found), fillvalue=[])
        stages = [[p for stage in together for p in stage] for together in depths]
        return nn.ModuleList(module for module, _ in found), stages

    def save(self, path: Path) -> str:
        """Write each model to a folder of its own; see `folder_of`."""
        for number, model in enumerate(self._models):
            model.save(folder_of(path, number))
        return self.fingerprint


def folder_of(folder: Path, number: int) -> Path:
    """The folder of one of several models."""
    return folder / str(number + 1)
