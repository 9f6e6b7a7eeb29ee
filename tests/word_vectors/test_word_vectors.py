"""Static word vectors: every file kind, damage, lookup rules; gensim is the outside witness."""

import gzip
import struct
import tracemalloc
import warnings
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from elmokit.errors import ConfigError, DataError
from elmokit.word_vectors.table import WordVectors

RNG = np.random.default_rng(7)
WORDS = ["the", "Apple", "北京", "naïve", "a\u2028b", "c\u0085d", "7", "😀"]
MATRIX = RNG.normal(size=(len(WORDS), 5)).astype(np.float32)


def text_of(words: list[str], matrix: np.ndarray, header: str = "") -> bytes:
    lines = [
        f"{w} {' '.join(str(float(x)) for x in row)}\n"
        for w, row in zip(words, matrix, strict=True)
    ]
    return (header + "".join(lines)).encode()


def binary_of(words: list[bytes], matrix: np.ndarray, newline: bytes) -> bytes:
    records = [w + b" " + row.tobytes() + newline for w, row in zip(words, matrix, strict=True)]
    return f"{len(words)} {matrix.shape[1]}\n".encode() + b"".join(records)


KINDS = {
    "glove": text_of(WORDS, MATRIX),
    "word2vec text": text_of(WORDS, MATRIX, "8 5\n"),
    "fasttext vec": text_of(WORDS, MATRIX, "8 5\n")
    .replace(b"\n", b" \n")
    .replace(b"5 \n", b"5\n", 1),
    "windows": text_of(WORDS, MATRIX, "8 5\n").replace(b"\n", b"\r\n"),
    "no last newline": text_of(WORDS, MATRIX)[:-1],
    "blank end": text_of(WORDS, MATRIX) + b"\n\n",
    "binary": binary_of([w.encode() for w in WORDS], MATRIX, b""),
    "binary with newlines": binary_of([w.encode() for w in WORDS], MATRIX, b"\n"),
}


@pytest.fixture
def save(tmp_path: Path):
    def write(content: bytes, name: str = "some.file") -> Path:
        path = tmp_path / name
        path.write_bytes(content)
        return path

    return write


@pytest.mark.parametrize("compressed", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize("kind", KINDS)
def test_load_detects_the_kind_by_content(kind, compressed, save):
    content = gzip.compress(KINDS[kind]) if compressed else KINDS[kind]
    vectors = WordVectors.load(save(content))
    assert vectors.words == WORDS
    assert vectors.dim == 5
    assert vectors.vectors.dtype == np.float32
    np.testing.assert_array_equal(vectors.vectors, MATRIX)


@pytest.mark.parametrize("kind", KINDS)
def test_load_limit_keeps_the_first_words(kind, save):
    vectors = WordVectors.load(save(KINDS[kind]), limit=3)
    assert vectors.words == WORDS[:3]
    np.testing.assert_array_equal(vectors.vectors, MATRIX[:3])
    assert len(WordVectors.load(save(KINDS[kind]), limit=100)) == len(WORDS)
    with pytest.raises(ConfigError, match="limit is 0"):
        WordVectors.load(save(KINDS[kind]), limit=0)


def test_load_words_with_spaces(save):
    words = [". . .", "plain", "at name@domain.com", "two", "1 2 3"]
    matrix = MATRIX[:5]
    for header in ("", "5 5\n"):
        vectors = WordVectors.load(save(text_of(words, matrix, header)))
        assert vectors.words == words
        np.testing.assert_array_equal(vectors.vectors, matrix)


def test_load_first_of_equal_words_wins(save):
    words = ["a", "b", "a", "c", "b", "d"]
    expected = MATRIX[[0, 1, 3, 5]]
    for content in (
        text_of(words, MATRIX[:6]),
        text_of(words, MATRIX[:6], "6 5\n"),
        binary_of([w.encode() for w in words], MATRIX[:6], b""),
    ):
        vectors = WordVectors.load(save(content))
        assert vectors.words == ["a", "b", "c", "d"]
        np.testing.assert_array_equal(vectors.vectors, expected)


def test_load_invalid_utf8_becomes_replacement_character(save):
    raw = [b"caf\xe9", b"ok", b"\xff\xfe"]
    for content in (
        binary_of(raw, MATRIX[:3], b""),
        b"\n".join(w + b" 1 2" for w in raw),
    ):
        assert WordVectors.load(save(content)).words == ["caf\ufffd", "ok", "\ufffd\ufffd"]


def test_load_one_dimension_and_empty_table(save):
    vectors = WordVectors.load(save(b"a 1\nb 2\n"))
    np.testing.assert_array_equal(vectors.lookup(["b", "a"]), [[2], [1]])
    empty = WordVectors.load(save(b"0 3\n"))
    assert (len(empty), empty.dim) == (0, 3)
    assert empty.nearest([1, 0, 0]) == []


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        (b"a 1 2\nb 1 x2\nc 1 2\n", ["line 2", "'b'", "number 2 of 2", "'x2'"]),
        (b"a 1 2\nb 1\nc 1 2\n", ["line 2", "1 numbers", "expected 2"]),
        (b"a 1 2\n\nc 1 2\nd 1 2\n", ["line 2", "0 numbers"]),
        (b"a 1 2\nb nan 2\n", ["line 2", "number 1 of 2", "'nan'"]),
        (b"a 1 2\nb 1 1e39\n", ["line 2", "number 2 of 2", "'1e39'"]),
        (b"3 2\na 1 2\nb 1 2\n", ["says 3 words", "2 lines"]),
        (b"1 2\na 1 2\nb 1 2\n\nc 1 2\n", ["says 1 words", "3 lines"]),
        (b"2 2\na 1 2\nb 1 ?\n", ["line 3", "'?'"]),
        (b"2 2\na 1 x\nb 1 2\n", ["line 2", "'x'"]),
        (b"2 0\na\nb\n", ["line 1", "dimension 0"]),
        (b"999999999999 300\na 1 2\n", ["line 1", "999999999999 words", "holds at most"]),
        (b"1 99999999999999999\na 1 2\n", ["line 1", "dimension 99999999999999999"]),
        (b"", ["unknown format"]),
        (b"hello\nworld\n", ["unknown format"]),
        (b"PK\x03\x04rest", ["zip archive"]),
        (b"\x80\x04rest", ["pickle", "save_word2vec_format"]),
        (b"\x1f\x8b\x08garbage", ["gzip"]),
        (gzip.compress(KINDS["glove"], mtime=0)[:-20], ["gzip"]),
    ],
)
def test_load_damaged_text_names_the_line(content, parts, save):
    path = save(content)
    with pytest.raises(DataError) as caught:
        WordVectors.load(path)
    for part in [str(path), *parts]:
        assert part in str(caught.value)


