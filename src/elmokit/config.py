"""Every size and switch of a model, checked when it is built.

One frozen dataclass per part: text, characters, words, LSTM, softmax. All of them go to JSON and
TOML and come back equal (`to_dict`, `from_dict`, `dumps_toml`, `loads_toml`). An optional field is
absent from the file when it is None.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import tomllib
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

from elmokit.errors import ConfigError

PUBLISHED_FILTERS = ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024))
"""(width, count) of the seven character filters in every published English model."""

BYTE_ROWS = 262
"""Rows of a byte alphabet: padding token, 256 bytes, four markers, in-word padding."""

ADAPTIVE_SHRINK = 4
"""How much narrower each cluster of an adaptive softmax is than the one before."""

MAX_SIZE = 1 << 31
"""No single size may reach this; a larger one is a damaged file, not a model."""


MAX_FLOAT = 2.0**127
"""No number of a model may reach this: the network could not hold it as float32."""


def check(condition: bool, owner: object, name: str, problem: str) -> None:
    """Raise a `ConfigError` that names a setting and its value, unless the condition holds."""
    if not condition:
        raise ConfigError(f"{type(owner).__name__}.{name} = {getattr(owner, name)!r}: {problem}")


def check_positive(owner: object, *names: str) -> None:
    """Raise a `ConfigError` unless these settings are above zero."""
    for name in names:
        check(getattr(owner, name) > 0, owner, name, "give a positive number")


def check_not_negative(owner: object, *names: str) -> None:
    """Raise a `ConfigError` if one of these settings is below zero."""
    for name in names:
        check(getattr(owner, name) >= 0, owner, name, "give zero or a positive number")


def _check_sizes(owner: object, *names: str, least: int = 1) -> None:
    for name in names:
        value = getattr(owner, name)
        good = isinstance(value, int) and type(value) is not bool and least <= value < MAX_SIZE
        check(good, owner, name, f"give a whole number of at least {least}")


def _check_flags(owner: object, *names: str) -> None:
    for name in names:
        check(isinstance(getattr(owner, name), bool), owner, name, "true or false")


@dataclass(frozen=True, kw_only=True)
class TextConfig:
    """How text becomes tokens, and how the vocabulary writes its special words."""

    tokenizer: str = "words"
    """Name of the tokeniser for text given as a string: words, space, chars, jieba, spacy:xx."""
    begin: str = "<S>"
    """The marker before every sentence."""
    end: str = "</S>"
    """The marker after every sentence."""
    unknown: str = "<UNK>"
    """The vocabulary's name for a word it does not hold."""

    def __post_init__(self) -> None:
        for name in ("tokenizer", "begin", "end", "unknown"):
            value = getattr(self, name)
            check(isinstance(value, str) and value != "", self, name, "give a name")


@dataclass(frozen=True, kw_only=True)
class CharacterConfig:
    """The character CNN over the characters of a word."""

    alphabet: Literal["bytes", "unicode"] = "bytes"
    """UTF-8 bytes with fixed ids, or Unicode characters with a dictionary of their own."""
    rows: int = BYTE_ROWS
    """Rows of the character embedding table (262 for bytes)."""
    dim: int = 16
    """Width of one character's vector."""
    max_characters: int = 50
    """Columns of a word, the two word markers included; longer words are cut."""
    filters: tuple[tuple[int, int], ...] = PUBLISHED_FILTERS
    """(width, count) of each filter, in the order of concatenation."""
    activation: Literal["relu", "tanh"] = "relu"
    """Applied to the filters' maxima; the highways always use relu."""
    highways: int = 2
    """Number of highway layers above the filters."""
    swapped_markers: bool = False
    """The word starts with the end marker and ends with the begin marker, as
    ELMoForManyLangs trained all its models."""

    def __post_init__(self) -> None:
        check(self.alphabet in ("bytes", "unicode"), self, "alphabet", "use bytes or unicode")
        check(self.activation in ("relu", "tanh"), self, "activation", "use relu or tanh")
        for name, least in (("rows", 6), ("dim", 1), ("max_characters", 3), ("highways", 0)):
            _check_sizes(self, name, least=least)
        good = self.alphabet != "bytes" or self.rows == BYTE_ROWS
        check(good, self, "rows", f"the byte alphabet has {BYTE_ROWS} rows")
        _check_flags(self, "swapped_markers")
        check(len(self.filters) > 0, self, "filters", "at least one [width, count] is needed")
        for pair in self.filters:
            good = len(pair) == 2 and all(isinstance(n, int) and 0 < n < MAX_SIZE for n in pair)
            check(good, self, "filters", f"{pair!r} is not a [width, count] of positive numbers")
            problem = f"width {pair[0]} is more than max_characters = {self.max_characters}"
            check(pair[0] <= self.max_characters, self, "filters", problem)

    @property
    def width(self) -> int:
        """F, the number of filters, which is the width of the CNN's output."""
        return sum(count for _, count in self.filters)

    @property
    def widest_filter(self) -> int:
        """The largest filter width: this many padding columns keep trimming exact."""
        return max(width for width, _ in self.filters)


