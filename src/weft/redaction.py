"""Redaction: what must stay secret is masked before anything is written.

Three things are masked: values that are known to be secret, in the forms in which they turn up (as they are, in JSON,
in a URL, in base64, line by line); values whose name says that they are secret, such as ``password``; what stands in
the place of a secret, as after ``Authorization: Bearer``. What a run itself yields is searched for known values only:
a field that happens to be called ``token`` is data there.
"""

from __future__ import annotations

import base64
import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import quote, quote_plus

MASK = "••••"
SHORTEST = 4
"""Shorter values are found everywhere, so they cannot be masked; nobody may keep one as a secret."""
SHORTEST_LINE = 8
SHORTEST_CUT = 6
"""Of a value that was cut off at the end of a text, this much must be there to be masked."""

WORDS = "pass(?:word|wd|phrase)?|pwd|secret|token|authorization|api[_-]?key|cookie|credential|private[_-]?key"
SECRET_NAME = re.compile(rf"(?:^|[_.\-])(?:{WORDS})s?(?:$|[_.\-](?:key|value|id|hash)?$)", re.IGNORECASE)
"""A field that is called so holds a secret: ``db_password``, ``X-Api-Key``; not ``passed`` nor ``token_count``."""

USERINFO = re.compile(r"((?<=[\w+.-])://)[^\s/?#'\"<>]*@")
SERVER = re.compile(r"(?:postgres|mysql|mariadb|redis|amqp)[a-z+]{0,30}://", re.IGNORECASE)
"""Their URLs have no @ but after a password, which may have any character."""
UNBROKEN = re.compile(r"\S+")
SCHEMES = re.compile(
    r"\b(Bearer(?=\s+\S)|(?:Basic|Digest|Negotiate|Token)(?=\s+\S*[0-9=]|\s+\S{20}))(\s+)[\w.~+/=:-]{6,}", re.IGNORECASE
)
OUR_KEYS = re.compile(r"\b(weft_[0-9a-f]{12}_)[0-9a-f]{16,}")
ASSIGNED = re.compile(
    rf"(?<![\w.\-])(?P<name>[\w.\-]*(?:{WORDS})s?)(?P<is>[\"']?\s*[=:]\s*)(?P<value>\"[^\"]*\"|'[^']*'|[^\s,;&\"'}}\])]+)",
    re.IGNORECASE,
)

SENTENCE = frozenset(
    {"bearer", "basic", "digest", "negotiate", "token", "it", "is", "not", "must", "expected", "object", "invalid"}
)
"""Words after ``password:`` that go on with a sentence, or with a credential that was masked already."""


