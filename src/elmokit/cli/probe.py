"""``elmokit probe``: what each layer of a model encodes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Parameter, validators

from elmokit.cli.lm import AS_IT_IS, Loading, load_predicting
from elmokit.cli.options import (
    MODEL_NAMES,
    AtLeastOne,
    Device,
    Field,
    Json,
    Model,
    Tokenizer,
    Tokens,
    UsageError,
    reading_bar,
    suggest,
    verb,
)

if TYPE_CHECKING:
    from elmokit.probes.report import Report
    from elmokit.tasks.inputs.source import LayerVectors

RANDOM = "random"
Against = Annotated[
    list[str] | None,
    Parameter(
        help="Probe these too, beside the model: random (its shape with random weights), a file of "
        "word vectors, or another model."
    ),
]
Seed = Annotated[
    int,
    Parameter(
        validator=validators.Number(gte=0, lt=1 << 64), help="Sets everything that is random."
    ),
]
Layer = Annotated[int | None, Parameter(help="The layer to look at; the top one when left out.")]
IgnoreCase = Annotated[bool, Parameter(help="Bank is a use of bank.")]


@Parameter(name="*")
@dataclass(frozen=True)
class Outputs:
    """How the answers are shown."""

    plot: Annotated[
        list[Path] | None, Parameter(help="Draw the answer: a .png or .svg file, or one of each.")
    ] = None
    report: Annotated[
        Path | None, Parameter(help="Write tables and pictures as one HTML file of its own.")
    ] = None
    as_json: Json = False

    def check(self, inputs: Sequence[str | Path], *others: Path) -> None:
        """Raise for paths that cannot be written to, before any work is done.

        `others` are written too. No output may be one of the inputs.
        """
        from elmokit.files import check_output, final_path

        paths = [*(self.plot or ()), *([] if self.report is None else [self.report])]
        for path in (*paths, *others):
            check_output(path, *inputs)
        if paths:
            from elmokit.probes.report import check_plot, need_matplotlib

            need_matplotlib()
            for path in self.plot or ():
                check_plot(path)
            for path in paths:
                final_path(path)

    def show(self, name: str, reports: Sequence[Report]) -> None:
        """Draw the answers where asked to, and print them."""
        first, *others = reports
        for path in self.plot or ():
            first.plot(path, *others)
        if self.report is not None:
            first.save_html(self.report, f"elmokit probe {name}", *others)
        if self.as_json:
            found = {"probe": name, "reports": [report.to_json() for report in reports]}
            print(json.dumps(found, indent=2, ensure_ascii=False))
        else:
            print(first.table(*others))
            if not self.plot:
                suggest(f"the same call with --plot {name}.png or --report {name}.html")


@Parameter(name="*")
@dataclass(frozen=True)
class Text:
    """How the text is read."""

    tokens: Tokens = False
    tokenizer: Tokenizer = None
    field: Field = "text"


@Parameter(name="*")
@dataclass(frozen=True)
class Probing(Outputs):
    """The model that is probed, and how the answers are shown."""

    model: Annotated[
        list[str] | None,
        Parameter(
            name=MODEL_NAMES,
            help="Folder, weights file, archive, checkpoint prefix, embedded name or "
            "hf:OWNER/NAME; also word vectors, the folder of an encoder (Hugging Face, ONNX), or a "
            "file of flair's language models. Given again, the vectors of all are concatenated. "
            "The embedded model when left out.",
        ),
    ] = None
    pieces: Annotated[
        Literal["mean", "first", "last"],
        Parameter(help="What the vector of a word is if an encoder has sub-words."),
    ] = "mean"
    device: Device = None

    def models(self, against: Sequence[str] | None, text: Text) -> Iterator[LayerVectors]:
        """The model, then what it is compared with; each is loaded when its turn comes."""
        from elmokit.errors import CheckpointError
        from elmokit.probes.data import ProbedModel, open_model, random_weights
        from elmokit.tasks.inputs.source import ElmoLayers

        tokenizer = "space" if text.tokens else text.tokenizer
        source: Any = self.model[0] if self.model and len(self.model) == 1 else self.model
        opening: Any = {"device": self.device, "tokenizer": tokenizer, "pieces": self.pieces}
        first = open_model(source, **opening)
        yield first
        for name in against or ():
            model = first.source if isinstance(first, ProbedModel) else None
            if name != RANDOM:
                yield open_model(name, **opening)
            elif isinstance(model, ElmoLayers):
                yield open_model(random_weights(model.elmo), tokenizer=tokenizer)
            else:
                raise CheckpointError(
                    f"--against {RANDOM}: {first.name} has no weights to draw again"
                )

    def answer(
        self,
        name: str,
        *data: Any,
        against: Sequence[str] | None = None,
        text: Text = Text(),  # noqa: B008 - frozen
        **options: Any,
    ) -> None:
        """Call the probe of this name for every model, then show the answers together."""
        from elmokit import probes

        save = options.get("save")
        inputs = [*_paths((data, {**options, "save": None})), *(self.model or ()), *(against or ())]
        self.check(inputs, *_paths(save))
        ask = getattr(probes, name)
        self.show(name, [ask(found, *data, **options) for found in self.models(against, text)])


def _paths(value: Any) -> list[Path]:
    """All paths among arguments."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return [path for item in value for path in _paths(item)]
    return [value] if isinstance(value, Path) else []


