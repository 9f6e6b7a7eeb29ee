"""New text for the embedded models: documents less what is known already and what is held out.

    python -m benchmarks.models.corpora wiki2014.txt wiki2015.txt -o new.txt.xz --seed 0 \
        --known 'corpus/train-*.txt.xz' --held-out corpus/dev.txt.xz corpus/test.txt.xz tasks/*.xz

Texts have paragraphs one per line and an empty line between documents. Compared are windows of
words in lower case, punctuation left out; a Chinese character is a word of its own.

- A paragraph that shares a window of 13 words with held-out text is dropped. So is a document with
  three such paragraphs: it is the same article.
- A paragraph is known if half of its windows of 8 words are. If known paragraphs hold half of a
  document's words, the whole document is another version of a known one, and is dropped.
- Paragraphs that occurred before, word for word, are dropped.

Prints how much was removed for which reason. Documents are written in random order.
"""

from __future__ import annotations

import argparse
import glob
import io
import lzma
import random
import re
import tarfile
from collections import Counter
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from pathlib import Path

import numpy as np
import numpy.typing as npt

KNOWN_WINDOW = 8
HELD_OUT_WINDOW = 13
SAMPLED = 4  # of the windows of known text, those whose hash is a multiple of this are kept
SAME_ARTICLE = 3
BATCH = 1 << 21  # characters

Hashes = npt.NDArray[np.uint64]
WORD = re.compile(r"[\u3400-\u9fff]|[^\W_\u3400-\u9fff]+")


class WordHashes(dict[str, int]):
    """A 64-bit number for every word."""

    def __missing__(self, word: str) -> int:
        number = int.from_bytes(blake2b(word.encode(), digest_size=8).digest(), "little")
        self[word] = number
        return number

    def of(self, text: str) -> Hashes:
        words = WORD.findall(text.lower())
        return np.fromiter(map(self.__getitem__, words), np.uint64, len(words))


def windows(words: Hashes, length: int) -> Hashes:
    """A hash for each run of `length` words."""
    count = len(words) - length + 1
    if count <= 0:
        return np.empty(0, np.uint64)
    total = np.zeros(count, np.uint64)
    for place in range(length):
        total = total * np.uint64(0x9E3779B97F4A7C15) + words[place : place + count]
    return total ^ (total >> np.uint64(29))


def read_text(path: str) -> str:
    data = Path(path).read_bytes()
    return (lzma.decompress(data) if path.endswith(".xz") else data).decode("utf-8", "replace")


def documents(text: str) -> Iterator[list[str]]:
    for document in text.split("\n\n"):
        paragraphs = [line for line in document.split("\n") if line.strip()]
        if paragraphs:
            yield paragraphs


def held_out_texts(path: str) -> Iterator[str]:
    """The text of a file, or of every file in an archive; columns of a table one after another."""
    if not path.endswith(".tar.xz"):
        yield read_text(path)
        return
    with tarfile.open(path) as archive:
        for member in archive:
            handle = archive.extractfile(member) if member.isfile() else None
            if handle is None:
                continue
            text = handle.read().decode("utf-8", "replace")
            text = re.sub(r"\\u([0-9a-fA-F]{4})", lambda found: chr(int(found[1], 16)), text)
            yield text
            rows = [re.split(r"[\t ]+", line) for line in text.split("\n")]
            widths = Counter(len(row) for row in rows if len(row) > 1)
            if widths and widths.most_common(1)[0][1] > 0.5 * len(rows):  # one token per line
                for column in range(min(3, widths.most_common(1)[0][0])):
                    yield " ".join(row[column] for row in rows if len(row) > column)


def known_hashes(texts: Iterable[str], hashes: WordHashes, length: int, sampled: int) -> Hashes:
    """The sorted hashes of the windows of all texts."""
    kept = []
    for text in texts:
        for start in range(0, len(text), BATCH):
            found = windows(hashes.of(text[start : start + BATCH]), length)
            kept.append(np.unique(found[found % np.uint64(sampled) == 0]))
    return np.unique(np.concatenate(kept)) if kept else np.empty(0, np.uint64)


