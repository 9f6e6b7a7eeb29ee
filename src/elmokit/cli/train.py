"""``elmokit train``: a task's model from labelled examples, with ELMo or without."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from elmokit.cli.options import MODEL_NAMES, AtLeastOne, Device, Json, UsageError, suggest
from elmokit.cli.pretrain import Resume, Set
from elmokit.cli.task_options import FieldNames, FileFormat, StaticFile, field_names
from elmokit.tasks import describe_tasks

EXAMPLES = (
    "elmokit train classify --train train.tsv --dev dev.tsv -o my-classifier",
    "elmokit train tag --train train.conll --dev dev.conll -o my-tagger",
    "elmokit train tag --train train.conll --dev dev.conll -o ner --config tag-ner",
    "elmokit train tag --train train.conll --dev dev.conll -o plain --model none",
    "elmokit train classify --train train.tsv --dev dev.tsv -o gains --compare",
)


def train(  # noqa: D417 - options that verbs share bring their own help
    task: Annotated[str, Parameter(name="TASK", help=describe_tasks())],
    /,
    *,
    train: Path,
    dev: Path | None = None,
    output: Annotated[Path, Parameter(name=["--output", "-o"])],
    test: Path | None = None,
    elmo: Annotated[
        tuple[str, ...], Parameter(name=[*MODEL_NAMES, "--elmo"], consume_multiple=False)
    ] = (),
    encoder: Annotated[tuple[str, ...], Parameter(consume_multiple=False)] = (),
    static: StaticFile = None,
    config: str | None = None,
    changes: Set = (),
    epochs: Annotated[int | None, AtLeastOne] = None,
    seed: int | None = None,
    fine_tune: bool = False,
    compare: bool = False,
    seeds: Annotated[int, AtLeastOne] = 3,
    resume: Resume = False,
    bundle: bool = False,
    store: Path | None = None,
    tokenizer: str | None = None,
    format: FileFormat = None,
    fields: FieldNames = (),
    device: Device = None,
    as_json: Json = False,
) -> None:
    """Train a task's model; the weights that are best on the dev data are kept.

    Args:
        train: Labelled training examples, in a format of the task.
        dev: Labelled examples on which the model is evaluated during training; a tenth of the
            training examples, chosen by the seed, when left out.
        output: Folder for the predictor, its report and pictures.
        test: Labelled examples on which the result is evaluated at the end.
        elmo: The model: folder, weights file, archive, embedded name or hf:OWNER/NAME; several, one
            after another, are concatenated; none to train without ELMo. The embedded model when
            left out.
        encoder: Another pretrained model, concatenated with ELMo: the folder of an encoder (Hugging
            Face; an ONNX graph with its tokenizer.json) or a file of flair's language models; as
            often as needed.
        config: TOML file with settings that replace the task's own, or the name of a recipe, such
            as tag-ner; elmokit recipes lists them.
        epochs: The most passes over the training data.
        seed: Decides everything random.
        fine_tune: Train the biLM too, at a lower learning rate.
        compare: Train the same model without ELMo, with it and, given static vectors, with those
            and with both; print means, spreads and how much of the error goes away.
        seeds: How often each is trained, with --compare.
        bundle: Put the biLM and static vectors into the folder, which then needs nothing else.
        store: Folder in which the layers of the data are kept for later runs; deleted at the end
            when left out.
        tokenizer: How text is split: words, space, chars, jieba, spacy:LANGUAGE; as the ELMo
            model does it when left out.
    """
    import json

    from elmokit.checkpoints.known_models import DEFAULT_MODEL
    from elmokit.tasks import compare as compare_inputs
    from elmokit.tasks import fit, task_settings
    from elmokit.tasks.report import REPORT_FILE

    short = {
        "run.epochs": epochs,
        "run.seed": seed,
        "inputs.tokenizer": tokenizer,
        "fine_tune.on": "true" if fine_tune else None,
    }
    given = [f"{name}={value}" for name, value in short.items() if value is not None]
    settings = task_settings(task, config, [*changes, *given])
    if "none" in elmo and len(elmo) > 1:
        raise UsageError("--model none trains without ELMo: leave the other models out.")
    models = (() if "none" in elmo else elmo or (DEFAULT_MODEL,)) + encoder
    source = models or None
    names = field_names(fields)
    if compare:
        if source is None:
            raise UsageError("--compare trains with and without ELMo: leave --model none out.")
        if bundle:
            raise UsageError("--bundle goes with one predictor, not with --compare.")
        result = compare_inputs(
            task, train, dev, elmo=source, static=static, config=settings, output=output,
            test=test, seeds=seeds, resume=resume, device=device, store=store, format=format,
            fields=names,
        )  # fmt: skip
        print(json.dumps(result.to_dict(), indent=2) if as_json else result)
        return
    fit(
        task, train, dev, elmo=source, static=static, config=settings, output=output, test=test,
        resume=resume, device=device, store=store, bundle=bundle, format=format, fields=names,
    )  # fmt: skip
    if as_json:
        print((output / REPORT_FILE).read_text(encoding="utf-8"), end="")
    else:
        suggest(f"elmokit predict {output} FILE")
