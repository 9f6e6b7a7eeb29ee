"""Archives with entries outside, links, bombs and damage."""

import gzip
import io
import tarfile
import zipfile
from pathlib import Path

import pytest
from bad_checkpoints import (
    ARCHIVE,
    refused,
)
from golden_models import GOLDEN

ESCAPES = [
    "../escaped", "a/../../escaped", "/{out}/escaped", "..\\escaped", "a\\..\\..\\escaped",
    "C:\\escaped", "c:escaped", "\\\\host\\share\\escaped", "//{out}/escaped", "./../escaped",
    "a/./../../escaped", "file:escaped", "..",
]  # fmt: skip


def zip_with(path: Path, name: str, data: bytes) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("weights.th", b"x")
        entry = zipfile.ZipInfo("placeholder")
        entry.filename = name  # as it is, whatever the system's separator
        archive.writestr(entry, data)


def tar_with(path: Path, name: str, data: bytes, **fields) -> None:
    with tarfile.open(path, "w:gz") as archive:
        entry = tarfile.TarInfo(name)
        entry.size = len(data)
        for field, value in fields.items():
            setattr(entry, field, value)
        archive.addfile(entry, io.BytesIO(data))


@pytest.mark.parametrize("archive", [zip_with, tar_with])
@pytest.mark.parametrize("name", ESCAPES)
def test_archive_entry_that_climbs_out_is_refused(tmp_path, extraction_folder, name, archive):
    name = name.format(out=str(tmp_path / "out").lstrip("/"))
    path = tmp_path / "in" / "model.bin"
    path.parent.mkdir()
    archive(path, name, b"escaped")
    refused(path, str(path), "leads out of the archive")
    escaped = [
        p for folder in (tmp_path, extraction_folder.parent) for p in folder.rglob("*escaped*")
    ]
    assert escaped == []


@pytest.mark.parametrize(
    ("kind", "target"),
    [
        (tarfile.SYMTYPE, "/etc/passwd"),
        (tarfile.SYMTYPE, "../../x"),
        (tarfile.SYMTYPE, "weights.th"),
        (tarfile.LNKTYPE, "/etc/passwd"),
        (tarfile.LNKTYPE, "weights.th"),
        (tarfile.CHRTYPE, ""),
        (tarfile.BLKTYPE, ""),
        (tarfile.FIFOTYPE, ""),
        (b"Z", ""),
    ],
)
def test_tar_links_and_devices_are_refused(tmp_path, kind, target):
    path = tmp_path / "model.tar.gz"
    tar_with(path, "weights.hdf5", b"", type=kind, linkname=target)
    message = refused(path, str(path))
    assert "link or a device" in message or kind == b"Z"


def test_tar_link_then_file_through_it_is_refused(tmp_path):
    (tmp_path / "outside").mkdir()
    path = tmp_path / "model.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        link = tarfile.TarInfo("inner")
        link.type, link.linkname = tarfile.SYMTYPE, str(tmp_path / "outside")
        archive.addfile(link)
        file = tarfile.TarInfo("inner/escaped")
        file.size = 1
        archive.addfile(file, io.BytesIO(b"x"))
    refused(path, "link or a device")
    assert list((tmp_path / "outside").iterdir()) == []


def test_zip_link_is_only_a_small_file(tmp_path):
    path = tmp_path / "model.zip"
    with zipfile.ZipFile(path, "w") as archive:
        entry = zipfile.ZipInfo("weights.hdf5")
        entry.external_attr = 0o120777 << 16
        archive.writestr(entry, "/etc/passwd")
    refused(path, str(path), "no model found")


def test_archive_with_the_same_entry_twice_is_refused(tmp_path):
    path = tmp_path / "model.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for data in (b"a", b"b"):
            entry = tarfile.TarInfo("weights.th")
            entry.size = 1
            archive.addfile(entry, io.BytesIO(data))
    refused(path, str(path), "cannot be extracted")


@pytest.mark.parametrize("content", [{}, {"readme.txt": b"hello"}, {"a/b.txt": b"", "c": b""}])
def test_archive_without_a_model_is_refused(tmp_path, content):
    with zipfile.ZipFile(tmp_path / "model.zip", "w") as archive:
        for name, data in content.items():
            archive.writestr(name, data)
    message = refused(tmp_path / "model.zip", str(tmp_path / "model.zip"), "no model found")
    assert "elmokit-" not in message  # the temporary folder means nothing to the user


def test_encrypted_zip_is_refused(tmp_path):
    source = (GOLDEN / "nlpl/model.zip").read_bytes()
    data = bytearray(source)
    for signature, flags in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        start = data.find(signature)
        while start >= 0:
            data[start + flags] |= 1
            start = data.find(signature, start + 1)
    (tmp_path / "model.zip").write_bytes(data)
    refused(tmp_path / "model.zip", "model.zip", "encrypted")


@pytest.mark.parametrize("parts", [1, 40])
def test_zip_bomb_is_refused(tmp_path, parts):
    path = tmp_path / "bomb.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(parts):
            archive.writestr(f"part-{number}", bytes((80 << 20) // parts))
    assert path.stat().st_size < 1 << 20
    refused(path, "bomb.zip", "far more than its own size")


def test_tar_bomb_is_refused(tmp_path):
    path = tmp_path / "bomb.tar.gz"
    tar_with(path, "weights.th", bytes(80 << 20))
    assert path.stat().st_size < 1 << 20
    refused(path, "bomb.tar.gz", "far more than its own size")


def test_tar_bomb_behind_its_end_is_refused(tmp_path):
    path = tmp_path / "bomb.tar.gz"
    whole = gzip.decompress(ARCHIVE.read_bytes())
    path.write_bytes(gzip.compress(whole + bytes(80 << 20)))
    refused(path, "bomb.tar.gz", "far more than its own size")


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME])
def test_tar_header_bomb_is_refused(tmp_path, kind):
    path = tmp_path / "bomb.tar.gz"
    tar_with(path, "x", bytes(1 << 20), type=kind)
    refused(path, "bomb.tar.gz", "attributes")


def test_tar_of_very_many_empty_files_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "many.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for number in range(3000):
            archive.addfile(tarfile.TarInfo(f"{number}"))
    monkeypatch.setenv("ELMOKIT_LIMITS", "base_mib=1,expansion=1")
    refused(path, "many.tar.gz", "far more than its own size")
    monkeypatch.setenv("ELMOKIT_LIMITS", "parts=2999")
    refused(path, "many.tar.gz", "more than 2,999 entries", "ELMOKIT_LIMITS=parts=29990")


def test_tar_whose_checksum_is_wrong_is_refused(tmp_path):
    data = bytearray(ARCHIVE.read_bytes())
    data[-6] ^= 1  # inside the CRC of the gzip stream
    (tmp_path / "model.tar.gz").write_bytes(data)
    refused(tmp_path / "model.tar.gz", "model.tar.gz", "CRC")
