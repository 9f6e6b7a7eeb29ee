"""Published models and addresses, from a server on this machine that plays their hosts."""

import errno
import gzip
import hashlib
import io
import json
import os
import shutil
import ssl
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from golden_models import assert_same_model, assert_same_weights, golden

import elmokit
from benchmarks.reliability import downloads
from benchmarks.reliability.downloads import PATHS
from benchmarks.reliability.faulty_hosts import (
    BREAKS,
    ENDS,
    QUICK,
    Exchange,
    Hosts,
    Served,
    answer,
    break_off,
    hang_up,
    slowly,
)
from elmokit.checkpoints import cached_models, find_published, transfer
from elmokit.errors import CheckpointError

STANDARD = golden("bilm-hdf5/standard")
CERTIFICATE = Path(__file__).parents[1] / "data" / "localhost.pem"
WEIGHTS, OPTIONS = PATHS
MIRRORED = WEIGHTS.replace("s3-us-west-2.amazonaws.com/allennlp", "allennlp.s3.amazonaws.com")


@pytest.fixture
def hosts(tmp_path, monkeypatch):
    """All hosts of the catalogue, an empty cache, and little patience."""
    for name in ("ELMOKIT_OFFLINE", "http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ELMOKIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setattr(transfer, "PATIENCE", QUICK._replace(most_wait_s=1.5))
    with Hosts().serving() as hosts:
        monkeypatch.setenv("ELMOKIT_MIRROR", hosts.url)
        hosts.files = {WEIGHTS: Served(read("weights.hdf5")), OPTIONS: Served(read("options.json"))}
        yield hosts


@pytest.fixture
def folder(tmp_path) -> Path:
    """Where the cache has the model."""
    return tmp_path / "cache" / "allennlp-original"


def read(name: str) -> bytes:
    return (STANDARD.source / name).read_bytes()


def refused(source: str) -> str:
    with pytest.raises(CheckpointError) as caught:
        elmokit.load(source)
    message = str(caught.value)
    assert "\n" not in message
    return message


def assert_standard(elmo: elmokit.Elmo) -> None:
    """It is the model that the server has."""
    local = STANDARD.load(tokenizer=elmo.config.text.tokenizer)
    assert elmo.config == local.config
    assert_same_weights(elmo, local)


def visible(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))


# Names


def test_published_name_loads_the_published_model(hosts, folder):
    elmo = elmokit.load("original")
    assert_standard(elmo)
    assert elmo.source == "original"
    assert visible(folder) == ["options.json", "weights.hdf5"]
    assert len(hosts.requests) == 2


def test_published_name_brings_its_tokeniser(hosts):
    assert elmokit.load("original").tokenize("don't go.") == ["do", "n't", "go", "."]
    assert elmokit.load("original", tokenizer="space").tokenize("don't go.") == ["don't", "go."]


def test_published_model_is_downloaded_once_and_then_needs_no_network(hosts, monkeypatch):
    first = elmokit.load("Original")
    hosts.requests.clear()
    monkeypatch.setenv("ELMOKIT_OFFLINE", "1")
    assert_same_model(elmokit.load("allennlp-original"), first, STANDARD.sentences())
    assert hosts.requests == []


def test_offline_model_that_is_not_cached_is_refused_at_once(hosts, folder, monkeypatch):
    monkeypatch.setenv("ELMOKIT_OFFLINE", "1")
    message = refused("original")
    assert "ELMOKIT_OFFLINE" in message
    assert str(folder) in message
    for source in ("https://example.org/weights.hdf5", "hf:someone/model"):
        assert "ELMOKIT_OFFLINE" in refused(source)
    assert hosts.requests == []


def test_address_of_the_catalogue_is_the_model(hosts, folder):
    elmo = elmokit.load("https:/" + WEIGHTS)
    assert elmo.config.text.tokenizer == "words"
    assert visible(folder) == ["options.json", "weights.hdf5"]


