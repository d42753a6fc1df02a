"""Weft's own log lines: one sentence and its values, as text for people or JSON for programs; secrets masked."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any, TextIO

import msgspec

from weft.redaction import redacted, redacted_tree

STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}
LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


REQUESTS = "weft.requests"
"""The logger of the access log."""


def configure_logging(
    log_format: str, level: str, stream: TextIO | None = None, *, access_log: str = "auto", **fixed: Any
) -> None:
    """Send every line of the process to ``stream``; ``fixed`` values (role, worker) stand on each."""
    stream = stream or sys.stderr
    text = log_format == "text" or (log_format == "auto" and stream.isatty())
    handler = logging.StreamHandler(stream)
    handler.setFormatter(TextFormatter(fixed) if text else JsonFormatter(fixed))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("weft").setLevel(LEVELS[level])
    requests, lines = logging.getLogger(REQUESTS), logging.StreamHandler(stream)
    lines.setFormatter(AccessLogFormatter(fixed))
    requests.handlers[:], requests.propagate = [lines], False
    is_for_people = stream.isatty() and level != "debug"
    requests.disabled = access_log == "off" or (access_log == "auto" and is_for_people)


class ProcessLogFormatter(logging.Formatter):
    """What both forms share: the values that stand beside the sentence, and that no secret is among them."""

    def __init__(self, fixed: dict[str, Any]) -> None:
        super().__init__()
        self._fixed = fixed

    def values(self, record: logging.LogRecord) -> dict[str, Any]:
        given = {name: value for name, value in record.__dict__.items() if name not in STANDARD}
        if record.exc_info:
            given["traceback"] = self.formatException(record.exc_info)
        return self._fixed | _masked(given)


class JsonFormatter(ProcessLogFormatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "at": _moment(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": redacted(record.getMessage()),
        }
        return json.dumps(line | self.values(record), default=str, ensure_ascii=False)


class AccessLogFormatter(ProcessLogFormatter):
    """A line of the access log, always JSON. There is one for each request, and no value of it comes from what was
    sent but the request's id, so nothing is masked: that takes ten times as long as the rest."""

    def format(self, record: logging.LogRecord) -> str:
        line = {"at": _moment(record), "level": "info", "logger": REQUESTS, "message": "request", **self._fixed}
        return msgspec.json.encode(line | record.__dict__["told"]).decode()


class TextFormatter(ProcessLogFormatter):
    def format(self, record: logging.LogRecord) -> str:
        values = self.values(record)
        traceback = values.pop("traceback", "")
        shown = " ".join(f"{name}={_one_line(value)}" for name, value in values.items())
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


def _one_line(value: Any) -> str:
    """One line without control characters, so that no value can forge a line of its own."""
    text = str(value)
    return text if text.isprintable() else json.dumps(text)
