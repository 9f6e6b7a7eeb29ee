# %% [markdown]
# # 8. Sentiment: mean pooling, then attention
#
# The classifier of nearly every ELMo tutorial is the mean of the word vectors and a dense layer. Here it is, in plain
# PyTorch on frozen layers, with real reviews and an honest test. Then the mean is replaced by attention, which decides how much
# each word counts, and we look at what it decided.
#
# You need `pip install 'elmokit[plots]'`.

# %%
import csv
from pathlib import Path
from urllib.request import urlretrieve

import matplotlib.pyplot as plt
import numpy as np
import torch
from torch import nn

import elmokit


def data(path):
    """A file of elmokit's repository: here, or downloaded from there."""
    if not Path(path).exists():
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        urlretrieve(f"https://raw.githubusercontent.com/elmokit/elmokit/main/{path}", path)
    return Path(path)


with data("course/data/reviews-en.tsv").open(encoding="utf-8", newline="") as file:
    rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
train = [row for row in rows if row["split"] == "train"]
test = [row for row in rows if row["split"] == "test"]
print(len(train), "for training,", len(test), "for testing; half of each is positive")
for row in train[0], train[-1]:
    print(f"{row['label']}: {row['text']}")

# %% [markdown]
# These are sentences from film reviews (Pang and Lee's sentence polarity data, CC BY 4.0), split into tokens.
#
# ## Layers first
#
# The biLM stays frozen, so every sentence is encoded once: L + 1 layers, T tokens, 2P numbers. Sentences have different lengths; they are padded to
# one tensor, and a mask says which positions are real.

# %%
elmo = elmokit.load("small-en")


def tensors(texts):
    """Layers (B, L + 1, T, 2P) and mask (B, T)."""
    encoded = elmo.encode([text.split() for text in texts], layers="all")
    longest = max(layers.shape[1] for layers in encoded)
    batch = torch.zeros(len(encoded), elmo.layers, longest, elmo.dim)
    mask = torch.zeros(len(encoded), longest, dtype=torch.bool)
    for i, layers in enumerate(encoded):
        batch[i, :, : layers.shape[1]] = torch.from_numpy(layers)
        mask[i, : layers.shape[1]] = True
    return batch, mask


def labels(part):
    return torch.tensor([float(row["label"] == "pos") for row in part])


inputs, mask = tensors([row["text"] for row in train])
test_inputs, test_mask = tensors([row["text"] for row in test])
targets, test_targets = labels(train), labels(test)
print(inputs.shape, "mean length", round(float(mask.sum(1).float().mean()), 1))

# %% [markdown]
# ## Mean pooling and a dense layer
#
# The scalar mix of chapter 6 makes one vector per token, the mean makes one per sentence, a dense layer makes one number:
# above zero is positive. The padding must not enter the mean, so the sum over real tokens is divided by their number. Forgetting the mask
# is the most frequent mistake here: short sentences then have short vectors.


# %%
class MeanClassifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = elmokit.ScalarMix(elmo.layers)
        self.dropout = nn.Dropout(0.5)
        self.dense = nn.Linear(elmo.dim, 1)

    def weights(self, vectors, mask):
        """How much each token counts: (B, T), rows sum to one."""
        return mask / mask.sum(1, keepdim=True)

    def forward(self, layers, mask):
        vectors = self.mix(list(layers.unbind(1)))  # (B, T, 2P)
        pooled = (self.weights(vectors, mask)[..., None] * vectors).sum(1)  # (B, 2P)
        return self.dense(self.dropout(pooled))[:, 0]


# %% [markdown]
# ## Attention
#
# Only `weights` changes. A learned vector, the query, is multiplied with every token's vector: that is the token's score. A softmax over the sentence turns
# the scores into weights that sum to one. Padding gets the score minus infinity, so its weight is zero. The mean is the special case of
# equal scores, and a query of zeros starts exactly there.


# %%
class AttentionClassifier(MeanClassifier):
    def __init__(self):
        super().__init__()
        self.query = nn.Parameter(torch.zeros(elmo.dim))  # equal weights at first

    def weights(self, vectors, mask):
        scores = vectors @ self.query / elmo.dim**0.5  # (B, T)
        return scores.masked_fill(~mask, -torch.inf).softmax(1)


# %% [markdown]
# ## Train both
#
# Same data, same epochs, same optimizer, three seeds each. A real project would also keep dev sentences apart, to choose epochs and learning
# rate by them and not by the test.

# %%
EPOCHS = 15  # long: 40
SEEDS = 3


