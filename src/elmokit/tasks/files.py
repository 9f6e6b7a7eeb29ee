"""Files to examples and back, for every task.

    for example in read_examples("tag", "train.conll"):
        ...

A task declares the fields of its examples once: a `Field` says what the task calls it, what files
may call it, how its value is read and written. From `Records`, which holds them, the task gets
JSONL, CSV, TSV and plain text; other formats are functions of its own. The format follows from the
file's name, or, where the name says nothing, from its first line; `format` says it outright.
Examples stream: memory depends on one example (SQuAD's JSON alone is one value and is read whole).
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, BinaryIO, NamedTuple, TextIO, TypeAlias, cast

from elmokit.errors import ConfigError, DataError, MissingExtraError
from elmokit.files import atomic_file, scratch
from elmokit.tasks import get_task
from elmokit.tasks.records import (
    Format,
    Names,
    ReadOptions,
    Record,
    Spans,
    Tokens,
    checked_tokens,
    csv_line,
    json_line,
    json_records,
    lines,
    table_records,
    tsv_line,
)
from elmokit.text.readers import data_suffix

if TYPE_CHECKING:
    from elmokit.tasks.config import TaskConfig
    from elmokit.tasks.tag.spans import Scheme

Data: TypeAlias = str | Path | Iterable[Any]
"""A file that the task reads; or examples, dictionaries or tuples; a DataFrame, a Dataset."""


class Field:
    """A field of a task's examples, of a kind of its own or one of those below.

    Args:
        name: What the task calls it; the example's attribute.
        aliases: Further names that files may use for it, best first.
        answer: Whether it is to be predicted; the others are what it is predicted from.
        written: The name under which it is written; its own if empty.
        table: Whether it is written into tables; it is read from them in any case.
    """

    def __init__(
        self, name: str, *aliases: str, answer: bool = False, written: str = "", table: bool = True
    ) -> None:
        self.name = name
        self.names: Names = {name: (name, *aliases)}
        """The names that files may use, by our own; a kind may have more than one of its own."""
        self.answer = answer
        self.written: str = written or name
        self.table = table

    def read(self, record: Record, found: dict[str, Any], options: ReadOptions) -> dict[str, Any]:
        """The example's attributes that it decides; `found` has those of the fields before it."""
        if not self.answer:
            return {self.name: self.value(record, found, options)}
        return {self.name: options.answer(self.value, record, found, options)}

    def value(self, record: Record, found: dict[str, Any], options: ReadOptions) -> Any:
        """The value in a record, checked; a string unless a kind says otherwise."""
        return record.text(self.name)

    def write(self, example: Any) -> dict[str, Any]:
        """Its JSON values by our names; what is None is left out."""
        value = getattr(example, self.name)
        return {self.name: list(value) if isinstance(value, tuple) else value}

    def cell(self, example: Any) -> str:
        """The same in a table."""
        return self.write(example)[self.name] or ""


class TextField(Field):
    """A text, or its tokens.

    Args:
        name: What the task calls the text.
        aliases: As in `Field`.
        tokens: Our name of a JSON field with the tokens; empty: files have the text alone.
        text_at: The example's attribute for the text; `name` if empty.
        tokens_at: The one for the tokens; `tokens` if empty.
        spans_at: The one for their character offsets; empty: there is none.
        both: Whether the tokens are written beside the text.
        token_aliases: Further names of the tokens.
        written: As in `Field`.
    """

    def __init__(
        self,
        name: str,
        *aliases: str,
        tokens: str = "",
        text_at: str = "",
        tokens_at: str = "",
        spans_at: str = "",
        both: bool = False,
        token_aliases: tuple[str, ...] = (),
        written: str = "",
    ) -> None:
        super().__init__(name, *aliases, written=written)
        self.tokens = tokens
        if tokens:
            self.names: Names = {**self.names, tokens: (tokens, *token_aliases)}
        self._text_at = text_at or name
        self._tokens_at = tokens_at or tokens
        self._spans_at = spans_at
        self._both = both

    def read(self, record: Record, found: dict[str, Any], options: ReadOptions) -> dict[str, Any]:
        """The text and its tokens."""
        text = record.text(self.name) if self.name in record.values else None
        spans: Spans = ()
        if self.tokens in record.values:
            tokens = record.strings(self.tokens)
        elif text is None:
            raise record.missing(self.name)
        elif self._spans_at:
            tokens, spans = options.spans(text)
        else:
            tokens = options.tokens(text)
        if not self._spans_at:
            checked_tokens(tokens, record.where)
        return self.attributes(tokens, text, spans)

    def attributes(self, tokens: Tokens, text: str | None, spans: Spans = ()) -> dict[str, Any]:
        """What an example holds of a text."""
        found = {self._text_at: text, self._tokens_at: tokens}
        return {**found, self._spans_at: spans} if self._spans_at else found

    def write(self, example: Any) -> dict[str, Any]:
        """The text, or the tokens where there is no text or both are wanted."""
        text = getattr(example, self._text_at)
        values = {self.name: text}
        if self.tokens:
            whole = list(getattr(example, self._tokens_at))
            values[self.tokens] = whole if text is None or self._both else None
        return values

    def cell(self, example: Any) -> str:
        """The text; its tokens with spaces between them where there is none."""
        text: str | None = getattr(example, self._text_at)
        return " ".join(getattr(example, self._tokens_at)) if text is None else text


