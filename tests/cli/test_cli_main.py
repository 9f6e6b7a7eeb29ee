from __future__ import annotations

import bz2
import gc
import gzip
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import h5py
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pages import ROOT, commands

import elmokit
from elmokit.checkpoints import known_models
from elmokit.cli import EXAMPLES as HELP_EXAMPLES
from elmokit.cli import LESS_MEMORY, app, main
from elmokit.training.settings import PRESETS

GOLDEN = Path(__file__).parents[1] / "golden"

ELSEWHERE = ("train", "evaluate", "predict", "serve", "site", "probe")
"""Verbs that have a page of their own."""
VERBS = [verb for verb in HELP_EXAMPLES if verb.split()[0] not in ELSEWHERE]
DOCS = ROOT / "docs" / "cli.md"
IN_DOCS = {command.line: command.output for command in commands("docs/cli.md")}
"""Commands, and the output that the page shows for them, if any."""
NOT_RUN = {
    "torchrun": "starts processes; see tests/training/test_distributed.py",
    "--ray-workers": "needs Ray",
    "--engine ray": "needs Ray; see tests/ray/test_ray_encode.py",
    "elmokit bench": "measures; see tests/cli/test_cli_bench.py",
    "elmokit download": "uses the network; see tests/cli/test_cli_download.py",
    "--words": "needs a softmax; see tests/cli/test_cli_convert.py",
}
TRAINING = ("elmokit pretrain ", "elmokit adapt ")
EXAMPLES = {
    example: shown
    for example, shown in IN_DOCS.items()
    if not any(reason in example for reason in NOT_RUN)
}


@pytest.mark.parametrize("arguments", [["--help"], ["encode", "--help"], ["--version"]])
def test_main_help_is_light(arguments):
    code = (
        "import sys; from elmokit.cli import main; code = main(sys.argv[1:])\n"
        "heavy = {'torch', 'numpy', 'h5py', 'pyarrow', 'safetensors', 'tqdm'} & set(sys.modules)\n"
        "sys.exit(f'loaded {heavy}' if heavy else code)"
    )
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout


def test_main_help_names_every_verb(run):
    text = run("--help").out
    for verb in HELP_EXAMPLES:
        assert f"│ {verb.split()[0]} " in text


def test_main_docs_name_every_option():
    text = DOCS.read_text("utf-8")
    for verb in VERBS:
        group, *names = verb.split()
        command = app[group][names[0]] if names else app[group]
        section = text.partition(f"\n## {group}\n")[2].partition("\n## ")[0]
        arguments = command.assemble_argument_collection(default_parameter=app.default_parameter)
        names = {name for argument in arguments for name in argument.names}
        options = {name for name in names if name.startswith("--")}
        assert {name for name in options if f"`{name}`" not in section} == set(), verb


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["encode", "a.txt", "-o", "b.h5", "--lyers", "all"], "Did you mean --layers?"),
        (["encode", "--lyers", "all", "a.txt"], "Did you mean --layers?"),
        (["encod", "a.txt"], 'Did you mean "encode"?'),
        (["encode", "a.txt"], "error: --output or -o is missing."),
        (["encode", "a.txt", "-o"], "-o requires an argument"),
        (["encode"], "error: INPUT is missing."),
        (["adapt", "a.txt", "-o", "b", "--set", "a=1", "b=2"], "Repeat --set before each"),
        (["recipes", "small-en", "small-zh"], "'small-zh' is one argument too many. (see"),
        (["encode", "a.txt", "-o", "b.h5", "--pool", "min"], '"mean", "max"'),
        (["encode", "a.txt", "-o", "b.h5", "--batch-tokens", "0"], ">= 1"),
        (["encode", "a.txt", "-o", "b.h5", "--tokens", "--tokenizer", "words"], "--tokenizer"),
        (["encode", "a.txt", "-o", "b.h5", "--tokens", "--sentences"], "--sentences"),
        (["similar", "one sentence"], "--in"),
        (["similar", "one", "two", "--in", "corpus.txt"], "--in"),
        (["similar", "one", "two", "--word2", "two"], "--word"),
        (["convert"], "SOURCE"),
        (["generate", "my-model", "the bank"], "the bank"),
    ],
)
def test_main_wrong_call_ends_with_2(run, arguments, expected):
    result = run(*arguments)
    assert result.code == 2
    assert result.out == ""
    assert len(result.err.splitlines()) == 1
    assert result.err.startswith("elmokit: error: ")
    assert expected in result.err


