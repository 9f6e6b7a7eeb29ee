"""Pretrain a model on a CPU and compare its perplexity with a unigram model.

Run: python examples/pretrain_cpu.py TEXT... [-o FOLDER] [--set NAME=VALUE]

Trains the preset ``tiny`` on about five megabytes of text, some ten minutes on two cores, and
measures its perplexity on held-out documents. The baseline is a unigram model with add-one
smoothing. Both predict the same words (and sentence ends) with the same vocabulary,
out-of-vocabulary words as <UNK>. The script fails unless the model at least halves the baseline's
perplexity.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

import elmokit
from elmokit.corpus import CorpusConfig, TokenCorpus
from elmokit.lm import perplexity
from elmokit.training import settings_for

HELD_OUT = 0.03
"""Share of the documents; the usual hundredth would be too few for so little text."""
NEEDED = 0.5
"""Maximum ratio of the model's perplexity to the baseline's."""
END, UNKNOWN = 1, 2
"""Rows of the word table."""


def main() -> int:
    """Train, measure, compare."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("texts", nargs="+", metavar="TEXT", help="text files, perhaps compressed")
    parser.add_argument("-o", "--output", default="cpu-model", help="folder for the model")
    parser.add_argument("--set", action="append", default=[], help="a setting, NAME=VALUE")
    options = parser.parse_args()
    start, worked = time.perf_counter(), time.process_time()
    settings = settings_for("tiny", overrides=options.set)
    elmo = elmokit.pretrain(
        replace(settings, corpus=tuple(options.texts), output=options.output),
        preparation=CorpusConfig(tokenizer="words", heldout=HELD_OUT),
        device="cpu",
    )
    minutes = (time.perf_counter() - start) / 60
    cpu_minutes = (time.process_time() - worked) / 60
    corpus = TokenCorpus(Path(options.output) / "training" / "corpus")
    heldout = corpus.split("heldout")
    sentences = ([corpus.words[i] for i in heldout.tokens_of(n)] for n in range(len(heldout)))
    measured = perplexity(elmo, sentences)  # full softmax, each sentence from a zero initial state
    baseline = unigram_perplexity(corpus, measured.vocabulary)
    share = measured.perplexity / baseline
    train = corpus.split("train")
    print(
        f"training text    {train.tokens:,} tokens in {len(train):,} sentences\n"
        f"held-out text    {measured.tokens:,} tokens in {measured.sentences:,} sentences, "
        f"{measured.oov_rate:.1%} outside the vocabulary of {measured.vocabulary:,}\n"
        f"training         {settings.run.max_steps:,} steps, {minutes:.1f} minutes "
        f"({cpu_minutes:.1f} of CPU time), {torch.get_num_threads()} threads\n"
        f"unigram model    perplexity {baseline:.1f}\n"
        f"this model       perplexity {measured.perplexity:.1f} "
        f"(forward {measured.forward:.1f}, backward {measured.backward:.1f})\n"
        f"share            {share:.2f}, needed: below {NEEDED}"
    )
    return 0 if share < NEEDED else 1


def unigram_perplexity(corpus: TokenCorpus, size: int) -> float:
    """Held-out perplexity of the training text's word frequencies, with add-one smoothing.

    Args:
        corpus: The prepared text.
        size: Vocabulary size: the first rows of the word table.
    """
    train, heldout = corpus.split("train"), corpus.split("heldout")
    counts = np.array(corpus.counts[:size], dtype=np.int64)
    counts[UNKNOWN] = corpus.counts[size:].sum()
    counts[END] = len(train)  # each sentence ends once
    logp = np.log((counts + 1) / (counts.sum() + size))
    ids, lengths = heldout.gather(np.arange(len(heldout)))
    words = np.where(ids < size, ids, UNKNOWN)
    total = logp[words].sum() + len(lengths) * logp[END]
    return math.exp(-total / (len(words) + len(lengths)))


if __name__ == "__main__":
    sys.exit(main())
