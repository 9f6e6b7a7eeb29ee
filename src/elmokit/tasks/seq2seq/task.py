"""`seq2seq`: a text for a text (translations, summaries)."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, TypedDict

from elmokit.errors import DataError, MissingExtraError
from elmokit.tasks.config import TaskConfig
from elmokit.tasks.inputs.token_inputs import frequent_words
from elmokit.tasks.records import Format, Tokens
from elmokit.tasks.seq2seq.files import FORMATS, RECORDS, SequencePair, learn_joins
from elmokit.tasks.seq2seq.network import Seq2seqConfig, Seq2seqHead
from elmokit.tasks.task import (
    Task,
    TaskScore,
    Tokenize,
    known,
    mostly_chinese,
    same_length,
    share,
    units,
    value_of,
    words_of,
)

ROUGE = ("rouge1", "rouge2", "rougeL")


class LearnedJoins(TypedDict):
    """What `learn_joins` gives."""

    pairs: dict[str, bool]
    clitics: list[str]


class LearnedTargets(TypedDict):
    """What `seq2seq` learns from its data."""

    words: list[str]
    joins: LearnedJoins
    longest: int


class Seq2seqTask(Task[SequencePair]):
    """A text for a text."""

    name = "seq2seq"
    learned_type = LearnedTargets
    writes = True
    config_type: type[Seq2seqConfig] = Seq2seqConfig
    head_type: type[Seq2seqHead] = Seq2seqHead
    text_fields: tuple[str, ...] = ("source",)
    records = RECORDS
    formats: tuple[Format, ...] = FORMATS
    takes = "a text, a list of tokens, a dictionary with 'source'"

    def written(self, example: SequencePair) -> Tokens | None:
        """The target."""
        return example.target

    def reading(self, config: TaskConfig) -> dict[str, Any]:
        """How the texts to write are split."""
        assert isinstance(config, Seq2seqConfig)
        return {"target_tokenizer": config.head.target_tokenizer or None}

    def learn(self, examples: Sequence[SequencePair], config: TaskConfig) -> dict[str, Any]:
        """The words that can be written, where spaces are, and the longest text."""
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

    def validate(self, gold: Sequence[SequencePair], learned: dict[str, Any]) -> None:
        """Every example needs a reference, and scoring its packages."""
        super().validate(gold, learned)
        _check_references([example.references for example in gold])
        _scorers()

    def score(
        self,
        gold: Sequence[SequencePair],
        predicted: Sequence[SequencePair],
        *,
        config: TaskConfig | None = None,
        learned: dict[str, Any] | None = None,
    ) -> TaskScore:
        """BLEU and ROUGE; the settings say which of them chooses the best weights."""
        primary = config.head.score if isinstance(config, Seq2seqConfig) else "bleu"
        outputs = [example.references[0] if example.references else "" for example in predicted]
        return score_sequences([example.references for example in gold], outputs, primary=primary)

    def from_item(self, item: Any, tokenize: Tokenize) -> SequencePair | None:
        """From a text, its tokens, or a dictionary with a text or its sentences."""
        name = None
        if isinstance(item, Mapping):
            names = RECORDS.names()
            name = value_of(item, names["id"])
            source = words_of(value_of(item, names["source"]), tokenize)
            item = source and (source.text or " ".join(source.tokens))
        words = words_of(item, tokenize)
        if words is None:
            return None
        text = " ".join(words.tokens) if words.text is None else words.text
        return SequencePair(words.tokens, None, text, (), None if name is None else str(name))

    def answer(self, example: SequencePair) -> str:
        """The text that was written."""
        return example.references[0]


# The score: BLEU by sacreBLEU, ROUGE by rouge-score, and exact copies. Chinese is compared by
# characters: sacreBLEU has its own way, and rouge-score, which knows Latin letters alone, is given
# the units of `elmokit.tasks.task`.


@dataclass(frozen=True)
class SequenceScore(TaskScore):
    """The score of texts that were written.

    Attributes:
        bleu: sacreBLEU, out of 100.
        rouge: F1 of ROUGE-1, ROUGE-2 and ROUGE-L, between 0 and 1; of several references the one
            that fits best counts.
        accuracy: The share of outputs that are the same as a reference.
        signature: How sacreBLEU was computed, in its own words.
    """

    bleu: float
    rouge: dict[str, float]
    accuracy: float
    signature: str
    primary: str = "bleu"

    def numbers(self) -> dict[str, float]:
        """BLEU, ROUGE and accuracy; ``f1`` is ROUGE-L."""
        return {
            "bleu": self.bleu,
            **self.rouge,
            "f1": self.rouge["rougeL"],
            "accuracy": self.accuracy,
        }

    def tables(self) -> dict[str, Any]:
        """How BLEU was computed."""
        return {"signature": self.signature}


def score_sequences(
    references: Sequence[Sequence[str]], predicted: Sequence[str], *, primary: str = "bleu"
) -> SequenceScore:
    """Compare written texts with the accepted ones of each example; plain text, not tokens.

    `primary` is ``bleu`` for translations, ``rougeL`` for summaries.
    """
    same_length(references, predicted)
    _check_references(references)
    sacrebleu, rouge = _scorers()
    chinese = mostly_chinese(itertools.chain.from_iterable(references))

    bleu = sacrebleu(tokenize="zh" if chinese else "13a")
    # One list for the first reference of each example, one for the second, ...; None is "no more".
    streams = [list(stream) for stream in itertools.zip_longest(*references)]
    result = bleu.corpus_score(list(predicted), streams)

    words = SimpleNamespace(tokenize=units) if chinese else None
    scorer = rouge(list(ROUGE), use_stemmer=not chinese, tokenizer=words)
    totals = dict.fromkeys(ROUGE, 0.0)
    right = 0
    for accepted, found in zip(references, predicted, strict=True):
        best = scorer.score_multi(list(accepted), found)
        for name in ROUGE:
            totals[name] += best[name].fmeasure
        right += " ".join(found.split()) in {" ".join(text.split()) for text in accepted}
    return SequenceScore(
        float(result.score),
        {name: share(total, len(predicted)) for name, total in totals.items()},
        share(right, len(predicted)),
        str(bleu.get_signature()),
        primary,
    )


def _scorers() -> tuple[Any, Any]:
    """The classes of sacreBLEU and rouge-score."""
    try:
        from rouge_score.rouge_scorer import RougeScorer
        from sacrebleu.metrics.bleu import BLEU
    except ImportError as error:
        raise MissingExtraError("sacrebleu and rouge-score", "seq2seq", "scoring texts") from error
    return BLEU, RougeScorer


def _check_references(references: Sequence[Sequence[str]]) -> None:
    for number, accepted in enumerate(references, start=1):
        if not accepted:
            raise DataError(f"example {number} has no reference. Give the text it should be.")


TASK = Seq2seqTask()
