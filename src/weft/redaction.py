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
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import quote, quote_plus

from weft.errors import Invalid

MASK = "••••"
SHORTEST = 4
"""Shorter values are found everywhere, so they cannot be masked; nobody may keep one as a secret."""
SHORTEST_LINE = 8
ORDINARY = frozenset({"true", "false", "none", "null", "basic", "bearer", "digest", "token", "cookie", "session"})
"""What a field with the name of a secret may say without being one, and a text may have anyway."""
SHORTEST_CUT = 6
"""Of a value that was cut off at the end of a text, this much must be there to be masked."""

WORDS = (
    "pass(?:word|wd|phrase)?|pwd?|secret|token|authorization|cookie|credential|session[_-]?id"
    "|(?:api|access|private|secret|signing)[_-]?key"
)
SECRET_NAME = re.compile(
    rf"(?:^|[_.\-])(?:{WORDS}|auth|secret[_-]access[_-]key)s?(?:$|[_.\-](?:key|value|id|hash)?$)"
    "|(?:password|passwd|passphrase|secret|token|apikey|credential)s?$",
    re.IGNORECASE,
)
"""A field that is called so holds a secret: ``db_password``, ``shoppassword``, ``X-Api-Key``; not ``passed`` nor
``token_count``."""
NO_VALUE = re.compile(r"(?:(?:Bearer|Basic|Token)\s+)?(?:\{\{[^{}]*\}\})+", re.IGNORECASE)
"""The name of a secret or of a parameter, in the place of a value."""

USERINFO = re.compile(r"((?<=[\w+.-])://)[^\s/?#'\"<>]*@")
SERVER = re.compile(r"(?:postgres|mysql|mariadb|redis|amqp)[a-z+]{0,30}://", re.IGNORECASE)
"""Their URLs have no @ but after a password, which may have any character."""
UNBROKEN = re.compile(r"\S+")
SCHEMES = re.compile(
    r"\b(Bearer(?=\s+\S)|(?:Basic|Digest|Negotiate|Token)(?=\s+\S*[0-9=]|\s+\S{20}))(\s+)[\w.~+/=:-]{6,}", re.IGNORECASE
)
OUR_KEYS = re.compile(r"\b(weft_[0-9a-f]{12}_)[0-9a-f]{16,}")
ASSIGNED = re.compile(
    rf"(?<![\w.\-])(?P<name>[\w.\-]*(?:{WORDS})s?)(?P<is>[\"']?\s*[=:]\s*)"
    r"(?P<value>\"(?:[^\"\\]|\\.)*+\"|\"[^\"]*\"?|'[^']*'|[^\s,;&\"'}}\])]+)",
    re.IGNORECASE,
)

ESCAPE = re.compile("%[0-9A-F]{2}")
URL_SAFE = str.maketrans("+/", "-_")

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
        if self._counts:  # most runs have none
            self._compile()

    def __iter__(self) -> Iterator[str]:
        return iter(self._counts)

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


def masked_together(*given: Mapping[str, Any]) -> list[Any]:
    """A spec and its parameters for people: what is secret by its name is masked under every other name as well."""
    seen = [redacted_tree(each) for each in given]
    values = set().union(*map(secret_values, given))
    return [_without_values(each, Values(v for v in values if can_be_masked(v)), values) for each in seen]


def _without_values(part: Any, parts: Values, wholes: Collection[str]) -> Any:
    if not wholes:
        return part
    if isinstance(part, str):
        return MASK if part in wholes else parts.text(part)
    if isinstance(part, Mapping):
        return {name: _without_values(each, parts, wholes) for name, each in part.items()}
    return [_without_values(each, parts, wholes) for each in part] if isinstance(part, list) else part


def unmasked(given: Any, shown: Any, stored: Any) -> Any:
    """What somebody sends back who was ``shown`` what is ``stored``: what is as it was shown is as it is stored."""
    if MASK not in _as_text(given):
        return given
    if given == shown:
        return stored
    if isinstance(given, Mapping) and isinstance(stored, Mapping):
        return {name: unmasked(each, shown.get(name), stored.get(name)) for name, each in given.items()}
    if isinstance(given, list | tuple) and isinstance(stored, list | tuple) and len(given) == len(stored):
        return [unmasked(one, seen, other) for one, seen, other in zip(given, shown, stored, strict=True)]
    return given


