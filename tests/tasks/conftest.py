from __future__ import annotations

import pytest

from elmokit.tasks import read_examples


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
