"""One batch of sentences through the whole machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from elmokit.encode.embedder import TokenEmbedder
from elmokit.encode.layers import LayerChoice
from elmokit.encode.pooling import Pool, pool_tokens
from elmokit.encode.states import InitialStates, State
from elmokit.engines.device import no_gradients
from elmokit.model.bilm import BiLM, split_threads
from elmokit.model.lstm import LayerOutput, LayerState
from elmokit.model.packing import inside


@dataclass(frozen=True)
class BatchRun:
    """Gives the vectors of batches, as `Elmo.encode` was asked for them.

    Attributes:
        bilm: The model.
        first: Its first stage.
        starts: Where sentences start.
        choice: The layers.
        pool: How a sentence's vectors become one; None leaves them.
        state: Where sentences start.
        output: Arrays of numpy, or tensors of torch on the model's device.
    """

    bilm: BiLM
    first: TokenEmbedder
    starts: InitialStates
    choice: LayerChoice
    pool: Pool | None
    state: State
    output: Literal["numpy", "torch"]

    def __call__(self, batch: Sequence[Sequence[str]]) -> list[Any]:
        """The vectors of each sentence. On a GPU they may be on their way: see `finish`."""
        # One sentence alone, or a few, are cut between the cores in another way.
        few = len(batch) == 1 or self.bilm.lstm.few_rows_pay(len(batch))
        lanes = self.bilm.device.type == "cpu" and not few
        # The markers' own vectors are nobody's, but a sentence without words has nothing else.
        markers = self.state == "carry" or not all(batch)
        with no_gradients(), split_threads() if lanes else nullcontext():
            starts = self.starts.before_bos if markers else self.starts.after_bos
            tokens, packing, lengths = self.first(batch, use_cache=True, markers=markers)
            outputs = self.bilm.layers(tokens, packing, starts(self.state, len(batch)))
            inner = inside(lengths, tokens.device) if markers else None
            del tokens  # from here on the layers alone hold what they need
            ends: list[LayerState] = []
            sizes = [len(words) for words in batch]
            combined = self.choice.combine(self._halves(outputs, inner, ends), sizes)
            if self.state == "carry":
                self.starts.carried.store(ends[1:])
            return self._handed_out(combined, sizes)  # of (N, D) or (L + 1, N, D)

    def finish(self) -> None:
        """Wait until the vectors of all batches so far have come."""
        if self.output == "numpy" and self.bilm.device.type == "cuda":
            torch.cuda.current_stream(self.bilm.device).synchronize()

    def _halves(
        self, outputs: Iterator[LayerOutput], inner: Tensor | None, ends: list[LayerState]
    ) -> Iterator[tuple[Tensor, ...]]:
        """The layers that are needed, without the markers; their states are put into `ends`."""
        for _ in range(self.choice.count if self.state == "carry" else self.choice.needed):
            layer = next(outputs)
            ends.append(layer.state)
            yield (
                layer.halves
                if inner is None
                else tuple(half.index_select(0, inner) for half in layer.halves)
            )
            del layer

    def _handed_out(self, combined: Tensor, sizes: list[int]) -> list[Any]:
        """Each sentence's part of the batch."""
        as_numpy = self.output == "numpy"
        if as_numpy and combined.is_cuda and self.pool is None:
            # One copy, to memory that the GPU reaches, instead of one for each sentence; it goes
            # on while the next batch is made ready.
            there = torch.empty_like(combined, device="cpu", pin_memory=True)
            combined = there.copy_(combined, non_blocking=True)
        results: Sequence[Tensor] = combined.split(sizes, dim=-2)
        if self.pool is not None:
            results = [pool_tokens(part, self.pool) for part in results]
        elif len(results) > 1 and self.bilm.device.type == "cpu":
            # A view would keep the whole batch alive; on a GPU that is cheaper than copies.
            results = [part.clone() for part in results]
        return [part.cpu().numpy() for part in results] if as_numpy else list(results)
