# %% [markdown]
# # 7. W[h→; h←] + b as a learned projection
#
# Tutorials write ELMo's vector as *W[h→; h←] + b* and go on. This chapter takes the formula apart: what the two
# halves are, why a task multiplies them by a matrix, what that costs, and what the matrix learns.
#
# You need `pip install 'elmokit[plots]'`.

# %%
from pathlib import Path
from urllib.request import urlretrieve

import matplotlib.pyplot as plt
import numpy as np
import torch
from torch import nn

import elmokit

elmo = elmokit.load("small-en")
P = elmo.dim // 2
print("width of a vector", elmo.dim, "= 2 x", P)

# %% [markdown]
# ## Two halves that never meet
#
# A layer of ELMo is a concatenation: the first P numbers come from the network that reads from left to
# right, the last P from the one that reads from right to left. They are separate networks. So if we change the *last*
# word of a sentence, the forward halves of all words before it must stay the same.

# %%
one = elmo.encode([["The", "bank", "closed", "its", "doors"]], layers="top")[0]
two = elmo.encode([["The", "bank", "closed", "its", "account"]], layers="top")[0]
change = np.abs(one - two)[:4]  # the four words that both sentences share
print("largest change of a forward half ", change[:, :P].max())
print("smallest change of a backward half", change[:, P:].max(axis=1).min())
assert change[:, :P].max() < 1e-5 < change[:, P:].max(axis=1).min()

# %% [markdown]
# The backward half of *bank* knows how the sentence ends; the forward half cannot. Neither half alone has
# read the whole sentence, and ELMo itself never combines them. That is left to the task: the
# first layer with weights after ELMo is where left and right context meet. If this layer is linear, it is
#
# W[h→; h←] + b = W→ h→ + W← h← + b
#
# one matrix over the concatenation, or, which is the same, one matrix per direction and a sum:

# %%
torch.manual_seed(0)
layer = nn.Linear(elmo.dim, 16)
vectors = torch.from_numpy(one)  # (T, 2P)
together = layer(vectors)
left, right = layer.weight[:, :P], layer.weight[:, P:]
apart = vectors[:, :P] @ left.T + vectors[:, P:] @ right.T + layer.bias
print(together.shape, "largest difference", float((together - apart).abs().max().detach()))
assert torch.allclose(together, apart, atol=1e-5)

# %% [markdown]
# Adding the halves without W (h→ + h←) would be a mistake. Number 5 of the forward network and number 5 of
# the backward network have nothing to do with each other: they were trained apart, from different random weights.
#
# ## What it costs, what it saves
#
# In elmokit the formula is one argument: `ElmoEmbedding(..., projection=k)`. The vectors that come
# out have k numbers, whatever the size of the biLM. The projection has k(2P + 1) parameters, but every layer that follows becomes
# narrower. Here is the whole count for a tagger with a biLSTM of 128 cells per direction:


# %%
def tagger(projection):
    embedding = elmokit.ElmoEmbedding(elmo, projection=projection)
    lstm = nn.LSTM(embedding.dim, 128, bidirectional=True)
    return embedding, lstm, nn.Linear(256, 17)


print("projection    in the embedding    in the biLSTM      total")
for k in (None, 128, 64, 16):
    parts = [sum(p.numel() for p in part.parameters()) for part in tagger(k)]
    print(f"{k or 'none':>10}{parts[0]:>20,}{parts[1]:>17,}{sum(parts):>11,}")

# %% [markdown]
# The frozen biLM is not counted: its millions of weights are not trained. Of what *is* trained, the input matrix of the
# biLSTM is the largest part, and it grows with the width of the vectors.
#
# ## Learn it
#
# The task: parts of speech in 250 short sentences of the English Web Treebank (CC BY-SA 4.0), tested on 80 others. If you have only this notebook,
# the two files are downloaded.


# %%
def data(path):
    """A file of elmokit's repository: here, or downloaded from there."""
    if not Path(path).exists():
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        urlretrieve(f"https://raw.githubusercontent.com/elmokit/elmokit/main/{path}", path)
    return Path(path)


def read_tags(path):
    """Sentences as lists of (word, tag)."""
    found = []
    for block in data(path).read_text("utf-8").strip().split("\n\n"):
        rows = [line.split("\t") for line in block.splitlines()]
        found.append([(row[1], row[3]) for row in rows if row[0].isdecimal()])
    return found


train = read_tags("tests/tasks/data/ewt/train.conllu")
test = read_tags("tests/tasks/data/ewt/dev.conllu")
TAGS = sorted({tag for sentence in train for _, tag in sentence})


def tensors(sentences):
    """All layers of all words, and the numbers of their tags."""
    words = [[word for word, _ in sentence] for sentence in sentences]
    layers = np.concatenate(elmo.encode(words, layers="all"), axis=1)  # (L + 1, N, 2P)
    tags = [TAGS.index(tag) for sentence in sentences for _, tag in sentence]
    return torch.from_numpy(layers), torch.tensor(tags)


inputs, targets = tensors(train)
test_inputs, test_targets = tensors(test)
print(inputs.shape, len(TAGS), "tags; e.g.", train[0])

# %% [markdown]
# The biLM is frozen, so its layers are computed once. What is trained is small: the scalar mix of chapter 6, the
# projection *W[h→; h←] + b*, and a linear classifier on the k projected numbers.