def test_load_missing_file(tmp_path):
    with pytest.raises(DataError, match=r"none\.txt is missing; check the path"):
        WordVectors.load(tmp_path / "none.txt")


def test_load_truncated_binary_at_every_byte(save):
    complete = KINDS["binary"]
    for size in range(4, len(complete)):
        with pytest.raises(DataError, match=r"some\.file"):
            WordVectors.load(save(complete[:size]))


def test_load_binary_names_offset_and_both_numbers(save):
    complete = KINDS["binary"]
    with pytest.raises(
        DataError, match=r"byte \d+: the file ends inside the vector of record 8 of"
    ):
        WordVectors.load(save(gzip.compress(complete[:-1])))
    with pytest.raises(DataError, match="says 8 words, but 4 bytes follow"):
        WordVectors.load(save(complete + b"more"))
    bad = MATRIX.copy()
    bad[2, 1] = np.inf
    with pytest.raises(DataError, match=r"record 3 .*'c'.*infinity"):
        WordVectors.load(save(binary_of([b"a", b"b", b"c"], bad[:3], b"")))


def test_load_claimed_sizes_take_no_memory(save):
    contents = [
        b"4000000 300\nword " + bytes(1200),
        b"4000000 300\nword " + b"0.1 " * 300 + b"\n",
        fasttext_bytes([b"a"], MATRIX[:1], bucket=2_000_000_000, rows=2_000_000_001),
    ]
    for content in contents:
        path = save(content)
        tracemalloc.start()
        with pytest.raises(DataError):
            WordVectors.load(path)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
        tracemalloc.stop()


def test_load_lying_header_inside_gzip(save):
    with pytest.raises(DataError, match="says 5000 words, but 1 lines"):
        WordVectors.load(save(gzip.compress(b"5000 2\na 1 2\n")))


# --- the table ------------------------------------------------------------------------------------


def test_getitem_contains_and_lookup_rules():
    vectors = WordVectors(["apple", "Apple", "zürich"], np.eye(3))
    assert "Apple" in vectors
    assert "APPLE" not in vectors
    np.testing.assert_array_equal(vectors["Apple"], [0, 1, 0])
    with pytest.raises(KeyError):
        vectors["APPLE"]
    found = vectors.lookup(["Apple", "APPLE", "ZÜRICH", "?", "apple"])
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, [[0, 1, 0], [1, 0, 0], [0, 0, 1], [0, 0, 0], [1, 0, 0]])
    assert vectors.lookup([]).shape == (0, 3)
    with pytest.raises(DataError, match="list of words"):
        vectors.lookup("apple")


