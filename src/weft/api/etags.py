"""ETags of definitions that have no revision: what a caller has seen, and whether it is still so."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import msgspec

from weft.api.call import Call
from weft.errors import ChangedMeanwhile

IF_MATCH = {"If-Match": "The ETag that was read, or * for any; the answer is 412 where it was changed meanwhile."}
ETAG = {"ETag": "Changes whenever the definition does; send it back as If-Match with a change."}


def tag(call: Call, definition: Any) -> None:
    """Let the answer name what its reader has seen."""
    call.headers["ETag"] = f'"{digest(definition)}"'


def unchanged(call: Call, what: str, which: object) -> Callable[[Any], None] | None:
    """Refuses a definition that ``If-Match`` does not allow; None where any will do.

    It is for the transaction that makes the change, with the definition as it is there.
    """
    text = call.header("if-match")
    if text is None or text.strip() == "*":
        return None
    seen = {each.strip() for each in text.split(",")}

    def check(definition: Any) -> None:
        found = digest(definition)
        if f'"{found}"' not in seen:
            raise ChangedMeanwhile(what, which, found)

    return check


def digest(definition: Any) -> str:
    """The same for as long as the definition says the same, in whatever order."""
    return hashlib.sha256(msgspec.json.encode(definition, order="deterministic")).hexdigest()[:32]
