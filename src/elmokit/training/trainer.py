"""`PretrainTrainer`: a biLM, its data, its loss and its optimizers, as the loop's `Trainable`."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from elmokit.checkpoints import native
from elmokit.checkpoints.checkpoint import Checkpoint
from elmokit.checkpoints.quantized import round_int4, takes_int4
from elmokit.corpus.shards import TokenCorpus
from elmokit.encode.elmo import Elmo
from elmokit.engines import LstmState
from elmokit.errors import CheckpointError, ConfigError
from elmokit.lm.perplexity import Perplexity, perplexity
from elmokit.model.bilm import BiLM, check_weights
from elmokit.model.lstm import LayerOutput
from elmokit.model.packing import Windows
from elmokit.text.inputs import InputBuilder
from elmokit.text.vocab import Vocabulary
from elmokit.training.checkpoint import Snapshot
from elmokit.training.cuda_graphs import CudaGraphRunner
from elmokit.training.data import (
    BatchMaker,
    CorpusWords,
    LmBatch,
    SentenceStreams,
    prefetch_batches,
)
from elmokit.training.distributed import DistContext
from elmokit.training.loop import StepResult
from elmokit.training.losses import (
    CnnLoss,
    DistillLoss,
    FullLoss,
    LogUniformSampler,
    SampledLoss,
    SoftmaxLoss,
)
from elmokit.training.optim import (
    RowGradient,
    RowOptimizer,
    clip_gradients,
    dense_optimizer,
    learning_rate,
    load_optimizer_state,
    merge_rows,
    optimizer_tensors,
)
from elmokit.training.settings import SEEDS, PretrainConfig

_CARRY_ROWS, _CARRY_SENTENCES = 256, 50
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


class _Gradients(NamedTuple):
    """The gradients of one window."""

    losses: Tensor  # (D,) the mean loss of each direction
    dense: list[Tensor]
    rows: list[RowGradient]


class PretrainTrainer:
    """Changes the weights of `bilm`, which is on the context's device; the best go to `folder`.

    The softmax's words are the corpus's most frequent ones when `vocabulary` is left out; `symbols`
    is the dictionary of a Unicode alphabet. If `frozen`, the softmax alone is trained. A `teacher`
    reads the same batches; see `DistillLoss`.
    """

    def __init__(
        self,
        bilm: BiLM,
        corpus: TokenCorpus,
        config: PretrainConfig,
        *,
        context: DistContext,
        folder: Path,
        vocabulary: Vocabulary | None = None,
        symbols: tuple[str, ...] | None = None,
        frozen: bool = False,
        teacher: BiLM | None = None,
    ) -> None:
        if config.data.rows < context.world_size:
            raise ConfigError(
                f"data.rows = {config.data.rows}: fewer than the {context.world_size} processes"
            )
        self._bilm = bilm
        self._corpus = corpus
        self._config = config
        self._context = context
        self._folder = folder
        self._symbols = symbols
        self._dtype = _DTYPES[config.run.precision]
        assert bilm.config.softmax is not None
        size = bilm.config.softmax.words
        text = bilm.config.text
        words = [text.begin, text.end, text.unknown, *corpus.words[3:]]  # as this model spells them
        self.vocabulary: Vocabulary = vocabulary or Vocabulary(
            words[:size], text, corpus.counts[:size]
        )
        inputs = InputBuilder(bilm.config, self.vocabulary, symbols)
        self._table = CorpusWords(words, inputs, self.vocabulary)
        self._sampler: LogUniformSampler | None = None
        if config.loss.kind in ("sampled", "cnn"):
            self._sampler = LogUniformSampler(size, config.loss.negatives)
        self._loss = self._make_loss(size)
        self._bilm.requires_grad_(not frozen)
        assert bilm.softmax is not None
        bilm.softmax.requires_grad_(True)
        if isinstance(self._loss, CnnLoss) and bilm.softmax.weight is not None:
            bilm.softmax.weight.requires_grad_(False)  # made from the spelling, not trained
        bilm.mixes.requires_grad_(False)
        self._rows = context.rows(config.data.rows)
        self._states = bilm.zero_states(len(self._rows))
        self._distill: DistillLoss | None = None
        if teacher is not None:
            self._distill = DistillLoss(teacher, bilm, config.distill.weight, config.run.seed)
            self._teacher_states = teacher.zero_states(len(self._rows))
        self._windows = 0
        self._batches: Generator[LmBatch] | None = None
        self._elmo: Elmo | None = None
        self._dense = [
            (name, parameter)
            for name, parameter in self._named_parameters()
            if parameter.requires_grad
            and not any(parameter is row for row in self._loss.row_parameters)
        ]
        self._int4 = _Int4Weights(bilm.parameters() if config.run.qat_steps else ())
        self._optimizer = dense_optimizer(self._dense, config.optimizer)
        self._row_optimizer = RowOptimizer(self._loss.row_parameters, config.optimizer)
        self._compute = CudaGraphRunner(
            self._gradients, context.device, active=self._loss.capturable
        )
        torch.manual_seed((config.run.seed * 1_000_003 + context.rank) % SEEDS)

    def _make_loss(self, size: int) -> SoftmaxLoss:
        if self._sampler is None:
            return FullLoss(self._bilm)
        expected = torch.from_numpy(self._sampler.log_expected).to(self._context.device)
        if self._config.loss.kind == "sampled":
            return SampledLoss(self._bilm, expected)
        characters = self._bilm.config.characters
        if characters is None:
            raise ConfigError("loss.kind = 'cnn': the model reads no characters")
        projection = nn.Linear(characters.width, self._bilm.config.lstm.width, bias=False)
        generator = torch.Generator().manual_seed(self._config.run.seed)
        nn.init.normal_(projection.weight, std=characters.width**-0.5, generator=generator)
        words = self._table.inputs(np.arange(size))
        return CnnLoss(self._bilm, expected, words, projection.to(self._context.device))

    def _named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        yield from self._bilm.named_parameters()
        if isinstance(self._loss, CnnLoss):
            yield from self._loss.projection.named_parameters("head")
        if self._distill is not None:
            yield from self._distill.maps.named_parameters("distill")

    # One step

    def step(self, number: int) -> StepResult:
        """One optimizer step: forward and backward over windows, all-reduce, clip, update."""
        config = self._config.optimizer
        lr = learning_rate(config, number, self._config.run.max_steps)
        for group in self._optimizer.param_groups:
            group["lr"] = lr
        losses, gradients, used = [], list[Tensor](), list[RowGradient]()
        run = self._config.run
        # Gradients are those at the rounded weights; the optimizer changes the exact ones.
        with self._int4.rounded(active=number >= run.max_steps - run.qat_steps):
            for _ in range(config.accumulate):
                more = self._window()
                losses.append(more.losses)
                used += more.rows
                if gradients:
                    torch._foreach_add_(gradients, more.dense)
                else:
                    gradients = more.dense
        self._context.average(gradients)
        rows = self._context.average_rows(merge_rows(used))
        norm = clip_gradients(gradients, [gradient for _, _, gradient in rows], config.clip_norm)
        for (_, parameter), gradient in zip(self._dense, gradients, strict=True):
            parameter.grad = gradient
        self._optimizer.step()
        self._row_optimizer.step(rows, lr, number + 1)
        self._optimizer.zero_grad(set_to_none=True)
        data = self._config.data
        tokens = data.rows * data.unroll * config.accumulate
        return StepResult(torch.stack(losses).mean(dim=0), norm, tokens, lr)

    def _window(self) -> _Gradients:
        """The gradients of the next window."""
        batch = next(self._prefetched())
        found = self._compute(batch)
        self._windows += 1
        used = None if batch.sample is None else batch.sample.used
        rows = [(p, rows[:used], gradient[:used]) for p, rows, gradient in found.rows]
        losses = found.losses.clone()  # the next window may overwrite it
        if self._config.optimizer.accumulate == 1:
            return _Gradients(losses, found.dense, rows)
        copies = [(p, rows.clone(), gradient.clone()) for p, rows, gradient in rows]
        return _Gradients(losses, [gradient.clone() for gradient in found.dense], copies)

    def _gradients(self, batch: LmBatch) -> _Gradients:
        """Forward and backward pass of a batch: the part of a step that a CUDA graph captures."""
        dropout = self._config.run.dropout
        layers = self._forward(self._bilm, batch, self._states, dropout, self._dtype)
        top = torch.stack(layers[-1].halves)  # (D, N, P)
        sums, used = self._loss(top, batch)
        # Processes are averaged later, so one with more rows than others counts for more.
        share = len(self._rows) * self._context.world_size / self._config.data.rows
        losses = sums * (share / top.shape[1])
        scale = self._config.data.unroll if self._config.loss.times_unroll else 1
        total = losses.mean()
        if self._distill is not None:
            with torch.no_grad():
                wanted = self._forward(
                    self._distill.teacher, batch, self._teacher_states, 0.0, self._dtype
                )
            total = total + self._distill(layers, wanted) * share
            _keep_states(self._teacher_states, wanted)
        if self._config.loss.centering:
            means = torch.stack([torch.stack(layer.halves).float().mean(dim=1) for layer in layers])
            squares = means.square().sum(dim=2).mean(dim=1)  # (L,)
            total = total + squares.sum() * (self._config.loss.centering * share)
        total = total * (scale / self._config.optimizer.accumulate)
        leaves = [*(parameter for _, parameter in self._dense), *(rows.leaf for rows in used)]
        gradients = torch.autograd.grad(total, leaves, allow_unused=True, materialize_grads=True)
        _keep_states(self._states, layers)
        dense = [gradient.contiguous() for gradient in gradients[: len(self._dense)]]
        of_rows = [
            (rows.parameter, rows.rows, gradient)
            for rows, gradient in zip(used, gradients[len(self._dense) :], strict=True)
        ]
        return _Gradients(losses.detach(), dense, of_rows)

    def _forward(
        self,
        bilm: BiLM,
        batch: LmBatch,
        states: Sequence[LstmState],
        dropout: float,
        dtype: torch.dtype,
    ) -> list[LayerOutput]:
        """The outputs of the LSTM layers for a batch, lowest first."""
        not_reset: Tensor | None = None
        if not self._config.data.carry:
            not_reset = (~batch.starts)[..., None].to(dtype)  # (D, T, B, 1)
        words = bilm.embed(*batch.inputs, dtype=dtype)  # (U, P)
        windows = Windows(batch.word_indices, not_reset)
        return list(bilm(words, windows, states, dropout=dropout))[1:]

    def _prefetched(self) -> Iterator[LmBatch]:
        if self._batches is None:
            config = self._config
            streams = SentenceStreams(
                self._corpus.split("train"),
                rows=self._rows,
                total_rows=config.data.rows,
                unroll=config.data.unroll,
                seed=config.run.seed,
                join=config.data.join,
                start=self._windows,
            )
            maker = BatchMaker(
                self._table,
                directions=len(self._bilm.config.lstm.directions),
                sampler=self._sampler,
                seed=config.run.seed,
                gpu=self._context.device.type == "cuda",
            )
            self._batches = prefetch_batches(streams, maker)
        return self._batches

    # Evaluating and saving

    def evaluate(self) -> Mapping[str, float]:
        """Held-out perplexity by the full softmax, both directions and their geometric mean."""
        if not self._context.is_main:
            return {"score": 0.0}
        check_weights(self._bilm.config, self._weights(), str(self._folder))
        result = self.heldout_perplexity(self._config.run.evaluate_tokens)
        backward = {} if result.backward is None else {"backward": result.backward}
        mean = result.perplexity
        return {"score": mean, "perplexity": mean, "forward": result.forward, **backward}

    def heldout_perplexity(self, tokens: int | None) -> Perplexity:
        """Perplexity on the first so many tokens of the held-out text; all when None."""
        if self._elmo is None:
            self._elmo = Elmo(self.checkpoint(), device=self._context.device)  # shares the weights
        elif isinstance(self._loss, CnnLoss):
            self._loss.materialise()
        try:
            carry = self._config.data.carry
            with self._int4.rounded():
                return heldout_perplexity(self._elmo, self._corpus, tokens, carry=carry)
        finally:
            self._elmo.forget()  # what it has computed from weights that will change

    def save_best(self, measured: Mapping[str, float]) -> None:
        """Write the present weights as the run's result."""
        with self._int4.rounded():
            now = self.checkpoint()
            weights = {name: tensor.cpu() for name, tensor in now.weights.items()}
            native.update(replace(now, weights=weights), self._folder)

    def checkpoint(self) -> Checkpoint:
        """The model as it is now, sharing its weights."""
        if isinstance(self._loss, CnnLoss):
            self._loss.materialise()
        return Checkpoint(
            self._bilm.config,
            self._weights(),
            "elmokit",
            str(self._folder),
            vocabulary=self.vocabulary,
            symbols=self._symbols,
        )

    def _weights(self) -> dict[str, Tensor]:
        return {name: tensor.detach() for name, tensor in self._bilm.state_dict().items()}

    # Snapshots

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Weights, optimizer state, LSTM state of all rows, RNG states, position in the data."""
        device = self._context.device
        tensors = {f"model.{name}": p.detach() for name, p in self._named_parameters()}
        tensors.update(self._optimizer_tensors())
        shared = {name: rows.transpose(0, 1) for name, rows in self._lstm_tensors()}  # (B, D, ...)
        shared["random.cpu"] = torch.get_rng_state()[None].to(device)
        if device.type == "cuda":
            shared["random.cuda"] = torch.cuda.get_rng_state(device)[None].to(device)
        for name, rows in shared.items():
            tensors[name] = torch.cat(self._context.gather_rows(rows.contiguous()))
        facts = {"windows": self._windows, "processes": self._context.world_size}
        return tensors, {**facts, **corpus_facts(self._corpus)}

    def _lstm_tensors(self) -> Iterator[tuple[str, Tensor]]:
        """The LSTM state of this process's rows, (D, B, ...), by its names in snapshots."""
        named = [("lstm", self._states)]
        if self._distill is not None:
            named.append(("teacher", self._teacher_states))
        for name, states in named:
            for number, state in enumerate(states):
                for part, rows in zip(("cells", "output"), state, strict=True):
                    yield f"{name}.{number}.{part}", rows

    def restore(self, snapshot: Snapshot) -> None:
        """Load the state of a snapshot, which may be of a run with another world size."""
        tensors = dict(snapshot.tensors)
        check_same_corpus(self._corpus, snapshot.facts)
        try:
            with torch.no_grad():
                for name, parameter in self._named_parameters():
                    parameter.copy_(tensors[f"model.{name}"])
                load_optimizer_state(self._optimizer, self._dense, tensors)
                for name, group in self._optimizer_tensors():
                    group.copy_(tensors[name])
            mine = slice(self._rows.start, self._rows.stop)
            for name, rows in self._lstm_tensors():
                rows.copy_(tensors[name][mine].transpose(0, 1))
            self._windows = int(snapshot.facts["windows"])
            if snapshot.facts["processes"] == self._context.world_size:
                # Copies, because torch reads the state from the start of its storage.
                torch.set_rng_state(tensors["random.cpu"][self._context.rank].clone())
                if "random.cuda" in tensors and self._context.device.type == "cuda":
                    own = tensors["random.cuda"][self._context.rank].clone()
                    torch.cuda.set_rng_state(own, self._context.device)
        except (KeyError, RuntimeError) as error:
            raise CheckpointError(
                f"the snapshot of step {snapshot.step} belongs to a run with other settings "
                f"({error}); start a new one in another folder"
            ) from None
        self.close()

    def close(self) -> None:
        """Stop the prefetching threads; the next step would start new ones."""
        if self._batches is not None:
            self._batches.close()
            self._batches = None

    def _optimizer_tensors(self) -> Iterator[tuple[str, Tensor]]:
        """The state of both optimizers, by names that do not depend on the run."""
        yield from optimizer_tensors(self._optimizer, self._dense)
        for number, state in enumerate(self._row_optimizer.state):
            for kind, tensor in enumerate(state):
                yield f"rows.{number}.{kind}", tensor


