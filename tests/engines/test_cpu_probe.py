"""What the CPU runs, with children that live and children that die."""

import json

import pytest

import elmokit
from elmokit.engines import cpu, cpu_probe
from elmokit.engines.cpu_probe import LIMIT
from elmokit.errors import ConfigError

SIGILL = -4


@pytest.fixture
def children(monkeypatch, tmp_path):
    """No answer known yet, no limit set; `children` says how they end and notes what was asked."""

    class Children:
        def __init__(self):
            self.ends = {}
            self.asked = []

        def run(self, limit):
            self.asked.append(limit)
            return self.ends.get(limit, (SIGILL, []))

    found = Children()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv(LIMIT, "")  # so that what a test sets is undone
    monkeypatch.delenv(LIMIT)
    monkeypatch.setattr(cpu_probe, "run_child", found.run)
    monkeypatch.setattr(cpu, "_prepacked_any", False)
    cpu_probe.probe.cache_clear()
    cpu_probe._fingerprint.cache_clear()
    yield found
    cpu_probe.probe.cache_clear()
    cpu_probe._fingerprint.cache_clear()


def test_real_child_gives_an_answer(monkeypatch, tmp_path):
    code, found = cpu_probe.run_child(None)
    assert set(found) <= {"bfloat16", "int8"}
    assert code == 0 or code < 0  # it ended well, or was killed by its CPU


def test_child_that_lives_needs_no_limit(children):
    children.ends[None] = 0, ["bfloat16", "int8"]
    cpu_probe.prepare("int8")
    assert cpu_probe.probe() == cpu_probe.Support(("float32", "bfloat16", "int8"), None)
    assert children.asked == [None]


def test_child_that_dies_is_followed_by_one_held_back(children, monkeypatch):
    children.ends["AVX512_CORE_BF16"] = 0, ["bfloat16", "int8"]
    cpu_probe.prepare("bfloat16")
    assert children.asked == [None, "AVX512_CORE_BF16"]
    assert cpu_probe.os.environ[LIMIT] == "AVX512_CORE_BF16"


def test_nothing_is_supported_when_all_die(children):
    with pytest.raises(ConfigError, match=r"precision='int8': .* it runs float32$"):
        cpu_probe.prepare("int8")
    assert len(children.asked) == 1 + len(cpu_probe.LIMITS)
    cpu_probe.prepare("float32")


def test_precision_that_did_not_pass_is_refused_with_those_that_did(children):
    children.ends[None] = 0, ["int8"]
    with pytest.raises(ConfigError, match="it runs float32 and int8"):
        cpu_probe.prepare("bfloat16")


def test_limit_of_the_user_is_the_only_one_tried(children, monkeypatch):
    monkeypatch.setenv(LIMIT, "AVX2")
    with pytest.raises(ConfigError):
        cpu_probe.prepare("int8")
    assert children.asked == [None]


def test_answer_is_kept_between_processes(children, tmp_path):
    children.ends["AVX512_CORE_VNNI"] = 0, ["int8"]
    cpu_probe.prepare("int8")
    asked = len(children.asked)
    cpu_probe.probe.cache_clear()  # as in another process
    del cpu_probe.os.environ[LIMIT]
    cpu_probe.prepare("int8")
    assert cpu_probe.os.environ[LIMIT] == "AVX512_CORE_VNNI"
    assert cpu_probe.probe().precisions == ("float32", "int8")
    assert len(children.asked) == asked


def test_float32_needs_no_answer_and_changes_no_environment(children, monkeypatch):
    children.ends["AVX512_CORE_VNNI"] = 0, ["int8"]
    cpu_probe.prepare("int8")  # the answer is known from here on
    monkeypatch.delenv(LIMIT)
    cpu_probe.probe.cache_clear()
    monkeypatch.setattr(cpu_probe, "_read_answer", lambda: pytest.fail("it was read"))
    before = dict(cpu_probe.os.environ)
    elmokit.load("test-tiny").encode([["a", "word"]])
    assert dict(cpu_probe.os.environ) == before
    assert not cpu_probe.probe.cache_info().currsize


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"precisions": 3, "limit": null}', '{"precisions": ["float32"]}']
)
def test_damaged_answer_is_asked_for_again(children, tmp_path, text):
    children.ends[None] = 0, ["int8"]
    path = cpu_probe._answer_file()
    path.parent.mkdir(parents=True)
    path.write_text(text, "utf-8")
    cpu_probe.prepare("int8")
    assert children.asked == [None]
    assert json.loads(path.read_text("utf-8"))["precisions"] == ["float32", "int8"]


def test_folder_that_cannot_be_written_to_does_no_harm(children, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("", "utf-8")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    children.ends[None] = 0, ["int8"]
    cpu_probe.prepare("int8")
    assert cpu_probe.probe().precisions == ("float32", "int8")
    assert children.asked == [None]
    assert [path.name for path in tmp_path.rglob("*")] == ["file"]
    assert (tmp_path / "file").read_text("utf-8") == ""


def test_limit_found_too_late_is_said(children, monkeypatch):
    children.ends["AVX512_CORE_BF16"] = 0, ["bfloat16", "int8"]
    monkeypatch.setattr(cpu, "_prepacked_any", True)
    with pytest.raises(ConfigError, match="too late in this process; set the variable"):
        cpu_probe.prepare("int8")


def test_unknown_precision_is_named(children):
    with pytest.raises(ConfigError, match="precision='float64'"):
        cpu_probe.prepare("float64")
    assert children.asked == []


def test_user_without_a_home_does_no_harm(children, monkeypatch):
    monkeypatch.delenv("XDG_CACHE_HOME")

    def no_home():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(cpu_probe.Path, "home", no_home)
    children.ends[None] = 0, ["int8"]
    cpu_probe.prepare("int8")
    assert children.asked == [None]
