"""Writes src/elmokit/models/catalogue.json from a list of published models in free words.

    python tools/make_catalogue.py LIST.json            # compare the package's file with the list
    python tools/make_catalogue.py LIST.json --write    # write it

The list has one entry per model: id, name, languages, domain, architecture, corpus, licence, urls,
elmokit_reader, tokenisation, sources, status, and where stated nlpl_id, size, checksums,
parameters_millions, perplexity. Here words become values that a program can use: which files to
fetch, in which order to try their addresses, under which name to store them, who reads them. What
the list does not state stays unknown; what it calls inferred keeps that note.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from fnmatch import fnmatch
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

FILE = Path(__file__).parents[1] / "src" / "elmokit" / "models" / "catalogue.json"

GROUPS = {
    "English models of AllenNLP and cuts of them": "allennlp-* ukp-*",
    "Models contributed to AllenNLP": "pt-wikipedia pt-brwac ja-exawizards de-tsystems eu-plur "
    "ta-plur pubmed-allennlp transformer-elmo",
    "Cross-lingual models of seven languages": "crosslingual-*",
    "AllenNLP task models and Hugging Face repositories": "archive-* hf-*",
    "TF-Hub, Spark NLP, GluonNLP": "tfhub-* sparknlp-* gluonnlp-*",
    "ELMoForManyLangs": "manylangs-*",
    "NLPL vectors repository": "nlpl-*",
    "DeepPavlov (Russian)": "deeppavlov-*",
    "EMBEDDIA": "embeddia-*",
    "Languages of India": "india-*",
    "Other languages": "pl-sdadas fr-oscar oscar-* ko-ratsgo te-clickbait",
    "Domains of English": "bioelmo* clinical-* chem-patents materials-science title2vec "
    "stackoverflow biomed-elmo-s3",
    "Biology": "seqvec* catelmo* protein-*",
}
"""Title of each group, and the models in it."""
DOMAINS = {
    "wiki": "wikipedia",
    "twitter": "social media",
    "tcr": "protein",
    "protein": "protein",
    "news": "news",
    "web": "web",
    "common crawl": "web",
    "general": "general",
    "biomedical": "biomedical",
    "clinical": "clinical",
    "chemical": "chemistry",
    "materials": "materials science",
    "job titles": "job titles",
    "programming": "programming",
    "test": "test",
}
"""The first of these that the list's word contains decides."""

