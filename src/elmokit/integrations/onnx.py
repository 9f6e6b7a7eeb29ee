"""`OnnxElmo`: the vectors of an exported model with onnxruntime and numpy; torch is not needed."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import Any, TypedDict, Unpack, overload

import numpy as np
from numpy.typing import NDArray

from elmokit.checkpoints.onnx_graph import FORMAT_VERSION, METADATA_PREFIX
from elmokit.config import ModelConfig, from_dict
from elmokit.encode.layers import (
    NO_MIX,
    Pool,
    check_options,
    check_pool,
    layer_weights,
    pooled_shape,
)
from elmokit.errors import CheckpointError, ConfigError, MissingExtraError, reason
from elmokit.files import regular_file
from elmokit.text.batching import run_in_batches
from elmokit.text.inputs import InputBuilder
from elmokit.text.tokens import (
    check_sentences,
    check_tokenizer,
    get_tokenizer,
    sentence_tokens,
)
from elmokit.text.vocab import Vocabulary

BATCH_TOKENS = 1024
CACHE_WORDS = 32_768
"""The most words whose vectors are kept between calls."""
STEP_ROWS = 8
"""A step of the LSTMs takes about so long as so many rows of it, whatever the number of rows."""

Sentence = str | Sequence[str]
Layers = str | int | Sequence[float]
Sentences = Iterable[Sentence]
Vectors = NDArray[np.float32]


class OnnxOptions(TypedDict, total=False):
    """Options of `OnnxElmo.encode` on which no type depends."""

    layers: Layers
    batch_tokens: int
    progress: bool


class OnnxElmo:
    """A model that ``elmo.export("model.onnx")`` wrote.

    Every sentence starts from a zero initial state, as with ``state="fresh"`` of `Elmo.encode`;
    there is no other state here.

    Args:
        path: The file.
        tokenizer: Name of a tokeniser that replaces the model's own.
        threads: Threads of onnxruntime; as many as there are cores when left out.
        providers: Execution providers of onnxruntime, the first choice first.

    Raises:
        CheckpointError: The file is missing, is not ONNX, or was not written by elmokit.
        MissingExtraError: The package onnxruntime is not installed.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        tokenizer: str | None = None,
        threads: int | None = None,
        providers: Sequence[str] = ("CPUExecutionProvider",),
    ) -> None:
        if tokenizer is not None:
            check_tokenizer(tokenizer)
        self.source: str = str(path)
        self._session = _open(Path(path), threads, providers)
        try:
            props = self._session.get_modelmeta().custom_metadata_map
        except UnicodeDecodeError:
            raise CheckpointError(f"{path}: its metadata is damaged (not UTF-8)") from None
        stored = {
            name.removeprefix(METADATA_PREFIX): _parse(path, name, text)
            for name, text in props.items()
            if name.startswith(METADATA_PREFIX)
        }
        if str(stored.get("format")) != FORMAT_VERSION or "config" not in stored:
            raise CheckpointError(
                f"{path}: no elmokit model of format {FORMAT_VERSION}; write it again with "
                "elmo.export() or elmokit convert"
            )
        words = stored.get("vocabulary")
        try:
            self.config: ModelConfig = from_dict(ModelConfig, stored["config"], "config")
            vocabulary = None if words is None else Vocabulary(words, self.config.text)
            self._inputs = InputBuilder(self.config, vocabulary, stored.get("symbols"))
        except (CheckpointError, ConfigError) as error:  # they do not know the file
            raise CheckpointError(f"{path}: {error}") from None
        self.dim: int = self.config.dim
        """Width of a vector, 2P."""
        self.layers: int = self.config.layers
        """Number of layers, L + 1: token vectors and every LSTM layer."""
        self.tokenizer: str = tokenizer or self.config.text.tokenizer
        self._mix: list[float] | None = stored.get("mix")
        optional = {one.name for one in self._session.get_overridable_initializers()}
        self._keeps = "known" in optional  # files of early versions have no such input
        self._kept: dict[str, Vectors] = {}
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return (
            f"OnnxElmo({self.source!r}, dim={self.dim}, layers={self.layers}, "
            f"tokenizer={self.tokenizer!r})"
        )

    def tokenize(self, text: str) -> list[str]:
        """Split text with the model's tokeniser."""
        return get_tokenizer(self.tokenizer).tokenize(text)

    @overload
    def encode(  # type: ignore[overload-overlap]  # a text is an iterable of texts, too
        self, sentences: str, *, pool: Pool | None = ..., **options: Unpack[OnnxOptions]
    ) -> Vectors: ...
    @overload
    def encode(
        self, sentences: Sentences, *, pool: None = ..., **options: Unpack[OnnxOptions]
    ) -> list[Vectors]: ...
    @overload
    def encode(
        self, sentences: Sentences, *, pool: Pool, **options: Unpack[OnnxOptions]
    ) -> Vectors: ...
    def encode(
        self,
        sentences: str | Sentences,
        *,
        layers: Layers = "mean",
        pool: Pool | None = None,
        batch_tokens: int = BATCH_TOKENS,
        progress: bool = True,
        **other: Any,
    ) -> Vectors | list[Vectors]:
        """The vectors of every token, as `elmokit.Elmo.encode` gives them.

        Args:
            sentences: One sentence as text, or many, each as text or as a list of tokens.
            layers: ``"mean"``, ``"sum"``, ``"top"``, ``"all"``, ``"mix"``, a layer's number, or one
                weight per layer (used as they are).
            pool: ``"mean"`` or ``"max"`` over the tokens gives one vector per sentence.
            batch_tokens: The most tokens run together.
            progress: Show a progress bar on a terminal when it takes long.
            **other: There are no others; the error says what an option of another library is here.

        Returns:
            For one text (T, D), or (L + 1, T, D) with all layers; for N of them a list of these in
            the same order. Pooled, (D,) or (L + 1, D), and for N one array (N, D) or (N, L + 1, D).
        """
        check_options(other)
        if not isinstance(sentences, str):
            check_sentences(sentences)
        single = isinstance(sentences, str)
        batch: list[Sentence] = [sentences] if isinstance(sentences, str) else list(sentences)
        stream = self._stream(batch, layers, pool, batch_tokens)
        if progress and len(batch) > 1:
            from tqdm.auto import tqdm

            stream = tqdm(stream, total=len(batch), unit="sentence", delay=2, disable=None)
        results = list(stream)
        if single:
            return results[0]
        if pool is None:
            return results
        return np.stack(results) if results else np.empty(pooled_shape(layers, self), np.float32)

    __call__ = encode

    def encode_stream(
        self,
        sentences: Sentences,
        *,
        layers: Layers = "mean",
        pool: Pool | None = None,
        batch_tokens: int = BATCH_TOKENS,
    ) -> Iterator[Vectors]:
        """Like `encode` for a stream of any length: results come in order, memory is bounded."""
        check_sentences(sentences)
        return self._stream(sentences, layers, pool, batch_tokens)

    def _stream(
        self, sentences: Sentences, layers: Layers, pool: Pool | None, batch_tokens: int
    ) -> Iterator[Vectors]:
        weights = self._weights(layers)
        check_pool(pool)
        if not isinstance(batch_tokens, int) or batch_tokens < 1:
            raise ConfigError(f"batch_tokens={batch_tokens!r}: give a positive number")
        tokens = (sentence_tokens(text, i, self.tokenize) for i, text in enumerate(sentences))

        def run(batch: list[list[str]]) -> list[Vectors]:  # longest first
            cuts = [0, *_cuts(np.array([len(words) + 2 for words in batch])), len(batch)]
            parts = (self.all_layers(batch[a:b]) for a, b in pairwise(cuts))
            return [_reduce(one, weights, pool) for part in parts for one in part]

        return run_in_batches(tokens, lambda words: len(words) + 2, run, batch_tokens)

    def all_layers(self, batch: Sequence[Sequence[str]]) -> list[Vectors]:
        """All layers of one batch of tokenised sentences, run together: (L + 1, T, D) each."""
        lengths = [len(tokens) for tokens in batch]
        if not any(lengths):  # there is no word to run
            return [np.zeros((self.layers, 0, self.dim), np.float32) for _ in batch]
        distinct, feed = self._words(dict.fromkeys(chain.from_iterable(batch)))
        indices = np.zeros((len(batch), max(lengths)), np.int64)  # (B, T)
        for row, tokens in zip(indices, batch, strict=True):
            row[: len(tokens)] = [distinct[word] for word in tokens]
        feed |= {"tokens": indices, "lengths": np.array(lengths, np.int64)}
        wanted = ["layers", "vectors"] if self._keeps else ["layers"]
        try:
            layers, *vectors = self._session.run(wanted, feed)  # (L + 1, B, T, D)
        except Exception as error:  # as when it was opened; a damaged graph may fail here only
            raise CheckpointError(
                f"{self.source}: onnxruntime cannot run it ({reason(error)})"
            ) from None
        if layers.shape != (self.layers, *indices.shape, self.dim):
            raise CheckpointError(f"{self.source}: its graph gives {layers.shape}; it is damaged")
        for rows in vectors:
            self._keep(distinct, rows)
        return [layers[:, i, :length].copy() for i, length in enumerate(lengths)]

    def _words(self, words: Iterable[str]) -> tuple[dict[str, int], dict[str, Any]]:
        """The index of each distinct word, and the graph's inputs for them."""
        with self._lock:
            known = {word: self._kept[word] for word in words if word in self._kept}
        # One word at least is encoded, also if all are known: not all kernels take none.
        new = [word for word in words if word not in known] or [known.popitem()[0]]
        inputs = vars(self._inputs(new))
        feed = {name: rows for name, rows in inputs.items() if rows is not None}
        if known:
            feed["known"] = np.stack(list(known.values()))
        return {word: i for i, word in enumerate(chain(new, known))}, feed

    def _keep(self, distinct: Iterable[str], vectors: Vectors) -> None:
        """Store the vectors of the first words (W, P), instead of the oldest if there are many."""
        with self._lock:
            self._kept.update(zip(distinct, vectors, strict=False))
            for word in list(islice(self._kept, max(0, len(self._kept) - CACHE_WORDS))):
                del self._kept[word]

    def _weights(self, layers: Layers) -> tuple[float, ...] | None:
        if layers == "mix":
            if self._mix is None:
                raise ConfigError(NO_MIX)
            if self.config.mix is not None and self.config.mix.layer_norm:
                raise ConfigError(
                    "layers='mix': the model's mix has a layer norm, which OnnxElmo leaves out; "
                    "use layers='all' and mix them yourself"
                )
            layers = self._mix
        return layer_weights(layers, self.layers)


