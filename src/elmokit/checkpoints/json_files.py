"""JSON files beside the weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from elmokit.errors import CheckpointError

_MOST_DIGITS = 20


def read_json(path: Path) -> dict[str, Any]:
    """A JSON file that holds one object."""
    try:
        data = json.loads(path.read_bytes(), parse_int=_whole_number)
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: not valid JSON ({error})") from None
    if not isinstance(data, dict):
        raise CheckpointError(f"{path}: expected a JSON object, found {type(data).__name__}")
    return data


def _whole_number(digits: str) -> int:
    if len(digits) > _MOST_DIGITS:
        raise ValueError(f"the number {digits[:_MOST_DIGITS]}... is too large")
    return int(digits)
