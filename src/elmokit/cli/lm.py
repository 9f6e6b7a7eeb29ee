"""``elmokit score``, ``perplexity``, ``surprisal``, ``substitutes``, ``generate``: predictions."""

from __future__ import annotations

import json
import math
import os
import shlex
import sys
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TextIO

from cyclopts import Parameter, validators

from elmokit.cli.options import (
    AtLeastOne,
    Device,
    Field,
    Json,
    Model,
    OptionsFile,
    Tokenizer,
    Tokens,
    UsageError,
    VocabularyFile,
    find_token,
    model_option,
    reading_bar,
    suggest,
)

if TYPE_CHECKING:
    from elmokit.encode.elmo import Elmo

GAP = "____"
"""What a sentence may have where a word is asked for."""
EXAMPLES = {
    "score": (
        'elmokit score "The cat sat on the mat ."',
        "elmokit score corpus.txt --json --model my-model",
        "elmokit score --nbest nbest.jsonl -o ranked.jsonl --weight 0.3",
        "elmokit score --nbest nbest.jsonl --dev dev.jsonl --references text --forward",
    ),
    "perplexity": (
        "elmokit perplexity heldout.txt",
        "elmokit perplexity heldout.txt --model my-model --tokens --json",
        "elmokit perplexity heldout.txt --state carry --carry-rows 2",
    ),
    "surprisal": (
        "elmokit surprisal stimuli.csv -o table.csv",
        "elmokit surprisal corpus.txt -o table.tsv --state carry",
        'elmokit surprisal "The horse raced past the barn fell ." --json',
    ),
    "substitutes": (
        'elmokit substitutes "Paris is the ____ of France ."',
        'elmokit substitutes "Paris is the capital of France ." --word capital',
        'elmokit substitutes "Paris is the capital of France ." --position 3 -k 5 --json',
    ),
    "generate": (
        'elmokit generate "The bank" --seed 1',
        'elmokit generate "The bank" --tokens 50 --temperature 0.7 --top-k 40',
        'elmokit generate "The bank" --temperature 0 --model my-model',
    ),
}

FILE_ENDINGS = (
    *(".txt", ".text", ".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet"),
    *(".gz", ".bz2", ".xz", ".zst"),
)


@Parameter(name="*")  # the fields are options of the verb itself
@dataclass(frozen=True, kw_only=True)
class Loading:
    """Where the parts of a model are, and where it runs."""

    softmax_file: Annotated[
        Path | None,
        Parameter(name="--softmax", help="HDF5 file with the softmax, when the model has none."),
    ] = None
    vocabulary_file: VocabularyFile = None
    options_file: OptionsFile = None
    tokenizer: Tokenizer = None
    device: Device = None

    @property
    def files(self) -> tuple[Path | None, ...]:
        """The files that are read beside the model."""
        return self.softmax_file, self.vocabulary_file, self.options_file


AS_IT_IS = Loading()
"""All parts come with the model."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class NbestOptions:
    """How n-best lists are read, tuned and measured."""

    references: Annotated[
        Path | None,
        Parameter(
            help="What was said, lines UTTERANCE WORDS ...: prints the word error rate of --nbest "
            "before and after to standard error."
        ),
    ] = None
    dev: Annotated[
        Path | None,
        Parameter(
            help="Other n-best lists: the weight with the lowest word error rate there is taken."
        ),
    ] = None
    dev_references: Annotated[
        Path | None,
        Parameter(help="What was said in --dev, unless its records have a reference each."),
    ] = None
    acoustic_scale: Annotated[float, Parameter(help="Scale of Kaldi's acoustic costs.")] = 0.1
    forward: Annotated[
        bool, Parameter(help="Rescore with the forward direction alone, on a CPU in int8: faster.")
    ] = False


AS_THEY_ARE = NbestOptions()


def load_predicting(model: str | None, loading: Loading, *, tokens: bool = False) -> Elmo:
    """Load a model as the verbs' options ask."""
    import elmokit

    return elmokit.load(
        model,
        tokenizer="space" if tokens else loading.tokenizer,
        options=loading.options_file,
        vocabulary=loading.vocabulary_file,
        softmax=True if loading.softmax_file is None else loading.softmax_file,
        device=loading.device,
    )


