# %% [markdown]
# # 6. 2L + 1 vectors and the mix
#
# The paper says that a biLM with L layers gives 2L + 1 vectors per token. Libraries hand you L + 1. And the formula
# ELMo = γ Σ s_j h_j has weights that sum to one and one that does not. This chapter counts, checks, and corrects
# some sentences that tutorials copy from one another.

# %%
import matplotlib.pyplot as plt
import numpy as np
import torch

import elmokit

elmo = elmokit.load("small-en")
tokens = elmo.tokenize("The bank lent him the money for a new house.")
layers = elmo.encode([tokens], layers="all")[0]
L, P = elmo.config.lstm.layers, elmo.config.lstm.width
print(f"L = {L}, P = {P}")
print(f"layers, tokens, 2P: {layers.shape}")

# %% [markdown]
# ## Counting
#
# For each token there is one token vector x (chapter 3), and from each of the L layers a forward and a backward
# hidden state (chapter 4): 1 + 2L vectors of width P. Concatenating the two directions layer by layer, and x with itself,
# gives L + 1 vectors of width 2P. Nothing is added or lost.

# %%
at = tokens.index("bank")
vectors = {"x": layers[0, at, :P]}
for layer in range(1, L + 1):
    vectors[f"forward {layer}"] = layers[layer, at, :P]
    vectors[f"backward {layer}"] = layers[layer, at, P:]
for name, vector in vectors.items():
    print(f"{name:11} {vector.shape} norm {np.linalg.norm(vector):5.2f}  {np.round(vector[:4], 2)}")
assert len(vectors) == 2 * L + 1
assert np.array_equal(layers[0, :, :P], layers[0, :, P:])

# %% [markdown]
# ## Two networks that never meet
#
# "ELMo reads the sentence in both directions" is true; "each hidden state has seen the whole sentence" is not.
# The forward stack knows nothing of what follows, in no layer. Change one word and see which numbers change.

# %%
# Change of every token's vector, by layer and direction, when the word lent becomes flooded
other = ["flooded" if token == "lent" else token for token in tokens]
changed = elmo.encode([other], layers="all")[0]
difference = np.stack(
    [
        np.linalg.norm((changed - layers)[layer, :, half], axis=1)
        for half in (slice(0, P), slice(P, 2 * P))
        for layer in range(L + 1)
    ]
)  # (directions * layers, T)
names = [f"{way} {n}" for way in ("forward", "backward") for n in range(L + 1)]
figure, axis = plt.subplots(figsize=(7, 2.8), layout="constrained")
image = axis.imshow(difference, cmap="magma_r", aspect="auto")
axis.set(xticks=range(len(tokens)), yticks=range(len(names)))
axis.set_xticklabels(tokens, rotation=45)
axis.set_yticklabels(names)
figure.colorbar(image, label="change")
plt.show()

# %% [markdown]
# Layer 0 changes at the word itself only. The forward halves change from that word on, the backward halves up to it.
# To the left of the changed word the forward half is the same to the last digit, in every layer:

# %%
word = tokens.index("lent")
print("forward, before the word:", difference[: L + 1, :word].max())
print("backward, after the word:", difference[L + 1 :, word + 1 :].max())
assert difference[: L + 1, :word].max() < 1e-5
assert difference[L + 1 :, word + 1 :].max() < 1e-5
assert difference[2, word + 1] > 0.1
assert difference[L + 3, word - 1] > 0.1

# %% [markdown]
# So the vector of *bank* in "The bank lent …" has a forward half that is the same as in "The bank
# flooded …". Only its backward half can tell money from water. Both sides meet where a task uses the whole
# vector, not before. In BERT they meet in every layer; that is the main difference between the two.
#
# ## The mix
#
# A task wants one vector per token, so ELMo takes a weighted sum: γ Σ s_j h_j over the L + 1 layers. The s_j come
# from a softmax over L + 1 free numbers: they are positive and sum to one, whatever the numbers. γ is a free number
# of its own.

# %%
mix = elmokit.ScalarMix(L + 1, weights=[0.1, 1.0, -0.5], gamma=0.8)
shares = mix.shares().detach().numpy()
print("s =", np.round(shares, 3), "sum", round(float(shares.sum()), 6))
print("gamma =", round(mix.gamma.item(), 3))

by_hand = 0.8 * np.tensordot(shares, layers, axes=1)
library = elmo.encode([tokens], layers=mix)[0]
print(f"by hand and library differ by {np.abs(by_hand - library).max():.1e}")
assert np.allclose(by_hand, library, atol=1e-5)

