"""What ELMo gains on every task: without it, with static vectors, with ELMo, with both.

Run: python -m benchmarks.tasks.run [NAME ...] [--seeds 0 1 2] [--save]
         [--inputs none static glove random elmo both tuned tuned_glove]
         [--rival minilm=FOLDER flair=FILE]
     python -m benchmarks.tasks.run --trivial [NAME ...]

Each cell (a set, a kind of inputs, a seed) is one training run, judged on the test data with the
weights that were best on the development data. Finished cells are kept in a file, so that the table
can be made in pieces: the same command goes on where it was stopped, and --add takes over the cells
of another machine. --store-ratio measures training on stored layers against computing them in every
epoch. "random" is an ELMo of the same shape with random weights, a control. "tuned" is ELMo with
the recipe as it is, where that was chosen with ELMo on the development data; all other columns have
the settings of the plain model there. "glove" and "tuned_glove" have all words of GloVe, which
python -m benchmarks.rivals.contenders downloads. --trivial scores baselines without vectors (TF-IDF
and logistic regression, the most frequent answer); they need scikit-learn and no GPU. --label NAME
with --set gives settings that are tried a column of their own. --save writes
benchmarks/results/tasks.txt and tasks.json.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.report import RESULTS, ROOT
from benchmarks.rivals.contenders import FOLDER as RIVALS
from benchmarks.tasks.data import (
    FOLDER,
    RECIPES,
    SEED,
    BenchmarkSet,
    archives_folder,
    benchmark_data,
)
from benchmarks.tasks.table import COLUMNS, table
from elmokit.config import to_dict
from elmokit.encode.speed import machine
from elmokit.files import atomic_file
from elmokit.probes.data import random_weights
from elmokit.tasks import fit, read_examples
from elmokit.tasks.fit import task_settings
from elmokit.tasks.inputs.references import as_layers
from elmokit.tasks.inputs.source import ElmoLayers, LayerSource, StaticVectors

CELLS = FOLDER.parent / "task-cells.json"
RUNS = FOLDER.parent / "task-runs"
STATIC = {
    "en": ("glove_100d_en", "glove.6B.100d.40k.txt"),
    "zh": ("word2vec_100d_zh", "zh.100d.25k.vec"),
}
WHOLE_GLOVE = RIVALS / "glove" / "glove.6B.100d.bin"
STATIC_KINDS = ("static", "both", "glove", "tuned_glove")


@dataclass(frozen=True)
class Plan:
    """How a set is run.

    Attributes:
        recipe: Its settings: the name of a recipe.
        train: The most training examples, unless --train says otherwise; 0: all.
        dev: The most development examples; 0: all.
        overrides: Further settings.
        plain: Settings in place of those that the recipe has for ELMo; not of "tuned".
    """

    recipe: str
    train: int = 0
    dev: int = 0
    overrides: tuple[str, ...] = ()
    plain: tuple[str, ...] = ()


PHRASES = ("run.epochs=8", "run.batch=64", "run.evals_per_epoch=4")
"""With ten times the examples: fewer epochs, and development scores more often."""
NER = ("inputs.words_beside_elmo=true", "inputs.dropout=0.3")
PLANS = {
    "sst5": Plan("classify-sentiment"),
    "sst2": Plan("classify-sentiment"),
    "sst5_phrases": Plan("classify-sentiment", overrides=PHRASES),
    "sst2_phrases": Plan("classify-sentiment", overrides=PHRASES),
    "trec6": Plan("classify-sentiment"),
    "wnut17": Plan("tag-ner", plain=NER),
    "ewt_pos": Plan("tag-pos"),
    "conll2000": Plan("tag-chunks", plain=("inputs.words_beside_elmo=true", "encoder.layers=1")),
    "propbank": Plan("tag-roles"),
    "nli": Plan("pair-nli"),
    "semeval2010": Plan("relation-semeval", plain=("head.positions=0", "run.ema=0")),
    "gap": Plan("coref-gap"),
    "snips": Plan("dialogue-snips", plain=(*NER, "run.patience=6", "run.ema=0")),
    "squad": Plan("qa-squad", train=20_000, dev=1_000),
    "squad_all": Plan("qa-squad", dev=1_000, overrides=("run.epochs=3", "run.batch=128")),
    "tatoeba_en_zh": Plan("seq2seq-translation", overrides=("head.target_tokenizer=chars",)),
    "tatoeba_zh_en": Plan(
        "seq2seq-translation",
        overrides=("inputs.tokenizer=chars", "head.target_tokenizer=words"),
    ),
    "scitldr": Plan("seq2seq-summaries"),
    "chnsenticorp": Plan("classify-sentiment"),
    "weibo_ner": Plan("tag-ner", plain=NER),
    "gsd_pos": Plan("tag-pos"),
    "cmrc_dev": Plan("qa-cmrc"),
}


class Benchmark:
    """All cells, those that are finished and those that are to be.

    Args:
        options: Of the command line.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._elmos: dict[str, LayerSource] = {}
        self._statics: dict[Path, StaticVectors] = {}
        self._rivals = dict(part.split("=", 1) for part in options.rival)
        self.cells: dict[str, dict[str, Any]] = {}
        for path in (options.cells, *options.add):
            if path.is_file():
                self.cells.update(json.loads(path.read_text("utf-8")))

    def run(self, name: str) -> None:
        """Train the cells of a set that are not finished."""
        data = benchmark_data(name, self._options.archives)
        examples: dict[str, list[Any]] = {}
        whole: dict[str, int] = {}
        store = self._options.work / name / "layers"
        rivals = [rival for rival in self._rivals if data.language == "en" or "zh" in rival]
        kinds = [
            kind
            for kind in self._options.inputs
            if (kind != "tuned" or PLANS[name].plain)
            and ("glove" not in kind or data.language == "en")
        ]
        for kind in (*kinds, *rivals):
            for seed in self._options.seeds:
                key = f"{name}/{self._options.label or kind}/{seed}"
                setup = self._setup(data, kind)
                if self._done(key, setup):
                    continue
                if not examples:
                    examples, whole = self._read(data)
                report, seconds = self._train(data, examples, kind, seed, store=store)
                self.cells[key] = {
                    "primary": report["primary"],
                    "test": _numbers(report["test"]),
                    "dev": _numbers(report["dev"]),
                    "examples": report["examples"],
                    "whole": whole,
                    "steps": report["steps"],
                    "best_step": report["best_step"],
                    "reason": report["reason"],
                    "layers": report["layers"],
                    "parameters": report["parameters"],
                    "commit": commit(),
                    "seconds": round(seconds, 1),
                    "setup": setup,
                    "machine": _machine(self._options.device),
                }
                self._keep()
                score = report["test"][report["primary"]]
                print(f"{key:28} {report['primary']} {score:.4f} in {seconds:.0f} s", flush=True)
        shutil.rmtree(self._options.work / name, ignore_errors=True)

    def trivial(self, name: str) -> None:
        """Score the baselines that read no vectors and train no network."""
        from benchmarks.tasks.trivial import baselines  # needs scikit-learn

        data = benchmark_data(name, self._options.archives)
        if f"{name}/trivial/0" in self.cells:
            return
        examples, _ = self._read(data)
        found = baselines(data, examples["train"], examples["test"])
        self.cells[f"{name}/trivial/0"] = {"scores": found, "commit": commit()}
        self._keep()
        print(name, found, flush=True)

    def store_ratio(self, name: str, epochs: int) -> None:
        """Train for a few epochs on stored layers, and again computing them whenever needed."""
        data = benchmark_data(name, self._options.archives)
        key, setup = f"store/{name}", {**self._setup(data, "elmo"), "epochs": epochs}
        if self._done(key, setup):
            return
        examples, _ = self._read(data)
        length = (f"run.epochs={epochs}", "run.patience=0")
        times = {}
        for case, overrides in (("with", length), ("without", (*length, "inputs.store_gb=0"))):
            with tempfile.TemporaryDirectory() as store:
                times[case] = self._train(
                    data, examples, "elmo", 0, *overrides, store=Path(store), spot=f"store-{case}"
                )[1]
        self.cells[key] = {
            **times,
            "epochs": epochs,
            "setup": setup,
            "machine": _machine(self._options.device),
        }
        self._keep()
        shutil.rmtree(self._options.work / name, ignore_errors=True)

    def _setup(self, data: BenchmarkSet, kind: str) -> dict[str, Any]:
        """What a finished cell must have in common with the one that is asked for."""
        plan, options = PLANS[data.name], self._options
        setup: dict[str, Any] = {
            "recipe": plan.recipe,
            "overrides": list(self._overrides(plan, kind)),
            "config": to_dict(self._config(data, kind, 0)),
            "train": plan.train if options.train is None else options.train,
            "dev": plan.dev if options.dev is None else options.dev,
            "test": options.test,
        }
        source = self._source(data.language, kind)
        if source is not None:
            setup["elmo"] = f"{Path(source.name).name} {source.fingerprint[:12]}"
        if kind in STATIC_KINDS:
            setup["static"] = self._static_file(data.language, kind).name
        return setup

    def _done(self, key: str, setup: dict[str, Any]) -> bool:
        return key in self.cells and self.cells[key]["setup"] == setup

    def _overrides(self, plan: Plan, kind: str) -> tuple[str, ...]:
        epochs = self._options.epochs
        return (
            *plan.overrides,
            *(() if kind.startswith("tuned") else plan.plain),
            *self._options.set,
            *([f"run.epochs={epochs}"] if epochs is not None else []),
        )

    def _config(self, data: BenchmarkSet, kind: str, seed: int, *overrides: str) -> Any:
        plan = PLANS[data.name]
        every = (*self._overrides(plan, kind), f"run.seed={seed}", *overrides)
        return task_settings(data.task, plan.recipe, every)

    def _train(
        self,
        data: BenchmarkSet,
        examples: dict[str, list[Any]],
        kind: str,
        seed: int,
        *overrides: str,
        store: Path,
        spot: str = "",
    ) -> tuple[dict[str, Any], float]:
        """The report of a run, and how many seconds it took with everything."""
        folder = self._options.work / data.name / (spot or f"{kind}-{seed}")
        shutil.rmtree(folder, ignore_errors=True)
        folder.parent.mkdir(parents=True, exist_ok=True)
        start = time.monotonic()
        fit(
            data.task,
            examples["train"],
            examples["dev"],
            test=examples["test"],
            elmo=self._source(data.language, kind),
            static=self._static(data.language, kind) if kind in STATIC_KINDS else None,
            config=self._config(data, kind, seed, *overrides),
            output=folder,
            store=store,
            device=self._options.device,
            quiet=not self._options.verbose,
        )
        seconds = time.monotonic() - start
        report: dict[str, Any] = json.loads((folder / "report.json").read_text("utf-8"))
        shutil.rmtree(folder)
        return report, seconds

    def _read(self, data: BenchmarkSet) -> tuple[dict[str, list[Any]], dict[str, int]]:
        """Examples by part, and how many there would have been."""
        setup = self._setup(data, "none")
        parts = {
            part: list(read_examples(data.task, path, **data.reading))
            for part, path in data.paths.items()
        }
        whole = {part: len(examples) for part, examples in parts.items()}
        return {part: some(examples, setup[part]) for part, examples in parts.items()}, whole

    def _source(self, language: str, kind: str) -> LayerSource | None:
        """The pretrained model of a kind of inputs; each is opened once."""
        if kind in ("none", "static", "glove"):
            return None
        elmo = getattr(self._options, f"elmo_{language}")
        name = self._rivals.get(kind, elmo if kind != "random" else f"random {elmo}")
        if name not in self._elmos:
            if kind == "random":
                own = self._source(language, "elmo")
                assert isinstance(own, ElmoLayers)
                self._elmos[name] = random_weights(own.elmo)
            else:
                several = name.split("+")
                self._elmos[name] = as_layers(name if len(several) == 1 else several)
        return self._elmos[name]

    def _static_file(self, language: str, kind: str) -> Path:
        if "glove" in kind:
            return WHOLE_GLOVE
        given: Path | None = getattr(self._options, f"static_{language}")
        archive, file = STATIC[language]
        return given if given is not None else FOLDER / archive / file

    def _static(self, language: str, kind: str) -> StaticVectors:
        path = self._static_file(language, kind)
        if path not in self._statics:
            if not path.is_file() and path != WHOLE_GLOVE:
                place = archives_folder(self._options.archives) / f"{STATIC[language][0]}.tar.xz"
                with tarfile.open(place) as packed:
                    packed.extractall(FOLDER, filter="data")
            self._statics[path] = StaticVectors(path)
        return self._statics[path]

    def _keep(self) -> None:
        with atomic_file(self._options.cells) as temporary:
            temporary.write_text(json.dumps(self.cells, indent=1) + "\n", "utf-8")


