"""Preparing a corpus: what comes out is what the tokeniser found, whatever the way there."""

import bz2
import doctest
import itertools
import json
import os
import signal
import subprocess
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elmokit.config import from_dict
from elmokit.corpus import documents
from elmokit.corpus.cleaning import CleaningConfig
from elmokit.corpus.prepare import CorpusConfig, CorpusSummary, prepare_corpus
from elmokit.corpus.shards import CorpusSplit, TokenCorpus
from elmokit.corpus.workers import ordered_map
from elmokit.errors import ConfigError, DataError, ElmokitError, MissingExtraError
from elmokit.text.sentences import split_sentences
from elmokit.text.tokens import get_tokenizer

ALL_TRAIN = CorpusConfig(heldout=0)
LINES = CorpusConfig(heldout=0, sentences="line", tokenizer="space")


def write(folder: Path, name: str, text: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def prepare(folder: Path, *sources: str | Path, **options: object) -> TokenCorpus:
    options.setdefault("workers", 1)
    # A single source needs no list.
    given_sources = sources[0] if len(sources) == 1 else sources
    prepare_corpus(given_sources, folder / "corpus", **options)
    return TokenCorpus(folder / "corpus", verify=True)


def sentences_of(corpus: TokenCorpus, split: str = "train") -> list[list[str]]:
    part = corpus.split(split)
    return [[corpus.words[i] for i in part.tokens_of(n)] for n in range(len(part))]


def documents_of(corpus: TokenCorpus, split: str = "train") -> list[list[list[str]]]:
    sentences = sentences_of(corpus, split)
    starts = [*corpus.split(split).document_starts().tolist(), len(sentences)]
    return [sentences[a:b] for a, b in itertools.pairwise(starts)]


words = st.text(st.characters(exclude_categories=["Cs", "Zs", "Zl", "Zp", "Cc"]), min_size=1)
paragraphs = st.lists(words, min_size=1).map(" ".join).filter(lambda text: not text.isspace())
texts = st.lists(st.lists(paragraphs, min_size=1), min_size=1)  # documents of paragraphs


@settings(max_examples=60)
@given(texts=texts, mode=st.sampled_from(["split", "line"]), shard=st.integers(1, 40))
def test_prepare_round_trip(texts: list[list[str]], mode: str, shard: int) -> None:
    tokenize = get_tokenizer("words").tokenize
    split: Callable[[str], list[str]] = split_sentences if mode == "split" else lambda text: [text]
    expected = [[tokenize(s) for text in document for s in split(text)] for document in texts]
    with TemporaryDirectory() as folder:
        path = write(Path(folder), "a.txt", "\n\n".join("\n".join(d) for d in texts))
        if path.read_bytes().startswith(b"\xef\xbb\xbf"):
            return  # a byte order mark is dropped; its own test is the reader's
        config = CorpusConfig(heldout=0, sentences=mode, shard_tokens=shard)
        corpus = prepare(Path(folder), path, settings=config)
        assert documents_of(corpus) == expected
        flat = [token for document in expected for sentence in document for token in sentence]
        counts = Counter(flat)
        for special in ("<S>", "</S>", "<UNK>"):
            counts[special] += 0
        assert dict(zip(corpus.words, corpus.counts.tolist(), strict=True)) == counts
        # Sorted by count, ties by first appearance, the special words always first.
        assert corpus.words == [
            "<S>",
            "</S>",
            "<UNK>",
            *(
                word
                for word, _ in Counter(flat).most_common()
                if word not in ("<S>", "</S>", "<UNK>")
            ),
        ]


def random_text(lines: int, seed: int = 0) -> str:
    generator = np.random.default_rng(seed)
    rows = []
    for line in range(lines):
        numbers = generator.zipf(1.3, 30) % 5000
        rows.append(" ".join(f"w{number}" for number in numbers) + ".")
        if line % 7 == 0:
            rows.append("")
    return "\n".join(rows)


def test_prepare_gives_the_same_bytes_with_any_number_of_workers(tmp_path: Path) -> None:
    source = write(tmp_path, "a.txt", random_text(9000))
    config = CorpusConfig(heldout=0.1, shard_tokens=50_000)
    seen = []
    for workers in (1, 2, 3):
        folder = tmp_path / str(workers)
        tokens: list[int] = []
        summary = prepare_corpus(
            [source], folder, settings=config, workers=workers, progress=tokens.append
        )
        assert sum(tokens) == summary.train.tokens + summary.heldout.tokens
        assert len(tokens) > 3  # several chunks, or nothing would be tried
        seen.append({path.name: path.read_bytes() for path in folder.iterdir()})
    assert seen[0] == seen[1] == seen[2]
    assert "train-00002.tokens.npy" in seen[0]


def test_prepare_holds_out_whole_documents_by_their_text(tmp_path: Path) -> None:
    def document(number: int) -> str:
        return f"Document {number} begins.\nIt ends with {number}."

    files = [
        write(
            tmp_path, f"{part}.txt", "\n\n".join(map(document, range(part * 300, part * 300 + 300)))
        )
        for part in range(3)
    ]
    config = CorpusConfig(heldout=0.2)
    corpus = prepare(tmp_path, *files, settings=config)
    train, heldout = documents_of(corpus), documents_of(corpus, "heldout")
    assert len(train) + len(heldout) == 900
    assert 130 < len(heldout) < 230
    assert {d[0][1] for d in train}.isdisjoint(d[0][1] for d in heldout)
    assert all(len(d) == 2 and d[0][1] == d[1][3] for d in train + heldout)

    # Another order, and only some of the files: each document keeps its side.
    other = prepare(tmp_path, files[2], files[0], settings=config, overwrite=True)
    again = documents_of(other, "heldout")
    assert [d for d in again if d in heldout] == again
    # Copies are in one split.
    twice = prepare(tmp_path, files[0], files[0], settings=config, overwrite=True)
    assert {d[0][1] for d in documents_of(twice)}.isdisjoint(
        d[0][1] for d in documents_of(twice, "heldout")
    )


def test_prepare_counts_words_of_the_training_text_alone(tmp_path: Path) -> None:
    lines = [f"only{n} shared shared" for n in range(400)]
    config = CorpusConfig(heldout=0.3, sentences="line", documents="line", tokenizer="space")
    corpus = prepare(tmp_path, write(tmp_path, "a.txt", "\n".join(lines)), settings=config)
    train = Counter(word for sentence in sentences_of(corpus) for word in sentence)
    heldout = {word for sentence in sentences_of(corpus, "heldout") for word in sentence}
    assert corpus.words[3] == "shared"
    assert corpus.counts[3] == train["shared"]
    unseen = heldout - set(train)
    assert unseen
    assert set(corpus.words[-len(unseen) :]) == unseen
    assert not corpus.counts[-len(unseen) :].any()
    assert unseen.isdisjoint(corpus.vocabulary())
    counts = corpus.split("train").counts
    assert (counts.types, counts.documents) == (len(train), len(corpus.split("train")))


def test_prepare_summary_and_description(tmp_path: Path) -> None:
    write(tmp_path, "a.txt", "One two. Three.\nFour\n\nFive")
    folder = tmp_path / "out"
    config = CorpusConfig(heldout=0, cleaning=CleaningConfig(lower=True), max_tokens=9)
    summary = prepare_corpus([tmp_path / "a.txt"], folder, settings=config, workers=1)
    assert isinstance(summary, CorpusSummary)
    counts = summary.train
    assert (counts.documents, counts.sentences, counts.tokens, counts.types) == (2, 4, 7, 6)
    assert summary.heldout.tokens == 0
    assert summary.words == 9
    description = json.loads((folder / "corpus.json").read_text(encoding="utf-8"))
    assert (description["format"], description["version"]) == ("elmokit-corpus", 1)
    assert description["sources"] == ["a.txt"]
    assert from_dict(CorpusConfig, description["settings"]) == config
    assert str(tmp_path) not in (folder / "corpus.json").read_text(encoding="utf-8")
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_prepare_records_are_documents(tmp_path: Path) -> None:
    rows = [{"body": "One. Two.\n\nThree."}, {"body": ["four", "five"]}, {"body": " "}]
    jsonl = write(tmp_path, "a.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    table = write(tmp_path, "a.csv", 'id,body\n1,"Six,\nseven"\n2,Eight\n')
    config = CorpusConfig(heldout=0, field="body")
    corpus = prepare(tmp_path, jsonl, table, settings=config)
    assert documents_of(corpus) == [
        [["One", "."], ["Two", "."], ["Three", "."]],
        [["four", "five"]],
        [["Six", ",", "seven"]],
        [["Eight"]],
    ]
    lines = CorpusConfig(heldout=0, field="body", sentences="line")
    corpus = prepare(tmp_path, table, settings=lines, overwrite=True)
    assert documents_of(corpus) == [[["Six", ","], ["seven"]], [["Eight"]]]


def test_prepare_hugging_face_streams_a_local_data_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("datasets")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    data = tmp_path / "set"
    data.mkdir()
    for split in ("train", "validation"):
        write(data, f"{split}.jsonl", json.dumps({"text": f"One {split}."}) + "\n")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        corpus = prepare(tmp_path, f"hfds:{data}::validation", f"hfds:{data}", settings=ALL_TRAIN)
        assert documents_of(corpus) == [[["One", "validation", "."]], [["One", "train", "."]]]
        assert corpus.sources == ("hfds:set::validation", "hfds:set")
        with pytest.raises(DataError, match=r"hfds:.*row 1: no field 'body'; found 'text'"):
            prepare(
                tmp_path,
                f"hfds:{data}",
                settings=CorpusConfig(field="body"),
                overwrite=True,
            )
        with pytest.raises(DataError, match="cannot open it"):
            prepare(tmp_path, f"hfds:{data}::nosuch", overwrite=True)


def test_prepare_hugging_face_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match="hfds:NAME:CONFIG:SPLIT"):
        prepare(tmp_path, "hfds:a:b:c:d")
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(MissingExtraError, match=r"elmokit\[data\]"):
        prepare(tmp_path, "hfds:wikitext")


def test_prepare_reads_dumps(tmp_path: Path) -> None:
    pages = "".join(
        f"<page><ns>0</ns><revision><text>'''{name}''' is [[a|a city]]. It is old.</text>"
        "</revision></page>"
        for name in ("Oslo", "Bergen")
    )
    dump = write(tmp_path, "a.xml.bz2", bz2.compress(f"<mediawiki>{pages}</mediawiki>".encode()))
    assert documents_of(prepare(tmp_path, dump, settings=ALL_TRAIN, workers=2)) == [
        [[name, "is", "a", "city", "."], ["It", "is", "old", "."]] for name in ("Oslo", "Bergen")
    ]


def test_prepare_cuts_sentences_that_are_too_long(tmp_path: Path) -> None:
    source = write(tmp_path, "a.txt", "a b c d e f g\nh\ni j k l m n")
    config = CorpusConfig(heldout=0, sentences="line", tokenizer="space", max_tokens=3)
    corpus = prepare(tmp_path, source, settings=config)
    pieces = [" ".join(sentence) for sentence in sentences_of(corpus)]
    assert pieces == ["a b c", "d e f", "g", "h", "i j k", "l m n"]


def test_prepare_cleans_tokens(tmp_path: Path) -> None:
    cleaning = CleaningConfig(lower=True, strip_non_letters=True, stop_words=("THE",))
    source = write(tmp_path, "a.txt", "The R.M.S. Titanic sank in 1912. The 1st.\n1912\n")
    corpus = prepare(tmp_path, source, settings=CorpusConfig(heldout=0, cleaning=cleaning))
    assert sentences_of(corpus) == [["rms", "titanic", "sank", "in"], ["st"]]


def test_prepare_takes_special_words_in_the_text_for_what_they_are(tmp_path: Path) -> None:
    corpus = prepare(tmp_path, write(tmp_path, "a.txt", "a <UNK> b <S>"), settings=LINES)
    assert corpus.split("train").tokens_of(0).tolist() == [3, 2, 4, 0]
    assert corpus.words == ["<S>", "</S>", "<UNK>", "a", "b"]


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_prepare_line_ends(tmp_path: Path, line_end: str) -> None:
    text = line_end.join(["", "", "a b", "c", " \t", "", "d"])
    corpus = prepare(tmp_path, write(tmp_path, "a.txt", text), settings=LINES)
    assert documents_of(corpus) == [[["a", "b"], ["c"]], [["d"]]]


def test_prepare_cuts_a_gigantic_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "LONGEST_TEXT", 1000)
    tokens = [f"w{n}" for n in range(5000)]
    source = write(tmp_path, "a.txt", " ".join(tokens) + "\n\nnext")
    corpus = prepare(tmp_path, source, settings=LINES)
    assert [t for sentence in sentences_of(corpus)[:-1] for t in sentence] == tokens
    assert max(map(len, sentences_of(corpus))) < 1000
    assert len(documents_of(corpus)) == 2
    blind = write(tmp_path, "b.txt", "x" * 2500)  # nowhere to cut it well
    corpus = prepare(tmp_path, blind, settings=LINES, overwrite=True)
    assert [len(sentence[0]) for sentence in sentences_of(corpus)] == [1000, 1000, 500]


