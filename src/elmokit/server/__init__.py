"""The HTTP service of ``elmokit serve``, and its client.

The data's way: server binds the listening socket and runs uvicorn; app builds the ASGI application;
logs holds the request-log middleware, access the access middleware, metrics the counters. routes,
with what they share in handling, validate requests with schemas and formats, take a model of the
registry and pass the work to batching, which joins the requests of many clients into batches for
one worker thread. inspect computes the intermediate results of the forward pass for the page.
settings holds all limits. client calls a service; it needs no torch and no web framework. page is
the built web page, served as it is. static_site writes the page that needs no service, static_page,
with models for the browser.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from elmokit.lazy import lazy_names

if TYPE_CHECKING:
    from elmokit.server.app import create_app as create_app
    from elmokit.server.client import Client as Client, ServiceError as ServiceError
    from elmokit.server.registry import ModelRegistry as ModelRegistry
    from elmokit.server.settings import Access as Access, Limits as Limits
    from elmokit.server.static_site import write_site as write_site
else:
    __getattr__, __dir__, __all__ = lazy_names(
        __name__,
        {
            "settings": "Access Limits",
            "client": "Client ServiceError",
            "registry": "ModelRegistry",
            "app": "create_app",
            "static_site": "write_site",
        },
    )
