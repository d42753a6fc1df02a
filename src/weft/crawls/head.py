"""The head of a page: its title, its description, what it asks of robots, and what it calls itself."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from selectolax.lexbor import LexborHTMLParser, LexborNode

US = "weft"
"""Who we are where a page speaks to robots by their names."""

_NAMED = re.compile(r"\s*(?!unavailable_after|max-)([A-Za-z][\w.*-]*)\s*:(.*)", re.IGNORECASE | re.DOTALL)


@dataclass(slots=True)
class Head:
    """What a page says about itself. Nothing in it is checked or resolved."""

    title: str = ""
    description: str = ""
    base: str = ""
    canonical: str = ""
    language: str = ""
    nofollow: bool = False
    noindex: bool = False


def read_head(tree: LexborHTMLParser) -> Head:
    head = Head()
    node = tree.head
    if node is not None:
        for each in node.iter():
            if (reader := _READERS.get(each.tag or "")) is not None:
                reader(head, each)
    if not head.title:
        for title in tree.tags("title")[:1]:
            _title(head, title)
    root = tree.root
    if root is not None:
        head.language = (root.attributes.get("lang") or "").strip()[:35]
    return head


def asks_of(rules: Iterable[str]) -> tuple[bool, bool]:
    """Whether robots are asked for nofollow and for noindex; what is said to others by their names does not count."""
    asked: set[str] = set()
    for rule in rules:
        spoken_to = _NAMED.match(rule)
        if spoken_to is not None:
            if spoken_to[1].lower() != US:
                continue
            rule = spoken_to[2]
        asked.update(each.strip().lower() for each in rule.split(","))
    return bool(asked & {"nofollow", "none"}), bool(asked & {"noindex", "none"})


def _title(head: Head, node: LexborNode) -> None:
    head.title = head.title or " ".join(node.text().split())


def _base(head: Head, node: LexborNode) -> None:
    head.base = head.base or node.attributes.get("href") or ""


def _link(head: Head, node: LexborNode) -> None:
    attributes = node.attributes
    if not head.canonical and "canonical" in (attributes.get("rel") or "").lower().split():
        head.canonical = attributes.get("href") or ""


def _meta(head: Head, node: LexborNode) -> None:
    attributes = node.attributes
    name = (attributes.get("name") or "").lower()
    if name in ("robots", US):
        nofollow, noindex = asks_of([attributes.get("content") or ""])
        head.nofollow, head.noindex = head.nofollow or nofollow, head.noindex or noindex
    elif name == "description":
        head.description = head.description or " ".join((attributes.get("content") or "").split())


_READERS = {"title": _title, "base": _base, "link": _link, "meta": _meta}
