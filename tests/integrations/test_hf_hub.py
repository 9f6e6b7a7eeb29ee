"""push_to_hub and from_pretrained with the real client, against a hub on this machine."""

import base64
import hashlib
import json
from http.server import BaseHTTPRequestHandler
from urllib.parse import unquote, urlsplit

import pytest
import torch
from hubs import LocalService, point_client_at

pytest.importorskip("transformers")

import transformers
from transformers import AutoModel, AutoTokenizer

from elmokit.integrations import hf

NAME = "someone/elmo"
COMMIT = "0123456789abcdef0123456789abcdef01234567"

transformers.utils.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()


class SmallHub(LocalService):
    """One repository in memory: it takes commits of small files and gives files out."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        hub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                path = unquote(urlsplit(self.path).path)
                status, headers, data = hub.response(self.command, path, body)
                self.send_response(status)
                for name, value in {"Content-Length": str(len(data)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(data)

            def do_HEAD(self) -> None:
                self.do_GET()

            def do_POST(self) -> None:
                self.do_GET()

            def log_message(self, *_args: object) -> None:
                pass

        self.serve(Handler)

    def response(self, method: str, path: str, body: bytes) -> tuple[int, dict[str, str], bytes]:
        if path == "/api/repos/create":
            return _json({"url": f"{self.url}/{NAME}", "id": NAME})
        if path == "/api/validate-yaml":
            return _json({"errors": [], "warnings": []})
        if path == f"/api/models/{NAME}/preupload/main":
            names = [file["path"] for file in json.loads(body)["files"]]
            answer = {"uploadMode": "regular", "shouldIgnore": False}
            return _json({"files": [{"path": name, **answer} for name in names]})
        if path == f"/api/models/{NAME}/commit/main":
            for line in body.decode().splitlines():
                entry = json.loads(line)
                if entry["key"] == "file":
                    value = entry["value"]
                    self.files[value["path"]] = base64.b64decode(value["content"])
            done = {"commitUrl": f"{self.url}/{NAME}/commit/{COMMIT}", "commitOid": COMMIT}
            return _json({**done, "success": True})
        if path.startswith(f"/api/models/{NAME}/tree/"):
            return _json([_entry(name, data) for name, data in self.files.items()])
        if path in (f"/api/models/{NAME}", f"/api/models/{NAME}/revision/main"):
            siblings = [{"rfilename": name} for name in self.files]
            return _json({"_id": "1", "id": NAME, "sha": COMMIT, "siblings": siblings, "tags": []})
        for revision in ("main", COMMIT):
            name = path.removeprefix(f"/{NAME}/resolve/{revision}/")
            if name != path and name in self.files:
                tag = f'"{hashlib.sha1(self.files[name]).hexdigest()}"'
                return 200, {"ETag": tag, "X-Repo-Commit": COMMIT}, self.files[name]
        return 404, {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": COMMIT}, b""


def _entry(name: str, data: bytes) -> dict[str, object]:
    oid = hashlib.sha1(data).hexdigest()
    return {"type": "file", "path": name, "size": len(data), "oid": oid}


def _json(value: object) -> tuple[int, dict[str, str], bytes]:
    return 200, {"Content-Type": "application/json"}, json.dumps(value).encode()


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """The hub, with the client pointed at it and at an empty cache."""
    small = SmallHub()
    point_client_at(small.url, tmp_path / "cache", monkeypatch)
    monkeypatch.setenv("HF_TOKEN", "hf_nobody")
    yield small
    small.close()


def test_hf_model_is_pushed_and_comes_back(hub, tmp_path):
    model, tokenizer = hf.from_elmo("test-tiny")
    model.push_to_hub(NAME)
    tokenizer.push_to_hub(NAME)
    assert {"config.json", "model.safetensors", "tokenizer_config.json"} <= set(hub.files)
    cache = str(tmp_path / "cache" / "files")
    again = AutoModel.from_pretrained(NAME, cache_dir=cache)
    batch = AutoTokenizer.from_pretrained(NAME, cache_dir=cache)("the bank", return_tensors="pt")
    with torch.no_grad():
        assert torch.equal(again(**batch)[0], model(**batch)[0])
