"""Each integration names the missing extra."""

import importlib
import sys

import pytest

from elmokit.errors import MissingExtraError


@pytest.mark.parametrize(
    ("plugin", "library", "extra"),
    [
        ("sklearn", "sklearn", "sklearn"),
        ("spacy", "spacy", "spacy"),
        ("hf", "transformers", "hf"),
        ("keras", "keras", "keras"),
    ],
)
def test_integration_names_the_extra_that_it_needs(monkeypatch, plugin, library, extra):
    for name in list(sys.modules):
        if name == library or name.startswith((f"{library}.", "elmokit.integrations.")):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(MissingExtraError, match=rf"elmokit\[{extra}\]"):
        importlib.import_module(f"elmokit.integrations.{plugin}")