def test_answers_are_copies():
    vectors = WordVectors(["a"], np.ones((1, 2), dtype=np.float32))
    vectors["a"][0] = 9
    vectors.lookup(["a"])[0] = 9
    vectors.words.append("b")
    with pytest.raises(ValueError, match="read-only"):
        vectors.vectors[0] = 9
    np.testing.assert_array_equal(vectors["a"], [1, 1])
    assert len(vectors) == 1


def test_coverage_counts_every_occurrence():
    vectors = WordVectors(["a", "b"], np.eye(2))
    assert vectors.coverage(["a", "A", "a", "x"]) == 0.75
    assert vectors.coverage(iter([])) == 0.0


def test_nearest_orders_by_cosine():
    vectors = WordVectors(["x", "y", "xy", "zero"], [[2, 0], [0, 1], [3, 3], [0, 0]])
    assert [word for word, _ in vectors.nearest("x", k=3)] == ["xy", "y", "zero"]
    assert vectors.nearest("X", k=1)[0][0] == "xy"  # found in lower case, and left out
    word, cosine = vectors.nearest([5, 0], k=1)[0]
    assert (word, cosine) == ("x", pytest.approx(1.0))
    assert len(vectors.nearest("x", k=50)) == 3
    with pytest.raises(KeyError):
        vectors.nearest("?")
    with pytest.raises(DataError, match="vector of 2 numbers"):
        vectors.nearest([1, 2, 3])
    with pytest.raises(DataError, match="not all zero"):
        vectors.nearest("zero")
    with pytest.raises(ConfigError):
        vectors.nearest("x", k=0)


def test_from_dict_and_constructor_check_shapes():
    vectors = WordVectors.from_dict({"a": [1, 2], "b": np.array([3.0, 4.0])})
    np.testing.assert_array_equal(vectors.lookup(["b"]), [[3, 4]])
    with pytest.raises(DataError, match="'b'"):
        WordVectors.from_dict({"a": [1, 2], "b": [1]})
    with pytest.raises(DataError, match="no vectors"):
        WordVectors.from_dict({})
    with pytest.raises(DataError, match="twice"):
        WordVectors(["a", "a"], np.eye(2))
    with pytest.raises(DataError, match="shape"):
        WordVectors(["a"], np.eye(2))


# --- saving ---------------------------------------------------------------------------------------

word_text = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\n "), min_size=1, max_size=8
)


@settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    table=st.dictionaries(
        word_text,
        st.lists(
            st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=3, max_size=3
        ),
        min_size=1,
        max_size=6,
    ),
    name=st.sampled_from(["v.txt", "v.bin", "v.vec.gz", "v.bin.gz"]),
)
def test_save_round_trip(table, name, tmp_path):
    vectors = WordVectors.from_dict(table)
    vectors.save(tmp_path / name)
    again = WordVectors.load(tmp_path / name)
    assert again.words == vectors.words
    np.testing.assert_array_equal(again.vectors, vectors.vectors)


def test_save_refuses_what_a_format_cannot_hold(tmp_path):
    (tmp_path / "v.txt").write_bytes(b"old")
    for word, name in [
        ("a\nb", "v.txt"),
        ("a b", "v.bin"),
        ("\ud800", "v.txt"),
        ("\ud800", "v.bin"),
    ]:
        with pytest.raises(DataError, match="word"):
            WordVectors([word], [[1.0]]).save(tmp_path / name)
    assert [p.name for p in tmp_path.iterdir()] == ["v.txt"]
    assert (tmp_path / "v.txt").read_bytes() == b"old"
    with pytest.raises(DataError, match="does not exist"):
        WordVectors(["a"], [[1.0]]).save(tmp_path / "no" / "v.txt")
    WordVectors(["a b"], [[1.0]]).save(tmp_path / "v.txt")
    assert (tmp_path / "v.txt").read_bytes() == b"1 1\na b 1.0\n"


# --- fastText -------------------------------------------------------------------------------------


