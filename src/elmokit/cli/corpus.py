"""``elmokit corpus``: raw text to a prepared corpus, its vocabulary and its numbers."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, Parameter, validators

from elmokit.cli.options import AtLeastOne, Field, Json, suggest, verb

corpus: App = App(
    name="corpus",
    help="Prepare text for pretraining: sentences, tokens, vocabulary, numbers.",
    help_epilogue="Each has examples: elmokit corpus prepare --help",
)


@verb(
    corpus,
    "elmokit corpus prepare news.txt.gz more.jsonl -o corpus",
    "elmokit corpus prepare wiki.xml.bz2 -o wikipedia --workers 2",
    "elmokit corpus prepare corpus.txt -o lower --lower --heldout 0.05",
)
def prepare(  # noqa: D417 - options that verbs share bring their own help
    sources: Annotated[list[str], Parameter(name="TEXT")],
    /,
    *,
    output: Annotated[Path, Parameter(name=["--output", "-o"])],
    tokenizer: str = "words",
    sentences: Literal["split", "line"] = "split",
    documents: Literal["blank", "line"] = "blank",
    field: Field = "text",
    heldout: Annotated[float, Parameter(validator=validators.Number(gte=0, lt=1))] = 0.01,
    max_tokens: Annotated[int | None, AtLeastOne] = None,
    lower: bool = False,
    strip_non_letters: bool = False,
    stop_words: str | None = None,
    workers: Annotated[int | None, AtLeastOne] = None,
    overwrite: bool = False,
) -> None:
    """Prepare text into a folder of tokenised shards and word counts.

    The text streams: memory holds the table of distinct words, not the text. The result is the
    same with any number of workers.

    Args:
        sources: One or more of: text, .jsonl, .csv, .tsv (each also .gz, .bz2, .xz, .zst),
            .parquet, a Wikipedia dump (.xml, .xml.bz2), hfds:NAME[:CONFIG][:SPLIT], or - for
            standard input.
        output: The corpus folder.
        tokenizer: words, space, chars, jieba or spacy:LANGUAGE.
        sentences: What a line holds: running text to be split, or one sentence.
        documents: What ends a document of plain text: a blank line, or every line.
        heldout: Share of the documents to hold out for perplexity.
        max_tokens: Longer sentences are split into pieces of this many tokens.
        lower: Lower-case all tokens.
        strip_non_letters: Keep only the letters of a token.
        stop_words: Words to drop: a file with one per line, or en for a built-in list.
        workers: Worker processes; by default one per core.
        overwrite: Replace an existing corpus.
    """
    from tqdm.auto import tqdm

    from elmokit.corpus.cleaning import CleaningConfig, read_stop_words
    from elmokit.corpus.prepare import CorpusConfig, prepare_corpus

    settings = CorpusConfig(
        tokenizer=tokenizer,
        sentences=sentences,
        documents=documents,
        field=field,
        heldout=heldout,
        max_tokens=max_tokens,
        cleaning=CleaningConfig(
            lower=lower,
            strip_non_letters=strip_non_letters,
            stop_words=() if stop_words is None else read_stop_words(stop_words),
        ),
    )
    start = time.perf_counter()
    # disable=None: no bar when standard error is no terminal.
    with tqdm(unit=" tokens", unit_scale=True, disable=None) as bar:
        summary = prepare_corpus(
            sources,
            output,
            settings=settings,
            workers=workers,
            overwrite=overwrite,
            progress=bar.update,
        )
    seconds = time.perf_counter() - start
    train, rest = summary.train, summary.heldout
    print(
        f"{train.documents} documents, {train.sentences} sentences, {train.tokens} tokens, "
        f"{train.types} types; held out {rest.documents} documents, {rest.tokens} tokens; "
        f"{seconds:.1f} s: {output}",
        file=sys.stderr,
    )
    suggest(f"elmokit pretrain {output} -o my-model")


@verb(
    corpus,
    "elmokit corpus vocab corpus -o words.txt --size 10000",
    "elmokit corpus vocab corpus -o frequent.txt --min-count 3",
)
def vocab(
    folder: Path,
    /,
    *,
    output: Annotated[Path, Parameter(name=["--output", "-o"])],
    size: Annotated[int | None, Parameter(validator=validators.Number(gte=3))] = None,
    min_count: Annotated[int, AtLeastOne] = 1,
) -> None:
    """Write the vocabulary file of a prepared corpus, in bilm-tf's format.

    One word per line: <S>, </S>, <UNK>, then the words of the training text, the most frequent
    first.

    Args:
        folder: A prepared corpus.
        output: The vocabulary file.
        size: Maximum number of lines, the three special words included.
        min_count: Minimum number of occurrences.
    """
    from elmokit.corpus.shards import TokenCorpus
    from elmokit.files import check_output, write_text

    check_output(output, folder)
    words = TokenCorpus(folder).vocabulary(size, min_count)
    write_text(output, "".join(word + "\n" for word in words))
    print(f"{len(words)} words: {output}", file=sys.stderr)
    suggest(f"elmokit pretrain {folder} -o my-model")


@verb(
    corpus,
    "elmokit corpus stats corpus",
    "elmokit corpus stats corpus --vocab-size 5000 10000 --json",
    "elmokit corpus stats corpus --plot corpus.png",
)
def stats(  # noqa: D417 - options that verbs share bring their own help
    folder: Path,
    /,
    *,
    vocab_size: Annotated[list[int] | None, Parameter(consume_multiple=True)] = None,
    plot: Path | None = None,
    as_json: Json = False,
) -> None:
    """Show sizes, sentence lengths, and how much of the text a vocabulary covers.

    Args:
        folder: A prepared corpus.
        vocab_size: Vocabulary sizes to report, the three special words included.
        plot: Plot word counts and sentence lengths: .png, .svg or .pdf.
    """
    from elmokit.corpus.shards import TokenCorpus
    from elmokit.corpus.stats import corpus_stats, plot_corpus
    from elmokit.files import check_output

    if plot is not None:
        check_output(plot, folder)
    opened = TokenCorpus(folder)
    found = corpus_stats(opened, vocab_size or ())
    if plot is not None:
        plot_corpus(opened, plot)
    if as_json:
        about = {"sources": opened.sources, "settings": opened.settings}
        print(json.dumps({**about, **asdict(found)}, indent=2, ensure_ascii=False))
        return
    for name, counts in found.counts.items():
        print(
            f"{name}: {counts.documents:,} documents, {counts.sentences:,} sentences, "
            f"{counts.tokens:,} tokens, {counts.types:,} types"
        )
        lengths = found.lengths[name]
        if lengths is not None:
            shares = ", ".join(f"{share} % {size}" for share, size in lengths.percentiles.items())
            numbers = f"mean {lengths.mean:.1f}; {shares}; longest {lengths.longest}"
            print(f"  tokens of a sentence: {numbers}")
    print(f"words that occur once: {found.once:,}")
    print(f"{'vocabulary':>12}{'rarest word':>14}{'OOV train':>12}{'OOV heldout':>13}")
    for row in found.coverage:
        oov = "-" if row.heldout_oov is None else f"{row.heldout_oov:.3%}"
        print(f"{row.size:>12,}{row.rarest:>13,}x{row.train_oov:>12.3%}{oov:>13}")
    suggest(f"elmokit pretrain {folder} -o my-model")
