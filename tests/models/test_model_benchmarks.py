"""The scripts that measure models measure what they say."""

from __future__ import annotations

import hashlib
import json
import lzma
import math
import re
import shlex
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import elmokit
from benchmarks.models import (
    card,
    size,
    small_data_training,
    storage,
    text_amount,
    text_amount_training,
    text_table,
)
from benchmarks.models.perplexity import UNKNOWN, first, joined, sentences_of, wikitext
from benchmarks.models.reproduce import first_difference, losses
from benchmarks.models.senses import (
    SenseItem,
    mean_vectors,
    measure,
    read_senses,
    running_text,
    sense_margins,
    share_right,
    table,
)
from benchmarks.models.speed import compare, published_small
from benchmarks.models.substitutes import measure as ranks_of
from benchmarks.models.substitutes import sample
from benchmarks.models.substitutes import table as rank_table
from elmokit.checkpoints.known_models import EMBEDDED
from elmokit.config import WordConfig
from elmokit.corpus.prepare import CorpusConfig, prepare_corpus
from elmokit.corpus.shards import TokenCorpus
from elmokit.encode.similarity import similarity
from elmokit.lm.perplexity import perplexity
from elmokit.training.settings import settings_for

ROOT = Path(__file__).parents[2]
TINY_RUN = (
    "model.lstm.cells=24",
    "model.lstm.width=8",
    "data.rows=8",
    "data.unroll=5",
    "data.vocabulary=500",
    "run.dropout=0.2",
)


def test_share_right_counts_what_is_undecided_half():
    margins = np.array([[0.2, -0.1, 1e-9], [0.1, 0.3, 0.0]])
    assert share_right(margins).tolist() == [1.0, 0.5, 0.5]


def test_sense_margins_are_differences_of_cosines(tiny):
    item = SenseItem("b", ["a", "b"], ["b", "c", "d"], ["e", "b", "f"])
    (margins,) = sense_margins(tiny, [item])
    anchor, same, other = (
        tiny.encode([sentence], layers="all")[0][:, sentence.index("b")]
        for sentence in (item.anchor, item.same, item.other)
    )
    expected = [
        float(similarity(a, b) - similarity(a, c))
        for a, b, c in zip(anchor, same, other, strict=True)
    ]
    np.testing.assert_allclose(margins[:-1], expected, atol=1e-6)
    means = [vectors.mean(axis=0) for vectors in (anchor, same, other)]
    assert margins[-1] == pytest.approx(
        float(similarity(means[0], means[1]) - similarity(means[0], means[2])), abs=1e-6
    )
    turned = SenseItem(item.word, item.anchor, item.other, item.same)
    np.testing.assert_allclose(sense_margins(tiny, [turned])[0], -margins, atol=1e-6)


def test_centring_subtracts_the_mean_of_all_tokens(tiny):
    sentences = ["one two three", "four"]
    flat = np.concatenate(tiny.encode(sentences, layers="all"), axis=1)
    np.testing.assert_allclose(mean_vectors(tiny, sentences), flat.mean(axis=1), atol=1e-6)


def test_measure_gives_every_layer_and_the_mean(tiny):
    result = measure(tiny, "en", running_text("en")[:5])
    for shares in result["senses"].values():
        assert len(shares) == tiny.layers + 1
        assert all(0 <= share <= 1 for share in shares)
        assert shares[0] == 0.5
    assert "substitutes" not in result  # this model has no softmax
    assert any("senses, centred" in line for line in table(tiny, result))


def test_a_model_without_a_language_guesses(tiny):
    """The test model's weights know no English: whatever it gets right, it gets by chance."""
    margins = sense_margins(tiny, read_senses("en"))
    for layer in (1, 2):
        right = share_right(margins)[layer]
        assert abs(right - 0.5) <= 3 * math.sqrt(0.25 / 40)


def test_tokens_of_others_become_ours(tiny):
    assert joined("a two @-@ part film , 1 @,@ 500 to 2 @.@ 5") == "a two-part film , 1,500 to 2.5"
    assert joined("he won 't go , it 's late") == "he won't go , it 's late"
    assert joined("the <unk> of <unk>") == f"the {UNKNOWN} of {UNKNOWN}"