def fasttext_bytes(
    words: list[bytes],
    matrix: np.ndarray,
    *,
    labels: tuple[bytes, ...] = (),
    version: int = 12,
    bucket: int = 0,
    min_n: int = 2,
    max_n: int = 3,
    model: int = 1,
    quantised: bool = False,
    rows: int | None = None,
) -> bytes:
    args = (matrix.shape[1], 5, 1, 1, 5, 1, 2, model, bucket, min_n, max_n, 100)
    entries = [(w, 0) for w in words] + [(w, 1) for w in labels]
    return b"".join(
        [
            struct.pack("<2i", 793712314, version),
            struct.pack("<12id", *args, 1e-4),
            struct.pack("<3i2q", len(entries), len(words), len(labels), 99, -1),
            *(w + b"\0" + struct.pack("<qb", 3, kind) for w, kind in entries),
            bytes([quantised]),
            struct.pack("<2q", len(matrix) if rows is None else rows, matrix.shape[1]),
            matrix.astype("<f4").tobytes(),
            b"\0" + struct.pack("<2q", 0, 0),
        ]
    )


def slow_ngrams(word: bytes, min_n: int, max_n: int, bucket: int) -> list[int]:
    """The published algorithm, byte by byte."""
    marked = b"<" + word + b">"
    found = []
    for i in range(len(marked)):
        if marked[i] & 0xC0 == 0x80:
            continue
        j, ngram = i, b""
        for n in range(1, max_n + 1):
            if j >= len(marked):
                break
            ngram += marked[j : j + 1]
            j += 1
            while j < len(marked) and marked[j] & 0xC0 == 0x80:
                ngram += marked[j : j + 1]
                j += 1
            if n >= min_n and not (n == 1 and (i == 0 or j == len(marked))):
                h = 2166136261
                for byte in ngram:
                    h = ((h ^ (byte | 0xFFFFFF00 if byte >= 128 else byte)) * 16777619) % 2**32
                found.append(h % bucket)
    return found


@settings(deadline=None)
@given(
    words=st.lists(
        st.binary(max_size=8)
        | st.text(max_size=6).map(lambda s: s.encode("utf-8", "surrogatepass")),
        min_size=1,
        max_size=5,
    ),
    min_n=st.integers(1, 4),
    extra=st.integers(0, 3),
)
def test_ngram_buckets_equal_the_slow_algorithm(words, min_n, extra):
    from elmokit.word_vectors.fasttext import ngram_buckets

    buckets, owners = ngram_buckets(words, min_n, min_n + extra, 1009)
    for number, word in enumerate(words):
        expected = [] if word == b"</s>" else slow_ngrams(word, min_n, min_n + extra, 1009)
        assert sorted(buckets[owners == number].tolist()) == sorted(expected)
    assert (np.diff(owners) >= 0).all()


def test_fasttext_supervised_labels_have_no_row(save):
    matrix = RNG.normal(size=(3 + 20, 4)).astype(np.float32)
    words = [b"</s>", b"good", "schön".encode()]
    content = fasttext_bytes(words, matrix, labels=(b"__label__x",), bucket=20, model=3)
    vectors = WordVectors.load(save(content))
    assert vectors.words == ["</s>", "good", "schön"]
    np.testing.assert_array_equal(vectors["</s>"], matrix[0])
    rows = [2, *(3 + b for b in slow_ngrams(words[2], 2, 3, 20))]
    np.testing.assert_allclose(vectors["schön"], matrix[rows].mean(axis=0), atol=1e-6)
    old = WordVectors.load(save(content.replace(struct.pack("<i", 12), struct.pack("<i", 11), 1)))
    np.testing.assert_array_equal(old.vectors, matrix[:3])  # version 11: no n-grams if supervised
    with pytest.raises(KeyError):
        old["goods"]


def test_fasttext_without_ngrams_of_a_word(save):
    matrix = RNG.normal(size=(1 + 5, 4)).astype(np.float32)
    path = save(fasttext_bytes([b"i"], matrix, bucket=5, min_n=4, max_n=5))
    vectors = WordVectors.load(path)
    np.testing.assert_array_equal(vectors["i"], matrix[0])
    with pytest.raises(KeyError):
        vectors["x"]
    np.testing.assert_array_equal(vectors.lookup(["I", "x"]), [matrix[0], np.zeros(4)])
    assert vectors.coverage(["I", "x", "long", "longer"]) == 0.75
    assert vectors.nearest("longer")[0][0] == "i"