def is_in(values: Hashes, known: Hashes) -> npt.NDArray[np.bool_]:
    if not len(known):
        return np.zeros(len(values), np.bool_)
    places = np.minimum(np.searchsorted(known, values), len(known) - 1)
    return known[places] == values


class Filter:
    """Decides about documents, and counts what was removed."""

    def __init__(self, known: Hashes, held_out: Hashes, hashes: WordHashes) -> None:
        self.known, self.held_out, self.hashes = known, held_out, hashes
        self.seen: set[bytes] = set()
        self.counts: Counter[str] = Counter()

    def keep(self, paragraphs: list[str]) -> list[str]:
        sizes, kept, hits, known_words = [], [], 0, 0
        for paragraph in paragraphs:
            words = self.hashes.of(paragraph)
            sizes.append(len(words))
            if is_in(windows(words, HELD_OUT_WINDOW), self.held_out).any():
                hits += 1
                self._count("held out", len(words))
                continue
            found = windows(words, KNOWN_WINDOW)
            found = found[found % np.uint64(SAMPLED) == 0]
            if len(found) and is_in(found, self.known).mean() >= 0.5:
                known_words += len(words)
                self._count("known", len(words))
                continue
            digest = blake2b(words.tobytes(), digest_size=8).digest()
            if digest in self.seen:
                self._count("repeated", len(words))
                continue
            self.seen.add(digest)
            kept.append((paragraph, len(words)))
        rest = sum(count for _, count in kept)
        if hits >= SAME_ARTICLE or known_words > 0.5 * sum(sizes):
            self._count("rest of such documents", rest)
            return []
        self.counts["documents kept"] += bool(kept)
        self.counts["words kept"] += rest
        return [paragraph for paragraph, _ in kept]

    def _count(self, reason: str, words: int) -> None:
        self.counts[f"paragraphs removed, {reason}"] += 1
        self.counts[f"words removed, {reason}"] += words


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("texts", nargs="+")
    parser.add_argument("-o", "--output", required=True, help="a .txt or .txt.xz file")
    parser.add_argument("--known", nargs="*", default=[])
    parser.add_argument("--held-out", nargs="*", default=[])
    parser.add_argument("--words", type=int, default=0, help="stop after so many of each text")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    hashes = WordHashes()
    known_paths = [path for pattern in given.known for path in sorted(glob.glob(pattern))]
    held_out_paths = [path for pattern in given.held_out for path in sorted(glob.glob(pattern))]
    known = known_hashes(map(read_text, known_paths), hashes, KNOWN_WINDOW, SAMPLED)
    held_texts = (text for path in held_out_paths for text in held_out_texts(path))
    held_out = known_hashes(held_texts, hashes, HELD_OUT_WINDOW, 1)
    print(f"{len(known):,} windows of known text, {len(held_out):,} of held-out text", flush=True)
    chooser = random.Random(given.seed)
    kept: list[str] = []
    for path in given.texts:
        chosen = Filter(known, held_out, hashes)
        everything = list(documents(read_text(path)))
        chooser.shuffle(everything)
        for paragraphs in everything:
            rest = chosen.keep(paragraphs)
            if rest:
                kept.append("\n".join(rest))
            if given.words and chosen.counts["words kept"] >= given.words:
                break
        print(path)
        for reason, count in sorted(chosen.counts.items()):
            print(f"  {count:>12,}  {reason}", flush=True)
    chooser.shuffle(kept)
    opened = lzma.open if given.output.endswith(".xz") else open
    with opened(given.output, "wb") as handle, io.TextIOWrapper(handle, "utf-8") as out:
        out.writelines(document + "\n\n" for document in kept)


if __name__ == "__main__":
    main()
