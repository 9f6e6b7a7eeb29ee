"""ELMo as models of `transformers`: the config, the biLM, and heads for tokens and for texts.

`from_elmo` and `to_elmo` convert between them and an `Elmo`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PretrainedConfig, PreTrainedModel
from transformers import initialization as init
from transformers.modeling_outputs import (
    BaseModelOutput,
    ModelOutput,
    SequenceClassifierOutput,
    TokenClassifierOutput,
)
from transformers.utils.generic import can_return_tuple

from elmokit.checkpoints.checkpoint import Checkpoint
from elmokit.checkpoints.transformers_folder import MODEL_TYPE
from elmokit.config import ModelConfig, from_dict, to_dict
from elmokit.encode.elmo import Elmo
from elmokit.encode.loading import load
from elmokit.errors import ConfigError, DataError
from elmokit.integrations.hf.tokenization import ElmoTokenizer
from elmokit.model.bilm import BiLM
from elmokit.model.init import initialise
from elmokit.model.packing import Packing, inside
from elmokit.model.scalar_mix import ScalarMix
from elmokit.text.inputs import WordInputs
from elmokit.text.vocab import Vocabulary

IGNORED_LABEL = -100
"""The label that the loss leaves out, as everywhere in transformers."""


class ElmoConfig(PretrainedConfig):  # type: ignore[misc]
    """Sizes of the biLM and of the heads above it; `from_elmo` makes one.

    Args:
        bilm: The biLM's own config, as `elmokit.config.to_dict` gives it.
        hidden_size: Width of a token's vector, 2P.
        num_hidden_layers: LSTM layers, L; there is one more layer of hidden states.
        marker_characters: Character ids of the words that open and close a sentence.
        marker_words: Word ids of the same.
        character_padding: The character id that fills a word's row.
        pooling: How a text's tokens become one vector for its class: ``"mean"`` or ``"max"``.
        classifier_dropout: Before the classes, in training.
    """

    model_type = MODEL_TYPE

    bilm: dict[str, Any] | None = None
    hidden_size: int = 0
    num_hidden_layers: int = 0
    marker_characters: list[list[int]] | None = None
    marker_words: list[int] | None = None
    character_padding: int = 0
    pooling: str = "mean"
    classifier_dropout: float = 0.1
    pad_token_id: int | None = 0

    def sizes(self) -> ModelConfig:
        """The biLM's own config."""
        return from_dict(ModelConfig, self.bilm or {}, "bilm")


class ElmoPreTrainedModel(PreTrainedModel):  # type: ignore[misc]
    """What all models share: config, initial weights, loading and saving."""

    config_class: type[ElmoConfig] = ElmoConfig
    base_model_prefix = "elmo"
    main_input_name = "input_ids"
    accepts_loss_kwargs = False  # losses are means over a batch

    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, ScalarMix):
            init.zeros_(module.weights)
            init.ones_(module.gamma)
        elif not isinstance(module, nn.Linear):  # the heads'
            initialise(module, self.config.sizes())

    def _shown(self, layers: list[Tensor], wanted: bool | None) -> tuple[Tensor, ...] | None:
        """All layers, if the call or else the config wants them."""
        show = self.config.output_hidden_states if wanted is None else wanted
        return tuple(layers) if show else None


