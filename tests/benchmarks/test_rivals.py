"""The comparison with other models: layers are chosen on dev, finished cells are kept."""

import json
import random
from pathlib import Path

import numpy as np
import pytest

from benchmarks.rivals import run as rivals_run
from benchmarks.rivals.contenders import Contender, kept_layers
from benchmarks.rivals.sets import (
    CleanedPairSet,
    PairSet,
    RivalSet,
    SentenceSet,
    TagSet,
    UseSet,
)
from benchmarks.rivals.table import draw, table
from elmokit.probes.similarity import Pair, WordInContext
from elmokit.tasks import TaggedExample, TextExample, read_examples

DATA = Path(__file__).parents[1] / "tasks" / "data"


def tagged(names: int = 30) -> TagSet:
    one = TagSet("ewt_pos", "POS, EWT", "en")
    train = list(read_examples("tag", DATA / "ewt" / "train.conllu"))[:names]
    dev = list(read_examples("tag", DATA / "ewt" / "dev.conllu"))
    one.fill({"train": train, "dev": dev[:40], "test": dev[40:]})
    return one


def test_a_layer_that_has_the_tags_is_chosen_and_scores_everything() -> None:
    one = tagged()
    tags = [tag for example in one.examples for tag in example.tags]
    names = sorted(set(tags))
    noise = np.random.default_rng(0).normal(size=(len(tags), len(names)))
    told = 4 * np.eye(len(names))[[names.index(tag) for tag in tags]] + 0.1 * noise
    kept = np.stack([noise, told, noise[::-1]]).astype(np.float16)
    assert one.rows() == len(tags)
    found = one.score(kept, 0)
    assert found.layer in ("1", "mix")
    assert found.score > 97
    assert found.dev["0"] < 50
    assert set(found.dev) == {"0", "1", "2", "mean", "mix"}


