"""The command ``elmokit``: parse, call the function a Python user would call, print.

One module per verb: encode, similar, table; corpus, pretrain (also adapt); train, evaluate, predict
(with common options in task_options); probe; convert, download, serve, site, bench. lm has the
language model's verbs (score, perplexity, surprisal, substitutes, generate); models lists and
describes those with names, info also recipes; options has what several share. Nothing heavy is
imported before a verb runs, so that ``--help`` answers at once.
"""

from __future__ import annotations

import atexit
import codecs
import gc
import io
import json
import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType, ModuleType
from typing import Any, TextIO, cast

from cyclopts import App, CycloptsError, MissingArgumentError, Parameter, UnusedCliTokensError

from elmokit import __version__
from elmokit.cli import (
    bench,
    convert,
    corpus,
    download,
    encode,
    evaluate,
    info,
    lm,
    models,
    predict,
    pretrain,
    probe,
    serve,
    similar,
    site,
    table,
    train,
)
from elmokit.cli.options import EXAMPLES, PROGRAM, QUIET, UsageError, shown_default, verb
from elmokit.errors import ElmokitError, is_out_of_memory

READING_VERBS = (
    *(["corpus"], ["encode"], ["score"], ["perplexity"], ["surprisal"], ["evaluate"], ["predict"]),
    *(["pretrain"], ["adapt"]),  # which refuse it in words of their own
)
"""How a call begins in which ``-`` stands for standard input."""

YOUNG_OBJECTS = 50_000
"""So many more objects, and the garbage collector looks for cycles among them."""

BAD_INPUT = 1
BAD_USAGE = 2
INTERRUPTED = 130  # 128 + SIGINT, as shells report it
BROKEN_PIPE = 141  # 128 + SIGPIPE
LESS_MEMORY = {
    **dict.fromkeys(
        ("encode", "table", "score", "perplexity", "surprisal", "serve"), "--batch-tokens"
    ),
    **dict.fromkeys(("pretrain", "adapt"), "--set data.rows"),
    "train": "--set run.batch",
}
"""What to lower when memory runs out, by verb."""

app: App = App(
    name=PROGRAM,
    help="ELMo vectors from every published model: exact, and the same every time.",
    version=__version__,
    help_format="plaintext",
    help_epilogue="Each verb has examples: elmokit encode --help",
    default_parameter=Parameter(negative=(), show_default=shown_default),
    # Errors come back to `main`, which prints them all in one way.
    exit_on_error=False,
    print_error=False,
    suppress_keyboard_interrupt=False,
    result_action="return_none",
)


def _add_verbs(*modules: ModuleType) -> None:
    for module in modules:
        name = module.__name__.rpartition(".")[2]
        commands = module.EXAMPLES if isinstance(module.EXAMPLES, dict) else {name: module.EXAMPLES}
        for command, examples in commands.items():
            verb(app, *examples)(getattr(module, command))


_add_verbs(encode, similar, table, lm, pretrain, train, evaluate, predict)
_add_verbs(convert, info, models, download, serve, site, bench)
app.command(corpus.corpus)
app.command(probe.probe)


ESCAPED = "elmokit.escaped"
"""Name of the way in which characters are printed that a terminal lacks."""


