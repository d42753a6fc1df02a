"""Every error of weft. Each makes its own sentence: what, which and what to do.

WeftError
├── Invalid            422  exit 2   a value that a person or a program gave is not allowed
├── Rejected           422  exit 1   the code of a project does not work, so it was not deployed
├── NotFound           404  exit 1   no such thing
├── Conflict           409  exit 1   the thing is not in a state in which this can be done
├── ChangedMeanwhile   412  exit 1   the thing is not as the caller last saw it
├── Unknown            401  exit 1   nobody knows who you are
├── NotAllowed         403  exit 1   you may not do this
├── TooManyLogins      429  exit 1   too many passwords were wrong; none is looked at for a while
├── QueueFull          429  exit 1   a project has as many waiting runs as it may have
├── DatabaseDown       503  exit 1   the database does not answer
├── BlobsDown          503  exit 1   the blob store does not answer, or not as it should
├── DestinationDown         exit 1   where items are delivered to does not take them
├── LeaseLost          409           a worker no longer holds what it writes to
├── GatewayDown             exit 1   the gateway that a worker speaks to does not answer
├── CodeNotReady            exit 1   a project's code cannot be made ready on a worker
├── OutboxDown              exit 1   a queue of another system did not say that it has what was put there
├── Unopened                exit 1   what was sealed cannot be opened here
├── BrokerDown                       a hint could not be sent; costs latency only
│   └── InboxDown                    a queue of another system does not answer; its messages wait there
├── FrontierDown       503           the store of a crawl's addresses does not answer; crawls wait for it
│   └── FrontierLost   503           it answers, and has lost what it knew of a crawl
├── LimiterDown                      the store of limits does not answer; nobody gets more than the limit
└── Misconfigured           exit 78  weft cannot start as it is set up
    ├── AdapterMissing               a chosen adapter needs a package that is not installed
    ├── SchemaNewer                  the database was made by a newer weft
    └── UnsafeDatabase               the server may forget what it has acknowledged
"""

from __future__ import annotations

NOT_SHOWN = object()
"""In the place of a value that is not worth showing."""


class WeftError(Exception):
    """What weft raises on purpose; its text is one sentence for the person who caused it."""


class Invalid(WeftError):
    """A value that was given is not allowed."""

    def __init__(self, what: str, value: object, allowed: str) -> None:
        super().__init__(f"{what}: {allowed}" if value is NOT_SHOWN else f"{what} is {_shown(value)}; {allowed}")
        self.what, self.value, self.allowed = what, value, allowed


class Rejected(WeftError):
    """The code of a project does not work, so nothing of it was kept; ``traceback`` is what it raised or printed."""

    def __init__(self, why: str, traceback: str = "") -> None:
        super().__init__(f"the code was not deployed: {why}")
        self.traceback = traceback


class NotFound(WeftError):
    """No such thing."""

    def __init__(self, what: str, which: object, *, hidden: bool = False) -> None:
        super().__init__(f"there is no {what} {which}")
        self.what = what
        self.hidden = hidden  # there may be one, but this caller is not to know


class Conflict(WeftError):
    """The thing is not in a state in which this can be done."""


class ChangedMeanwhile(WeftError):
    """The thing is not as the caller last saw it."""

    def __init__(self, what: str, which: object, found: int | str | None) -> None:
        state = "is not there" if found is None else f"is at revision {found}"
        super().__init__(f"{what} {which} {state}, so it was changed meanwhile; read it again and repeat your change")


class Unknown(WeftError):
    """The caller has said nothing that tells who it is."""


class NotAllowed(WeftError):
    """The caller may not do this."""


class TooManyLogins(WeftError):
    """Too many passwords were wrong; none is looked at for a while."""

    def __init__(self, retry_after_seconds: int) -> None:
        super().__init__(f"too many logins have failed; try again in {retry_after_seconds} s")
        self.retry_after_seconds = retry_after_seconds


class QueueFull(WeftError):
    """A project has as many waiting runs as it may have."""

    def __init__(self, project: str, limit: int, retry_after_seconds: int = 5) -> None:
        super().__init__(
            f"project {project} has {limit} runs waiting, which is its limit; "
            f"try again in {retry_after_seconds} s or raise max_queued of the project"
        )
        self.project, self.limit, self.retry_after_seconds = project, limit, retry_after_seconds


