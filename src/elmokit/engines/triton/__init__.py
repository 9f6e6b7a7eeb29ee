"""Kernels for GPUs, imported where Triton is installed and the tensors are on a GPU.

char_cnn takes the maxima of the character CNN's filters; lstm is the element-wise half of an LSTM
step, its cells and its outputs; lstm_step is a whole step of inference in bfloat16 or float8;
softmax is the sampled softmax with its gradient; rows sums rows of tables and updates some.
"""