def _escaped(error: UnicodeError) -> tuple[str, int]:
    """Characters as JSON writes them in ASCII, so that JSON stays JSON in every encoding."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end


codecs.register_error(ESCAPED, _escaped)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        arguments: What stands after ``elmokit``; taken from the process when left out.

    Returns:
        The exit code: 0; 1 for bad input; 2 for a wrong call; 130, 141 and 143 when stopped by
        Ctrl-C, by the reader of the output or by SIGTERM.
    """
    words = _own_arguments() if arguments is None else list(arguments)
    options = words[: words.index("--")] if "--" in words else words
    quiet = QUIET in options
    if quiet:
        words.remove(QUIET)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed; the next file that is opened would be it
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors=ESCAPED)
    code = 0
    try:
        with warnings.catch_warnings(), _terminations(), _no_terminal(quiet):
            warnings.showwarning = _show_warning
            app(_input_last(words))
        sys.stdout.flush()
    except (CycloptsError, UsageError) as error:
        given = words[0] + " " if words and words[0] in app else ""
        _print_error(f"{_wrong_call(error, words)} (see elmokit {given}--help)")
        code = BAD_USAGE
    except KeyboardInterrupt as error:
        code = 128 + error.number if isinstance(error, _Terminated) else INTERRUPTED
    except (BrokenPipeError, SystemExit) as error:
        # rich exits with 1, by itself, when nobody reads a help text.
        if isinstance(error, SystemExit) and not isinstance(error.__context__, BrokenPipeError):
            raise
        # Python flushes once more at its end, which must not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = BROKEN_PIPE
    except ElmokitError as error:
        _print_error(str(error))
        code = BAD_INPUT
    except OSError as error:
        path = f"{error.filename}: " if error.filename is not None else ""
        _print_error(f"{path}{error.strerror or error}")
        code = BAD_INPUT
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        less = LESS_MEMORY.get(words[0] if words else "")
        lower = f"lower {less}, or " if less else ""
        _print_error(f"out of memory; {lower}use a machine with more")
        code = BAD_INPUT
    return code


def _wrong_call(error: Exception, words: Sequence[str]) -> str:
    """What is wrong with a call, where cyclopts says so in words of its own."""
    if isinstance(error, MissingArgumentError) and error.argument is not None:
        names = error.argument.names
        if not any(word.partition("=")[0] in names for word in words):
            return f"{' or '.join(names)} is missing."
    if isinstance(error, UnusedCliTokensError) and error.unused_tokens:
        unused = error.unused_tokens[0]
        again = (
            " Repeat --set before each NAME=VALUE." if "=" in unused and "--set" in words else ""
        )
        return f"{unused!r} is one argument too many.{again}"
    return str(error)


def _own_arguments() -> list[str]:
    """What the process was called with; it is ours, and is set up to start and end fast."""
    # torch makes hundreds of thousands of objects that stay. To look through them for garbage
    # again and again, and once more at the end, takes a seventh of the time of its import.
    gc.set_threshold(YOUNG_OBJECTS)
    atexit.register(gc.freeze)
    return sys.argv[1:]


class _Terminated(KeyboardInterrupt):
    """A signal that asks the process to end; what Ctrl-C cleans up is cleaned up."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


@contextmanager
def _terminations() -> Iterator[None]:
    """SIGTERM and SIGHUP end the verb as Ctrl-C does; a second one ends it at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)
        raise _Terminated(number)

    numbers = [getattr(signal, name, None) for name in ("SIGTERM", "SIGHUP")]
    # nohup ignores one of them; a host program may have a handler of its own.
    changed = [n for n in numbers if n is not None and signal.getsignal(n) is signal.SIG_DFL]
    for number in changed:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in changed:
            signal.signal(number, signal.SIG_DFL)


class _Piped:
    """Standard error as programs see it that is no terminal: they show no progress there."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def isatty(self) -> bool:
        return False


@contextmanager
def _no_terminal(quiet: bool) -> Iterator[None]:
    """Show neither bars nor hints, whatever shows them."""
    stream = sys.stderr
    if quiet:
        sys.stderr = cast(TextIO, _Piped(stream))
    try:
        yield
    finally:
        sys.stderr = stream


def _input_last(words: list[str]) -> list[str]:
    """Put ``-`` behind ``--``: cyclopts takes it for an option anywhere else."""
    if words[:1] not in READING_VERBS or words.count("-") != 1 or "--" in words:
        return words
    return [*(word for word in words if word != "-"), "--", "-"]


def _print_error(message: str) -> None:
    """One line on standard error, whatever the message looks like."""
    first, *more = message.splitlines() or [""]
    line = " ".join([first, "; ".join(part.strip() for part in more)]).rstrip()
    print(f"elmokit: error: {line}", file=sys.stderr)


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    print(f"elmokit: warning: {message}", file=sys.stderr)
