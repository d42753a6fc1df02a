"""Extracts content from HTML: charset, head, main text, structured data and fields."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from selectolax.lexbor import LexborHTMLParser, LexborNode

from weft.crawl_spec import OutputSpec
from weft.errors import AdapterMissing
from weft.fetching.urls import Canonicalizer

if TYPE_CHECKING:
    from turbohtml import Document

    from weft.crawler.fields import FieldExtractor

DECLARED_WITHIN = 1_024
"""Bytes of a page in which it may say its charset, as in the HTML standard."""
FALLBACK = "cp1252"
"""What is neither declared nor UTF-8, as browsers take it."""
BOMS = ((b"\xef\xbb\xbf", "utf-8"), (b"\xfe\xff", "utf-16-be"), (b"\xff\xfe", "utf-16-le"))
SAME_AS = {
    **dict.fromkeys(("ascii", "us-ascii", "latin1", "latin-1", "iso-8859-1", "iso8859-1", "iso_8859-1"), "cp1252"),
    **dict.fromkeys(("gb2312", "gbk", "gb_2312-80", "x-gbk", "chinese", "csgb2312"), "gb18030"),
    **dict.fromkeys(("shift_jis", "shift-jis", "sjis", "x-sjis", "ms_kanji"), "cp932"),
    **dict.fromkeys(("euc-kr", "ks_c_5601-1987", "ksc5601", "korean"), "cp949"),
    **dict.fromkeys(("big5", "big5-hkscs", "x-x-big5", "cn-big5"), "big5hkscs"),
    **dict.fromkeys(("iso-8859-9", "latin5"), "cp1254"),
    **dict.fromkeys(("tis-620", "iso-8859-11"), "cp874"),
    **dict.fromkeys(("unicode", "ucs-2", "utf-16"), "utf-16-le"),
}
"""Labels that mean something else on the web than in Python."""

_IN_HEADER = re.compile(rb"charset\s*=\s*[\"']?\s*([^\s\"';,]+)", re.IGNORECASE)
_IN_PAGE = re.compile(rb"<meta[^>]{0,500}?charset\s*=\s*[\"']?\s*([^\s\"'/>;]+)", re.IGNORECASE)
_IN_XML = re.compile(rb"<\?xml[^>]{0,200}?encoding\s*=\s*[\"']([^\"']+)", re.IGNORECASE)


def charset_of(body: bytes, content_type: bytes) -> str:
    """The codec of a body: by its byte order mark, by its header, by what it says itself, by how it looks."""
    for bom, name in BOMS:
        if body.startswith(bom):
            return name
    if (told := _IN_HEADER.search(content_type)) and (name := _codec(told[1])):
        return name
    start = body[:DECLARED_WITHIN]
    declared = _IN_PAGE.search(start) or _IN_XML.match(start)
    if declared and (name := _codec(declared[1])):
        return "utf-8" if name.startswith("utf-16") else name  # it was read as ASCII, so it is not that
    return "utf-8" if _is_utf8(body) else FALLBACK


def as_utf8(body: bytes, content_type: bytes) -> bytes:
    """The body in UTF-8; bytes that are none in its charset are replaced."""
    name = charset_of(body, content_type)
    if name == "utf-8":
        return body.removeprefix(BOMS[0][0])
    return body.decode(name, "replace").removeprefix("\ufeff").encode("utf-8", "replace")


def as_text(body: bytes, content_type: bytes) -> str:
    return body.decode(charset_of(body, content_type), "replace").removeprefix("\ufeff")


@lru_cache(256)
def _codec(label: bytes) -> str:
    """Python's name of it; empty where it has none, or where it is no charset of text."""
    name = label.decode("ascii", "replace").strip().lower()
    try:
        found = codecs.lookup(SAME_AS.get(name, name))
        b"x".decode(found.name, "replace")  # base64, rot13 and others like them are no charsets
    except (LookupError, ValueError):
        return ""
    return "" if found.name in ("utf-7", "idna", "punycode", "unicode_escape", "raw_unicode_escape") else found.name


def _is_utf8(body: bytes) -> bool:
    if body.isascii():
        return True
    try:
        body.decode()
    except UnicodeDecodeError as problem:
        return problem.reason == "unexpected end of data"  # cut in the middle of a character
    return True


ROBOTS_NAME = "weft"
"""Who we are where a page speaks to robots by their names."""

_NAMED = re.compile(r"\s*(?!unavailable_after|max-)([A-Za-z][\w.*-]*)\s*:(.*)", re.IGNORECASE | re.DOTALL)


