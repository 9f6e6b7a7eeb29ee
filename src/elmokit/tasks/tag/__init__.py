"""`tag`: files has the example and files, spans schemes, marginals probabilities, task the rest."""
