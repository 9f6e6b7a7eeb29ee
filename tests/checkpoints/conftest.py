"""No test of this folder may leave anything where archives are unpacked."""

import tempfile

import pytest
import torch


@pytest.fixture(autouse=True)
def unpacking_place(tmp_path_factory, monkeypatch):
    """A temporary folder of the test's own, which must be empty again at its end."""
    place = tmp_path_factory.mktemp("unpacked")
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    yield place
    assert [path.name for path in place.iterdir()] == []


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    """The models are tiny: threads would only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
