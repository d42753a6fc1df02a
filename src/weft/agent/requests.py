"""A request of Scrapy as text, so that another process of the same spider can make it; and back.

It is JSON, with a mark for what JSON has not: ``{"$tuple": […]}``. Callbacks are told by their names. Nothing is
imported on the word of such a text: a class must be there already.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from itemadapter import ItemAdapter, is_item
from scrapy import Request

PLAIN = (str, int, bool, float, type(None))
CALLS = ("callback", "errback")
DEFAULTS: dict[str, Any] = {"method": "GET", "encoding": "utf-8"}
"""What an attribute is where it says nothing; all others are empty then."""

SEQUENCES: dict[str, Callable[[Any], Any]] = {"tuple": tuple, "set": set, "frozenset": frozenset}
TEXTS: dict[str, Callable[[str], Any]] = {
    "datetime": datetime.fromisoformat,
    "date": date.fromisoformat,
    "Decimal": Decimal,
}


class NotText(Exception):
    """A request that no other process could make, or a text of which this one cannot make a request."""


def text_of(request: Request, spider: Any) -> str:
    """All of a request but its address. Raises ``NotText``."""
    said: dict[str, Any] = {}
    if type(request) is not Request:
        said["class"] = _class_name(type(request))
    for name in request.attributes:
        value = getattr(request, name)
        if name == "url" or not value or value == DEFAULTS.get(name):
            continue
        said[name] = _method_name(value, spider) if name in CALLS else SAID.get(name, _packed)(value)
    try:
        return json.dumps(said, separators=(",", ":"), allow_nan=False) if said else ""
    except ValueError as error:
        raise NotText(str(error)) from error


def request_of(url: str, text: str, spider: Any) -> Request:
    """The request that was made to text. Raises ``NotText``."""
    if not text:
        return Request(url)
    try:
        said = json.loads(text)
        kind = _request_class(said.pop("class")) if "class" in said else Request
        given = {name: getattr(spider, said.pop(name)) for name in CALLS if name in said}
        given.update((name, HEARD.get(name, _unpacked)(value)) for name, value in said.items())
        made: Request = kind(url, **given)
    except NotText:
        raise
    except Exception as error:  # another version of the project may have written it, and its classes may raise anything
        raise NotText(f"{type(error).__name__}: {error}") from error
    return made


def _said_headers(headers: Any) -> Any:
    return {name.decode("latin-1"): [each.decode("latin-1") for each in headers.getlist(name)] for name in headers}


def _heard_headers(said: Any) -> Any:
    return {name.encode("latin-1"): [each.encode("latin-1") for each in values] for name, values in said.items()}


def _said_bytes(body: bytes) -> str:
    return body.decode("latin-1")


def _heard_bytes(said: str) -> bytes:
    return said.encode("latin-1")


def _method_name(call: Any, spider: Any) -> str:
    """The name by which the spider of another process has the same method."""
    name = getattr(call, "__name__", "")
    private = [f"_{kind.__name__.lstrip('_')}{name}" for kind in type(spider).__mro__] if name[:2] == "__" else []
    for each in (name, *private):
        if each and getattr(spider, each, None) == call:
            return str(each)
    raise NotText(f"{name or repr(call)} is no method of the spider")


def _packed(value: Any) -> Any:
    kind = type(value)
    if kind in PLAIN:
        return value
    if kind is list:
        return [_packed(each) for each in value]
    if kind is dict:
        if all(type(key) is str and key[:1] != "$" for key in value):
            return {key: _packed(each) for key, each in value.items()}
        return {"$dict": [[_packed(key), _packed(each)] for key, each in value.items()]}
    if kind is bytes:
        return {"$bytes": _said_bytes(value)}
    return _packed_rarity(kind, value)


def _packed_rarity(kind: type, value: Any) -> Any:
    if SEQUENCES.get(kind.__name__) is kind:
        return {f"${kind.__name__}": [_packed(each) for each in value]}
    if kind in (datetime, date):
        return {f"${kind.__name__}": value.isoformat()}
    if kind is Decimal:
        return {"$Decimal": str(value)}
    if is_item(value):
        return {"$item": [_class_name(kind), {name: _packed(each) for name, each in ItemAdapter(value).items()}]}
    raise NotText(f"a {kind.__name__} cannot be written as JSON")


def _unpacked(value: Any) -> Any:
    if isinstance(value, list):
        return [_unpacked(each) for each in value]
    if not isinstance(value, dict):
        return value
    mark = next(iter(value), "")
    if mark[:1] != "$":
        return {key: _unpacked(each) for key, each in value.items()}
    return _unmarked(mark[1:], value[mark])


def _unmarked(mark: str, inner: Any) -> Any:
    if mark == "bytes":
        return _heard_bytes(inner)
    if mark == "dict":
        return {_unpacked(key): _unpacked(each) for key, each in inner}
    if mark == "item":
        kind = _class_named(inner[0])
        if not ItemAdapter.is_item_class(kind):
            raise NotText(f"{inner[0]} is no class of items")
        return kind(**{name: _unpacked(each) for name, each in inner[1].items()})
    if mark in TEXTS:
        return TEXTS[mark](inner)
    return SEQUENCES[mark](_unpacked(each) for each in inner)


def _request_class(name: str) -> Any:
    kind = _class_named(name)
    if not issubclass(kind, Request):
        raise NotText(f"{name} is no class of requests")
    return kind


def _class_name(kind: type) -> str:
    name = f"{kind.__module__}:{kind.__qualname__}"
    if _class_named(name) is not kind:
        raise NotText(f"{kind.__name__} is not to be found by its name")
    return name


def _class_named(name: str) -> Any:
    """A class of requests or items that is imported here."""
    module, _, path = name.partition(":")
    found: Any = sys.modules.get(module)
    for part in path.split("."):
        found = getattr(found, part, None)
    if not isinstance(found, type):
        raise NotText(f"there is no class {name}")
    return found


SAID: dict[str, Callable[[Any], Any]] = {"headers": _said_headers, "body": _said_bytes}
HEARD: dict[str, Callable[[Any], Any]] = {"headers": _heard_headers, "body": _heard_bytes}
"""Attributes that are always bytes, and need no mark."""
