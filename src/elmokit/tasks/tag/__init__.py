"""`tag`: one tag per token.

files: the example and its files. task: head, settings and the task itself. spans: schemes of tags,
and their score.
"""

from __future__ import annotations

from elmokit.tasks.tag.files import TaggedExample

__all__ = ["TaggedExample"]
