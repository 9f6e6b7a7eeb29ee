"""The `Elmo` class: sentences in, vectors out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elmokit.checkpoints import bilm_hdf5, native
from elmokit.checkpoints.checkpoint import Checkpoint
from elmokit.checkpoints.export import Format, export_model
from elmokit.checkpoints.native import Storage
from elmokit.config import ModelConfig
from elmokit.encode.document_context import encode_documents
from elmokit.encode.embedder import (
    STATES,
    WARM_UP,
    CarriedState,
    InitialStates,
    State,
    TokenEmbedder,
)
from elmokit.encode.layers import (
    LayerChoice,
    Layers,
    Pool,
    PooledOptions,
    StreamOptions,
    TextOptions,
    TokenOptions,
    check_options,
    check_pool,
    choose_layers,
    needed_halves,
    stack_pooled,
    start_split,
)
from elmokit.encode.similarity import LayerSimilarities, Use, sentence_similarity, similar
from elmokit.engines import (
    Device,
    LstmState,
    Precision,
    check_device,
    no_gradients,
    split_threads,
)
from elmokit.errors import CheckpointError, ConfigError
from elmokit.model.bilm import BiLM, build
from elmokit.model.packing import Packing, inside
from elmokit.model.scalar_mix import ScalarMix
from elmokit.text.batching import BLOCK_SENTENCES, WINDOW_BATCHES, run_blocks
from elmokit.text.inputs import Alphabet
from elmokit.text.tokens import (
    check_sentences,
    check_tokenizer,
    get_tokenizer,
    is_tokens,
    sentence_tokens,
)

if TYPE_CHECKING:
    from elmokit.encode.loading import LoadOptions
    from elmokit.encode.similarity import CommonDirections, CosineOptions
    from elmokit.encode.use_map import UseMap
    from elmokit.lm.scoring import Score
    from elmokit.lm.stimuli import Stimulus
    from elmokit.lm.substitutes import Substitute
    from elmokit.lm.surprisal import SurprisalTable

Sentence = str | Sequence[str]
"""A sentence as text, which is tokenised, or as its tokens."""

Sentences = Iterable[Sentence]
Documents = Iterable[Iterable[Sentence]]

Numpy = Literal["numpy"]
Torch = Literal["torch"]
Output = Numpy | Torch
Vectors = NDArray[np.float32]


class Elmo:
    """A loaded model; `elmokit.load` makes one, and ``elmo(...)`` is ``elmo.encode(...)``.

    It is no ``nn.Module``: `bilm` is one, and `elmokit.ElmoEmbedding` is one for your own model.

    Args:
        checkpoint: The model's config, weights and word lists.
        tokenizer: Name of a tokeniser that replaces the model's own.
        device: Where to run; left out, a GPU of CUDA if there is one, else the CPU.
        cache_words: The most words whose token vectors are kept between calls; left out, 32,768,
            on a GPU 131,072.
        precision: The type of the matmuls: ``"float32"``, or, less exact and faster,
            ``"bfloat16"``, on a CPU ``"int8"``, on a Hopper GPU ``"float8"``. The weights
            themselves stay as they are.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        *,
        tokenizer: str | None = None,
        device: Device = None,
        cache_words: int | None = None,
        precision: Precision = "float32",
    ) -> None:
        config = checkpoint.config
        if tokenizer is not None:
            check_tokenizer(tokenizer)
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
        self.dim: int = config.dim
        """Width of a vector, 2P."""
        self.layers: int = config.layers
        """Number of layers, L + 1: token vectors and every LSTM layer."""
        self.kind: str = checkpoint.kind
        """The format the model was read from."""
        self.source: str = checkpoint.source
        """Where the model was read from."""
        self.card: str | None = checkpoint.card
        """The model card, when there is one."""
        self.alphabet: Alphabet | None = self._inputs.alphabet
        """How words become character ids; None for a model that reads whole words."""
        self.symbols: tuple[str, ...] | None = checkpoint.symbols
        """The dictionary of a Unicode alphabet; a symbol's position is its id."""
        self.vocabulary = vocabulary
        self._checkpoint = checkpoint
        self.bilm: BiLM = build(config, checkpoint.weights, checkpoint.source).to(device)
        self.bilm.set_precision(precision)
        self._embedder = TokenEmbedder(self.bilm, self._inputs, cache_words)
        self._initial = InitialStates(self.bilm, self._embedder)

    def __repr__(self) -> str:
        return (
            f"Elmo({self.source!r}, {self.kind}, dim={self.dim}, layers={self.layers}, "
            f"tokenizer={self.config.text.tokenizer!r})"
        )

    def _repr_html_(self) -> str:
        """A small table, for notebooks."""
        words = "none" if self.vocabulary is None else f"{len(self.vocabulary):,} words"
        rows = {
            "model": self.source,
            "format": self.kind,
            "vectors": f"{self.dim} wide, layers 0 to {self.layers - 1}",
            "tokeniser": self.config.text.tokenizer,
            "vocabulary": words,
            "softmax": "none" if self.config.softmax is None else "yes: scores and predicts words",
            "device": f"{self.device}, {self.bilm.precision}",
        }
        cells = (f"<tr><th>{name}</th><td>{escape(row)}</td></tr>" for name, row in rows.items())
        return f"<table><caption>Elmo</caption>{''.join(cells)}</table>"

    @staticmethod
    def from_pretrained(source: str | Path | None = None, **options: Unpack[LoadOptions]) -> Elmo:
        """Load a model: the same as `elmokit.load`, with the same options."""
        from elmokit.encode.loading import load

        return load(source, **options)

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
        return self._embedder.cache.fixed

    def to(self, device: Device) -> Elmo:
        """Move the model, with None to the best device; caches and carried state start again."""
        self.bilm.to(check_device(device, self.bilm.precision))
        self.forget()
        return self

    def forget(self) -> None:
        """Drop everything computed from the weights: call it after they were changed or moved."""
        self._embedder.forget()
        self.bilm.forget_prepared()
        self._initial.forget()

    def tokenize(self, text: str, most: int | None = None) -> list[str]:
        """Split text with the model's tokeniser; with `most` it may stop after as many tokens."""
        # Looked up when text arrives: tokens need no tokeniser, nor the package behind it.
        return get_tokenizer(self.config.text.tokenizer).tokenize(text, most)

    @overload
    def encode(  # type: ignore[overload-overlap]  # a text is an iterable of texts, too
        self, sentences: str, *, output: Numpy = ..., **options: Unpack[TextOptions]
    ) -> Vectors: ...
    @overload
    def encode(  # type: ignore[overload-overlap]
        self, sentences: str, *, output: Torch, **options: Unpack[TextOptions]
    ) -> Tensor: ...
    @overload
    def encode(
        self, sentences: Sentences, *, output: Numpy = ..., **options: Unpack[TokenOptions]
    ) -> list[Vectors]: ...
    @overload
    def encode(
        self, sentences: Sentences, *, output: Torch, **options: Unpack[TokenOptions]
    ) -> list[Tensor]: ...
    @overload
    def encode(
        self, sentences: Sentences, *, output: Numpy = ..., **options: Unpack[PooledOptions]
    ) -> Vectors: ...
    @overload
    def encode(
        self, sentences: Sentences, *, output: Torch, **options: Unpack[PooledOptions]
    ) -> Tensor: ...
    @overload
    def encode(
        self, sentences: Documents, *, context: Literal["document"], **options: Unpack[TextOptions]
    ) -> list[list[Vectors]]: ...
    def encode(
        self,
        sentences: Any,  # the overloads say what
        *,
        layers: Layers = "mean",
        pool: Pool | None = None,
        state: State = "fresh",
        context: Literal["sentence", "document"] = "sentence",
        output: Output = "numpy",
        batch_tokens: int | None = None,
        progress: bool = True,
        **other: Any,
    ) -> Any:
        """Give every token its vector.

        Args:
            sentences: One sentence as text, or many, each as text or as a list of tokens.
            layers: ``"mean"``, ``"sum"``, ``"top"``, ``"all"``, ``"mix"``, a layer's number, one
                weight per layer (used as they are), or a `ScalarMix`.
            pool: ``"mean"`` or ``"max"`` over the tokens gives one vector per sentence.
            state: ``"fresh"``: every sentence starts from a zero initial state, so its
                vectors depend on nothing else. ``"warm"``: every sentence starts from the
                same warmed-up state. ``"carry"``: this call is one batch, and its row r starts
                where row r of the call before ended, as the original code always did.
            context: ``"document"``: the sentences are documents, lists of sentences; the state
                runs through each in both directions, and a list of vectors comes for each.
            output: Arrays of numpy, or tensors of torch on the model's device.
            batch_tokens: The most tokens run together; left out, what suits the device.
            progress: Show a progress bar on a terminal when it takes long.
            **other: There are no others; the error says what an option of another library is here.

        Returns:
            For one text (T, D), or (L + 1, T, D) with all layers; for N of them a list of these in
            the same order. Pooled, (D,) or (L + 1, D) for one text, and one array (N, D) or
            (N, L + 1, D) for N. A sentence without tokens has T = 0, and its pooled vector is
            zeros.

        Warns:
            AmbiguousInputWarning: A list of strings looks like the tokens of one sentence.
        """
        if context != "sentence":
            return list(encode_documents(
                self, sentences, context, layers=layers, pool=pool, state=state, output=output,
                batch_tokens=batch_tokens, **other,
            ))  # fmt: skip
        single = isinstance(sentences, str)
        if not single:
            check_sentences(sentences, self.config.text.tokenizer)
        batch: list[Sentence] = [sentences] if isinstance(sentences, str) else list(sentences)
        stream = self._stream(batch, layers, pool, state, output, batch_tokens, other)
        if progress and len(batch) > 1:
            from tqdm.auto import tqdm

            # `delay` keeps short work silent, `disable=None` keeps files and pipes clean.
            stream = tqdm(stream, total=len(batch), unit="sentence", delay=2, disable=None)
        results = list(stream)
        if single:
            return results[0]
        return results if pool is None else stack_pooled(results, layers, output, self)

    __call__ = encode

    @overload
    def encode_stream(
        self, sentences: Sentences, *, output: Numpy = ..., **options: Unpack[StreamOptions]
    ) -> Iterator[Vectors]: ...
    @overload
    def encode_stream(
        self, sentences: Sentences, *, output: Torch, **options: Unpack[StreamOptions]
    ) -> Iterator[Tensor]: ...
    def encode_stream(
        self,
        sentences: Iterable[Sentence],
        *,
        layers: Layers = "mean",
        pool: Pool | None = None,
        state: State = "fresh",
        output: Output = "numpy",
        batch_tokens: int | None = None,
        **other: Any,
    ) -> Iterator[Any]:
        """Like `encode` for a stream, in order and in bounded memory; ``"carry"``: in one batch."""
        check_sentences(sentences, self.config.text.tokenizer)
        return self._stream(sentences, layers, pool, state, output, batch_tokens, other)

    def _stream(
        self,
        sentences: Iterable[Sentence],
        layers: Layers,
        pool: Pool | None,
        state: State,
        output: Output,
        batch_tokens: int | None,
        other: Iterable[str],
    ) -> Iterator[Any]:
        """The vectors of sentences that are checked already; options are checked here."""
        check_options(other)
        choice = choose_layers(layers, self.layers, self.mixes)
        check_pool(pool)
        choices = {"state": (state, STATES), "output": (output, ("numpy", "torch"))}
        for name, (value, known) in choices.items():
            if value not in known:
                raise ConfigError(f"{name}={value!r}: use {' or '.join(map(repr, known))}")
        plan = self.bilm.plan()
        if batch_tokens is None:
            batch_tokens = plan.batch_tokens
        if not isinstance(batch_tokens, int) or batch_tokens < 1:
            raise ConfigError(f"batch_tokens={batch_tokens!r}: give a positive number")
        start = partial(self._start_batch, choice, pool, state, output)
        if state == "carry" or (isinstance(sentences, list) and len(sentences) == 1):
            whole = list(self._tokens_of(sentences))
            return iter(start(whole)() if whole else ())

        def named(batch: Sequence[Sequence[str]]) -> Callable[[], list[Any]]:
            try:
                return start(batch)
            except TypeError:  # a token is no string; the error shall name its sentence
                list(self._tokens_of(sentences if type(sentences) is list else ()))
                raise

        windows = max(1, min(WINDOW_BATCHES, plan.prefetch_tokens // batch_tokens))
        return run_blocks(
            self._token_blocks(sentences), lambda words: len(words) + 2, named, batch_tokens,
            windows, first=plan.first_tokens, ahead=plan.asynchronous and output == "numpy",
        )  # fmt: skip

    def _start_batch(
        self,
        choice: LayerChoice,
        pool: Pool | None,
        state: State,
        output: Output,
        batch: Sequence[Sequence[str]],
    ) -> Callable[[], list[Any]]:
        """Start a batch; what is returned waits for the vectors of each sentence."""
        # The markers' own vectors are nobody's, but a sentence without words has nothing else.
        markers = state == "carry" or not all(batch)
        with no_gradients(), ExitStack() as stack:
            plan = self.bilm.plan()  # without gradients, which it depends on
            if plan.split_threads:
                stack.enter_context(split_threads())
            initial = self._initial.before_bos if markers else self._initial.after_bos
            tokens, packing, lengths = self._embedder(batch, use_cache=True, markers=markers)
            outputs = self.bilm(tokens, packing, initial(state, len(batch)))
            inner = inside(lengths, tokens.device) if markers else None
            del tokens  # from here on the layers alone hold what they need
            ends: list[LstmState] = []
            sizes = [len(words) for words in batch]
            needed = choice.count if state == "carry" else choice.needed
            combined = choice.combine(needed_halves(outputs, needed, inner, ends), sizes)
            if state == "carry":
                self._initial.carried.store(ends[1:])
            return start_split(combined, sizes, pool, output, plan.asynchronous)

    @overload
    def similarity(  # type: ignore[overload-overlap]
        self, a: str, b: str, **options: Unpack[CosineOptions]
    ) -> float: ...
    @overload
    def similarity(
        self, a: str | Sentences, b: str | Sentences, **options: Unpack[CosineOptions]
    ) -> NDArray[np.float64]: ...
    def similarity(
        self, a: str | Sentences, b: str | Sentences, **options: Unpack[CosineOptions]
    ) -> float | NDArray[np.float64]:
        """Cosine similarity of sentences, each as the mean of its tokens' vectors.

        Args:
            a: One text, or N sentences, each as text or as a list of tokens.
            b: One text, or M sentences.
            **options: ``layers``: as in `encode`, except ``"all"``. ``without``: a
                `CommonDirections`, removed from all vectors first.

        Returns:
            A number for two texts; for two lists the matrix of all pairs (N, M), as in Sentence
            Transformers; for a text and a list one number per sentence of the list. A sentence
            without tokens has similarity 0. For words in context, encode and use
            `elmokit.similarity`.
        """
        return sentence_similarity(self, a, b, **options)

    @overload
    def similar(
        self,
        sentence: Sentence,
        other: Sentence,
        *,
        word: str | int | None = ...,
        word2: str | int | None = ...,
        without: CommonDirections | None = ...,
    ) -> LayerSimilarities: ...
    @overload
    def similar(
        self,
        sentence: Sentence,
        *,
        word: str | int,
        corpus: str | Path | Sentences,
        word2: str | None = ...,
        k: int = ...,
        **options: Unpack[CosineOptions],
    ) -> list[Use]: ...
    def similar(self, sentence: Sentence, other: Sentence | None = None, **options: Any) -> Any:
        """Compare two uses of a word, or find the nearest uses in a corpus: ``elmokit similar``.

        Args:
            sentence: A sentence, as text or as tokens.
            other: Another one: the cosines of every layer, of the words or of the whole sentences.
            **options: ``word``: a token of the first sentence, or its position. ``word2``: another
                word in the second sentence or in the corpus. ``corpus``: sentences, or a file of
                them, instead of `other`: the ``k`` most similar uses (10), by ``layers``
                (``"mean"``). ``without``: as in `similarity`.

        Returns:
            `LayerSimilarities` for two sentences, a list of `Use` for a corpus.
        """
        return similar(self, sentence, other, **options)

    def map(
        self,
        sentences: Sentences,
        word: str | Sequence[str] | None = None,
        *,
        labels: Iterable[object] | None = None,
        layers: Layers = "top",
    ) -> UseMap:
        """A picture of a word's uses, or of sentences; see `elmokit.encode.use_map`.

        A notebook shows ``elmo.map(sentences, "bank")``; ``.save("map.svg")`` writes it.
        """
        from elmokit.encode.use_map import use_map

        return use_map(self, sentences, word, labels=labels, layers=layers)

    @overload
    def score(self, sentences: str) -> Score: ...  # type: ignore[overload-overlap]
    @overload
    def score(self, sentences: Iterable[Sentence]) -> list[Score]: ...
    def score(self, sentences: str | Iterable[Sentence]) -> Score | list[Score]:
        """Log-probabilities of every word, from the left and from the right.

        Returns:
            A `Score` for one text, a list of them for many; see `elmokit.lm.scoring`.
        """
        from elmokit.lm.scoring import score

        return score(self, sentences)

    def substitutes(self, tokens: Sentence, position: int, k: int = 10) -> list[Substitute]:
        """The k words that both directions together expect at a position."""
        from elmokit.lm.substitutes import substitutes

        return substitutes(self, tokens, position, k)

    def surprisal(
        self, sentences: str | Iterable[Stimulus], *, state: Literal["fresh", "carry"] = "fresh"
    ) -> SurprisalTable:
        """One row per word: surprisal in bits and more; see `elmokit.lm.surprisal`."""
        from elmokit.lm.surprisal import surprisal

        return surprisal(self, sentences, state=state)

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
        """Continue a text, word by word, until the sentence ends or has `tokens` more words.

        Words are joined as people write them; `elmokit.lm.generate` returns the new tokens.
        """
        from elmokit.lm.generation import generate
        from elmokit.text.tokens import join_tokens

        cuts: dict[str, Any] = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
        new = generate(self, prompt, tokens=tokens, seed=seed, **cuts)
        return join_tokens([*self.tokens(prompt, 0), *new])

    def reset_state(self) -> None:
        """Set the state that ``state="carry"`` keeps between calls to zero."""
        self._initial.carried = CarriedState(self.bilm)

    def warm_up(self, sentences: Iterable[Sentence] = WARM_UP) -> None:
        """Set where ``state="warm"`` starts: the state after reading these sentences in a row.

        Without sentences of your own, empty ones are read until the state has settled. They are
        read when they are first needed, and again after the model was moved.
        """
        self._initial.warm_up(list(map(list, self.all_tokens(sentences))))

    def use_token_vectors(self, path: Path) -> None:
        """Take token vectors of the vocabulary's words from a file instead of the CNN."""
        if self.vocabulary is None:
            raise CheckpointError(f"{path}: give the vocabulary that its rows belong to")
        words = self.vocabulary.words
        table = bilm_hdf5.read_token_vectors(path, self.config.lstm.width)
        if len(table) != len(words):
            raise CheckpointError(f"{path}: {len(table)} token vectors for {len(words)} words")
        self._embedder.cache.fix(words, torch.from_numpy(table).to(self.device))
        self._initial.forget_markers()

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
        """Token vectors of a batch (N, P) with its markers, its packing, its sentences' lengths.

        Words are looked up in the cache; not so while the encoder itself is trained.
        """
        return self._embedder(batch, use_cache=use_cache)

    def all_tokens(self, sentences: Iterable[Sentence]) -> Iterator[tuple[str, ...]]:
        """The tokens of several sentences; what is no such thing is refused at once."""
        check_sentences(sentences, self.config.text.tokenizer)
        return self._tokens_of(sentences)

    def _token_blocks(self, sentences: Iterable[Sentence]) -> Iterator[Sequence[Sequence[str]]]:
        """The same for sentences that are in memory, many at a time: no statement for each."""
        if type(sentences) is not list:
            yield from ([tokens] for tokens in self._tokens_of(sentences))
            return
        for first in range(0, len(sentences), BLOCK_SENTENCES):
            block: list[Any] = sentences[first : first + BLOCK_SENTENCES]
            if set(map(type, block)) == {list}:  # the tokens are checked where they are looked up
                yield block
            else:
                yield from ([tokens] for tokens in self._tokens_of(block, first))

    def _tokens_of(self, sentences: Sentences, first: int = 0) -> Iterator[tuple[str, ...]]:
        """`tokens` of each, with a fast path for ``list[str]``.

        A tuple is made in half the time of a list, and the garbage collector does not look
        through it again and again while it waits for its batch.
        """
        for number, sentence in enumerate(sentences, first):
            if type(sentence) is list and is_tokens(sentence):
                yield tuple(sentence)
            else:
                yield tuple(self.tokens(sentence, number))

    def tokens(self, sentence: Sentence, number: int) -> list[str]:
        """The sentence's tokens; `number` names it when it is no sentence."""
        return sentence_tokens(sentence, number, self.tokenize)
