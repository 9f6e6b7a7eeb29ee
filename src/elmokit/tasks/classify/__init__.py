"""`classify`: the class of a text.

task: the example and its files, head, settings and the task itself.
"""