PROBING, TEXT = Probing(), Text()

probe: App = App(
    name="probe",
    help="Look inside a model: what does each layer encode?",
    help_epilogue="Each has examples: elmokit probe pos --help",
)


@verb(
    probe,
    "elmokit probe pos train.conllu test.conllu",
    "elmokit probe pos train.conllu test.conllu --against random",
)
def pos(  # noqa: D417 - options that verbs share bring their own help
    train: Path,
    test: Path,
    /,
    *,
    tags: str = "upos",
    max_tokens: Annotated[int | None, AtLeastOne] = None,
    against: Against = None,
    seed: Seed = 0,
    how: Probing = PROBING,
) -> None:
    """Parts of speech: a linear probe per layer, a control task, learning curves.

    Args:
        train: A CoNLL-U file to train on.
        test: A CoNLL-U file to measure on.
        tags: The column with the tags: upos, xpos, deprel, ...
        max_tokens: Train on about so many words, evenly spread.
    """
    how.answer("pos", train, test, tags=tags, max_tokens=max_tokens, seed=seed, against=against)


@verb(
    probe,
    "elmokit probe wsd semcor.jsonl --test senseval2.jsonl --index index.sense",
    "elmokit probe wsd semcor.jsonl --index index.sense --save senses.safetensors",
    "elmokit probe wsd --predict new.txt --inventory senses.safetensors",
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
    against: Against = None,
    text: Text = TEXT,
    how: Probing = PROBING,
) -> None:
    """Word senses: the nearest sense centroid, layer by layer; and senses of new text.

    Args:
        train: Sense-annotated text: JSONL with tokens and keys, or NAME.data.xml with
            NAME.gold.key.txt beside it.
        test: Test sets of the same kinds.
        index: index.sense of WordNet, for the first senses of unknown lemmas; with --predict, for
            glosses from the data files beside it.
        most_uses: Average at most so many uses of each sense: less time.
        save: Write an inventory of all senses (.safetensors) that --predict can use.
        layer: The layer of the inventory; the best on the test sets when left out, or the top.
        predict: A text, one sentence per line, or - for standard input, to be disambiguated.
        inventory: The inventory to use with --predict.
        word: With --predict: only these words.
    """
    if predict is not None:
        if inventory is None or train or test:
            raise UsageError("--predict needs --inventory, and neither training text nor --test.")
        _print_senses(inventory, predict, word, text, how, index)
        return
    if not train or not (test or save):
        raise UsageError("Give training text, and --test FILE or --save FILE; or --predict FILE.")
    if save is not None and against:
        raise UsageError("--save keeps the senses of one model; leave out --against.")
    tests = {path.name.split(".")[0]: path for path in test or []}
    if len(tests) < len(test or []):
        tests = {str(path): path for path in test or []}

    how.answer(
        "wsd", train, tests, index=index, most_uses=most_uses, save=save, save_layer=layer,
        against=against,
    )  # fmt: skip


