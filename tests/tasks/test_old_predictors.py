"""Predictors that the first layout of the package wrote are read, and answer as they did."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import elmokit
from elmokit.tasks.inputs.mixed import mix_keys, mix_name, parse_mix_name

FOLDER = Path(__file__).parents[1] / "golden" / "first-layout" / "predictors"
EXPECTED = json.loads((FOLDER / "expected.json").read_text("utf-8"))


@pytest.mark.parametrize("task", EXPECTED)
def test_answers_and_metrics_are_what_they_were(task):
    predictor = elmokit.tasks.load(FOLDER / task)
    examples = list(elmokit.tasks.read_examples(task, FOLDER / f"{task}.dev.jsonl"))
    metrics = predictor.evaluate(examples)
    assert {name: metrics[name] for name in EXPECTED[task]["metrics"]} == pytest.approx(
        EXPECTED[task]["metrics"], abs=1e-9
    )
    assert str(predictor.predict(examples)) == EXPECTED[task]["answers"]


def test_names_of_mixes_are_parsed_as_they_are_written():
    from safetensors import safe_open

    with safe_open(FOLDER / "tag" / "weights.safetensors", "np") as file:
        found = mix_keys(file.keys())
    assert set(found) == {"input", "input 2"}
    assert all(key.endswith(f"mixes.{name}.weights") for name, key in found.items())
    for position, model in (("input", 0), ("input", 1), ("output", 11), ("target", 0)):
        assert parse_mix_name(mix_name(position, model)) == (position, model)
    with pytest.raises(ValueError, match="not the name of a mix"):
        parse_mix_name("input-2")
