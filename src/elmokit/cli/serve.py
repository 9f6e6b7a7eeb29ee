"""``elmokit serve``: models over HTTP, and a web page to explore them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter, validators

from elmokit.cli.lm import AS_IT_IS, Loading, load_predicting
from elmokit.cli.options import AtLeastOne, RayAddress, SeveralModels, UsageError
from elmokit.errors import ConfigError, MissingExtraError
from elmokit.server.settings import Limits

if TYPE_CHECKING:
    from fastapi import FastAPI

    from elmokit.server.registry import ModelRegistry
    from elmokit.server.settings import Access

EXAMPLES = (
    "elmokit serve",
    "elmokit serve --model en=small-en --model zh=small-zh --port 9000",
    "elmokit serve --predictor sentiment=my-classifier",
    "elmokit serve --host 0.0.0.0 --token-file tokens.txt --allow-host elmo.lan",
    "elmokit serve --engine ray --replicas 2",
)

Positive: Parameter = Parameter(validator=validators.Number(gt=0, lt=math.inf))


@Parameter(name="*")  # the fields are options of the verb itself
@dataclass(frozen=True, kw_only=True)
class LimitOptions:
    """Limits that are often changed."""

    max_body: Annotated[
        int, AtLeastOne, Parameter(help="Bytes of a request; a larger one is refused with 413.")
    ] = Limits.body_bytes
    max_sentences: Annotated[int, AtLeastOne, Parameter(help="Sentences of a request.")] = (
        Limits.sentences
    )
    max_tokens: Annotated[int, AtLeastOne, Parameter(help="Tokens of a request.")] = Limits.tokens
    max_sentence_tokens: Annotated[int, AtLeastOne, Parameter(help="Tokens of one sentence.")] = (
        Limits.sentence_tokens
    )
    max_word: Annotated[int, AtLeastOne, Parameter(help="Characters of a token.")] = (
        Limits.word_characters
    )
    max_numbers: Annotated[
        int, AtLeastOne, Parameter(help="Numbers of an answer: tokens x layers x width.")
    ] = Limits.answer_numbers
    queue_requests: Annotated[
        int, AtLeastOne, Parameter(help="Requests in the queue; more are refused with 429.")
    ] = Limits.queue_requests
    queue_tokens: Annotated[
        int, AtLeastOne, Parameter(help="Tokens in the queue; more are refused with 429.")
    ] = Limits.queue_tokens
    max_memory: Annotated[
        int, AtLeastOne, Parameter(help="Bytes of bodies and answers that are held at a time.")
    ] = Limits.memory_bytes
    max_connections: Annotated[int, AtLeastOne, Parameter(help="Open connections.")] = (
        Limits.connections
    )
    timeout: Annotated[
        float,
        Positive,
        Parameter(help="Seconds for a body to arrive, and for an answer to be computed."),
    ] = Limits.seconds
    idle_timeout: Annotated[
        float,
        Positive,
        Parameter(help="Seconds until a request's headers are there, and between requests."),
    ] = Limits.idle_seconds
    batch_tokens: Annotated[
        int, AtLeastOne, Parameter(help="Maximum number of tokens per batch.")
    ] = Limits.batch_tokens
    wait_ms: Annotated[
        float,
        Positive,
        Parameter(help="Milliseconds that a request waits for others to share its batch."),
    ] = Limits.wait_ms


AS_USUAL = LimitOptions()
NAMES = {
    "max_body": "body_bytes",
    "max_sentences": "sentences",
    "max_tokens": "tokens",
    "max_sentence_tokens": "sentence_tokens",
    "max_word": "word_characters",
    "max_numbers": "answer_numbers",
    "max_memory": "memory_bytes",
    "max_connections": "connections",
    "timeout": "seconds",
    "idle_timeout": "idle_seconds",
}
"""Options whose limits have other names."""
FILES = ("softmax_file", "vocabulary_file", "options_file")
"""Options of one model alone."""


def serve(  # noqa: D417 - options that verbs share bring their own help
    *,
    model: Annotated[tuple[str, ...], SeveralModels] = (),
    predictor: Annotated[tuple[str, ...], Parameter(consume_multiple=False)] = (),
    host: str = "127.0.0.1",
    port: Annotated[int, Parameter(validator=validators.Number(gte=0, lte=65535))] = 8000,
    token_file: Path | None = None,
    without_token: bool = False,
    allow_host: Annotated[tuple[str, ...], Parameter(consume_multiple=False)] = (),
    allow_origin: Annotated[tuple[str, ...], Parameter(consume_multiple=False)] = (),
    log_texts: bool = False,
    engine: Literal["plain", "ray"] = "plain",
    replicas: Annotated[int | None, AtLeastOne] = None,
    ray_address: RayAddress = None,
    limits: LimitOptions = AS_USUAL,
    loading: Loading = AS_IT_IS,
) -> None:
    """Serve models and the web page over HTTP.

    SIGTERM or Ctrl-C stops it; what was accepted is still answered. Logs are JSON lines on
    standard error.

    Args:
        model: NAME=SOURCE or SOURCE, a model of any kind that the other verbs take; may be
            repeated. The first is the default of requests. The embedded model when left out.
        predictor: NAME=FOLDER or FOLDER of a saved predictor; may be repeated.
        host: Address to listen on. An address that other machines can reach needs a token.
        port: Port to listen on; 0 takes a free one.
        token_file: Bearer tokens, one per line (TOKEN or NAME TOKEN); clients send one of them.
            It is read again when it changes. The environment variable ELMOKIT_TOKENS may hold
            more.
        without_token: Serve without tokens at an address that other machines can reach.
        allow_host: A host name of the service, besides localhost and IP addresses; may be
            repeated.
        allow_origin: Another site whose pages may call the service, such as https://example.org;
            may be repeated.
        log_texts: Put what clients send into the log.
        engine: plain: this process. ray: replicas that Ray Serve starts.
        replicas: With --engine ray: number of processes, each with its models; 1 when left out.
    """
    try:
        import_module("elmokit.server.app")
        from elmokit.server.server import bind_socket, run_server
    except ImportError as error:
        raise MissingExtraError(error.name or "fastapi", "web", "elmokit serve") from error
    from elmokit.server.registry import named_sources
    from elmokit.server.settings import Access, environment_tokens, is_loopback, read_tokens

    chosen = Limits(**{NAMES.get(name, name): value for name, value in vars(limits).items()})
    tokens = environment_tokens()
    if token_file is not None:
        token_file = token_file.absolute()
        read_tokens(token_file)  # an error is reported before a model is loaded
    elif not tokens and not is_loopback(host) and not without_token:
        raise ConfigError(
            f"--host {host}: other machines can reach this address, so give --token-file FILE (or "
            "ELMOKIT_TOKENS in the environment), or --without-token"
        )
    access = Access(tokens=tokens, token_file=token_file, hosts=allow_host, origins=allow_origin)
    files = {name: path for name in FILES if (path := getattr(loading, name)) is not None}
    if len(model) > 1 and files:
        raise UsageError("--softmax, --vocabulary and --options go with one --model.")
    if engine == "plain" and (replicas is not None or ray_address is not None):
        raise UsageError("--replicas and --ray-address go with --engine ray.")
    sources, folders = named_sources(model), named_sources(predictor)
    parts: dict[str, Any] = {"limits": chosen, "access": access, "log_texts": log_texts}
    if engine == "ray":
        from elmokit.ray.cluster import absolute_source
        from elmokit.ray.serve import serve_until_stopped

        # Loaded here once, so that a bad model is reported before Ray starts.
        _registry(sources, folders, replace(loading, device="cpu"))
        # Absolute paths, for processes with other working folders.
        sources, folders = (
            {name: absolute_source(source) or source for name, source in given.items()}
            for given in (sources, folders)
        )
        loading = replace(loading, **{name: path.absolute() for name, path in files.items()})
        serve_until_stopped(
            partial(build_app, sources, folders, loading, **parts),
            replicas=replicas or 1,
            host=host,
            port=port,
            limits=chosen,
            device=loading.device,
            address=ray_address,
        )
        return
    # Bound before the model is loaded, so that a port in use is reported at once.
    with bind_socket(host, port) as sock:
        run_server(build_app(sources, folders, loading, **parts), sock, chosen)


def build_app(
    sources: Mapping[str, str],
    folders: Mapping[str, str],
    loading: Loading,
    *,
    limits: Limits,
    access: Access,
    log_texts: bool,
) -> FastAPI:
    """Load the models and predictors, given by name, and build the application."""
    from elmokit.server.app import create_app

    registry = _registry(sources, folders, loading)
    return create_app(registry, limits=limits, access=access, log_texts=log_texts)


def _registry(
    sources: Mapping[str, str], folders: Mapping[str, str], loading: Loading
) -> ModelRegistry:
    import elmokit
    from elmokit.checkpoints.known_models import DEFAULT_MODEL
    from elmokit.server.registry import ModelRegistry
    from elmokit.tasks.predictor import Predictor

    models = {name: load_predicting(source, loading) for name, source in sources.items()}
    if not models:
        models[DEFAULT_MODEL] = elmokit.load(tokenizer=loading.tokenizer, device=loading.device)
    predictors = {
        name: Predictor.load(folder, device=loading.device) for name, folder in folders.items()
    }
    return ModelRegistry(models, predictors)
