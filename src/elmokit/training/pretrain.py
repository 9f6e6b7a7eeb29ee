"""`pretrain`: raw text in, a model folder with its card and the curves out."""

from __future__ import annotations

import datetime
import hashlib
import json
import os
import platform
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch

from elmokit import __version__
from elmokit.checkpoints import native
from elmokit.config import dumps_toml, loads_toml, to_dict
from elmokit.corpus.documents import source_label
from elmokit.corpus.prepare import CorpusConfig, prepare_corpus
from elmokit.corpus.shards import DESCRIPTION, TokenCorpus
from elmokit.encode.elmo import Elmo
from elmokit.encode.loading import load
from elmokit.errors import ConfigError, DataError
from elmokit.files import atomic_file, check_output, read_json, scratch
from elmokit.lm.perplexity import Perplexity
from elmokit.model.bilm import BiLM
from elmokit.model.init import random_model
from elmokit.training.checkpoint import latest_facts
from elmokit.training.display import Display, duration, read_log
from elmokit.training.distributed import DistContext, init_distributed
from elmokit.training.loop import LoopConfig, Outcome, train
from elmokit.training.run_folder import RunDescription, RunFolder
from elmokit.training.settings import PretrainConfig, model_config, settings_for, unicode_symbols
from elmokit.training.trainer import PretrainTrainer, check_same_corpus, heldout_perplexity

SETTINGS_FILE = "settings.toml"
CORPUS_FOLDER = "corpus"
CURVES_FILE = "curves.png"
HASHES_FILE = "sources.json"
"""Beside the corpus that a run prepares: what its text files were."""


def pretrain(
    config: PretrainConfig | str | Path | Sequence[str | Path],
    *,
    output: str | Path | None = None,
    preset: str = "small",
    resume: bool = False,
    device: str | None = None,
    preparation: CorpusConfig | None = None,
    data_licence: str | None = None,
    tensorboard: bool = False,
) -> Elmo:
    """Train a biLM from raw text.

    Under torchrun every process calls this; they train together.

    Args:
        config: The run's settings, ``corpus`` and ``output`` among them; or only the text: files,
            or a folder made by ``elmokit corpus prepare``.
        output: The folder for the model, if `config` does not have it.
        preset: The settings, if `config` is the text: a name in ``elmokit.training.PRESETS``.
        resume: Continue a run that was stopped in this output folder.
        device: The device; a GPU when there is one.
        preparation: How text files become a corpus.
        data_licence: Under which licence the text is, for the model card.
        tensorboard: Write for TensorBoard as well.

    Returns:
        The best model of the run, as it is in the output folder.

    Raises:
        KeyboardInterrupt: The run was interrupted. Its snapshot is in the output folder, and so is
            its best model if there was an evaluation.
    """
    if not isinstance(config, PretrainConfig):
        texts = [config] if isinstance(config, str | Path) else config
        config = replace(settings_for(preset), corpus=tuple(map(str, texts)))
    if output is not None:
        config = replace(config, output=str(output))
    folder, description = RunFolder(config.output, SETTINGS_FILE), run_description(config)
    if not resume:
        check_output(config.output, *config.corpus)
    with init_distributed(device) as context, folder:
        with folder.starting(description, resume=resume, context=context):
            corpus = open_corpus(config, folder.training / CORPUS_FOLDER, context, preparation)
            check_same_corpus(corpus, latest_facts(folder.training))
            sizes = model_config(config, corpus)
            symbols: tuple[str, ...] | None = None
            if sizes.characters is not None and sizes.characters.alphabet == "unicode":
                symbols = unicode_symbols(corpus, sizes)
            bilm = random_model(sizes, config.run.seed).to(context.device)
            teacher: BiLM | None = None
            if config.distill.teacher:
                teacher = load(config.distill.teacher, device=context.device).bilm
            trainer = PretrainTrainer(
                bilm, corpus, config, context=context, folder=folder.output, symbols=symbols,
                teacher=teacher,
            )  # fmt: skip
            display = Display(
                folder.log,
                visible=context.is_main,
                tensorboard=folder.training / "tensorboard" if tensorboard else None,
            )
            text = corpus.split("train")
            display.note(
                f"{text.tokens:,} tokens in {len(text):,} sentences; "
                f"vocabulary {len(trainer.vocabulary):,}; "
                f"{context.world_size} process{'es' if context.world_size > 1 else ''} "
                f"on {context.device.type}"
            )
            if context.is_main:
                trainer.heldout_perplexity(tokens=100)  # faults of evaluations show at once
            context.barrier()
        outcome = train(
            trainer,
            loop_config(config),
            folder=folder.training,
            context=context,
            display=display,
            resume=resume,
        )
        display.close()
        best: Best | None = None
        if context.is_main:
            best = finish(folder, config, corpus, outcome, context, display, data_licence)
        context.barrier()
    if outcome.reason == "interrupted":
        raise KeyboardInterrupt
    return load(folder.output, device="cpu") if best is None else best.elmo.to("cpu")


