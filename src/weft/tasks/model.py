"""The values of tasks: their definition, parameters and texts, and the settings of projects. Values only, no I/O."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from typing import Any, Literal

import msgspec
from cronsim.explain import explain

from weft.access.secrets import REFERENCE
from weft.clock import SECOND, Moment
from weft.errors import NOT_SHOWN, Invalid
from weft.projects.model import CODED_KINDS
from weft.redaction import MASK, redacted_tree, refuse_masks, secret_names
from weft.runs.model import LIMITS, NewRun, Retry, RunSpec, Trigger
from weft.runs.success import SpiderSettings, SuccessConditions
from weft.tasks import cron
from weft.tasks.schedule import Schedule
from weft.tasks.timezones import wall_clock
from weft.user_code import LONGEST_GRACE, NETWORK_ALLOWED, VARIABLES, VARIABLES_ALLOWED, Network, is_network

PLACEHOLDER = re.compile(r"\{\{\s*(\w+)\s*\}\}")
UNTOUCHED = {"script"}
"""Fields that are code: values reach them as environment variables, never as text to be executed."""
TEXTS = {"argv", "interpreter", "env", "headers"}
"""Fields that hold nothing but texts: a number becomes its text there."""

ADDRESSES = {"http": ("url",), "crawl": ("urls", "sitemaps")}
"""By kind, the fields that say to which servers a secret of the task goes."""
SERVER = re.compile(r"[^/?#]*//[^/?#]*")
WITH_URLS = {"shell": ("argv", "env")}
"""By kind, the fields with texts that may have URLs somewhere in them."""
URL_SERVER = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]{0,20}://|https?:)/*[^/?#]*", re.IGNORECASE)
"""As far as it says where a request goes; curl takes other numbers of slashes as well."""

FIXED_BY_TASK = "the task has secrets, which go only to the servers that it names itself; a start may not change them"
NAMED_BY_TASK = "only the task itself may name a secret"


def resolve(defaults: Mapping[str, Any], given: Mapping[str, Any], task: str) -> dict[str, Any]:
    """The value of every parameter; what is given must be known and of its default's type. A default that is given
    back as it was shown, masked, is the default."""
    if MASK in str(given):
        shown = redacted_tree(defaults)
        given = {name: value for name, value in given.items() if name not in shown or value != shown[name]}
        refuse_masks(given)
    for name, value in given.items():
        if name not in defaults:
            known = ", ".join(sorted(defaults)) or "none"
            raise Invalid(f"parameter of {task}", name, f"the task has these: {known}")
        if "{secret:" in str(value):
            raise Invalid(f"parameter {name} of {task}", value, NAMED_BY_TASK)
    values = {
        name: _typed(name, given[name], default) if name in given else default for name, default in defaults.items()
    }
    for name, value in values.items():
        if value is None:
            raise Invalid(f"parameter {name} of {task}", None, "it has no default, so it must be given")
    return values


def fill(spec: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """The spec with every ``{{name}}`` in its texts replaced by that parameter's value.

    A text that is one name and nothing else becomes the value itself, with its type.
    """
    return {key: part if key in UNTOUCHED else _filled(part, values, text=key in TEXTS) for key, part in spec.items()}


def refuse_steering(kind: str, spec: Mapping[str, Any], defaults: Mapping[str, Any], values: Mapping[str, Any]) -> None:
    """Refuse values that send what is secret in a task to another server than the task itself does.

    Who may start a task may not read its secrets, so the scheme, host and port of a request that carries one are those
    that the task has with its defaults; so are those of URLs that a command is given.
    """
    if kind not in ADDRESSES and kind not in WITH_URLS:
        return
    has_secrets = REFERENCE.search(str((spec, values))) or secret_names(spec) or secret_names(defaults)
    if not has_secrets and not _has_login(kind, spec):
        return
    open_ = {name: f"{{{{{name}}}}}" if value is None else value for name, value in defaults.items()}
    given, own = _servers(kind, fill(spec, values)), _servers(kind, fill(spec, open_))
    # A command may take a text without a scheme for a URL, so none of those that it has may go either.
    if steered := given - own or (own - given if kind in WITH_URLS else set()):
        raise Invalid("parameters", min(steered).rpartition("@")[2], FIXED_BY_TASK)


def from_text(text: str, default: Any) -> Any:
    """A value as typed on a command line, in the type of the default."""
    if isinstance(default, str):
        return text
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text


def _servers(kind: str, spec: Mapping[str, Any]) -> set[str]:
    if kind in WITH_URLS:
        fields = [spec.get(name) for name in WITH_URLS[kind]]
        texts = _texts([list(each.values()) if isinstance(each, Mapping) else each for each in fields])
        return {server for text in texts for server in URL_SERVER.findall(text)}
    return {_server(text) for name in ADDRESSES[kind] for text in _texts(spec.get(name))}


def _server(address: str) -> str:
    """An address as far as it says where a request goes; all of one that does not say so."""
    found = SERVER.match(address)
    return found[0] if found else address


def _has_login(kind: str, spec: Mapping[str, Any]) -> bool:
    if kind in WITH_URLS:
        return any("@" in server for server in _servers(kind, spec))
    return any("@" in _server(text) for text in _texts(list(spec.values())))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _texts(each)


def _typed(name: str, value: Any, default: Any) -> Any:
    if isinstance(default, float) and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if default is not None and type(value) is not type(default):
        raise Invalid(f"parameter {name}", value, f"it must be of the type of its default, {_kind(default)}")
    return value


def _kind(value: Any) -> str:
    names = {bool: "true or false", int: "a whole number", float: "a number", str: "a text", list: "a list"}
    return names.get(type(value), "a table")


def _filled(part: Any, values: Mapping[str, Any], *, text: bool) -> Any:
    if isinstance(part, str):
        whole = None if text else PLACEHOLDER.fullmatch(part)
        if whole and whole[1] in values:
            return values[whole[1]]
        return _put_together(part, values)
    if isinstance(part, Mapping):
        return {key: _filled(each, values, text=text) for key, each in part.items()}
    if isinstance(part, list | tuple):
        return [_filled(each, values, text=text) for each in part]
    return part


def _put_together(part: str, values: Mapping[str, Any]) -> str:
    """The text with its parameters; together they may name no secret that neither it nor one of them does."""
    put = PLACEHOLDER.sub(lambda found: _text(found, values), part)
    if named := set(REFERENCE.findall(put)):
        named -= {name for text in (part, *map(str, values.values())) for name in REFERENCE.findall(text)}
    if named:
        raise Invalid("parameters", f"{{{{secret:{min(named)}}}}} together", NAMED_BY_TASK)
    return put


def _text(found: re.Match[str], values: Mapping[str, Any]) -> str:
    if found[1] not in values:
        raise Invalid("placeholder", found[0], f"the task has these parameters: {', '.join(sorted(values)) or 'none'}")
    value = values[found[1]]
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", re.ASCII)
LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._=-]{0,62}", re.ASCII)
MOST_VARIABLES = 100
MOST_TAGS, MOST_LIMITED_TAGS = 100, 1000
"""Tags, and labels, of a task; tags of a project that have a limit."""
OUTCOMES = ("failed", "timeout", "lost", "condition", *LIMITS)


class UpstreamTask(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """An upstream task, and how it must end."""

    task: str
    on: Literal["success", "failure", "any"] = "success"

    def met_by(self, state: str, outcome: str) -> bool:
        if self.on == "any":
            return True
        return state == ("succeeded" if self.on == "success" else "failed") and outcome != "skipped"


class Deduplication(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Drop a run whose target is pending or was done within the window."""

    params: tuple[str, ...] = ()
    """Which parameters make the target; none named means all of them."""
    window_seconds: float = 0.0


