"""Rounding of a trained model to int4 by what it computes on text, without training (GPTQ)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from elmokit.checkpoints.quantized import SOFTMAX_MATRIX, round_int4_for_inputs, takes_int4
from elmokit.errors import DataError
from elmokit.lm.language_model import LanguageModel

if TYPE_CHECKING:
    from elmokit.encode.elmo import Elmo, Sentence

TOKENS = 50_000
"""So much text is read, more is left alone: twice as much changes the result by little."""
BATCH = 64
LSTM = "lstm."


def calibrate_int4(elmo: Elmo, texts: Iterable[Sentence]) -> int:
    """Round the larger matrices of a model to int4 in place; ``storage="int4"`` then keeps them.

    From the characters upwards, so that each matrix is rounded for the inputs that the rounded
    ones below give it. What a model has more than a plain biLM (a tied or adaptive softmax, a word
    table) is left for storage to round.

    Args:
        elmo: The model, on any device.
        texts: Text like that which the model is for; its first 50,000 tokens are read.

    Returns:
        The number of tokens that were read.

    Raises:
        DataError: There is no text.
    """
    batches = list(_batches(elmo, texts))
    if not batches:
        raise DataError("there is no sentence to calibrate with: give text of some thousand words")
    matrices = {
        name: parameter.detach()
        for name, parameter in elmo.bilm.named_parameters()
        if takes_int4(parameter)
    }
    layers = range(elmo.config.lstm.layers)
    stages: list[Callable[[str], bool]] = [
        lambda name: "highways" in name,
        lambda name: not name.startswith((LSTM, SOFTMAX_MATRIX)) and "highways" not in name,
        *(
            lambda name, part=f"_stack.{number}.": name.startswith(LSTM) and part in name
            for number in layers
        ),
        lambda name: name == SOFTMAX_MATRIX,
    ]
    for belongs in stages:
        stage = {name: matrix for name, matrix in matrices.items() if belongs(name)}
        if stage:
            for name, moments in _input_moments(elmo, batches, stage).items():
                stage[name].copy_(round_int4_for_inputs(stage[name], moments))
            elmo.bilm.forget_prepared()
            elmo.forget()
    return sum(len(tokens) for batch in batches for tokens in batch)


def _batches(elmo: Elmo, texts: Iterable[Sentence]) -> Iterator[list[tuple[str, ...]]]:
    sentences = (tokens for tokens in elmo.all_tokens(texts) if tokens)
    read = 0
    while read < TOKENS and (batch := list(islice(sentences, BATCH))):
        read += sum(map(len, batch))
        yield batch


def _input_moments(
    elmo: Elmo, batches: Sequence[Sequence[Sequence[str]]], matrices: dict[str, Tensor]
) -> dict[str, Tensor]:
    """The sum of x xᵀ over the inputs x of each matrix that takes part, in float64."""
    moments: dict[str, Tensor] = {}
    above = any(name.startswith((LSTM, SOFTMAX_MATRIX)) for name in matrices)
    # The reference engine runs where gradients may be taken.
    with torch.inference_mode(False), torch.enable_grad(), _Inputs(matrices, moments):
        for batch in batches:
            if not above:
                elmo.embed_tokens(batch, use_cache=False)
                continue
            outputs, _ = LanguageModel(elmo).read(batch)
            if SOFTMAX_MATRIX in matrices:
                for rows in outputs.values():
                    _add(moments, SOFTMAX_MATRIX, rows)
    return moments


class _Inputs(TorchFunctionMode):
    """Sees the inputs of all matmuls; they run in the reference engine, where weights are plain."""

    def __init__(self, matrices: dict[str, Tensor], moments: dict[str, Tensor]) -> None:
        super().__init__()
        self._names = {matrix.data_ptr(): name for name, matrix in matrices.items()}
        self._moments = moments

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if func is F.linear and (name := self._names.get(args[1].data_ptr())) is not None:
            _add(self._moments, name, args[0])
        return func(*args, **(kwargs or {}))


def _add(moments: dict[str, Tensor], name: str, inputs: Tensor) -> None:
    rows = inputs.detach().reshape(-1, inputs.shape[-1]).double()
    found = rows.T @ rows
    moments[name] = moments[name] + found if name in moments else found
