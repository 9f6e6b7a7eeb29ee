"""Add to a model's card what was measured: the results of the other scripts here.

Run: python -m benchmarks.models.card src/elmokit/models/small-en [--measure [NAME ...]]
         [--data FOLDER] [--device cuda] [--float RUN]

With --measure the scripts are run first, on the folder's own bytes: all of them, or those named.
What rounding costs needs the model before rounding, --float. Two results are made elsewhere:
"reproduce" (it trains) and "text" (it needs the text).

The folder's README.md is the card that ``elmokit pretrain`` wrote: text, licence, settings, time.
Everything from "## What it is worth" on is written again from benchmarks/results/*_NAME.txt, where
NAME is the folder's name; a result that is not there is left out. Limits and the way to make the
model again are at the end.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

from benchmarks.report import RESULTS, ROOT
from elmokit.checkpoints.native import FORMAT_VERSIONS
from elmokit.files import atomic_file

HEADING = "## What it is worth"
RESULT_TITLES = {
    "text": "The text and its licences",
    "size": "Size and loading",
    "perplexity": "Perplexity on held-out text",
    "senses": "Senses, misspelt forms, substitutes",
    "substitutes": "Rank of the true word among the substitutes",
    "probes": "Word senses and parts of speech, layer by layer",
    "storage": "What rounding costs",
    "speed": "Speed on a CPU",
    "reproduce": "The same losses twice",
}
"""First part of a result's file name, and what the card calls it."""
MEASURED = ("size", "perplexity", "senses", "substitutes", "probes", "storage", "speed")
LIMITS = """## Limits

- A small model of general text. It knows little of rare words, of news after its text was written
  and of the language of chats and tweets; `elmokit adapt` goes on training it on other text.
- It repeats the views of its text, and their mistakes. Do not let it judge people.
- Numbers in the larger matrices are rounded to 8 or 4 bits; `docs/embedded-models.md` says what
  that changes.
"""


def measured(name: str) -> str:
    """The results of a model, a section each."""
    sections = [HEADING + "\n"]
    for kind, title in RESULT_TITLES.items():
        path = RESULTS / f"{kind}_{name}.txt"
        if path.is_file():
            # Item by item is for the results folder; a card shows the table at its head.
            whole = path.read_text(encoding="utf-8")
            shown = whole.partition("\n\nsenses, centred: by how much")[0]
            shown = shown.partition("\n\nthe sets\n")[0].strip()
            sections.append(f"### {title}\n\n```text\n{shown}\n```\n")
    return "\n".join(sections)


def commands(folder: Path, options: argparse.Namespace) -> dict[str, list[str]]:
    """The arguments of each script that measures this model, by result."""
    name, model = folder.name, str(folder)
    save = ["--save", name]
    data = [] if options.data is None else ["--data", str(options.data)]
    read = [*data, "--device", options.device]
    found = {
        "size": ["size", model, *save],
        "perplexity": ["perplexity", model, *read, *save],
        "senses": ["senses", model, "--device", options.device, *save],
        "speed": ["speed", model, *save],
    }
    if (folder / "counts.txt").is_file():
        found["substitutes"] = ["substitutes", model, "dev", *read, *save]
    if options.float is not None:
        found["storage"] = ["storage", str(options.float), *save]
    found = {
        kind: [f"benchmarks.models.{script}", *rest] for kind, (script, *rest) in found.items()
    }
    if name.endswith("-en"):  # tags and senses are English
        only = ["--only", "--save", f"probes_{name}"]  # without the baselines
        found["probes"] = ["benchmarks.quality.run", model, *read, *only]
    return {kind: found[kind] for kind in MEASURED if kind in found}


def reproduce(folder: Path) -> str:
    name, path = folder.name, folder / "config.json"
    stored = json.loads(path.read_text("utf-8")) if path.is_file() else {"config": {}}
    words = (stored["config"].get("softmax") or {}).get("words", 65_000)
    versions = {number: storage for storage, number in FORMAT_VERSIONS.items()}
    storage = versions[stored.get("format_version", FORMAT_VERSIONS["compact"])]
    return f"""## Make it again

```console
$ elmokit pretrain corpus -o {name} --preset {name}
$ elmokit convert {name} {name}-{storage} --storage {storage} --words {words}
```

`docs/embedded-models.md` has the whole way, from the text to this card.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path, help="the folder of an embedded model")
    parser.add_argument("--measure", nargs="*", choices=MEASURED, help="run the scripts first")
    parser.add_argument("--data", type=Path, help="folder of the corpora and tasks")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--float", type=Path, help="the model before rounding")
    options = parser.parse_args()
    folder = options.model.resolve()
    card, name = folder / "README.md", folder.name
    if options.measure is not None:
        for kind, arguments in commands(folder, options).items():
            if kind in (options.measure or MEASURED):
                subprocess.run([sys.executable, "-m", *arguments], cwd=ROOT, check=True)
    training = card.read_text(encoding="utf-8").partition(HEADING)[0].rstrip()
    text = "\n".join([training + "\n", measured(name), LIMITS, reproduce(folder)])
    with atomic_file(card) as temporary:
        temporary.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
