"""What several verbs share: options, and how a model is loaded from them."""

from __future__ import annotations

import inspect
import os
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from glob import escape
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Annotated,
    Literal,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
)

from cyclopts import App, Group, Parameter, validators

from elmokit.errors import ConfigError, DataError

if TYPE_CHECKING:
    from elmokit.encode.elmo import Elmo

F = TypeVar("F", bound=Callable[..., None])
PROGRAM = "elmokit"
QUIET = "--quiet"
_one_of_two = Group(validator=validators.mutually_exclusive)

MODEL_NAMES = ["--model", "-m"]
"""The model's option, in every verb that has other arguments than a model."""
MODEL_HELP = (
    "Folder, weights file, archive, checkpoint prefix, name (elmokit models), https address or "
    "hf:OWNER/NAME. The embedded model when left out."
)
Model = Annotated[str | None, Parameter(name=MODEL_NAMES, help=MODEL_HELP)]
SeveralModels: Parameter = Parameter(name=MODEL_NAMES, consume_multiple=False)
Tokens = Annotated[
    bool,
    Parameter(help="The text is split into tokens by spaces.", group=("Parameters", _one_of_two)),
]
Tokenizer = Annotated[
    str | None,
    Parameter(
        help="words, space, chars, jieba or spacy:LANGUAGE; the model's own when left out.",
        group=("Parameters", _one_of_two),
    ),
]
Field = Annotated[
    str, Parameter(help="Key (JSONL) or column (CSV, Parquet) that holds the text or its tokens.")
]
Layers = Annotated[
    str,
    Parameter(help="all, mean, sum, top, mix, a layer's number, or weights such as 0.2,0.3,0.5."),
]
Device = Annotated[
    str | None,
    Parameter(help="cpu, cuda, cuda:1 or mps. A CUDA GPU if there is one, else the CPU."),
]
Json = Annotated[bool, Parameter(name="--json", help="Print JSON instead of text.")]
OptionsFile = Annotated[
    Path | None,
    Parameter(name="--options", help="options.json, when it is not beside the weights."),
]
VocabularyFile = Annotated[
    Path | None,
    Parameter(name="--vocabulary", help="Word list, when it is not beside the weights."),
]
RayAddress = Annotated[
    str | None, Parameter(help="The Ray cluster; one on this machine when left out.")
]
AtLeastOne: Parameter = Parameter(validator=validators.Number(gte=1))


EXAMPLES: dict[str, tuple[str, ...]] = {}
"""The examples of every verb, in the order of ``--help``: ``encode``, ``corpus prepare``."""


def verb(app: App, *examples: str) -> Callable[[F], F]:
    """Make a function a command, with a usage line and with examples at the end of its help."""

    def add(function: F) -> F:
        function.__doc__ = _unwrapped(function.__doc__ or "")
        path = [*(name for name in app.name if name != PROGRAM), function.__name__]
        usage = f"Usage: {' '.join([PROGRAM, *path, *_usage(function)])}"
        epilogue = [f"{QUIET}, as for every verb: no progress, no hints.", "", "Examples:", ""]
        app.command(function, usage=usage, help_epilogue="\n".join([*epilogue, *examples]))
        EXAMPLES[" ".join(path)] = examples
        return function

    return add


def _unwrapped(text: str) -> str:
    """A docstring with a line per paragraph and argument: the help is as wide as the terminal."""
    lines: list[str] = []
    before = -1  # indentation of the line before, -1 after a blank one
    for line in inspect.cleandoc(text).splitlines():
        indent = len(line) - len(line.lstrip()) if line.strip() else -1
        if before >= 0 and (indent == before == 0 or indent > 4):
            lines[-1] += f" {line.strip()}"
        else:
            lines.append(line)
        before = indent
    return "\n".join(lines)


