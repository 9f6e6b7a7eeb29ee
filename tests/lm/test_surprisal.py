"""Surprisal tables against a recomputation in float64, and their files."""

import csv
import io
import itertools
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import elmokit
from elmokit import ConfigError, DataError
from elmokit.lm import SurprisalTable, read_stimuli, score, surprisal
from elmokit.lm.stimuli import MEASURES, write_csv
from elmokit.lm.substitutes import UNIGRAM_EXPONENT
from elmokit.lm.surprisal import SpellingModel
from elmokit.text.vocab import Vocabulary

CHECKPOINTS = Path(__file__).parents[1] / "golden" / "tf-checkpoint"
SENTENCES = [
    ["the", "big", "dog", "sat", "on", "the", "mat", "."],
    ["it", "ran", "!"],
    ["東京", "is", "naïve", "?"],
]
SPECIAL = {"<S>", "</S>", "<UNK>"}
BITS = math.log(2)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def lstm_outputs(elmo, name, x):
    """The top layer of one direction over token vectors (T, P), all in float64."""
    shape = elmo.config.lstm
    weights = {key: value.double().numpy() for key, value in elmo.checkpoint().weights.items()}
    for layer in range(shape.layers):
        stack = f"lstm.{name}_stack.{layer}."
        hidden, cell = np.zeros(shape.width), np.zeros(shape.cells)
        outputs = []
        for vector in x:
            gates = weights[stack + "input_weight"] @ vector + weights[stack + "bias"]
            i, f, g, o = np.split(gates + weights[stack + "state_weight"] @ hidden, 4)
            cell = sigmoid(f + shape.forget_bias) * cell + sigmoid(i) * np.tanh(g)
            cell = np.clip(cell, -shape.cell_clip, shape.cell_clip)
            hidden = weights[stack + "projection"] @ (sigmoid(o) * np.tanh(cell))
            hidden = np.clip(hidden, -shape.projection_clip, shape.projection_clip)
            outputs.append(hidden)
        x = np.stack(outputs) + (x if layer and shape.residual else 0)
    return x


def log_softmax(logits):
    return logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True)


def expected(elmo, document):
    """Log-probabilities (W, V) of both directions, one sentence after another."""
    text, width = elmo.config.text, elmo.config.lstm.width
    vectors = {
        word: elmo.encode([[word]], layers=0)[0][0, :width].astype(float)
        for word in {text.begin, text.end, *itertools.chain(*document)}
    }
    weights = elmo.checkpoint().weights
    matrix, bias = (weights[f"softmax.{part}"].double().numpy() for part in ("weight", "bias"))
    found = {}
    for name in elmo.config.lstm.directions:
        step = 1 if name == "forward" else -1
        marker = text.begin if name == "forward" else text.end
        read = [[marker, *sentence[::step]] for sentence in document[::step]]
        x = np.stack([vectors[word] for words in read for word in words])
        logps = log_softmax(lstm_outputs(elmo, name, x) @ matrix.T + bias)
        ends = np.cumsum([len(words) for words in read]) - 1
        logps = np.delete(logps, ends, axis=0)  # which predict the far markers
        found[name] = logps[::step]
    return found


def counted(elmo, counts):
    vocabulary = Vocabulary(elmo.vocabulary.words, elmo.config.text, counts)
    return elmokit.Elmo(replace(elmo.checkpoint(), vocabulary=vocabulary))


@pytest.mark.parametrize("with_counts", [False, True])
@pytest.mark.parametrize("state", ["fresh", "carry"])
def test_surprisal_equals_a_recomputation_in_float64(standard, state, with_counts):
    size = len(standard.vocabulary)
    counts = [0, 0, 0, *range(10 * size, 10 * 3, -10)] if with_counts else None
    elmo = counted(standard, counts)
    table = elmo.surprisal(SENTENCES, state=state)
    words = list(itertools.chain(*SENTENCES))
    assert [row["word"] for row in table] == words
    documents = [SENTENCES] if state == "carry" else [[sentence] for sentence in SENTENCES]
    parts = [expected(elmo, document) for document in documents]
    forward, backward = (
        np.concatenate([part[name] for part in parts]) for name in ("forward", "backward")
    )
    is_word = np.array([word not in SPECIAL for word in elmo.vocabulary])
    product = forward + backward
    if with_counts:
        product = product - UNIGRAM_EXPONENT * np.log(np.maximum(counts, 1))
    product = log_softmax(np.where(is_word, product, -np.inf))
    ids = [elmo.vocabulary.id(word) for word in words]
    rows = np.arange(len(ids))
    wanted = {
        "forward": -forward[rows, ids] / BITS,
        "backward": -backward[rows, ids] / BITS,
        "two_sided": -product[rows, ids] / BITS,
        "entropy": -(np.exp(forward) * forward).sum(axis=1) / BITS,
        "rank": 1 + (forward > forward[rows, ids][:, None]).sum(axis=1),
        "length": [len(word) for word in words],
    }
    for name, column in wanted.items():
        np.testing.assert_allclose([row[name] for row in table], column, atol=2e-5, err_msg=name)
    total = sum(counts or [])
    frequency = [1e6 * counts[number] / total if with_counts else None for number in ids]
    assert [row["frequency"] for row in table] == pytest.approx(frequency)
    assert not any(row["oov"] or row["spelling"] for row in table)


