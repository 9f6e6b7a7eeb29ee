"""The LSTM's engines: one function signature, several ways to run it.

An engine walks one direction of one layer over a *packed* batch: the tokens of all sentences
stand step by step (first the first token of every sentence, then the second ones, ...), longest
sentence first, so nothing is padded and the rows that are still running are always a prefix.

reference is the oracle and the way of gradients. slots is inference on CPUs, with products
(packed matrices of three precisions), word_products (the first layer's input product once per
word), run_in_parallel (one direction per core), packed_once and processor (what this machine runs).
"""

from elmokit.engines.reference import (
    Clips,
    LstmState,
    LstmWeights,
    SlotRefill,
    SlotRefills,
    run_lstm,
)

__all__ = ["Clips", "LstmState", "LstmWeights", "SlotRefill", "SlotRefills", "run_lstm"]
