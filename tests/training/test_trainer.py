"""A whole training step again in plain numpy, and every rule that changes weights."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from small_runs import SMALL, WORD_INPUT, alone, changed, make_trainer
from torch import nn

from elmokit.config import LstmConfig
from elmokit.corpus.shards import TokenCorpus
from elmokit.engines import Clips
from elmokit.engines.batched import stack_weights
from elmokit.engines.train import TrainEngine
from elmokit.model.init import random_model
from elmokit.model.packing import Windows
from elmokit.training.data import LmBatch, SentenceStreams
from elmokit.training.losses import UsedRows
from elmokit.training.optim import (
    RowOptimizer,
    clip_gradients,
    dense_optimizer,
    learning_rate,
    load_optimizer_state,
    merge_rows,
    optimizer_tensors,
)
from elmokit.training.settings import OptimizerConfig, model_config
from elmokit.training.trainer import PretrainTrainer

FULL_MODEL = {
    "words": WORD_INPUT,
    "lstm": LstmConfig(layers=3, cells=20, width=16, cell_clip=0.2, projection_clip=0.1),
}


@pytest.fixture
def double():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


# The forward pass, word by word


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


class PlainModel:
    """The model in numpy: one word, one step, one row at a time."""

    def __init__(self, trainer: PretrainTrainer, corpus: TokenCorpus) -> None:
        self.config = trainer._bilm.config
        self.corpus = corpus
        self.v = {
            name: tensor.detach().numpy().astype(np.float64)
            for name, tensor in trainer._bilm.state_dict().items()
        }
        self.words = len(trainer.vocabulary)
        self.carry = trainer._config.data.carry
        lstm = self.config.lstm
        self.cells = np.zeros((2, lstm.layers, trainer._config.data.rows, lstm.cells))
        self.outputs = np.zeros((2, lstm.layers, trainer._config.data.rows, lstm.width))

    def spell(self, word: int) -> list[int]:
        """Byte ids: markers have ids of their own, the rest is padding."""
        columns = self.config.characters.max_characters
        special = {0: [257], 1: [258]}
        inner = special.get(word) or [b + 1 for b in self.corpus.words[word].encode()]
        row = [259, *inner[: columns - 2], 260]
        return row + [261] * (columns - len(row))

    def token(self, word: int) -> np.ndarray:
        characters = self.config.characters
        table = self.v["encoder.characters.embedding"][self.spell(word)]  # (C, E)
        features = []
        for i, (width, _) in enumerate(characters.filters):
            weight = self.v[f"encoder.characters.filters.{i}.weight"]  # (n, E, width)
            bias = self.v[f"encoder.characters.filters.{i}.bias"]
            responses = [
                np.einsum("nec,ce->n", weight, table[at : at + width]) + bias
                for at in range(len(table) - width + 1)
            ]
            features.append(np.max(responses, axis=0))
        x = np.maximum(np.concatenate(features), 0)
        for k in range(characters.highways):
            both = self.v[f"encoder.characters.highways.{k}.weight"] @ x
            transform, gate = np.split(both + self.v[f"encoder.characters.highways.{k}.bias"], 2)
            share = sigmoid(gate)
            x = share * np.maximum(transform, 0) + (1 - share) * x
        known = word if word < self.words else 2
        x = np.concatenate([self.v["encoder.words.embedding"][known], x])
        return self.v["encoder.projection.weight"] @ x + self.v["encoder.projection.bias"]

    def layer(self, direction: int, number: int, row: int, x: np.ndarray) -> np.ndarray:
        lstm = self.config.lstm
        name = f"lstm.{('forward', 'backward')[direction]}_stack.{number}"
        at = (direction, number, row)
        gates = self.v[f"{name}.input_weight"] @ x + self.v[f"{name}.bias"]
        gates = gates + self.v[f"{name}.state_weight"] @ self.outputs[at]
        i, f, c, o = np.split(gates, 4)
        cells = sigmoid(f + lstm.forget_bias) * self.cells[at] + sigmoid(i) * np.tanh(c)
        cells = np.clip(cells, -lstm.cell_clip, lstm.cell_clip)
        output = self.v[f"{name}.projection"] @ (sigmoid(o) * np.tanh(cells))
        output = np.clip(output, -lstm.projection_clip, lstm.projection_clip)
        self.cells[at], self.outputs[at] = cells, output
        return output + x if number else output

    def read(self, words: np.ndarray) -> np.ndarray:
        """Word ids (D, T, B) to top outputs (D, T, B, P)."""
        tokens = {word: self.token(word) for word in np.unique(words).tolist()}
        top = np.empty((*words.shape, self.config.lstm.width))
        for d, t, row in np.ndindex(*words.shape):
            if not self.carry and words[d, t, row] == d:  # <S> and </S> open sentences
                self.cells[d, :, row] = self.outputs[d, :, row] = 0
            x = tokens[int(words[d, t, row])]
            for number in range(self.config.lstm.layers):
                x = self.layer(d, number, row, x)
            top[d, t, row] = x
        return top

    def losses(
        self, trainer: PretrainTrainer, words: np.ndarray, goals: np.ndarray, window: int
    ) -> list:
        """Mean sampled loss of each direction."""
        sampler = trainer._sampler
        bias = self.v["softmax.bias"] - sampler.log_expected
        top = self.read(words)
        result = []
        for d in range(len(words)):
            negatives = sampler.draw(trainer._config.run.seed, window, d)
            values = []
            for t, row in np.ndindex(*words.shape[1:]):
                goal = int(goals[d, t, row])
                goal = goal if goal < self.words else 2
                in_play = [goal, *(k for k in negatives if k != goal)]
                scores = self.v["softmax.weight"][in_play] @ top[d, t, row] + bias[in_play]
                values.append(np.log(np.exp(scores - scores[0]).sum()))
            result.append(float(np.mean(values)))
        return result


def windows(trainer: PretrainTrainer, count: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Inputs and targets of the first windows as corpus ids, (D, T, B) each."""
    data = trainer._config.data
    source = SentenceStreams(
        trainer._corpus.split("train"),
        rows=range(data.rows),
        total_rows=data.rows,
        unroll=data.unroll,
        seed=trainer._config.run.seed,
    )
    result = []
    for _ in range(count):
        window = next(source)
        read = np.stack([window.forward.T, window.backward.T])
        result.append((read, np.stack([window.forward_targets.T, window.backward_targets.T])))
    return result


