"""FASTA records, residues, and identifiers of texts."""

from __future__ import annotations

import gzip
import io
import json
import sys
import tracemalloc

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmokit.errors import DataError
from elmokit.text import read_records, read_texts, residues

FASTA = """>sp|P1|ONE_HUMAN the first protein
MKVLA
AGTRE*

; an old comment
>P2
mkv--la.x
 a g\t t
>P3/10-20
ACDEFGHIKLMNPQRSTVWYBJOUXZ
"""


def write(folder, text, name="proteins.fasta"):
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def found(path, **options):
    return [(record.id, record.text) for record in read_records(path, **options)]


EXPECTED = [
    ("sp|P1|ONE_HUMAN", "MKVLAAGTRE"),
    ("P2", "MKVLAXAGT"),
    ("P3/10-20", "ACDEFGHIKLMNPQRSTVWYBJOUXZ"),
]


@pytest.mark.parametrize("name", ["a.fasta", "a.fa", "a.faa", "A.FASTA"])
def test_fasta_records_have_identifiers_and_clean_residues(tmp_path, name):
    path = write(tmp_path, FASTA, name)
    assert found(path) == EXPECTED
    assert [record.tokens for record in read_records(path)] == [list(s) for _, s in EXPECTED]
    assert list(read_texts(path)) == [list(sequence) for _, sequence in EXPECTED]


@pytest.mark.parametrize(
    "data",
    [
        FASTA.replace("\n", "\r\n").encode(),
        b"\xef\xbb\xbf" + FASTA.encode(),
        FASTA.rstrip().encode(),
        FASTA.replace(">P2", "> P2").encode(),
    ],
    ids=["windows", "bom", "no-last-line-end", "space-before-identifier"],
)
def test_fasta_line_ends_and_marks_change_nothing(tmp_path, data):
    assert found(write(tmp_path, data)) == EXPECTED


def test_fasta_may_be_compressed_whatever_its_name(tmp_path):
    data = gzip.compress(FASTA.encode())
    assert found(write(tmp_path, data, "a.fasta.gz")) == EXPECTED
    assert found(write(tmp_path, data, "b.fa")) == EXPECTED


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ("MKV\n>P1\nMKV\n", 1, "no header"),
        (">P1\nMKV\n>P2\n>P3\nMKV\n", 3, "no residues"),
        (">P1\nMKV\n>P2\n--*\n", 3, "no residues"),
        (">P1\nMKV\n>  \nMKV\n", 3, "without an identifier"),
        (">P1\nMKV\nMK1V\n", 3, "'1' is no residue"),
        (">P1\nMKV\nMßV\n", 3, "'ß' is no residue"),
        (">P1\nMKV\nM*V\n", 3, "a stop (*) inside"),
        (">P1\nMKV*\nMV\n", 3, "a stop (*) inside"),
        (">P1\nMKV\n>P2\nM\n>P1 again\nMV\n", 5, "'P1' occurs a second time, after line 1"),
        (">P1\rMKV\r>P2\rMKV\r", 1, "old Macintosh"),
        (">P\0\nMKV\n", 1, "cannot be the name of vectors"),
        (f">{'P' * 1001}\nMKV\n", 1, "cannot be the name of vectors"),
    ],
)
def test_fasta_problem_is_one_error_with_file_and_line(tmp_path, text, line, problem):
    path = write(tmp_path, text)
    with pytest.raises(DataError) as caught:
        list(read_records(path))
    message = str(caught.value)
    assert message.startswith(f"{path}, line {line}: ")
    assert problem in message


@pytest.mark.parametrize("text", ["", "\n\n", "; nothing\n"])
def test_fasta_without_records_is_an_error(tmp_path, text):
    with pytest.raises(DataError, match=r"proteins\.fasta: no records"):
        list(read_records(write(tmp_path, text)))


def test_fasta_texts_need_no_different_identifiers(tmp_path):
    assert list(read_texts(write(tmp_path, ">a\nMK\n>a\nV\n"))) == [["M", "K"], ["V"]]


ids = st.text(st.characters(codec="utf-8", categories=["L", "N", "P"]), min_size=1, max_size=8)
chains = st.text("ACDEFGHIKLMNPQRSTVWYBJOUXZ", min_size=1, max_size=40)


