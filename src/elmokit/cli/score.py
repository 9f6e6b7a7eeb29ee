"""``elmokit score``: log-probabilities of sentences, and n-best lists in a new order."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

from cyclopts import Parameter, validators

from elmokit.cli.language_model import AS_IT_IS, Loading, PredictingModel, load_predicting
from elmokit.cli.options import AtLeastOne, Field, Json, Tokens, UsageError
from elmokit.errors import ConfigError

if TYPE_CHECKING:
    from elmokit.encode.elmo import Elmo

EXAMPLES = (
    'elmokit score my-model "the cat sat on the mat ."',
    "elmokit score my-model corpus.txt --json",
    "elmokit score weights.hdf5 corpus.txt --softmax softmax.hdf5 --vocabulary vocab.txt",
    "elmokit score my-model --nbest nbest.jsonl -o ranked.jsonl --weight 0.3",
)

FILE_ENDINGS = (
    *(".txt", ".text", ".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet"),
    *(".gz", ".bz2", ".xz", ".zst"),
)


def score(  # noqa: D417 - options that verbs share bring their own help
    model: PredictingModel,
    text: Annotated[str | None, Parameter(name="TEXT")] = None,
    /,
    *,
    nbest: Path | None = None,
    output: Annotated[Path | None, Parameter(name=["--output", "-o"])] = None,
    weight: Annotated[float, Parameter(validator=validators.Number(gte=0, lte=1))] = 0.5,
    tokens: Tokens = False,
    field: Field = "text",
    batch_tokens: Annotated[int, AtLeastOne] = 4096,
    loading: Loading = AS_IT_IS,
    as_json: Json = False,
) -> None:
    """Score sentences with both directions of the language model, or rescore n-best lists.

    A sentence's score is the mean of both directions' log-probabilities under the full softmax,
    including EOS. With --json each sentence is one line with the log-probability of every word.

    Args:
        text: A file in any format that encode reads, one sentence per line; - or nothing for
            standard input; or a sentence: an argument that is not a file and does not look like
            one (no spaces, but a / or an extension such as .txt).
        nbest: JSON lines {"id": ..., "hypotheses": [{"text": ..., "score": ...}, ...]}. Each
            hypothesis gets an lm_score, and each list is sorted by
            (1 - weight) * score + weight * lm_score, highest first.
        output: File for the rescored lists; by default standard output.
        weight: Weight of the language model, from 0 to 1.
        batch_tokens: Maximum number of tokens per batch.
    """
    from elmokit.files import atomic_file
    from elmokit.lm.rescoring import read_nbest, rescore
    from elmokit.text.readers import read_texts

    if nbest is not None:
        if text is not None:
            raise UsageError("Give TEXT or --nbest FILE, one of the two.")
        if output is not None and output.exists() and nbest.exists() and output.samefile(nbest):
            raise ConfigError(f"{output}: input and output are the same file")
        records = read_nbest(nbest)
        elmo = load_predicting(model, loading, tokens=tokens)
        ranked = rescore(elmo, records, weight, batch_tokens=batch_tokens)
        if output is None:
            _write(ranked, sys.stdout)
            return
        with (
            atomic_file(output) as path,
            open(path, "w", encoding="utf-8", errors="backslashreplace") as file,
        ):
            _write(ranked, file)
        return
    if output is not None:
        raise UsageError("--output goes with --nbest; scores go to standard output.")
    texts: Iterable[str | list[str]]
    if text is not None and _is_sentence(text):
        texts = [text]
    else:
        texts = read_texts(text or "-", field=field)
    elmo = load_predicting(model, loading, tokens=tokens)
    _print_scores(elmo, texts, batch_tokens, as_json)


def _is_sentence(text: str) -> bool:
    """Whether TEXT is a sentence. The name of a missing file must not be taken for one."""
    if text in ("", "-") or os.path.exists(text):
        return False
    looks_like_file = "/" in text or os.sep in text or text.lower().endswith(FILE_ENDINGS)
    return " " in text.strip() or not looks_like_file


def _print_scores(
    elmo: Elmo, texts: Iterable[str | list[str]], batch_tokens: int, as_json: bool
) -> None:
    from elmokit.lm.scoring import score_stream

    scores = score_stream(elmo, texts, batch_tokens=batch_tokens)
    if not as_json:
        print("   logprob  perplexity  sentence")
    for result in scores:
        if as_json:
            print(json.dumps(result.to_dict(), ensure_ascii=False))
        else:
            print(f"{result.logprob:10.3f}  {result.perplexity:10.4g}  {' '.join(result.tokens)}")


def _write(records: Iterable[dict[str, Any]], file: TextIO) -> None:
    for record in records:
        print(json.dumps(record, ensure_ascii=False), file=file)