def test_wikitext_paragraphs_become_sentences_without_headings():
    lines = ["", "= Robert Boulter =", "= = Career = =", "He sang . She danced in 2000 .", ""]
    assert list(wikitext(iter(lines))) == ["He sang .", "She danced in 2000 ."]


def test_unknown_symbol_is_one_word_of_the_model(tmp_path):
    elmo = elmokit.load("test-tiny", tokenizer="words")
    path = tmp_path / "text.txt"
    path.write_text(f"The {UNKNOWN} sang. It's late.\n\nNext.\n", encoding="utf-8")
    assert list(sentences_of(str(path), elmo, None)) == [
        ["The", elmo.config.text.unknown, "sang", "."],
        ["It", "'s", "late", "."],
        ["Next", "."],
    ]


def test_first_keeps_whole_sentences():
    sentences = [["a"] * 3, ["b"] * 4, ["c"]]
    assert list(first(iter(sentences), 7)) == sentences[:2]
    assert list(first(iter(sentences), 6)) == sentences[:1]
    assert list(first(iter(sentences), 99)) == sentences


@pytest.fixture(scope="module")
def article_corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reproduce")
    (folder / "text.txt").write_text("\n".join(running_text("en")), encoding="utf-8")
    settings = CorpusConfig(documents="line", heldout=0.05)
    prepare_corpus(folder / "text.txt", folder / "corpus", settings=settings, workers=1)
    return TokenCorpus(folder / "corpus")


def test_the_same_seed_gives_the_same_losses_and_another_does_not(article_corpus):
    config = settings_for("tiny", None, TINY_RUN)
    one, two = (losses(config, article_corpus, 25, "cpu") for _ in range(2))
    assert one.shape == (25, 2)
    assert first_difference(one, two) is None
    other = losses(settings_for("tiny", None, (*TINY_RUN, "run.seed=1")), article_corpus, 3, "cpu")
    assert first_difference(one[:3], other) == 0


def test_first_difference_sees_one_bit():
    losses_ = torch.linspace(5, 4, 12).reshape(6, 2)
    changed = losses_.clone()
    changed[4, 1] = torch.nextafter(changed[4, 1], torch.tensor(9.0))
    assert first_difference(losses_, changed) == 4


def commands_of_the_page() -> list[list[str]]:
    text = (ROOT / "docs" / "embedded-models.md").read_text(encoding="utf-8")
    return [shlex.split(line) for line in re.findall(r"^\$ python -m (.*)$", text, re.MULTILINE)]


def test_page_names_scripts_and_options_that_are_there():
    commands = commands_of_the_page()
    assert len(commands) > 5
    for module, *arguments in commands:
        script = module.replace(".", "/") + ".py"
        code = (ROOT / script).read_text(encoding="utf-8")
        for option in (argument for argument in arguments if argument.startswith("--")):
            assert f'"{option}"' in code, f"{script} {option}"


def test_card_is_written_again_with_the_results(tmp_path, monkeypatch):
    folder, results = tmp_path / "some-model", tmp_path / "results"
    folder.mkdir()
    results.mkdir()
    (folder / "README.md").write_text("# some-model\n\nTrained on text.\n", encoding="utf-8")
    (results / "perplexity_some-model.txt").write_text("test 44.0\n", encoding="utf-8")
    (results / "senses_some-model.txt").write_text(
        "share 0.8\n\nsenses, centred: by how much the same\nbank\n", encoding="utf-8"
    )
    (results / "speed_another-model.txt").write_text("9 tokens\n", encoding="utf-8")
    monkeypatch.setattr(card, "RESULTS", results)
    monkeypatch.setattr("sys.argv", ["model_card.py", str(folder)])
    card.main()
    first_card = (folder / "README.md").read_text(encoding="utf-8")
    card.main()
    assert (folder / "README.md").read_text(encoding="utf-8") == first_card
    assert first_card.startswith("# some-model\n\nTrained on text.\n\n## What it is worth\n")
    assert "test 44.0" in first_card
    assert "share 0.8" in first_card
    assert "bank" not in first_card
    assert "9 tokens" not in first_card
    assert "## Limits" in first_card


