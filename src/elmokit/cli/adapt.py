"""``elmokit adapt``: continue training a model on the text of a domain."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from elmokit.cli.options import AtLeastOne, Field, Json
from elmokit.cli.pretrain import (
    DocumentKind,
    HeldOut,
    Licence,
    Output,
    Resume,
    SentenceKind,
    Set,
    Tokenizer,
    TrainingDevice,
)

EXAMPLES = (
    "elmokit adapt weights.hdf5 tweets.txt -o my-model --max-steps 2000",
    "elmokit adapt my-model law.txt -o my-law-model --set optimizer.lr=1e-4",
)


def adapt(  # noqa: D417 - options that verbs share bring their own help
    model: Annotated[str, Parameter(name="MODEL")],
    texts: Annotated[tuple[str, ...], Parameter(name="TEXT")],
    /,
    *,
    output: Output,
    softmax_steps: Annotated[int, AtLeastOne] = 500,
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
    as_json: Json = False,
) -> None:
    """Adapt any model to other text, and print the perplexity before and after.

    A model without a softmax gets a new one for the text's words, which is trained alone first.

    Args:
        model: Any model that elmokit reads: folder, weights file, archive, name.
        texts: Text files of any kind that corpus reads, or one folder made by corpus prepare.
        softmax_steps: Steps in which a new softmax is trained alone.
        max_steps: How many steps after that; 1000 when left out.
        seed: Seed of everything random.
    """
    import json

    import elmokit
    from elmokit.corpus.prepare import CorpusConfig
    from elmokit.training.adapt import AdaptConfig
    from elmokit.training.adapt import adapt as train
    from elmokit.training.settings import changed

    short = [f"run.{name}={value}" for name, value in (("max_steps", max_steps), ("seed", seed))
             if value is not None]  # fmt: skip
    base = AdaptConfig(output=str(output), softmax_steps=softmax_steps)
    settings = changed(base, [*changes, *short])
    elmo = elmokit.load(model, tokenizer=tokenizer)
    preparation = CorpusConfig(
        tokenizer=elmo.config.text.tokenizer,
        sentences=sentences,
        documents=documents,
        heldout=heldout,
        field=field,
    )
    texts_or_folder: list[str | Path] = list(texts)
    result = train(
        elmo,
        texts_or_folder,
        settings,
        resume=resume,
        device=device,
        preparation=preparation,
        data_licence=licence,
    )
    if as_json:
        report = {
            "model": result.elmo.source,
            "before": result.before.to_dict(),
            "after": result.after.to_dict(),
        }
        print(json.dumps(report, indent=2))
    else:
        print(f"before: {result.before}\n\nafter: {result.after}")
