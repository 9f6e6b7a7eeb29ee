"""The one training loop, and what it trains: biLMs from raw text.

The data's way: streams reads sentences in rows, batches makes what a step reads, trainer runs
it, heads judge it with losses, optimizers change the weights. loop says when to do which,
snapshots keeps the state, distributed joins processes, display shows progress. pretraining puts
these together, pretrain is what users call.
"""
