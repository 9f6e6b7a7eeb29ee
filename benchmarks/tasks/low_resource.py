"""A tagger for a new language, from a few hundred sentences: with ELMo, without, and the usual tag.

Run: python -m benchmarks.tasks.low_resource LABELLED TEST [--model MODEL] [--sentences 700]
         [--seeds 0 1 2] [--crf] [--device cuda] [--results FILE] [--save NAME]

LABELLED and TEST are CoNLL-U files. The first sentences of LABELLED train, the rest of them are the
dev data; TEST is only read at the end. All taggers have the settings of the recipe tag-pos. Rows
that are finished are kept in the results file.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import elmokit
from benchmarks.report import RESULTS, report
from elmokit.files import atomic_file
from elmokit.probes import pos
from elmokit.tasks import fit, task_settings

USUAL = "each word's usual tag"
CARD_LINES = re.compile(
    r"^- (vectors|text|\*\*|[\d,]+ tokens, |[\d,]+ steps|.* on .*CPU|.* on NVIDIA)"
)
"""What the model's card says about its text, perplexity and training."""
TAGGERS = {"biLSTM": ("head.crf=false",), "biLSTM, CRF": ("head.crf=true",)}


def split(source: Path, sentences: int, folder: Path) -> tuple[Path, Path]:
    """The first sentences of a CoNLL-U file, and the rest of them."""
    found = source.read_text("utf-8").strip().split("\n\n")
    parts = {"train": found[:sentences], "dev": found[sentences:]}
    for name, part in parts.items():
        (folder / f"{name}.conllu").write_text("\n\n".join(part) + "\n\n", "utf-8")
    return folder / "train.conllu", folder / "dev.conllu"


def accuracies(
    train: Path, dev: Path, test: Path, model: str | None, changes: Sequence[str], device: str
) -> dict[str, float]:
    """Accuracy of one tagger on the test data, and the seconds of its training."""
    config = task_settings("tag", "tag-pos", changes)
    start = time.perf_counter()
    tagger = fit("tag", train, dev, elmo=model, config=config, device=device, quiet=True)
    seconds = time.perf_counter() - start
    return {"accuracy": 100 * tagger.evaluate(test)["accuracy"], "seconds": seconds}


def table(found: dict[str, Any]) -> str:
    """A line per tagger, least accurate first."""
    lines = [f"{'tagger':<28}{'accuracy, %':>12}{'spread':>8}{'seeds':>7}{'seconds':>9}"]
    rows = found["rows"]
    means = {name: statistics.mean(one["accuracy"] for one in runs) for name, runs in rows.items()}
    for name in sorted(means, key=means.__getitem__):
        scores = [one["accuracy"] for one in rows[name]]
        seconds = statistics.mean(one["seconds"] for one in rows[name])
        spread = f"{statistics.stdev(scores):.2f}" if len(scores) > 1 else "-"
        lines.append(
            f"{name:<28}{means[name]:>12.2f}{spread:>8}{len(scores):>7}"
            + (f"{seconds:>9.0f}" if seconds else f"{'-':>9}")
        )
    return "\n".join([*lines, "", *found["notes"]])


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("labelled", type=Path)
    parser.add_argument("test", type=Path)
    parser.add_argument("--model", help="anything that elmokit.load reads")
    parser.add_argument("--sentences", type=int, default=700)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--crf", action="store_true", help="taggers with a CRF, too")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--results", type=Path, default=RESULTS / "low_resource.json")
    parser.add_argument("--save", metavar="NAME", help="write results/NAME.txt")
    options = parser.parse_args(arguments)
    found: dict[str, Any] = {"rows": {}, "notes": []}
    if options.results.is_file():
        found = json.loads(options.results.read_text("utf-8"))

    def keep() -> None:
        with atomic_file(options.results) as temporary:
            temporary.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")

    with tempfile.TemporaryDirectory() as folder:
        train, dev = split(options.labelled, options.sentences, Path(folder))
        rows = found["rows"]
        for title, changes in list(TAGGERS.items())[: 2 if options.crf else 1]:
            for name in (None, options.model) if options.model else (None,):
                key = title if name is None else f"{title}, ELMo"
                for seed in options.seeds[len(rows.get(key, ())) :]:
                    settings = [*changes, f"run.seed={seed}"]
                    one = accuracies(train, dev, options.test, name, settings, options.device)
                    rows.setdefault(key, []).append(one)
                    keep()
        if options.model and USUAL not in rows:
            elmo = elmokit.load(options.model, softmax=False)
            probe = pos(elmo, train, options.test, tags="upos", curve=())
            rows[USUAL] = [{"accuracy": 100 * probe.by_word, "seconds": 0.0}]
            for one in probe.layers:
                score = {"accuracy": 100 * one.accuracy, "seconds": 0.0}
                rows[f"linear probe, layer {one.layer}"] = [score]
            words = [p.read_text("utf-8").count("# text =") for p in (dev, options.test)]
            card = (elmo.checkpoint().card or "").splitlines()
            found["notes"] = [
                f"{options.sentences} sentences to train ({probe.train_tokens:,} words), "
                f"{words[0]} for dev, {words[1]} to test; UPOS",
                *(line for line in card if CARD_LINES.search(line)),
            ]
            keep()
    report(options.save or "", table(found), bool(options.save))


if __name__ == "__main__":
    main()
