"""A map of words in context: their vectors as points of a plane, drawn without any package."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from elmokit.encode.similarity import in_context, occurrences
from elmokit.errors import ConfigError, DataError, MissingExtraError
from elmokit.files import atomic_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from elmokit.encode.elmo import Elmo, Sentence
    from elmokit.encode.layers import Layers

SIDE, MARGIN, LINE = 340, 30, 19
"""Pixels of the square, around it, and of a line of text."""
COLOURS = ("#1b6ca8", "#d1495b", "#2e8b57", "#e69f00", "#7b5ea7", "#56b4e9", "#8c564b", "#555555")
CONTEXT = 8
"""Tokens on each side of a word in the list of uses."""


@dataclass(frozen=True, eq=False)
class UseMap:
    """Uses of words, or sentences, as points; notebooks show it as a picture."""

    points: NDArray[np.float64]
    """(N, 2): the first two principal components of the vectors."""
    texts: tuple[str, ...]
    """Each use in its sentence, the word in brackets."""
    labels: tuple[str, ...]
    """The label of each use, which sets its colour; empty without labels."""
    variance: tuple[float, float]
    """Share of the vectors' variance that each component has."""

    def _repr_svg_(self) -> str:
        return self.svg

    @property
    def svg(self) -> str:
        """The picture: numbered points, below them the uses."""
        scale = SIDE / 2 * 0.9 / max(float(np.abs(self.points).max()), 1e-9)
        x, y = (
            MARGIN + SIDE / 2 + scale * sign * self.points[:, i] for i, sign in ((0, 1), (1, -1))
        )
        box = f'x="{MARGIN}" y="{MARGIN}" width="{SIDE}" height="{SIDE}" fill="none" stroke="#ccc"'
        parts = [f"<rect {box}/>"]
        for number, (text, colour) in enumerate(zip(self.texts, self._colours(), strict=True)):
            below = 2 * MARGIN + SIDE + number * LINE
            said = (
                f"{number + 1} {self.labels[number]}: {text}"
                if self.labels
                else f"{number + 1} {text}"
            )
            parts += [
                f'<circle cx="{x[number]:.1f}" cy="{y[number]:.1f}" r="9" fill="{colour}"/>',
                f'<text x="{x[number]:.1f}" y="{y[number] + 4:.1f}" font-size="11" fill="white" '
                f'text-anchor="middle">{number + 1}</text>',
                f'<text x="{MARGIN}" y="{below}" font-size="12" fill="{colour}">'
                f"{escape(said)}</text>",
            ]
        # About 7 pixels per letter, twice as many per Chinese character.
        longest = max(sum(7 if letter < "\u2e80" else 14 for letter in text) for text in self.texts)
        width, height = max(SIDE, longest) + 2 * MARGIN, 2 * MARGIN + SIDE + len(self.texts) * LINE
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
            'font-family="sans-serif">\n<rect width="100%" height="100%" fill="white"/>\n'
            + "\n".join(parts)
            + "\n</svg>\n"
        )

    def _colours(self) -> list[str]:
        order = list(dict.fromkeys(self.labels))
        numbers = map(order.index, self.labels) if self.labels else [0] * len(self.texts)
        return [COLOURS[number % len(COLOURS)] for number in numbers]

    def save(self, path: str | Path) -> None:
        """Write the picture: .svg; .png or .pdf, drawn by `plot`, with the extra ``plots``."""
        path, ending = Path(path), Path(path).suffix.lower()
        if ending not in (".svg", ".png", ".pdf"):
            raise ConfigError(f"{path}: pictures are .svg, .png or .pdf")
        with atomic_file(path) as temporary:
            if ending == ".svg":
                temporary.write_text(self.svg, encoding="utf-8")
                return
            axes = self.plot()
            with warnings.catch_warnings():
                # A script that no installed font has is drawn as boxes; .svg has no such limit.
                warnings.filterwarnings("ignore", message="Glyph .* missing from font")
                axes.figure.savefig(temporary, format=ending[1:])  # type: ignore[union-attr]

    def plot(self, axes: Axes | None = None) -> Axes:
        """Draw it with matplotlib, into a figure of your own or a new one.

        Raises:
            MissingExtraError: matplotlib is not installed.
        """
        try:
            from matplotlib.figure import Figure
        except ImportError as error:
            raise MissingExtraError("matplotlib", "plots", "drawing a map") from error
        if axes is None:
            axes = Figure(figsize=(7, 6), layout="constrained").subplots()
        colours = self._colours()
        for label in dict.fromkeys(self.labels or [""] * len(self.texts)):
            chosen = [
                i for i in range(len(self.texts)) if not self.labels or self.labels[i] == label
            ]
            x, y = self.points[chosen].T
            axes.scatter(x, y, color=colours[chosen[0]], label=label or None)
        for text, point in zip(self.texts, self.points, strict=True):
            axes.annotate(text, point, xytext=(5, 3), textcoords="offset points", fontsize=7)
        axes.set(xticks=[], yticks=[])
        axes.margins(x=0.4, y=0.15)  # for the texts
        if self.labels:
            axes.legend()
        return axes