def test_archive_of_a_published_model_loads(hosts):
    path = golden("many-langs/nlpl.zip").source
    hosts.files["/vectors.nlpl.eu/repository/11/136.zip"] = Served(path.read_bytes())
    assert elmokit.load("manylangs-ar").kind == "ELMoForManyLangs"


def test_second_set_of_files_is_tried(hosts):
    """SeqVec is published as an archive, and elsewhere as two files."""
    for name in ("weights.hdf5", "options.json"):
        path = f"/data.bioembeddings.com/public/embeddings/embedding_models/seqvec/{name}"
        hosts.files[path] = Served(read(name))
    elmo = elmokit.load("seqvec")
    assert elmo.tokenize("MKV") == ["M", "K", "V"]


def test_model_that_no_program_can_download_says_where_to_put_it(hosts, tmp_path):
    message = refused("materials-science")
    assert "https://figshare.com/s/ec677e7db3cf2b7db4bf" in message
    target = tmp_path / "cache" / "materials-science"
    assert str(target) in message
    shutil.copytree(STANDARD.source, target, ignore=shutil.ignore_patterns("*.npz"))
    assert_standard(elmokit.load("materials-science"))
    assert hosts.requests == []


def test_model_without_a_reader_says_so(hosts):
    assert "cannot read" in refused("gluonnlp-small")
    assert hosts.requests == []


def test_unknown_name_suggests_others(hosts):
    assert "near: original" in refused("orignal")


# Mirrors and errors


def test_mirrors_are_tried_in_turn(hosts):
    hosts.files[MIRRORED] = hosts.files.pop(WEIGHTS)
    elmokit.load("original")
    assert [path for path, _ in hosts.requests] == [WEIGHTS, MIRRORED, OPTIONS]


def test_all_addresses_fail_and_the_files_can_be_put_there_by_hand(hosts, folder, monkeypatch):
    hosts.files.clear()
    message = refused("original")
    for address in find_published("original").downloads[0][0].addresses:
        assert f"{hosts.url}/{address.removeprefix('https://')}: HTTP 404 Not Found" in message
    assert f"Put weights.hdf5 and options.json into {folder}" in message
    assert visible(folder) == []
    monkeypatch.setenv("ELMOKIT_OFFLINE", "1")
    for name in ("weights.hdf5", "options.json"):
        shutil.copy(STANDARD.source / name, folder)
    assert_standard(elmokit.load("original"))


@pytest.mark.parametrize("fault", [name for name in BREAKS if name not in ("416", "another ETag")])
def test_server_that_breaks_is_asked_again(hosts, folder, fault):
    hosts.faults[WEIGHTS] = [BREAKS[fault]]
    elmokit.download("original")
    assert (folder / "weights.hdf5").read_bytes() == read("weights.hdf5")
    assert {path.suffix for path in (folder / ".elmokit").iterdir()} == {".json"}


@pytest.mark.parametrize("fault", [name for name in ENDS if name != "one byte flipped"])
def test_server_that_fails_is_one_clear_line(hosts, folder, fault):
    hosts.faults[WEIGHTS] = [ENDS[fault]] * QUICK.tries
    message = refused("original")
    assert f"{hosts.url}{WEIGHTS}: " in message
    assert visible(folder) == []
    hosts.faults.clear()
    hosts.files[MIRRORED] = Served(read("weights.hdf5"))
    hosts.faults[WEIGHTS] = [ENDS[fault]] * QUICK.tries
    elmokit.load("original")
    assert (folder / "weights.hdf5").read_bytes() == read("weights.hdf5")


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("page", "a web page"),
        ("page as data", "a web page"),
        ("pointer of Git LFS", "Git LFS"),
        ("announces less", "truncated"),
        ("503 for an hour", "3600 s"),
        ("redirect loop", "more than 10 redirects"),
        ("redirect into a private network", "private network, to 10.0.0.1"),
        ("redirect to a file", "no address of the web"),
    ],
)
def test_error_says_what_came(hosts, fault, said):
    hosts.faults[WEIGHTS] = [ENDS[fault]]
    assert said in refused("original")


