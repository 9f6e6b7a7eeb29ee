"""Models on the Hugging Face hub: ``hf:owner/name`` or ``hf:owner/name@revision``."""

from __future__ import annotations

from pathlib import Path

from elmokit.errors import CheckpointError

PREFIX = "hf:"


def download(source: str) -> Path:
    """Fetch a repository to the hub's cache and return its folder.

    This is the only place that reaches out of the machine, and only because it was asked to.
    What lies in the cache already is used when the hub cannot be reached.
    """
    from huggingface_hub import snapshot_download

    name, _, revision = source.removeprefix(PREFIX).partition("@")
    try:
        return Path(snapshot_download(name, revision=revision or None))
    except Exception as error:  # its own kinds, and those of whichever HTTP library it uses
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise CheckpointError(
            f"{source}: cannot be fetched from the Hugging Face hub ({reason}). Check the name "
            "and the network; for a private model log in with huggingface-cli"
        ) from None
