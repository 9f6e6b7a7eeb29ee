"""Store the numbers that ``elmokit info --check`` compares: the reference engine's in float64.

Run: python -m benchmarks.models.check

Needed only when an embedded model is added or trained again.
"""

from __future__ import annotations

import json

import elmokit
from elmokit.checkpoints.known_models import EMBEDDED, embedded_models
from elmokit.encode.loading import layer_sums
from elmokit.files import atomic_file

ENGLISH = "The bank of the river was steep , so she walked to a bank in Ōsaka ."
CHINESE = "银行 在 河 的 左岸 ， 她 到 银行 去 取 100 元 。"


def main() -> None:
    stored = {}
    for name in embedded_models():
        elmo = elmokit.load(name)
        elmo.bilm.double()
        elmo.bilm.forget_prepared()
        text = CHINESE if name.endswith("-zh") else ENGLISH
        (vectors,) = elmo.encode([text.split()], layers="all")
        assert vectors.dtype == "float64"
        stored[name] = {"text": text, "layers": layer_sums(vectors).round(6).tolist()}
    with atomic_file(EMBEDDED / "check.json") as path:
        path.write_text(json.dumps(stored, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
