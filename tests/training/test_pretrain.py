"""`pretrain` from text to a model that other parts of elmokit can use."""

import importlib.util
import json
import math
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from small_runs import LINES, SMALL, WORD_INPUT, changed, make_trainer, structured_text

import elmokit
from elmokit.config import CharacterConfig, LstmConfig, dumps_toml, loads_toml
from elmokit.corpus.prepare import CorpusConfig, prepare_corpus
from elmokit.corpus.shards import TokenCorpus
from elmokit.errors import ConfigError, DataError
from elmokit.lm.perplexity import perplexity
from elmokit.lm.scoring import score
from elmokit.training.pretrain import pretrain
from elmokit.training.settings import PRESETS, PretrainConfig, settings_for

pytestmark = pytest.mark.usefixtures("no_drawing")

TRAIN = Path(__file__).parent.parent / "golden" / "bilm-tf" / "train"

LEARNING = changed(
    SMALL,
    model={"lstm": LstmConfig(cells=48, width=16, cell_clip=3.0, projection_clip=3.0)},
    data={"rows": 16, "unroll": 8},
    loss={"negatives": 12, "cutoffs": (6, 15)},
    optimizer={"lr": 2e-2, "warmup": 10},
    run={"max_steps": 80, "evaluate_every": 40, "save_every": 40, "evaluate_tokens": 300},
)


def heldout(corpus: TokenCorpus) -> list[list[str]]:
    split = corpus.split("heldout")
    return [[corpus.words[i] for i in split.tokens_of(n)] for n in range(len(split))]


def unigram_perplexity(corpus: TokenCorpus) -> float:
    """Of a model that knows how often words are, and nothing else."""
    counts: Counter[str] = Counter()
    split = corpus.split("train")
    for number in range(len(split)):
        counts.update([*(corpus.words[i] for i in split.tokens_of(number)), "</S>"])
    total = sum(counts.values())
    words = [word for sentence in heldout(corpus) for word in (*sentence, "</S>")]
    return math.exp(-sum(math.log(counts[word] / total) for word in words) / len(words))


def for_corpus(config: PretrainConfig, corpus: TokenCorpus, folder: Path) -> PretrainConfig:
    return replace(config, corpus=(str(corpus.folder),), output=str(folder / "model"))


UNICODE = CharacterConfig(
    alphabet="unicode", rows=6, dim=4, max_characters=9, filters=((1, 8), (2, 8)), highways=1
)

UNROLLED, LONGER = {"times_unroll": True}, {"max_steps": 140}

MODELS: dict[str, PretrainConfig] = {
    "sampled": LEARNING,
    "words": changed(LEARNING, model={"characters": None, "words": WORD_INPUT}),
    "characters-and-words": changed(LEARNING, model={"words": WORD_INPUT}),
    "unicode": changed(LEARNING, model={"characters": UNICODE}),
    "forward-only": changed(LEARNING, model={"lstm": replace(LEARNING.model.lstm, backward=False)}),
    "no-projection": changed(
        LEARNING,
        model={"lstm": LstmConfig(cells=16, width=16, projection=False, residual=False)},
        run=LONGER,
    ),
    "full": changed(LEARNING, loss={"kind": "full"}),
    "adaptive": changed(LEARNING, loss={"kind": "adaptive"}),
    "cnn": changed(LEARNING, loss={"kind": "cnn"}),
    "tied": changed(LEARNING, loss={"tied": True}, model={"characters": None, "words": WORD_INPUT}),
    "centering": changed(LEARNING, loss={"centering": 0.01}),
    "adagrad": changed(
        LEARNING, optimizer={"name": "adagrad", "lr": 0.2, "accumulator": 0.01}, loss=UNROLLED
    ),
    "sgd": changed(LEARNING, optimizer={"name": "sgd", "lr": 0.1}, loss=UNROLLED, run=LONGER),
}


@pytest.mark.parametrize("name", MODELS)
def test_models_learn_and_can_be_used(long_corpus, tmp_path, name):
    elmo = pretrain(for_corpus(MODELS[name], long_corpus, tmp_path))
    measured = perplexity(elmo, heldout(long_corpus))
    baseline = unigram_perplexity(long_corpus)
    assert measured.perplexity < 0.6 * baseline
    assert measured.vocabulary == len(long_corpus.words)
    again = elmokit.load(tmp_path / "model")
    np.testing.assert_array_equal(again.vocabulary.counts, long_corpus.counts)
    assert again.config == elmo.config
    directions = 1 if name == "forward-only" else 2
    vectors = again.encode(["the red cat sees a dog .", "a señor"])
    assert [v.shape for v in vectors] == [(7, 16 * directions), (2, 16 * directions)]
    assert np.isfinite(vectors[0]).all()
    scored = score(again, ["the red cat sees a dog .", "the the cat cat a a ."])
    assert scored[0].perplexity < scored[1].perplexity
    assert f"**{measured.perplexity:.2f}**" in (tmp_path / "model" / "README.md").read_text()


