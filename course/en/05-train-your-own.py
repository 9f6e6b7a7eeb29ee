# %% [markdown]
# # 5. Train your own biLM
#
# How much text and time does a language model take? For a real one, much of both (`small-en` read half a
# billion tokens on a GPU). For one that you can watch learning, half a megabyte and a CPU. This chapter
# cleans a text, counts a baseline, trains a biLM with two optimizers, and uses it.
#
# The text: 290 articles of the English Wikipedia on animals, plants and fungi (as of 2014 and 2015, by its
# authors, CC BY-SA 3.0). Or take a file of your own: one paragraph per line, a blank line
# between documents.

# %%
import contextlib
import io
import json
import tempfile
from dataclasses import replace
from pathlib import Path
from urllib.request import urlretrieve

import matplotlib.pyplot as plt
import numpy as np

import elmokit
from elmokit.corpus import (
    CleaningConfig,
    CorpusConfig,
    TokenCorpus,
    prepare_corpus,
    read_stop_words,
)
from elmokit.training import read_log, settings_for

STEPS = 16  # long: 1000
EVALUATE = 8  # long: 50
CELLS = 128  # long: 256
WIDTH = 32  # long: 64
ROWS = 12  # long: 32


def data(path):
    """A file of elmokit's repository: the one here, or a downloaded copy."""
    if not Path(path).exists():
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        urlretrieve(f"https://raw.githubusercontent.com/elmokit/elmokit/main/{path}", path)
    return Path(path)


text = data("course/data/nature-en.txt.xz")
scratch = tempfile.TemporaryDirectory()
folder = Path(scratch.name)

# %% [markdown]
# What you see below is a run of seconds, with `STEPS = 16` and a tiny network. The real run is the
# same code with the numbers after `long:`, five to ten minutes on a CPU. Its curves are further down.
#
# ## Cleaning, and why not
#
# Tutorials like to clean: lower case, letters only, no stop words. elmokit can do that (`--lower`,
# `--strip-non-letters`, `--stop-words en` on the command line). Look at what it does to one sentence.

# %%
stop_words = read_stop_words("en")
plain = CorpusConfig(heldout=0.05)
cleaned = replace(
    plain, cleaning=CleaningConfig(lower=True, strip_non_letters=True, stop_words=stop_words)
)
corpora = {}
for name, settings in (("plain", plain), ("cleaned", cleaned)):
    prepare_corpus([text], folder / name, settings=settings, workers=1)
    corpora[name] = corpus = TokenCorpus(folder / name)
    train = corpus.split("train")
    first = " ".join(corpus.words[i] for i in train.tokens_of(0))
    print(f"{name:8} {train.tokens:,} tokens, {len(corpus.words):,} distinct; for example:")
    print(f"  {first}")

# %% [markdown]
# The cleaned line is a list of keywords. *Of*, *in* and *the* are what tells a subject from an object; capitals mark
# names; numbers and punctuation are most of the structure. Bag-of-words models needed the cleaning,
# because every form was one more column. A character model reads *Species* and *species* as almost the same
# word anyway, and a language model without function words has no grammar left to learn.
# So: split sentences and tokens, keep everything else. The held-out part (5 % of the documents, never
# seen in training) is what we measure on.
#
# ## A baseline: word frequencies
#
# A model that ignores the context and predicts each word by its frequency. Words outside the vocabulary count as one
# symbol, `<UNK>`, for this model and for the next, so that both have the same task.

# %%
overrides = [
    f"model.lstm.cells={CELLS}",
    f"model.lstm.width={WIDTH}",
    "model.characters.filters=[[1, 16], [2, 16], [3, 32], [4, 32]]",
    f"data.rows={ROWS}",  # sentences that are read in parallel
    "data.unroll=20",  # steps of backpropagation through time
    "data.min_count=3",  # rarer words are <UNK> as predictions
    "loss.kind=full",
    "run.dropout=0.1",
    f"run.max_steps={STEPS}",
    f"run.evaluate_every={EVALUATE}",
    f"optimizer.warmup={STEPS // 10}",
]
corpus = corpora["plain"]
size = int((corpus.counts >= 3).sum()) + 3  # <S>, </S>, <UNK>
END, UNKNOWN = 1, 2

counts = np.array(corpus.counts[:size], dtype=float)
counts[UNKNOWN] = corpus.counts[size:].sum()
counts[END] = len(corpus.split("train"))
logp = np.log((counts + 1) / (counts + 1).sum())

heldout = corpus.split("heldout")
ids, lengths = heldout.gather(np.arange(len(heldout)))
ids = np.where(ids < size, ids, UNKNOWN)
unigram = np.exp(-np.mean([*logp[ids], *[logp[END]] * len(lengths)]))
print(f"{len(ids):,} held-out tokens, vocabulary {size:,}, {(ids == UNKNOWN).mean():.0%} <UNK>")
print(f"unigram perplexity {unigram:.1f}")

