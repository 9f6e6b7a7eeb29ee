"""`seq2seq`: a text for a text (translations, summaries).

settings says what can be chosen; words numbers what can be written; decoder writes and copies,
network joins it to an encoder; beam searches for the best text; joining puts spaces between tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from elmokit.errors import DataError
from elmokit.tasks.config import TaskConfig
from elmokit.tasks.embedder import Widths
from elmokit.tasks.encoder import known
from elmokit.tasks.examples import SequencePair, Tokens
from elmokit.tasks.heads.seq2seq.joining import learn_joins
from elmokit.tasks.heads.seq2seq.network import Seq2seqHead
from elmokit.tasks.heads.seq2seq.settings import Seq2seqConfig, Seq2seqHeadConfig
from elmokit.tasks.inputs.words import frequent_words
from elmokit.tasks.items import Tokenize, value_of, words_of
from elmokit.tasks.readers.seq2seq import ROLES
from elmokit.tasks.scores import Score, score_examples
from elmokit.tasks.task import Task

__all__ = ["TASK", "Seq2seq", "Seq2seqConfig", "Seq2seqHead", "Seq2seqHeadConfig"]


class Seq2seq(Task[SequencePair]):
    """A text for a text."""

    name = "seq2seq"
    writes = True
    config_type = Seq2seqConfig
    example_type = SequencePair
    takes = "a text, a list of tokens, a dictionary with 'source'"

    def texts(self, example: SequencePair) -> tuple[Tokens, ...]:
        """The source."""
        return (example.source,)

    def written(self, example: SequencePair) -> Tokens | None:
        """The target."""
        return example.target

    def reading(self, config: TaskConfig) -> dict[str, Any]:
        """How the texts to write are split."""
        assert isinstance(config, Seq2seqConfig)
        return {"target_tokenizer": config.head.target_tokenizer or None}

    def learn(self, examples: Sequence[SequencePair], config: TaskConfig) -> dict[str, Any]:
        """The words that can be written, where spaces stand, and the longest text."""
        assert isinstance(config, Seq2seqConfig)
        targets = [known(example.target, i) for i, example in enumerate(examples, 1)]
        words = frequent_words(targets, min_count=config.head.min_count, lowercase=False)
        if not words and not config.head.copy:
            raise DataError(
                f"no word of the training targets occurs {config.head.min_count} times: nothing "
                "can be written. Lower head.min_count"
            )
        texts = [(e.target, e.references[0]) for e in examples if e.target and e.references]
        return {
            "words": words[: config.head.most_words],
            "joins": learn_joins(texts),
            "longest": max(map(len, targets)),
        }

    def make_head(self, config: TaskConfig, learned: dict[str, Any], widths: Widths) -> Seq2seqHead:
        """Encoder and decoder."""
        assert isinstance(config, Seq2seqConfig)
        return Seq2seqHead(config, learned, widths)

    def score(
        self,
        gold: Sequence[SequencePair],
        predicted: Sequence[SequencePair],
        config: TaskConfig,
        learned: dict[str, Any] | None = None,
    ) -> Score:
        """BLEU and ROUGE; the settings say which of them counts."""
        assert isinstance(config, Seq2seqConfig)
        return score_examples(self.name, gold, predicted, primary=config.head.score)

    def from_item(self, item: Any, tokenize: Tokenize) -> SequencePair | None:
        """From a text, its tokens, or a dictionary with a text or its sentences."""
        name = None
        if isinstance(item, Mapping):
            name = value_of(item, ROLES["id"])
            source = words_of(value_of(item, ROLES["source"]), tokenize)
            item = source and (source.text or " ".join(source.tokens))
        words = words_of(item, tokenize)
        if words is None:
            return None
        text = " ".join(words.tokens) if words.text is None else words.text
        return SequencePair(words.tokens, None, text, (), None if name is None else str(name))

    def answer(self, example: SequencePair) -> str:
        """The text that was written."""
        return example.references[0]


TASK = Seq2seq()
