# %% [markdown]
# # 10. What each layer knows
#
# ELMo gives every word three vectors: layer 0 from its characters, layers 1 and 2 from the sentence. The paper's best-known finding is that they encode different
# things: syntax below, senses above. Tutorials repeat it as "characters, words, sentences", which is wrong: every layer has one vector per
# *word*. This chapter measures it, with probes, and with controls that keep us from believing too much.
#
# You need `pip install 'elmokit[plots]'`.

# %%
import json
import lzma
import tempfile
from collections import Counter
from pathlib import Path
from urllib.request import urlretrieve

import matplotlib.pyplot as plt

import elmokit
import elmokit.probes


def data(path):
    """A file of elmokit's repository: here, or downloaded from there."""
    if not Path(path).exists():
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        urlretrieve(f"https://raw.githubusercontent.com/elmokit/elmokit/main/{path}", path)
    return Path(path)


def read_tags(path):
    """Sentences as pairs: words and their parts of speech."""
    found = []
    with lzma.open(data(path), "rt", encoding="utf-8") as file:
        for block in file.read().strip().split("\n\n"):
            rows = [line.split("\t") for line in block.splitlines()]
            found.append(([row[1] for row in rows], [row[3] for row in rows]))
    return found


elmo = elmokit.load("small-en")
train = read_tags("tests/probes/samples/ewt-train.conllu.xz")[::5]
test = read_tags("tests/probes/samples/ewt-test.conllu.xz")[::5]
print(
    sum(len(words) for words, _ in train),
    "words for training,",
    sum(len(words) for words, _ in test),
    "for testing",
)
print(list(zip(*train[1], strict=True))[:6])

# %% [markdown]
# ## A probe
#
# A probe is a classifier that is too simple to be clever: one linear layer from a vector to a tag. If it succeeds, the tag was there to be read off. We train one probe per
# layer on words of the English Web Treebank (CC BY-SA 4.0) and test on other sentences. elmokit has it as a function and as a command (`elmokit probe pos`).

# %%
report = elmokit.probes.pos(elmo, train, test, curve=())
print(report.table().partition("\n\n")[0])

# %% [markdown]
# How to read the table:
#
# - *accuracy*: the share of test words with the right tag. Layer 0 has not read the sentence; it knows the spelling. That is a lot, for *-ing* and *-ly* and capitals.
# - *each word's usual tag*: no vectors at all, only a table of the training words. A probe must beat this.
# - *control*: the check that follows.
#
# ## Did the probe learn, or memorise?
#
# A linear layer with hundreds of inputs can memorise thousands of words. So the same probe is trained on nonsense: every word type gets a random tag (Hewitt and Liang, 2019).
# To do well on that, it *has* to memorise. What counts is the difference between real and random tags, the selectivity.

# %%
for layer in report.layers:
    print(
        f"layer {layer.layer}: real tags {layer.accuracy:.2f}, random tags {layer.control:.2f}, selectivity {layer.selectivity:.2f}"
    )
assert report.layers[1].accuracy > report.layers[0].accuracy
assert report.layers[1].selectivity > report.layers[0].selectivity

# %% [markdown]
# Layer 0 is good at random tags too: it identifies the word. Layer 1 is better at real tags and worse at random ones. It has
# given up some of the word's identity for its role in the sentence.
#
# A second control: the same architecture with random weights. Even an untrained network passes spelling on, and its accuracy is what
# training has to be measured against.

# %%
untrained = elmokit.probes.random_weights(elmo, seed=1)
random_report = elmokit.probes.pos(untrained, train, test, curve=())
for trained, random in zip(report.layers, random_report.layers, strict=True):
    print(
        f"layer {trained.layer}: trained {trained.accuracy:.2f}, random weights {random.accuracy:.2f}"
    )
    assert trained.accuracy > random.accuracy

# %% [markdown]
# ## Senses
#
# Now meanings. The method of the paper needs no training: for each sense of a word, average the vectors of its uses in SemCor, where every use is labelled with a WordNet sense;
# a new use gets the sense with the nearest average. We take short sentences with 60 ambiguous nouns and verbs.


# %%
scratch = tempfile.TemporaryDirectory()


def read_senses(path, longest=20):
    """The shorter sentences, as a JSONL file that the probe reads."""
    with lzma.open(data(path), "rt", encoding="utf-8") as file:
        lines = [line for line in file if len(json.loads(line)["tokens"]) <= longest]
    target = Path(scratch.name) / Path(path).name.removesuffix(".xz")
    target.write_text("".join(lines), "utf-8")
    return target, lines


