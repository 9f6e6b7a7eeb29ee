"""``elmokit info``: what a model is made of; ``elmokit models``: those inside the package."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from elmokit.cli.options import (
    MODEL_HELP,
    Json,
    OptionsFile,
    VocabularyFile,
    readable_size,
    size_on_disk,
)

if TYPE_CHECKING:
    from elmokit.config import LstmConfig, ModelConfig
    from elmokit.encode.elmo import Elmo

EXAMPLES = {
    "info": ("elmokit info elmo_weights.hdf5", "elmokit info model.tar.gz --json"),
    "models": ("elmokit models", "elmokit models --json"),
}

PARTS = {"encoder": "token encoder", "lstm": "LSTM", "softmax": "softmax", "mixes": "mixes"}
"""First part of a tensor's canonical name, and what people call it."""


def info(
    model: Annotated[str | None, Parameter(name="MODEL", help=MODEL_HELP)] = None,
    /,
    *,
    options_file: OptionsFile = None,
    vocabulary_file: VocabularyFile = None,
    as_json: Json = False,
) -> None:
    """Show a model's format, sizes, tokeniser, softmax and mixes."""
    import elmokit

    elmo = elmokit.load(model, options=options_file, vocabulary=vocabulary_file)
    report = describe(elmo)
    if as_json:
        print(json.dumps(report, indent=2, ensure_ascii=False))
        return
    print(elmo.source)
    for name, text in _lines(elmo.config, report):
        print(f"  {name:<11} {text}")


def describe(elmo: Elmo) -> dict[str, Any]:
    """The model in numbers, ready for JSON."""
    from elmokit.checkpoints.sources import EMBEDDED, embedded_models
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
    vocabulary = report["vocabulary"]
    lines += [
        ("tokenizer", report["tokenizer"]),
        ("vocabulary", "none" if vocabulary is None else f"{vocabulary:,} words"),
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


def models(*, as_json: Json = False) -> None:
    """List the embedded models; their names can be given to --model."""
    from elmokit.checkpoints.sources import embedded_models

    found = [_describe_embedded(name) for name in embedded_models()]
    if as_json:
        print(json.dumps(found, indent=2, ensure_ascii=False))
        return
    for model in found:
        default = " (default)" if model["default"] else ""
        print(
            f"{model['name']}{default}: {model['dim']} wide, {model['layers']} layers, "
            f"{model['parameters']:,} parameters, {readable_size(model['bytes'])}"
        )
    if not found:
        print("no models are embedded; give --model a path or hf:OWNER/NAME")


def _describe_embedded(name: str) -> dict[str, Any]:
    """One embedded model in numbers, ready for JSON."""
    from elmokit.checkpoints.sources import DEFAULT_MODEL, EMBEDDED, Extras, read_source

    checkpoint = read_source(EMBEDDED / name, Extras())
    return {
        "name": name,
        "default": name == DEFAULT_MODEL,
        "dim": checkpoint.config.dim,
        "layers": checkpoint.config.layers,
        "parameters": sum(math.prod(tensor.shape) for tensor in checkpoint.weights.values()),
        "bytes": size_on_disk(EMBEDDED / name),
    }
