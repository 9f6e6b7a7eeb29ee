# %% [markdown]
# # 2. The language model, forward and backward
#
# ELMo is trained to do one thing: given the words so far, say which word comes next. And, with a second
# network, given the words that follow, which one came before. The vectors are a by-product. This chapter
# does the job by hand, with counts on a toy text, and then asks the same questions of `small-en`.
#
# ## Forward, by counting
#
# Four sentences, with a marker at each end. A bigram model looks back one word only:
# p(*sat* | *cat*) is how often *cat sat* occurs, divided by how often *cat* does.

# %%
from collections import Counter
from itertools import pairwise

import matplotlib.pyplot as plt
import numpy as np

import elmokit
from elmokit.lm import guesses

toy = [
    "the cat sat on the mat .",
    "the dog sat on the rug .",
    "the cat saw the dog .",
    "a dog saw the cat .",
]
sentences = [["<S>", *text.split(), "</S>"] for text in toy]
words = Counter(word for sentence in sentences for word in sentence)
pairs = Counter(pair for sentence in sentences for pair in pairwise(sentence))


def forward(word, left):
    return pairs[left, word] / words[left]


for word in ("cat", "dog", "mat", "rug"):
    print(f"p({word} | the) = {pairs['the', word]}/{words['the']} = {forward(word, 'the'):.3f}")

# %% [markdown]
# The probability of a sentence is the product of such factors, one for each word and one for its end. That
# is the chain rule, p(w₁ … w_T) = Π p(w_k | w₁ … w_{k−1}), where our model looks at one word of the left side only.
#
# ## Backward, by counting
#
# The same counts answer the other question. p(*cat* | … *sat*) is how often *cat sat* occurs, divided by
# how often *sat* does.


# %%
def backward(word, right):
    return pairs[word, right] / words[right]


text = "the dog sat on the mat ."
sentence = ["<S>", *text.split(), "</S>"]
print("word   forward  backward")
for left, word, right in zip(sentence, sentence[1:], sentence[2:], strict=False):
    print(f"{word:6} {forward(word, left):7.3f} {backward(word, right):9.3f}")

# %% [markdown]
# The two directions disagree about most words: before *on* only *sat* is possible, but after *dog* it is one
# word of several. Yet the products are the same:

# %%
left_to_right = np.prod([forward(word, left) for left, word in pairwise(sentence)])
right_to_left = np.prod([backward(word, right) for word, right in pairwise(sentence)])
print(f"{left_to_right:.5f} {right_to_left:.5f}")
assert np.isclose(left_to_right, right_to_left)

# %% [markdown]
# That is no accident. Both products have the same counts of pairs above the line; below it one has the counts
# of all left neighbours, the other of all right neighbours, and these are the same words except for the
# markers, which occur equally often. The *sentence* has one probability, but each *word* is seen from two
# sides. ELMo wants the two views of the word.
#
# ## Perplexity
#
# Long sentences have small probabilities. So one takes the mean log-probability per word, and turns it round:
# perplexity = exp(−mean log p). It is the number of equally likely words that would be as hard to guess.

# %%
factors = [forward(word, left) for left, word in pairwise(sentence)]
perplexity = np.exp(-np.mean(np.log(factors)))
print(f"perplexity {perplexity:.2f}, with {len(words) - 1} words to choose from")
print(f"p(rug | a) = {forward('rug', 'a')}")

# %% [markdown]
# The last line shows why counting is not enough: *a rug* never occurred, so any sentence with it
# has probability 0 and an infinite perplexity. You can repair the zero (add one to each count), but
# not the deeper problem: the counts of *cat* say nothing about *dog*, and one word of context is little.
# A neural language model gives similar words similar vectors, and reads the whole left (or right) side.
#
# ## The same questions, asked of ELMo
#
# `elmo.score` gives the log-probability of every word in both directions, from the full softmax over the
# vocabulary. A word's surprisal is −log₂ p, in bits.

# %%
elmo = elmokit.load("small-en")
score = elmo.score("The train arrived at the station two hours late.")
print("word        forward  backward   (bits)")
for word, left, right in zip(score.tokens, score.forward, score.backward[1:], strict=False):
    print(f"{word:10} {-left / np.log(2):8.1f} {-right / np.log(2):9.1f}")

# %%
# Surprisal of each word of the sentence in bits, forward and backward
bits = -np.stack([score.forward[:-1], score.backward[1:]]) / np.log(2)
at = np.arange(len(score.tokens))
figure, axis = plt.subplots(figsize=(7, 3), layout="constrained")
axis.bar(at - 0.2, bits[0], width=0.4, label="forward: given the left side")
axis.bar(at + 0.2, bits[1], width=0.4, label="backward: given the right side")
axis.set(xticks=at, ylabel="bits")
axis.set_xticklabels(score.tokens)
figure.legend(loc="outside upper center", ncols=2)
plt.show()

# %% [markdown]
# Read the picture from both ends. The first word of the sentence has no left side, the last has no right
# side, so each direction starts with a guess from frequency alone; the full stop is trivial for the
# direction that starts there.
#
# The model's perplexity is what we computed by hand, over both directions:

# %%
by_hand = np.exp(-np.mean(np.concatenate([score.forward, score.backward])))
print(f"{by_hand:.2f} {score.perplexity:.2f}")
assert np.isclose(by_hand, score.perplexity, rtol=1e-4)

order = np.random.default_rng(0).permutation(score.tokens).tolist()
shuffled = elmo.score([order])[0]
print(f"{shuffled.perplexity:.0f}: {' '.join(order)}")
assert shuffled.perplexity > 5 * score.perplexity

# %% [markdown]
# The same words in a random order: language models know about order, bags of words do not.
#
# ## What each side knows
#
# Remove a word and ask each direction alone, then both together.

# %%
tokens = elmo.tokenize("The king was killed in the battle of Hastings.")
gap = tokens.index("killed")
print("after ", " ".join(tokens[:gap]), "...")
print("   ", "  ".join(guess.word for guess in guesses(elmo, tokens, gap, "forward", 8)))
print("before", "...", " ".join(tokens[gap + 1 :]))
print("   ", "  ".join(guess.word for guess in guesses(elmo, tokens, gap, "backward", 8)))
print("both sides")
print("   ", "  ".join(word.word for word in elmo.substitutes(tokens, gap, 8)))

# %% [markdown]
# After *The king was* nearly everything may follow. Before *in the battle of Hastings* there is less
# choice. Neither direction sees the other side: that the king is the subject is known on the left only, and
# the battle on the right only. ELMo keeps the two views apart, as two halves of a vector; the task that
# uses the vector puts them together. We come back to that in chapter 6.
#
# ## What to take home
#
# - A language model gives each word a probability from its left side (forward) or its right side (backward).
# - Perplexity is exp(−mean log p), comparable only for the same text and the same vocabulary.
# - Training minimises the sum of both directions' −log p. To predict well, the network must encode the context: these codes are ELMo's vectors.
#
# ## Exercises
#
# 1. Add one to every count of a pair (and the number of words to the denominators). Is the sentence still equally probable in both directions? Prove it, or find the case where it fails.
# 2. Score *The old man the boats.* and *The old man sails the boats.* Which word is the most surprising in each direction, and why there?
# 3. Write a trigram model for the toy text. Its training perplexity falls. Score a new sentence of the same words: what happened?
