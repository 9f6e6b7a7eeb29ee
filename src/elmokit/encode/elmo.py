"""The `Elmo` class: sentences in, vectors out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from elmokit.checkpoints import bilm_hdf5, native
from elmokit.checkpoints.checkpoint import Checkpoint
from elmokit.checkpoints.export import Format, export_model
from elmokit.checkpoints.native import Storage
from elmokit.config import ModelConfig
from elmokit.encode.batch_run import BatchRun
from elmokit.encode.embedder import TokenEmbedder
from elmokit.encode.layers import Layers, choose_layers
from elmokit.encode.pooling import Pool, check_pool
from elmokit.encode.states import STATES, CarriedState, InitialStates, State
from elmokit.engines.device import check_device, no_gradients
from elmokit.errors import CheckpointError, ConfigError, DataError
from elmokit.lm import scoring
from elmokit.lm.generation import generate
from elmokit.lm.substitutes import Substitute, substitutes
from elmokit.model.bilm import Precision, build
from elmokit.model.lstm import LayerState
from elmokit.model.packing import Packing
from elmokit.model.scalar_mix import ScalarMix
from elmokit.text.batching import WINDOW_BATCHES, run_in_batches
from elmokit.text.tokens import get_tokenizer, is_tokens

Sentence = str | Sequence[str]
"""A sentence as text, which is tokenised, or as its tokens."""

BATCH_TOKENS, GPU_BATCH_TOKENS = 4096, 32_768
"""Tokens run together when the caller does not say."""
GPU_WINDOW_TOKENS = 524_288
"""About so many tokens are read ahead on a GPU; their vectors are held until all have come."""
WARM_UP: Sequence[list[str]] = ([],) * 16
"""Empty sentences read in a row before ``state="warm"`` starts; by then the state has settled."""


class Elmo:
    """A loaded model.

    Args:
        checkpoint: The model's config, weights and word lists.
        tokenizer: Name of a tokeniser that replaces the model's own.
        device: Where to run.
        cache_words: The most words whose token vectors are kept between calls; left out, 32,768,
            on a GPU 131,072.
        precision: The type of the matmuls: ``"float32"``, or, less exact and faster,
            ``"bfloat16"`` or, on a CPU, ``"int8"``. The weights themselves stay as they are.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        *,
        tokenizer: str | None = None,
        device: str | torch.device = "cpu",
        cache_words: int | None = None,
        precision: Precision = "float32",
    ) -> None:
        config = checkpoint.config
        if tokenizer is not None:
            config = replace(config, text=replace(config.text, tokenizer=tokenizer))
            checkpoint = replace(checkpoint, config=config)
        device = check_device(device, precision)
        self._inputs = checkpoint.inputs()
        softmax, vocabulary = config.softmax, checkpoint.vocabulary
        if softmax is not None and vocabulary is not None and len(vocabulary) != softmax.words:
            raise CheckpointError(
                f"{checkpoint.source}: the vocabulary has {len(vocabulary)} words, the softmax "
                f"{softmax.words}: they belong to different models"
            )
        self.config: ModelConfig = config
        self.vocabulary = vocabulary
        self._checkpoint = checkpoint
        self.bilm = build(config, checkpoint.weights, checkpoint.source).to(device)
        self.bilm.set_precision(precision)
        self._first = TokenEmbedder(self.bilm, checkpoint, self._inputs, cache_words)
        self._warm_up_tokens = list(WARM_UP)
        self._starts = InitialStates(self.bilm, self._first.markers, self._after_warm_up)

    def __repr__(self) -> str:
        return (
            f"Elmo({self._checkpoint.source!r}, {self._checkpoint.kind}, dim={self.dim}, "
            f"layers={self.layers}, tokenizer={self.config.text.tokenizer!r})"
        )

    @property
    def dim(self) -> int:
        """Width of a vector, 2P."""
        return self.config.dim

    @property
    def layers(self) -> int:
        """Number of layers, L + 1: token vectors and every LSTM layer."""
        return self.config.layers

    @property
    def kind(self) -> str:
        """The format the model was read from."""
        return self._checkpoint.kind

    @property
    def source(self) -> str:
        """Where the model was read from."""
        return self._checkpoint.source

    @property
    def card(self) -> str | None:
        """The model card, when there is one."""
        return self._checkpoint.card

    @property
    def mixes(self) -> list[ScalarMix]:
        """The mixes stored with a fine-tuned model; ``layers="mix"`` is the first."""
        return [mix for mix in self.bilm.mixes if isinstance(mix, ScalarMix)]

    @property
    def device(self) -> torch.device:
        """Where the model runs."""
        return self.bilm.device

    @property
    def token_vectors(self) -> tuple[list[str], Tensor]:
        """Words whose token vectors `use_token_vectors` has set, none by default; (n, P)."""
        return self._first.cache.fixed

    def to(self, device: str | torch.device) -> Elmo:
        """Move the model; caches and carried state start anew."""
        self.bilm.to(check_device(device, self.bilm.precision))
        self.forget()
        return self

    def forget(self) -> None:
        """Drop everything computed from the weights: call it after they were changed or moved."""
        self._first.forget()
        self.bilm.forget_packed()
        self._starts.forget()

    def tokenize(self, text: str) -> list[str]:
        """Split text with the model's tokeniser."""
        # Looked up when text arrives: tokens need no tokeniser, nor the package behind it.
        return get_tokenizer(self.config.text.tokenizer).tokenize(text)

    def encode(
        self,
        sentences: str | Iterable[Sentence],
        *,
        layers: Layers = "mean",
        pool: Pool | None = None,
        state: State = "fresh",
        output: Literal["numpy", "torch"] = "numpy",
        batch_tokens: int | None = None,
        progress: bool = True,
    ) -> Any:
        """Give every token its vector.

        Args:
            sentences: One sentence as text, or many, each as text or as a list of tokens.
            layers: ``"mean"``, ``"top"``, ``"all"``, ``"mix"``, a layer's number, one weight
                per layer (used as they are), or a `ScalarMix`.
            pool: ``"mean"`` or ``"max"`` over the tokens gives one vector per sentence.
            state: ``"fresh"``: every sentence starts from a zero initial state, so its
                vectors depend on nothing else. ``"warm"``: every sentence starts from the
                same warmed-up state. ``"carry"``: this call is one batch, and its row r goes on
                where row r of the call before ended, as the original code always did.
            output: Arrays of numpy, or tensors of torch on the model's device.
            batch_tokens: The most tokens run together; left out, what suits the device.
            progress: Show a progress bar on a terminal when it takes long.

        Returns:
            For one text (T, D), or (L + 1, T, D) with all layers, or (D,) pooled; for many, a
            list of these in the same order. A sentence without tokens has T = 0, and its pooled
            vector is zeros.
        """
        if not isinstance(sentences, Iterable):
            raise DataError(f"expected a text or several sentences, found {sentences!r:.80}")
        single = isinstance(sentences, str)
        batch: list[Sentence] = [sentences] if isinstance(sentences, str) else list(sentences)
        stream = self.encode_stream(
            batch, layers=layers, pool=pool, state=state, output=output, batch_tokens=batch_tokens
        )
        if progress and len(batch) > 1:
            from tqdm.auto import tqdm

            # `delay` keeps short work silent, `disable=None` keeps files and pipes clean.
            stream = tqdm(stream, total=len(batch), unit="sentence", delay=2, disable=None)
        results = list(stream)
        return results[0] if single else results

    def encode_stream(
        self,
        sentences: Iterable[Sentence],
        *,
        layers: Layers = "mean",
        pool: Pool | None = None,
        state: State = "fresh",
        output: Literal["numpy", "torch"] = "numpy",
        batch_tokens: int | None = None,
    ) -> Iterator[Any]:
        """Like `encode` for a stream of any length: results come in order, memory is bounded.

        With ``state="carry"`` the whole stream is one batch, as in `encode`.
        """
        choice = choose_layers(layers, self.layers, self.mixes)
        check_pool(pool)
        _check_choice("state", state, STATES)
        _check_choice("output", output, ("numpy", "torch"))
        on_processor = self.device.type == "cpu"
        if batch_tokens is None:
            batch_tokens = BATCH_TOKENS if on_processor else GPU_BATCH_TOKENS
        if not isinstance(batch_tokens, int) or batch_tokens < 1:
            raise ConfigError(f"batch_tokens={batch_tokens!r}: give a positive number")
        tokens = self._all_tokens(sentences)

        run = BatchRun(self.bilm, self._first, self._starts, choice, pool, state, output)
        if state == "carry":
            whole = list(tokens)
            results = run(whole) if whole else []
            run.finish()
            return iter(results)
        # A processor's rows stay busy whatever the lengths; a GPU wants similar ones together.
        ahead = 1
        if not on_processor:
            ahead = max(1, min(WINDOW_BATCHES, GPU_WINDOW_TOKENS // batch_tokens))
        return run_in_batches(
            tokens, lambda words: len(words) + 2, run, batch_tokens, ahead, run.finish
        )

    def score(self, sentences: str | Iterable[Sentence]) -> Any:
        """Log-probabilities of every word, from the left and from the right.

        Returns:
            A `Score` for one text, a list of them for many; see `elmokit.lm.scoring`.
        """
        return scoring.score(self, sentences)

    def substitutes(self, tokens: Sentence, position: int, k: int = 10) -> list[Substitute]:
        """The k words that both directions together expect at a position."""
        return substitutes(self, tokens, position, k)

    def generate(
        self,
        prompt: Sentence = "",
        tokens: int = 20,
        *,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int | None = None,
    ) -> str:
        """Go on with a text, word by word, until the sentence ends or `tokens` words are said."""
        new = generate(
            self,
            prompt,
            tokens=tokens,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            seed=seed,
        )
        return " ".join([*self.tokens(prompt, 0), *new])

    def reset_state(self) -> None:
        """Blank the memory that ``state="carry"`` keeps between calls."""
        self._starts.carried = CarriedState(self.bilm)

    def warm_up(self, sentences: Iterable[Sentence] = WARM_UP) -> None:
        """Set where ``state="warm"`` starts: the memory after reading these sentences in a row.

        Without sentences of your own, empty ones are read until the memory has settled. They are
        read when they are first needed, and again after the model was moved.
        """
        self._warm_up_tokens = [self.tokens(text, number) for number, text in enumerate(sentences)]
        self._starts.forget_warm()

    def _after_warm_up(self) -> list[LayerState]:
        """The memory after reading the sentences of the warm-up in a row, one row."""
        states = self.bilm.zero_states(1)
        with no_gradients():
            for sentence in self._warm_up_tokens:
                tokens, packing, _ = self.embed_tokens([sentence])
                states = [out.state for out in self.bilm.layers(tokens, packing, states)][1:]
        return states

    def use_token_vectors(self, path: Path) -> None:
        """Take token vectors of the vocabulary's words from a file instead of the CNN."""
        if self.vocabulary is None:
            raise CheckpointError(f"{path}: give the vocabulary that its rows belong to")
        words = self.vocabulary.words
        table = bilm_hdf5.read_token_vectors(path, self.config.lstm.width)
        if len(table) != len(words):
            raise CheckpointError(f"{path}: {len(table)} token vectors for {len(words)} words")
        self._first.cache.fix(words, torch.from_numpy(table).to(self.device))
        self._starts.forget_markers()
        self._starts.forget_warm()

    def save_words(self, path: str | Path) -> None:
        """Write the token vectors of all words kept so far; see `load_words`."""
        self._first.save_words(Path(path))

    def load_words(self, path: str | Path) -> int:
        """Take over the words of such a file, at most ``cache_words``; returns how many are kept.

        Raises:
            DataError: The file is damaged, or of another model or precision.
        """
        return self._first.load_words(Path(path))

    def save(self, folder: str | Path, *, storage: Storage = "float32") -> None:
        """Write the model in elmokit's own format; see `elmokit.checkpoints.native.write`."""
        native.write(self.checkpoint(), Path(folder), storage)

    def export(
        self, path: str | Path, format: Format | None = None, *, storage: Storage = "float32"
    ) -> None:
        """Write the model for other tools: HDF5 or ONNX; see `elmokit.checkpoints.export`."""
        export_model(self.checkpoint(), Path(path), format, storage)

    def checkpoint(self) -> Checkpoint:
        """The model with its present weights, ready to be written."""
        weights = {name: t.detach().cpu() for name, t in self.bilm.state_dict().items()}
        return replace(self._checkpoint, weights=weights)

    def embed_tokens(
        self, batch: Sequence[Sequence[str]], *, use_cache: bool = True
    ) -> tuple[Tensor, Packing, list[int]]:
        """The first stage for a batch: token vectors with the sentence markers around.

        Args:
            batch: Tokens of each sentence.
            use_cache: Look words up in the cache; not while the encoder itself learns.

        Returns:
            The flat batch (N, P), its packing, and each sentence's length with markers.
        """
        return self._first(batch, use_cache=use_cache)

    def _all_tokens(self, sentences: Iterable[Sentence]) -> Iterator[tuple[str, ...]]:
        """`tokens` of each; lists of strings, which are most of them, without ado.

        A tuple is made in half the time of a list, and the garbage collector does not look
        through it again and again while it waits for its batch.
        """
        for number, sentence in enumerate(sentences):
            if type(sentence) is list and is_tokens(sentence):
                yield tuple(sentence)
            else:
                yield tuple(self.tokens(sentence, number))

    def tokens(self, sentence: Sentence, number: int) -> list[str]:
        """The sentence's tokens; `number` names it when it is no sentence."""
        if isinstance(sentence, str):
            return self.tokenize(sentence)
        if is_tokens(sentence):
            return list(sentence)
        raise DataError(
            f"sentence {number}: expected a text or a list of tokens, found {sentence!r:.80}"
        )


def _check_choice(name: str, value: object, choices: Sequence[str]) -> None:
    if value not in choices:
        raise ConfigError(f"{name}={value!r}: use {' or '.join(map(repr, choices))}")
