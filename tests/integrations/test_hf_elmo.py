"""ELMo among the models of transformers, through transformers' own tools."""

import json
import random
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from pages import run_page

import elmokit
from elmokit.encode.embedding import flat_layers
from elmokit.errors import CheckpointError, ConfigError, DataError

pytest.importorskip("transformers")
pytest.importorskip("accelerate")

import transformers
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
    DataCollatorForTokenClassification,
    Trainer,
    TrainingArguments,
    pipeline,
)

from elmokit.integrations import hf

GOLDEN = Path(__file__).parents[1] / "golden"
VARIANTS = sorted(
    str(path.parent.relative_to(GOLDEN))
    for pattern in ("bilm-hdf5/*", "tf-checkpoint/*", "many-langs/*", "many-langs-traps")
    for path in GOLDEN.glob(f"{pattern}/expected.npz")
)
TEXTS = ["the bank of the river", "", "don't worry", "é" * 60 + " <pad> a<unk>b"]
LABELS = ["O", "B-PER", "I-PER"]

transformers.utils.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()


@pytest.fixture(scope="module")
def folder(tmp_path_factory, tiny) -> str:
    """The test model as transformers stores it."""
    path = tmp_path_factory.mktemp("hf") / "model"
    for part in hf.from_elmo(tiny):
        part.save_pretrained(path)
    return str(path)


@pytest.fixture(scope="module")
def model(folder) -> hf.ElmoModel:
    return AutoModel.from_pretrained(folder)


@pytest.fixture(scope="module")
def tokenizer(folder) -> hf.ElmoTokenizer:
    return AutoTokenizer.from_pretrained(folder)


def tagger(folder: str) -> hf.ElmoForTokenClassification:
    names = dict(enumerate(LABELS))
    return AutoModelForTokenClassification.from_pretrained(
        folder, id2label=names, label2id={name: number for number, name in names.items()}
    )


def all_layers(model: hf.ElmoModel, batch: dict[str, torch.Tensor]) -> np.ndarray:
    """(L + 1, B, T, D)"""
    with torch.no_grad():
        return torch.stack(model(**batch, output_hidden_states=True).hidden_states).numpy()


@pytest.mark.parametrize("name", VARIANTS)
def test_hf_hidden_states_are_the_numbers_of_the_original_program(name, tmp_path):
    """Models of bytes, of Unicode characters, of words and of both, stored and loaded."""
    for part in hf.from_elmo(GOLDEN / name):
        part.save_pretrained(tmp_path)
    model, tokenizer = AutoModel.from_pretrained(tmp_path), AutoTokenizer.from_pretrained(tmp_path)
    with np.load(GOLDEN / name / "expected.npz") as file:
        sentences = json.loads(str(file["tokens_json"]))
        expected = [file[f"layers_{i}"] for i in range(len(sentences))]
    batch = tokenizer(sentences, is_split_into_words=True, padding=True, return_tensors="pt")
    found = all_layers(model, batch)
    for row, want in enumerate(expected):
        np.testing.assert_allclose(found[:, row, : want.shape[1]], want, rtol=1e-5, atol=1e-5)
        assert not found[:, row, want.shape[1] :].any()


def test_hf_classes_are_found_by_the_auto_classes(folder, model, tokenizer):
    assert type(AutoConfig.from_pretrained(folder)) is hf.ElmoConfig
    assert type(model) is hf.ElmoModel
    assert type(tokenizer) is hf.ElmoTokenizer
    assert type(tagger(folder)) is hf.ElmoForTokenClassification
    found = AutoModelForSequenceClassification.from_pretrained(folder)
    assert type(found) is hf.ElmoForSequenceClassification
    assert (model.config.hidden_size, model.config.num_hidden_layers) == (32, 2)


@pytest.mark.parametrize("side", ["right", "left"])
def test_hf_vectors_do_not_depend_on_batch_or_padding(model, tokenizer, tiny, side):
    expected = tiny.encode(TEXTS, layers="all")
    batch = tokenizer(
        TEXTS, padding="max_length", max_length=9, padding_side=side, return_tensors="pt"
    )
    found = all_layers(model, batch)
    assert found.shape == (3, 4, 9, 32)
    for row, want in enumerate(expected):
        real = batch["attention_mask"][row].bool().numpy()
        np.testing.assert_allclose(found[:, row, real], want, rtol=1e-5, atol=1e-6)
        alone = all_layers(model, tokenizer(TEXTS[row], return_tensors="pt"))[:, 0]
        np.testing.assert_allclose(alone, want, rtol=1e-5, atol=1e-6)


