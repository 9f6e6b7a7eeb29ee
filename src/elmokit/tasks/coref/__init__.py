"""`coref`: which of two names a pronoun refers to.

files: the example and its files. task: head, settings, score and the task itself.
"""
