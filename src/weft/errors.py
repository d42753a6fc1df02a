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
│   ├── DatabaseDamaged 503 exit 78  parts of its file are not what was written
│   └── DiskFull        503  exit 1   there is no room for it, or for what else is in the data directory
├── BlobsDown          503  exit 1   the blob store does not answer, or not as it should
├── DestinationDown         exit 1   where items are delivered to does not take them
├── LeaseLost          409           a worker no longer holds what it writes to
├── GatewayDown             exit 1   the gateway that a worker speaks to does not answer
│   └── GatewayUntrusted    exit 1   its certificate is not trusted; --ca-file names those that it is signed with
├── CodeNotReady            exit 1   a project's code cannot be made ready on a worker
├── OutboxDown              exit 1   a queue of another system did not say that it has what was put there
├── Unopened                exit 1   what was sealed cannot be opened here
├── BrokerDown                       a hint could not be sent; costs latency only
│   └── InboxDown                    a queue of another system does not answer; its messages wait there
├── FrontierDown       503           the store of a crawl's addresses does not answer; crawls wait for it
│   └── FrontierLost   503           it answers, and has lost what it knew of a crawl
├── FrontierElsewhere  409           a crawl keeps its URLs in another frontier than this process uses
├── LimiterDown                      the store of limits does not answer; nobody gets more than the limit
└── Misconfigured           exit 78  weft cannot start as it is set up
    ├── NoWeft                       there is no weft where a command looked for one
    ├── AdapterMissing               a chosen adapter needs a package that is not installed
    ├── SchemaNewer                  the database was made by a newer weft
    └── UnsafeDatabase               the server may forget what it has acknowledged
"""

from __future__ import annotations

from collections.abc import Collection

NOT_SHOWN = object()
"""In the place of a value that is not worth showing."""


class WeftError(Exception):
    """What weft raises on purpose; its text is one sentence for the person who caused it."""

    away = ""
    """What everybody may be told where something that weft depends on is at fault: no address of it is in that."""

    @property
    def public(self) -> str:
        """The sentence as whoever asks over the network gets it."""
        return self.away or str(self)


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

    away = "the database does not answer; try again in a moment"

    def __init__(self, why: object, *, outcome_unknown: bool = False, is_full: bool = False) -> None:
        super().__init__(f"the database does not answer ({_first_line(why)}); try again in a moment")
        if is_full:
            self.away = "the disk of the database is full; make room on it"
        self.outcome_unknown = outcome_unknown
        self.retry_after_seconds = 2


class DatabaseDamaged(DatabaseDown):
    """Parts of the file of the database are not what was written."""

    away = "the database is damaged: stop weft and put it back from your backup (docs/how-to/backup.md says how)"

    def __init__(self, why: object) -> None:
        WeftError.__init__(
            self,
            f"the database is damaged ({_first_line(why)}): stop weft and put it back from your backup "
            "(docs/how-to/backup.md says how)",
        )
        self.outcome_unknown = False
        self.retry_after_seconds = 60


class DiskFull(DatabaseDown):
    """The disk of the data directory is full."""

    def __init__(self, folder: object, free_bytes: int) -> None:
        WeftError.__init__(self, f"the disk of {folder} is full ({free_bytes >> 10} KiB are left): make room on it")
        self.outcome_unknown = False
        self.retry_after_seconds = 60


class BlobsDown(WeftError):
    """The blob store does not answer, or refuses."""

    away = "the blob store cannot be used; try again in a moment"

    def __init__(self, store: str, why: object) -> None:
        super().__init__(f"the blob store {store} cannot be used ({_first_line(why)}); try again in a moment")
        self.retry_after_seconds = 2


class DestinationDown(WeftError):
    """Where items are delivered to does not answer, or does not take them."""

    def __init__(self, where: str, why: object) -> None:
        super().__init__(f"the destination {where} does not take items ({_first_line(why)}); they wait for it")


class LeaseLost(WeftError):
    """A worker no longer holds what it writes to."""

    def __init__(self, worker: str, attempts: Collection[tuple[int, int]] = ()) -> None:
        which = ", ".join(f"attempt {attempt} of run {run_id}" for run_id, attempt in sorted(attempts)[:5])
        what = f"does not hold {which}; nothing of that was kept" if which else "has lost its leases"
        super().__init__(f"worker {worker} {what}: it was silent for too long")


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


class GatewayUntrusted(GatewayDown):
    """What answers shows a certificate that cannot be trusted, so nothing is sent there."""

    def __init__(self, url: str, why: object, advice: str = "--ca-file FILE (WEFT_CA_FILE)") -> None:
        self.why = _first_line(why)
        WeftError.__init__(
            self,
            f"the certificate of the gateway at {url} is not trusted ({self.why}); "
            f"name the certificates that it is signed with: {advice}",
        )
        self.retry_after_seconds = 0.0


class BrokerDown(WeftError):
    """A hint could not be sent or awaited. Costs latency only."""

    def __init__(self, broker: str, why: object) -> None:
        super().__init__(f"the {broker} broker does not answer ({_first_line(why)}); workers fall back to polling")
        self.away = f"the {broker} broker does not answer; workers fall back to polling"


class InboxDown(BrokerDown):
    """A queue that weft takes messages from does not answer."""

    def __init__(self, inbox: str, why: object) -> None:
        WeftError.__init__(self, f"the inbox {inbox} does not answer ({_first_line(why)}); its messages wait there")
        self.away = f"the inbox {inbox.partition(':')[0]} does not answer; its messages wait there"


class FrontierDown(WeftError):
    """The store of a crawl's addresses does not answer."""

    away = "the frontier does not answer; crawls wait for it"

    def __init__(self, frontier: str, why: object) -> None:
        super().__init__(f"the frontier {frontier} does not answer ({_first_line(why)}); crawls wait for it")


