"""N-best lists as speech recognisers write them: one record per utterance.

A record is ``{"id": "a1", "hypotheses": [{"text": "recognise speech", "score": -12.3}, ...]}``, and
so is a line of elmokit's own JSON lines. Scores are natural logarithms, the higher the better.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, cast

from elmokit.errors import DataError
from elmokit.text.readers import numbered_lines, parse_json

Record = dict[str, Any]
ACOUSTIC_SCALE = 0.1
"""Kaldi's own default; models of its "chain" kind use 1."""
_BEST = re.compile(r"(\d+)best_recog")
_NUMBER = re.compile(r"(?:tensor\()?([-+\d.eE]+|-?inf|nan)")


def read_nbest(source: str | Path, *, acoustic_scale: float = ACOUSTIC_SCALE) -> Iterator[Record]:
    """Read n-best lists, one utterance at a time; the layout is recognised.

    - JSON lines: records as above (also those of sherpa-onnx with ``hypotheses``), or results with
      one text each: Whisper's (``segments``) and sherpa-onnx's (``text``, ``ys_log_probs``).
    - A ``.json`` file: such a record or result, or a list of results, which are the hypotheses of
      one utterance; or ESPnet 1's ``data.json`` (``utts``). A folder of them: one per utterance.
    - A folder of Kaldi's ``nbest-to-linear``, or of several (``archives.1``, …): ``words_text``
      (keys ``UTT-1``, ``UTT-2``, …), ``acwt`` and ``lmwt.withlm`` or ``lmwt``. The score is minus
      (acoustic_scale * acoustic cost + language model's cost).
    - ESPnet 2's output folder: ``1best_recog/text``, ``1best_recog/score``, ``2best_recog``, …,
      also in ``logdir/output.1``, ….

    Whisper's score is the sum of ``avg_logprob`` times the number of tokens over all segments.

    Args:
        source: A file, a folder, or ``"-"`` for JSON lines on standard input.
        acoustic_scale: Of Kaldi's acoustic costs.

    Raises:
        DataError: At once if there is nothing of that name; while reading, if something is not what
            it should be; the message names the file and the line.
    """
    path = Path(source)
    if source != "-" and path.is_dir():
        return _folder(path, acoustic_scale)
    if path.suffix.lower() == ".json" and path.is_file():
        return _json_file(path)
    if path.name.startswith("words_text"):
        return _kaldi([path.parent], acoustic_scale)
    return _json_lines(source)


def read_references(source: str | Path) -> dict[str, str]:
    """Read what was said, by utterance: lines ``UTT words …``, as Kaldi's and ESPnet's ``text``."""
    return dict(_keyed(Path(source)))


def _json_lines(source: str | Path) -> Iterator[Record]:
    lines = numbered_lines(source)
    name = "standard input" if source == "-" else os.fspath(source)

    def records() -> Iterator[Record]:
        for number, line in lines:
            if line.isspace():
                continue
            where = f"{name}, line {number}"
            try:
                value = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise DataError(f"{where}: not a line of JSON ({error})") from None
            yield checked(_as_record(value, where), where)

    return records()


def _json_file(path: Path) -> Iterator[Record]:
    text = "".join(line for _, line in numbered_lines(path))
    value = parse_json(text, str(path))
    if isinstance(value, dict) and isinstance(value.get("utts"), dict):  # ESPnet 1
        for key, utterance in value["utts"].items():
            outputs = utterance.get("output") if isinstance(utterance, dict) else None
            if not isinstance(outputs, list):
                raise DataError(f"{path}: utterance {key!r} has no list 'output'")
            record: Record = {"id": key, "hypotheses": []}
            for output in outputs:
                if not isinstance(output, dict) or not isinstance(output.get("rec_text"), str):
                    raise DataError(f"{path}: utterance {key!r} has an output without 'rec_text'")
                spoken = output["rec_text"].replace("<eos>", "").strip()
                record["hypotheses"].append({"text": spoken, "score": output.get("score")})
                if isinstance(output.get("text"), str):
                    record["reference"] = output["text"]
            yield checked(record, f"{path}: utterance {key!r}")
        return
    yield checked({"id": path.stem, **_as_record(value, str(path))}, str(path))


def _as_record(value: Any, where: str) -> Record:
    """A record as it is; a result with one text, or a list of results, as a record."""
    if isinstance(value, list) and any(isinstance(result, dict) for result in value):
        return {"hypotheses": [_hypothesis(result, where) for result in value]}
    if isinstance(value, dict) and value.get("hypotheses") is None and "text" in value:
        kept = {"id": value["id"]} if "id" in value else {}
        return {**kept, "hypotheses": [_hypothesis(value, where)]}
    return cast(Record, value)


def _hypothesis(result: Any, where: str) -> Record:
    """One text with its score, of Whisper or sherpa-onnx."""
    if not isinstance(result, dict) or not isinstance(result.get("text"), str):
        raise DataError(f"{where}: expected a result with a 'text'")
    score = result.get("score")
    try:
        if score is None and isinstance(result.get("segments"), list):
            score = sum(
                float(part["avg_logprob"]) * len(part.get("tokens") or part["text"].split())
                for part in result["segments"]
            )
        elif score is None and isinstance(result.get("ys_log_probs"), list):
            score = sum(map(float, result["ys_log_probs"]))
    except (TypeError, ValueError, KeyError) as error:
        raise DataError(f"{where}: the result's probabilities cannot be read ({error!r})") from None
    if score is None:
        raise DataError(
            f"{where}: the result has no score: 'score', 'segments' with 'avg_logprob' (Whisper) "
            "or 'ys_log_probs' (sherpa-onnx)"
        )
    return {"text": result["text"].strip(), "score": score}


