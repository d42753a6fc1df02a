"""Bytes of a page as UTF-8, whatever they came as. A charset that nobody knows fails nothing."""

from __future__ import annotations

import codecs
import re
from functools import lru_cache

DECLARED_WITHIN = 1_024
"""Bytes of a page in which it may say its charset, as in the HTML standard."""
FALLBACK = "cp1252"
"""What is neither declared nor UTF-8, as browsers take it."""
BOMS = ((b"\xef\xbb\xbf", "utf-8"), (b"\xfe\xff", "utf-16-be"), (b"\xff\xfe", "utf-16-le"))
SAME = {
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
        found = codecs.lookup(SAME.get(name, name))
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
