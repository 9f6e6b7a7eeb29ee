"""What the processes of a distributed test do: joint_run.py FOLDER JOB...

FOLDER holds the corpus. A job is a name in `JOBS`, trained in FOLDER/NAME and resumed if it has a
snapshot; or ``die-RANK-WHEN``: that process kills itself in a step or while it evaluates.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

import torch
from small_runs import SMALL, WORD_INPUT, changed, make_trainer

from elmokit.corpus.shards import TokenCorpus
from elmokit.training import loop
from elmokit.training.display import Display
from elmokit.training.distributed import DistContext, init_distributed
from elmokit.training.loop import LoopConfig, train

_RUN = {"max_steps": 20, "evaluate_every": 10, "save_every": 10}
_BASE = changed(SMALL, run=_RUN, data={"rows": 6})

JOBS = {
    "full": changed(_BASE, loss={"kind": "full"}),
    "sampled": _BASE,
    # One row a process, now three and two, and rare clusters that not every process meets.
    "uneven-adaptive": changed(
        _BASE, data={"rows": 3, "unroll": 2}, loss={"kind": "adaptive", "cutoffs": (8, 25)}
    ),
    "cnn-accumulate": changed(_BASE, loss={"kind": "cnn"}, optimizer={"accumulate": 2}),
    "tied-sgd": changed(
        _BASE,
        loss={"tied": True},
        optimizer={"name": "sgd", "lr": 0.5},
        model={"words": WORD_INPUT},
    ),
}


def do_job(name: str, folder: Path, context: DistContext) -> None:
    """Train; the main process leaves a log with a row for every step."""
    loop.REPORT_EVERY = 1
    kind = name.removeprefix("resumed-").removeprefix("back-")
    corpus = TokenCorpus(folder / "corpus")
    trainer = make_trainer(JOBS.get(kind, _BASE), corpus, folder / name, context)
    if name.startswith("die-"):
        _, rank, when = name.split("-")
        if context.rank == int(rank):
            setattr(trainer, when, lambda *_: os.kill(os.getpid(), signal.SIGKILL))
    if context.is_main:
        (folder / name / "training").mkdir(parents=True, exist_ok=True)
    context.barrier()
    display = Display(folder / name / "training" / "log.jsonl", visible=context.is_main)
    train(
        trainer,
        LoopConfig(20, 10, 10),
        folder=folder / name / "training",
        context=context,
        display=display,
        resume=True,
    )
    weights = torch.cat([p.detach().reshape(-1) for _, p in trainer._named_parameters()])
    if name != "cnn-accumulate":  # only the main process writes the spelled vectors out
        everywhere = context.gather_rows(weights)
        assert all(torch.equal(other, weights) for other in everywhere), "processes drifted apart"
    context.barrier()


def losses(folder: Path) -> dict[int, list[float]]:
    """Losses of each direction by step."""
    lines = (folder / "training" / "log.jsonl").read_text(encoding="utf-8").splitlines()
    entries = [json.loads(line) for line in lines]
    return {entry["step"]: entry["losses"] for entry in entries if entry["kind"] == "train"}


if __name__ == "__main__":
    with init_distributed("cpu") as everyone:
        for job in sys.argv[2:]:
            do_job(job, Path(sys.argv[1]), everyone)
        # torch's gloo threads let go of the last tensors a little later, and must not do that
        # when Python has ended already.
        time.sleep(0.2)
