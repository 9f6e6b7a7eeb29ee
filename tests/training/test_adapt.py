"""`adapt`: published and own models on other text."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from small_runs import LINES, SMALL, changed, structured_text

import elmokit
from elmokit import AdaptConfig, ConfigError
from elmokit.checkpoints import native
from elmokit.training.pretrain import pretrain
from elmokit.training.settings import DataConfig, LossConfig, OptimizerConfig, RunConfig

GOLDEN = Path(__file__).parents[1] / "golden"


def config(output: Path, **run: int) -> AdaptConfig:
    return AdaptConfig(
        output=str(output),
        softmax_steps=30,
        softmax_lr=1e-2,
        data=DataConfig(vocabulary=100, min_count=1, rows=8, unroll=8),
        loss=LossConfig(kind="full"),
        optimizer=OptimizerConfig(lr=3e-3, warmup=5),
        run=RunConfig(
            **{"max_steps": 40, "evaluate_every": 20, "save_every": 10, "dropout": 0.0, **run}
        ),
    )


@pytest.mark.parametrize(
    "source",
    [
        "allennlp",  # bytes, no softmax
        "many-langs/released",  # characters and words, no softmax
        "bilm-hdf5/word",  # words alone
        "allennlp-finetuned/model.tar.gz",  # fine-tuned, with a mix
    ],
)
def test_published_model_gets_a_softmax_and_adapts(source, long_corpus, tmp_path):
    elmo = elmokit.load(GOLDEN / source)
    original = {name: t.clone() for name, t in elmo.bilm.state_dict().items()}
    result = elmokit.adapt(elmo, long_corpus.folder, config(tmp_path / "adapted"))
    assert result.after.perplexity < result.before.perplexity
    assert result.before.vocabulary == result.after.vocabulary
    # The model that was given stays as it was; the adapted one changed in every part.
    for name, tensor in elmo.bilm.state_dict().items():
        assert torch.equal(tensor, original[name])
    adapted = elmokit.load(tmp_path / "adapted")
    assert adapted.config.softmax is not None
    if elmo.config.words is None:  # its words are those of the text
        size = len(adapted.vocabulary)
        np.testing.assert_array_equal(adapted.vocabulary.counts, long_corpus.counts[:size])
    for name in ("lstm.forward_stack.0.input_weight", "lstm.backward_stack.1.bias"):
        assert not torch.equal(adapted.bilm.state_dict()[name], original[name])
    assert adapted.encode("the cat sees a dog .").shape[1] == elmo.dim
    assert np.isfinite(adapted.score("the cat sees a dog .").perplexity)
    card = (tmp_path / "adapted" / "README.md").read_text(encoding="utf-8")
    assert f"before adaptation: {result.before.perplexity:.2f}" in card


def test_model_with_a_softmax_keeps_its_vocabulary(long_corpus, tmp_path):
    settings = changed(SMALL, run={"max_steps": 10})
    settings = type(settings)(
        **{**vars(settings), "corpus": (str(long_corpus.folder),), "output": str(tmp_path / "own")}
    )
    own = pretrain(settings, device="cpu")
    result = elmokit.adapt(tmp_path / "own", long_corpus.folder, config(tmp_path / "adapted"))
    assert result.elmo.vocabulary.words == own.vocabulary.words
    assert result.elmo.vocabulary.counts.tolist() == own.vocabulary.counts.tolist()
    assert result.after.perplexity < result.before.perplexity
    assert not (tmp_path / "adapted" / "training" / "softmax").exists()


def test_adaptation_never_ends_worse_than_it_began(long_corpus, tmp_path):
    bad = config(tmp_path / "adapted", max_steps=3)
    bad = AdaptConfig(**{**vars(bad), "optimizer": OptimizerConfig(lr=5.0, warmup=0)})
    result = elmokit.adapt(GOLDEN / "allennlp", long_corpus.folder, bad)
    assert result.after.perplexity == pytest.approx(result.before.perplexity)


def test_adaptation_is_resumed_where_it_was_stopped(long_corpus, tmp_path):
    straight = elmokit.adapt(GOLDEN / "allennlp", long_corpus.folder, config(tmp_path / "straight"))
    # The same plan, given up in the middle: its snapshots beyond step 20 are taken away.
    elmokit.adapt(GOLDEN / "allennlp", long_corpus.folder, config(tmp_path / "broken"))
    run = tmp_path / "broken" / "training"
    for step in (40,):
        (run / f"snapshot-{step:09d}.safetensors").unlink()
    again = elmokit.adapt(
        GOLDEN / "allennlp", long_corpus.folder, config(tmp_path / "broken"), resume=True
    )
    for name, tensor in straight.elmo.bilm.state_dict().items():
        assert torch.equal(tensor, again.elmo.bilm.state_dict()[name]), name


def test_text_files_are_prepared_with_the_models_tokeniser(tmp_path):
    text = tmp_path / "domain.txt"
    text.write_text(structured_text(200), encoding="utf-8")
    result = elmokit.adapt(
        GOLDEN / "allennlp", text, config(tmp_path / "adapted", max_steps=5), preparation=LINES
    )
    assert result.elmo.config.text.tokenizer == "space"


def test_output_that_is_something_else_is_left_alone(long_corpus, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("keep", encoding="utf-8")
    with pytest.raises(ConfigError, match="mine"):
        elmokit.adapt(GOLDEN / "allennlp", long_corpus.folder, config(tmp_path / "mine"))
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["notes.txt"]


def test_losses_that_cannot_be_adapted_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="full or a sampled"):
        AdaptConfig(output=str(tmp_path), loss=LossConfig(kind="cnn"))


def test_update_puts_a_model_beside_other_files(elmo, tmp_path, monkeypatch):
    (tmp_path / "notes.txt").write_text("keep", encoding="utf-8")
    native.update(elmo.checkpoint(), tmp_path)
    names = {"config.json", "model.safetensors", "notes.txt"}
    assert {path.name for path in tmp_path.iterdir()} == names
    before = elmokit.load(tmp_path).encode("a b")

    def full_disk(*arguments, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("safetensors.torch.save_file", full_disk)
    with pytest.raises(OSError, match="No space"):
        native.update(elmo.checkpoint(), tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == names
    np.testing.assert_array_equal(elmokit.load(tmp_path).encode("a b"), before)


def test_model_with_an_adaptive_softmax_adapts_whatever_loss_is_asked_for(long_corpus, tmp_path):
    settings = changed(SMALL, loss={"kind": "adaptive"}, run={"max_steps": 5})
    settings = replace(settings, corpus=(str(long_corpus.folder),), output=str(tmp_path / "own"))
    pretrain(settings, device="cpu")
    asked = replace(config(tmp_path / "adapted", max_steps=20), loss=LossConfig(kind="sampled"))
    result = elmokit.adapt(tmp_path / "own", long_corpus.folder, asked)
    assert result.after.perplexity < result.before.perplexity