def fit(kind, seed):
    torch.manual_seed(seed)
    model = kind()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.01)
    for _ in range(EPOCHS):
        for chosen in torch.randperm(len(targets)).split(50):
            longest = int(mask[chosen].sum(1).max())
            scores = model(inputs[chosen, :, :longest], mask[chosen, :longest])
            loss = nn.functional.binary_cross_entropy_with_logits(scores, targets[chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return model.eval()


def accuracy(model):
    with torch.no_grad():
        return float(((model(test_inputs, test_mask) > 0) == test_targets.bool()).float().mean())


found = {}
for kind in (MeanClassifier, AttentionClassifier):
    models = [fit(kind, seed) for seed in range(SEEDS)]
    scores = [accuracy(model) for model in models]
    found[kind] = models[0]
    size = sum(p.numel() for p in models[0].parameters())
    runs = ", ".join(f"{score:.3f}" for score in scores)
    print(f"{kind.__name__:20} {size:>6,} parameters  accuracy {np.mean(scores):.3f}  ({runs})")
    assert np.mean(scores) > 0.58

# %% [markdown]
# Always answering *positive* gives 0.5. With 240 test sentences the standard error of an accuracy near 0.7 is about 0.03, so two models that
# differ by two points on this test do not differ: that is the first thing to check before you
# believe a comparison. Attention has twice the parameters, learned from the
# same few hundred labels, so do not expect wonders of it here. What it always gives is a look at where the decision comes from.
#
# ## What attention looks at

# %%
# Attention weights of the words of three sentences
SENTENCES = [
    "the acting is superb and the music is beautiful .",
    "a dull , lifeless film that wastes a talented cast .",
    "it should have been funny , but it is only long and boring .",
]
layers, real = tensors(SENTENCES)
model = found[AttentionClassifier]
with torch.no_grad():
    weights = model.weights(model.mix(list(layers.unbind(1))), real)  # (3, T)
    chances = model(layers, real).sigmoid()
assert torch.allclose(weights.sum(1), torch.ones(3), atol=1e-5)

figure, axes = plt.subplots(3, 1, figsize=(7.2, 4.6), layout="constrained")
for axis, text, row, chance in zip(axes, SENTENCES, weights.numpy(), chances, strict=True):
    words = text.split()
    axis.bar(range(len(words)), row[: len(words)])
    axis.axhline(1 / len(words), color="grey", linestyle="--", linewidth=1)
    axis.set_xticks(range(len(words)), words, rotation=35, ha="right", fontsize=8)
    axis.set_ylabel("weight", fontsize=8)
    axis.set_title(f"p(positive) = {float(chance):.2f}", fontsize=9, loc="left")
plt.show()

# %% [markdown]
# The dashed line is the mean: every word counts the same. Words above it were given more weight. Read such pictures with care. A weight is attached to
# a *vector*, and the vector of a function word after *boring* has read *boring* too. Attention shows where information was taken from, not why
# the answer is what it is.
#
# Which words get the most weight on average over the test sentences?

# %%
with torch.no_grad():
    all_weights = model.weights(model.mix(list(test_inputs.unbind(1))), test_mask)
    lift = all_weights * test_mask.sum(1, keepdim=True)  # 1 is what the mean gives
totals = {}
for row, text in zip(lift, (row["text"] for row in test), strict=True):
    for word, value in zip(text.split(), row.tolist(), strict=False):
        totals.setdefault(word, []).append(value)
ranked = sorted((np.mean(v), word) for word, v in totals.items() if len(v) >= 4)
print("most: ", ", ".join(f"{word} {value:.1f}" for value, word in ranked[:-9:-1]))
print("least:", ", ".join(f"{word} {value:.1f}" for value, word in ranked[:8]))

# %% [markdown]
# ## Where it goes wrong
#
# Every classifier should be shown with its worst mistakes. These are the test sentences that the attention model is most sure of, and wrong:

# %%
with torch.no_grad():
    scores = model(test_inputs, test_mask)
wrong = ((scores > 0) != test_targets.bool()).float() * scores.abs()
for i in wrong.argsort(descending=True)[:3].tolist():
    print(f"{test[i]['label']}, p(positive) = {float(scores[i].sigmoid()):.2f}: {test[i]['text']}")

# %% [markdown]
# ## With less code
#
# The command line has both classifiers: `head.kind` is `mean` or `attention` (the latter with a biLSTM below it), and the recipe `classify-tutorial` is the
# model above. Train on more sentences than we had here, and keep the test set for the end:
#
# ```console
# $ elmokit train classify --train train.csv --dev dev.csv --test test.csv -o my-classifier --config classify-tutorial
# $ elmokit predict my-classifier new.txt
# ```
#
# [Tasks](../tasks.md) has the formats, [task results](../task-results.md) the scores on nineteen data sets.
#
# ## What to take home
#
# - Mean pooling and one dense layer is a strong start: a few hundred parameters, seconds of training.
# - Attention replaces equal weights by learned ones. It costs parameters and needs data to pay for them.
# - Report several seeds and know your test set's standard error before you call one model better.
#
# ## Exercises
#
# 1. Use `pool="max"` instead of the mean: `elmo.encode(texts, pool="max")` and a dense layer. Which reviews does it get right that the mean gets wrong?
# 2. Train both models with 50, 100, 200 and 500 sentences, three seeds each, and draw the two curves with their spread. Where does attention catch up?
# 3. Replace the mix by layer 0 alone (`inputs[:, :1]`), which has read no context. How much of the accuracy is context worth here? Try your own sentences with *not*.
