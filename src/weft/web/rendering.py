"""Pages as HTML. Whatever is shown is text: templates escape everything, and only scripts of weft itself run."""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.responses import Response

if TYPE_CHECKING:
    from jinja2 import Environment

    from weft.operations.runs import ConditionResult

HERE = Path(__file__).parent
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
SPANS = (("d", 86_400), ("h", 3600), ("min", 60))
SIZES = (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("kB", 10**3))
SEPARATOR = "\x1e"
WORTH_COMPRESSING = 1000
"""Bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveRefresh:
    """When a page that somebody has before them is made anew: after events, and with time."""

    kinds: tuple[str, ...] = ()
    """How the kinds of those events begin: ``run_``. None of them: all events."""
    run_id: int | None = None
    """Only events of this run."""
    every_seconds: float = 0.0
    """Also without an event, for what changes without one."""


@dataclass(frozen=True, slots=True)
class WebPage:
    """What a page shows."""

    template: str
    shown: Mapping[str, Any]
    """What the template is given."""
    document: Any
    """The same for programs."""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    live: LiveRefresh | None = None
    """None: the page stays as it is until it is loaded again, as one with a form should."""

    def as_json(self) -> Response:
        return Response(msgspec.json.encode(self.document), self.status, self.headers, "application/json")

    def as_html(self, **around: Any) -> Response:
        """``around`` is what every page knows: where links lead, and who looks."""
        headers = {"Content-Security-Policy": POLICY, **self.headers}
        return Response(self._rendered("page.html", around), self.status, headers, "text/html; charset=utf-8")

    def parts(self, **around: Any) -> tuple[str, str]:
        """The title and the main part alone, for somebody who has the page before them."""
        title, _, main = self._rendered("_parts.html", around).partition(SEPARATOR)
        return title.strip(), main

    def _rendered(self, layout: str, around: Mapping[str, Any]) -> str:
        template = environment().get_template(self.template)
        return template.render(**around, **self.shown, layout=layout, live=self.live, separator=SEPARATOR)


@dataclass(frozen=True, slots=True)
class Redirect:
    """Sends the browser to another page."""

    to: str
    headers: Mapping[str, str] = field(default_factory=dict)

    def response(self, prefix: str) -> Response:
        return Response(b"", 303, {"Location": prefix + self.to, **self.headers})


def compressed(response: Response, accepted: str) -> Response:
    """The same answer in fewer bytes, where the browser takes it so and it is worth it."""
    if "gzip" not in accepted or len(response.body) < WORTH_COMPRESSING or "content-encoding" in response.headers:
        return response
    response.body = gzip.compress(response.body, 4)
    response.headers["Content-Encoding"] = "gzip"
    response.headers["Content-Length"] = str(len(response.body))
    response.headers["Vary"] = "Accept-Encoding, Cookie, Accept-Language"
    return response


@cache
def environment() -> Environment:
    """Jinja2, which is loaded with the first page."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    made = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters |= {
        "ago": ago,
        "due": due,
        "condition": condition,
        "clock": clock,
        "size": size,
        "sentence": sentence,
        "number": number,
        "duration": duration,
        "json": as_json,
    }
    return made


def ago(at: str) -> str:
    """How long ago a moment was: 12 s ago, 5 min ago."""
    seconds = (datetime.now(UTC) - datetime.fromisoformat(at)).total_seconds()
    for unit, length in SPANS:
        if seconds >= length:
            return f"{seconds / length:.0f} {unit} ago"
    return f"{max(seconds, 0):.0f} s ago"


def due(at: str) -> str:
    """In how long a moment is; nothing where it is over."""
    seconds = (datetime.fromisoformat(at) - datetime.now(UTC)).total_seconds()
    for unit, length in SPANS:
        if seconds >= length:
            return f"in {seconds / length:.0f} {unit}"
    return f"in {seconds:.0f} s" if seconds > 0 else ""


def condition(found: ConditionResult) -> str:
    """A success condition of a run as a line."""
    from weft.runs.success import RunCondition, condition_line

    return condition_line(msgspec.convert(found, RunCondition, from_attributes=True))


def clock(at: str) -> str:
    """A moment to the second."""
    return f"{at[:10]} {at[11:19]} UTC"


def size(count: int) -> str:
    """A number of bytes as people say it."""
    for unit, length in SIZES:
        if count >= 0.9995 * length:  # 999.6 kB are a MB to those who read three digits
            return f"{_short(count / length)} {unit}"
    return f"{count} bytes" if count != 1 else "1 byte"


def sentence(text: str) -> str:
    """What an error says, as people write it."""
    return f"{text[:1].upper()}{text[1:]}" + ("" if text.endswith((".", "!", "?")) else ".")


def number(value: float) -> str:
    """A number with its thousands apart: 1 234 567, with thin spaces."""
    return f"{value:,}".replace(",", "\u2009") if isinstance(value, int) else _short(value).replace(",", "\u2009")


def _short(value: float) -> str:
    """Three digits, or all before the point where these are more."""
    return f"{value:,.3g}" if abs(value) < 999.5 else f"{value:,.0f}"


def duration(seconds: float | None) -> str:
    """How long something took: 340 ms, 12.4 s, 5 min 3 s, 2 h 10 min, 3 d 4 h."""
    if seconds is None:
        return ""
    if seconds < 60:
        return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.3g} s"
    whole = round(seconds)
    for (large, unit), (small, rest) in (
        ((86_400, "d"), (3600, "h")),
        ((3600, "h"), (60, "min")),
        ((60, "min"), (1, "s")),
    ):
        if whole >= large:
            left = whole % large // small
            return f"{whole // large} {unit} {left} {rest}" if left else f"{whole // large} {unit}"
    return f"{whole} s"


def as_json(value: Any) -> str:
    """For attributes that scripts read; it is escaped like any other text."""
    return msgspec.json.encode(value).decode()
