"""`dialogue`: the intent and the slots of a request.

task: the example and its files, head, settings, score and the task itself.
"""

from __future__ import annotations

from elmokit.tasks.dialogue.task import FrameExample

__all__ = ["FrameExample"]