def test_text_files_become_a_corpus_a_model_a_card_and_a_log(tmp_path, monkeypatch):
    monkeypatch.undo()  # this one draws, where it can
    (tmp_path / "one.txt").write_text(structured_text(60, 1), encoding="utf-8")
    (tmp_path / "two.txt").write_text(structured_text(60, 2), encoding="utf-8")
    config = replace(
        changed(LEARNING, run={"max_steps": 12, "evaluate_every": 5}),
        corpus=(str(tmp_path / "one.txt"), str(tmp_path / "two.txt")),
        output=str(tmp_path / "model"),
    )
    elmo = pretrain(config, preparation=LINES, data_licence="CC0-1.0")
    model = tmp_path / "model"
    run = model / "training"
    assert loads_toml(PretrainConfig, (run / "settings.toml").read_text()) == config
    corpus = TokenCorpus(run / "corpus", verify=True)
    assert corpus.sources == ("one.txt", "two.txt")
    if importlib.util.find_spec("matplotlib"):
        assert (run / "curves.png").read_bytes().startswith(b"\x89PNG")
    entries = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    evaluations = [e for e in entries if e["kind"] == "heldout"]
    assert [e["step"] for e in evaluations] == [5, 10, 12]
    assert {"perplexity", "forward", "backward", "better"} <= evaluations[0].keys()
    rows = [e for e in entries if e["kind"] == "train"]
    assert rows[-1]["tokens"] == 12 * 16 * 8
    assert all(len(e["losses"]) == 2 for e in rows)
    card = (model / "README.md").read_text(encoding="utf-8")
    measured = perplexity(elmo, heldout(corpus))
    for text in (
        "# model",
        "CC0-1.0",
        "one.txt, two.txt",
        f"{measured.perplexity:.2f}",
        f"{measured.tokens:,} tokens",
        "max_steps = 12",
        "`space`",
    ):
        assert text in card, text
    assert elmo.config.text.tokenizer == "space"
    assert (model / "vocab.txt").read_text(encoding="utf-8").splitlines()[:3] == [
        "<S>",
        "</S>",
        "<UNK>",
    ]
    with pytest.raises(ConfigError, match="a run is there already"):
        pretrain(config, preparation=LINES)
    assert (model / "README.md").read_text(encoding="utf-8") == card


def test_text_and_a_preset_are_enough(tmp_path, monkeypatch):
    assert elmokit.pretrain is pretrain
    monkeypatch.setitem(PRESETS, "tiny", changed(LEARNING, run={"max_steps": 4}))
    for name in ("one.txt", "two.txt"):
        (tmp_path / name).write_text(structured_text(60), encoding="utf-8")
    one, two = tmp_path / "one.txt", str(tmp_path / "two.txt")
    for text, sources in ((one, ("one.txt",)), ([one, two], ("one.txt", "two.txt"))):
        output = tmp_path / f"model-{len(sources)}"
        elmo = pretrain(text, output=output, preset="tiny", preparation=LINES)
        assert elmo.source == str(output)
        assert elmo.card == (output / "README.md").read_text("utf-8")
        assert TokenCorpus(output / "training" / "corpus").sources == sources
    with pytest.raises(ConfigError, match="no preset 'huge'"):
        pretrain(one, output=tmp_path / "other", preset="huge")
    with pytest.raises(ConfigError, match="corpus and output must be given"):
        pretrain(one, preset="tiny")


def test_a_smaller_vocabulary_leaves_unknown_words(long_corpus, tmp_path):
    config = changed(LEARNING, data={"vocabulary": 12}, run={"max_steps": 10})
    elmo = pretrain(for_corpus(config, long_corpus, tmp_path))
    assert len(elmo.vocabulary) == 12
    measured = perplexity(elmo, heldout(long_corpus))
    assert 0.05 < measured.oov_rate < 0.9
    assert measured.vocabulary == 12


