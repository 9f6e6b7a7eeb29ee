"""AllenNLP's interfaces: `ElmoEmbedder` (up to 0.9), `Elmo` and `batch_to_ids`.

As in AllenNLP, each row of a batch continues with the state of the same row of the batch before.
`reset_states` goes back to a zero initial state.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from elmokit.config import CharacterConfig, ModelConfig, TextConfig
from elmokit.encode.embedder import CarriedState
from elmokit.encode.loading import load
from elmokit.engines import LstmState, no_gradients
from elmokit.errors import ConfigError, DataError
from elmokit.files import atomic_file, create_hdf5
from elmokit.model.packing import Packing, inside
from elmokit.model.scalar_mix import ScalarMix
from elmokit.text.inputs import ByteAlphabet, WordInputs

if TYPE_CHECKING:
    from elmokit.encode.elmo import Elmo as Encoder
    from elmokit.model.bilm import BiLM

CHARACTERS = 50
"""Character ids per word, whatever the model: AllenNLP's constant."""
BATCH_SIZE = 64

_REDUCE: dict[str, Callable[[NDArray[np.float32]], NDArray[np.float32]]] = {
    "all": lambda layers: layers,
    "top": lambda layers: layers[-1],
    "average": lambda layers: np.average(layers, axis=0),
}
_ALPHABET = ByteAlphabet(CharacterConfig(max_characters=CHARACTERS), TextConfig())


def batch_to_ids(batch: Sequence[Sequence[str]]) -> Tensor:
    """Character ids of tokenised sentences: (B, T, 50), zeros after a sentence's end."""
    # (T, 50) each
    rows = [torch.from_numpy(_ALPHABET.ids(list(tokens), trim=False)) for tokens in batch]
    return pad_sequence(rows, batch_first=True)


class ElmoOutput(TypedDict):
    """What `Elmo` gives."""

    elmo_representations: list[Tensor]
    """Each (B, T, D), zeros after a sentence's end."""
    mask: Tensor
    """(B, T), true where a token is."""


