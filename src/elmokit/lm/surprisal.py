"""Surprisal of every word, as a table for statistics.

    table = surprisal(elmo, read_stimuli("stimuli.csv"))
    table.save("table.csv")

One row per word. Surprisal is ``-log2 p``, under the full softmax: forward after all words to the
left, backward before all words to the right, two-sided given both. A word outside the vocabulary is
marked: it has the probability of ``<UNK>`` times that of its spelling among unknown words.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, groupby, islice, pairwise
from typing import TYPE_CHECKING, Literal
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elmokit.engines import no_gradients
from elmokit.errors import ConfigError
from elmokit.lm.language_model import BATCH_TOKENS, LanguageModel
from elmokit.lm.perplexity import StreamPacking
from elmokit.lm.stimuli import MEASURES, Row, Stimulus, Tokenised, tokenised, write_table
from elmokit.lm.substitutes import combined
from elmokit.text.batching import run_in_batches
from elmokit.text.tokens import check_sentences
from elmokit.text.vocab import Vocabulary

if TYPE_CHECKING:
    from elmokit.encode.elmo import Elmo

DIGITS = 6
"""Decimals of a number in the table: what is written is read back as the same number."""
LOGITS = 1 << 23
"""The most logits of a direction at a time, 32 MB."""
SPELLING_ORDER = 5
"""Characters of the n-grams by which unknown words are spelled, chosen on held-out rare words by
``benchmarks/models/surprisal.py``."""


class SurprisalTable(list[Row]):
    """One dictionary per word; ``pandas.DataFrame(table)`` and ``polars.DataFrame(table)`` take it.

    The columns are those of the stimuli, then ``sentence`` and ``position`` (counted from 1, unless
    the stimuli have columns of these names), ``word``, and `MEASURES`:

    - ``forward``, ``backward``: surprisal in bits, by each direction.
    - ``two_sided``: surprisal under the product of both directions' probabilities, divided by the
      word's frequency to the power of `elmokit.lm.substitutes.UNIGRAM_EXPONENT` (a model without
      word counts: not divided), and normalised over all words of the vocabulary, special ones left
      out. None for a word outside the vocabulary.
    - ``entropy``: of the forward distribution before the word, in bits.
    - ``rank``: 1 + the number of entries of the softmax to which the forward direction gives more.
    - ``frequency``: occurrences per million words of the training text, if the model has counts.
    - ``length``: characters.
    - ``oov``: whether the vocabulary lacks the word. Such a word has neither two-sided surprisal
      nor rank nor frequency; its forward and backward surprisal are estimates.
    - ``spelling``: the bits of the estimate that are due to the spelling; 0 for other words.
    - ``forward_prev1``, ``forward_prev2``: forward surprisal of the word before, and of the one
      before that: in the sentence, with ``state="carry"`` in the document.
    """

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a table: CSV, TSV or Parquet, by the suffix of the name; see `write_table`."""
        write_table(self, path)


def surprisal(
    elmo: Elmo,
    sentences: str | Iterable[Stimulus],
    *,
    state: Literal["fresh", "carry"] = "fresh",
    batch_tokens: int = BATCH_TOKENS,
) -> SurprisalTable:
    """Measure the surprisal of every word.

    Args:
        elmo: A model with a softmax and a vocabulary.
        sentences: One text; or many, each as text, as a list of tokens, or as a row of stimuli: a
            mapping from columns to values, as `read_stimuli` reads them.
        state: ``"fresh"``: every sentence starts from a zero initial state. ``"carry"``: the
            forward LSTM starts a sentence with its state after the one before, the backward LSTM
            with its state after the one that follows. Sentences in a row with the same value in the
            column ``document`` are one document; without that column all of them are.
        batch_tokens: The most tokens run together; a document is not split.

    Returns:
        One row per word.

    Raises:
        ConfigError: The model cannot predict words, or a setting is impossible.
        DataError: A sentence is not what it should be; or a word is outside a vocabulary that has
            no ``<UNK>``.
    """
    many = [sentences] if isinstance(sentences, str) else sentences
    return SurprisalTable(surprisal_stream(elmo, many, state=state, batch_tokens=batch_tokens))


