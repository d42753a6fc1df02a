"""What an operation is, one call of it, and how values become answers.

An operation has a method and a path, a type for its query, body and answer, and the role that its caller needs. The
router, the access check, the OpenAPI document and the tests that walk every route are made from the list of operations.
A call need not come over HTTP.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Awaitable, Callable, Container, Hashable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, overload

import msgspec

from weft import strict_json
from weft.access.model import EVERYWHERE, Caller, Role
from weft.clock import Moment, iso
from weft.errors import NOT_SHOWN, ChangedMeanwhile, Invalid, NotAllowed, NotFound
from weft.operations.problems import RequestRefused

if TYPE_CHECKING:
    from starlette.requests import Request

    from weft.app import App
    from weft.operations.runs import FinishedRunCache

Time = str
T = TypeVar("T", bound=msgspec.Struct)


EXAMPLE_TIME: Moment = 1_796_090_400_000_000


def copied(kind: type[T], value: object) -> T:
    return kind(**timed({name: getattr(value, name) for name in kind.__struct_fields__}))


def timed(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields with moments as texts; a moment is known by its name."""
    return {
        name: iso(value) if name.endswith("_at") or name == "not_before" else value for name, value in fields.items()
    }


def as_example(document: msgspec.Struct) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(document)
    return plain


Find = Callable[[], Awaitable[bytes]]


class SingleFlight:
    """The questions that are being answered, each with those who wait for its next answer."""

    def __init__(self) -> None:
        self._waiting: dict[Hashable, list[asyncio.Future[bytes]]] = {}
        self._finding: dict[Hashable, asyncio.Task[None]] = {}

    async def __call__(self, asked: Hashable, find: Find) -> bytes:
        """What ``find`` finds; ``asked`` must hold everything that its answer depends on, also who may see what."""
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(asked, []).append(answer)
        if asked not in self._finding:
            self._finding[asked] = asyncio.create_task(self._find_all(asked, find))
        return await answer

    async def _find_all(self, asked: Hashable, find: Find) -> None:
        try:
            while waiting := self._waiting.pop(asked, None):
                await _deliver(waiting, find)
        finally:
            del self._finding[asked]


async def _deliver(waiting: list[asyncio.Future[bytes]], find: Find) -> None:
    try:
        found = await find()
    except Exception as problem:
        for answer in waiting:
            if not answer.done():
                answer.set_exception(problem)
        return
    for answer in waiting:
        if not answer.done():
            answer.set_result(found)


A = TypeVar("A")
LARGEST_ID = 2**63 - 1


class SharedAnswer(Generic[A]):
    """An answer that several callers share, encoded once."""

    def __init__(self, data: bytes, kind: Any) -> None:
        self.data, self._kind = data, kind

    @property
    def value(self) -> A:
        value: A = msgspec.json.decode(self.data, type=self._kind)
        return value


@dataclass(slots=True)
class Call:
    """A call whose caller is known and whose body and query have the declared shape."""

    app: App
    operation: Operation[Any]
    caller: Caller
    request_id: str
    single_flight: SingleFlight
    finished_runs: FinishedRunCache
    identify: Callable[[], Awaitable[Caller]]
    """Tells anew who calls: what lasts asks again now and then, and ends where the caller is refused."""
    values: Mapping[str, str] = field(default_factory=dict)
    """What stands in the path: ``run_id`` of ``/runs/{run_id}``."""
    sent: Mapping[str, str] = field(default_factory=dict)
    """Headers of the request, by their names in small letters."""
    address: str = ""
    """Where the call comes from."""
    body: Any = None
    query: Any = None
    request: Request | None = None
    """Where it came over HTTP."""
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

    async def shared(self, asked: Hashable, find: Callable[[], Awaitable[A]]) -> SharedAnswer[A]:
        """The answer, shared with those who ask the same; ``asked`` holds all that it depends on."""

        async def encoded() -> bytes:
            return msgspec.json.encode(await find())

        return SharedAnswer(await self.single_flight((self.operation.name, asked), encoded), self.operation.answer)

    @property
    def http(self) -> Request:
        """The request itself, for what can only be done over HTTP: bodies that come in pieces, cookies."""
        if self.request is None:
            raise AssertionError(f"{self.operation.name} can only be called over HTTP")
        return self.request

    def path(self, name: str) -> str:
        return _without_nul(name, self.values[name])

    def number(self, name: str, what: str) -> int:
        """A path parameter that is the number of a thing."""
        text = self.path(name)
        if not _NUMBER.fullmatch(text) or not 1 <= int(text) <= LARGEST_ID:
            raise NotFound(what, text)
        return int(text)

    def header(self, name: str) -> str | None:
        return self.sent.get(name)

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


def decode_body(data: bytes, kind: Any) -> Any:
    """The JSON of a request as the declared type; one sentence where it is not."""
    if b"u0000" in data and _NUL.search(data):
        raise Invalid("body", NOT_SHOWN, "a text in it may not have the character NUL")
    try:
        return strict_json.decode(data, kind)
    except msgspec.ValidationError as problem:
        raise _invalid_value(problem) from problem
    except (msgspec.DecodeError, UnicodeDecodeError) as problem:
        raise RequestRefused("bad_request", f"the body must be JSON in UTF-8 ({problem})") from problem
    except RecursionError as problem:
        raise RequestRefused("bad_request", "the JSON of the body must be nested less deeply") from problem


def decode_query(values: dict[str, str], kind: Any) -> Any:
    """The parameters of a query as the declared struct."""
    known = kind.__struct_fields__
    for name in values.keys() - set(known):
        raise Invalid("query parameter", name, f"it must be one of {', '.join(known)}")
    for name, value in values.items():
        _without_nul(name, value)
    try:
        return msgspec.convert(values, kind, strict=False)
    except msgspec.ValidationError as problem:
        raise _invalid_value(problem) from problem


