"""`dialogue`: the intent and the slots of a request.

task: the example and its files, head, settings, score and the task itself.
"""
