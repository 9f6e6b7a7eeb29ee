"""Readers: every kind and suffix, and what a user is told when a file is broken."""

import bz2
import csv
import gzip
import io
import json
import lzma
import os
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from elmokit.errors import DataError, MissingExtraError
from elmokit.text.readers import read_texts

zstandard = pytest.importorskip("zstandard")
pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

COMPRESSORS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": zstandard.ZstdCompressor().compress,
}
compressed = pytest.mark.parametrize("suffix", COMPRESSORS)
quick = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)

# Everything that other libraries take for a line end is in st.text(); here only LF is one.
texts = st.text(
    st.characters(exclude_categories=["Cs"]) | st.sampled_from('\u2028\x85\x0b\x0c\r,"\t')
)
one_line = texts.map(lambda text: text.replace("\n", " "))
tokens = st.lists(texts)


def write(folder: Path, name: str, data: bytes, suffix: str = "") -> Path:
    path = folder / (name + suffix)
    path.write_bytes(COMPRESSORS[suffix](data))
    return path


def no_bom(lines: list[str]) -> bool:
    return not (lines and lines[0].startswith("\ufeff"))


@compressed
@quick
@given(lines=st.lists(one_line.filter(lambda line: not line.endswith("\r"))).filter(no_bom))
def test_lines_round_trip(lines: list[str], suffix: str, tmp_path: Path) -> None:
    for line_end in ("\n", "\r\n"):
        data = "".join(line + line_end for line in lines).encode()
        for bom in (b"", b"\xef\xbb\xbf"):
            assert list(read_texts(write(tmp_path, "a.txt", bom + data, suffix))) == lines


@compressed
@quick
@given(items=st.lists(texts | tokens), ascii_only=st.booleans())
def test_jsonl_round_trips(
    items: list[str | list[str]], ascii_only: bool, suffix: str, tmp_path: Path
) -> None:
    rows = [{"id": 1, "sentence": item} for item in items]
    data = "".join(json.dumps(row, ensure_ascii=ascii_only) + "\n" for row in rows).encode()
    for name in ("a.jsonl", "a.ndjson"):
        path = write(tmp_path, name, data, suffix)
        assert list(read_texts(path, field="sentence")) == items


@compressed
@quick
@given(items=st.lists(texts), kind=st.sampled_from(["csv", "tsv"]))
def test_csv_round_trips(items: list[str], kind: str, suffix: str, tmp_path: Path) -> None:
    file = io.StringIO(newline="")
    writer = csv.writer(file, "excel" if kind == "csv" else "excel-tab")
    writer.writerow(["label", "text"])
    writer.writerows([i, item] for i, item in enumerate(items))
    data = b"\xef\xbb\xbf" + file.getvalue().encode()
    assert list(read_texts(write(tmp_path, f"a.{kind}", data, suffix))) == items


