"""Registers the components ``elmokit`` and ``elmokit_ner`` with spaCy, through entry points.

    nlp.add_pipe("elmokit", config={"model": "elmo_weights.hdf5"})
    nlp.add_pipe("elmokit_ner", config={"predictor": "my-tagger"})

spaCy imports this module whenever it makes a pipeline, even one without ELMo. So heavy imports wait
until a component is created.
"""

# No postponed annotations here: spaCy checks a component's config against its factory's.

from typing import Any

from pydantic import StrictInt, StrictStr
from spacy.language import Language


@Language.factory(
    "elmokit",
    assigns=["doc.tensor"],
    default_config={
        "model": None,
        "layers": "mean",
        "tokenizer": None,
        "batch_tokens": 4096,
        "device": None,
        "bundle": False,
    },
)
def make_elmo(
    nlp: Language,
    name: str,
    model: StrictStr | None,
    layers: StrictStr | StrictInt | list[float],
    tokenizer: StrictStr | None,
    batch_tokens: int,
    device: str | None,
    bundle: bool,
) -> Any:
    """Make an `elmokit.integrations.spacy.ElmoPipe`; arguments as there."""
    from elmokit.integrations.spacy import ElmoPipe

    return ElmoPipe(
        name,
        model,
        layers=layers,
        tokenizer=tokenizer,
        batch_tokens=batch_tokens,
        device=device,
        bundle=bundle,
    )


@Language.factory(
    "elmokit_ner",
    assigns=["doc.ents", "token.ent_iob", "token.ent_type"],
    default_config={"predictor": None, "device": None, "bundle": False},
    default_score_weights={"ents_f": 1.0, "ents_p": 0.0, "ents_r": 0.0, "ents_per_type": None},
)
def make_ner(
    nlp: Language, name: str, predictor: StrictStr | None, device: str | None, bundle: bool
) -> Any:
    """Make an `elmokit.integrations.spacy.ElmoNer`; arguments as there."""
    from elmokit.integrations.spacy import ElmoNer

    return ElmoNer(name, predictor, device=device, bundle=bundle)
