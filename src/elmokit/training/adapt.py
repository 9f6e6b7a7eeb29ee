"""`adapt`: continue training any loaded model on the text of a domain.

Published models come without a softmax. Theirs is made for the words of the new text: first it is
trained alone, with the biLM frozen, then everything is trained. Perplexity before and after is
measured with the same vocabulary, so that the two can be compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

from elmokit.config import SoftmaxConfig
from elmokit.corpus.prepare import CorpusConfig
from elmokit.corpus.shards import TokenCorpus
from elmokit.encode.elmo import Elmo
from elmokit.encode.loading import load
from elmokit.errors import ConfigError
from elmokit.files import check_output
from elmokit.lm.perplexity import Perplexity
from elmokit.model.bilm import BiLM, build
from elmokit.model.init import random_model
from elmokit.text.vocab import Vocabulary
from elmokit.training.checkpoint import latest_facts
from elmokit.training.display import Display
from elmokit.training.distributed import init_distributed
from elmokit.training.loop import Outcome, train
from elmokit.training.pretrain import (
    CORPUS_FOLDER,
    SETTINGS_FILE,
    Best,
    finish,
    loop_config,
    open_corpus,
    run_description,
)
from elmokit.training.run_folder import LOG_FILE, RunFolder
from elmokit.training.settings import (
    DataConfig,
    LossConfig,
    OptimizerConfig,
    PretrainConfig,
    RunConfig,
)
from elmokit.training.trainer import PretrainTrainer, check_same_corpus, heldout_perplexity

SOFTMAX_FOLDER = "softmax"
"""Inside the run's folder: the part of the run in which the new softmax is trained alone."""


@dataclass(frozen=True, kw_only=True)
class AdaptConfig:
    """Settings of an adaptation; the model's own shape stays."""

    OLD_NAMES: ClassVar[Mapping[str, str]] = {
        "optimiser": "optimizer",
        "softmax_rate": "softmax_lr",
    }

    output: str
    """Where the adapted model goes."""
    softmax_steps: int = 500
    """Steps in which a new softmax is trained alone."""
    softmax_lr: float = 2e-3
    """Learning rate of these steps."""
    data: DataConfig = field(default_factory=lambda: DataConfig(vocabulary=30_000, rows=64))
    loss: LossConfig = field(default_factory=LossConfig)
    optimizer: OptimizerConfig = field(default_factory=lambda: OptimizerConfig(lr=2e-4, warmup=50))
    run: RunConfig = field(
        default_factory=lambda: RunConfig(max_steps=1000, evaluate_every=200, save_every=200)
    )

    def __post_init__(self) -> None:
        if self.softmax_steps < 1 or self.softmax_lr <= 0:
            raise ConfigError("AdaptConfig: softmax_steps and softmax_lr must be positive")
        if self.loss.kind not in ("full", "sampled") or self.loss.tied:
            raise ConfigError("AdaptConfig.loss: an adaptation has a full or a sampled loss")


@dataclass(frozen=True)
class Adapted:
    """The result of an adaptation."""

    elmo: Elmo
    before: Perplexity
    """Of the model as it came (with a softmax for the new words, where it had none)."""
    after: Perplexity


