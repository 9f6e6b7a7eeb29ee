"""``/v1/models``, ``/healthz``, ``/readyz`` and ``/metrics``."""

from __future__ import annotations

from dataclasses import asdict

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from elmokit import __version__
from elmokit.server.metrics import CONTENT_TYPE
from elmokit.server.routes.common import PROBLEMS, reply, service_of
from elmokit.server.schemas import Health, ModelsAnswer, Problem

router = APIRouter()


@router.get("/v1/models", response_model=ModelsAnswer, responses={401: PROBLEMS[401]})
async def models(request: Request) -> Response:
    """The models and predictors of this service, and its limits."""
    service = service_of(request)
    limits = asdict(service.limits)
    return await reply({"version": __version__, **service.registry.describe(), "limits": limits})


@router.get("/healthz", response_model=Health)
async def healthz() -> Response:
    """Whether the process lives."""
    return JSONResponse({"status": "ok"})


@router.get(
    "/readyz",
    response_model=Health,
    responses={503: {"model": Problem, "description": "The queue is full, or it is stopping."}},
)
async def readyz(request: Request) -> Response:
    """Whether a request would be taken now."""
    service = service_of(request)
    if service.draining or not service.batcher.ready:
        return JSONResponse({"detail": "no request is taken now"}, 503, {"Retry-After": "1"})
    return JSONResponse({"status": "ok"})


@router.get(
    "/metrics",
    response_class=Response,
    responses={
        200: {"content": {CONTENT_TYPE: {"schema": {"type": "string"}}}},
        401: PROBLEMS[401],
    },
)
async def metrics(request: Request) -> Response:
    """Counters and histograms for Prometheus."""
    return Response(service_of(request).metrics.text(), media_type=CONTENT_TYPE)