@given(
    records=st.lists(st.tuples(ids, chains), min_size=1, max_size=5, unique_by=lambda r: r[0]),
    data=st.data(),
)
def test_fasta_reads_back_what_any_program_may_write(tmp_path_factory, records, data):
    lines = []
    for name, chain in records:
        about = data.draw(st.sampled_from(["", " a protein", "\tx=1 >y"]))
        noisy = "".join(
            data.draw(st.sampled_from([residue, residue.lower(), f"-{residue}", f"{residue} "]))
            for residue in chain
        )
        noisy += data.draw(st.sampled_from(["", "*", "**", "-"]))
        width = data.draw(st.integers(3, 100))
        parts = [noisy[i : i + width] for i in range(0, len(noisy), width)]
        lines += [f">{name}{about}", *parts, *data.draw(st.sampled_from([[], [""], ["; x"]]))]
    end = data.draw(st.sampled_from(["\n", "\r\n"]))
    path = tmp_path_factory.getbasetemp() / "any.fasta"
    path.write_bytes(end.join(lines).encode())
    assert found(path) == records


def test_residues_of_one_sequence():
    assert residues(" mk-v.\nL** ") == ["M", "K", "V", "L"]
    for wrong in ("", "*", "M K 1", "M*K"):
        with pytest.raises(DataError, match="the sequence"):
            residues(wrong)


ROWS = [
    {"clone": "c1", "cdr3": "cassl*", "n": 1},
    {"clone": "c/2", "cdr3": "CAS-SF", "n": 2},
]


def write_rows(folder, kind):
    path = folder / f"tcr.{kind}"
    if kind == "parquet":
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(ROWS), path)
    elif kind == "jsonl":
        path.write_text("".join(f"{json.dumps(row)}\n" for row in ROWS), "utf-8")
    else:
        mark = "," if kind == "csv" else "\t"
        rows = [list(ROWS[0]), *(list(map(str, row.values())) for row in ROWS)]
        path.write_text("".join(f"{mark.join(row)}\n" for row in rows), "utf-8")
    return path


@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl", "parquet"])
def test_rows_give_sequences_and_identifiers(tmp_path, kind):
    path = write_rows(tmp_path, kind)
    options = {"field": "cdr3", "sequences": True}
    assert found(path, ids="clone", **options) == [("c1", "CASSL"), ("c/2", "CASSF")]
    assert found(path, ids="n", **options) == [("1", "CASSL"), ("2", "CASSF")]
    assert found(path, **options) == [(None, "CASSL"), (None, "CASSF")]
    plain = list(read_records(path, field="cdr3", ids="clone"))
    assert plain == [("c1", "cassl*", None), ("c/2", "CAS-SF", None)]
    with pytest.raises(DataError, match="no field 'name'; found 'clone', 'cdr3', 'n'"):
        found(path, field="cdr3", ids="name")


def test_rows_with_the_same_or_no_identifier_are_errors(tmp_path):
    path = write(tmp_path, "id,text\na,one\nb,two\na,three\n", "rows.csv")
    with pytest.raises(DataError, match="line 4: the identifier 'a' occurs a second time, after l"):
        found(path, ids="id")
    with pytest.raises(DataError, match=r"rows\.csv, line 3: the identifier '' cannot be"):
        found(write(tmp_path, "id,text\na,one\n,two\n", "rows.csv"), ids="id")
    path = write(tmp_path, '{"id": "a", "text": "x"}\n{"id": null, "text": "y"}\n', "rows.jsonl")
    with pytest.raises(DataError, match="line 2: 'id' holds null; an identifier is a string"):
        found(path, ids="id")


def test_identifiers_of_a_file_without_fields_are_an_error(tmp_path):
    for name in ("lines.txt", "a.fasta"):
        with pytest.raises(DataError, match="identifiers are a field of CSV"):
            read_records(write(tmp_path, ">a\nM\n", name), ids="id")


def test_an_empty_cell_is_an_error_for_sequences_only(tmp_path):
    path = write(tmp_path, "cdr3,n\nCASS,1\n,2\n", "tcr.csv")
    with pytest.raises(DataError, match=r"tcr\.csv, line 3: no residues"):
        found(path, field="cdr3", sequences=True)
    assert list(read_texts(path, field="cdr3")) == ["CASS", ""]


def test_lines_of_sequences_and_fasta_on_standard_input(tmp_path, monkeypatch):
    path = write(tmp_path, "mkv\nCASS*\n", "lines.txt")
    assert found(path, sequences=True) == [(None, "MKV"), (None, "CASS")]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(FASTA.encode())))
    assert found("-", sequences=True) == EXPECTED


def test_memory_does_not_grow_with_the_fasta_file(tmp_path):
    path = tmp_path / "many.fasta"
    block = "".join(f"{'ACDEFGHIKL' * 6}\n" for _ in range(20))
    with path.open("w") as file:
        for number in range(3000):
            file.write(f">protein{number}\n{block}")
    tracemalloc.start()
    count = sum(len(record.text) for record in read_records(path))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 3000 * 1200
    assert peak < 1_500_000 < path.stat().st_size / 2
