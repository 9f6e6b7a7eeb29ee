"""`pair`: how two texts relate.

task: the example and its files, head, settings and the task itself.
"""
