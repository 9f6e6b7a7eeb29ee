"""`coref`: files has the example and its files, task head, settings, score and task."""
