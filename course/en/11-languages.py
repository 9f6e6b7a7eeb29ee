# %% [markdown]
# # 11. Other languages and your own domain
#
# `small-en` reads English of encyclopedias and books. Your text is in Basque, or it is what people say to a loudspeaker. There are three ways: load a model that somebody has published, train one,
# or adapt one. This chapter tries each and ends with a rule for choosing.
#
# You need `pip install 'elmokit[plots]'`.

# %%
import contextlib
import io
import json
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path
from urllib.request import urlretrieve

import matplotlib.pyplot as plt
import numpy as np

import elmokit
from elmokit.corpus import CorpusConfig, TokenCorpus, prepare_corpus
from elmokit.lm import perplexity
from elmokit.training import DataConfig, LossConfig, OptimizerConfig, RunConfig, settings_for

scratch = tempfile.TemporaryDirectory()
folder = Path(scratch.name)


def data(path):
    """A file of elmokit's repository: here, or downloaded from there."""
    if not Path(path).exists():
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        urlretrieve(f"https://raw.githubusercontent.com/elmokit/elmokit/main/{path}", path)
    return Path(path)


# %% [markdown]
# ## Is there one already?
#
# elmokit knows the names, addresses and licences of the ELMo models that were published since 2018:

# %%
known = [model for model in elmokit.models() if model.kind == "published"]
languages = Counter(language for model in known for language in model.languages)
print(len(known), "models in", len(languages), "languages and kinds of sequences")
print(
    "most models:", ", ".join(f"{language} {count}" for language, count in languages.most_common(8))
)
for model in known:
    if "eu" in model.languages or model.domain == "biomedical":
        print(f"  {model.name}: {', '.join(model.languages)}, {model.domain}")

# %% [markdown]
# A published model is loaded by its name. The first time its files are downloaded (hundreds of megabytes), checked and kept:
#
# ```console
# $ elmokit models --language pt
# $ elmokit info pt-wikipedia
# $ elmokit download pt-wikipedia
# ```
#
# ```python
# elmo = elmokit.load("pt-wikipedia")
# ```
#
# `info` shows the licence and the source of each fact *before* anything is downloaded. Some entries state no licence: ask the authors before you publish something made with them.
#
# ## What does a small corpus buy?
#
# If there is no model, can you train one? It depends on how much text you have. This picture comes from an experiment in the repository: the same small network, trained on more and more
# English text, then tested four ways ([How much text](../how-much-text.md)).

# %%
# Perplexity, POS accuracy, WSD F1 and NER F1 against millions of tokens of training text
results = json.loads(data("benchmarks/results/text_amount.json").read_text("utf-8"))["models"]
runs = sorted(results.values(), key=lambda run: run["tokens"])
tokens = [run["tokens"] / 1e6 for run in runs]
panels = {
    "perplexity": [run["perplexity"]["perplexity"] for run in runs],
    "POS, layer 1 (%)": [run["pos"]["layers"][1] for run in runs],
    "word senses, layer 2 (%)": [run["wsd"]["layers"][2] for run in runs],
    "names, F1 (%)": [np.mean(run["ner"]["f1"]) for run in runs],
}
figure, axes = plt.subplots(1, 4, figsize=(9, 2.5), layout="constrained")
for axis, (name, values) in zip(axes, panels.items(), strict=True):
    axis.plot(tokens, values, marker="o")
    axis.set(title=name, xscale="log", xlabel="million tokens")
    axis.set_xticks(tokens, [f"{count:.0f}" for count in tokens])
    axis.minorticks_off()
    axis.title.set_fontsize(9)
plt.show()
assert panels["perplexity"][0] > panels["perplexity"][-1]

# %% [markdown]
# Parts of speech are cheap: a million tokens, a few hundred articles, is most of the way. Word senses and names need much more. The axis is logarithmic: each step is three times the text.
#
# ## Train one for another language
#
# Nothing in the recipe is about English. The input is made of characters (of UTF-8 bytes, to be exact), so there is no alphabet to define. What you choose is the tokeniser. As an example take a language without spaces: the
# Analects of Confucius, in Classical Chinese, with one token per character.