def test_file_that_is_too_large_is_refused_before_it_comes(hosts, folder):
    """More than the limit, or far more than the catalogue says."""
    path = "/vectors.nlpl.eu/repository/11/136.zip"
    hosts.faults[path] = [lambda exchange: exchange.head(200, Content_Length=17 << 30)]
    assert "ELMOKIT_LIMITS=download_gib=160" in refused("manylangs-ar")
    hosts.faults[WEIGHTS] = [lambda exchange: exchange.head(200, Content_Length=2 << 30)]
    assert "2,147,483,648 bytes, not about 374," in refused("original")
    assert visible(folder) == []


def test_full_disk_is_found_before_the_download(hosts, monkeypatch):
    usage = shutil.disk_usage("/")._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.raises(elmokit.DataError, match=r"1,000 are free in .*ELMOKIT_CACHE"):
        elmokit.load("original")


def test_disk_that_fills_up_is_named_and_left_as_it_was(hosts, folder, monkeypatch):
    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=str(folder / "weights.hdf5")):
        elmokit.load("original")
    assert [path.name for path in folder.rglob("*")] == [".elmokit"]


def test_cache_that_cannot_be_written_is_a_clear_error(hosts, monkeypatch):
    monkeypatch.setenv("ELMOKIT_CACHE", os.path.join(os.devnull, "cache"))
    assert "set ELMOKIT_CACHE" in refused("original")


@pytest.mark.parametrize("address", ["https://", "https://[::1", "http:///x"])
def test_address_that_is_none_is_refused(hosts, address):
    assert "no address" in refused(address)


def test_archive_that_leads_out_of_its_folder_is_refused(hosts, tmp_path):
    evil = io.BytesIO()
    with zipfile.ZipFile(evil, "w") as archive:
        archive.writestr("../../evil.txt", "x")
    hosts.files["/vectors.nlpl.eu/repository/11/136.zip"] = Served(evil.getvalue())
    assert "leads out of the archive" in refused("manylangs-ar")
    assert not list(tmp_path.rglob("evil.txt"))


# Resuming


def ranges(hosts: Hosts) -> list[str | None]:
    return [headers.get("Range") for path, headers in hosts.requests if path == WEIGHTS]


def test_broken_download_is_resumed(hosts, folder):
    size = len(read("weights.hdf5"))
    hosts.faults[WEIGHTS] = [break_off(0.5)]
    elmokit.download("original")
    assert ranges(hosts) == [None, f"bytes={size // 2}-"]
    assert hosts.requests[1][1]["If-Range"] == hosts.files[WEIGHTS].tag
    assert (folder / "weights.hdf5").read_bytes() == read("weights.hdf5")


def test_next_call_resumes_what_a_failed_one_has_left(hosts, folder):
    hosts.faults[WEIGHTS] = [break_off(0.5), *[hang_up] * (QUICK.tries - 1)]
    refused("original")
    hosts.requests.clear()
    elmokit.download("original")
    assert ranges(hosts) == [f"bytes={len(read('weights.hdf5')) // 2}-"]
    assert (folder / "weights.hdf5").read_bytes() == read("weights.hdf5")


def test_file_that_changes_between_two_parts_starts_again(hosts, folder):
    data = read("weights.hdf5") + b"\0" * 64  # HDF5 ignores what follows its end

    def change(exchange: Exchange) -> None:
        break_off(0.5)(exchange)
        hosts.files[WEIGHTS] = Served(data)

    hosts.faults[WEIGHTS] = [change]
    elmokit.download("original")
    assert ranges(hosts)[1] is not None
    assert (folder / "weights.hdf5").read_bytes() == data


