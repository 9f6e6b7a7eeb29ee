"""Encoders of sub-words (BERT, GPT, ...) as a source of layers: a word is one or all of its pieces.

`EncoderLayers` is the folder of an encoder that transformers loads, `OnnxLayers` an ONNX graph with
its tokenizer, run by onnxruntime; `PieceLayers` is what both share. A word is cut into sub-words by
itself. A sentence with more sub-words than the encoder has positions is read in pieces that end
between words.
"""

from __future__ import annotations

import copy
import hashlib
import json
import re
import shutil
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from elmokit.errors import CheckpointError, ConfigError, MissingExtraError, reason
from elmokit.files import read_json
from elmokit.tasks.inputs.source import LayerModel
from elmokit.text.batching import cut_batches, run_in_batches

Pieces: TypeAlias = Literal["mean", "first", "last"]
BATCH_PIECES = 4096
"""The most sub-words that run together."""
TOKENIZER_FILE = "tokenizer.json"
_USUAL_POSITIONS = 512
_PASSING_SETTINGS = {"_name_or_path", "transformers_version", "architectures", "dtype"}
"""Settings that say nothing about the vectors."""
_HUB_KERNEL = re.compile(r'"_?(attn|experts)_implementation\w*"\s*:\s*"[^"]*/')


class Piece(NamedTuple):
    """A stretch of a sentence that is read as one."""

    ids: list[int]
    """Its sub-words."""
    owners: list[int]
    """To which token of the batch each belongs."""


class PieceLayers(LayerModel):
    """An encoder of sub-words.

    Attributes:
        pieces: What the vector of a word is: the mean over its sub-words, its first, or its last.
    """

    tokenizer = "words"
    pieces: Pieces
    _before: list[int]
    _after: list[int]
    _room: int
    """The most sub-words of a text that are read at once."""

    def stream(self, sentences: Iterable[Sequence[str]]) -> Iterator[NDArray[np.float32]]:
        """Layers of each sentence, (L + 1, T, D)."""

        def run(batch: list[Sequence[str]]) -> list[NDArray[np.float32]]:
            flat = torch.stack(self.flat(batch, learn=False))  # (L + 1, N, D)
            return [part.cpu().numpy() for part in flat.split([len(t) for t in batch], dim=1)]

        return run_in_batches(sentences, lambda tokens: len(tokens) + 2, run, BATCH_PIECES)

    def flat(self, batch: Sequence[Sequence[str]], *, learn: bool) -> list[Tensor]:
        """Layers of a batch's tokens, from each token's sub-words as `pieces` says."""
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
        zeros = torch.zeros(count, self.dim, device=self._device)
        if self.pieces != "mean":
            numbered = list(enumerate(order))
            chosen_of = {o: i for i, o in (numbered if self.pieces == "last" else numbered[::-1])}
            rows = torch.tensor(list(chosen_of.values()), dtype=torch.long, device=self._device)
            index = torch.tensor(list(chosen_of), dtype=torch.long, device=self._device)
            return [
                zeros.index_copy(0, index, torch.cat(part)[rows]) if part else zeros
                for part in parts
            ]  # (N, D) each
        owners = torch.tensor(order, dtype=torch.long, device=self._device)
        sizes = torch.bincount(owners, minlength=count).clamp(min=1)[:, None]
        return [
            zeros.index_add(0, owners, torch.cat(part)) / sizes if part else zeros for part in parts
        ]  # (N, D) each

    def _read_markers(self) -> None:
        """Find what the tokenizer puts before and after a text, and how much goes between."""
        self._before, self._after = self._markers()
        self._room = self._positions() - len(self._before) - len(self._after)

    def _markers(self) -> tuple[list[int], list[int]]:
        """What the tokenizer puts before and after a text."""
        (inner,) = self._cut(["a"])
        whole = self._marked("a")
        for start in range(len(whole)):
            if whole[start : start + len(inner)] == inner:
                return whole[:start], whole[start + len(inner) :]
        raise CheckpointError(f"{self.name}: the tokenizer does not keep words apart")

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

    def _batch(self, pieces: Sequence[Piece]) -> tuple[Tensor, Tensor, Tensor]:
        """Ids and mask of pieces with their markers, and where their own sub-words are, (B, T)."""
        longest = max(len(piece.ids) for piece in pieces)
        around = len(self._before) + len(self._after)
        ids = torch.zeros(len(pieces), longest + around, dtype=torch.long)
        inner, mask = torch.zeros_like(ids).bool(), torch.zeros_like(ids)
        for row, piece in enumerate(pieces):
            whole = [*self._before, *piece.ids, *self._after]
            ids[row, : len(whole)] = torch.tensor(whole)
            mask[row, : len(whole)] = 1
            inner[row, len(self._before) : len(self._before) + len(piece.ids)] = True
        return ids, mask, inner

    def _hash(self, digest: Any) -> str:
        """A digest of what is read, and of how it becomes words."""
        if self.pieces != "mean":
            digest.update(f"{self.pieces} piece".encode())
        return str(digest.hexdigest())

    @property
    @abstractmethod
    def _device(self) -> torch.device:
        """Where vectors are made."""

    @abstractmethod
    def _cut(self, words: Sequence[str]) -> list[list[int]]:
        """Sub-words of each word."""

    @abstractmethod
    def _marked(self, word: str) -> list[int]:
        """Sub-words of a text of one word, with the markers around it."""

    @abstractmethod
    def _positions(self) -> int:
        """The most sub-words that the encoder reads at once, markers included."""

    @abstractmethod
    def _hidden(self, pieces: Sequence[Piece], *, learn: bool) -> list[Tensor]:
        """Layers of all sub-words, L + 1 tensors (M, D)."""