class _Int4Weights:
    """Matrices that can be rounded to int4 for a while, as int4 storage rounds them."""

    def __init__(self, parameters: Iterable[nn.Parameter]) -> None:
        self._parameters = [p.detach() for p in parameters if takes_int4(p)]  # share their memory

    @contextmanager
    def rounded(self, *, active: bool = True) -> Iterator[None]:
        """In place, so that a captured CUDA graph sees it."""
        if not active or not self._parameters:
            yield
            return
        exact = [matrix.clone() for matrix in self._parameters]
        for matrix in self._parameters:
            matrix.copy_(round_int4(matrix))
        try:
            yield
        finally:
            torch._foreach_copy_(self._parameters, exact)


def _keep_states(states: Sequence[LstmState], layers: Sequence[LayerOutput]) -> None:
    """Copy the states after a window to where the next one starts."""
    for state, layer in zip(states, layers, strict=True):
        for part, new in zip(state, layer.state, strict=True):
            part.copy_(new)


def corpus_facts(corpus: TokenCorpus) -> dict[str, Any]:
    """What snapshots store of a corpus."""
    text = corpus.split("train")
    sizes = [len(text), text.tokens, len(corpus.words)]
    return {"corpus": sizes, "corpus_hash": corpus.fingerprint}


def check_same_corpus(corpus: TokenCorpus, facts: Mapping[str, Any]) -> None:
    """Raise a `ConfigError` unless a snapshot with these facts was made with this corpus."""
    for name, value in corpus_facts(corpus).items():
        if facts.get(name, value) != value:  # earlier versions stored the sizes alone
            raise ConfigError(
                f"{corpus.folder}: the run was started with another corpus; resume it with the "
                "same one, or start a new one in another folder"
            )


def heldout_perplexity(
    elmo: Elmo, corpus: TokenCorpus, tokens: int | None, *, carry: bool
) -> Perplexity:
    """Perplexity on a corpus's held-out text, or its first so many tokens.

    `carry` says whether the state is carried from one sentence to the next, as in training.
    """
    split = corpus.split("heldout")
    count = len(split)
    if tokens is not None:
        count = min(count, int(np.searchsorted(np.cumsum(split.lengths()), tokens)) + 1)
    sentences = ([corpus.words[i] for i in split.tokens_of(n).tolist()] for n in range(count))
    if not carry:
        return perplexity(elmo, sentences)
    # A zero initial state is rare in such a model's training: each row reads many sentences.
    rows = max(1, min(_CARRY_ROWS, count // _CARRY_SENTENCES))
    return perplexity(elmo, sentences, state="carry", rows=rows)
