"""A form that starts something and is sent twice starts one, unless what it asks for has changed in between."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec


def once(form: Mapping[str, str], body: Mapping[str, Any]) -> dict[str, str]:
    """The header that makes one of two equal starts.

    Who goes back to the form, changes it and sends it again wants another run, though the form's key is the same.
    """
    if not (key := form.get("key", "")):
        return {}
    asked = msgspec.json.encode(body, order="sorted")
    return {"idempotency-key": hashlib.sha256(key.encode(errors="replace") + b"\0" + asked).hexdigest()}
