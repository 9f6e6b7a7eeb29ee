"""The service in several processes, started and watched over by Ray Serve.

Every replica is the whole application with models of its own: routes, gate, limits and batching are
those of a single process. Serve takes requests at one address, hands each to a replica that is
free, starts a replica again that has died, and at the end lets each finish what it has.
"""

from __future__ import annotations

import importlib
import logging
import math
import re
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from elmokit.errors import ConfigError
from elmokit.ray.cluster import QUIET, find_places, import_ray, is_named, wants_gpu
from elmokit.ray.train import connected, first_line
from elmokit.server.logs import configure_logging, log_event
from elmokit.server.server import bind_socket
from elmokit.server.settings import Limits
from elmokit.training.distributed import PeerError

if TYPE_CHECKING:
    from fastapi import FastAPI

NAME = "elmokit"
"""Of the application, among others that Serve may run."""


@contextmanager
def deployed(
    build: Callable[[], FastAPI],
    *,
    replicas: int = 1,
    host: str = "127.0.0.1",
    port: int = 8000,
    limits: Limits | None = None,
    device: str = "cpu",
    address: str | None = None,
) -> Iterator[str]:
    """A service on Ray Serve, for the time of a ``with`` block.

    Uses the Ray that is running in this process; else connects to one and leaves it at the end.

    Args:
        build: Makes the application, with its models; called in every replica.
        replicas: How many processes share the work, and the cores.
        host: Address to listen on, at the head of the cluster.
        port: 0 takes a free one, on this machine.
        limits: The limits that `build` uses.
        device: ``"cpu"``, or ``"cuda"`` for a GPU for each replica.
        address: The cluster; when left out, the one Ray finds or starts on this machine.

    Yields:
        Where the service is, such as ``http://127.0.0.1:8000``.

    Raises:
        ConfigError: A setting is impossible, or Ray has no place for so many replicas.
        MissingExtraError: Ray Serve is not installed.
        OSError: The address is taken, or not one of this machine.
        PeerError: A replica does not start.
    """
    if replicas < 1:
        raise ConfigError(f"replicas = {replicas}: give at least 1")
    use_gpu, limits = wants_gpu(device), limits or Limits()
    ray = import_ray("serve", "Serving with Ray")
    if address is None:
        with bind_socket(host, port) as sock:  # what is taken is told at once
            port = sock.getsockname()[1]
    elif not port:
        raise ConfigError("--port 0: on a cluster the port must be named")
    lent = ray.is_initialized() or is_named(address)
    with connected(ray, address, **QUIET):
        places = find_places(ray, replicas, use_gpu=use_gpu, address=address)

        def build_here() -> FastAPI:
            importlib.import_module("torch").set_num_threads(places.cpus)
            configure_logging()
            return build()

        serve = ray.serve
        logging.getLogger("ray.serve").setLevel(logging.ERROR)
        deployment = serve.deployment(serve.ingress(build_here)()).options(
            name=NAME,
            num_replicas=replicas,
            ray_actor_options={"num_cpus": places.cpus, "num_gpus": places.gpus},
            # The application has limits of its own, and says so better.
            max_ongoing_requests=limits.connections,
            # Longer than a request may take.
            graceful_shutdown_timeout_s=math.ceil(2 * limits.seconds) + 5,
        )
        serve.start(
            proxy_location="HeadOnly",
            http_options={"host": host, "port": port},
            logging_config={"log_level": "ERROR", "enable_access_log": False},
        )
        if NAME in serve.status().applications:
            raise ConfigError("a service of elmokit runs on this cluster already; stop it first")
        try:
            try:
                serve.run(deployment.bind(), name=NAME, route_prefix="/")
            except RuntimeError as error:
                raise PeerError(f"the replicas do not start: {_reason(serve, error)}") from error
            yield f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        finally:
            serve.delete(NAME)  # waits for what was accepted
            # A Ray that was started here ends with all that is in it.
            if lent and not serve.status().applications:
                serve.shutdown()


def serve_until_stopped(build: Callable[[], FastAPI], **options: Any) -> None:
    """Serve until the process is told to stop; then finish what was accepted.

    Args:
        build: Makes the application.
        **options: As for `deployed`.
    """
    configure_logging()
    before = signal.getsignal(signal.SIGTERM)
    stop = threading.Event()
    try:
        with deployed(build, **options) as place:
            # Now and not before: Ray puts a handler of its own in place when it starts.
            signal.signal(signal.SIGTERM, lambda number, frame: stop.set())
            log_event("serving", address=place)
            stop.wait()
            log_event("stopping")
        log_event("stopped")
    finally:
        signal.signal(signal.SIGTERM, before)


def _reason(serve: Any, error: Exception) -> str:
    """The line that says why, of the many that Serve has around it."""
    application = serve.status().applications.get(NAME)
    deployments = application.deployments.values() if application is not None else ()
    lines = "\n".join(deployment.message for deployment in deployments).splitlines()
    told = [line.strip() for line in lines if re.match(r"\s*(\w+\.)*\w+Error: ", line)]
    return told[-1] if told else first_line(error)
