"""A short soak of the service: mixed traffic and faults. ``make soak`` runs it for longer."""

from __future__ import annotations

import asyncio
import sys

import pytest
from services import GOLDEN

from benchmarks.server.soak import command_of, describe, expect, soak

MODEL = GOLDEN / "tf-checkpoint" / "standard"


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_mixed_traffic_and_faults(standard, predictors, tmp_path):
    predictor = tmp_path / "predictor"
    predictors["classify"].save(predictor)
    expected = expect(standard, predictors["classify"])
    command = command_of(str(MODEL), predictor, "--idle-timeout", "2")
    outcome = asyncio.run(soak(command, expected, tmp_path, clients=20, seconds=10, pause=0.2))
    assert outcome.failures() == [], describe(outcome, 10, 20)
    assert outcome.rotations >= 5
    assert {"encode", "score", "similar", "predict", "page", "health"} < set(outcome.counts)
    assert len(outcome.counts) >= 12
    answered = sum(count.held - count.later for count in outcome.counts.values())
    assert answered > 100
    # What clients send is not in the log: a word of every sentence is enough.
    words = {word for sentence in expected.sentences for word in sentence if len(word) > 6}
    assert not any(f" {word} " in line for word in words for line in outcome.log)
