"""Every block on docs/probes.md runs."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path

import pytest
from pages import ROOT, code_of, commands, page_text, run_page
from sense_uses import uses, write_jsonl

import elmokit
from elmokit.cli import main
from elmokit.cli.probe import probe
from elmokit.tasks import fit

PAGE = "docs/probes.md"
COMMANDS = dict.fromkeys(command.line for command in commands(PAGE))
CONLLU = "1\tthe\t_\tDET\tDT\t_\t_\t_\t_\t_\n2\tbank\t_\tNOUN\tNN\t_\t_\t_\t_\t_\n\n"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a file under each name that the page and the help texts use."""
    folder = tmp_path_factory.mktemp("page")
    elmo = elmokit.load(ROOT / "tests/golden/tf-checkpoint/standard")
    elmo.save(folder / "my-model")
    blimp = {"sentence_good": "He has won .", "sentence_bad": "He have won .", "UID": "agreement"}
    (folder / "blimp.jsonl").write_text(json.dumps(blimp), "utf-8")
    for name in ("train.conllu", "test.conllu"):
        (folder / name).write_text(CONLLU * 5, "utf-8")
    write_jsonl(folder / "semcor.jsonl", uses(200, 0))
    for name in ("senseval2.jsonl", "senseval3.jsonl"):
        write_jsonl(folder / name, uses(10, 1))
    (folder / "index.sense").write_text("bank%1:14:00:: 1 1 9\n", "utf-8")
    scws = "1\ta\tn\tb\tn\tthe <b> bank </b>\ta <b> {} </b>\t{}" + "\t1.0" * 10
    lines = [scws.format(word, score) for word, score in (("river", 1), ("money", 5), ("bank", 9))]
    (folder / "ratings.txt").write_text("\n".join(lines), "utf-8")
    for name in ("train", "test"):
        (folder / f"{name}.data.txt").write_text("go\tV\t0-0\tgo on\tgo !\n" * 4, "utf-8")
        (folder / f"{name}.gold.txt").write_text("T\nF\nT\nF\n", "utf-8")
    text = "\n".join(f"the bank lent apple bat cell plane money number{i}" for i in range(30))
    names = ("corpus.txt", "corpus.txt.gz", "old.txt", "new.txt", "books-1800.txt", "news-2020.txt")
    for name in names:
        (folder / name).write_text(text, "utf-8")
    (folder / "targets.txt").write_text("bank_nn\nmoney_nn\n", "utf-8")
    for name in ("graded.txt", "binary.txt"):
        (folder / name).write_text("bank_nn\t0\nmoney_nn\t1\n", "utf-8")
    (folder / "glove.txt").write_text("the 1 0\nbank 0 1\n", "utf-8")
    data = folder / "tags.jsonl"
    data.write_text('{"tokens": ["the", "bank"], "tags": ["D", "N"]}\n' * 4, "utf-8")
    fit("tag", data, data, elmo="test-tiny", output=folder / "tagger", quiet=True)
    for name in ("ner-model", "qa-model"):
        shutil.copytree(folder / "tagger", folder / name)
    senses = uses(30, 0)
    elmokit.probes.wsd(elmo, senses, {}, save=folder / "senses.safetensors")
    return folder


@pytest.fixture
def folder(
    files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few_probe_steps: None
) -> Path:
    shutil.copytree(files, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("command", COMMANDS)
def test_command_runs(command, folder, capsys):
    program, *arguments = shlex.split(command)
    assert program == "elmokit"
    if "--model" not in arguments and "layers" not in arguments:
        arguments += ["--model", "my-model"]  # the embedded one takes longer
    assert main(arguments) == 0, capsys.readouterr().err


def test_code_runs(folder, capsys):
    assert len(code_of(PAGE, "python")) > 3
    run_page(PAGE, capsys.readouterr, run_commands=False)


def test_every_probe_is_on_the_page():
    for name in probe:
        if not name.startswith("-"):
            assert f"\n## {name}: " in page_text(PAGE)
