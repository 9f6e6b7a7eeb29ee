"""``elmokit pretrain``: raw text in, a model folder out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter, validators

from elmokit.cli.options import AtLeastOne, Field, Flag, Json, RayAddress, UsageError

EXAMPLES = (
    "elmokit pretrain corpus.txt -o my-model --preset tiny",
    "elmokit pretrain wiki.xml.bz2 -o my-model --set optimizer.lr=1e-3 --set data.rows=256",
    "elmokit pretrain corpus.txt -o my-model --preset tiny --resume",
    "torchrun --nproc-per-node 8 -m elmokit pretrain corpus -o my-model --preset original",
    "elmokit pretrain corpus -o my-model --preset original --ray-workers 8",
)

Set = Annotated[
    tuple[str, ...],
    Parameter(
        name="--set",
        consume_multiple=False,
        help="Change one setting, NAME=VALUE, such as optimizer.lr=1e-3; may be repeated.",
    ),
]
Output = Annotated[Path, Parameter(name=["-o", "--output"], help="Folder for the model.")]
Resume = Annotated[bool, Flag, Parameter(help="Resume the run that was stopped in this folder.")]
TrainingDevice = Annotated[
    str | None, Parameter(help="Device; a GPU when there is one.", name="--device")
]
Licence = Annotated[
    str | None, Parameter(help="Licence of the text, for the model card.", name="--licence")
]
Tokenizer = Annotated[
    str | None, Parameter(help="How text is split: words, space, chars, jieba, spacy:LANGUAGE.")
]
SentenceKind = Annotated[
    Literal["split", "line"],
    Parameter(help="Whether a line is running text to be split, or one sentence."),
]
DocumentKind = Annotated[
    Literal["blank", "line"],
    Parameter(help="What ends a document: a blank line, or every line."),
]
RayWorkers = Annotated[
    int,
    Parameter(
        validator=validators.Number(gte=0),
        help="Number of processes started with Ray, one GPU each if it has enough; 0: without Ray.",
    ),
]
HeldOut = Annotated[
    float, Parameter(help="Share of the documents that is held out for evaluation.")
]


def pretrain(  # noqa: D417 - options that verbs share bring their own help
    texts: Annotated[tuple[str, ...], Parameter(name="TEXT")],
    /,
    *,
    output: Output,
    preset: Literal["tiny", "small", "medium", "original", "paper"] = "small",
    config: Path | None = None,
    changes: Set = (),
    max_steps: Annotated[int | None, AtLeastOne] = None,
    seed: int | None = None,
    resume: Resume = False,
    device: TrainingDevice = None,
    tokenizer: Tokenizer = None,
    sentences: SentenceKind = "split",
    documents: DocumentKind = "blank",
    heldout: HeldOut = 0.01,
    field: Field = "text",
    licence: Licence = None,
    tensorboard: Annotated[bool, Flag] = False,
    ray_workers: RayWorkers = 0,
    ray_address: RayAddress = None,
    as_json: Json = False,
) -> None:
    """Train an ELMo model from raw text in any language.

    Args:
        texts: Text files of any kind that corpus reads, or one folder made by corpus prepare.
        preset: tiny: minutes on a laptop. small, medium, original: the published shapes. paper:
            the published recipe to the letter.
        config: TOML file with settings that replace the preset's.
        max_steps: How many steps; the preset's when left out.
        seed: Seed of everything random.
        tensorboard: Write for TensorBoard too.
    """
    if ray_address is not None and not ray_workers:
        raise UsageError("--ray-address: say how many processes with --ray-workers")
    if ray_workers and device not in (None, "cpu", "cuda"):
        raise UsageError(f"--device {device}: Ray picks the GPU; give cpu, cuda or nothing")

    from elmokit.corpus.prepare import CorpusConfig
    from elmokit.training.pretrain import pretrain as train
    from elmokit.training.settings import settings_for

    short = [f"run.{name}={value}" for name, value in (("max_steps", max_steps), ("seed", seed))
             if value is not None]  # fmt: skip
    settings = settings_for(preset, config, [*changes, *short])
    settings = replace(settings, corpus=texts, output=str(output))
    preparation = CorpusConfig(
        tokenizer=tokenizer or settings.model.text.tokenizer,
        sentences=sentences,
        documents=documents,
        heldout=heldout,
        field=field,
    )
    if ray_workers:
        from elmokit.ray.train import pretrain_with_ray

        pretrain_with_ray(
            settings,
            workers=ray_workers,
            use_gpu=None if device is None else device == "cuda",
            address=ray_address,
            resume=resume,
            preparation=preparation,
            data_licence=licence,
            tensorboard=tensorboard,
        )
    else:
        train(
            settings,
            resume=resume,
            device=device,
            preparation=preparation,
            data_licence=licence,
            tensorboard=tensorboard,
        )
    if as_json:
        import json

        from elmokit.training.display import read_log
        from elmokit.training.run_folder import LOG_FILE, RUN_FOLDER

        evaluations = [
            e for e in read_log(output / RUN_FOLDER / LOG_FILE) if e["kind"] == "heldout"
        ]
        best = min(evaluations, key=lambda entry: float(entry["score"]))
        print(json.dumps({"model": str(output), "best": best}, indent=2))
