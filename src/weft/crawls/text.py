"""The main text of a page, as text or as Markdown, and its language. The library for it is an extra: ``weft[text]``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.errors import AdapterMissing

if TYPE_CHECKING:
    from turbohtml import Document

SURE = 0.5
"""How sure one must be of a language that the page does not name."""
ENOUGH = 40
"""Letters that a language is told by."""


def parsed(html: str) -> Document:
    try:
        from turbohtml import parse
    except ImportError as missing:
        raise AdapterMissing("of crawls", "text", "text") from missing
    return parse(html)


def main_text(document: Document) -> str:
    """Without navigation, adverts and what else is on every page; all of it where nothing reads as an article."""
    return document.main_text() or document.to_text()


def markdown(document: Document) -> str:
    found = document.main_content()
    return (found if found is not None else document).to_markdown().strip()


def language_of(text: str) -> str:
    """The code of the language that a text is written in; empty where that is unsure, or the extra is missing."""
    try:
        from turbohtml.detect import detect_language
    except ImportError:
        return ""
    if len(text) < ENOUGH:
        return ""
    found = detect_language(text[:10_000])
    return found.language if found is not None and found.language and found.confidence >= SURE else ""
