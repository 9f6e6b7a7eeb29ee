"""The count of a model's operations, against counts that are not ours."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.training.presets import training_token
from elmokit.config import CharacterConfig, LstmConfig, ModelConfig, WordConfig, published_shape
from elmokit.encode.speed import columns, count_flops
from elmokit.engines import Clips, LstmState, LstmWeights
from elmokit.engines.reference import run_lstm
from elmokit.model.init import random_model
from elmokit.text.inputs import InputBuilder

CHARACTERS = CharacterConfig(dim=5, filters=((1, 3), (3, 7)), highways=2, max_characters=20)
CONFIGS = {
    "characters": ModelConfig(characters=CHARACTERS, lstm=LstmConfig(layers=2, cells=24, width=8)),
    "forward-only": ModelConfig(
        characters=CHARACTERS, lstm=LstmConfig(layers=1, cells=12, width=4, backward=False)
    ),
    "no-projections": ModelConfig(
        characters=replace(CHARACTERS, highways=0),
        input_projection=False,
        lstm=LstmConfig(layers=3, cells=10, width=10, projection=False),
    ),
}
WORDS = ["a", "bank", "Größe", "everything", "x" * 40]


def counted(run, *, gradients: bool = False) -> int:
    """What torch counts while something runs; prepacked matmuls it does not know."""
    with FlopCounterMode(display=False) as counter, torch.set_grad_enabled(gradients):
        run()
    return counter.get_total_flops()


@pytest.mark.parametrize("name", CONFIGS)
def test_lstm_work_is_what_torch_counts(name):
    config = CONFIGS[name]
    lstm = random_model(config, seed=0).lstm

    def one_token() -> None:
        for direction in config.lstm.directions:
            for number in range(config.lstm.layers):
                weights = LstmWeights(*lstm.get_submodule(f"{direction}_stack.{number}").weights())
                cells = torch.zeros(1, config.lstm.cells)
                state = LstmState(cells, torch.zeros(1, config.lstm.width))
                run_lstm(torch.ones(1, config.lstm.width), [1], state, weights, Clips(3, 3), 1.0)

    assert count_flops(config).lstm_token == counted(one_token)


@pytest.mark.parametrize("name", CONFIGS)
def test_encoder_work_is_what_torch_counts_word_by_word(name):
    config = CONFIGS[name]
    bilm = random_model(config, seed=0)
    inputs = InputBuilder(config, None, None)
    total = sum(
        counted(lambda word=word: bilm.encoder(inputs([word])), gradients=True) for word in WORDS
    )
    assert count_flops(config, WORDS).encoder_word == pytest.approx(total / len(WORDS))


def test_work_of_the_original_is_the_published_one():
    # 75.5 M weights of the LSTMs, each multiplied and added once; 2 x 2 x (512 + 512) x 16384 for
    # the gates and 2 x 2 x 4096 x 512 for the projections.
    found = count_flops(published_shape("original"))
    assert found.lstm_token == 2 * (2 * 2 * 1024 * 16384 + 2 * 2 * 4096 * 512) == 150_994_944
    assert found.first_input_token == 2 * 2 * 512 * 16384
    filters = 25_600 + 50_176 + 147_456 + 385_024 + 942_080 + 2_211_840 + 5_046_272
    assert found.encoder_word == 2 * (filters + 2 * 2 * 2048 * 2048 + 2048 * 512)


def test_columns_stop_at_the_longest_word():
    assert columns(CHARACTERS, "ab") == 2 + 2 + 3
    assert columns(CHARACTERS, "ö") == 2 + 2 + 3  # two bytes
    assert columns(CHARACTERS, "x" * 40) == 20
    unicode = replace(CHARACTERS, alphabet="unicode", rows=50)
    assert columns(unicode, "ö") == 1 + 2 + 3


def test_needed_work_takes_distinct_words_once():
    found = count_flops(CONFIGS["characters"])
    alone = found.lstm_token + found.encoder_word
    assert found.needed(tokens=1, distinct=1) == alone
    assert found.needed(tokens=10, distinct=10) == 10 * alone
    above = found.lstm_token - found.first_input_token
    assert found.needed(tokens=11, distinct=10) == 10 * alone + above


def test_training_work_is_three_times_forward():
    config = CONFIGS["characters"]
    softmax = 2 * 2 * 100 * config.lstm.width  # two directions against 100 candidates
    forward = count_flops(config).lstm_token + count_flops(config, WORDS).encoder_word / 2 + softmax
    found = training_token(config, candidates=100, distinct=0.5, words=WORDS)
    assert found == pytest.approx(3 * forward)


def test_words_without_characters_are_looked_up():
    config = ModelConfig(
        words=WordConfig(rows=9, dim=6), lstm=LstmConfig(layers=1, cells=12, width=4)
    )
    assert count_flops(config, WORDS).encoder_word == 2 * 6 * 4
