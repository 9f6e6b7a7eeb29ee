"""``elmokit pretrain`` and ``adapt``: text in, a model folder out."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter, validators

from elmokit.cli.options import (
    AtLeastOne,
    Device,
    Field,
    Json,
    Model,
    RayAddress,
    UsageError,
    suggest,
)
from elmokit.config import recipes

if TYPE_CHECKING:
    from elmokit.corpus.prepare import CorpusConfig
    from elmokit.training.settings import PretrainConfig

EXAMPLES = {
    "pretrain": (
        "elmokit pretrain corpus.txt -o my-elmo --preset tiny",
        "elmokit pretrain corpus.txt -o my-elmo --preset tiny --resume",
        "elmokit pretrain corpus -o my-elmo-2 --preset tiny --set optimizer.lr=1e-3",
        "elmokit pretrain wiki.xml.bz2 -o wiki-elmo --preset tiny --max-steps 500",
    ),
    "adapt": (
        "elmokit adapt tweets.txt -o tweets-elmo --max-steps 500",
        "elmokit adapt law.txt -o law-elmo --model my-model --seed 1",
    ),
}

Texts = Annotated[
    tuple[str, ...],
    Parameter(
        name="TEXT",
        help="Text files of any kind that corpus reads, or one folder made by corpus prepare.",
    ),
]
Set = Annotated[
    tuple[str, ...],
    Parameter(
        name="--set",
        consume_multiple=False,
        help="Change one setting, NAME=VALUE, such as optimizer.lr=1e-3; may be repeated.",
    ),
]
Output = Annotated[Path, Parameter(name=["-o", "--output"], help="Folder for the model.")]
Resume = Annotated[bool, Parameter(help="Resume the run that was stopped in this folder.")]


@Parameter(name="*")  # the fields are options of the verb itself
@dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """What both verbs ask: the seed, resuming, the device, how text becomes a corpus."""

    seed: Annotated[int | None, Parameter(help="Seed of everything random.")] = None
    resume: Resume = False
    device: Device = None
    tokenizer: Annotated[
        str | None, Parameter(help="How text is split: words, space, chars, jieba, spacy:LANGUAGE.")
    ] = None
    sentences: Annotated[
        Literal["split", "line"],
        Parameter(help="Whether a line is running text to be split, or one sentence."),
    ] = "split"
    documents: Annotated[
        Literal["blank", "line"],
        Parameter(help="What ends a document: a blank line, or every line."),
    ] = "blank"
    heldout: Annotated[
        float, Parameter(help="Share of the documents that is held out for evaluation.")
    ] = 0.01
    field: Field = "text"
    licence: Annotated[str | None, Parameter(help="Licence of the text, for the model card.")] = (
        None
    )

    def overrides(self, changes: tuple[str, ...], max_steps: int | None) -> list[str]:
        """What replaces settings: --set first, then --max-steps and --seed."""
        short = {"max_steps": max_steps, "seed": self.seed}
        given = [f"run.{name}={value}" for name, value in short.items() if value is not None]
        return [*changes, *given]

    def preparation(self, tokenizer: str) -> CorpusConfig:
        """How text files become a corpus."""
        from elmokit.corpus.prepare import CorpusConfig

        return CorpusConfig(
            tokenizer=tokenizer,
            sentences=self.sentences,
            documents=self.documents,
            heldout=self.heldout,
            field=self.field,
        )


_DEFAULTS = TrainingOptions()


def pretrain(  # noqa: D417 - options that verbs share bring their own help
    texts: Texts,
    /,
    *,
    output: Output,
    preset: str | None = None,
    config: str | None = None,
    changes: Set = (),
    max_steps: Annotated[int | None, AtLeastOne] = None,
    options: TrainingOptions = _DEFAULTS,
    tensorboard: bool = False,
    ray_workers: Annotated[int, Parameter(validator=validators.Number(gte=0))] = 0,
    ray_address: RayAddress = None,
    as_json: Json = False,
) -> None:
    """Train an ELMo model from raw text in any language.

    Args:
        preset: tiny: minutes on a laptop. small, medium, original: the published shapes. paper:
            the published recipe to the letter. babylm-10m, babylm-100m: for that many words of
            text. small-en, small-zh, medium-en: those of our own models. When left out: small on a
            GPU, tiny on a CPU.
        config: TOML file with settings that replace the preset's.
        max_steps: How many steps; the preset's when left out.
        tensorboard: Write for TensorBoard too.
        ray_workers: Number of processes started with Ray, one GPU each if it has enough; 0:
            without Ray.
    """
    device = None if options.device == "auto" else options.device
    if ray_address is not None and not ray_workers:
        raise UsageError("--ray-address: say how many processes with --ray-workers")
    if ray_workers and device not in (None, "cpu", "cuda"):
        raise UsageError(f"--device {device}: Ray picks the GPU; give cpu, cuda or nothing")

    if preset is not None and preset not in recipes():
        raise UsageError(f"--preset {preset}: there are {', '.join(recipes())}")

    from elmokit.training.display import read_log
    from elmokit.training.pretrain import pretrain as train
    from elmokit.training.pretrain import run_description
    from elmokit.training.run_folder import LOG_FILE, RUN_FOLDER
    from elmokit.training.settings import settings_for

    overrides = options.overrides(changes, max_steps)
    on_cpu = runs_on_cpu(device) and not ray_workers
    settings = settings_for(preset or ("tiny" if on_cpu else "small"), config, overrides)
    settings = replace(settings, corpus=texts, output=str(output))
    run_description(settings)  # refuses what cannot be trained on
    if on_cpu and preset is None and config is None:
        hours = least_hours(settings_for("small", None, overrides))
        print(
            "elmokit: note: no GPU is used, so the preset is tiny; --preset small would take at "
            f"least {hours:,.0f} h on this CPU",
            file=sys.stderr,
        )
    preparation = options.preparation(options.tokenizer or settings.model.text.tokenizer)
    if ray_workers:
        from elmokit.ray.train import pretrain_with_ray

        pretrain_with_ray(
            settings,
            workers=ray_workers,
            use_gpu=None if device is None else device == "cuda",
            address=ray_address,
            resume=options.resume,
            preparation=preparation,
            data_licence=options.licence,
            tensorboard=tensorboard,
        )
    else:
        train(
            settings,
            resume=options.resume,
            device=device,
            preparation=preparation,
            data_licence=options.licence,
            tensorboard=tensorboard,
        )
    if as_json:
        entries = read_log(output / RUN_FOLDER / LOG_FILE)
        evaluations = [entry for entry in entries if entry["kind"] == "heldout"]
        best = min(evaluations, key=lambda entry: float(entry["score"]))
        print(json.dumps({"model": str(output), "best": best}, indent=2))
    else:
        suggest(f'elmokit generate "The" --model {output}')


def runs_on_cpu(device: str | None) -> bool:
    """Whether training runs on the CPU, where no device means a GPU when there is one."""
    import torch

    return device == "cpu" or (device is None and not torch.cuda.is_available())


def least_hours(settings: PretrainConfig) -> float:
    """How long the run's matmuls alone take on this CPU, by a short measurement."""
    import torch

    lstm, rows = settings.model.lstm, settings.data.rows
    layer = 4 * lstm.cells * 2 * lstm.width + lstm.cells * lstm.width
    predicted = settings.loss.negatives * lstm.width
    token = 2 * (lstm.layers * layer + predicted) * len(lstm.directions)  # FLOP, forward pass
    tokens = settings.run.max_steps * rows * settings.data.unroll
    x, weight = torch.randn(256, lstm.width), torch.randn(lstm.width, 4 * lstm.cells)
    x @ weight  # the first one prepares
    start, rounds = time.perf_counter(), 20
    for _ in range(rounds):
        x @ weight
    rate = rounds * 2 * x.numel() * weight.shape[1] / (time.perf_counter() - start)
    return 3 * token * tokens / rate / 3600  # the backward pass is two more