def test_speed_is_compared_with_the_published_shape(tiny):
    other = published_small()
    assert (other.dim, other.layers) == (256, 3)
    assert sum(p.numel() for p in other.bilm.parameters()) == pytest.approx(13.6e6, rel=0.01)
    lines = compare({"ours": tiny, "other": other}, [["a", "bank"], ["the", "river", "bank"]], 2)
    rows = [line.split() for line in lines[1:]]
    assert [row[:2] for row in rows] == [
        [c, m] for c in ("cold", "warm") for m in ("ours", "other")
    ]
    assert [row[-1] for row in rows[1::2]] == ["1.00", "1.00"]


def test_storage_is_measured(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["model_storage.py", "test-tiny"])
    storage.main()
    printed = capsys.readouterr().out
    (whole, small) = (
        float(re.search(rf"^{storage} +([\d.]+) MB", printed, re.MULTILINE)[1])
        for storage in ("float32", "int8")
    )
    assert small < whole / 2
    for kind, bound in (("int8", 0.99), ("int4", 0.8)):
        cosines = re.findall(rf"^{kind}, layer \d +([\d.]+) +([\d.]+)$", printed, re.MULTILINE)
        assert len(cosines) == 3
        assert all(bound < float(least) <= float(mean) <= 1 for mean, least in cosines)