def score(  # noqa: D417 - options that verbs share bring their own help
    text: Annotated[str | None, Parameter(name="TEXT")] = None,
    /,
    *,
    model: Model = None,
    nbest: Path | None = None,
    output: Annotated[Path | None, Parameter(name=["--output", "-o"])] = None,
    weight: Annotated[float, Parameter(validator=validators.Number(gte=0, lte=1))] = 0.5,
    nbest_options: NbestOptions = AS_THEY_ARE,
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
        nbest: N-best lists as Kaldi, ESPnet, Whisper or sherpa-onnx write them (a file or a
            folder), or JSON lines {"id": ..., "hypotheses": [{"text": ..., "score": ...}, ...]}.
            Each hypothesis gets an lm_score, and each list is sorted by
            (1 - weight) * score + weight * lm_score, highest first.
        output: File for the rescored lists; by default standard output.
        weight: Weight of the language model, from 0 to 1.
        batch_tokens: Maximum number of tokens per batch.
    """
    from elmokit.files import check_output
    from elmokit.lm.nbest import read_nbest
    from elmokit.lm.scoring import score_stream
    from elmokit.text.readers import read_texts

    if nbest is not None:
        if text is not None:
            raise UsageError("Give TEXT or --nbest FILE, one of the two.")
        if output is not None:
            check_output(output, nbest, model, *loading.files)
        records = read_nbest(nbest, acoustic_scale=nbest_options.acoustic_scale)
        elmo = load_predicting(model, loading, tokens=tokens)
        _rescore(elmo, records, nbest_options, weight, output, batch_tokens)
        return
    if output is not None:
        raise UsageError("--output goes with --nbest; scores go to standard output.")
    given = text or "-"
    texts: Iterable[str | list[str]] = (
        [given] if _is_sentence(given) else read_texts(given, field=field)
    )
    elmo = load_predicting(model, loading, tokens=tokens)
    scores = score_stream(elmo, texts, batch_tokens=batch_tokens)
    if not as_json:
        print("   logprob  perplexity  sentence")
    with reading_bar(given, prints=True):
        for result in scores:
            if as_json:
                print(json.dumps(result.to_dict(), ensure_ascii=False))
                continue
            numbers = f"{result.logprob:10.3f}  {result.perplexity:10.4g}"
            print(f"{numbers}  {' '.join(result.tokens)}")
    if not as_json:
        suggest(f"elmokit perplexity FILE{model_option(model)}")


def _rescore(
    elmo: Elmo,
    records: Iterable[dict[str, Any]],
    options: NbestOptions,
    weight: float,
    output: Path | None,
    batch_tokens: int,
) -> None:
    from elmokit.files import atomic_file
    from elmokit.lm.nbest import read_nbest, read_references
    from elmokit.lm.rescoring import WordErrors, forward_only, rescore, tune_weight, word_errors

    spoken = None if options.references is None else read_references(options.references)
    if options.forward:
        elmo = forward_only(elmo, "int8" if elmo.device.type == "cpu" else "float32")
    if options.dev is not None:
        dev = read_nbest(options.dev, acoustic_scale=options.acoustic_scale)
        said = None if options.dev_references is None else read_references(options.dev_references)
        tuned = tune_weight(elmo, dev, said, batch_tokens=batch_tokens)
        weight = next(iter(tuned))
        rates = f"{tuned[0.0].rate:.2%} before, {tuned[weight].rate:.2%} with weight {weight:g}"
        print(f"word error rate, {options.dev}: {rates}", file=sys.stderr)
    before = after = WordErrors(0, 0)
    with ExitStack() as stack:
        file: TextIO = sys.stdout
        if output is not None:
            path = stack.enter_context(atomic_file(output))
            file = stack.enter_context(open(path, "w", encoding="utf-8", errors="backslashreplace"))
        for record in rescore(elmo, records, weight, batch_tokens=batch_tokens):
            print(json.dumps(record, ensure_ascii=False), file=file)
            if spoken is not None and record["hypotheses"]:
                errors = word_errors(record, spoken)
                scores = [hypothesis["score"] for hypothesis in record["hypotheses"]]
                before += errors[scores.index(max(scores))]
                after += errors[0]
    if spoken is not None:
        print(f"word error rate: {before.rate:.2%} before, {after.rate:.2%} after", file=sys.stderr)


def _is_sentence(text: str) -> bool:
    """Whether TEXT is a sentence. The name of a missing file must not be taken for one."""
    if text == "-" or os.path.exists(text):
        return False
    looks_like_file = "/" in text or os.sep in text or text.lower().endswith(FILE_ENDINGS)
    return " " in text.strip() or not looks_like_file


def perplexity(  # noqa: D417 - options that verbs share bring their own help
    text: Annotated[str, Parameter(name="TEXT")],
    /,
    *,
    model: Model = None,
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
    from elmokit.lm.perplexity import perplexity as measure
    from elmokit.text.readers import read_texts

    texts = read_texts(text, field=field)
    elmo = load_predicting(model, loading, tokens=tokens)
    with reading_bar(text):
        result = measure(elmo, texts, state=state, rows=carry_rows, batch_tokens=batch_tokens)
    if as_json:
        report = {"model": elmo.source, "text": text, **result.to_dict()}
        print(json.dumps(report, indent=2, ensure_ascii=False))
    else:
        print(result)
        suggest(f"elmokit adapt TEXT -o OUTPUT{model_option(model)}")


def surprisal(  # noqa: D417 - options that verbs share bring their own help
    stimuli: str,
    /,
    *,
    output: Annotated[Path | None, Parameter(name=["--output", "-o"])] = None,
    model: Model = None,
    state: Literal["fresh", "carry"] = "fresh",
    tokens: Tokens = False,
    field: str | None = None,
    batch_tokens: Annotated[int, AtLeastOne] = 4096,
    loading: Loading = AS_IT_IS,
    as_json: Json = False,
) -> None:
    """Make a table with one row per word: surprisal in bits, entropy, rank, frequency and more.

    Args:
        stimuli: CSV or TSV, one row per sentence (column text; or regions, with | between them) or
            per word (column word); other columns are carried over. Or text, one sentence per line,
            with a blank line between documents; - for standard input; or a sentence.
        output: Table: .csv, .tsv or .parquet. By default CSV on standard output.
        state: Initial LSTM state of a sentence. fresh: zero. carry: that after the sentences
            before it, for the backward direction after those that follow it, in the same document
            (column document).
        field: Column of the sentences when it is not text.
        batch_tokens: Maximum number of tokens per batch; a document of --state carry is one batch.
    """
    from elmokit.files import check_output
    from elmokit.lm.stimuli import read_stimuli, table_suffix, write_csv, write_table
    from elmokit.lm.surprisal import surprisal_stream

    if output is not None:
        if as_json:
            raise UsageError("--json prints; a table with --output is .csv, .tsv or .parquet.")
        table_suffix(output)
        check_output(output, stimuli, model, *loading.files)
    rows = [stimuli] if _is_sentence(stimuli) else read_stimuli(stimuli, field=field)
    elmo = load_predicting(model, loading, tokens=tokens)
    table = surprisal_stream(elmo, rows, state=state, batch_tokens=batch_tokens)
    with reading_bar(stimuli, prints=output is None):
        if output is not None:
            count = write_table(table, output)
            print(f"{count} words: {output}", file=sys.stderr)
        elif as_json:
            for row in table:
                print(json.dumps(row, ensure_ascii=False))
        else:
            write_csv(table, sys.stdout)
    suggest(f"elmokit surprisal STIMULI -o table.csv{model_option(model)}")


def substitutes(  # noqa: D417 - options that verbs share bring their own help
    sentence: str,
    /,
    *,
    model: Model = None,
    word: Annotated[str | None, Parameter(allow_leading_hyphen=True)] = None,
    position: int | None = None,
    k: Annotated[int, AtLeastOne, Parameter(name=["-k", "--count"])] = 10,
    tokens: Tokens = False,
    loading: Loading = AS_IT_IS,
    as_json: Json = False,
) -> None:
    """Show the words that both directions of the language model predict at a position.

    Args:
        sentence: The sentence; where it has ____, that is the position.
        word: A token of the sentence, exact match; the first of several.
        position: Its position instead, counted from 0.
        k: How many words to show.
    """
    from elmokit.lm.substitutes import substitutes as find

    if word is None and position is None and GAP in sentence:
        word = GAP
    if (word is None) == (position is None):
        raise UsageError(f"Give --word or --position, one of the two, or a sentence with {GAP}.")
    elmo = load_predicting(model, loading, tokens=tokens)
    words = elmo.tokenize(sentence)
    if position is None:
        position = find_token(words, str(word), " (--position takes another)")
    best = find(elmo, words, position, k)
    if as_json:
        report = {
            "model": elmo.source,
            "tokens": words,
            "position": position,
            "substitutes": [asdict(substitute) for substitute in best],
        }
        print(json.dumps(report, indent=2, ensure_ascii=False))
        return
    print(" share   forward  backward  word")
    for substitute in best:
        backward = "" if substitute.backward is None else f"{substitute.backward:.3f}"
        print(
            f"{math.exp(substitute.logprob):6.1%}  {substitute.forward:8.3f}  {backward:>8}  "
            f"{substitute.word}"
        )
    suggest(f"elmokit generate {shlex.quote(' '.join(words[:position]))}{model_option(model)}")


def generate(  # noqa: D417 - options that verbs share bring their own help
    prompt: str = "",
    /,
    *,
    model: Model = None,
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
    elmo = load_predicting(model, loading)
    text = elmo.generate(
        prompt, tokens, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed
    )
    print(text)
    beginning = shlex.quote(prompt) if prompt else '"The bank"'
    suggest(f"elmokit generate {beginning} --temperature 0.7{model_option(model)}")