@verb(
    probe,
    "elmokit probe similarity ratings.txt --against glove.txt",
    "elmokit probe similarity semcor.jsonl --pairs 1000 --model my-model",
    "elmokit probe similarity ratings.txt --background corpus.txt",
)
def similarity(  # noqa: D417 - options that verbs share bring their own help
    pairs_file: Annotated[Path, Parameter(name="PAIRS")],
    /,
    *,
    tune: Path | None = None,
    pooling: list[Literal["word", "window", "sentence"]] | None = None,
    pairs: Annotated[int, AtLeastOne] = 2000,
    background: Annotated[Path | None, Parameter(allow_leading_hyphen=True)] = None,
    against: Against = None,
    seed: Seed = 0,
    how: Probing = PROBING,
) -> None:
    """Words in context: are cosines high where people find words alike?

    Args:
        pairs_file: JSONL, ratings of SCWS, WiC (NAME.data.txt), or sense-annotated text.
        tune: Pairs of the same kind to tune the threshold on; half of PAIRS when left out.
        pooling: What represents a word: word, window, sentence; all three when left out.
        pairs: How many pairs to make from sense-annotated text.
        background: A text, one sentence per line: its common directions are removed first.
    """
    options: Any = {} if not pooling else {"pooling": pooling}
    how.answer(
        "similarity", pairs_file, tune=tune, count=pairs, seed=seed, background=background,
        against=against, **options,
    )  # fmt: skip