class Elmo(nn.Module):
    """The module ``allennlp.modules.elmo.Elmo``: character ids in, mixed layers out.

    Args:
        options_file: ``options.json``.
        weight_file: The HDF5 weights.
        num_output_representations: How many mixes to train.
        requires_grad: Train the biLM as well.
        do_layer_norm: Normalise each layer over the batch, sentence markers included.
        dropout: Share of the outputs set to zero in training.
        keep_sentence_boundaries: Leave the vectors of the sentence markers in the output.
        scalar_mix_parameters: Weights of the layers before their softmax, fixed.
    """

    def __init__(
        self,
        options_file: str | Path,
        weight_file: str | Path,
        num_output_representations: int,
        requires_grad: bool = False,
        do_layer_norm: bool = False,
        dropout: float = 0.5,
        keep_sentence_boundaries: bool = False,
        scalar_mix_parameters: Sequence[float] | None = None,
    ) -> None:
        super().__init__()
        elmo = load(weight_file, options=options_file, softmax=False, device="cpu")
        characters = elmo.config.characters
        if characters is None or characters.alphabet != "bytes" or elmo.config.words is not None:
            raise ConfigError(f"{weight_file}: this interface is for models that read bytes")
        self.config: ModelConfig = elmo.config
        self.bilm: BiLM = elmo.bilm.requires_grad_(requires_grad)
        self.keep_sentence_boundaries = keep_sentence_boundaries
        self.scalar_mixes: nn.ModuleList = nn.ModuleList(
            ScalarMix(
                elmo.layers,
                layer_norm=do_layer_norm,
                weights=scalar_mix_parameters,
                trainable=scalar_mix_parameters is None,
            )
            for _ in range(num_output_representations)
        )
        self.dropout: nn.Dropout = nn.Dropout(dropout)
        self._requires_grad = requires_grad
        self._carried = CarriedState(self.bilm)

    def get_output_dim(self) -> int:
        """Width of a vector, 2P."""
        return self.config.dim

    def reset_states(self) -> None:
        """Start the next batch from a zero initial state."""
        self._carried = CarriedState(self.bilm)

    def forward(self, inputs: Tensor) -> ElmoOutput:
        """Mix the layers of a batch.

        Args:
            inputs: Character ids, (B, T, 50) as `batch_to_ids` gives them; further dimensions may
                come before T.
        """
        ids = inputs.reshape(-1, *inputs.shape[-2:])  # (B, T, C)
        sizes: list[int] = (ids > 0).any(dim=-1).sum(dim=1).tolist()
        rows = self._with_markers(ids, sizes)  # (N, C)
        with nullcontext() if self._requires_grad else no_gradients():
            distinct, indices = torch.unique(rows, dim=0, return_inverse=True)
            tokens = self.bilm.encoder(WordInputs(distinct, None)).index_select(0, indices)
            packing = Packing([size + 2 for size in sizes], tokens.device)
            outputs = list(self.bilm(tokens, packing, self._carried.start(len(ids))))
            # The next batch continues with these states, without their gradients.
            ends = [LstmState(*(part.detach() for part in out.state)) for out in outputs[1:]]
            self._carried.store(ends)
            layers = [output.vectors for output in outputs]  # each (N, D)
        markers = 2 if self.keep_sentence_boundaries else 0
        inner = None if markers else inside([size + 2 for size in sizes], ids.device)
        lengths = torch.tensor(sizes, device=ids.device) + markers
        mask = torch.arange(ids.shape[1] + markers, device=ids.device) < lengths[:, None]  # (B, T)
        representations = []
        for mix in self.scalar_mixes:
            mixed = mix(layers)  # (N, D)
            flat = self.dropout(mixed if inner is None else mixed.index_select(0, inner))
            padded = flat.new_zeros(*mask.shape, flat.shape[1])  # (B, T, D)
            padded[mask] = flat
            representations.append(padded.reshape(*inputs.shape[:-2], *padded.shape[1:]))
        return {
            "elmo_representations": representations,
            "mask": mask.reshape(*inputs.shape[:-2], mask.shape[1]),
        }

    def _with_markers(self, ids: Tensor, sizes: list[int]) -> Tensor:
        """Every word's ids with the sentence markers around each sentence, flat: (N, C)."""
        names = [self.config.text.begin, self.config.text.end]
        markers = torch.from_numpy(_ALPHABET.ids(names, trim=False)).to(ids.device)  # (2, C)
        begin, end = markers[:, : ids.shape[2]].split(1)
        parts = [
            part
            for sentence, size in zip(ids, sizes, strict=True)
            for part in (begin, sentence[:size], end)
        ]
        return torch.cat(parts)

    def _apply(self, fn: Any, recurse: bool = True) -> Elmo:
        """Carried states cannot follow to another device."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.reset_states()
        return self


class ElmoEmbedder:
    """The class ``allennlp.commands.elmo.ElmoEmbedder`` of AllenNLP up to 0.9.

    Args:
        options_file: ``options.json``, or its address.
        weight_file: The HDF5 weights, their address, or the name of a published model, which needs
            no options. As in AllenNLP, the original model is downloaded when both are left out.
        cuda_device: Number of the GPU; -1 for the CPU.
    """

    def __init__(
        self,
        options_file: str | Path | None = None,
        weight_file: str | Path = "original",
        cuda_device: int = -1,
    ) -> None:
        device = "cpu" if cuda_device < 0 else f"cuda:{cuda_device}"
        self.elmo: Encoder = load(weight_file, options=options_file, softmax=False, device=device)

    def reset_states(self) -> None:
        """Start the next batch from a zero initial state."""
        self.elmo.reset_state()

    def batch_to_embeddings(self, batch: Sequence[Sequence[str]]) -> tuple[Tensor, Tensor]:
        """All layers of a batch: (B, L + 1, T, D), zeros after a sentence's end, and its mask."""
        layers = self.elmo.encode(
            [list(tokens) for tokens in batch], layers="all", state="carry", output="torch"
        )
        sizes = torch.tensor([part.shape[1] for part in layers], device=self.elmo.device)
        padded = pad_sequence([part.transpose(0, 1) for part in layers], batch_first=True)
        mask = torch.arange(padded.shape[1], device=sizes.device) < sizes[:, None]  # (B, T)
        return padded.transpose(1, 2), mask

    def embed_sentence(self, sentence: Sequence[str]) -> NDArray[np.float32]:
        """All layers of one sentence: (L + 1, T, D)."""
        return self.embed_batch([sentence])[0]

    def embed_batch(self, batch: Sequence[Sequence[str]]) -> list[NDArray[np.float32]]:
        """All layers of sentences that are run together: (L + 1, T, D) each."""
        if len(batch) == 1 and not batch[0]:  # such a batch was never run
            return [np.zeros((self.elmo.layers, 0, self.elmo.dim), np.float32)]
        vectors: list[NDArray[np.float32]] = self.elmo.encode(
            [list(tokens) for tokens in batch], layers="all", state="carry"
        )
        return vectors

    def embed_sentences(
        self, sentences: Iterable[Sequence[str]], batch_size: int = BATCH_SIZE
    ) -> Iterator[NDArray[np.float32]]:
        """All layers of a stream of sentences, batch by batch in its order."""
        stream = iter(sentences)
        while batch := list(islice(stream, batch_size)):
            yield from self.embed_batch(batch)

    def embed_file(
        self,
        input_file: Iterable[str],
        output_file_path: str | PathLike[str],
        output_format: Literal["all", "top", "average"] = "all",
        batch_size: int = BATCH_SIZE,
        forget_sentences: bool = False,
        use_sentence_keys: bool = False,
    ) -> None:
        """Write the vectors of a file to HDF5, in the layout of ``allennlp elmo``.

        Args:
            input_file: An open file, or lines: one sentence each, tokens between spaces.
            output_file_path: The file; it is written atomically.
            output_format: All layers, the top one, or their average.
            batch_size: Sentences in a batch.
            forget_sentences: Leave out the dataset ``sentence_to_index``.
            use_sentence_keys: Name each dataset by its sentence, not by its line number.

        Raises:
            DataError: A line is blank, or two lines that are to be keys are the same.
        """
        if output_format not in _REDUCE:
            raise ConfigError(f"output_format={output_format!r}: use 'all', 'top' or 'average'")
        sentences = [line.strip() for line in input_file]
        if "" in sentences:
            raise DataError(f"line {sentences.index('') + 1} is blank; remove it")
        if use_sentence_keys and len(set(sentences)) < len(sentences):
            raise DataError("two lines are the same, so sentences cannot be keys; use line numbers")
        vectors = self.embed_sentences((text.split() for text in sentences), batch_size)
        with atomic_file(output_file_path) as temporary, create_hdf5(temporary) as file:
            for number, (sentence, layers) in enumerate(zip(sentences, vectors, strict=True)):
                key = sentence if use_sentence_keys else str(number)
                file.create_dataset(key, data=_REDUCE[output_format](layers))
            if not (forget_sentences or use_sentence_keys):
                import h5py

                index = {sentence: str(number) for number, sentence in enumerate(sentences)}
                text = h5py.string_dtype(encoding="utf-8")
                file.create_dataset("sentence_to_index", (1,), dtype=text)[0] = json.dumps(index)
