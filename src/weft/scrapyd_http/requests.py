"""Requests of Scrapyd's clients: their parameters, forms and uploads, the responses, and the audit log."""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from io import BufferedWriter
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote_to_bytes

from starlette.requests import Request
from starlette.responses import Response

from weft.access.audit import AuditContext, AuditedChange, audit_entry, audited
from weft.access.model import Caller, Role
from weft.app import App
from weft.errors import WeftError
from weft.operations.problems import RequestRefused, problem_of

UNAUTHORIZED = b"Unauthorized"
PAGE = """<html>
  <head><title>{code} - {title}</title></head>
  <body>
    <h1>{title}</h1>
    <p>{why}</p>
  </body>
</html>
"""


class ScrapydError(WeftError):
    """What Scrapyd says word for word where it does not do what was asked for."""


class HiddenProject(ScrapydError):
    """The same of something that may be there, but that this caller is not to know of."""


def ok(node_name: str, **data: Any) -> Response:
    return _json_response({**data, "status": "ok", "node_name": node_name})


def with_members(node_name: str, members: str) -> Response:
    """The same for members that are JSON already."""
    rest = json.dumps({"status": "ok", "node_name": node_name})
    return Response(f"{{{members}, {rest[1:]}\n".encode(), media_type="application/json")


