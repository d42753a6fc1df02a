"""Extracts fields of items by CSS, XPath or JSONPath, each with a type."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

import msgspec
from lxml import etree, html
from selectolax.lexbor import LexborHTMLParser, SelectolaxError

from weft.crawl_spec import FieldSpec
from weft.crawler.extraction import each_once, json_ld
from weft.errors import AdapterMissing, Invalid
from weft.fetching.urls import Canonicalizer
from weft.patterns import Pattern, compiled

if TYPE_CHECKING:
    from jsonpath_rfc9535 import JSONPathEnvironment

MOST_VALUES = 10_000
"""Of one field."""
FALSE_WORDS = frozenset(("", "0", "false", "no", "off", "none", "null", "nein", "non"))

_NUMBER = re.compile(r"[-+−]?\d[\d\s.,'’\u00a0\u202f]*(?:[eE][-+]?\d+)?")
_PARTS = re.compile(r"\\.|\[(?:[^\]\\]|\\.)*\]|.", re.DOTALL)
"""Of a pattern: what is escaped, a class, or one character."""

Finder = Callable[["FieldSource"], list[Any]]
"""What a rule finds on a page: texts, or values of JSON."""


@dataclass
class FieldSource:
    """A page as rules see it."""

    url: str
    utf8: bytes
    tree: LexborHTMLParser | None
    """None: it is no HTML."""

    @cached_property
    def root(self) -> html.HtmlElement | None:
        """For XPath."""
        if self.tree is None or not self.utf8.strip():
            return None
        try:
            return html.document_fromstring(self.utf8, parser=html.HTMLParser(encoding="utf-8", huge_tree=False))
        except (etree.ParserError, etree.XMLSyntaxError):
            return None

    @cached_property
    def data(self) -> Any:
        """For JSONPath: a page of JSON, or the JSON-LD of a page."""
        if self.tree is not None:
            return json_ld(self.tree)
        try:
            return msgspec.json.decode(self.utf8)
        except (msgspec.DecodeError, RecursionError):
            return None


class FieldExtractor:
    """The rules of a crawl, ready to be used. Raises ``Invalid`` where one of them is none."""

    def __init__(self, rules: Mapping[str, FieldSpec], spelling: Canonicalizer) -> None:
        self._rules = [(name, rule, _finder(name, rule)) for name, rule in rules.items()]
        self._spelling = spelling

    def __bool__(self) -> bool:
        return bool(self._rules)

    def read(self, sheet: FieldSource) -> tuple[dict[str, Any], tuple[str, ...]]:
        """The fields of a page, and the names of those that it must have and has not."""
        fields: dict[str, Any] = {}
        missing: list[str] = []
        for name, rule, find in self._rules:
            typed = (self._typed(each, rule.type, sheet.url) for each in find(sheet)[:MOST_VALUES])
            values = [value for value in typed if value is not None]
            if not values and rule.required:
                missing.append(name)
            fields[name] = values if rule.many else values[0] if values else None
        return fields, tuple(missing)

    def _typed(self, value: Any, kind: str, base: str) -> Any:
        """The value as the type says; None where it is none of that type."""
        if kind == "html":
            return value if isinstance(value, str) else None
        if kind == "flag":
            return value if isinstance(value, bool) else str(value).strip().lower() not in FALSE_WORDS
        if kind == "text":
            return (" ".join(value.split()) or None) if isinstance(value, str) else _plain(value)
        if kind == "url":
            return next(iter(self._spelling.resolve(base, [str(value).strip()])), None)
        return _time(value) if kind == "time" else _number(value, whole=kind == "whole")


def check_fields(rules: Mapping[str, FieldSpec]) -> None:
    """Raise ``Invalid`` where a rule is none."""
    for name, rule in rules.items():
        _finder(name, rule)


def _finder(name: str, rule: FieldSpec) -> Finder:
    field = f"crawl.keeping.fields.{name}"
    if rule.css:
        return _css(field, rule)
    return _xpath(field, rule) if rule.xpath else _jsonpath(field, rule)


def _css(field: str, rule: FieldSpec) -> Finder:
    try:
        LexborHTMLParser(b"<p>").css(rule.css)
    except SelectolaxError as problem:
        raise Invalid(field, rule.css, "it must be a CSS selector") from problem

    def find(sheet: FieldSource) -> list[Any]:
        nodes = each_once(sheet.tree.css(rule.css)) if sheet.tree is not None else []
        if rule.attribute:
            return [value for node in nodes if (value := node.attributes.get(rule.attribute)) is not None]
        return [node.html if rule.type == "html" else node.text() for node in nodes]

    return find


def _xpath(field: str, rule: FieldSpec) -> Finder:
    try:
        query = etree.XPath(rule.xpath, regexp=False)
    except etree.XPathError as problem:
        raise Invalid(field, rule.xpath, f"it must be an XPath ({problem})") from problem

    def find(sheet: FieldSource) -> list[Any]:
        if sheet.root is None:
            return []
        try:
            found = query(sheet.root)
        except etree.XPathError:
            return []
        nodes = found if isinstance(found, list) else [found]
        return [value for node in nodes if (value := _of_node(node, rule)) is not None]

    return find


def _of_node(node: Any, rule: FieldSpec) -> Any:
    if not isinstance(node, etree._Element):
        return str(node) if isinstance(node, str) else node
    if rule.attribute:
        return node.get(rule.attribute)
    if rule.type == "html":
        return etree.tostring(node, encoding="unicode", method="html", with_tail=False)
    return "".join(str(each) for each in node.itertext())


def _jsonpath(field: str, rule: FieldSpec) -> Finder:
    try:
        from jsonpath_rfc9535 import JSONPathError

        paths = _json_paths()
    except ImportError as missing:
        raise AdapterMissing("of fields", "jsonpath", "text") from missing
    try:
        query = paths.compile(rule.jsonpath)
    except JSONPathError as problem:
        raise Invalid(field, rule.jsonpath, f"it must be a JSONPath ({problem})") from problem

    def find(sheet: FieldSource) -> list[Any]:
        try:
            return [node.value for node in query.find(sheet.data)]
        except (JSONPathError, RecursionError):
            return []

    return find


@cache
def _json_paths() -> JSONPathEnvironment:
    """JSONPath whose ``match()`` and ``search()`` take linear time, whatever their pattern is."""
    from jsonpath_rfc9535 import JSONPathEnvironment
    from jsonpath_rfc9535.function_extensions import Match, Search

    class LinearMatch(Match):
        def __call__(self, string: str, pattern: object) -> bool:
            found = _i_regexp(pattern)
            return found is not None and isinstance(string, str) and found.is_all_of(string)

    class LinearSearch(Search):
        def __call__(self, string: str, pattern: object) -> bool:
            found = _i_regexp(pattern)
            return found is not None and isinstance(string, str) and found.is_in(string)

    paths = JSONPathEnvironment()
    paths.function_extensions.update(match=LinearMatch(), search=LinearSearch())
    return paths


def _i_regexp(pattern: object) -> Pattern | None:
    """A pattern of RFC 9485, whose dot is neither end of a line; None where it is none, which matches nothing."""
    if not isinstance(pattern, str):
        return None
    text = "".join(part if part != "." else r"[^\r\n]" for part in _PARTS.findall(pattern))
    try:
        return compiled(text)
    except Invalid:
        return None


def _plain(value: Any) -> Any:
    """A value of JSON that is no text, as one."""
    return None if value is None else msgspec.json.encode(value).decode()


def _number(value: Any, *, whole: bool) -> int | float | None:
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, str):
        found = _NUMBER.search(value)
        value = _read_number(found[0]) if found else None
    if not isinstance(value, int | float) or value != value or abs(value) == float("inf"):
        return None
    return round(value) if whole else value


def _read_number(text: str) -> float | int | None:
    """A number as people write it: 1,234.50 and 1.234,50 and 1 234,5."""
    text = re.sub(r"[\s'’\u00a0\u202f]", "", text).replace("−", "-").rstrip(".,")
    comma, point = text.rfind(","), text.rfind(".")
    if comma > point and (point >= 0 or (text.count(",") == 1 and len(text) - comma != 4)):
        text = text.replace(".", "").replace(",", ".")
    else:
        text = text.replace(",", "") if text.count(".") <= 1 else text.replace(",", "").replace(".", "")
    try:
        return int(text) if text.lstrip("+-").isdecimal() else float(text)
    except ValueError:
        return None


def _time(value: Any) -> str | None:
    """A moment in UTC, as RFC 3339; without a zone it counts as UTC."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return datetime.fromtimestamp(value, UTC).isoformat().replace("+00:00", "Z")
        except (ValueError, OverflowError, OSError):
            return None
    text = str(value).strip()
    for read in (datetime.fromisoformat, parsedate_to_datetime):
        try:
            found = read(text)
        except (ValueError, TypeError):
            continue
        found = found if found.tzinfo else found.replace(tzinfo=UTC)
        return found.astimezone(UTC).isoformat().replace("+00:00", "Z")
    return None