def test_surprisal_sums_to_the_score_of_the_sentence(standard):
    sentences = [*SENTENCES, ["unseen", "dogs", "."], ["the"]]
    table = pd.DataFrame(standard.surprisal(sentences))
    for number, want in enumerate(score(standard, sentences), start=1):
        rows = table[table.sentence == number]
        forward = (rows.forward - rows.spelling).sum() * BITS - want.forward[-1]
        backward = (rows.backward - rows.spelling).sum() * BITS - want.backward[0]
        assert -forward == pytest.approx(want.forward_logprob, abs=1e-4)
        assert -backward == pytest.approx(want.backward_logprob, abs=1e-4)
        assert rows.oov.tolist() == want.unknown.tolist()


def test_surprisal_depends_on_nothing_else(standard):
    alone = [row for sentence in SENTENCES for row in standard.surprisal([sentence])]
    together = surprisal(standard, SENTENCES, batch_tokens=1)
    for one, two in zip(alone, together, strict=True):
        for name in ("forward", "backward", "two_sided", "entropy"):
            assert one[name] == pytest.approx(two[name], abs=1e-5)


def test_spill_over_ends_at_the_sentence_or_the_document(standard):
    for state, documents in (("fresh", SENTENCES), ("carry", [list(itertools.chain(*SENTENCES))])):
        rows = iter(standard.surprisal(SENTENCES, state=state))
        for document in documents:
            before = [None, None]
            for _, row in zip(document, rows, strict=False):
                assert [row["forward_prev2"], row["forward_prev1"]] == before
                before = [before[1], row["forward"]]


def test_carried_state_stays_in_its_document(standard):
    rows = [{"text": "the dog sat .", "document": name} for name in ("a", "a", "b", "a")]
    table = standard.surprisal(rows, state="carry")
    words = [table[i : i + 4] for i in range(0, 16, 4)]
    first, second, other, last = ([row["forward"] for row in some] for some in words)
    assert first == pytest.approx(other, abs=1e-5)
    assert first == pytest.approx(last, abs=1e-5)
    assert first != pytest.approx(second, abs=1e-3)
    backward = [[row["backward"] for row in some] for some in words]
    assert backward[1] == pytest.approx(backward[2], abs=1e-5)
    assert backward[0] != pytest.approx(backward[1], abs=1e-3)
    assert [row["document"] for row in table[::4]] == ["a", "a", "b", "a"]


def test_a_left_to_right_model_has_forward_numbers_only():
    elmo = elmokit.load(CHECKPOINTS / "unidirectional")
    for row in elmo.surprisal("the dog sat"):
        assert row["backward"] is row["two_sided"] is None
        assert row["forward"] > 0 < row["entropy"]


@pytest.mark.parametrize("variant", ["word-tied", "three-layers"])
def test_surprisal_of_other_shapes_is_that_of_the_score(variant):
    elmo = elmokit.load(CHECKPOINTS / variant)
    table = elmo.surprisal(SENTENCES)
    forward = np.concatenate([found.forward[:-1] for found in score(elmo, SENTENCES)])
    assert [row["forward"] * BITS for row in table] == pytest.approx(-forward, abs=1e-4)


def test_unknown_words_have_a_marked_estimate(standard):
    known, unknown, longer = standard.surprisal(["the", "dogs", "dogsdogsdogs"])
    assert (known["oov"], known["spelling"]) == (False, 0)
    for row in (unknown, longer):
        assert row["oov"]
        assert row["rank"] is row["two_sided"] is row["frequency"] is None
        assert row["spelling"] > 0
    words = [word for word in standard.vocabulary if word not in SPECIAL]
    spelling = SpellingModel(words).bits("dogs")
    assert unknown["spelling"] == pytest.approx(spelling, abs=1e-6)
    unk = score(standard, "dogs").forward[0]
    assert unknown["forward"] == pytest.approx(spelling - unk / BITS, abs=1e-4)
    assert longer["spelling"] > unknown["spelling"]
    literal = standard.surprisal([["<UNK>"]])[0]
    assert (literal["oov"], literal["spelling"], literal["two_sided"]) == (False, 0, None)


