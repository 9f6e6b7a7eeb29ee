# %% [markdown]
# # 12. ELMo beside BERT and GPT
#
# ELMo appeared in February 2018, GPT in June, BERT in October. All three read raw text first and learn a task later; the two later ones are transformers, and on most benchmarks they are more accurate ([the BERT paper](https://aclanthology.org/N19-1423/) has the first tables). So why would
# anyone use a biLSTM now? This chapter measures what can be measured on a laptop: cost, length, words and pieces of words. It ends with a table for choosing, and with using both.
#
# You need `pip install 'elmokit[hf,plots]'`. Nothing is downloaded: the transformers here are built from their configurations, with random weights. That is enough for shapes and sizes, and for nothing else.

# %%
import csv
import time
from pathlib import Path
from urllib.request import urlretrieve

import matplotlib.pyplot as plt
import numpy as np
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import BertConfig, BertModel, GPT2Config, GPT2Model

import elmokit


def data(path):
    """A file of elmokit's repository: here, or downloaded from there."""
    if not Path(path).exists():
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        urlretrieve(f"https://raw.githubusercontent.com/elmokit/elmokit/main/{path}", path)
    return Path(path)


elmo = elmokit.load("small-en")
text = data("tests/data/heldout_en.txt").read_text("utf-8")
tokens = elmo.tokenize(" ".join(text.split()))
print(f"{len(tokens):,} tokens of articles and a novel that small-en was not trained on")

# %% [markdown]
# ## Three ways to read a sentence
#
# | | ELMo | GPT | BERT |
# |---|---|---|---|
# | network | two LSTMs, one per direction | transformer | transformer |
# | a word sees | everything before it (forward), everything after it (backward), in separate networks | everything before it | everything, in every layer |
# | trained to | predict the next and the previous word | predict the next piece | fill in masked pieces |
# | unit | words, read as characters | pieces of words | pieces of words |
# | usual use | frozen vectors for a task model | generate; fine-tune | fine-tune |
#
# Their sizes, counted from the default configurations of `transformers`, which are BERT base and the small GPT-2. On the device `meta` a model has shapes but no memory:

# %%
with torch.device("meta"):
    sizes = {
        "BERT base": sum(p.numel() for p in BertModel(BertConfig()).parameters()),
        "GPT-2 small": sum(p.numel() for p in GPT2Model(GPT2Config()).parameters()),
    }
softmax = sum(p.numel() for p in elmo.bilm.softmax.parameters())
everything = sum(p.numel() for p in elmo.bilm.parameters())
sizes["small-en, vectors only"] = everything - softmax
sizes["small-en, with its softmax"] = everything
for name, count in sizes.items():
    print(f"{name:28} {count / 1e6:6.1f} million parameters")

# %% [markdown]
# ## Cost and length
#
# An LSTM does the same work for every word. Twice the length is twice the time, and the state that it carries along has a fixed size. In self-attention every position looks at every other: a matrix of n × n
# weights per head and layer. Here is the CPU time of ELMo, measured now on this machine, as a ratio to the shortest text, and next to it the number of attention weights in a transformer of the size of BERT base:

# %%
LENGTHS = (50, 100, 200, 400, 800)


def seconds(length):
    best = np.inf
    for _ in range(3):
        start = time.process_time()
        elmo.encode([tokens[:length]])
        best = min(best, time.process_time() - start)
    return best


seconds(LENGTHS[-1])  # words that were read once are in the cache: warm up
measured = np.array([seconds(length) for length in LENGTHS])
base = BertConfig()
weights = [base.num_hidden_layers * base.num_attention_heads * n * n for n in LENGTHS]
print("tokens   ELMo, time   per token   attention weights")
for n, ratio, count in zip(LENGTHS, measured / measured[0], weights, strict=True):
    print(f"{n:6} {ratio:11.1f}x {ratio / n * LENGTHS[0]:10.2f}x {count:19,}")

