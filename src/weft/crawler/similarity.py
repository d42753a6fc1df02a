"""Pages and URLs that are alike: simhashes of pages, patterns of URLs, and soft 404 pages."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING

import xxhash

from weft.fetching.urls import host_of, origin_of

if TYPE_CHECKING:
    from selectolax.lexbor import LexborHTMLParser  # those who only ask why a page was refused need no parser

MOST_PIECES = 96
END = 6_000
"""Characters of the text, at its begin and at its end, that are looked at."""
PIECE = 64
"""Bytes: a longer text is several pieces, so that it weighs more."""
ALIKE_BITS = 2
"""Fingerprints that differ in so many bits or fewer are of pages that are alike."""

MOST_PICTURES = 50
FEW_DIGITS = 5
"""A piece with fewer is no data."""

_COUNTED = [int.from_bytes(bytes(byte >> bit & 1 for bit in reversed(range(8)))) for byte in range(256)]
"""The bits of a byte as eight counters of a byte each, which may be added as one number: there are few pieces."""
_MORE_THAN = [bytes(b"01"[number > count] for number in range(256)) for count in range(MOST_PIECES)]
"""Whether each counter is above a count, as the digits of a binary number."""
_TAGS = re.compile(rb"<[^<>]*>?")
_BLANK, _DIGITS = b" \t\r", b"0123456789"


def fingerprints(tree: LexborHTMLParser, title: str) -> tuple[int, int]:
    """What a page is like, and what it holds exactly; 0 where it has no text.

    The second is of its title, its text with all numbers, and its pictures; where its links lead does not count.
    """
    body = tree.body
    if body is None:
        return 0, 0
    text = body.text(separator="\n", skip_empty=True)
    pictures = [node.attrs.get("src") or "" for node in tree.tags("img")[:MOST_PICTURES]]
    content = xxhash.xxh3_64_intdigest("\n".join((title, text, *pictures)).encode("utf-8", "replace"))
    if len(text) > 2 * END:
        text = f"{text[:END]}\n{text[-END:]}"
    return simhash(_pieces(text.encode("utf-8", "replace").translate(None, _BLANK).split(b"\n"))), content


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


_VARYING = re.compile(
    r"(?P<date>(?<!\d)\d{4}-\d{1,2}(?:-\d{1,2})?(?!\d))"
    r"|(?P<id>[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F-]{20,}|[0-9A-Za-z]{16,})"
    r"|(?P<number>\d+)"
)
_HAS_TWO_DIGITS = re.compile(r"\d.*\d")
_HAS_NUMBER = re.compile(r"[0-9]")
_YEARS = re.compile(r"/(\d{4})[/-]\d{1,2}(?=[/-]|$)|[?&]year=(\d{4})(?=&|$)|[=/-](\d{4})-\d{2}(?:-\d{2})?(?=&|/|$)")
LONGEST_PATTERN = 500
_YEAR = re.compile(r"(19|20|21)\d\d(-\d{1,2}){0,2}$")
DECADES = 30
"""Years."""
FEW = 64
"""Addresses of one pattern that are counted one by one."""


def pattern_of(path: str) -> str:
    """The pattern of what follows the host; the same string where nothing in it varies."""
    place, mark, query = path.partition("?")
    if _HAS_NUMBER.search(place):
        place = _VARYING.sub(_gap, place)
    if not mark:
        return place[:LONGEST_PATTERN]
    names = sorted({each.partition("=")[0] for each in query.split("&")})
    return f"{place}?{'&'.join(f'{_VARYING.sub(_gap, name)}={{value}}' for name in names)}"[:LONGEST_PATTERN]


def may_have_years(pattern: str) -> bool:
    """Whether addresses of a pattern are worth a look for dates."""
    return "{date}" in pattern or "{number}/{number}" in pattern or "year=" in pattern


def years_of(path: str) -> list[int]:
    """The years of dates in it."""
    return [int(next(filter(None, found.groups()))) for found in _YEARS.finditer(path)]


def invented_url(first: str, last: str, *, has_years: bool) -> str:
    """An address of the pattern of these two that nobody links to: what differs between them is far away.

    Where there is a year it moves by decades, in the direction in which the two go: a calendar has no other months.
    """
    before, after = _parts(first), _parts(last)
    if len(before) != len(after):
        before = [""] * len(after)
    varies = [place for place in range(1, len(after), 2) if before[place] != after[place]] or [*range(1, len(after), 2)]
    years = [place for place in range(1, len(after), 2) if has_years and _YEAR.match(after[place])]
    for place in years[:1] or varies:
        after[place] = _far_year(before[place], after[place]) if years else _far(after[place])
    return "".join(after)


def without_own_url(body: bytes, made: str, last: str) -> bytes:
    """A page as it would be at ``last``: that it says where it is makes no difference."""
    for far, near in zip(_parts(made)[1::2], _parts(last)[1::2], strict=False):
        if far == near:
            continue
        body = body.replace(far.encode(), near.encode())
        for step in (-2, -1, 1, 2) if far.isdecimal() and near.isdecimal() else ():
            body = body.replace(str(int(far) + step).encode(), str(int(near) + step).encode())
    return body


def _parts(path: str) -> list[str]:
    """A path and its query cut up: every second part is one that may vary."""
    place, mark, query = path.partition("?")
    parts = [""]
    end = 0
    for found in _VARYING.finditer(place):
        if _gap(found) != found[0]:
            parts[-1] += place[end : found.start()]
            parts += [found[0], ""]
            end = found.end()
    parts[-1] += place[end:] + mark
    for number, each in enumerate(query.split("&") if mark else ()):
        name, equals, value = each.partition("=")
        parts[-1] += f"{'&' if number else ''}{name}{equals}"
        parts += [value, ""] if equals else []
    return parts


def _far(value: str) -> str:
    if value.isdecimal():
        return str(int(value) + 10 ** max(7, min(len(value) + 1, 18)))
    made = xxhash.xxh3_128_hexdigest(value.encode())
    return (made * (len(value) // len(made) + 1))[: max(len(value), 12)]


def _far_year(before: str, after: str) -> str:
    years = int(after[:4]), int(before[:4]) if before[:4].isdecimal() else 0
    return f"{years[0] + (DECADES if years[0] >= years[1] else -DECADES)}{after[4:]}"


def _gap(found: re.Match[str]) -> str:
    if found.lastgroup == "id" and not _HAS_TWO_DIGITS.search(found[0]):
        return found[0]  # a long word
    return f"{{{found.lastgroup}}}"


class PatternCounter:
    """How many different addresses have one pattern. It never counts the same one twice for long, and stays small.

    The first few are counted; from there on each address sets a bit of a bitmap, and the number of set bits tells how
    many there were.
    """

    __slots__ = ("_bits", "_few", "_limit_bits", "_mask", "_set", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        size = min(1 << 17, max(1 << 10, 1 << (4 * limit - 1).bit_length()))
        self._mask = size - 1
        self._limit_bits = size * (1 - math.exp(-limit / size))
        self._few: set[int] | None = set()
        self._bits: bytearray | None = None
        self._set = 0

    @property
    def is_full(self) -> bool:
        few = self._few
        return len(few) >= self.limit if few is not None else self._set >= self._limit_bits

    def add(self, key: int) -> None:
        if self._few is not None:
            self._few.add(key)
            if len(self._few) >= FEW:
                self._spread()
            return
        self._mark(key)

    def _spread(self) -> None:
        assert self._few is not None
        few, self._few, self._bits = self._few, None, bytearray(self._mask + 1 >> 3)
        for key in few:
            self._mark(key)

    def _mark(self, key: int) -> None:
        assert self._bits is not None
        place = key & self._mask
        byte, bit = place >> 3, 1 << (place & 7)
        if not self._bits[byte] & bit:
            self._bits[byte] |= bit
            self._set += 1


MOST_HOSTS = 10_000
_NO_DIGITS = str.maketrans("", "", "0123456789")


def missing_url(url: str) -> str:
    """An address of the same host that nobody has made, the same one each time."""
    origin = origin_of(url)
    return f"{origin}/{xxhash.xxh3_64_hexdigest(origin.encode())}-no-such-page"


def missing_url_in(path: str) -> str:
    """The same in the folder of a page, with the ending that pages have there."""
    folder, slash, name = path.partition("?")[0].rpartition("/")
    dot, ending = name.rpartition(".")[1:] if "." in name else ("", "")
    return f"{folder}{slash}{xxhash.xxh3_64_hexdigest(folder.encode())}-no-such-page{dot}{ending}"


@dataclass(slots=True)
class Soft404Pages:
    """What hosts answer where there is no page."""

    _answers: dict[str, tuple[int, str]] = field(default_factory=dict)
    """What each host's answer is like, and its title without numbers; 0: the host says 404."""

    def is_known(self, host: str) -> bool:
        return host in self._answers

    def learn(self, url: str, status: int, simhash: int, title: str = "") -> None:
        """What came back for a made-up address; a host that says 404 has no soft ones."""
        if len(self._answers) >= MOST_HOSTS:
            del self._answers[next(iter(self._answers))]
        self._answers[host_of(url)] = (simhash if 200 <= status < 300 else 0, _without_digits(title))

    def is_like(self, host: str, simhash: int, title: str = "") -> bool:
        """Whether a page is what this host says for pages that it does not have: the same text, and the same title."""
        answer, called = self._answers.get(host, (0, ""))
        return bool(answer) and are_alike(answer, simhash) and called == _without_digits(title)


def _without_digits(title: str) -> str:
    return title.translate(_NO_DIGITS)
