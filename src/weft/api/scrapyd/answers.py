"""Answers in Scrapyd's form: JSON that ends with a line break, and says ``status`` and ``node_name`` besides."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from weft.errors import WeftError

UNAUTHORIZED = b"Unauthorized"
NOT_FOUND = b"""<html>
  <head><title>404 - No Such Resource</title></head>
  <body>
    <h1>No Such Resource</h1>
    <p>There is nothing at this address.</p>
  </body>
</html>
"""


class Complaint(WeftError):
    """What Scrapyd says word for word where it does not do what was asked for."""


class Hidden(Complaint):
    """The same of something that may be there, but that this caller is not to know of."""


def ok(node_name: str, **data: Any) -> Response:
    return _json({**data, "status": "ok", "node_name": node_name})


def error(node_name: str, message: str, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Errors have the status of success as well; programs look at the word."""
    return _json({"status": "error", "message": message, "node_name": node_name}, status, headers)


def options() -> Response:
    return Response(status_code=204)


def unauthorized() -> Response:
    headers = {"WWW-Authenticate": 'basic realm="Scrapyd"'}
    return Response(UNAUTHORIZED, 401, headers, "text/html")


def not_found() -> Response:
    return Response(NOT_FOUND, 404, media_type="text/html")


def add_cors(response: Response, method: str) -> None:
    """What a page elsewhere may do with the answer: read it, if nobody's password was needed for it."""
    response.headers["Access-Control-Allow-Origin"] = "*"
    response.headers["Access-Control-Allow-Methods"] = f"OPTIONS, HEAD, {method}"
    response.headers["Access-Control-Allow-Headers"] = "X-Requested-With"
    if response.status_code == 204:
        response.headers["Allow"] = f"OPTIONS, HEAD, {method}"


def _json(data: Mapping[str, Any], status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(json.dumps(data).encode() + b"\n", status, headers, "application/json")
