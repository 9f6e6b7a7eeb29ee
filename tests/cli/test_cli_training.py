"""``elmokit pretrain`` and ``elmokit adapt`` as typed."""

import json
import os
import re
import signal
import tomllib
from pathlib import Path

import pytest
from matplotlib.figure import Figure
from small_runs import structured_text

import elmokit
from elmokit.cli import main
from elmokit.training.pretrain import draw_curves
from elmokit.training.trainer import PretrainTrainer

GOLDEN = Path(__file__).parents[1] / "golden"
SMALLER = [
    word
    for change in (
        "model.lstm.cells=16",
        "model.lstm.width=16",
        "data.rows=4",
        "data.unroll=8",
        "data.min_count=1",
        "run.evaluate_every=10",
        "run.save_every=10",
    )
    for word in ("--set", change)
]


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(structured_text(300), encoding="utf-8")
    return path


def test_pretrain_makes_a_model_from_text_without_blank_lines(text, tmp_path, capsys):
    # One document by blank lines: held-out text is found all the same, line by line.
    command = ["pretrain", str(text), "-o", str(tmp_path / "model"), "--preset", "tiny"]
    command += [*SMALLER, "--sentences", "line", "--heldout", "0.1", "--device", "cpu"]
    assert main([*command, "--max-steps", "20", "--seed", "5", "--json"]) == 0
    printed = capsys.readouterr()
    result = json.loads(printed.out)
    assert result["best"]["perplexity"] > 1
    assert "held-out: perplexity" in printed.err
    elmo = elmokit.load(tmp_path / "model")
    assert elmo.config.lstm.cells == 16
    assert "seed = 5" in (tmp_path / "model" / "training" / "settings.toml").read_text("utf-8")
    # A second start is refused, resuming is not.
    assert main([*command, "--max-steps", "20"]) == 1
    assert "--resume" in capsys.readouterr().err
    assert main([*command, "--max-steps", "30", "--seed", "5", "--resume"]) == 0
    assert "resuming from step 20" in capsys.readouterr().err
    assert main([*command, "--max-steps", "40", "--seed", "6", "--resume"]) == 1
    assert "run.seed" in capsys.readouterr().err


