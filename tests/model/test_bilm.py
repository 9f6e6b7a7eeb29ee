"""The model's parts: layout, packing, character CNN, mix."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from elmokit import ConfigError, ScalarMix
from elmokit.config import CharacterConfig, published_shape
from elmokit.engines import LstmState
from elmokit.model.bilm import tensor_shapes
from elmokit.model.char_cnn import CharacterCnn
from elmokit.model.packing import Packing


@pytest.mark.parametrize(
    ("name", "parameters"),
    [("small", 13_593_296), ("medium", 28_027_728), ("original", 93_600_848)],
)
def test_published_shapes_have_their_published_sizes(name, parameters):
    shapes = tensor_shapes(published_shape(name))
    # Files hold 261 character rows; the padding token's row of 16 zeros is ours.
    assert sum(int(np.prod(shape)) for shape in shapes.values()) == parameters + 16


def test_published_shape_of_another_name_is_refused():
    with pytest.raises(ConfigError, match="small, medium, original"):
        published_shape("large")


@given(st.lists(st.integers(1, 9), min_size=1, max_size=8))
def test_packing_reads_both_ways_and_comes_back(lengths):
    packing = Packing(lengths, torch.device("cpu"))
    total = sum(lengths)
    flat = torch.arange(total)
    sentence = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
    assert packing.batch_sizes == sorted(packing.batch_sizes, reverse=True)
    assert sum(packing.batch_sizes) == total
    directions = ("forward", "backward")
    packed = packing.pack(flat, directions)  # (D, N)
    for half in packing.unpack(packed, directions):
        torch.testing.assert_close(half, flat)
    for own, owner, sign in zip(packed, packing.pack(sentence, directions), (1, -1), strict=True):
        for i in range(len(lengths)):  # each sentence is read in its direction, without gaps
            assert (own[owner == i].diff() == sign).all()
    rows = LstmState(*torch.rand(2, 2, len(lengths), 1))
    for part, again in zip(rows, packing.restore(packing.sort(rows)), strict=True):
        torch.testing.assert_close(again, part)


@given(st.integers(2, 20), st.integers(0, 2**31))
def test_trimmed_columns_do_not_change_the_cnn(length, seed):
    config = CharacterConfig(dim=3, filters=((1, 4), (3, 5), (5, 6)), highways=1)
    torch.manual_seed(seed)
    cnn = CharacterCnn(config).double()
    for parameter in cnn.parameters():
        torch.nn.init.normal_(parameter)
    full = torch.full((1, 50), 261)
    full[0, :length] = torch.randint(0, 261, (length,))
    trimmed = full[:, : length + config.widest_filter]
    torch.testing.assert_close(cnn(trimmed), cnn(full))


def test_mix_is_the_papers_formula():
    layers = [torch.randn(2, 3, 4, dtype=torch.float64) for _ in range(3)]
    mix = ScalarMix(3, weights=[0.3, -1.0, 2.0], gamma=1.7)
    s = np.exp([0.3, -1.0, 2.0])
    want = 1.7 * sum(w * layer.numpy() for w, layer in zip(s / s.sum(), layers, strict=True))
    np.testing.assert_allclose(mix(layers).detach().numpy(), want, rtol=1e-5, atol=1e-6)


def test_mix_starts_as_the_plain_mean_and_learns():
    layers = [torch.randn(5, 4) for _ in range(3)]
    mix = ScalarMix(3)
    torch.testing.assert_close(mix(layers), torch.stack(layers).mean(0))
    mix(layers).square().sum().backward()
    assert mix.weights.grad.abs().sum() > 0
    assert mix.gamma.grad.abs() > 0


def test_frozen_mix_does_not_learn():
    mix = ScalarMix(2, weights=[9.0, 1.0], trainable=False)
    assert not any(parameter.requires_grad for parameter in mix.parameters())


def test_mix_refuses_another_number_of_layers():
    with pytest.raises(ConfigError, match="made for 3 layers, given 2"):
        ScalarMix(3)([torch.zeros(1), torch.zeros(1)])
    with pytest.raises(ConfigError, match="3 layers but 2 weights"):
        ScalarMix(3, weights=[1.0, 2.0])


def test_layer_norm_mix_matches_the_original_definition():
    # One mean and one variance over all elements of a layer, as bilm-tf computes it.
    layers = [torch.randn(7, 4) * 3 + 1 for _ in range(2)]
    want = sum((v - v.mean()) / v.std() for v in (layer.double().numpy() for layer in layers)) / 2
    mix = ScalarMix(2, layer_norm=True)
    np.testing.assert_allclose(mix(layers).detach().numpy(), want, rtol=1e-4, atol=1e-5)
