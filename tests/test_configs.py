"""The recipes inside the package: whole, taken as written, known by name."""

from __future__ import annotations

import tomllib

import pytest

import elmokit
from elmokit.cli import main
from elmokit.config import RECIPES as CONFIGS
from elmokit.config import recipe_file, recipes, to_dict
from elmokit.errors import ConfigError
from elmokit.tasks import task_settings
from elmokit.training import PRESETS, settings_for

PLACES = {"corpus", "output"}
"""Where from and where to: the command line says it, a recipe does not."""


def test_presets_are_known_by_name():
    assert list(PRESETS)[:5] == ["tiny", "small", "medium", "original", "paper"]
    assert set(PRESETS) == {path.stem for path in CONFIGS.glob("*.toml")}
    assert {"babylm-10m", "babylm-100m", "medium-en", "small-en", "small-zh"} < set(PRESETS)


def test_recipe_is_a_name_or_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tag-ner").mkdir()  # an output of that name does not hide the recipe
    assert recipe_file("tag-ner", "tasks") == recipes("tasks")["tag-ner"]
    assert settings_for("tiny", "small-en") == PRESETS["small-en"]
    (tmp_path / "small-en.toml").write_text("[run]\nmax_steps = 7\n", "utf-8")
    assert settings_for("tiny", "small-en.toml").run.max_steps == 7
    with pytest.raises(ConfigError, match=r"tag-nre: neither a TOML file nor one of .*tag-ner"):
        recipe_file("tag-nre", "tasks")


def test_recipes_lists_and_prints_them(capsys):
    assert main(["recipes"]) == 0
    listed = capsys.readouterr().out
    for name in (*recipes(), *recipes("tasks")):
        line = next(line for line in listed.splitlines() if line.split()[0] == name)
        assert len(line.split()) > 3, "says what it is"
        assert main(["recipes", name]) == 0
        assert tomllib.loads(capsys.readouterr().out)
    assert main(["recipes", "nonsense"]) == 1
    said = capsys.readouterr().err
    assert "tag-ner" in said
    assert "small-en" in said


def test_recipe_of_another_task_is_refused_by_name():
    with pytest.raises(ConfigError, match=r"^tag-ner: a recipe for 'tag', not for 'classify'$"):
        task_settings("classify", "tag-ner")


@pytest.mark.parametrize("name", ["small-en", "small-zh", "nano-en", "nano-zh"])
def test_recipe_of_an_embedded_model_is_what_made_it(name):
    recipe = settings_for("tiny", CONFIGS / f"{name}.toml")
    model = elmokit.load(name, softmax=False)
    assert model.config == recipe.model


@pytest.mark.parametrize("base", PRESETS)
@pytest.mark.parametrize("name", PRESETS)
def test_config_is_its_preset_whatever_it_changes(name, base):
    assert settings_for(base, CONFIGS / f"{name}.toml") == PRESETS[name]


@pytest.mark.parametrize("name", PRESETS)
def test_config_names_every_setting(name):
    def names(table: dict[str, object], path: str = "") -> set[str]:
        found: set[str] = set()
        for key, value in table.items():
            found |= names(value, f"{path}{key}.") if isinstance(value, dict) else {path + key}
        return found

    written = tomllib.loads((CONFIGS / f"{name}.toml").read_text("utf-8"))
    whole = settings_for("tiny", CONFIGS / f"{name}.toml")
    assert names(written) == names(to_dict(whole)) - PLACES


@pytest.mark.parametrize("name", PRESETS)
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