def test_spans_are_scored_as_spans() -> None:
    one = TagSet("wnut17", "names", "en")
    tokens = ("Rome", "and", "Oslo")
    example = TaggedExample(tokens, ("B-location", "O", "B-location"))
    one.fill({"train": [example] * 8, "dev": [example], "test": [example]})
    assert one.measure == "span F1"
    kept = np.tile(np.array([[[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]], np.float16), (1, 10, 1))
    assert one.score(kept, 0).score == 100
    assert one.score(np.zeros_like(kept), 0).score < 100


def test_sentences_are_classified_by_the_mean_of_their_tokens() -> None:
    one = SentenceSet("sst2", "SST-2", "en")
    draws = random.Random(1)
    labels = [draws.choice(("good", "bad")) for _ in range(60)]
    examples = [TextExample(("a", "film"), label) for label in labels]
    one.fill({"train": examples[:30], "dev": examples[30:40], "test": examples[40:]})
    layers = np.random.default_rng(0).normal(size=(2, 2, 5)).astype(np.float32)
    assert np.allclose(one.reduce(0, layers)[:, 0], layers.mean(axis=1))
    noise = np.random.default_rng(1).normal(size=(60, 5))
    told = noise + np.array([[4.0 if label == "good" else -4.0] for label in labels])
    found = one.score(np.stack([noise, told]).astype(np.float16), 0)
    assert found.score == 100
    assert found.dev["1"] == 100
    assert {"mean", "all"} <= set(found.dev)


def test_the_use_with_another_sense_is_the_farthest() -> None:
    one = UseSet("uses", "same sense", "en")
    word = WordInContext(("bank",), 0)
    one.pairs = [Pair(word, word, True), Pair(word, word, False)] * 4
    four = np.array([[1.0, 0.1], [1.0, 0.2], [1.0, -0.1], [-1.0, 0.1]])
    right = np.tile(four, (4, 1))[None]
    assert one.score(right, 0).score == 100
    assert one.score(np.ones_like(right), 0).score == 50  # a tie counts half
    assert one.score(np.tile(four[[0, 3, 3, 1]], (4, 1))[None], 0).score < 50
    assert one.reduce(3, np.arange(2.0).reshape(2, 1, 1)).shape == (2, 1, 1)


def test_ratings_are_compared_with_cosines() -> None:
    one = PairSet("scws", "SCWS", "en")
    angles = np.linspace(0.1, 1.4, 20)
    word = WordInContext(("bank",), 0)
    one.pairs = [Pair(word, word, float(-angle)) for angle in angles]
    kept = np.zeros((1, 40, 2))
    kept[0, 0::2] = [1, 0]
    kept[0, 1::2] = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    assert one.score(kept, 0).score == pytest.approx(100)


def test_what_other_text_has_in_common_is_removed_before_ratings() -> None:
    angles = np.linspace(0.1, 1.4, 20)
    word = WordInContext(("bank",), 0)
    pairs = [Pair(word, word, float(-angle)) for angle in angles]
    background = [("on", "the", "bank")] * 100
    one = CleanedPairSet("scws_cleaned", "SCWS, cleaned", "en")
    one.pairs, one.background = pairs, background
    assert one.rows() == 40 + 300
    assert [len(text) for text in one.texts()[39:41]] == [1, 3]
    layers = np.arange(6.0).reshape(1, 3, 2)
    assert one.reduce(0, layers).shape == (1, 1, 2)
    assert one.reduce(40, layers).shape == (1, 3, 2)

    # Angles lie in two dimensions; all vectors share a third, which orders the pairs backwards.
    kept = np.random.default_rng(0).normal(size=(1, one.rows(), 60), scale=0.001)
    kept[0, 0:40:2, :2] = [1, 0]
    kept[0, 1:40:2, :2] = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    kept[0, 0:40:2, 2] = 5
    kept[0, 1:40:2, 2] = -5 + 10 * angles
    kept[0, 40:, 2] = np.linspace(-30, 30, 300)
    plain = PairSet("scws", "SCWS", "en")
    plain.pairs = pairs
    assert plain.score(kept[:, :40], 0).score < 0
    assert one.score(kept, 0).score == pytest.approx(100)


def test_no_model_has_more_layers_to_choose_from_than_the_others() -> None:
    assert kept_layers(3) == [0, 1, 2]
    assert kept_layers(7) == [0, 1, 2, 3, 4, 5, 6]
    assert kept_layers(13) == [0, 2, 4, 6, 8, 10, 12]
    assert kept_layers(8)[-1] == 7


def test_finished_cells_are_kept_until_the_model_differs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []

    class Counted(TagSet):
        def load(self, data: Path | None, tokenizer: str) -> None:
            read.append(1)
            self.fill(tagged(12).parts)

    def sets() -> list[RivalSet]:
        return [Counted("ewt_pos", "POS, EWT", "en")]

    own = Contender("tiny", "en", "test-tiny", "nothing", "-")
    gone = Contender("gone", "en", "no/such/file", "nothing", "-")
    known = {"small-en": own, "flair": gone}
    monkeypatch.setattr(rivals_run, "all_sets", sets)
    monkeypatch.setattr(rivals_run, "CONTENDERS", known)
    cells = tmp_path / "cells.json"
    call = ["--cells", str(cells), "--vectors", str(tmp_path), "--seeds", "0", "1"]
    rivals_run.main(call)
    first = json.loads(cells.read_text("utf-8"))
    assert {"ewt_pos/small-en/0", "ewt_pos/small-en/1"} <= first.keys()
    assert not any("flair" in key for key in first)
    rivals_run.main(call)
    assert len(read) == 1
    monkeypatch.setitem(
        known, "small-en", Contender("tiny", "en", "test-tiny", "", "-", random=True)
    )
    rivals_run.main(["small-en", *call])
    second = json.loads(cells.read_text("utf-8"))
    assert len(read) == 2
    key = "ewt_pos/small-en/0"
    assert second[key]["fingerprint"] != first[key]["fingerprint"]
    monkeypatch.setitem(known, "small-en", own)
    rivals_run.main(["small-en", *call, "--parts", "speed", "--rounds", "2", "--tokens", "50"])
    whole = json.loads(cells.read_text("utf-8"))
    assert len(whole["speed/small-en"]["rates"]) == 2
    assert "*" in table(second).splitlines()[1]
    assert "POS, EWT" in table(second)
    assert "tokens/s: 2 threads" in table(whole)
    assert "POS, EWT" not in table(whole)  # its scores are those of other weights
    pytest.importorskip("matplotlib")
    picture = tmp_path / "picture.png"
    draw(second | {"speed/small-en": second["model/small-en"] | {"rates": [7, 8, 9]}}, picture)
    assert picture.stat().st_size > 1000