ALIASES = {
    "allennlp-small": "small en-small elmo_2x1024_128_2048cnn_1xhighway",
    "allennlp-medium": "medium en-medium en elmo_2x2048_256_2048cnn_1xhighway",
    "allennlp-original": "original en-original elmo_2x4096_512_2048cnn_2xhighway",
    "allennlp-original-5.5b": "original-5.5b 5.5b large en-original-5.5b elmo-en "
    "elmo_2x4096_512_2048cnn_2xhighway_5.5b",
    "pt-wikipedia": "pt portuguese",
    "pubmed-allennlp": "pubmed elmo-pubmed",
    "de-tsystems": "german-elmo-model",
    "fr-oscar": "elmo-fr frelmo",
    "tfhub-google-elmo-1": "google/elmo/1 google/elmo/tensorflow1/elmo/1 "
    "https://tfhub.dev/google/elmo/1",
    "tfhub-google-elmo-2": "google/elmo/2 google/elmo/tensorflow1/elmo/2 "
    "https://tfhub.dev/google/elmo/2",
    "tfhub-google-elmo-3": "google/elmo google/elmo/3 elmo google/elmo/tensorflow1/elmo/3 "
    "https://tfhub.dev/google/elmo/3",
    "sparknlp-elmo": "en.embed.elmo",
    "manylangs-zh": "zh-traditional zht",
    "manylangs-zhs": "zh-simplified zhs zhs.model",
    "nlpl-217": "norelmo30",
    "nlpl-218": "norelmo100",
    "deeppavlov-ru-wiki": "elmo_ru-wiki",
    "deeppavlov-ru-news": "elmo_ru-news",
    "deeppavlov-ru-twitter": "elmo_ru-twitter",
    "chem-patents": "chempatents",
    "clinical-mimic-wiki": "clinical-elmo",
}
READERS = {  # the list's word -> the kind of model folder in elmokit/checkpoints/sources.py
    "bilm_hdf5": "bilm-tf HDF5",
    "many_langs": "ELMoForManyLangs",
    "allennlp_archive": "AllenNLP archive",
    "tf_checkpoint": "TensorFlow checkpoint",
}
NO_READER = {
    "transformer-elmo": "a transformer, not a biLM of LSTMs",
    "hf-rahul-elmo": "a PyTorch layout of its own",
    "title2vec": "a .pt file of a layout that no document describes",
    "protein-bilm-bepler": "nn.LSTM layers over amino acids, tied directions, no projection: "
    "another architecture",
    "gluonnlp-": "MXNet .params; the same weights are published as HDF5: load allennlp-",
}
MANUAL = {  # what an address cannot give to a program
    "chemu.eng.unimelb.edu.au": "a page with links",
    "figshare.com": "a page with links",
    "bit.ly": "leads to a shared folder",
    "www.kaggle.com": "a page of Kaggle",
    "pan.baidu.com": "a share of Baidu Pan",
    "disk.yandex.ru": "a share of Yandex Disk",
    "nlp.johnsnowlabs.com": "a page; the archive is in Spark NLP's own layout",
    "39.96.43.154": "the first address, reported dead",
    "magnitude.plasticity.ai": "the same weights as a Magnitude file, which elmokit does not read",
    "download.fastnlp.top": "the same weights in fastNLP's layout, which elmokit does not read",
}
S3_BUCKET = ("https://s3-us-west-2.amazonaws.com/allennlp/", "https://allennlp.s3.amazonaws.com/")
STORED_NAMES = {"weights": "weights.hdf5", "options": "options.json", "vocabulary": "vocab.txt"}
NOT_STATED = {None, "not stated", "unknown", "not stated in the document seen", "unverified"}
NOT_STATED |= {"model card: license null", "none"}


def plain(text: str) -> str:
    """Take out references to notes that users do not have."""
    text = re.sub(r"find_string (?:file )?ids? [\d, and]*\d", "a file of a public repository", text)
    text = re.sub(r"huggingface\.co page in the docs corpus (\S+)/tree/main", r"huggingface.co/\1",
                  text)  # fmt: skip
    text = text.replace("docslib 2808962 / ar5iv", "arXiv").replace("ar5iv", "arXiv")
    text = text.replace("hf.zsm.im/papers/2104.06546.md", "arXiv 2104.06546")
    text = text.replace("opened here, see weights.md", "the file itself")
    text = re.sub(r"paper text seen in the pages corpus; (.*) from memory", r"\1 unverified", text)
    text = re.sub(r" ?\(formats\.md [^)]*\)", "", text)
    text = re.sub(r"[,;] formats\.md [a-z]\.?\d?", "", text)
    return text.strip()


def stated(text: str | None) -> str | None:
    return None if text in NOT_STATED else plain(str(text))


def group(name: str) -> str:
    return next(
        title
        for title, patterns in GROUPS.items()
        if any(fnmatch(name, pattern) for pattern in patterns.split())
    )


def domain(entry: dict[str, Any]) -> str:
    if entry["id"].startswith(("archive-", "hf-")) and entry["domain"] not in ("test", "unknown"):
        return "task"
    word = entry["domain"].lower()
    if word.startswith("wikipedia + common crawl"):
        return "web"
    if word.startswith("general (wikipedia"):
        return "general"
    return next((value for key, value in DOMAINS.items() if key in word), "not stated")


