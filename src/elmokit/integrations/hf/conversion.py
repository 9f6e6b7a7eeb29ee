"""From an `Elmo` to a model and a tokenizer of `transformers`, and back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from elmokit.checkpoints.checkpoint import Checkpoint
from elmokit.config import to_dict
from elmokit.encode.elmo import Elmo
from elmokit.encode.loading import load
from elmokit.integrations.hf.configuration import ElmoConfig
from elmokit.integrations.hf.modeling import ElmoModel
from elmokit.integrations.hf.tokenization import ElmoTokenizer
from elmokit.text.vocab import Vocabulary


def from_elmo(source: Elmo | str | Path | None = None) -> tuple[ElmoModel, ElmoTokenizer]:
    """A model and its tokenizer; what predicts words is left out.

    Args:
        source: A loaded model, or what `elmokit.load` takes.
    """
    elmo = source if isinstance(source, Elmo) else load(source, softmax=False)
    checkpoint = elmo.checkpoint().without_softmax()
    sizes = checkpoint.config
    words = checkpoint.vocabulary.words if checkpoint.vocabulary and sizes.words else None
    tokenizer = ElmoTokenizer(to_dict(sizes), vocabulary=words, symbols=checkpoint.symbols)
    inputs = tokenizer.inputs
    markers = [inputs.begin, inputs.end]
    alphabet = inputs.alphabet
    config = ElmoConfig(
        bilm=to_dict(sizes),
        hidden_size=sizes.dim,
        num_hidden_layers=sizes.layers - 1,
        marker_characters=alphabet.ids(markers, trim=False).tolist() if alphabet else None,
        marker_words=inputs.word_ids(markers).tolist() if inputs.reads_words else None,
        character_padding=alphabet.padding if alphabet else 0,
    )
    model = ElmoModel(config)
    model.bilm.load_state_dict(dict(checkpoint.weights))
    return model.eval(), tokenizer


def to_elmo(model: ElmoModel, tokenizer: ElmoTokenizer) -> Elmo:
    """The model with its present weights as an `Elmo`, with everything that elmokit can do.

    Args:
        model: A model; of one with a head, its attribute ``elmo``.
        tokenizer: Its tokenizer.
    """
    sizes = replace(model.config.sizes(), text=tokenizer.sizes.text)
    weights = {
        name: t.detach().cpu().float().clone() for name, t in model.bilm.state_dict().items()
    }
    words = tokenizer.vocabulary
    return Elmo(
        Checkpoint(
            sizes,
            weights,
            "transformers",
            str(model.config.name_or_path),
            vocabulary=Vocabulary(words, sizes.text) if words is not None else None,
            symbols=tuple(tokenizer.symbols) if tokenizer.symbols is not None else None,
        )
    )
