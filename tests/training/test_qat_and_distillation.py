"""Quantization-aware training, and distillation from a larger model."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from small_runs import SMALL, changed

import elmokit
from elmokit.checkpoints.quantized import round_int4, takes_int4
from elmokit.config import LstmConfig
from elmokit.errors import ConfigError
from elmokit.lm.perplexity import perplexity
from elmokit.training.pretrain import pretrain
from elmokit.training.settings import DistillConfig, PretrainConfig

WIDE = changed(SMALL, model={"lstm": LstmConfig(layers=2, cells=64, width=64)})


def run(settings: PretrainConfig, corpus, output, **changes) -> elmokit.Elmo:
    settings = changed(settings, run=changes)
    settings = replace(settings, corpus=(str(corpus.folder),), output=str(output))
    return pretrain(settings, device="cpu")


# Quantization-aware training.


def test_the_saved_model_is_on_the_grid_of_int4_and_int4_storage_keeps_it(long_corpus, tmp_path):
    elmo = run(WIDE, long_corpus, tmp_path / "run", max_steps=24, qat_steps=8)
    rounded = [n for n, w in elmo.bilm.state_dict().items() if takes_int4(w)]
    assert len(rounded) == 12  # three matrices of four layers; the words are few
    for name in rounded:
        weight = elmo.bilm.state_dict()[name]
        assert torch.equal(weight, round_int4(weight)), name
    elmo.save(tmp_path / "int4", storage="int4")
    again = elmokit.load(tmp_path / "int4")
    for name in rounded:
        assert torch.equal(again.bilm.state_dict()[name], elmo.bilm.state_dict()[name]), name


def test_the_last_steps_make_up_for_what_rounding_costs(long_corpus, tmp_path):
    """The same steps, rounded after training and during the last of them."""
    plain = run(WIDE, long_corpus, tmp_path / "plain", max_steps=80, evaluate_every=80)
    last = {"max_steps": 80, "evaluate_every": 80, "qat_steps": 40}
    aware = run(WIDE, long_corpus, tmp_path / "aware", **last)
    plain.save(tmp_path / "after", storage="int4")
    split = long_corpus.split("heldout")
    text = [[long_corpus.words[i] for i in split.tokens_of(n)] for n in range(len(split))]
    after = perplexity(elmokit.load(tmp_path / "after"), text).perplexity
    assert perplexity(aware, text).perplexity < after


def test_steps_before_the_last_ones_are_those_of_a_plain_run(long_corpus, tmp_path):
    plain = run(WIDE, long_corpus, tmp_path / "plain", max_steps=6, evaluate_every=6)
    aware = run(WIDE, long_corpus, tmp_path / "aware", max_steps=6, evaluate_every=6, qat_steps=1)
    read = [elmo.bilm.state_dict()["lstm.forward_stack.0.bias"] for elmo in (plain, aware)]
    np.testing.assert_allclose(read[0], read[1], atol=0.011)  # one step of lr 0.01 apart
    assert not torch.equal(*read)


def test_an_interrupted_run_goes_on_from_the_exact_weights(long_corpus, tmp_path):
    straight = run(WIDE, long_corpus, tmp_path / "straight", max_steps=20, qat_steps=12)
    run(WIDE, long_corpus, tmp_path / "broken", max_steps=20, qat_steps=12)
    for step in (15, 20):
        (tmp_path / "broken" / "training" / f"snapshot-{step:09d}.safetensors").unlink()
    settings = changed(WIDE, run={"max_steps": 20, "qat_steps": 12})
    settings = replace(settings, corpus=(str(long_corpus.folder),), output=str(tmp_path / "broken"))
    again = pretrain(settings, device="cpu", resume=True)
    for name, tensor in straight.bilm.state_dict().items():
        assert torch.equal(tensor, again.bilm.state_dict()[name]), name


# Distillation.


@pytest.fixture(scope="module")
def teacher(long_corpus, tmp_path_factory):
    folder = tmp_path_factory.mktemp("teacher") / "run"
    run(WIDE, long_corpus, folder, max_steps=60, evaluate_every=60, save_every=60)
    return folder


def explained(student: elmokit.Elmo, teacher: elmokit.Elmo, sentences) -> float:
    """Share of the variance of the teacher's top layer that is linear in the student's."""
    x, y = (np.concatenate(e.encode(sentences, layers=2)) for e in (student, teacher))
    x = np.c_[x, np.ones(len(x))]
    half = len(x) // 2
    fit = np.linalg.lstsq(x[:half], y[:half], rcond=None)[0]
    return float(
        1 - ((x[half:] @ fit - y[half:]) ** 2).sum() / ((y[half:] - y[:half].mean(0)) ** 2).sum()
    )


def test_a_distilled_student_holds_more_of_the_teacher(teacher, long_corpus, tmp_path):
    split = long_corpus.split("train")
    sentences = [[long_corpus.words[i] for i in split.tokens_of(n)] for n in range(200)]
    shares = {}
    for weight in (None, 5.0):
        settings = SMALL
        if weight is not None:
            settings = replace(SMALL, distill=DistillConfig(teacher=str(teacher), weight=weight))
        student = run(
            settings, long_corpus, tmp_path / str(weight), max_steps=150, evaluate_every=150,
            save_every=150,
        )  # fmt: skip
        shares[weight] = explained(student, elmokit.load(teacher), sentences)
        assert not any(name.startswith("distill") for name in student.bilm.state_dict())
    assert shares[5.0] > shares[None] + 0.02


def test_a_distilled_run_is_resumed_exactly(teacher, long_corpus, tmp_path):
    settings = replace(SMALL, distill=DistillConfig(teacher=str(teacher)))
    straight = run(settings, long_corpus, tmp_path / "straight", max_steps=10)
    run(settings, long_corpus, tmp_path / "broken", max_steps=10)
    (tmp_path / "broken" / "training" / "snapshot-000000010.safetensors").unlink()
    settings = changed(settings, run={"max_steps": 10})
    settings = replace(settings, corpus=(str(long_corpus.folder),), output=str(tmp_path / "broken"))
    again = pretrain(settings, device="cpu", resume=True)
    for name, tensor in straight.bilm.state_dict().items():
        assert torch.equal(tensor, again.bilm.state_dict()[name]), name


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lstm": LstmConfig(layers=1, cells=20, width=16)}, "number of LSTM layers"),
        ({"characters": replace(SMALL.model.characters, max_characters=12)}, "the same input"),
    ],
)
def test_a_teacher_that_does_not_fit_is_refused(teacher, long_corpus, tmp_path, change, message):
    settings = replace(changed(SMALL, model=change), distill=DistillConfig(teacher=str(teacher)))
    with pytest.raises(ConfigError, match=message):
        run(settings, long_corpus, tmp_path / "run", max_steps=2)
    assert not (tmp_path / "run").exists()
