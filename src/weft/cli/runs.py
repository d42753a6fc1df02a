"""``weft runs``: list, show, cancel, pause and retry runs, and print their logs."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from weft.cli.options import WeftCommand, WeftGroup, number, options_of, whole
from weft.cli.output import ago, answer, as_json, duration_text, fields, none_of, note, note_all, table
from weft.cli.session import ask, full_name, peek
from weft.cli.submit import submit
from weft.clock import iso, now
from weft.errors import Invalid
from weft.logs.error_groups import ErrorGroup, ErrorGroups
from weft.logs.records import LogRecord
from weft.logs.search import LogQuery
from weft.patterns import compiled
from weft.redaction import masked_together
from weft.runs.model import Attempt, Run
from weft.runs.success import RunCondition, condition_line, missing_number_text
from weft.runs.success_text import found_text

if TYPE_CHECKING:
    from weft.app import App
    from weft.backends import Backends
    from weft.items.model import AttemptStats
    from weft.operations.runs import RunDocument
    from weft.runs.model import Attempt, Run

NO_RUNS = "no runs yet"
RUN_HEADINGS = (
    "RUN",
    "TASK",
    "STATE",
    "STARTED",
    "TOOK",
    "ITEMS",
    "PAGES",
    "ERRORS",
    "WARNINGS",
    "TRY",
    "WORKER",
    "WHY",
)
MARK_TEXTS = {
    "errors": "with errors",
    "finish_reason": "not finished",
    "no_requests": "made no request",
    "no_items": "stored no item",
    "undecided": "undecided",
}
"""What does not look like success, in words."""
TOLD_BY_REASON = ("finish_reason", "undecided")
"""Marks that the reason of a run says more about."""


def runs_table(runs: Sequence[Run], *, empty: str = NO_RUNS) -> str:
    return table(RUN_HEADINGS, (_run_row(run) for run in runs), empty=empty)


def _run_row(run: Run) -> tuple[object, ...]:
    name = f"{run.project}/{run.task}"
    times = (ago(run.started_at), duration_text(run.started_at, run.finished_at))
    why = "; ".join(
        text for text in (run.reason, _marks_text(run, without=TOLD_BY_REASON if run.reason else ())) if text
    )
    counts = (run.items, run.pages, run.errors, run.warnings)
    return (run.id, name, state_text(run), *times, *counts, run.attempt or "-", run.worker, why)


def _marks_text(run: Run, *, without: Sequence[str] = ()) -> str | None:
    return ", ".join(MARK_TEXTS.get(mark, mark) for mark in run.marks if mark not in without) or None


def state_text(run: Run) -> str:
    """The state, or more exactly how it ended."""
    return run.outcome if run.state == "failed" and run.outcome else run.state.value


def run_text(run: Run, attempts: Sequence[Attempt], brought: Sequence[tuple[str, object]] = ()) -> str:
    headings = ("ATTEMPT", "OUTCOME", "STARTED", "TOOK", "WORKER", "EXIT", "LOG BYTES", "WHY")
    tables = [fields([*_run_fields(run), *brought]), table(headings, (_attempt_row(each) for each in attempts))]
    return "\n\n".join(part for part in tables if part)


def _attempt_row(each: Attempt) -> tuple[object, ...]:
    times = (ago(each.started_at), duration_text(each.started_at, each.finished_at))
    code = each.exit_code if each.signal is None else f"signal {each.signal}"
    size = each.log_bytes if each.late_from is None else f"{each.log_bytes} (late)"
    return (each.attempt, each.outcome, *times, each.worker, code, size, each.reason)


def _run_fields(run: Run) -> list[tuple[str, object]]:
    spec = run.spec
    shown_spec, shown_params = masked_together(spec.spec, spec.params)
    return [
        ("run", run.id),
        ("task", f"{run.project}/{run.task}"),
        ("kind", run.kind),
        ("state", run.state.value),
        ("outcome", run.outcome),
        ("why", run.reason),
        ("marks", _marks_text(run)),
        *(("condition", _condition(each)) for each in run.conditions),
        ("closed", run.finish_reason),
        ("counted", ", ".join(f"{count} {name}" for name, count in _counts(run)) or None),
        ("exit code", run.exit_code),
        ("signal", run.signal),
        ("result", run.result),
        ("cancelling", "asked to stop" if run.cancel_requested and run.state == "running" else None),
        ("trigger", run.trigger),
        ("tick", moment_text(run.fire_at)),
        ("queued", moment_text(run.queued_at)),
        ("not before", _not_before(run)),
        ("started", moment_text(run.started_at)),
        ("finished", moment_text(run.finished_at)),
        ("took", duration_text(run.started_at, run.finished_at)),
        ("worker", run.worker),
        ("attempt", run.attempt),
        ("priority", run.priority),
        ("labels", spec.labels),
        ("tags", spec.tags),
        ("timeout", f"{spec.timeout_seconds:g} s" if spec.timeout_seconds else None),
        ("params", shown_params),
        ("spec", shown_spec),
        ("correlation", run.correlation_id),
        ("trace", run.traceparent),
    ]


def _counts(run: Run) -> list[tuple[str, int]]:
    counts = ((name, getattr(run, name)) for name in ("requests", "pages", "items", "errors", "warnings"))
    return [(name, count) for name, count in counts if count is not None]


def _condition(each: RunCondition) -> str:
    """The condition, who has set it, and what became of it."""
    held = {True: "held", False: "did not hold", None: "not decided"}[each.held]
    found = f", found {found_text(each)}" if each.found is not None else ""
    lacking = f": {missing_number_text(each)}" if each.undecided is not None else ""
    return f"{condition_line(each)} (of the {each.of}): {held}{found}{lacking}"


def _not_before(run: Run) -> str | None:
    """When a queued run may start; a time that has come is not said to be ago."""
    return "now" if run.not_before is not None and run.not_before <= now() else moment_text(run.not_before)


def moment_text(at: int | None) -> str | None:
    return None if at is None else f"{iso(at)} ({ago(at)})"


def log_query(level: str | None, grep: str | None, tail: int | None) -> LogQuery:
    return LogQuery(level=(level or "").upper(), regex=grep or "", tail=tail)


def record_filter(asked: LogQuery) -> Callable[[LogRecord], bool] | None:
    """Tells of a record whether it is wanted, for a log that is followed; None where all are."""
    if not asked.level and not asked.regex:
        return None
    pattern = compiled(asked.regex, "--grep")
    return lambda record: asked.wants(record) and pattern.is_in(record.text)


async def print_records(weft: App, run_id: int, attempt: int | None, asked: LogQuery) -> None:
    """Print what is wanted as it is found."""
    async for batch in weft.runs.records(run_id, attempt, asked):
        sys.stdout.write("".join([f"{record.text}\n" for record in batch]))


async def first_late_byte(weft: App, run_id: int, attempt: int) -> int | None:
    """The byte from which on the log of an attempt came late; None where none of it did."""
    found = [each.late_from for each in await weft.runs.attempts(run_id) if each.attempt == attempt]
    return found[0] if found else None


async def matching_records(weft: App, run_id: int, attempt: int | None, asked: LogQuery) -> list[LogRecord]:
    return [record async for batch in weft.runs.records(run_id, attempt, asked) for record in batch]


async def error_groups(weft: App, run_id: int, attempt: int | None) -> list[ErrorGroup]:
    groups = ErrorGroups()
    async for batch in weft.runs.records(run_id, attempt, LogQuery(level="ERROR")):
        groups.add(batch)
    return groups.all


def groups_text(groups: Sequence[ErrorGroup]) -> str:
    """Each group: how often and when, and the first of its errors whole."""
    return "\n\n".join(f"{each.count} × {_group_times(each)}\n{each.example}" for each in groups) or "no errors"


def _group_times(each: ErrorGroup) -> str:
    first, last = iso(each.first_at), iso(each.last_at)
    if first is None:
        return "at times unknown"
    return f"at {first}" if first == last else f"from {first} to {last}"


app = typer.Typer(cls=WeftGroup, no_args_is_help=True, add_completion=False, help="List, inspect and control runs.")

STATES = ("queued", "paused", "running", "succeeded", "failed", "cancelled")
MARKS = ("errors", "finish_reason", "no_requests", "no_items", "undecided")
LARGEST_ID = 2**63 - 1

run_number = whole("the number of a run", 1, LARGEST_ID)

RunId = Annotated[int, typer.Argument(metavar="ID", parser=run_number, help="The number of a run.")]
RunIds = Annotated[list[int], typer.Argument(metavar="ID...", parser=run_number, help="The numbers of runs.")]


@app.command("list", cls=WeftCommand)
def list_(
    context: typer.Context,
    state: Annotated[
        str | None, typer.Option(metavar="STATE", help=f"Only those in this state; {', '.join(STATES)}.")
    ] = None,
    task: Annotated[str | None, typer.Option(metavar="NAME", help="Only those of this task.")] = None,
    mark: Annotated[
        str | None, typer.Option(metavar="MARK", help=f"Only those that succeeded with this mark; {', '.join(MARKS)}.")
    ] = None,
    limit: Annotated[int, typer.Option(metavar="N", parser=whole("--limit", 1, 10_000), help="How many at most.")] = 50,
    before: Annotated[
        int | None, typer.Option(metavar="ID", parser=run_number, help="Only older ones than this ID.")
    ] = None,
) -> None:
    """List runs, newest first."""
    where = _filter(context, state, task)
    if mark is not None:
        if mark not in MARKS:
            raise Invalid("--mark", mark, f"it must be one of {', '.join(MARKS)}")
        where["mark"] = mark
    found = peek(context, lambda weft: weft.runs.find(where, before=before, limit=limit))

    empty = none_of("runs", [before, *where.values()], NO_RUNS)
    answer(context, lambda: _documents(found), lambda: runs_table(found, empty=empty))


def _documents(runs: Sequence[Run]) -> list[RunDocument]:
    from weft.operations.runs import run_document

    return [run_document(run) for run in runs]


@app.command(cls=WeftCommand)
def show(context: typer.Context, run_id: RunId) -> None:
    """Show a run: its state, input, results and attempts."""

    async def read(weft: Backends) -> tuple[Run, list[Attempt], list[AttemptStats]]:
        run = await weft.runs.get(run_id)
        return run, await weft.runs.attempts(run_id), await _stats(weft, run)

    run, attempts, told = peek(context, read)
    from weft.cli.follow import spider_fields
    from weft.operations.runs import run_document

    answer(context, run_document(run, attempts), lambda: run_text(run, attempts, spider_fields(run, told)))


async def _stats(weft: Backends, run: Run) -> list[AttemptStats]:
    """What a crawl has yielded; of the roots, which know nothing of items, through a door of its own."""
    from weft.items.items import Items

    if run.kind != "spider":
        return []
    door: Items = getattr(weft, "items", None) or Items(weft.db)
    return await door.stats(run.id)


@app.command(cls=WeftCommand)
def pause(context: typer.Context, run_ids: RunIds) -> None:
    """Pause resumable runs: a queued one at once, a running one through its worker."""
    found = ask(context, lambda weft: _each(weft.pauses.pause, run_ids), changes=True)
    _tell(context, found, {"running": "is asked to pause", "paused": "is paused"})


@app.command(cls=WeftCommand)
def resume(context: typer.Context, run_ids: RunIds) -> None:
    """Resume paused runs."""
    found = ask(context, lambda weft: _each(weft.pauses.resume, run_ids), changes=True)
    _tell(context, found, {"running": "goes on", "queued": "waits for a worker"})


async def _each(act: Callable[[int], Awaitable[Run]], run_ids: Sequence[int]) -> list[Run]:
    return [await act(run_id) for run_id in run_ids]


def _tell(context: typer.Context, found: Sequence[Run], words: Mapping[str, str]) -> None:
    from weft.operations.runs import run_document

    lines = [f"run {run.id} {words.get(run.state, run.state)}" for run in found]
    answer(context, [run_document(run) for run in found], lambda: "\n".join(lines))


@app.command(cls=WeftCommand)
def cancel(context: typer.Context, run_ids: RunIds) -> None:
    """Cancel runs: a queued one at once, a running one through its worker."""

    async def cancel_each(weft: App) -> list[Run]:
        for run_id in run_ids:
            await weft.runs.get(run_id)
        return [await weft.runs.cancel(run_id) for run_id in run_ids]

    found = ask(context, cancel_each, changes=True)
    _tell(context, found, {"running": "is asked to stop", "cancelled": "is cancelled"})


@app.command(cls=WeftCommand)
def again(context: typer.Context, run_ids: RunIds) -> None:
    """Run ended runs again, each as a new run with the same spec."""

    async def queue_each(weft: App) -> list[int]:
        return [(await weft.runs.again(run_id)).run_id for run_id in run_ids]

    found = ask(context, queue_each, changes=True)
    lines = [f"run {new} is queued for run {old}" for old, new in zip(run_ids, found, strict=True)]
    answer(context, [{"run_id": new} for new in found], lambda: "\n".join(lines))


@app.command(cls=WeftCommand)
def log(
    context: typer.Context,
    run_id: RunId,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Print what comes until the end.")] = False,
    attempt: Annotated[
        int | None,
        typer.Option(metavar="N", parser=whole("--attempt", 1, 1_000_000), help="Which attempt; default: the last."),
    ] = None,
    raw: Annotated[
        bool, typer.Option(help="Print the bytes as they are, with colours and control characters.")
    ] = False,
    level: Annotated[
        str | None, typer.Option(metavar="LEVEL", help="Records of this level and above: WARNING, ERROR, …")
    ] = None,
    grep: Annotated[str | None, typer.Option(metavar="PATTERN", help="Records with this regular expression.")] = None,
    tail: Annotated[
        int | None, typer.Option(metavar="N", parser=whole("--tail", 1, 100_000), help="The last so many records.")
    ] = None,
    errors: Annotated[bool, typer.Option("--errors", help="The errors, identical ones as one.")] = False,
) -> None:
    """Print the log of a run, or the records of it that match."""

    asked = log_query(level, grep, tail)
    _check_log_options(follow=follow, attempt=attempt, picky=raw and bool(level or grep or tail), late=errors or tail)
    as_document = options_of(context).json

    async def read(weft: App) -> Any:
        from weft.cli.follow import LogFollower, ending_lines, until_ended

        if follow and not as_document:
            run = await LogFollower(weft, run_id, raw=raw, chosen=record_filter(asked)).to_the_end()
            return note_all(await ending_lines(weft, run))
        run = (await until_ended(weft, [run_id], None, tell_end=False))[0] if follow else await weft.runs.get(run_id)
        number = _attempt(run, attempt)
        told = {"run_id": run_id, "attempt": attempt or run.attempt}
        if (late_from := await first_late_byte(weft, run_id, told["attempt"])) is not None:
            told |= {"late_from": late_from}
            note(f"from byte {late_from} on this log came late: its worker had been given up as lost")
        if errors:
            groups = await error_groups(weft, run_id, number)
            return print(as_json(told | {"errors": groups}) if as_document else groups_text(groups))
        if as_document and (level or grep or tail):
            return print(as_json(told | {"records": await matching_records(weft, run_id, number, asked)}))
        if as_document:
            log = (await weft.runs.log(run_id, number)).decode("utf-8", "replace")
            return print(as_json(told | {"log": log}))
        if raw:
            return sys.stdout.buffer.write(await weft.runs.log(run_id, number))
        return await print_records(weft, run_id, number, asked)

    ask(context, read)


def _check_log_options(*, follow: bool, attempt: int | None, picky: bool, late: object) -> None:
    if follow and attempt is not None:
        raise Invalid("--attempt", attempt, "it cannot be followed; leave one of --follow and --attempt out")
    if follow and late:
        raise Invalid("--follow", True, "a log that grows has no end yet; leave out --tail and --errors")
    if picky:
        raise Invalid("--raw", True, "bytes are not searched; leave out --level, --grep and --tail")


@app.command(cls=WeftCommand)
def wait(
    context: typer.Context,
    run_ids: RunIds,
    wait_timeout: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", parser=number("--wait-timeout", 0, 1e9), help="Wait no longer than this."),
    ] = None,
) -> None:
    """Wait until runs have ended; exit 0 if all succeeded, 1 otherwise."""
    from weft.cli.follow import all_succeeded, exit_unless, note_unfinished, until_ended
    from weft.operations.runs import run_document

    found = ask(context, lambda weft: until_ended(weft, run_ids, wait_timeout))
    note_unfinished(found, wait_timeout)
    answer(context, [run_document(run) for run in found], lambda: runs_table(found))
    exit_unless(all_succeeded(found))


app.command(cls=WeftCommand)(submit)


def _attempt(run: Run, wanted: int | None) -> int | None:
    if wanted is not None and wanted > run.attempt:
        raise Invalid("--attempt", wanted, f"run {run.id} has had {run.attempt} attempts")
    return wanted


def _filter(context: Any, state: str | None, task: str | None) -> dict[str, Any]:
    where: dict[str, Any] = {}
    if state is not None:
        if state not in STATES:
            raise Invalid("--state", state, f"it must be one of {', '.join(STATES)}")
        where["state"] = state
    project = options_of(context).project
    if task is not None:
        project, where["task"] = full_name(context, task)
    return where | ({"project": project} if project else {})