def test_hf_output_is_the_top_layer_as_object_or_tuple(model, tokenizer):
    batch = tokenizer(TEXTS, padding=True, return_tensors="pt")
    with torch.no_grad():
        output = model(**batch)
        (plain,) = model(**batch, return_dict=False)
    assert output.hidden_states is None
    assert torch.equal(plain, output.last_hidden_state)
    assert torch.equal(torch.from_numpy(all_layers(model, batch)[-1]), plain)


def test_hf_model_needs_what_its_tokenizer_gives(model, tokenizer):
    batch = tokenizer("a bank", return_tensors="pt")
    with pytest.raises(DataError, match="needs characters"):
        model(input_ids=batch["input_ids"])
    with pytest.raises(DataError, match="does not read words"):
        model(**batch, words=batch["input_ids"])
    with pytest.raises(DataError, match="attention_mask"):
        model(characters=batch["characters"])


# The tokenizer


def test_hf_tokenizer_gives_each_word_its_characters(tokenizer, tiny):
    from elmokit.text.inputs import InputBuilder

    text = "Don't worry, Zoë!"
    words = tiny.tokenize(text)
    found = tokenizer(text, return_offsets_mapping=True)
    assert tokenizer.tokenize(text) == words
    assert found["input_ids"] == [1] * len(words)
    assert [text[start:end] for start, end in found["offset_mapping"]] == words
    assert found.word_ids() == list(range(len(words)))
    ids = InputBuilder(tiny.config, None, None).alphabet.ids(words, trim=False)
    np.testing.assert_array_equal(found["characters"], ids)
    same = tokenizer(words, is_split_into_words=True, return_offsets_mapping=True)
    assert same["characters"] == found["characters"]
    assert same["offset_mapping"] == [(0, len(word)) for word in words]


def test_hf_tokenizer_pads_and_cuts(tokenizer):
    batch = tokenizer(
        ["a b c d", "e"], padding=True, truncation=True, max_length=3, return_tensors="np"
    )
    assert batch["characters"].shape == (2, 3, 50)
    np.testing.assert_array_equal(batch["attention_mask"], [[1, 1, 1], [1, 0, 0]])
    assert not batch["characters"][1, 1:].any()
    pieces = tokenizer(
        "a b c d", truncation=True, max_length=3, stride=1, return_overflowing_tokens=True
    )
    assert [pieces.word_ids(i) for i in range(2)] == [[0, 1, 2], [2, 3]]
    assert pieces["characters"][0][2] == pieces["characters"][1][0]


def test_hf_tokenizer_pads_what_was_tokenised_before(tokenizer):
    texts = ["a b c", "d", ""]
    later = tokenizer.pad([tokenizer(text) for text in texts], return_tensors="pt")
    at_once = tokenizer(texts, padding=True, return_tensors="pt")
    assert set(later) == set(at_once)
    for name, tensor in at_once.items():
        assert torch.equal(tensor, later[name]), name


def test_hf_tokenizer_refuses_what_it_cannot_read(tokenizer):
    with pytest.raises(ConfigError, match="one text at a time"):
        tokenizer("a", "b")
    with pytest.raises(DataError, match="expected a list of words"):
        tokenizer(["a", 3], is_split_into_words=True)
    with pytest.raises(DataError, match="is_split_into_words"):
        tokenizer([["a", "b"]])


# Learning


def test_hf_gradients_reach_every_weight_of_the_bilm(folder, tokenizer):
    """And they are those of elmokit's own way."""
    model = AutoModel.from_pretrained(folder).train()
    batch = tokenizer(TEXTS, padding=True, return_tensors="pt")
    scale = torch.linspace(-1, 1, 32)
    sum(
        (layer * scale).pow(2).sum() for layer in model(**batch, output_hidden_states=True)[1]
    ).backward()
    elmo = elmokit.load("test-tiny", softmax=False)
    elmo.bilm.requires_grad_(True)
    layers = flat_layers(elmo, [elmo.tokenize(text) for text in TEXTS], train=True)
    sum((layer * scale).pow(2).sum() for layer in layers).backward()
    ours = dict(model.bilm.named_parameters())
    for name, parameter in elmo.bilm.named_parameters():
        assert parameter.grad is not None, name
        torch.testing.assert_close(ours[name].grad, parameter.grad, rtol=1e-4, atol=1e-5)


def names(count: int, seed: int = 0) -> list[tuple[list[str], list[int]]]:
    draw = random.Random(seed)
    found = []
    for _ in range(count):
        before = draw.choices(["the", "film", "with", "saw"], k=draw.randint(1, 3))
        name = draw.choice([["Anna"], ["Bob", "Miller"], ["Zoe"]])
        labels = [*[0] * len(before), *[1, 2][: len(name)], 0]
        found.append(([*before, *name, "today"], labels))
    return found


