"""`seq2seq`: a text for a text.

files: the example and its files, tokens back to text. network: encoder, decoder, beam search and
settings. task: score and the task itself.
"""
