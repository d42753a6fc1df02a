"""Log records of a spider as lines that a reader can tell from what is merely printed: RS, one JSON object, LF."""

from __future__ import annotations

import json
import logging
from typing import Any

import scrapy.utils.log
from scrapy import Request, Spider
from scrapy.crawler import Crawler
from scrapy.http import Response

from .run_folder import plain, write_all

MESSAGE_CHARACTERS = 256 * 1024
"""A longer message is cut; its item is in the spool, its page is on the web."""

STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}
"""What every record has; all else was given as ``extra`` where it was logged."""
MOST_FIELDS, FIELD_CHARACTERS = 50, 8 * 1024
"""How many fields are kept of one record, and how long the text of one may be."""

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_tracebacks = logging.Formatter()


class Records(logging.Handler):
    """Writes each record to the pipe, and to the file that the project's LOG_FILE names."""

    def __init__(self, pipe: int, spider: str, run_id: str, also: logging.Handler | None = None) -> None:
        super().__init__()
        self._pipe = pipe
        self._who = {"spider": spider, "run_id": run_id}
        self._also = also

    def emit(self, record: logging.LogRecord) -> None:
        try:
            write_all(self._pipe, b"\x1e%b\n" % _encode(self._shown(record)).encode("utf-8", "replace"))
            if self._also is not None:
                self._also.emit(record)
        except Exception:
            self.handleError(record)

    def close(self) -> None:
        if self._also is not None:
            self._also.close()
        super().close()

    def _shown(self, record: logging.LogRecord) -> dict[str, Any]:
        extra, place = extra_of(record), place_of(record)
        for name, kind in (("url", str), ("status", int)):
            if isinstance(extra.get(name), kind):
                place[name] = extra.pop(name)
        shown: dict[str, Any] = {
            "at": int(record.created * 1_000_000),
            "level": record.levelname,
            "logger": record.name,
            "message": cut(record.getMessage()),
            **place,
            **self._who,
        }
        if extra:
            shown["extra"] = extra
        if record.exc_info and record.exc_info[0] is not None:
            shown["exception"] = cut(_tracebacks.formatException(record.exc_info))
        return shown

    def __repr__(self) -> str:
        return f"<Records of {self._who['spider']}>"


def take_over(pipe: int, spider: str, run_id: str) -> None:
    """Let Scrapy's root handler write records.

    Scrapy makes that handler anew for each crawler, from the settings of the project and of the spider: its level
    and filters stay, a file stays beside the records, and where the project wants no log there is none.
    """
    made_by_scrapy = scrapy.utils.log._get_handler

    def made_here(settings: Any) -> logging.Handler:
        handler = made_by_scrapy(settings)
        if isinstance(handler, logging.NullHandler):
            return handler
        also = handler if isinstance(handler, logging.FileHandler) else None
        records = Records(pipe, spider, run_id, also)
        records.setLevel(handler.level)
        for each in handler.filters:
            records.addFilter(each)
        return records

    scrapy.utils.log._get_handler = made_here


def say_error(pipe: int, spider: str, run_id: str, message: str, error: BaseException) -> None:
    """Write one error record whatever the project's settings say of logs: the run ends for this."""
    record = logging.LogRecord("weft", logging.ERROR, "", 0, message, None, (type(error), error, error.__traceback__))
    Records(pipe, spider, run_id).emit(record)


def place_of(record: logging.LogRecord) -> dict[str, Any]:
    """The page that a record speaks of, as far as its arguments or its extra fields hold a request or a response."""
    place: dict[str, Any] = {}
    args = record.args if isinstance(record.args, dict) else {}
    said = record.__dict__
    for thing in (
        args.get("response"),
        args.get("request"),
        args.get("src"),
        said.get("response"),
        said.get("request"),
    ):
        if isinstance(thing, (Request, Response)):
            place.setdefault("url", thing.url)
        if isinstance(thing, Response):
            place.setdefault("status", thing.status)
    if isinstance(args.get("status"), int):
        place.setdefault("status", args["status"])
    return place


def extra_of(record: logging.LogRecord) -> dict[str, Any]:
    """The fields that a log call has given besides its message, as JSON has them.

    Scrapy gives its own objects with every call, and the item that its message shows already.
    """
    known = STANDARD | {"item"} if record.name.startswith("scrapy.") else STANDARD
    given = [(name, value) for name, value in record.__dict__.items() if name not in known]
    fields = [(name, value) for name, value in given if not isinstance(value, (Request, Response, Spider, Crawler))]
    return {str(name)[:200]: short(value) for name, value in fields[:MOST_FIELDS]}


def short(value: Any) -> Any:
    """A value as JSON has it; of a long one the begin of its text."""
    try:
        told = plain(value)
        text = told if isinstance(told, str) else _encode(told)
    except Exception:  # whatever a project's own classes do when they are asked for their text
        return f"<{type(value).__name__}>"
    if len(text) <= FIELD_CHARACTERS:
        return told
    return f"{text[:FIELD_CHARACTERS]}… ({len(text) - FIELD_CHARACTERS} characters more)"


def cut(text: str) -> str:
    if len(text) <= MESSAGE_CHARACTERS:
        return text
    return f"{text[:MESSAGE_CHARACTERS]}… ({len(text) - MESSAGE_CHARACTERS} characters more)"
