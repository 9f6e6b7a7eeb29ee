"""docs/server.md: its commands run, its Python prints what it says, its tables are complete."""

from __future__ import annotations

import configparser
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from pages import ROOT, commands, page_text, run_page
from services import Live

from elmokit.cli import app as command_line
from elmokit.cli import main
from elmokit.server.app import create_app
from elmokit.server.metrics import Metrics
from elmokit.server.registry import ModelRegistry
from elmokit.server.settings import Limits

PAGE = "docs/server.md"
TEXT = page_text(PAGE)
COMMANDS = [command.line for command in commands(PAGE)]
ADDRESS = "http://127.0.0.1:8000"


@pytest.fixture(scope="module")
def live(model, predictors):
    with Live(
        create_app(ModelRegistry({"my-model": model}, {"sentiment": predictors["classify"]}))
    ) as found:
        yield found


def test_python_prints_what_the_page_says(live, capsys, monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")  # OpenAI's client asks the environment
    replaced = (ADDRESS, live.address)
    run_page(PAGE, capsys.readouterr, replaced=replaced, run_commands=False)


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
@pytest.mark.parametrize("command", [c for c in COMMANDS if c.startswith("curl ")])
def test_curl_lines_are_answered(live, command, tmp_path):
    words = shlex.split(command.replace(ADDRESS, live.address))
    done = subprocess.run(
        [*words, "--fail", "--noproxy", "*"], cwd=tmp_path, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout or (tmp_path / "vectors.npy").stat().st_size > 128


def test_every_route_has_a_curl_line(client):
    routes = set(client.get("/openapi.json").json()["paths"])
    curls = {re.search(rf"{ADDRESS}(/\S*)", c)[1] for c in COMMANDS if c.startswith("curl ")}
    named = {route.replace("{model}", "my-model") for route in routes}
    assert curls == named | {"/openapi.json"}
    assert all(f" {route}`" in TEXT for route in routes)


def parses(arguments: list[str]) -> None:
    call, _, _ = command_line.parse_args(["serve", *arguments], exit_on_error=False)
    assert call.__name__ == "serve"


def test_commands_of_the_page_are_possible_calls():
    served = [shlex.split(c)[2:] for c in COMMANDS if c.startswith("elmokit serve")]
    assert len(served) == 2
    for arguments in served:
        parses(arguments)
    (module,) = (shlex.split(c)[2] for c in COMMANDS if c.startswith("python -m "))
    assert (ROOT / module.replace(".", "/")).with_suffix(".py").is_file()


def test_options_and_defaults_are_those_of_the_command():
    arguments = command_line["serve"].assemble_argument_collection(
        default_parameter=command_line.default_parameter
    )
    options = {name for a in arguments for name in a.names if name.startswith("--")}
    assert {name for name in options if f"`{name}`" not in TEXT} == set()
    limits = Limits()
    for option, value in {
        "max-body": limits.body_bytes,
        "max-sentences": limits.sentences,
        "max-tokens": limits.tokens,
        "max-sentence-tokens": limits.sentence_tokens,
        "max-word": limits.word_characters,
        "max-numbers": limits.answer_numbers,
        "max-memory": limits.memory_bytes,
        "max-connections": limits.connections,
        "queue-requests": limits.queue_requests,
        "queue-tokens": limits.queue_tokens,
        "timeout": limits.seconds,
        "idle-timeout": limits.idle_seconds,
        "batch-tokens": limits.batch_tokens,
        "wait-ms": limits.wait_ms,
    }.items():
        assert f"| `--{option}` | {value} |" in TEXT


def test_metrics_of_the_page_are_those_of_the_service():
    metrics = Metrics()
    found = re.findall(r"^# TYPE (\S+) (?:counter|gauge|histogram)$", metrics.text().decode(), re.M)
    real = {name for name in found if not name.endswith("_created")}
    assert set(re.findall(r"`(elmokit_\w+)`", TEXT)) == real


def test_help_has_examples(capsys):
    assert main(["serve", "--help"]) == 0
    assert "elmokit serve --model" in capsys.readouterr().out.partition("Examples:")[2]


def test_container_and_unit_call_the_command_as_it_is():
    dockerfile = (ROOT / "deploy" / "Dockerfile").read_text("utf-8")
    entry = yaml.safe_load(re.search(r"^ENTRYPOINT (.*)$", dockerfile, flags=re.M)[1])
    assert entry[:2] == ["elmokit", "serve"]
    for names in re.findall(r"^COPY (?!--from)(.*) \S+$", dockerfile, flags=re.M):
        assert all((ROOT / name).exists() for name in names.split())
    compose = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text("utf-8"))
    for service in compose["services"].values():
        parses([*entry[2:], *service["command"]])
        assert (ROOT / "deploy" / service["build"]["context"] / "deploy" / "Dockerfile").is_file()
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str
    unit.read(ROOT / "deploy" / "elmokit.service")
    program, verb, *arguments = unit["Service"]["ExecStart"].split()
    assert (Path(program).name, verb) == ("elmokit", "serve")
    parses(arguments)
    # Longer than the service takes at most to finish.
    longest = 2 * Limits().seconds + 5
    assert int(unit["Service"]["TimeoutStopSec"]) > longest
    assert all(
        int(service["stop_grace_period"].removesuffix("s")) > longest
        for service in compose["services"].values()
    )
