"""Where a browser may be sent after the login: to a page of this weft and nowhere else."""

from __future__ import annotations

import re

HOME = "/"
_LOCAL = re.compile(r"/(?![/\\])[A-Za-z0-9._~!$&'()*+,;=:@%/?-]*", re.ASCII)
_CONFUSING = re.compile(r"//|/\.\.?(?:/|$)|%(?:2f|5c|0|1|7f)", re.IGNORECASE)


def local(address: str) -> str:
    """The address if it is a plain path here, else the first page.

    Browsers read ``//host``, ``/\\host`` and what they make of ``/..//host`` as another site, so only what no browser
    could take for anything but a path is let through.
    """
    path = address.partition("?")[0]
    plain = len(address) <= 500 and _LOCAL.fullmatch(address) is not None and _CONFUSING.search(path) is None
    return address if plain else HOME
