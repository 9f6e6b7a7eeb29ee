"""What the probes on the command line share: the models asked, and how answers are shown."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from elmokit.cli.options import load_model

if TYPE_CHECKING:
    from elmokit.probes.report import Report
    from elmokit.probes.sources import LayerVectors

RANDOM = "random"


def models(
    model: str | None,
    against: Sequence[str] | None,
    device: str,
    *,
    tokens: bool = False,
    tokenizer: str | None = None,
) -> Iterator[LayerVectors]:
    """The model, then what it is compared with; each is loaded when its turn comes."""
    from elmokit.errors import CheckpointError
    from elmokit.probes.sources import ElmoLayers, as_layer_vectors, random_weights

    first: LayerVectors
    try:
        first = ElmoLayers(load_model(model, tokens=tokens, tokenizer=tokenizer, device=device))
    except CheckpointError:
        if model is None:
            raise
        first = as_layer_vectors(model, device=device)  # perhaps word vectors
    yield first
    for name in against or ():
        if name != RANDOM:
            yield as_layer_vectors(name, device=device)
        elif isinstance(first, ElmoLayers):
            yield random_weights(first.elmo)
        else:
            raise CheckpointError(f"--against {RANDOM}: {first.name} has no weights to draw anew")


def answer(
    name: str,
    run: Callable[[LayerVectors], Report],
    opened: Iterator[LayerVectors],
    plots: Sequence[Path] | None,
    page: Path | None,
    as_json: bool,
) -> None:
    """Ask every model, then show the answers together."""
    check_outputs(plots, page)
    show(name, [run(vectors) for vectors in opened], plots, page, as_json)


def check_outputs(plots: Sequence[Path] | None, page: Path | None) -> None:
    """Complain about places that cannot be written to before any work is done."""
    from elmokit.files import final_path

    if plots or page is not None:
        from elmokit.probes.plots import check_plot, need_matplotlib

        need_matplotlib()
        for path in plots or ():
            check_plot(path)
        for path in (*(plots or ()), *([page] if page is not None else [])):
            final_path(path)


def show(
    name: str,
    reports: Sequence[Report],
    plots: Sequence[Path] | None,
    page: Path | None,
    as_json: bool,
) -> None:
    """Draw the answers where asked to, and print them."""
    for path in plots or ():
        from elmokit.probes.plots import save_plot

        save_plot(reports, path)
    if page is not None:
        from elmokit.probes.html import save_html

        save_html(reports, page, f"elmokit probe {name}")
    if as_json:
        found = {"probe": name, "reports": [report.to_json() for report in reports]}
        print(json.dumps(found, indent=2, ensure_ascii=False))
        return
    from elmokit.probes.tables import tables, text

    print("\n\n".join("\n".join(text(table)) for table in tables(reports)))


def print_senses(
    inventory: Path,
    vectors: LayerVectors,
    source: str,
    field: str,
    words: Sequence[str] | None,
    as_json: bool,
) -> None:
    """Give the words of a text their senses, a sentence at a time."""
    from dataclasses import asdict

    from elmokit.probes.inventory import SenseInventory
    from elmokit.text.readers import read_texts

    senses = SenseInventory.load(inventory)
    texts = read_texts(source, field=field)
    for number, (tokens, answers) in enumerate(
        senses.disambiguate(vectors, texts, words=words), start=1
    ):
        if as_json:
            found = {"line": number, "tokens": tokens, "senses": [asdict(one) for one in answers]}
            print(json.dumps(found, ensure_ascii=False))
            continue
        for one in answers:
            sure = "first sense" if one.cosine is None else f"{one.cosine:.4f} of {one.choices}"
            print(f"{number:>6}  {one.word:<20} {one.sense:<28} {sure}")
