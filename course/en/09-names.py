# %% [markdown]
# # 9. Names, with and without ELMo
#
# "With ELMo the F1 rose by so many points." Such a sentence is easy to write and hard to earn. This chapter trains the same name tagger twice, once
# without and once with ELMo, on a little real data, and takes care of what makes the comparison fair: the same everything else, several seeds, entity F1
# instead of accuracy, and a look at where the difference comes from.
#
# You need `pip install 'elmokit[plots]'`.

# %%
import tempfile
from pathlib import Path
from urllib.request import urlretrieve

import matplotlib.pyplot as plt
import numpy as np

import elmokit


def data(path):
    """A file of elmokit's repository: here, or downloaded from there."""
    if not Path(path).exists():
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        urlretrieve(f"https://raw.githubusercontent.com/elmokit/elmokit/main/{path}", path)
    return Path(path)


def read(path):
    """Sentences as pairs: a list of tokens, a list of tags."""
    found = []
    for block in data(path).read_text("utf-8").strip().split("\n\n"):
        tokens, tags = zip(*(line.split("\t") for line in block.splitlines()), strict=True)
        found.append((list(tokens), list(tags)))
    return found


labelled = read("course/data/names-en-train.conll")
train, dev = labelled[:120], labelled[120:160]
test = read("course/data/names-en-test.conll")[:100]
tokens, tags = train[1]
print(len(train), "train,", len(dev), "dev,", len(test), "test sentences")
print(
    " ".join(
        f"{token}/{tag}" if tag != "O" else token for token, tag in zip(tokens, tags, strict=True)
    )
)

# %% [markdown]
# Text from the web with persons (PER), organisations (ORG) and locations (LOC), from Universal NER (CC BY-SA 4.0). `B-` begins a name, `I-` continues
# it, `O` is everything else. A few hundred labelled sentences is what many projects have.
#
# ## Why not accuracy
#
# Most words are not names. A tagger that finds nothing at all has this accuracy per token:

# %%
gold = [tag for _, tags in test for tag in tags]
nothing = gold.count("O") / len(gold)
print(f"{nothing:.3f}")
assert nothing > 0.7

# %% [markdown]
# So accuracy is the wrong measure. What we want to know: of the names found, how many are right (precision)? Of the names there are, how many were
# found (recall)? A name counts only if its beginning, end and type are all right. F1 is the harmonic mean of the two.


# %%
def spans(tags):
    """The names in a sequence of BIO tags: (start, end, type)."""
    found = []
    for i, tag in enumerate([*tags, "O"]):
        if found and found[-1][1] is None and not (tag[0] == "I" and tag[2:] == found[-1][2]):
            found[-1] = (found[-1][0], i, found[-1][2])
        if tag[0] == "B":
            found.append((i, None, tag[2:]))
    return set(found)


def f1(gold, predicted):
    """Entity F1 of lists of tag sequences."""
    pairs = [(spans(g), spans(p)) for g, p in zip(gold, predicted, strict=True)]
    right = sum(len(g & p) for g, p in pairs)
    precision = right / max(1, sum(len(p) for _, p in pairs))
    recall = right / max(1, sum(len(g) for g, _ in pairs))
    return 2 * precision * recall / max(1e-9, precision + recall)


example = ["O", "B-PER", "I-PER", "O", "B-LOC"]
print(sorted(spans(example)))
print("the first name cut short:", round(f1([example], [["O", "B-PER", "O", "O", "B-LOC"]]), 2))

# %% [markdown]
# ## Two taggers that differ in one thing
#
# `elmokit.tasks.fit("tag", ...)` trains a biLSTM with a CRF. Both taggers have trained word embeddings and a small character CNN, so the one without
# ELMo can see capitals and endings as well. With `elmo=None` that is all; with `elmo=elmo` the scalar mix of ELMo's layers is concatenated. Everything else is the
# same: sentences, epochs, learning rate, seeds. The best epoch is chosen on the dev sentences, and the test sentences are read at the end.

# %%
EPOCHS = 8  # long: 30
SEEDS = 3
elmo = elmokit.load("small-en")
store = tempfile.TemporaryDirectory()  # the frozen layers are computed once for all seeds


def settings(seed):
    return elmokit.tasks.task_settings(
        "tag",
        None,
        [
            f"run.epochs={EPOCHS}",
            f"run.seed={seed}",
            "run.batch=8",
            "optimizer.lr=0.01",
            "optimizer.warmup=5",
            "encoder.cells=32",
            "inputs.words=32",
            "inputs.characters=16",
        ],
    )


def run(model, seed):
    return elmokit.tasks.fit(
        "tag", train, dev, elmo=model, config=settings(seed), store=store.name, quiet=True
    )


taggers = {
    name: [run(model, seed) for seed in range(SEEDS)]
    for name, model in (("without", None), ("with ELMo", elmo))
}

