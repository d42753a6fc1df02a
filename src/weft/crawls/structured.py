"""Data that pages have for machines: JSON-LD, OpenGraph and microdata."""

from __future__ import annotations

from typing import Any

import msgspec
from selectolax.lexbor import LexborHTMLParser, LexborNode

MOST_ITEMS, MOST_PROPERTIES = 1_000, 10_000
"""Of microdata, in one page."""
DEEPEST = 200
"""How far above a property its item is looked for."""
LARGEST = 1_000_000
"""Bytes of one block of JSON-LD."""
_VALUES = {
    **dict.fromkeys(("a", "area", "link"), "href"),
    **dict.fromkeys(("audio", "embed", "iframe", "img", "source", "track", "video"), "src"),
    "meta": "content",
    "data": "value",
    "meter": "value",
    "object": "data",
    "time": "datetime",
}
"""Where the value of a property stands, by its tag; elsewhere it is the text."""


def structured_of(tree: LexborHTMLParser) -> dict[str, Any]:
    """All of it that the page has, by kind."""
    found = {"json_ld": json_ld(tree), "opengraph": opengraph(tree), "microdata": microdata(tree)}
    return {kind: data for kind, data in found.items() if data}


def json_ld(tree: LexborHTMLParser) -> list[Any]:
    """Each block that is JSON; a block that is a list counts as its members."""
    blocks: list[Any] = []
    for node in tree.css('script[type="application/ld+json"]'):
        text = node.text()
        try:
            read = msgspec.json.decode(text.strip()) if len(text) <= LARGEST else None
        except (msgspec.DecodeError, RecursionError):
            continue
        blocks += read if isinstance(read, list) else [read] if read is not None else []
    return blocks


def opengraph(tree: LexborHTMLParser) -> dict[str, Any]:
    """Properties such as ``og:title``; one that is there several times is a list."""
    found: dict[str, Any] = {}
    for node in tree.css("meta[property][content]"):
        name, value = node.attributes["property"] or "", node.attributes["content"] or ""
        if ":" in name:
            _add(found, name, value)
    return found


def microdata(tree: LexborHTMLParser) -> list[dict[str, Any]]:
    """Items that are no property of another, with theirs inside."""
    items: dict[int, dict[str, Any]] = {}
    tops: list[dict[str, Any]] = []
    for node in each_once(tree.css("[itemscope],[itemprop]"))[:MOST_PROPERTIES]:
        above = items.get(_scope_above(node))
        value: Any = None
        if "itemscope" in node.attributes:
            if len(items) >= MOST_ITEMS:
                break
            value = items[node.mem_id] = {"type": node.attributes.get("itemtype") or "", "properties": {}}
        names = (node.attributes.get("itemprop") or "").split()
        if above is not None and names:
            for name in names:
                _add(above["properties"], name, value if value is not None else _value(node))
        elif value is not None:
            tops.append(value)
    return tops


def each_once(nodes: list[LexborNode]) -> list[LexborNode]:
    """A node that matches several selectors of a list is found several times."""
    return list({node.mem_id: node for node in nodes}.values())


def _scope_above(node: LexborNode) -> int:
    above = node.parent
    for _ in range(DEEPEST):
        if above is None or "itemscope" in above.attributes:
            break
        above = above.parent
    return above.mem_id if above is not None else 0


def _value(node: LexborNode) -> str:
    attributes = node.attributes
    if (told := attributes.get("content")) is not None:
        return told
    told = attributes.get(_VALUES.get(node.tag or "", ""))
    return told if told is not None else " ".join(node.text().split())


def _add(found: dict[str, Any], name: str, value: Any) -> None:
    if name not in found:
        found[name] = value
    elif isinstance(found[name], list):
        found[name].append(value)
    else:
        found[name] = [found[name], value]
