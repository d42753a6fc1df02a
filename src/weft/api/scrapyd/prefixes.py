"""The path under which a proxy shows us, as it says itself."""

from __future__ import annotations

import re
from collections.abc import Mapping

HEADER = "x-forwarded-prefix"
_PATH = re.compile(r"(?!//)[A-Za-z0-9._~/-]{1,200}", re.ASCII)


def prefix_of(headers: Mapping[str, str]) -> str:
    """What links begin with. What is no plain path counts as none: nobody makes our links lead elsewhere."""
    told = headers.get(HEADER, "").strip()
    return told.rstrip("/") if _PATH.fullmatch(told) else ""
