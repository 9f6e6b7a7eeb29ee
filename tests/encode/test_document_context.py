"""Context across sentences: the state runs through a document, in both directions."""

from __future__ import annotations

import h5py
import numpy as np
import pytest
import torch

import elmokit
from elmokit.encode.document_context import encode_documents
from elmokit.errors import ConfigError, DataError

DOCUMENTS = [
    ["the river bank was muddy", "we saw it there again .", "no"],
    ["a cat sat on the mat ."],
    ["he has won", "", "they have lost the whole match", "he left"],
]


def chained(elmo, document):
    """All layers, sentence by sentence: forward from the state of the one before it, backward from
    the state of the one after it.
    """
    sentences = [elmo.tokenize(text) for text in document]
    found = {}
    for half, order in enumerate((range(len(sentences)), reversed(range(len(sentences))))):
        states = elmo.bilm.zero_states(1)
        for number in order:
            tokens, packing, _ = elmo.embed_tokens([sentences[number]])
            with torch.no_grad():
                outputs = list(elmo.bilm(tokens, packing, states))
            states = [layer.state for layer in outputs[1:]]
            found[number, half] = torch.stack(
                [layer.vectors.chunk(2, dim=1)[half][1:-1] for layer in outputs]
            )
    return [
        torch.cat([found[number, 0], found[number, 1]], dim=-1).numpy()
        for number in range(len(sentences))
    ]


@pytest.mark.parametrize("name", ["standard", "tiny", "elmo"])
def test_state_runs_through_a_document_in_both_directions(name, request):
    model = request.getfixturevalue(name)
    encoded = model.encode(DOCUMENTS, layers="all", context="document")
    for document, arrays in zip(DOCUMENTS, encoded, strict=True):
        for array, expected in zip(arrays, chained(model, document), strict=True):
            np.testing.assert_allclose(array, expected, rtol=1e-5, atol=2e-6)


def test_context_changes_vectors_of_every_sentence_but_not_of_tokens(standard):
    (arrays,) = standard.encode(DOCUMENTS[:1], layers="all", context="document")
    for array, alone in zip(arrays, standard.encode(DOCUMENTS[0], layers="all"), strict=True):
        np.testing.assert_allclose(array[0], alone[0], atol=1e-6)
        assert np.abs(array[-1] - alone[-1]).max() > 1e-3


def test_document_is_independent_of_the_batch(tiny):
    together = tiny.encode(DOCUMENTS, context="document")
    for document, arrays in zip(DOCUMENTS, together, strict=True):
        (alone,) = tiny.encode([document], context="document", batch_tokens=1)
        for one, other in zip(arrays, alone, strict=True):
            np.testing.assert_allclose(one, other, atol=1e-6)
    (single,) = tiny.encode([DOCUMENTS[1]], context="document")
    np.testing.assert_allclose(single[0], tiny.encode(DOCUMENTS[1])[0], atol=1e-6)


def test_shapes_and_pools(tiny):
    document = DOCUMENTS[2]
    (arrays,) = tiny.encode([document], context="document")
    assert [len(array) for array in arrays] == [3, 0, 6, 2]
    (pooled,) = tiny.encode([document], context="document", pool="max")
    np.testing.assert_allclose(pooled[2], arrays[2].max(axis=0), atol=1e-6)
    assert pooled[1].shape == (tiny.dim,)
    assert not pooled[1].any()
    (tensors,) = tiny.encode([document], context="document", output="torch", layers="all")
    assert tensors[0].shape == (tiny.layers, 3, tiny.dim)
    assert tiny.encode([[], [[]]], context="document")[0] == []
    assert tiny.encode([], context="document") == []


def test_documents_stream(tiny):
    read = []

    def documents():
        for number in range(400):
            read.append(number)
            yield ["the river bank was muddy"] * 4

    stream = encode_documents(tiny, documents(), batch_tokens=32)
    next(stream)
    assert len(read) < 300


def test_bad_input_is_one_line(tiny):
    with pytest.raises(DataError, match="expected the sentences of a document, found a text"):
        tiny.encode(["one text", "another text"], context="document")
    with pytest.raises(ConfigError, match="state='carry'"):
        tiny.encode(DOCUMENTS, context="document", state="carry")
    with pytest.raises(ConfigError, match="context='paragraph'"):
        tiny.encode(DOCUMENTS, context="paragraph")
    mix = elmokit.ScalarMix(tiny.layers, layer_norm=True)
    with pytest.raises(ConfigError, match="layer norm"):
        tiny.encode(DOCUMENTS, context="document", layers=mix)
    with pytest.raises(TypeError, match="no option 'batch_size'"):
        tiny.encode(DOCUMENTS, context="document", batch_size=3)


def test_command_reads_documents_between_blank_lines(tiny, tmp_path, monkeypatch, capsys):
    from elmokit.cli import main

    monkeypatch.chdir(tmp_path)
    lines = [*DOCUMENTS[0], "", "", *DOCUMENTS[1]]
    (tmp_path / "documents.txt").write_text("\n".join(lines) + "\n", "utf-8")
    call = ["encode", "documents.txt", "-m", "test-tiny", "-o", "v.h5", "--context", "document"]
    assert main(call) == 0, capsys.readouterr().err
    first, second = tiny.encode(DOCUMENTS[:2], context="document")
    expected = [*first, np.empty((0, tiny.dim)), np.empty((0, tiny.dim)), *second]
    with h5py.File("v.h5") as file:
        for number, array in enumerate(expected):
            np.testing.assert_allclose(file[str(number)][:], array, atol=1e-6)
    assert main([*call, "--state", "carry"]) == 2
    assert "--context document takes lines of text" in capsys.readouterr().err
