"""``elmokit info``: what a model is made of; ``recipes``: the settings in the package."""

from __future__ import annotations

import json
import platform
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from elmokit.cli.models import as_dict, published_model, show_published
from elmokit.cli.options import (
    MODEL_HELP,
    Json,
    OptionsFile,
    UsageError,
    VocabularyFile,
    model_option,
    readable_size,
    size_on_disk,
    suggest,
)
from elmokit.errors import CheckpointError, ConfigError

if TYPE_CHECKING:
    from elmokit.config import LstmConfig, ModelConfig
    from elmokit.encode.elmo import Elmo

EXAMPLES = {
    "info": (
        "elmokit info",
        "elmokit info elmo_weights.hdf5",
        "elmokit info original",
        "elmokit info model.tar.gz --json",
        "elmokit info --check",
    ),
    "recipes": ("elmokit recipes", "elmokit recipes tag-ner"),
}

CHECK_HELP = (
    "Compare numbers that the embedded models compute here with stored ones; all models when none "
    "is named."
)
PARTS = {"encoder": "token encoder", "lstm": "LSTM", "softmax": "softmax", "mixes": "mixes"}
"""First part of a tensor's canonical name, and what people call it."""


def info(
    model: Annotated[str | None, Parameter(name="MODEL", help=MODEL_HELP)] = None,
    /,
    *,
    options_file: OptionsFile = None,
    vocabulary_file: VocabularyFile = None,
    check: Annotated[bool, Parameter(help=CHECK_HELP)] = False,
    as_json: Json = False,
) -> None:
    """Show a model's format, sizes, tokeniser, softmax and mixes."""
    import elmokit

    if check:
        if options_file or vocabulary_file:
            raise UsageError("--check is for embedded models, which need no other files")
        _check([model] if model else [], as_json=as_json)
        return
    known = published_model(model)
    if known is not None and known.path is None:
        show_published(known, as_json=as_json)
        return
    elmo = elmokit.load(model, options=options_file, vocabulary=vocabulary_file, device="cpu")
    report = describe(elmo)
    if known is not None:
        report["published"] = as_dict(known)
    if as_json:
        print(json.dumps(report, indent=2, ensure_ascii=False))
        return
    print(elmo.source)
    for name, text in _lines(elmo.config, report):
        print(f"  {name:<11} {text}")
    if known is not None:
        show_published(known)
    suggest(f"elmokit encode FILE -o vectors.h5{model_option(model)}")


def _check(names: list[str], *, as_json: bool) -> None:
    import numpy
    import torch

    import elmokit
    from elmokit.encode.loading import CHECK_TOLERANCE, check_models

    versions = {p.__name__: str(p.__version__) for p in (elmokit, torch, numpy)}
    versions["python"] = platform.python_version()
    checks = check_models(*names)
    if as_json:
        models = [asdict(check) | {"wrong_layers": check.wrong_layers} for check in checks]
        print(json.dumps({"versions": versions, "models": models}, indent=2))
    else:
        print(", ".join(f"{package} {number}" for package, number in versions.items()))
        for check in checks:
            verdict = "wrong" if check.wrong_layers else "OK"
            shares = ", ".join(f"{share:.0e}" for share in check.deviations)
            print(f"{check.model}: {verdict}; layers deviate by {shares} of their norms")
    if wrong := [check for check in checks if check.wrong_layers]:
        layers = ", ".join(f"layer {layer} of {c.model}" for c in wrong for layer in c.wrong_layers)
        raise CheckpointError(
            f"{layers}: off by more than {CHECK_TOLERANCE:g} of the norm, so vectors made here are "
            "wrong; install elmokit again or other versions of torch and numpy, and report it"
        )