@dataclass(frozen=True, kw_only=True)
class WordConfig:
    """A table of word vectors as input, alone or beside the characters."""

    rows: int
    """Words in the table, special words included."""
    dim: int
    """Width of one word's vector."""

    def __post_init__(self) -> None:
        _check_sizes(self, "rows", "dim")


@dataclass(frozen=True, kw_only=True)
class LstmConfig:
    """The stacks of LSTM layers, one per direction."""

    layers: int = 2
    """L, the number of LSTM layers in each direction."""
    cells: int = 4096
    """H, cells of a layer."""
    width: int = 512
    """P, width of one direction's output, and of the token vectors that enter."""
    projection: bool = True
    """Whether a matrix projects the H cells to P; without it H must equal P."""
    cell_clip: float | None = None
    """Bound on the cell state; none when left out. Published models use 3."""
    projection_clip: float | None = None
    """Bound on the projected output; none when left out. Published models use 3."""
    residual: bool = True
    """Whether layers from the second on add their input to their output."""
    forget_bias: float = 1.0
    """Added to the forget gate at run time, not stored in the bias."""
    backward: bool = True
    """Whether the right-to-left direction exists."""

    def __post_init__(self) -> None:
        _check_sizes(self, "layers", "cells", "width")
        for name in ("cell_clip", "projection_clip"):
            value = getattr(self, name)
            number = isinstance(value, int | float) and not isinstance(value, bool)
            good = value is None or (number and 0 < value < MAX_FLOAT)
            check(good, self, name, "give a positive number, or leave it out for no clipping")
        _check_flags(self, "projection", "residual", "backward")
        number = isinstance(self.forget_bias, int | float)
        check(number and abs(self.forget_bias) < MAX_FLOAT, self, "forget_bias", "give a number")
        good = self.projection or self.cells == self.width
        check(good, self, "width", f"without a projection it must equal cells = {self.cells}")

    @property
    def directions(self) -> tuple[str, ...]:
        """The directions that exist, in the order of the output's halves."""
        return ("forward", "backward") if self.backward else ("forward",)


@dataclass(frozen=True, kw_only=True)
class SoftmaxConfig:
    """The output layer that predicts words, shared by both directions."""

    words: int
    """V, the number of words it can predict."""
    tied: bool = False
    """Whether its matrix is the word input table itself."""
    cutoffs: tuple[int, ...] = ()
    """Where the clusters of an adaptive softmax begin; empty for a plain one."""

    def __post_init__(self) -> None:
        _check_sizes(self, "words")
        _check_flags(self, "tied")
        bounds = (0, *self.cutoffs, self.words)
        rising = all(a < b for a, b in itertools.pairwise(bounds))
        check(rising, self, "cutoffs", f"give rising word numbers below words = {self.words}")
        check(not (self.cutoffs and self.tied), self, "cutoffs", "a tied softmax has none")


