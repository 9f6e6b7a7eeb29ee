"""Stage 1: text → tokens → character ids.

corpus reads files line by line, sentences and tokens cut the text, chars and vocab give ids,
inputs joins them for the model, batches groups sentences of similar length.
"""
