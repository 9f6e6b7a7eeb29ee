"""`qa`: the piece of a text that answers a question.

files: the example and its files. network: head and settings. task: score and the task itself.
"""

from __future__ import annotations

from elmokit.tasks.qa.files import Answer, QuestionExample

__all__ = ["Answer", "QuestionExample"]
