import numpy as np
import pytest
from gensim.models import KeyedVectors

import elmokit
from elmokit.errors import ConfigError, DataError
from elmokit.word_vectors.averages import average_words

SENTENCES = [
    "the bank of the river",
    "The bank lent money .",
    "",
    ["the", "Größe", "of", "money"],
    "the river",
]


def brute_force(elmo, layers):
    """Sums in a dictionary, one sentence at a time."""
    seen: dict[str, list[np.ndarray]] = {}
    for sentence in SENTENCES:
        tokens = elmo.tokens(sentence, 0)
        for token, vector in zip(tokens, elmo.encode([tokens], layers=layers)[0], strict=True):
            seen.setdefault(token, []).append(vector)
    return {word: np.mean(vectors, axis=0) for word, vectors in seen.items()}


@pytest.mark.parametrize("layers", ["mean", "top", 0, [0.2, 0.3, 0.5]], ids=str)
def test_averages_are_those_of_all_uses(elmo, layers):
    table = average_words(elmo, SENTENCES, layers=layers, min_count=1)
    expected = brute_force(elmo, layers)
    assert set(table.words) == set(expected)
    for word, vector in expected.items():
        np.testing.assert_allclose(table[word], vector, rtol=1e-5, atol=1e-6)


def test_averages_keep_the_frequent_words(elmo):
    table = average_words(elmo, SENTENCES, min_count=2)
    assert table.words == ["the", "bank", "of", "river", "money"]
    assert average_words(elmo, SENTENCES, min_count=2, max_words=2).words == ["the", "bank"]
    full = average_words(elmo, SENTENCES, min_count=1)
    np.testing.assert_allclose(table["the"], full["the"], rtol=1e-6)


def test_averages_do_not_depend_on_batches(elmo):
    large, small = (
        average_words(elmo, SENTENCES * 4, min_count=1, batch_tokens=budget) for budget in (4096, 8)
    )
    assert large.words == small.words
    np.testing.assert_allclose(large.vectors, small.vectors, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["words.vec", "words.bin"])
def test_averages_are_read_by_gensim(elmo, tmp_path, name):
    table = average_words(elmo, SENTENCES, min_count=1)
    table.save(tmp_path / name)
    keyed = KeyedVectors.load_word2vec_format(tmp_path / name, binary=name.endswith(".bin"))
    assert keyed.index_to_key == table.words
    np.testing.assert_allclose(keyed.vectors, table.vectors, rtol=1e-6)
    assert elmokit.WordVectors.load(tmp_path / name).words == table.words


def test_averages_of_a_file_are_those_of_its_lines(elmo, tmp_path):
    lines = [line for line in SENTENCES if isinstance(line, str)]
    path = tmp_path / "corpus.txt"
    path.write_text("\n".join(lines), "utf-8")
    ours, theirs = (average_words(elmo, source, min_count=1) for source in (path, lines))
    assert ours.words == theirs.words
    np.testing.assert_array_equal(ours.vectors, theirs.vectors)


def test_averages_complain(elmo):
    with pytest.raises(DataError, match="read twice"):
        average_words(elmo, iter(SENTENCES))
    with pytest.raises(DataError, match="no word occurs 9 times"):
        average_words(elmo, SENTENCES, min_count=9)
    with pytest.raises(ConfigError, match="layers='all'"):
        average_words(elmo, SENTENCES, layers="all")
    with pytest.raises(ConfigError, match="min_count=0"):
        average_words(elmo, SENTENCES, min_count=0)