class EncoderLayers(PieceLayers):
    """The hidden states of an encoder: what enters its first layer, and what each layer gives.

    `source` is its folder, as ``save_pretrained`` writes it.
    """

    kind = "encoder"

    def __init__(self, source: str | Path, pieces: Pieces = "mean") -> None:
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
        self.pieces: Pieces = pieces
        self._read_markers()
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
            self._fingerprint = self._hash(digest)
        return self._fingerprint

    @property
    def is_stored(self) -> bool:
        """Whether its folder is there, and holds it as it is."""
        return not self._trained and Path(self.name).is_dir()

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

    def _marked(self, word: str) -> list[int]:
        """Sub-words of a text of one word, with the markers around it."""
        found: list[int] = self._words([word], is_split_into_words=True)["input_ids"]
        return found

    def _positions(self) -> int:
        """The most sub-words that the encoder reads at once."""
        limits = [int(self._words.model_max_length)]
        most = getattr(self.model.config, "max_position_embeddings", None)
        if most is not None:
            # Models of RoBERTa's family count positions from the padding's number on.
            first = getattr(getattr(self.model, "embeddings", None), "padding_idx", None)
            limits.append(int(most) - (0 if first is None else int(first) + 1))
        return min(limits)

    def _hidden(self, pieces: Sequence[Piece], *, learn: bool) -> list[Tensor]:
        """Layers of all sub-words, L + 1 tensors (M, D)."""
        ids, mask, inner = self._batch(pieces)
        with nullcontext() if learn else torch.no_grad():
            output = self.model(
                input_ids=ids.to(self._device),
                attention_mask=mask.to(self._device),
                output_hidden_states=True,
            )
            return [states[inner.to(self._device)] for states in output.hidden_states]