def test_file_that_is_shorter_than_what_is_there_starts_again(hosts, folder):
    hosts.faults[WEIGHTS] = [break_off(0.5), answer(416)]
    elmokit.download("original")
    assert ranges(hosts) == [None, f"bytes={len(read('weights.hdf5')) // 2}-", None]
    assert (folder / "weights.hdf5").read_bytes() == read("weights.hdf5")


def test_server_without_validators_is_never_resumed(hosts, folder):
    hosts.files[WEIGHTS].validators = False
    hosts.faults[WEIGHTS] = [break_off(0.5)]
    elmokit.download("original")
    assert ranges(hosts) == [None, None]


def test_part_of_a_file_with_another_tag_is_not_joined(hosts, folder):
    hosts.faults[WEIGHTS] = [break_off(0.5), BREAKS["another ETag"]]
    elmokit.download("original")
    assert (folder / "weights.hdf5").read_bytes() == read("weights.hdf5")


def test_interrupted_download_is_resumed(hosts, folder, monkeypatch):
    """Ctrl-C in the middle, at the first bytes that were written."""

    def interrupt(response):
        yield response.raw.read(1000, decode_content=False)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(transfer, "_blocks", interrupt)
        with pytest.raises(KeyboardInterrupt):
            elmokit.download("original")
    hosts.requests.clear()
    elmokit.download("original")
    assert ranges(hosts) == ["bytes=1000-"]
    assert (folder / "weights.hdf5").read_bytes() == read("weights.hdf5")


