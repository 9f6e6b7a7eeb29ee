"""`qa`: the piece of a text that answers a question.

files: the example and its files. network: head and settings. task: score and the task itself.
"""
