"""Reading a prepared corpus: access to sentences, and what a damaged folder says."""

import json
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elmokit.config import TextConfig
from elmokit.corpus.prepare import CorpusConfig, prepare_corpus
from elmokit.corpus.shards import TokenCorpus
from elmokit.corpus.stats import corpus_stats, plot_corpus
from elmokit.errors import DataError, MissingExtraError
from elmokit.text.vocab import Vocabulary


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """300 documents in several shards; the longer a document's number, the longer its sentences."""
    target = tmp_path_factory.mktemp("shards")
    generator = np.random.default_rng(0)
    documents = []
    for _ in range(300):
        lengths = generator.integers(1, 12, size=generator.integers(1, 6))
        lines = [" ".join(f"w{n}" for n in generator.zipf(1.5, k) % 400) for k in lengths]
        documents.append("\n".join(lines))
    (target / "a.txt").write_text("\n\n".join(documents), encoding="utf-8")
    config = CorpusConfig(tokenizer="space", sentences="line", heldout=0.2, shard_tokens=700)
    prepare_corpus([target / "a.txt"], target / "corpus", settings=config, workers=1)
    return target / "corpus"


@pytest.fixture
def copy(folder: Path, tmp_path: Path) -> Path:
    """A copy that may be damaged."""
    target = tmp_path / "copy"
    target.mkdir()
    for path in folder.iterdir():
        (target / path.name).write_bytes(path.read_bytes())
    return target


def test_shards_number_sentences_through(folder: Path) -> None:
    corpus = TokenCorpus(folder, verify=True)
    train = corpus.split("train")
    assert len(list(train.token_arrays())) > 3
    assert len(train) == train.counts.sentences
    assert train.tokens == train.counts.tokens == int(train.lengths().sum())
    tokens = np.concatenate(list(train.token_arrays()))
    ends = np.cumsum(train.lengths())
    for number in range(len(train)):
        start = ends[number] - train.lengths()[number]
        assert np.array_equal(train.tokens_of(number), tokens[start : ends[number]])
    starts = train.document_starts()
    assert len(starts) == train.counts.documents
    assert starts[0] == 0
    assert (np.diff(starts) > 0).all()
    assert corpus.tokenizer == "space"
    assert isinstance(next(train.token_arrays()), np.memmap)


@settings(max_examples=50)
@given(data=st.data())
def test_shards_gather_equals_one_by_one(folder: Path, data: st.DataObject) -> None:
    split = TokenCorpus(folder).split(data.draw(st.sampled_from(["train", "heldout"])))
    chosen = data.draw(st.lists(st.integers(0, len(split) - 1)))
    flat, lengths = split.gather(chosen)
    pieces = [split.tokens_of(number) for number in chosen]
    assert lengths.tolist() == [len(piece) for piece in pieces]
    assert np.array_equal(flat, np.concatenate([np.zeros(0, np.uint32), *pieces]))
    assert flat.dtype == np.uint32


def test_shards_outside_numbers(folder: Path) -> None:
    split = TokenCorpus(folder).split("train")
    for wrong in (-1, len(split)):
        with pytest.raises(IndexError):
            split.tokens_of(wrong)
        with pytest.raises(IndexError):
            split.gather([0, wrong])


def test_shards_vocabulary_is_a_prefix(folder: Path) -> None:
    corpus = TokenCorpus(folder)
    assert corpus.vocabulary(10) == corpus.words[:10]
    assert corpus.vocabulary(3) == ["<S>", "</S>", "<UNK>"]
    frequent = corpus.vocabulary(min_count=5)
    assert corpus.counts[len(frequent) - 1] >= 5 > corpus.counts[len(frequent)]
    words = Vocabulary(corpus.vocabulary(50), TextConfig())
    train = corpus.split("train")
    for number in range(20):
        ids = train.tokens_of(number)
        spelled = [words.id(corpus.words[i]) for i in ids]
        assert spelled == np.where(ids < 50, ids, 2).tolist()
    for wrong in ({"size": 2}, {"min_count": 0}):
        with pytest.raises(DataError, match="at least the 3 special words"):
            corpus.vocabulary(**wrong)