@given(
    words=st.lists(st.text("ab", min_size=1, max_size=3), min_size=1, max_size=8, unique=True),
    order=st.integers(1, 5),
)
@settings(max_examples=40)
def test_spellings_are_a_distribution(words, order):
    model = SpellingModel(words, order)
    every = ["".join(s) for n in range(11) for s in itertools.product("ab", repeat=n)]
    inside = np.exp2(model.log2(words)).sum()
    total = np.exp2(model.log2(every)).sum()
    assert inside <= total <= 1 + 1e-9
    outside = [model.bits(word) for word in every if word not in words]
    assert np.exp2(-np.array(outside)).sum() == pytest.approx((total - inside) / (1 - inside))


def test_spellings_by_hand():
    # Witten and Bell with one character: (count + kinds x lower) / (total + kinds).
    model = SpellingModel(["ab", "a"], order=1)
    uniform = 1 / 0x110000
    a, b, end, new = ((n + 3 * uniform) / (5 + 3) for n in (2, 1, 2, 0))
    assert np.exp2(model.log2(["a", "b", "", "zz"])) == pytest.approx(
        [a * end, b * end, end, new * new * end]
    )
    inside = a * end + a * b * end
    assert 2 ** -model.bits("b") == pytest.approx(b * end / (1 - inside))
    two = SpellingModel(["ab", "a"], order=2)
    first = (2 + a) / (2 + 1)  # after the start comes an a, always
    after = {"b": (1 + 2 * b) / (2 + 2), "end": (1 + 2 * end) / (2 + 2)}
    last = (1 + end) / (1 + 1)
    assert np.exp2(two.log2(["a", "ab"])) == pytest.approx(
        [first * after["end"], first * after["b"] * last]
    )


def test_spellings_of_many_characters():
    words = [chr(0x4E00 + 7 * n) + chr(0x4E00 + 3 * n) for n in range(3000)]
    model = SpellingModel(words)
    assert model.bits(words[0][0]) > 0
    assert math.isfinite(model.bits("漢字𠮷"))


REGIONS = [
    {"item": "1", "condition": 'a, "quoted"', "regions": "the dog|sat||on the mat|."},
    {"item": "1", "condition": "", "regions": "|東京 is|naïve ."},
    {"item": "2", "condition": "多行\n行", "regions": "it | ran , !"},
]


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".csv.gz"])
def test_tables_come_back_as_they_were(standard, tmp_path, suffix):
    path = tmp_path / f"stimuli{suffix}"
    buffer = io.StringIO()
    write_csv(REGIONS, buffer, "\t" if ".tsv" in suffix else ",")
    data = buffer.getvalue().encode()
    if suffix.endswith(".gz"):
        import gzip

        data = gzip.compress(data)
    path.write_bytes(b"\xef\xbb\xbf" + data if suffix == ".csv" else data)
    assert list(read_stimuli(path)) == REGIONS
    table = standard.surprisal(read_stimuli(path))
    assert [(r["condition"], r["region"], r["word"]) for r in table if r["item"] == "1"] == [
        *(('a, "quoted"', n, w) for n, w in [(1, "the"), (1, "dog"), (2, "sat"), (4, "on")]),
        *(('a, "quoted"', n, w) for n, w in [(4, "the"), (4, "mat"), (5, ".")]),
        *(("", n, w) for n, w in [(2, "東京"), (2, "is"), (3, "naïve"), (3, ".")]),
    ]
    assert [row["position"] for row in table if row["item"] == "2"] == [1, 2, 3, 4]
    assert list(table[0])[:6] == ["item", "condition", "sentence", "region", "position", "word"]
    assert set(table[0]) >= set(MEASURES)
    for name in ("table.csv", "table.tsv"):
        output = tmp_path / name
        table.save(output)
        with output.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file, delimiter="\t" if name.endswith("tsv") else ","))
        frame = pd.read_csv(output, sep=None, engine="python", keep_default_na=False)
        assert frame["word"].tolist() == [row["word"] for row in table]
        for row, want in zip(rows, table, strict=True):
            for column, kind in MEASURES.items():
                cell = row[column]
                value = None if cell == "" else cell == "TRUE" if kind is bool else kind(cell)
                assert value == want[column]
            assert row["condition"] == want["condition"]


