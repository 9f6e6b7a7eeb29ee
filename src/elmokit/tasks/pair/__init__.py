"""`pair`: how two texts relate.

task: the example and its files, head, settings and the task itself.
"""

from __future__ import annotations

from elmokit.tasks.pair.task import PairExample

__all__ = ["PairExample"]
