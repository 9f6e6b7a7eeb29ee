"""Held-out perplexity: full softmax, both directions, a zero initial state for every sentence.

Run: python -m benchmarks.models.perplexity MODEL [TEXT ...] [--data FOLDER] [--device cuda]
         [--tokens 100000] [--save NAME]

TEXT is one of the texts below (all of the model's language when left out) or a file of running
text. Words outside the vocabulary count as one unknown symbol; their share is given.

| text | what is read |
|---|---|
| dev, test | corpus-en or corpus-zh: documents kept apart from the training text |
| wikitext103 | WikiText-103 test: articles of Wikipedia, tokenised by others |
| lm1b | held-out sentences of the 1B-word benchmark: news, tokenised by others |
| sample-en, sample-zh | the small held-out texts in tests/data |

Running text is split into sentences and tokens as for training. Text that others have tokenised is
brought to the model's tokens first: "@-@", "@,@" and "@.@" become the sign and join what stands
around them, "won 't" becomes "won't", and the model's tokeniser splits the result. "<unk>" stays
one word, the unknown symbol. Headings of WikiText are left out, for no training text has any; its
paragraphs are split into sentences. So no number compares with one that was measured on another
vocabulary or other tokens.
"""

from __future__ import annotations

import argparse
import lzma
import re
import sys
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

import elmokit
from benchmarks.models.senses import LISTS, language_of
from benchmarks.report import DATA_FOLDERS, report
from elmokit.corpus.documents import read_documents
from elmokit.lm.perplexity import Perplexity, perplexity
from elmokit.text.sentences import split_sentences

DATA = next((folder for folder in DATA_FOLDERS if folder.is_dir()), None)
TEXTS = {"en": ("dev", "test", "wikitext103", "lm1b"), "zh": ("dev", "test")}
SPLIT_BY_OTHERS = {
    "wikitext103": ("wikitext103_valid_test", "wiki.test.tokens"),
    "lm1b": ("lm1b_heldout", "1b_benchmark.dev.tokens"),
}
UNKNOWN = "\ue000"
"""Stands for <unk> while text is tokenised: one sign, which no text holds."""


def sentences_of(name: str, elmo: elmokit.Elmo, data: Path | None) -> Iterator[list[str]]:
    """The sentences of a text as the model's tokens."""
    for text in _texts(name, language_of(elmo), data):
        tokens = [elmo.config.text.unknown if t == UNKNOWN else t for t in elmo.tokenize(text)]
        if tokens:
            yield tokens


def _texts(name: str, language: str, data: Path | None) -> Iterator[str]:
    if name.startswith("sample-"):
        yield from _running_text(LISTS / f"heldout_{name.removeprefix('sample-')}.txt")
    elif name in ("dev", "test"):
        yield from _running_text(_folder(data) / f"corpus-{language}" / f"{name}.txt.xz")
    elif name in SPLIT_BY_OTHERS:
        lines = _archived_lines(_folder(data) / "tasks", *SPLIT_BY_OTHERS[name])
        yield from (wikitext(lines) if name == "wikitext103" else map(joined, lines))
    else:
        yield from _running_text(Path(name))


def _folder(data: Path | None) -> Path:
    if data is None:
        sys.exit("the texts are not here: name their folder with --data, or give a file")
    return data


def _running_text(path: Path) -> Iterator[str]:
    for part in read_documents(path):
        if isinstance(part, str):
            yield from split_sentences(part)


def _archived_lines(folder: Path, archive: str, name: str) -> Iterator[str]:
    with (
        lzma.open(folder / f"{archive}.tar.xz") as packed,
        tarfile.open(fileobj=packed) as members,
    ):
        file = members.extractfile(f"{archive}/{name}")
        assert file is not None
        for line in file:
            yield line.decode("utf-8").strip()


def wikitext(lines: Iterator[str]) -> Iterator[str]:
    """Sentences of WikiText's lines, which hold a paragraph or a heading each."""
    for line in lines:
        if line and not (line.startswith("= ") and line.endswith(" =")):
            yield from split_sentences(joined(line))


def joined(text: str) -> str:
    """Undo what other tokenisers do and ours does not."""
    text = re.sub(r" @([-,.])@ ", r"\1", text)
    text = re.sub(r"(?<=n) 't\b", "'t", text)
    return text.replace("<unk>", UNKNOWN)


def measure(
    elmo: elmokit.Elmo, name: str, data: Path | None = DATA, tokens: int | None = None
) -> Perplexity:
    """Perplexity of a text, or of whole sentences from its start with at most so many tokens."""
    sentences = sentences_of(name, elmo, data)
    return perplexity(elmo, sentences if tokens is None else first(sentences, tokens))


def first(sentences: Iterator[list[str]], tokens: int) -> Iterator[list[str]]:
    """Sentences from the start that hold at most this many tokens together."""
    for sentence in sentences:
        tokens -= len(sentence)
        if tokens < 0:
            return
        yield sentence


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", help="anything that elmokit.load reads")
    parser.add_argument("texts", nargs="*", metavar="TEXT")
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the corpora and tasks")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--tokens", type=int, help="the most tokens of each text")
    parser.add_argument("--save", metavar="NAME", help="write results/perplexity_NAME.txt")
    options = parser.parse_args()
    elmo = elmokit.load(options.model, device=options.device)
    head = f"{'text':<12} {'perplexity':>10} {'forward':>8} {'backward':>8} {'sentences':>10} "
    lines = [
        f"{Path(options.model).name}: {sum(p.numel() for p in elmo.bilm.parameters()):,} "
        f"parameters, tokeniser {elmo.config.text.tokenizer}",
        head + f"{'tokens':>9} {'unknown':>8} {'words':>7} {'seconds':>8}",
    ]
    for name in options.texts or TEXTS[language_of(elmo)]:
        start = time.perf_counter()
        found = measure(elmo, name, options.data, options.tokens)
        lines.append(
            f"{Path(name).name:<12} {found.perplexity:>10.2f} {found.forward:>8.2f} "
            f"{found.backward or float('nan'):>8.2f} {found.sentences:>10,} {found.tokens:>9,} "
            f"{found.oov_rate:>8.2%} {found.vocabulary:>7,} {time.perf_counter() - start:>8.1f}"
        )
        print(lines[-1], file=sys.stderr, flush=True)
    report(f"perplexity_{options.save}", "\n".join(lines), bool(options.save))


if __name__ == "__main__":
    main()
