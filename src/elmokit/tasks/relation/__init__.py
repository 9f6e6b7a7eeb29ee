"""`relation`: how two mentions in a sentence relate.

files: the example and its files. task: head, settings, score and the task itself.
"""

from __future__ import annotations

from elmokit.tasks.relation.files import RelationExample

__all__ = ["RelationExample"]