def test_fasttext_truncated_anywhere_is_one_error(save):
    matrix = RNG.normal(size=(2 + 3, 2)).astype(np.float32)
    complete = fasttext_bytes([b"ab", b"cd"], matrix, bucket=3)
    end = len(complete) - 17  # the output matrix is not read
    assert len(WordVectors.load(save(complete[:end]))) == 2
    for size in range(4, end):
        with pytest.raises(DataError, match=r"some\.file, byte \d+"):
            WordVectors.load(save(complete[:size]))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"quantised": True}, r"quantised \(\.ftz\).*\.bin or \.vec"),
        ({"version": 13}, "version 13"),
        ({"rows": 7}, "matrix is 7 x 2"),
        ({"bucket": 1}, "1 buckets"),
    ],
)
def test_fasttext_refuses_clearly(changes, message, save):
    content = fasttext_bytes([b"a"], np.zeros((1, 2), dtype=np.float32), **changes)
    with pytest.raises(DataError, match=message):
        WordVectors.load(save(content))


# --- against gensim -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def gensim() -> ModuleType:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module: ModuleType = pytest.importorskip("gensim")
        pytest.importorskip("gensim.models.fasttext")
    return module


@pytest.mark.parametrize("binary", [False, True])
def test_word2vec_agrees_with_gensim_both_ways(gensim, binary, tmp_path):
    path = tmp_path / ("v.bin" if binary else "v.txt")
    keyed = gensim.models.KeyedVectors(5)
    keyed.add_vectors(WORDS, MATRIX)
    keyed.save_word2vec_format(str(path), binary=binary)
    ours = WordVectors.load(path)
    assert ours.words == keyed.index_to_key
    np.testing.assert_array_equal(ours.vectors, keyed.vectors)
    ours.save(path)
    theirs = gensim.models.KeyedVectors.load_word2vec_format(str(path), binary=binary)
    assert theirs.index_to_key == WORDS
    np.testing.assert_array_equal(theirs.vectors, MATRIX)
    expected = keyed.most_similar("the", topn=4)
    for (word, cosine), (their_word, their_cosine) in zip(
        ours.nearest("the", 4), expected, strict=True
    ):
        assert word == their_word
        assert cosine == pytest.approx(their_cosine, abs=1e-6)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # gensim's open file
def test_glove_agrees_with_gensim(gensim, save):
    path = save(KINDS["glove"])
    theirs = gensim.models.KeyedVectors.load_word2vec_format(str(path), no_header=True)
    assert WordVectors.load(path).words == theirs.index_to_key
    np.testing.assert_array_equal(WordVectors.load(path).vectors, theirs.vectors)


@pytest.fixture(scope="module")
def facebook_file(gensim, tmp_path_factory) -> Path:
    text = """the naïve king ate an apple in 北京 😀
    queens and kings of Straße über alles ὁ δὲ
    я люблю яблоки 大学 a"""
    sentences = [line.split() for line in text.splitlines()] * 4
    model = gensim.models.FastText(
        sentences, vector_size=8, min_count=1, epochs=2, bucket=300, min_n=2, max_n=5, workers=1
    )
    path = tmp_path_factory.mktemp("facebook") / "model.bin"
    gensim.models.fasttext.save_facebook_model(model, str(path))
    return path


@pytest.mark.parametrize("version", [12, 11])
@pytest.mark.parametrize("compressed", [False, True], ids=["plain", "gzip"])
def test_fasttext_binary_agrees_with_gensim(gensim, facebook_file, compressed, version, save):
    theirs = gensim.models.fasttext.load_facebook_vectors(str(facebook_file))
    content = facebook_file.read_bytes().replace(
        struct.pack("<i", 12), struct.pack("<i", version), 1
    )
    ours = WordVectors.load(save(gzip.compress(content) if compressed else content))
    assert ours.words == theirs.index_to_key
    np.testing.assert_allclose(ours.vectors, theirs.vectors, rtol=1e-5, atol=1e-7)
    unseen = ["kingdom", "яблоко", "北京大学", "😀😀", "é", "Über", "The", "x", "ὁδός"]
    for word in unseen:
        assert word not in ours
        np.testing.assert_allclose(ours[word], theirs[word], rtol=1e-5, atol=1e-7)
    np.testing.assert_array_equal(ours.lookup(unseen), np.stack([ours[w] for w in unseen]))


def test_fasttext_limit_keeps_all_ngrams(gensim, facebook_file):
    theirs = gensim.models.fasttext.load_facebook_vectors(str(facebook_file))
    ours = WordVectors.load(facebook_file, limit=4)
    assert ours.words == theirs.index_to_key[:4]
    np.testing.assert_allclose(ours.vectors, theirs.vectors[:4], rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(ours["kingdom"], theirs["kingdom"], rtol=1e-5, atol=1e-7)
