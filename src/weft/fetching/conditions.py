"""Asking only for what has changed."""

from __future__ import annotations

from weft.fetching.exchange import Exchange


def headers(etag: str, last_modified: str) -> tuple[tuple[str, str], ...]:
    """Those that let a server answer 304 where the page is as it was; none where nothing is known."""
    known = (("if-none-match", etag), ("if-modified-since", last_modified))
    return tuple((name, value) for name, value in known if value and value.isprintable() and value.isascii())


def validators(exchange: Exchange) -> tuple[str, str]:
    """The ETag and the Last-Modified of an answer, to ask with the next time; empty where there is none."""
    etag, date = (exchange.header(name).decode("latin-1").strip() for name in (b"etag", b"last-modified"))
    return etag if len(etag) <= 200 else "", date if len(date) <= 100 else ""