def direct(address: str) -> tuple[list[str], str]:
    """The addresses that give the file itself, and else the reason why none does."""
    address = address.partition(" (")[0]
    parts = urlsplit(address)
    if parts.netloc in MANUAL:
        return [], MANUAL[parts.netloc]
    found = [address]
    if parts.netloc == "drive.google.com":
        match = re.search(r"/file/d/([\w-]+)", parts.path)
        key = match[1] if match else parse_qs(parts.query)["id"][0]
        # The first gives large files as well; the second asks a person whether it may.
        query = f"export=download&id={key}"
        found = [f"https://drive.usercontent.google.com/download?{query}&confirm=t"]
        found.append(f"https://drive.google.com/uc?{query}")
    elif parts.netloc == "www.dropbox.com":
        found = [f"https://www.dropbox.com{parts.path}?dl=1"]
    elif parts.netloc == "tfhub.dev":
        found = [f"https://tfhub.dev{parts.path}?tf-hub-format=compressed"]
    elif parts.netloc == "huggingface.co" and "/resolve/" not in parts.path:
        found = [f"hf:{parts.path.strip('/')}"]
    elif address.startswith(S3_BUCKET[0]):  # two addresses of one bucket
        found.append(address.replace(*S3_BUCKET))
    return found, ""


def checksum(entry: dict[str, Any], name: str) -> tuple[str | None, int | None]:
    words = entry.get("checksums", {}).get(name, "")
    found = re.search(r"(sha256|sha1|md5) ([0-9a-f]+)$", re.sub(r" \(.*", "", words))
    size = re.search(r"\((\d+) B\)", words)
    if found is None:
        return None, None
    return f"{found[1]}:{found[2]}", int(size[1]) if size else None


def approximate_size(entry: dict[str, Any]) -> int | None:
    found = re.search(r"([\d.]+) (kB|MB|GB)", entry.get("size", ""))
    scale = {"kB": 1e3, "MB": 1e6, "GB": 1e9}
    return round(float(found[1]) * scale[found[2]]) if found else None


def file(role: str, name: str, addresses: list[str], **more: Any) -> dict[str, Any]:
    return {"role": role, "name": name, "addresses": addresses} | {
        key: value for key, value in more.items() if value is not None
    }