def loop_config(config: PretrainConfig) -> LoopConfig:
    """When the loop does what."""
    run = config.run
    return LoopConfig(
        run.max_steps, run.evaluate_every, run.save_every, run.patience,
        warmup=config.optimizer.warmup,
    )  # fmt: skip


def open_corpus(
    config: PretrainConfig, prepared: Path, context: DistContext, preparation: CorpusConfig | None
) -> TokenCorpus:
    """The corpus that the settings name, prepared first where it is still text."""
    given = Path(config.corpus[0])
    if len(config.corpus) == 1 and (given / DESCRIPTION).is_file():
        corpus = TokenCorpus(given, verify=context.is_main)
    else:
        settings = preparation or CorpusConfig(tokenizer=config.model.text.tokenizer)
        if context.is_main and not (prepared / DESCRIPTION).is_file():
            _prepare(list(config.corpus), prepared, settings)
        context.barrier()
        corpus = TokenCorpus(prepared, verify=context.is_main)
        _check_same_text(corpus, config.corpus, settings)
        if context.is_main and (prepared / HASHES_FILE).is_file():  # earlier versions stored none
            _check_same_contents(config.corpus, prepared / HASHES_FILE)
    if not len(corpus.split("train")):
        raise DataError(f"{', '.join(config.corpus)}: no sentences to train on")
    if not len(corpus.split("heldout")):
        raise DataError(
            f"{corpus.folder}: the corpus has no held-out text, so a model cannot be evaluated; "
            "prepare it with --heldout above 0, or with more documents"
        )
    return corpus


def _check_same_text(corpus: TokenCorpus, sources: Sequence[str], settings: CorpusConfig) -> None:
    """The corpus that an earlier start of the run prepared must have the same text and settings."""
    labels = tuple(map(source_label, sources))
    if corpus.sources != labels:
        raise ConfigError(
            f"{corpus.folder}: the run was started with {', '.join(corpus.sources)}, not with "
            f"{', '.join(labels)}; resume it with the same text, or start a new run in another "
            "folder"
        )
    wanted = to_dict(settings)
    # The lines may have become documents because otherwise nothing could be held out.
    for name in sorted({*wanted, *corpus.settings} - {"documents"}):
        before, now = corpus.settings.get(name), wanted.get(name)
        if before != now:
            raise ConfigError(
                f"{corpus.folder}: the run's text was prepared with {name} = {before!r}, not "
                f"{now!r}; resume it with the same value, or start a new run in another folder"
            )


def _check_same_contents(sources: Sequence[str], stored: Path) -> None:
    """The text files must be what they were when the run was started."""
    before = read_json(stored)["blake2b"]
    for source, then in zip(sources, before, strict=True):
        now = _hash(source)
        if None not in (now, then) and now != then:
            raise ConfigError(
                f"{source}: the text has changed since the run was started; resume it with the "
                "same text, or start a new run in another folder"
            )


def _hash(source: str) -> str | None:
    """A hash of all of a file, read as it is; None for what is no file."""
    if not os.path.isfile(source):
        return None
    with open(source, "rb") as file:
        return hashlib.file_digest(file, "blake2b").hexdigest()


def _prepare(sources: list[str], folder: Path, settings: CorpusConfig) -> None:
    """Prepare a corpus that has held-out text; `folder` appears when it is complete.

    A text without blank lines is one document, and of few documents none may be held out: then
    every line counts as a document.
    """
    if not settings.heldout:
        raise ConfigError(
            "heldout = 0: a run needs held-out text, because without it a model cannot be "
            "evaluated; give a share above 0, such as --heldout 0.01"
        )
    with scratch(folder) as attempted:
        for attempt in (settings, replace(settings, documents="line")):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that nothing was held out is handled here
                summary = prepare_corpus(sources, attempted, settings=attempt, overwrite=True)
            if summary.heldout.tokens:
                hashes = {"blake2b": [_hash(source) for source in sources]}
                (attempted / HASHES_FILE).write_text(json.dumps(hashes, indent=1), encoding="utf-8")
                os.replace(attempted, folder)
                return
    raise DataError(
        f"{', '.join(sources)}: the text is too short to hold some of it out, and without held-out "
        "text a model cannot be evaluated. Give more text, or raise --heldout"
    )


class Best(NamedTuple):
    """The best model of a run, and its perplexity on all of the held-out text."""

    elmo: Elmo
    perplexity: Perplexity


def finish(
    folder: RunFolder,
    config: PretrainConfig,
    corpus: TokenCorpus,
    outcome: Outcome,
    context: DistContext,
    display: Display,
    data_licence: str | None,
    before: Perplexity | None = None,
) -> Best | None:
    """Evaluate the best model on all of the held-out text, write its card and the curves.

    The model is on the device of the run; None if there was no evaluation yet.
    """
    if not native.is_native(folder.output):
        display.note(
            f"{outcome.reason} at step {outcome.step:,}, before the first evaluation; continue "
            "with --resume"
        )
        return None
    best = load(folder.output, device=context.device)
    measured = heldout_perplexity(best, corpus, None, carry=config.data.carry)
    title = folder.output.name
    card = model_card(best, config, corpus, outcome, measured, context, title, data_licence, before)
    stored = replace(best.checkpoint(), card=card)
    native.update(stored, folder.output)
    curves = folder.training / CURVES_FILE
    drawn = draw_curves(folder.log, curves)
    display.note(str(measured))
    display.note(f"{outcome.reason}: {folder.output}" + (f", curves in {curves}" if drawn else ""))
    return Best(Elmo(stored, device=context.device), measured)


