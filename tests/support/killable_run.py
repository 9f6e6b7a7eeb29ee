"""A small run that is resumed whenever it is started again: killable_run.py FOLDER [PAUSE].

FOLDER holds the corpus; the model goes to FOLDER/model. PAUSE seconds pass between two steps, so
that a signal falls into the run and not into Python's start or end. FOLDER/started appears when
the imports are done.
"""

import sys
import time
from dataclasses import replace
from pathlib import Path

from small_runs import SMALL, changed

from elmokit.training import pretrain as module
from elmokit.training.settings import PretrainConfig
from elmokit.training.trainer import PretrainTrainer


def killable(folder: Path) -> PretrainConfig:
    config = changed(
        SMALL,
        data={"rows": 4},
        run={"max_steps": 60, "evaluate_every": 12, "save_every": 4, "dropout": 0.2},
    )
    return replace(config, corpus=(str(folder / "corpus"),), output=str(folder / "model"))


def main() -> None:
    folder = Path(sys.argv[1])
    pause = float(sys.argv[2]) if len(sys.argv) > 2 else 0.0
    step = PretrainTrainer.step

    def slow_step(self: PretrainTrainer, number: int) -> object:
        time.sleep(pause)
        return step(self, number)

    PretrainTrainer.step = slow_step  # type: ignore[method-assign]
    module.draw_curves = lambda *_: False  # seconds of drawing are not what is tested
    (folder / "started").touch()
    module.pretrain(killable(folder), resume=True)


if __name__ == "__main__":
    main()
