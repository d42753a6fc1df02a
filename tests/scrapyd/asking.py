"""Calls as a client puts them on the wire, and what came back."""

from __future__ import annotations

import base64
import http.client
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlencode

from tests.scrapyd.gate import Gate
from tests.scrapyd.real import PASSWORD, USER

BOUNDARY = "weft-tests"
PATIENCE_SECONDS = 60.0
Pairs = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call. ``{gate}`` in a value is the port of the gate at which spiders of the side wait."""

    name: str
    """What the list of differences calls it by."""
    method: str = "GET"
    path: str
    query: str = ""
    """As it stands after the question mark."""
    form: Pairs = ()
    egg: bytes | None = None
    """Sent as a file, with ``form`` in the same body."""
    body: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    auth: str = "right"
    """A value for Authorization; ``right`` for the good one, nothing for none."""


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    """Names in lower case; a name that came twice has its values joined by commas."""
    data: bytes


@dataclass(frozen=True, slots=True)
class Side:
    """Scrapyd or weft: where it answers, and where its spiders wait."""

    name: str
    port: int
    gate: Gate

    def ask(self, call: Call) -> Answer:
        headers, body = self._sent(call)
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_SECONDS)
        try:
            target = call.path + (f"?{self._here(call.query)}" if call.query else "")
            connection.request(call.method, target, body, headers)
            response = connection.getresponse()
            found: dict[str, str] = {}
            for name, value in response.getheaders():
                found[name.lower()] = ", ".join(filter(None, [found.get(name.lower()), value]))
            return Answer(response.status, found, response.read())
        finally:
            connection.close()

    def _sent(self, call: Call) -> tuple[dict[str, str], bytes | None]:
        headers = dict(call.headers)
        if call.auth:
            headers["Authorization"] = RIGHT if call.auth == "right" else call.auth
        form = [(name, self._here(value)) for name, value in call.form]
        if call.egg is not None:
            headers["Content-Type"] = f"multipart/form-data; boundary={BOUNDARY}"
            return headers, multipart(form, call.egg)
        if call.form:
            headers["Content-Type"] = "application/x-www-form-urlencoded"
            return headers, urlencode(form).encode()
        return headers, call.body

    def _here(self, value: str) -> str:
        return value.replace("{gate}", str(self.gate.port))


RIGHT = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()


def multipart(form: Pairs, egg: bytes) -> bytes:
    parts = [f'Content-Disposition: form-data; name="{name}"\r\n\r\n{value}'.encode() for name, value in form]
    disposition = 'Content-Disposition: form-data; name="egg"; filename="project.egg"'
    parts.append(f"{disposition}\r\nContent-Type: application/octet-stream\r\n\r\n".encode() + egg)
    start, end = f"--{BOUNDARY}\r\n".encode(), f"--{BOUNDARY}--\r\n".encode()
    return b"".join(start + part + b"\r\n" for part in parts) + end
