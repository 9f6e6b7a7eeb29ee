# %% [markdown]
# # 1. Why static vectors fail
#
# word2vec, GloVe and fastText give every word of a language one vector. That was a great step, and it has
# one flaw that no amount of text repairs: a word with two meanings still has one vector. This chapter
# builds such vectors, looks at what happens to the two meanings of *bank*, and then asks ELMo.
#
# You need Python and `pip install 'elmokit[plots]'`. The model `small-en` is inside the package.

# %%
import matplotlib.pyplot as plt
import numpy as np

import elmokit
from elmokit.word_vectors import average_words

elmo = elmokit.load("small-en")
river = [
    "They rowed to the far bank and pulled the boat out of the water.",
    "Tall reeds grew on the bank of the stream.",
    "He slipped down the muddy bank into the river.",
    "Cows were grazing on the left bank of the river.",
    "We pitched our tent on the bank of a lake.",
    "Children were fishing from the steep bank.",
]
money = [
    "The bank charged her interest on the loan.",
    "My bank closed the account without a word.",
    "He asked the bank for a loan to buy a farm.",
    "A new bank opened its offices in the capital.",
    "The bank holds the savings of a million customers.",
    "She was the director of a bank in Zurich.",
]
sentences = [elmo.tokenize(text) for text in river + money]
senses = ["river"] * len(river) + ["money"] * len(money)
print(sentences[1])

# %% [markdown]
# ## One vector per word
#
# A static vector is made from the contexts of a word, all of them together. The simplest way to make one is to
# give each use of a word a vector that depends on its context, and to take the mean over the uses.
# `average_words` does that for every word of a text. The result is a table, as GloVe is: word in, vector out.

# %%
table = average_words(elmo, sentences, layers="top", min_count=1)
print(len(table.words), "words, vectors of width", table.dim)


def cosine(a, b):
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


def static(tokens, word):
    """The table's vector of a word in a sentence: the sentence makes no difference."""
    return table.lookup(tokens)[tokens.index(word)]


stream, loan = sentences[1], sentences[6]
print("bank of the stream, bank that charged interest:")
print(f"cosine {cosine(static(stream, 'bank'), static(loan, 'bank')):.3f}")

# %% [markdown]
# The cosine is exactly one. A program that reads these vectors cannot tell a river from a loan.
#
# Worse, the one vector belongs to neither meaning. Here are three vectors: the mean of the river uses, the
# mean of the money uses, and the table's vector, which is the mean of both.


# %%
def in_context(tokens, word, layers="top"):
    """ELMo's vector of a word in a sentence."""
    return elmo.encode([tokens], layers=layers)[0][tokens.index(word)]


uses = np.stack([in_context(tokens, "bank") for tokens in sentences])  # (12, 2P)
by_river, by_money = uses[:6].mean(axis=0), uses[6:].mean(axis=0)
one = static(stream, "bank")
print(f"river and money      {cosine(by_river, by_money):.3f}")
print(f"the table and river  {cosine(one, by_river):.3f}")
print(f"the table and money  {cosine(one, by_money):.3f}")
assert cosine(by_river, by_money) < min(cosine(one, by_river), cosine(one, by_money))

# %% [markdown]
# The table's vector is between the two, closer to each of them than they are to each other. With more text
# it moves towards the more frequent meaning; it never becomes two.
#
# ## One vector per use
#
# ELMo does not stop at a table. It reads the sentence and gives this *bank*, here, a vector. Compare every
# use with every other: on the left with the static vectors, on the right with ELMo's top layer. Rows 1 to 6
# are rivers, 7 to 12 are money.

# %%
# Cosines between the twelve uses of bank, by static vectors and by ELMo
fixed = np.stack([static(tokens, "bank") for tokens in sentences])
figure, axes = plt.subplots(1, 2, figsize=(7.2, 3.2), layout="constrained")
for axis, vectors, name in zip(axes, (fixed, uses), ("static", "ELMo, top layer"), strict=True):
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    image = axis.imshow(unit @ unit.T, vmin=0.3, vmax=1, cmap="viridis")
    ticks = range(0, 12, 2)
    axis.set(title=name, xticks=ticks, yticks=ticks)
    axis.set_xticklabels([i + 1 for i in ticks])
    axis.set_yticklabels([i + 1 for i in ticks])
