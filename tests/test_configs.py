"""The files in configs are the presets, setting for setting, and the recipes of our own models."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

import elmokit
from elmokit.config import to_dict
from elmokit.training import PRESETS, settings_for

CONFIGS = Path(__file__).parents[1] / "configs"
PLACES = {"corpus", "output"}
"""Where from and where to: the command line says it, a recipe does not."""


RECIPES = ["medium-en", "small-en", "small-zh"]


def test_every_preset_has_its_file():
    assert {path.stem for path in CONFIGS.glob("*.toml")} == {*PRESETS, *RECIPES}


@pytest.mark.parametrize("name", ["small-en", "small-zh"])
def test_recipe_of_an_embedded_model_is_what_made_it(name):
    recipe = settings_for("tiny", CONFIGS / f"{name}.toml")
    model = elmokit.load(name, softmax=False)
    assert model.config == recipe.model


@pytest.mark.parametrize("base", PRESETS)
@pytest.mark.parametrize("name", PRESETS)
def test_config_is_its_preset_whatever_it_changes(name, base):
    assert settings_for(base, CONFIGS / f"{name}.toml") == PRESETS[name]


@pytest.mark.parametrize("name", [*PRESETS, *RECIPES])
def test_config_names_every_setting(name):
    def names(table: dict[str, object], path: str = "") -> set[str]:
        found: set[str] = set()
        for key, value in table.items():
            found |= names(value, f"{path}{key}.") if isinstance(value, dict) else {path + key}
        return found

    written = tomllib.loads((CONFIGS / f"{name}.toml").read_text("utf-8"))
    whole = settings_for("tiny", CONFIGS / f"{name}.toml")
    assert names(written) == names(to_dict(whole)) - PLACES


@pytest.mark.parametrize("name", [*PRESETS, *RECIPES])
def test_config_is_taken_as_written(name):
    """Each is a change of a preset, as `elmokit pretrain --config` takes it."""

    def assert_taken(given: dict[str, object], taken: dict[str, object], where: str) -> None:
        for key, value in given.items():
            if isinstance(value, dict):
                assert_taken(value, taken[key], f"{where}.{key}")
            else:
                assert taken[key] == value, f"{where}.{key}"

    path = CONFIGS / f"{name}.toml"
    assert_taken(tomllib.loads(path.read_text("utf-8")), to_dict(settings_for("tiny", path)), name)