def refuse_masks(values: Mapping[str, Any]) -> None:
    """Refuse to keep the mask in the place of what it stands for."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            refuse_masks(value)
        elif MASK in _as_text(value):
            raise Invalid(name, MASK, "that is what weft shows in place of a secret: give the value or {{secret:NAME}}")


def secret_names(values: Mapping[str, Any]) -> list[str]:
    """The names in a spec or in parameters whose values are secret and are given as they are."""
    found = []
    for name, value in values.items():
        if is_secret(name):
            found += [name] if isinstance(value, str) and value and _of_field(name, value) == MASK else []
        elif isinstance(value, Mapping):
            found += secret_names(value)
    return found


def secret_values(values: Mapping[str, Any]) -> set[str]:
    """The values of such names."""
    found: set[str] = set()
    for name, value in values.items():
        if isinstance(value, Mapping):
            found |= secret_values(value)
        elif secret_names({name: value}):
            found.add(value)
    return found


def can_be_masked(value: str) -> bool:
    """Whether a value that is secret by its name can be masked in texts as well."""
    return len(value) >= SHORTEST and value.lower() not in ORDINARY


def warning_of(*given: Mapping[str, Any]) -> str:
    """What to tell somebody who gives a secret as it is; nothing to one who gives none."""
    names = sorted({name for values in given for name in secret_names(values)})
    if not names:
        return ""
    name = re.sub(r"[^A-Za-z0-9_]", "_", names[0]).upper()
    return (
        f"the value of {', '.join(names)} looks secret: it is masked wherever it is shown, but kept as it was given; "
        f"to keep it encrypted, store it with `weft secrets set {name}` and give {{{{secret:{name}}}}} in its place"
    )


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else str(value) if isinstance(value, Mapping | list | tuple) else ""


def _of_field(name: object, value: Any) -> Any:
    if not is_secret(name) or value is None or value == "" or isinstance(value, bool):
        return redacted_tree(value)
    return value if isinstance(value, str) and NO_VALUE.fullmatch(value) else MASK


def _without_password(found: re.Match[str]) -> str:
    """Looked for in this order, and not by one pattern, so that a long text takes no longer than its length."""
    text = found[0]
    end = text.rfind("@")
    server = SERVER.search(text, 0, end) if end > 0 else None
    return text if server is None else text[: server.end()] + MASK + text[end:]


def _without_value(found: re.Match[str]) -> str:
    value = found["value"]
    if not is_secret(found["name"]) or _is_masked(value) or SCHEMES.match(value) or value.startswith("{{secret:"):
        return found[0]
    if value.lower() in SENTENCE:
        return found[0]
    quoted = value[0] if value[0] in "\"'" else ""
    return f"{found['name']}{found['is']}{quoted}{MASK}{quoted}"


def _is_masked(value: str) -> bool:
    """Whether nothing but a mask and perhaps the name of its scheme is there; between quotes there may be more."""
    return MASK in value and (
        value[0] not in "\"'" or value.replace(MASK, "").strip("\"' ").lower() in (SENTENCE | {""})
    )


def _forms(value: str) -> set[str]:
    """The value in every form in which it may turn up."""
    lines = {line for line in value.splitlines() if len(line.strip()) >= SHORTEST_LINE} if "\n" in value else set()
    found: set[str] = set()
    for each in {value, value.strip(), *lines}:
        found |= {each, json.dumps(each)[1:-1], json.dumps(each, ensure_ascii=False)[1:-1]}
        quoted = {quote(each), quote(each, safe=""), quote(each, safe="!'()*"), quote_plus(each)}
        found |= quoted | {ESCAPE.sub(lambda escape: escape[0].lower(), form) for form in quoted}
        found |= _in_base64(each.encode())
    return {form for form in found if len(form) >= SHORTEST}


def _in_base64(value: bytes) -> set[str]:
    """The value in base64, alone and as a part of more: ``user:value``, or the value and the end of its line.

    Three bytes are four letters, so the letters depend on how many bytes are before the value. Those that it shares
    with its neighbours are left out.
    """
    found = {base64.b64encode(value).decode()}
    for before in range(3):
        letters = base64.b64encode(bytes(before) + value).decode()
        found.add(letters[(before * 8 + 5) // 6 : (before + len(value)) * 8 // 6])
    return found | {each.translate(URL_SAFE) for each in found} | {quote(each, safe="") for each in found}