class OnnxLayers(PieceLayers):
    """An encoder as an ONNX graph with token vectors, run by onnxruntime on the CPU.

    Its outputs that are named ``hidden_states...`` are its layers; without them it has one, the
    first output with a vector for each sub-word.

    Args:
        source: The folder, with a graph and ``tokenizer.json``; or the graph, if it has several.
        pieces: As for `PieceLayers`.
    """

    kind = "onnx"

    def __init__(self, source: str | Path, pieces: Pieces = "mean") -> None:
        graph = onnx_graph_of(Path(source))
        words = None if graph is None else _beside(graph, TOKENIZER_FILE)
        if graph is None or words is None:
            raise CheckpointError(f"{source}: no ONNX graph with a {TOKENIZER_FILE} beside it")
        try:
            import onnxruntime
        except ImportError as error:
            raise MissingExtraError("onnxruntime", "onnx", f"the encoder {source}") from error
        try:
            from tokenizers import Tokenizer
        except ImportError as error:
            raise MissingExtraError("tokenizers", "hf", f"the encoder {source}") from error
        self.name: str = str(graph.resolve())
        self.pieces: Pieces = pieces
        self._files = {"model.onnx": graph, TOKENIZER_FILE: words}
        if (config := _beside(graph, "config.json")) is not None:
            self._files["config.json"] = config
        self._target = torch.device("cpu")
        data = graph.read_bytes()
        try:
            self._words = Tokenizer.from_file(str(words))
            # From bytes: a graph that names other files, anywhere on the disk, is refused.
            self._session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
        except Exception as error:  # both raise classes of their own
            raise CheckpointError(f"{source}: not an encoder in ONNX ({reason(error)})") from None
        self._words.no_truncation()
        self._words.no_padding()
        if getattr(self._words.pre_tokenizer, "add_prefix_space", True) is False:
            self._words.pre_tokenizer.add_prefix_space = True  # each word follows a space
        digest = hashlib.sha256(data)
        digest.update(self._words.to_str().encode())
        self._read_markers()
        self._outputs = self._token_outputs()
        states = self._hidden([Piece(self._cut(["a"])[0], [])], learn=False)
        self.layers: int = len(states)
        self.dim: int = int(states[0].shape[1])
        digest.update(f"{self._room} sub-words".encode())
        self._fingerprint = self._hash(digest)

    @property
    def fingerprint(self) -> str:
        """A hash of the graph and the tokenizer."""
        return self._fingerprint

    @property
    def is_stored(self) -> bool:
        """Whether its file is there."""
        return Path(self.name).is_file()

    def copied(self) -> OnnxLayers:
        """Itself: nothing of it is trained."""
        return self

    def to(self, device: torch.device) -> None:
        """Give vectors there; the graph runs on the CPU."""
        self._target = device

    def fine_tune(self) -> tuple[nn.Module, list[list[nn.Parameter]]]:
        """Refuse: a graph cannot be trained."""
        raise ConfigError(f"{self.name}: an ONNX graph is not fine-tuned; fine_tune.on = false")

    def save(self, path: Path) -> str:
        """Copy the graph and its tokenizer."""
        path.mkdir(parents=True, exist_ok=True)
        for name, file in self._files.items():
            if not file.is_file():
                raise CheckpointError(f"{file}: this file of the encoder is gone")
            shutil.copyfile(file, path / name)
        return self.fingerprint

    @property
    def _device(self) -> torch.device:
        return self._target

    def _cut(self, words: Sequence[str]) -> list[list[int]]:
        single = [[word] for word in words]
        options = {"is_pretokenized": True, "add_special_tokens": False}
        return [found.ids for found in self._words.encode_batch(single, **options)]

    def _marked(self, word: str) -> list[int]:
        found: list[int] = self._words.encode([word], is_pretokenized=True).ids
        return found

    def _positions(self) -> int:
        config = self._files.get("config.json")
        most = read_json(config).get("max_position_embeddings") if config is not None else None
        return most if type(most) is int and most > 2 else _USUAL_POSITIONS

    def _token_outputs(self) -> list[str]:
        """The outputs that are layers, lowest first."""
        found = [out.name for out in self._session.get_outputs() if len(out.shape or ()) == 3]
        layers = [name for name in found if name.startswith("hidden_states")]
        if not found:
            raise CheckpointError(
                f"{self.name}: the graph gives no vector for each sub-word, only "
                f"{', '.join(out.name for out in self._session.get_outputs())}"
            )
        return sorted(layers, key=_number) or found[:1]

    def _hidden(self, pieces: Sequence[Piece], *, learn: bool) -> list[Tensor]:
        ids, mask, inner = self._batch(pieces)
        known = {"input_ids": ids, "attention_mask": mask, "token_type_ids": torch.zeros_like(ids)}
        given = {}
        for wanted in self._session.get_inputs():
            if wanted.name not in known:
                raise CheckpointError(f"{self.name}: the graph asks for {wanted.name}")
            kind = np.int32 if "int32" in wanted.type else np.int64
            given[wanted.name] = known[wanted.name].numpy().astype(kind)
        states = self._session.run(self._outputs, given)
        return [torch.from_numpy(layer)[inner].float().to(self._target) for layer in states]


def onnx_graph_of(source: Path) -> Path | None:
    """The ONNX graph that a folder or a file is, if it has a tokenizer and no other weights."""
    if source.is_file():
        found = source.suffix == ".onnx" and _beside(source, TOKENIZER_FILE) is not None
        return source if found else None
    if not (source / TOKENIZER_FILE).is_file():
        return None
    if any(source.glob("*.safetensors")) or any(source.glob("pytorch_model*.bin")):
        return None  # transformers reads them
    graphs = sorted([*source.glob("*.onnx"), *source.glob("onnx/*.onnx")])
    if len(graphs) > 1:
        named = [graph for graph in graphs if graph.name == "model.onnx"]
        if len(named) != 1:
            raise CheckpointError(
                f"{source}: several graphs ({', '.join(graph.name for graph in graphs)}). Give the "
                "file of one"
            )
        graphs = named
    return graphs[0] if graphs else None


def _beside(graph: Path, name: str) -> Path | None:
    """A file in the graph's folder or, if that is called onnx, in the one above."""
    folders = [graph.parent, *([graph.parent.parent] if graph.parent.name == "onnx" else [])]
    return next((folder / name for folder in folders if (folder / name).is_file()), None)


def _number(name: str) -> int:
    """The last number in a name: ``hidden_states.12`` comes after ``hidden_states.2``."""
    return int((re.findall(r"\d+", name) or ["0"])[-1])


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