def _usage(function: Callable[..., None]) -> Iterator[str]:
    """What a call consists of: arguments, then options that must be given."""
    hints = get_type_hints(function, include_extras=True)
    options: list[str] = []
    for name, parameter in inspect.signature(function).parameters.items():
        hint = hints[name]
        kind, *marks = get_args(hint) if get_origin(hint) is Annotated else [hint]
        given = next((mark.name for mark in marks if getattr(mark, "name", None)), (f"--{name}",))
        optional = parameter.default is not parameter.empty
        if parameter.kind is parameter.KEYWORD_ONLY:
            if not optional:
                long = next(option for option in given if option.startswith("--"))
                options.append(f"{long} {kind.__name__.upper()}")
            continue
        shown = given[0].lstrip("-").upper()
        if parameter.kind is parameter.VAR_POSITIONAL:
            yield f"[{shown}...]"
        elif get_origin(kind) in (tuple, list):
            yield f"{shown}..."
        else:
            yield f"[{shown}]" if optional else shown
    yield from options
    yield "[OPTIONS]"


def shown_default(value: object) -> str | None:
    """A default for the help; None where the text says what happens when it is left out."""
    return None if value is None or value is False or value in ("", ()) else str(value)


class UsageError(Exception):
    """The options contradict each other; the command ends with exit code 2."""


@contextmanager
def reading_bar(source: str | os.PathLike[str], *, prints: bool = False) -> Iterator[None]:
    """A bar over the bytes of a file, with the time left, while it is read here.

    There is none when standard error is no terminal, when the size is unknown, or when the verb
    `prints` its results to a terminal, which shows the progress itself.
    """
    if not os.path.isfile(source) or (prints and sys.stdout.isatty()):
        yield
        return
    from tqdm.auto import tqdm

    from elmokit.text.readers import watch_reading

    with (
        tqdm(total=os.path.getsize(source), unit="B", unit_scale=True, disable=None) as bar,
        watch_reading(lambda position: bar.update(position - bar.n)),
    ):
        yield


def suggest(command: str) -> None:
    """Say what can be done next, if a person is there to read it."""
    if sys.stdout.isatty() and sys.stderr.isatty():
        print(f"next: {command}", file=sys.stderr)


def model_option(model: str | None) -> str:
    """How a suggested command names the model."""
    return "" if model is None else f" --model {shlex.quote(model)}"


def load_model(
    model: str | None,
    *,
    tokens: bool,
    tokenizer: str | None,
    device: str | None,
    precision: Literal["float32", "bfloat16", "int8", "float8"] = "float32",
) -> Elmo:
    """Load a model as the options of verbs ask that need no softmax."""
    import elmokit

    return elmokit.load(
        model,
        tokenizer="space" if tokens else tokenizer,
        softmax=False,
        device=device,
        precision=precision,
    )


def find_token(tokens: Sequence[str], word: str, hint: str = "") -> int:
    """The position of a word in a sentence; the first of several, with a note."""
    if word not in tokens:
        raise DataError(f"no token {word!r} in the sentence; its tokens are: {' | '.join(tokens)}")
    if (count := tokens.count(word)) > 1:
        print(
            f"elmokit: note: {word!r} is {count} times in the sentence; the first is taken{hint}",
            file=sys.stderr,
        )
    return tokens.index(word)


def parse_layers(text: str) -> str | int | list[float]:
    """What the library takes for ``--layers``; it checks names and indices itself."""
    if "," in text:
        try:
            # Whole numbers stay whole: the library asks back if they may be numbers of layers.
            return [int(w) if w.strip().isdecimal() else float(w) for w in text.split(",")]
        except ValueError:
            raise ConfigError(f"--layers {text}: weights are numbers between commas") from None
    return int(text) if text.isdecimal() else text


def readable_size(count: int) -> str:
    """A number of bytes for people."""
    size = float(count)
    for unit in ("bytes", "kB", "MB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} GB"


def size_on_disk(path: Path) -> int:
    """Bytes of a file, of all files in a folder, or of all that a checkpoint's prefix names."""
    if path.is_file():
        files: Iterator[Path] = iter([path])
    else:
        files = path.rglob("*") if path.is_dir() else path.parent.glob(f"{escape(path.name)}.*")
    return sum(file.stat().st_size for file in files if file.is_file())
