"""Metrics of the running service, in the text format of Prometheus."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

CONTENT_TYPE = CONTENT_TYPE_LATEST
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
TOKENS = (16, 64, 256, 1024, 2048, 4096, 8192, 16_384)
REQUESTS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """Counters, gauges and histograms of one service."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        self._requests = Counter(
            "elmokit_requests", "Answered requests.", ["route", "status"], registry=registry
        )
        self._seconds = Histogram(
            "elmokit_request_seconds",
            "Time from the request's headers to the end of the answer.",
            ["route"],
            buckets=SECONDS,
            registry=registry,
        )
        self._in_flight = Gauge(
            "elmokit_requests_in_flight", "Requests that are being answered.", registry=registry
        )
        self._cancelled = Counter(
            "elmokit_requests_cancelled", "Requests whose client disconnected.", registry=registry
        )
        self._queued = Gauge("elmokit_queue_requests", "Requests in the queue.", registry=registry)
        self._queued_tokens = Gauge(
            "elmokit_queue_tokens", "Tokens in the queue.", registry=registry
        )
        self._tokens = Counter(
            "elmokit_tokens", "Tokens the models have read, markers included.", registry=registry
        )
        self._batch_tokens = Histogram(
            "elmokit_batch_tokens", "Tokens of a batch.", buckets=TOKENS, registry=registry
        )
        self._batch_requests = Histogram(
            "elmokit_batch_requests",
            "Requests that share a batch.",
            buckets=REQUESTS,
            registry=registry,
        )
        self._batch_seconds = Histogram(
            "elmokit_batch_seconds", "Time of a batch.", buckets=SECONDS, registry=registry
        )

    def begin(self) -> None:
        """A request has arrived."""
        self._in_flight.inc()

    def end(self, route: str, status: int, seconds: float) -> None:
        """It was answered."""
        self._in_flight.dec()
        self._requests.labels(route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def cancelled(self) -> None:
        """Its client disconnected."""
        self._cancelled.inc()

    def queue(self, requests: int, tokens: int) -> None:
        """Requests and tokens in the queue."""
        self._queued.set(requests)
        self._queued_tokens.set(tokens)

    def batch(self, requests: int, tokens: int, seconds: float) -> None:
        """A batch has run."""
        self._tokens.inc(tokens)
        self._batch_tokens.observe(tokens)
        self._batch_requests.observe(requests)
        self._batch_seconds.observe(seconds)

    def text(self) -> bytes:
        """All metrics in the text format."""
        return generate_latest(self._registry)
