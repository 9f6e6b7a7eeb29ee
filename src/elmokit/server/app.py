"""The service as an ASGI application: routes, middleware, error answers, the OpenAPI document."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from copy import deepcopy
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.openapi.utils import get_openapi
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response
from starlette.staticfiles import StaticFiles

from elmokit import __version__
from elmokit.errors import ElmokitError
from elmokit.server.access import PROTECTED, AccessMiddleware, RefusedError, TokenStore
from elmokit.server.batching import Batcher, Closed, QueueFull, Service
from elmokit.server.formats import JSON, BodyError, FieldError, error_answer
from elmokit.server.handling import (
    OPENAI_PROBLEMS,
    PROBLEMS,
    AcceptError,
    ClientLeft,
    ContentTypeError,
    TooSlow,
    reply,
    service_of,
)
from elmokit.server.logs import RequestLogMiddleware
from elmokit.server.metrics import CLIENT_LEFT, CONTENT_TYPE, Metrics
from elmokit.server.registry import ModelRegistry, UnknownNameError
from elmokit.server.routes import router
from elmokit.server.schemas import Health, ModelsAnswer, OpenAIModel, Problem
from elmokit.server.settings import Access, Limits

PAGE = Path(__file__).parent / "page"
"""The built web page: ``index.html`` and its files."""

DESCRIPTION = "Exact ELMo vectors and predictions of a bidirectional language model over HTTP."


def create_app(
    registry: ModelRegistry,
    *,
    limits: Limits | None = None,
    access: Access | None = None,
    log_texts: bool = False,
    page: Path = PAGE,
) -> FastAPI:
    """Build the application.

    Args:
        registry: The models and predictors it offers.
        limits: How large a request may be.
        access: Who may call the service.
        log_texts: Put what clients send into the log.
        page: Folder of the web page; without an ``index.html`` in it there is none.
    """
    limits, access = limits or Limits(), access or Access()
    metrics = Metrics()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        service = Service(
            registry, limits, metrics, Batcher(limits, metrics), Batcher(limits, metrics)
        )
        app.state.service = service
        for batcher in service.batchers:
            batcher.start()
        yield
        for batcher in service.batchers:
            await batcher.close()

    # FastAPI's own documentation pages load scripts from other sites.
    app = FastAPI(
        title="elmokit",
        version=__version__,
        description=DESCRIPTION,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
    )
    app.include_router(router)
    app.include_router(status_router)
    if (page / "index.html").is_file():
        app.mount("/", StaticFiles(directory=page, html=True), name="page")
    app.add_exception_handler(ElmokitError, _bad_request)
    kinds = (QueueFull, Closed, TooSlow, ClientLeft, ClientDisconnect, RefusedError, MemoryError)
    for kind in kinds:
        app.add_exception_handler(kind, _unavailable)
    app.state.tokens = tokens = TokenStore(access)
    # The middleware added last is the outermost.
    app.add_middleware(AccessMiddleware, access=access, tokens=tokens, limits=limits)
    if access.origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(access.origins),
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type", "X-Request-ID"],
        )
    app.add_middleware(RequestLogMiddleware, metrics=metrics, limits=limits, log_texts=log_texts)
    document = _openapi(app, registry, tokens.required)
    app.openapi = lambda: document  # type: ignore[method-assign]
    return app


# Status of the service

status_router: APIRouter = APIRouter()


@status_router.get("/v1/models", response_model=ModelsAnswer, responses={401: PROBLEMS[401]})
async def models(request: Request) -> Response:
    """The models and predictors of this service, and its limits.

    `object` and `data` are the same models for OpenAI's clients.
    """
    service = service_of(request)
    limits = asdict(service.limits)
    answer = {"version": __version__, **service.registry.describe(), "limits": limits}
    data = [_openai_model(name) for name in service.registry.models]
    return await reply({**answer, "object": "list", "data": data})


@status_router.get(
    "/v1/models/{model}",
    response_model=OpenAIModel,
    responses={status: OPENAI_PROBLEMS[status] for status in (401, 404)},
)
async def one_model(request: Request, model: str) -> Response:
    """One of the models, for OpenAI's clients."""
    name, _ = service_of(request).registry.model(model)
    return await reply(_openai_model(name))


