"""Corpora: raw text → documents → sentences and tokens → shards on disk.

documents reads files, Wikipedia dumps and Hugging Face data sets document by document; prepare
turns them into a corpus, with workers (a pool of processes) and cleaning (of tokens, optional);
shards is the format on disk, written and memory-mapped; stats measures a prepared corpus.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from elmokit.lazy import lazy_names

if TYPE_CHECKING:
    from elmokit.corpus.cleaning import (
        CleaningConfig as CleaningConfig,
        read_stop_words as read_stop_words,
    )
    from elmokit.corpus.prepare import (
        CorpusConfig as CorpusConfig,
        CorpusSummary as CorpusSummary,
        prepare_corpus as prepare_corpus,
    )
    from elmokit.corpus.shards import TokenCorpus as TokenCorpus
    from elmokit.corpus.stats import (
        CorpusStats as CorpusStats,
        corpus_stats as corpus_stats,
        plot_corpus as plot_corpus,
    )
else:
    __getattr__, __dir__, __all__ = lazy_names(
        __name__,
        {
            "prepare": "CorpusConfig CorpusSummary prepare_corpus",
            "cleaning": "CleaningConfig read_stop_words",
            "shards": "TokenCorpus",
            "stats": "CorpusStats corpus_stats plot_corpus",
        },
    )
