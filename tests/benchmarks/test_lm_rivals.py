"""Language models as scorers: each sentence alone, in both directions; finished cells are kept."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import elmokit
from benchmarks.rivals import lm, scorers
from benchmarks.rivals.scorers import (
    CausalScorer,
    ElmoScorer,
    Entry,
    FlairScorer,
    Opened,
    Scores,
    Sentence,
    flair_decoders,
)
from elmokit.checkpoints.flair_file import CharacterLM, read_flair
from elmokit.probes.pairs import pairs, read_pairs

LETTERS = {letter: row for row, letter in enumerate("?\n .abcdehknorstwyBTM'")}
SENTENCES = [
    Sentence.of(words.split())
    for words in (
        "The bank broke .",
        "a",
        "Mary 's son do n't trade the narrow boat .",
        "Be bare .",
    )
]
GOLDEN = Path(__file__).parents[1] / "golden"
Decoder = tuple[Tensor, Tensor]


def tiny_flair(forward: bool, seed: int, projected: bool = False) -> tuple[CharacterLM, Decoder]:
    """A character language model with random weights."""
    random = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=random)

    size, width, cells = len(LETTERS), 4, 5
    weights = {
        "encoder.weight": draw(size, width),
        "rnn.weight_ih_l0": draw(4 * cells, width),
        "rnn.weight_hh_l0": draw(4 * cells, cells),
        "rnn.bias_ih_l0": draw(4 * cells),
        "rnn.bias_hh_l0": draw(4 * cells),
    }
    out = cells
    if projected:
        out = 3
        weights |= {"proj.weight": draw(out, cells), "proj.bias": draw(out)}
    model = CharacterLM(forward, LETTERS, "\n", weights)
    return model, (draw(size, out), draw(size))


def flair_scorer(*, spaced: bool = False) -> FlairScorer:
    parts = tiny_flair(True, 1), tiny_flair(False, 2, projected=True)
    return FlairScorer([one for one, _ in parts], [one for _, one in parts], spaced=spaced)


def log_probability(model: CharacterLM, decoder: Decoder, text: str) -> float:
    """Character by character, as the equations of the LSTM have it, in float64."""
    weights = {name: tensor.double().numpy() for name, tensor in model.weights.items()}
    output, bias = (tensor.double().numpy() for tensor in decoder)

    def sigmoid(x: np.ndarray) -> np.ndarray:
        return 1 / (1 + np.exp(-x))

    hidden = cell = np.zeros(weights["rnn.weight_hh_l0"].shape[1])
    total = 0.0
    for before, letter in zip("\n" + text, text, strict=False):
        gates = (
            weights["rnn.weight_ih_l0"] @ weights["encoder.weight"][LETTERS.get(before, 0)]
            + weights["rnn.bias_ih_l0"]
            + weights["rnn.weight_hh_l0"] @ hidden
            + weights["rnn.bias_hh_l0"]
        )
        i, f, g, o = np.split(gates, 4)
        cell = sigmoid(f) * cell + sigmoid(i) * np.tanh(g)
        hidden = sigmoid(o) * np.tanh(cell)
        read = hidden
        if "proj.weight" in weights:
            read = weights["proj.weight"] @ hidden + weights["proj.bias"]
        logits = output @ read + bias
        total += logits[LETTERS.get(letter, 0)] - math.log(np.exp(logits).sum())
    return total


@pytest.mark.parametrize("spaced", [False, True])
def test_flair_is_scored_as_its_equations_say(spaced: bool) -> None:
    found = flair_scorer(spaced=spaced).score(SENTENCES)
    forward, backward = tiny_flair(True, 1), tiny_flair(False, 2, projected=True)
    for number, sentence in enumerate(SENTENCES):
        text = " ".join(sentence.tokens) if spaced else sentence.plain
        left = log_probability(*forward, text)
        right = log_probability(*backward, text[::-1])
        assert found["forward"][number] == pytest.approx(left, abs=1e-4)
        assert found["backward"][number] == pytest.approx(right, abs=1e-4)
        assert found["both"][number] == pytest.approx((left + right) / 2, abs=1e-4)
    assert SENTENCES[2].plain == "Mary's son don't trade the narrow boat."


def test_backward_is_forward_on_the_reversed_text() -> None:
    model, decoder = tiny_flair(True, 1)
    scorer = FlairScorer([model, replace(model, forward=False)], [decoder, decoder])
    back = [Sentence(one.plain[::-1], ()) for one in SENTENCES]
    assert np.allclose(scorer.score(SENTENCES)["backward"], scorer.score(back)["forward"])
    assert not np.allclose(*(scorer.score(SENTENCES)[way] for way in ("forward", "backward")))


def test_decoders_of_flair_are_read_from_its_file() -> None:
    path = GOLDEN / "flair" / "tagger.pt"
    models = read_flair(path)
    decoders = flair_decoders(path, models)
    for model, (weight, bias) in zip(models, decoders, strict=True):
        cells = model.weights["rnn.weight_hh_l0"].shape[1]
        out = len(model.weights.get("proj.weight", torch.zeros(cells)))
        assert weight.shape == (len(model.weights["encoder.weight"]), out)
        assert bias.shape == weight.shape[:1]
    assert all(bool((v < 0).all()) for v in FlairScorer(models, decoders).score(SENTENCES).values())


def bigrams(ids: Tensor) -> Tensor:
    """Logits that depend on the id before and on how many came before it."""
    table = torch.randn(40, 40, generator=torch.Generator().manual_seed(3))
    return table[ids] * (1 + torch.arange(ids.shape[1])[None, :, None] % 3)  # (B, S, V)


def causal_scorer() -> CausalScorer:
    return CausalScorer(bigrams, lambda text: [ord(letter) % 39 + 1 for letter in text], 0)


def elmo_scorer() -> ElmoScorer:
    return ElmoScorer(elmokit.load(GOLDEN / "tf-checkpoint" / "standard", device="cpu"))


@pytest.mark.parametrize("make", [flair_scorer, causal_scorer, elmo_scorer])
@pytest.mark.parametrize("batch", [1, 16, 512])
def test_scores_do_not_depend_on_other_sentences(
    make: Callable[[], scorers.Scorer], batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    scorer = make()
    alone = [scorer.score([sentence]) for sentence in SENTENCES]
    monkeypatch.setattr(scorers, "BATCH", batch)
    together = scorer.score(SENTENCES)
    turned = scorer.score(SENTENCES[::-1])
    for way, values in together.items():
        assert np.allclose(values, [one[way][0] for one in alone], atol=1e-4)
        assert np.allclose(values, turned[way][::-1], atol=1e-4)


def test_a_causal_model_is_given_the_start_and_predicts_all_else() -> None:
    scorer = causal_scorer()
    text = "ab"
    ids = [0, *(ord(letter) % 39 + 1 for letter in text)]
    logps = bigrams(torch.tensor([ids[:-1]]))[0].log_softmax(-1)
    expected = float(logps[0, ids[1]] + logps[1, ids[2]])
    assert scorer.score([Sentence(text, ())]) == {"forward": pytest.approx([expected])}


def test_elmo_has_the_words_of_its_score_without_the_ends() -> None:
    scorer = elmo_scorer()
    found = scorer.score(SENTENCES)
    for number, sentence in enumerate(SENTENCES):
        one = scorer.elmo.score([list(sentence.tokens)])[0]
        assert one.backward is not None
        forward = one.forward_logprob - float(one.forward[-1])
        backward = float(one.backward.sum(dtype=np.float64) - one.backward[0])
        assert found["forward"][number] == pytest.approx(forward, abs=1e-4)
        assert found["backward"][number] == pytest.approx(backward, abs=1e-4)
        assert found["both"][number] == pytest.approx((forward + backward) / 2, abs=1e-4)


def test_sentences_with_an_unknown_are_left_out_for_all() -> None:
    elmo, flair = elmo_scorer(), flair_scorer()
    assert elmo.elmo.vocabulary is not None
    word = next(word for word in elmo.elmo.vocabulary if word.isalpha())
    assert elmo.knows(Sentence.of([word]))
    assert not elmo.knows(Sentence.of([word, "qqxqzz"]))
    assert not elmo.knows(Sentence.of([elmo.elmo.config.text.unknown]))
    assert flair.knows(Sentence.of(["Be", "bare"]))
    assert not flair.knows(Sentence.of(["Bé", "bare"]))
    drawn = [Sentence.of(["Be", "bare"]), Sentence.of(["Bé"]), Sentence.of(["bank"])]
    found = lm.sample(drawn, {"flair": flair, "any": causal_scorer()})
    assert found.sentences == [drawn[0], drawn[2]]
    assert found.facts["known"] == {"flair": 2, "any": 3}
    assert (found.facts["words"], found.facts["words_drawn"]) == (3, 4)
    assert found.facts["characters"] == len("Be bare") + len("bank")


def test_bits_are_those_of_all_sentences_together() -> None:
    sums, lengths = -math.log(2) * np.array([10.0, 2.0]), np.array([4.0, 2.0])
    found = lm.per_character(sums, lengths)
    assert found["value"] == 2
    assert found["error"] == pytest.approx(2 * math.sqrt(2) / math.sqrt(3 - 1) / 3, abs=1e-4)
    assert lm.per_character(sums[[0, 0]], lengths[[0, 0]])["error"] == 0


def test_pairs_are_counted_as_the_probe_counts_them(tmp_path: Path) -> None:
    path = tmp_path / "pairs.jsonl"
    rows = [
        {"good": "The cat sat .", "bad": "The sat cat .", "phenomenon": "verbs"},
        {"good": "He saw the dog .", "bad": "He saw in dog .", "phenomenon": "verbs"},
        {"good": "they saw it", "bad": "they saw it", "phenomenon": "none"},
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    scorer = elmo_scorer()
    texts = [row[name].split() for row in rows for name in ("good", "bad")]
    scores = scorer.score([Sentence.of(words) for words in texts])
    # The probe predicts the ends as well; here they are put back.
    for i, one in enumerate(scorer.elmo.score(texts)):
        assert one.backward is not None
        ends = {"forward": float(one.forward[-1]), "backward": float(one.backward[0])}
        for way, end in (ends | {"both": sum(ends.values()) / 2}).items():
            scores[way][i] += end
    found = lm.shares(list(read_pairs(path)), scores)
    report = pairs(scorer.elmo, path)
    assert [group.name for group in report.phenomena] == ["verbs", "none"]
    for group in report.phenomena:
        assert found["forward"][group.name] == group.forward.share
        assert found["both"][group.name] == group.both.share
    assert found["forward"]["none"] == 0.5


class Counted:
    """A scorer by lengths that counts its calls."""

    def __init__(self, both: bool) -> None:
        self.both = both
        self.calls = 0

    def score(self, sentences: list[Sentence]) -> Scores:
        self.calls += 1
        forward = -1.5 * np.array([len(one.plain) for one in sentences], float)
        return scorers.with_mean({"forward": forward, "backward": 2 * forward}) if self.both else {
            "forward": forward - 1
        }  # fmt: skip

    def knows(self, sentence: Sentence) -> bool:
        return len(sentence.tokens) < 30


def test_finished_cells_are_kept_until_the_model_differs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = Counted(both=True), Counted(both=False)
    weights = {"small-en": "aaa", "smollm2": "bbb"}

    def entry(name: str, scorer: Counted) -> Entry:
        def opened(rivals: Path, packages: Path) -> Opened:
            return Opened(scorer, 7_000_000, weights[name])

        return Entry(name.upper(), "words", "books", opened, closed=name == "small-en")

    def gone(rivals: Path, packages: Path) -> Opened:
        raise FileNotFoundError("model.gguf")

    known = {"small-en": entry("small-en", first), "smollm2": entry("smollm2", second)}
    known["gone"] = Entry("GONE", "words", "books", gone, closed=False)
    monkeypatch.setattr(lm, "SCORERS", known)
    monkeypatch.setattr(lm, "TEXTS", {"sample-en": "our sample"})
    suite = tmp_path / "pairs.jsonl"
    pair = {"good": "It is .", "bad": "It is be .", "phenomenon": "verbs"}
    suite.write_text(json.dumps(pair) + "\n", "utf-8")
    path = tmp_path / "cells.json"
    call = ["--cells", str(path), "--pairs", str(suite), "--drawn", "20"]
    lm.main(call)
    assert "gone: not there, left out (model.gguf)" in capsys.readouterr().out
    cells = json.loads(path.read_text("utf-8"))
    assert {"bits/sample-en/small-en", "bits/sample-en/smollm2", "pairs/smollm2"} <= cells.keys()
    assert not any("gone" in key for key in cells)
    facts = cells["text/sample-en"]
    assert 0 < facts["sentences"] < facts["drawn"] == 20  # some are too long to be known
    assert cells["bits/sample-en/small-en"]["bits"]["forward"]["value"] == pytest.approx(
        1.5 / math.log(2), abs=1e-4
    )
    assert cells["pairs/smollm2"]["shares"] == {"forward": {"verbs": 1.0}}
    lines = lm.table(cells).splitlines()
    row = next(line for line in lines if line.startswith("SMALL-EN"))
    expected = "SMALL-EN *2.164 ± 0.000 *4.328 ± 0.000 *3.246 ± 0.000"
    assert " ".join(row.split()) == expected
    row = next(line for line in lines if line.startswith("SMOLLM2"))
    assert row.split()[-2:] == ["-", "-"]
    assert f"our sample: {facts['sentences']} of 20 sentences" in lines[0]
    assert "model    small-en aaa" in lines
    calls = first.calls, second.calls
    lm.main([*call, "--table"])
    lm.main(call)
    assert (first.calls, second.calls) == calls
    lm.main([*call, "--drawn", "10"])  # other sentences, the same pairs
    assert (first.calls, second.calls) == (calls[0] + 1, calls[1] + 1)
    weights["smollm2"] = "ccc"
    lm.main(["smollm2", *call, "--drawn", "10", "--parts", "pairs"])
    assert (first.calls, second.calls) == (calls[0] + 1, calls[1] + 2)
    cells = json.loads(path.read_text("utf-8"))
    assert lm.current(cells, "bits/sample-en/smollm2") is None  # of the weights before
    text = lm.table(cells)
    assert "SMOLLM2" not in text.split("minimal pairs")[0]
    assert "smollm2 ccc" in text
    assert "smollm2 bbb" not in text
    lm.main([*call, "--parts", "speed", "--rounds", "2", "--sentences", "3", "--threads", "1"])
    cells = json.loads(path.read_text("utf-8"))
    assert len(cells["speed/small-en"]["rates"]) == 2
    assert "words scored per second" in lm.table(cells)


def test_without_flair_nothing_is_compared(tmp_path: Path) -> None:
    call = ["nano-en", "--cells", str(tmp_path / "cells.json"), "--packages", str(tmp_path)]
    with pytest.raises(SystemExit, match=r"benchmarks\.rivals\.contenders"):
        lm.main([*call, "--parts", "bits"])


def test_what_smollm2_needs_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FileNotFoundError, match="gguf"):
        scorers.open_smollm2(tmp_path, tmp_path)
    path = tmp_path / "smollm2/model" / scorers.SMOLLM2
    path.parent.mkdir(parents=True)
    path.write_bytes(b"")
    monkeypatch.setattr(scorers, "find_spec", lambda name: None)
    with pytest.raises(SystemExit, match=r"pip install .*gguf=="):
        scorers.open_smollm2(tmp_path, tmp_path)
