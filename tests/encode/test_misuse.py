"""What users give by mistake or by habit: an error or a warning says what to write."""

import warnings

import numpy as np
import pandas as pd
import pytest
import torch

import elmokit
from elmokit import AmbiguousInputWarning, CheckpointError, ConfigError, DataError, ElmoEmbedding
from elmokit.encode import compare, nearest_uses
from elmokit.lm import perplexity, score_stream

TEXTS = ["the bank of the river", "the bank lent money"]
TABLE = pd.DataFrame({"text": TEXTS, "label": ["river", "money"]})
WORDS = ["the", "cat", "sat", "down"]


def calls(elmo):
    """Everything that takes several sentences."""
    return {
        "encode": elmo.encode,
        "call": elmo,
        "encode_stream": lambda data: list(elmo.encode_stream(data)),
        "similarity": lambda data: elmo.similarity(data, TEXTS),
        "similarity, right": lambda data: elmo.similarity("a text", data),
        "warm_up": elmo.warm_up,
        "embedding": ElmoEmbedding(elmo),
        "nearest_uses": lambda data: nearest_uses(elmo, TEXTS[0], 1, data),
    }


def lm_calls(elmo):
    return {
        "score": elmo.score,
        "score_stream": lambda data: list(score_stream(elmo, data)),
        "perplexity": lambda data: perplexity(elmo, data),
    }


CALLS = ("encode", "call", "encode_stream", "similarity", "similarity, right", "warm_up",
         "embedding", "nearest_uses")  # fmt: skip
LM_CALLS = ("score", "score_stream", "perplexity")


@pytest.fixture(scope="module")
def by_name(elmo):
    return calls(elmo) | lm_calls(elmokit.load("small-en"))


@pytest.mark.parametrize("name", [*CALLS, *LM_CALLS])
@pytest.mark.parametrize(
    ("data", "instead"),
    [
        (TABLE, r"DataFrame with the columns text, label; .*df\['text'\]"),
        ({"text": TEXTS}, r"dict with the keys \['text'\].*data\['text'\]"),
        (pd.Series(TEXTS).to_dict().keys(), "order"),
        (set(TEXTS), r"sorted\(...\)"),
        (np.array(TEXTS)[:, None], "expected"),
        (np.array("a text"), "expected"),
        (7, "expected a text or several sentences, found 7"),
        (b"bytes", "expected"),
        ([{"text": TEXTS[0]}], r"sentence 0: .*data\['text'\]"),
        ([TEXTS[0], None], "sentence 1: expected a text or a list of tokens, found None"),
    ],
    ids=["table", "dict", "keys", "set", "2-D", "0-D", "number", "bytes", "rows", "None"],
)
def test_what_is_no_list_of_sentences_is_refused(by_name, name, data, instead):
    with pytest.raises(DataError, match=instead):
        by_name[name](data)


@pytest.mark.parametrize("name", ["encode_stream", "warm_up", "embedding", "score_stream"])
def test_one_text_is_not_read_letter_by_letter(by_name, name):
    with pytest.raises(DataError, match=r"found one text: 'the bank.*write \[text\]"):
        by_name[name](TEXTS[0])


def test_compared_text_is_split_into_tokens_not_letters(elmo):
    tokens = [elmo.tokenize(text) for text in TEXTS]
    assert compare(elmo, *TEXTS) == compare(elmo, *tokens)
    assert compare(elmo, *TEXTS, (1, 1)) == compare(elmo, *tokens, (1, 1))
    assert nearest_uses(elmo, TEXTS[0], 1, TEXTS) == nearest_uses(elmo, tokens[0], 1, TEXTS)


def test_columns_of_other_libraries_are_fine(elmo):
    expected = elmo.encode(TEXTS)
    for column in (TABLE["text"], TABLE["text"].to_numpy(), tuple(TEXTS), iter(TEXTS)):
        for found, wanted in zip(elmo.encode(column), expected, strict=True):
            np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("name", [*CALLS, *LM_CALLS])
@pytest.mark.parametrize("words", [WORDS, tuple(WORDS), ["don’t"] * 5, ["ein", "Fluß", "où", "я"]])
def test_words_in_a_row_are_warned_of_once(by_name, name, words):
    with pytest.warns(AmbiguousInputWarning, match=r"write \[tokens\]") as caught:
        by_name[name](words)
    assert len(caught) == 1
    assert caught[0].filename == __file__


@pytest.mark.parametrize(
    "sentences",
    [
        WORDS[:3],
        [*WORDS, "a sentence"],
        [*WORDS, ["tokens", "of", "a", "sentence"]],
        [[word] for word in WORDS],
        [WORDS],
        ["", *WORDS],
        ["我爱北京", "他是学生", "苹果很好吃", "我们走吧"],
        ["今日は", "さようなら", "ありがとう", "すみません"],
        ["สวัสดี", "ขอบคุณ", "ลาก่อน", "ยินดี"],
    ],
)
def test_sentences_are_not_warned_of(elmo, sentences):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        elmo.encode(sentences)
        elmo.similarity(sentences, sentences)


