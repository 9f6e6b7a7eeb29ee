"""What torch does slowly on CPUs while a task's network trains: dropout, a biLSTM over texts.

Both give what torch's own give, and on other devices they are torch's own.

`Dropout`: torch draws one random number per element, one after another. Here 64 random bits serve
four elements.

`bilstm`: of texts of several lengths, packed, torch runs every step as single operations. A padded
batch goes to oneDNN as a whole, twice as fast; the padding is kept out by the input gate. Where
most of a batch is padding, it stays packed.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

_LEVELS = 1 << 16
"""Probabilities of dropout are rounded to multiples of one over this."""
_LEAST_TOKENS = 0.5
"""Share of real tokens from which a padded batch is the faster one."""
_CLOSED = -1e4
"""Added to an input gate, closes it: its sigmoid is zero, and so is its gradient."""


def dropout(x: Tensor, p: float, *, training: bool = True) -> Tensor:
    """Zero elements with probability `p`, and scale the others up."""
    level = round(p * _LEVELS)
    plain = x.device.type != "cpu" or torch.compiler.is_compiling()
    if plain or not training or not 0 < level < _LEVELS:
        return F.dropout(x, p, training)
    words = torch.empty(-(-x.numel() // 4), dtype=torch.int64, device="cpu")
    bits = words.random_(-(1 << 63), None).view(torch.int16)[: x.numel()].view(x.shape)
    kept = (bits >= level - _LEVELS // 2).to(x.dtype)
    return x * kept.mul_(_LEVELS / (_LEVELS - level))


class Dropout(nn.Dropout):
    """`torch.nn.Dropout`, faster on a CPU, and never in place."""

    def __init__(self, p: float = 0.5) -> None:
        super().__init__(p)

    def forward(self, input: Tensor) -> Tensor:
        """Zero elements while training."""
        return dropout(input, self.p, training=self.training)


def bilstm(lstm: nn.LSTM, x: Tensor, lengths: Tensor) -> Tensor:
    """Run a bidirectional LSTM over padded texts.

    Args:
        lstm: With ``batch_first``.
        x: (B, T, width); what is beyond a text's end does not matter, if it is finite.
        lengths: Tokens of each text, (B,), at least one, on the host.

    Returns:
        (B, T, 2 cells); what is beyond a text's end means nothing.
    """
    sparse = int(lengths.sum()) < _LEAST_TOKENS * x.shape[0] * x.shape[1]
    if x.device.type != "cpu" or sparse:
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        return pad_packed_sequence(lstm(packed)[0], batch_first=True, total_length=x.shape[1])[0]
    # The backward direction reads the padding first. One more feature, which is 1 there, closes
    # its input gate, so that its state is still zero when it comes to the text's last token.
    beyond = torch.arange(x.shape[1], device="cpu") >= lengths[:, None]  # (B, T)
    closed = x.new_zeros(4 * lstm.hidden_size, 1)
    closed[: lstm.hidden_size] = _CLOSED
    state = x.new_zeros(2, len(x), lstm.hidden_size)
    for layer in range(lstm.num_layers):
        if layer:
            x = dropout(x, lstm.dropout, training=lstm.training)
        weights = []
        for way in ("", "_reverse"):
            names = (
                f"{kind}_l{layer}{way}" for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
            )
            entering, *others = (getattr(lstm, name) for name in names)
            weights += [torch.cat([entering, closed.to(entering.dtype)], dim=1), *others]
        x = torch.cat([x, beyond[:, :, None].to(x.dtype)], dim=2)  # (B, T, width + 1)
        x = torch.lstm(x, (state, state), weights, True, 1, 0.0, lstm.training, True, True)[0]
    return x