def test_download_that_was_killed_while_it_was_checked_is_not_repeated(hosts, folder, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(transfer, "_check", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            elmokit.download("original")
    hosts.requests.clear()
    elmokit.download("original")
    assert ranges(hosts) == []
    assert (folder / "weights.hdf5").read_bytes() == read("weights.hdf5")


def test_leftovers_of_a_killed_process_are_removed(hosts, folder):
    elmokit.download("original")
    state = folder / ".elmokit"
    for name in ("options.json.lock", "weights.hdf5.part.state", "weights.hdf5.7.part"):
        (state / name).touch()
    (state / ".elmokit-58e21f32373d-0.part").mkdir()
    elmokit.load("original")
    assert sorted(path.name for path in state.iterdir()) == [
        "options.json.json",
        "weights.hdf5.json",
    ]


# Checksums


def test_file_with_another_checksum_than_the_documented_one_is_refused(hosts):
    base = "/github.com/t-systems-on-site-services-gmbh/german-elmo-model/releases/download/files_1"
    hosts.files = {f"{base}/{n}": Served(read(n)) for n in ("weights.hdf5", "options.json")}
    message = refused("de-tsystems")
    found = hashlib.sha1(read("weights.hdf5")).hexdigest()
    assert f"sha1 {found} instead of 9084adab3eefaed4f07da7331217fcb873417add" in message


def test_file_that_changes_on_its_server_is_refused_later(hosts, folder):
    elmokit.download("original")
    (folder / "options.json").unlink()
    hosts.files[OPTIONS] = Served(read("options.json") + b"\n")
    message = refused("original")
    assert hashlib.sha256(read("options.json")).hexdigest() in message
    record = folder / ".elmokit" / "options.json.json"
    assert f"remove {record}" in message
    record.unlink()
    assert elmokit.load("original").layers == 3


def test_cached_file_that_changes_is_refused(hosts, folder):
    elmokit.download("original")
    with (folder / "weights.hdf5").open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"\x55")
    message = refused("original")
    assert str(folder / "weights.hdf5") in message
    assert "damaged or replaced" in message
    (folder / "weights.hdf5").unlink()
    assert_standard(elmokit.load("original"))


# Addresses


@pytest.fixture
def site(hosts, monkeypatch) -> str:
    """An address of this machine, named by the user."""
    monkeypatch.delenv("ELMOKIT_MIRROR")
    return hosts.url


def test_address_of_weights_loads_with_the_options_beside_them(hosts, site):
    hosts.files = {
        "/a/elmo_weights.hdf5": Served(read("weights.hdf5")),
        "/a/elmo_options.json": Served(read("options.json")),
        "/b/weights.hdf5": Served(read("weights.hdf5")),
        "/b/options.json": Served(read("options.json")),
        "/c/w.hdf5": Served(read("weights.hdf5")),
    }
    for path in ("/a/elmo_weights.hdf5", "/b/weights.hdf5"):
        elmo = elmokit.load(site + path)
        assert_standard(elmo)
        assert elmo.source == site + path
    elmo = elmokit.load(f"{site}/c/w.hdf5", options=f"{site}/b/options.json")
    assert_standard(elmo)
    assert "options=" in refused(f"{site}/c/w.hdf5")
    assert {model.name for model in cached_models()} >= {f"{site}/b/weights.hdf5"}
    assert f"{site}/b/weights.hdf5" in [model.name for model in elmokit.models()]


def test_address_of_an_archive_loads(hosts, site, tmp_path):
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name in ("weights.hdf5", "options.json"):
            archive.add(STANDARD.source / name, arcname=f"model/{name}")
    hosts.files = {"/some model.tar.gz": Served(packed.getvalue())}
    hosts.files["/some%20model.tar.gz"] = hosts.files["/some model.tar.gz"]
    elmo = elmokit.load(f"{site}/some%20model.tar.gz?download=1")
    assert_standard(elmo)


def test_word_list_may_be_compressed_and_have_an_address(hosts, site):
    words = gzip.compress((STANDARD.source / "vocab.txt").read_bytes())
    hosts.files = {"/vocab.txt.gz": Served(words)}
    elmo = elmokit.load(STANDARD.source / "weights.hdf5", vocabulary=f"{site}/vocab.txt.gz")
    assert_same_model(elmo, STANDARD.load(), STANDARD.sentences())


def test_plain_http_is_refused(hosts, site):
    message = refused("http://example.org/weights.hdf5")
    assert "http is refused" in message
    assert hosts.requests == []


def test_http_only_entry_comes_over_http_and_says_so(hosts, site, monkeypatch):
    """By way of a proxy, which the usual variable names."""
    monkeypatch.setenv("http_proxy", site)
    data = golden("many-langs/nlpl.zip").source.read_bytes()
    hosts.files = {"/vectors.nlpl.eu/repository/11/136.zip": Served(data)}
    with pytest.warns(UserWarning, match=r"vectors\.nlpl\.eu over plain http"):
        elmokit.load("manylangs-ar")
    elmokit.load("manylangs-ar")  # from the cache, without a word


def test_password_goes_to_its_own_host_only(hosts, site, monkeypatch, tmp_path):
    monkeypatch.setenv("http_proxy", site)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    hosts.faults["/w.hdf5"] = [answer(302, Location="http://elsewhere.example/w.hdf5")]
    hosts.files = {"/w.hdf5": Served(b""), "/elsewhere.example/w.hdf5": Served(b"no weights")}
    address = site.replace("//", "//me:secret@") + "/w.hdf5"
    message = refused(address)
    assert "no HDF5 file" in message
    assert "secret" not in message
    sent = {path: "Authorization" in headers for path, headers in hosts.requests}
    assert sent == {"/w.hdf5": True, "/elsewhere.example/w.hdf5": False}
    kept = [path.read_bytes() for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    assert not any(b"secret" in data for data in kept)


def test_password_is_sent_again_behind_a_redirect_on_its_host(hosts, site):
    hosts.faults["/w.zip"] = [answer(302, Location="/v.zip")]
    data = golden("many-langs/nlpl.zip").source.read_bytes()
    hosts.files = {"/w.zip": Served(b""), "/v.zip": Served(data)}
    elmokit.load(site.replace("//", "//me:secret@") + "/w.zip")
    assert ["Authorization" in headers for _, headers in hosts.requests] == [True, True]


def test_redirect_from_https_to_http_is_refused(hosts, site, monkeypatch):
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(CERTIFICATE))
    secure = Hosts()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE)
    secure.socket = context.wrap_socket(secure.socket, server_side=True)
    port = secure.server_address[1]
    data, options = Served(read("weights.hdf5")), Served(read("options.json"))
    with secure.serving():
        secure.files = {
            "/a/weights.hdf5": data,
            "/b/weights.hdf5": data,
            "/b/options.json": options,
        }
        hosts.files = {"/a/weights.hdf5": data}
        secure.faults["/a/weights.hdf5"] = [answer(302, Location=f"{site}/a/weights.hdf5")]
        assert "from https to http" in refused(f"https://127.0.0.1:{port}/a/weights.hdf5")
        assert hosts.requests == []
        assert elmokit.load(f"https://127.0.0.1:{port}/b/weights.hdf5").layers == 3
        monkeypatch.delenv("REQUESTS_CA_BUNDLE")
        message = refused(f"https://127.0.0.1:{port}/c/weights.hdf5")
        assert "no secure connection" in message


