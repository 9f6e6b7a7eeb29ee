"""``elmokit generate``: text written by the forward direction."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter, validators

from elmokit.cli.language_model import AS_IT_IS, Loading, PredictingModel, load_predicting
from elmokit.cli.options import AtLeastOne

EXAMPLES = (
    'elmokit generate my-model "the cat" --tokens 20 --seed 1',
    'elmokit generate my-model "the cat" --temperature 0.7 --top-k 40',
    'elmokit generate my-model "the cat" --temperature 0',
)


def generate(  # noqa: D417 - options that verbs share bring their own help
    model: PredictingModel,
    prompt: str = "",
    /,
    *,
    tokens: Annotated[int, AtLeastOne] = 20,
    temperature: Annotated[float, Parameter(validator=validators.Number(gte=0))] = 1.0,
    top_k: Annotated[int | None, AtLeastOne] = None,
    top_p: Annotated[float | None, Parameter(validator=validators.Number(gt=0, lte=1))] = None,
    seed: int | None = None,
    loading: Loading = AS_IT_IS,
) -> None:
    """Go on with a sentence, from left to right, until it ends.

    Args:
        prompt: How the sentence begins; nothing begins a new one.
        tokens: The most words to write.
        temperature: Below 1 prefers probable words more, above 1 less; 0 always takes the most
            probable one.
        top_k: Draw from this many most probable words only.
        top_p: Draw from the fewest words that have this much probability together.
        seed: The same seed gives the same text.
    """
    from elmokit.lm.generation import generate as write

    elmo = load_predicting(model, loading)
    beginning = elmo.tokenize(prompt)
    written = write(
        elmo,
        beginning,
        tokens=tokens,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        seed=seed,
    )
    print(" ".join([*beginning, *written]))
