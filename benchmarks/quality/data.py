"""Where the data of the quality benchmark is.

Archives are unpacked under data/quality, which git ignores.
"""

from __future__ import annotations

import lzma
import tarfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from benchmarks.report import DATA_FOLDERS, ROOT
from elmokit.text.sentences import split_sentences
from elmokit.text.tokens import get_tokenizer

FOLDER = ROOT / "data" / "quality"
SENSE_TESTS = {
    "S2": "senseval2.jsonl",
    "S3": "senseval3.jsonl",
    "S07": "semeval2007_task17_allwords.jsonl",
    "S13": "semeval2013_task12.en.jsonl",
}


class Data:
    """Files of the benchmark.

    Args:
        given: The folder with ``tasks`` and ``corpus-en``; found beside the repository when None.
    """

    def __init__(self, given: Path | None) -> None:
        places = [given] if given is not None else list(DATA_FOLDERS)
        found = next((place for place in places if (place / "tasks").is_dir()), None)
        if found is None:
            raise SystemExit(f"no folder 'tasks' in {places[0]}: name the data with --data FOLDER")
        self.folder = found

    def unpacked(self, name: str) -> Path:
        """The folder of an archive, unpacked the first time it is asked for."""
        folder = FOLDER / name
        if not folder.is_dir():
            part = FOLDER / ".part"
            with tarfile.open(self.folder / "tasks" / f"{name}.tar.xz") as archive:
                archive.extractall(part, filter="data")
            (part / name).rename(folder)
        return folder

    def treebank(self, part: str) -> Path:
        """A part of UD English EWT."""
        return self.unpacked("ud_english_ewt") / f"en_ewt-ud-{part}.conllu"

    def semcor(self) -> list[Path]:
        """The two parts of SemCor."""
        return sorted(self.unpacked("semcor_wsd").glob("semcor3.0.*.jsonl"))

    def sense_tests(self) -> dict[str, Path]:
        """Test sets with senses, by short name."""
        folder = self.unpacked("semcor_wsd")
        unified = self.unpacked("wsd_ALLamended_NC") / "ALLamended.data.xml"
        return {**{k: folder / v for k, v in SENSE_TESTS.items()}, "ALLamended": unified}

    def index(self) -> Path:
        """The list of senses of WordNet 3.0."""
        return self.unpacked("wordnet30") / "index.sense"

    def ratings(self) -> Path:
        """The ratings of SCWS."""
        return self.unpacked("scws") / "ratings.txt"

    def glove(self) -> Path:
        """GloVe vectors."""
        return next(self.unpacked("glove_100d_en").glob("*.txt"))

    def sentences(self, part: str, most: int) -> list[list[str]]:
        """The first sentences of a part of the English corpus, as tokens."""
        return list(islice(self.stream(part), most))

    def stream(self, part: str) -> Iterator[list[str]]:
        """All of them, a sentence at a time."""
        tokenizer = get_tokenizer("words")
        with lzma.open(
            self.folder / "corpus-en" / f"{part}.txt.xz", "rt", encoding="utf-8"
        ) as file:
            for line in file:
                for sentence in split_sentences(line.strip()):
                    tokens = tokenizer.tokenize(sentence)
                    if 4 <= len(tokens) <= 100:
                        yield tokens
