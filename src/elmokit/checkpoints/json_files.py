"""JSON files beside the weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from elmokit.errors import CheckpointError


def read_json(path: Path) -> dict[str, Any]:
    """A JSON file that holds one object."""
    try:
        data = json.loads(path.read_bytes())
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: not valid JSON ({error})") from None
    if not isinstance(data, dict):
        raise CheckpointError(f"{path}: expected a JSON object, found {type(data).__name__}")
    return data
