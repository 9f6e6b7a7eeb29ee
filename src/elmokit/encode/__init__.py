"""Stage 4: model → vectors → files.

loading finds and loads a model, elmo holds the `Elmo` class; layers, pooling and states are its
arguments made real; word_cache stands in front of the character CNN; embedding is a layer for your
own PyTorch model; static_vectors reads GloVe, word2vec and fastText; word_averages makes
such tables from contexts; similarity compares; writers put vectors into files, and encoding a whole
stream of texts. language_model is the predicting side of a model: scoring, perplexity, substitutes,
generation and rescoring use it; forward_reader reads with the forward direction alone.
"""