def adapt(  # noqa: D417 - options that verbs share bring their own help
    texts: Texts,
    /,
    *,
    output: Output,
    model: Model = None,
    softmax_steps: Annotated[int, AtLeastOne] = 500,
    changes: Set = (),
    max_steps: Annotated[int | None, AtLeastOne] = None,
    options: TrainingOptions = _DEFAULTS,
    as_json: Json = False,
) -> None:
    """Adapt any model to other text, and print the perplexity before and after.

    A model without a softmax gets a new one for the text's words, which is trained alone first.

    Args:
        softmax_steps: Steps in which a new softmax is trained alone.
        max_steps: How many steps after that; 1000 when left out.
    """
    import elmokit
    from elmokit.training.adapt import AdaptConfig
    from elmokit.training.adapt import adapt as train
    from elmokit.training.settings import changed

    base = AdaptConfig(output=str(output), softmax_steps=softmax_steps)
    settings = changed(base, options.overrides(changes, max_steps))
    elmo = elmokit.load(model, tokenizer=options.tokenizer, device="cpu")
    result = train(
        elmo,
        list(texts),
        settings,
        resume=options.resume,
        device=options.device,
        preparation=options.preparation(elmo.config.text.tokenizer),
        data_licence=options.licence,
    )
    if as_json:
        perplexities = {"before": result.before.to_dict(), "after": result.after.to_dict()}
        print(json.dumps({"model": result.elmo.source, **perplexities}, indent=2))
    else:
        before, after = result.before.perplexity, result.after.perplexity
        print(
            f"held-out perplexity {before:.4g} before, {after:.4g} after "
            f"({1 - after / before:.1%} lower)"
        )
        suggest(f"elmokit encode FILE -o vectors.h5 --model {output}")