# %%
# CPU time of ELMo and number of attention weights, relative to 50 tokens, on logarithmic axes
figure, axis = plt.subplots(figsize=(5.6, 3.4), layout="constrained")
axis.plot(LENGTHS, measured / measured[0], marker="o", label="ELMo: CPU time")
axis.plot(LENGTHS, np.array(weights) / weights[0], marker="s", label="attention: weights")
axis.plot(LENGTHS, np.array(LENGTHS) / LENGTHS[0], color="grey", linestyle=":", label="linear")
axis.set(xscale="log", yscale="log", xlabel="tokens", ylabel="relative to 50 tokens")
axis.set_xticks(LENGTHS, LENGTHS)
axis.set_yticks([1, 10, 100], ["1", "10", "100"])
axis.minorticks_off()
axis.legend()
plt.show()

# %% [markdown]
# Do not read too much into this. For a sentence of 30 words the n × n matrix is nothing, and a transformer computes all positions *at once*, where an LSTM must take one step after the other. On a GPU and on short texts that
# decides: a transformer of the same size is faster there. For long documents, on a CPU, or word by word as they come in, the LSTM has the better shape.
#
# There is also a hard end. BERT has a vector for each position, and no more of them than it was built with:

# %%
torch.manual_seed(0)
config = BertConfig(
    vocab_size=2000,
    hidden_size=64,
    intermediate_size=128,
    num_hidden_layers=2,
    num_attention_heads=4,
    attn_implementation="eager",
)
bert = BertModel(config, add_pooling_layer=False).eval()
with torch.no_grad():
    found = bert(torch.zeros(1, 300, dtype=torch.long), output_attentions=True)
print("one layer's attention:", tuple(found.attentions[0].shape), "(texts, heads, n, n)")
try:
    bert(torch.zeros(1, 600, dtype=torch.long))
except (IndexError, RuntimeError) as error:
    print(f"600 positions, the model has {config.max_position_embeddings}: {type(error).__name__}")
long = elmo.encode([tokens[:600]])[0]
print("ELMo, 600 tokens:", long.shape)
assert long.shape == (600, elmo.dim)

# %% [markdown]
# (Later models stretch or replace these position vectors. The quadratic matrix remains in most of them.)
#
# ## Words and pieces
#
# A transformer's vocabulary consists of pieces: frequent words are whole, rare ones are cut. Let us train such a vocabulary (byte-pair encoding) on half of our text and look at how it cuts words:

