"""flair's character language models as a source of layers: one, that sees both sides of a word.

A word is the forward model's hidden state at the space behind it, and the backward model's at the
space before it, concatenated, as flair does it (Akbik et al. 2018), or the states at its last and
its first character, if the file says so. The text is the tokens with one space between them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from elmokit.checkpoints.flair_file import CharacterLM, read_flair, write_flair
from elmokit.errors import ConfigError
from elmokit.tasks.inputs.source import LayerModel, on_disk
from elmokit.text.batching import cut_batches, run_in_batches

BATCH_CHARACTERS = 8192
"""The most characters that run together."""
_CHUNK = 512
"""Time steps after which only the states of words are kept."""


class _Reader(nn.Module):
    """One direction, ready to run."""

    def __init__(self, model: CharacterLM) -> None:
        super().__init__()
        self.model = model
        cells = model.weights["rnn.weight_hh_l0"].shape[1]
        width = model.weights["encoder.weight"].shape[1]
        self.rnn = nn.LSTM(width, cells, model.layers)
        self.rnn.load_state_dict(
            {n.removeprefix("rnn."): t for n, t in model.weights.items() if n.startswith("rnn.")}
        )
        self.characters = nn.Embedding.from_pretrained(model.weights["encoder.weight"])
        self.projection: nn.Linear | None = None
        if "proj.weight" in model.weights:
            out, cells = model.weights["proj.weight"].shape
            self.projection = nn.Linear(cells, out)
            self.projection.load_state_dict(
                {name: model.weights[f"proj.{name}"] for name in ("weight", "bias")}
            )
        self.requires_grad_(False)

    @property
    def dim(self) -> int:
        return self.rnn.hidden_size if self.projection is None else self.projection.out_features

    @property
    def device(self) -> torch.device:
        weight: Tensor = self.characters.weight
        return weight.device

    def forward(self, batch: Sequence[Sequence[str]]) -> Tensor:
        """The states of all words, (N, D), of sentences that have some."""
        start = self.model.delimiter
        texts = [" ".join(words) for words in batch]
        # What is read, from left to right: behind each word, in this direction, is a space.
        if not self.model.forward:
            texts = [text[::-1] for text in texts]
        rows = self.model.characters
        ids = [[rows.get(letter, 0) for letter in f"{start}{text} "] for text in texts]
        longest = max(map(len, ids))
        padded = torch.zeros(longest, len(ids), dtype=torch.long)  # (S, B)
        ends: list[Tensor] = []
        for column, (words, letters) in enumerate(zip(batch, ids, strict=True)):
            padded[: len(letters), column] = torch.tensor(letters)
            order = words if self.model.forward else words[::-1]
            behind = len(start) - (1 if self.model.at_space else 2)
            found = list(accumulate((len(word) + 1 for word in order), initial=behind))[1:]
            ends.append(torch.tensor(found if self.model.forward else found[::-1]))
        steps = torch.cat(ends)  # (N,)
        owners = torch.repeat_interleave(torch.tensor([len(words) for words in batch]))
        kept = torch.zeros(len(steps), self.rnn.hidden_size, device=self.device)  # (N, H)
        state = None
        for first in range(0, longest, _CHUNK):
            piece = padded[first : first + _CHUNK].to(self.device)
            output, state = self.rnn(self.characters(piece), state)  # (S', B, H)
            inside = ((steps >= first) & (steps < first + _CHUNK)).nonzero().squeeze(1)
            where = inside.to(kept.device)
            kept[where] = output[
                (steps[inside] - first).to(kept.device), owners[inside].to(kept.device)
            ]
        return kept if self.projection is None else self.projection(kept)


class FlairLayers(LayerModel):
    """The language models of one of flair's files, concatenated in its order.

    Args:
        source: A language model (``best-lm.pt``), or a tagger that reads FlairEmbeddings.
    """

    kind = "flair"
    tokenizer = "words"
    layers = 1

    def __init__(self, source: str | Path) -> None:
        self.name: str = str(Path(source).resolve())
        self._models = read_flair(Path(source))
        self._readers = [_Reader(model).eval() for model in self._models]
        self.dim: int = sum(reader.dim for reader in self._readers)
        digest = hashlib.sha256()
        for model in self._models:
            facts = [model.forward, model.at_space, model.delimiter]
            digest.update(json.dumps([facts, sorted(model.characters.items())]).encode())
            for name, tensor in sorted(model.weights.items()):
                digest.update(name.encode())
                digest.update(tensor.numpy().tobytes())
        self._fingerprint = digest.hexdigest()

    @property
    def fingerprint(self) -> str:
        """A hash of the weights, the characters and the directions."""
        return self._fingerprint

    @property
    def is_stored(self) -> bool:
        """Whether its file is there."""
        return on_disk(self.name)

    def copied(self) -> FlairLayers:
        """Itself: nothing of it is trained."""
        return self

    def stream(self, sentences: Iterable[Sequence[str]]) -> Iterator[NDArray[np.float32]]:
        """The vectors of each sentence, (1, T, D)."""

        def run(batch: list[Sequence[str]]) -> list[NDArray[np.float32]]:
            (flat,) = self.flat([tuple(words) for words in batch], learn=False)  # (N, D)
            return [part.cpu().numpy()[None] for part in flat.split([len(t) for t in batch])]

        return run_in_batches(sentences, _length, run, BATCH_CHARACTERS)

    def flat(self, batch: Sequence[Sequence[str]], *, learn: bool) -> list[Tensor]:
        """The vectors of a batch's tokens, one tensor (N, D)."""
        filled = [words for words in batch if words]
        device = self._readers[0].device
        if not filled:
            return [torch.zeros(0, self.dim, device=device)]
        starts = list(accumulate((len(words) for words in filled), initial=0))
        result = torch.zeros(starts[-1], self.dim, device=device)
        with torch.no_grad():
            for chosen in cut_batches([_length(words) for words in filled], BATCH_CHARACTERS):
                together = [filled[number] for number in chosen]
                vectors = torch.cat([reader(together) for reader in self._readers], dim=1)
                rows = [row for n in chosen for row in range(starts[n], starts[n + 1])]
                result[torch.tensor(rows, device=device)] = vectors
        return [result]

    def to(self, device: torch.device) -> None:
        """Move the models."""
        for reader in self._readers:
            reader.to(device)

    def fine_tune(self) -> tuple[nn.Module, list[list[nn.Parameter]]]:
        """Refuse: flair's models are read, not trained."""
        raise ConfigError(f"{self.name}: models of flair are not fine-tuned; fine_tune.on = false")

    def save(self, path: Path) -> str:
        """Write the models, without what else was in their file, as ``flair.safetensors``."""
        write_flair(self._models, path)
        return self.fingerprint


def _length(words: Sequence[str]) -> int:
    return sum(len(word) + 1 for word in words) + 1
