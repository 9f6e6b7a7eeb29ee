"""Models as files that other programs read."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from elmokit.config import ModelConfig
from elmokit.errors import ElmokitError

MANY_LANGS_MARKS = ("<bos>", "<eos>", "<oov>", "<pad>", "<bow>", "<eow>")


def as_hdf5(source: str, folder: Path) -> Path | None:
    """A model as the HDF5 file that other programs read; None where it cannot be written so."""
    import elmokit

    weights = folder / "hdf5" / "weights.hdf5"
    if source == str(weights):
        return weights
    try:
        elmokit.load(source, softmax=False).export(weights)
    except ElmokitError:
        return None
    return weights


def prepare_many_langs(config: ModelConfig, words: Iterable[str], folder: Path) -> Path:
    """A folder in the layout of ELMoForManyLangs: the same sizes, random weights.

    It has no other format, and its alphabet is made of Unicode characters, so the weights cannot
    be those of the model measured; the work is the same.

    Raises:
        ElmokitError: The program has no such model.
    """
    import torch

    characters, lstm = config.characters, config.lstm
    if characters is None or config.words is not None or not lstm.projection or not lstm.backward:
        raise ElmokitError("elmoformanylangs: reads characters and has two projected directions")
    target = folder / "many-langs"
    target.mkdir()
    symbols = [*sorted({c for word in words for c in word if not c.isspace()}), *MANY_LANGS_MARKS]
    lines = "".join(f"{symbol}\t{number}\n" for number, symbol in enumerate(symbols))
    (target / "char.dic").write_text(lines, encoding="utf-8")
    (target / "config.json").write_text('{"config_path": "sizes.json"}', encoding="utf-8")
    sizes = {
        "encoder": {
            "name": "elmo",
            "projection_dim": lstm.width,
            "cell_clip": lstm.cell_clip,
            "proj_clip": lstm.projection_clip,
            "dim": lstm.cells,
            "n_layers": lstm.layers,
        },
        "token_embedder": {
            "name": "cnn",
            "activation": characters.activation,
            "filters": [list(pair) for pair in characters.filters],
            "n_highway": characters.highways,
            "word_dim": 0,
            "char_dim": characters.dim,
            "max_characters_per_token": characters.max_characters,
        },
        "dropout": 0.0,
    }
    (target / "sizes.json").write_text(json.dumps(sizes), encoding="utf-8")
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator).mul_(float(shape[-1]) ** -0.5)

    width = characters.width
    embedder = {"char_emb_layer.embedding.weight": draw(len(symbols), characters.dim)}
    for number, (span, count) in enumerate(characters.filters):
        embedder[f"convolutions.{number}.weight"] = draw(count, characters.dim, span)
        embedder[f"convolutions.{number}.bias"] = torch.zeros(count)
    for number in range(characters.highways):
        embedder[f"highways._layers.{number}.weight"] = draw(2 * width, width)
        embedder[f"highways._layers.{number}.bias"] = torch.zeros(2 * width)
    embedder["projection.weight"] = draw(lstm.width, width)
    embedder["projection.bias"] = torch.zeros(lstm.width)
    encoder = {}
    for direction in ("forward", "backward"):
        for layer in range(lstm.layers):
            name = f"{direction}_layer_{layer}"
            encoder[f"{name}.input_linearity.weight"] = draw(4 * lstm.cells, lstm.width)
            encoder[f"{name}.state_linearity.weight"] = draw(4 * lstm.cells, lstm.width)
            encoder[f"{name}.state_linearity.bias"] = torch.zeros(4 * lstm.cells)
            encoder[f"{name}.state_projection.weight"] = draw(lstm.width, lstm.cells)
    for file, tensors in (("token_embedder.pkl", embedder), ("encoder.pkl", encoder)):
        # The old form, which torch of 2018 reads.
        torch.save(tensors, target / file, _use_new_zipfile_serialization=False)
    return target
