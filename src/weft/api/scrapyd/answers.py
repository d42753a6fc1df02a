"""Answers in Scrapyd's form: JSON that ends with a line break, and says ``status`` and ``node_name`` besides."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from weft.errors import WeftError

UNAUTHORIZED = b"Unauthorized"
PAGE = """<html>
  <head><title>{code} - {title}</title></head>
  <body>
    <h1>{title}</h1>
    <p>{why}</p>
  </body>
</html>
"""


class Complaint(WeftError):
    """What Scrapyd says word for word where it does not do what was asked for."""


class Hidden(Complaint):
    """The same of something that may be there, but that this caller is not to know of."""


def ok(node_name: str, **data: Any) -> Response:
    return _json({**data, "status": "ok", "node_name": node_name})


def with_members(node_name: str, members: str) -> Response:
    """The same for members that are JSON already."""
    rest = json.dumps({"status": "ok", "node_name": node_name})
    return Response(f"{{{members}, {rest[1:]}\n".encode(), media_type="application/json")


def error(node_name: str, message: str, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Errors have the status of success as well; programs look at the word."""
    return _json({"status": "error", "message": message, "node_name": node_name}, status, headers)


def options() -> Response:
    return Response(status_code=204)


def unauthorized() -> Response:
    headers = {"WWW-Authenticate": 'basic realm="Scrapyd"', "Content-Type": "text/html"}
    return Response(UNAUTHORIZED, 401, headers)


def not_found() -> Response:
    text = PAGE.format(code=404, title="No Such Resource", why="There is nothing at this address.")
    return Response(text, 404, media_type="text/html")


def not_allowed() -> Response:
    """For a method that a page does not have."""
    text = PAGE.format(code=405, title="Method Not Allowed", why="This page can only be read: GET or HEAD.")
    return Response(text, 405, {"Allow": "HEAD, GET"}, "text/html")


def add_cors(response: Response, method: str) -> None:
    """What a page elsewhere may do with the answer: read it, if nobody's password was needed for it."""
    response.headers["Access-Control-Allow-Origin"] = "*"
    response.headers["Access-Control-Allow-Methods"] = f"OPTIONS, HEAD, {method}"
    response.headers["Access-Control-Allow-Headers"] = "X-Requested-With"
    if response.status_code == 204:
        response.headers["Allow"] = f"OPTIONS, HEAD, {method}"


def _json(data: Mapping[str, Any], status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(json.dumps(data).encode() + b"\n", status, headers, "application/json")
