"""`qa`: the piece of a text that answers a question.

settings says what can be chosen; network is the model; windows cuts long texts into pieces, so
that memory depends on the pieces; spans finds the best answer among start and end scores.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from elmokit.errors import DataError
from elmokit.tasks.config import TaskConfig
from elmokit.tasks.embedder import Widths
from elmokit.tasks.encoder import known
from elmokit.tasks.examples import QuestionExample, Tokens
from elmokit.tasks.heads.qa.network import QaHead
from elmokit.tasks.heads.qa.settings import QaConfig, QaHeadConfig
from elmokit.tasks.items import Tokenize, places_of, value_of
from elmokit.tasks.readers.qa import ROLES
from elmokit.tasks.task import Task

__all__ = ["TASK", "Qa", "QaConfig", "QaHead", "QaHeadConfig"]


class Qa(Task[QuestionExample]):
    """A piece of a text, or none."""

    name = "qa"
    config_type = QaConfig
    example_type = QuestionExample
    takes = "a pair (text, question), a dictionary with 'context' and 'question'"

    def texts(self, example: QuestionExample) -> tuple[Tokens, ...]:
        """The text and the question."""
        return example.context_tokens, example.question_tokens

    def learn(self, examples: Sequence[QuestionExample], config: TaskConfig) -> dict[str, Any]:
        """Whether "no answer" is one of the answers."""
        assert isinstance(config, QaConfig)
        silent = [known(e.answers, i) == () for i, e in enumerate(examples, 1)]
        if not any(example.answer_spans() for example in examples):
            raise DataError(
                "no question of the training data has an answer that is a piece of its text: "
                "nothing to learn"
            )
        return {"no_answer": config.head.no_answer and any(silent)}

    def make_head(self, config: TaskConfig, learned: dict[str, Any], widths: Widths) -> QaHead:
        """Attention flow and pointers."""
        assert isinstance(config, QaConfig)
        return QaHead(config, learned["no_answer"], widths)

    def from_item(self, item: Any, tokenize: Tokenize) -> QuestionExample | None:
        """From a text and a question: a pair, or a dictionary with both."""
        name = ""
        if isinstance(item, Mapping):
            name = str(item.get("id", ""))
            item = tuple(value_of(item, ROLES[field]) for field in ("context", "question"))
        match item:
            case (str(context), str(question)):
                tokens = tokenize(context)
                spans = places_of(context, tokens)
                return QuestionExample(name, context, question, tokens, spans, tokenize(question))
        return None

    def answer(self, example: QuestionExample) -> str | None:
        """The piece of the text; None for no answer."""
        return example.answers[0].text if example.answers else None


TASK = Qa()
