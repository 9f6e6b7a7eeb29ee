"""No test of this folder may leave anything where archives are unpacked."""

import tempfile

import pytest


@pytest.fixture(autouse=True)
def unpacking_place(tmp_path_factory, monkeypatch):
    """A temporary folder of the test's own, which must be empty again at its end."""
    place = tmp_path_factory.mktemp("unpacked")
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    yield place
    assert [path.name for path in place.iterdir()] == []
