"""What goes with an address from where it was found to where it is fetched."""

from __future__ import annotations

import msgspec

from weft.clock import Moment


class Carried(msgspec.Struct, frozen=True, omit_defaults=True):
    """As JSON it is the ``data`` of an address, which the frontier keeps and does not understand."""

    hops: int = 0
    """Redirects that led to it."""
    sitemap: int = 0
    """It is a sitemap, so many indexes below the first; 0: it is a page."""
    lastmod: Moment = 0
    """When it last changed, as a sitemap says."""

    def text(self) -> str:
        return msgspec.json.encode(self).decode()


PLAIN = Carried()


def carried(data: str) -> Carried:
    if not data:
        return PLAIN
    try:
        return msgspec.json.decode(data, type=Carried)
    except msgspec.MsgspecError:
        return PLAIN
