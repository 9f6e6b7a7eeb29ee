from __future__ import annotations

import pytest
from small_runs import make_corpus

from elmokit.corpus.shards import TokenCorpus


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> TokenCorpus:
    """Enough text for a few steps."""
    return make_corpus(tmp_path_factory.mktemp("corpus"), 80)


@pytest.fixture(scope="session")
def documents(tmp_path_factory: pytest.TempPathFactory) -> TokenCorpus:
    """Documents of five sentences."""
    return make_corpus(tmp_path_factory.mktemp("documents"), 200, document=5)


@pytest.fixture(scope="session")
def long_corpus(tmp_path_factory: pytest.TempPathFactory) -> TokenCorpus:
    """Enough text to learn something."""
    return make_corpus(tmp_path_factory.mktemp("long-corpus"), 600)
