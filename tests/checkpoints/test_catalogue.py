"""The catalogue of published models: every entry is complete enough to find, fetch and read."""

from __future__ import annotations

import hashlib
import importlib
import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from elmokit.checkpoints import find_published, published_models, suggest_names
from elmokit.checkpoints.known_models import embedded_models
from elmokit.checkpoints.sources import FOLDER_LAYOUTS
from elmokit.errors import ConfigError

ROOT = Path(__file__).parents[2]
MODELS = published_models()
by_name = pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)


@by_name
def test_an_entry_has_a_reader_or_a_reason(model):
    if model.reader is None:
        assert model.no_reader
        assert not model.downloads
    else:
        assert model.reader in FOLDER_LAYOUTS
        assert model.downloads or model.others or model.notes
    assert model.sources
    assert re.fullmatch(r"words|space|chars|jieba|spacy:\w+", model.tokenizer)


@by_name
def test_an_entry_names_files_that_make_a_model(model):
    needed = {"bilm-tf HDF5": {"weights"}, "TensorFlow checkpoint": {"checkpoint", "options"}}
    for files in model.downloads:
        roles = {file.role for file in files}
        whole = roles in ({"archive"}, {"repository"})
        assert whole or roles >= needed[model.reader]
        names = [file.name for file in files]
        assert len(set(names)) == len(names)
        for file in files:
            assert re.fullmatch(r"[\w.-]+" if file.role != "repository" else "", file.name)
            assert file.addresses
            assert len(set(file.addresses)) == len(file.addresses)
            for address in file.addresses:
                parts = urlsplit(address)
                if file.role == "repository":
                    assert re.fullmatch(r"hf:[\w.-]+/[\w.-]+", address)
                else:
                    assert parts.scheme in ("https", "http")
                    assert re.fullmatch(r"[\w.-]+\.\w+", parts.netloc)
                    assert " " not in address
            if file.checksum is not None:
                algorithm, digest = file.checksum.split(":")
                assert len(digest) == 2 * hashlib.new(algorithm).digest_size


def test_no_two_models_share_a_name_and_none_has_an_embedded_one():
    names = Counter(name for m in MODELS for name in (m.name, *m.aliases))
    assert names.most_common(1)[0][1] == 1
    assert not names.keys() & set(embedded_models())
    assert all(name == name.lower() and " " not in name for name in names)


def test_the_catalogue_holds_all_models_of_the_list():
    assert len(MODELS) == 156
    assert Counter(m.status for m in MODELS) == {"documented": 135, "unverified": 21}
    assert sum(m.reader is None for m in MODELS) == 8


@pytest.mark.parametrize(
    ("alias", "name"),
    {
        "small": "allennlp-small",
        "medium": "allennlp-medium",
        "original": "allennlp-original",
        "Original-5.5B": "allennlp-original-5.5b",
        "large": "allennlp-original-5.5b",  # flair
        "en": "allennlp-medium",  # fastNLP
        "elmo-en": "allennlp-original-5.5b",  # delft
        "elmo-pubmed": "pubmed-allennlp",
        "elmo-fr": "fr-oscar",
        "pt": "pt-wikipedia",
        "pubmed": "pubmed-allennlp",
        "seqvec": "seqvec",
        "zh-simplified": "manylangs-zhs",
        "google/elmo": "tfhub-google-elmo-3",
        "google/elmo/2": "tfhub-google-elmo-2",
        "https://tfhub.dev/google/elmo/3": "tfhub-google-elmo-3",
        "217": "nlpl-217",
        "nlpl-179": "manylangs-zh",
        "tayga_lemmas_elmo_2048_2019": "nlpl-199",
    }.items(),
)
def test_a_model_is_found_by_the_names_people_know(alias, name):
    assert find_published(alias).name == name
    assert find_published(name).name == name


def test_a_near_miss_suggests_names():
    assert find_published("orignal") is None
    assert suggest_names("orignal")[0] == "original"
    assert "seqvec" in suggest_names("seqvek")
    assert "manylangs-uk" in suggest_names("uk")
    assert suggest_names("xyzzy") == []


def test_models_are_selected_by_language_and_domain():
    assert {m.name for m in published_models("zh")} == {"manylangs-zh", "manylangs-zhs"}
    assert {m.name for m in published_models("zh-Hans")} == {"manylangs-zhs"}
    assert "manylangs-nb" in {m.name for m in published_models("no")}
    assert {m.name for m in published_models(domain="protein")} >= {"seqvec", "catelmo-deep"}
    assert [m.name for m in published_models("pt", "web")] == ["pt-brwac", "manylangs-pt"]
    with pytest.raises(ConfigError, match=r"language 'tlh'; there are ar, .*, zh-Hant"):
        published_models("tlh")
    with pytest.raises(ConfigError, match=r"domain 'cooking'; there are biomedical, "):
        published_models(domain="cooking")


def test_reading_the_catalogue_loads_no_torch():
    script = (
        "import sys; from elmokit.checkpoints import find_published; "
        "find_published('original'); print('torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == "False", done.stderr


def test_the_pages_show_the_catalogue():
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "published_page.py")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_the_script_makes_values_of_words(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    make = importlib.import_module("make_catalogue")
    entry = {
        "id": "de-tsystems",
        "name": "A model",
        "languages": ["de"],
        "domain": "Wikipedia articles",
        "architecture": {"layers": 2, "filters": "[[1,4]] (4)", "projection": 8, "note": "as said"},
        "corpus": "1 M tokens (10 words, formats.md h.1)",
        "licence": "not stated",
        "urls": {
            "weights": "https://example.org/w.hdf5",
            "options": "https://drive.google.com/file/d/abc",
            "mirrors": [
                "https://www.dropbox.com/s/x/w.hdf5 (old)",
                "http://magnitude.plasticity.ai/w.magnitude",
            ],
            "checkpoint": [],
        },
        "elmokit_reader": "bilm_hdf5; tf_checkpoint for the tarball",
        "tokenisation": "lemmas (UDPipe)",
        "checksums": {"weights.hdf5": f"md5 0, sha1 {'a' * 40}"},
        "size": "12.5 MB computed from shapes",
        "sources": ["find_string ids 12, 34 (a list)"],
        "status": "unverified: seen once",
    }
    path = tmp_path / "list.json"
    path.write_text(json.dumps({"made": "2026-01-01", "entries": [entry]}), "utf-8")
    (found,) = json.loads(make.catalogue(path))["models"]
    weights, options = found["downloads"][0]
    assert weights == {
        "role": "weights",
        "name": "weights.hdf5",
        "addresses": ["https://example.org/w.hdf5", "https://www.dropbox.com/s/x/w.hdf5?dl=1"],
        "checksum": f"sha1:{'a' * 40}",
        "approximate_size": 12_500_000,
    }
    assert all("id=abc" in address for address in options["addresses"])
    assert [other["address"] for other in found["others"]] == [entry["urls"]["mirrors"][1]]
    assert found["architecture"] == {
        "layers": 2,
        "projection": 8,
        "filters": [[1, 4]],
        "dim": 16,
        "note": "as said",
    }
    assert (found["corpus"], found["domain"]) == ("1 M tokens (10 words)", "wikipedia")
    assert found["sources"] == ["a file of a public repository (a list)"]
    assert (found["status"], found["reader"]) == ("unverified", "bilm-tf HDF5")
    assert found["notes"] == ["seen once", "trained on lemmas: lemmatise your text first"]
    assert "licence" not in found
