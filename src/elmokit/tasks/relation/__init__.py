"""`relation`: how two mentions in a sentence relate.

files: the example and its files. task: head, settings, score and the task itself.
"""
