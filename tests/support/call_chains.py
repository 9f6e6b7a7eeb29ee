"""Which files a call runs through: `python tests/support/call_chains.py encode|pretrain|tag`.

Counted are the files of the package in which a function runs: not the bodies of modules and
classes, nor what runs while a module is imported. *All files* is every one of them. *The chain* is
what a reader of one room has to open: the files of the room in which the call starts, and one for
each other room that is entered, whose own calls have a chain of their own.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import json
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import FrameType

import elmokit

PACKAGE = Path(elmokit.__file__).parent
GOLDEN = Path(__file__).parents[1] / "golden"
TEXT = GOLDEN / "first-layout" / "text.txt"
TAGGED = GOLDEN / "first-layout" / "predictors" / "tag.dev.jsonl"


class Trace:
    """The files entered while it is open, in all threads, with the first function of each."""

    def __init__(self) -> None:
        self.files: dict[str, str] = {}

    def __enter__(self) -> Trace:
        threading.setprofile(self._event)
        sys.setprofile(self._event)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]

    @property
    def chain(self) -> list[str]:
        """The files of the room of the first one, and the other rooms."""
        own = next(iter(self.files)).partition("/")[0]
        rooms = [
            file if file.startswith(f"{own}/") else file.partition("/")[0] for file in self.files
        ]
        return list(dict.fromkeys(rooms))

    def _event(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event != "call" or not code.co_flags & inspect.CO_OPTIMIZED:  # bodies of classes
            return
        path = Path(code.co_filename)
        if not path.is_relative_to(PACKAGE) or path.name == "lazy.py" or _importing(frame):
            return
        self.files.setdefault(path.relative_to(PACKAGE).as_posix(), code.co_qualname)


def _importing(frame: FrameType | None) -> bool:
    """Whether a module of the package is being imported."""
    while frame is not None:
        code = frame.f_code
        if code.co_name == "<module>" and Path(code.co_filename).is_relative_to(PACKAGE):
            return True
        frame = frame.f_back
    return False


def trace_encode(_: Path) -> Trace:
    """The first sentence that a loaded model reads."""
    import torch

    torch.set_num_threads(2)
    elmo = elmokit.load()
    with Trace() as trace:
        elmo.encode("I ate an apple .")
    return trace


def _pretrain(corpus: Path, folder: Path) -> Trace:
    from small_runs import LINES, SMALL

    config = replace(SMALL, corpus=(str(corpus),), output=str(folder / "model"))
    with Trace() as trace:
        elmokit.pretrain(config, device="cpu", preparation=LINES)
    return trace


def trace_pretrain_corpus(folder: Path) -> Trace:
    """A model from a prepared corpus."""
    return _pretrain(GOLDEN / "first-layout" / "corpus", folder)


def trace_pretrain_text(folder: Path) -> Trace:
    """A model from a text file."""
    return _pretrain(TEXT, folder)


def trace_tag(folder: Path) -> Trace:
    """A tagger on frozen layers, from files."""
    from small_tasks import settings

    config, output = settings("tag", "run.epochs=1"), folder / "tagger"
    fit = elmokit.tasks.fit
    with Trace() as trace:
        fit("tag", TAGGED, TAGGED, elmo="test-tiny", config=config, output=output, quiet=True)
    return trace


TRACES: dict[str, dict[str, Callable[[Path], Trace]]] = {
    "encode": {"encode": trace_encode},
    "pretrain": {
        "pretrain, prepared corpus": trace_pretrain_corpus,
        "pretrain, text file": trace_pretrain_text,
    },
    "tag": {"tasks.fit tag": trace_tag},
}


def traces(scene: str) -> Iterator[tuple[str, Trace]]:
    """The traces of one scene, with their names."""
    for name, run in TRACES[scene].items():
        with tempfile.TemporaryDirectory() as folder:
            yield name, run(Path(folder))


def main(arguments: list[str]) -> None:
    """Print the traces of the scenes named, of all when none is; `--json` prints only files."""
    as_json = "--json" in arguments
    counts = {}
    for scene in [argument for argument in arguments if argument != "--json"] or TRACES:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            found = list(traces(scene))
        for name, trace in found:
            counts[name] = {"files": list(trace.files), "chain": trace.chain}
            if not as_json:
                print(f"{name}: {len(trace.files)} files in all, {len(trace.chain)} in the chain")
                for file, function in trace.files.items():
                    print(f"    {file:34} {function}")
    if as_json:
        print(json.dumps(counts))


if __name__ == "__main__":
    main(sys.argv[1:])
