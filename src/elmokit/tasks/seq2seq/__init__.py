"""`seq2seq`: a text for a text.

files: the example and its files. network: encoder, decoder, beam search and settings. joining:
tokens back to text. task: score and the task itself.
"""

from __future__ import annotations

from elmokit.tasks.seq2seq.files import SequencePair

__all__ = ["SequencePair"]
