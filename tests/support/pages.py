"""Pages in Markdown, run as a reader would run them.

A ```python block may be followed by a ```text block: what it prints. In a ```console block, lines
that begin with "$ elmokit" run, and the lines after one of them are its output. A ```toml block
that begins with "# NAME.toml" becomes that file, as does any block with title="NAME".
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Collection
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from elmokit.cli import main

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
SHOWN_ONLY = {"pip", "make", "git", "cd", "export", "torchrun"}
"""Programs of console blocks that are not run."""
ELISION = "..."
BEST = " (best so far)"

Printed = Callable[[], tuple[str, str]]
"""What was printed since the last call, to both streams: `capsys.readouterr`."""


class Block(NamedTuple):
    kind: str
    code: str
    title: str = ""


class Command(NamedTuple):
    line: str
    output: str
    """The lines that follow it on the page."""

    @property
    def words(self) -> list[str]:
        return shlex.split(self.line)


def page_text(name: str) -> str:
    """The text of a page, named from the repository's root on."""
    return (ROOT / name).read_text("utf-8")


def blocks(name: str) -> list[Block]:
    """The blocks of a page, in order."""
    pattern = re.compile(r'^```(\w*)(?: title="([\w.-]+)")?\n(.*?)^```$', flags=re.M | re.S)
    return [Block(kind, code, title) for kind, title, code in pattern.findall(page_text(name))]


def code_of(name: str, kind: str) -> list[str]:
    """The blocks of one kind."""
    return [block.code for block in blocks(name) if block.kind == kind]


def commands_in(code: str) -> list[Command]:
    """The commands of a console block."""
    return [Command(*found) for found in re.findall(r"^\$ (.*)\n((?:[^$].*\n)*)", code, flags=re.M)]


def commands(name: str) -> list[Command]:
    """The commands of a page."""
    return [command for code in code_of(name, "console") for command in commands_in(code)]


def run_page(
    name: str,
    printed: Printed,
    *,
    about: str = "",
    by_form: Collection[str] = (),
    shows_output: bool = True,
    more_follows: bool = False,
    replaced: tuple[str, str] = ("", ""),
    run_commands: bool = True,
) -> dict[str, Any]:
    """Run the blocks of a page in the current folder, and compare what they print.

    Args:
        name: The page, named from the repository's root on.
        printed: Gives what was printed since its last call.
        about: Run only the Python blocks in which this occurs.
        by_form: Verbs whose output is compared without its numbers: the page shows a longer run.
        shows_output: Whether the page shows everything that its Python code prints.
        more_follows: Whether others may print after what the page shows.
        replaced: Something in the code, and what takes its place.
        run_commands: Whether to run the commands too.

    Returns:
        What the Python code has defined.
    """
    names: dict[str, Any] = {"__name__": "page"}
    ran = 0
    for block, following in pairwise([*blocks(name), Block("", "")]):
        if block.title:
            Path(block.title).write_text(block.code, "utf-8")
        if block.kind == "console" and run_commands:
            for command in commands_in(block.code):
                run_command(command, printed, by_form)
        if block.kind == "toml":
            named = re.match(r"# (\w+\.toml)\b", block.code)
            assert named is not None, "begin with the file's name"
            Path(named[1]).write_text(block.code, "utf-8")
        if block.kind != "python" or about not in block.code:
            continue
        exec(compile(block.code.replace(*replaced), name, "exec"), names)
        ran += 1
        shown = following.code if following.kind == "text" else ""
        said, _ = printed()
        if more_follows:
            said = said[: len(shown)]
        assert said == shown or not (shown or shows_output), block.code
    assert ran or not code_of(name, "python"), f"{name}: no code about {about}"
    return names


def run_command(command: Command, printed: Printed, by_form: Collection[str] = ()) -> None:
    """Run a command of a page and compare with the lines that follow it there, if any."""
    program, *arguments = command.words
    if program != "elmokit":
        assert program in SHOWN_ONLY, command.line
        return
    code = main(arguments)
    out, err = printed()
    assert code == 0, f"{command.line}: {err}"
    if command.output and arguments[0] in by_form:
        assert forms(command.output) <= forms(err + out) | {ELISION}, command.line
    elif command.output:
        assert out == command.output, command.line


def forms(text: str) -> set[str]:
    """The lines of a run's report without what a longer run on other data would change."""
    number = re.compile(r"\b\d[\d,.]*(e[-+]\d+)?%?( (k|M|G|s|min|h)\b)?")
    lines = (line.removesuffix(BEST) for line in text.splitlines())
    return {" ".join(number.sub("#", line).split()) for line in lines}
