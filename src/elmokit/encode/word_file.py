"""Token vectors of known words as a file, so that the next run need not compute them.

A safetensors file: ``vectors`` (n, P) in float32, ``words`` (all words' UTF-8 one after another)
and ``ends`` (where each word ends), least recently used first. The metadata names the model and
holds a CRC-32 of each tensor.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from elmokit.config import to_dict
from elmokit.errors import DataError
from elmokit.files import atomic_file
from elmokit.model.bilm import BiLM
from elmokit.text.vocab import Vocabulary

FORMAT = "elmokit words 1"
_AGAIN = "Delete it to have it made anew"


def model_key(
    bilm: BiLM, vocabulary: Vocabulary | None, symbols: Sequence[str] | None, precision: str
) -> str:
    """Differs between models whose token vectors differ."""
    config = to_dict(bilm.config)
    parts = [config.get(name) for name in ("characters", "words", "input_projection")]
    # The tokeniser makes the tokens, and has no say in their vectors.
    parts.append({name: part for name, part in config["text"].items() if name != "tokenizer"})
    if bilm.config.words is None:
        vocabulary = None  # read by the softmax alone
    lists = [None if vocabulary is None else vocabulary.words, symbols, precision]
    digest = hashlib.sha256(json.dumps([parts, lists]).encode())
    for name, tensor in sorted(bilm.encoder.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().numpy().data)
    return digest.hexdigest()


def write(path: Path, model: str, words: Sequence[str], vectors: Tensor) -> None:
    """Write the words and vectors (n, P) of a model."""
    from safetensors.torch import save_file

    # Odd words are words too: half a surrogate pair comes back as it was.
    spelled = [word.encode("utf-8", "surrogatepass") for word in words]
    ends = torch.tensor([len(word) for word in spelled], dtype=torch.int64).cumsum(0)
    letters = torch.frombuffer(bytearray(b"".join(spelled)) or bytearray(1), dtype=torch.uint8)
    tensors = {
        "vectors": vectors.cpu().contiguous(),
        "words": letters[: int(ends[-1]) if len(ends) else 0],
        "ends": ends,
    }
    metadata = {
        "format": FORMAT,
        "model": model,
        "crc32": json.dumps({name: _crc(tensor) for name, tensor in tensors.items()}),
    }
    with atomic_file(path) as temporary:
        save_file(tensors, temporary, metadata=metadata)


def read(path: Path, model: str, width: int) -> tuple[list[str], Tensor]:
    """Read the words and vectors (n, P) of a model.

    Raises:
        DataError: The file is missing, damaged, something else, or of another model.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            if metadata.get("format") != FORMAT:
                raise DataError(f"{path}: this is no word cache of elmokit")
            if metadata.get("model") != model:
                raise DataError(
                    f"{path}: this word cache belongs to another model or precision; "
                    "give each its own file"
                )
            tensors = {name: file.get_tensor(name).clone() for name in ("vectors", "words", "ends")}
        checks = json.loads(metadata.get("crc32", "{}"))
    except FileNotFoundError:
        raise DataError(f"{path}: there is no such file") from None
    except (SafetensorError, OSError, ValueError, RecursionError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{path}: this word cache cannot be read ({error}). {_AGAIN}") from None
    vectors, letters, ends = tensors["vectors"], tensors["words"], tensors["ends"]
    sound = (
        isinstance(checks, dict)
        and all(checks.get(name) == _crc(tensor) for name, tensor in tensors.items())
        and (vectors.dtype, letters.dtype, ends.dtype) == (torch.float32, torch.uint8, torch.int64)
        and vectors.shape == (len(ends), width if len(ends) else 0)
    )
    if not sound:
        raise DataError(f"{path}: this word cache is damaged. {_AGAIN}")
    spelled = letters.numpy().tobytes()
    stops = ends.tolist()
    words = [
        spelled[start:stop].decode("utf-8", "surrogatepass")
        for start, stop in zip([0, *stops], stops, strict=False)
    ]
    return words, vectors


def _crc(tensor: Tensor) -> int:
    return zlib.crc32(tensor.contiguous().numpy().data)
