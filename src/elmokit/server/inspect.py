"""All intermediate results of the forward pass for one word: what ``/v1/inspect`` answers.

Nothing here is approximate: the steps are those of the model, and the last of them is the vector
that `Elmo.encode` gives.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional as F

from elmokit.engines import no_gradients
from elmokit.lm.language_model import LanguageModel
from elmokit.model.char_cnn import CharacterCnn, Filter, Highway
from elmokit.server.registry import predicts_words
from elmokit.text.inputs import BYTE_SHIFT, Alphabet, ByteAlphabet

if TYPE_CHECKING:
    from elmokit.encode.elmo import Elmo

SHOWN = 8
"""Numbers of a vector that are shown."""
GATE_BINS = 10


def inspect_word(elmo: Elmo, tokens: Sequence[str], position: int, k: int) -> dict[str, Any]:
    """The forward pass of a sentence, as seen from one of its words, ready for JSON.

    At most `k` filters and predictions are given.
    """
    with no_gradients():
        report: dict[str, Any] = {"tokens": list(tokens), "position": position}
        report |= _char_cnn(elmo, tokens[position], k)
        vectors, packing, _ = elmo.embed_tokens([list(tokens)])  # (N, P)
        # The BOS marker shifts everything by one.
        report["token_vector"] = _numbers(vectors[position + 1])
        layers = elmo.bilm(vectors, packing, elmo.bilm.zero_states(1))
        next(layers)  # layer 0 is the token vector
        directions = elmo.config.lstm.directions
        report["layers"] = [
            {
                "number": number,
                "directions": {
                    name: {
                        **_numbers(half[position + 1]),
                        "norms": half[1:-1].norm(dim=1).tolist(),  # (T,)
                    }
                    for name, half in zip(directions, layer.halves, strict=True)
                },
            }
            for number, layer in enumerate(layers, start=1)
        ]
        report["guesses"] = _guesses(elmo, tokens, k) if predicts_words(elmo) else None
    return report


def _numbers(vector: Tensor) -> dict[str, Any]:
    return {"norm": float(vector.norm()), "first": vector[:SHOWN].tolist()}


def _char_cnn(elmo: Elmo, word: str, k: int) -> dict[str, Any]:
    """The steps of the character CNN for a word; empty for a model without one."""
    cnn = elmo.bilm.encoder.characters
    alphabet = elmo.alphabet
    if cnn is None or alphabet is None:
        return {"characters": [], "widths": [], "filters": [], "highways": []}
    ids = alphabet.ids([word])  # (1, C)
    names = _names(alphabet, word, ids[0].tolist())
    responses, starts, widths = _filters(cnn, torch.as_tensor(ids).to(elmo.device))
    x = cnn.activation(responses)  # (F,)
    filters = []
    for number in x.topk(min(k, len(x))).indices.tolist():
        width, start = widths[number], starts[number]
        found = {"number": number, "width": width, "value": float(x[number]), "start": start}
        filters.append({**found, "characters": names[start : start + width]})
    highways = []
    for highway in cnn.highways:
        assert isinstance(highway, Highway)
        gate = highway.gate(x[None])  # (1, F)
        x = highway(x[None])[0]  # (F,)
        bins = torch.histc(gate.float().cpu(), GATE_BINS, 0, 1).long().tolist()
        highways.append({"mean": float(gate.mean()), "bins": bins, "output": _numbers(x)})
    active = [width for width, on in zip(widths, (responses > 0).tolist(), strict=True) if on]
    return {
        "characters": [
            {"character": name, "id": number}
            for name, number in zip(names, ids[0].tolist(), strict=True)
        ],
        "widths": [
            {"width": width, "filters": widths.count(width), "firing": active.count(width)}
            for width in sorted(set(widths))
        ],
        "filters": filters,
        "highways": highways,
    }


def _filters(cnn: CharacterCnn, ids: Tensor) -> tuple[Tensor, list[int], list[int]]:
    """Each filter's largest response (F,), where its window starts, and its width."""
    characters = F.embedding(ids, cnn.embedding)  # (1, C, E)
    values, starts, widths = [], [], []
    for filters in cnn.filters:
        assert isinstance(filters, Filter)
        count, _, width = filters.weight.shape
        # Each window as a word of its own: the model's filter gives its response there.
        windows = characters[0].unfold(0, width, 1).transpose(1, 2)  # (positions, width, E)
        best = filters(windows).max(dim=0)  # of (positions, n)
        values.append(best.values)
        starts += best.indices.tolist()
        widths += [width] * count
    return torch.cat(values), starts, widths


def _names(alphabet: Alphabet, word: str, ids: list[int]) -> list[str]:
    """What each id means: a character, a byte, or a marker."""
    names = []
    for index, number in enumerate(ids):
        if number == alphabet.begin_word:
            names.append("<word>")
        elif number == alphabet.end_word:
            names.append("</word>")
        elif number == alphabet.padding:
            names.append("<pad>")
        elif word in (alphabet.begin_sentence, alphabet.end_sentence):
            names.append(word)
        elif isinstance(alphabet, ByteAlphabet):
            byte = number - BYTE_SHIFT
            names.append(chr(byte) if 0x20 < byte < 0x7F else f"0x{byte:02X}")
        else:
            names.append(word[index - 1])
    return names


def _guesses(elmo: Elmo, tokens: Sequence[str], k: int) -> list[dict[str, Any]]:
    """What both directions predict at each position, without having read the word there."""
    model = LanguageModel(elmo)
    found = []
    predicted = model.predictions(tokens, range(len(tokens)))
    for token, logps in zip(tokens, predicted, strict=True):
        guess: dict[str, Any] = {"token": token, "forward": [], "backward": None}
        for name, logp in logps.items():
            ids, values = model.top_words(logp, k)
            guess[name] = [
                {"word": model.vocabulary.words[index], "probability": probability}
                for index, probability in zip(ids, values.exp().tolist(), strict=True)
            ]
        found.append(guess)
    return found
