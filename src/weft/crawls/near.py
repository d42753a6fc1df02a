"""Pages that are alike: a fingerprint of 64 bits that changes little where the text of a page changes little.

It is a simhash over pieces of the text without their digits, so that pages which differ in a number or a date are the
same; a piece that is mostly digits is data, and keeps them. Bits are counted eight at a time.
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

FEW_DIGITS = 5
"""A piece with fewer is no data."""

_COUNTED = [int.from_bytes(bytes(byte >> bit & 1 for bit in reversed(range(8)))) for byte in range(256)]
"""The bits of a byte as eight counters of a byte each, which may be added as one number: there are few pieces."""
_MORE_THAN = [bytes(b"01"[number > count] for number in range(256)) for count in range(MOST_PIECES)]
"""Whether each counter is above a count, as the digits of a binary number."""
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
    pieces: dict[bytes, None] = {}
    for text in texts:
        for start in range(0, len(text), PIECE):
            pieces[_without_numbers(text[start : start + PIECE])] = None
        if len(pieces) > MOST_PIECES:
            break
    pieces.pop(b"", None)
    return list(islice(pieces, MOST_PIECES))


def _without_numbers(piece: bytes) -> bytes:
    words = piece.translate(None, _DIGITS)
    digits = len(piece) - len(words)
    return piece if digits >= FEW_DIGITS and digits >= len(words) else words


def simhash(pieces: list[bytes]) -> int:
    """Each bit is what most of the pieces have there."""
    digests = b"".join([xxhash.xxh3_64_digest(piece) for piece in pieces])
    counted = b"".join([sum([_COUNTED[byte] for byte in digests[place::8]]).to_bytes(8) for place in range(8)])
    return int(counted.translate(_MORE_THAN[len(pieces) // 2]), 2)


def are_alike(one: int, other: int) -> bool:
    return (one ^ other).bit_count() <= ALIKE_BITS
