"""What `qa` can be told."""

from __future__ import annotations

from dataclasses import dataclass, field

from elmokit.config import check, check_positive
from elmokit.tasks.config import TaskConfig


@dataclass(frozen=True, kw_only=True)
class QaHeadConfig:
    """From the vectors of a text and a question to a piece of the text."""

    layers: int = 1
    """Of the modelling biLSTM, above the attention; it has as many cells as the encoder."""
    match: bool = True
    """Whether a token says that it stands in the other text too, alone and with a neighbour."""
    longest: int = 30
    """The most tokens of an answer."""
    window: int = 400
    """The most tokens of a text that are read together; longer texts are read in pieces."""
    overlap: int = 100
    """Tokens that two neighbouring pieces share, so that each answer is whole in one of them."""
    no_answer: bool = True
    """Whether to learn when a text holds no answer, if the training data has such questions."""

    def __post_init__(self) -> None:
        check_positive(self, "layers", "longest", "window", "overlap")
        check(self.overlap >= self.longest, self, "overlap", "give at least head.longest")
        check(self.overlap < self.window, self, "overlap", "give less than head.window")


@dataclass(frozen=True, kw_only=True)
class QaConfig(TaskConfig):
    """Settings of `qa`."""

    head: QaHeadConfig = field(default_factory=QaHeadConfig)
