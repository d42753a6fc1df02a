"""Exchanges as a server would have answered them."""

from __future__ import annotations

import gzip

from weft.fetching.exchange import Exchange

BEGAN_AT = 1_763_290_000_123_456


def exchange(
    body: bytes | str = b"",
    url: str = "http://site.example/",
    *,
    content_type: str = "text/html; charset=utf-8",
    status: int = 200,
    packed: bool = False,
    chunked: bool = False,
    headers: tuple[tuple[str, str], ...] = (),
    began_at: int = BEGAN_AT,
) -> Exchange:
    body = body.encode() if isinstance(body, str) else body
    raw = gzip.compress(body, mtime=0) if packed else body
    told = [("Content-Type", content_type)] if content_type else []
    told += [("Content-Encoding", "gzip")] if packed else []
    told += [("Transfer-Encoding", "chunked") if chunked else ("Content-Length", str(len(raw))), *headers]
    head = f"HTTP/1.1 {status} So\r\n" + "".join(f"{name}: {value}\r\n" for name, value in told) + "\r\n"
    return Exchange(
        url=url,
        status=status,
        head=head.encode("latin-1"),
        headers=[(name.lower().encode(), value.encode("latin-1")) for name, value in told],
        raw_body=raw,
        body=body,
        request=b"GET / HTTP/1.1\r\nHost: site.example\r\nUser-Agent: weft\r\n\r\n",
        address="192.0.2.7",
        http="1.1",
        began_at=began_at,
        seconds=0.1,
    )
