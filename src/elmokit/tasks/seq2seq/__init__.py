"""`seq2seq`: a text for a text.

files: the example and its files. network: encoder, decoder, beam search and settings. joining:
tokens back to text. task: score and the task itself.
"""
