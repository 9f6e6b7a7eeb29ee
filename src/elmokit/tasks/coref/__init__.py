"""`coref`: which of two names a pronoun refers to.

files: the example and its files. task: head, settings, score and the task itself.
"""

from __future__ import annotations

from elmokit.tasks.coref.files import CorefExample, Mention

__all__ = ["CorefExample", "Mention"]
