from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from elmokit.tasks.readers import read_examples


@pytest.fixture(autouse=True, scope="package")
def one_thread() -> Iterator[None]:
    """For models this small, threads only wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing takes longer than training here."""
    monkeypatch.setattr("elmokit.tasks.report.draw", lambda *_: False)


@pytest.fixture
def read(tmp_path):
    """Read a text as a file of that name."""

    def from_text(task, name, text, **options):
        path = tmp_path / name
        path.write_text(text, "utf-8")
        return list(read_examples(task, path, **options))

    return from_text
