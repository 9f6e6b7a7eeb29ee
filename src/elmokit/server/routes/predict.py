"""``/v1/predict``: answers of saved predictors."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request
from pydantic import TypeAdapter, ValidationError
from starlette.responses import Response

from elmokit.errors import DataError
from elmokit.server.batching import Kind
from elmokit.server.routes.common import (
    MARKERS,
    PROBLEMS,
    body_of,
    check_tokens,
    compute,
    note_texts,
    read_json,
    reply,
    service_of,
)
from elmokit.server.schemas import PredictAnswer, PredictRequest
from elmokit.tasks.examples import errors_at

if TYPE_CHECKING:
    from elmokit.server.settings import Limits
    from elmokit.tasks.predictor import Predictor

router = APIRouter()


@router.post(
    "/v1/predict",
    response_model=PredictAnswer,
    responses=PROBLEMS,
    openapi_extra=body_of(PredictRequest, {"predictor": "sentiment", "items": ["a fine film"]}),
)
async def predict(request: Request) -> Response:
    """Answers of a predictor: a class for each text, a tag for each token, ...

    Items are what `Predictor.predict` takes: texts or lists of tokens; `[text, question]` for qa,
    `[first, second]` for pair, `[tokens, [start, end], [start, end]]` or a text with marks for
    relation, `[text, [pronoun, start], [a, start], [b, start]]` for coref. `/v1/models` says for
    each predictor what its items are (`item`) and which fields a form for them has (`form`).
    """
    wanted = await read_json(request, PredictRequest)
    service = service_of(request)
    predictor = service.registry.predictor(wanted.predictor)
    examples = await asyncio.to_thread(_examples, predictor, wanted.items, service.limits)
    texts = [[list(text) for text in predictor.task.texts(example)] for example in examples]
    note_texts(request, [text for some in texts for text in some])
    costs = [sum(len(text) + MARKERS for text in some) for some in texts]
    kind = Kind(("predict", wanted.predictor), predictor.answers)
    answers = await compute(request, kind, examples, costs)
    return await reply(
        {
            "predictor": wanted.predictor,
            "task": predictor.facts.task,
            "layers": predictor.model.embedder.learned_mixes(),
            "items": [
                {"texts": some, "answer": answer}
                for some, answer in zip(texts, answers, strict=True)
            ],
        }
    )


def _examples(predictor: Predictor, items: list[Any], limits: Limits) -> list[Any]:
    """The task's examples, all limits checked."""
    if len(items) > limits.sentences:
        raise DataError(f"{len(items)} items; this service takes {limits.sentences} at a time")
    found = [_example(predictor, number, item) for number, item in enumerate(items)]
    texts = [predictor.task.texts(example) for example in found]
    check_tokens([text for some in texts for text in some], limits)
    for number, some in enumerate(texts):
        if not all(some):
            raise DataError(f"items.{number}: a text without tokens has no answer")
    return found


def _example(predictor: Predictor, number: int, item: Any) -> Any:
    task = predictor.task
    with errors_at(f"items.{number}"):
        try:
            checked = TypeAdapter(task.item_type).validate_python(item)
        except ValidationError:
            raise DataError(f"{task.name} takes {task.item}") from None
        return predictor.example(checked)
