"""`tag`: one tag per token.

files: the example and its files. task: head, settings and the task itself. spans: schemes of tags,
and their score.
"""
