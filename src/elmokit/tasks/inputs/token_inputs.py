"""All inputs of a task's model: texts of a batch to padded vectors.

A token's vector is the concatenation of what each `Input` gives: vectors and a character CNN that
are trained with the task, static vectors, and the mixed layers of pretrained models
(`elmokit.tasks.inputs.mixed`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from elmokit.config import CharacterConfig, LstmConfig, ModelConfig
from elmokit.engines import to_device
from elmokit.engines.cpu_training import Dropout
from elmokit.errors import ConfigError
from elmokit.model.init import random_model
from elmokit.tasks.config import POSITIONS, InputsConfig, TaskConfig
from elmokit.tasks.inputs.mixed import Input, MixedLayers, TokenBatch, WrittenText
from elmokit.tasks.inputs.source import LayerSource
from elmokit.tasks.records import Tokens
from elmokit.text.inputs import InputBuilder
from elmokit.word_vectors.table import WordVectors

if TYPE_CHECKING:
    from elmokit.model.char_cnn import TokenEncoder

_CHARACTER_FILTERS = ((2, 16), (3, 32), (4, 32))
_LONGEST_WORD = 30


def frequent_words(sentences: Iterable[Tokens], *, min_count: int, lowercase: bool) -> list[str]:
    """The distinct words of the training data, frequent ones first."""
    counts = Counter(word.lower() if lowercase else word for tokens in sentences for word in tokens)
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return [word for word, count in ranked if count >= min_count]


class WordInput(Input):
    """A vector for each word of the training data, and one for all others."""

    def __init__(self, words: Sequence[str], config: InputsConfig) -> None:
        super().__init__()
        width = config.words
        self.widths: dict[str, int] = {"input": width}
        self._rows = {word: row for row, word in enumerate(words, 1)}
        self._lowercase = config.lowercase
        self._dropout = config.word_dropout
        self.embedding: nn.Parameter = nn.Parameter(torch.empty(len(words) + 1, width))
        nn.init.normal_(self.embedding, std=width**-0.5)

    def vectors(self, batch: TokenBatch) -> dict[str, Tensor]:
        """Look up all tokens."""
        words = (word.lower() for word in batch.words) if self._lowercase else batch.words
        rows = torch.tensor([self._rows.get(word, 0) for word in words], dtype=torch.long)
        rows = batch.spread(to_device(rows, batch.device))  # (N,)
        if self.training and self._dropout:
            rows = rows * (torch.rand(rows.shape, device=rows.device) >= self._dropout)
        return {"input": F.embedding(rows, self.embedding)}  # (N, width)


class CharacterInput(Input):
    """A character CNN that is trained with the task; `seed` is of its starting weights."""

    def __init__(self, width: int, seed: int) -> None:
        super().__init__()
        self.widths: dict[str, int] = {"input": width}
        config = ModelConfig(
            characters=CharacterConfig(
                filters=_CHARACTER_FILTERS,
                max_characters=_LONGEST_WORD,
                highways=1,
                activation="tanh",  # its starting weights have the size that the task needs
            ),
            lstm=LstmConfig(layers=1, cells=width, width=width, projection=False),
        )
        self._inputs = InputBuilder(config, None, None)
        self.encoder: TokenEncoder = random_model(config, seed).encoder.requires_grad_(True)

    def vectors(self, batch: TokenBatch) -> dict[str, Tensor]:
        """Read each distinct word once."""
        if not batch.words:
            return {"input": torch.zeros(0, self.widths["input"], device=batch.device)}
        return {"input": batch.spread(self.encoder(self._inputs(batch.words)))}  # (N, width)


class StaticInput(Input):
    """Vectors from a file, which are not trained."""

    def __init__(self, vectors: WordVectors) -> None:
        super().__init__()
        self.table = vectors
        self.widths: dict[str, int] = {"input": vectors.dim}

    def vectors(self, batch: TokenBatch) -> dict[str, Tensor]:
        """Look up each distinct word once."""
        rows = to_device(self.table.lookup(batch.words), batch.device)
        return {"input": batch.spread(rows)}  # (N, dim)

    @property
    def pretrained_width(self) -> int:
        """The vectors' own."""
        return self.table.dim

    def pretrained(self, batch: TokenBatch) -> Tensor | None:
        """The vectors."""
        return self.vectors(batch)["input"]


class Widths(NamedTuple):
    """How wide the vectors of a token are."""

    input: int
    """Before the encoder."""
    output: int
    """What joins after the encoder; 0 if nothing does."""
    target: int = 0
    """Of the words that a task has written; 0 if ELMo does not read them."""
    pooled: int = 0
    """Of a text's pooled pretrained vectors; 0 without such vectors."""


def _no_pooled() -> Tensor:
    raise TypeError("these vectors were made by a head, so nothing of them is pretrained")


@dataclass(frozen=True)
class Side:
    """One text of every example of a batch."""

    vectors: Tensor
    """Input vectors, (B, T, D), zeros beyond a text's end; T is at least one."""
    output: Tensor | None
    """What joins the encoder's output, (B, T, E)."""
    lengths: Tensor
    """Tokens of each text, (B,), on the host."""
    mask: Tensor
    """True where a token is, (B, T)."""
    pooled: Callable[[], Tensor] = _no_pooled
    """Gives the mean of each text's pretrained vectors, (B, F)."""