class FrontierLost(FrontierDown):
    """The store of a crawl's addresses has lost them."""

    away = "the frontier has lost what it knew; bring its data back, or stop the crawl and begin it again"

    def __init__(self, frontier: str, why: object) -> None:
        left = "bring its data back, or stop the crawl and begin it again"
        WeftError.__init__(self, f"the frontier {frontier} has lost what it knew ({_first_line(why)}); {left}")


class FrontierElsewhere(WeftError):
    """A crawl keeps its URLs in another frontier than the one that this process is set to use."""

    away = "the crawl keeps its URLs in another frontier than this weft uses: set frontier to the same value everywhere"

    def __init__(self, crawl: int, kept_in: str, used: str) -> None:
        super().__init__(
            f"crawl {crawl} keeps its URLs in {kept_in}, and this process uses {used}: set frontier (WEFT_FRONTIER) to "
            "the same value everywhere"
        )


class LimiterDown(WeftError):
    """The store of the limits that processes share does not answer. Nobody gets more than the limit meanwhile."""

    away = "the limiter does not answer; requests wait for it"

    def __init__(self, limiter: str, why: object) -> None:
        super().__init__(f"the limiter {limiter} does not answer ({_first_line(why)}); requests wait for it")


class OutboxDown(WeftError):
    """A queue that orders are put into does not answer."""

    def __init__(self, outbox: str, why: object, *, reached: bool) -> None:
        left = "what it has not confirmed may be there or not" if reached else "nothing was sent"
        super().__init__(f"the queue {outbox} does not answer ({_first_line(why)}); {left}")
        self.away = f"the queue does not answer; {left}"


class Misconfigured(WeftError):
    """Weft cannot start as it is set up."""


class NoWeft(Misconfigured):
    """There is no weft where a command looked for one; none is made by looking."""

    def __init__(self, why: str = "") -> None:
        super().__init__(
            f"no weft server found{why and f' ({why})'}: start one with `weft up`, "
            "or name one with --context or --data-dir"
        )


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