class LabelField(Field):
    """A class: a string or a number."""

    def __init__(self, name: str, *aliases: str) -> None:
        super().__init__(name, *aliases, answer=True)

    def value(self, record: Record, found: dict[str, Any], options: ReadOptions) -> str:
        """The class."""
        return record.label(self.name)


class NameField(Field):
    """A string or a number that is carried along: an id, a title, an address.

    `default` replaces a missing one; ``"number"``: the record's number.
    """

    def __init__(self, name: str, *aliases: str, default: str | None = None) -> None:
        super().__init__(name, *aliases, table=False)
        self._default = default

    def value(self, record: Record, found: dict[str, Any], options: ReadOptions) -> str | None:
        """The value as text."""
        if record.values.get(self.name) is not None:
            return str(record.values[self.name])
        return str(record.number) if self._default == "number" else self._default

    def write(self, example: Any) -> dict[str, Any]:
        """The value, unless it is the default."""
        value = getattr(example, self.name)
        return {self.name: None if value == self._default else value}


class Records(NamedTuple):
    """How a task's examples are made of its fields.

    Attributes:
        example: The class of the examples.
        fields: Its fields, in the order in which they are read.
        finish: What becomes of a record's attributes; None: one example, made of them.
        extra: Further JSON values to write with an example, by the file's names.
        order: What the columns of a table without a header are; empty: it must have one.
    """

    example: type[Any]
    fields: Sequence[Field]
    finish: Callable[[Record, dict[str, Any], ReadOptions], Iterator[Any]] | None = None
    extra: Callable[[Any], Mapping[str, Any]] | None = None
    order: tuple[str, ...] = ()

    def names(self, *, table: bool = False) -> Names:
        """All names of all fields; `table`: without those of tokens, which tables do not have."""
        if table:
            return {f.name: f.names[f.name] for f in self.fields}
        return {name: tried for f in self.fields for name, tried in f.names.items()}

    @property
    def answers(self) -> frozenset[str]:
        """Our names of the fields that are to be predicted."""
        return frozenset(f.name for f in self.fields if f.answer)

    def examples(self, records: Iterable[Record], options: ReadOptions) -> Iterator[Any]:
        """Records to examples."""
        located = "where" in self.example.__dataclass_fields__
        for record in records:
            found: dict[str, Any] = {"where": record.where} if located else {}
            for one in self.fields:
                found |= one.read(record, found, options)
            if self.finish is None:
                yield self.example(**found)
            else:
                yield from self.finish(record, found, options)

    def read_jsonl(self, path: str, options: ReadOptions) -> Iterator[Any]:
        """The examples of a JSONL file."""
        return self.examples(json_records(path, self.names(), self.answers, options), options)

    def jsonl_lines(self, examples: Iterable[Any], options: ReadOptions) -> Iterator[str]:
        """Examples as lines of JSON."""
        own = {f.name: f.written for f in self.fields if f.written != f.name}
        for example in examples:
            values: dict[str, Any] = {}
            for one in self.fields:
                values |= one.write(example)
            rest = {} if self.extra is None else self.extra(example)
            yield json_line(values, own | options.names, rest)

    def table(self, name: str, ending: str, delimiter: str, *, quoted: bool, **more: Any) -> Format:
        """CSV or TSV as a format of the task."""
        names = self.names(table=True)
        columns = [f for f in self.fields if f.table]

        def read(path: str, options: ReadOptions) -> Iterator[Any]:
            records = table_records(
                path, names, self.answers, options, delimiter, quoted=quoted, order=self.order
            )
            return self.examples(records, options)

        def write(examples: Iterable[Any], options: ReadOptions) -> Iterator[str]:
            line = (lambda cells: csv_line(cells, delimiter)) if quoted else tsv_line
            yield line([options.names.get(f.name, f.written) for f in columns])
            for example in examples:
                yield line([f.cell(example) for f in columns])

        return Format(name, (ending,) if ending else (), read, write, **more)

    def jsonl(self) -> Format:
        """JSONL as a format of the task."""
        return Format(
            "jsonl",
            (".jsonl", ".ndjson"),
            self.read_jsonl,
            self.jsonl_lines,
            begins=lambda line, labelled: line.lstrip().startswith("{"),
        )

    def tables(self) -> tuple[Format, ...]:
        """CSV, TSV and TSV with quotes."""
        return (
            self.table("csv", ".csv", ",", quoted=True),
            self.table("tsv", ".tsv", "\t", quoted=False),
            self.table("quoted-tsv", "", "\t", quoted=True),
        )

    def plain_text(self, lines_of: Any = None) -> Format:
        """Texts alone, one per line, for prediction."""
        (text,) = (f for f in self.fields if isinstance(f, TextField))

        def read(path: str, options: ReadOptions) -> Iterator[Any]:
            for _, line in lines(path):
                if line.strip():
                    yield self.example(**text.attributes(options.tokens(line), line))

        return Format("text", (), read, lines_of, labels=False)