known, lines = read_senses("tests/probes/samples/semcor-train.jsonl.xz")
new, _ = read_senses("tests/probes/samples/semcor-test.jsonl.xz")
keys = Counter(key for line in lines for found in json.loads(line)["keys"] for key in found)
lemma, count = Counter(key.partition("%")[0] for key in keys).most_common(1)[0]
print(
    f"{count} senses of {lemma}:", [key for key in keys if key.startswith(lemma + "%")][:3], "..."
)

# %%
senses = elmokit.probes.wsd(elmo, known, new)
print(senses.table().partition("\n\n")[0])
found = senses.sets[-1]
assert max(layer.f1 for layer in found.layers[1:]) > found.layers[0].f1
scratch.cleanup()

# %% [markdown]
# *first sense* is the answer without any vectors: each word's most frequent sense in the training sentences. Layer 0 has the same vector for every use of a form, so it cannot
# tell two senses apart, except when they come with different forms (*see*, *saw*). The upper layers can. The scores are low in absolute terms: WordNet's senses are so
# fine that people disagree on them, there are only a few uses per sense here, and `small-en` is small. The *order* of the layers is what we are after.
#
# ## Both together

# %%
# Parts of speech and word senses by layer, with the control
figure, axes = plt.subplots(1, 2, figsize=(7.4, 3.2), layout="constrained")
numbers = range(elmo.layers)
axes[0].plot(numbers, [x.accuracy for x in report.layers], marker="o", label="small-en")
axes[0].plot(
    numbers, [x.accuracy for x in random_report.layers], marker="s", label="random weights"
)
axes[0].plot(numbers, [x.control for x in report.layers], marker="^", label="random tags")
axes[0].set(title="parts of speech", ylabel="accuracy")
axes[1].plot(numbers, [x.f1 for x in found.layers], marker="o", label="small-en")
axes[1].axhline(found.first_sense, color="grey", linestyle="--", label="first sense")
axes[1].set(title="word senses", ylabel="F1")
for axis in axes:
    axis.set(xticks=numbers, xlabel="layer")
    axis.legend(fontsize=8)
plt.show()

# %% [markdown]
# In the published model parts of speech are best at layer 1 and senses at layer 2. Does your run agree? Compare the distance between layers 1 and 2 with the standard error:
# with about 1,200 test words an accuracy near 0.9 has one of about 0.009, with some 350 uses an F1 near 0.3 one of about 0.025. For parts of speech the step from
# layer 0 to layer 1 is several times that. The steps between layers 1 and 2, and those of the senses, are about as large as the error: this test alone does not settle their order. [Embedded models](../embedded-models.md) has both measured on the
# full test sets, and [how much text](../how-much-text.md) shows that the senses need far more training text than the parts of speech.
#
# ## What this does not show
#
# - That a layer *encodes* something does not mean that a task *uses* it. The scalar mix of a trained predictor says more about that (`elmokit probe layers my-tagger`), but after a short
#   training its shares are still near one third each, so do not read too much into them.
# - A probe with a hidden layer would score higher everywhere and tell us less: it computes what it does not find.
# - Layers are not "character, word, sentence". All three are vectors of words; the difference is how much of the sentence they have read, and how much it was transformed.
#
# On your own data the whole chapter is two commands. `--against random` adds the second control, `--plot` draws the picture:
#
# ```console
# $ elmokit probe pos train.conllu test.conllu --against random --plot pos.png
# $ elmokit probe wsd semcor.jsonl --test my-senses.jsonl --index index.sense
# ```
#
# [Probes](../probes.md) has six more, for similarity, polysemy, change, robustness and grammar.
#
# ## What to take home
#
# - Measure layers with probes that are too weak to compute, and always with a control.
# - Layer 0 identifies the word. The layers above exchange some of that for role and meaning in this sentence.
# - Small differences between layers need large test sets.
#
# ## Exercises
#
# 1. Probe only two sentences out of ten: `train[::5]`. Which layer suffers most from less training data, and what happens to its selectivity?
# 2. Use the mean of all layers: `elmokit.probes.pos` accepts any class with `name`, `layers`, `dim`, `tokenize` and `stream` ([Probes](../probes.md#what-can-be-probed)). Is the mean better than the best layer?
# 3. Replace the tags by something a word's own letters cannot tell, such as the part of speech of the *next* word. Which layers know it, and how can layer 0 know anything?
