"""Add to a model's card what was measured: the results of the other scripts here.

Run: python -m benchmarks.models.card src/elmokit/models/small-en

The folder's README.md is the card that ``elmokit pretrain`` wrote: text, licence, settings, time.
Everything from "## What it is worth" on is written again from benchmarks/results/*_NAME.txt, where
NAME is the folder's name; a result that is not there is left out. Limits and the way to make the
model again are at the end.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.report import RESULTS
from elmokit.files import atomic_file

HEADING = "## What it is worth"
RESULT_TITLES = {
    "perplexity": "Perplexity on held-out text",
    "senses": "Senses, misspelt forms, substitutes",
    "substitutes": "Rank of the true word among the substitutes",
    "probes": "Word senses and parts of speech, layer by layer",
    "storage": "What rounding costs",
    "speed": "Speed on a CPU",
    "reproduce": "The same losses twice",
}
"""First part of a result's file name, and what the card calls it."""
PROBED = "small-en"
"""The model that benchmarks/quality was run for."""
LIMITS = """## Limits

- A small model of general text. It knows little of rare words, of news after its text was written
  and of the language of chats and tweets; `elmokit adapt` goes on training it on other text.
- It repeats the views of its text, and their mistakes. Do not let it judge people.
- Numbers in the larger matrices are rounded to 8 bits, those of the softmax to 4; the table above
  says what that changes.
"""


def measured(name: str) -> str:
    """The results of a model, a section each."""
    sections = [HEADING + "\n"]
    for kind, title in RESULT_TITLES.items():
        path = RESULTS / f"{kind}_{name}.txt"
        if kind == "probes" and name == PROBED:
            path = RESULTS / "quality.txt"
        if path.is_file():
            # Item by item is for the results folder; a card shows the table at its head.
            whole = path.read_text(encoding="utf-8")
            shown = whole.partition("\n\nsenses, centred: by how much")[0]
            shown = shown.partition("\n\nthe sets\n")[0].strip()
            sections.append(f"### {title}\n\n```text\n{shown}\n```\n")
    return "\n".join(sections)


def reproduce(name: str) -> str:
    words = {"small-en": 60_000, "small-zh": 40_000}.get(name, 65_000)
    return f"""## Make it again

```console
$ elmokit pretrain corpus -o {name} --preset {name}
$ elmokit convert {name} {name}-compact --storage compact --words {words}
```

`docs/embedded-models.md` has the whole way, from the text to this card.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path, help="the folder of an embedded model")
    options = parser.parse_args()
    card = options.model / "README.md"
    name = options.model.resolve().name
    training = card.read_text(encoding="utf-8").partition(HEADING)[0].rstrip()
    text = "\n".join([training + "\n", measured(name), LIMITS, reproduce(name)])
    with atomic_file(card) as temporary:
        temporary.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
