"""A task that is added as a folder works everywhere, without another edit."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from services import client_of

import elmokit
from elmokit.cli import main
from elmokit.errors import ConfigError
from elmokit.server.registry import ModelRegistry

pytestmark = pytest.mark.usefixtures("no_pictures")

SAMPLES = '''"""The example of `tone` and its fields."""

from dataclasses import dataclass

from elmokit.tasks.files import Field, LabelField, Records, TextField


@dataclass(frozen=True)
class Remark:
    tokens: tuple[str, ...]
    speaker: str
    tone: str | None = None
    text: str | None = None


RECORDS = Records(
    Remark,
    (TextField("text", "remark", tokens="tokens"), Field("speaker", "who"), LabelField("tone")),
)
'''
TASK = '''"""`tone`: in which tone somebody speaks."""

from dataclasses import dataclass, field, replace

import torch
from torch import nn
from torch.nn import functional as F

from elmokit.tasks.config import TaskConfig
from elmokit.tasks.model import mean_pooling
from elmokit.tasks.task import known_classes
from elmokit.tasks.task import all_of, score_labels
from elmokit.tasks.task import FormField, Head, Task

from .samples import RECORDS, Remark


@dataclass(frozen=True, kw_only=True)
class ToneHeadConfig:
    hidden: int = 8


@dataclass(frozen=True, kw_only=True)
class ToneConfig(TaskConfig):
    head: ToneHeadConfig = field(default_factory=ToneHeadConfig)


class ToneHead(Head):
    def __init__(self, config, tones, widths):
        super().__init__()
        self.tones = tones
        self.layers = nn.Sequential(
            nn.Linear(widths.input + 1, config.head.hidden),
            nn.Tanh(),
            nn.Linear(config.head.hidden, len(tones)),
        )

    def scores(self, batch):
        pooled = mean_pooling(batch.sides[0].vectors, batch.sides[0].mask)
        loud = [[float(example.speaker.isupper())] for example in batch.examples]
        return self.layers(torch.cat([pooled, torch.tensor(loud)], dim=1))

    def loss(self, batch):
        targets = [self.tones.index(example.tone) for example in batch.examples]
        return F.cross_entropy(self.scores(batch), torch.tensor(targets))

    def predict(self, batch):
        best = self.scores(batch).argmax(dim=1).tolist()
        return [replace(e, tone=self.tones[i]) for e, i in zip(batch.examples, best)]


class Tone(Task):
    name = "tone"
    config_type = ToneConfig
    records = RECORDS
    formats = (RECORDS.jsonl(), *RECORDS.tables())
    takes = "[text, speaker]"
    item_type = tuple[str, str]
    item = "[text, speaker]"
    form = (
        FormField("remark", "text", "What was said", "stop that"),
        FormField("who", "line", "By whom"),
    )

    def texts(self, example):
        return (example.tokens,)

    def learn(self, examples, config):
        return {"tones": list(known_classes(example.tone for example in examples))}

    def make_head(self, config, learned, widths):
        return ToneHead(config, learned["tones"], widths)

    def score(self, gold, predicted, config=None, learned=None):
        return score_labels(all_of(gold, "tone"), all_of(predicted, "tone"))

    def from_item(self, item, tokenize):
        match item:
            case (str(text), str(speaker)):
                return Remark(tokenize(text), speaker, None, text)
        return None

    def answer(self, example):
        return {"tone": example.tone}


TASK = Tone()
'''


@pytest.fixture
def tasks(tmp_path, monkeypatch):
    """A folder of tasks; what is imported from it is forgotten afterwards."""
    folder = tmp_path / "my-tasks"
    (folder / "tone").mkdir(parents=True)
    (folder / "tone" / "task.py").write_text(TASK, "utf-8")
    (folder / "tone" / "samples.py").write_text(SAMPLES, "utf-8")
    monkeypatch.setattr(elmokit.tasks, "__path__", [*elmokit.tasks.__path__])
    yield folder
    for name in [name for name in sys.modules if name.startswith("elmokit.tasks.tone")]:
        del sys.modules[name]


@pytest.fixture
def files(tasks, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    elmokit.tasks.register(tasks)
    rows = [("it is quiet here", "anna", "calm"), ("stop that now", "BOB", "angry")] * 10
    (tmp_path / "train.csv").write_text(
        "remark,who,tone\n" + "".join(",".join(row) + "\n" for row in rows), "utf-8"
    )
    (tmp_path / "dev.jsonl").write_text(
        "".join(
            json.dumps({"text": text, "speaker": who, "tone": tone}) + "\n"
            for text, who, tone in rows[:4]
        ),
        "utf-8",
    )
    command = ["train", "tone", "--train", "train.csv", "--dev", "dev.jsonl", "-o", "out"]
    small = ["--model", "test-tiny", "--epochs", "8", "--set", "optimizer.lr=0.05"]
    assert main([*command, *small, "--device", "cpu"]) == 0
    return tmp_path


def test_commands_know_it(files, capsys):
    capsys.readouterr()
    assert main(["evaluate", "out", "dev.jsonl", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["accuracy"] == 1
    assert main(["predict", "out", "train.csv", "--field", "speaker=who"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines[:2] == [
        {"text": "it is quiet here", "who": "anna", "tone": "calm"},
        {"text": "stop that now", "who": "BOB", "tone": "angry"},
    ]
    assert main(["predict", "out", "dev.jsonl", "-o", "answers.tsv"]) == 0
    table = (files / "answers.tsv").read_text("utf-8").splitlines()
    assert table[:2] == ["text\tspeaker\ttone", "it is quiet here\tanna\tcalm"]


def test_the_server_and_its_page_know_it(files):
    predictor = elmokit.tasks.load("out")
    registry = ModelRegistry({"tiny": elmokit.load("test-tiny")}, {"mine": predictor})
    with client_of(registry) as client:
        (described,) = client.get("/v1/models").json()["predictors"]
        assert described["task"] == "tone"
        assert described["item"] == "[text, speaker]"
        assert described["form"] == [
            {
                "name": "remark",
                "kind": "text",
                "label": "What was said",
                "example": "stop that",
            },
            {"name": "who", "kind": "line", "label": "By whom", "example": ""},
        ]
        body = {"predictor": "mine", "items": [["stop that now", "BOB"]]}
        answer = client.post("/v1/predict", json=body)
        assert [item["answer"] for item in answer.json()["items"]] == [{"tone": "angry"}]
        refused = client.post("/v1/predict", json={"predictor": "mine", "items": ["stop"]})
        assert (refused.status_code, refused.json()["detail"]) == (
            422,
            "items.0: tone takes [text, speaker]",
        )


def test_the_environment_names_folders_of_tasks(tasks):
    code = (
        "import sys, elmokit.cli\n"
        "status = elmokit.cli.main(['train', '--help'])\n"
        "assert 'torch' not in sys.modules\n"
        "sys.exit(status)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "ELMOKIT_TASKS": str(tasks)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    listed = " ".join(done.stdout.replace("│", " ").split())
    assert "tone: in which tone somebody speaks." in listed
    for name in elmokit.tasks.task_names():
        assert f"{name}: " in listed


def test_a_folder_without_tasks_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"no task there; a task is a folder in it that holds"):
        elmokit.tasks.register(tmp_path)


def test_built_in_names_keep_their_meaning(tasks):
    (tasks / "tag").mkdir()
    (tasks / "tag" / "task.py").write_text("raise AssertionError\n", "utf-8")
    elmokit.tasks.register(tasks)
    assert elmokit.tasks.task_names().count("tag") == 1
    assert elmokit.tasks.get_task("tag").__module__ == "elmokit.tasks.tag.task"
    with pytest.raises(ConfigError, match=r"no task 'tine'. Did you mean 'tone'\? Tasks: classify"):
        elmokit.tasks.get_task("tine")
