# %% [markdown]
# # 4. The gates of the LSTM
#
# The token vectors of chapter 3 know nothing of the sentence. Two stacks of LSTM layers add it, one from
# left to right, one from right to left. An LSTM is six formulas. Here they are beside the code that computes
# them, with the weights of `small-en`, and the result is compared with the library's hidden states.

# %%
import matplotlib.pyplot as plt
import numpy as np

import elmokit

elmo = elmokit.load("small-en")
shape = elmo.config.lstm
H, P = shape.cells, shape.width
print(f"{shape.layers} layers per direction, H = {H} cells, P = {P} numbers in a hidden state")


def weights(direction, layer):
    prefix = f"lstm.{direction}_stack.{layer}."
    found = {n: t.numpy() for n, t in elmo.bilm.named_parameters() if n.startswith(prefix)}
    return {name.removeprefix(prefix): array for name, array in found.items()}


for name, array in weights("forward", 0).items():
    print(f"{name:13} {array.shape}")

# %% [markdown]
# ## Six formulas
#
# At each word the layer reads the word's vector x, its own last hidden state h, and its cell state c.
#
# | | formula | in words |
# |---|---|---|
# | input gate | i = σ(W_i x + U_i h + b_i) | how much of the candidate is written to the cell |
# | forget gate | f = σ(W_f x + U_f h + b_f + 1) | how much of the old cell state stays |
# | candidate | g = tanh(W_g x + U_g h + b_g) | what may be written |
# | output gate | o = σ(W_o x + U_o h + b_o) | how much of the cell is shown |
# | cell state | c ← clip(f · c + i · g) | keep some, write some |
# | hidden state | h ← clip(R (o · tanh c)) | show some, project from H to P numbers |
#
# The four matrices W are stored as one, in the order i, f, g, o, and so are U and b. Two details are not in the
# textbook's LSTM: the projection R, which keeps h small while the layer has many cells, and the clipping of c and h,
# which keeps both within bounds. The 1 in the forget gate lets a new network keep its cells until it has learned what to drop.


# %%
def sigmoid(x):
    return 0.5 + 0.5 * np.tanh(x / 2)  # 1 / (1 + exp(-x)), without overflow


def step(w, x, h, c):
    i, f, g, o = np.split(w["input_weight"] @ x + w["state_weight"] @ h + w["bias"], 4)
    i, f, g, o = sigmoid(i), sigmoid(f + shape.forget_bias), np.tanh(g), sigmoid(o)
    c = np.clip(f * c + i * g, -shape.cell_clip, shape.cell_clip)
    h = np.clip(w["projection"] @ (o * np.tanh(c)), -shape.projection_clip, shape.projection_clip)
    return h, c, (i, f, g, o)


# %% [markdown]
# Five lines. Now run them over a sentence, from a zero initial state. The sentence begins with the marker
# `<S>`, which has a vector as every token has.

# %%
text = "The bank lent him the money for a new house ."
tokens = text.split()
x = elmo.encode([["<S>", *tokens, "</S>"]], layers=0)[0][:, :P]  # token vectors (T + 2, P)


def run(direction, layer, inputs):
    """Hidden states, cell states and gates at every token."""
    w, h, c = weights(direction, layer), np.zeros(P, np.float32), np.zeros(H, np.float32)
    steps = []
    for vector in inputs:
        h, c, gates = step(w, vector, h, c)
        steps.append((h, c, gates))
    hidden, cells, gates = zip(*steps, strict=True)
    return np.stack(hidden), np.stack(cells), np.array(gates)  # (T, P), (T, H), (T, 4, H)


hidden, cells, gates = run("forward", 0, x[:-1])
print("means over the cells, and the size of c and h")
print("token      i     f    |g|    o     |c|   |h|")
for token, h, c, (i, f, g, o) in zip(["<S>", *tokens], hidden, cells, gates, strict=True):
    sizes = f"{np.abs(c).mean():6.2f} {np.linalg.norm(h):5.2f}"
    print(
        f"{token:7} {i.mean():5.2f} {f.mean():5.2f} {np.abs(g).mean():5.2f} {o.mean():5.2f} {sizes}"
    )

# %% [markdown]
# The means hide that a gate is a vector, with one number per cell. The cells are very different:

# %%
# Histograms of the input, forget and output gates of all cells at all tokens of the sentence
figure, axes = plt.subplots(1, 3, figsize=(7.2, 2.3), sharey=True, layout="constrained")
for axis, number, name in zip(axes, (0, 1, 3), ("input i", "forget f", "output o"), strict=True):
    axis.hist(gates[:, number].ravel(), bins=30, range=(0, 1))
    axis.set(title=name, xticks=[0, 0.5, 1])
axes[0].set_ylabel("cells × tokens")
plt.show()

# %% [markdown]
# At any one word most cells are hardly written to (i near 0) and hardly shown (o near 0): each word concerns
# a few of them. The forget gates are spread from 0 to 1. A cell with f near 0 holds the last word only; a cell
# with f near 1 keeps what it has.
#
# ## Is that really ELMo?
#
# `encode` gives the forward hidden states of layer 1 as the first half of the vectors, without the marker.
# The backward direction is the same code with other weights, fed from the end. The second layer reads the
# hidden states of the first, and adds them to its own: a residual connection.

