"""`seq2seq`: files has the example and its files, network head and settings, task the rest."""