def test_redirect_into_this_machine_is_refused(hosts, site):
    """Also by a name: only the address that a user gives may be one of this machine."""
    other = site.replace("127.0.0.1", "localhost")
    hosts.faults["/w.hdf5"] = [answer(307, Location=f"{other}/private.hdf5")]
    hosts.files = {"/w.hdf5": Served(b""), "/private.hdf5": Served(read("weights.hdf5"))}
    assert "private network, to localhost" in refused(f"{site}/w.hdf5")
    assert [path for path, _ in hosts.requests] == ["/w.hdf5"]


# Processes and the command line


def environment(hosts: Hosts, tmp_path: Path) -> dict[str, str]:
    cache = str(tmp_path / "cache")
    return {**os.environ, "ELMOKIT_MIRROR": hosts.url, "ELMOKIT_CACHE": cache}


def test_two_processes_download_once(hosts, folder, tmp_path):
    hosts.faults = {WEIGHTS: [slowly], OPTIONS: [slowly]}
    command = [sys.executable, "-m", "elmokit", "download", "original"]
    both = [
        subprocess.Popen(command, env=environment(hosts, tmp_path), stderr=subprocess.PIPE)
        for _ in range(2)
    ]
    assert [(process.communicate(timeout=100)[1], process.returncode) for process in both] == [
        (b"", 0)
    ] * 2
    assert sorted(path for path, _ in hosts.requests) == sorted([WEIGHTS, OPTIONS])
    assert (folder / "weights.hdf5").read_bytes() == read("weights.hdf5")


def test_a_few_faults_of_every_kind_are_held():
    """`make faults` tries a thousand."""
    tally = downloads.Tally()
    downloads.run_faults(20, 1, tally)
    downloads.run_kills(1, 1, tally)
    assert tally.wrong == []
    assert tally.attempts.total() == 21


def test_cached_models_are_listed_and_removed(hosts, folder):
    assert cached_models() == []
    elmokit.download("original")
    (found,) = cached_models()
    assert (found.name, found.path, found.complete) == ("allennlp-original", folder, True)
    (folder / "options.json").unlink()
    assert [model.complete for model in cached_models()] == [False]


def test_cache_is_where_users_expect_it(monkeypatch, tmp_path):
    from elmokit.checkpoints import cache_folder

    monkeypatch.delenv("ELMOKIT_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "elmokit"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    if sys.platform != "win32":
        assert cache_folder() == tmp_path / ".cache" / "elmokit"
    monkeypatch.setenv("ELMOKIT_CACHE", "~/models")
    assert cache_folder() == tmp_path / "models"


def test_record_names_the_origin(hosts, folder):
    elmokit.download("original")
    record = json.loads((folder / ".elmokit" / "weights.hdf5.json").read_text("utf-8"))
    assert record["sha256"] == hashlib.sha256(read("weights.hdf5")).hexdigest()
    assert record["address"] == hosts.url + WEIGHTS
    assert record["source"] == "https:/" + WEIGHTS
