"""Metrics of the running service, in the text format of Prometheus."""

from __future__ import annotations

from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

CONTENT_TYPE = CONTENT_TYPE_LATEST
CLIENT_LEFT = 499
"""Status in logs and metrics of a request whose client disconnected before the answer."""
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
TOKENS = (16, 64, 256, 1024, 2048, 4096, 8192, 16_384)
REQUESTS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """Counters, gauges and histograms of one service."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        count = partial(Counter, registry=self._registry)
        gauge = partial(Gauge, registry=self._registry)
        histogram = partial(Histogram, registry=self._registry)
        self._requests = count("elmokit_requests", "Answered requests.", ["route", "status"])
        self._seconds = histogram(
            "elmokit_request_seconds",
            "Time from the request's headers to the end of the answer.",
            ["route"],
            buckets=SECONDS,
        )
        self.in_flight: Gauge = gauge(
            "elmokit_requests_in_flight", "Requests that are being answered."
        )
        self._cancelled = count("elmokit_requests_cancelled", "Requests whose client disconnected.")
        self._queued = gauge("elmokit_queue_requests", "Requests in the queue.")
        self._queued_tokens = gauge("elmokit_queue_tokens", "Tokens in the queue.")
        self._tokens = count("elmokit_tokens", "Tokens the models have read, markers included.")
        self._batch_tokens = histogram("elmokit_batch_tokens", "Tokens of a batch.", buckets=TOKENS)
        self._batch_requests = histogram(
            "elmokit_batch_requests", "Requests that share a batch.", buckets=REQUESTS
        )
        self._batch_seconds = histogram(
            "elmokit_batch_seconds", "Time of a batch.", buckets=SECONDS
        )

    def end(self, route: str, status: int, seconds: float) -> None:
        """A request was answered, or its client has left."""
        self.in_flight.dec()
        if status == CLIENT_LEFT:
            self._cancelled.inc()
        self._requests.labels(route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def queue(self, requests: int, tokens: int) -> None:
        """Requests and tokens that were added to a queue; negative if they were removed."""
        self._queued.inc(requests)
        self._queued_tokens.inc(tokens)

    def batch(self, requests: int, tokens: int, seconds: float) -> None:
        """A batch has run."""
        self._tokens.inc(tokens)
        self._batch_tokens.observe(tokens)
        self._batch_requests.observe(requests)
        self._batch_seconds.observe(seconds)

    def text(self) -> bytes:
        """All metrics in the text format."""
        return generate_latest(self._registry)
