"""`tag`: files has the example and its files, spans schemes and scores, task the rest."""
