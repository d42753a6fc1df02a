"""One request: who calls, what was sent, and what may be answered."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Container, Hashable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.requests import Request

from weft.access.model import EVERYWHERE, Caller, Role
from weft.api.alike import Alike
from weft.api.problems import Refused
from weft.app import App
from weft.documents.shelf import Shelf
from weft.errors import NOT_SHOWN, Invalid, NotFound

if TYPE_CHECKING:
    from weft.api.operation import Operation

LARGEST_ID = 2**63 - 1


@dataclass(slots=True)
class Call:
    """A request whose caller is known and whose body and query have the declared shape."""

    app: App
    operation: Operation
    request: Request
    caller: Caller
    request_id: str
    alike: Alike
    shelf: Shelf
    identify: Callable[[], Awaitable[Caller]]
    """Tells anew who calls: what lasts asks again now and then, and ends where the caller is refused."""
    body: Any = None
    query: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    """Headers of the answer."""
    checked: bool = False
    """Whether it was decided that the caller may do this; without, nothing is answered."""
    about: tuple[str, str] = ("", "")
    """The project and the thing that the call acts on, for the audit log."""
    record: Mapping[str, Any] | None = None
    """What the audit log keeps where no front door tells it before and after; None: what was sent, without secrets."""

    def check(self, project: str, target: str = "", *, role: Role | None = None) -> None:
        """Refuse where the caller lacks the operation's role in ``project``.

        ``target`` is what the call acts on, such as ``run 7``; callers who may not see the project are told that it
        does not exist.
        """
        self.about, needed = (project, target), role or self.operation.needs
        if needed is not None:
            self.caller.check(needed, project, target)
        self.checked = True

    def check_everywhere(self, target: str = "") -> None:
        """Refuse where the caller lacks the operation's role in weft as a whole."""
        self.about = ("", target)
        if self.operation.needs is not None:
            self.caller.check(self.operation.needs, EVERYWHERE)
        self.checked = True

    def check_own(self, target: str = "") -> None:
        """Say that the call acts on nothing but what is the caller's own, so that any role will do, or none."""
        self.checked, self.about = True, ("", target)

    def refuse_unchecked(self) -> None:
        """Refuse what was done, or is about to be, without a decision whether the caller may do this."""
        if self.operation.needs is not None and not self.checked:
            raise AssertionError(f"{self.operation.name} has not checked whether {self.caller.name} may do this")

    def visible(self, project: str | None = None) -> frozenset[str] | None:
        """The projects whose things may be listed, None for all: those of the caller, or the one that was asked for."""
        if self.operation.needs is None:
            raise AssertionError(f"{self.operation.name} lists things, so it needs a role")
        if project is not None:
            self.check(project)
            return frozenset({project})
        self.checked = True
        return self.caller.projects(self.operation.needs)

    async def shared(self, asked: Hashable, find: Callable[[], Awaitable[Any]]) -> bytes:
        """The answer as JSON, shared with those who ask the same; ``asked`` holds all that it depends on."""

        async def encoded() -> bytes:
            return msgspec.json.encode(await find())

        return await self.alike((self.operation.name, asked), encoded)

    def path(self, name: str) -> str:
        return _without_nul(name, str(self.request.path_params[name]))

    def number(self, name: str, what: str) -> int:
        """A path parameter that is the number of a thing."""
        text = self.path(name)
        if not _NUMBER.fullmatch(text) or not 1 <= int(text) <= LARGEST_ID:
            raise NotFound(what, text)
        return int(text)

    def header(self, name: str) -> str | None:
        return self.request.headers.get(name)

    @property
    def seen(self) -> Container[int] | None:
        """The revisions that ``If-Match`` allows; None where all are allowed, and even that there is nothing."""
        if (text := self.header("if-match")) is None:
            return None
        if text.strip() == "*":
            return range(1, LARGEST_ID)
        tags = (tag.strip() for tag in text.split(","))
        return {int(tag[1:-1]) for tag in tags if _ETAG.fullmatch(tag)}

    @property
    def must_be_new(self) -> bool:
        """Whether ``If-None-Match: *`` asks that there is nothing yet."""
        return (self.header("if-none-match") or "").strip() == "*"

    @property
    def traceparent(self) -> str:
        """The trace that the request is part of (W3C Trace Context); empty where the header is none."""
        found = _TRACE.fullmatch((self.header("traceparent") or "").strip())
        return f"00-{found['trace']}-{found['span']}-{found['flags']}" if found else ""


_NUMBER = re.compile(r"\d{1,19}", re.ASCII)
_ETAG = re.compile(r'"\d{1,18}"', re.ASCII)
_TRACE = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})(?P<trace>[0-9a-f]{32})-(?!0{16})(?P<span>[0-9a-f]{16})-(?P<flags>[0-9a-f]{2})(?:-.*)?"
)
_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")


def decoded(data: bytes, kind: Any) -> Any:
    """The JSON of a request as the declared type; one sentence where it is not."""
    if b"u0000" in data and _NUL.search(data):
        raise Invalid("body", NOT_SHOWN, "a text in it may not have the character NUL")
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError as problem:
        raise _invalid(problem) from problem
    except (msgspec.DecodeError, UnicodeDecodeError) as problem:
        raise Refused("bad_request", f"the body must be JSON in UTF-8 ({problem})") from problem
    except RecursionError as problem:
        raise Refused("bad_request", "the JSON of the body must be nested less deeply") from problem


def converted(values: dict[str, str], kind: Any) -> Any:
    """The parameters of a query as the declared struct."""
    known = kind.__struct_fields__
    for name in values.keys() - set(known):
        raise Invalid("query parameter", name, f"it must be one of {', '.join(known)}")
    for name, value in values.items():
        _without_nul(name, value)
    try:
        return msgspec.convert(values, kind, strict=False)
    except msgspec.ValidationError as problem:
        raise _invalid(problem) from problem


def _without_nul(name: str, value: str) -> str:
    if "\0" in value:
        raise Invalid(name, value, "it may not have the character NUL")
    return value


def _invalid(problem: msgspec.ValidationError) -> Exception:
    """An error of our own keeps its sentence; msgspec's says where it was."""
    if isinstance(problem.__cause__, Invalid):
        return problem.__cause__
    what, _, where = str(problem).partition(" - at `")
    field = where.rstrip("`").removeprefix("$").removeprefix(".") or "body"
    return Invalid(field, NOT_SHOWN, what[:1].lower() + what[1:])
