"""All inputs side by side: texts of a batch to padded vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from elmokit.engines import to_device
from elmokit.errors import ConfigError
from elmokit.tasks.config import PLACES, TaskConfig
from elmokit.tasks.examples import Tokens
from elmokit.tasks.inputs.mixed import Input, MixedLayers, TokenBatch, WrittenText
from elmokit.tasks.inputs.source import LayerSource
from elmokit.tasks.inputs.words import CharacterInput, StaticInput, WordInput
from elmokit.word_vectors.table import WordVectors


class Widths(NamedTuple):
    """How wide the vectors of a token are."""

    input: int
    """Before the encoder."""
    output: int
    """What joins after the encoder; 0 if nothing does."""
    target: int = 0
    """Of the words that a task has written; 0 if ELMo does not read them."""


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


class Embedder(nn.Module):
    """Texts to vectors by all inputs that a config asks for.

    Args:
        config: The task's settings.
        words: The words with learned vectors.
        elmo: A biLM, or another model with layers.
        static: Static word vectors.
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
        if settings.words:
            parts["words"] = WordInput(
                words,
                settings.words,
                lowercase=settings.lowercase,
                dropout=settings.word_dropout,
            )
        if settings.characters:
            parts["characters"] = CharacterInput(settings.characters, config.run.seed)
        if static is not None:
            parts["static"] = StaticInput(static)
        if elmo is not None:
            parts["elmo"] = MixedLayers(elmo, settings, config.fine_tune)
        self.parts = nn.ModuleDict(parts)
        self.dropout = nn.Dropout(settings.dropout)
        self.widths = Widths(*(self._width(place) for place in PLACES))
        if not self.widths.input:
            raise ConfigError(
                "nothing enters the model: give ELMo at the input or static vectors, or set "
                "inputs.words or inputs.characters above 0"
            )
        # Follows the module, so that batches know where to go even if nothing learns.
        self.register_buffer("_place", torch.zeros(0), persistent=False)

    @property
    def device(self) -> torch.device:
        """Where vectors are made."""
        return self._buffers["_place"].device  # type: ignore[union-attr]

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

    def prepare(self, sentences: Sequence[Tokens], store: Path | None) -> None:
        """Compute beforehand what can be, with layers kept in the folder `store`."""
        if store is not None and self.layers is not None:
            self.layers.use_store(store)
        for part in self.inputs:
            part.prepare(sentences)

    def release(self) -> None:
        """Give up what `prepare` made."""
        for part in self.inputs:
            part.release()

    def begin(self, epoch: float) -> None:
        """Training stands at this epoch."""
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
        longest = max(1, int(lengths.max()))
        steps = torch.arange(longest)
        mask = steps[None, :] < lengths[:, None]  # (B, T)
        places = to_device(mask.view(-1).nonzero().squeeze(1), self.device)  # (N,)
        mask = to_device(mask, self.device)
        at_input = torch.cat([part["input"] for part in parts if "input" in part], dim=1)
        at_output = [part["output"] for part in parts if "output" in part]
        return Side(
            _padded(self.dropout(at_input), places, mask),
            _padded(self.dropout(torch.cat(at_output, dim=1)), places, mask) if at_output else None,
            lengths,
            mask,
        )

    def learned_mixes(self) -> dict[str, dict[str, Any]]:
        """Shares s_j and gamma by place; empty without layers."""
        return self.layers.learned_mixes() if self.layers is not None else {}

    def _width(self, place: str) -> int:
        return sum(part.widths.get(place, 0) for part in self.inputs)


def _padded(flat: Tensor, places: Tensor, mask: Tensor) -> Tensor:
    """Vectors one after another (N, D), and their places (N,) among all, to (B, T, D)."""
    padded = flat.new_zeros(mask.numel(), flat.shape[1]).index_copy(0, places, flat)
    return padded.view(*mask.shape, flat.shape[1])
