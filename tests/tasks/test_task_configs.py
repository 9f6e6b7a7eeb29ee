"""Every recipe of a task is read by the task that its name begins with."""

from __future__ import annotations

import tomllib

import pytest

from elmokit.config import dumps_toml, loads_toml, recipes, to_dict
from elmokit.errors import ConfigError
from elmokit.tasks import get_task, task_names
from elmokit.tasks.fit import task_settings

RECIPES = list(recipes("tasks").values())


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_recipe_changes_its_task(path):
    task = path.stem.partition("-")[0]
    settings = task_settings(task, path.stem)
    assert settings == task_settings(task, path)
    assert settings != task_settings(task, None)

    def contains(whole: dict[str, object], part: dict[str, object]) -> bool:
        return all(
            contains(whole[name], value) if isinstance(value, dict) else whole[name] == value
            for name, value in part.items()
        )

    assert contains(to_dict(settings), tomllib.loads(path.read_text("utf-8")))
    assert f"elmokit train {task} " in path.read_text("utf-8")


@pytest.mark.parametrize("task", task_names())
def test_settings_go_to_toml_and_back(task):
    kind = get_task(task).config_type
    assert loads_toml(kind, dumps_toml(kind())) == kind()


def test_none_is_a_word_where_it_is_a_choice():
    assert task_settings("tag", None, ["head.scheme=none"]).head.scheme == "none"
    weights = ["head.loss.class_weights=balanced", "head.loss.class_weights=none"]
    assert task_settings("classify", None, weights).head.loss.class_weights == "none"
    changed = task_settings("tag", None, ["run.epochs=3", "run.epochs=none"])
    assert changed == task_settings("tag", None)  # elsewhere it takes a setting out
    with pytest.raises(ConfigError, match="unknown field 'colour'"):
        task_settings("tag", None, ["head.colour.tone=1", "head.colour.tone=none"])


@pytest.mark.parametrize("size", ["inf", "nan"])
def test_store_has_a_size(size):
    with pytest.raises(ConfigError, match="store_gb"):
        task_settings("tag", None, [f"inputs.store_gb={size}"])
