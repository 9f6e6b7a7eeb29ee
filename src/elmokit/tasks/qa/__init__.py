"""`qa`: files has the example and its files, network head and settings, task score and task."""