@dataclass(frozen=True, kw_only=True)
class MixConfig:
    """Scalar mixes that were learned with a task and are stored with the model."""

    count: int = 1
    """How many mixes (outputs) are stored."""
    layer_norm: bool = False
    """Whether each layer is normalised before it is weighted."""

    def __post_init__(self) -> None:
        _check_sizes(self, "count")
        _check_flags(self, "layer_norm")


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """A model: every published ELMo is one value of this class."""

    text: TextConfig = field(default_factory=TextConfig)
    characters: CharacterConfig | None = None
    words: WordConfig | None = None
    input_projection: bool = True
    """Whether a matrix projects [word vector ; character vector] to the LSTM's width P."""
    lstm: LstmConfig = field(default_factory=LstmConfig)
    softmax: SoftmaxConfig | None = None
    mix: MixConfig | None = None

    def __post_init__(self) -> None:
        if self.characters is None and self.words is None:
            raise ConfigError("ModelConfig: give characters, words or both as input")
        _check_flags(self, "input_projection")
        if not self.input_projection and self.input_width != self.lstm.width:
            raise ConfigError(
                f"ModelConfig.input_projection = False: the input is {self.input_width} wide but "
                f"lstm.width = {self.lstm.width}; make them equal or switch the projection on"
            )
        clusters = len(self.softmax.cutoffs) if self.softmax is not None else 0
        if ADAPTIVE_SHRINK**clusters > self.lstm.width:
            raise ConfigError(
                f"ModelConfig.softmax.cutoffs: {clusters} clusters are too many for lstm.width = "
                f"{self.lstm.width}; each is {ADAPTIVE_SHRINK} times narrower than the one before"
            )
        if self.softmax is not None and self.softmax.tied:
            table = self.words
            if table is None or (table.rows, table.dim) != (self.softmax.words, self.lstm.width):
                raise ConfigError(
                    "ModelConfig.softmax.tied = True: needs a word table with "
                    f"rows = {self.softmax.words} and dim = {self.lstm.width}"
                )

    @property
    def input_width(self) -> int:
        """Width of what enters the input projection: word vector, then character vector."""
        word = self.words.dim if self.words else 0
        return word + (self.characters.width if self.characters else 0)

    @property
    def dim(self) -> int:
        """Width of one exposed vector, 2P (P when only the forward direction exists)."""
        return self.lstm.width * len(self.lstm.directions)

    @property
    def layers(self) -> int:
        """Number of exposed layers, L + 1: the token vectors and every LSTM layer."""
        return self.lstm.layers + 1


def published_shape(name: str) -> ModelConfig:
    """The shape of a published English model: ``small``, ``medium`` or ``original``."""
    sizes = {"small": (1024, 128, 1), "medium": (2048, 256, 1), "original": (4096, 512, 2)}
    if name not in sizes:
        raise ConfigError(f"no published shape {name!r}; there are {', '.join(sizes)}")
    cells, width, highways = sizes[name]
    return ModelConfig(
        text=TextConfig(tokenizer="space"),
        characters=CharacterConfig(highways=highways),
        lstm=LstmConfig(cells=cells, width=width, cell_clip=3.0, projection_clip=3.0),
    )


RECIPES = Path(__file__).parent / "configs"
"""Settings in TOML: presets of pretraining, and recipes of tasks in ``tasks``."""


def recipes(folder: str = "") -> dict[str, Path]:
    """The recipes inside the package, by name; those of tasks with ``folder="tasks"``."""
    found = sorted((RECIPES / folder).glob("*.toml"), key=lambda path: path.stem)
    order = ("tiny", "small", "medium", "original", "paper")  # by size
    found.sort(key=lambda path: order.index(path.stem) if path.stem in order else len(order))
    return {path.stem: path for path in found}


def recipe_file(given: str | Path, folder: str = "") -> Path:
    """A TOML file of one's own, or the recipe of this name.

    Raises:
        ConfigError: It is neither.
    """
    path, known = Path(given), recipes(folder)
    if path.suffix == ".toml" or path.is_file():
        return path
    if str(given) not in known:
        raise ConfigError(f"{given}: neither a TOML file nor one of {', '.join(known)}")
    return known[str(given)]


Config = TypeVar("Config")


def to_dict(config: Any) -> dict[str, Any]:
    """Plain dictionaries and lists, ready for JSON or TOML; fields that are None are left out."""
    return {
        item.name: to_dict(value) if dataclasses.is_dataclass(value) else _listed(value)
        for item in dataclasses.fields(config)
        if (value := getattr(config, item.name)) is not None
    }