def arguments(folder: Path, **options: object) -> TrainingArguments:
    return TrainingArguments(
        str(folder),
        use_cpu=True,
        report_to="none",
        disable_tqdm=True,
        per_device_train_batch_size=16,
        save_strategy="no",
        logging_strategy="no",
        dataloader_pin_memory=False,
        **options,
    )


def test_hf_trainer_teaches_a_tagger_and_pipeline_uses_it(folder, tokenizer, tmp_path):
    def rows(count: int, seed: int) -> list[dict[str, object]]:
        return [
            {**tokenizer(words, is_split_into_words=True), "labels": labels}
            for words, labels in names(count, seed)
        ]

    torch.manual_seed(0)
    trainer = Trainer(
        tagger(folder),
        arguments(tmp_path / "run", num_train_epochs=10, learning_rate=0.005),
        DataCollatorForTokenClassification(tokenizer),
        train_dataset=rows(160, 0),
        eval_dataset=rows(40, 1),
        processing_class=tokenizer,
        compute_metrics=lambda given: {
            "right": float(
                (given.predictions.argmax(-1) == given.label_ids)[given.label_ids >= 0].mean()
            )
        },
    )
    before = trainer.evaluate()["eval_right"]
    trainer.train()
    assert trainer.evaluate()["eval_right"] > max(0.95, before)
    trainer.save_model(tmp_path / "tagger")

    tag = pipeline(
        "token-classification", model=str(tmp_path / "tagger"), aggregation_strategy="simple"
    )
    text = "the film with Bob Miller today"
    (found,) = tag(text)
    assert (found["entity_group"], found["word"]) == ("PER", "Bob Miller")
    assert text[found["start"] : found["end"]] == "Bob Miller"
    ((found,),) = tag([text.split()], is_split_into_words=True)
    assert (found["start"], found["end"]) == (14, 24)
    single = pipeline("token-classification", model=str(tmp_path / "tagger"))(text)
    assert [(e["entity"], e["word"]) for e in single] == [("B-PER", "Bob"), ("I-PER", "Miller")]


def test_hf_trainer_teaches_a_classifier_above_a_frozen_bilm(folder, tokenizer, tmp_path):
    draw = random.Random(0)
    words = {1: ["great", "lovely", "superb"], 0: ["awful", "dull", "boring"]}
    rows = []
    for i in range(160):
        text = f"{draw.choice(['the', 'a', 'this'])} {draw.choice(words[i % 2])} film"
        rows.append({**tokenizer(text), "label": i % 2})
    torch.manual_seed(0)
    model = AutoModelForSequenceClassification.from_pretrained(
        folder, id2label={0: "bad", 1: "good"}
    )
    model.elmo.requires_grad_(False)
    before = {name: tensor.clone() for name, tensor in model.elmo.state_dict().items()}
    collate = transformers.DataCollatorWithPadding(tokenizer)
    settings = arguments(tmp_path / "run", num_train_epochs=20, learning_rate=0.1)
    Trainer(model, settings, collate, train_dataset=rows).train()
    assert all(torch.equal(before[name], t) for name, t in model.elmo.state_dict().items())
    assert model.mix.gamma != 1
    classify = pipeline("text-classification", model=model.eval(), tokenizer=tokenizer)
    answers = classify(["a superb film", "this awful film", "the dull film"], batch_size=2)
    assert [answer["label"] for answer in answers] == ["good", "bad", "bad"]


@pytest.mark.parametrize("pooling", ["mean", "max"])
def test_hf_texts_are_pooled_over_real_words(folder, tokenizer, tiny, pooling):
    model = AutoModelForSequenceClassification.from_pretrained(folder, pooling=pooling).eval()
    batch = tokenizer(TEXTS, padding=True, return_tensors="pt")
    with torch.no_grad():
        logits = model(**batch).logits
        vectors = torch.from_numpy(np.stack(tiny.encode(TEXTS, pool=pooling)))
        if pooling == "mean":
            torch.testing.assert_close(logits, model.classifier(vectors), rtol=1e-4, atol=1e-5)
        alone = model(**tokenizer(TEXTS[0], return_tensors="pt")).logits
    torch.testing.assert_close(logits[:1], alone, rtol=1e-4, atol=1e-5)
    assert torch.isfinite(logits).all()
    with pytest.raises(ConfigError, match="pooling"):
        AutoModelForSequenceClassification.from_pretrained(folder, pooling="sum")


@pytest.mark.parametrize(
    "kind", [AutoModel, AutoModelForTokenClassification, AutoModelForSequenceClassification]
)
def test_hf_layers_are_shown_as_the_call_says_and_else_the_config(folder, tokenizer, kind):
    batch = tokenizer(TEXTS[:1], return_tensors="pt")
    for always in (False, True):
        model = kind.from_pretrained(folder, output_hidden_states=always).eval()
        for wanted, shown in ((None, always), (True, True), (False, False)):
            layers = model(**batch, output_hidden_states=wanted).hidden_states
            assert (layers is not None) == shown