# %%
first_f, first_b = run("forward", 0, x[:-1])[0], run("backward", 0, x[:0:-1])[0]
second_f = run("forward", 1, first_f)[0] + first_f
second_b = run("backward", 1, first_b)[0] + first_b
by_hand = [
    np.concatenate([forward[1:], backward[:0:-1]], axis=1)  # without <S> and </S>: (T, 2P)
    for forward, backward in ((first_f, first_b), (second_f, second_b))
]
library = elmo.encode([tokens], layers="all")[0]  # (3, T, 2P)
for number, array in enumerate(by_hand, start=1):
    print(f"layer {number}: largest difference {np.abs(array - library[number]).max():.1e}")
    assert np.allclose(array, library[number], atol=1e-4)

# %% [markdown]
# That is all of ELMo's encoder. Everything else in a library is speed.
#
# ## One cell
#
# What do cells store? Most of them nothing that has a name. Some do. Let us look for one that keeps
# track of quotation marks: whether they are open is a fact that a word model needs, for a long time, and that
# no single word shows. Take some sentences, mark the words inside quotation marks with 1, and find the cell of
# layer 1 whose state is correlated with that.

# %%
quoted = [
    'He said , " I will come back tomorrow , " and left the room .',
    'The sign read " No entry " in large red letters .',
    'She asked " Where is the station ? " and waited for an answer .',
    'The poem , " The Raven " , made him famous .',
    '" I do not know , " he answered slowly .',
    'They called the ship " Queen of the Sea " for many years .',
    'The teacher wrote " Good work " under the essay .',
    'His first song was called " A Day in May " and sold well .',
    'The old man cried " Help me " from the window .',
]


def states(text):
    """The cell states of the first layer, gates, and 1 from an opening quotation mark on."""
    tokens = text.split()
    vectors = elmo.encode([["<S>", *tokens]], layers=0)[0][:, :P]
    _, cells, gates = run("forward", 0, vectors)
    inside = np.cumsum([token == '"' for token in tokens]) % 2
    return cells[1:], gates[1:], inside


found = [states(text) for text in quoted]
c = np.concatenate([cells for cells, _, _ in found])
inside = np.concatenate([marks for _, _, marks in found])
correlation = ((c - c.mean(axis=0)) * (inside - inside.mean())[:, None]).mean(axis=0)
correlation /= c.std(axis=0) * inside.std()
cell = int(np.abs(correlation).argmax())
print(f"cell {cell} of {H}: correlation {correlation[cell]:.2f}")

# %% [markdown]
# Choosing the best of so many cells on nine sentences would find *something* in noise too. So look at a
# sentence that took no part in the choice:

# %%
# State, input gate and forget gate of the cell that follows quotation marks, word by word
text = 'The book was called " A History of the World " and it sold a million copies , but nobody read it .'
cells, gates, inside = states(text)
at = np.arange(len(inside))
figure, axis = plt.subplots(figsize=(7.2, 3.4), layout="constrained")
axis.fill_between(at, -1, 1, where=inside == 1, step="mid", color="0.9", label="inside")
axis.plot(at, cells[:, cell], "o-", color="black", label="cell state c")
axis.plot(at, gates[:, 0, cell], ".--", label="input gate i")
axis.plot(at, gates[:, 1, cell], ".--", label="forget gate f")
axis.set(xticks=at, title=f"Cell {cell} of layer 1, forward")
axis.set_xticklabels(text.split(), rotation=60)
figure.legend(loc="outside right upper")
plt.show()
print(f"correlation in this sentence {np.corrcoef(cells[:, cell], inside)[0, 1]:.2f}")

# %% [markdown]
# This is how the gates work together. At the opening mark the input gate opens and a value is written. Then the
# input gate stays nearly closed and the forget gate near 1, so the value survives the words in between. The
# closing mark ends it: the forget gate drops the value, or the input gate overwrites it. Nobody programmed this; it helped to predict where the next quotation mark comes.
#
# ## Clipping
#
# How often does the bound of the cell state matter? Over all sentences with quotation marks:

# %%
at_bound = np.abs(c) >= shape.cell_clip
print(f"{at_bound.sum()} of {at_bound.size:,} cell states are at the bound of {shape.cell_clip}")

# %% [markdown]
# Rarely. But where it happens, a program without clipping computes other vectors from there on. If you load a
# published model into your own LSTM code, check this and the forget gate's 1 first.
#
# ## What to take home
#
# - An LSTM step is four gates, a cell state and a hidden state: five lines of code.
# - ELMo adds a projection, two clips, and a residual connection from the second layer on.
# - The directions are two separate stacks, with their own weights.
#
# ## Exercises
#
# 1. Set the forget gate's 1 to 0 in `step` (`sigmoid(f)`), run the sentence again and compare. Which layer suffers more?
# 2. Find the cell that is best correlated with the position of a word in its sentence, and the one for "after a comma". Check both on new sentences.
# 3. Run the forward layer over a sentence twice in a row without resetting h and c. How far into the second reading do the hidden states differ from the first?
