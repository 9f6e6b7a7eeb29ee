"""Stage 5: vectors → answers.

The data's way: readers turn files into examples; inputs turn tokens into vectors, and embedder puts
them side by side; heads holds one module a task (how to add one stands there), built from encoder,
classes and crf; scores compare answers with the truth. model joins inputs and head, work is what
the one training loop drives, fitting trains, predictor answers and is saved, report says how it
went, comparison does it with and without ELMo.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from elmokit.lazy import lazy_names

_HOMES = {
    "fit": "elmokit.tasks.fitting",
    "compare": "elmokit.tasks.comparison",
    "Predictor": "elmokit.tasks.predictor",
    "get_task": "elmokit.tasks.heads",
    "read_examples": "elmokit.tasks.readers",
    "write_examples": "elmokit.tasks.readers",
}

if TYPE_CHECKING:
    from elmokit.tasks.comparison import compare
    from elmokit.tasks.fitting import fit
    from elmokit.tasks.heads import get_task
    from elmokit.tasks.predictor import Predictor
    from elmokit.tasks.readers import read_examples, write_examples
else:
    __getattr__, __dir__ = lazy_names(__name__, _HOMES)

__all__ = ["Predictor", "compare", "fit", "get_task", "load", "read_examples", "write_examples"]


def load(folder: Any, **options: Any) -> Predictor:
    """Read a predictor; arguments as for `Predictor.load`."""
    from elmokit.tasks.predictor import Predictor

    return Predictor.load(folder, **options)
