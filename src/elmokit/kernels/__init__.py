"""The LSTM's engines: one function signature, several ways to run it.

An engine walks one direction of one layer over a *packed* batch: the tokens of all sentences
stand step by step (first the first token of every sentence, then the second ones, ...), longest
sentence first, so nothing is padded and the rows that are still running are always a prefix.
"""

from elmokit.kernels.reference import Clips, LstmState, LstmWeights, run_lstm

__all__ = ["Clips", "LstmState", "LstmWeights", "run_lstm"]