def test_prepare_empty_file_beside_others(tmp_path: Path) -> None:
    empty = write(tmp_path, "empty.txt", "")
    corpus = prepare(tmp_path, empty, write(tmp_path, "a.txt", "a"), empty, settings=LINES)
    assert documents_of(corpus) == [[["a"]]]


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.txt", b"", "no text in .*a.txt"),
        ("a.txt", b" \n\n\t\r\n", "no text in .*a.txt"),
        ("a.txt", b"fine\nb\xffd\n", r"a.txt, line 2: byte 1 \(0xff\) is not valid UTF-8"),
        ("a.jsonl", b'{"text": "a"}\n{"text": 1}\n', "a.jsonl, line 2"),
        ("a.jsonl", b'["a", "b"]\n', "a.jsonl, line 1"),
        ("a.jsonl", b'{"text": ["a", ""]}\n', "a.jsonl, text 1: the token ''"),
        ("a.jsonl", b'{"text": ["a", "b\\n"]}\n', "a.jsonl, text 1: the token"),
        ("a.xml", b"<html></html>", "a.xml: the root element is <html>"),
        ("a.xml", b"<mediawiki><page>", "a.xml, after 0 articles: not valid XML"),
    ],
)
@pytest.mark.parametrize("workers", [1, 2])
def test_prepare_bad_input_leaves_nothing(
    tmp_path: Path, name: str, data: bytes, message: str, workers: int
) -> None:
    source = write(tmp_path, name, data)
    with pytest.raises(DataError, match=message) as caught:
        prepare(tmp_path, source, workers=workers)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == [source]


