"""ELMo inside spaCy: vectors of docs, and a tagger that sets entities."""

import json
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from pages import run_page

import elmokit
from elmokit.errors import CheckpointError, ConfigError, DataError
from elmokit.tasks import TaggedExample
from elmokit.tasks.fit import task_settings
from elmokit.training.settings import changed

spacy = pytest.importorskip("spacy")

Doc = spacy.tokens.Doc
Example = spacy.training.Example

TEXTS = [
    "The bank of the river isn't far.",
    "The bank lent money.  It was\n\nmuch money!",
    "",
    "   ",
    "Naïve Zoë ate crème brûlée in Zürich...",
]


def pipeline(**config: object) -> spacy.Language:
    nlp = spacy.blank("en")
    nlp.add_pipe("elmokit", config={"model": "test-tiny", **config})
    return nlp


@pytest.fixture(scope="module")
def nlp() -> spacy.Language:
    return pipeline()


def read(doc: Doc) -> list[str]:
    return [token.text for token in doc if not token.is_space]


def test_spacy_finds_the_factories_without_heavy_imports():
    code = (
        "import sys, spacy\n"
        "nlp = spacy.blank('en')\n"
        "assert {n for n in sys.modules if n.startswith('elmokit.')} == {\n"
        "    'elmokit.integrations', 'elmokit.integrations.spacy_factories', 'elmokit.lazy'}\n"
        "nlp.add_pipe('elmokit'); nlp.add_pipe('elmokit_ner'); print(nlp.pipe_names)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "['elmokit', 'elmokit_ner']\n"


@pytest.mark.parametrize("text", TEXTS)
def test_spacy_rows_are_the_models_vectors_of_the_tokens(nlp, tiny, text):
    doc = nlp(text)
    assert doc.tensor.shape == (len(doc), 32)
    expected = iter(tiny.encode([read(doc)])[0])
    for token in doc:
        row = np.zeros(32) if token.is_space else next(expected)
        np.testing.assert_allclose(token.vector, row, rtol=1e-6, atol=1e-6)
        assert token.has_vector == (not token.is_space)
        assert token.vector_norm == pytest.approx(np.linalg.norm(row))


def test_spacy_marked_sentences_are_separate_inputs(tiny):
    nlp = pipeline()
    nlp.add_pipe("sentencizer", first=True)
    doc = nlp(TEXTS[1])
    sentences = [[t.text for t in sent if not t.is_space] for sent in doc.sents]
    assert len(sentences) == 2
    expected = np.concatenate(tiny.encode(sentences))
    rows = doc.tensor[[token.i for token in doc if not token.is_space]]
    np.testing.assert_allclose(rows, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("layers", [0, 2, "top", [0.5, 0.5, 0.0], "all"], ids=str)
def test_spacy_layers_can_be_chosen(tiny, layers):
    doc = pipeline(layers=layers)(TEXTS[0])
    expected = tiny.encode([read(doc)], layers=layers)[0]
    if layers == "all":
        expected = np.concatenate(expected, axis=1)
    np.testing.assert_allclose(doc.tensor, expected, rtol=1e-6, atol=1e-6)


def test_spacy_vectors_of_spans_and_docs_are_means_of_real_tokens(nlp):
    doc = nlp(TEXTS[1])
    indices = [token.i for token in doc if not token.is_space]
    np.testing.assert_allclose(doc.vector, doc.tensor[indices].mean(0), rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(doc[1:3].vector, doc.tensor[1:3].mean(0), rtol=1e-5, atol=1e-7)
    assert doc.has_vector
    assert doc[1:3].has_vector
    assert not nlp("   ").has_vector


def test_spacy_similarity_is_the_cosine_of_any_two_things(nlp):
    first, second = nlp(TEXTS[0]), nlp(TEXTS[1])

    def cosine(a: np.ndarray, b: np.ndarray) -> float:
        return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))

    for one in (first, first[1:3], first[1]):
        for other in (second, second[1:3], second[1]):
            assert one.similarity(other) == pytest.approx(cosine(one.vector, other.vector))
    assert first[1].similarity(first[1]) == pytest.approx(1)
    assert first[1].similarity(second[1]) < 0.999
    assert first.similarity(nlp("")) == 0


def test_spacy_similarity_to_what_another_pipeline_read_is_refused(nlp):
    with pytest.raises(DataError, match="same pipeline"):
        nlp("a bank").similarity(pipeline(layers="all")("a bank"))


@pytest.mark.parametrize("tokenizer", ["space", "words", "chars"])
def test_spacy_tokens_get_means_of_the_models_own_tokens(tiny, tokenizer):
    doc = pipeline(tokenizer=tokenizer)(TEXTS[0])
    spans = elmokit.text.tokens.get_tokenizer(tokenizer).spans(doc.text)
    vectors = tiny.encode([[doc.text[start:end] for start, end in spans]])[0]
    for token in doc:
        start, end = token.idx, token.idx + len(token)
        shared = [i for i, (s, e) in enumerate(spans) if s < end and start < e]
        assert shared
        expected = vectors[shared].mean(axis=0)
        np.testing.assert_allclose(token.vector, expected, rtol=1e-5, atol=1e-6)


def test_spacy_stream_equals_single_docs(nlp):
    texts = TEXTS * 3
    for batch_size in (1, 4, 100):
        docs = list(nlp.pipe(texts, batch_size=batch_size))
        assert [doc.text for doc in docs] == texts
        for doc, text in zip(docs, texts, strict=True):
            np.testing.assert_allclose(doc.tensor, nlp(text).tensor, rtol=1e-5, atol=1e-6)


def test_spacy_errors_go_to_the_pipelines_handler(tmp_path):
    nlp = pipeline(model=str(tmp_path / "nothing"))
    with pytest.raises(CheckpointError, match="nothing"):
        nlp("a")
    caught = []
    nlp.set_error_handler(lambda name, pipe, docs, error: caught.append((name, len(docs))))
    assert list(nlp.pipe(["a", "b"])) == []
    assert caught == [("elmokit", 2)]


@pytest.mark.parametrize(
    "config", [{"layers": 1.5}, {"model": 3}, {"unknown": 1}, {"layers": None}]
)
def test_spacy_config_is_checked_by_spacy(config):
    with pytest.raises(ValueError, match="elmokit -> "):
        pipeline(**config)


@pytest.mark.parametrize("bundle", [False, True])
@pytest.mark.parametrize("way", ["disk", "bytes", "pickle"])
def test_spacy_pipeline_is_stored(tmp_path, tiny, bundle, way):
    tiny.save(tmp_path / "model")
    nlp = pipeline(model=str(tmp_path / "model"), layers=1, bundle=bundle)
    before = nlp(TEXTS[0])
    nlp.to_disk(tmp_path / "pipeline")
    data, pickled = nlp.to_bytes(), pickle.dumps(nlp)
    if bundle:  # nothing else is needed
        shutil.rmtree(tmp_path / "model")
    if way == "disk":
        again = spacy.load(tmp_path / "pipeline")
    elif way == "bytes":
        again = pipeline(model=str(tmp_path / "model"), layers=1, bundle=bundle).from_bytes(data)
    else:
        again = pickle.loads(pickled)
    np.testing.assert_allclose(again(TEXTS[0]).tensor, before.tensor, atol=1e-6)
    assert again(TEXTS[0])[1].similarity(before[1]) == pytest.approx(1)
    held = sum(f.stat().st_size for f in (tmp_path / "pipeline" / "elmokit").rglob("*"))
    assert (held > 10_000) == bundle


def test_spacy_stored_pipeline_knows_its_model(tmp_path, tiny):
    tiny.save(tmp_path / "model")
    pipeline(model=str(tmp_path / "model")).to_disk(tmp_path / "pipeline")
    bilm = elmokit.load(tmp_path / "model")
    bilm.bilm.encoder.projection.bias.data += 1
    bilm.save(tmp_path / "model")
    with pytest.raises(CheckpointError, match="not the one"):
        spacy.load(tmp_path / "pipeline")("a")


def test_spacy_bytes_cannot_write_outside(tmp_path):
    import srsly

    nlp = pipeline()
    for path in ("../evil", "/evil", "a/../../evil"):
        data = srsly.msgpack_dumps({path: b"x"})
        with pytest.raises(CheckpointError, match="leads out"):
            nlp.get_pipe("elmokit").from_bytes(data)


def test_spacy_docs_read_back_get_their_hooks_again(nlp):
    from elmokit.integrations.spacy import attach_hooks

    doc = nlp(TEXTS[0])
    with pytest.warns(UserWarning, match="W109"):  # spaCy says the same
        again = Doc(nlp.vocab).from_bytes(doc.to_bytes())
    attach_hooks(again)
    assert again.similarity(doc) == pytest.approx(1)


# Entities

SENTENCES = [
    TaggedExample(("Anna", "saw", "Rome", "."), ("B-PER", "O", "B-LOC", "O")),
    TaggedExample(("Bob", "Miller", "left", "Paris", "."), ("B-PER", "I-PER", "O", "B-LOC", "O")),
    TaggedExample(("The", "film", "was", "long", "."), ("O", "O", "O", "O", "O")),
    TaggedExample(("Rome", "is", "not", "Paris", "."), ("B-LOC", "O", "O", "B-LOC", "O")),
] * 6


def trained(folder: Path, examples: list[TaggedExample], *overrides: str) -> Path:
    small = ["encoder.cells=16", "inputs.words=16", "run.epochs=30", "run.patience=0"]
    small += ["run.batch=8", "optimizer.lr=0.01", "inputs.word_dropout=0"]
    config = changed(task_settings("tag", None), [*small, *overrides])
    elmokit.tasks.fit(
        "tag", examples, examples[:8], elmo="test-tiny", config=config, quiet=True
    ).save(folder)
    return folder


@pytest.fixture(scope="module")
def tagger(tmp_path_factory) -> Path:
    return trained(tmp_path_factory.mktemp("tagger") / "tagger", SENTENCES)


@pytest.fixture(scope="module")
def ner(tagger) -> spacy.Language:
    nlp = spacy.blank("en")
    nlp.add_pipe("sentencizer")
    nlp.add_pipe("elmokit_ner", config={"predictor": str(tagger)})
    return nlp


def entities(doc: Doc) -> list[tuple[str, str]]:
    return [(ent.text, ent.label_) for ent in doc.ents]


def test_spacy_tagger_sets_entities(ner):
    doc = ner("Bob Miller left \n Paris. Anna saw Rome.")
    found = [("Bob Miller", "PER"), ("Paris", "LOC"), ("Anna", "PER"), ("Rome", "LOC")]
    assert entities(doc) == found
    assert doc[0].ent_iob_ == "B"
    assert ner.pipe_labels["elmokit_ner"] == ["LOC", "PER"]
    assert entities(ner("")) == entities(ner("  ")) == []


def test_spacy_tagger_agrees_with_the_predictor(ner, tagger):
    predictor = elmokit.tasks.load(tagger)
    texts = [" ".join(example.tokens) for example in SENTENCES]
    docs = list(ner.pipe(texts, batch_size=5))
    for doc, tags in zip(docs, predictor.predict([e.tokens for e in SENTENCES]), strict=True):
        kinds = [f"{t.ent_iob_}-{t.ent_type_}" if t.ent_type_ else "O" for t in doc]
        assert kinds == tags


def test_spacy_evaluates_the_tagger(ner):
    examples = []
    for sentence in SENTENCES[:4]:
        doc = Doc(ner.vocab, list(sentence.tokens), ents=list(sentence.tags))
        examples.append(Example(ner.make_doc(doc.text), doc))
    scores = ner.evaluate(examples)
    assert scores["ents_f"] > 0.8
    assert set(scores["ents_per_type"]) == {"LOC", "PER"}


def test_spacy_tagger_leaves_earlier_entities(tagger):
    nlp = spacy.blank("en")
    ruler = nlp.add_pipe("entity_ruler")
    ruler.add_patterns([{"label": "FRIEND", "pattern": "Miller"}])
    nlp.add_pipe("elmokit_ner", config={"predictor": str(tagger)})
    found = entities(nlp("Bob Miller left Paris."))
    assert ("Miller", "FRIEND") in found
    assert ("Bob Miller", "PER") not in found
    assert ("Paris", "LOC") in found


@pytest.mark.parametrize("bundle", [False, True])
def test_spacy_tagger_is_stored(tmp_path, tagger, bundle):
    shutil.copytree(tagger, tmp_path / "tagger")
    nlp = spacy.blank("en")
    config = {"predictor": str(tmp_path / "tagger"), "bundle": bundle}
    nlp.add_pipe("elmokit_ner", config=config)
    before = entities(nlp("Anna saw Rome."))
    assert before
    nlp.to_disk(tmp_path / "pipeline")
    copies = [pickle.dumps(nlp), nlp.to_bytes()]
    shutil.rmtree(tmp_path / "tagger")
    facts = json.loads((tmp_path / "pipeline" / "elmokit_ner" / "predictor.json").read_text())
    assert facts["elmo"]["bundled"] == bundle
    again = spacy.blank("en")
    again.add_pipe("elmokit_ner", config=config)
    loaded = (
        spacy.load(tmp_path / "pipeline"),
        pickle.loads(copies[0]),
        again.from_bytes(copies[1]),
    )
    assert [entities(nlp("Anna saw Rome.")) for nlp in loaded] == [before] * 3


@pytest.mark.parametrize("tags", [("NOUN", "VERB"), ("B", "O")], ids=["no-spans", "no-types"])
def test_spacy_tagger_must_find_spans(tmp_path, tags):
    words = [TaggedExample(("Anna", "saw"), tags)] * 8
    nlp = spacy.blank("en")
    folder = trained(tmp_path / "pos", words, "run.epochs=1")
    nlp.add_pipe("elmokit_ner", config={"predictor": str(folder)})
    with pytest.raises(ConfigError, match="finds no entities"):
        nlp("Anna")
    nlp = spacy.blank("en")
    nlp.add_pipe("elmokit_ner")
    with pytest.raises(ConfigError, match=r"config\.predictor"):
        nlp("Anna")


def test_page_runs(tmp_path, tagger, capsys, monkeypatch):
    shutil.copytree(tagger, tmp_path / "my-tagger")
    monkeypatch.chdir(tmp_path)
    run_page("docs/spacy.md", capsys.readouterr)