# %%
sentences = [tokens for tokens, _ in test]
gold = [tags for _, tags in test]
predicted = {name: [t.predict(sentences) for t in runs] for name, runs in taggers.items()}
scores = {name: np.array([f1(gold, p) for p in runs]) for name, runs in predicted.items()}
print("           accuracy      F1  spread   the seeds")
for name, runs in scores.items():
    flat = [
        [a == b for g, q in zip(gold, p, strict=True) for a, b in zip(g, q, strict=True)]
        for p in predicted[name]
    ]
    print(
        f"{name:10} {np.mean(flat):8.3f} {runs.mean():7.3f} {runs.std(ddof=1):7.3f}   {runs.round(3)}"
    )

official = taggers["with ELMo"][0].evaluate(test)
assert abs(official["f1"] - scores["with ELMo"][0]) < 1e-6  # our ten lines agree with elmokit
assert scores["with ELMo"].mean() > scores["without"].mean()
store.cleanup()

# %% [markdown]
# Look at the accuracies first: they are close to each other and to the tagger that finds nothing. Then at F1. This is why papers on names report F1.
#
# To be fair to the tagger without ELMo: it starts from nothing, and the run on this page is short. With `EPOCHS = 30` it gains more than the other one. The gap becomes
# smaller; it does not close.
#
# ## Is the difference real?
#
# The spread over the seeds is the yardstick. A difference of half a spread is noise; a difference of many is not.

# %%
# Entity F1 of each seed, without and with ELMo
figure, axis = plt.subplots(figsize=(5, 3.2), layout="constrained")
for x, (_name, runs) in enumerate(scores.items()):
    axis.bar(x, runs.mean(), width=0.5, color="lightsteelblue")
    axis.scatter([x] * SEEDS, runs, color="black", s=14, zorder=3)
axis.set(xticks=range(2), xticklabels=scores, ylabel="entity F1 on the test sentences", ylim=(0, 1))
plt.show()
gain = scores["with ELMo"] - scores["without"]
print(
    f"gain per seed {gain.round(3)}; relative error reduction {gain.mean() / (1 - scores['without'].mean()):.0%}"
)

# %% [markdown]
# Three seeds say how much training varies. They do not say how much another *test set* would vary: with some hundred names that is several
# points more. For a paper use more seeds, the whole test set, and a bootstrap over its sentences (exercise 2).
#
# ## Where does it come from?
#
# The words of most test names do not occur in the training sentences at all. A tagger with its own embeddings knows nothing about them beyond
# their letters. ELMo has read millions of sentences, with such words in them, without labels.

# %%
known = {token.lower() for tokens, _ in train for token in tokens}
counts = {"seen in training": [], "unseen": []}
for index, (words, tags) in enumerate(test):
    for span in spans(tags):
        unseen = any(word.lower() not in known for word in words[span[0] : span[1]])
        counts["unseen" if unseen else "seen in training"].append((index, span))
print("recall               names   without   with ELMo")
for kind, wanted in counts.items():
    recall = [
        np.mean([span in spans(p[i]) for p in predicted[name] for i, span in wanted])
        for name in scores
    ]
    print(f"{kind:20} {len(wanted):5} {recall[0]:9.2f} {recall[1]:11.2f}")

# %% [markdown]
# ## Look at sentences
#
# Numbers hide what a model does. `details=True` gives names with offsets and probabilities:

# %%
tagger = taggers["with ELMo"][0]
plain = taggers["without"][0]
for text in (
    "Maria Lopez flew from Boston to Lima last week .",
    "He left Siemens and joined a small company in Bavaria .",
    "May will be warm in Reading .",
):
    print(text)
    for name, model in (("without", plain), ("with ELMo", tagger)):
        found = model.predict([text.split()], details=True)[0]
        names = [f"{span.text} ({span.type}, {span.score:.2f})" for span in found.spans]
        print(f"  {name:10}", ", ".join(names) or "nothing")

# %% [markdown]
# The last sentence is meant to be hard: is *May* a month or a person, is *Reading* a town?
#
# ## In one command
#
# The comparison of this chapter, with static vectors as a third and fourth input if you have them, is built in. It trains all
# variants with all seeds and prints mean, spread and error reduction:
#
# ```console
# $ elmokit train tag --train train.conll --dev dev.conll --test test.conll -o gains --config tag-ner --compare --seeds 5
# ```
#
# [Task results](../task-results.md) has such tables for nineteen data sets with their full training data. The gains there are smaller than here,
# because more labels leave less to gain.
#
# ## What to take home
#
# - Accuracy flatters taggers of names. Use entity F1.
# - One run is an anecdote. Several seeds with a spread are a measurement.
# - ELMo helps most where the labelled data is small and the names are new.
#
# ## Exercises
#
# 1. Draw F1 against the number of training sentences (30, 60, 120, 240) for both taggers. How many labelled sentences is ELMo worth here?
# 2. Bootstrap: draw 100 sentences from the test set with replacement, 1,000 times, and compute the difference in F1 each time. What are the 2.5 % and 97.5 % quantiles?
# 3. Give the tagger without ELMo every advantage: more epochs, more cells, `inputs.characters=50`. Choose by the dev sentences only. How close does it get?
