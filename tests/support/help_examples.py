"""Runs the examples of every verb's ``--help`` with the real command, in a folder made for them.

    python tests/support/help_examples.py --elmokit venv/bin/elmokit [VERB ...]

The program may be installed from a wheel, without extras: this file needs Python and a clone only.
An example that needs an extra has to say so in one line; one example of each verb has to run (of
``serve``, when its extra is there; of ``download`` none, since it uses the network). Training is
cut short, servers are stopped once they answer.
"""

from __future__ import annotations

import argparse
import bz2
import gzip
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from pathlib import Path

PROGRAM = "elmokit"
GOLDEN = Path(__file__).resolve().parents[1] / "golden"
EXTRA = re.compile(r"pip install '?elmokit\[(\w+)\]")
"""How an error names the extra that is missing."""
MAKERS = {
    "corpus": "elmokit corpus prepare news.txt.gz more.jsonl -o corpus",
    "my-classifier": "elmokit train classify --train train.tsv --dev dev.tsv -o my-classifier",
    "my-model": "elmokit convert small-en my-model",
    "my-tagger": "elmokit train tag --train train.conll --dev dev.conll -o my-tagger",
    "senses.safetensors": "elmokit probe wsd semcor.jsonl --index index.sense "
    "--save senses.safetensors",
}
"""What makes the inputs that only elmokit can write."""
SHORTER = {
    "pretrain": {"--max-steps": "2", "--device": "cpu"},
    "adapt": {"--max-steps": "2", "--softmax-steps": "2", "--set": "data.rows=4"},
    "train": {"--epochs": "1", "--device": "cpu"},
    "serve": {"--port": "0"},
}
"""Options that let an example end soon."""
SUBJECTS, VERBS = ("bank", "river", "cell", "plane", "old man"), ("lent", "saw", "found", "left")
OBJECTS, TIMES = ("money", "a house", "the road", "some bread"), ("today", "again", "at night")


def write_inputs(folder: Path) -> None:
    """Write the files that the examples name."""

    def write(name: str, text: str) -> None:
        (folder / name).write_text(text, encoding="utf-8")

    write("documents.txt", "the bank lent money\nhe left\n\na river bank\n")
    write("targets.txt", "cell_nn\nplane_nn\n")
    write("blimp.jsonl", '{"sentence_good": "He has won .", "sentence_bad": "He have won ."}\n')

    choices = list(product(SUBJECTS, VERBS, OBJECTS, TIMES))
    sentences = [f"The {who} {did} {what} {when} ." for who, did, what, when in choices]
    lines = "\n".join(sentences[::4]) + "\n"
    documents = "\n\n".join(sentences)
    for name in ("corpus.txt", "tweets.txt", "law.txt", "news.txt"):
        write(name, documents)
    for name in ("heldout.txt", "new.txt", "part1.txt", "part2.txt", "books-1800.txt"):
        write(name, lines)
    write("news-2020.txt", lines.replace("money", "a call"))
    for name, text in (("news", documents), ("corpus", lines)):
        (folder / f"{name}.txt.gz").write_bytes(gzip.compress(text.encode()))
    (folder / "tokenised.gz").write_bytes(gzip.compress(lines.encode()))
    write("more.jsonl", json.dumps({"text": "It rained ."}) + "\n")
    write("rows.csv", "".join(f"{line}\n" for line in ("body", *sentences[:5])))
    write(
        "stimuli.csv", 'item,condition,regions\n1,a,"The bank|lent|money ."\n1,b,The bank||fell .\n'
    )
    write("tcr.csv", "id,cdr3\na,CASSLGQAYEQYF\nb,CASSIRSSYEQYF\n")
    fasta = ">P1 first\nMKTAYIAK\nQRQ*\n>P2\nmkvla\n"
    (folder / "proteins.fasta.gz").write_bytes(gzip.compress(fasta.encode()))
    page = "<page><title>{0}</title><ns>0</ns><revision><text>{0}</text></revision></page>"
    pages = "".join(page.format(sentence) for sentence in sentences)
    dump = f"<mediawiki>{pages}</mediawiki>".encode()
    (folder / "wiki.xml.bz2").write_bytes(bz2.compress(dump))
    hypotheses = [{"text": text, "score": -4.0} for text in sentences[:3]]
    write("nbest.jsonl", json.dumps({"id": "u1", "hypotheses": hypotheses}) + "\n")
    dev = {"id": "d1", "reference": sentences[0], "hypotheses": hypotheses}
    write("dev.jsonl", json.dumps(dev) + "\n")
    write("text", f"u1 {sentences[0]}\n")
    write("tokens.txt", "0123456789abcdef0123456789abcdef\n")
    _write_examples(write)
    _write_annotated(write)
    shutil.copy(GOLDEN / "allennlp" / "lm_weights.hdf5", folder / "elmo_weights.hdf5")
    shutil.copy(GOLDEN / "allennlp" / "options.json", folder / "elmo_options.json")
    (folder / "seqvec").mkdir()
    shutil.copy(GOLDEN / "allennlp" / "lm_weights.hdf5", folder / "seqvec" / "weights.hdf5")
    shutil.copy(GOLDEN / "allennlp" / "options.json", folder / "seqvec")
    shutil.copy(GOLDEN / "allennlp-finetuned" / "model.tar.gz", folder)
    (folder / "model").mkdir()
    for file in (GOLDEN / "tf-checkpoint" / "standard").glob("*.*"):
        target = folder / "model" if file.name == "options.json" else folder
        shutil.copy(file, target / file.name.replace("ckpt-12", "ckpt-935588"))