def _numbers(scores: dict[str, Any]) -> dict[str, float]:
    return {name: value for name, value in scores.items() if isinstance(value, int | float)}


def some(examples: list[Any], most: int) -> list[Any]:
    """So many of the examples, drawn with the fixed seed, in their order; all for 0."""
    if not most or most >= len(examples):
        return examples
    chosen = random.Random(SEED).sample(range(len(examples)), most)
    return [examples[place] for place in sorted(chosen)]


def _machine(device: str | None) -> str:
    found = machine()
    cuda = (device or "cuda").startswith("cuda") and torch.cuda.is_available()
    where = torch.cuda.get_device_name() if cuda else found["cpu"]
    return f"{found['date']}, {where}, {torch.get_num_threads()} threads, torch {torch.__version__}"


def commit() -> str:
    """The commit that is measured, with a plus if files differ from it; a dash without git."""
    call = ["git", "-C", str(ROOT), "describe", "--always", "--abbrev=12", "--dirty=+"]
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "-"


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(PLANS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    kinds = [kind for kind in COLUMNS if kind != "first"]  # those weights are no longer here
    usual = [kind for kind in kinds if "glove" not in kind]  # that file may not be there
    parser.add_argument("--inputs", nargs="+", choices=kinds, default=usual)
    parser.add_argument(
        "--rival", nargs="+", default=[], metavar="NAME=PATH",
        help="other encoders, alone: a column each; A+B are two models; NAME has zh for Chinese",
    )  # fmt: skip
    parser.add_argument("--static-en", type=Path, help="static vectors, such as the whole GloVe")
    parser.add_argument("--static-zh", type=Path)
    parser.add_argument("--trivial", action="store_true", help="the baselines without a network")
    parser.add_argument("--elmo-en", default="small-en", help="the English model")
    parser.add_argument("--elmo-zh", default="small-zh", help="the Chinese model")
    parser.add_argument("--device")
    parser.add_argument("--threads", type=int, help="of torch on the CPU")
    parser.add_argument("--epochs", type=int, help="instead of the recipe's")
    parser.add_argument("--set", nargs="+", default=[], metavar="NAME=VALUE", help="settings")
    parser.add_argument("--label", help="the column of these settings, if they are only tried")
    parser.add_argument("--train", type=int, help="the most training examples; 0: all")
    parser.add_argument("--dev", type=int, help="the most development examples; 0: all")
    parser.add_argument("--test", type=int, default=0, help="the most test examples; 0: all")
    parser.add_argument("--store-ratio", type=int, metavar="EPOCHS", help="measure the store")
    parser.add_argument("--archives", type=Path, help="folder of the archives")
    parser.add_argument("--work", type=Path, default=RUNS, help="where runs lie while they train")
    parser.add_argument("--cells", type=Path, default=CELLS, help="where finished cells are kept")
    parser.add_argument("--add", type=Path, nargs="+", default=[], help="cells of other runs")
    parser.add_argument("--table", action="store_true", help="train nothing, show what there is")
    parser.add_argument("--verbose", action="store_true", help="show each run")
    parser.add_argument(
        "--save", nargs="?", const="tasks", metavar="NAME", help="write results/NAME.txt and .json"
    )
    options = parser.parse_args(arguments)
    if options.label and len(options.inputs) != 1:
        parser.error("--label needs one kind of --inputs")
    for name in options.names:
        if name not in PLANS:
            parser.error(f"no set {name!r}. Sets: {', '.join(PLANS)}")
    return options


def main(arguments: Sequence[str] | None = None) -> None:
    options = parsed(arguments)
    if options.threads:
        torch.set_num_threads(options.threads)
    options.cells.parent.mkdir(parents=True, exist_ok=True)
    benchmark = Benchmark(options)
    for name in () if options.table else options.names or PLANS:
        if options.store_ratio:
            benchmark.store_ratio(name, options.store_ratio)
        elif options.trivial:
            benchmark.trivial(name)
        else:
            benchmark.run(name)
    text = table(benchmark.cells, list(RECIPES))
    print(text)
    if options.save:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / f"{options.save}.txt").write_text(text + "\n", "utf-8")
        cells = json.dumps(benchmark.cells, indent=1)
        (RESULTS / f"{options.save}.json").write_text(cells + "\n", "utf-8")


if __name__ == "__main__":
    main()
