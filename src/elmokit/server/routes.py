"""The routes of the service: what models compute, and the answers of saved predictors.

``/v1/encode``, ``embeddings`` (as OpenAI's clients call it), ``similar``, ``layers``, ``score``,
``surprisal``, ``rerank``, ``substitutes``, ``inspect``, ``predict``.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from fastapi import APIRouter, Request
from pydantic import BaseModel, TypeAdapter, ValidationError
from starlette.responses import Response

from elmokit.encode.layers import choose_layers, pooled_shape
from elmokit.encode.similarity import compare, nearest_uses
from elmokit.errors import DataError
from elmokit.lm.rescoring import combined_score, rank
from elmokit.lm.scoring import Score, score_stream
from elmokit.lm.stimuli import MEASURES, Row
from elmokit.lm.substitutes import guesses, substitutes, tokens_read
from elmokit.lm.surprisal import surprisal_stream
from elmokit.probes.stats import unit_rows
from elmokit.server import schemas
from elmokit.server.batching import Kind
from elmokit.server.formats import (
    ARROW,
    JSON,
    NPY,
    FieldError,
    Floats,
    best_type,
    write_arrow,
    write_npy,
)
from elmokit.server.handling import (
    BINARY_BYTES,
    JSON_BYTES,
    LONG_TEXT,
    MARKERS,
    OPENAI_PROBLEMS,
    PROBLEMS,
    AcceptError,
    LimitError,
    Tokens,
    check_characters,
    check_count,
    check_numbers,
    check_predicts,
    check_tokens,
    compute,
    compute_alone,
    encoding_kind,
    find_one_token,
    find_token,
    in_text_thread,
    note_texts,
    read_json,
    read_model_request,
    reply,
    service_of,
    token_costs,
    tokens_of,
)
from elmokit.server.inspect import inspect_word
from elmokit.server.settings import Limits
from elmokit.tasks.details import Details
from elmokit.tasks.records import errors_at

if TYPE_CHECKING:
    from elmokit.encode.elmo import Elmo
    from elmokit.server.batching import Service
    from elmokit.tasks.predictor import Predictor

BINARY = {"schema": {"type": "string", "format": "binary"}}
RIVER, MONEY = "We sat on the bank of the river .", "The bank lent money ."
LAKE, PARIS = "They walked along the bank of the lake .", "Paris is the capital of France ."
NBEST = [{"text": MONEY, "score": -4.5}, {"text": "The bank lend money .", "score": -4.2}]
TEXTS_ONLY = (
    "send a text, or a list of texts; lists of token ids are refused, since this model does not "
    "have the tokeniser that they come from (LangChain: check_embedding_ctx_length=False)"
)

Route = Callable[[Request], Awaitable[Response]]

router: APIRouter = APIRouter()


def _post(
    path: str,
    answer: type[BaseModel],
    body: type[BaseModel],
    *examples: dict[str, Any],
    types: Sequence[str] = (),
    problems: Mapping[int | str, dict[str, Any]] = PROBLEMS,
) -> Callable[[Route], Route]:
    """Add a route that reads its JSON body itself; `types` are those of answers besides JSON."""
    named = {f"example{number}": {"value": value} for number, value in enumerate(examples)}
    schema = body.model_json_schema()
    content = {JSON: {"schema": _inlined(schema, schema.get("$defs", {})), "examples": named}}
    binary: dict[int | str, Any] = {200: {"content": dict.fromkeys(types, BINARY)}}
    return router.post(
        path,
        response_model=answer,
        responses={**problems, **(binary if types else {})},
        openapi_extra={"requestBody": {"required": True, "content": content}},
    )


def _inlined(part: Any, models: Mapping[str, Any]) -> Any:
    """A JSON schema without references: those to `$defs` lead nowhere inside another document."""
    if isinstance(part, list):
        return [_inlined(one, models) for one in part]
    if not isinstance(part, dict):
        return part
    if "$ref" in part:
        return _inlined(models[part["$ref"].rpartition("/")[2]], models)
    return {name: _inlined(value, models) for name, value in part.items() if name != "$defs"}


@_post(
    "/v1/encode",
    schemas.EncodeAnswer,
    schemas.EncodeRequest,
    {"sentences": [RIVER, ["a", "list", "of", "tokens"]]},
    {"sentences": [RIVER], "layers": "all"},
    {"sentences": [RIVER], "layers": [0.2, 0.3, 0.5], "pool": "mean"},
    types=(NPY, ARROW),
)
async def encode(request: Request) -> Response:
    """Vectors of the tokens of sentences.

    The answer is JSON, .npy (one array after another; one array when pooled) or an Arrow stream
    with the columns `tokens`, `vectors` (flat) and `shape`, as `Accept` says.
    """
    answer_type = best_type(request.headers.get("accept", ""), (JSON, NPY, ARROW))
    if answer_type is None:
        raise AcceptError(f"this route answers with {JSON}, {NPY} or {ARROW}")
    fields = schemas.EncodeRequest.model_fields
    if query := [name for name in request.query_params if name in fields]:
        raise DataError(f"{', '.join(query)}: write it into the JSON body, not into the query")
    wanted, service, name, elmo = await read_model_request(request, schemas.EncodeRequest)
    choice = choose_layers(wanted.layers, elmo.layers, elmo.mixes)
    tokens = await tokens_of(request, elmo, wanted.sentences)
    layers = elmo.layers if choice.weights is None else 1
    vectors = len(tokens) if wanted.pool else sum(map(len, tokens))
    numbers = vectors * layers * elmo.dim
    size = JSON_BYTES if answer_type == JSON else BINARY_BYTES
    check_numbers(request, numbers, size, "send fewer sentences, or pool")
    kind = encoding_kind(name, elmo, wanted.layers, wanted.pool, service.limits.batch_tokens)
    arrays = await compute(request, kind, tokens, token_costs(tokens))
    if answer_type == NPY:
        if wanted.pool is not None:
            none = np.empty(pooled_shape(wanted.layers, elmo), np.float32)
            arrays = [np.stack(arrays) if arrays else none]
        return Response(write_npy(arrays), media_type=NPY)
    if answer_type == ARROW:
        return Response(write_arrow(tokens, arrays), media_type=ARROW)
    sentences = [
        {"tokens": words, "vectors": array} for words, array in zip(tokens, arrays, strict=True)
    ]
    return await reply({"model": name, "dim": elmo.dim, "sentences": sentences})


@_post(
    "/v1/embeddings",
    schemas.EmbeddingsAnswer,
    schemas.EmbeddingsRequest,
    {"input": RIVER},
    {"input": [RIVER, MONEY], "encoding_format": "base64"},
    problems=OPENAI_PROBLEMS,
)
async def embeddings(request: Request) -> Response:
    """One vector of length 1 per text, in the shape that OpenAI's clients send and read.

    It is the mean over layers and tokens, `encode(texts, pool="mean")`, divided by its length.
    """
    try:
        wanted, service, name, elmo = await read_model_request(request, schemas.EmbeddingsRequest)
    except FieldError as error:
        if error.field == "input":
            raise FieldError(f"{error}: {TEXTS_ONLY}", "input", "invalid_type") from None
        raise
    if wanted.dimensions not in (None, elmo.dim):
        raise FieldError(
            f"dimensions: vectors of the model {name!r} have {elmo.dim} numbers and cannot be cut "
            "shorter; leave it out, and reduce the vectors afterwards (PCA) if they must be short",
            "dimensions",
            "unsupported_value",
        )
    texts = [wanted.input] if isinstance(wanted.input, str) else wanted.input
    try:
        tokens = await tokens_of(request, elmo, texts)
    except DataError as error:
        code = "context_length_exceeded" if isinstance(error, LimitError) else "invalid_value"
        raise FieldError(f"input: {error}", "input", code) from None
    if [] in tokens:
        where = f"input.{tokens.index([])}"
        raise FieldError(f"{where}: a text without tokens has no vector", "input", "invalid_value")
    as_base64 = wanted.encoding_format == "base64"
    size = BINARY_BYTES if as_base64 else JSON_BYTES
    check_numbers(request, len(tokens) * elmo.dim, size, "send fewer texts")
    kind = encoding_kind(name, elmo, "mean", "mean", service.limits.batch_tokens)
    vectors = unit_rows(np.stack(await compute(request, kind, tokens, token_costs(tokens))))
    rows = vectors.astype("<f4")
    found = [base64.b64encode(row.tobytes()).decode() for row in rows] if as_base64 else rows
    data = [
        {"object": "embedding", "index": number, "embedding": vector}
        for number, vector in enumerate(found)
    ]
    count = sum(map(len, tokens))
    usage = {"prompt_tokens": count, "total_tokens": count}
    return await reply({"object": "list", "data": data, "model": name, "usage": usage})


@_post(
    "/v1/similar",
    schemas.SimilarAnswer,
    schemas.SimilarRequest,
    {"sentence": RIVER, "word": "bank", "other": MONEY, "other_word": "bank"},
    {"sentence": RIVER, "position": 4, "among": [MONEY, LAKE], "k": 5},
)
async def similar(request: Request) -> Response:
    """Compare two uses of words, or find the nearest uses of a word in given sentences.

    With `other`: cosines of every layer, between a word of each sentence, or between the
    sentences' means if no word is given. With `among`: the uses of the word (or of `other_word`) in
    these sentences, the nearest first.
    """
    wanted, service, name, elmo = await read_model_request(request, schemas.SimilarRequest)
    if (wanted.other is None) == (wanted.among is None):
        raise DataError("give a sentence as `other`, or sentences as `among`: one of the two")
    rest = wanted.among if wanted.among is not None else [wanted.other or []]
    tokens, *others = await tokens_of(request, elmo, [wanted.sentence, *rest])
    cost = sum(token_costs([tokens, *others]))
    position = find_token(tokens, wanted.word, wanted.position)
    query = {"tokens": tokens, "position": position}
    answer: dict[str, Any] = {"model": name, "query": query}
    answer |= {"other": None, "cosine": None, "uses": None}
    if wanted.among is None:
        other_position = find_token(others[0], wanted.other_word, wanted.other_position)
        if (position is None) != (other_position is None):
            raise DataError("give a word of both sentences, or of none")
        both = None if position is None or other_position is None else (position, other_position)
        found = await compute_alone(request, partial(compare, elmo, tokens, others[0], both), cost)
        answer["other"] = {"tokens": others[0], "position": other_position}
        answer["cosine"] = asdict(found)
        return await reply(answer)
    if wanted.other_position is not None:
        raise DataError("other_position goes with `other`; with `among` give other_word")
    position = find_one_token(tokens, wanted.word, wanted.position)
    word = tokens[position] if wanted.other_word is None else wanted.other_word
    _check_size(others, word, wanted.k, service.limits.answer_numbers)
    choose_layers(wanted.layers, elmo.layers, elmo.mixes)  # raises before the queue
    search = partial(nearest_uses, elmo, tokens, position, others, word=word, k=wanted.k)
    uses = await compute_alone(request, partial(search, layers=wanted.layers), cost)
    answer["uses"] = [
        {"cosine": u.score, "sentence": u.sentence, "position": u.position, "tokens": u.tokens}
        for u in uses
    ]
    return await reply(answer)


def _check_size(sentences: Sequence[Tokens], word: str, k: int, most: int) -> None:
    """Refuse an answer that could be very long: every use comes with its whole sentence."""
    counts = [(sum(map(len, tokens)) + len(tokens), tokens.count(word)) for tokens in sentences]
    size, left = 0, k
    for characters, uses in sorted(counts, reverse=True):
        taken = min(uses, left)
        size, left = size + taken * characters, left - taken
    if size > most:
        raise DataError(
            f"the uses with their sentences could hold {size} characters; this service gives "
            f"{most} at a time: send shorter sentences, or a smaller k"
        )


@_post(
    "/v1/layers",
    schemas.LayersAnswer,
    schemas.LayersRequest,
    {"sentence": RIVER},
    {"sentence": RIVER, "other": MONEY},
)
async def layers(request: Request) -> Response:
    """Cosines of every token with every token, one matrix per layer.

    The vectors themselves come from `/v1/encode` with `"layers": "all"`.
    """
    wanted, service, name, elmo = await read_model_request(request, schemas.LayersRequest)
    given = [wanted.sentence] if wanted.other is None else [wanted.sentence, wanted.other]
    tokens = await tokens_of(request, elmo, given)
    numbers = elmo.layers * len(tokens[0]) * len(tokens[-1])
    check_numbers(request, numbers, JSON_BYTES, "send shorter sentences")
    kind = encoding_kind(name, elmo, "all", None, service.limits.batch_tokens)
    arrays = await compute(request, kind, tokens, token_costs(tokens))
    matrices = await asyncio.to_thread(_cosine_matrices, arrays)
    return await reply(
        {"model": name, "tokens": tokens[0], "other_tokens": tokens[-1], "layers": matrices}
    )


def _cosine_matrices(arrays: Sequence[Floats]) -> Floats:
    # (L + 1, T, D) and (L + 1, U, D)
    unit = [unit_rows(array).astype(np.float32) for array in arrays]
    cosines: Floats = np.clip(unit[0] @ unit[-1].transpose(0, 2, 1), -1, 1)  # (L + 1, T, U)
    return cosines


@_post("/v1/score", schemas.ScoreAnswer, schemas.ScoreRequest, {"sentences": [MONEY]})
async def score(request: Request) -> Response:
    """Log-probabilities of every word, from the left and from the right."""
    wanted, service, name, elmo = await read_model_request(request, schemas.ScoreRequest)
    scores = await _scores(request, service, name, elmo, wanted.sentences)
    return await reply({"model": name, "sentences": [found.to_dict() for found in scores]})


async def _scores(
    request: Request, service: Service, name: str, elmo: Elmo, sentences: Sequence[str | Tokens]
) -> list[Score]:
    check_predicts(name, elmo)
    tokens = await tokens_of(request, elmo, sentences)
    run = partial(score_stream, elmo, batch_tokens=service.limits.batch_tokens)
    return await compute(request, Kind(("score", name), run), tokens, token_costs(tokens))


@_post(
    "/v1/surprisal",
    schemas.SurprisalAnswer,
    schemas.SurprisalRequest,
    {"sentences": [RIVER, MONEY]},
    {"sentences": [MONEY, RIVER], "state": "carry"},
)
async def measure(request: Request) -> Response:
    """Surprisal of every word, from the left, from the right and from both sides: `Elmo.surprisal`.

    With `"state": "carry"` the sentences of the request are one document, in their order.
    """
    wanted, service, name, elmo = await read_model_request(request, schemas.SurprisalRequest)
    check_predicts(name, elmo)
    tokens = await tokens_of(request, elmo, wanted.sentences)
    numbers = len(MEASURES) * sum(map(len, tokens))
    check_numbers(request, numbers, JSON_BYTES, "send fewer sentences")
    costs = token_costs(tokens)
    run = partial(surprisal_stream, elmo, batch_tokens=service.limits.batch_tokens)
    if wanted.state == "carry":
        rows = await compute_alone(request, lambda: list(run(tokens, state="carry")), sum(costs))
        return await reply({"model": name, "rows": rows})

    def by_sentence(sentences: Sequence[Tokens]) -> list[list[Row]]:
        found: list[list[Row]] = [[] for _ in sentences]
        for row in run(sentences):
            found[row["sentence"] - 1].append(row)
        return found

    tables = await compute(request, Kind(("surprisal", name), by_sentence), tokens, costs)
    # A batch counts the sentences of all its requests.
    rows = [{**row, "sentence": n} for n, table in enumerate(tables, 1) for row in table]
    return await reply({"model": name, "rows": rows})


@router.post("/rerank", include_in_schema=False)  # where rerankers of other services are
@_post(
    "/v1/rerank",
    schemas.RerankAnswer,
    schemas.RerankRequest,
    {"utterances": [{"id": "a1", "hypotheses": NBEST}], "weight": 0.3},
)
async def rerank(request: Request) -> Response:
    """N-best lists of a speech recogniser, sorted again with the language model's scores.

    A hypothesis ranks by `(1 - weight) * score + weight * lm_score`, highest first.
    """
    wanted, service, name, elmo = await read_model_request(request, schemas.RerankRequest)
    lists = [utterance.hypotheses for utterance in wanted.utterances]
    texts = [hypothesis.text for some in lists for hypothesis in some]
    scores = iter(await _scores(request, service, name, elmo, texts))
    utterances = []
    for utterance in wanted.utterances:
        given = [{"index": i, **dict(one)} for i, one in enumerate(utterance.hypotheses)]
        lm_scores = [next(scores).logprob for _ in given]
        ranked = [
            {**one, "combined": combined_score(one, wanted.weight)}
            for one in rank(given, lm_scores, wanted.weight)
        ]
        utterances.append({"id": utterance.id, "hypotheses": ranked})
    return await reply({"model": name, "weight": wanted.weight, "utterances": utterances})


@_post(
    "/v1/substitutes",
    schemas.SubstitutesAnswer,
    schemas.SubstitutesRequest,
    {"sentence": PARIS, "word": "capital", "k": 5},
)
async def fill(request: Request) -> Response:
    """Words that fit a position: by both directions together, and by each direction."""
    wanted, _, name, elmo = await read_model_request(request, schemas.SubstitutesRequest)
    check_predicts(name, elmo)
    (tokens,) = await tokens_of(request, elmo, [wanted.sentence])
    position = find_one_token(tokens, wanted.word, wanted.position)
    work = partial(_substitutes, elmo, tokens, position, wanted.k)
    cost = 2 * (len(tokens) + MARKERS) + tokens_read(elmo, len(tokens))
    found = await compute_alone(request, work, cost)
    return await reply({"model": name, "tokens": tokens, "position": position, **found})


def _substitutes(elmo: Elmo, tokens: Tokens, position: int, k: int) -> dict[str, Any]:
    found = {
        "both": substitutes(elmo, tokens, position, k),
        "forward": guesses(elmo, tokens, position, "forward", k),
    }
    if "backward" in elmo.config.lstm.directions:
        found["backward"] = guesses(elmo, tokens, position, "backward", k)
    return {"backward": None} | {name: list(map(asdict, some)) for name, some in found.items()}


@_post(
    "/v1/inspect",
    schemas.InspectAnswer,
    schemas.InspectRequest,
    {"sentence": MONEY, "word": "bank", "k": 5},
)
async def inspect(request: Request) -> Response:
    """All intermediate results of the forward pass for one word.

    Characters, the filters that respond most, highway gates, token vector, both directions' hidden
    states in each layer, and what both directions predict at each position of the sentence.
    """
    wanted, service, name, elmo = await read_model_request(request, schemas.InspectRequest)
    (tokens,) = await tokens_of(request, elmo, [wanted.sentence])
    most = service.limits.inspected_tokens
    if len(tokens) > most:
        raise DataError(f"{len(tokens)} tokens; sentences of at most {most} are inspected")
    position = find_one_token(tokens, wanted.word, wanted.position)
    work = partial(inspect_word, elmo, tokens, position, wanted.k)
    found = await compute_alone(request, work, 2 * (len(tokens) + MARKERS))
    return await reply({"model": name, **found})


@_post(
    "/v1/predict",
    schemas.PredictAnswer,
    schemas.PredictRequest,
    {"predictor": "sentiment", "items": ["a fine film"]},
)
async def predict(request: Request) -> Response:
    """Answers of a predictor: a class for each text, a tag for each token, ...

    Items are what `Predictor.predict` takes: texts or lists of tokens; `[text, question]` for qa,
    `[first, second]` for pair, `[tokens, [start, end], [start, end]]` or a text with marks for
    relation, `[text, [pronoun, start], [a, start], [b, start]]` for coref. `/v1/models` says for
    each predictor what its items are (`item`) and which fields a form for them has (`form`).
    """
    wanted = await read_json(request, schemas.PredictRequest)
    service = service_of(request)
    predictor = service.registry.predictor(wanted.predictor)
    size = _characters(wanted.items)
    check_characters(size, service.limits)
    call = partial(_examples, predictor, wanted.items, service.limits)
    is_long = size >= LONG_TEXT
    examples, texts = await (in_text_thread(call) if is_long else asyncio.to_thread(call))
    note_texts(request, [text for some in texts for text in some])
    kind = Kind(("predict", wanted.predictor), predictor.answers)
    if wanted.details:
        kind = Kind(("details", wanted.predictor), predictor.details)
    answers = await compute(request, kind, examples, [sum(token_costs(some)) for some in texts])
    return await reply(
        {
            "predictor": wanted.predictor,
            "task": predictor.facts.task,
            "layers": predictor.model.embedder.learned_mixes(),
            "items": [
                {"texts": some, **_answered(answer)}
                for some, answer in zip(texts, answers, strict=True)
            ],
        }
    )


def _examples(
    predictor: Predictor, items: list[Any], limits: Limits
) -> tuple[list[Any], list[list[Tokens]]]:
    """The task's examples and the texts of each, all limits checked."""
    check_count(items, "items", limits)
    task = predictor.task
    adapter = TypeAdapter(task.item_type)
    examples = []
    for number, item in enumerate(items):
        with errors_at(f"items.{number}"):
            try:
                checked = adapter.validate_python(item)
            except ValidationError:
                raise DataError(f"{task.name} takes {task.item}") from None
            examples.append(predictor.example(checked))
    texts = [[list(text) for text in task.texts(example)] for example in examples]
    check_tokens([text for some in texts for text in some], limits)
    for number, some in enumerate(texts):
        if not all(some):
            raise DataError(f"items.{number}: a text without tokens has no answer")
    return examples, texts


def _answered(answer: Any) -> dict[str, Any]:
    if not isinstance(answer, Details):
        return {"answer": answer}
    found = answer.to_dict()
    return {"answer": found.pop("answer"), "details": found}


def _characters(value: Any) -> int:
    """Characters of all strings in nested lists."""
    if isinstance(value, str):
        return len(value)
    return sum(map(_characters, value)) if isinstance(value, list) else 0
