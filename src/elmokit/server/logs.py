"""Logs as JSON, one object a line. What clients send is not in them unless asked for."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any

NAME = "elmokit.server"
FIELDS = "elmokit_fields"
"""Attribute of a record that holds further fields."""


class JsonFormatter(logging.Formatter):
    """One JSON object for each record."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **getattr(record, FIELDS, {}),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=True, default=str)


def event(message: str, level: int = logging.INFO, **fields: Any) -> None:
    """Log one thing that happened."""
    logging.getLogger(NAME).log(level, message, extra={FIELDS: fields})


def problem(message: str, **fields: Any) -> None:
    """Log the exception that is being handled."""
    logging.getLogger(NAME).exception(message, extra={FIELDS: fields})


def set_up() -> None:
    """Send the service's logs, and those of the server under it, to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    for name, level in ((NAME, logging.INFO), ("uvicorn", logging.WARNING)):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.setLevel(level)
        logger.propagate = False
