"""Train the models of `benchmarks.models.text_amount`: one shape on more and more of a text.

Run: python -m benchmarks.models.text_amount_training TEXT ... -o FOLDER [--amounts 1 3 10 30 100]
         [--domain TEXT ...] [--device cuda] [--set NAME=VALUE ...]

Each amount is in millions of tokens; all of the text comes last. Whole documents, between blank
lines, are drawn by a hash of their beginning, so that every text is a part of the larger ones. The
models have the shape of the preset nano-en and no teacher, predict the same words, those of the
whole text, and start from the same random weights. FOLDER gets a model for each amount (1m, 3m, …),
stored in int8, for text_amount.py to measure, and with --domain the largest one adapted to that
text (domain). What is there already is kept: the same command continues where it was stopped.
"""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import elmokit
from elmokit.checkpoints import native
from elmokit.checkpoints.checkpoint import Checkpoint
from elmokit.config import SoftmaxConfig
from elmokit.corpus.prepare import CorpusConfig, prepare_corpus
from elmokit.corpus.shards import TokenCorpus
from elmokit.files import atomic_file
from elmokit.model.init import random_model
from elmokit.text.readers import read_texts
from elmokit.text.vocab import Vocabulary
from elmokit.training.adapt import AdaptConfig, adapt
from elmokit.training.settings import changed, settings_for

WORDS = 30_000
STEPS = {1: 800, 3: 1200, 10: 2500, 30: 5000}
MOST_STEPS = 9000
"""Of 512 x 32 tokens: for larger texts."""
DROPOUT = {1: 0.3, 3: 0.3, 10: 0.2, 30: 0.1}
"""What is read often is learned by heart without it; larger texts need none."""
DOMAIN = ("run.max_steps=1500", "optimizer.lr=0.001", "optimizer.warmup=100")
HASHED = 400
"""Characters of a document that say to which amounts it belongs."""
START = "start"
CORPORA = "corpora"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("texts", nargs="+")
    parser.add_argument("--output", "-o", type=Path, required=True)
    parser.add_argument("--amounts", nargs="*", type=float, default=[1, 3, 10, 30, 100])
    parser.add_argument("--domain", nargs="+", default=[])
    parser.add_argument("--device")
    parser.add_argument("--set", nargs="+", default=[], dest="changes", metavar="NAME=VALUE")
    options = parser.parse_args()
    corpora = options.output / CORPORA
    corpora.mkdir(parents=True, exist_ok=True)
    whole = prepared(options.texts, corpora / "whole")
    total = whole.split("train").tokens
    if too_large := [n for n in options.amounts if n * 1e6 >= total]:
        parser.error(f"--amounts {too_large[0]:g}: the text has {total / 1e6:.1f} million tokens")
    start = starting_model(whole, options.output / START)
    for amount in sorted(options.amounts):
        name = f"{amount:g}m"
        text = drawn(options.texts, amount * 1e6 / total, corpora / f"{name}.txt")
        corpus = prepared([text], corpora / name)
        own = (
            f"run.max_steps={STEPS.get(amount, MOST_STEPS)}",
            f"run.dropout={DROPOUT.get(amount, 0.0)}",
        )
        train(start, corpus, options.output / name, [*own, *options.changes], options.device)
    largest = f"{total / 1e6:.3g}m"
    changes = [f"run.max_steps={MOST_STEPS}", *options.changes]
    train(start, whole, options.output / largest, changes, options.device)
    if options.domain:
        # Few, long documents: a small share of them may be none.
        domain = prepared(options.domain, corpora / "domain", heldout=0.02)
        changes = [*DOMAIN, *options.changes]
        output = options.output / "domain"
        train(options.output / largest, domain, output, changes, options.device)


def prepared(
    texts: Sequence[str | Path], folder: Path, heldout: float | None = None
) -> TokenCorpus:
    """The corpus of these texts, prepared once; a small one gives more of itself as held-out."""
    if not folder.exists():
        size = sum(Path(text).stat().st_size for text in texts)
        share = heldout or (0.02 if size < 20e6 else 0.002)
        config = CorpusConfig(tokenizer="words", heldout=share)
        prepare_corpus([str(text) for text in texts], folder, settings=config)
    return TokenCorpus(folder)


def drawn(texts: Sequence[str], share: float, output: Path) -> Path:
    """A text of about this share of the documents, the same ones whatever else is drawn."""
    if not output.exists():
        with atomic_file(output) as temporary, temporary.open("w", encoding="utf-8") as file:
            for document in documents(texts):
                digest = hashlib.blake2b(document[:HASHED].encode(), digest_size=8).digest()
                if int.from_bytes(digest, "little") < share * 2**64:
                    file.write(f"{document}\n\n")
    return output


def documents(texts: Sequence[str]) -> Iterator[str]:
    """Paragraphs between blank lines, together."""
    for text in texts:
        lines: list[str] = []
        for line in read_texts(text):
            if str(line).strip():
                lines.append(str(line))
            elif lines:
                yield "\n".join(lines)
                lines = []
        if lines:
            yield "\n".join(lines)


def starting_model(corpus: TokenCorpus, folder: Path) -> Path:
    """Random weights of the shape, with the words of this corpus."""
    if not folder.exists():
        settings = settings_for("nano-en")
        words = list(corpus.vocabulary(WORDS, settings.data.min_count))
        shape = replace(settings.model, softmax=SoftmaxConfig(words=len(words)))
        weights = {k: v.detach() for k, v in random_model(shape, 0).state_dict().items()}
        vocabulary = Vocabulary(words, shape.text)
        checkpoint = Checkpoint(shape, weights, "elmokit", START, vocabulary=vocabulary)
        native.write(checkpoint, folder)
    return folder


def train(
    model: Path, corpus: TokenCorpus, output: Path, changes: Sequence[str], device: str | None
) -> None:
    """Train all of the model on the corpus, and store it in int8."""
    if output.exists():
        return
    run = output.with_name(f"{output.name}-run")
    preset = settings_for("nano-en")
    settings = AdaptConfig(
        output=str(run),
        data=replace(preset.data, vocabulary=WORDS),
        loss=preset.loss,
        optimizer=replace(preset.optimizer, warmup=300),
        run=replace(preset.run, qat_steps=0, save_every=MOST_STEPS),
    )
    settings = changed(settings, changes)
    every = max(1, settings.run.max_steps // 4)
    settings = changed(settings, [f"run.evaluate_every={every}"])
    adapt(str(model), str(corpus.folder), settings, device=device, resume=run.exists())
    elmokit.load(run).save(output, storage="int8")


if __name__ == "__main__":
    main()
