"""Generation with the forward direction alone, word by word."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from elmokit.engines import LstmState, no_gradients
from elmokit.errors import ConfigError
from elmokit.lm.language_model import LanguageModel
from elmokit.model.lstm import BiLstm
from elmokit.model.packing import Packing

if TYPE_CHECKING:
    from elmokit.encode.elmo import Elmo, Sentence


def generate(
    elmo: Elmo,
    prompt: Sentence = "",
    *,
    tokens: int = 20,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int | None = None,
) -> list[str]:
    """Continue a text, from left to right, until the sentence ends.

    Every word is sampled from the softmax and fed back as the next input. The words ``<UNK>``
    and ``<S>`` are never sampled; ``</S>`` ends the text and is not returned.

    Args:
        elmo: A model with a softmax and a vocabulary.
        prompt: How the sentence begins, as text or as tokens; a new sentence when empty.
        tokens: The most words to generate.
        temperature: Below 1 prefers probable words more, above 1 less; 0 always takes the
            most probable one.
        top_k: Sample from this many most probable words only.
        top_p: Sample from the fewest words whose probabilities sum to this; after
            `top_k`, if both are given.
        seed: The same seed gives the same text; torch's own random state is used when left out.

    Returns:
        The new words, without the prompt.

    Raises:
        ConfigError: The model cannot predict words, or a setting is impossible.
    """
    if not isinstance(tokens, int) or tokens < 0:
        raise ConfigError(f"tokens={tokens!r}: give the most words to generate")
    if not (math.isfinite(temperature) and temperature >= 0):
        raise ConfigError(f"temperature={temperature!r}: give a number of at least 0")
    if top_k is not None and (not isinstance(top_k, int) or top_k < 1):
        raise ConfigError(f"top_k={top_k!r}: give a positive number of words")
    if top_p is not None and not 0 < top_p <= 1:
        raise ConfigError(f"top_p={top_p!r}: give a share above 0, at most 1")
    if seed is not None and (type(seed) is not int or not 0 <= seed < 1 << 64):
        raise ConfigError(f"seed={seed!r}: give a whole number from 0, below 2**64")
    model = LanguageModel(elmo)
    allowed = model.is_word().cpu().clone()  # (V,)
    allowed[model.end] = True
    generator = None if seed is None else torch.Generator().manual_seed(seed)
    reader = ForwardReader(elmo)
    generated: list[str] = []
    with no_gradients():
        words = [elmo.config.text.begin, *elmo.tokens(prompt, 0)]
        layers, states = reader.read([words], reader.zero_state(1))
        while len(generated) < tokens:
            # Sampled on the CPU in double precision: the text does not depend on the device.
            logp = model.distribution(layers[-1][-1]).cpu().double()  # (V,)
            logp = logp.masked_fill(~allowed, -torch.inf)
            chosen = _sample(logp, temperature, top_k, top_p, generator)
            if chosen == model.end:
                break
            generated.append(model.vocabulary.words[chosen])
            layers, states = reader.read([generated[-1:]], states)
    return generated


def _sample(
    logp: Tensor,
    temperature: float,
    top_k: int | None,
    top_p: float | None,
    generator: torch.Generator | None,
) -> int:
    """Sample a word from log-probabilities (V,)."""
    if temperature == 0:
        return int(logp.argmax())
    # The maximum is subtracted first: the difference stays finite at any temperature.
    probabilities = torch.softmax((logp - logp.max()) / temperature, dim=0)  # (V,)
    if top_k is None and top_p is None:
        return int(torch.multinomial(probabilities, 1, generator=generator))
    best = probabilities.topk(min(top_k or len(logp), len(logp)))
    kept = best.values / best.values.sum()  # (k,), most probable first
    if top_p is not None:
        # A word stays if those before it sum to less; the first one always stays.
        kept = torch.where(kept.cumsum(0) - kept < top_p, kept, 0.0)  # (k,)
    return int(best.indices[torch.multinomial(kept, 1, generator=generator)])


class ForwardReader:
    """The forward direction with an explicit state: words after a token are never read.

    The weights are shared; words are looked up in the cache unless the model is trained.
    """

    def __init__(self, elmo: Elmo, *, use_cache: bool = True) -> None:
        self._elmo = elmo
        self._use_cache = use_cache
        lstm = elmo.bilm.lstm
        with torch.device("meta"):  # no memory: the weights are the model's own
            self._lstm = BiLstm(replace(lstm.config, backward=False))
        self._lstm.add_module("forward_stack", lstm.get_submodule("forward_stack"))

    def zero_state(self, rows: int) -> list[LstmState]:
        """The zero initial state of some rows."""
        return self._lstm.zero_states(rows)

    def read(
        self, rows: Sequence[Sequence[str]], states: list[LstmState]
    ) -> tuple[list[Tensor], list[LstmState]]:
        """Read the next words of each row, at least one.

        Returns their L + 1 layers, row after row, (N, P) each, and the states after them.
        """
        flat = [word for words in rows for word in words]
        vectors = self._elmo.embed_tokens([flat], use_cache=self._use_cache)[0]
        x = vectors[1:-1]  # (N, P), without markers
        packing = Packing([len(words) for words in rows], x.device)
        outputs = list(self._lstm(x, packing, states))
        return [x, *(out.vectors for out in outputs)], [out.state for out in outputs]


def choose_rows(states: list[LstmState], rows: Tensor) -> list[LstmState]:
    """The states of the rows with these indices, (M,)."""
    return [LstmState(*(part.index_select(1, rows) for part in state)) for state in states]
