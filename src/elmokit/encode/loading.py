"""`load`: an `Elmo` from any source."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from elmokit.checkpoints import bilm_hdf5
from elmokit.checkpoints.sources import Extras, read_source
from elmokit.encode.elmo import Elmo
from elmokit.engines import Precision
from elmokit.limits import ReadLimits, limited
from elmokit.text.vocab import read_vocabulary


def load(
    source: str | Path | None = None,
    *,
    tokenizer: str | None = None,
    options: str | Path | None = None,
    vocabulary: str | Path | None = None,
    softmax: str | Path | bool = True,
    token_vectors: str | Path | None = None,
    device: str | torch.device = "cpu",
    cache_words: int | None = None,
    precision: Precision = "float32",
    limits: ReadLimits | None = None,
) -> Elmo:
    """Load any published ELMo.

    Args:
        source: Name of an embedded model, a folder, a weights file, a zip or tar archive, the
            prefix of a TensorFlow checkpoint, or ``hf:owner/name``; the embedded default model
            when left out. The format is detected from its contents.
        tokenizer: The tokeniser for text given as a string, instead of the model's.
        options: Where ``options.json`` is, when it is not beside the weights.
        vocabulary: Where the word list is, when it is not beside the weights.
        softmax: An HDF5 file with the softmax, which joins the model; False leaves out the
            softmax that the source holds.
        token_vectors: An HDF5 file with token vectors for the words of the vocabulary, used
            instead of the character CNN for these words.
        device: Where to run.
        cache_words: The most words whose token vectors are cached between calls; 32,768 by default,
            on a GPU 131,072.
        precision: The type of the matmuls on a CPU: ``"float32"``, or, less exact
            and faster where the CPU runs them, ``"bfloat16"`` or ``"int8"``.
        limits: How much memory the files may claim; the defaults fit every published model.

    Raises:
        CheckpointError: The source cannot be read; the message names the file and the field.
        ConfigError: The device or the precision cannot be used here.
    """
    with limited(limits):
        extras = Extras(_path(options), _path(vocabulary))
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
    return None if value is None else Path(value)