class Task(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What to do and when."""

    name: str
    project: str = "default"
    kind: str
    spec: dict[str, Any] = {}
    description: str = ""
    params: dict[str, Any] = {}
    """Parameters and their defaults; one without a value must be given at each start."""
    schedule: Schedule | None = None
    after: tuple[UpstreamTask, ...] = ()
    tags: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    priority: int = 0
    timeout_seconds: float = 0.0
    grace_seconds: float | None = None
    """How long a stopped run may take to end before it is killed; None: what its project says, else 10."""
    retry: Retry = Retry()
    max_running: int | None = None
    dedup: Deduplication | None = None
    log_bytes: int = 10_000_000
    success_if: SuccessConditions | None = None
    """What must hold at the end of its runs, or they have failed; only spiders can be asked for it."""
    paused: bool = False

    def __post_init__(self) -> None:
        check_name("task name", self.name)
        check_name("project", self.project)
        check_name("kind", self.kind)
        for what, values in (("tag", self.tags), ("label", self.labels)):
            _check_number_of(f"{what}s", values, MOST_TAGS)
            for value in values:
                check_label(what, value)
        _check_numbers(self)
        _check_retry(self.retry)
        for name in self.params:
            _check_field("parameter", name, name.isidentifier(), "it must be a name of letters, digits and '_'")
        names = [upstream.task for upstream in self.after]
        _check_field("after", names, len(set(names)) == len(names), "a task may be named once")
        if self.success_if is not None and self.kind not in CODED_KINDS:
            raise Invalid("success_if", NOT_SHOWN, f"only a task of the kind spider has it, not one of {self.kind}")
        if self.schedule is not None or self.after:
            for name, value in self.params.items():
                what = f"parameter {name} of {self.full_name}"
                _check_field(what, value, value is not None, "a task that starts by itself needs a default for each")
        if self.dedup is not None:
            for name in self.dedup.params:
                _check_field("dedup.params", name, name in self.params, "it must be a parameter of the task")

    @property
    def full_name(self) -> str:
        return f"{self.project}/{self.name}"

    @property
    def cap(self) -> int | None:
        """How many runs may run at once; tasks whose ticks queue or replace run one at a time."""
        serial = self.schedule is not None and self.schedule.overlap in ("queue_one", "replace")
        return 1 if serial and self.max_running is None else self.max_running

    def new_run(self, task_id: int, trigger: Trigger, params: Mapping[str, Any] | None = None, **fields: Any) -> NewRun:
        """A run of this task as it is now."""
        values = resolve(self.params, params or {}, self.full_name)
        if params:
            refuse_steering(self.kind, self.spec, self.params, values)
        _check_priority(fields.setdefault("priority", self.priority))
        return NewRun(
            project=self.project,
            task=self.name,
            task_id=task_id,
            kind=self.kind,
            trigger=trigger,
            max_running=self.cap,
            spec=RunSpec(
                spec=fill(self.spec, values),
                params=values,
                labels=self.labels,
                tags=self.tags,
                timeout_seconds=self.timeout_seconds,
                grace_seconds=self.grace_seconds,
                log_bytes=self.log_bytes,
                retry=self.retry,
                success_if=self.success_if,
            ),
            dedup_key=self._dedup_key(values),
            dedup_seconds=self.dedup.window_seconds if self.dedup else 0.0,
            **fields,
        )

    def _dedup_key(self, values: Mapping[str, Any]) -> str | None:
        if self.dedup is None:
            return None
        target = {name: values[name] for name in self.dedup.params or values}
        return hashlib.sha256(msgspec.json.encode([self.name, target], order="deterministic")).hexdigest()


class ProjectSettings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What holds for all tasks of a project."""

    weight: float = 1.0
    """Its share of the workers, beside the other projects' weights."""
    max_running: int | None = None
    max_queued: int | None = None
    tags: dict[str, int] = {}
    """How many runs with each tag may run at once."""
    keep_days: float | None = None
    """How long items and logs are kept after their run has ended; without, for ever."""
    min_isolation: Literal["L0", "L1", "L2"] | None = None
    """The least isolation of its runs; a worker that reaches less does not run them."""
    may_run_unsandboxed: bool = False
    """Whether its runs may ask for no sandbox, with isolation L0; only an admin of all projects may allow it."""
    may_build: bool = False
    """Whether packages that it needs may be built from source; only an admin of all projects may allow it."""
    success_if: SuccessConditions | None = None
    """What must hold at the end of the runs of its spiders, or they have failed."""
    spiders: dict[str, SpiderSettings] = {}
    """What holds for one spider, by its name."""
    spider_env: tuple[str, ...] = ()
    """The variables of a worker's environment that its runs see: names, or PREFIX_*; only an admin of all projects may
    add some."""
    grace_seconds: float | None = None
    """How long a stopped run may take to end before it is killed, where its task does not say."""
    network: Network = "all"
    """What its runs and its code may connect to: "all", "none", or TCP ports; only an admin of all projects may allow
    more."""

    def __post_init__(self) -> None:
        _check_field("network", self.network, is_network(self.network), NETWORK_ALLOWED)
        _check_field("weight", self.weight, 0.001 <= self.weight <= 1000, "it must be from 0.001 to 1000")
        _check_at_least_one("max_running", self.max_running)
        _check_at_least_one("max_queued", self.max_queued)
        _check_number_of("tags", self.tags, MOST_LIMITED_TAGS)
        for tag, most in self.tags.items():
            check_label("tag", tag)
            _check_at_least_one(f"tags.{tag}", most)
        for name in self.spiders:
            _check_field("spiders", name, 0 < len(name) <= 200, "the name of a spider has from 1 to 200 characters")
        _check_field(
            "spider_env", len(self.spider_env), len(self.spider_env) <= MOST_VARIABLES, "it may name 100 at most"
        )
        for name in self.spider_env:
            _check_field("spider_env", name, VARIABLES.fullmatch(name), VARIABLES_ALLOWED)
        _check_grace(self.grace_seconds)
        days = self.keep_days
        _check_field(
            "keep_days", days, days is None or 0.01 <= days <= 36_500, "it must be from 0.01 to 36500, or left out"
        )


def check_name(what: str, value: str) -> None:
    _check_field(
        what,
        value,
        NAME.fullmatch(value),
        "it must be letters, digits, '.', '_' or '-', at most 100, starting with a letter or digit",
    )


def check_label(what: str, value: str) -> None:
    """Refuse what can be neither a tag nor a label."""
    _check_field(what, value, LABEL.fullmatch(value), "it must be letters, digits, '.', '_', '=' or '-', at most 63")


def _check_number_of(what: str, values: Collection[str], most: int) -> None:
    _check_field(what, f"{len(values)} of them", len(values) <= most, f"there may be {most} at most")


def _check_priority(value: int) -> None:
    _check_field("priority", value, -1000 <= value <= 1000, "it must be from -1000 to 1000")


def _check_numbers(task: Task) -> None:
    _check_priority(task.priority)
    _check_field(
        "timeout_seconds",
        task.timeout_seconds,
        0 <= task.timeout_seconds <= 31_536_000,
        "it must be from 0 (none) to a year",
    )
    _check_grace(task.grace_seconds)
    _check_field("log_bytes", task.log_bytes, 0 <= task.log_bytes <= 10**9, "it must be from 0 to 1000000000")
    _check_at_least_one("max_running", task.max_running)
    if task.dedup is not None:
        window = task.dedup.window_seconds
        _check_field("dedup.window_seconds", window, 0 <= window <= 31_536_000, "it must be from 0 to a year")


def _check_grace(value: float | None) -> None:
    _check_field("grace_seconds", value, value is None or 0 <= value <= LONGEST_GRACE, "it must be from 0 to 3600")


def _check_retry(retry: Retry) -> None:
    _check_field("retry.count", retry.count, 0 <= retry.count <= 1000, "it must be from 0 to 1000")
    _check_field(
        "retry.delay_seconds", retry.delay_seconds, 0 <= retry.delay_seconds <= 86_400, "it must be from 0 to 86400"
    )
    _check_field("retry.factor", retry.factor, 1 <= retry.factor <= 100, "it must be from 1 to 100")
    most = retry.max_delay_seconds
    _check_field("retry.max_delay_seconds", most, 0 <= most <= 2_592_000, "it must be from 0 to 2592000 (30 days)")
    _check_field("retry.jitter", retry.jitter, 0 <= retry.jitter <= 1, "it must be from 0 to 1")
    _check_field("retry.losses", retry.losses, 1 <= retry.losses <= 100, "it must be from 1 to 100")
    for outcome in retry.on:
        _check_field("retry.on", outcome, outcome in OUTCOMES, f"it must be one of {', '.join(OUTCOMES)}")


def _check_at_least_one(what: str, value: int | None) -> None:
    _check_field(what, value, value is None or 1 <= value <= 1_000_000, "it must be from 1 to 1000000, or left out")


def _check_field(what: str, value: object, fine: object, allowed: str) -> None:
    if not fine:
        raise Invalid(what, value, allowed)


_DAILY = re.compile(r"at (.+) (every day.*)")
_SPANS = (("day", 86_400, 2), ("hour", 3600, 1), ("minute", 60, 1), ("second", 1, 1))


def trigger_text(task: Task) -> str:
    """What makes the task run."""
    told = [schedule_text(task.schedule)] if task.schedule is not None else []
    told += [f"after {each.task}" + ("" if each.on == "success" else f" ({each.on})") for each in task.after]
    return "; ".join(told) or "when asked to"


def schedule_text(schedule: Schedule) -> str:
    """When the schedule ticks: every day at 02:30 (Europe/Berlin), every 90 seconds, once at 2026-12-01 08:00 UTC."""
    if schedule.cron is not None:
        return f"{cron_text(schedule.cron)} ({schedule.zone})"
    if schedule.every_seconds is not None:
        return f"every {_span_text(schedule.every_seconds)}"
    assert schedule.once_at is not None
    return f"once at {local_text(schedule.once_at, schedule.zone)}"


@lru_cache(maxsize=4096)
def cron_text(expression: str) -> str:
    told = explain(cron.parse(expression).expression)
    told = told[0].lower() + told[1:]
    return _DAILY.sub(r"\2 at \1", told)


def local_text(at: Moment, zone: str) -> str:
    """A moment as a clock in ``zone`` shows it, to the second where it is not a whole minute."""
    shown = wall_clock(zone, at // SECOND)
    return shown.strftime("%Y-%m-%d %H:%M:%S" if shown.second else "%Y-%m-%d %H:%M") + (
        " UTC" if zone == "UTC" else f" ({zone})"
    )


def _span_text(seconds: float) -> str:
    for unit, size, fewest in _SPANS:
        many = seconds / size
        if many >= fewest and seconds % size == 0:
            return unit if many == 1 else f"{many:.0f} {unit}s"
    return f"{seconds:.6f}".rstrip("0") + " seconds"
