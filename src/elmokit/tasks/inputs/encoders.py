"""Any encoder of Hugging Face (BERT, GPT, ...) as a source of layers, sub-words averaged to words.

A word is cut into sub-words by itself. A sentence with more sub-words than the encoder has
positions is read in pieces that end between words.
"""

from __future__ import annotations

import copy
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from elmokit.errors import CheckpointError, MissingExtraError
from elmokit.tasks.inputs.source import LayerModel
from elmokit.text.batching import cut_batches, run_in_batches

BATCH_PIECES = 4096
"""The most sub-words that run together."""
_PASSING_SETTINGS = {"_name_or_path", "transformers_version", "architectures", "dtype"}
"""Settings that say nothing about the vectors."""
_HUB_KERNEL = re.compile(r'"_?(attn|experts)_implementation\w*"\s*:\s*"[^"]*/')


class Piece(NamedTuple):
    """A stretch of a sentence that is read as one."""

    ids: list[int]
    """Its sub-words."""
    owners: list[int]
    """To which token of the batch each belongs."""


class EncoderLayers(LayerModel):
    """The hidden states of an encoder: what enters its first layer, and what each layer gives.

    `source` is its folder, as ``save_pretrained`` writes it.
    """

    kind = "encoder"
    tokenizer = "words"

    def __init__(self, source: str | Path) -> None:
        try:
            from transformers import AutoModel, AutoTokenizer
        except ImportError as error:
            raise MissingExtraError("transformers", "hf", f"the encoder {source}") from error
        self.name: str = str(Path(source).resolve())
        _refuse_hub_kernels(Path(source) / "config.json")
        # Left open, transformers asks on standard input whether to run code of the folder.
        closed = {"local_files_only": True, "trust_remote_code": False}
        try:
            self._words = AutoTokenizer.from_pretrained(self.name, add_prefix_space=True, **closed)
            model = AutoModel.from_pretrained(self.name, **closed)
        except Exception as error:  # whatever its many loaders raise at a folder of others
            reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
            raise CheckpointError(
                f"{source}: transformers cannot load this encoder ({reason}). Code in the folder "
                "is never run"
            ) from None
        if model.config.is_encoder_decoder:
            model = model.get_encoder()
        self.model: Any = model.float().eval().requires_grad_(False)
        self._before, self._after = self._markers()
        self._room = self._positions() - len(self._before) - len(self._after)
        states = self._hidden([Piece(self._cut(["a"])[0], [])], learn=False)
        self.layers: int = len(states)
        self.dim: int = int(states[0].shape[1])
        self._fingerprint = ""
        self._trained = False

    def copied(self) -> EncoderLayers:
        """The same with weights of its own."""
        twin = copy.copy(self)
        twin.model = copy.deepcopy(self.model)
        return twin

    @property
    def fingerprint(self) -> str:
        """A hash of the weights, settings and sub-words."""
        if not self._fingerprint or self._trained:
            settings = self.model.config.to_diff_dict()
            kept = {name: settings[name] for name in settings.keys() - _PASSING_SETTINGS}
            words = sorted(self._words.get_vocab().items())
            text = json.dumps([kept, words], sort_keys=True, default=str)
            digest = hashlib.sha256(text.encode("utf-8", "surrogatepass"))
            for name, tensor in sorted(self.model.state_dict().items()):
                digest.update(name.encode())
                digest.update(tensor.cpu().contiguous().numpy().tobytes())
            self._fingerprint = digest.hexdigest()
        return self._fingerprint

    @property
    def is_stored(self) -> bool:
        """Whether its folder is there, and holds it as it is."""
        return not self._trained and Path(self.name).is_dir()

    def stream(self, sentences: Iterable[Sequence[str]]) -> Iterator[NDArray[np.float32]]:
        """Layers of each sentence, (L + 1, T, D)."""

        def run(batch: list[Sequence[str]]) -> list[NDArray[np.float32]]:
            flat = torch.stack(self.flat(batch, learn=False))  # (L + 1, N, D)
            return [part.cpu().numpy() for part in flat.split([len(t) for t in batch], dim=1)]

        return run_in_batches(sentences, lambda tokens: len(tokens) + 2, run, BATCH_PIECES)

    def flat(self, batch: Sequence[Sequence[str]], *, learn: bool) -> list[Tensor]:
        """Layers of a batch's tokens, the mean over each token's sub-words."""
        pieces = self._pieces(batch)
        count = sum(len(tokens) for tokens in batch)
        order: list[int] = []
        parts: list[list[Tensor]] = [[] for _ in range(self.layers)]
        markers = len(self._before) + len(self._after)
        lengths = [len(piece.ids) + markers for piece in pieces]
        for chosen in cut_batches(lengths, BATCH_PIECES):
            together = [pieces[number] for number in chosen]
            order += [owner for piece in together for owner in piece.owners]
            for part, states in zip(parts, self._hidden(together, learn=learn), strict=True):
                part.append(states)
        owners = torch.tensor(order, dtype=torch.long, device=self._device)
        sizes = torch.bincount(owners, minlength=count).clamp(min=1)[:, None]
        zeros = torch.zeros(count, self.dim, device=self._device)
        return [
            zeros.index_add(0, owners, torch.cat(part)) / sizes if part else zeros for part in parts
        ]  # (N, D) each

    def to(self, device: torch.device) -> None:
        """Move the encoder."""
        self.model.to(device)

    def fine_tune(self) -> tuple[nn.Module, list[list[nn.Parameter]]]:
        """The encoder, and its layers from the top down to what is below and around them."""
        self._trained = True
        stacks = [m for m in self.model.modules() if isinstance(m, nn.ModuleList)]
        blocks = max(stacks, key=lambda stack: sum(p.numel() for p in stack.parameters()))
        stages = [list(block.parameters()) for block in reversed(blocks)]
        taken = {id(p) for stage in stages for p in stage}
        pooler = getattr(self.model, "pooler", None)
        unused = {id(p) for p in pooler.parameters()} if pooler is not None else set()
        stages.append([p for p in self.model.parameters() if id(p) not in taken | unused])
        return _Trained(self.model, [p for stage in stages for p in stage]), stages

    def save(self, path: Path) -> str:
        """Write the encoder as ``save_pretrained`` does."""
        self.model.save_pretrained(path)
        self._words.save_pretrained(path)
        return self.fingerprint

    @property
    def _device(self) -> torch.device:
        device: torch.device = self.model.device
        return device

    def _cut(self, words: Sequence[str]) -> list[list[int]]:
        """Sub-words of each word."""
        found: list[list[int]] = self._words(
            [[word] for word in words],
            is_split_into_words=True,
            add_special_tokens=False,
            return_attention_mask=False,
        )["input_ids"]
        return found

    def _markers(self) -> tuple[list[int], list[int]]:
        """What the tokenizer puts before and after a text."""
        (inner,) = self._cut(["a"])
        whole: list[int] = self._words(["a"], is_split_into_words=True)["input_ids"]
        for start in range(len(whole)):
            if whole[start : start + len(inner)] == inner:
                return whole[:start], whole[start + len(inner) :]
        raise CheckpointError(f"{self.name}: the tokenizer does not keep words apart")

    def _positions(self) -> int:
        """The most sub-words that the encoder reads at once."""
        limits = [int(self._words.model_max_length)]
        most = getattr(self.model.config, "max_position_embeddings", None)
        if most is not None:
            # Models of RoBERTa's family count positions from the padding's number on.
            first = getattr(getattr(self.model, "embeddings", None), "padding_idx", None)
            limits.append(int(most) - (0 if first is None else int(first) + 1))
        return min(limits)

    def _pieces(self, batch: Sequence[Sequence[str]]) -> list[Piece]:
        words = list(dict.fromkeys(word for tokens in batch for word in tokens))
        ids = dict(zip(words, self._cut(words), strict=True)) if words else {}
        pieces: list[Piece] = []
        owner = 0
        for tokens in batch:
            piece = Piece([], [])
            for word in tokens:
                cut = ids[word][: self._room]
                if len(piece.ids) + len(cut) > self._room:
                    pieces.append(piece)
                    piece = Piece([], [])
                piece.ids.extend(cut)
                piece.owners.extend([owner] * len(cut))
                owner += 1
            if piece.ids:
                pieces.append(piece)
        return pieces

    def _hidden(self, pieces: Sequence[Piece], *, learn: bool) -> list[Tensor]:
        """Layers of all sub-words, L + 1 tensors (M, D)."""
        longest = max(len(piece.ids) for piece in pieces)
        around = len(self._before) + len(self._after)
        ids = torch.zeros(len(pieces), longest + around, dtype=torch.long)  # (B, T)
        inner, mask = torch.zeros_like(ids).bool(), torch.zeros_like(ids)
        for row, piece in enumerate(pieces):
            whole = [*self._before, *piece.ids, *self._after]
            ids[row, : len(whole)] = torch.tensor(whole)
            mask[row, : len(whole)] = 1
            inner[row, len(self._before) : len(self._before) + len(piece.ids)] = True
        with nullcontext() if learn else torch.no_grad():
            output = self.model(
                input_ids=ids.to(self._device),
                attention_mask=mask.to(self._device),
                output_hidden_states=True,
            )
            return [states[inner.to(self._device)] for states in output.hidden_states]


def _refuse_hub_kernels(config: Path) -> None:
    """Refuse settings that let transformers download code for the attention and run it."""
    if _HUB_KERNEL.search(config.read_text("utf-8", "replace")):
        raise CheckpointError(
            f"{config}: it names code on the hub (attn_implementation with '/'), which is never "
            "run. Remove the setting"
        )


class _Trained(nn.Module):
    """The trained weights of an encoder, and nothing else of it, as a part of a task's model."""

    def __init__(self, model: nn.Module, parameters: Sequence[nn.Parameter]) -> None:
        super().__init__()
        self.weights = nn.ParameterList(parameters)
        self._follow = model.train

    def train(self, mode: bool = True) -> _Trained:
        """Let the encoder's dropout follow."""
        super().train(mode)
        self._follow(mode)
        return self
