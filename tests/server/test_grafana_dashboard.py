"""deploy/grafana-dashboard.json shows metrics that the service exports, and all of them."""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
import time
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import requests
from prometheus_client.parser import text_string_to_metric_families
from services import Live

from elmokit.server.app import create_app
from elmokit.server.server import bind_socket

DASHBOARD: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "deploy" / "grafana-dashboard.json").read_text("utf-8")
)
PANELS = DASHBOARD["panels"]
VARIABLES = {one["name"]: one for one in DASHBOARD["templating"]["list"]}
EXPRESSIONS = [target["expr"] for panel in PANELS for target in panel["targets"]]
QUERIES = [one["definition"] for one in VARIABLES.values() if one["type"] == "query"]
KINDS = {"stat", "timeseries", "heatmap"}
SCRAPED = {"instance", "job"}
"""Labels that Prometheus adds."""


def some_requests(live: Live) -> None:
    for path, body in {
        "/v1/encode": {"sentences": ["the cat"]},
        "/v1/embeddings": {"input": "the cat"},
        "/v1/score": {"sentences": "wrong"},
    }.items():
        requests.post(live.address + path, json=body, timeout=60)


@pytest.fixture(scope="module")
def exported(registry) -> dict[str, set[str]]:
    """Names of all samples after a few requests, with their labels."""
    with Live(create_app(registry)) as live:
        some_requests(live)
        text = requests.get(f"{live.address}/metrics", timeout=60).text
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


@pytest.mark.parametrize("expression", [*EXPRESSIONS, *QUERIES])
def test_expressions_use_exported_metrics_and_labels(exported, expression):
    bare = re.sub(r'"[^"]*"', '""', expression)
    names = set(re.findall(r"\belmokit_\w+", bare))
    assert names
    assert names <= set(exported)
    selectors = re.findall(r"(elmokit_\w+)\{([^}]*)\}", bare)
    assert len(selectors) == bare.count("elmokit_") or expression in QUERIES
    for name, selector in selectors:
        labels = set(re.findall(r"(\w+)\s*(?:=~|=|!=|!~)", selector))
        assert labels <= exported[name] | SCRAPED
        assert "instance" in labels
    for grouping in re.findall(r"\bby \(([^)]*)\)", bare):
        labels = set(re.findall(r"\w+", grouping))
        assert all(labels <= exported[name] | SCRAPED for name in names)
    if expression in QUERIES:
        label = re.fullmatch(r"label_values\(\w+, (\w+)\)", expression)[1]
        assert label in exported[names.pop()] | SCRAPED


def test_a_histogram_keeps_its_buckets():
    for expression in EXPRESSIONS:
        if "_bucket" in expression:
            assert re.search(r"\bby \([^)]*\ble\b[^)]*\)", expression), expression


def test_every_metric_is_shown(exported):
    base = re.compile(r"_(bucket|sum|count|created)$")
    shown = {base.sub("", name) for e in EXPRESSIONS for name in re.findall(r"elmokit_\w+", e)}
    assert shown == {base.sub("", name) for name in exported if not name.endswith("_created")}


def test_variables_are_defined_and_used():
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(PANELS)))
    assert used - {"__rate_interval"} == set(VARIABLES)
    assert VARIABLES["datasource"]["type"] == "datasource"
    assert VARIABLES["datasource"]["query"] == "prometheus"
    own = {"type": "prometheus", "uid": "${datasource}"}
    sources = [one["datasource"] for panel in PANELS for one in (panel, *panel["targets"])]
    sources += [one["datasource"] for one in VARIABLES.values() if one["type"] == "query"]
    assert all(source == own for source in sources)


def test_panels_are_complete_and_do_not_overlap():
    assert (DASHBOARD["id"], DASHBOARD["schemaVersion"]) == (None, 39)
    assert (
        len({panel["id"] for panel in PANELS}) == len({p["title"] for p in PANELS}) == len(PANELS)
    )
    assert {panel["type"] for panel in PANELS} == KINDS
    for panel in PANELS:
        references = [target["refId"] for target in panel["targets"]]
        assert references
        assert len(set(references)) == len(references)
        assert panel["fieldConfig"]["defaults"]["unit"]
        spot = panel["gridPos"]
        assert spot["x"] + spot["w"] <= 24
    for a, b in combinations((panel["gridPos"] for panel in PANELS), 2):
        apart = [a[s] + a[n] <= b[s] or b[s] + b[n] <= a[s] for s, n in (("x", "w"), ("y", "h"))]
        assert any(apart)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("prometheus") is None, reason="prometheus is not installed")
def test_prometheus_answers_every_expression(registry, tmp_path):
    with bind_socket("127.0.0.1", 0) as sock:
        address = f"127.0.0.1:{sock.getsockname()[1]}"
    with Live(create_app(registry)) as live:
        targets = [live.address.removeprefix("http://")]
        config = {
            "global": {"scrape_interval": "1s"},
            "scrape_configs": [{"job_name": "elmokit", "static_configs": [{"targets": targets}]}],
        }
        (tmp_path / "prometheus.yml").write_text(json.dumps(config))
        command = ["prometheus", f"--web.listen-address={address}", "--log.level=error"]
        command += ["--config.file=prometheus.yml", "--storage.tsdb.path=data"]
        with subprocess.Popen(command, cwd=tmp_path) as process:
            try:
                for _ in range(12):
                    some_requests(live)
                    time.sleep(1)
                for expression in EXPRESSIONS:
                    query = expression.replace("$__rate_interval", "10s")
                    query = re.sub(r"\$(instance|route)", ".*", query)
                    answer = requests.get(
                        f"http://{address}/api/v1/query", {"query": query}, timeout=60
                    ).json()
                    assert answer["status"] == "success", (query, answer)
                    found = answer["data"]["result"]
                    assert found, query
                    assert all(math.isfinite(float(one["value"][1])) for one in found), query
            finally:
                process.terminate()
