"""Inputs that read a pretrained model: its layers, mixed, from a store on disk if they are there.

A mix is gamma · Σ s_j · layer_j (`ScalarMix`), learned for each position at which the model enters
and for each model. `LayerStore` keeps the layers of a data set on disk; `WrittenText` reads what a
task writes, with a biLM's forward direction alone. `TokenBatch` and `Input` are what all inputs
have in common.
"""

from __future__ import annotations

import hashlib
import itertools
import re
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from elmokit.engines import LstmState, to_device
from elmokit.errors import ConfigError
from elmokit.files import atomic_file
from elmokit.lm.generation import choose_rows
from elmokit.model.scalar_mix import ScalarMix
from elmokit.tasks.config import FineTuneConfig, InputsConfig
from elmokit.tasks.inputs.source import LayerModel, LayerSource
from elmokit.tasks.records import Tokens

TARGET = "target"
"""The position at which a task reads what it writes itself."""
_MIX = re.compile(r"(?:.*\.)?mixes\.(?P<name>[^.]+)\.weights")
_MIX_NAME = re.compile(r"(?P<position>\w+)(?: (?P<number>\d+))?")
_FREE_SHARE = 0.8
"""How much of the free disk a store may take."""


class TokenBatch:
    """Sentences, their tokens one after another, and each distinct word once.

    `device` is where vectors are wanted.
    """

    def __init__(self, sentences: Sequence[Tokens], device: torch.device) -> None:
        self.sentences = sentences
        self.device = device
        self.lengths: list[int] = [len(tokens) for tokens in sentences]
        flat = [token for tokens in sentences for token in tokens]
        numbers = {word: number for number, word in enumerate(dict.fromkeys(flat))}
        self.words: list[str] = list(numbers)
        word_ids = torch.tensor([numbers[token] for token in flat], dtype=torch.long)
        self.word_ids: Tensor = to_device(word_ids, device)
        """Number of each token's word in `words`, (N,)."""
        self.layers: dict[int, list[Tensor]] = {}
        """Layers of models that have read the batch, by the model's number."""

    def spread(self, vectors: Tensor) -> Tensor:
        """Vectors of the distinct words to vectors of all tokens, (N, D)."""
        return vectors.index_select(0, self.word_ids)


class Input(nn.Module, ABC):
    """One part of what a token is to a task's model."""

    widths: dict[str, int]
    """Width of the vectors by position: ``input`` and, for some, ``output``."""

    def prepare(self, sentences: Sequence[Tokens], store: Path) -> None:
        """Compute beforehand what can be, with layers kept in the folder `store`.

        Called once with all sentences that training reads.
        """

    def release(self) -> None:
        """Give up what `prepare` made."""

    def begin(self, epoch: float) -> None:
        """Training has reached this epoch."""

    def penalty(self) -> Tensor | None:
        """What is added to the loss."""
        return None

    @abstractmethod
    def vectors(self, batch: TokenBatch) -> dict[str, Tensor]:
        """Vectors of all tokens by position, (N, width) each."""

    @property
    def pretrained_width(self) -> int:
        """Width of `pretrained`; 0 for what is trained with the task."""
        return 0

    def pretrained(self, batch: TokenBatch) -> Tensor | None:
        """Vectors of all tokens that no training of the task changes, (N, width)."""
        return None


def mix_name(position: str, model: int = 0) -> str:
    """The name of a mix: that of the first model is its position alone, then ``input 2``."""
    return position if model == 0 else f"{position} {model + 1}"


def parse_mix_name(name: str) -> tuple[str, int]:
    """Position and model (from 0) of a mix: ``input 2`` is ``("input", 1)``."""
    found = _MIX_NAME.fullmatch(name)
    if found is None:
        raise ValueError(f"{name!r} is not the name of a mix")
    return found["position"], int(found["number"] or 1) - 1


def mix_keys(keys: Iterable[str]) -> dict[str, str]:
    """The mixes among the keys of a state dictionary: name to key of the weights."""
    found = ((_MIX.fullmatch(key), key) for key in keys)
    return {match["name"]: key for match, key in found if match is not None}