def test_adapt_says_what_it_gains(text, tmp_path, capsys):
    command = [
        "adapt",
        "--model",
        str(GOLDEN / "allennlp"),
        str(text),
        "-o",
        str(tmp_path / "adapted"),
    ]
    command += ["--sentences", "line", "--heldout", "0.1", "--max-steps", "10", "--device", "cpu"]
    command += ["--softmax-steps", "10", "--set", "data.rows=4", "--set", "data.min_count=1"]
    assert main([*command, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["before"]["vocabulary"] == result["after"]["vocabulary"]
    assert (tmp_path / "adapted" / "model.safetensors").is_file()


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ("optimizer.rat=1", "error: optimizer.rat: unknown field 'rat'"),
        ("optimizer.lr=fast", "settings.optimizer.lr: expected float"),
        ("model.lstm.cells.x=1", "model.lstm.cells is a single value"),
        ("data.rows=0", "settings.data.rows = 0"),
        ("loss.kind=hinge", "kind"),
        ("run.max_steps", "name=value"),
    ],
)
def test_impossible_settings_are_named(text, tmp_path, capsys, change, named):
    command = ["pretrain", str(text), "-o", str(tmp_path / "model"), "--set", change]
    command += ["--preset", "tiny", "--max-steps", "4"]  # another setting is not to blame
    assert main(command) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert named in error
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize("content", [b"", b"\n\n", b"one line .\n", b"a\n\xff\n"])
def test_text_that_cannot_be_used_leaves_nothing_behind(tmp_path, capsys, content):
    text = tmp_path / "text.txt"
    text.write_bytes(content)
    assert main(["pretrain", str(text), "-o", str(tmp_path / "model"), "--preset", "tiny"]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "text.txt" in error
    assert [path.name for path in tmp_path.iterdir()] == ["text.txt"]


def test_pretrain_on_a_cpu_takes_tiny_and_says_what_small_would_take(text, tmp_path, capsys):
    command = ["pretrain", str(text), "-o", str(tmp_path / "model"), "--device", "cpu"]
    command += [*SMALLER, "--sentences", "line", "--heldout", "0.1"]
    assert main([*command, "--max-steps", "2"]) == 0
    note = capsys.readouterr().err.splitlines()[0]
    assert re.fullmatch(
        r".*the preset is tiny; --preset small would take at least [\d,]+ h.*", note
    )
    settings = tomllib.loads((tmp_path / "model/training/settings.toml").read_text("utf-8"))
    assert settings["model"]["characters"]["max_characters"] == 24  # of tiny
    assert main([*command, "--max-steps", "2", "--preset", "tiny", "--resume"]) == 0
    assert "preset" not in capsys.readouterr().err


def test_adapt_prints_its_gain_once(text, tmp_path, capsys):
    command = ["adapt", str(text), "-o", str(tmp_path / "adapted"), "--device", "cpu"]
    command += ["-m", str(GOLDEN / "tf-checkpoint" / "standard"), "--sentences", "line"]
    command += ["--heldout", "0.1", "--max-steps", "2", "--set", "data.rows=4"]
    assert main(command) == 0
    printed = capsys.readouterr()
    (line,) = printed.out.splitlines()
    assert re.fullmatch(r"held-out perplexity \S+ before, \S+ after \(-?[\d.]+% lower\)", line)
    assert printed.err.count("predictions per direction") == 1


def test_curves_of_one_evaluation_show_it(tmp_path, monkeypatch):
    log, drawn = tmp_path / "log.jsonl", []

    def save(figure: Figure, path: Path, **_: object) -> None:
        drawn.append(figure)
        path.touch()

    monkeypatch.setattr(Figure, "savefig", save)
    entries = [{"kind": "train", "step": n, "loss": 5 - n / 9} for n in range(9)]
    for step in (8, 9):
        numbers = {"score": 50.0, "perplexity": 50.0, "forward": 60.0}
        entries += [{"kind": "heldout", "step": step, **numbers}]
        log.write_text("".join(f"{json.dumps(entry)}\n" for entry in entries), "utf-8")
        assert draw_curves(log, tmp_path / "curves.png")
    one, two = ([line.get_marker() for line in figure.axes[1].lines] for figure in drawn)
    assert (one, two) == (["o", "o"], ["None", "None"])


def test_unknown_preset_is_a_wrong_call(text, tmp_path, capsys):
    command = ["pretrain", str(text), "-o", str(tmp_path / "model"), "--preset", "huge"]
    assert main(command) == 2
    assert "preset" in capsys.readouterr().err


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("step", [5, 15])
def test_an_interrupted_run_says_so(text, tmp_path, capsys, monkeypatch, no_drawing, number, step):
    """Before and after the first evaluation, from which on there is a model."""
    take = PretrainTrainer.step

    def stepping(self: PretrainTrainer, done: int) -> object:
        if done == step:
            os.kill(os.getpid(), number)
        return take(self, done)

    monkeypatch.setattr(PretrainTrainer, "step", stepping)
    model = tmp_path / "model"
    command = ["pretrain", str(text), "-o", str(model), "--preset", "tiny", *SMALLER]
    command += ["--sentences", "line", "--heldout", "0.1", "--device", "cpu", "--max-steps", "20"]
    assert main(command) == 130
    assert "interrupted" in capsys.readouterr().err
    assert (model / "README.md").is_file() == (step > 10)
    monkeypatch.undo()
    assert main([*command, "--resume"]) == 0
    assert f"resuming from step {step + 1}" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["-"], ["--", "-"]])
@pytest.mark.parametrize("verb", [["pretrain"], ["adapt", "--model", str(GOLDEN / "allennlp")]])
def test_standard_input_is_refused_in_one_line(tmp_path, capsys, verb, arguments):
    command = [*verb, "-o", str(tmp_path / "model"), "--device", "cpu", *arguments]
    assert main(command) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "write it to a file" in error
    assert not list(tmp_path.iterdir())


def test_a_failed_start_can_be_corrected(text, tmp_path, capsys):
    options = ["-o", str(tmp_path / "adapted"), "--softmax-steps", "2", "--max-steps", "2"]
    options += ["--set", "data.rows=4", "--set", "data.min_count=1"]
    options += ["--sentences", "line", "--heldout", "0.1"]
    model = str(GOLDEN / "allennlp")
    assert (
        main(["adapt", "--model", model, str(tmp_path / "tetx.txt"), *options, "--device", "cpu"])
        == 1
    )
    assert "tetx.txt" in capsys.readouterr().err
    assert main(["adapt", "--model", model, str(text), *options, "--device", "nonsense"]) == 1
    assert "device='nonsense'" in capsys.readouterr().err
    assert main(["adapt", "--model", model, str(text), *options, "--device", "cpu"]) == 0