def surprisal_stream(
    elmo: Elmo,
    sentences: Iterable[Stimulus],
    *,
    state: Literal["fresh", "carry"] = "fresh",
    batch_tokens: int = BATCH_TOKENS,
) -> Iterator[Row]:
    """Like `surprisal` for a stream of any length: rows come in order, memory is bounded."""
    model = LanguageModel(elmo)
    if state not in ("fresh", "carry"):
        raise ConfigError(f"state={state!r}: use 'fresh' or 'carry'")
    if not isinstance(batch_tokens, int) or batch_tokens < 1:
        raise ConfigError(f"batch_tokens={batch_tokens!r}: give a positive number")
    check_sentences(sentences, elmo.config.text.tokenizer)
    read = (sentence for sentence in tokenised(elmo, sentences) if sentence.tokens)
    documents: Iterator[list[Tokenised]]
    if state == "carry":
        documents = (list(some) for _, some in groupby(read, key=lambda s: s.document))
    else:
        documents = ([sentence] for sentence in read)
    tables = run_in_batches(
        documents,
        lambda document: sum(len(sentence.tokens) + 2 for sentence in document),
        lambda batch: _measure(model, batch),
        batch_tokens,
    )
    return chain.from_iterable(tables)


def _measure(model: LanguageModel, documents: Sequence[Sequence[Tokenised]]) -> list[list[Row]]:
    """The rows of each document."""
    sentences = list(chain.from_iterable(documents))
    ids = [model.ids(sentence.tokens) for sentence in sentences]
    known = [[word in model.vocabulary for word in sentence.tokens] for sentence in sentences]
    with no_gradients():
        outputs = _outputs(model, documents)
        targets = torch.tensor(list(chain.from_iterable(ids)), device=model.elmo.device)  # (W,)
        size = max(1, LOGITS // len(model.vocabulary))
        blocks = [
            _numbers(model, {name: x[i : i + size] for name, x in outputs.items()}, some)
            for i, some in zip(range(0, len(targets), size), targets.split(size), strict=True)
        ]
    numbers = np.concatenate(blocks).tolist()  # W x 5
    described = zip(
        chain.from_iterable(s.tokens for s in sentences),
        chain.from_iterable(ids),
        chain.from_iterable(known),
        numbers,
        strict=True,
    )
    counts = model.vocabulary.counts
    # The special rows, if they are counted, are not words.
    total = 0 if counts is None else int(counts[model.is_word().cpu().numpy()].sum())
    words = (_describe(model, total, *about) for about in described)
    tables = []
    for document in documents:
        rows: list[Row] = []
        for columns in chain.from_iterable(sentence.columns for sentence in document):
            before = [rows[-n]["forward"] if len(rows) >= n else None for n in (1, 2)]
            spill_over = {"forward_prev1": before[0], "forward_prev2": before[1]}
            rows.append(_ordered({**columns, **next(words), **spill_over}))
        tables.append(rows)
    return tables


def _ordered(row: Row) -> Row:
    """The stimuli's columns, then the sentence's, then the word's."""
    last = ("sentence", "region", "position", "word", *MEASURES)
    return {
        **{name: value for name, value in row.items() if name not in last},
        **{name: row[name] for name in last if name in row},
    }


def _outputs(model: LanguageModel, documents: Sequence[Sequence[Tokenised]]) -> dict[str, Tensor]:
    """The output of each direction by which each word is predicted: (W, P).

    A direction reads a document as one sequence, forward ``<S> w1 ... wn <S> ...``, backward
    ``</S> wn ... w1 </S> ...`` from the last sentence to the first: as in training, the marker at a
    sentence's far end is predicted but never read.
    """
    vectors, _, lengths = model.elmo.embed_tokens([s.tokens for d in documents for s in d])
    bounds = pairwise(np.cumsum([0, *lengths]).tolist())
    spans = [list(islice(bounds, len(document))) for document in documents]  # with both markers
    read = {
        "forward": [range(a, b - 1) for some in spans for a, b in some],
        "backward": [range(b - 1, a, -1) for some in spans for a, b in reversed(some)],
    }
    device = vectors.device
    order = {
        name: torch.tensor(list(chain.from_iterable(read[name])), device=device)  # (M,)
        for name in model.directions
    }
    x = vectors[torch.cat(list(order.values()))]  # (2M, P)
    packing = StreamPacking([sum(b - a - 1 for a, b in some) for some in spans], device)
    top = x
    for layer in model.elmo.bilm.lstm(x, packing, model.elmo.bilm.zero_states(len(documents))):
        top = layer.vectors  # (M, 2P)
    is_word = torch.ones(len(vectors), dtype=torch.bool, device=device)  # (N,)
    markers = [index for some in spans for a, b in some for index in (a, b - 1)]
    is_word[torch.tensor(markers, device=device)] = False
    outputs = {}
    for half, name in zip(top.chunk(len(model.directions), dim=1), model.directions, strict=True):
        row = torch.zeros(len(vectors), dtype=torch.long, device=device)  # (N,)
        predicted = order[name] + (1 if name == "forward" else -1)  # (M,)
        row[predicted] = torch.arange(len(predicted), device=device)
        outputs[name] = half[row[is_word]]  # (W, P)
    return outputs


def _numbers(model: LanguageModel, x: Mapping[str, Tensor], targets: Tensor) -> NDArray[np.float64]:
    """Forward, backward and two-sided surprisal, entropy, rank: (n, 5); NaN for no backward."""

    def of_targets(logps: Tensor) -> Tensor:
        return logps.gather(1, targets[:, None])[:, 0]  # (n,)

    logps = {name: model.distributions(rows).float() for name, rows in x.items()}  # (n, V)
    forward = logps["forward"]
    entropy = torch.special.entr(forward.exp()).sum(dim=1)
    rank = 1 + (forward > of_targets(forward)[:, None]).sum(dim=1)
    backward = both = torch.full_like(entropy, math.nan)
    if "backward" in logps:
        backward = -of_targets(logps["backward"])
        product = combined(list(logps.values()), model.log_counts())  # (n, V)
        product = product.masked_fill(~model.is_word(), -torch.inf)
        both = product.logsumexp(dim=1) - of_targets(product)
    nats = torch.stack([-of_targets(forward), backward, both, entropy], dim=1)  # (n, 4)
    numbers = torch.cat([nats.cpu().double() / math.log(2), rank[:, None].cpu().double()], dim=1)
    return numbers.numpy()


def _describe(
    model: LanguageModel, total: int, word: str, number: int, known: bool, numbers: Sequence[float]
) -> Row:
    """What the table says of a word, spill-over left out; `total` is the sum of all counts."""
    forward, backward, both, entropy, rank = numbers
    vocabulary = model.vocabulary
    spelling = 0.0 if known else _spelling_of(model).bits(word)
    is_word = known and number not in (vocabulary.begin, vocabulary.end, vocabulary.unknown)
    frequency = None
    if is_word and total and vocabulary.counts is not None:
        frequency = round(1e6 * int(vocabulary.counts[number]) / total, DIGITS)
    return {
        "forward": round(forward + spelling, DIGITS),
        "backward": None if math.isnan(backward) else round(backward + spelling, DIGITS),
        "two_sided": None if math.isnan(both) or not is_word else round(both, DIGITS),
        "entropy": round(entropy, DIGITS),
        "rank": int(rank) if known else None,
        "frequency": frequency,
        "length": len(word),
        "oov": not known,
        "spelling": round(spelling, DIGITS),
    }


class SpellingModel:
    """Probabilities of spellings: character n-grams of a vocabulary's words, each counted once.

    Rare words are spelled like unknown ones, and most words of a vocabulary are rare: so a word's
    frequency has no weight. Orders are interpolated after Witten and Bell; the lowest falls back to
    all code points alike, so every word has a probability.

    Args:
        words: The vocabulary's words.
        order: Length of the n-grams.
    """

    _END = "\n"  # ends a word, and is in none
    _BLOCK = 1 << 16

    def __init__(self, words: Sequence[str], order: int = SPELLING_ORDER) -> None:
        codes = self._codes(words)
        self._characters = np.unique(codes)
        self._base = len(self._characters) + 1  # the last one is a character never seen
        while self._base**order > np.iinfo(np.int64).max:  # many characters: shorter n-grams
            order -= 1
        self._order = order
        self._grams: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = []
        self._contexts: list[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]] = []
        for keys in self._keys(codes):
            grams, counts = np.unique(keys, return_counts=True)
            contexts, first, types = np.unique(
                grams // self._base, return_index=True, return_counts=True
            )
            totals = np.add.reduceat(counts, first) if len(first) else counts
            self._grams.append((grams, counts))
            self._contexts.append((contexts, totals, types))
        blocks = (words[i : i + self._BLOCK] for i in range(0, len(words), self._BLOCK))
        inside = math.fsum(float(np.exp2(self.log2(block)).sum()) for block in blocks)
        self._log2_outside = math.log2(max(1 - inside, np.finfo(float).tiny))

    def bits(self, word: str) -> float:
        """Surprisal of a spelling, given that it is none of the vocabulary's words."""
        return float(self._log2_outside - self.log2([word])[0])

    def log2(self, words: Sequence[str]) -> NDArray[np.float64]:
        """Logarithm of each spelling's probability among all spellings."""
        codes = self._codes(words)
        p = np.full(len(codes), 1 / 0x110000)
        tables = zip(self._keys(codes), self._grams, self._contexts, strict=True)
        for keys, (grams, counts), (contexts, totals, types) in tables:
            count = _looked_up(grams, counts, keys)
            total = _looked_up(contexts, totals, keys // self._base)
            kinds = _looked_up(contexts, types, keys // self._base)
            p = np.where(total > 0, (count + kinds * p) / np.maximum(total + kinds, 1), p)
        ends = np.cumsum([len(word) + 1 for word in words])
        starts = np.concatenate([[0], ends[:-1]]).astype(np.int64)
        return np.add.reduceat(np.log2(p), starts) if len(words) else np.zeros(0)

    def _codes(self, words: Sequence[str]) -> NDArray[np.int64]:
        """Code points of all words, each with the end after it."""
        text = "".join(f"{word.replace(self._END, ' ')}{self._END}" for word in words)
        return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4").astype(np.int64)

    def _keys(self, codes: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
        """For n-grams of 1 character and more, a number for each that ends at each character."""
        index = np.searchsorted(self._characters, codes)
        seen = self._characters[np.minimum(index, len(self._characters) - 1)] == codes
        x = np.where(seen, index, self._base - 1)  # (N,)
        end = int(np.searchsorted(self._characters, ord(self._END)))
        keys = x
        before = x
        for order in range(1, self._order + 1):
            yield keys
            # What goes before a word is its end, as often as needed.
            shifted = np.concatenate([[end], before[:-1]])
            first = np.concatenate([[end], x[:-1]]) == end
            before = np.where(first, end, shifted)
            keys = keys + before * self._base**order if order < self._order else keys


def _looked_up(
    keys: NDArray[np.int64], values: NDArray[np.int64], wanted: NDArray[np.int64]
) -> NDArray[np.int64]:
    """The values of wanted keys among sorted ones, 0 where there is none."""
    index = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[index] == wanted, values[index], 0)


_SPELLINGS: WeakKeyDictionary[Vocabulary, SpellingModel] = WeakKeyDictionary()


def _spelling_of(model: LanguageModel) -> SpellingModel:
    found = _SPELLINGS.get(model.vocabulary)
    if found is None:
        words = model.vocabulary.words
        named = [words[number] for number in model.is_word().nonzero()[:, 0].tolist()]
        found = _SPELLINGS[model.vocabulary] = SpellingModel(named)
    return found
