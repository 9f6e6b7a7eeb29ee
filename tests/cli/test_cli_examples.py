"""Every verb's ``--help`` is whole, and its examples run."""

from __future__ import annotations

import ast
import inspect
import io
import re
import shlex
import subprocess
import sys
from pathlib import Path

import help_examples
import pytest

import elmokit
from elmokit.checkpoints import known_models
from elmokit.cli import EXAMPLES, app, main
from elmokit.config import to_dict
from elmokit.server.settings import Limits
from elmokit.tasks import task_names

GOLDEN = Path(__file__).parents[1] / "golden"
WIDTH = 80
NOT_RUN = {
    "--engine ray": "see tests/ray",
    "elmokit serve": "see below",
    "elmokit bench": "measures; see test_cli_bench.py",
    "elmokit download": "uses the network; see test_cli_download.py",
    "--words": "needs a larger vocabulary; see test_cli_convert.py",
}
RUN = [
    example
    for examples in EXAMPLES.values()
    for example in examples
    if not any(reason in example for reason in NOT_RUN)
]
SERVED = [example for example in EXAMPLES["serve"] if "ray" not in example]


def verbs() -> dict[str, object]:
    """All verbs, as the app knows them, with those of the groups."""
    found = {}
    for name in app:
        inner = [verb for verb in app[name] if not verb.startswith("-")]
        for path in [(name, verb) for verb in inner] or [(name,)]:
            if not name.startswith("-"):
                found[" ".join(path)] = app[path[0]] if len(path) == 1 else app[name][path[1]]
    return found


def words_of(text: str) -> list[str]:
    """The words of a help text, without the frame around it."""
    return re.sub(r"[│╭╮╰╯─]", " ", text).split()


@pytest.mark.parametrize("verb", verbs())
def test_every_verb_has_examples_that_can_be_copied(run, verb, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    text = run(*verb.split(), "--help").out
    shown = [line.strip() for line in text.partition("Examples:")[2].splitlines() if line.strip()]
    assert shown == list(EXAMPLES[verb])
    assert shown
    for example in shown:
        assert len(example) < WIDTH, "a wrapped line cannot be copied"
        assert f"elmokit {verb}" in example


@pytest.mark.parametrize(("verb", "command"), verbs().items())
def test_help_swallows_nothing(run, verb, command, monkeypatch):
    """Paragraphs and arguments are there word for word, whatever looks like markup."""
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    function = command.default_command
    source = inspect.cleandoc(ast.get_docstring(ast.parse(inspect.getsource(function)).body[0]))
    printed = words_of(run(*verb.split(), "--help").out)
    text = " ".join(printed)
    about, _, arguments = source.partition("\nArgs:\n")
    documented = re.split(r"^    \w+: ", arguments, flags=re.M)[1:]
    for paragraph in (*about.split("\n\n"), *documented):
        assert " ".join(paragraph.split()) in text
    usage = text.partition("Usage: ")[2].partition("[OPTIONS]")[0]
    assert "ARGS" not in usage
    assert "()" not in re.findall(r"\[default: (.*?)\]", text)


def test_help_shows_the_special_words_and_the_tasks(run):
    assert "<S>, </S>, <UNK>" in run("corpus", "vocab", "--help").out
    text = run("train", "--help").out
    assert len(task_names()) == 8
    for name in task_names():
        assert re.search(rf"│\W+(TASK\s+)?{name}: ", text), name


def test_help_of_serve_shows_the_limits_as_they_are(run):
    text = " ".join(words_of(run("serve", "--help").out))
    options = {"--max-body": "body_bytes", "--timeout": "seconds", "--wait-ms": "wait_ms"}
    for option, name in options.items():
        assert re.search(rf"{option} [^\[]*\[default: {to_dict(Limits())[name]}\]", text), option


def test_examples_script_reads_the_same_examples(tmp_path, monkeypatch):
    """It knows the help texts only: the program may be that of a wheel."""
    asked = {
        (): ["encode", "corpus"],
        ("corpus",): ["vocab"],
    }

    def printed(self: help_examples.Command, *verb: str) -> str:
        if verb in asked:
            rows = "".join(f"│ {name}  text │\n" for name in asked[verb])
            return f"╭─ Commands ─╮\n{rows}"
        return "\n".join(["Examples:", "", *EXAMPLES[" ".join(verb)]])

    monkeypatch.setattr(help_examples.Command, "help", printed)
    found = help_examples.Command("elmokit", tmp_path).examples()
    assert found == {verb: list(EXAMPLES[verb]) for verb in ("encode", "corpus vocab")}


def test_examples_script_runs_the_program_it_is_given():
    script = Path(help_examples.__file__)
    program = f"{shlex.quote(sys.executable)} -m elmokit"
    command = [sys.executable, script, "--elmokit", program, "models"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ok" in done.stdout
    assert "elmokit models --domain protein --json" in done.stdout
    assert done.stdout.endswith("all examples run\n")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the inputs of all examples; a small model is the embedded one."""
    folder = tmp_path_factory.mktemp("examples")
    help_examples.write_inputs(folder)
    elmo = elmokit.load(GOLDEN / "tf-checkpoint" / "standard")
    for name in ("my-model", "embedded/small-en", "embedded/small-zh"):
        elmo.save(folder / name)
    return folder


@pytest.fixture
def run_example(folder, monkeypatch, few_probe_steps, capsys):
    monkeypatch.chdir(folder)
    monkeypatch.setattr("elmokit.corpus.prepare.default_workers", lambda: 1)

    def call(example: str) -> str:
        if "--check" not in example:  # which is about the real ones
            monkeypatch.setattr(known_models, "EMBEDDED", folder / "embedded")
        for first in help_examples.needed(example, folder):
            call(first)
        help_examples.remove_output(example, folder)
        given = io.TextIOWrapper(io.BytesIO(help_examples.standard_input(example, folder)))
        monkeypatch.setattr(sys, "stdin", given)
        code = main(help_examples.arguments(example))
        printed = capsys.readouterr()
        assert code == 0, printed.err
        return printed.out

    return call


@pytest.mark.parametrize("example", RUN)
def test_example_runs(run_example, example):
    out = run_example(example)
    assert out or "-o" in example or "convert" in example or "--save" in example


@pytest.mark.parametrize("example", SERVED)
def test_example_of_serve_runs(tmp_path, monkeypatch, example):
    monkeypatch.chdir(tmp_path)
    help_examples.write_inputs(tmp_path)
    for first in help_examples.needed(example, tmp_path):
        assert main([*help_examples.arguments(first), "--model", "test-tiny"]) == 0
    program = f"{shlex.quote(sys.executable)} -m elmokit"
    code, said = help_examples.Command(program, tmp_path).run(example)
    assert code == 0, said
