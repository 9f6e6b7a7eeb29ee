"""ELMo as models of `transformers`: the biLM, and heads for tokens and for texts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedModel
from transformers import initialization as init
from transformers.modeling_outputs import (
    BaseModelOutput,
    SequenceClassifierOutput,
    TokenClassifierOutput,
)
from transformers.utils.generic import can_return_tuple

from elmokit.config import CharacterConfig
from elmokit.encode.embedder import CNN_BATCH, ROWS
from elmokit.errors import ConfigError, DataError
from elmokit.integrations.hf.configuration import ElmoConfig
from elmokit.model.bilm import BiLM
from elmokit.model.init import initialise
from elmokit.model.packing import Packing
from elmokit.model.scalar_mix import ScalarMix
from elmokit.text.inputs import WordInputs

IGNORED_LABEL = -100
"""As everywhere in transformers: a place that the loss leaves out."""


class ElmoPreTrainedModel(PreTrainedModel):  # type: ignore[misc]
    """What all models share: config, starting weights, loading and saving."""

    config_class = ElmoConfig
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
        """All layers, if they are wanted; the config decides where a call does not."""
        asked = self.config.output_hidden_states if wanted is None else wanted
        return tuple(layers) if asked else None


class ElmoModel(ElmoPreTrainedModel):
    """The biLM. ``last_hidden_state`` is its top layer, ``hidden_states`` are all L + 1 layers.

    Every sentence is read from a zero initial state, so its vectors depend on nothing else.

    Args:
        config: Sizes.
    """

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__(config)
        self.bilm = BiLM(config.sizes())
        self.bilm.mixes.requires_grad_(False)  # kept for `to_elmo`; nothing here uses them
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
        """Give every token its vectors; arguments are what `ElmoTokenizer` gives.

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
                raise DataError(f"this model {verb} {name}; give it what its tokenizer gives")
        if torch.is_grad_enabled():
            # A step may follow, and fused optimizers change weights without torch's notice.
            self.bilm.forget_packed()
        lengths = mask.sum(dim=1).tolist()
        tokens, places = self._tokens(mask, characters, words)
        starts = np.cumsum([0, *lengths[:-1]]) + 2  # rows 0 and 1 are the sentence markers
        order = [
            row
            for start, length in zip(starts.tolist(), lengths, strict=True)
            for row in (0, *range(start, start + length), 1)
        ]
        at = places[torch.tensor(order, device=mask.device)]
        inference = mask.device.type == "cpu" and not torch.is_grad_enabled()
        with_markers = [length + 2 for length in lengths]
        packing = Packing(with_markers, mask.device, rows=ROWS if inference else None)
        states = self.bilm.zero_states(len(lengths))
        inner = torch.tensor([row > 1 for row in order], device=mask.device)
        real = mask.reshape(-1).nonzero().squeeze(1)  # (N,)
        found = []
        for layer in self.bilm.layers(tokens.index_select(0, at), packing, states):
            flat = layer.vectors[inner]  # (N, D)
            padded = flat.new_zeros(mask.numel(), flat.shape[1]).index_copy(0, real, flat)
            found.append(padded.view(*mask.shape, flat.shape[1]))
        return found

    def _tokens(
        self, mask: Tensor, characters: Tensor | None, words: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Each distinct word through the first stage once.

        Returns:
            Their vectors (V, P), and where in them the two sentence markers and then all words of
            the batch are (2 + N,).
        """
        columns = []
        if words is not None:
            markers = torch.tensor(self.config.marker_words, device=mask.device)
            columns.append(torch.cat([markers, words[mask]])[:, None])
        if characters is not None:
            rows = torch.tensor(self.config.marker_characters, device=mask.device)
            columns.append(torch.cat([rows, characters[mask]]))
        table = torch.cat(columns, dim=1)  # (2 + N, 1 + C)
        distinct, places = table.unique(dim=0, return_inverse=True)
        spelled = distinct[:, 1 if words is not None else 0 :]
        if characters is not None:
            spelled = spelled[:, : self._needed_columns(spelled)]
        pieces = [
            self.bilm.encoder(
                WordInputs(
                    characters=spelled[start : start + CNN_BATCH]
                    if characters is not None
                    else None,
                    words=distinct[start : start + CNN_BATCH, 0] if words is not None else None,
                )
            )
            for start in range(0, len(distinct), CNN_BATCH)
        ]
        return torch.cat(pieces), places

    def _needed_columns(self, rows: Tensor) -> int:
        """Columns of padding beyond the widest filter cannot change the maxima."""
        sizes: CharacterConfig = self.config.sizes().characters
        used = int((rows != self.config.character_padding).any(dim=0).nonzero().max()) + 1
        return min(int(rows.shape[1]), used + sizes.widest_filter)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> ElmoModel:
        """Let go of what was computed from the weights when they move."""
        super()._apply(fn, recurse)
        self.bilm.forget_packed()
        return self


class ElmoClassifier(ElmoPreTrainedModel):
    """What models with classes have: the biLM, a learned mix of its layers, and one matrix.

    Args:
        config: Sizes; its labels are the classes.
    """

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__(config)
        self.elmo = ElmoModel(config)
        self.mix = ScalarMix(config.num_hidden_layers + 1)
        self.dropout = nn.Dropout(config.classifier_dropout)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)
        self.post_init()


class ElmoForTokenClassification(ElmoClassifier):
    """A class for each token; arguments as for `ElmoClassifier`."""

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
    ) -> TokenClassifierOutput:
        """Scores of all classes, (B, T, K), and the loss if labels (B, T) are given."""
        layers = self.elmo.all_layers(input_ids, attention_mask, characters, words)
        logits = self.classifier(self.dropout(self.mix(layers)))  # (B, T, K)
        loss = None
        if labels is not None:
            loss = F.cross_entropy(
                logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED_LABEL
            )
        return TokenClassifierOutput(
            loss=loss, logits=logits, hidden_states=self._shown(layers, output_hidden_states)
        )


class ElmoForSequenceClassification(ElmoClassifier):
    """A class for each text, whose words' vectors are pooled; arguments as for `ElmoClassifier`."""

    def __init__(self, config: ElmoConfig) -> None:
        if config.pooling not in ("mean", "max"):
            raise ConfigError(f"pooling={config.pooling!r}: use 'mean' or 'max'")
        super().__init__(config)

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
    ) -> SequenceClassifierOutput:
        """Scores of all classes, (B, K), and the loss if labels are given.

        Labels are classes (B,), or numbers (B,) if there is one label, or zeros and ones (B, K).
        """
        layers = self.elmo.all_layers(input_ids, attention_mask, characters, words)
        mask = word_mask(input_ids, attention_mask)  # (B, T)
        pooled = self._pool(self.mix(layers), mask)  # (B, D)
        logits = self.classifier(self.dropout(pooled))  # (B, K)
        return SequenceClassifierOutput(
            loss=self._loss(logits, labels) if labels is not None else None,
            logits=logits,
            hidden_states=self._shown(layers, output_hidden_states),
        )

    def _pool(self, vectors: Tensor, mask: Tensor) -> Tensor:
        """(B, T, D) to (B, D) over real words; zeros for a text without any."""
        counts = mask.sum(dim=1, keepdim=True)  # (B, 1)
        if self.config.pooling == "mean":
            return vectors.sum(dim=1) / counts.clamp(min=1)  # places without a word are zeros
        if vectors.shape[1] == 0:
            return vectors.sum(dim=1)
        highest = vectors.masked_fill(~mask[:, :, None], -torch.inf).amax(dim=1)
        return highest.masked_fill(counts == 0, 0.0)

    def _loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        kind = self.config.problem_type
        if kind is None:
            if self.config.num_labels == 1:
                kind = "regression"
            else:
                whole = not labels.dtype.is_floating_point
                kind = "single_label_classification" if whole else "multi_label_classification"
        if kind == "regression":
            return F.mse_loss(logits.squeeze(), labels.squeeze().to(logits.dtype))
        if kind == "single_label_classification":
            return F.cross_entropy(logits, labels)
        return F.binary_cross_entropy_with_logits(logits, labels.to(logits.dtype))


def word_mask(input_ids: Any, attention_mask: Any) -> Tensor:
    """Where words are, (B, T)."""
    given = attention_mask if attention_mask is not None else input_ids
    if given is None:
        raise DataError("give attention_mask or input_ids, which say where words are")
    found: Tensor = given != 0
    return found