def test_parquet_tables_have_types(standard, tmp_path):
    table = standard.surprisal([{**row, "list": n} for n, row in enumerate(REGIONS)])
    table.save(tmp_path / "table.parquet")
    frame = pd.read_parquet(tmp_path / "table.parquet")
    assert frame.to_dict("list")["word"] == [row["word"] for row in table]
    assert frame["list"].tolist() == [row["list"] for row in table]
    assert frame["forward"].tolist() == [row["forward"] for row in table]
    assert frame["frequency"].isna().all()
    assert str(frame["frequency"].dtype) == "float64"
    assert str(frame["oov"].dtype) == "bool"
    odd = SurprisalTable([{"item": 1}, {"item": "x"}])
    with pytest.raises(DataError, match="values of several types"):
        odd.save(tmp_path / "odd.parquet")
    assert [path.name for path in tmp_path.iterdir()] == ["table.parquet"]


def test_one_row_per_word_or_region_is_one_sentence(standard):
    rows = [
        {"item": 1, "sentence": "s1", "region": "subject", "word": "the dog", "rt": 310},
        {"item": 1, "sentence": "s1", "region": "", "word": "", "rt": None},
        {"item": 1, "sentence": "s1", "region": "verb", "word": "sat", "rt": 420},
        {"item": 1, "sentence": "s2", "region": "verb", "word": "sat", "rt": 400},
    ]
    table = standard.surprisal(rows)
    assert [(r["sentence"], r["region"], r["position"], r["word"], r["rt"]) for r in table] == [
        ("s1", "subject", 1, "the", 310),
        ("s1", "subject", 2, "dog", 310),
        ("s1", "verb", 3, "sat", 420),
        ("s2", "verb", 1, "sat", 400),
    ]
    whole = standard.surprisal(["the dog sat", "sat"])
    assert [row["forward"] for row in table] == [row["forward"] for row in whole]
    again = [{**row, "sentence": "s3"} for row in table]
    with pytest.raises(DataError, match="column 'forward', which the table adds"):
        standard.surprisal(again)


def test_text_files_have_documents(standard, tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("the dog sat .\nit ran .\n\n \nthe cat\n", "utf-8")
    rows = list(read_stimuli(path))
    assert [(row["document"], row["text"]) for row in rows] == [
        (1, "the dog sat ."),
        (1, "it ran ."),
        (2, "the cat"),
    ]
    table = standard.surprisal(rows, state="carry")
    assert [row["sentence"] for row in table] == [1] * 4 + [2] * 3 + [3] * 2


def test_the_column_of_the_text_can_be_named(standard, tmp_path):
    path = tmp_path / "stimuli.csv"
    path.write_text("id,Sentence\n7,the dog\n", "utf-8")
    table = standard.surprisal(read_stimuli(path, field="Sentence"))
    assert [(row["id"], row["word"]) for row in table] == [("7", "the"), ("7", "dog")]
    with pytest.raises(DataError, match=r"stimuli.csv: no column 'word', 'regions' or 'text'"):
        list(read_stimuli(path))
    with pytest.raises(DataError, match=r"no column 'x'; found 'id', 'Sentence'"):
        list(read_stimuli(path, field="x"))


def test_surprisal_errors(standard, tmp_path):
    with pytest.raises(ConfigError, match="state='warm'"):
        standard.surprisal("a", state="warm")
    with pytest.raises(ConfigError, match="batch_tokens=0"):
        surprisal(standard, "a", batch_tokens=0)
    with pytest.raises(ConfigError, match="no softmax"):
        elmokit.load(CHECKPOINTS / "standard", softmax=False).surprisal("a")
    with pytest.raises(DataError, match="row 2: no column 'word'"):
        standard.surprisal([{"text": "a"}, {"item": "a"}])
    with pytest.raises(DataError, match="row 1: one row per word needs a column"):
        standard.surprisal([{"word": "a"}])
    with pytest.raises(DataError, match="row 1: 'regions' must be a text"):
        standard.surprisal([{"regions": ["a"]}])
    with pytest.raises(DataError, match="sentence 1: expected a text"):
        standard.surprisal(["a", 3])
    with pytest.raises(ConfigError, match=r"table.xlsx: the name of a table ends in .csv"):
        standard.surprisal("a").save(tmp_path / "table.xlsx")
    with pytest.raises(DataError, match="no words"):
        standard.surprisal([""]).save(tmp_path / "table.csv")
    assert not list(tmp_path.iterdir())
    twice = tmp_path / "twice.csv"
    twice.write_text("text,item,item\na,1,2\n", "utf-8")
    with pytest.raises(DataError, match=r"twice.csv, line 1: two columns are named 'item'"):
        standard.surprisal(read_stimuli(twice))
    with pytest.raises(DataError, match="no such file"):
        read_stimuli(tmp_path / "missing.csv")