# %%
class Projected(nn.Module):
    def __init__(self, k, halves=slice(None)):
        super().__init__()
        self.halves = halves
        self.mix = elmokit.ScalarMix(elmo.layers)
        width = len(range(elmo.dim)[halves])
        self.projection = nn.Linear(width, k) if k else nn.Identity()
        self.output = nn.Linear(k or width, len(TAGS))

    def project(self, layers):
        return self.projection(self.mix(list(layers))[:, self.halves])  # (N, k)

    def forward(self, layers):
        return self.output(self.project(layers))


def fit(*arguments, steps=80, seed=0):
    torch.manual_seed(seed)
    model = Projected(*arguments)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.03, weight_decay=1e-4)
    for _ in range(steps):
        loss = nn.functional.cross_entropy(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        right = (model(test_inputs).argmax(1) == test_targets).float().mean()
    return model, float(right)


widths = (1, 2, 4, 8, 16)
models = {k: fit(k) for k in widths}
models["none"] = fit(None)
for k, (_, accuracy) in models.items():
    print(f"width {k:>4}  accuracy {accuracy:.3f}")
assert models[1][1] < models[8][1]

# %%
# Accuracy against the width of the projection
figure, axis = plt.subplots(figsize=(5.6, 3.2), layout="constrained")
axis.plot(widths, [models[k][1] for k in widths], marker="o", label="W[h→; h←] + b")
axis.axhline(models["none"][1], color="grey", linestyle="--", label=f"all {elmo.dim} numbers")
axis.set(xlabel="width k", ylabel="accuracy", xscale="log", xticks=widths, xticklabels=widths)
axis.minorticks_off()
axis.legend()
plt.show()

# %% [markdown]
# One or two numbers are too few for seventeen tags. A handful is nearly enough: parts of speech occupy a small subspace of ELMo's
# vectors. And note what the projection is *not*: followed directly by a linear layer, it adds no power,
# since the product of two matrices is one matrix, of rank k. It is a bottleneck that you choose.
#
# ## What if one direction is missing?
#
# The same classifier (k = 16), with the forward half alone, the backward half alone, and both:

# %%
for name, halves in (("h→", slice(0, P)), ("h←", slice(P, None)), ("[h→; h←]", slice(None))):
    print(f"{name:9} accuracy {fit(16, halves)[1]:.3f}")

# %% [markdown]
# Both halves see the word itself, so even one of them goes a long way. What the other adds is the other side's context.
# How much of each does the projection use? The norm of W's columns says it, up to the scale of the inputs:

# %%
weight = models[16][0].projection.weight.detach()  # (16, 2P)
scale = models[16][0].mix(list(inputs)).detach().std(0)
norms = (weight * scale).norm(dim=0)
share = float(norms[:P].square().sum() / norms.square().sum())
print(f"share of the forward half in W: {share:.2f}, of the backward half: {1 - share:.2f}")
assert 0.2 < share < 0.8

# %% [markdown]
# ## A plane that you can look at
#
# With k = 2 the projection *is* a picture. These are words of the test sentences, which were not used in training; each point is
# W[h→; h←] + b.

# %%
# Words of the test sentences in the plane of a projection to two numbers
model, accuracy = models[2]
with torch.no_grad():
    points = model.project(test_inputs).numpy()
figure, axis = plt.subplots(figsize=(6.4, 4.4), layout="constrained")
for tag in ("NOUN", "VERB", "ADJ", "PRON", "DET", "ADP", "PUNCT", "PROPN"):
    chosen = points[test_targets.numpy() == TAGS.index(tag)]
    axis.scatter(*chosen.T, s=12, label=tag)
axis.set(xticks=[], yticks=[], title=f"Two numbers per word (accuracy {accuracy:.2f})")
axis.legend(loc="center left", bbox_to_anchor=(1, 0.5))
plt.show()

# %% [markdown]
# The classes lie like slices of a cake around a centre: a linear classifier in a plane can only cut it by rays, and the projection
# was trained for that classifier.
#
# ## The same thing as a module
#
# In a real program you would not copy the matrix around. `ElmoEmbedding` holds mix and projection, takes sentences,
# and is trained with the rest of your model. To see that it is the same formula, give it the weights just learned:

# %%
embedding = elmokit.ElmoEmbedding(elmo, projection=2, dropout=0.0)
embedding.mixes[0].load_state_dict(model.mix.state_dict())
embedding.projection.load_state_dict(model.projection.state_dict())
words = [word for word, _ in test[0]]
with torch.no_grad():
    from_module = embedding([words]).vectors[0]
print(words[:4], from_module.shape)
assert np.allclose(from_module.numpy(), points[: len(words)], atol=1e-4)
print(sorted(embedding.state_dict()))

# %% [markdown]
# That is all that a checkpoint of it holds; the biLM is loaded from its own files.
#
# ## What to take home
#
# - [h→; h←] is a concatenation of two networks that never exchange anything. The task's first layer combines them.
# - W[h→; h←] + b sets the width, and so the size of everything behind it.
# - Between two linear layers it is a bottleneck and nothing more.
#
# ## Exercises
#
# 1. Replace the concatenation by the sum h→ + h← (width P) before the projection. How much accuracy does it lose, and is it better than one half alone?
# 2. Put `nn.Tanh()` between the projection and the classifier, and repeat the experiment with the widths. Which widths gain?
# 3. Use `ElmoEmbedding(elmo, projection=16)` in the tagger of [In your PyTorch model](../pytorch.md), train it on these sentences, and compare accuracy and the size of `state_dict()` with and without the projection.