# Reading and writing.


def read_examples(
    task: str,
    path: str | os.PathLike[str],
    *,
    format: str | None = None,
    tokenizer: str = "words",
    target_tokenizer: str | None = None,
    fields: Mapping[str, str] | None = None,
    labelled: bool = True,
    scheme: Scheme | None = None,
    note: Callable[[str], None] | None = None,
) -> Iterator[Any]:
    """Read the examples of a file, one at a time.

    Args:
        task: Its name.
        path: A file (also compressed: .gz, .bz2, .xz, .zst), a folder where the task has such a
            format, ``"-"`` for standard input; for `seq2seq` also ``"source.txt,target.txt"``.
        format: One of `format_names`; None finds it out.
        tokenizer: Splits text that is not tokenised (`elmokit.text.tokens.get_tokenizer`).
        target_tokenizer: Splits what `seq2seq` writes; None: as `tokenizer`.
        fields: Our names of columns or fields to the file's own (``{"text": "review"}``); numbers
            for tables without a header row (``{"text": "1", "label": "0"}``) and for columns. A
            text that is not there is looked for under its usual names; a label is not.
        labelled: Whether labels are needed. If not, one that is missing or wrong is None.
        scheme: ``iob1``, ``bio``, ``bioes``, ``bilou`` or ``bmes``: tags that it does not allow
            are an error.
        note: Called with a line that says what was assumed about the file's columns.

    Returns:
        The examples, of the task's class (`Task.example_type`).

    Raises:
        ConfigError: No such task or format, or one without labels where they are needed.
        DataError: The file cannot be read as what it should be, or has no example with a label.
    """
    name = os.fspath(path)
    if name == "-" and sys.stdin is None:
        raise DataError("standard input is closed. Give the name of a file.")
    chosen = _chosen(task, format) if format else _found(task, name, labelled)
    if labelled and not chosen.labels:
        raise ConfigError(f"{name}: plain text has no labels. It is read for prediction alone.")
    options = ReadOptions(tokenizer, target_tokenizer, fields or {}, labelled, scheme, note)
    examples = chosen.read(name, options)

    def at_least_one() -> Iterator[Any]:
        empty = True
        for example in examples:
            empty = False
            yield example
        if empty and labelled:
            raise DataError(
                f"{name}: no examples in it, read as {chosen.name!r}. Check the file, or name its "
                "format."
            )

    return at_least_one()


def example_lines(
    task: str,
    examples: Iterable[Any],
    format: str = "jsonl",
    *,
    fields: Mapping[str, str] | None = None,
) -> Iterator[str]:
    """Examples as lines of a format, without line ends, one at a time; see `write_examples`."""
    chosen = _chosen(task, format)
    if chosen.lines is None:
        can = [other.name for other in get_task(task).formats if other.lines]
        raise ConfigError(
            f"{format!r} cannot be written line by line. Formats that can: {', '.join(can)}."
        )
    return chosen.lines(examples, ReadOptions(fields=fields or {}))


def write_examples(
    task: str,
    path: str | os.PathLike[str],
    examples: Iterable[Any],
    *,
    format: str | None = None,
    fields: Mapping[str, str] | None = None,
) -> None:
    """Write examples into a file (or a folder, for SNIPS), whole or not at all.

    Args:
        task: Its name.
        path: Where to; compressed if it ends in .gz, .bz2, .xz or .zst.
        examples: The examples; predictions are examples whose labels are filled in.
        format: One of `format_names`; None takes it from the name's ending.
        fields: As in `read_examples`: names to write fields under, numbers for columns of tags.
    """
    name = os.fspath(path)
    chosen = _chosen(task, format) if format else _by_ending(task, name)
    if chosen is None:
        raise ConfigError(
            f"{name}: the ending does not say which format to write. Name one: "
            f"{', '.join(format_names(task))}."
        )
    if chosen.lines is None and chosen.whole is None and chosen.write is None:
        raise ConfigError(f"{chosen.name!r} is read, not written. Write .jsonl instead.")
    if chosen.write is not None:
        with _new_folder(name) as folder:
            chosen.write(examples, folder)
        return
    with compressed_text(path) as file:
        if chosen.whole is not None:
            file.write(chosen.whole(examples))
            return
        for line in example_lines(task, examples, chosen.name, fields=fields):
            file.write(line + "\n")


