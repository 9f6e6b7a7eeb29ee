"""Progress of a run: a table in the terminal, and the same as JSON lines in a file."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

from elmokit.errors import MissingExtraError
from elmokit.files import disk_errors, write_text


class Display:
    """Progress of one run; visible in the main process alone.

    Without `visible` nothing is shown or written. `log` is a file of JSON lines; entries beyond the
    step a run is resumed from are dropped. `parts` names the losses that make up the loss, one
    column each.
    """

    def __init__(
        self,
        log: Path,
        *,
        visible: bool,
        tensorboard: Path | None = None,
        stream: TextIO | None = None,
        parts: Sequence[str] = ("forward", "backward"),
    ) -> None:
        self._log = log
        self._visible = visible
        self._stream = stream or sys.stderr
        self._parts = parts
        self._board: Any = None
        self._shown_head = False
        if visible and tensorboard is not None:
            try:
                from torch.utils.tensorboard import SummaryWriter
            except ImportError:
                raise MissingExtraError("tensorboard", "track", "Writing for TensorBoard") from None
            self._board = SummaryWriter(str(tensorboard))

    def note(self, text: str) -> None:
        """A line between the rows."""
        if self._visible:
            print(text, file=self._stream, flush=True)

    def resumed(self, step: int, last_eval_step: int) -> None:
        """The run is resumed after this step; the last evaluation may be of an earlier one."""
        self.note(f"resuming from step {step:,}")
        if self._visible:
            entries = read_log(self._log)
            last = {"heldout": last_eval_step}
            kept = [e for e in entries if e["step"] <= last.get(e["kind"], step)]
            write_text(self._log, "".join(json.dumps(entry) + "\n" for entry in kept))

    def steps(
        self,
        step: int,
        *,
        losses: Sequence[float],
        lr: float,
        tokens: int,
        tokens_per_second: float,
        eta: float,
    ) -> None:
        """A row of the table: the steps since the last row; `eta` in seconds."""
        loss = sum(losses) / len(losses)
        values = {"loss": loss, "rate": lr, "tokens_per_second": tokens_per_second}
        self._write("train", step, {**values, "losses": list(losses), "tokens": tokens})
        shares = [*losses, *[float("nan")] * len(self._parts)][: len(self._parts)]
        columns = {
            "step": f"{step:>9,}",
            "tokens": f"{short(tokens):>9}",
            "tokens/s": f"{tokens_per_second:>10,.0f}",
            "loss": f"{loss:>8.4f}",
            **{name: f"{share:>8.4f}" for name, share in zip(self._parts, shares, strict=True)},
            "lr": f"{lr:>9.2e}",
            "eta": f"{duration(eta):>8}",
        }
        if not self._shown_head:
            self.note(" ".join(f"{name:>{len(text)}}" for name, text in columns.items()))
            self._shown_head = True
        self.note(" ".join(columns.values()))

    def evaluation(self, step: int, measured: Mapping[str, Any], *, better: bool) -> None:
        """The result of an evaluation on held-out data; other values go to the log alone."""
        self._write("heldout", step, {**measured, "better": better})
        shown = {name: v for name, v in measured.items() if isinstance(v, int | float)}
        numbers = [f"{name} {value:.4g}" for name, value in shown.items() if name != "score"]
        best = " (best so far)" if better else ""
        self.note(f"{step:>9,} held-out: {', '.join(numbers)}{best}")

    def close(self) -> None:
        """Close what is being written."""
        if self._board is not None:
            self._board.close()

    def _write(self, kind: str, step: int, values: Mapping[str, Any]) -> None:
        if not self._visible:
            return
        entry = {"kind": kind, "step": step, "time": round(time.time(), 3), **values}
        with disk_errors(self._log), self._log.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")
        if self._board is not None:
            for name, value in values.items():
                if isinstance(value, float):
                    self._board.add_scalar(f"{kind}/{name}", value, step)


def read_log(path: Path) -> list[dict[str, Any]]:
    """Entries of a log; what is none, such as a line cut short by a kill, is skipped."""
    entries = []
    for line in path.read_bytes().splitlines() if path.is_file() else ():
        with suppress(ValueError, RecursionError):
            entries.append(json.loads(line))
    return [entry for entry in entries if _is_entry(entry)]


def _is_entry(entry: object) -> bool:
    if not isinstance(entry, dict) or type(entry.get("step")) is not int:
        return False
    number = {"train": "loss", "heldout": "score"}.get(str(entry.get("kind")), "")
    return isinstance(entry.get(number), int | float)


def short(count: float) -> str:
    """A count for a narrow column."""
    for unit in ("", " k", " M", " G"):
        if count < 1000:
            return f"{count:.4g}{unit}"
        count /= 1000
    return f"{count:.4g} T"


def duration(seconds: float) -> str:
    """Seconds, minutes or hours, for people."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 6000:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