class ElmoModel(ElmoPreTrainedModel):
    """The biLM. ``last_hidden_state`` is its top layer, ``hidden_states`` are all L + 1 layers.

    Every sentence starts from a zero initial state: its vectors are independent of the batch.

    Args:
        config: Sizes.
    """

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__(config)
        self.bilm: BiLM = BiLM(config.sizes())
        self.bilm.mixes.requires_grad_(False)  # only `to_elmo` uses them
        self.post_init()

    @can_return_tuple  # type: ignore[untyped-decorator]
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        characters: Tensor | None = None,
        words: Tensor | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
    ) -> BaseModelOutput:
        """The vectors of every token; arguments are what `ElmoTokenizer` returns.

        Args:
            input_ids: Where words are, (B, T): not 0; needed only without an attention mask.
            attention_mask: Where words are, (B, T): 1.
            characters: Character ids of each word, (B, T, C).
            words: Word ids, (B, T), for models that read words.
            output_hidden_states: Give all layers.
            return_dict: False gives a plain tuple.
        """
        layers = self.all_layers(input_ids, attention_mask, characters, words)
        return BaseModelOutput(
            last_hidden_state=layers[-1], hidden_states=self._shown(layers, output_hidden_states)
        )

    def all_layers(
        self,
        input_ids: Tensor | None,
        attention_mask: Tensor | None,
        characters: Tensor | None,
        words: Tensor | None,
    ) -> list[Tensor]:
        """All layers, (B, T, D) each, zeros where no word is."""
        mask = word_mask(input_ids, attention_mask)  # (B, T)
        sizes = self.config.sizes()
        for name, given, read in (
            ("characters", characters, sizes.characters),
            ("words", words, sizes.words),
        ):
            if (given is None) != (read is None):
                verb = "needs" if given is None else "does not read"
                raise DataError(f"this model {verb} {name}; pass what its tokenizer returns")
        if torch.is_grad_enabled():
            # A step may follow, and fused optimizers change weights without raising their version.
            self.bilm.forget_prepared()
        lengths = mask.sum(dim=1).tolist()
        tokens, indices = self._tokens(mask, characters, words)
        with_markers = [length + 2 for length in lengths]
        inner = inside(with_markers, mask.device)
        # Rows 0 and 1 of `indices` are the sentence markers, the others are the words in order.
        order = torch.ones(sum(with_markers), dtype=torch.long, device=mask.device)
        order[np.cumsum([0, *with_markers[:-1]])] = 0
        order[inner] = torch.arange(2, 2 + len(inner), device=mask.device)
        packing = Packing(with_markers, mask.device, rows=self.bilm.plan().rows)
        states = self.bilm.zero_states(len(lengths))
        real = mask.reshape(-1).nonzero().squeeze(1)  # (N,)
        found = []
        for layer in self.bilm(tokens.index_select(0, indices[order]), packing, states):
            flat = layer.vectors.index_select(0, inner)  # (N, D)
            padded = flat.new_zeros(mask.numel(), flat.shape[1]).index_copy(0, real, flat)
            found.append(padded.view(*mask.shape, flat.shape[1]))
        return found

    def _tokens(
        self, mask: Tensor, characters: Tensor | None, words: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Embed each distinct word once.

        Gives their vectors (V, P), and where in them the two sentence markers and then all words
        of the batch are (2 + N,).
        """
        columns = []
        if words is not None:
            markers = torch.tensor(self.config.marker_words, device=mask.device)
            columns.append(torch.cat([markers, words[mask]])[:, None])
        if characters is not None:
            rows = torch.tensor(self.config.marker_characters, device=mask.device)
            columns.append(torch.cat([rows, characters[mask]]))
        table = torch.cat(columns, dim=1)  # (2 + N, 1 + C)
        distinct, indices = table.unique(dim=0, return_inverse=True)
        char_ids = distinct[:, 1 if words is not None else 0 :]
        if characters is not None:
            # Columns of padding beyond the widest filter cannot change the maxima.
            used = int((char_ids != self.config.character_padding).any(dim=0).nonzero().max()) + 1
            char_ids = char_ids[:, : used + self.config.sizes().characters.widest_filter]
        size = self.bilm.plan().cnn_words
        pieces = [
            self.bilm.encoder(
                WordInputs(
                    characters=char_ids[start : start + size] if characters is not None else None,
                    words=distinct[start : start + size, 0] if words is not None else None,
                )
            )
            for start in range(0, len(distinct), size)
        ]
        return torch.cat(pieces), indices

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> ElmoModel:
        """Drop prepacked weights when the weights move."""
        super()._apply(fn, recurse)
        self.bilm.forget_prepared()
        return self


class ElmoForClassification(ElmoPreTrainedModel):
    """What both heads share: the biLM, a trained mix of its layers, and one linear layer.

    Args:
        config: Sizes; its labels are the classes.
    """

    output_type: type[ModelOutput]

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__(config)
        self.elmo: ElmoModel = ElmoModel(config)
        self.mix: ScalarMix = ScalarMix(config.num_hidden_layers + 1)
        self.dropout: nn.Dropout = nn.Dropout(config.classifier_dropout)
        self.classifier: nn.Linear = nn.Linear(config.hidden_size, config.num_labels)
        self.post_init()

    @can_return_tuple  # type: ignore[untyped-decorator]
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        characters: Tensor | None = None,
        words: Tensor | None = None,
        labels: Tensor | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
    ) -> ModelOutput:
        """Logits of all classes, and the loss if labels are given; see the subclass."""
        layers = self.elmo.all_layers(input_ids, attention_mask, characters, words)
        features = self._features(self.mix(layers), word_mask(input_ids, attention_mask))
        logits = self.classifier(self.dropout(features))
        return self.output_type(
            loss=self._loss(logits, labels) if labels is not None else None,
            logits=logits,
            hidden_states=self._shown(layers, output_hidden_states),
        )

    def _features(self, vectors: Tensor, mask: Tensor) -> Tensor:
        """What is classified, of mixed layers (B, T, D) and the mask (B, T)."""
        raise NotImplementedError

    def _loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        raise NotImplementedError


class ElmoForTokenClassification(ElmoForClassification):
    """A class per token: labels (B, T) give logits (B, T, K)."""

    output_type: type[TokenClassifierOutput] = TokenClassifierOutput

    def _features(self, vectors: Tensor, mask: Tensor) -> Tensor:
        return vectors

    def _loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED_LABEL)


class ElmoForSequenceClassification(ElmoForClassification):
    """A class per text, whose words' vectors are pooled: logits (B, K).

    Labels are classes (B,), or numbers (B,) if there is one label, or zeros and ones (B, K).
    """

    output_type: type[SequenceClassifierOutput] = SequenceClassifierOutput

    def __init__(self, config: ElmoConfig) -> None:
        if config.pooling not in ("mean", "max"):
            raise ConfigError(f"pooling={config.pooling!r}: use 'mean' or 'max'")
        super().__init__(config)

    def _features(self, vectors: Tensor, mask: Tensor) -> Tensor:
        """(B, T, D) to (B, D) over real words; zeros for a text without any."""
        counts = mask.sum(dim=1, keepdim=True)  # (B, 1)
        if self.config.pooling == "mean":
            return vectors.sum(dim=1) / counts.clamp(min=1)  # padding is zeros
        if vectors.shape[1] == 0:
            return vectors.sum(dim=1)
        highest = vectors.masked_fill(~mask[:, :, None], -torch.inf).amax(dim=1)
        return highest.masked_fill(counts == 0, 0.0)

    def _loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        kind = self.config.problem_type
        if kind == "regression" or (kind is None and self.config.num_labels == 1):
            return F.mse_loss(logits.squeeze(), labels.squeeze().to(logits.dtype))
        integral = not labels.dtype.is_floating_point
        if kind == "single_label_classification" or (kind is None and integral):
            return F.cross_entropy(logits, labels)
        return F.binary_cross_entropy_with_logits(logits, labels.to(logits.dtype))


def word_mask(input_ids: Tensor | None, attention_mask: Tensor | None) -> Tensor:
    """Where words are, (B, T)."""
    given = attention_mask if attention_mask is not None else input_ids
    if given is None:
        raise DataError("give attention_mask or input_ids: they mark where words are")
    return given != 0


def from_elmo(source: Elmo | str | Path | None = None) -> tuple[ElmoModel, ElmoTokenizer]:
    """A model and its tokenizer, without the softmax.

    Args:
        source: A loaded model, or what `elmokit.load` takes.
    """
    elmo = source if isinstance(source, Elmo) else load(source, softmax=False, device="cpu")
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
    """The model with its current weights as an `Elmo`.

    Args:
        model: A model; of one with a head, its attribute ``elmo``.
        tokenizer: Its tokenizer.
    """
    sizes = replace(model.config.sizes(), text=tokenizer.sizes.text)
    weights = {
        name: t.detach().cpu().float().clone() for name, t in model.bilm.state_dict().items()
    }
    words, symbols = tokenizer.vocabulary, tokenizer.symbols
    checkpoint = Checkpoint(
        sizes,
        weights,
        "transformers",
        str(model.config.name_or_path),
        vocabulary=Vocabulary(words, sizes.text) if words is not None else None,
        symbols=tuple(symbols) if symbols is not None else None,
    )
    return Elmo(checkpoint)
