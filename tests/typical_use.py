"""Typical lines of a user, for type checkers: `make check` runs mypy and pyright over them.

`assert_type` fails where a checker sees another type, `Any` included. Nothing here is run.
"""

# pyright: standard, reportPrivateLocalImportUsage=true
from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import assert_type

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

import elmokit
from elmokit.checkpoints import KnownModel
from elmokit.encode import Embedded, LayerSimilarities, Use, UseMap, open_writer
from elmokit.lm import Perplexity, Score, Substitute, SurprisalTable, perplexity, score_stream
from elmokit.tasks import Predictor, TextExample
from elmokit.text import TextRecord, get_tokenizer, read_records, read_texts, residues

Vectors = NDArray[np.float32]

# Loading
elmo = elmokit.load()
assert_type(elmo, elmokit.Elmo)
assert_type(elmokit.load(Path("model"), device="cuda", precision="bfloat16"), elmokit.Elmo)
assert_type(elmokit.Elmo.from_pretrained("small-zh", tokenizer="jieba"), elmokit.Elmo)
assert_type(elmokit.models(language="zh"), list[KnownModel])
assert_type(elmokit.download("original"), Path)
assert_type(elmo.dim, int)
assert_type(elmo.layers, int)
assert_type(elmo.device, torch.device)
assert_type(elmo.source, str)
assert_type(elmo.config, elmokit.ModelConfig)
assert_type(elmo.to(None), elmokit.Elmo)
assert_type(elmo.tokenize("a text"), list[str])

# Encoding
texts = ["the bank of the river", "the bank lent money"]
tokens = [text.split() for text in texts]
assert_type(elmo.encode("a text"), Vectors)
assert_type(elmo("a text", layers="all"), Vectors)
assert_type(elmo.encode("a text", pool="mean"), Vectors)
assert_type(elmo.encode("a text", output="torch"), Tensor)
assert_type(elmo.encode(texts), list[Vectors])
assert_type(elmo.encode([texts], context="document"), list[list[Vectors]])
assert_type(elmo(tokens, layers=[0.2, 0.3, 0.5], batch_tokens=8192), list[Vectors])
assert_type(elmo.encode(texts, output="torch"), list[Tensor])
assert_type(elmo.encode(texts, pool="mean"), Vectors)
assert_type(elmo.encode(iter(texts), pool="max", output="torch", layers=1), Tensor)
assert_type(elmo.encode_stream(read_texts("corpus.txt")), Iterator[Vectors])
assert_type(elmo.encode_stream(tokens, output="torch", pool="mean"), Iterator[Tensor])

# Comparing
assert_type(elmo.similarity("a text", "another"), float)
assert_type(elmo.similarity(texts, texts), NDArray[np.float64])
common = elmokit.CommonDirections.fit(elmo.encode_stream(texts, layers="all"))
assert_type(common, elmokit.CommonDirections)
assert_type(elmo.similarity(texts, texts, without=common), NDArray[np.float64])
assert_type(common.remove(elmo.encode(texts[0], layers="all")), NDArray[np.float32])
assert_type(elmokit.similarity([1.0, 0.0], [0.0, 1.0]), NDArray[np.float64])
assert_type(elmo.similar(texts[0], texts[1], word="bank"), LayerSimilarities)
assert_type(elmo.similar(texts[0], word="bank", corpus="corpus.txt", k=5), list[Use])
assert_type(elmo.similar(texts[0], word=1, corpus=tokens)[0].score, float)
assert_type(elmo.map(texts, "bank", labels=["river", "money"]), UseMap)

# The language model
assert_type(elmo.score("a text"), Score)
assert_type(elmo.score(texts), list[Score])
assert_type(elmo.score("a text").perplexity, float)
assert_type(list(score_stream(elmo, texts)), list[Score])
assert_type(perplexity(elmo, texts), Perplexity)
assert_type(perplexity(elmo, texts).oov_rate, float)
assert_type(elmo.substitutes("a text", 1), list[Substitute])
assert_type(elmo.surprisal(["a text", {"text": "a text", "item": 1}]), SurprisalTable)
assert_type(elmo.generate("the bank", tokens=5), str)

# In a PyTorch model
embedding = elmokit.ElmoEmbedding(elmo, dropout=0.1)
assert_type(embedding(texts), Embedded[Tensor])
vectors, mask = embedding(tokens)
assert_type(vectors, Tensor)
assert_type(mask, Tensor)
assert_type(elmokit.ElmoEmbedding("small-en", outputs=2)(texts).vectors, list[Tensor])
assert_type(elmokit.ScalarMix(3).gamma, nn.Parameter)


class Tagger(nn.Module):
    """A user's own model."""

    def __init__(self, source: str, tags: int) -> None:
        super().__init__()
        self.embedding = elmokit.ElmoEmbedding(source)
        self.output = nn.Linear(self.embedding.dim, tags)

    def forward(self, sentences: list[list[str]]) -> tuple[int, Tensor]:
        """The batch's size and mask."""
        embedded = self.embedding(sentences)
        assert_type(embedded.vectors, Tensor)
        return embedded.vectors.shape[0], embedded.mask


# Tasks and probes
classifier = elmokit.tasks.fit("classify", "train.tsv", "dev.tsv", output="my-classifier")
assert_type(classifier, Predictor[str])
assert_type(classifier.predict("a text"), str)
assert_type(classifier.predict(texts), list[str])
assert_type(classifier.predict(TextExample(("a", "text"))), str)
tagger = elmokit.tasks.fit("tag", "train.conll", "dev.conll")
assert_type(tagger.predict(tokens), list[list[str]])
assert_type(classifier.predict_proba(texts), NDArray[np.float64])
assert_type(tagger.predict_proba("a text"), NDArray[np.float64])
assert_type(tagger.predict_proba(tokens), list[NDArray[np.float64]])
loaded: Predictor[str] = Predictor.load("my-classifier")
assert_type(loaded.predict(texts), list[str])
assert_type(elmokit.probes.pos(elmo, "train.conllu", "test.conllu").table(), str)

# Files, text, training
with open_writer("vectors.h5", layers="all") as writer:
    writer.write(0, texts[0], tokens[0], elmo.encode(texts[0], layers="all"))
with open_writer("residues.npz", ids=True) as writer:
    for number, record in enumerate(read_records("proteins.fasta")):
        assert_type(record, TextRecord)
        summed = elmo.encode(record.text, layers="sum")
        writer.write(number, record.text, residues(record.text), summed, id=record.id)
assert_type(get_tokenizer("words").tokenize("a text"), list[str])
glove = elmokit.WordVectors.load("glove.txt")
assert_type(glove.lookup(["bank"]), Vectors)
assert_type(elmokit.pretrain("corpus.txt", output="my-model", preset="tiny"), elmokit.Elmo)
elmo.save("folder")
elmo.export("model.onnx")
small = elmokit.OnnxElmo("model.onnx")
assert_type(small.encode("a text"), Vectors)
assert_type(small.encode(texts), list[Vectors])
assert_type(small.encode(texts, pool="mean"), Vectors)
