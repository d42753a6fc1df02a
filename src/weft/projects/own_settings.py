"""A project's own settings as everybody may see them who sees the project: what is secret is masked.

More is masked here than in logs: people write passwords and keys into a settings module under names of their own, and
nobody is harmed where a harmless value is masked as well.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from weft.redaction import MASK, is_secret, redacted

WORDS = re.compile(
    r"(?:^|[_\-\s])(?:secrets?|pass(?:words?|wd|phrase)?|pwd|tokens?|auth|authorization|credentials?|cookies?|signature"
    r"|(?:access|account|api|auth|encryption|license|private|secret|shared|signing)[_\-]?keys?)(?:$|[_\-\s])",
    re.IGNORECASE,
)


def masked(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _of_name(name, value) for name, value in settings.items()}


def _of_name(name: str, value: Any) -> Any:
    if isinstance(value, bool) or value in (None, "", [], {}):
        return value
    return MASK if is_secret(name) or WORDS.search(name) else _of_value(value)


def _of_value(value: Any) -> Any:
    if isinstance(value, str):
        return redacted(value)
    if isinstance(value, Mapping):
        return masked(value)
    return [_of_value(each) for each in value] if isinstance(value, list) else value