def test_hf_classifier_has_the_usual_three_losses(folder, tokenizer):
    batch = tokenizer(TEXTS, padding=True, return_tensors="pt")

    def loss(labels: torch.Tensor, **options: object) -> tuple[float, torch.Tensor]:
        model = AutoModelForSequenceClassification.from_pretrained(folder, **options).eval()
        with torch.no_grad():
            output = model(**batch, labels=labels)
        return output.loss.item(), output.logits

    numbers = torch.tensor([0.5, 1.0, -1.0, 2.0])
    found, logits = loss(numbers, num_labels=1)
    assert found == pytest.approx(((logits[:, 0] - numbers) ** 2).mean().item())
    classes = torch.tensor([2, 0, 1, 2])
    found, logits = loss(classes, num_labels=3)
    assert found == pytest.approx(-logits.log_softmax(1)[range(4), classes].mean().item())
    several = torch.tensor([[1.0, 0, 1]] * 4)
    found, logits = loss(several, num_labels=3)
    chances = logits.sigmoid()
    expected = -(several * chances.log() + (1 - several) * (1 - chances).log()).mean()
    assert found == pytest.approx(expected.item(), rel=1e-5)


# Ways in and out


def test_hf_feature_extraction_pipeline_gives_the_top_layer(folder, tiny):
    extract = pipeline("feature-extraction", model=folder)
    found = extract(["the bank", "a river bank"], batch_size=2)
    for vectors, want in zip(
        found, tiny.encode(["the bank", "a river bank"], layers="top"), strict=True
    ):
        np.testing.assert_allclose(vectors[0][: len(want)], want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "name", ["test-tiny", GOLDEN / "many-langs/released"], ids=["tiny", "words"]
)
def test_hf_model_becomes_an_elmo_again(name):
    source = elmokit.load(name)
    again = hf.to_elmo(*hf.from_elmo(source))
    sentences = [["the", "bank"], ["a"]]
    for one, other in zip(
        source.encode(sentences, layers="all"), again.encode(sentences, layers="all"), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    assert again.config.text == source.config.text


@pytest.mark.parametrize(
    "name", ["test-tiny", GOLDEN / "many-langs/released"], ids=["tiny", "words"]
)
def test_hf_folder_is_loaded_by_elmokit_without_transformers(name, tmp_path):
    source = elmokit.load(name)
    for part in hf.from_elmo(source):
        part.save_pretrained(tmp_path / "plain")
    tagger(str(tmp_path / "plain")).save_pretrained(tmp_path / "tagger")
    AutoTokenizer.from_pretrained(tmp_path / "plain").save_pretrained(tmp_path / "tagger")
    (expected,) = source.encode([["the", "bank"]], layers="all")
    for folder in (tmp_path / "plain", tmp_path / "tagger"):
        elmo = elmokit.load(folder)
        assert elmo.kind == "transformers folder"
        (found,) = elmo.encode([["the", "bank"]], layers="all")
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    (tmp_path / "plain" / "model.safetensors").write_bytes(b"cut")
    with pytest.raises(CheckpointError, match=r"model\.safetensors"):
        elmokit.load(tmp_path / "plain")
    settings = tmp_path / "tagger" / "config.json"
    settings.write_text(settings.read_text("utf-8").replace('"layers": 2', '"layers": 2000000'))
    with pytest.raises(CheckpointError, match=r"lstm\.layers"):
        elmokit.load(tmp_path / "tagger")


def test_hf_model_from_a_config_starts_as_pretraining_does(model):
    torch.manual_seed(0)
    fresh = AutoModel.from_config(model.config)
    torch.manual_seed(0)
    same = AutoModel.from_config(model.config)
    bound = (6 / (2 * 16 + 4 * fresh.bilm.config.lstm.cells)) ** 0.5
    for name, tensor in fresh.state_dict().items():
        assert torch.equal(tensor, same.state_dict()[name])
        if name.endswith("input_weight"):
            assert 0.9 * bound < tensor.abs().max() <= bound
            assert not torch.equal(tensor, model.state_dict()[name])


def test_page_runs(tmp_path, capsys, monkeypatch):
    def printed() -> tuple[str, str]:
        out, err = capsys.readouterr()
        return re.sub(r"^{'train_runtime'.*\n", "", out, flags=re.M), err  # Trainer's

    monkeypatch.chdir(tmp_path)
    shutil.copy(Path(__file__).parents[1] / "golden" / "flair" / "tagger.pt", "flair.pt")
    run_page("docs/huggingface.md", printed)
