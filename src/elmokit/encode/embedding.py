"""ELMo as a layer of your own PyTorch model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, TypedDict, Unpack, overload

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from elmokit.encode.elmo import Elmo, Sentence
from elmokit.encode.loading import load
from elmokit.engines import no_gradients
from elmokit.engines.cpu_training import Dropout
from elmokit.errors import ConfigError
from elmokit.model.packing import inside
from elmokit.model.scalar_mix import ScalarMix
from elmokit.word_vectors.table import WordVectors

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from elmokit.model.bilm import BiLM

    V = TypeVar("V", default=Tensor)
else:
    from typing import TypeVar

    V = TypeVar("V")


class Embedded(NamedTuple, Generic[V]):
    """A batch of sentences as padded tensors."""

    vectors: V
    """(B, T, D), zeros beyond a sentence's end; a list of them when there are several outputs."""
    mask: Tensor
    """(B, T), true for tokens, false for padding."""


class EmbeddingOptions(TypedDict, total=False):
    """Options of `ElmoEmbedding` on which no type depends."""

    dropout: float
    layer_norm: bool
    fine_tune: bool
    static: WordVectors | str | Path | None
    projection: int | None


class ElmoEmbedding(nn.Module, Generic[V]):
    """Sentences to vectors with a learned mix of layers.

    A frozen biLM is not part of the module's parameters: checkpoints of your model hold the mix
    and the projection alone.

    Args:
        source: A model that `elmokit.load` understands, which starts on the CPU as modules do, or
            a loaded `Elmo`, on whose device all parameters are made.
        outputs: How many different mixes to learn, for use at several inputs of a model.
        dropout: Share of the vectors' elements set to zero in training.
        layer_norm: Normalise each layer over the batch's tokens before it is weighted.
        fine_tune: Train the biLM as well.
        static: Static word vectors (or their file), concatenated: [x_k ; ELMo_k].
        projection: Project the vectors to this width.
    """

    @overload
    def __init__(
        self: ElmoEmbedding[Tensor],
        source: str | Path | Elmo | None = ...,
        *,
        outputs: Literal[1] = ...,
        **options: Unpack[EmbeddingOptions],
    ) -> None: ...
    @overload
    def __init__(
        self: ElmoEmbedding[list[Tensor]],
        source: str | Path | Elmo | None = ...,
        *,
        outputs: int,
        **options: Unpack[EmbeddingOptions],
    ) -> None: ...
    def __init__(
        self,
        source: str | Path | Elmo | None = None,
        *,
        outputs: int = 1,
        dropout: float = 0.5,
        layer_norm: bool = False,
        fine_tune: bool = False,
        static: WordVectors | str | Path | None = None,
        projection: int | None = None,
    ) -> None:
        super().__init__()
        if outputs < 1:
            raise ConfigError(f"outputs={outputs}: at least one is needed")
        self.elmo: Elmo = (
            source if isinstance(source, Elmo) else load(source, softmax=False, device="cpu")
        )
        self.fine_tune = fine_tune
        if fine_tune:
            self.bilm: BiLM = self.elmo.bilm.requires_grad_(True)
            for unused in (self.bilm.softmax, self.bilm.mixes):  # these get no gradient
                if unused is not None:
                    unused.requires_grad_(False)
        self.mixes: nn.ModuleList = nn.ModuleList(
            ScalarMix(self.elmo.layers, layer_norm=layer_norm) for _ in range(outputs)
        )
        self.dropout: Dropout = Dropout(dropout)
        self.static: WordVectors | None = (
            WordVectors.load(static) if isinstance(static, str | Path) else static
        )
        width = self.elmo.dim + (self.static.dim if self.static is not None else 0)
        self.projection: nn.Linear | None = (
            nn.Linear(width, projection) if projection is not None else None
        )
        self.dim: int = projection if projection is not None else width
        nn.ModuleList([self.mixes, self.projection or nn.Identity()]).to(self.elmo.device)

    if TYPE_CHECKING:

        def __call__(self, sentences: Iterable[Sentence]) -> Embedded[V]:
            """Embed a batch; see `forward`."""
            ...

    def forward(self, sentences: Iterable[Sentence]) -> Embedded[V]:
        """Embed a batch.

        Args:
            sentences: Texts or lists of tokens.

        Returns:
            The vectors and their mask.
        """
        if torch.compiler.is_compiling():
            # What comes out can be part of a graph; texts, word caches and threads cannot.
            return torch.compiler.disable(self._embed)(sentences)  # type: ignore[no-any-return]
        return self._embed(sentences)

    def _embed(self, sentences: Iterable[Sentence]) -> Embedded[V]:
        batch = list(self.elmo.all_tokens(sentences))
        if not batch:
            return self._empty()
        layers = flat_layers(self.elmo, batch, train=self.fine_tune)
        sizes = [len(tokens) for tokens in batch]
        static = self._static_vectors(batch)
        vectors = []
        for mix in self.mixes:
            flat = self.dropout(mix(layers)).to(self._dtype)  # (N, D)
            if static is not None:
                flat = torch.cat([static, flat], dim=1)
            if self.projection is not None:
                flat = self.projection(flat)
            vectors.append(pad_sequence(list(flat.split(sizes)), batch_first=True))  # (B, T, D)
        device = self.elmo.device
        size = torch.tensor(sizes, device=device)
        mask = torch.arange(max(sizes), device=device)[None, :] < size[:, None]  # (B, T)
        found: Any = vectors[0] if len(vectors) == 1 else vectors
        return Embedded(found, mask)

    def _static_vectors(self, batch: Sequence[Sequence[str]]) -> Tensor | None:
        if self.static is None:
            return None
        rows = self.static.lookup([token for tokens in batch for token in tokens])
        return torch.from_numpy(rows).to(self.elmo.device, self._dtype)

    @property
    def _dtype(self) -> torch.dtype:
        """The type of the module's own parameters, and so of its vectors."""
        return next(self.mixes.parameters()).dtype

    def _empty(self) -> Embedded[V]:
        """The result for an empty batch."""
        none = torch.zeros(0, 0, self.dim, device=self.elmo.device, dtype=self._dtype)
        mask = torch.zeros(0, 0, device=self.elmo.device, dtype=torch.bool)
        found: Any = none if len(self.mixes) == 1 else [none] * len(self.mixes)
        return Embedded(found, mask)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> ElmoEmbedding[V]:
        """Move a frozen biLM to the same device, in its own precision."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        if not self.fine_tune:
            self.elmo.bilm.to(fn(torch.empty(1, device=self.elmo.device)).device)
        self.elmo.forget()
        return self


def flat_layers(elmo: Elmo, batch: Sequence[Sequence[str]], *, train: bool) -> list[Tensor]:
    """The L + 1 layers (N, 2P) of a batch's tokens, sentence after sentence, without markers.

    With `train`, gradients flow through the model.
    """
    if train:
        # The weights are about to change, and some optimizers do not bump torch's version counter.
        elmo.forget()
    with nullcontext() if train else no_gradients():
        tokens, packing, lengths = elmo.embed_tokens(batch, use_cache=not train)
        states = elmo.bilm.zero_states(len(batch))
        inner = inside(lengths, tokens.device)
        outputs = elmo.bilm(tokens, packing, states)
        return [out.vectors.index_select(0, inner) for out in outputs]
