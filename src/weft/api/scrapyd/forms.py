"""Reads parameters: from the query, and from a form of either kind, whose egg goes to a file piece by piece."""

from __future__ import annotations

import asyncio
import re
from io import BufferedWriter
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote_to_bytes

from starlette.requests import Request

from weft.api.problems import Refused
from weft.api.scrapyd.asked import Values

EGG = b"egg"
LARGEST_FORM = 1 << 20
"""Bytes of all parameters together, besides an egg."""
MOST_FIELDS = 10_000
GATHERED = 1 << 20
BODY_SECONDS, EGG_SECONDS = 60.0, 900.0
"""How long a form may take to arrive, and one with an egg."""
URLENCODED, MULTIPART = "application/x-www-form-urlencoded", "multipart/form-data"
CUT = re.compile(rb"%[0-9A-Fa-f]?\Z")


class Parser(Protocol):
    def write(self, data: bytes) -> Any: ...

    def finalize(self) -> None: ...


class Fields:
    """Takes fields as they come. An ``egg`` goes to ``file``, where there is one."""

    def __init__(self, file: Path | None = None, largest: int = 0) -> None:
        self.values: Values = {}
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
            raise Refused("too_large", f"a form may have at most {MOST_FIELDS} fields")

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
            raise Refused("too_large", f"{what} may have at most {most} bytes")


class Urlencoded:
    """``a=1&b=2``, in pieces. What has no ``=`` is no field."""

    def __init__(self, fields: Fields) -> None:
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
                raise Refused("too_large", f"the name of a field may have at most {LARGEST_FORM} bytes")
            if not equals:
                return
            self._fields.begin(_plain(name))
            self._open = True
        data = self._cut + data
        self._cut = found[0] if (found := CUT.search(data[-2:])) else b""
        self._fields.write(_plain(data[: len(data) - len(self._cut)]))


def query_of(text: bytes) -> Values:
    fields = Fields()
    _parse(Urlencoded(fields), text)
    return fields.values


async def read_form(request: Request, values: Values, file: Path | None, largest: int) -> bool:
    """Put the fields of a form beside those of the query, in the place of those of the same name; tell whether there
    was an egg. A body that is no form is not looked at."""
    fields = Fields(file, largest)
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
        raise Refused("too_slow", f"the form did not arrive within {seconds:g} s") from None
    finally:
        fields.close()
    values |= fields.values
    return fields.has_egg


def _parser(request: Request, fields: Fields) -> Parser | None:
    kind = request.headers.get("content-type", "")
    media_type = kind.partition(";")[0].strip().lower()
    if media_type == URLENCODED:
        return Urlencoded(fields)
    if media_type == MULTIPART:
        return _multipart(kind, fields)
    return None


def _multipart(kind: str, fields: Fields) -> Parser:
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
        raise Refused("bad_request", "multipart/form-data needs a boundary")
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


def _too_large(most: int) -> Refused:
    return Refused("too_large", f"the form may have at most {most} bytes")


async def _read(request: Request, parser: Parser, most: int) -> None:
    """Small forms are parsed at once; of a large one each piece is, beside everything else."""
    gathered, left = bytearray(), most
    async for piece in request.stream():
        gathered += piece
        left -= len(piece)
        if left < 0:  # it came without a length
            raise _too_large(most)
        if len(gathered) >= GATHERED:
            await asyncio.to_thread(_write, parser, bytes(gathered))
            gathered.clear()
    _parse(parser, bytes(gathered))


def _parse(parser: Parser, data: bytes) -> None:
    _write(parser, data)
    parser.finalize()


def _write(parser: Parser, data: bytes) -> None:
    from python_multipart.exceptions import FormParserError

    try:
        parser.write(data)
    except FormParserError as problem:
        raise Refused("bad_request", f"the form cannot be understood ({problem})") from problem


def _plain(text: bytes) -> bytes:
    return unquote_to_bytes(text.replace(b"+", b" "))
