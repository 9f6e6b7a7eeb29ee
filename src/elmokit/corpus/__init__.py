"""Corpora: raw text → documents → sentences and tokens → shards on disk.

documents reads files, Wikipedia dumps and Hugging Face data sets document by document; prepare
turns them into a corpus, with workers (a pool of processes) and cleaning (of tokens, optional);
shards is the format on disk, written and memory-mapped; stats measures a prepared corpus.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from elmokit.lazy import lazy_names

_HOMES = {
    "CorpusConfig": "elmokit.corpus.prepare",
    "CorpusSummary": "elmokit.corpus.prepare",
    "prepare_corpus": "elmokit.corpus.prepare",
    "CleaningConfig": "elmokit.corpus.cleaning",
    "read_stop_words": "elmokit.corpus.cleaning",
    "TokenCorpus": "elmokit.corpus.shards",
    "CorpusStats": "elmokit.corpus.stats",
    "corpus_stats": "elmokit.corpus.stats",
    "plot_corpus": "elmokit.corpus.stats",
}

if TYPE_CHECKING:
    from elmokit.corpus.cleaning import CleaningConfig, read_stop_words
    from elmokit.corpus.prepare import CorpusConfig, CorpusSummary, prepare_corpus
    from elmokit.corpus.shards import TokenCorpus
    from elmokit.corpus.stats import CorpusStats, corpus_stats, plot_corpus
else:
    __getattr__, __dir__ = lazy_names(__name__, _HOMES)

__all__ = [
    "CleaningConfig",
    "CorpusConfig",
    "CorpusStats",
    "CorpusSummary",
    "TokenCorpus",
    "corpus_stats",
    "plot_corpus",
    "prepare_corpus",
    "read_stop_words",
]