moved = elmokit.ScalarMix(L + 1, weights=[10.1, 11.0, 9.5])  # 10 added to each: the same shares
assert torch.allclose(mix.shares(), moved.shares())
assert np.allclose(elmo.encode([tokens], layers="mean")[0], layers.mean(axis=0), atol=1e-5)

# %% [markdown]
# `layers="mean"`, the default without a task, is s = (1/3, 1/3, 1/3) with γ = 1.
#
# Why two kinds of weights? The s_j answer *which layers*, γ answers *how large*. A sum with shares that add up to one
# lies among the layers, so it has their scale, and a task's network may need another. Watch it learn: the target
# is two and a half times layer 1. No choice of s alone reaches it.

# %%
target = 2.5 * torch.from_numpy(layers[1])
inputs = torch.from_numpy(layers)
results = {}
for name in ("s and gamma", "s alone"):
    mix = elmokit.ScalarMix(L + 1)
    mix.gamma.requires_grad_(name == "s and gamma")
    optimizer = torch.optim.Adam([p for p in mix.parameters() if p.requires_grad], lr=0.05)
    history = []
    for _ in range(400):
        loss = (mix(list(inputs)) - target).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        history.append([*mix.shares().tolist(), mix.gamma.item(), loss.item()])
    results[name] = np.array(history)
    *s, gamma, error = history[-1]
    print(f"{name:12} s = {np.round(s, 2)}, gamma = {gamma:.2f}, error {error:.4f}")
assert results["s and gamma"][-1, -1] < results["s alone"][-1, -1]

# %%
# Shares of the layers and gamma over 400 steps of learning the mix
figure, axis = plt.subplots(figsize=(6, 3), layout="constrained")
history = results["s and gamma"]
for layer in range(L + 1):
    axis.plot(history[:, layer], label=f"s_{layer}")
axis.plot(history[:, L + 1], color="black", label="γ")
axis.set(xlabel="step")
axis.legend(loc="center right")
plt.show()

# %% [markdown]
# One warning before you read shares as "what the task needs". The layers have different sizes, and a large layer counts
# for more at the same share:

# %%
sizes = np.linalg.norm(layers, axis=2).mean(axis=1)
for layer, size in enumerate(sizes):
    print(f"layer {layer}: mean norm {size:5.2f}, part of the plain mean {size / sizes.sum():.0%}")

# %% [markdown]
# Shares learned from little data also stay near 1/3, where they start. Compare layers one at a time, as chapter 10
# does, before you conclude anything from them.
#
# ## What tutorials get wrong
#
# | you may read | but |
# |---|---|
# | the three layers are the character, the word and the sentence level | all three are one vector per *token*. Layer 0 has no context; layers 1 and 2 both read the sentence, 2 on top of 1. There is no sentence vector |
# | one bidirectional LSTM | two stacks with separate weights; they share the token vectors and, in training, the softmax |
# | each state sees the whole sentence | a forward state sees the left side, a backward state the right side |
# | the γ of the layers sum to one | there is one γ per task; the s_j sum to one |
# | ELMo is 1024 numbers per word | it is (L + 1) × 2P per *token*; 1024 is 2P of one published model, after the mix |
# | a word has its ELMo vector | every use has its own; only layer 0 is the same everywhere |
#
# The first and the last line, checked:

# %%
first, second = (elmo.tokenize(text) for text in ("She sat on the bank.", "She robbed the bank."))
a, b = (elmo.encode([t], layers="all")[0][:, t.index("bank")] for t in (first, second))
for layer in range(L + 1):
    cosine = a[layer] @ b[layer] / np.linalg.norm(a[layer]) / np.linalg.norm(b[layer])
    print(f"layer {layer}: cosine of the two uses of bank {cosine:.3f}")
assert np.allclose(a[0], b[0], atol=1e-5)
assert not np.allclose(a[1], b[1], atol=0.1)
assert not np.allclose(a[2], b[2], atol=0.1)

# %% [markdown]
# ## What to take home
#
# - 2L + 1 vectors of width P are L + 1 layers of width 2P.
# - The forward half of a vector never depends on the words to the right, the backward half never on those to the left.
# - s says which layers (sum 1), γ says how large (free).
#
# ## Exercises
#
# 1. Change the *last* word of a long sentence. How far to the left does the backward half of layer 2 change noticeably? Draw the change against the distance.
# 2. Divide each layer by its mean norm before mixing. What do the learned shares of the small experiment become when the target is layer 1 + layer 2?
# 3. A tutorial proposes to sum the forward and the backward state instead of concatenating them. Find two different pairs of states with the same sum, and say what a task can no longer do.
