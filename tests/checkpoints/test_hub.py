"""``hf:owner/name`` with the real client of the Hugging Face hub, against a hub on this machine."""

import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from golden_models import GOLDEN, assert_same_model, golden
from hubs import LocalService, point_client_at
from huggingface_hub import constants

import elmokit
from elmokit.errors import CheckpointError

COMMIT = "0123456789abcdef0123456789abcdef01234567"
STANDARD = golden("bilm-hdf5/standard")


class FakeHub(LocalService):
    """Serves folders as repositories, as much of the protocol as a download needs."""

    def __init__(self, repositories: dict[str, Path]) -> None:
        self.repositories = repositories
        self.requests: list[str] = []
        self.gated = False
        """List the files, but do not give them out."""
        hub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                hub.answer(self, with_body=True)

            def do_HEAD(self) -> None:
                hub.answer(self, with_body=False)

            def log_message(self, *_args: object) -> None:
                pass

        self.serve(Handler)

    def answer(self, request: BaseHTTPRequestHandler, *, with_body: bool) -> None:
        path = unquote(urlsplit(request.path).path)
        self.requests.append(f"{request.command} {path}")
        status, headers, body = self.response(path)
        request.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            request.send_header(name, value)
        request.end_headers()
        if with_body:
            request.wfile.write(body)

    def response(self, path: str) -> tuple[int, dict[str, str], bytes]:
        for name, folder in self.repositories.items():
            if path.startswith(f"/api/models/{name}/tree/"):
                return _json(200, [_tree_entry(folder, file) for file in _files(folder)])
            if path in (f"/api/models/{name}", f"/api/models/{name}/revision/main"):
                siblings = [{"rfilename": str(file)} for file in _files(folder)]
                info = {"_id": "1", "id": name, "sha": COMMIT, "siblings": siblings, "tags": []}
                return _json(200, info)
            if path.startswith(f"/api/models/{name}/revision/"):
                return _json(404, {"error": "no such revision"}, code="RevisionNotFound")
            file = path.removeprefix(f"/{name}/resolve/{COMMIT}/")
            if file != path and (folder / file).is_file():
                if self.gated:
                    return _json(403, {"error": "Access is restricted"}, code="GatedRepo")
                data = (folder / file).read_bytes()
                tag = f'"{hashlib.sha1(data).hexdigest()}"'
                return 200, {"ETag": tag, "X-Repo-Commit": COMMIT}, data
        return _json(401, {"error": "Invalid username or password."}, code="RepoNotFound")


def _files(folder: Path) -> list[Path]:
    return sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())


def _tree_entry(folder: Path, file: Path) -> dict[str, object]:
    data = (folder / file).read_bytes()
    oid = hashlib.sha1(data).hexdigest()
    return {"type": "file", "path": file.as_posix(), "size": len(data), "oid": oid}


def _json(status: int, value: object, code: str = "") -> tuple[int, dict[str, str], bytes]:
    headers = {"Content-Type": "application/json"}
    if code:
        headers["X-Error-Code"] = code
    return status, headers, json.dumps(value).encode()


@pytest.fixture(scope="module")
def repositories(tmp_path_factory):
    folder = tmp_path_factory.mktemp("repositories")
    STANDARD.load().save(folder / "native")
    shutil.copytree(STANDARD.source, folder / "hdf5")
    shutil.copytree(GOLDEN / "tf-hub/deeppavlov", folder / "module")
    (folder / "nothing").mkdir()
    (folder / "nothing" / "notes.txt").write_text("no model")
    return {f"someone/{path.name}": path for path in folder.iterdir()}


@pytest.fixture
def hub(repositories, tmp_path, monkeypatch):
    """The fake hub, with the client pointed at it and at an empty cache."""
    fake = FakeHub(repositories)
    point_client_at(fake.url, tmp_path / "cache", monkeypatch)
    yield fake
    if fake.thread.is_alive():
        fake.close()


def refused(source: str) -> str:
    with pytest.raises(CheckpointError) as caught:
        elmokit.load(source)
    message = str(caught.value)
    assert source in message
    return message


@pytest.mark.parametrize(("name", "kind"), [("native", "elmokit"), ("hdf5", "bilm-tf HDF5")])
def test_hub_model_equals_the_local_one(hub, name, kind):
    elmo = elmokit.load(f"hf:someone/{name}")
    assert (elmo.kind, elmo.source) == (kind, f"hf:someone/{name}")
    assert_same_model(elmo, STANDARD.load(), STANDARD.sentences())


