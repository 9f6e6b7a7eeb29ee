"""The signatures and the output dictionary of TensorFlow Hub's ELMo modules.

Both ways of calling them are here: ``Module(path)(texts, signature="default", as_dict=True)`` of
TensorFlow 1, and ``load(path).signatures["default"](texts)`` of TensorFlow 2. Arrays are numpy's.
Every sentence starts from a zero initial state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elmokit.encode import loading
from elmokit.errors import ConfigError, DataError

Outputs = dict[str, NDArray[np.float32]]


class Module:
    """An ELMo module.

    Args:
        source: The module's folder; any model that `elmokit.load` reads will do.
    """

    def __init__(self, source: str | Path) -> None:
        self.elmo = loading.load(source, softmax=False)

    @property
    def signatures(self) -> Mapping[str, Callable[..., Outputs]]:
        """``default`` takes texts, ``tokens`` takes tokens and their numbers."""
        return {"default": self._default, "tokens": self._tokens}

    def __call__(
        self, inputs: Any, signature: str = "default", as_dict: bool = False
    ) -> Outputs | NDArray[np.float32]:
        """Run the module.

        Args:
            inputs: Texts; or, for the signature ``tokens``, a dictionary of ``tokens`` (B, T),
                padded with empty strings, and ``sequence_len`` (B,).
            signature: ``default`` or ``tokens``.
            as_dict: Give all outputs, not the one called ``default``.

        Returns:
            ``word_emb`` (B, T, P), ``lstm_outputs1`` and ``lstm_outputs2`` (B, T, D), ``elmo``
            (B, T, D), their stored mix or else their average, and ``default`` (B, D), the average
            of ``elmo`` over the tokens. Zeros behind a sentence's end.
        """
        if signature not in self.signatures:
            raise ConfigError(f"signature={signature!r}: use 'default' or 'tokens'")
        run = self.signatures[signature]
        outputs = run(**inputs) if isinstance(inputs, Mapping) else run(inputs)
        return outputs if as_dict else outputs["default"]

    def _default(self, text: Sequence[str]) -> Outputs:
        if isinstance(text, str):
            raise DataError("give a list of texts; for one text, a list of one")
        return self._outputs([[word for word in one.split(" ") if word] for one in text])

    def _tokens(self, tokens: Sequence[Sequence[str]], sequence_len: Sequence[int]) -> Outputs:
        if len(tokens) != len(sequence_len):
            raise DataError(f"{len(tokens)} rows of tokens, but {len(sequence_len)} lengths")
        return self._outputs(
            [list(row)[:size] for row, size in zip(tokens, sequence_len, strict=True)]
        )

    def _outputs(self, batch: list[list[str]]) -> Outputs:
        layers = self.elmo.encode(batch, layers="all")
        mixed = self.elmo.encode(batch, layers="mix" if self.elmo.mixes else "mean")
        padded = _pad([part.transpose(1, 0, 2) for part in layers])  # (B, T, L + 1, D)
        outputs: Outputs = {"word_emb": padded[:, :, 0, : self.elmo.config.lstm.width]}
        for number in range(1, self.elmo.layers):
            outputs[f"lstm_outputs{number}"] = padded[:, :, number]
        outputs["elmo"] = _pad(mixed)
        outputs["default"] = np.stack(
            [part.mean(axis=0) if len(part) else np.zeros(self.elmo.dim, "f4") for part in mixed]
        )
        return outputs


def load(source: str | Path) -> Module:
    """As ``hub.load``: a module with `Module.signatures`."""
    return Module(source)


def _pad(parts: Sequence[NDArray[np.float32]]) -> NDArray[np.float32]:
    """Sentences of unequal length in one array, zeros behind them."""
    whole = np.zeros((len(parts), max(map(len, parts), default=0), *parts[0].shape[1:]), "f4")
    for row, part in zip(whole, parts, strict=True):
        row[: len(part)] = part
    return whole