def _write_examples(write: Callable[[str, str], None]) -> None:
    """Labelled texts and tagged sentences."""
    labels = {"good": ("superb", "lovely"), "bad": ("awful", "dull")}
    texts = [
        (f"the {noun} was {word} number{n}", label)
        for n in range(4)
        for noun in ("film", "plot", "actor")
        for label, words in labels.items()
        for word in words
    ]
    for name in ("train.tsv", "dev.tsv", "test.tsv"):
        write(name, "text\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in texts))
    write("test.csv", "review,stars\n" + "".join(f"{text},{label}\n" for text, label in texts))
    tagged = "".join(
        f"{name} B-PER\nwent O\nto O\n{city} B-LOC\n\n"
        for name, city in product(("Anna", "Bob", "Zoe"), ("Paris", "Rome", "Oslo"))
    )
    for name in ("train.conll", "dev.conll", "test.conll"):
        write(name, tagged)


def _write_annotated(write: Callable[[str, str], None]) -> None:
    """Parts of speech, word senses, ratings and static vectors."""
    row = "{}\t{}\t_\t{}\t_\t_\t_\t_\t_\t_\n"
    trees = "".join(
        row.format(1, "The", "DET")
        + row.format(2, noun, "NOUN")
        + row.format(3, verb, "VERB")
        + "\n"
        for noun, verb in product(("bank", "river", "cell"), VERBS)
    )
    for name in ("train.conllu", "test.conllu"):
        write(name, trees)
    senses = {"bank%1:17:01::": ("muddy", "green"), "bank%1:14:00::": ("rich", "private")}
    uses = [
        {"tokens": ["the", context, "bank", f"n{n}"], "keys": [[], [], [key], []]}
        for n in range(10)
        for key, contexts in senses.items()
        for context in contexts
    ]
    for name in ("semcor.jsonl", "senseval2.jsonl"):
        write(name, "".join(f"{json.dumps(use)}\n" for use in uses))
    write("index.sense", "bank%1:14:00:: 1 1 9\nbank%1:17:01:: 2 2 9\n")
    scws = "1\ta\tn\tb\tn\tthe <b> bank </b>\ta <b> {} </b>\t{}" + "\t1.0" * 10
    ratings = (("river", 1), ("money", 5), ("bank", 9))
    write("ratings.txt", "".join(scws.format(word, score) + "\n" for word, score in ratings))
    write("glove.txt", "the 1 0\nbank 0 1\nmoney 0.5 0.5\n")


def arguments(example: str) -> list[str]:
    """The words after ``elmokit``, with options that let it end soon."""
    program, *words = shlex.split(example.rpartition(" | ")[2])
    assert program == PROGRAM, example
    for option, value in SHORTER.get(words[0], {}).items():
        if option in words:
            words[words.index(option) + 1] = value
        else:
            words += [option, value]
    return words


def standard_input(example: str, folder: Path) -> bytes:
    """What the program before the pipe writes."""
    if " | " not in example:
        return b""
    program, name = example.partition(" | ")[0].split()
    data = (folder / name).read_bytes()
    return gzip.decompress(data) if program == "zcat" else data


def needed(example: str, folder: Path) -> Iterator[str]:
    """Examples to be run first: they make what this one reads."""
    words = shlex.split(example)
    read = [word.rpartition("=")[2] for n, word in enumerate(words) if words[n - 1] != "-o"]
    for name, maker in MAKERS.items():
        if name in read and maker != example and not (folder / name).exists():
            yield from needed(maker, folder)
            yield maker
    if "--resume" in words and not (folder / words[words.index("-o") + 1]).exists():
        yield example.replace(" --resume", "")


def remove_output(example: str, folder: Path) -> None:
    """Remove the folder that an example made before; a file is replaced."""
    words = shlex.split(example)
    target = words[words.index("-o") + 1] if "-o" in words else words[-1]
    made = "-o" in words or words[1] == "convert"
    if made and "--resume" not in words and (folder / target).is_dir():
        shutil.rmtree(folder / target)


class Command:
    """The program, run in a folder with the inputs."""

    def __init__(self, program: str, folder: Path) -> None:
        self._program, self._folder = shlex.split(program), folder
        self._environment = {**os.environ, "COLUMNS": "100", "PYTHONIOENCODING": "utf-8"}
        self._environment |= {"NO_COLOR": "1", "TERM": "dumb"}

    def start(self, words: list[str]) -> subprocess.Popen[bytes]:
        pipe = subprocess.PIPE
        return subprocess.Popen(
            [*self._program, *words], cwd=self._folder, env=self._environment,
            stdin=pipe, stdout=pipe, stderr=pipe,
        )  # fmt: skip

    def help(self, *verb: str) -> str:
        with self.start([*verb, "--help"]) as process:
            out, err = process.communicate(timeout=120)
        if process.returncode:
            raise SystemExit(f"{PROGRAM} {' '.join(verb)} --help: {err.decode()}")
        return out.decode()

    def examples(self, wanted: Sequence[str] = (), *group: str) -> dict[str, list[str]]:
        """The examples of every verb, or of some, as the help texts show them."""
        found: dict[str, list[str]] = {}
        for name in re.findall(r"^│ (\w+) ", self.help(*group), flags=re.M):
            verb = " ".join([*group, name])
            if wanted and not any(f"{one} ".startswith(f"{verb} ") for one in wanted):
                continue
            text = self.help(*group, name)
            if "╭─ Commands" in text:
                found |= self.examples(wanted, *group, name)
            else:
                shown = text.partition("Examples:")[2].splitlines()
                found[verb] = [line.strip() for line in shown if line.strip()]
        return found

    def run(self, example: str) -> tuple[int, str]:
        """Run an example and those that it needs; the exit code and what it said."""
        for first in needed(example, self._folder):
            code, said = self.run(first)
            if code:
                return code, f"{first}: {said}"
        remove_output(example, self._folder)
        words = arguments(example)
        with self.start(words) as process:
            if words[0] == "serve":
                return self._serve(process)
            out, err = process.communicate(standard_input(example, self._folder), timeout=900)
        return process.returncode, err.decode() or out.decode()

    def _serve(self, process: subprocess.Popen[bytes]) -> tuple[int, str]:
        """Wait for the address, ask the server whether it is well, and stop it."""
        assert process.stderr is not None
        said = ""
        for line in process.stderr:
            said += line.decode()
            address = re.search(r"https?://[\w.:\[\]]+\d", said)
            if address is None:
                continue
            url = address[0].replace("0.0.0.0", "127.0.0.1") + "/healthz"
            well = _answers(url)
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=60)
            return (process.returncode if well else 1), said
        process.wait(60)
        return process.returncode or 1, said