@dataclass(slots=True)
class PageHead:
    """What a page says about itself. Nothing in it is checked or resolved."""

    title: str = ""
    description: str = ""
    base: str = ""
    canonical: str = ""
    language: str = ""
    nofollow: bool = False
    noindex: bool = False


def read_head(tree: LexborHTMLParser) -> PageHead:
    head = PageHead()
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


def robots_directives(rules: Iterable[str]) -> tuple[bool, bool]:
    """Whether robots are asked for nofollow and for noindex; what is said to others by their names does not count."""
    asked: set[str] = set()
    for rule in rules:
        spoken_to = _NAMED.match(rule)
        if spoken_to is not None:
            if spoken_to[1].lower() != ROBOTS_NAME:
                continue
            rule = spoken_to[2]
        asked.update(each.strip().lower() for each in rule.split(","))
    return bool(asked & {"nofollow", "none"}), bool(asked & {"noindex", "none"})


def _title(head: PageHead, node: LexborNode) -> None:
    head.title = head.title or " ".join(node.text().split())


def _base(head: PageHead, node: LexborNode) -> None:
    head.base = head.base or node.attributes.get("href") or ""


def _link(head: PageHead, node: LexborNode) -> None:
    attributes = node.attributes
    if not head.canonical and "canonical" in (attributes.get("rel") or "").lower().split():
        head.canonical = attributes.get("href") or ""


def _meta(head: PageHead, node: LexborNode) -> None:
    attributes = node.attributes
    name = (attributes.get("name") or "").lower()
    if name in ("robots", ROBOTS_NAME):
        nofollow, noindex = robots_directives([attributes.get("content") or ""])
        head.nofollow, head.noindex = head.nofollow or nofollow, head.noindex or noindex
    elif name == "description":
        head.description = head.description or " ".join((attributes.get("content") or "").split())


_READERS = {"title": _title, "base": _base, "link": _link, "meta": _meta}


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


LONGEST_DESCRIPTION = 2_000


class ExtractedPage(Protocol):
    """A page that fields are put into."""

    url: str
    title: str
    fields: dict[str, Any]
    missing: tuple[str, ...]


class PageExtractor:
    """Reads what a crawl keeps. Raises ``Invalid`` or ``AdapterMissing`` at once where it never could."""

    def __init__(self, keeping: OutputSpec, spelling: Canonicalizer) -> None:
        self._keeping, self._spelling = keeping, spelling
        self._rules: FieldExtractor | None = None
        if keeping.fields:
            from weft.crawler.fields import FieldExtractor  # lxml costs 10 MB

            self._rules = FieldExtractor(keeping.fields, spelling)
        self._wants_text = keeping.text or keeping.markdown
        if self._wants_text:
            parsed("")
        self.wants_any = self._wants_text or keeping.language or keeping.structured or bool(keeping.fields)

    def read_html(self, page: ExtractedPage, tree: LexborHTMLParser, head: PageHead, utf8: bytes) -> None:
        fields, keeping = page.fields, self._keeping
        if head.description:
            fields["description"] = head.description[:LONGEST_DESCRIPTION]
        if self._wants_text:
            document = parsed(utf8.decode("utf-8", "replace"))
            if keeping.text:
                fields["text"] = main_text(document)
            if keeping.markdown:
                fields["markdown"] = markdown(document, self._base(page.url, head.base))
        if keeping.language:
            fields["language"] = head.language or language_of(fields.get("text") or _all_text(tree))
        if keeping.structured:
            fields["structured"] = structured_of(tree)
        self._read_fields(page, utf8, tree)

    def _base(self, url: str, told: str) -> str:
        """What the links of a page are relative to: its address, unless it says otherwise."""
        return next(iter(self._spelling.resolve(url, [told])), url) if told else url

    def read_other(self, page: ExtractedPage, body: bytes, content_type: bytes) -> None:
        """Of what is no HTML: JSON has fields as well."""
        page.fields["content_type"] = content_type.partition(b";")[0].strip().lower().decode("latin-1")
        if self._rules is not None and b"json" in content_type.lower():
            self._read_fields(page, as_utf8(body, content_type), None)

    def _read_fields(self, page: ExtractedPage, utf8: bytes, tree: LexborHTMLParser | None) -> None:
        if self._rules is None:
            return
        from weft.crawler.fields import FieldSource

        found, page.missing = self._rules.read(FieldSource(page.url, utf8, tree))
        page.fields.update(found)


def _all_text(tree: LexborHTMLParser) -> str:
    return tree.body.text(separator=" ") if tree.body is not None else ""