class Values:
    """Values that are known to be secret, as long as somebody has a use for them."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._counts: Counter[str] = Counter(values)
        self._forms: tuple[str, ...] = ()
        self._pattern: re.Pattern[str] | None = None
        self._compile()

    def add(self, values: Collection[str]) -> None:
        if values:
            self._counts.update(values)
            self._compile()

    def drop(self, values: Collection[str]) -> None:
        """Each was added once more than it will be dropped, or as often."""
        if values:
            self._counts -= Counter(values)
            self._compile()

    @property
    def forms(self) -> tuple[str, ...]:
        """All that must not be seen, the longest first."""
        return self._forms

    def text(self, text: str) -> str:
        """``text`` with every known value masked, also one that was cut off at its end."""
        if self._pattern is None:
            return text
        return self._without_cut(self._pattern.sub(MASK, text))

    def tree(self, value: Any) -> Any:
        """A JSON value with every text in it so."""
        if self._pattern is None:
            return value
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.tree(name): self.tree(each) for name, each in value.items()}
        if isinstance(value, list | tuple):
            return [self.tree(each) for each in value]
        return value

    def _compile(self) -> None:
        found = {form for value in self._counts for form in _forms(value)}
        self._forms = tuple(sorted(found, key=len, reverse=True))
        self._pattern = re.compile("|".join(map(re.escape, self._forms))) if found else None

    def _without_cut(self, text: str) -> str:
        seen = text.rstrip("….'\"")
        for form in self._forms:
            start = max(0, len(seen) - len(form) + 1)
            while (start := seen.find(form[:SHORTEST_CUT], start)) >= 0:
                if form.startswith(seen[start:]):
                    return seen[:start] + MASK + text[len(seen) :]
                start += 1
        return text


class MaskedStream:
    """Masks known values in bytes that come piece by piece; only what may be the beginning of one is held back."""

    def __init__(self, values: Values) -> None:
        self._forms = [form.encode() for form in values.forms]
        self._pattern = re.compile(b"|".join(map(re.escape, self._forms)))
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        data, at, out = self._held + data, 0, []
        while True:
            hold = self._beginning(data, at)
            found = self._pattern.search(data, at)
            if found is None or found.start() >= hold:
                break
            out += [data[at : found.start()], MASK.encode()]
            at = found.end()
        self._held = data[hold:]
        return b"".join([*out, data[at:hold]])

    def end(self) -> bytes:
        """What was held back and turned out to be no more than a beginning."""
        held, self._held = self._held, b""
        masked = self._pattern.sub(MASK.encode(), held)
        return MASK.encode() if masked == held and len(held) >= SHORTEST_CUT else masked

    def _beginning(self, data: bytes, at: int) -> int:
        """Where the end of ``data`` begins that may become a value; its length where none does."""
        earliest = len(data)
        for form in self._forms:
            start = max(at, len(data) - len(form) + 1)
            while 0 <= (start := data.find(form[:1], start, earliest)) < earliest:
                if form.startswith(data[start:]):
                    earliest = start
                start += 1
        return earliest


in_process = Values()
"""What no log line of this process may show."""


def is_secret(name: object) -> bool:
    """Whether a field of this name holds a secret."""
    return isinstance(name, str) and _names_secret(name)


@lru_cache(4096)
def _names_secret(name: str) -> bool:
    return SECRET_NAME.search(re.sub(r"([a-z])([A-Z])", r"\1_\2", name)) is not None


def redacted(text: str) -> str:
    """A text for people, without known values, passwords of URLs, credentials and what secret names are set to."""
    text = in_process.text(text)
    if "@" in text:
        text = USERINFO.sub(rf"\1{MASK}@", UNBROKEN.sub(_without_password, text))
    text = SCHEMES.sub(rf"\1\2{MASK}", text)
    text = OUR_KEYS.sub(rf"\1{MASK}", text)
    return ASSIGNED.sub(_without_value, text)


def redacted_tree(value: Any) -> Any:
    """A JSON value for people: the values of secret names masked, every text redacted."""
    if isinstance(value, str):
        return redacted(value)
    if isinstance(value, Mapping):
        return {name: _of_field(name, each) for name, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [redacted_tree(each) for each in value]
    return value


def _of_field(name: object, value: Any) -> Any:
    return MASK if is_secret(name) and value not in (None, "", True, False) else redacted_tree(value)


def _without_password(found: re.Match[str]) -> str:
    """Looked for in this order, and not by one pattern, so that a long text takes no longer than its length."""
    text = found[0]
    end = text.rfind("@")
    server = SERVER.search(text, 0, end) if end > 0 else None
    return text if server is None else text[: server.end()] + MASK + text[end:]


def _without_value(found: re.Match[str]) -> str:
    value = found["value"]
    if not is_secret(found["name"]) or MASK in value or SCHEMES.match(value) or value.startswith("{{secret:"):
        return found[0]
    if value.lower() in SENTENCE:
        return found[0]
    quoted = value[0] if value[0] in "\"'" else ""
    return f"{found['name']}{found['is']}{quoted}{MASK}{quoted}"


def _forms(value: str) -> set[str]:
    """The value in every form in which it may turn up."""
    lines = {line for line in value.splitlines() if len(line.strip()) >= SHORTEST_LINE} if "\n" in value else set()
    found: set[str] = set()
    for each in {value, value.strip(), *lines}:
        found |= {each, json.dumps(each)[1:-1], json.dumps(each, ensure_ascii=False)[1:-1]}
        found |= {quote(each), quote(each, safe=""), quote_plus(each), base64.b64encode(each.encode()).decode()}
    return {form for form in found if len(form) >= SHORTEST}
