"""The page without a server: a folder of files that any web server can give out.

``index.html`` with its scripts, ``sw.js`` (the service worker that keeps the files), ``site.json``
(what there is) and ``data``: gzip-compressed, named by their contents, onnxruntime's WASM file and
the graphs, softmax and words of each model.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import lzma
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from elmokit import __version__
from elmokit.checkpoints.export import softmax_graph, step_graph
from elmokit.config import to_dict
from elmokit.errors import ConfigError, DataError
from elmokit.files import atomic_folder, write_text
from elmokit.server.registry import describe_model
from elmokit.text.tokens import get_tokenizer

if TYPE_CHECKING:
    from elmokit.encode.elmo import Elmo

STATIC_PAGE: Path = Path(__file__).parent / "static_page"
"""The built page, by ``make page``."""
RUNTIME: Path = Path(__file__).parent / "onnxruntime-web.wasm.xz"
FORMAT = "elmokit-site"
LIST = "site.json"
TOKENIZERS = ("space", "words", "chars", "jieba")
"""Those that the page has."""
NAMES = ("index.html", "licences.txt", "sw.js", LIST, "assets", "data")
"""Everything in the folder that is ours."""


def write_site(
    models: Mapping[str, Elmo], folder: Path, *, storage: Literal["int8", "float32"] = "int8"
) -> None:
    """Write the page with these models, the first of them chosen first.

    Args:
        models: By the names that the page shows.
        folder: A new folder, or a site to be replaced; files of other names in it stay.
        storage: How weights are stored: ``"int8"`` is a quarter of the size or less (int4 where
            the model was stored so), and loses nothing for models that were stored so before;
            ``"float32"`` never does. Both are computed with in float32.

    Raises:
        ConfigError: A model has a tokeniser that the page lacks.
        DataError: The folder holds something else.
        MissingExtraError: The package onnx is not installed, or jieba for a model that needs it.
    """
    for name, elmo in models.items():
        _check_tokenizer(name, elmo)
    with atomic_folder(folder, _check_ours, owns=NAMES.__contains__) as fresh:
        shutil.copytree(STATIC_PAGE, fresh, dirs_exist_ok=True)
        (fresh / "data").mkdir()
        runtime = _add(fresh, "runtime", lzma.decompress(RUNTIME.read_bytes()))
        described = [_add_model(fresh, name, elmo, storage) for name, elmo in models.items()]
        named = [
            path.relative_to(fresh).as_posix()
            for part in ("assets", "data")
            for path in sorted((fresh / part).iterdir())
        ]
        site = {
            "format": FORMAT,
            "version": __version__,
            "storage": storage,
            "runtime": runtime,
            "files": named,
            "models": described,
            "predictors": [],
        }
        write_text(fresh / LIST, json.dumps(site, ensure_ascii=False) + "\n")


def _check_tokenizer(name: str, elmo: Elmo) -> None:
    tokenizer = elmo.config.text.tokenizer
    if tokenizer not in TOKENIZERS:
        raise ConfigError(
            f"the model {name!r} splits text with {tokenizer!r}, which does not run in a "
            f"browser; choose another with --tokenizer: {', '.join(TOKENIZERS)}"
        )
    get_tokenizer(tokenizer)  # raises if its package is missing


def jieba_dictionary() -> dict[str, Any]:
    """Words of jieba, their counts, and its probabilities for words that it does not know."""
    get_tokenizer("jieba").tokenize("")  # reads the dictionary, if it has not been read
    import jieba
    from jieba import finalseg

    counts = {word: count for word, count in jieba.dt.FREQ.items() if count}  # others are prefixes
    return {
        "words": list(counts),
        "counts": list(counts.values()),
        "total": jieba.dt.total,
        "start": finalseg.start_P,
        "trans": finalseg.trans_P,
        "emit": finalseg.emit_P,
    }


def _check_ours(folder: Path) -> None:
    try:
        ours = json.loads((folder / LIST).read_text("utf-8"))["format"] == FORMAT
    except (OSError, ValueError, KeyError, TypeError):
        ours = False
    if not ours:
        raise DataError(f"{folder} holds other files and no site of elmokit; choose another folder")


def _add_model(folder: Path, name: str, elmo: Elmo, storage: str) -> dict[str, Any]:
    """Write a model's files; what the page has to know of it."""
    checkpoint = elmo.checkpoint()
    int8 = storage == "int8"
    facts = describe_model(name, elmo)
    config = elmo.config
    softmax = config.softmax
    # An adaptive softmax is no one matrix: such a model shows everything but predictions.
    if softmax is not None and softmax.cutoffs:
        facts["predicts_words"] = False
    graph = step_graph(checkpoint, int8=int8)
    files: dict[str, Any] = {
        "graph": _add(folder, f"{name}-graph", graph),
        "softmax": None,
        "vocabulary": None,
        "segmenter": None,
    }
    if facts["predicts_words"]:
        assert softmax is not None
        matrix = "encoder.words.embedding" if softmax.tied else "softmax.weight"
        weights = checkpoint.weights
        content = softmax_graph(weights[matrix], weights["softmax.bias"], int8=int8)
        files["softmax"] = _add(folder, f"{name}-softmax", content)
    if checkpoint.vocabulary is not None:
        counts = checkpoint.vocabulary.counts
        stored = {
            "words": checkpoint.vocabulary.words,
            "counts": None if counts is None else counts.tolist(),
        }
        files["vocabulary"] = _add(folder, f"{name}-words", _json(stored))
    if config.text.tokenizer == "jieba":
        files["segmenter"] = _add(folder, "jieba", _json(jieba_dictionary()))
    parts = {"characters": None, "words": None} | to_dict(config)
    return facts | files | {"config": parts, "symbols": checkpoint.symbols}


def _json(stored: Mapping[str, Any]) -> bytes:
    return json.dumps(stored, ensure_ascii=False, separators=(",", ":")).encode("utf-8")


def _add(folder: Path, name: str, content: bytes) -> dict[str, Any]:
    """Write a compressed file, whose name tells its contents; its entry in the list."""
    packed = gzip.compress(content, 6, mtime=0)
    digest = hashlib.sha256(packed).hexdigest()[:12]
    # `.gz` would make some servers decompress it on the way.
    path = f"data/{re.sub(r'[^A-Za-z0-9._-]', '_', name)}-{digest}.bin"
    (folder / path).write_bytes(packed)
    return {"path": path, "bytes": len(packed)}