# %%
STEPS = 40  # long: 300
text = data("course/data/analects-zh.txt")
settings = CorpusConfig(tokenizer="chars", sentences="line", documents="line", heldout=0.1)
prepare_corpus([text], folder / "analects", settings=settings, workers=1)
corpus = TokenCorpus(folder / "analects")
print(text.read_text("utf-8").splitlines()[0])
print(f"{corpus.split('train').tokens:,} tokens, {len(corpus.words):,} different characters")

config = settings_for(
    "tiny",
    overrides=[
        "model.lstm.cells=128",
        "model.lstm.width=32",
        "model.characters.filters=[[1, 32], [2, 32], [3, 64]]",
        "data.rows=32",
        "data.min_count=3",
        "loss.kind=full",
        "optimizer.lr=0.01",
        f"optimizer.warmup={max(1, STEPS // 10)}",
        f"run.max_steps={STEPS}",
        f"run.evaluate_every={STEPS}",
    ],
)
config = replace(config, corpus=(str(folder / "analects"),), output=str(folder / "classical"))
with contextlib.redirect_stderr(io.StringIO()):  # the table of the run
    classical = elmokit.pretrain(config, device="cpu")
print(classical.encode("学而时习之").shape, "one vector per character")

# %% [markdown]
# Has it learned anything? Compare with a model that knows only how frequent each character is:

# %%
size = len(classical.vocabulary)
counts = np.array(corpus.counts[:size], dtype=float)
counts[1], counts[2] = len(corpus.split("train")), corpus.counts[size:].sum()  # </S>, <UNK>
logp = np.log((counts + 1) / (counts + 1).sum())
heldout = corpus.split("heldout")
ids, lengths = heldout.gather(np.arange(len(heldout)))
ids = np.where(ids < size, ids, 2)
unigram = np.exp(-np.mean([*logp[ids], *[logp[1]] * len(lengths)]))
sentences = [[corpus.words[i] for i in heldout.tokens_of(n)] for n in range(len(heldout))]
learned = perplexity(classical, sentences).perplexity
print(f"vocabulary {size:,}: guessing has a perplexity of {size:,}")
print(f"frequencies {unigram:.0f}, the biLM after {STEPS} steps {learned:.0f}")
assert learned < unigram

# %% [markdown]
# A few seconds are enough to pass the frequencies. But look at what it is: one short book, most of whose sentences begin with *the Master said*. With `STEPS = 300` the perplexity falls further, and then it stays where it
# is: 20,000 characters are too few for a language. Take this as the way to check that your pipeline works, and then feed it a Wikipedia dump, which `elmokit corpus prepare` reads as
# it is ([Corpus](../corpus.md)).
#
# ## Adapt one to a domain
#
# Now the more frequent case: the language is right, the kind of text is not. Here are things that people say to a voice assistant (Snips, CC0):

# %%
elmo = elmokit.load("small-en")
commands = data("tests/tasks/data/snips/train/seq.in")
for line in commands.read_text("utf-8").splitlines()[:3]:
    print(line)

settings = CorpusConfig(sentences="line", documents="line", heldout=0.12)
prepare_corpus([commands], folder / "commands", settings=settings, workers=1)
split = TokenCorpus(folder / "commands").split
print(f"{split('train').tokens:,} tokens to adapt to, {split('heldout').tokens:,} held out")

# %% [markdown]
# `adapt` continues the training of the whole model on the new text, with its own softmax and vocabulary, so that perplexity before and after can be compared. A minute's worth of text, a few steps:

