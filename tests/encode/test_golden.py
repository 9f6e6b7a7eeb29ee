"""The published golden files, and proof that each known mistake would be caught by them."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import h5py
import numpy as np
import pytest
import torch

import elmokit
from elmokit.checkpoints.checkpoint import Checkpoint
from elmokit.encode.embedder import TokenEmbedder
from elmokit.engines import LstmState, reference
from elmokit.model import lstm
from elmokit.model.packing import Packing
from elmokit.text import inputs

TOLERANCE = {"rtol": 1e-5, "atol": 1e-6}


def test_golden_batches_with_carried_state(golden):
    elmo = golden.load()
    for batch, expected in zip(golden.batches, golden.expected, strict=True):
        for vectors, want in zip(
            elmo.encode(batch, layers="top", state="carry"), expected, strict=True
        ):
            np.testing.assert_allclose(vectors, want, **TOLERANCE)


def test_golden_state_can_be_reset(golden):
    elmo = golden.load()
    elmo.encode(golden.batches[5], state="carry")
    elmo.reset_state()
    for vectors, want in zip(
        elmo.encode(golden.batches[0], layers="top", state="carry"), golden.expected[0], strict=True
    ):
        np.testing.assert_allclose(vectors, want, **TOLERANCE)


def test_golden_first_batch_with_fresh_state(golden):
    elmo = golden.load()
    for _ in range(2):  # the second call must not remember the first
        for vectors, want in zip(
            elmo.encode(golden.batches[0], layers=2), golden.expected[0], strict=True
        ):
            np.testing.assert_allclose(vectors, want, **TOLERANCE)


def test_golden_token_vectors(allennlp):
    text = (allennlp.folder / "vocab_test.txt").read_text(encoding="utf-8")
    words = text.removesuffix("\n").split("\n")
    with h5py.File(allennlp.folder / "elmo_token_embeddings.hdf5") as file:
        expected = file["embedding"][()]
    assert len(words) == len(expected) == 458
    # Each word as a sentence of its own: layer 0 holds the token vector twice.
    vectors = allennlp.load().encode([[word] for word in words], layers=0)
    for vector, want in zip(vectors, expected, strict=True):
        np.testing.assert_allclose(vector[0], np.tile(want, 2), **TOLERANCE)


def test_golden_batches_through_cached_token_vectors(allennlp):
    elmo = allennlp.load(
        vocabulary=allennlp.folder / "vocab_test.txt",
        token_vectors=allennlp.folder / "elmo_token_embeddings.hdf5",
    )
    for batch, expected in zip(allennlp.batches, allennlp.expected, strict=True):
        for vectors, want in zip(
            elmo.encode(batch, layers="top", state="carry"), expected, strict=True
        ):
            np.testing.assert_allclose(vectors, want, **TOLERANCE)


# Every mistake below is known from real implementations. Each is made here on purpose; the
# golden files must notice all of them.

Change = Callable[[Checkpoint], Checkpoint]
Patch = Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True)
class Mistake:
    name: str
    change: Change | None = None
    """A wrong reading of the file."""
    patch: Patch | None = None
    """A wrong computation."""
    state: str = "carry"
    seen_by: tuple[str, ...] = ("bilm-tf", "allennlp")


def lstm_config(**values) -> Change:
    return lambda c: replace(c, config=replace(c.config, lstm=replace(c.config.lstm, **values)))


def edit(part: str, change: Callable[[torch.Tensor], torch.Tensor]) -> Change:
    def apply(checkpoint: Checkpoint) -> Checkpoint:
        weights = {
            name: change(tensor) if part in name else tensor
            for name, tensor in checkpoint.weights.items()
        }
        assert any(part in name for name in weights)
        return replace(checkpoint, weights=weights)

    return apply


def swap_gates(tensor: torch.Tensor) -> torch.Tensor:
    return torch.cat([tensor.chunk(4)[i] for i in (0, 2, 1, 3)])


def both(*changes: Change) -> Change:
    def apply(checkpoint: Checkpoint) -> Checkpoint:
        for change in changes:
            checkpoint = change(checkpoint)
        return checkpoint

    return apply


def swap_inputs_and_state(c: Checkpoint) -> Checkpoint:
    other = {"input_weight": "state_weight", "state_weight": "input_weight"}
    weights = {
        ".".join([*name.split(".")[:-1], other.get(name.split(".")[-1], name.split(".")[-1])]): t
        for name, t in c.weights.items()
    }
    return replace(c, weights=weights)


def swap_directions(c: Checkpoint) -> Checkpoint:
    def other(name: str) -> str:
        if "forward_stack" in name:
            return name.replace("forward_stack", "backward_stack")
        return name.replace("backward_stack", "forward_stack")

    return replace(c, weights={other(name): tensor for name, tensor in c.weights.items()})


def swap_highway_gate(tensor: torch.Tensor) -> torch.Tensor:
    transform, gate = tensor.chunk(2)
    return torch.cat([transform, -gate])


def zero_padding(table: torch.Tensor) -> torch.Tensor:
    table = table.clone()
    table[inputs.BYTE_PADDING] = 0
    return table


def swap_word_markers(table: torch.Tensor) -> torch.Tensor:
    table = table.clone()
    table[[inputs.BYTE_BEGIN_WORD, inputs.BYTE_END_WORD]] = table[
        [inputs.BYTE_END_WORD, inputs.BYTE_BEGIN_WORD]
    ]
    return table


def no_sentence_markers(monkeypatch: pytest.MonkeyPatch) -> None:
    original = TokenEmbedder.__call__

    def embed(self, batch, **options):
        tokens, _, lengths = original(self, batch, **options)
        first = 0
        for length in lengths:
            tokens[first], tokens[first + length - 1] = 0, 0
            first += length
        return tokens, Packing(lengths, tokens.device), lengths

    monkeypatch.setattr(TokenEmbedder, "__call__", embed)


def use_instead_of_run_lstm(monkeypatch: pytest.MonkeyPatch, run: Callable[..., object]) -> None:
    monkeypatch.setattr(reference, "run_lstm", run)
    choose = lstm.choose_engine
    monkeypatch.setattr(
        lstm,
        "choose_engine",
        lambda *args, **options: replace(choose(*args, **options), engine="reference"),
    )


def clip_only_the_carried_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clip after the output's tanh: run without clips one step at a time, clip between."""
    original = reference.run_lstm

    def run(x, batch_sizes, state, weights, clips, forget_bias, refills):
        outputs, ends, start = [], [], 0
        for size in batch_sizes:
            if size < len(state.cell):
                ends.append(LstmState(state.cell[size:], state.hidden[size:]))
                state = LstmState(state.cell[:size], state.hidden[:size])
            output, state = original(
                x[start : start + size],
                [size],
                state,
                weights,
                reference.Clips(None, clips.projection),
                forget_bias,
            )
            state = LstmState(state.cell.clamp(-clips.cell, clips.cell), state.hidden)
            outputs.append(output)
            start += size
        ends.append(state)
        ends.reverse()
        return torch.cat(outputs), LstmState(
            torch.cat([end.cell for end in ends]), torch.cat([end.hidden for end in ends])
        )

    use_instead_of_run_lstm(monkeypatch, run)


