"""Character language models of flair, from the files in which flair stores them; without flair.

Three layouts hold them: a language model alone (``LanguageModel.save``: a table with its weights),
a tagger with descriptions of its models and one state dict for all, and, before flair 0.11, a
tagger with the objects themselves. `torch_file` reads all of them without running anything.
`write_flair` stores the same models as ``flair.safetensors``, which holds everything.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from elmokit.checkpoints.torch_file import PickledFile, PickledObject, load_objects
from elmokit.errors import CheckpointError
from elmokit.files import read_tensors, write_tensors

OWN_FILE = "flair.safetensors"
_SIGN = b"is_forward_lm"
_HEAD_BYTES = 1 << 22
_OUR_WAY = {"tokenized_lm": True, "is_lower": False}
"""How flair reads text unless it is told otherwise, and how it is read here."""
_NOT_READ = ("decoder.",)


@dataclass(frozen=True)
class CharacterLM:
    """One direction: an embedding of characters, an LSTM, and maybe a projection."""

    forward: bool
    characters: dict[str, int]
    """Row of each character in the embedding; all others have row 0."""
    delimiter: str
    """What a text starts with."""
    weights: dict[str, Tensor]
    """``encoder.weight``, ``rnn.*`` as in `torch.nn.LSTM`, and maybe ``proj.*``."""
    at_space: bool = True
    """Whether a word's vector is the state after the space that follows, not at its last letter."""

    @property
    def layers(self) -> int:
        """LSTM layers."""
        return sum(name.startswith("rnn.weight_hh_l") for name in self.weights)


def is_flair(path: Path) -> bool:
    """Whether this is a file that holds language models of flair, or a folder of `write_flair`."""
    if path.is_dir():
        return (path / OWN_FILE).is_file()
    if not path.is_file():
        return False
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    return head[:2] in (b"PK", b"\x80\x02", b"\x80\x04") and _SIGN in head


def read_flair(path: Path) -> list[CharacterLM]:
    """All language models of a file, in its order.

    Raises:
        CheckpointError: It holds none, is damaged, or holds some that are not LSTMs.
    """
    found = _own(path / OWN_FILE) if path.is_dir() else _pickled(load_objects(path))
    for model in found:
        _check(model, path)
    return found