@pytest.mark.parametrize("carry", [True, False])
def test_losses_of_two_windows_equal_plain_numpy(corpus: TokenCorpus, tmp_path: Path, carry: bool):
    """Two windows in one step: the second one starts from the state the first one left."""
    config = changed(
        SMALL,
        model=FULL_MODEL,
        data={"vocabulary": 20, "rows": 3, "unroll": 9, "carry": carry},
        optimizer={"accumulate": 2},
    )
    trainer = make_trainer(config, corpus, tmp_path)
    plain = PlainModel(trainer, corpus)
    found = trainer.step(0)
    expected = np.mean(
        [
            plain.losses(trainer, *window, number)
            for number, window in enumerate(windows(trainer, 2))
        ],
        axis=0,
    )
    assert found.losses.tolist() == pytest.approx(expected.tolist(), rel=1e-5)
    assert found.tokens == 3 * 9 * 2
    top = np.abs(plain.outputs)
    assert 0.02 < (top == 0.1).mean() < 0.98, "the projection's clip shall bite sometimes"
    assert 0.02 < (np.abs(plain.cells) == 0.2).mean() < 0.98, "and the cells' clip"
    for number, state in enumerate(trainer._states):
        np.testing.assert_allclose(state.cell.numpy(), plain.cells[:, number], atol=1e-5)
        np.testing.assert_allclose(state.hidden.numpy(), plain.outputs[:, number], atol=1e-5)


# Gradients against slopes


LOSSES = {
    "sampled": {"kind": "sampled"},
    "tied": {"kind": "sampled", "tied": True},
    "cnn": {"kind": "cnn"},
    "full": {"kind": "full"},
    "adaptive": {"kind": "adaptive"},
}