def test_prepare_all_or_nothing_held_out(tmp_path: Path) -> None:
    source = write(tmp_path, "a.txt", "one document")
    with pytest.raises(DataError, match="all 1 documents were held out"):
        prepare(tmp_path, source, settings=CorpusConfig(heldout=0.999999))
    with pytest.warns(UserWarning, match="no text was held out: none of the 1 documents"):
        prepare(tmp_path, source, settings=CorpusConfig(heldout=1e-9))


def test_prepare_replaces_a_corpus_only_when_asked(tmp_path: Path) -> None:
    first, second = write(tmp_path, "a.txt", "a"), write(tmp_path, "b.txt", "b")
    (tmp_path / "corpus").mkdir()  # an empty folder is in nobody's way
    prepare(tmp_path, first, settings=LINES)
    with pytest.raises(DataError, match="there is a corpus already"):
        prepare(tmp_path, second, settings=LINES)
    with pytest.raises(DataError, match="not valid UTF-8"):
        prepare(tmp_path, write(tmp_path, "c.txt", b"\xff"), settings=LINES, overwrite=True)
    assert sentences_of(TokenCorpus(tmp_path / "corpus")) == [["a"]]
    assert sentences_of(prepare(tmp_path, second, settings=LINES, overwrite=True)) == [["b"]]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.txt", "b.txt", "c.txt", "corpus"]