def _open(path: Path, threads: int | None, providers: Sequence[str]) -> Any:
    try:
        import onnxruntime
    except ImportError as error:
        raise MissingExtraError("onnxruntime", "onnx", "OnnxElmo") from error
    regular_file(path)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors: it warns of inputs that may be left out
    if threads is not None:
        options.intra_op_num_threads = threads
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=list(providers))
    except Exception as error:  # onnxruntime has a class for each of its states
        raise CheckpointError(f"{path}: onnxruntime cannot open it ({reason(error)})") from None


def _parse(path: str | Path, name: str, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise CheckpointError(f"{path}: the metadata {name} is damaged") from None


def _cuts(lengths: NDArray[np.int64], first: int = 0) -> list[int]:
    """Where to cut a batch, longest first, so that its padding costs less than more steps do."""
    rows = np.arange(1, len(lengths))
    if not len(rows):
        return []
    below = lengths[1:] * (len(lengths) - rows + STEP_ROWS)
    costs = lengths[0] * (rows + STEP_ROWS) + below  # (rows - 1,), in rows times steps
    at = 1 + int(costs.argmin())
    if costs[at - 1] >= lengths[0] * (len(lengths) + STEP_ROWS):
        return []
    return [*_cuts(lengths[:at], first), first + at, *_cuts(lengths[at:], first + at)]


def _reduce(layers: Vectors, weights: tuple[float, ...] | None, pool: Pool | None) -> Vectors:
    """All layers of a sentence to the chosen layers and pooling."""
    if weights is not None:
        layers = np.tensordot(np.asarray(weights, np.float32), layers, axes=1)  # (T, D)
    if pool is None:
        return layers
    if layers.shape[-2] == 0:
        return np.zeros((*layers.shape[:-2], layers.shape[-1]), np.float32)
    pooled: Vectors = layers.mean(axis=-2) if pool == "mean" else layers.max(axis=-2)
    return pooled