def total_loss(trainer: PretrainTrainer, batch: LmBatch) -> tuple[torch.Tensor, list[UsedRows]]:
    states = trainer._bilm.zero_states(trainer._config.data.rows)
    layers = trainer._forward(trainer._bilm, batch, states, 0.0, torch.float64)
    top = torch.stack(layers[-1].halves)
    sums, rows = trainer._loss(top, batch)
    return sums.mean() / top.shape[1], rows


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("backward", [True, False])
def test_gradients_are_slopes(corpus, tmp_path, loss, backward):
    lstm = replace(FULL_MODEL["lstm"], backward=backward)
    config = changed(SMALL, loss=LOSSES[loss], model={**FULL_MODEL, "lstm": lstm})
    trainer = make_trainer(config, corpus, tmp_path)
    batch = next(trainer._prefetched())
    value, rows = total_loss(trainer, batch)
    value.backward()
    by_rows = {id(item.parameter): item for item in rows}
    random = torch.Generator().manual_seed(0)
    checked = 0
    for name, parameter in trainer._named_parameters():
        direction = torch.randn(parameter.shape, generator=random)
        gradient = torch.zeros_like(parameter)
        if id(parameter) in by_rows:
            item = by_rows[id(parameter)]
            gradient[item.rows] = item.leaf.grad
        elif parameter.grad is not None:
            gradient = parameter.grad
        ends = []
        kept = parameter.detach().clone()
        for sign in (1, -1):
            with torch.no_grad():
                parameter.copy_(kept + sign * 1e-6 * direction)
                ends.append(total_loss(trainer, batch)[0].item())
        with torch.no_grad():
            parameter.copy_(kept)
        slope = (ends[0] - ends[1]) / 2e-6
        found = (gradient * direction).sum().item()
        assert found == pytest.approx(slope, rel=2e-4, abs=1e-8), name
        checked += abs(slope) > 1e-9
    assert checked >= 10


# Rules