def use_map(
    elmo: Elmo,
    sentences: Iterable[Sentence],
    word: str | Sequence[str] | None = None,
    *,
    labels: Iterable[object] | None = None,
    layers: Layers = "top",
) -> UseMap:
    """Put uses of a word, or whole sentences, on a map: near points are used in a similar way.

    Args:
        elmo: The model.
        sentences: As for `Elmo.encode`.
        word: A token of every sentence (exact match; all its uses are shown), or one for each
            sentence. Left out, a point is the mean of its sentence.
        labels: One for each sentence, such as senses; they set the colours.
        layers: As in `Elmo.encode`, except ``"all"``.

    Raises:
        DataError: There is no sentence, one lacks its word, or the numbers of sentences, words and
            labels differ.
    """
    if isinstance(layers, str) and layers == "all":
        raise ConfigError("layers='all': a point has one vector; choose a layer or 'mean'")
    batch = [list(tokens) for tokens in elmo.all_tokens(sentences)]
    given = [""] * len(batch) if labels is None else [str(label) for label in labels]
    words = [word] * len(batch) if word is None or isinstance(word, str) else list(word)
    if not batch:
        raise DataError("a map needs at least one sentence")
    if not len(batch) == len(given) == len(words):
        raise DataError(f"{len(batch)} sentences, {len(words)} words, {len(given)} labels")
    arrays = elmo.encode(batch, layers=layers)
    vectors, texts, shown = [], [], []
    for number, (tokens, token, array) in enumerate(zip(batch, words, arrays, strict=True)):
        positions = [None] if token is None else occurrences(tokens, token)
        if not positions or not tokens:
            raise DataError(f"sentence {number}: no token {token!r} in {' '.join(tokens)!r:.80}")
        for position in positions:
            vectors.append(array.mean(axis=0) if position is None else array[position])  # (D,)
            texts.append(
                " ".join(tokens) if position is None else in_context(tokens, position, CONTEXT)
            )
            shown.append(given[number])
    points, variance = principal_components(np.stack(vectors))
    return UseMap(points, tuple(texts), () if labels is None else tuple(shown), variance)


def principal_components(
    vectors: NDArray[np.float32],
) -> tuple[NDArray[np.float64], tuple[float, float]]:
    """The first two principal components (N, 2) of vectors (N, D), and their shares of variance."""
    centred = vectors.astype(np.float64) - vectors.mean(axis=0, dtype=np.float64)
    _, values, axes = np.linalg.svd(centred, full_matrices=False)
    points = np.zeros((len(vectors), 2))  # one vector has no second direction
    plane = centred @ axes[:2].T
    # A component's sign is arbitrary: its largest coordinate is positive, on every machine.
    signs = np.sign(plane[np.abs(plane).argmax(axis=0), np.arange(plane.shape[1])])
    points[:, : plane.shape[1]] = plane * np.where(signs == 0, 1, signs)
    shares = np.append(values**2 / max(float((values**2).sum()), 1e-30), [0.0, 0.0])
    return points, (float(shares[0]), float(shares[1]))
