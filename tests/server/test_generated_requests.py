"""Requests generated from the OpenAPI document: none of them breaks the service."""

from __future__ import annotations

import importlib

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from elmokit.server.settings import Limits

# Otherwise it is imported, and rewritten by pytest, while the server's threads run: Python 3.11
# cannot always parse in several threads.
importlib.import_module("schemathesis.specs.openapi.schemas")

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]


def fire(address: str, examples: int) -> dict[int, int]:
    """Send so many valid and as many invalid requests to each route; counts by status."""
    schema = schemathesis.openapi.from_url(f"{address}/openapi.json")
    counts: dict[int, int] = {}
    session = requests.Session()
    for found in schema.get_all_operations():
        operation = found.ok()
        for mode in schemathesis.GenerationMode:
            if mode.is_negative and operation.method.upper() == "GET":
                continue  # there is nothing in them that could be wrong

            @settings(
                max_examples=examples,
                phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
                deadline=None,
            )
            @given(case=operation.as_strategy(generation_mode=mode))
            def send(case):
                answer = case.call(session=session, timeout=60)
                counts[answer.status_code] = counts.get(answer.status_code, 0) + 1
                case.validate_response(answer, checks=CHECKS)

            send()
    return counts


@pytest.mark.filterwarnings("default")  # those of the generators are not ours
@pytest.mark.parametrize(
    ("examples", "least"), [(25, 300), pytest.param(400, 5000, marks=pytest.mark.slow)]
)
def test_generated_requests_never_break_the_service(serve, examples, least):
    # Small limits, so that what is over them is generated, too.
    limits = Limits(tokens=200, sentences=8, word_characters=40, answer_numbers=4000)
    with serve(limits=limits) as live:
        counts = fire(live.address, examples)
        assert requests.get(f"{live.address}/readyz", timeout=10).status_code == 200
    print(counts)
    assert sum(counts.values()) >= least
    assert counts[200] > least // 20
    assert {status // 100 for status in counts} <= {2, 4}