# %% [markdown]
# ## Two optimizers
#
# Older recipes train with stochastic gradient descent and Nesterov momentum: v ← μ v + ∇, w ← w − r (∇ + μ v). AdamW divides
# the step of every parameter by the recent size of its gradients. Both get the same network, the same text
# in the same order, and a learning rate that suits them: SGD's is a hundred times AdamW's.

# %%
optimizers = {
    "sgd": ["optimizer.name=sgd", "optimizer.momentum=0.9", "optimizer.lr=1.0"],
    "adamw": ["optimizer.name=adamw", "optimizer.lr=0.01"],
}
models, curves = {}, {}
for name, chosen in optimizers.items():
    config = settings_for("tiny", overrides=[*overrides, *chosen])
    config = replace(config, corpus=(str(folder / "plain"),), output=str(folder / name))
    with contextlib.redirect_stderr(io.StringIO()) as log:  # the table of the run
        models[name] = elmokit.pretrain(config, device="cpu")
    entries = read_log(folder / name / "training" / "log.jsonl")
    found = [entry for entry in entries if entry["kind"] == "heldout"]
    curves[name] = [(entry["step"], round(entry["perplexity"], 2)) for entry in found]
    print(name, "held-out perplexity after steps:", dict(curves[name]))
assert len(models["adamw"].vocabulary) == size
for name, curve in curves.items():
    assert curve[-1][1] < curve[0][1], name

# %% [markdown]
# On the command line the same is one line each:
#
#     elmokit pretrain nature-en.txt.xz -o my-model --preset tiny --heldout 0.05 --set optimizer.name=sgd --set optimizer.lr=1.0
#
# ## The long run
#
# `course/data/long_run.py` runs this chapter with the long settings and stores the curves.

# %%
# Held-out perplexity over the steps of the long run, for both optimizers, with the unigram baseline
stored = json.loads(data("course/data/long-run-en.json").read_text("utf-8"))
figure, axis = plt.subplots(figsize=(6.5, 3.4), layout="constrained")
for name, curve in stored["curves"].items():
    axis.plot(*zip(*curve, strict=True), "o-", label=name)
axis.axhline(stored["unigram"], color="0.5", linestyle=":", label="unigram")
axis.set(xlabel="steps", ylabel="held-out perplexity", ylim=(0, None))
axis.legend()
plt.show()
print(stored["machine"])
print(f"{stored['minutes']:.1f} minutes of CPU time for both runs")
for name, curve in stored["curves"].items():
    print(f"{name:6} best held-out perplexity {min(value for _, value in curve):.1f}")

# %% [markdown]
# Three things to read from such a picture. The network passes the word frequencies within the first hundred steps. Both
# optimizers arrive at similar numbers if each has its own learning rate; with the other's rate SGD hardly
# moves and AdamW diverges (exercise 1), which is why "SGD is bad" and "Adam is bad" can both be found in
# print. And if a curve bends up again, the network learns the training text by heart: the best weights
# are those at the bottom, and `pretrain` keeps those.
#
# ## Use it
#
# What does a model of half a megabyte know? Ask for the word in a gap, of this short run, of the
# long run (stored), and of `small-en`.

# %%
sentences = [
    ("It is a species of flowering plant in the daisy family .", "daisy"),
    ("It is native to California , where it grows in the mountains .", "grows"),
    ("The leaves are green and the flowers are white .", "white"),
]
elmo, small = models["adamw"], elmokit.load("small-en")
examples = {}
for sentence, word in sentences:
    tokens = sentence.split()
    gap = tokens.index(word)
    shown = {}
    for name, model in (("this run", elmo), ("small-en", small)):
        shown[name] = [found.word for found in model.substitutes(tokens, gap, 6)]
    examples[sentence] = shown["this run"]
    shown["long run"] = stored["examples"].get(sentence, [])
    print(sentence.replace(f" {word} ", " ____ "))
    for name, words in shown.items():
        print(f"  {name}: ", "  ".join(words))

# %%
scratch.cleanup()

# %% [markdown]
# A few seconds teach punctuation and a few frequent words; the rest is noise. The long run names plant families, verbs of habitat and colours: the
# phrases of this one kind of text, and nothing else. `small-en`, with thousands of times as much text, knows English,
# but may be less at home among mustards and lilies. (Chapter 11 has both: a large model, adapted to a domain.)
# To train a large one you change the file and the preset: [Pretraining](../pretraining.md) and [How much text](../how-much-text.md) have the numbers.
#
# ## What to take home
#
# - Keep case, punctuation and function words; hold out whole documents; compare with a unigram model.
# - Perplexities are comparable for the same text and vocabulary only.
# - An optimizer without its own learning rate is not a comparison.
#
# ## Exercises
#
# 1. Give both optimizers the same learning rate (0.01, then 1.0) and draw the four curves.
# 2. Train on the cleaned corpus. Its perplexity is another number: why can it not be compared with the one above, and what could you compare instead?
# 3. Set `data.min_count` to 1 and to 10. What happens to the vocabulary, to the share of `<UNK>`, and to the perplexity of the unigram model? Which of the three would you put in a paper?