# %%
ADAPT_STEPS = 14  # long: 60
config = elmokit.AdaptConfig(
    output=str(folder / "assistant"),
    data=DataConfig(rows=16, unroll=12),
    loss=LossConfig(negatives=512),
    optimizer=OptimizerConfig(lr=2e-3, warmup=2),
    run=RunConfig(max_steps=ADAPT_STEPS, evaluate_every=ADAPT_STEPS, save_every=1000),
)
with contextlib.redirect_stderr(io.StringIO()):
    result = elmokit.adapt(elmo, folder / "commands", config, device="cpu")
print(
    f"held-out commands: perplexity {result.before.perplexity:.0f} -> {result.after.perplexity:.0f}"
)
assert result.after.perplexity < result.before.perplexity / 2

# %% [markdown]
# Where does it come from? Surprisal is the part of each word in the perplexity, in bits: how unexpected is the word after the words before it?

# %%
# Surprisal of the words of two commands, before and after the adaptation
COMMANDS = [
    "what will the weather be in boston tomorrow",
    "play some music by miles davis on spotify",
]
figure, axes = plt.subplots(2, 1, figsize=(7.2, 4), layout="constrained")
for axis, command in zip(axes, COMMANDS, strict=True):
    words = command.split()
    for shift, name, model in ((-0.2, "before", elmo), (0.2, "after", result.elmo)):
        bits = [row["forward"] for row in model.surprisal([words])][: len(words)]
        axis.bar(np.arange(len(words)) + shift, bits, width=0.38, label=name)
    axis.set_xticks(range(len(words)), words)
    axis.set_ylabel("bits")
axes[0].legend()
plt.show()

# %% [markdown]
# The beginning gains most: commands begin with a verb or a question word, articles of an encyclopedia do not. Names in lower case stay expensive, since the vocabulary has them with a capital.
#
# Two thousand tokens are enough to change what the model expects. They are also enough to harm it. What does the adapted model make of ordinary English? These are sentences that no model was trained on:

# %%
lines = data("tests/data/heldout_en.txt").read_text("utf-8").splitlines()
general = [elmo.tokenize(line) for line in lines if 60 < len(line) < 200][:8]
for name, model in (("before", elmo), ("after", result.elmo)):
    print(f"general English, {name}: perplexity {perplexity(model, general).perplexity:.0f}")
scratch.cleanup()

# %% [markdown]
# This is catastrophic forgetting, in numbers. Ways out: a lower learning rate and fewer steps (the defaults of `elmokit adapt` are gentler than ours), some general text mixed into the corpus, and, above all, measuring on
# *both* kinds of text and stopping when the one you care about no longer gains. For vectors that feed a classifier the loss may not matter, since all your texts are commands; measure that on your task too.
#
# On the command line:
#
# ```console
# $ elmokit adapt commands.txt -o assistant --max-steps 200 --model small-en
# $ elmokit perplexity other.txt --model assistant
# ```
#
# ## Which way?
#
# | you have | do |
# |---|---|
# | a language with a published model | load it by name; adapt it if your texts are special |
# | some megabytes of in-domain text in English or Chinese | adapt `small-en` or `small-zh` |
# | a language without a model, less than a million tokens | do not train a biLM; use characters or n-grams in your task model, or a multilingual model |
# | a language without a model, tens of millions of tokens | pretrain, on a GPU: minutes to hours ([Pretraining](../pretraining.md)) |
#
# ## What to take home
#
# - The recipe has no language in it; the tokeniser and the text do.
# - Adapting needs little text and little time. Watch what is forgotten.
# - Compare perplexities only with the same vocabulary and the same held-out text.
#
# ## Exercises
#
# 1. Adapt with `lr=2e-4` and draw both perplexities, commands and general English, after 5, 10, 20 and 40 steps. Is there a point where one has gained and the other not yet lost?
# 2. Mix: put 100 sentences of `heldout_en.txt` into the corpus next to the commands (and measure on other sentences of it). How much of the forgetting goes away?
# 3. Train the Analects model with `tokenizer="words"` instead of `"chars"`. Why does it fail, and what would a language with spaces but rich endings, such as Finnish, need?
