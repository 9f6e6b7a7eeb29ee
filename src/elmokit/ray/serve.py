"""The service in several processes, started and supervised by Ray Serve.

Every replica is the whole application with models of its own: routes, access, limits and batching
are those of a single process. Serve accepts requests at one address, gives each to a replica that
is free, restarts a replica that has died, and at the end lets each finish its requests.
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
from elmokit.ray.cluster import (
    QUIET,
    connect,
    first_line,
    import_ray,
    names_cluster,
    wants_gpu,
    worker_resources,
)
from elmokit.server.logs import configure_logging, log_event
from elmokit.server.server import address_of, announce, bind_socket
from elmokit.server.settings import Limits
from elmokit.training.distributed import PeerError

if TYPE_CHECKING:
    from fastapi import FastAPI

NAME = "elmokit"
"""The application's name in Serve, which may run others."""


@contextmanager
def deployed(
    build: Callable[[], FastAPI],
    *,
    replicas: int = 1,
    host: str = "127.0.0.1",
    port: int = 8000,
    limits: Limits | None = None,
    device: str | None = None,
    address: str | None = None,
) -> Iterator[str]:
    """A service on Ray Serve, for the time of a ``with`` block.

    Uses the Ray that is running in this process; else connects to one and disconnects at the end.

    Args:
        build: Makes the application, with its models; called in every replica.
        replicas: The number of processes, which share the cores.
        host: Address to listen on, at the head of the cluster.
        port: 0 takes a free one, on this machine.
        limits: The limits that `build` uses.
        device: ``"cpu"``, or ``"cuda"`` for a GPU for each replica; left out, a GPU if there is
            one for each.
        address: The cluster; when left out, the one Ray finds or starts on this machine.

    Yields:
        The address of the service, such as ``http://127.0.0.1:8000``.

    Raises:
        ConfigError: A setting is impossible, or Ray has too few CPUs or GPUs.
        MissingExtraError: Ray Serve is not installed.
        OSError: The address is taken, or not one of this machine.
        PeerError: A replica does not start.
    """
    if replicas < 1:
        raise ConfigError(f"replicas = {replicas}: give at least 1")
    use_gpu, limits = wants_gpu(device), limits or Limits()
    ray = import_ray("serve", "Serving with Ray")
    if address is None:
        with bind_socket(host, port) as sock:  # an address in use is reported at once
            port = sock.getsockname()[1]
    elif not port:
        raise ConfigError("--port 0: on a cluster the port must be named")
    shared = ray.is_initialized() or names_cluster(address)
    with connect(ray, address, **QUIET):
        resources = worker_resources(ray, replicas, use_gpu=use_gpu, address=address)

        def build_here() -> FastAPI:
            importlib.import_module("torch").set_num_threads(resources.cpus)
            configure_logging()
            return build()

        serve = ray.serve
        logging.getLogger("ray.serve").setLevel(logging.ERROR)
        deployment = serve.deployment(serve.ingress(build_here)()).options(
            name=NAME,
            num_replicas=replicas,
            ray_actor_options={"num_cpus": resources.cpus, "num_gpus": resources.gpus},
            # The application has limits of its own, with better error messages.
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
            yield address_of(host, port)
        finally:
            serve.delete(NAME)  # waits for the requests that were accepted
            # A Ray that was started here ends with all that is in it.
            if shared and not serve.status().applications:
                serve.shutdown()


def serve_until_stopped(build: Callable[[], FastAPI], **options: Any) -> None:
    """Serve until SIGTERM; then finish the requests that were accepted (see `deployed`)."""
    configure_logging()
    before = signal.getsignal(signal.SIGTERM)
    stop = threading.Event()
    try:
        with deployed(build, **options) as url:
            # Not earlier: Ray installs a handler of its own when it starts.
            signal.signal(signal.SIGTERM, lambda number, frame: stop.set())
            announce(url)
            stop.wait()
            log_event("stopping")
        log_event("stopped")
    finally:
        signal.signal(signal.SIGTERM, before)


def _reason(serve: Any, error: Exception) -> str:
    """The line with the exception, out of the many that Serve prints around it."""
    application = serve.status().applications.get(NAME)
    deployments = application.deployments.values() if application is not None else ()
    lines = "\n".join(deployment.message for deployment in deployments).splitlines()
    found = [line.strip() for line in lines if re.match(r"\s*(\w+\.)*\w+Error: ", line)]
    return found[-1] if found else first_line(error)
