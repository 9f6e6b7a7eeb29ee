"""``elmokit probe``: what each layer of a model knows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import App, Parameter

from elmokit.cli.options import (
    AtLeastOne,
    Device,
    Field,
    Flag,
    Json,
    Model,
    Tokenizer,
    Tokens,
    UsageError,
)
from elmokit.cli.probe_answers import answer, check_outputs, models, print_senses, show

if TYPE_CHECKING:
    from elmokit.probes.report import Report
    from elmokit.probes.sources import LayerVectors

Against = Annotated[
    list[str] | None,
    Parameter(
        help="Ask these too, beside the model: random (its shape with random weights), a file of "
        "word vectors, or another model."
    ),
]
Plot = Annotated[
    list[Path] | None, Parameter(help="Draw the answer: a .png or .svg file, or one of each.")
]
ReportFile = Annotated[
    Path | None, Parameter(help="Write tables and pictures as one HTML file that stands alone.")
]
Seed = Annotated[int, Parameter(help="Sets everything that is random.")]
Layer = Annotated[int | None, Parameter(help="The layer to look at; the top one when left out.")]
IgnoreCase = Annotated[bool, Flag, Parameter(help="Bank is a use of bank.")]

probe = App(
    name="probe",
    help="Look inside a model: what does each layer know?",
    help_epilogue="Each has examples: elmokit probe pos --help",
)


def _epilogue(*examples: str) -> str:
    lines = "  \n".join(examples)  # two spaces: a line break of Markdown
    return f"Examples:\n\n{lines}"


@probe.command(
    help_epilogue=_epilogue(
        "elmokit probe pos train.conllu test.conllu --model my-model",
        "elmokit probe pos train.conllu test.conllu --tags xpos --against random --plot pos.png",
    )
)
def pos(  # noqa: D417 - options that verbs share bring their own help
    train: Path,
    test: Path,
    /,
    *,
    tags: str = "upos",
    max_tokens: Annotated[int | None, AtLeastOne] = None,
    model: Model = None,
    against: Against = None,
    device: Device = "cpu",
    seed: Seed = 0,
    plot: Plot = None,
    report: ReportFile = None,
    as_json: Json = False,
) -> None:
    """Parts of speech: a linear probe a layer, a control task, learning curves.

    Args:
        train: A CoNLL-U file to learn from.
        test: A CoNLL-U file to measure on.
        tags: The column with the tags: upos, xpos, deprel, ...
        max_tokens: Learn from about so many words, evenly spread.
    """
    from elmokit.probes import pos as ask

    def run(vectors: LayerVectors) -> Report:
        return ask(vectors, train, test, tags=tags, max_tokens=max_tokens, seed=seed)

    answer("pos", run, models(model, against, device), plot, report, as_json)


@probe.command(
    help_epilogue=_epilogue(
        "elmokit probe wsd semcor.jsonl --test senseval2.jsonl --index index.sense",
        "elmokit probe wsd semcor.jsonl --index index.sense --save senses.safetensors",
        "elmokit probe wsd --predict new.txt --inventory senses.safetensors",
    )
)
def wsd(  # noqa: D417 - options that verbs share bring their own help
    *train: Path,
    test: list[Path] | None = None,
    index: Path | None = None,
    most_uses: Annotated[int | None, AtLeastOne] = None,
    save: Path | None = None,
    layer: int | None = None,
    predict: Annotated[str | None, Parameter(allow_leading_hyphen=True)] = None,
    inventory: Path | None = None,
    word: list[str] | None = None,
    model: Model = None,
    against: Against = None,
    tokens: Tokens = False,
    tokenizer: Tokenizer = None,
    field: Field = "text",
    device: Device = "cpu",
    plot: Plot = None,
    report: ReportFile = None,
    as_json: Json = False,
) -> None:
    """Word senses: the nearest sense centroid, a layer at a time; and senses of new text.

    Args:
        train: Sense-annotated text: JSONL with tokens and keys, or NAME.data.xml with
            NAME.gold.key.txt beside it.
        test: Test sets of the same kinds.
        index: index.sense of WordNet, for the first senses of unknown lemmas.
        most_uses: Average at most so many uses of each sense: less time.
        save: Write an inventory of all senses (.safetensors) that --predict can use.
        layer: The layer of the inventory; the best on the test sets when left out, or the top.
        predict: A text, one sentence per line, or - for standard input, to be given senses.
        inventory: The inventory to use with --predict.
        word: With --predict: only these words.
    """
    from elmokit.probes import wsd as ask

    if predict is not None:
        if inventory is None or train or test:
            raise UsageError("--predict needs --inventory, and neither training text nor --test.")
        (vectors,) = models(model, None, device, tokens=tokens, tokenizer=tokenizer)
        print_senses(inventory, vectors, predict, field, word, as_json)
        return
    if not train or not (test or save):
        raise UsageError("Give training text, and --test FILE or --save FILE; or --predict FILE.")
    if save is not None and against:
        raise UsageError("--save keeps the senses of one model; leave out --against.")
    tests = {path.name.split(".")[0]: path for path in test or []}
    if len(tests) < len(test or []):
        tests = {str(path): path for path in test or []}

    def run(vectors: LayerVectors) -> Report:
        return ask(
            vectors, train, tests, index=index, most_uses=most_uses, save=save, save_layer=layer
        )

    answer("wsd", run, models(model, against, device), plot, report, as_json)


@probe.command(
    help_epilogue=_epilogue(
        "elmokit probe similarity ratings.txt --model my-model --against glove.txt",
        "elmokit probe similarity test.data.txt --tune train.data.txt",
        "elmokit probe similarity semcor.jsonl --pairs 1000",
    )
)
def similarity(  # noqa: D417 - options that verbs share bring their own help
    pairs_file: Annotated[Path, Parameter(name="PAIRS")],
    /,
    *,
    tune: Path | None = None,
    pooling: list[Literal["word", "window", "sentence"]] | None = None,
    pairs: Annotated[int, AtLeastOne] = 2000,
    model: Model = None,
    against: Against = None,
    device: Device = "cpu",
    seed: Seed = 0,
    plot: Plot = None,
    report: ReportFile = None,
    as_json: Json = False,
) -> None:
    """Words in context: are cosines high where people find words alike?

    Args:
        pairs_file: JSONL, ratings of SCWS, WiC (NAME.data.txt), or sense-annotated text.
        tune: Pairs of the same kind to tune the threshold on; half of PAIRS when left out.
        pooling: What stands for a word: word, window, sentence; all three when left out.
        pairs: How many pairs to make from sense-annotated text.
    """
    from elmokit.probes import similarity as ask
    from elmokit.probes.similarity import POOLINGS

    def run(vectors: LayerVectors) -> Report:
        chosen = pooling or POOLINGS
        return ask(vectors, pairs_file, tune=tune, pooling=chosen, count=pairs, seed=seed)

    answer("similarity", run, models(model, against, device), plot, report, as_json)


@probe.command(
    help_epilogue=_epilogue(
        "elmokit probe polysemy corpus.txt bank --model my-model --plot bank.png",
        "elmokit probe polysemy corpus.txt.gz apple bat --ignore-case --report senses.html",
    )
)
def polysemy(  # noqa: D417 - options that verbs share bring their own help
    corpus: Path,
    /,
    *words: str,
    layer: Layer = None,
    most_uses: Annotated[int, AtLeastOne] = 200,
    most_groups: Annotated[int, AtLeastOne] = 6,
    examples: int = 3,
    sample: Annotated[int, AtLeastOne] = 500,
    ignore_case: IgnoreCase = False,
    model: Model = None,
    tokens: Tokens = False,
    tokenizer: Tokenizer = None,
    field: Field = "text",
    device: Device = "cpu",
    seed: Seed = 0,
    plot: Plot = None,
    report: ReportFile = None,
    as_json: Json = False,
) -> None:
    """All uses of a word: groups with examples, a map, and how far context moves words.

    Args:
        corpus: A text file, one sentence per line, of any kind that encode reads.
        words: The words.
        most_uses: The most uses of a word, drawn from all.
        most_groups: The largest number of groups tried.
        examples: Sentences shown for each group.
        sample: Sentences for the mean cosines.
    """
    from elmokit.probes import polysemy as ask

    def run(vectors: LayerVectors) -> Report:
        return ask(
            vectors,
            corpus,
            words,
            layer=layer,
            most_uses=most_uses,
            most_groups=most_groups,
            examples=examples,
            sample=sample,
            ignore_case=ignore_case,
            field=field,
            seed=seed,
        )

    opened = models(model, None, device, tokens=tokens, tokenizer=tokenizer)
    answer("polysemy", run, opened, plot, report, as_json)


@probe.command(
    help_epilogue=_epilogue(
        "elmokit probe change books-1800.txt news-2020.txt --model my-model",
        "elmokit probe change books-1800.txt news-2020.txt cell plane --rank prt --plot shift.svg",
    )
)
def change(  # noqa: D417 - options that verbs share bring their own help
    first: Path,
    second: Path,
    /,
    *words: str,
    rank: Literal["apd", "prt", "jsd"] = "apd",
    layer: Layer = None,
    most_uses: Annotated[int, AtLeastOne] = 100,
    least_uses: Annotated[int, AtLeastOne] = 20,
    most_words: Annotated[int, AtLeastOne] = 200,
    examples: int = 2,
    gold: Path | None = None,
    ignore_case: IgnoreCase = False,
    model: Model = None,
    tokens: Tokens = False,
    tokenizer: Tokenizer = None,
    field: Field = "text",
    device: Device = "cpu",
    seed: Seed = 0,
    plot: Plot = None,
    report: ReportFile = None,
    as_json: Json = False,
) -> None:
    """Two corpora: which words are used differently?

    Args:
        first: A text file, one sentence per line, of any kind that encode reads.
        second: The other one: another period, another domain.
        words: The words to compare; without them the most frequent ones of both.
        rank: Sort by average pairwise distance, prototype distance, or divergence of groups.
        most_uses: The most uses of a word from each corpus, drawn from all.
        least_uses: How often a word must occur in both, when no words are given.
        most_words: How many words are compared, when none are given.
        examples: Sentences shown from each corpus.
        gold: Known scores, a word and a number a line, to compare the ranking with.
    """
    from elmokit.probes import change as ask
    from elmokit.probes.word_uses import read_scores

    scores = None if gold is None else read_scores(gold)

    def run(vectors: LayerVectors) -> Report:
        return ask(
            vectors,
            first,
            second,
            words or (None if scores is None else list(scores)),
            layer=layer,
            rank=rank,
            most_uses=most_uses,
            least_uses=least_uses,
            most_words=most_words,
            examples=examples,
            gold=scores,
            ignore_case=ignore_case,
            field=field,
            seed=seed,
        )

    opened = models(model, None, device, tokens=tokens, tokenizer=tokenizer)
    answer("change", run, opened, plot, report, as_json)


@probe.command(
    help_epilogue=_epilogue(
        "elmokit probe robustness corpus.txt --model my-model --against glove.txt",
    )
)
def robustness(  # noqa: D417 - options that verbs share bring their own help
    corpus: Path,
    /,
    *,
    sample: Annotated[int, AtLeastOne] = 500,
    model: Model = None,
    against: Against = None,
    tokens: Tokens = False,
    tokenizer: Tokenizer = None,
    field: Field = "text",
    device: Device = "cpu",
    seed: Seed = 0,
    plot: Plot = None,
    report: ReportFile = None,
    as_json: Json = False,
) -> None:
    """Typing errors, case and unseen words: how far do vectors move?

    Args:
        corpus: A text file, one sentence per line, of any kind that encode reads.
        sample: How many sentences to draw; one word of each is spoiled.
    """
    from elmokit.probes import robustness as ask

    def run(vectors: LayerVectors) -> Report:
        return ask(vectors, corpus, sample=sample, field=field, seed=seed)

    opened = models(model, against, device, tokens=tokens, tokenizer=tokenizer)
    answer("robustness", run, opened, plot, report, as_json)


@probe.command(help_epilogue=_epilogue("elmokit probe layers ner-model qa-model --plot mixes.png"))
def layers(  # noqa: D417 - options that verbs share bring their own help
    *predictors: Path, plot: Plot = None, report: ReportFile = None, as_json: Json = False
) -> None:
    """Learned mixes: which layers do saved predictors read?

    Args:
        predictors: Folders of predictors, or fine-tuned models with a mix of their own.
    """
    from elmokit.probes import layers as ask

    if not predictors:
        raise UsageError("Give at least one saved predictor.")
    check_outputs(plot, report)
    show("layers", [ask(predictors)], plot, report, as_json)
