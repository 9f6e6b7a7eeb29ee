"""The model card that pretraining and adaptation write, and the picture of the curves."""

from __future__ import annotations

import datetime
import platform
from pathlib import Path

import torch

from elmokit import __version__
from elmokit.config import dumps_toml
from elmokit.corpus.shards import TokenCorpus
from elmokit.encode.elmo import Elmo
from elmokit.lm.perplexity import Perplexity
from elmokit.training.display import duration, read_log
from elmokit.training.distributed import DistContext
from elmokit.training.loop import Outcome
from elmokit.training.settings import PretrainConfig


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
- {duration(progress.seconds)} on {_hardware(context)}

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
    axes = figure.subplots(1, 2)
    axes[0].plot([e["step"] for e in train], [e["loss"] for e in train], color="black", lw=0.8)
    axes[0].set(xlabel="step", ylabel="training loss (nats per token)")
    for name, line in (("forward", "--"), ("backward", ":"), ("perplexity", "-")):
        points = [(e["step"], e[name]) for e in heldout if name in e]
        if points:
            axes[1].plot(*zip(*points, strict=True), line, color="black", label=name)
    axes[1].set(xlabel="step", ylabel="held-out perplexity", yscale="log")
    if heldout:
        axes[1].legend()
    figure.savefig(picture, dpi=120)
    return True


def _hardware(context: DistContext) -> str:
    if context.device.type == "cuda":
        name = torch.cuda.get_device_name(context.device)
    else:
        name = f"{platform.machine()} CPU, {torch.get_num_threads()} threads"
    return f"{context.world_size} x {name}" if context.world_size > 1 else name
