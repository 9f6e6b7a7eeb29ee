"""``elmokit models``: the models that have names; and what is known of a published one."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from elmokit.cli.options import Json, readable_size, suggest

if TYPE_CHECKING:
    from elmokit.checkpoints.catalogue import PublishedFile, PublishedModel
    from elmokit.checkpoints.known_models import KnownModel

EXAMPLES = (
    "elmokit models",
    "elmokit models --language zh",
    "elmokit models --domain protein --json",
)
_LANGUAGE_HELP = "Only models of this language, a code such as de or zh."
_DOMAIN_HELP = "Only models of this domain, such as protein, biomedical or news."
_UNKNOWN = {
    "corpus": "corpus",
    "licence": "licence",
    "tokenisation": "tokenisation of the corpus",
}
_SIZES = ("layers", "cells", "projection", "highways", "filters")


def models(
    *,
    language: Annotated[str | None, Parameter(help=_LANGUAGE_HELP)] = None,
    domain: Annotated[str | None, Parameter(help=_DOMAIN_HELP)] = None,
    as_json: Json = False,
) -> None:
    """List the embedded, cached and published models; their names can be given to --model."""
    import elmokit

    found = elmokit.models(language, domain)
    if as_json:
        print(json.dumps([as_dict(model) for model in found], indent=2, ensure_ascii=False))
        return
    width = max(len(model.name) for model in found)
    for title, some in groupby(found, _heading):
        print(title)
        for model in some:
            print(f"  {model.name:<{width}}  {_line(model)}")
    suggest("elmokit info NAME")


def _heading(model: KnownModel) -> str:
    if model.kind == "embedded":
        return "embedded: in the package"
    if model.path is not None:
        return "cached: loaded without the network"
    assert model.published is not None
    return f"published: {model.published.group}"


def _line(model: KnownModel) -> str:
    parts = [*model.languages, "" if model.domain in model.languages else model.domain or ""]
    parts += [
        f"{model.dim} wide" if model.dim else "",
        f"{model.layers} layers" if model.layers else "",
    ]
    if model.kind == "embedded":
        parts.append(f"{model.parameters:,} parameters")
    if model.bytes is not None:
        parts.append(readable_size(model.bytes))
    if (entry := model.published) is not None:
        size = sum(file.size or file.approximate_size or 0 for file in _files(entry))
        parts.append(f"about {readable_size(size)}" if size and model.path is None else "")
        parts.append("unverified" if entry.status == "unverified" else "")
        parts.append("no reader" if entry.reader is None else "")
        parts.append("" if entry.downloads or entry.reader is None else "by hand")
    line = ", ".join(filter(None, parts))
    also = [alias for alias in model.aliases if not alias.startswith("https:")]
    line += f" (also {', '.join(also)})" if also else ""
    return line + (" (default)" if model.default else "")


def _files(entry: PublishedModel) -> tuple[PublishedFile, ...]:
    return entry.downloads[0] if entry.downloads else ()


def as_dict(model: KnownModel) -> dict[str, Any]:
    """A model ready for JSON; the catalogue's facts are among the others."""
    entry = model.published
    facts = {key: value for key, value in vars(model).items() if key != "published"}
    facts["path"] = None if model.path is None else str(model.path)
    return facts if entry is None else asdict(entry) | facts


def published_model(name: str | None) -> KnownModel | None:
    """The published model of a name or address, unless a file or folder has the name."""
    import elmokit
    from elmokit.checkpoints.download import published

    if name is None or os.path.exists(Path(name).expanduser()) or Path(f"{name}.index").is_file():
        return None
    entry = published(name)
    if entry is None:
        return None
    return next(model for model in elmokit.models() if model.name == entry.name)


def show_published(known: KnownModel, *, as_json: bool = False) -> None:
    """Print what is known of a published model without a download."""
    if as_json:
        print(json.dumps(as_dict(known), indent=2, ensure_ascii=False))
        return
    assert known.published is not None
    print(f"{known.name}: {known.title}")
    for name, text in _facts(known, known.published):
        print(f"  {name:<11} {text}")
    if known.published.downloads and known.path is None:
        suggest(f"elmokit encode FILE -o vectors.h5 --model {known.name}")


def _facts(known: KnownModel, entry: PublishedModel) -> list[tuple[str, str]]:
    sizes = entry.architecture
    facts = [
        ("also", ", ".join(entry.aliases)),
        ("language", ", ".join(entry.languages)),
        ("domain", entry.domain),
        ("corpus", entry.corpus),
        ("sizes", _sizes(entry)),
        ("parameters", known.parameters and f"about {known.parameters:,}"),
        ("perplexity", entry.perplexity),
        ("tokens", entry.tokenisation),
        ("tokenizer", f"{entry.tokenizer} (elmokit's, for text; give tokens if you have them)"),
        ("licence", entry.licence),
        ("format", entry.reader or f"elmokit cannot read it: {entry.no_reader}"),
        (
            "here",
            f"{known.path} ({readable_size(known.bytes)})" if known.bytes else "not in the cache",
        ),
    ]
    for number, files in enumerate(entry.downloads):
        for file in files:
            marks = [readable_size(size) for size in (file.size,) if size]
            marks += [f"about {readable_size(size)}" for size in (file.approximate_size,) if size]
            marks += [file.checksum] if file.checksum else []
            note = f" ({', '.join(marks)})" if marks else ""
            first, *mirrors = file.addresses
            facts.append(("or" if number and file is files[0] else file.role, first + note))
            facts += [("mirror", mirror) for mirror in mirrors]
    facts += [("elsewhere", f"{other.address} ({other.note})") for other in entry.others]
    missing = [word for field, word in _UNKNOWN.items() if getattr(entry, field) is None]
    missing += [size for size in _SIZES if getattr(sizes, size) is None]
    facts += [
        ("not stated", ", ".join(missing)),
        ("status", entry.status),
        *(("note", note) for note in entry.notes),
        *(("source", source) for source in entry.sources),
    ]
    return [(name, str(text)) for name, text in facts if text]


def _sizes(entry: PublishedModel) -> str:
    sizes = entry.architecture
    parts = [
        f"{sizes.layers} LSTM layers" if sizes.layers else "",
        f"{sizes.cells} cells" if sizes.cells else "",
        f"projection {sizes.projection}" if sizes.projection else "",
        f"vectors {sizes.dim} wide" if sizes.dim else "",
        f"{sum(count for _, count in sizes.filters)} filters" if sizes.filters else "",
        f"{sizes.highways} highways" if sizes.highways else "",
        f"characters {sizes.character_dim} wide (Unicode)" if sizes.character_dim else "",
        f"word vectors {sizes.word_dim} wide" if sizes.word_dim else "",
    ]
    text = ", ".join(filter(None, parts))
    return "; ".join(filter(None, [text, sizes.note]))