figure.colorbar(image, ax=axes, label="cosine")
plt.show()

# %% [markdown]
# Two bright squares on the right: rivers are like rivers, money is like money. In numbers:

# %%
unit = uses / np.linalg.norm(uses, axis=1, keepdims=True)
cosines = unit @ unit.T
same = np.equal.outer(senses, senses)
others = ~np.eye(len(senses), dtype=bool)
print(f"mean cosine within a sense  {cosines[same & others].mean():.3f}")
print(f"mean cosine between senses  {cosines[~same].mean():.3f}")
assert cosines[same & others].mean() > cosines[~same].mean()

nearest = np.where(others, cosines, -1).argmax(axis=1)
right = sum(senses[i] == senses[j] for i, j in enumerate(nearest))
print(f"{right} of {len(senses)} uses have a nearest neighbour of their own sense")

# %% [markdown]
# ## The map
#
# A picture of vectors with hundreds of numbers needs two of them. `elmo.map` takes the first two principal
# components: the two directions in which the uses differ most. The colours are our labels; the model has
# never seen them. The cross is the static vector, projected to the same plane.

# %%
# The twelve uses of bank on a plane, coloured by sense, and the static vector between them
picture = elmo.map(sentences, "bank", labels=senses)
centred = uses - uses.mean(axis=0)
plane = np.linalg.lstsq(centred, picture.points, rcond=None)[0]  # (2P, 2): the two directions
figure, axis = plt.subplots(figsize=(6, 4.2), layout="constrained")
for sense in ("river", "money"):
    x, y = picture.points[np.array(senses) == sense].T
    axis.scatter(x, y, label=sense)
for number, point in enumerate(picture.points):
    axis.annotate(number + 1, point, xytext=(5, 3), textcoords="offset points")
axis.scatter(*((one - uses.mean(axis=0)) @ plane), marker="x", s=90, color="black", label="static")
axis.set(xticks=[], yticks=[], title="Twelve uses of bank")
axis.legend()
plt.show()

# %% [markdown]
# In a notebook `picture` alone on a line draws itself, with the sentences below it.
#
# ## Where it is hard
#
# `small-en` is a small model, and it has seen few uses of a rare sense. *match* has one: sports reports are
# everywhere, boxes of matches are not.

# %%
games = ["They won the match by two goals.", "The match ended in a draw."]
games += ["She played her last match in Paris.", "The referee stopped the match after an hour."]
fires = ["He struck a match and lit the candle.", "She lit the fire with her last match."]
fires += ["The match burned his fingers.", "He held a match to the dry wood."]
vectors = [in_context(elmo.tokenize(text), "match") for text in games + fires]
kinds = ["game"] * 4 + ["fire"] * 4
right = 0
for i, vector in enumerate(vectors):
    rest = [j for j in range(8) if j != i]
    best = max(rest, key=lambda j: cosine(vector, vectors[j]))
    right += kinds[best] == kinds[i]
print(f"{right} of 8 uses of match have a nearest neighbour of their own sense")

# %% [markdown]
# Guessing would get three or four of eight. Measure before you trust a map: twelve sentences that someone chose for a
# tutorial prove little. [Embedded models](../embedded-models.md) has the measurements on real test sets.
#
# ## What to take home
#
# - A static vector is a mean over uses. Two meanings become one point between them.
# - ELMo computes a vector for each use, from the sentence around it.
# - How it reads the sentence is the subject of the next five chapters.
#
# ## Exercises
#
# 1. Replace `layers="top"` in `in_context` by `layers=0` and by `layers=1`. What happens to the two mean cosines, and why must layer 0 look as it does?
# 2. Write ten sentences with *spring* or *crane* in two senses and draw their map. Then swap only the words to the left of the word, and only those to the right. Which side moves the points more?
# 3. Add 30 more money sentences (from any news text) before calling `average_words`. Where does the static vector move on the map?