class LayerStore:
    """Layers of a data set on disk, computed once: half precision, memory-mapped.

    A file holds the layers of distinct sentences one after another, (N, L + 1, D) float16, and
    nothing else: its name holds hashes of the model and of the sentences, from which all offsets
    follow. It is written atomically, and a later run with the same model and data finds it.

    Args:
        folder: Where the file is or will be.
        limit: The most bytes; sentences beyond it are not stored.
    """

    def __init__(self, folder: Path, limit: int) -> None:
        self._folder = folder
        self._limit = limit
        self._starts: dict[Tokens, int] = {}
        self._data: NDArray[np.float16] | None = None

    def fill(self, source: LayerModel, sentences: Sequence[Tokens]) -> Path:
        """Compute and store layers, or find them from an earlier time; returns the file."""
        self._folder.mkdir(parents=True, exist_ok=True)
        path, chosen = self._store(source, list(dict.fromkeys(sentences)))
        tokens = sum(map(len, chosen))
        shape = (tokens, source.layers, source.dim)
        if not path.is_file() or path.stat().st_size != 2 * int(np.prod(shape)):
            self._write(source, chosen, path)
        starts = itertools.accumulate(map(len, chosen), initial=0)
        self._starts.update(zip(chosen, starts, strict=False))
        if tokens:  # an empty file cannot be mapped
            self._data = np.memmap(path, dtype=np.float16, mode="r", shape=shape)
        else:
            self._data = np.zeros(shape, dtype=np.float16)
        return path

    def holds(self, sentences: Sequence[Tokens]) -> bool:
        """Whether the layers of all these sentences are there."""
        return self._data is not None and all(tokens in self._starts for tokens in sentences)

    def layers(self, sentences: Sequence[Tokens], device: torch.device) -> list[Tensor]:
        """Layers of sentences one after another, L + 1 tensors (N, D)."""
        assert self._data is not None
        starts = ((self._starts[tokens], len(tokens)) for tokens in sentences)
        pieces = [self._data[start : start + count] for start, count in starts]
        together = to_device(np.concatenate(pieces), device)  # (N, L + 1, D)
        return list(together.float().unbind(1))

    def _store(self, source: LayerModel, sentences: Sequence[Tokens]) -> tuple[Path, list[Tokens]]:
        """The file, and the sentences in it: as many of the distinct ones as there is room for.

        A file of an earlier time, which has taken some of the free disk itself, may hold more.
        """
        token_bytes = 2 * source.layers * source.dim
        free = int(shutil.disk_usage(self._folder).free * _FREE_SHARE)
        rooms = [min(self._limit, free) // token_bytes]
        for path in self._folder.glob(f"layers-{source.fingerprint[:16]}-*.f16"):
            if rooms[0] * token_bytes < (size := path.stat().st_size) <= self._limit:
                rooms.append(size // token_bytes)
        for room in sorted(rooms, reverse=True):
            chosen = _fitting(sentences, room)
            words = hashlib.sha256(repr(chosen).encode("utf-8", "surrogatepass")).hexdigest()
            path = self._folder / f"layers-{source.fingerprint[:16]}-{words[:16]}.f16"
            if path.is_file():
                break
        return path, chosen

    def _write(self, source: LayerModel, sentences: Sequence[Tokens], path: Path) -> None:
        from tqdm.auto import tqdm

        shown: Any = {"desc": "layers", "unit": "sentence", "delay": 2, "disable": None}
        stream = tqdm(source.stream(sentences), total=len(sentences), **shown)
        with atomic_file(path) as temporary, temporary.open("wb") as file:
            for layers in stream:  # (L + 1, T, D)
                file.write(layers.transpose(1, 0, 2).astype(np.float16).tobytes())


def _fitting(sentences: Sequence[Tokens], room: int) -> list[Tokens]:
    """The sentences that fit, in their order, into room for so many tokens."""
    chosen = []
    for tokens in sentences:
        if len(tokens) <= room:
            room -= len(tokens)
            chosen.append(tokens)
    return chosen


class MixedLayers(Input):
    """ELMo, or other models with layers, as an input of a task.

    Several models are concatenated, each with mixes of its own.
    """

    def __init__(
        self, source: LayerSource, config: InputsConfig, fine_tune: FineTuneConfig
    ) -> None:
        super().__init__()
        self.source = source
        self._positions = tuple(position for position in config.elmo_at if position != TARGET)
        self.widths: dict[str, int] = dict.fromkeys(
            self._positions, sum(model.dim for model in source.models)
        )
        self.mixes: nn.ModuleDict = nn.ModuleDict(
            {
                mix_name(position, number): ScalarMix(model.layers, layer_norm=config.layer_norm)
                for number, model in enumerate(source.models)
                for position in self._positions
            }
        )
        if TARGET in config.elmo_at:
            if not source.forward_dim:
                raise ConfigError(f"inputs.elmo_at: {source.name} cannot read what a task writes")
            self._forward = [model.forward_dim > 0 for model in source.models].index(True)
            self.widths[TARGET] = source.forward_dim
            self.mixes[TARGET] = ScalarMix(source.models[self._forward].layers)
        self._penalty = config.mix_penalty
        self._limit = int(config.store_gb * 1e9 / len(source.models))
        self._fine_tune = fine_tune
        self._stores: list[LayerStore] = []
        self.stages: list[list[nn.Parameter]] = []
        """The model's parameters that are trained, the top layer's first; none if it is frozen."""
        if fine_tune.on:
            self.model: nn.Module
            self.model, self.stages = source.fine_tune()
            for parameter in itertools.chain.from_iterable(self.stages):
                parameter.requires_grad_(True)

    def prepare(self, sentences: Sequence[Tokens], store: Path) -> None:
        """Compute the layers of all sentences once, if the model is frozen."""
        if not self._fine_tune.on:
            self._stores = [LayerStore(store, self._limit) for _ in self.source.models]
            for layers, model in zip(self._stores, self.source.models, strict=True):
                layers.fill(model, sentences)

    def release(self) -> None:
        """Forget the store; its folder is left to its owner."""
        self._stores = []

    def begin(self, epoch: float) -> None:
        """Unfreeze one more stage whenever it is time."""
        every = self._fine_tune.unfreeze_every
        count = 1 + int(epoch / every) if every else len(self.stages)
        for number, stage in enumerate(self.stages):
            for parameter in stage:
                parameter.requires_grad_(number < count)

    def penalty(self) -> Tensor | None:
        """The pull of the mixes towards a plain average."""
        if not self._penalty:
            return None
        squares = [mix.weights.square().sum() for mix in self._all()]
        return self._penalty * torch.stack(squares).sum()

    def vectors(self, batch: TokenBatch) -> dict[str, Tensor]:
        """Mix the layers of all tokens, from the store where it holds them."""
        parts: dict[str, list[Tensor]] = {position: [] for position in self._positions}
        for number, model in enumerate(self.source.models):
            layers = self._layers(number, model, batch)
            for position in self._positions:
                parts[position].append(self.mixes[mix_name(position, number)](layers))  # (N, D)
        return {position: torch.cat(found, dim=1) for position, found in parts.items()}

    @property
    def pretrained_width(self) -> int:
        """All layers of all models."""
        return sum(model.layers * model.dim for model in self.source.models)

    def pretrained(self, batch: TokenBatch) -> Tensor | None:
        """All layers of all models, concatenated."""
        models = enumerate(self.source.models)
        return torch.cat([x for n, model in models for x in self._layers(n, model, batch)], dim=1)

    def forward_vectors(self, batch: TokenBatch) -> Tensor:
        """Vectors of written texts, (N, P): the halves that know nothing of what follows."""
        layers = self._layers(self._forward, self.source.models[self._forward], batch)
        return self.mix_written([layer[:, : self.source.forward_dim] for layer in layers])

    def mix_written(self, layers: Sequence[Tensor]) -> Tensor:
        """Mix the forward layers of written words, (N, P) each."""
        mixed: Tensor = self.mixes[TARGET](layers)
        return mixed

    def _layers(self, number: int, model: LayerModel, batch: TokenBatch) -> list[Tensor]:
        if number not in batch.layers:
            batch.layers[number] = self._read(number, model, batch)
        return batch.layers[number]

    def _read(self, number: int, model: LayerModel, batch: TokenBatch) -> list[Tensor]:
        store = self._stores[number] if self._stores else None
        if store is not None and store.holds(batch.sentences):
            return store.layers(batch.sentences, batch.device)
        if batch.words:
            return model.flat(batch.sentences, learn=self._fine_tune.on)
        return [torch.zeros(0, model.dim, device=batch.device)] * model.layers

    def learned_mixes(self) -> dict[str, dict[str, Any]]:
        """What the mixes have learned: shares s_j and gamma by the name of the mix."""
        return {
            position: {"s": mix.shares().tolist(), "gamma": mix.gamma.item()}
            for position, mix in zip(self.mixes, self._all(), strict=True)
        }

    def mix_weights(self) -> list[nn.Parameter]:
        """The weights of all mixes, before their softmax."""
        return [mix.weights for mix in self._all()]

    def _all(self) -> list[ScalarMix]:
        return [mix for mix in self.mixes.values() if isinstance(mix, ScalarMix)]

    def _apply(self, fn: Any, recurse: bool = True) -> MixedLayers:
        """Let a frozen model follow when the task's model moves to another device."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.source.to(next(self.mixes.parameters()).device)
        return self


class WrittenText:
    """Vectors of words that depend on the words before them, and on none behind."""

    def __init__(self, layers: MixedLayers, dropout: nn.Module, device: torch.device) -> None:
        self._layers = layers
        self._dropout = dropout
        self._device = device

    def whole(self, texts: Sequence[Tokens]) -> Tensor:
        """Vectors of texts that are known to their ends, (B, S, P), zeros beyond them."""
        with torch.autocast(self._device.type, enabled=False):
            batch = TokenBatch(texts, self._device)
            flat = self._dropout(self._layers.forward_vectors(batch))  # (N, P)
        return pad_sequence(list(flat.split(batch.lengths)), batch_first=True)

    def start(self, rows: int) -> list[LstmState]:
        """The state of so many texts before their first words."""
        source = self._layers.source
        reader = source.forward_reader()
        return reader.read([[source.begin]] * rows, reader.zero_state(rows))[1]

    def step(self, words: Sequence[str], state: list[LstmState]) -> tuple[Tensor, list[LstmState]]:
        """Read one more word of each text: its vector, (N, P), and the state after it."""
        with torch.autocast(self._device.type, enabled=False):
            reader = self._layers.source.forward_reader()
            layers, state = reader.read([[word] for word in words], state)
            return self._layers.mix_written(layers), state

    @staticmethod
    def choose(state: list[LstmState], rows: Tensor) -> list[LstmState]:
        """The state of the texts with these numbers, (M,)."""
        return choose_rows(state, rows)
