"""A spec of the kind ``http``, read and found to be right: what to send, and what to expect back."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from weft import __version__
from weft.adapters.executors._spec import Fields, is_text
from weft.crawl_spec import RESERVED_HEADERS
from weft.errors import Invalid
from weft.patterns import compiled
from weft.ports import Work

FIELDS = (
    "url",
    "method",
    "headers",
    "body",
    "json",
    "expect_status",
    "expect_body",
    "expect_body_matches",
    "timeout_seconds",
    "follow_redirects",
    "max_body_bytes",
)
TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
STATUS_CLASS = re.compile(r"[1-5]xx", re.IGNORECASE)
PORTS = {"http": 80, "https": 443}
LONGEST_PATTERN = 1000
MEBIBYTE = 1_048_576


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    url: str
    method: str
    headers: Mapping[str, str]
    body: bytes | None
    content_type: str
    statuses: tuple[str, ...]
    contains: str | None
    matches: str | None
    timeout_seconds: float
    follow_redirects: bool
    max_body_bytes: int

    @classmethod
    def of(cls, spec: Mapping[str, Any]) -> Request:
        fields = Fields("http", spec, FIELDS)
        fields.only_one("body", "json")
        fields.only_one("expect_body", "expect_body_matches")
        return cls(
            url=_url(fields),
            method=_method(fields),
            headers=_headers(fields),
            body=_body(fields),
            content_type=_content_type(fields),
            statuses=_statuses(fields),
            contains=fields.text("expect_body"),
            matches=_pattern(fields),
            timeout_seconds=fields.number("timeout_seconds", 30.0, least=0.001, most=86_400.0),
            follow_redirects=fields.flag("follow_redirects", True),
            max_body_bytes=fields.whole("max_body_bytes", MEBIBYTE, least=0, most=256 * MEBIBYTE),
        )

    @property
    def server(self) -> str:
        return server_of(self.url)

    def expects(self, status: int) -> bool:
        return any(wanted in (str(status), f"{status // 100}xx") for wanted in self.statuses)

    def headers_for(self, work: Work) -> dict[str, str]:
        """The headers to send; what the spec says stands."""
        headers = {
            "User-Agent": f"weft/{__version__}",
            "Accept-Encoding": "gzip, deflate",
            "Idempotency-Key": work.idempotency_key,
            "traceparent": work.traceparent,
            "Content-Type": self.content_type,
        }
        own = {name.lower() for name in self.headers}
        return {**{name: value for name, value in headers.items() if value and name.lower() not in own}, **self.headers}


def server_of(url: str) -> str:
    """What a circuit breaker is about: the server, not the page."""
    parts = urlsplit(url)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return f"{parts.scheme.lower()}://{host}:{parts.port or PORTS[parts.scheme.lower()]}"


def shown(url: str) -> str:
    """The address without the user and password that it may carry."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def _url(fields: Fields) -> str:
    allowed = "it must be an address that begins with http:// or https:// and names a host"
    url = fields.text("url")
    if url is None:
        raise fields.refusal("url", allowed)
    try:
        parts = urlsplit(url)
        wrong = parts.scheme.lower() not in PORTS or not parts.hostname or parts.port == 0
    except ValueError:
        wrong = True
    if wrong or re.search(r"[\s\x00-\x1f]", url):
        # Not the address as it is: it may carry a password.
        raise Invalid("http.url", url.rpartition("@")[2], allowed)
    return url


def _method(fields: Fields) -> str:
    method = fields.text("method") or "GET"
    if not TOKEN.fullmatch(method):
        raise fields.refusal("method", "it must be a method such as GET, HEAD, POST, PUT, PATCH or DELETE")
    return method.upper()


def _headers(fields: Fields) -> dict[str, str]:
    headers = fields.texts("headers")
    for name, value in headers.items():
        if not TOKEN.fullmatch(name):
            raise Invalid("a name in http.headers", name, "it must be letters, digits and -")
        if name.lower() in RESERVED_HEADERS:
            raise Invalid("a name in http.headers", name, "weft sets it itself, as the url and the body need it")
        if "\r" in value or "\n" in value:
            raise Invalid(f"http.headers.{name}", "…", "it must be one line")
    return headers


def _body(fields: Fields) -> bytes | None:
    if "json" in fields:
        try:
            return json.dumps(fields.value("json"), allow_nan=False).encode()
        except (TypeError, ValueError) as error:
            raise fields.refusal("json", "it must be a value that JSON can hold") from error
    text = fields.text("body")
    return None if text is None else text.encode()


def _content_type(fields: Fields) -> str:
    if "json" in fields:
        return "application/json"
    return "text/plain; charset=utf-8" if "body" in fields else ""


def _statuses(fields: Fields) -> tuple[str, ...]:
    given = fields.value("expect_status")
    several = given if isinstance(given, list | tuple) else ["2xx" if given is None else given]
    if not several or not all(map(_is_status, several)):
        raise fields.refusal(
            "expect_status", 'it must be a status (100 to 599), a class such as "2xx", or a list of them'
        )
    return tuple(str(status).lower() for status in several)


def _is_status(value: object) -> bool:
    if isinstance(value, str):
        return STATUS_CLASS.fullmatch(value) is not None
    return isinstance(value, int) and not isinstance(value, bool) and 100 <= value <= 599


def _pattern(fields: Fields) -> str | None:
    pattern = fields.value("expect_body_matches")
    if pattern is None:
        return None
    allowed = f"it must be a regular expression of at most {LONGEST_PATTERN} characters"
    if not is_text(pattern) or len(pattern) > LONGEST_PATTERN:
        raise fields.refusal("expect_body_matches", allowed)
    try:
        compiled(str(pattern))
    except Invalid as problem:
        raise fields.refusal("expect_body_matches", problem.allowed) from problem
    return str(pattern)