def error(node_name: str, message: str, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Errors have the status of success as well; programs look at the word."""
    return _json_response({"status": "error", "message": message, "node_name": node_name}, status, headers)


def options() -> Response:
    return Response(status_code=204)


def unauthorized() -> Response:
    headers = {"WWW-Authenticate": 'basic realm="Scrapyd"', "Content-Type": "text/html"}
    return Response(UNAUTHORIZED, 401, headers)


def not_found() -> Response:
    text = PAGE.format(code=404, title="No Such Resource", why="There is nothing at this address.")
    return Response(text, 404, media_type="text/html")


def not_allowed() -> Response:
    """For a method that a page does not have."""
    text = PAGE.format(code=405, title="Method Not Allowed", why="This page can only be read: GET or HEAD.")
    return Response(text, 405, {"Allow": "HEAD, GET"}, "text/html")


def add_cors(response: Response, method: str) -> None:
    """What a page elsewhere may do with the answer: read it, if nobody's password was needed for it."""
    response.headers["Access-Control-Allow-Origin"] = "*"
    response.headers["Access-Control-Allow-Methods"] = f"OPTIONS, HEAD, {method}"
    response.headers["Access-Control-Allow-Headers"] = "X-Requested-With"
    if response.status_code == 204:
        response.headers["Allow"] = f"OPTIONS, HEAD, {method}"


def _json_response(data: Mapping[str, Any], status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(json.dumps(data).encode() + b"\n", status, headers, "application/json")


RequestParameters = dict[bytes, list[bytes]]
"""Parameters as they were sent: names and texts need not be UTF-8."""


@dataclass(slots=True)
class ScrapydRequest:
    """What was asked for, and by whom. ``path`` has no double slashes."""

    app: App
    caller: Caller
    method: str
    path: str
    request: Request
    node_name: str
    values: RequestParameters = field(default_factory=dict)
    egg: Path | None = None
    """The uploaded file, which is gone once the request is answered."""
    project: str = ""
    """Where the caller's role was last asked for."""

    def text(self, name: str) -> str:
        """A parameter that must be there. Each is taken once; of several with one name the first counts."""
        found = self.optional(name)
        if found is None:
            raise ScrapydError(f"'{name}' parameter is required")
        return found

    def optional(self, name: str) -> str | None:
        found = self.values.pop(name.encode(), None)
        return None if not found else _text(name, found[0])

    def number(self, name: str) -> float:
        """A parameter that is a number; 0 where it is not there."""
        found = self.values.pop(name.encode(), [b"0"])[0]
        try:
            value = float(found)
        except ValueError as problem:
            raise ScrapydError(f"{name} is invalid: {problem}") from problem
        if math.isnan(value):
            raise ScrapydError(f"{name} is invalid: it is not a number")
        return value

    def texts(self, name: str) -> list[str]:
        """Every value of a parameter that may be repeated."""
        return [_text(name, each) for each in self.values.pop(name.encode(), [])]

    def rest(self) -> dict[str, str]:
        """The parameters that nobody has taken."""
        try:
            named = {name.decode(): values[0] for name, values in self.values.items()}
            return {name: _without_nul(name, value.decode()) for name, value in named.items()}
        except UnicodeDecodeError as problem:
            raise ScrapydError(f"UnicodeDecodeError: {problem}") from problem

    def check(self, needed: Role, project: str, missing: str = "") -> None:
        """Refuse a caller whose role is too low; a project that they may not see does not exist for them."""
        self.project = project
        if self.caller.role_in(project) is None:
            raise HiddenProject(missing or f"project '{project}' not found")
        self.caller.check(needed, project)

    def visible(self, project: str | None = None) -> frozenset[str] | None:
        """The projects whose things the caller may see, or the one that was asked for; None for all."""
        if project is not None:
            return frozenset({project})
        return self.caller.projects(Role.VIEWER)

    def ok(self, **data: Any) -> Response:
        return ok(self.node_name, **data)

    @property
    def action(self) -> str:
        """What the audit log calls it: ``scrapyd.cancel``."""
        return f"scrapyd.{self.path.strip('/').removesuffix('.json')}"

    @property
    def prefix(self) -> str:
        """What a proxy has taken from the beginning of the address."""
        return self.request.headers.get("x-forwarded-prefix", "").rstrip("/")


def _text(name: str, value: bytes) -> str:
    try:
        return _without_nul(name, value.decode())
    except UnicodeDecodeError as problem:
        raise ScrapydError(f"{name} is invalid: {problem}") from problem


def _without_nul(name: str, value: str) -> str:
    """No database keeps this character."""
    if "\0" in name or "\0" in value:
        raise ScrapydError(f"{name} is invalid: it may not have the character NUL".replace("\0", ""))
    return value


EGG = b"egg"
LARGEST_FORM = 1 << 20
"""Bytes of all parameters together, besides an egg."""
MOST_FIELDS = 10_000
GATHERED_BYTES = 1 << 20
BODY_SECONDS, EGG_SECONDS = 60.0, 900.0
"""How long a form may take to arrive, and one with an egg."""
URLENCODED, MULTIPART = "application/x-www-form-urlencoded", "multipart/form-data"
CUT_MESSAGE = re.compile(rb"%[0-9A-Fa-f]?\Z")


class FormParser(Protocol):
    def write(self, data: bytes) -> Any: ...

    def finalize(self) -> None: ...


class FormFields:
    """Takes fields as they come. An ``egg`` goes to ``file``, where there is one."""

    def __init__(self, file: Path | None = None, largest: int = 0) -> None:
        self.values: RequestParameters = {}
        self._file, self._largest, self._sizes = file, largest, [0, 0]
        self._egg: BufferedWriter | None = None
        self._field = bytearray()
        self._name, self._count = b"", 0
        self.has_egg = False

    def begin(self, name: bytes) -> None:
        self._name = name
        self._add_size(False, len(name) + 1)
        if name == EGG and self._file is not None and not self.has_egg:
            self._egg = self._file.open("xb")

    def count(self, more: int = 1) -> None:
        """Refuse a form of so many pieces that to look at each takes long, whether they are fields or not."""
        self._count += more
        if self._count > MOST_FIELDS:
            raise RequestRefused("too_large", f"a form may have at most {MOST_FIELDS} fields")

    def write(self, data: bytes) -> None:
        self._add_size(self._egg is not None, len(data))
        if self._egg is not None:
            self._egg.write(data)
        else:
            self._field += data

    def end(self) -> None:
        if self._egg is not None:
            self._egg.close()
            self._egg, self.has_egg = None, True
        else:
            self.values.setdefault(self._name, []).append(bytes(self._field))
            self._field.clear()

    def close(self) -> None:
        if self._egg is not None:
            self._egg.close()

    def _add_size(self, is_egg: bool, size: int) -> None:
        self._sizes[is_egg] += size
        if self._sizes[is_egg] > (self._largest if is_egg else LARGEST_FORM):
            what, most = ("an egg", self._largest) if is_egg else ("a form besides its egg", LARGEST_FORM)
            raise RequestRefused("too_large", f"{what} may have at most {most} bytes")


class UrlencodedParser:
    """``a=1&b=2``, in pieces. What has no ``=`` is no field."""

    def __init__(self, fields: FormFields) -> None:
        self._fields, self._name, self._open, self._cut = fields, b"", False, b""

    def write(self, data: bytes) -> None:
        self._fields.count(data.count(b"&"))
        first, *others = data.split(b"&")
        self._more(first)
        for piece in others:
            self.finalize()
            self._more(piece)

    def finalize(self) -> None:
        """A field is over."""
        if self._open:
            self._fields.write(self._cut)
            self._fields.end()
        self._name, self._open, self._cut = b"", False, b""

    def _more(self, data: bytes) -> None:
        if not self._open:
            name, equals, data = (self._name + data).partition(b"=")
            self._name = name
            if len(name) > LARGEST_FORM:
                raise RequestRefused("too_large", f"the name of a field may have at most {LARGEST_FORM} bytes")
            if not equals:
                return
            self._fields.begin(_plain(name))
            self._open = True
        data = self._cut + data
        self._cut = found[0] if (found := CUT_MESSAGE.search(data[-2:])) else b""
        self._fields.write(_plain(data[: len(data) - len(self._cut)]))


def query_of(text: bytes) -> RequestParameters:
    fields = FormFields()
    _parse(UrlencodedParser(fields), text)
    return fields.values


async def read_form(request: Request, values: RequestParameters, file: Path | None, largest: int) -> bool:
    """Put the fields of a form beside those of the query, in the place of those of the same name; tell whether there
    was an egg. A body that is no form is not looked at."""
    fields = FormFields(file, largest)
    parser = _parser(request, fields)
    if parser is None:
        return False
    most = (largest * 3 if file is not None else 0) + 2 * LARGEST_FORM
    _check_length(request, most)
    seconds = BODY_SECONDS if file is None else EGG_SECONDS
    try:
        async with asyncio.timeout(seconds):
            await _read(request, parser, most)
    except TimeoutError:
        raise RequestRefused("too_slow", f"the form did not arrive within {seconds:g} s") from None
    finally:
        fields.close()
    values |= fields.values
    return fields.has_egg


def _parser(request: Request, fields: FormFields) -> FormParser | None:
    kind = request.headers.get("content-type", "")
    media_type = kind.partition(";")[0].strip().lower()
    if media_type == URLENCODED:
        return UrlencodedParser(fields)
    if media_type == MULTIPART:
        return _multipart(kind, fields)
    return None


def _multipart(kind: str, fields: FormFields) -> FormParser:
    from python_multipart.multipart import MultipartParser, parse_options_header

    header, value = bytearray(), bytearray()
    is_named = False

    def name_header(data: bytes, start: int, end: int) -> None:
        header.extend(data[start:end])

    def fill_header(data: bytes, start: int, end: int) -> None:
        value.extend(data[start:end])

    def end_header() -> None:
        nonlocal is_named
        name = parse_options_header(bytes(value))[1].get(b"name")
        if bytes(header).lower() == b"content-disposition" and name is not None and not is_named:
            fields.begin(name)
            is_named = True
        header.clear()
        value.clear()

    def take(data: bytes, start: int, end: int) -> None:
        if is_named:
            fields.write(data[start:end])

    def end_part() -> None:
        nonlocal is_named
        if is_named:
            fields.end()
        is_named = False

    boundary = parse_options_header(kind)[1].get(b"boundary")
    if not boundary:
        raise RequestRefused("bad_request", "multipart/form-data needs a boundary")
    return MultipartParser(
        boundary,
        {
            "on_part_begin": fields.count,
            "on_header_field": name_header,
            "on_header_value": fill_header,
            "on_header_end": end_header,
            "on_part_data": take,
            "on_part_end": end_part,
        },
    )


def _check_length(request: Request, most: int) -> None:
    length = request.headers.get("content-length", "0")
    if not length.isdigit() or int(length) > most:
        raise _too_large(most)


def _too_large(most: int) -> RequestRefused:
    return RequestRefused("too_large", f"the form may have at most {most} bytes")


async def _read(request: Request, parser: FormParser, most: int) -> None:
    """Small forms are parsed at once; of a large one each piece is, beside everything else."""
    gathered, left = bytearray(), most
    async for piece in request.stream():
        gathered += piece
        left -= len(piece)
        if left < 0:  # it came without a length
            raise _too_large(most)
        if len(gathered) >= GATHERED_BYTES:
            await asyncio.to_thread(_write, parser, bytes(gathered))
            gathered.clear()
    _parse(parser, bytes(gathered))


def _parse(parser: FormParser, data: bytes) -> None:
    _write(parser, data)
    parser.finalize()


def _write(parser: FormParser, data: bytes) -> None:
    from python_multipart.exceptions import FormParserError

    try:
        parser.write(data)
    except FormParserError as problem:
        raise RequestRefused("bad_request", f"the form cannot be understood ({problem})") from problem


def _plain(text: bytes) -> bytes:
    return unquote_to_bytes(text.replace(b"+", b" "))


@asynccontextmanager
async def audited_call(asked: ScrapydRequest, project: str, target: str) -> AsyncIterator[None]:
    """What is changed inside is told in the transaction that changes it, and else afterwards."""

    def of(told: AuditedChange) -> dict[str, Any]:
        where, what = told.project or project, told.target or target
        return audit_entry(asked.caller, asked.action, project=where, target=what, data=told.data)

    audit_context = AuditContext(asked.app.audit, of)
    with audited(audit_context):
        yield
    await audit_context.record_afterwards()


async def audit_denial(asked: ScrapydRequest, problem: Exception) -> None:
    await asked.app.denied_requests.tell(
        asked.caller, asked.action, problem_of(problem, "")[0].code, project=asked.project
    )