def start_values(shape: tuple[int, ...], seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


class PlainRule:
    """The optimizers' formulas, one tensor, in numpy."""

    def __init__(self, config: OptimizerConfig, value: np.ndarray, decay: float) -> None:
        self.config, self.value, self.decay, self.step = config, value.copy(), decay, 0
        start = config.accumulator if config.name == "adagrad" else 0.0
        self.a, self.b = np.full_like(value, start), np.zeros_like(value)

    def __call__(self, gradient: np.ndarray, rate: float) -> None:
        config, self.step = self.config, self.step + 1
        if config.name == "adagrad":
            self.a += gradient**2
            self.value -= rate * gradient / (np.sqrt(self.a) + 1e-10)
        elif config.name == "sgd":
            self.a = config.momentum * self.a + gradient
            self.value -= rate * (gradient + config.momentum * self.a)
        else:
            one, two = config.betas
            self.value *= 1 - rate * self.decay
            self.a = one * self.a + (1 - one) * gradient
            self.b = two * self.b + (1 - two) * gradient**2
            corrected = self.b / (1 - two**self.step)
            self.value -= rate * (self.a / (1 - one**self.step)) / (np.sqrt(corrected) + 1e-8)


RULES = [
    OptimizerConfig(name="adamw", weight_decay=0.1),
    OptimizerConfig(name="adagrad"),
    OptimizerConfig(name="adagrad", accumulator=0.1),
    OptimizerConfig(name="sgd"),
    OptimizerConfig(name="sgd", momentum=0.0),
]
rule_names = [f"{r.name}-{i}" for i, r in enumerate(RULES)]


@pytest.mark.parametrize("config", RULES, ids=rule_names)
def test_dense_rules(config):
    named = {
        "matrix": nn.Parameter(start_values((3, 4))),
        "bias": nn.Parameter(start_values((4,), 1)),
        "some.embedding": nn.Parameter(start_values((5, 2), 2)),
    }
    optimizer = dense_optimizer(named.items(), config)
    plain = {
        name: PlainRule(
            config,
            p.detach().numpy().astype(np.float64),
            config.weight_decay if name == "matrix" else 0.0,
        )
        for name, p in named.items()
    }
    for step in range(5):
        rate = 0.05 / (step + 1)
        for group in optimizer.param_groups:
            group["lr"] = rate
        for number, (name, p) in enumerate(named.items()):
            p.grad = start_values(tuple(p.shape), 10 * step + number)
            plain[name](p.grad.numpy().astype(np.float64), rate)
        optimizer.step()
    for name, p in named.items():
        np.testing.assert_allclose(p.detach().numpy(), plain[name].value, atol=2e-6)


@pytest.mark.parametrize("config", RULES, ids=rule_names)
@pytest.mark.parametrize("shape", [(6, 3), (6,)])
def test_row_rules_touch_their_rows_and_no_others(config, shape):
    parameter = nn.Parameter(start_values(shape))
    optimizer = RowOptimizer([parameter], config)
    values = parameter.detach().numpy().astype(np.float64)
    plain = [PlainRule(config, values[row : row + 1], 0.0) for row in range(6)]
    chosen = [[0, 2, 5], [2], [1, 2, 3, 4, 5], [0, 2]]
    for step, rows in enumerate(chosen):
        gradient = start_values((len(rows), *shape[1:]), step)
        optimizer.step([(parameter, torch.tensor(rows), gradient)], 0.05, step + 1)
        for row, own in zip(rows, gradient.numpy().astype(np.float64), strict=True):
            plain[row].step = step  # the bias correction counts the run's steps
            plain[row](own[None], 0.05)
    expected = np.concatenate([rule.value for rule in plain])
    np.testing.assert_allclose(parameter.detach().numpy(), expected, atol=2e-6)


@pytest.mark.parametrize("config", RULES[1:], ids=rule_names[1:])
def test_rows_that_are_always_touched_change_as_dense_parameters_do(config):
    whole, rows = nn.Parameter(start_values((4, 3))), nn.Parameter(start_values((4, 3)))
    dense, sparse = dense_optimizer([("w", whole)], config), RowOptimizer([rows], config)
    for step in range(4):
        gradient = start_values((4, 3), step + 5)
        whole.grad = gradient.clone()
        dense.param_groups[0]["lr"] = 0.1
        dense.step()
        sparse.step([(rows, torch.arange(4), gradient)], 0.1, step + 1)
    torch.testing.assert_close(whole.detach(), rows.detach(), rtol=1e-6, atol=1e-6)


def test_an_optimizer_may_have_nothing_to_do():
    """When everything but a sampled softmax is frozen: no dense parameters, no state."""
    for config in RULES:
        optimizer = dense_optimizer([], config)
        assert [group["params"] for group in optimizer.param_groups if group["params"]] == []
        optimizer.step()
        load_optimizer_state(optimizer, [], {"optimiser.softmax.bias.step": torch.ones(())})
        assert not optimizer.state
        assert list(optimizer_tensors(optimizer, [])) == []


def test_rows_of_several_windows_are_added_up():
    one, two = nn.Parameter(torch.zeros(9, 2)), nn.Parameter(torch.zeros(9))
    used = [
        (one, torch.tensor([1, 4]), torch.ones(2, 2)),
        (two, torch.tensor([1, 4]), torch.ones(2)),
        (one, torch.tensor([0, 4, 8]), 2 * torch.ones(3, 2)),
        (two, torch.tensor([0, 4, 8]), 2 * torch.ones(3)),
    ]
    merged = merge_rows(used)
    assert [m[0] is p for m, p in zip(merged, (one, two), strict=True)] == [True, True]
    for _, rows, gradient in merged:
        assert rows.tolist() == [0, 1, 4, 8]
        assert gradient.reshape(4, -1)[:, 0].tolist() == [2, 1, 3, 2]


@pytest.mark.parametrize("bound", [0.5, 100.0])
def test_clipping_uses_the_norm_of_all_gradients(bound):
    dense, rows = [start_values((3, 2)), start_values((4,), 1)], [start_values((2, 5), 2)]
    before = [t.clone() for t in (*dense, *rows)]
    norm = math.sqrt(sum(float((t.double() ** 2).sum()) for t in before))
    found = clip_gradients(dense, rows, bound)
    assert float(found) == pytest.approx(norm, rel=1e-5)
    scale = min(1.0, bound / norm)
    for a, b in zip((*dense, *rows), before, strict=True):
        torch.testing.assert_close(a, b * scale, rtol=1e-5, atol=1e-7)


# The step as a whole


def gradients_of_step(
    config, corpus, folder
) -> tuple[PretrainTrainer, dict[str, torch.Tensor], float]:
    """Take a step of plain SGD without clipping: the change of a weight is its gradient."""
    plain = {"name": "sgd", "momentum": 0.0, "lr": 1.0, "warmup": 0, "clip_norm": 1e9}
    trainer = make_trainer(changed(config, optimizer=plain), corpus, folder)
    before = {n: p.detach().clone() for n, p in trainer._named_parameters()}
    result = trainer.step(0)
    changes = {n: before[n] - p.detach() for n, p in trainer._named_parameters()}
    return trainer, changes, float(result.norm)


@pytest.mark.parametrize("loss", LOSSES)
def test_the_norm_is_that_of_the_gradients_rows_included(corpus, tmp_path, loss):
    config = changed(SMALL, loss=LOSSES[loss], model={"words": WORD_INPUT})
    _, changes, norm = gradients_of_step(config, corpus, tmp_path)
    expected = math.sqrt(sum(float((c.double() ** 2).sum()) for c in changes.values()))
    assert norm == pytest.approx(expected, rel=1e-4)
    if loss == "sampled":
        assert float(changes["softmax.weight"].norm()) > 0.01 * norm


def test_a_clipped_step_is_the_same_step_but_shorter(corpus, tmp_path):
    _, changes, norm = gradients_of_step(SMALL, corpus, tmp_path)
    bound = norm / 7
    sgd = {"name": "sgd", "momentum": 0.0, "lr": 1.0, "warmup": 0, "clip_norm": bound}
    trainer = make_trainer(changed(SMALL, optimizer=sgd), corpus, tmp_path)
    before = {n: p.detach().clone() for n, p in trainer._named_parameters()}
    assert float(trainer.step(0).norm) == pytest.approx(norm, rel=1e-6)
    for name, parameter in trainer._named_parameters():
        found = before[name] - parameter.detach()
        torch.testing.assert_close(found, changes[name] / 7, rtol=1e-3, atol=1e-6)


def test_times_unroll_multiplies_the_gradient_and_not_the_reported_loss(corpus, tmp_path):
    config = changed(SMALL, loss={"times_unroll": True})
    _, once, norm = gradients_of_step(SMALL, corpus, tmp_path)
    _, often, long = gradients_of_step(config, corpus, tmp_path)
    assert long == pytest.approx(5 * norm, rel=1e-5)
    for name, change in once.items():
        torch.testing.assert_close(often[name], 5 * change, rtol=1e-3, atol=2e-6)
    reported = [make_trainer(c, corpus, tmp_path).step(0).losses for c in (SMALL, config)]
    assert torch.equal(*reported)


def test_centering_pulls_the_mean_of_every_dimension_to_zero(corpus, tmp_path):
    def offset(weight: float) -> float:
        config = changed(SMALL, loss={"centering": weight}, optimizer={"lr": 0.01})
        trainer = make_trainer(config, corpus, tmp_path)
        for number in range(60):
            trainer.step(number)
        batch = next(trainer._prefetched())
        states = trainer._bilm.zero_states(config.data.rows)
        layers = trainer._forward(trainer._bilm, batch, states, 0.0, torch.float32)
        means = [half.detach().mean(dim=0) for layer in layers for half in layer.halves]
        return sum(float(mean.square().sum()) for mean in means)

    assert offset(1.0) < 0.2 * offset(0.0)


def test_centering_adds_its_own_gradient(corpus, tmp_path):
    _, without, _ = gradients_of_step(SMALL, corpus, tmp_path)
    trainer, found, _ = gradients_of_step(changed(SMALL, loss={"centering": 0.5}), corpus, tmp_path)
    fresh = make_trainer(SMALL, corpus, tmp_path)
    batch = next(fresh._prefetched())
    states = fresh._bilm.zero_states(SMALL.data.rows)
    layers = fresh._forward(fresh._bilm, batch, states, SMALL.run.dropout, torch.float32)
    squares = [half.mean(dim=0).square().sum() for layer in layers for half in layer.halves]
    penalty = 0.5 * torch.stack(squares).sum() / 2  # the mean of two directions, all layers
    named = [(n, p) for n, p in fresh._named_parameters() if p.requires_grad]
    own = torch.autograd.grad(penalty, [p for _, p in named], materialize_grads=True)
    for (name, _), gradient in zip(named, own, strict=True):
        torch.testing.assert_close(found[name] - without[name], gradient, rtol=1e-3, atol=1e-6)
    assert trainer._config.loss.centering == 0.5


def test_two_windows_accumulated_are_the_mean_of_their_gradients(corpus, tmp_path):
    """Taken one after the other from the same weights, the second from the first one's state."""
    _, both, _ = gradients_of_step(changed(SMALL, optimizer={"accumulate": 2}), corpus, tmp_path)
    still = {"name": "sgd", "momentum": 0.0, "lr": 1.0, "warmup": 0, "clip_norm": 1e9}
    trainer = make_trainer(changed(SMALL, optimizer=still), corpus, tmp_path)
    start = {n: p.detach().clone() for n, p in trainer._named_parameters()}
    total = {n: torch.zeros_like(p) for n, p in start.items()}
    for number in range(2):
        trainer.step(number)
        with torch.no_grad():
            for name, parameter in trainer._named_parameters():
                total[name] += (start[name] - parameter) / 2
                parameter.copy_(start[name])
    for name, change in both.items():
        torch.testing.assert_close(change, total[name], rtol=1e-3, atol=2e-6)


def test_dropout_falls_where_the_original_puts_it(corpus, tmp_path):
    """On every layer's input, of which the residual carries the dropped one, and on the top."""
    trainer = make_trainer(changed(SMALL, model={"lstm": FULL_MODEL["lstm"]}), corpus, tmp_path)
    bilm, batch, share = trainer._bilm, next(trainer._prefetched()), 0.4
    states = bilm.zero_states(4)
    torch.manual_seed(5)
    found = torch.stack(trainer._forward(bilm, batch, states, share, torch.float32)[-1].halves)
    torch.manual_seed(5)
    x = torch.cat([bilm.encoder(group) for group in batch.inputs])[batch.word_indices]
    windows = Windows(batch.word_indices, None)
    for number, state in enumerate(states):
        x = torch.dropout(x, share, True)
        layers = [bilm.lstm._layer(name, number).weights() for name in bilm.lstm.directions]
        engine = TrainEngine(stack_weights(layers, torch.float32), Clips(0.2, 0.1), 1.0)
        output, _ = engine.run(x.flatten(1, 2), windows, state)
        x = output.view(x.shape) + x if number else output.view(x.shape)
    x = torch.dropout(x, share, True)
    torch.testing.assert_close(found, x.reshape(found.shape))
    assert 0.3 < float((found == 0).float().mean()) < 0.5


def test_schedules():
    def rates(steps: int = 41, **options: object) -> list[float]:
        config = OptimizerConfig(lr=0.5, **options)
        return [learning_rate(config, step, 40) for step in range(steps)]

    for schedule in ("cosine", "constant", "inverse_sqrt"):
        warm = rates(schedule=schedule, warmup=10)
        assert warm[:10] == pytest.approx([0.05 * (step + 1) for step in range(10)])
    assert rates(schedule="constant", warmup=10)[10:] == [0.5] * 31
    assert rates(schedule="constant", warmup=0) == [0.5] * 41
    cosine = rates(schedule="cosine", warmup=10, min_lr_ratio=0.2)[10:]
    assert cosine == pytest.approx(
        [0.5 * (0.2 + 0.8 * (1 + math.cos(math.pi * n / 30)) / 2) for n in range(31)]
    )
    assert cosine[0] == pytest.approx(0.5)
    assert cosine[-1] == pytest.approx(0.1)
    late = learning_rate(OptimizerConfig(lr=0.5, warmup=0, min_lr_ratio=0.2), 100, 40)
    assert late == pytest.approx(0.1)
    falling = rates(schedule="inverse_sqrt", warmup=10)[10:]
    assert falling == pytest.approx([0.5 * math.sqrt(10 / (step + 1)) for step in range(10, 41)])
    assert rates(schedule="inverse_sqrt", warmup=0)[0] == pytest.approx(0.5)


def test_a_step_uses_its_own_learning_rate(corpus, tmp_path):
    config = changed(SMALL, optimizer={"warmup": 10})
    trainer = make_trainer(config, corpus, tmp_path)
    assert [trainer.step(number).lr for number in (0, 4, 9, 12)] == pytest.approx(
        [0.001, 0.005, 0.01, 0.01]
    )


def test_a_frozen_model_trains_its_softmax_alone(corpus, tmp_path):
    for name in ("adamw", "adagrad", "sgd"):
        config = changed(SMALL, optimizer={"name": name})
        bilm = random_model(model_config(config, corpus), 0)
        before = {n: p.detach().clone() for n, p in bilm.named_parameters()}
        trainer = PretrainTrainer(
            bilm, corpus, config, context=alone(), folder=tmp_path, frozen=True
        )
        for number in range(2):
            trainer.step(number)
        changed_names = {n for n, p in bilm.named_parameters() if not torch.equal(p, before[n])}
        assert changed_names == {"softmax.weight", "softmax.bias"}


def test_joined_sentences_are_what_a_run_reads(documents, tmp_path):
    def starts(share: float) -> int:
        trainer = make_trainer(changed(SMALL, data={"join": share}), documents, tmp_path)
        windows = trainer._prefetched()
        return sum(int(next(windows).starts.sum()) for _ in range(10))

    assert starts(0.9) < 0.8 * starts(0.0)


def test_every_step_counts_as_a_change_of_the_weights(corpus, tmp_path):
    """Prepacked copies of the weights are compared by their versions."""
    for name in ("adamw", "adagrad", "sgd"):
        trainer = make_trainer(changed(SMALL, optimizer={"name": name}), corpus, tmp_path)
        before = [parameter._version for _, parameter in trainer._dense]
        trainer.step(0)
        assert all(p._version > old for (_, p), old in zip(trainer._dense, before, strict=True))


def test_adamw_resumes_whatever_the_layout_of_its_parameters_in_memory():
    config = OptimizerConfig(name="adamw", lr=0.1)
    torch.manual_seed(0)
    start, gradients = torch.randn(3, 5), torch.randn(4, 3, 5)

    def steps(parameter: nn.Parameter, optimizer: torch.optim.Optimizer, some: torch.Tensor):
        for gradient in some:
            parameter.grad = torch.empty_like(parameter).copy_(gradient)
            optimizer.step()

    def begin(values: torch.Tensor) -> tuple[list[tuple[str, nn.Parameter]], torch.optim.Optimizer]:
        transposed = torch.empty(5, 3).T.copy_(values)
        named = [("a.weight", nn.Parameter(transposed))]
        return named, dense_optimizer(named, config)

    whole, optimizer = begin(start)
    steps(whole[0][1], optimizer, gradients[:2])
    kept = {name: value.contiguous() for name, value in optimizer_tensors(optimizer, whole)}
    resumed, again = begin(whole[0][1].detach())
    load_optimizer_state(again, resumed, {name: value.clone() for name, value in kept.items()})
    steps(whole[0][1], optimizer, gradients[2:])
    steps(resumed[0][1], again, gradients[2:])
    assert torch.equal(resumed[0][1], whole[0][1])
