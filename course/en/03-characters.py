# %% [markdown]
# # 3. From characters to a token vector
#
# ELMo has no table of input words. It reads the letters of each word: an embedding per character,
# convolutions of several widths, highway layers, a projection. Here is every step for one word, computed in
# NumPy from the real weights of `small-en`, and compared with the library at the end.

# %%
import matplotlib.pyplot as plt
import numpy as np

import elmokit

elmo = elmokit.load("small-en")
weights = {name: tensor.numpy() for name, tensor in elmo.bilm.named_parameters()}
word = "beautiful"

# %% [markdown]
# ## Characters
#
# A word becomes its UTF-8 bytes, between a begin and an end marker, then padding. We print the
# markers as `<` and `>` and padding as `_`.

# %%
alphabet = elmo.alphabet
markers = {alphabet.begin_word: "<", alphabet.end_word: ">", alphabet.padding: "_"}
ids = alphabet.ids([word])[0]
letters = [markers.get(int(i)) or chr(i - 1) for i in ids]
print(ids)
print(" ".join(letters))

embedding = weights["encoder.characters.embedding"]  # (262, E)
characters = embedding[ids]  # (C, E)
print("table", embedding.shape, "word", characters.shape)

# %% [markdown]
# ## Convolutions: n-gram detectors
#
# A filter of width n is a small matrix (n × E). It slides over the word and gives one number per window: large
# if it likes these n characters. Only its largest number is kept (max-pooling), so a word
# of any length gives one number per filter. There are filters of several widths:


# %%
def windows(characters, width):
    """All windows of so many characters, flat: (positions, width * E)."""
    positions = len(characters) - width + 1
    return np.stack([characters[i : i + width].ravel() for i in range(positions)])


banks = []  # width, matrix (width * E, filters), bias
for number, (width, count) in enumerate(elmo.config.characters.filters):
    weight = weights[f"encoder.characters.filters.{number}.weight"]  # (filters, E, width)
    matrix = weight.transpose(2, 1, 0).reshape(-1, count)
    banks.append((width, matrix, weights[f"encoder.characters.filters.{number}.bias"]))

pooled, fired_at = [], []
for width, matrix, bias in banks:
    responses = windows(characters, width) @ matrix + bias  # (positions, filters)
    pooled.append(responses.max(axis=0))
    fired_at.append(responses.argmax(axis=0))
    best = int(pooled[-1].argmax())
    start = int(fired_at[-1][best])
    ngram = "".join(letters[start : start + width])
    shape = str(responses.shape)
    print(
        f"width {width}: responses {shape:9} filter {best:3} likes {ngram!r:9} {pooled[-1][best]:.2f}"
    )

x = np.maximum(np.concatenate(pooled), 0)  # ReLU: (F,)
print(f"{x.shape} numbers, {(x > 0).mean():.0%} of them above zero")

# %% [markdown]
# The strongest filters of width 4, and where in the word they respond:

# %%
# Responses of the twelve strongest filters of width 4 at each position of the word beautiful
width, matrix, bias = banks[3]
responses = windows(characters, width) @ matrix + bias
strongest = responses.max(axis=0).argsort()[::-1][:12]
figure, axis = plt.subplots(figsize=(6.5, 3.4), layout="constrained")
limit = np.abs(responses[:, strongest]).max()
image = axis.imshow(
    responses[:, strongest].T, cmap="RdBu_r", vmin=-limit, vmax=limit, aspect="auto"
)
ngrams = ["".join(letters[i : i + width]) for i in range(len(responses))]
axis.set(xticks=range(len(ngrams)), yticks=range(12), ylabel="filter")
axis.set_xticklabels(ngrams, rotation=60)
axis.set_yticklabels(strongest)
figure.colorbar(image, label="response")
plt.show()

# %% [markdown]
# What does such a filter look for? Show it three thousand words, and collect the n-grams that it likes best.

# %%
vocabulary = list(elmo.vocabulary)
common = [entry for entry in vocabulary[3:3003] if entry.isalpha()]
for best in strongest[:4]:
    found = {}
    for other in common:
        other_ids = alphabet.ids([other])[0]
        values = windows(embedding[other_ids], width) @ matrix[:, best] + bias[best]
        names = [markers.get(int(i)) or chr(i - 1) for i in other_ids]
        at = int(values.argmax())
        found["".join(names[at : at + width])] = float(values[at])
    liked = sorted(found, key=found.get, reverse=True)[:8]
    print(f"filter {best:3}:", "  ".join(liked))

# %% [markdown]
# Some are clean (an ending, a stem), others like several unrelated n-grams; the highway layer, next, sorts that
# out. No filter was told what to look for: these are what helped to predict words.
#
# ## Highway: how much to change
#
# The F numbers pass one highway layer or two: y = g · relu(A x + a) + (1 − g) · x. The gate g, one number between 0 and
# 1 for each of the F, says how much of the input is replaced. At 0 the input passes unchanged.


