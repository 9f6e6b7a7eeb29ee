"""What storing a model in fewer bits costs: size, vectors, perplexity.

Run: python -m benchmarks.models.storage MODEL [TEXT] [--calibrate TEXT] [--save NAME]

MODEL is anything that elmokit.load reads, with float32 weights. It is saved in every way into a
temporary folder and read again. Vectors are compared on the held-out text in tests/data,
perplexity is measured on TEXT (see perplexity.py) where the model has a softmax. With --calibrate
there is a row for int4 that was calibrated on that file.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np

import elmokit
from benchmarks.models.perplexity import measure
from benchmarks.models.senses import language_of, running_text
from benchmarks.report import report
from elmokit.checkpoints.native import Storage
from elmokit.encode.similarity import similarity
from elmokit.text.readers import read_texts
from elmokit.training.calibration import calibrate_int4

STORAGES: tuple[Storage, ...] = ("float32", "int8", "compact", "int4")
CALIBRATED = "int4, calibrated"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("text", nargs="?", help="the small held-out text when left out")
    parser.add_argument("--tokens", type=int, default=50_000)
    parser.add_argument("--calibrate", metavar="TEXT")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--save", metavar="NAME", help="write results/storage_NAME.txt")
    options = parser.parse_args()
    models, sizes = {}, {}
    with tempfile.TemporaryDirectory() as folder:
        for storage in STORAGES:
            place = Path(folder) / storage
            elmokit.load(options.model).save(place, storage=storage)
            sizes[storage] = sum(path.stat().st_size for path in place.iterdir())
            models[storage] = elmokit.load(place, device=options.device)
        if options.calibrate:
            place = Path(folder) / "calibrated"
            elmo = elmokit.load(options.model, device=options.device)
            calibrate_int4(elmo, read_texts(options.calibrate))
            elmo.save(place, storage="int4")
            sizes[CALIBRATED] = sum(path.stat().st_size for path in place.iterdir())
            models[CALIBRATED] = elmokit.load(place, device=options.device)
    whole = models["float32"]
    lines = [
        f"{Path(options.model).name}: {sum(p.numel() for p in whole.bilm.parameters()):,} "
        "parameters",
        *(f"{storage:<16} {size / 1e6:>8.2f} MB on disk" for storage, size in sizes.items()),
        "",
        f"{'cosine with float32 vectors':<36} {'mean':>9} {'smallest':>9}",
    ]
    sentences = running_text(language_of(whole))
    exact = whole.encode(sentences, layers="all", progress=False)
    for storage, elmo in models.items():
        if storage in ("float32", "compact"):  # compact differs from int8 in the softmax alone
            continue
        rounded = elmo.encode(sentences, layers="all", progress=False)
        pairs = zip(exact, rounded, strict=True)
        alike = np.concatenate([similarity(a, b) for a, b in pairs], axis=1)
        for layer, cosines in enumerate(alike):
            name = f"{storage}, layer {layer}"
            lines.append(f"{name:<36} {cosines.mean():>9.6f} {cosines.min():>9.6f}")
    if whole.bilm.softmax is not None and whole.vocabulary is not None:
        text = options.text or f"sample-{language_of(whole)}"
        lines += ["", f"{f'perplexity on {text}':<36} {'':>9} {'tokens':>9}"]
        for storage, elmo in models.items():
            found = measure(elmo, text, tokens=options.tokens)
            lines.append(f"{storage:<36} {found.perplexity:>9.3f} {found.tokens:>9,}")
    report(f"storage_{options.save}", "\n".join(lines), bool(options.save))


if __name__ == "__main__":
    main()