def test_shards_checksum_failure(copy: Path) -> None:
    path = copy / "train-00001.tokens.npy"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    TokenCorpus(copy)  # the size is right
    with pytest.raises(DataError, match=r"train-00001.tokens.npy: its checksum"):
        TokenCorpus(copy, verify=True)
    with pytest.raises(DataError, match="damaged"):
        TokenCorpus(copy).verify()


def test_shards_cut_off_or_missing(copy: Path) -> None:
    path = copy / "heldout-00000.tokens.npy"
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(DataError, match=r"heldout-00000.tokens.npy: it has \d+ bytes, and"):
        TokenCorpus(copy)
    path.unlink()
    with pytest.raises(DataError, match=r"heldout-00000.tokens.npy: the file is missing"):
        TokenCorpus(copy)


def replace(folder: Path, name: str, array: np.ndarray) -> None:
    """Another array under the same name, and a description that agrees with it."""
    np.save(folder / name, array)
    description = json.loads((folder / "corpus.json").read_text(encoding="utf-8"))
    data = (folder / name).read_bytes()
    description["files"][name] = {"bytes": len(data), "crc32": zlib.crc32(data)}
    (folder / "corpus.json").write_text(json.dumps(description), encoding="utf-8")


def test_shards_arrays_must_be_what_is_promised(copy: Path) -> None:
    name = "train-00000.tokens.npy"
    right = np.load(copy / name)
    for wrong in (right.astype(np.int64), right[:-1], right.reshape(1, -1), right.astype(">u4")):
        replace(copy, name, wrong)
        with pytest.raises(DataError, match=name):
            TokenCorpus(copy).split("train")
    replace(copy, name, right)
    starts = np.load(copy / "train-00000.starts.npy")
    replace(copy, "train-00000.starts.npy", starts + 1)
    with pytest.raises(DataError, match="does not fit the tokens"):
        TokenCorpus(copy).split("train")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "other"}, "the format is not"),
        ({"version": 2}, "version 2, and this elmokit reads 1"),
        ({"counts": {}}, "a field is missing or wrong"),
        ({"files": {"../x": {"bytes": 1, "crc32": 1}}}, "outside the folder"),
        ({"shards": 3}, "a field is missing or wrong"),
    ],
)
def test_shards_bad_description(copy: Path, change: dict[str, object], message: str) -> None:
    path = copy / "corpus.json"
    description = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**description, **change}), encoding="utf-8")
    with pytest.raises(DataError, match=message):
        TokenCorpus(copy)


def test_shards_not_a_corpus(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no prepared corpus.*elmokit corpus prepare"):
        TokenCorpus(tmp_path)
    (tmp_path / "corpus.json").write_text("{")
    with pytest.raises(DataError, match="not valid JSON"):
        TokenCorpus(tmp_path)


def test_stats_agree_with_counting(folder: Path) -> None:
    corpus = TokenCorpus(folder)
    found = corpus_stats(corpus, [20, 100])
    for name in ("train", "heldout"):
        tokens = np.concatenate(list(corpus.split(name).token_arrays()))
        lengths = corpus.split(name).lengths()
        for row in found.coverage:
            share = row.train_oov if name == "train" else row.heldout_oov
            assert share == pytest.approx(np.mean(tokens >= row.size))
        about = found.lengths[name]
        assert about is not None
        assert about.longest == lengths.max()
        assert about.percentiles[50] == np.sort(lengths)[(len(lengths) - 1) // 2]
        assert found.counts[name].types == len(np.unique(tokens))
    assert found.once == np.count_nonzero(corpus.counts == 1)
    # Words of the held-out text alone are unknown to every vocabulary.
    largest = corpus_stats(corpus).coverage[-1]
    assert largest.train_oov == 0
    assert largest.heldout_oov is not None
    assert largest.heldout_oov > 0
    assert corpus_stats(corpus, [10**6]).coverage[0].heldout_oov == largest.heldout_oov
    with pytest.raises(DataError, match="vocabulary size 2"):
        corpus_stats(corpus, [2])


def test_plot_needs_matplotlib(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.backends.backend_agg", None)
    with pytest.raises(MissingExtraError, match=r"elmokit\[plots\]"):
        plot_corpus(TokenCorpus(folder), "a.png")


def test_plot_writes_a_picture(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    plot_corpus(TokenCorpus(folder), tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(DataError, match="no picture format"):
        plot_corpus(TokenCorpus(folder), tmp_path / "a.doc")