def adapt(
    model: Elmo | str | Path,
    corpus: str | Path | list[str | Path],
    config: AdaptConfig,
    *,
    resume: bool = False,
    device: str | None = None,
    preparation: CorpusConfig | None = None,
    data_licence: str | None = None,
) -> Adapted:
    """Continue training a model on other text.

    Args:
        model: Any model that `elmokit.load` reads.
        corpus: Text files, or one folder made by ``elmokit corpus prepare``.
        config: Settings.
        resume: Continue an adaptation that was stopped in this output folder.
        device: The device; a GPU when there is one.
        preparation: How text files become a corpus; by the model's own tokeniser when left out.
        data_licence: Under which licence the text is, for the model card.

    Raises:
        ConfigError: The settings are impossible, or the corpus was split by another tokeniser.
        KeyboardInterrupt: The adaptation was interrupted; its snapshot is in the output folder.
    """
    elmo = model if isinstance(model, Elmo) else load(model, device="cpu")
    if elmo.config.words is not None and elmo.vocabulary is None:
        raise ConfigError(f"{elmo.source}: the model reads words but has no vocabulary")
    if elmo.config.softmax is not None and elmo.config.softmax.cutoffs:
        # Its words are in clusters, of which no sample can be drawn.
        config = replace(config, loss=replace(config.loss, kind="full"))
    texts = corpus if isinstance(corpus, list) else [corpus]
    settings = PretrainConfig(
        corpus=tuple(map(str, texts)),
        output=config.output,
        model=elmo.config,
        data=config.data,
        loss=config.loss,
        optimizer=config.optimizer,
        run=config.run,
    )
    folder, description = RunFolder(config.output, SETTINGS_FILE), run_description(settings)
    if not resume:
        check_output(config.output, *settings.corpus, elmo.source)
    with init_distributed(device) as context, folder:
        with folder.starting(description, resume=resume, context=context):
            text = open_corpus(settings, folder.training / CORPUS_FOLDER, context, preparation)
            for run in (folder.training / SOFTMAX_FOLDER, folder.training):
                check_same_corpus(text, latest_facts(run))
            own = elmo.config.text.tokenizer
            if text.tokenizer != own:
                # The adapted model will split text as the given one does.
                raise ConfigError(
                    f"{text.folder}: the corpus was split by {text.tokenizer!r}, and {elmo.source} "
                    f"splits text by {own!r}; prepare the corpus with --tokenizer {own}, or load "
                    f"the model with --tokenizer {text.tokenizer}"
                )
            bilm, vocabulary, is_new = _with_softmax(elmo, text, config)
            bilm = bilm.to(context.device)

        def train_part(
            part: PretrainConfig, run: Path, *, frozen: bool = False
        ) -> tuple[Outcome, Display]:
            """The softmax alone, or everything."""
            trainer = PretrainTrainer(
                bilm,
                text,
                part,
                context=context,
                folder=folder.output,
                vocabulary=vocabulary,
                symbols=elmo.symbols,
                frozen=frozen,
            )
            run.mkdir(parents=True, exist_ok=True)
            display = Display(run / LOG_FILE, visible=context.is_main)
            if frozen:
                display.note(f"a new softmax for {len(vocabulary):,} words is trained alone first")
            loop = replace(loop_config(part), evaluate_first=not frozen)
            outcome = train(
                trainer, loop, folder=run, context=context, display=display, resume=resume
            )
            display.close()
            if outcome.reason == "interrupted":
                raise KeyboardInterrupt
            return outcome, display

        if is_new:
            steps = config.softmax_steps
            alone = replace(
                settings,
                optimizer=replace(settings.optimizer, lr=config.softmax_lr),
                run=replace(settings.run, max_steps=steps, evaluate_every=steps, patience=0),
            )
            train_part(alone, folder.training / SOFTMAX_FOLDER, frozen=True)
        weights = {name: tensor.detach() for name, tensor in bilm.state_dict().items()}
        start = replace(
            elmo.checkpoint(), config=bilm.config, weights=weights, vocabulary=vocabulary, card=None
        )
        first = Elmo(start, device=context.device)
        before = heldout_perplexity(first, text, None, carry=config.data.carry)
        outcome, display = train_part(settings, folder.training)
        best: Best | None = None
        if context.is_main:
            best = finish(folder, settings, text, outcome, context, display, data_licence, before)
        context.barrier()
    if best is None:
        adapted = load(folder.output, device=context.device)
        best = Best(adapted, heldout_perplexity(adapted, text, None, carry=config.data.carry))
    return Adapted(best.elmo, before, best.perplexity)


def _with_softmax(
    elmo: Elmo, text: TokenCorpus, config: AdaptConfig
) -> tuple[BiLM, Vocabulary, bool]:
    """A copy of the model with a softmax: its own, or a new one for the text's words."""
    weights = {name: tensor.clone() for name, tensor in elmo.checkpoint().weights.items()}
    if elmo.config.softmax is not None and elmo.vocabulary is not None:
        return build(elmo.config, weights, elmo.source), elmo.vocabulary, False
    spelling = elmo.config.text
    if elmo.config.words is not None:
        assert elmo.vocabulary is not None
        vocabulary = elmo.vocabulary  # input and output share one list of words
    else:
        frequent = text.vocabulary(config.data.vocabulary, config.data.min_count)
        special = [spelling.begin, spelling.end, spelling.unknown]
        counts = text.counts[: len(frequent)]
        vocabulary = Vocabulary([*special, *frequent[3:]], spelling, counts)
    shape = replace(elmo.config, softmax=SoftmaxConfig(words=len(vocabulary)))
    fresh = random_model(shape, config.run.seed).state_dict()
    weights |= {name: tensor for name, tensor in fresh.items() if name.startswith("softmax.")}
    return build(shape, weights, elmo.source), vocabulary, True