def _folder(path: Path, acoustic_scale: float) -> Iterator[Record]:
    kaldi = [folder for folder in (path, *_numbered(path, "archives.*")) if _words(folder)]
    if kaldi:
        return _kaldi(kaldi, acoustic_scale)
    jobs = [path, *_numbered(path, "output.*"), *_numbered(path / "logdir", "output.*")]
    espnet = [job for job in jobs if any(job.glob("*best_recog/text"))]
    if espnet:
        return _espnet(espnet)
    if files := sorted(path.glob("*.json")):
        return (record for file in files for record in _json_file(file))
    raise DataError(
        f"{path} is a folder without n-best lists: no words_text (Kaldi), no 1best_recog/text "
        "(ESPnet), no *.json (Whisper, sherpa-onnx)"
    )


def _numbered(path: Path, pattern: str) -> list[Path]:
    """Folders ``NAME.1``, ``NAME.2``, … in the order of their numbers."""
    found = [folder for folder in path.glob(pattern) if folder.suffix[1:].isdecimal()]
    return sorted(found, key=lambda folder: int(folder.suffix[1:]))


def _words(folder: Path) -> Path | None:
    path = folder / "words_text"
    return path if path.is_file() else None


def _keyed(path: Path) -> Iterator[tuple[str, str]]:
    """Lines of a key and what follows it, which may be nothing."""
    for _, line in numbered_lines(path):
        key, _, rest = line.strip().partition(" ")
        if key:
            yield key, rest.strip()


def _numbers(path: Path) -> dict[str, float]:
    found = {}
    for key, text in _keyed(path):
        match = _NUMBER.match(text)
        try:
            found[key] = float(match[1] if match else text)
        except ValueError:
            raise DataError(f"{path}: {key!r} has no number: {text[:40]!r}") from None
    return found


def _kaldi(folders: Iterable[Path], acoustic_scale: float) -> Iterator[Record]:
    for folder in folders:
        graph = next(
            (folder / name for name in ("lmwt.withlm", "lmwt") if (folder / name).is_file()), None
        )
        if graph is None:
            raise DataError(
                f"{folder}: the costs of the language model are missing: lmwt.withlm or lmwt, as "
                "Kaldi's nbest-to-linear writes them"
            )
        acoustic, language = _numbers(folder / "acwt"), _numbers(graph)
        lists: dict[str, list[tuple[int, Record]]] = {}
        for key, text in _keyed(folder / "words_text"):
            utterance, _, number = key.rpartition("-")
            if not utterance or not number.isdecimal():
                raise DataError(f"{folder / 'words_text'}: the key {key!r} is not UTTERANCE-NUMBER")
            if key not in acoustic or key not in language:
                raise DataError(f"{folder}: acwt or {graph.name} has no line for {key!r}")
            score = -(acoustic_scale * acoustic[key] + language[key])
            hypothesis = {"text": text, "score": score, "acoustic": -acoustic[key]}
            lists.setdefault(utterance, []).append((int(number), hypothesis))
        for utterance, hypotheses in lists.items():
            ordered = [hypothesis for _, hypothesis in sorted(hypotheses, key=lambda pair: pair[0])]
            yield checked({"id": utterance, "hypotheses": ordered}, f"{folder}: {utterance!r}")


def _espnet(jobs: Iterable[Path]) -> Iterator[Record]:
    for job in jobs:
        folders = {int(m[1]): f for f in job.iterdir() if (m := _BEST.fullmatch(f.name))}
        lists: dict[str, list[Record]] = {}
        for _, folder in sorted(folders.items()):
            scores = _numbers(folder / "score")
            for key, text in _keyed(folder / "text"):
                if key not in scores:
                    raise DataError(f"{folder / 'score'}: no line for {key!r}")
                lists.setdefault(key, []).append({"text": text, "score": scores[key]})
        for key, hypotheses in lists.items():
            yield checked({"id": key, "hypotheses": hypotheses}, f"{job}: {key!r}")


def checked(record: Any, where: str) -> Record:
    """The record, if it is one."""
    hypotheses = record.get("hypotheses") if isinstance(record, dict) else None
    if not isinstance(hypotheses, list):
        raise DataError(f"{where}: expected an object with a list 'hypotheses'")
    for number, hypothesis in enumerate(hypotheses, start=1):
        here = f"{where}, hypothesis {number}"
        if not isinstance(hypothesis, dict):
            raise DataError(f"{here}: expected an object with 'text' and 'score'")
        text, score = hypothesis.get("text"), hypothesis.get("score")
        if not isinstance(text, str) and not (
            isinstance(text, list) and all(isinstance(token, str) for token in text)
        ):
            raise DataError(f"{here}: 'text' must be a string or a list of tokens")
        if isinstance(score, bool) or not isinstance(score, int | float):
            raise DataError(f"{here}: 'score' must be a number")
        if not abs(score) <= sys.float_info.max:  # no NaN, and no whole number without bounds
            raise DataError(f"{here}: 'score' must be finite")
    return cast(Record, record)
