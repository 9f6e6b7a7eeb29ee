"""Quality against cost: ELMo beside flair, MiniLM, gte-small and GloVe, with the same heads.

Run: python -m benchmarks.rivals.contenders                    # the rivals' weights, once
     python -m benchmarks.rivals.run [CONTENDER ...] [--sets NAME ...] [--seeds 0 1 2]
     python -m benchmarks.rivals.run --parts speed             # on a quiet machine
     python -m benchmarks.rivals.run --table --save

A cell is a set, a contender and a seed. Finished cells are kept in benchmarks/results/rivals.json
and are measured again only if the model's fingerprint or the settings differ. Vectors are computed
once for each contender and set, and kept under data/rivals/vectors. CONTENDER is a name of
`benchmarks.rivals.contenders`; those whose weights are not there are left out. --save writes
benchmarks/results/rivals.txt and docs/images/rivals.png, and fills the pages.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.models.senses import running_text
from benchmarks.report import RESULTS, ROOT
from benchmarks.rivals.contenders import CONTENDERS, FOLDER, Contender, kept_layers
from benchmarks.rivals.sets import RivalSet, all_sets
from benchmarks.rivals.table import draw, table
from benchmarks.tasks.run import commit
from elmokit.encode.speed import machine
from elmokit.files import atomic_file
from elmokit.tasks.inputs.source import ElmoLayers, LayerModel
from elmokit.text.tokens import get_tokenizer

CELLS = RESULTS / "rivals.json"
PICTURE = ROOT / "docs" / "images" / "rivals.png"
PARTS = ("quality", "speed")


class Comparison:
    """All cells.

    Args:
        options: Of the command line.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._commit = commit()
        self.cells: dict[str, dict[str, Any]] = {}
        if options.cells.is_file():
            self.cells = json.loads(options.cells.read_text("utf-8"))

    def chosen(self) -> dict[str, Contender]:
        """The contenders that are there."""
        folder = self._options.rivals
        names = self._options.contenders or CONTENDERS
        missing = [name for name in names if not CONTENDERS[name].exists(folder)]
        if missing:
            print(f"not there, left out: {', '.join(missing)}", flush=True)
        return {name: CONTENDERS[name] for name in names if name not in missing}

    def quality(self) -> None:
        """Score what is not there."""
        sets = [one for one in all_sets() if one.name in self._options.sets]
        for name, contender in self.chosen().items():
            if contender.speed_only:
                continue
            model = contender.open(self._options.rivals)
            self._describe(name, contender, model)
            for one in sets:
                if one.language == contender.language:
                    self._score(name, contender, model, one)

    def _describe(self, name: str, contender: Contender, model: LayerModel) -> None:
        facts = {
            "size": contender.size(self._options.rivals),
            "dim": model.dim,
            "fingerprint": model.fingerprint[:12],
        }
        if self.cells.get(f"model/{name}") != facts:
            self._keep(f"model/{name}", facts)

    def _score(self, name: str, contender: Contender, model: LayerModel, one: RivalSet) -> None:
        same = {
            "fingerprint": model.fingerprint[:12],
            "setup": one.setup(contender.tokenizer),
        }
        seeds = [
            seed
            for seed in self._options.seeds[: one.seeds]
            if any(self.cells.get(f"{one.name}/{name}/{seed}", {}).get(k) != v
                   for k, v in same.items())
        ]  # fmt: skip
        if not seeds:
            return
        one.load(self._options.data, contender.tokenizer)
        start = time.monotonic()
        kept = self._vectors(name, model, one)
        encoding = time.monotonic() - start
        for seed in seeds:
            start = time.monotonic()
            found = one.score(kept, seed)
            cell = {
                "score": round(found.score, 3),
                "measure": one.measure,
                "layer": found.layer,
                "dev": {layer: round(value, 3) for layer, value in found.dev.items()},
                **({"baseline": found.baseline} if found.baseline else {}),
                "examples": one.counts(),
                **same,
                "seconds": round(time.monotonic() - start, 1),
                "commit": self._commit,
            }
            self._keep(f"{one.name}/{name}/{seed}", cell)
            told = f"{found.score:6.2f}, layer {found.layer}, {encoding:.0f} + {cell['seconds']} s"
            print(f"{one.name + '/' + name + '/' + str(seed):30} {told}", flush=True)

    def _vectors(self, name: str, model: LayerModel, one: RivalSet) -> Any:
        """What the set keeps of the model's layers, (L, N, D) in half precision."""
        texts = one.texts()
        layers = kept_layers(model.layers)
        words = hashlib.sha256(json.dumps([one.name, layers, texts]).encode()).hexdigest()
        folder = self._options.vectors / f"{name}-{model.fingerprint[:12]}"
        path = folder / f"{one.name}-{words[:12]}.npy"
        if not path.is_file():
            folder.mkdir(parents=True, exist_ok=True)
            kept = np.zeros((len(layers), one.rows(), model.dim), np.float16)
            row = 0
            for number, array in enumerate(model.stream(texts)):
                part = one.reduce(number, array[layers])
                kept[:, row : row + part.shape[1]] = part
                row += part.shape[1]
            assert row == one.rows()
            with atomic_file(path) as temporary, temporary.open("wb") as file:
                np.save(file, kept)
        return np.load(path, mmap_mode="r")

    def speed(self) -> None:
        """Tokens per second of every contender, in turns; no word is known from the turn before.

        All layers are computed, and returned as NumPy arrays.
        """
        options = self._options
        torch.set_num_threads(options.threads)
        chosen = {name: one for name, one in self.chosen().items() if not one.random}
        models = {name: one.open(options.rivals) for name, one in chosen.items()}
        texts: dict[str, list[list[str]]] = {}
        for language, tokenizer in (("en", "words"), ("zh", "jieba")):
            split = get_tokenizer(tokenizer).tokenize
            found: list[list[str]] = []
            for sentence in running_text(language):
                if sum(map(len, found)) < options.tokens:
                    found.append(list(split(sentence)))
            texts[language] = found
        rates: dict[str, list[float]] = {name: [] for name in models}
        for turn in range(options.rounds + 1):
            for name, model in models.items():
                read = texts[chosen[name].language]
                if turn == 0:
                    read = read[:20]  # to warm up
                if isinstance(model, ElmoLayers):
                    model.elmo.forget()
                start = time.perf_counter()
                for _ in model.stream(read):
                    pass
                if turn:
                    rates[name].append(sum(map(len, read)) / (time.perf_counter() - start))
        for name, model in models.items():
            one = chosen[name]
            cell = {
                "rates": [round(rate) for rate in rates[name]],
                "tokens": sum(map(len, texts[one.language])),
                "threads": options.threads,
                "fingerprint": model.fingerprint[:12],
                "machine": f"{machine()['date']}, {machine()['cpu']}",
                "commit": self._commit,
            }
            self._describe(name, one, model)
            self._keep(f"speed/{name}", cell)
            print(f"{name:16} {cell['rates']}", flush=True)

    def _keep(self, key: str, cell: dict[str, Any]) -> None:
        self.cells[key] = cell
        with atomic_file(self._options.cells) as temporary:
            text = ",\n".join(f" {json.dumps(k)}: {json.dumps(v)}" for k, v in self.cells.items())
            temporary.write_text("{\n" + text + "\n}\n", "utf-8")


