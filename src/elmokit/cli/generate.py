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
    """Continue a sentence with the forward direction, up to its end.

    Args:
        prompt: Beginning of the sentence; without it a new one is started.
        tokens: Maximum number of words to generate.
        temperature: Sampling temperature; 0 is greedy decoding.
        top_k: Sample from the k most probable words only.
        top_p: Nucleus sampling: the smallest set of words with this cumulative probability.
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
