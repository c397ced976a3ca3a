"""How a server writes its log: lines of text or of JSON, on standard error."""

from __future__ import annotations

import json
import logging
import time

LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("text", "json")


class _TextFormatter(logging.Formatter):
    """Time in UTC, level, logger and message; a trace follows on lines of its own."""

    converter = staticmethod(time.gmtime)
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")


class _JsonFormatter(_TextFormatter):
    """An object on one line, also of a message with a trace."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        fields = {
            "time": self.formatTime(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            "process": record.process,
        }
        if record.exc_info:
            fields["trace"] = self.formatException(record.exc_info)
        return json.dumps(fields, ensure_ascii=False)


def write_logs(level: str, format: str) -> None:
    """Write messages of ``level`` and above to standard error, from now on."""
    handler = logging.StreamHandler()
    handler.setFormatter(_JsonFormatter() if format == "json" else _TextFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler])
    logging.captureWarnings(True)