def _without_nul(name: str, value: str) -> str:
    if "\0" in value:
        raise Invalid(name, value, "it may not have the character NUL")
    return value


def _invalid_value(problem: msgspec.ValidationError) -> Exception:
    """An error of our own keeps its sentence; msgspec's says where it was."""
    if isinstance(problem.__cause__, Invalid):
        return problem.__cause__
    what, _, where = str(problem).partition(" - at `")
    field = where.rstrip("`").removeprefix("$").removeprefix(".") or "body"
    return Invalid(field, NOT_SHOWN, what[:1].lower() + what[1:])


def refuse_short_lived(caller: Caller) -> None:
    """Refuse to make something that lasts for a caller whose token lasts for minutes."""
    if caller.short_lived:
        raise NotAllowed(
            "a token that lasts for minutes makes no keys, tokens, users or passwords; use the key or the login itself"
        )


IF_MATCH_HEADER = {
    "If-Match": "The ETag that was read, or * for any; the answer is 412 where it was changed meanwhile."
}
ETAG_HEADER = {"ETag": "Changes whenever the definition does; send it back as If-Match with a change."}


def set_etag(call: Call, definition: Any) -> None:
    """Let the answer name what its reader has seen."""
    call.headers["ETag"] = f'"{etag_digest(definition)}"'


def check_etag(call: Call, what: str, which: object) -> Callable[[Any], None] | None:
    """Refuses a definition that ``If-Match`` does not allow; None where any will do.

    It is for the transaction that makes the change, with the definition as it is there.
    """
    text = call.header("if-match")
    if text is None or text.strip() == "*":
        return None
    seen = {each.strip() for each in text.split(",")}

    def check(definition: Any) -> None:
        found = etag_digest(definition)
        if f'"{found}"' not in seen:
            raise ChangedMeanwhile(what, which, found)

    return check


def etag_digest(definition: Any) -> str:
    """The same for as long as the definition says the same, in whatever order."""
    return hashlib.sha256(msgspec.json.encode(definition, order="deterministic")).hexdigest()[:32]


Handler = Callable[[Call], Awaitable[Any]]

PROBLEMS = (400, 401, 403, 404, 405, 408, 409, 412, 413, 415, 421, 422, 429, 431, 500, 503)
"""What any operation may answer instead of what was asked for."""


LARGEST_BODY = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation(Generic[A]):
    """Declared by ``Operations`` around its handler; ``A`` is the type of what the handler answers."""

    name: str
    """What the client, the audit log and OpenAPI call it: ``runs.cancel``."""
    method: str
    path: str
    summary: str
    needs: Role | None
    """The role that the caller must have where the operation acts; None: anybody may call it."""
    handle: Handler
    body: Any = None
    """The type of the request's JSON."""
    takes: str = ""
    """The media type of a body that is no JSON, which the operation reads itself."""
    query: Any = None
    """The struct of the query's parameters, each with a default."""
    answer: Any = None
    """The type of the answer's JSON."""
    media_type: str = "application/json"
    """Of the answer, where it is no JSON."""
    status: int = 200
    also: Mapping[int, Any] = field(default_factory=dict)
    """Further statuses whose answer is JSON of a type of its own, and no problem."""
    largest_body: int = LARGEST_BODY
    callers: frozenset[str] = frozenset({"user", "key"})
    """The kinds of callers that may call it; workers have operations of their own."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Request headers that it understands, and what they do."""
    answer_headers: Mapping[str, str] = field(default_factory=dict)
    """Headers of the answer that a caller may want, and what they say."""
    example: Any = None
    """An answer."""
    example_body: Any = None
    audited: bool = True
    """Whether the audit log tells of each call that has changed something. A run's own first event tells who started
    it: that log would grow with every run."""

    @property
    def changes(self) -> bool:
        return self.method not in ("GET", "HEAD")


class OperationDecorator(Protocol):
    """Makes an operation of a handler."""

    @overload
    def __call__(self, handle: Callable[[Call], Awaitable[SharedAnswer[A]]]) -> Operation[A]: ...
    @overload
    def __call__(self, handle: Callable[[Call], Awaitable[A]]) -> Operation[A]: ...


class Operations:
    """The operations of one noun, collected where they are written."""

    def __init__(self, noun: str, prefix: str = "/v1") -> None:
        self.noun, self._prefix = noun, prefix
        self.all: list[Operation[Any]] = []

    def get(self, path: str, **declared: Any) -> OperationDecorator:
        return self._declare("GET", path, **declared)

    def post(self, path: str, **declared: Any) -> OperationDecorator:
        return self._declare("POST", path, **declared)

    def put(self, path: str, **declared: Any) -> OperationDecorator:
        return self._declare("PUT", path, **declared)

    def patch(self, path: str, **declared: Any) -> OperationDecorator:
        return self._declare("PATCH", path, **declared)

    def delete(self, path: str, **declared: Any) -> OperationDecorator:
        return self._declare("DELETE", path, **declared)

    def _declare(self, method: str, path: str, *, name: str = "", **declared: Any) -> OperationDecorator:
        def keep(handle: Callable[[Call], Awaitable[Any]]) -> Operation[Any]:
            called = f"{self.noun}.{name or handle.__name__.rstrip('_')}"
            summary = (handle.__doc__ or called).strip().split("\n")[0]
            self.all.append(
                Operation(
                    name=called, method=method, path=self._prefix + path, summary=summary, handle=handle, **declared
                )
            )
            return self.all[-1]

        return keep
