"""Pages that are alike: a fingerprint of 64 bits that changes little where the text of a page changes little.

It is a simhash over pieces of the text without their digits, so that pages which differ in a number or a date are the
same; a piece that is mostly digits is data, and keeps them. The bits are counted in planes, all 64 at a time, which
needs no array of numbers.
"""

from __future__ import annotations

import re
from itertools import islice
from typing import TYPE_CHECKING

import xxhash

if TYPE_CHECKING:
    from selectolax.lexbor import LexborHTMLParser  # those who only ask why a page was refused need no parser

MOST_PIECES = 96
END = 6_000
"""Characters of the text, at its begin and at its end, that are looked at."""
PIECE = 64
"""Bytes: a longer text is several pieces, so that it weighs more."""
ALIKE_BITS = 2
"""Fingerprints that differ in so many bits or fewer are of pages that are alike."""
ALL = (1 << 64) - 1

FEW_DIGITS = 5
"""A piece with fewer is no data."""

_TAGS = re.compile(rb"<[^<>]*>?")
_BLANK, _DIGITS = b" \t\r", b"0123456789"


def fingerprint(tree: LexborHTMLParser) -> int:
    """Of a page; 0 where it has no text."""
    body = tree.body
    if body is None:
        return 0
    text = body.text(separator="\n", skip_empty=True)
    if len(text) > 2 * END:
        text = f"{text[:END]}\n{text[-END:]}"
    return simhash(_pieces(text.encode("utf-8", "replace").translate(None, _BLANK).split(b"\n")))


def fingerprint_of_bytes(utf8: bytes) -> int:
    """The same for a page that is not parsed, as far as that can be; only pages of that sort are compared with it."""
    text = _TAGS.sub(b"\n", utf8[: 2 * END] + b"\n" + utf8[-2 * END :])
    return simhash(_pieces(text.translate(None, _BLANK).split(b"\n")))


def _pieces(texts: list[bytes]) -> list[bytes]:
    """Both ends of a long page, cut small; what stands there again and again counts once."""
    half = MOST_PIECES // 2
    if len(texts) > MOST_PIECES:
        texts = texts[:half] + texts[-half:]
    pieces = {
        _without_numbers(text[start : start + PIECE]): None for text in texts for start in range(0, len(text), PIECE)
    }
    pieces.pop(b"", None)
    return list(islice(pieces, MOST_PIECES))


def _without_numbers(piece: bytes) -> bytes:
    words = piece.translate(None, _DIGITS)
    digits = len(piece) - len(words)
    return piece if digits >= FEW_DIGITS and digits >= len(words) else words


def simhash(pieces: list[bytes]) -> int:
    """Each bit is what most of the pieces have there."""
    planes = [0] * MOST_PIECES.bit_length()
    digest = xxhash.xxh3_64_intdigest
    for piece in pieces:
        carry = digest(piece)
        place = 0
        while carry:
            plane = planes[place]
            planes[place], carry = plane ^ carry, plane & carry
            place += 1
    return _more_than(planes, len(pieces) // 2)


def _more_than(planes: list[int], count: int) -> int:
    """Which of the 64 counters hold more than ``count``."""
    more, same = 0, ALL
    for place in reversed(range(len(planes))):
        if count >> place & 1:
            same &= planes[place]
        else:
            more |= same & planes[place]
            same &= ~planes[place]
    return more


def are_alike(one: int, other: int) -> bool:
    return (one ^ other).bit_count() <= ALIKE_BITS
