"""Weft's own log lines: one sentence and its values, as text for people or JSON for programs; secrets masked."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any, TextIO

from weft.redaction import redacted, redacted_tree

STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}
LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def set_up(log_format: str, level: str, stream: TextIO | None = None, **fixed: Any) -> None:
    """Send every line of the process to ``stream``; ``fixed`` values (role, worker) stand on each."""
    stream = stream or sys.stderr
    text = log_format == "text" or (log_format == "auto" and stream.isatty())
    handler = logging.StreamHandler(stream)
    handler.setFormatter(TextLines(fixed) if text else JsonLines(fixed))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("weft").setLevel(LEVELS[level])


class Lines(logging.Formatter):
    """What both forms share: the values that stand beside the sentence, and that no secret is among them."""

    def __init__(self, fixed: dict[str, Any]) -> None:
        super().__init__()
        self._fixed = fixed

    def values(self, record: logging.LogRecord) -> dict[str, Any]:
        given = {name: value for name, value in record.__dict__.items() if name not in STANDARD}
        if record.exc_info:
            given["traceback"] = self.formatException(record.exc_info)
        return self._fixed | _masked(given)


class JsonLines(Lines):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "at": _moment(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": redacted(record.getMessage()),
        }
        return json.dumps(line | self.values(record), default=str, ensure_ascii=False)


class TextLines(Lines):
    def format(self, record: logging.LogRecord) -> str:
        values = self.values(record)
        traceback = values.pop("traceback", "")
        shown = " ".join(f"{name}={_plain(value)}" for name, value in values.items())
        line = (
            f"{_moment(record)[11:23]} {record.levelname.lower():7} {redacted(record.getMessage())}  {shown}".rstrip()
        )
        return f"{line}\n{traceback}" if traceback else line


def _masked(values: dict[str, Any]) -> dict[str, Any]:
    """The values as JSON has them, masked; what JSON does not know becomes its text first."""
    return {} if not values else redacted_tree(json.loads(json.dumps(values, default=str)))


def _moment(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _plain(value: Any) -> str:
    """One line without control characters, so that no value can forge a line of its own."""
    text = str(value)
    return text if text.isprintable() else json.dumps(text)
