"""``elmokit perplexity``: how well a model predicts a held-out text."""

from __future__ import annotations

import json
from typing import Annotated, Literal

from cyclopts import Parameter

from elmokit.cli.language_model import AS_IT_IS, Loading, PredictingModel, load_predicting
from elmokit.cli.options import AtLeastOne, Field, Json, Tokens

EXAMPLES = (
    "elmokit perplexity my-model heldout.txt",
    "elmokit perplexity my-model heldout.txt --tokens --json",
    "elmokit perplexity model.ckpt-935588 heldout.txt --tokens --state carry --carry-rows 2",
)


def perplexity(  # noqa: D417 - options that verbs share bring their own help
    model: PredictingModel,
    text: Annotated[str, Parameter(name="TEXT")],
    /,
    *,
    state: Literal["fresh", "carry"] = "fresh",
    carry_rows: Annotated[int, AtLeastOne] = 256,
    tokens: Tokens = False,
    field: Field = "text",
    batch_tokens: Annotated[int, AtLeastOne] = 4096,
    loading: Loading = AS_IT_IS,
    as_json: Json = False,
) -> None:
    """Measure perplexity under the full softmax: forward, backward, and their geometric mean.

    Args:
        text: A file in any format that encode reads, one sentence per line, or - for standard
            input. Blank lines are skipped.
        state: Initial LSTM state of a sentence. fresh: zero, so the result is independent of
            order and batch. carry: the final state of the previous sentence in the same row, as in
            bilm-tf's evaluation, for numbers comparable with published ones.
        carry_rows: Parallel rows of --state carry.
        batch_tokens: Maximum number of tokens per batch.
    """
    from tqdm.auto import tqdm

    from elmokit.lm.perplexity import perplexity as measure
    from elmokit.text.readers import read_texts

    texts = read_texts(text, field=field)
    elmo = load_predicting(model, loading, tokens=tokens)
    # disable=None: no bar when standard error is no terminal.
    shown = tqdm(texts, unit=" sentences", disable=None)
    result = measure(elmo, shown, state=state, rows=carry_rows, batch_tokens=batch_tokens)
    if as_json:
        report = {"model": elmo.source, "text": text, **result.to_dict()}
        print(json.dumps(report, indent=2, ensure_ascii=False))
    else:
        print(result)
