"""Which files a call runs through: `python tests/support/call_chains.py encode|pretrain|tag`.

Counted are the files of the package in which a function runs: not the bodies of modules and
classes, nor what runs while a module is imported. *All files* is every one of them. *The chain*
is what a reader of one room follows: a call from one room into a public function of another of the
rooms in `ROOMS` (exported by the room's `__init__`, or a method of a class exported there) counts
as the file of that function, and what runs below it belongs to a chain of its own.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import io
import json
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import CodeType, FrameType, GeneratorType
from typing import Any

import elmokit

PACKAGE = Path(elmokit.__file__).parent
GOLDEN = Path(__file__).parents[1] / "golden"
TEXT = GOLDEN / "first-layout" / "text.txt"
TAGGED = GOLDEN / "first-layout" / "predictors" / "tag.dev.jsonl"

ROOMS = ("corpus", "checkpoints", "encode", "lm", "training.loop")
"""Rooms with a door: what is behind it has a chain of its own."""
SCENES = ("encode", "pretrain", "tag")


def room_of(file: str) -> str:
    """The room of a file of the package; one module of `training` is a room of its own."""
    name = file.removesuffix(".py").replace("/", ".")
    return name if name in ROOMS else name.partition(".")[0]


def public_codes() -> dict[CodeType, str]:
    """The code of what the rooms export: functions, and methods of classes."""
    found: dict[CodeType, str] = {}
    for room in ROOMS:
        module = importlib.import_module(f"elmokit.{room}")
        exported = set(getattr(module, "__all__", ()))
        if not exported:
            exported = {name for name in vars(module) if not name.startswith("_")}
        for name in exported:
            for label, function in _functions(name, getattr(module, name)):
                code = function.__code__
                if (file := file_of(code)) is not None and room_of(file) == room:
                    found[code] = f"{room}.{label}"
    return found


def _functions(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if not inspect.isclass(value):
        function = inspect.unwrap(value) if callable(value) else value
        if inspect.isfunction(function):
            yield name, function
        return
    for parent in value.__mro__:
        for member, content in vars(parent).items():
            if member.startswith("_") and not member.endswith("__"):
                continue
            function = content.fget if isinstance(content, property) else content
            function = getattr(function, "__func__", function)  # of class and static methods
            if inspect.isroutine(function) and inspect.isfunction(inspect.unwrap(function)):
                yield f"{name}.{member}", inspect.unwrap(function)


_FILES: dict[str, str | None] = {}


def file_of(code: CodeType) -> str | None:
    """The file of some code, from the package's folder on; None outside of it."""
    if code.co_filename not in _FILES:
        path = Path(code.co_filename)
        inside = path.is_relative_to(PACKAGE)
        _FILES[code.co_filename] = path.relative_to(PACKAGE).as_posix() if inside else None
    return _FILES[code.co_filename]


START = "start"
IMPORT = "import"
"""The chain of what runs while a module is imported: not shown."""


class Trace:
    """The calls made while it is open, in all threads."""

    def __init__(self) -> None:
        self.public = public_codes()
        self.chains: dict[str, dict[str, str]] = {START: {}}
        """For each chain its files in the order of the first visit, with the function visited."""
        self._owners: dict[FrameType, str] = {}
        self._generators: dict[FrameType, str] = {}
        self._threads: dict[threading.Thread, str] = {}

    @property
    def files(self) -> list[str]:
        """All files in which a function ran."""
        return list(dict.fromkeys(file for chain in self.chains.values() for file in chain))

    def __enter__(self) -> Trace:
        self._start = threading.Thread.start
        trace, start = self, threading.Thread.start

        def noted(thread: threading.Thread) -> None:
            trace._threads[thread] = trace._owner(sys._getframe(1))[0]
            start(thread)

        threading.Thread.start = noted  # type: ignore[method-assign]
        threading.setprofile(self._event)
        sys.setprofile(self._event)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
        threading.Thread.start = self._start  # type: ignore[method-assign]
        self.chains.pop(IMPORT, None)

    def _owner(self, frame: FrameType | None) -> tuple[str, str | None]:
        """The chain of the nearest caller inside the package, and that caller's room."""
        while frame is not None:
            if frame in self._owners:
                file = file_of(frame.f_code)
                return self._owners[frame], room_of(file) if file else None
            frame = frame.f_back
        return self._threads.get(threading.current_thread(), START), None

    def _event(self, frame: FrameType, event: str, value: object) -> None:
        if event == "return" and frame in self._owners:
            owner = self._owners.pop(frame)
            if isinstance(value, GeneratorType) and value.gi_frame is not None:
                # Whoever runs it later: it belongs to the function that has made it.
                self._generators.setdefault(value.gi_frame, owner)
        if event != "call" or (file := file_of(frame.f_code)) is None:
            return
        owner, caller = self._owner(frame.f_back)
        code = frame.f_code
        if frame in self._generators:
            owner = self._generators[frame]
        if code.co_name == "<module>" or file == "lazy.py":
            owner = IMPORT
        self._owners[frame] = owner
        if owner == IMPORT or not code.co_flags & inspect.CO_OPTIMIZED:
            return
        self.chains[owner].setdefault(file, code.co_qualname)
        door = self.public.get(code)
        if (
            door is not None
            and frame not in self._generators
            and caller not in (None, room_of(file))
        ):
            self._owners[frame] = door
            self.chains.setdefault(door, {}).setdefault(file, code.co_qualname)


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

    config = settings("tag", "run.epochs=1")
    with Trace() as trace:
        elmokit.tasks.fit(
            "tag",
            TAGGED,
            TAGGED,
            elmo="test-tiny",
            config=config,
            output=folder / "tagger",
            device="cpu",
            quiet=True,
        )
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


def show(name: str, trace: Trace) -> None:
    """Print a trace for people."""
    chain = trace.chains[START]
    print(f"{name}: {len(trace.files)} files in all, {len(chain)} in the chain")
    for door, files in trace.chains.items():
        print(f"\n  {'the chain' if door == START else f'below {door}'}: {len(files)} files")
        for file, function in files.items():
            print(f"    {file:34} {function}")
    print()


def main(arguments: list[str]) -> None:
    """Print the traces of the scenes named, of all when none is; `--json` prints only files."""
    as_json = "--json" in arguments
    counts = {}
    for scene in [argument for argument in arguments if argument != "--json"] or SCENES:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            found = list(traces(scene))
        for name, trace in found:
            counts[name] = {"files": trace.files, "chain": list(trace.chains[START])}
            if not as_json:
                show(name, trace)
    if as_json:
        print(json.dumps(counts))


if __name__ == "__main__":
    main(sys.argv[1:])
