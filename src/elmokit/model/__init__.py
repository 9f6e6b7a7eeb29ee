"""Ids → hidden states → layers.

bilm is the whole model, with the forward pass that encoding, fine-tuning, the language model and
pretraining share; char_cnn makes token vectors of words; packing orders a batch for the LSTM; lstm
runs the stacks of both directions by an engine of `elmokit.engines`; scalar_mix mixes layers;
softmax predicts words; init draws starting weights.

Letters for dimensions, here and everywhere:
**B** sentences, **T** tokens (steps), **N** tokens of a whole batch or distinct words,
**C** characters, **E** width of a character's vector, **F** filters, **P** one direction's
width, **H** LSTM cells, **L** LSTM layers, **V** words.

The one layout of weights in memory, which every file format is translated to and from
(`elmokit.model.bilm.tensor_shapes` lists it for a config):

| tensor | shape | notes |
|---|---|---|
| ``encoder.characters.embedding`` | (rows, E) | bytes: row 0 is the padding token, zeros |
| ``encoder.characters.filters.{i}.weight`` / ``.bias`` | (n, E, width), (n,) | in config order |
| ``encoder.characters.highways.{k}.weight`` / ``.bias`` | (2F, F), (2F,) | transform, then gate; \
the gate multiplies the transform |
| ``encoder.words.embedding`` | (V, Ew) | row = vocabulary line |
| ``encoder.projection.weight`` / ``.bias`` | (P, Ew + F), (P,) | word first, then characters |
| ``lstm.{forward,backward}_stack.{l}.input_weight`` | (4H, P) | gates: see below |
| ``lstm.{forward,backward}_stack.{l}.state_weight`` | (4H, P) | |
| ``lstm.{forward,backward}_stack.{l}.bias`` | (4H,) | without ``forget_bias``, added at run time |
| ``lstm.{forward,backward}_stack.{l}.projection`` | (P, H) | |
| ``softmax.weight`` / ``.bias`` | (V, P), (V,) | no weight when tied to the words |
| ``softmax.adaptive.*`` | | instead of these two in an adaptive softmax |
| ``mixes.{k}.weights`` / ``.gamma`` | (L + 1,), () | weights before the softmax |

The gates are in the order i, f, g, o: input gate, forget gate, candidate, output gate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from elmokit.lazy import lazy_names

if TYPE_CHECKING:
    from elmokit.model.bilm import BiLM as BiLM
    from elmokit.model.scalar_mix import ScalarMix as ScalarMix
else:
    __getattr__, __dir__, __all__ = lazy_names(
        __name__,
        {
            "bilm": "BiLM",
            "scalar_mix": "ScalarMix",
        },
    )