def from_dict(kind: type[Config], data: Mapping[str, Any], where: str = "") -> Config:
    """Build a config from plain data.

    Args:
        kind: The dataclass to build.
        data: Plain values, as `to_dict` gives them.
        where: Dotted path or file name for the start of error messages.

    Raises:
        ConfigError: A field is unknown, missing, of the wrong type or impossible.
    """
    label = where or kind.__name__
    if not isinstance(data, Mapping):
        raise ConfigError(f"{label}: expected a table of fields, found {data!r}")
    hints = typing.get_type_hints(kind)
    fields = {item.name: item for item in dataclasses.fields(kind)}  # type: ignore[arg-type]
    data = with_present_names(kind, data, label)
    unknown = sorted(set(data) - set(fields))
    if unknown:
        raise ConfigError(f"{label}: unknown field {unknown[0]!r}; known: {', '.join(fields)}")
    values: dict[str, Any] = {}
    for name, item in fields.items():
        if name in data:
            values[name] = _convert(hints[name], data[name], f"{label}.{name}")
        elif item.default is dataclasses.MISSING and item.default_factory is dataclasses.MISSING:
            raise ConfigError(f"{label}.{name} is missing")
    try:
        return kind(**values)
    except ConfigError as error:
        message = str(error)
        if where and message.startswith(f"{kind.__name__}."):  # as the user wrote it
            raise ConfigError(where + message.removeprefix(kind.__name__)) from None
        raise ConfigError(f"{where}: {message}" if where else message) from None


def with_present_names(kind: type[Any], data: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Settings with the fields' present names; ``OLD_NAMES`` of a dataclass lists the old ones."""
    old_names: Mapping[str, str] = getattr(kind, "OLD_NAMES", {})
    hints = typing.get_type_hints(kind)
    renamed: dict[str, Any] = {}
    for name, value in data.items():
        present = old_names.get(name, name)
        if present in renamed:
            raise ConfigError(f"{where}.{present} is given twice: {name!r} is its old name")
        renamed[present] = value
        hint = hints.get(present)
        for inner in (hint, *typing.get_args(hint)):
            if isinstance(value, Mapping) and dataclasses.is_dataclass(inner):
                renamed[present] = with_present_names(inner, value, f"{where}.{present}")  # type: ignore[arg-type]
    return renamed


def dumps_toml(config: Any) -> str:
    """The config as TOML, nested dataclasses as tables."""
    return "\n".join(_toml_lines(to_dict(config), ())) + "\n"


def loads_toml(kind: type[Config], text: str, where: str = "") -> Config:
    """Read a config from TOML text."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{where or 'TOML'}: {error}") from None
    return from_dict(kind, data, where)


def _listed(value: Any) -> Any:
    """Tuples as lists, all the way down."""
    return [_listed(item) for item in value] if isinstance(value, tuple | list) else value


def _convert(hint: Any, value: Any, where: str) -> Any:
    """Convert a plain value to the type of a field; sizes are checked by the dataclass."""
    if isinstance(hint, types.UnionType):
        hint = next(option for option in typing.get_args(hint) if option is not type(None))
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return from_dict(hint, value, where)
    if typing.get_origin(hint) is tuple:
        if not isinstance(value, list | tuple):
            raise ConfigError(f"{where}: expected a list, found {value!r}")
        inner = typing.get_args(hint)[0]
        return tuple(_convert(inner, item, where) for item in value)
    if typing.get_origin(hint) is Literal:
        return value
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, hint) or (isinstance(value, bool) and hint is not bool):
        raise ConfigError(f"{where}: expected {hint.__name__}, found {value!r}")
    return value


def _toml_lines(table: Mapping[str, Any], path: tuple[str, ...]) -> list[str]:
    """A table's own values first, then its sub-tables, as TOML requires."""
    own, tables = [], []
    for name, value in table.items():
        if isinstance(value, dict):
            inner = (*path, name)
            tables += ["", f"[{'.'.join(inner)}]", *_toml_lines(value, inner)]
        else:
            # JSON writes scalars and lists as TOML does, except one control character in strings.
            text = json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
            own.append(f"{name} = {text}")
    return [*own, *tables]