def _openai_model(name: str) -> dict[str, Any]:
    # When a model was made is not known, and the field is not optional.
    return {"id": name, "object": "model", "created": 0, "owned_by": "elmokit"}


@status_router.get("/healthz", response_model=Health)
async def healthz() -> Response:
    """Whether the process is alive."""
    return JSONResponse({"status": "ok"})


@status_router.get(
    "/readyz",
    response_model=Health,
    responses={503: {"model": Problem, "description": "The queue is full, or it is stopping."}},
)
async def readyz(request: Request) -> Response:
    """Whether a request would be accepted now."""
    service = service_of(request)
    if service.draining or not all(batcher.ready for batcher in service.batchers):
        return JSONResponse({"detail": "no request is accepted now"}, 503, {"Retry-After": "1"})
    return JSONResponse({"status": "ok"})


_TEXT = {"content": {CONTENT_TYPE: {"schema": {"type": "string"}}}}


@status_router.get("/metrics", response_class=Response, responses={200: _TEXT, 401: PROBLEMS[401]})
async def metrics(request: Request) -> Response:
    """Counters and histograms for Prometheus."""
    return Response(service_of(request).metrics.text(), media_type=CONTENT_TYPE)


# Errors as answers


async def _bad_request(request: Request, error: Exception) -> Response:
    codes = {BodyError: 400, UnknownNameError: 404, AcceptError: 406, ContentTypeError: 415}
    status = next((code for kind, code in codes.items() if isinstance(error, kind)), 422)
    details: dict[str, Any] = {}
    if isinstance(error, FieldError):
        details = {"field": error.field, "code": error.code}
    elif isinstance(error, UnknownNameError):
        details = {"field": "model"}
    return error_answer(request.url.path, status, str(error), **details)


async def _unavailable(request: Request, error: Exception) -> Response:
    path = request.url.path
    if isinstance(error, RefusedError):
        return error.response(path)
    if isinstance(error, QueueFull):
        detail = f"too much is waiting; try again in {error.retry_after} s"
        return error_answer(path, 429, detail, {"Retry-After": str(error.retry_after)})
    if isinstance(error, ClientLeft | ClientDisconnect):
        return error_answer(path, CLIENT_LEFT, "the client has left")
    details = {
        Closed: "the service is stopping",
        TooSlow: "the answer took too long; send less at a time, or later",
        MemoryError: "not enough memory for this request; send less at a time",
    }
    detail = next(text for kind, text in details.items() if isinstance(error, kind))
    return error_answer(path, 503, detail, {"Retry-After": "1"})


# The OpenAPI document


def _openapi(app: FastAPI, registry: ModelRegistry, needs_token: bool) -> dict[str, Any]:
    """The OpenAPI document, with the names of this service's models and predictors."""
    # A copy, because the services of one process share the routes' documentation.
    about: dict[str, Any] = {"title": app.title, "version": app.version}
    document = deepcopy(get_openapi(**about, description=app.description, routes=app.routes))
    if needs_token:
        document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        for path, operations in document["paths"].items():
            for operation in operations.values() if path.startswith(PROTECTED) else ():
                operation["security"] = [{"token": []}]
        return document  # names are for those who have a token
    posts = [
        operations["post"] for operations in document["paths"].values() if "post" in operations
    ]
    for post in posts:
        body = post["requestBody"]["content"][JSON]
        fields = body["schema"]["properties"]
        if "model" in fields:
            fields["model"]["anyOf"][0]["enum"] = list(registry.models)
        if "predictor" in fields and registry.predictors:
            fields["predictor"]["enum"] = list(registry.predictors)
            for example in body["examples"].values():
                example["value"]["predictor"] = next(iter(registry.predictors))
    return document
