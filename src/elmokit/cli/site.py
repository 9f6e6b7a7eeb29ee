"""``elmokit site``: the web page as files, with models that run in the reader's browser."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from elmokit.cli.lm import AS_IT_IS, Loading, load_predicting
from elmokit.cli.options import SeveralModels, UsageError, readable_size, size_on_disk, suggest

EXAMPLES = (
    "elmokit site my-site",
    "elmokit site my-site --model small-en --model small-zh",
    "elmokit site exact --model my-model --storage float32",
)


def site(  # noqa: D417 - options that verbs share bring their own help
    folder: Path,
    /,
    *,
    model: Annotated[tuple[str, ...], SeveralModels] = (),
    storage: Literal["int8", "float32"] = "int8",
    loading: Loading = AS_IT_IS,
) -> None:
    """Write the web page as files that need no server of elmokit: the model runs in the browser.

    Any web server can give the folder out, at any address. After the first visit the page works
    offline. It has all views but Tasks.

    Args:
        folder: A new folder, or a site that is replaced.
        model: NAME=SOURCE or SOURCE, a model of any kind that the other verbs take; may be
            repeated. The embedded model when left out.
        storage: int8: a quarter of the size or less, exact for models that are stored in int8 or
            int4, as the embedded ones are. float32: exact for every model.
    """
    from elmokit.checkpoints.known_models import DEFAULT_MODEL
    from elmokit.files import check_output
    from elmokit.server.registry import named_sources
    from elmokit.server.static_site import write_site

    if len(model) > 1 and any(loading.files):
        raise UsageError("--softmax, --vocabulary and --options go with one --model.")
    sources = named_sources(model or (DEFAULT_MODEL,))
    check_output(folder, *sources.values(), *loading.files)
    models = {name: load_predicting(source, loading) for name, source in sources.items()}
    write_site(models, folder, storage=storage)
    print(f"{', '.join(models)} in {folder} ({readable_size(size_on_disk(folder))})")
    suggest(f"python -m http.server --directory {folder}")