def parsed(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [one.name for one in all_sets()]
    parser.add_argument("contenders", nargs="*", metavar="CONTENDER", help=", ".join(CONTENDERS))
    parser.add_argument("--sets", nargs="+", default=names, choices=names)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=["quality"])
    parser.add_argument("--rounds", type=int, default=3, help="of the speed")
    parser.add_argument("--tokens", type=int, default=6_000, help="that are read for the speed")
    parser.add_argument("--threads", type=int, default=2, help="for the speed")
    parser.add_argument("--data", type=Path, help="folder with tasks, the archives")
    parser.add_argument("--rivals", type=Path, default=FOLDER)
    parser.add_argument("--vectors", type=Path, default=FOLDER / "vectors")
    parser.add_argument("--cells", type=Path, default=CELLS)
    parser.add_argument("--table", action="store_true", help="measure nothing")
    parser.add_argument("--save", action="store_true")
    options = parser.parse_args(arguments)
    for name in options.contenders:
        if name not in CONTENDERS:
            parser.error(f"no contender {name!r}. There are: {', '.join(CONTENDERS)}")
    return options


def main(arguments: Sequence[str] | None = None) -> None:
    options = parsed(arguments)
    comparison = Comparison(options)
    for part in () if options.table else options.parts:
        getattr(comparison, part)()
    text = table(comparison.cells)
    print(text)
    if options.save:
        from benchmarks import fill_pages

        (RESULTS / "rivals.txt").write_text(text + "\n", "utf-8")
        draw(comparison.cells, PICTURE)
        fill_pages.main()


if __name__ == "__main__":
    main()