@verb(
    probe,
    "elmokit probe polysemy corpus.txt bank",
    "elmokit probe polysemy corpus.txt bank --ignore-case --plot bank.png",
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
    text: Text = TEXT,
    seed: Seed = 0,
    how: Probing = PROBING,
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
    how.answer(
        "polysemy", corpus, words, layer=layer, most_uses=most_uses, most_groups=most_groups,
        examples=examples, sample=sample, ignore_case=ignore_case, field=text.field, seed=seed,
        text=text,
    )  # fmt: skip


@verb(
    probe,
    "elmokit probe change books-1800.txt news-2020.txt --least-uses 5",
    "elmokit probe change books-1800.txt news-2020.txt cell plane --rank prt",
    "elmokit probe change books-1800.txt news-2020.txt --targets targets.txt",
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
    permutations: Annotated[int, Parameter(validator=validators.Number(gte=0))] = 999,
    targets: Path | None = None,
    gold: Path | None = None,
    binary: Path | None = None,
    ignore_case: IgnoreCase = False,
    text: Text = TEXT,
    seed: Seed = 0,
    how: Probing = PROBING,
) -> None:
    """Two corpora: which words are used differently?

    Args:
        first: A text file, one sentence per line, of any kind that encode reads.
        second: The other one: another period, another domain.
        words: The words to compare; without them the most frequent content words of both:
            function words, by a list of English ones and by frequency, are left out.
        rank: Sort by average pairwise distance, prototype distance, or divergence of groups.
        most_uses: The most uses of a word from each corpus, drawn from all.
        least_uses: How often a word must occur in both, when no words are given.
        most_words: How many words are compared, when none are given.
        examples: Sentences shown from each corpus.
        permutations: Random ways to deal out a word's uses, for the p value; 0: none.
        targets: The words, one per line, perhaps with a tag, as in SemEval 2020: attack_nn.
        gold: Known scores, a word and a number per line, to compare the ranking with.
        binary: Known answers, a word and 1 (changed) or 0 per line.
    """
    from elmokit.probes.data import read_scores, read_targets

    scores, answers = (None if path is None else read_scores(path) for path in (gold, binary))
    how.check(_paths((first, second, targets, gold, binary)))
    chosen = words or (read_targets(targets) if targets else list(scores or answers or ())) or None
    how.answer(
        "change", first, second, chosen, layer=layer, rank=rank, most_uses=most_uses,
        least_uses=least_uses, most_words=most_words, examples=examples, gold=scores,
        binary=answers, permutations=permutations, ignore_case=ignore_case, field=text.field,
        seed=seed, text=text,
    )  # fmt: skip


@verb(
    probe,
    "elmokit probe robustness corpus.txt",
    "elmokit probe robustness corpus.txt --sample 100 --against glove.txt",
)
def robustness(  # noqa: D417 - options that verbs share bring their own help
    corpus: Path,
    /,
    *,
    sample: Annotated[int, AtLeastOne] = 500,
    against: Against = None,
    text: Text = TEXT,
    seed: Seed = 0,
    how: Probing = PROBING,
) -> None:
    """Typing errors, case and unseen words: how far do vectors move?

    Args:
        corpus: A text file, one sentence per line, of any kind that encode reads.
        sample: How many sentences to draw; one word of each is perturbed.
    """
    how.answer(
        "robustness", corpus, sample=sample, field=text.field, seed=seed, against=against, text=text
    )


@verb(
    probe,
    "elmokit probe layers my-classifier my-tagger",
    "elmokit probe layers my-tagger --plot mixes.png",
)
def layers(  # noqa: D417 - options that verbs share bring their own help
    *predictors: Path, how: Outputs = PROBING
) -> None:
    """Learned mixes: which layers do saved predictors use?

    Args:
        predictors: Folders of predictors, or fine-tuned models with a mix of their own.
    """
    from elmokit import probes

    if not predictors:
        raise UsageError("Give at least one saved predictor.")
    how.check(predictors)
    how.show("layers", [probes.layers(predictors)])


@verb(
    probe,
    "elmokit probe pairs en",
    "elmokit probe pairs blimp.jsonl --against random",
    "elmokit probe pairs blimp.jsonl --model my-model --per-token",
)
def pairs(  # noqa: D417 - options that verbs share bring their own help
    *data: str,
    per_token: bool = False,
    model: Model = None,
    against: Against = None,
    loading: Loading = AS_IT_IS,
    how: Outputs = PROBING,
) -> None:
    """Minimal pairs: does the language model prefer the right sentence?

    Args:
        data: en or zh, the suites that come with elmokit, or JSONL files like BLiMP's:
            sentence_good, sentence_bad, and a phenomenon or UID where there is one.
        per_token: Compare mean log-probabilities per token instead of sums, which favour the
            shorter sentence.
    """
    from elmokit import probes
    from elmokit.probes.data import random_weights

    if not data:
        raise UsageError("Give en, zh, or at least one file of minimal pairs.")
    how.check([*data, *(against or ())])
    first = load_predicting(model, loading)
    reports = [probes.pairs(first, data, per_token=per_token)]
    for name in against or ():
        other = (
            random_weights(first, softmax=True).elmo
            if name == RANDOM
            else load_predicting(name, Loading(tokenizer=loading.tokenizer, device=loading.device))
        )
        reports.append(probes.pairs(other, data, per_token=per_token))
    how.show("pairs", reports)


def _print_senses(
    inventory: Path,
    source: str,
    words: Sequence[str] | None,
    text: Text,
    how: Probing,
    index: Path | None,
) -> None:
    """Disambiguate the words of a text, a sentence at a time."""
    from elmokit.probes import SenseInventory
    from elmokit.probes.wsd_data import meaning_of, read_glosses
    from elmokit.text.readers import read_texts

    (vectors,) = how.models(None, text)
    senses = SenseInventory.load(inventory)
    texts = read_texts(source, field=text.field)
    found_senses = senses.disambiguate(vectors, texts, words=words)
    glosses = {} if index is None else read_glosses(index, {*senses.keys, *senses.first.values()})
    with reading_bar(source, prints=True):
        for number, (tokens, answers) in enumerate(found_senses, start=1):
            meanings = [meaning_of(one.sense, glosses) for one in answers]
            if how.as_json:
                pairs = zip(answers, meanings, strict=True)
                known = [{**asdict(one), "meaning": meaning} for one, meaning in pairs]
                found = {"line": number, "tokens": tokens, "senses": known}
                print(json.dumps(found, ensure_ascii=False))
                continue
            for one, meaning in zip(answers, meanings, strict=True):
                sure = "first sense" if one.cosine is None else f"{one.cosine:.4f} of {one.choices}"
                print(f"{number:>6}  {one.word:<20} {one.sense:<28} {sure:<14} {meaning}")