@contextmanager
def _new_folder(name: str) -> Iterator[Path]:
    """The path of a temporary folder to make; it becomes `name` when the block ends well."""
    folder = Path(os.path.realpath(name))
    if folder.exists() or not folder.parent.is_dir():
        raise DataError(f"{name}: give the name of a new folder, in a folder that exists.")
    with scratch(folder) as temporary:
        yield temporary
        os.replace(temporary, folder)


def format_names(task: str) -> tuple[str, ...]:
    """Names of the formats of a task."""
    return tuple(format.name for format in get_task(task).formats)


def _chosen(task: str, name: str) -> Format:
    formats = {format.name: format for format in get_task(task).formats}
    if name not in formats:
        raise ConfigError(f"{task} has no format {name!r}. It has {', '.join(formats)}.")
    return formats[name]


def _by_ending(task: str, name: str) -> Format | None:
    ending, _ = data_suffix(name)
    return next((f for f in get_task(task).formats if ending in f.endings), None)


def _found(task: str, name: str, labelled: bool) -> Format:
    """The format of an input: by its kind, its ending, or its first line."""
    formats, names = get_task(task).formats, ", ".join(format_names(task))
    plain = [f for f in formats if not f.labels and not labelled]
    sure = next((f for f in formats if f.matches is not None and f.matches(name)), None)
    if sure is None and name == "-":
        return plain[0] if plain else _chosen(task, "jsonl")
    if sure := sure or _by_ending(task, name):
        return sure
    if os.path.exists(name) and not os.path.isfile(name) and not os.path.isdir(name):
        raise ConfigError(
            f"{name}: this is a pipe, which can be read once only, so its first line cannot say "
            f"what it is. Name the format: {names}."
        )
    first = next((line for _, line in lines(name) if line.strip()), "")
    found = [f for f in formats if f.begins is not None and f.begins(first, labelled)] + plain
    if not found:
        raise DataError(
            f"{name}: neither its ending nor its first line says what it is. Name the format: "
            f"{names}."
        )
    return found[0]


def read_labelled(
    task: str,
    data: Data,
    config: TaskConfig,
    *,
    format: str | None = None,
    fields: Mapping[str, str] | None = None,
    note: Callable[[str], None] | None = None,
) -> list[Any]:
    """Labelled examples, of a file or of what a user has in Python (`elmokit.tasks.labelled`).

    Args:
        task: Its name.
        data: Where the examples are.
        config: The settings, which say how text is split.
        format: Of a file, if its name does not say it.
        fields: Names of columns or keys, ``{"text": "review"}``.
        note: Called with a line that says what was assumed about a file.
    """
    known = get_task(task)
    options: dict[str, Any] = {"tokenizer": config.inputs.tokenizer, **known.reading(config)}
    if isinstance(data, str | Path):
        found = read_examples(task, data, format=format, fields=fields, note=note, **options)
        return list(found)
    from elmokit.tasks.labelled import from_items

    return list(from_items(known, data, ReadOptions(**options, fields=fields or {})))


# Compressed files.


@contextmanager
def compressed_text(path: str | os.PathLike[str]) -> Iterator[TextIO]:
    """Open a text file to write atomically, compressed if its ending says so."""
    with (
        atomic_file(path) as temporary,
        temporary.open("wb") as raw,
        io.TextIOWrapper(
            _compressed(raw, data_suffix(os.fspath(path))[1]), encoding="utf-8", newline="\n"
        ) as file,
    ):
        yield file


def _compressed(raw: BinaryIO, compression: str) -> IO[bytes]:
    """A stream that compresses what is written into `raw`; equal texts give equal files."""
    if compression == ".gz":
        return cast(IO[bytes], gzip.GzipFile("", "wb", fileobj=raw, mtime=0))
    if compression == ".bz2":
        return cast(IO[bytes], bz2.BZ2File(raw, "wb"))
    if compression == ".xz":
        return cast(IO[bytes], lzma.LZMAFile(raw, "wb"))
    if compression == ".zst":
        try:
            import zstandard
        except ImportError as error:
            raise MissingExtraError("zstandard", "data", "writing .zst") from error
        return cast(IO[bytes], zstandard.ZstdCompressor().stream_writer(raw, closefd=False))
    return raw