def test_prepare_never_replaces_anything_else(tmp_path: Path) -> None:
    source = write(tmp_path, "a.txt", "a")
    with pytest.raises(DataError, match="this is a file"):
        prepare_corpus([source], source, workers=1, overwrite=True)
    with pytest.raises(DataError, match="has other files in it"):
        prepare_corpus([source], tmp_path, workers=1, overwrite=True)
    with pytest.raises(DataError, match="does not exist"):
        prepare_corpus([source], tmp_path / "no" / "where", workers=1)
    assert list(tmp_path.iterdir()) == [source]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"heldout": 1.0}, "heldout"),
        ({"heldout": float("nan")}, "heldout"),
        ({"sentences": "words"}, "use split or line"),
        ({"documents": "page"}, "use blank or line"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"shard_tokens": True}, "shard_tokens"),
    ],
)
def test_prepare_config_is_checked(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        CorpusConfig(**wrong)


def test_prepare_bad_calls(tmp_path: Path) -> None:
    source = write(tmp_path, "a.txt", "a")
    with pytest.raises(ConfigError, match="no sources"):
        prepare(tmp_path)
    with pytest.raises(ConfigError, match="workers = 0"):
        prepare(tmp_path, source, workers=0)
    with pytest.raises(ConfigError, match="unknown tokeniser"):
        prepare(tmp_path, source, settings=CorpusConfig(tokenizer="wrods"))
    with pytest.raises(DataError, match="no such file"):
        prepare(tmp_path, source, tmp_path / "missing.txt")


SLOW_RUN = """
import sys, time
from elmokit.corpus.prepare import CorpusConfig, prepare_corpus

def progress(tokens):
    print(flush=True)
    time.sleep(60)

if __name__ == "__main__":
    prepare_corpus(sys.argv[1:2], sys.argv[2], workers=2, progress=progress)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_prepare_killed_run_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    source = write(tmp_path, "a.txt", random_text(9000))
    script = write(tmp_path, "run.py", SLOW_RUN)
    command = [sys.executable, str(script), str(source), str(tmp_path / "corpus")]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    ) as run:
        assert run.stdout is not None
        run.stdout.readline()  # the first chunk is done
        run.send_signal(number)
        # The workers hold the pipe too: this returns when they have ended as well.
        _, stderr = run.communicate(timeout=30)
    assert b"KeyboardInterrupt" in stderr or number == signal.SIGKILL
    assert not (tmp_path / "corpus").exists()
    left = [path.name for path in tmp_path.iterdir() if path.name not in ("a.txt", "run.py")]
    assert all(name.startswith(".elmokit-") for name in left)
    assert number == signal.SIGKILL or not left


def fail_on_three(number: int) -> int:
    if number == 3:
        raise ValueError("three")
    return number * number


def die_on_three(number: int) -> int:
    if number == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def slow_when_even(number: int) -> int:
    time.sleep(0.02 if number % 2 == 0 else 0)
    return number


def test_ordered_map_keeps_the_order() -> None:
    assert list(ordered_map(slow_when_even, iter(range(40)), 3)) == [(n, n) for n in range(40)]
    assert list(ordered_map(slow_when_even, iter([]), 2)) == []


def test_ordered_map_reads_only_a_little_ahead() -> None:
    read = []

    def numbers():
        for number in range(10_000):
            read.append(number)
            yield number

    results = ordered_map(slow_when_even, numbers(), 2)
    for _ in range(5):
        next(results)
    results.close()
    assert len(read) < 50


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_ordered_map_reports_what_happens_to_workers() -> None:
    with pytest.raises(RuntimeError, match="ValueError: three"):
        list(ordered_map(fail_on_three, iter(range(10)), 2))
    with pytest.raises(ElmokitError, match="a worker process ended early"):
        list(ordered_map(die_on_three, iter(range(10)), 2))


def test_splits_know_their_names(tmp_path: Path) -> None:
    corpus = prepare(tmp_path, write(tmp_path, "a.txt", "a"), settings=LINES)
    assert isinstance(corpus.split("heldout"), CorpusSplit)
    with pytest.raises(DataError, match="no split 'dev'"):
        corpus.split("dev")


def test_corpus_page_is_true(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = Path(__file__).parents[2] / "docs" / "corpus.md"
    failed, tried = doctest.testfile(str(page), module_relative=False, encoding="utf-8")
    assert tried > 10
    assert not failed


def test_every_sequence_of_a_fasta_file_is_a_document(tmp_path):
    path = tmp_path / "proteins.fasta"
    path.write_text(">a\nMK\n>b\nacd*\n", encoding="utf-8")
    end = documents.END
    assert list(documents.read_documents(path)) == [["M", "K"], end, ["A", "C", "D"], end]
