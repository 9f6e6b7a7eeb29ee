"""Amino-acid sequences: FASTA records, and the residues of a sequence.

    >>> from elmokit.text import residues
    >>> residues("mkv-laag*")
    ['M', 'K', 'V', 'L', 'A', 'A', 'G']

One residue is one token, a capital letter from A to Z. SeqVec and catELMo were trained so, and
their own programs read a sequence so: in capitals, without white space. What is no residue is left
out where everybody means the same by it (the gaps of an alignment, ``-`` and ``.``; the stop ``*``
at the end) and is an error elsewhere: a model that reads characters has a vector for everything,
and it would be a wrong one.
"""

from __future__ import annotations

from collections.abc import Iterator

from elmokit.errors import DataError

FASTA_SUFFIXES = (".fasta", ".fa", ".faa")

_NO_RESIDUES = dict.fromkeys(map(ord, " \t\r\n\v\f-."))


def residues(sequence: str) -> list[str]:
    """The residues of an amino-acid sequence: what to give to `Elmo.encode`.

    Letters become capitals; white space, gaps (``-`` and ``.``) and a stop (``*``) at the end are
    left out.

    Raises:
        DataError: Nothing is left, a stop is inside, or something is no letter.
    """
    return list(clean_sequence(sequence, f"the sequence {sequence!r:.40}"))


def clean_sequence(text: str, where: str) -> str:
    """The residues of a sequence as a string; `where` names it in errors."""
    letters = _letters(text, where).rstrip("*")
    if not letters:
        raise DataError(
            f"{where}: no residues. Leave the sequence out, or check that the file is complete."
        )
    return letters


def fasta_records(label: str, lines: Iterator[tuple[int, str]]) -> Iterator[tuple[str, str, str]]:
    """The records of a FASTA file.

    A line that begins with ``>`` is a header; its first word is the identifier. The lines up to the
    next header are the sequence. Blank lines and comments (``;``) are skipped.

    Args:
        label: The file's name, for errors.
        lines: Its lines with their numbers.

    Returns:
        Where a record begins, its identifier and its sequence, as it is but for line breaks.
    """
    where, name = "", ""
    parts: list[str] = []
    for number, line in lines:
        here = f"{label}, line {number}"
        if line.startswith(">"):
            if where:
                yield where, name, "".join(parts)
            where, name, parts = here, _identifier(line, here), []
        elif line.isspace() or line.startswith(";"):
            continue
        elif not where:
            raise DataError(
                f"{here}: no header. A FASTA record begins with a line of '>' and an identifier; "
                "name a file of other text .txt."
            )
        else:
            letters = _letters(line, here)
            if parts and parts[-1].endswith("*") and letters.strip("*"):
                raise _inner_stop(here)
            parts += [letters] if letters else []
    if not where:
        raise DataError(f"{label}: no records. A FASTA file has a line of '>' and an identifier.")
    yield where, name, "".join(parts)


def _identifier(header: str, where: str) -> str:
    if "\r" in header.rstrip():
        raise DataError(
            f"{where}: the line ends are those of old Macintosh files (CR). Convert them, for "
            r"example with tr '\r' '\n'."
        )
    words = header[1:].split(maxsplit=1)
    if not words:
        raise DataError(f"{where}: a header without an identifier. Write one after the '>'.")
    return words[0]


def _letters(text: str, where: str) -> str:
    """The letters of a part of a sequence, in capitals; stops may follow them."""
    letters = text.translate(_NO_RESIDUES)
    bare = letters.rstrip("*")
    if bare and not (bare.isascii() and bare.isalpha()):
        wrong = next(letter for letter in bare if not (letter.isascii() and letter.isalpha()))
        if wrong == "*":
            raise _inner_stop(where)
        raise DataError(
            f"{where}: {wrong!r} is no residue. Sequences are letters from A to Z; gaps (- and .), "
            "white space and a stop (*) at the end are left out."
        )
    return letters.upper()


def _inner_stop(where: str) -> DataError:
    return DataError(
        f"{where}: a stop (*) inside the sequence. Cut it there, leave the sequence out, or write "
        "X instead."
    )