def describe(elmo: Elmo) -> dict[str, Any]:
    """The model in numbers, ready for JSON."""
    from elmokit.checkpoints.known_models import EMBEDDED, embedded_models
    from elmokit.config import to_dict

    parameters: Counter[str] = Counter()
    for name, tensor in elmo.bilm.named_parameters():
        parameters[PARTS[name.partition(".")[0]]] += tensor.numel()
    path = Path(elmo.source).expanduser()
    if elmo.source in embedded_models() and not path.exists():
        path = EMBEDDED / elmo.source
    return {
        "source": elmo.source,
        "format": elmo.kind,
        "bytes": size_on_disk(path) or None,  # None: it came from elsewhere
        "dim": elmo.dim,
        "layers": elmo.layers,
        "parameters": {"total": parameters.total(), **parameters},
        "tokenizer": elmo.config.text.tokenizer,
        "vocabulary": None if elmo.vocabulary is None else len(elmo.vocabulary),
        "word_counts": elmo.vocabulary is not None and elmo.vocabulary.counts is not None,
        "mixes": [
            {"shares": m.shares().tolist(), "gamma": m.gamma.item(), "layer_norm": m.layer_norm}
            for m in elmo.mixes
        ],
        "config": to_dict(elmo.config),
    }


def _lines(config: ModelConfig, report: dict[str, Any]) -> list[tuple[str, str]]:
    size = "" if report["bytes"] is None else f", {readable_size(report['bytes'])} on disk"
    total, *parts = (f"{name} {count:,}" for name, count in report["parameters"].items())
    lines = [
        ("format", report["format"] + size),
        ("vectors", f"{config.dim} wide, layers 0 to {config.layers - 1}"),
        ("parameters", f"{total.removeprefix('total ')}: {', '.join(parts)}"),
    ]
    if (chars := config.characters) is not None:
        filters = f"{chars.width} filters of widths {', '.join(str(w) for w, _ in chars.filters)}"
        ids = f"{chars.alphabet}, {chars.max_characters} a word, {chars.dim} wide"
        rest = f"{chars.activation}, {chars.highways} highways"
        lines.append(("characters", f"{ids}; {filters}; {rest}"))
    if config.words is not None:
        lines.append(("words", f"{config.words.rows:,}, {config.words.dim} wide"))
    softmax = "none"
    if config.softmax is not None:
        softmax = f"{config.softmax.words:,} words{', tied' if config.softmax.tied else ''}"
    lines += [("LSTM", _lstm(config.lstm)), ("softmax", softmax)]
    for mix in report["mixes"]:
        shares = ", ".join(f"{share:.3f}" for share in mix["shares"])
        norm = ", layers normalised" if mix["layer_norm"] else ""
        lines.append(("mix", f"shares {shares}; gamma {mix['gamma']:.4g}{norm}"))
    vocabulary = "none" if report["vocabulary"] is None else f"{report['vocabulary']:,} words"
    lines += [
        ("tokenizer", report["tokenizer"]),
        ("vocabulary", vocabulary + (", with counts" if report["word_counts"] else "")),
    ]
    return lines


def _lstm(lstm: LstmConfig) -> str:
    def clip(value: float | None) -> str:
        return "none" if value is None else f"{value:g}"

    return (
        f"{lstm.layers} layers, {' and '.join(lstm.directions)}; {lstm.cells} cells, "
        f"{lstm.width} wide; clips: cell {clip(lstm.cell_clip)}, "
        f"projection {clip(lstm.projection_clip)}; residual: {'yes' if lstm.residual else 'no'}"
    )


def recipes(name: Annotated[str | None, Parameter(name="NAME")] = None, /) -> None:
    """List the recipes: presets for pretrain --preset, settings for train --config.

    Args:
        name: Print this recipe, a TOML file; copy and edit it for one of your own.
    """
    from elmokit.config import recipes

    found = {"pretrain --preset": recipes(), "train --config": recipes("tasks")}
    if name is not None:
        known = {recipe: path for files in found.values() for recipe, path in files.items()}
        if name not in known:
            raise ConfigError(f"{name}: no such recipe; there are {', '.join(known)}")
        print(known[name].read_text(encoding="utf-8"), end="")
        return
    for option, files in found.items():
        print(f"elmokit {option}")
        for recipe, path in files.items():
            about = path.read_text(encoding="utf-8").partition("\n#\n")[0].replace("\n#", "")
            first = about.removeprefix("# ").partition(". ")[0].rstrip(".")
            print(f"  {recipe:<20} {first}")
    suggest("elmokit recipes NAME")
