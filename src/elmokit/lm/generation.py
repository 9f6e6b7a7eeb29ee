"""Text written by the forward direction, one word after the other."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from elmokit.engines.device import no_gradients
from elmokit.errors import ConfigError
from elmokit.lm.forward_reader import ForwardReader
from elmokit.lm.language_model import LanguageModel

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
    """Go on with a text, from left to right, until the sentence ends.

    Every word is drawn from the softmax and read back by the model like any other word. The
    words ``<UNK>`` and ``<S>`` are never drawn; ``</S>`` ends the text and is not given.

    Args:
        elmo: A model with a softmax and a vocabulary.
        prompt: How the sentence begins, as text or as tokens; nothing begins a new one.
        tokens: The most words to write.
        temperature: Below 1 prefers probable words more, above 1 less; 0 always takes the
            most probable one.
        top_k: Draw from this many most probable words only.
        top_p: Draw from the fewest words that have this much probability together; after
            `top_k`, if both are given.
        seed: The same seed gives the same text; torch's own random state is used when left out.

    Returns:
        The new words, without the prompt.

    Raises:
        ConfigError: The model cannot predict words, or a setting is impossible.
    """
    _check(tokens, temperature, top_k, top_p)
    model = LanguageModel(elmo)
    may_say = model.is_word().cpu().clone()  # (V,), changed here alone
    may_say[model.end] = True
    generator = None if seed is None else torch.Generator().manual_seed(seed)
    reader = ForwardReader(elmo)
    written: list[str] = []
    with no_gradients():
        beginning = [elmo.config.text.begin, *elmo.tokens(prompt, 0)]
        layers, states = reader.read([beginning], reader.blank(1))
        while len(written) < tokens:
            # Drawn on the CPU in double precision, so that devices agree on the text.
            logp = model.distribution(layers[-1][-1]).cpu().double()  # (V,)
            logp = logp.masked_fill(~may_say, -torch.inf)
            chosen = _draw(logp, temperature, top_k, top_p, generator)
            if chosen == model.end:
                break
            written.append(model.vocabulary.words[chosen])
            layers, states = reader.read([written[-1:]], states)
    return written


def _draw(
    logp: Tensor,
    temperature: float,
    top_k: int | None,
    top_p: float | None,
    generator: torch.Generator | None,
) -> int:
    """Choose a word from log-probabilities (V,)."""
    if temperature == 0:
        return int(logp.argmax())
    # The difference to the best word comes first: it stays finite at any temperature.
    probabilities = torch.softmax((logp - logp.max()) / temperature, dim=0)  # (V,)
    if top_k is None and top_p is None:
        return int(torch.multinomial(probabilities, 1, generator=generator))
    best = probabilities.topk(min(top_k or len(logp), len(logp)))
    kept = best.values / best.values.sum()  # (k,), most probable first
    if top_p is not None:
        # A word stays if those before it do not have enough; the first one always stays.
        kept = torch.where(kept.cumsum(0) - kept < top_p, kept, 0.0)  # (k,)
    return int(best.indices[torch.multinomial(kept, 1, generator=generator)])


def _check(tokens: int, temperature: float, top_k: int | None, top_p: float | None) -> None:
    if not isinstance(tokens, int) or tokens < 0:
        raise ConfigError(f"tokens={tokens!r}: give the most words to write")
    if not (math.isfinite(temperature) and temperature >= 0):
        raise ConfigError(f"temperature={temperature!r}: give a number of at least 0")
    if top_k is not None and (not isinstance(top_k, int) or top_k < 1):
        raise ConfigError(f"top_k={top_k!r}: give a positive number of words")
    if top_p is not None and not 0 < top_p <= 1:
        raise ConfigError(f"top_p={top_p!r}: give a share above 0, at most 1")
