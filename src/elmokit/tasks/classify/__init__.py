"""`classify`: the class of a text.

task: the example and its files, head, settings and the task itself.
"""

from __future__ import annotations

from elmokit.tasks.classify.task import TextExample

__all__ = ["TextExample"]