class Downloads:
    """The sets of files of an entry, each of them a whole model, and its other addresses."""

    def __init__(self, entry: dict[str, Any]) -> None:
        self.entry, self.name = entry, entry["id"]
        self.urls = dict(entry["urls"])
        self.mirrors: list[str] = list(self.urls.pop("mirrors", []))
        self.size = approximate_size(entry)
        self.sets: list[list[dict[str, Any]]] = []
        self.others: list[dict[str, str]] = []
        if self.name == "chem-patents":  # the mirror is a path in a repository with LFS
            base, self.size = "https://github.com/zenanz/ChemPatentEmbeddings/raw/HEAD/ELMo", None
            self.mirrors = []
            self.urls |= {"weights": f"{base}/weights.hdf5", "options": f"{base}/options.json"}
        if self.name == "allennlp-original":
            self._name_the_files_on_the_hub()
        self._files()
        self._checkpoint()
        self._archive()
        self._pages()

    def _other(self, address: str, note: str) -> None:
        self.others.append({"address": address.partition(" (")[0], "note": note})

    def _usable(self, addresses: list[str]) -> list[str]:
        found: list[str] = []
        for address in addresses:
            some, note = direct(address)
            found += some
            if not some:
                self._other(address, note)
        return list(dict.fromkeys(found))

    def _name_the_files_on_the_hub(self) -> None:
        hub = [m.partition(" (")[0] for m in self.mirrors if "huggingface.co" in m]
        self.mirrors = [m for m in self.mirrors if "huggingface.co" not in m]
        self.mirrors += [f"{hub[0]}/resolve/main/{n}" for n in ("weights.hdf5", "options.json")]
        self._other(hub[1], "weights.hdf5 of 374 MB; of which model is not stated")

    def _files(self) -> None:
        whole = []
        for role, name in STORED_NAMES.items():
            if role not in self.urls:
                continue
            ending = name[name.rindex(".") :]
            alike = [m for m in self.mirrors if m.partition(" (")[0].endswith(ending)]
            self.mirrors = [m for m in self.mirrors if m not in alike]
            check, exact = checksum(self.entry, name)
            if role == "weights" and (
                bytes_ := re.search(r"([\d,]+) B ", self.entry.get("size", ""))
            ):
                exact = int(bytes_[1].replace(",", ""))
            about = self.size if role == "weights" else None
            found = self._usable([self.urls[role], *alike])
            whole.append(file(role, name, found, checksum=check, size=exact,
                              approximate_size=about))  # fmt: skip
        if "weights" in self.urls:
            self.sets.append(whole)
        elif whole:
            self.sets.append(self._checkpoint_files() + whole)

    def _checkpoint_files(self) -> list[dict[str, Any]]:
        return [
            file("options" if a.endswith(".json") else "checkpoint", a.rpartition("/")[2],
                 self._usable([a]))
            for a in self.urls["checkpoint"]
            if not a.endswith(".meta")  # the graph, which no reader needs
        ]  # fmt: skip

    def _checkpoint(self) -> None:
        notes = {
            "bioelmo-checkpoint": "one of five files of a TensorFlow checkpoint, without names",
            "de-tsystems": "a part of the TensorFlow checkpoint: join the parts to "
            "bilm-output-result.tgz",
        }
        for address in self.urls["checkpoint"] if self.name in notes else ():
            self._other(address, notes[self.name])

    def _archive(self) -> None:
        keys = ("zip", "archive", "module", "original", "guess", "gdrive", "dropbox", "tfhub")
        archives = [self.urls[key] for key in keys if key in self.urls]
        if isinstance(self.urls.get("checkpoint"), str):
            archives.append(self.urls["checkpoint"])
        separate = [] if self.name != "seqvec" else self.mirrors
        mirrors = [m for m in self.mirrors if m not in separate and not m.endswith(".pth")]
        for mirror in mirrors:  # a folder with several languages is no mirror of one of them
            if "some languages" in mirror:
                self._other(mirror, "some languages only")
        found = self._usable(archives + [m for m in mirrors if "some languages" not in m])
        if archives:
            path = urlsplit(archives[0].partition(" (")[0]).path
            ending = next((e for e in (".zip", ".tar.gz", ".tar.bz2") if path.endswith(e)), "")
            is_zip = "dropbox" in self.urls or self.name == "ko-ratsgo"  # its script unzips it
            ending = ".zip" if is_zip else ending or ".tar.gz"
            stored = f"{self.name}{ending}"
            self.sets.append([file("archive", stored, found, approximate_size=self.size)])
        if separate:
            weights, options = separate
            self.sets.append([
                file("weights", STORED_NAMES["weights"], [weights], approximate_size=self.size),
                file("options", STORED_NAMES["options"], [options]),
            ])  # fmt: skip
        if "hf" in self.urls:
            found = self._usable([self.urls["hf"]])
            self.sets.append([file("repository", "", found, approximate_size=self.size)])

    def _pages(self) -> None:
        if "alignment" in self.urls:
            alike = [m for m in self.mirrors if m.endswith("_best_mapping.pth")]
            for address in [self.urls["alignment"], *alike]:
                self._other(address, "a matrix A that aligns one layer with English: x·Aᵀ")
        for key in ("page", "handle", "folder", "figshare"):
            if key in self.urls:
                _, note = direct(self.urls[key])
                self._other(self.urls[key], note or "the page of the model")
        if "pypi" in self.urls:
            self._other(self.urls["pypi"], "a file of a Python package")


def architecture(entry: dict[str, Any]) -> dict[str, Any]:
    given = dict(entry["architecture"] or {})
    note = stated(given.pop("note", None)) or ""
    found = {key: given[key] for key in ("layers", "cells", "projection", "highways")
             if given.get(key) is not None}  # fmt: skip
    if (filters := given.get("filters")) is not None:
        found["filters"] = json.loads(filters.partition(" (")[0])
    if "output" in given:
        found["dim"] = given["output"]
    elif "projection" in found:
        found["dim"] = 2 * found["projection"]
    if entry["elmokit_reader"] == "many_langs":
        characters, words = re.findall(r"dim (\d+)", note)
        found |= {"alphabet": "unicode", "character_dim": int(characters), "word_dim": int(words)}
        note = ""
    return found | ({"note": note} if note else {})


def reader(entry: dict[str, Any]) -> tuple[str | None, str | None]:
    for prefix, why in NO_READER.items():
        if entry["id"].startswith(prefix):
            end = entry["id"].removeprefix("gluonnlp-") if prefix == "gluonnlp-" else ""
            return None, why + end
    word = entry["elmokit_reader"]
    if "SavedModel" in word or entry["id"] == "sparknlp-elmo":
        return "TF-Hub module", None
    return READERS[re.split(r"[ ;]", word)[0]], None