# %%
def sigmoid(x):
    return 0.5 + 0.5 * np.tanh(x / 2)  # 1 / (1 + exp(-x)), without overflow


def highway(x, number):
    name = f"encoder.characters.highways.{number}"
    weight = weights[f"{name}.weight"]  # (2F, F): A above, the gate's B below
    transformed, gate = np.split(weight @ x + weights[f"{name}.bias"], 2)
    gate = sigmoid(gate)
    return gate * np.maximum(transformed, 0) + (1 - gate) * x, gate


y = x
for number in range(elmo.config.characters.highways):
    y, gate = highway(y, number)
    print(f"gate: mean {gate.mean():.2f}, smallest {gate.min():.3f}, largest {gate.max():.3f}")

# %%
# Histogram of the values of the highway gate for the word beautiful
figure, axis = plt.subplots(figsize=(5, 2.4), layout="constrained")
axis.hist(gate, bins=40, range=(0, 1))
axis.set(xlabel="gate g", ylabel="filters", title=f"Highway gates for {word!r}")
plt.show()

# %% [markdown]
# The transform mixes filters: "ends in *-ful*, but does not begin with *hand-*" is a thing that a single
# filter cannot say.
#
# ## Projection
#
# Last, a matrix reduces the F numbers to P, the width of one direction of the LSTM. The result is layer 0
# of ELMo, the token vector. It should be the library's:

# %%
vector = weights["encoder.projection.weight"] @ y + weights["encoder.projection.bias"]  # (P,)
library = elmo.encode([[word]], layers=0)[0][0]  # (2P,)
print(x.shape, "->", y.shape, "->", vector.shape)
print(f"largest difference {np.abs(vector - library[: len(vector)]).max():.1e}")
assert np.allclose(vector, library[: len(vector)], atol=1e-4)
assert np.array_equal(library[: len(vector)], library[len(vector) :])

# %% [markdown]
# `encode` gives 2P numbers: the token vector twice, once for each direction, so that all layers have the same
# width.
#
# ## Words with similar spelling
#
# Since the input is letters, related words have related vectors, and no word is unknown. Nearest
# neighbours of some words in layer 0, among the 5,000 most frequent ones. A word outside the vocabulary (of the
# words that the model can predict) has a vector like any other:

# %%
entries = vocabulary[3:5003]
table = np.concatenate(elmo.encode([[entry] for entry in entries], layers=0))


def unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


asked = ["beautiful", "beauty", "running", "goverment", "unbankable", "2031"]
known = set(vocabulary)
queries = np.concatenate(elmo.encode([[entry] for entry in asked], layers=0))
for entry, cosines in zip(asked, unit(queries) @ unit(table).T, strict=True):
    near = [entries[i] for i in cosines.argsort()[::-1] if entries[i] != entry][:5]
    print(f"{entry:11} {'' if entry in known else '(not in the vocabulary)':24}", "  ".join(near))

# %%
some = ["beauty", "beautiful", "table", "goverment", "government"]
cosines = unit(np.concatenate(elmo.encode([[entry] for entry in some], layers=0)))
cosines = dict(zip(some, cosines @ cosines.T, strict=True))
print(f"beauty and beautiful      {cosines['beauty'][1]:.2f}")
print(f"beauty and table          {cosines['beauty'][2]:.2f}")
print(f"goverment and government  {cosines['goverment'][4]:.2f}")
assert cosines["beauty"][1] > cosines["beauty"][2]
assert cosines["goverment"][4] > cosines["goverment"][2]

# %% [markdown]
# The neighbours are not a spelling checker's. Words of similar meaning and part of speech are
# there too, even when they share no letters: the CNN was trained to help predict context, and it is large enough
# to store facts about frequent words. For a rare or misspelt word only the letters are left, and the
# neighbours share its stem or its ending.
#
# What layer 0 cannot do is look around: *beautiful* has this vector in every sentence.
#
# ## What to take home
#
# - bytes → embedding → n-gram filters with max-pooling → highway → projection; each step is a few lines.
# - A token vector depends on the spelling alone, so it is computed once per distinct word.
# - There is no unknown word at the input. (At the output there is: the softmax can only predict its vocabulary.)
#
# ## Exercises
#
# 1. Max-pooling forgets where a filter fired. Find two different words whose n-grams of width 3 are nearly the same set, and compare their token vectors.
# 2. Replace the highway by the identity (`y = x`) and project. How far is the result from the true token vector, for a frequent word and for a misspelt one?
# 3. Compare *bank* with *Bank*, *BANK* and *b4nk* in layer 0. What would lower-casing the text (a habit of older pipelines) gain or lose?
