"""`load`: an `Elmo` from any source; `check_models`: does it compute the right numbers here?"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from elmokit.checkpoints import bilm_hdf5, known_models
from elmokit.checkpoints.download import download_file
from elmokit.checkpoints.sources import Extras, read_source
from elmokit.checkpoints.transfer import is_address
from elmokit.encode.elmo import Elmo
from elmokit.engines import Device, Precision
from elmokit.errors import CheckpointError
from elmokit.files import read_json
from elmokit.limits import ReadLimits, limited
from elmokit.text.vocab import read_vocabulary

CHECK_TOLERANCE = 1e-4
"""Float32 on any machine stays below a hundredth of it; a wrong id or operator is far above."""


class LoadOptions(TypedDict, total=False):
    """Options of `load`."""

    tokenizer: str | None
    options: str | Path | None
    vocabulary: str | Path | None
    softmax: str | Path | bool
    token_vectors: str | Path | None
    device: Device
    cache_words: int | None
    precision: Precision
    limits: ReadLimits | None


def load(
    source: str | Path | None = None,
    *,
    tokenizer: str | None = None,
    options: str | Path | None = None,
    vocabulary: str | Path | None = None,
    softmax: str | Path | bool = True,
    token_vectors: str | Path | None = None,
    device: Device = None,
    cache_words: int | None = None,
    precision: Precision = "float32",
    limits: ReadLimits | None = None,
) -> Elmo:
    """Load any published ELMo.

    Args:
        source: Name of an embedded or published model (``elmokit models``), a folder, a weights
            file, a zip or tar archive, the prefix of a TensorFlow checkpoint, an https address, or
            ``hf:owner/name``; the embedded default model when left out. The format is detected
            from its contents. What comes from the web is downloaded once.
        tokenizer: The tokeniser for text given as a string, instead of the model's.
        options: Where ``options.json`` is, when it is not beside the weights; a path or address.
        vocabulary: Where the word list is, when it is not beside the weights; as `options`.
        softmax: An HDF5 file with the softmax, which joins the model; False leaves out the
            softmax that the source holds.
        token_vectors: An HDF5 file with token vectors for the words of the vocabulary, used
            instead of the character CNN for these words.
        device: Where to run, such as ``"cpu"``, ``"cuda:1"`` or ``"mps"``; left out, a GPU of CUDA
            if there is one, else the CPU.
        cache_words: The most words whose token vectors are cached between calls; 32,768 by default,
            on a GPU 131,072.
        precision: The type of the matmuls: ``"float32"``, or, less exact and faster,
            ``"bfloat16"``, on a CPU ``"int8"``, on a Hopper GPU ``"float8"``.
        limits: How much memory the files may claim; the defaults fit every published model.

    Raises:
        CheckpointError: The source cannot be read; the message names the file and the field.
        ConfigError: The device or the precision cannot be used here, or there is no such
            tokeniser.
    """
    with limited(limits):
        extras = Extras(_path(options), _path(vocabulary), softmax is not False)
        checkpoint = read_source(source, extras)
        if softmax is False:
            checkpoint = checkpoint.without_softmax()
        elif softmax is not True:
            checkpoint = bilm_hdf5.join_softmax(checkpoint, Path(softmax))
        if extras.vocabulary is not None and checkpoint.config.words is None:
            words = read_vocabulary(extras.vocabulary, checkpoint.config.text)
            checkpoint = replace(checkpoint, vocabulary=words)
        elmo = Elmo(
            checkpoint,
            tokenizer=tokenizer,
            device=device,
            cache_words=cache_words,
            precision=precision,
        )
        if token_vectors is not None:
            elmo.use_token_vectors(Path(token_vectors))
        return elmo


def _path(value: str | Path | None) -> Path | None:
    if isinstance(value, str) and is_address(value):
        return download_file(value)
    return None if value is None else Path(value)


@dataclass(frozen=True)
class ModelCheck:
    """How far an embedded model is from its stored numbers on this machine."""

    model: str
    deviations: tuple[float, ...]
    """Of each layer, as a share of its norm."""

    @property
    def wrong_layers(self) -> list[int]:
        """Layers that deviate by more than `CHECK_TOLERANCE`, or are NaN."""
        return [i for i, share in enumerate(self.deviations) if not share <= CHECK_TOLERANCE]


def check_models(*models: str) -> list[ModelCheck]:
    """Encode one sentence with embedded models and compare its layers with stored numbers.

    The sentence is encoded alone and in a batch, so that both ways of running a model are checked.
    The numbers were computed in float64 by the reference engine.

    Args:
        models: Names of embedded models; all when left out.

    Raises:
        CheckpointError: A model is not an embedded one.
    """
    stored = read_json(known_models.EMBEDDED / "check.json")
    if unknown := [name for name in models if name not in stored]:
        raise CheckpointError(
            f"{unknown[0]}: has no stored numbers; those that have are {', '.join(stored)}"
        )
    return [_check(name, **stored[name]) for name in models or stored]


def _check(model: str, text: str, layers: list[list[float]]) -> ModelCheck:
    elmo, tokens, expected = load(model), text.split(), np.array(layers)
    sentences = [tokens[:n] for n in range(len(tokens), 0, -1)]
    found = (elmo.encode(some, layers="all")[0] for some in (sentences[:1], sentences))
    apart = np.maximum(*(np.abs(layer_sums(vectors) - expected).max(axis=1) for vectors in found))
    return ModelCheck(model, tuple((apart / expected[:, 1]).tolist()))


def layer_sums(vectors: NDArray[Any]) -> NDArray[np.float64]:
    """Sum, norm, and sum weighted by position, of each layer of (L + 1, T, 2P): (L + 1, 3)."""
    flat = vectors.reshape(len(vectors), -1).astype(np.float64)
    waves = np.cos(np.arange(flat.shape[1]))  # tells an order from another
    return np.stack([flat.sum(axis=1), np.linalg.norm(flat, axis=1), flat @ waves], axis=1)