def test_ranks_are_those_of_the_substitutes():
    elmo = elmokit.load(ROOT / "tests" / "golden" / "tf-checkpoint" / "standard")
    counts = {word: 3000 // (number + 1) for number, word in enumerate(elmo.vocabulary)}
    uncounted = elmo.vocabulary
    elmo = elmokit.Elmo(elmo.checkpoint().with_counts(counts))
    sentences = [["the", "big", "dog", "sat", "."], ["the", "unseen", "dog"], ["on", "the", "cat"]]
    positions = sample(sentences, 100)
    assert positions == [(row, i) for row, words in enumerate(sentences) for i in range(len(words))]
    found = ranks_of(elmo, sentences, positions)
    assert found.outside == sum(
        word not in elmo.vocabulary for words in sentences for word in words
    )
    known = [(row, i) for row, i in positions if sentences[row][i] in elmo.vocabulary]
    for (row, i), rank in zip(known, found.stages["and fit"].tolist(), strict=True):
        words = [s.word for s in elmo.substitutes(sentences[row], i, k=1000)]
        assert words[rank - 1] == sentences[row][i]
    plain = elmokit.Elmo(replace(elmo.checkpoint(), vocabulary=uncounted))
    for (row, i), rank in zip(known, found.stages["product"].tolist(), strict=True):
        words = [s.word for s in plain.substitutes(sentences[row], i, k=1000)]
        assert words[rank - 1] == sentences[row][i]
    lines = rank_table(found, found)
    assert sum(line.startswith("the 200 most frequent") for line in lines) == 3


def amount(tokens, words, unknown, ppl, **parts):
    """A model of the experiment with text amounts, as its results file has it."""
    dev = {"vocabulary": words, "oov_rate": unknown, "perplexity": ppl}
    facts = {"tokens": tokens, "read": 2.5 * tokens, "dropout": 0.1}
    return {**facts, "perplexity": {**dev, "tokens": 900, "predictions": 1000}, **parts}


def test_text_amounts_fill_a_table_and_a_picture(tmp_path):
    pytest.importorskip("matplotlib")
    layers = {"pos": {"layers": [80.0, 94.0, 93.0]}, "wsd": {"layers": [48.0, 63.0, 64.5]}}
    models = {
        "30m": amount(
            30_400_000, 20, 0.02, 60.0, **layers, ner={"f1": [30.0, 33.0]}, pairs={"right": 90.5}
        ),
        "1m": amount(1_000_000, 11, 0.1, 50.0, **layers),
    }
    head, first, second = text_amount.table(models).splitlines()
    assert head.split()[:3] == ["model", "million", "tokens"]
    assert first.split()[:2] == ["1m", "1.0"]
    assert (first.split()[-1], second.split()[-1]) == ("-", "31.50")
    assert second.split()[1:7] == ["30.4", "2.5", "0.1", "20", "2.00", "60.00"]
    models["1m"]["perplexity"]["setup"] = {"quick": True}
    for part in ("pos", "wsd", "ner", "perplexity", "pairs"):
        models["30m"][part]["setup"] = {"quick": False}
    for part in ("pos", "wsd"):
        models["1m"][part]["setup"] = {"quick": False}
    assert text_amount.columns(models)["pairs"] == {"30m": 90.5}
    said = text_amount.notes(models)
    assert "pairs: share right" in said[0]
    assert "NER: mean over seeds (how many: 2)" in said
    assert said[-1].startswith("samples: 60,000 tokens of dev")
    text_amount.draw(models, tmp_path / "amount.png")
    assert (tmp_path / "amount.png").read_bytes().startswith(b"\x89PNG")


def test_text_amounts_are_trained_on_parts_of_the_larger_ones(tmp_path, monkeypatch, capsys):
    text = tmp_path / "text.txt"
    sentences = (f"the cat {n} sees the dog of number {n % 7} ." for n in range(2000))
    text.write_text("\n\n".join(sentences), "utf-8")
    runs = tmp_path / "runs"
    changes = ["run.max_steps=2", "data.rows=4", "data.unroll=5", "loss.kind=full"]
    changes += ["run.precision=float32", "optimizer.warmup=1"]
    arguments = ["", str(text), "-o", str(runs), "--amounts", "0.004", "0.01"]
    arguments += ["--domain", str(text), "--device", "cpu", "--set", *changes]
    monkeypatch.setattr("sys.argv", arguments)
    text_amount_training.main()
    drawn = [(runs / "corpora" / f"{n}m.txt").read_text("utf-8") for n in ("0.004", "0.01")]
    few, more = (set(filter(None, part.split("\n\n"))) for part in drawn)
    assert few < more < set(text.read_text("utf-8").split("\n\n"))
    largest = next(p for p in runs.glob("*m") if p.name not in ("0.004m", "0.01m"))
    models = [elmokit.load(runs / name) for name in ("0.004m", "0.01m", largest.name, "domain")]
    assert len({tuple(model.vocabulary) for model in models}) == 1
    read = [text_amount.card_facts(model.checkpoint().card)["tokens"] for model in models[:3]]
    assert read == sorted(read)
    assert read[0] < read[2]
    made = (largest / "model.safetensors").stat().st_mtime_ns
    text_amount_training.main()
    assert (largest / "model.safetensors").stat().st_mtime_ns == made


def test_small_data_runs_train_what_they_say(tmp_path, monkeypatch, capsys):
    text = tmp_path / "text.txt"
    sentences = (f"the cat {n} sees the dog of number {n % 7} ." for n in range(2000))
    text.write_text("\n\n".join(sentences), "utf-8")
    (tmp_path / "corpora").mkdir()
    prepare_corpus([str(text)], tmp_path / "corpora" / "10m", settings=CorpusConfig(heldout=0.02))
    corpus = TokenCorpus(tmp_path / "corpora" / "10m")
    for name, run in small_data_training.RUNS.items():
        settings = small_data_training.settings_of(run, corpus, scale=100)
        data, steps = settings.data, settings.run.max_steps
        positions = corpus.split("train").tokens + len(corpus.split("train"))
        read = steps * data.rows * data.unroll / (100 * positions)
        assert read == pytest.approx(run.epochs, rel=0.03), name
    small = ["model.lstm.cells=24", "model.lstm.width=8", "data.rows=4", "data.unroll=5"]
    small += ["data.vocabulary=40", "loss.negatives=8", "run.precision=float32"]
    arguments = ["words", "--corpora", str(tmp_path / "corpora"), "-o", str(tmp_path / "runs")]
    arguments += ["--device", "cpu", "--set", *small]
    monkeypatch.setattr("sys.argv", ["", *arguments])
    small_data_training.main()
    model = elmokit.load(tmp_path / "runs" / "words")
    assert model.config.words == WordConfig(rows=len(model.vocabulary), dim=128)
    assert model.config.characters is not None
    facts = text_amount.card_facts(model.checkpoint().card)
    assert facts["dropout"] == small_data_training.RUNS["words"].dropout
    row = small_data_training.facts(tmp_path / "runs" / "words")
    assert row is not None
    assert (row["shape"], row["filters"]) == ("24/8", 2048)
    assert f"{row['perplexity']:.2f}" in small_data_training.table({"words": row})
    assert small_data_training.facts(tmp_path / "runs" / "absent") is None


def test_text_amounts_are_measured_once(tmp_path, monkeypatch, capsys):
    text = tmp_path / "text.txt"
    text.write_text("\n\n".join(f"the cat {n} sees the dog ." for n in range(60)), "utf-8")
    preset = settings_for("tiny", overrides=(*TINY_RUN, "run.max_steps=2"))
    elmokit.pretrain(replace(preset, corpus=(str(text),), output=str(tmp_path / "1m")))
    (tmp_path / "tasks").mkdir()
    calls = []

    def found(elmo, *_):
        calls.append(elmo)
        return perplexity(elmo, [["the", "cat", "."]])

    monkeypatch.setattr(text_amount, "dev_perplexity", found)
    arguments = [str(tmp_path / "1m"), "--parts", "perplexity", "--data", str(tmp_path)]
    arguments += ["--results", str(tmp_path / "amount.json")]
    for _ in range(2):
        text_amount.main(arguments)
    assert len(calls) == 1
    card = (tmp_path / "1m" / "README.md").read_text("utf-8")
    stored = json.loads((tmp_path / "amount.json").read_text("utf-8"))["models"]["1m"]
    assert f"{stored['tokens']:,.0f} tokens for training" in card
    assert f"{stored['read']:,.0f} tokens read" in card
    assert f"dropout = {stored['dropout']}\n" in card
    assert capsys.readouterr().out.count("million tokens") == 2


def test_text_amounts_need_a_card():
    with pytest.raises(SystemExit, match="card"):
        text_amount.card_facts("# A model")


def test_card_measures_a_model_by_one_command(tmp_path, monkeypatch):
    folder = tmp_path / "nano-en"
    folder.mkdir()
    (folder / "README.md").write_text("# nano-en\n", encoding="utf-8")
    (folder / "counts.txt").write_text("1\n")
    started = []
    monkeypatch.setattr(card.subprocess, "run", lambda command, **_: started.append(command[2:]))
    for named, expected in (([], list(card.MEASURED)), (["speed"], ["speed"])):
        started.clear()
        arguments = [str(folder), "--measure", *named, "--data", "texts", "--float", "run-en"]
        monkeypatch.setattr("sys.argv", ["card.py", *arguments])
        card.main()
        scripts = [command[0].rpartition(".")[2] for command in started]
        assert scripts == ["run" if kind == "probes" else kind for kind in expected]
        for script, *rest in started:
            code = (ROOT / (script.replace(".", "/") + ".py")).read_text(encoding="utf-8")
            for option in (argument for argument in rest if argument.startswith("--")):
                assert f'"{option}"' in code, f"{script} {option}"


def test_size_names_the_bytes_it_measured(monkeypatch, capsys):
    folder = EMBEDDED / "test-tiny"
    monkeypatch.setattr("sys.argv", ["size.py", str(folder), "--rounds", "1"])
    size.main()
    out = capsys.readouterr().out
    assert hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest() in out
    rows = {line.split()[0]: line.split()[-1] for line in out.splitlines() if line.strip()}
    assert rows["all"] == f"{sum(path.stat().st_size for path in folder.iterdir()):,}"
    assert float(rows["encoder"]) > 0


def test_text_table_counts_every_source(tmp_path, monkeypatch, capsys):
    (tmp_path / "a-0.txt").write_text("One two.\nThree.\n\n\nFour, five.\n", encoding="utf-8")
    (tmp_path / "a-1.txt.xz").write_bytes(lzma.compress("银行 six\n".encode()))
    (tmp_path / "new.log").write_text("/mnt/someone/a.txt\n  7  words removed, known\n")
    given = f"Some text | CC0 | {tmp_path}/a-*.txt {tmp_path}/*.xz"
    arguments = ["text_table.py", given, "--removed", str(tmp_path / "new.log")]
    monkeypatch.setattr("sys.argv", arguments)
    text_table.main()
    out = capsys.readouterr().out
    rows = [line.split() for line in out.splitlines() if line.startswith(("Some", "all"))]
    assert rows[0][2:] == ["3", "4", "8", "41", "CC0"]
    assert rows[1][1:] == ["3", "4", "8", "41"]
    assert "someone" not in out
    assert "7  words removed, known" in out
    monkeypatch.setattr("sys.argv", ["text_table.py", "Some text | CC0 | nowhere-*.txt"])
    with pytest.raises(SystemExit, match="no file"):
        text_table.main()
