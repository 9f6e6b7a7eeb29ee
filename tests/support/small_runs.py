"""Small corpora, models and runs that the training tests share."""

import json
import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from elmokit.config import CharacterConfig, LstmConfig, ModelConfig, TextConfig, WordConfig
from elmokit.corpus.prepare import CorpusConfig, prepare_corpus
from elmokit.corpus.shards import TokenCorpus
from elmokit.model.init import random_model
from elmokit.training.display import Display
from elmokit.training.distributed import DistContext
from elmokit.training.loop import LoopConfig, Outcome, train
from elmokit.training.settings import (
    DataConfig,
    LossConfig,
    OptimizerConfig,
    PretrainConfig,
    RunConfig,
    model_config,
    unicode_symbols,
)
from elmokit.training.trainer import PretrainTrainer

LINES = CorpusConfig(tokenizer="space", sentences="line", documents="line", heldout=0.1)

_WORDS = {
    "det": ["the", "a", "every", "no"],
    "adj": ["red", "small", "old", "quick", "señor", "green"],
    "noun": ["cat", "dog", "house", "tree", "bird", "river", "child", "book"],
    "verb": ["sees", "likes", "finds", "holds", "hears"],
    "prep": ["near", "under", "behind"],
}


def structured_text(sentences: int, seed: int = 0) -> str:
    """Sentences of a small grammar, one per line: the next word is easy to narrow down."""
    draw = random.Random(seed)

    def noun_phrase() -> list[str]:
        adjective = [draw.choice(_WORDS["adj"])] if draw.random() < 0.5 else []
        return [draw.choice(_WORDS["det"]), *adjective, draw.choice(_WORDS["noun"])]

    lines = []
    for _ in range(sentences):
        words = [*noun_phrase(), draw.choice(_WORDS["verb"]), *noun_phrase()]
        if draw.random() < 0.3:
            words += [draw.choice(_WORDS["prep"]), *noun_phrase()]
        lines.append(" ".join([*words, "."]))
    return "\n".join(lines) + "\n"


def make_corpus(
    folder: Path, sentences: int = 300, seed: int = 0, *, document: int = 1
) -> TokenCorpus:
    """A corpus with so many sentences in a document."""
    text = folder / "text.txt"
    lines = structured_text(sentences, seed).splitlines()
    settings = LINES
    if document > 1:
        settings = replace(LINES, documents="blank")
        lines = ["\n".join([*lines[i : i + document], ""]) for i in range(0, len(lines), document)]
    text.write_text("\n".join(lines) + "\n", encoding="utf-8")
    prepare_corpus(text, folder / "corpus", settings=settings, workers=1)
    return TokenCorpus(folder / "corpus")


SMALL_CHARACTERS = CharacterConfig(dim=4, max_characters=9, filters=((1, 4), (2, 6)), highways=1)
SMALL_LSTM = LstmConfig(layers=2, cells=20, width=16, cell_clip=3.0, projection_clip=3.0)

SMALL = PretrainConfig(
    model=ModelConfig(
        text=TextConfig(tokenizer="space"), characters=SMALL_CHARACTERS, lstm=SMALL_LSTM
    ),
    data=DataConfig(vocabulary=1000, min_count=1, rows=4, unroll=5),
    loss=LossConfig(kind="sampled", negatives=8, cutoffs=(6, 15)),
    optimizer=OptimizerConfig(lr=1e-2, warmup=3, schedule="constant"),
    run=RunConfig(
        max_steps=20, dropout=0.0, evaluate_every=8, save_every=5, evaluate_tokens=50, seed=3
    ),
)

WORD_INPUT = WordConfig(rows=1, dim=16)  # the corpus decides how many rows


def changed(config: PretrainConfig, **parts: Mapping[str, Any]) -> PretrainConfig:
    """A config with some fields of some parts changed: changed(SMALL, run={"seed": 1})."""
    return replace(
        config, **{name: replace(getattr(config, name), **new) for name, new in parts.items()}
    )


def alone() -> DistContext:
    return DistContext(0, 1, torch.device("cpu"))


def make_trainer(
    config: PretrainConfig, corpus: TokenCorpus, folder: Path, context: DistContext | None = None
) -> PretrainTrainer:
    sizes = model_config(config, corpus)
    symbols = None
    if sizes.characters is not None and sizes.characters.alphabet == "unicode":
        symbols = unicode_symbols(corpus, sizes)
    bilm = random_model(sizes, config.run.seed).to((context or alone()).device)
    return PretrainTrainer(
        bilm, corpus, config, context=context or alone(), folder=folder, symbols=symbols
    )


def run(
    config: PretrainConfig,
    corpus: TokenCorpus,
    folder: Path,
    *,
    steps: int | None = None,
    resume: bool = False,
) -> tuple[PretrainTrainer, Outcome]:
    """The training loop in `folder`, stopped after `steps` as if that was the plan."""
    (folder / "training").mkdir(parents=True, exist_ok=True)
    trainer = make_trainer(config, corpus, folder)
    display = Display(folder / "training" / "log.jsonl", visible=True)
    plan = LoopConfig(
        steps or config.run.max_steps,
        config.run.evaluate_every,
        config.run.save_every,
        config.run.patience,
    )
    outcome = train(
        trainer,
        plan,
        folder=folder / "training",
        context=alone(),
        display=display,
        resume=resume,
    )
    return trainer, outcome


def log_entries(folder: Path) -> list[dict[str, Any]]:
    """The log without what the clock decides."""
    lines = (folder / "training" / "log.jsonl").read_text(encoding="utf-8").splitlines()
    timed = ("time", "tokens_per_second")
    return [{k: v for k, v in json.loads(line).items() if k not in timed} for line in lines]