def test_main_bad_input_ends_with_1_and_one_line(run_process):
    result = run_process("info", "no-such-model")
    assert result.code == 1
    assert result.out == ""
    assert re.fullmatch(r"elmokit: error: no-such-model: .*\n", result.err)


def test_main_message_of_many_lines_becomes_one(run, tmp_path):
    result = run("info", tmp_path)
    assert result.code == 1
    assert re.fullmatch(r"elmokit: error: .*no model found.*TF-Hub.*\n", result.err)


def test_main_without_verb_shows_help(run):
    assert run().code == 0
    assert "encode" in run().out


@pytest.mark.parametrize(
    ("error", "code", "expected"),
    [
        (KeyboardInterrupt(), 130, ""),
        (OSError(28, "No space left on device", "x.h5"), 1, "x.h5: No space left on device"),
        (OSError("odd"), 1, "odd"),
        (MemoryError(), 1, "out of memory"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), 1, "out of memory"),
    ],
)
def test_main_turns_exceptions_into_codes(run, monkeypatch, error, code, expected):
    def fail():
        raise error

    monkeypatch.setattr(known_models, "embedded_models", fail)
    result = run("models")
    assert result.code == code
    assert expected in result.err
    assert len(result.err.splitlines()) == bool(expected)


def test_main_does_not_hide_bugs(monkeypatch):
    def fail():
        raise RuntimeError("a bug")

    monkeypatch.setattr(known_models, "embedded_models", fail)
    with pytest.raises(RuntimeError, match="a bug"):
        main(["models"])


@pytest.mark.skipif(os.name != "posix", reason="signals and pipes of POSIX")
@pytest.mark.parametrize("suffix", ["h5", "safetensors"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_main_interrupt_leaves_nothing(tmp_path, model, number, suffix):
    if signal.getsignal(number) is signal.SIG_IGN:  # by nohup; a child inherits that
        pytest.skip(f"{signal.Signals(number).name} is ignored here")
    output = f"out.{suffix}"
    command = [sys.executable, "-m", "elmokit", "encode", "-", "-o", output, "--model", model]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path
    ) as process:
        assert process.stderr is not None
        deadline = time.monotonic() + 60
        while not list(tmp_path.glob(".*.part")) and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(number)  # while it waits for its first line
        error = process.stderr.read()
        assert process.wait(60) == 128 + number
    assert error == b""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.name != "posix", reason="signals and pipes of POSIX")
def test_main_broken_pipe_is_quiet():
    reader, writer = os.pipe()
    os.close(reader)
    for arguments in (["models"], ["--help"], ["encode", "--help"]):
        command = [sys.executable, "-m", "elmokit", *arguments]
        done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, check=False)
        assert (done.returncode, done.stderr) == (141, b"")
    os.close(writer)


@pytest.mark.skipif(os.name != "posix", reason="redirections of POSIX shells")
def test_main_without_standard_streams(tmp_path, model):
    """Closed output: quiet. Closed input: one line. The file that is written gets none of it."""
    (tmp_path / "text.txt").write_text("the bank\n")

    def shell(line: str) -> tuple[int, str]:
        command = f"{shlex.quote(sys.executable)} -m elmokit {line}"
        done = subprocess.run(
            ["sh", "-c", command], stderr=subprocess.PIPE, text=True, cwd=tmp_path, check=False
        )
        return done.returncode, done.stderr

    assert shell("models >&-") == (0, "")
    code, error = shell(f"encode text.txt -o a.npz --model {shlex.quote(model)} >&-")
    assert (code, error.count("\n")) == (0, 1), error
    assert shell(f"encode text.txt -o b.npz --model {shlex.quote(model)} >&- 2>&- <&-") == (0, "")
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    for verb in ("encode - -o c.h5", "perplexity -", "corpus prepare - -o c --workers 1"):
        code, error = shell(f"{verb} <&-")
        assert code == 1
        assert error == ("elmokit: error: standard input is closed. Give the name of a file.\n"), (
            verb
        )
    assert not (tmp_path / "c.h5").exists()