def tokenizer(entry: dict[str, Any]) -> str:
    """The name of elmokit's tokeniser that comes nearest to what the documents say."""
    language = (entry["languages"] or [""])[0]
    if domain(entry) == "protein":
        return "chars"
    if "module splits strings on spaces" in entry["tokenisation"]:
        return "space"
    return {"zh-Hans": "jieba", "zh-Hant": "jieba", "ja": "spacy:ja"}.get(language, "words")


def notes(entry: dict[str, Any]) -> list[str]:
    """Reservations: what a user should know before trusting the entry."""
    found = [part.strip() for part in re.split(r"; (?!URL)", entry["status"])[1:]]
    found = [note for note in found if note != "cannot be loaded"]
    if found_in := re.search(r"^unverified[ :]+\(?(.*?)\)?$", entry["status"]):
        found.append(found_in[1])
    word = entry["elmokit_reader"]
    if "unverified" in word:
        found.append("that the files are of this layout is unverified")
    if "alignment matrix" in word:
        found.append("the alignment matrix (x·Aᵀ) is not applied")
    if "lemma" in entry["tokenisation"]:
        found.append("trained on lemmas: lemmatise your text first")
    if set(entry["urls"]) == {"weights"}:
        found.append("no options file is named; give your own with options=")
    if "guess" in entry["urls"]:
        found.append("the address follows the pattern of French")
    return [plain(note).replace("URL", "address") for note in found]


def convert(entry: dict[str, Any]) -> dict[str, Any]:
    name = entry["id"]
    aliases = ALIASES.get(name, "").split()
    title = plain(entry["name"])
    if "_" in title and " " not in title:
        aliases.append(title.lower())
    if name.startswith("gluonnlp-"):
        aliases.append(entry["urls"]["name"].lower())
    if number := entry.get("nlpl_id"):
        aliases += [f"nlpl-{number}"] * (name != f"nlpl-{number}") + [str(number)]
    kind, why = reader(entry)
    found = Downloads(entry)
    sets, others = found.sets, found.others
    if kind is None:
        addresses = (a for files in sets for f in files for a in f["addresses"])
        others += [{"address": a, "note": "the files, for other programs"} for a in addresses]
        sets = []
    corpus = stated(entry["corpus"])
    if name.startswith("manylangs-") and corpus and "sampled" in corpus:
        corpus += f" from {entry['domain']}"
    status = entry["status"]
    result = {
        "name": name,
        "title": title,
        "group": group(name),
        "aliases": aliases,
        "languages": [x for x in (x.lower() if x == "TCR" else x for x in entry["languages"])
                      if x not in ("unknown", "none")],
        "domain": domain(entry),
        "architecture": architecture(entry),
        "corpus": corpus,
        "licence": stated(entry["licence"]),
        "tokenizer": tokenizer(entry),
        "tokenisation": stated(entry["tokenisation"]),
        "reader": kind,
        "no_reader": why,
        "downloads": sets,
        "others": others,
        "status": "unverified" if status.startswith(("unverified", "weakly")) else "documented",
        "notes": notes(entry),
        "parameters_millions": entry.get("parameters_millions"),
        "perplexity": None if "perplexity" not in entry else plain(str(entry["perplexity"])),
        "nlpl": entry.get("nlpl_id"),
        "sources": [plain(source) for source in entry["sources"]],
    }  # fmt: skip
    return {key: value for key, value in result.items() if value not in (None, [], {})}


def catalogue(path: Path) -> str:
    given = json.loads(path.read_text("utf-8"))
    models = [convert(entry) for entry in given["entries"]]
    lines = ",\n".join(json.dumps(model, ensure_ascii=False) for model in models)
    return f'{{"format": 1, "made": "{given["made"]}", "models": [\n{lines}\n]}}\n'


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("list", type=Path)
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    text = catalogue(arguments.list)
    if arguments.write:
        FILE.write_text(text, "utf-8")
    elif not FILE.exists() or FILE.read_text("utf-8") != text:
        sys.exit(f"{FILE.name} differs from what the list gives; run again with --write")


if __name__ == "__main__":
    main()