class DatabaseDown(WeftError):
    """The database does not answer; ``outcome_unknown`` where the commit itself was cut off."""

    def __init__(self, why: object, *, outcome_unknown: bool = False) -> None:
        super().__init__(f"the database does not answer ({_first_line(why)}); try again in a moment")
        self.outcome_unknown = outcome_unknown
        self.retry_after_seconds = 2


class BlobsDown(WeftError):
    """The blob store does not answer, or refuses."""

    def __init__(self, store: str, why: object) -> None:
        super().__init__(f"the blob store {store} cannot be used ({_first_line(why)}); try again in a moment")
        self.retry_after_seconds = 2


class DestinationDown(WeftError):
    """Where items are delivered to does not answer, or does not take them."""

    def __init__(self, where: str, why: object) -> None:
        super().__init__(f"the destination {where} does not take items ({_first_line(why)}); they wait for it")


class LeaseLost(WeftError):
    """A worker no longer holds what it writes to."""

    def __init__(self, worker: str) -> None:
        super().__init__(f"worker {worker} has lost its leases: it was silent for too long")


class CodeNotReady(WeftError):
    """A project's code, or what it needs, cannot be made ready on this machine."""

    def __init__(self, why: str) -> None:
        super().__init__(f"the project's code cannot be made ready here: {why}")
        self.why = why


class Unopened(WeftError):
    """What was sealed cannot be opened with the keys of this weft."""

    def __init__(self, why: str) -> None:
        super().__init__(f"a secret cannot be opened: {why}")


class GatewayDown(WeftError):
    """The gateway does not answer, or says that it cannot now."""

    def __init__(self, url: str, why: object, *, retry_after_seconds: float = 0.0) -> None:
        super().__init__(f"the gateway at {url} does not answer ({_first_line(why)}); try again in a moment")
        self.retry_after_seconds = retry_after_seconds


class BrokerDown(WeftError):
    """A hint could not be sent or awaited. Costs latency only."""

    def __init__(self, broker: str, why: object) -> None:
        super().__init__(f"the {broker} broker does not answer ({_first_line(why)}); workers fall back to polling")


class InboxDown(BrokerDown):
    """A queue that weft takes messages from does not answer."""

    def __init__(self, inbox: str, why: object) -> None:
        WeftError.__init__(self, f"the inbox {inbox} does not answer ({_first_line(why)}); its messages wait there")


class FrontierDown(WeftError):
    """The store of a crawl's addresses does not answer."""

    def __init__(self, frontier: str, why: object) -> None:
        super().__init__(f"the frontier {frontier} does not answer ({_first_line(why)}); crawls wait for it")


class FrontierLost(FrontierDown):
    """The store of a crawl's addresses has lost them."""

    def __init__(self, frontier: str, why: object) -> None:
        left = "bring its data back, or stop the crawl and begin it again"
        WeftError.__init__(self, f"the frontier {frontier} has lost what it knew ({_first_line(why)}); {left}")


class LimiterDown(WeftError):
    """The store of the limits that processes share does not answer. Nobody gets more than the limit meanwhile."""

    def __init__(self, limiter: str, why: object) -> None:
        super().__init__(f"the limiter {limiter} does not answer ({_first_line(why)}); requests wait for it")


class OutboxDown(WeftError):
    """A queue that orders are put into does not answer."""

    def __init__(self, outbox: str, why: object, *, reached: bool) -> None:
        left = "what it has not confirmed may be there or not" if reached else "nothing was sent"
        super().__init__(f"the queue {outbox} does not answer ({_first_line(why)}); {left}")


class Misconfigured(WeftError):
    """Weft cannot start as it is set up."""


class AdapterMissing(Misconfigured):
    """A chosen adapter needs a package that is not installed."""

    def __init__(self, kind: str, name: str, extra: str) -> None:
        super().__init__(f"the {name} {kind} needs an extra package: pip install 'weft[{extra}]'")


class SchemaNewer(Misconfigured):
    """The database was made by a newer weft."""

    def __init__(self, found: int, known: int) -> None:
        super().__init__(
            f"the database has schema {found}, this weft knows schemas up to {known}; start a weft that is as new as it"
        )


class UnsafeDatabase(Misconfigured):
    """The server may forget what it has acknowledged."""

    def __init__(self, settings: str) -> None:
        super().__init__(
            f"the database server may lose acknowledged runs in a crash: {settings}; "
            "switch it on there, or set WEFT_ALLOW_UNSAFE_DATABASE=true to run all the same"
        )


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 120 else text[:117] + "..."


def _first_line(why: object) -> str:
    return str(why).strip().split("\n")[0][:200] or type(why).__name__
