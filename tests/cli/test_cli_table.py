from __future__ import annotations

import numpy as np
from gensim.models import KeyedVectors

import elmokit


def test_table_writes_word2vec(run, tmp_path, lines_file, model):
    out = tmp_path / "words.vec"
    result = run("table", lines_file, "-o", out, "--model", model, "--min-count", 1, "--layers", 0)
    assert result.code == 0
    assert result.err.startswith(f"10 words, 32 wide: {out} (")
    keyed = KeyedVectors.load_word2vec_format(out)
    # The lowest layer knows no context, so its average is the vector of any use.
    expected = elmokit.load(model).encode([["東京"]], layers=0)[0][0]
    np.testing.assert_allclose(keyed["東京"], expected, rtol=1e-5, atol=1e-6)


def test_table_needs_a_file_and_a_place(run, tmp_path, lines_file, model):
    for arguments, message in (
        ((tmp_path / "none.txt", "-o", tmp_path / "words.vec"), "none.txt"),
        ((lines_file, "-o", tmp_path / "no" / "words.vec"), "does not exist"),
        ((lines_file, "-o", tmp_path / "words.vec", "--min-count", 9), "no word occurs 9 times"),
        ((lines_file, "-o", tmp_path / "words.vec", "--layers", "all"), "one vector per word"),
        (("-o", tmp_path / "words.vec", "--", "-"), "read twice"),
    ):
        result = run("table", "--model", model, *arguments)
        assert result.code == 1, arguments
        assert message in result.err
    assert list(tmp_path.iterdir()) == [lines_file]