def test_hub_model_may_have_folders(hub):
    assert elmokit.load("hf:someone/module").kind == "TF-Hub module"


def test_hub_revision_can_be_named(hub):
    elmo = elmokit.load(f"hf:someone/hdf5@{COMMIT}")
    assert elmo.kind == "bilm-tf HDF5"


def test_hub_revision_that_does_not_exist_is_refused(hub):
    elmokit.load("hf:someone/hdf5")  # the cached copy of another revision does not serve
    assert "Hugging Face hub" in refused("hf:someone/hdf5@v9")


def test_hub_model_is_downloaded_once(hub):
    elmokit.load("hf:someone/native")
    downloads = [line for line in hub.requests if line.startswith("GET /someone/native/resolve")]
    assert len(downloads) == 3
    hub.requests.clear()
    elmokit.load("hf:someone/native")
    assert [line for line in hub.requests if line.startswith("GET /someone/native/resolve")] == []


def test_hub_cached_copy_works_when_the_hub_is_gone(hub):
    first = elmokit.load("hf:someone/hdf5")
    hub.close()
    assert_same_model(elmokit.load("hf:someone/hdf5"), first, STANDARD.sentences())


def test_hub_cached_copy_works_offline(hub, monkeypatch):
    first = elmokit.load("hf:someone/native")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    hub.requests.clear()
    assert_same_model(elmokit.load("hf:someone/native"), first, STANDARD.sentences())
    assert hub.requests == []


def test_hub_is_not_asked_where_downloads_are_forbidden(hub, monkeypatch):
    first = elmokit.load("hf:someone/native")
    monkeypatch.setenv("ELMOKIT_OFFLINE", "1")
    hub.requests.clear()
    assert_same_model(elmokit.load("hf:someone/native"), first, STANDARD.sentences())
    assert "ELMOKIT_OFFLINE" in refused("hf:someone/hdf5")
    assert hub.requests == []


@pytest.mark.parametrize("name", ["someone/unknown", "nobody/native", "native"])
def test_hub_model_that_does_not_exist_is_refused(hub, name):
    message = refused(f"hf:{name}")
    assert "Hugging Face hub" in message
    assert "Check the name" in message


@pytest.mark.parametrize("name", ["", "a/b/c", "../../etc", "some one/x", "x--y/..", "@main"])
def test_hub_name_that_cannot_be_is_refused_without_asking(hub, name):
    refused(f"hf:{name}")
    assert [line for line in hub.requests if "etc" in line] == []


def test_hub_that_cannot_be_reached_is_a_clear_error(hub):
    hub.close()
    message = refused("hf:someone/native")
    assert "network" in message
    assert "\n" not in message


def test_hub_that_withholds_the_files_is_a_clear_error(hub):
    hub.gated = True
    message = refused("hf:someone/native")
    assert "log in" in message
    assert "\n" not in message


def test_hub_repository_without_a_model_is_refused(hub):
    with pytest.raises(CheckpointError, match="no model found"):
        elmokit.load("hf:someone/nothing")


def test_hub_damaged_model_is_refused_by_its_file(hub, repositories, tmp_path):
    damaged = tmp_path / "damaged"
    shutil.copytree(repositories["someone/native"], damaged)
    (damaged / "model.safetensors").write_bytes(b"cut")
    hub.repositories = {"someone/damaged": damaged}
    with pytest.raises(CheckpointError, match=r"model\.safetensors"):
        elmokit.load("hf:someone/damaged")


def test_hub_obeys_the_clients_environment(hub, tmp_path):
    """A process that is told by HF_ENDPOINT and HF_HOME alone; then nobody answers there."""
    code = "import elmokit; print(elmokit.load('hf:someone/hdf5').kind)"
    environment = {
        **os.environ,
        "HF_ENDPOINT": hub.url,
        "HF_HOME": str(tmp_path / "home"),
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    }
    for name in ("HF_HUB_CACHE", "HF_HUB_OFFLINE", "HF_TOKEN"):
        environment.pop(name, None)

    def run(**extra: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=False,
            env={**environment, **extra},
        )

    done = run()
    assert (done.returncode, done.stdout) == (0, "bilm-tf HDF5\n"), done.stderr
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{unused.getsockname()[1]}"
        done = run(HF_ENDPOINT=nobody, HF_HOME=str(tmp_path / "other-home"))
    assert done.returncode == 1
    assert "CheckpointError: hf:someone/hdf5: cannot be fetched" in done.stderr