def _answers(url: str) -> bool:
    for _ in range(60):
        try:
            with urllib.request.urlopen(url, timeout=10):
                return True
        except urllib.error.HTTPError:
            return True  # it asks for a token
        except OSError:
            time.sleep(1)
    return False


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--elmokit", default=f"{sys.executable} -m elmokit", help="the program")
    parser.add_argument("verbs", nargs="*", metavar="VERB", help="only these")
    options = parser.parse_args()
    program = options.elmokit
    if os.path.exists(program):
        program = shlex.quote(os.path.abspath(program))
    failed: list[str] = []
    with tempfile.TemporaryDirectory() as name:
        write_inputs(Path(name))
        command = Command(program, Path(name))
        for verb, examples in command.examples(options.verbs).items():
            if verb == "download":
                continue
            ran = 0
            for example in examples:
                start = time.monotonic()
                code, said = command.run(example)
                extra = EXTRA.search(said) if code == 1 else None
                if code == 0:
                    ran += 1
                elif extra is None:
                    failed.append(example)
                state = "ok" if code == 0 else f"needs [{extra[1]}]" if extra else f"FAILED {code}"
                print(f"{state:<14} {time.monotonic() - start:6.1f} s  {example}", flush=True)
                if code and extra is None:
                    print(said, flush=True)
            if not examples or not (ran or verb == "serve"):
                failed.append(verb)
                print(f"no example of {verb} runs here")
    print(f"{len(failed)} failed" if failed else "all examples run")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