def test_markers_may_have_other_names(long_corpus, tmp_path):
    text = replace(LEARNING.model.text, begin="<bos>", end="<eos>", unknown="<oov>")
    config = changed(LEARNING, model={"text": text, "words": WORD_INPUT}, run={"max_steps": 60})
    elmo = pretrain(for_corpus(config, long_corpus, tmp_path))
    assert elmo.vocabulary.words[:3] == ["<bos>", "<eos>", "<oov>"]
    assert perplexity(elmo, heldout(long_corpus)).perplexity < unigram_perplexity(long_corpus)


def test_impossible_settings_are_refused(long_corpus, tmp_path):
    with pytest.raises(ConfigError, match="corpus and output"):
        pretrain(LEARNING)
    cases = {
        "cutoffs": changed(LEARNING, loss={"kind": "adaptive", "cutoffs": (5000,)}),
        "reads no characters": changed(
            LEARNING, loss={"kind": "cnn"}, model={"characters": None, "words": WORD_INPUT}
        ),
        "tied": changed(LEARNING, loss={"tied": True}),
    }
    for number, (message, config) in enumerate(cases.items()):
        with pytest.raises(ConfigError, match=message):
            pretrain(
                replace(
                    for_corpus(config, long_corpus, tmp_path), output=str(tmp_path / str(number))
                )
            )
    for kind in ("cnn", "adaptive"):
        with pytest.raises(ConfigError, match="tied"):
            changed(LEARNING, loss={"kind": kind, "tied": True})


def test_a_corpus_without_heldout_text_is_refused(tmp_path):
    (tmp_path / "text.txt").write_text(structured_text(20), encoding="utf-8")
    settings = replace(LINES, heldout=0)
    prepare_corpus(tmp_path / "text.txt", tmp_path / "corpus", settings=settings, workers=1)
    config = for_corpus(LEARNING, TokenCorpus(tmp_path / "corpus"), tmp_path)
    with pytest.raises(DataError, match="no held-out text"):
        pretrain(config)


@pytest.mark.parametrize("name", PRESETS)
def test_presets_survive_toml(name):
    config = settings_for(name, overrides=["run.seed=7", "optimizer.lr=1e-4"])
    assert config.run.seed == 7
    assert loads_toml(PretrainConfig, dumps_toml(config)) == config


def test_old_names_of_settings_are_read(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text("[optimiser]\nrate = 0.5\n", "utf-8")
    config = settings_for("tiny", file, ["optimiser.final_share=0.25"])
    assert (config.optimizer.lr, config.optimizer.min_lr_ratio) == (0.5, 0.25)
    with pytest.raises(ConfigError, match="'rate' is its old name"):
        settings_for("tiny", overrides=["optimizer={lr = 1.0, rate = 2.0}"])


# bilm-tf's own test: a small model learns its four lines by heart.


def overfit(tmp_path: Path, steps: int) -> tuple[elmokit.Elmo, list[list[str]]]:
    """The published recipe, sizes aside: those of bilm-tf's tests."""
    lines = (TRAIN / "data.txt").read_text(encoding="utf-8").splitlines()
    preparation = CorpusConfig(tokenizer="space", sentences="line", documents="line", heldout=0.0)
    prepare_corpus(TRAIN / "data.txt", tmp_path / "corpus", settings=preparation, workers=1)
    paper = PRESETS["paper"]
    config = changed(
        paper,
        model={
            "characters": CharacterConfig(
                dim=4, filters=((1, 8), (2, 8), (3, 16), (4, 32), (5, 64)), highways=2
            ),
            "lstm": LstmConfig(cells=64, width=16, cell_clip=3.0, projection_clip=3.0),
        },
        data={"rows": 2, "unroll": 3},
        loss={"negatives": 16},
        run={"max_steps": steps},
    )
    corpus = TokenCorpus(tmp_path / "corpus")
    trainer = make_trainer(config, corpus, tmp_path)
    for number in range(steps):
        trainer.step(number)
    trainer.close()
    return trainer.elmo(), [line.split() for line in lines]


@pytest.mark.slow
def test_the_published_recipe_learns_four_lines_by_heart(tmp_path):
    """50 passes over 136 tokens, as in bilm-tf's test, which asks for a perplexity below 20."""
    elmo, lines = overfit(tmp_path, steps=50 * 136 // 6)
    assert len(lines) == 5
    assert perplexity(elmo, lines).perplexity < 20
