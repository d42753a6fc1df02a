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
_CODES = (
    "eng en deu de fra fr spa es ita it por pt nld nl rus ru ukr uk pol pl ces cs slk sk slv sl hrv hr srp sr bul bg "
    "ron ro hun hu fin fi swe sv dan da nob no est et lav lv lit lt ell el tur tr heb he ara ar pes fa hin hi ben bn "
    "urd ur tam ta tel te tha th vie vi ind id zho zh cmn zh jpn ja kor ko kat ka hye hy aze az uzb uz cat ca epo eo"
)
SHORT = dict(zip(_CODES.split()[::2], _CODES.split()[1::2], strict=True))
"""The codes that pages use, by those of the library."""


def parsed(html: str) -> Document:
    try:
        from turbohtml import parse
    except ImportError as missing:
        raise AdapterMissing("of crawls", "text", "text") from missing
    return parse(html)


def main_text(document: Document) -> str:
    """Without navigation, adverts and what else is on every page; all of it where nothing reads as an article."""
    return document.main_text() or document.to_text()


def markdown(document: Document, base: str) -> str:
    """The same with headings, lists and links; these are whole, so that they lead somewhere wherever it is read."""
    found = document.main_content()
    chosen = found if found is not None else document
    chosen.resolve_links(base)
    return chosen.to_markdown().strip()


def language_of(text: str) -> str:
    """The code of the language that a text is written in; empty where that is unsure, or the extra is missing."""
    try:
        from turbohtml.detect import detect_language
    except ImportError:
        return ""
    if len(text) < ENOUGH:
        return ""
    found = detect_language(text[:10_000])
    if found is None or not found.language or found.confidence < SURE:
        return ""
    return SHORT.get(found.language, found.language)