class Embedder(nn.Module):
    """Texts to vectors by all inputs that a config asks for.

    `words` are those with learned vectors, `elmo` is a biLM, or another model with layers.
    """

    def __init__(
        self,
        config: TaskConfig,
        words: Sequence[str],
        elmo: LayerSource | None,
        static: WordVectors | None,
    ) -> None:
        super().__init__()
        settings = config.inputs
        parts: dict[str, Input] = {}
        if settings.learns_words(beside_elmo=elmo is not None):
            parts["words"] = WordInput(words, settings)
        if settings.characters:
            parts["characters"] = CharacterInput(settings.characters, config.run.seed)
        if static is not None:
            parts["static"] = StaticInput(static)
        if elmo is not None:
            parts["elmo"] = MixedLayers(elmo, settings, config.fine_tune)
        self.parts: nn.ModuleDict = nn.ModuleDict(parts)
        self.dropout: Dropout = Dropout(settings.dropout)
        at = {name: sum(p.widths.get(name, 0) for p in self.inputs) for name in POSITIONS}
        pooled = sum(part.pretrained_width for part in self.inputs)
        self.widths: Widths = Widths(at["input"], at["output"], at["target"], pooled)
        if not self.widths.input:
            raise ConfigError(
                "nothing enters the model: give ELMo at the input or static vectors, or set "
                "inputs.words or inputs.characters above 0"
            )
        # Follows the module, so that batches know where to go even if nothing is trained.
        self.register_buffer("_device_of", torch.zeros(0), persistent=False)

    @property
    def device(self) -> torch.device:
        """Where vectors are made."""
        return self._buffers["_device_of"].device  # type: ignore[union-attr]

    @property
    def layers(self) -> MixedLayers | None:
        """The input that mixes layers, if there is one."""
        return next((part for part in self.inputs if isinstance(part, MixedLayers)), None)

    @property
    def written(self) -> WrittenText | None:
        """What reads the words that a task writes, if ELMo enters there."""
        if self.layers is None or not self.widths.target:
            return None
        return WrittenText(self.layers, self.dropout, self.device)

    @property
    def inputs(self) -> list[Input]:
        """All parts, in the order of their vectors."""
        return [part for part in self.parts.values() if isinstance(part, Input)]

    def fine_tuned(self) -> list[nn.Parameter]:
        """The parameters of models with layers that are trained; none if they are frozen."""
        return [] if self.layers is None else [p for stage in self.layers.stages for p in stage]

    def mix_weights(self) -> list[nn.Parameter]:
        """The weights of all mixes of layers, before their softmax."""
        return [] if self.layers is None else self.layers.mix_weights()

    def prepare(self, sentences: Sequence[Tokens], store: Path) -> None:
        """Compute beforehand what can be, with layers kept in the folder `store`."""
        for part in self.inputs:
            part.prepare(sentences, store)

    def release(self) -> None:
        """Give up what `prepare` made."""
        for part in self.inputs:
            part.release()

    def begin(self, epoch: float) -> None:
        """Training has reached this epoch."""
        for part in self.inputs:
            part.begin(epoch)

    def penalty(self) -> Tensor:
        """What the inputs add to the loss."""
        found = [penalty for part in self.inputs if (penalty := part.penalty()) is not None]
        return torch.stack(found).sum() if found else torch.zeros((), device=self.device)

    def forward(self, texts: Sequence[Tokens]) -> Side:
        """Embed one text of each example."""
        batch = TokenBatch(texts, self.device)
        parts = [part.vectors(batch) for part in self.inputs]
        lengths = torch.tensor(batch.lengths, dtype=torch.long)
        mask = torch.arange(max(1, int(lengths.max())))[None, :] < lengths[:, None]  # (B, T)
        index = to_device(mask.view(-1).nonzero().squeeze(1), self.device)  # (N,)
        mask = to_device(mask, self.device)
        at_input = torch.cat([part["input"] for part in parts if "input" in part], dim=1)
        at_output = [part["output"] for part in parts if "output" in part]
        return Side(
            _padded(self.dropout(at_input), index, mask),
            _padded(self.dropout(torch.cat(at_output, dim=1)), index, mask) if at_output else None,
            lengths,
            mask,
            partial(self._pool, batch),
        )

    def pooled(self, texts: Sequence[Tokens]) -> Tensor:
        """The mean of each text's pretrained vectors, (B, F); zeros for a text without tokens."""
        return self._pool(TokenBatch(texts, self.device))

    def _pool(self, batch: TokenBatch) -> Tensor:
        found = [part.pretrained(batch) for part in self.inputs]
        flat = torch.cat([vectors for vectors in found if vectors is not None], dim=1)  # (N, F)
        lengths = torch.tensor(batch.lengths, device=flat.device)
        owners = torch.repeat_interleave(lengths)
        sums = flat.new_zeros(len(lengths), flat.shape[1]).index_add(0, owners, flat)
        return sums / lengths.clamp(min=1)[:, None]

    def learned_mixes(self) -> dict[str, dict[str, Any]]:
        """Shares s_j and gamma by position; empty without layers."""
        return self.layers.learned_mixes() if self.layers is not None else {}


def _padded(flat: Tensor, index: Tensor, mask: Tensor) -> Tensor:
    """Vectors one after another (N, D), and their indices (N,) among all, to (B, T, D)."""
    padded = flat.new_zeros(mask.numel(), flat.shape[1]).index_copy(0, index, flat)
    return padded.view(*mask.shape, flat.shape[1])
