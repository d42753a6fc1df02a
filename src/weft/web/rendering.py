"""Pages as HTML. Whatever is shown is text: templates escape everything, and no page may run a script."""

from __future__ import annotations

import hashlib
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

HERE = Path(__file__).parent
POLICY = (
    "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
MEDIA_TYPES = {".css": "text/css; charset=utf-8", ".svg": "image/svg+xml"}
SPANS = (("d", 86_400), ("h", 3600), ("min", 60))


@dataclass(frozen=True, slots=True)
class Page:
    """What a page shows."""

    template: str
    shown: Mapping[str, Any]
    """What the template is given."""
    document: Any
    """The same for programs."""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)

    def as_json(self) -> Response:
        return Response(msgspec.json.encode(self.document), self.status, self.headers, "application/json")

    def as_html(self, **around: Any) -> Response:
        """``around`` is what every page knows: where links lead, and who looks."""
        text = environment().get_template(self.template).render(**around, **self.shown)
        headers = {"Content-Security-Policy": POLICY, **self.headers}
        return Response(text, self.status, headers, "text/html; charset=utf-8")


@dataclass(frozen=True, slots=True)
class Onward:
    """Sends the browser to another page."""

    to: str
    headers: Mapping[str, str] = field(default_factory=dict)

    def response(self, prefix: str) -> Response:
        return Response(b"", 303, {"Location": prefix + self.to, **self.headers})


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
    made.filters |= {"ago": ago, "clock": clock, "size": size, "sentence": sentence}
    return made


@cache
def static() -> Mapping[str, tuple[bytes, str]]:
    """Every file that pages use, by its address, which has the digest of it: so a browser may keep it for ever."""
    found = {}
    for file in sorted((HERE / "static").iterdir()):
        content = file.read_bytes()
        digest = hashlib.sha256(content).hexdigest()[:12]
        found[f"/static/{digest}/{file.name}"] = (content, MEDIA_TYPES[file.suffix])
    return found


@cache
def static_addresses() -> Mapping[str, str]:
    """Where each file is, by its name."""
    return {address.rpartition("/")[2]: address for address in static()}


def ago(at: str) -> str:
    """How long ago a moment was: 12 s ago, 5 min ago."""
    seconds = (datetime.now(UTC) - datetime.fromisoformat(at)).total_seconds()
    for unit, length in SPANS:
        if seconds >= length:
            return f"{seconds / length:.0f} {unit} ago"
    return f"{max(seconds, 0):.0f} s ago"


def clock(at: str) -> str:
    """A moment to the second."""
    return f"{at[:10]} {at[11:19]} UTC"


def size(count: int) -> str:
    """A number of bytes as people say it."""
    for unit, length in (("MB", 1_000_000), ("kB", 1_000)):
        if count >= length:
            return f"{count / length:.3g} {unit}"
    return f"{count} bytes" if count != 1 else "1 byte"


def sentence(text: str) -> str:
    """What an error says, as people write it."""
    return f"{text[:1].upper()}{text[1:]}" + ("" if text.endswith((".", "!", "?")) else ".")