# %%
pieces = Tokenizer(models.BPE(unk_token="[UNK]"))
pieces.pre_tokenizer = pre_tokenizers.Whitespace()
trainer = trainers.BpeTrainer(vocab_size=1500, special_tokens=["[UNK]"], show_progress=False)
pieces.train_from_iterator(text[: len(text) // 2].splitlines(), trainer)
for word in ("the", "river", "navigator", "statistical", "unsinkable", "definately"):
    print(f"{word:12}", " + ".join(pieces.encode(word).tokens))

# %% [markdown]
# Where a word is cut depends on the training text of the pieces, not on the language. That has three consequences.
#
# 1. **A word has several vectors.** For tagging or for a comparison of words somebody has to choose: the first piece, the last, the mean. ELMo has one vector per word.
# 2. **The probability of a word is a product** over its pieces, and whether it *ends* after the last piece is part of the next prediction. Studies of reading need the surprisal of each word ([Surprisal](../surprisal.md)); with a softmax over words it is a single number:

# %%
sentence = "The old ship sailed slowly down the river ."
for row in elmo.surprisal([sentence.split()])[:8]:
    print(
        f"{row['word']:8} {row['forward']:5.1f} bits   pieces: {' + '.join(pieces.encode(row['word']).tokens)}"
    )

# %% [markdown]
# 3. **Spelling is hidden.** A misspelt word falls into other pieces than the right one, so a transformer starts from other vectors. ELMo reads letters. Here are some common typos; is the vector of the misspelt
# word (layer 0, no context) nearest to that of the right word, among all of the right words?

# %%
with data("tests/data/misspelt_en.tsv").open(encoding="utf-8", newline="") as file:
    typos = [row for row in csv.DictReader(file, delimiter="\t") if row["kind"] == "typo"]


def unit(words):
    vectors = np.concatenate(elmo.encode([[word] for word in words], layers=0))
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


cosines = unit([row["form"] for row in typos]) @ unit([row["right"] for row in typos]).T
right = (cosines.argmax(1) == np.arange(len(typos))).sum()
print(f"{right} of {len(typos)} typos are nearest to the right word")
for row, cosine in list(zip(typos, cosines.diagonal(), strict=True))[:4]:
    cuts = [" + ".join(pieces.encode(row[column]).tokens) for column in ("form", "right")]
    print(f"  {row['form']:10} cosine {cosine:.2f}   pieces {cuts[0]}, right: {cuts[1]}")
assert right > len(typos) / 2

# %% [markdown]
# There is no unknown word on ELMo's input side. (On the output side there is: the softmax predicts words of a fixed vocabulary.)
#
# ## Where ELMo is behind
#
# - **Left and right never meet inside the model.** A BERT layer combines both sides at every step. ELMo's halves meet in your task's first layer (chapter 7). For tasks that weigh distant parts of a text against each
#   other, such as entailment or answering questions, this costs accuracy.
# - **Scale.** Transformers train faster per token on large machines, so they were trained on far more text. What you get from a large pretrained transformer is mostly that.
# - **Fine-tuning** a transformer as a whole is routine. ELMo is usually frozen, with a task model on top: cheaper to train, less to gain.
# - **Generation.** ELMo's forward half is a small language model. Do not expect GPT.
#
# ## Together
#
# Vectors can be concatenated. Where a transformer gives pieces, the mean over a word's pieces gives one vector per word, and then [BERT; ELMo] is one line. (Random weights here: only the shapes mean something.)

# %%
words = sentence.split()
ids, owner = [], []
for i, word in enumerate(words):
    for piece in pieces.encode(word).ids:
        ids.append(piece)
        owner.append(i)
with torch.no_grad():
    of_pieces = bert(torch.tensor([ids])).last_hidden_state[0].numpy()  # (pieces, 64)
of_words = np.stack([of_pieces[np.array(owner) == i].mean(axis=0) for i in range(len(words))])
both = np.concatenate([of_words, elmo.encode([words])[0]], axis=1)
print(f"{len(words)} words, {len(ids)} pieces; BERT {of_words.shape}, both {both.shape}")
assert both.shape == (len(words), config.hidden_size + elmo.dim)

# %% [markdown]
# elmokit does this for you: any encoder that `transformers` loads can be an input of a task next to ELMo, each with its own scalar mix, and `--compare` says what it gains ([Hugging Face](../huggingface.md)):
#
# ```console
# $ elmokit train tag --train train.conll --dev dev.conll -o both --model small-en --model bert-folder
# ```
#
# ## What to choose
#
# | your situation | start with |
# |---|---|
# | a GPU, English, the best accuracy | a fine-tuned transformer |
# | generating text | a GPT-like model |
# | a CPU, a browser, a small device, low memory | ELMo (`small-en` is part of the package), or static vectors if context does not matter |
# | long documents on a CPU, or words that arrive one by one | ELMo: linear, no maximal length |
# | typos, invented words, rich morphology, OCR | ELMo, or a character transformer |
# | a language or domain without a good transformer, tens of megabytes of text | pretrain or adapt ELMo (chapter 11) |
# | surprisal of words, experiments on reading | ELMo: one word, one probability |
# | vectors of words to look at, layer by layer | ELMo: three layers, one vector per word |
# | the last point of F1 | both, concatenated; measure as in chapter 9 |
#
# And always include a baseline that costs nothing: static vectors, or a bag of words.
#
# ## What to take home
#
# - Transformers won on accuracy and scale. ELMo stays small, linear in length, and made of words.
# - Choose by your constraints and measure on your data. A table like the one above is where to start, not where to end.
#
# ## Exercises
#
# 1. Measure `seconds` for 20 texts of 40 tokens in one call and for one text of 800 tokens. Which is faster per token, and why does a batch help an LSTM?
# 2. Train the pieces with `vocab_size=300` and `vocab_size=5000`. How does the number of pieces per word change, and which words are still cut?
# 3. If you have a BERT folder on your machine, run chapter 9 with `elmo=elmo`, `elmo="bert-folder"` and `elmo=[elmo, "bert-folder"]`, three seeds each. What do the two together gain?