def test_main_out_of_memory_names_an_option_that_the_verb_has(run, monkeypatch, tmp_path):
    def nothing_left(*arguments: object, **options: object) -> None:
        raise MemoryError

    for verb in ("encode", "table", "score", "perplexity", "serve", "info", "convert", "similar"):
        lower = LESS_MEMORY.get(verb)
        assert (lower is not None) == ("--batch-tokens" in run(verb, "--help").out), verb
    monkeypatch.setattr(elmokit, "load", nothing_left)
    (tmp_path / "text").write_text("a b\n")
    for line, advice in (
        (["perplexity", tmp_path / "text"], "lower --batch-tokens, or "),
        (["info", "small-en"], ""),
        (["similar", "a b", "c d"], ""),
        (["adapt", tmp_path / "text", "-o", tmp_path / "new"], "lower --set data.rows, or "),
    ):
        result = run(*line)
        assert result.code == 1
        assert result.err == f"elmokit: error: out of memory; {advice}use a machine with more\n"


def test_main_names_the_setting_that_is_wrong(run, tmp_path):
    line = ["pretrain", "text", "-o", tmp_path / "new", "--set", "data.rows=0", "--max-steps", 3]
    result = run(*line)
    assert result.code == 1
    assert "settings.data.rows = 0" in result.err
    assert "max_steps" not in result.err


LANGUAGE_MODEL = GOLDEN / "tf-checkpoint" / "standard"
"""A model with a softmax."""


def write_documents(path: Path) -> None:
    lines = [f"the bank number {n} of the river .\nit rained {n} times .\n" for n in range(300)]
    path.write_text("\n".join(lines), "utf-8")