@quick
@given(column=st.lists(texts) | st.lists(tokens))
def test_parquet_round_trips(column: list[str] | list[list[str]], tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    table = pyarrow.table({"id": list(range(len(column))), "text": column})
    parquet.write_table(table, path, row_group_size=2)
    assert list(read_texts(path)) == column


def test_a_json_line_may_be_a_bare_string(tmp_path: Path) -> None:
    path = write(tmp_path, "a.jsonl", b'"one"\n\n{"text": "two"}\n  \n"three"')
    assert list(read_texts(path)) == ["one", "", "two", "", "three"]


def test_blank_lines_are_empty_texts(tmp_path: Path) -> None:
    assert list(read_texts(write(tmp_path, "a.txt", b"\none\n\n \r\n\r\n"))) == [
        "",
        "one",
        "",
        " ",
        "",
    ]
    assert list(read_texts(write(tmp_path, "a.csv", b"text\none\n\ntwo\n"))) == ["one", "", "two"]
    assert list(read_texts(write(tmp_path, "b.txt", b""))) == []
    assert list(read_texts(write(tmp_path, "c.txt", b"no end"))) == ["no end"]


def test_only_one_carriage_return_and_one_bom_are_removed(tmp_path: Path) -> None:
    path = write(tmp_path, "a.txt", "\ufeff\ufeffa\r\r\nb\rc\n\ufeffd\n".encode())
    assert list(read_texts(path)) == ["\ufeffa\r", "b\rc", "\ufeffd"]


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz", ".zst"])
def test_compression_is_recognised_when_the_name_lies(suffix: str, tmp_path: Path) -> None:
    for data, lines in ((b"one\ntwo\n", ["one", "two"]), (b"", [])):
        hidden = write(tmp_path, "hidden.txt", COMPRESSORS[suffix](data))
        assert list(read_texts(hidden)) == lines
        other = write(tmp_path, "other.txt.gz", COMPRESSORS[suffix](data))
        assert list(read_texts(other)) == lines
    plain = write(tmp_path, f"plain.jsonl{suffix}", b'"one"\n')
    assert list(read_texts(plain)) == ["one"]
    upper = write(tmp_path, f"UPPER.JSONL{suffix.upper()}", COMPRESSORS[suffix](b'"one"\n'))
    assert list(read_texts(upper)) == ["one"]


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz", ".zst"])
def test_joined_compressed_files_are_read_to_the_end(suffix: str, tmp_path: Path) -> None:
    compress = COMPRESSORS[suffix]
    path = write(
        tmp_path,
        f"a.txt{suffix}",
        compress(b"one\ntw") + compress(b"") + compress(b"o\nthree\n"),
    )
    assert list(read_texts(path)) == ["one", "two", "three"]


def test_zstd_with_a_skippable_frame_first(tmp_path: Path) -> None:
    frame = b"\x50\x2a\x4d\x18" + (4).to_bytes(4, "little") + b"abcd"
    path = write(tmp_path, "a.txt.zst", frame + COMPRESSORS[".zst"](b"one\n"))
    assert list(read_texts(path)) == ["one"]


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz", ".zst"])
@pytest.mark.parametrize("kept", [0.0, 0.001, 0.5, 0.9999])
def test_a_truncated_compressed_file_is_an_error(suffix: str, kept: float, tmp_path: Path) -> None:
    complete = COMPRESSORS[suffix](os.urandom(150_000).hex().encode() + b"\n")
    path = write(tmp_path, f"a.txt{suffix}", complete[: int(len(complete) * kept)])
    with pytest.raises(
        DataError, match=r"a\.txt.*, after line [01]: the compressed file ends too early"
    ):
        list(read_texts(path))


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz", ".zst"])
def test_a_damaged_compressed_file_is_an_error(suffix: str, tmp_path: Path) -> None:
    complete = bytearray(COMPRESSORS[suffix](os.urandom(50_000).hex().encode() + b"\n"))
    complete[20:2000] = b"\xff" * 1980
    with pytest.raises(DataError, match=r"cannot read further|ends too early|not valid UTF-8"):
        list(read_texts(write(tmp_path, f"a.txt{suffix}", bytes(complete))))


def raw_stdin(monkeypatch: pytest.MonkeyPatch, data: bytes, *, buffered: bool) -> None:
    stream = io.BytesIO(data)
    monkeypatch.setattr(
        sys,
        "stdin",
        SimpleNamespace(buffer=io.BufferedReader(stream) if buffered else stream),  # type: ignore[type-var]
    )


@compressed
@pytest.mark.parametrize("buffered", [True, False])
def test_standard_input_is_lines(
    suffix: str, buffered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw_stdin(monkeypatch, COMPRESSORS[suffix]("één\u2028\r\n\ntwo".encode()), buffered=buffered)
    assert list(read_texts("-")) == ["één\u2028", "", "two"]


def test_standard_input_serves_one_argument(monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(2):  # another standard input is read again
        stdin = io.TextIOWrapper(io.BytesIO(b"one\ntwo\n"))
        monkeypatch.setattr(sys, "stdin", stdin)
        assert list(read_texts("-")) == ["one", "two"]
        with pytest.raises(DataError, match="can be read once"):
            list(read_texts("-"))


def test_standard_input_s_errors_name_it(monkeypatch: pytest.MonkeyPatch) -> None:
    raw_stdin(monkeypatch, b"ok\n\xff\n", buffered=True)
    with pytest.raises(DataError, match=r"standard input, line 2: byte 0 \(0xff\)"):
        list(read_texts("-"))


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.txt", b"fine\nab\xe9cd\n", r"a\.txt, line 2: byte 2 \(0xe9\) is not valid UTF-8"),
        ("a.txt", b"fine\n\xed\xa0\xbd\n", r"line 2: byte 0 \(0xed\) is not valid UTF-8"),
        ("a.csv", b"text\nfine\n\xff\n", r"a\.csv, line 3: byte 0"),
        ("a.jsonl", b'"fine"\n{"text": \n', r"a\.jsonl, line 2: not valid JSON"),
        ("a.jsonl", b"[" * 200_000, "line 1: not valid JSON"),
        ("a.jsonl", b'{"body": 1, "id": 2}', r"line 1: no field 'text'; found 'body', 'id'"),
        ("a.jsonl", b'{"a b": 1}', r"field='a b' in Python, --field 'a b' on the command line"),
        ("a.jsonl", b"{}", "line 1: no field 'text'; found nothing"),
        ("a.xlsx", b"PK\x03\x04\x14\x00\x84", r"a\.xlsx: a zip archive, .*Save a sheet as CSV"),
        ("a.jsonl", b'{"text": 5}', "line 1: 'text' holds a value of type int; a string or a list"),
        ("a.jsonl", b'{"text": null}', "line 1: 'text' holds null"),
        ("a.jsonl", b'{"text": ["a", 1]}', "line 1: 'text' holds a value of type list"),
        (
            "a.jsonl",
            b'["a"]',
            "line 1: found a value of type list; each line must be a JSON string",
        ),
        ("a.jsonl", b'"ok \\ud83d\\ude00"\n"\\ud83d"', r"line 2: .*lone surrogate, \\ud83d"),
        ("a.jsonl", b'{"text": ["a", "\\uDE00"]}', r"line 1: .*lone surrogate, \\ude00"),
        ("a.csv", b"", "is empty. Its first row must name the columns"),
        ("a.csv", b"body,label\nx,y\n", "line 1: no field 'text'; found 'body', 'label'"),
        ("a.csv", b"id,text\n1,a,b\n", "line 2: 3 columns where the header has 2"),
        ("a.csv", b'id,text\n1,"a"b\n', "line 2: not valid CSV"),
        ("a.tsv", b'id\ttext\n1\t"open\n2\tb\n', "line 3: not valid CSV"),
        ("a.parquet", b"PAR1 no, not really", "not a readable Parquet file"),
        ("a.parquet.gz", b"", r"Decompress the \.gz first"),
    ],
)
def test_broken_files_are_one_clear_error(
    name: str, data: bytes, message: str, tmp_path: Path
) -> None:
    path = write(tmp_path, name, data)
    with pytest.raises(DataError, match=message) as caught:
        list(read_texts(path))
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ([1, 2], "row 1: 'text' holds a value of type int"),
        (["a", None], "row 2: 'text' holds null"),
    ],
)
def test_parquet_of_other_things_is_an_error(
    column: list[object], message: str, tmp_path: Path
) -> None:
    path = tmp_path / "a.parquet"
    parquet.write_table(pyarrow.table({"text": column}), path)
    with pytest.raises(DataError, match=message):
        list(read_texts(path))
    with pytest.raises(DataError, match="no field 'body'; found 'text'"):
        list(read_texts(path, field="body"))


def test_a_missing_file_and_a_folder_are_errors_at_once(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no such file: .*nowhere\.txt"):
        read_texts(tmp_path / "nowhere.txt")
    with pytest.raises(DataError, match="is a folder"):
        read_texts(tmp_path)


@pytest.mark.parametrize(("module", "name"), [("zstandard", "a.txt.zst"), ("pyarrow", "a.parquet")])
def test_a_missing_package_is_named(
    module: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, name, COMPRESSORS[".zst"](b"one\n"))
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError, match=r"elmokit\[data\]"):
        list(read_texts(path))


def test_a_long_cell_is_read(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", b"text\n" + b"x" * 300_000 + b"\n")
    assert [len(text) for text in read_texts(path)] == [300_000]


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_memory_does_not_grow_with_the_file(suffix: str, tmp_path: Path) -> None:
    line = b"the same words again and again " * 100 + b"\n"
    path = write(tmp_path, "a.txt", line * 10_000, suffix)  # 31 MB
    tracemalloc.start()
    count = sum(1 for _ in read_texts(path))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 10_000
    assert peak < 10_000_000