def model_card(
    elmo: Elmo,
    config: PretrainConfig,
    corpus: TokenCorpus,
    outcome: Outcome,
    measured: Perplexity,
    context: DistContext,
    title: str,
    data_licence: str | None,
    before: Perplexity | None = None,
) -> str:
    """Everything one must know about the best model of a run, as Markdown.

    `measured` is its perplexity on all of the held-out text, `before` that before an adaptation;
    `data_licence` is as the user states it.
    """
    train = corpus.split("train")
    parameters = sum(p.numel() for p in elmo.bilm.parameters())
    progress = outcome.progress
    hardware = f"{platform.machine()} CPU, {torch.get_num_threads()} threads"
    if context.device.type == "cuda":
        hardware = torch.cuda.get_device_name(context.device)
    if context.world_size > 1:
        hardware = f"{context.world_size} x {hardware}"
    state = "every sentence from a zero initial state"
    if measured.state == "carry":
        state = "state carried from sentence to sentence"
    before_line = "" if before is None else f"- before adaptation: {before.perplexity:.2f}\n"
    backward = "" if measured.backward is None else f", backward {measured.backward:.2f}"
    return f"""# {title}

An ELMo model made with elmokit {__version__} on {datetime.date.today()}.

- vectors: {elmo.dim} wide, {elmo.layers} layers, {parameters:,} parameters (softmax included)
- text: {", ".join(corpus.sources)}; {len(train):,} sentences, {train.tokens:,} tokens for training
- licence of the text: {data_licence or "not stated"}
- tokeniser: `{corpus.tokenizer}`

## Held-out perplexity

Full softmax, documents that were not trained on, {state}.

- **{measured.perplexity:.2f}** (geometric mean; forward {measured.forward:.2f}{backward})
{before_line}- {measured.tokens:,} tokens, {measured.oov_rate:.2%} outside the vocabulary of \
{measured.vocabulary:,} words

## Training

- {outcome.step:,} steps ({outcome.reason}), {progress.tokens:,} tokens read, best at step \
{progress.best_step:,}
- {duration(progress.seconds)} on {hardware}

```toml
{dumps_toml(config).strip()}
```
"""


def draw_curves(log: Path, picture: Path) -> bool:
    """Draw loss and held-out perplexity over the steps; False without matplotlib."""
    try:
        from matplotlib.figure import Figure  # without pyplot: the user's windows are left alone
    except ImportError:
        return False
    entries = read_log(log)
    train = [e for e in entries if e["kind"] == "train"]
    heldout = [e for e in entries if e["kind"] == "heldout"]
    figure = Figure(figsize=(10, 4), layout="tight")
    axes = figure.subplots(1, 2, sharex=True)
    axes[0].plot([e["step"] for e in train], [e["loss"] for e in train], color="black", lw=0.8)
    axes[0].set(xlabel="step", ylabel="training loss (nats per token)")
    for name, line in (("forward", "--"), ("backward", ":"), ("perplexity", "-")):
        points = [(e["step"], e[name]) for e in heldout if name in e]
        if points:
            dots = {"marker": "o"} if len(points) == 1 else {}  # no line joins a single point
            axes[1].plot(*zip(*points, strict=True), line, color="black", label=name, **dots)
    axes[1].set(xlabel="step", ylabel="held-out perplexity", yscale="log")
    if heldout:
        axes[1].legend()
    with atomic_file(picture) as temporary:
        figure.savefig(temporary, dpi=120, format="png")
    return True


def run_description(config: PretrainConfig) -> RunDescription:
    """What a pretraining run is: it may be resumed with more steps or another learning rate."""
    if not config.corpus or not config.output:
        raise ConfigError("PretrainConfig: corpus and output must be given")
    if "-" in config.corpus:
        raise ConfigError(
            "-: text that a run may read again cannot come from standard input; write it to a "
            "file, or prepare it first (elmokit corpus prepare -)"
        )
    fixed = _fixed_settings(config)
    return RunDescription(
        dumps_toml(config),
        fixed,
        lambda text, where: _fixed_settings(loads_toml(PretrainConfig, text, where)),
        {name: f"other settings ({name})" for name in fixed},
    )


_FIXED_IN_RUN = ("seed", "dropout", "precision", "qat_steps")


def _fixed_settings(config: PretrainConfig) -> dict[str, object]:
    return {
        **{name: getattr(config, name) for name in ("model", "data", "loss", "distill")},
        "optimizer.name": config.optimizer.name,
        "optimizer.accumulate": config.optimizer.accumulate,
        **{f"run.{name}": getattr(config.run, name) for name in _FIXED_IN_RUN},
    }