@pytest.fixture
def example_folder(tmp_path, monkeypatch, lines_file, few_steps, example):
    """A folder with the files that the examples name, and an embedded model."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(GOLDEN / "allennlp" / "lm_weights.hdf5", "elmo_weights.hdf5")
    shutil.copy(GOLDEN / "allennlp" / "options.json", "elmo_options.json")
    shutil.copy(GOLDEN / "allennlp-finetuned" / "model.tar.gz", tmp_path)
    for file in (GOLDEN / "tf-checkpoint" / "standard").glob("*.*"):
        name = file.name.replace("model.ckpt-12", "model.ckpt-935588")
        folder = Path("model") if file.name == "options.json" else Path()
        folder.mkdir(exist_ok=True)
        shutil.copy(file, folder / name)
    for name in ("corpus.txt.gz", "tokenised.gz"):
        Path(name).write_bytes(gzip.compress(lines_file.read_bytes()))
    pq.write_table(pa.table({"body": ["a row", "another"]}), "rows.parquet")
    elmo = elmokit.load(LANGUAGE_MODEL)
    if not example.startswith("elmokit convert"):  # which writes it
        elmo.save("my-model")
    shutil.copy(GOLDEN / "bilm-hdf5" / "standard" / "weights.hdf5", tmp_path)
    shutil.copy(LANGUAGE_MODEL / "options.json", tmp_path)
    with h5py.File("softmax.hdf5", "w") as file:
        for name in ("weight", "bias"):
            tensor = elmo.checkpoint().weights[f"softmax.{name}"]
            file[f"softmax/{name[0].replace('w', 'W')}"] = tensor.numpy()
    shutil.copy(lines_file, "heldout.txt")
    hypotheses = [{"text": "the cat sat .", "score": -4.1}, {"text": "the cat", "score": -3.9}]
    Path("stimuli.csv").write_text("item,regions\n1,the cat|sat .\n", "utf-8")
    Path("nbest.jsonl").write_text(json.dumps({"id": "u1", "hypotheses": hypotheses}), "utf-8")
    Path("dev.jsonl").write_text('{"reference": "a", "hypotheses": [{"text": "a", "score": 1}]}')
    Path("text").write_text("u1 the cat sat .\n", "utf-8")
    write_documents(Path("news.txt"))
    Path("news.txt.gz").write_bytes(gzip.compress(Path("news.txt").read_bytes()))
    Path("more.jsonl").write_text(json.dumps({"text": "it rained"}), "utf-8")
    assert main(["corpus", "prepare", "news.txt", "-o", "corpus"]) == 0
    assert main(["convert", "elmo_weights.hdf5", "trained-model"]) == 0
    elmo.save("embedded/test-tiny")
    monkeypatch.setattr(known_models, "EMBEDDED", tmp_path / "embedded")
    monkeypatch.setattr(known_models, "DEFAULT_MODEL", "test-tiny")
    return tmp_path


@pytest.mark.filterwarnings("default:.*is a tiny test model")
@pytest.mark.parametrize(
    ("example", "shown"), [pair for pair in EXAMPLES.items() if not pair[0].startswith(TRAINING)]
)
def test_main_examples_run(example_folder, capsys, monkeypatch, example, shown):
    capsys.readouterr()
    before, _, command = example.rpartition(" | ")
    program, *arguments = shlex.split(command)
    assert program == "elmokit"
    if arguments[0] == "models" or "--check" in arguments:
        monkeypatch.undo()  # it is about the models that are really inside
    with open(shlex.split(before)[1] if before else os.devnull) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        code = main(arguments)
    out, err = capsys.readouterr()
    assert code == 0, err
    if shown:
        changing = re.compile(r"[\d.]+ (?=s:|kB)")  # seconds and sizes
        assert changing.sub("", shown) == changing.sub("", out or err)


@pytest.mark.parametrize("example", [name for name in EXAMPLES if name.startswith(TRAINING)])
def test_main_training_examples_run(tmp_path, monkeypatch, few_steps, capsys, example):
    monkeypatch.chdir(tmp_path)
    for name in ("corpus.txt", "tweets.txt", "law.txt"):
        write_documents(Path(name))
    page = "<page><title>{0}</title><ns>0</ns><revision><text>{0} is long.</text></revision></page>"
    pages = "".join(page.format(f"River {number}") for number in range(900))
    dump = f"<mediawiki>{pages}</mediawiki>".encode()
    Path("wiki.xml.bz2").write_bytes(bz2.compress(dump))
    assert main(["corpus", "prepare", "corpus.txt", "-o", "corpus"]) == 0
    for name in ("weights.hdf5", "elmo_weights.hdf5"):
        shutil.copy(GOLDEN / "bilm-hdf5" / "standard" / "weights.hdf5", name)
    shutil.copy(GOLDEN / "bilm-hdf5" / "standard" / "options.json", tmp_path)
    if "-o my-model" not in example:
        elmokit.load(LANGUAGE_MODEL).save("my-model")
    monkeypatch.setitem(PRESETS, "small", PRESETS["tiny"])  # the shape does not matter here
    assert main(shlex.split(example)[1:]) == 0, capsys.readouterr().err


def test_quiet_goes_with_every_verb_and_anywhere(run, lines_file, tmp_path, model):
    for command in (
        ["encode", lines_file, "--quiet", "-o", tmp_path / "v.npz", "--model", model],
        ["--quiet", "info", model],
        ["info", model, "--quiet"],
    ):
        assert run(*command).code == 0
    assert run("similar", "--", "--quiet", "--quiet", "--model").code == 2  # three sentences


def test_a_host_program_keeps_its_garbage_collection(capsys):
    before = gc.get_threshold(), gc.get_freeze_count()
    assert main(["encode", "--help"]) == 0
    assert (gc.get_threshold(), gc.get_freeze_count()) == before
