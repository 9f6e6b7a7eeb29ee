"""No test of this folder may leave anything where archives are extracted."""

import tempfile

import pytest


@pytest.fixture(autouse=True)
def extraction_folder(tmp_path_factory, monkeypatch):
    """A temporary folder of the test's own, which must be empty again at its end."""
    folder = tmp_path_factory.mktemp("unpacked")
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    assert [path.name for path in folder.iterdir()] == []