def write_flair(models: Sequence[CharacterLM], folder: Path) -> None:
    """Write models as one file of the package's own into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    facts = [
        {"forward": one.forward, "characters": one.characters, "delimiter": one.delimiter,
         "at_space": one.at_space}
        for one in models
    ]  # fmt: skip
    tensors = {f"{i}.{name}": t for i, one in enumerate(models) for name, t in one.weights.items()}
    write_tensors(folder / OWN_FILE, tensors, {"flair": json.dumps(facts)})


def _own(path: Path) -> list[CharacterLM]:
    stored = read_tensors(path, "language models of flair")
    try:
        facts = json.loads(stored.metadata["flair"])
        return [
            CharacterLM(
                bool(one["forward"]), dict(one["characters"]), str(one["delimiter"]),
                _below(stored.tensors, f"{number}."), bool(one["at_space"]),
            )
            for number, one in enumerate(facts)
        ]  # fmt: skip
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"{path}: its description of the models is damaged ({error})"
        ) from None


def _pickled(file: PickledFile) -> list[CharacterLM]:
    described = list(_descriptions(file.root, file.path))
    state = file.tensors(file.root.get("state_dict", {})) if isinstance(file.root, dict) else {}
    prefixes = [name.removesuffix("encoder.weight") for name in state]
    prefixes = [p for p, name in zip(prefixes, state, strict=True) if name == f"{p}encoder.weight"]
    found = []
    for number, (facts, at_space) in enumerate(described):
        if "state_dict" in facts:
            weights = file.tensors(facts["state_dict"])
        elif "_modules" in facts:
            weights = file.tensors(dict(_parameters(facts)))
        elif number < len(prefixes):
            weights = _below(state, prefixes[number])
        else:
            raise CheckpointError(
                f"{file.path}: the weights of language model {number + 1} missing"
            )
        weights = {n: t for n, t in weights.items() if not n.startswith(_NOT_READ)}
        characters = facts["dictionary"].attributes.get("item2idx", {})
        letters = {_text(letter): row for letter, row in characters.items()}
        delimiter = facts.get("document_delimiter", "\n")
        forward = facts["is_forward_lm"] is True
        found.append(CharacterLM(forward, letters, delimiter, weights, at_space))
    if not found:
        raise CheckpointError(
            f"{file.path}: no character language model of flair in it. Taggers of flair hold one "
            "only if they read FlairEmbeddings"
        )
    return found


def _descriptions(root: Any, path: Path) -> Iterator[tuple[Mapping[str, Any], bool]]:
    """Tables and objects that describe a language model, each once, and whether `at_space`."""
    seen: set[int] = set()
    waiting = [(root, True)]
    while waiting:
        part, at_space = waiting.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        inner = part.attributes if isinstance(part, PickledObject) else part
        if isinstance(inner, dict):
            for name, ours in _OUR_WAY.items():
                if inner.get(name, ours) is not ours:
                    raise CheckpointError(
                        f"{path}: embeddings with {name}={inner[name]} are not read"
                    )
            if isinstance(inner.get("dictionary"), PickledObject) and "is_forward_lm" in inner:
                yield inner, at_space
                continue
            at_space = inner.get("with_whitespace", at_space) is True
            inner = inner.values()
        if isinstance(inner, str | bytes) or not hasattr(inner, "__iter__"):
            continue
        waiting.extend((one, at_space) for one in reversed(list(inner)))


def _parameters(module: Mapping[str, Any], prefix: str = "", depth: int = 0) -> Iterator[Any]:
    """Names and tensors of a module that was stored as an object."""
    for name, tensor in module.get("_parameters", {}).items():
        yield f"{prefix}{name}", tensor
    for name, inner in module.get("_modules", {}).items():
        if isinstance(inner, PickledObject) and depth < 3:
            yield from _parameters(inner.attributes, f"{prefix}{name}.", depth + 1)


def _below(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}


def _text(letter: Any) -> str:
    return letter.decode("utf-8", "replace") if isinstance(letter, bytes) else str(letter)


def _check(model: CharacterLM, path: Path) -> None:
    """Refuse weights that do not fit together."""
    direction = "forward" if model.forward else "backward"
    encoder = model.weights.get("encoder.weight", torch.zeros(0))
    needed: dict[str, tuple[int, ...]] = {}
    if encoder.ndim == 2 and model.layers:
        rows, width = encoder.shape
        cells = model.weights["rnn.weight_hh_l0"].shape[-1]
        needed["encoder.weight"] = (rows, width)
        for layer in range(model.layers):
            needed[f"rnn.weight_ih_l{layer}"] = (4 * cells, cells if layer else width)
            needed[f"rnn.weight_hh_l{layer}"] = (4 * cells, cells)
            needed[f"rnn.bias_ih_l{layer}"] = needed[f"rnn.bias_hh_l{layer}"] = (4 * cells,)
        if "proj.weight" in model.weights:
            out = len(model.weights["proj.weight"])
            needed |= {"proj.weight": (out, cells), "proj.bias": (out,)}
    found = {name: tuple(tensor.shape) for name, tensor in model.weights.items()}
    if not needed or needed != found:
        raise CheckpointError(
            f"{path}: the {direction} language model is no LSTM over characters of flair, or its "
            "weights do not fit together"
        )
    if not all(bool(torch.isfinite(tensor).all()) for tensor in model.weights.values()):
        raise CheckpointError(f"{path}: the {direction} model holds NaN or infinite values")
    rows = len(encoder)
    good = all(type(row) is int and 0 <= row < rows for row in model.characters.values())
    if not good or not isinstance(model.delimiter, str) or not model.delimiter:
        raise CheckpointError(
            f"{path}: the characters of the {direction} language model are damaged"
        )