def test_warning_is_a_user_warning_and_the_words_are_still_sentences(elmo):
    assert issubclass(AmbiguousInputWarning, UserWarning)
    with pytest.warns(UserWarning, match="4 strings without a space are read as 4 sentences"):
        found = elmo.encode(WORDS)
    assert [len(vectors) for vectors in found] == [1, 1, 1, 1]


@pytest.mark.parametrize(
    "layers", [[0, 1, 2], [2, 0, 1], [0, 1], [-1], (1, 2), np.array([0, 1, 2]), torch.arange(3)]
)
def test_numbers_of_layers_are_not_taken_for_weights(elmo, layers):
    with pytest.raises(ConfigError, match=r"write layers=\[.*\.0\].*layers='all'"):
        elmo.encode("a text", layers=layers)


def test_whole_numbers_that_can_only_be_weights_are_weights(elmo):
    everything = elmo.encode("a text", layers="all")
    for weights in ([0, 0, 1], [1, 1, 1], [0.0, 1.0, 2.0], [0, 1.0, 2], [5, 6, 7]):
        want = np.einsum("l,ltd->td", weights, everything)
        found = elmo.encode("a text", layers=weights)
        np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-5)
    for wrong in (["a", "b", "c"], [None, 1.0, 2.0], [[1.0], [2.0], [3.0]], [float("nan")] * 3):
        with pytest.raises(ConfigError, match="finite numbers"):
            elmo.encode("a text", layers=wrong)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nltk", "unknown tokeniser 'nltk'"),
        ("word", "Did you mean 'words'"),
        ("spacy:zz", "zz"),
        (str.split, r"encode\(\[split\(text\) for text in texts\]\)"),
        (["words"], "give a name"),
    ],
)
def test_unknown_tokenizer_is_an_error_when_the_model_is_loaded(name, message):
    with pytest.raises(ConfigError, match=message):
        elmokit.load("test-tiny", tokenizer=name)


@pytest.mark.parametrize(
    ("option", "instead"),
    [
        ("batch_size", "batch_tokens"),
        ("show_progress_bar", "progress=True"),
        ("convert_to_tensor", 'output="torch"'),
        ("convert_to_numpy", 'output="numpy"'),
        ("device", r"elmo\.to\(device\)"),
        ("layer", "layers="),
        ("nonsense", "no option 'nonsense'$"),
    ],
)
def test_options_of_other_libraries_are_answered_with_ours(elmo, option, instead):
    for call in (elmo.encode, elmo, elmo.encode_stream):
        with pytest.raises(TypeError, match=instead):
            call(TEXTS, **{option: 1})


def test_repository_of_the_hub_is_named_as_one():
    with pytest.raises(CheckpointError, match=r"write hf:owner/name$"):
        elmokit.load("owner/name")
    with pytest.raises(CheckpointError) as caught:
        elmokit.load("/no/such/file")
    assert "hf:" not in str(caught.value)


def test_sequences_as_strings_are_no_words_of_a_model_that_reads_characters(recwarn):
    elmo = elmokit.load("test-tiny", tokenizer="chars")
    chains = ["CASSLGQAYEQYF", "CASSF", "MKV", "M"]
    assert [len(vectors) for vectors in elmo.encode(chains)] == [13, 5, 3, 1]
    assert not recwarn
    with pytest.warns(AmbiguousInputWarning, match=r"write \[tokens\]"):
        elmo.encode(list("MKVL"))


def test_what_is_no_common_directions_is_refused(elmo):
    for call in (
        lambda: elmo.similarity("a text", "another", without=np.ones((3, 8))),
        lambda: elmo.similar("a text", "another text", word="text", without="corpus.txt"),
    ):
        with pytest.raises(ConfigError, match="without: give a CommonDirections"):
            call()
    for count in (1.5, "3", -1, True):
        with pytest.raises(ConfigError, match="give a number of directions"):
            elmokit.CommonDirections.fit(iter([]), count)


@pytest.mark.parametrize(
    ("a", "b", "said"),
    [
        ("cat", "dog", r"texts have no cosine: write elmo.similarity\(a, b\)"),
        (["cat"], np.ones(3), "texts have no cosine"),
        (np.ones((3, 6, 5)), np.ones((3, 9, 5)), r"shapes \(3, 6, 5\) and \(3, 9, 5\) do not pair"),
        ([np.ones((4, 5)), np.ones((3, 5))], np.ones(5), r"several lengths and \(5,\) do not pair"),
    ],
)
def test_similarity_of_what_does_not_pair_says_what_to_write(a, b, said):
    with pytest.raises(DataError, match=said):
        elmokit.similarity(a, b)