def residual_on_the_first_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    original, calls = reference.run_lstm, []

    def run(x, *arguments):
        output, state = original(x, *arguments)
        calls.append(1)
        # Calls come layer by layer, both directions of one after another.
        return (output + x if len(calls) % 4 in (1, 2) else output), state

    use_instead_of_run_lstm(monkeypatch, run)


def carry_the_output_after_the_residual(monkeypatch: pytest.MonkeyPatch) -> None:
    original, calls = reference.run_lstm, []

    def run(x, batch_sizes, *arguments):
        output, state = original(x, batch_sizes, *arguments)
        calls.append(1)
        if len(calls) % 4 in (1, 2):
            return output, state
        # Each sentence's last step in the packed order: where its row stops running.
        ends, first = {}, 0
        for size in batch_sizes:
            ends.update({row: first + row for row in range(size)})
            first += size
        last = torch.tensor([ends[row] for row in sorted(ends)])
        return output, LstmState(state.cell, state.hidden + x[last])

    use_instead_of_run_lstm(monkeypatch, run)


MISTAKES = [
    Mistake("no carried state", state="fresh"),
    Mistake("forget bias forgotten", lstm_config(forget_bias=0.0)),
    Mistake(
        "gates read in another order",
        both(
            edit("input_weight", swap_gates),
            edit("state_weight", swap_gates),
            edit("_stack.0.bias", swap_gates),
            edit("_stack.1.bias", swap_gates),
        ),
    ),
    Mistake("matrix read as [state ; input]", swap_inputs_and_state),
    Mistake("highway gate swapped", edit("highways", swap_highway_gate)),
    Mistake(
        "ids not shifted by one",
        edit("characters.embedding", lambda table: torch.roll(table, -1, dims=0)),
    ),
    Mistake("in-word padding zeroed", edit("characters.embedding", zero_padding)),
    Mistake("word markers swapped", edit("characters.embedding", swap_word_markers)),
    Mistake("no sentence markers", patch=no_sentence_markers),
    Mistake("no clipping", lstm_config(cell_clip=None, projection_clip=None)),
    Mistake("cells clipped after the output", patch=clip_only_the_carried_cells),
    Mistake("residual missing", lstm_config(residual=False), seen_by=("allennlp",)),
    Mistake("residual where there is none", lstm_config(residual=True), seen_by=("bilm-tf",)),
    Mistake(
        "residual on the first layer", patch=residual_on_the_first_layer, seen_by=("allennlp",)
    ),
    Mistake(
        "post-residual output carried",
        patch=carry_the_output_after_the_residual,
        seen_by=("allennlp",),
    ),
    Mistake("directions swapped", swap_directions),
]


CASES = [
    pytest.param(name, mistake, id=f"{name}: {mistake.name}")
    for mistake in MISTAKES
    for name in mistake.seen_by
]


@pytest.mark.parametrize(("golden", "mistake"), CASES, indirect=["golden"])
def test_golden_files_catch_mistake(golden, mistake, monkeypatch):
    checkpoint = golden.load().checkpoint()
    if mistake.change is not None:
        checkpoint = mistake.change(checkpoint)
    elmo = elmokit.Elmo(checkpoint)
    if mistake.patch is not None:
        mistake.patch(monkeypatch)
    wrong = [
        vectors - want
        for batch, expected in zip(golden.batches, golden.expected, strict=True)
        for vectors, want in zip(
            elmo.encode(batch, layers="top", state=mistake.state), expected, strict=True
        )
    ]
    error = max(np.abs(difference).max() for difference in wrong)
    assert error > 5e-5, f"{mistake.name} changes the vectors by {error} only"
