"""``weft runs``: what was done, is being done and waits."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from weft.cli.options import Command, Group, number, options_of, whole
from weft.cli.output import answer, as_json, note_all
from weft.cli.session import ask, full_name, look
from weft.cli.submit import submit
from weft.errors import Invalid

if TYPE_CHECKING:
    from weft.app import App
    from weft.items.model import AttemptStats
    from weft.roots import Roots
    from weft.runs.model import Attempt, Run

app = typer.Typer(cls=Group, no_args_is_help=True, add_completion=False, help="What was done, is being done and waits.")

STATES = ("queued", "running", "succeeded", "failed", "cancelled")
LARGEST_ID = 2**63 - 1

run_number = whole("the number of a run", 1, LARGEST_ID)

RunId = Annotated[int, typer.Argument(metavar="ID", parser=run_number, help="The number of a run.")]
RunIds = Annotated[list[int], typer.Argument(metavar="ID...", parser=run_number, help="The numbers of runs.")]


@app.command("list", cls=Command)
def list_(
    context: typer.Context,
    state: Annotated[str | None, typer.Option(metavar="STATE", help=f"Only these: {', '.join(STATES)}.")] = None,
    task: Annotated[str | None, typer.Option(metavar="NAME", help="Only those of this task.")] = None,
    limit: Annotated[int, typer.Option(metavar="N", parser=whole("--limit", 1, 10_000), help="How many at most.")] = 50,
    before: Annotated[
        int | None, typer.Option(metavar="ID", parser=run_number, help="Only older ones than this run.")
    ] = None,
) -> None:
    """List runs, newest first."""
    where = _filter(context, state, task)
    found = look(context, lambda weft: weft.runs.find(where, before=before, limit=limit))
    from weft.cli.run_text import runs_table
    from weft.documents.runs import run_document

    answer(context, [run_document(run) for run in found], lambda: runs_table(found))


@app.command(cls=Command)
def show(context: typer.Context, run_id: RunId) -> None:
    """Show one run: how it stands, what it was given, what it has brought, and each attempt."""

    async def read(weft: Roots) -> tuple[Run, list[Attempt], list[AttemptStats]]:
        run = await weft.runs.get(run_id)
        return run, await weft.runs.attempts(run_id), await _stats(weft, run)

    run, attempts, told = look(context, read)
    from weft.cli.crawl_text import crawl_fields
    from weft.cli.run_text import run_text
    from weft.documents.runs import run_document

    answer(context, run_document(run, attempts), lambda: run_text(run, attempts, crawl_fields(run, told)))


async def _stats(weft: Roots, run: Run) -> list[AttemptStats]:
    """What a crawl has yielded; of the roots, which know nothing of items, through a door of its own."""
    from weft.items.items import Items

    if run.kind != "spider":
        return []
    door: Items = getattr(weft, "items", None) or Items(weft.db)
    return await door.stats(run.id)


@app.command(cls=Command)
def pause(context: typer.Context, run_ids: RunIds) -> None:
    """Pause resumable runs: a waiting one at once, a running one by asking its worker to stop it where it is."""
    found = ask(context, lambda weft: _each(weft.pauses.pause, run_ids), changes=True)
    _tell(context, found, {"running": "is asked to pause", "queued": "is paused"})


@app.command(cls=Command)
def resume(context: typer.Context, run_ids: RunIds) -> None:
    """Let paused runs go on."""
    found = ask(context, lambda weft: _each(weft.pauses.resume, run_ids), changes=True)
    _tell(context, found, {"running": "goes on", "queued": "waits for a worker"})


async def _each(act: Callable[[int], Awaitable[Run]], run_ids: Sequence[int]) -> list[Run]:
    return [await act(run_id) for run_id in run_ids]


def _tell(context: typer.Context, found: Sequence[Run], words: Mapping[str, str]) -> None:
    from weft.documents.runs import run_document

    lines = [f"run {run.id} {words.get(run.state, run.state)}" for run in found]
    answer(context, [run_document(run) for run in found], lambda: "\n".join(lines))


@app.command(cls=Command)
def cancel(context: typer.Context, run_ids: RunIds) -> None:
    """Cancel runs: a waiting one at once, a running one by asking its worker to stop it."""

    async def cancel_each(weft: App) -> list[Run]:
        for run_id in run_ids:
            await weft.runs.get(run_id)
        return [await weft.runs.cancel(run_id) for run_id in run_ids]

    found = ask(context, cancel_each, changes=True)
    _tell(context, found, {"running": "is asked to stop", "cancelled": "is cancelled"})


@app.command(cls=Command)
def again(context: typer.Context, run_ids: RunIds) -> None:
    """Queue ended runs once more, each as a new run with the spec that it had."""

    async def queue_each(weft: App) -> list[int]:
        return [(await weft.runs.again(run_id)).run_id for run_id in run_ids]

    found = ask(context, queue_each, changes=True)
    lines = [f"run {new} is queued for run {old}" for old, new in zip(run_ids, found, strict=True)]
    answer(context, [{"run_id": new} for new in found], lambda: "\n".join(lines))


@app.command(cls=Command)
def log(
    context: typer.Context,
    run_id: RunId,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the run has ended.")] = False,
    attempt: Annotated[
        int | None, typer.Option(metavar="N", parser=whole("--attempt", 1, 1_000_000), help="Not the newest attempt.")
    ] = None,
    raw: Annotated[
        bool, typer.Option(help="Print the bytes as they are, with colours and control characters.")
    ] = False,
    level: Annotated[
        str | None, typer.Option(metavar="LEVEL", help="Records of this level and graver ones: WARNING, ERROR, …")
    ] = None,
    grep: Annotated[str | None, typer.Option(metavar="PATTERN", help="Records with this regular expression.")] = None,
    tail: Annotated[
        int | None, typer.Option(metavar="N", parser=whole("--tail", 1, 100_000), help="The last so many records.")
    ] = None,
    errors: Annotated[bool, typer.Option("--errors", help="The errors, identical ones as one.")] = False,
) -> None:
    """Print what a run has printed, or those records of it that are asked for."""
    from weft.cli import log_reading

    asked = log_reading.query(level, grep, tail)
    _check_log_options(follow=follow, attempt=attempt, picky=raw and bool(level or grep or tail), late=errors or tail)
    as_document = options_of(context).json

    async def read(weft: App) -> Any:
        from weft.cli.crawl_text import ending_lines
        from weft.cli.follow import LogFollower, until_ended

        if follow and not as_document:
            run = await LogFollower(weft, run_id, raw=raw, chosen=log_reading.chooser(asked)).to_the_end()
            return note_all(await ending_lines(weft, run))
        run = (await until_ended(weft, [run_id], None))[0] if follow else await weft.runs.get(run_id)
        number = _attempt(run, attempt)
        told = {"run_id": run_id, "attempt": attempt or run.attempt}
        if errors:
            groups = await log_reading.error_groups(weft, run_id, number)
            return print(as_json(told | {"errors": groups}) if as_document else log_reading.groups_text(groups))
        if as_document and (level or grep or tail):
            return print(as_json(told | {"records": await log_reading.records(weft, run_id, number, asked)}))
        if as_document:
            log = (await weft.runs.log(run_id, number)).decode("utf-8", "replace")
            return print(as_json(told | {"log": log}))
        if raw:
            return sys.stdout.buffer.write(await weft.runs.log(run_id, number))
        return await log_reading.print_records(weft, run_id, number, asked)

    ask(context, read)


def _check_log_options(*, follow: bool, attempt: int | None, picky: bool, late: object) -> None:
    if follow and attempt is not None:
        raise Invalid("--attempt", attempt, "it cannot be followed; leave one of --follow and --attempt out")
    if follow and late:
        raise Invalid("--follow", True, "a log that grows has no end yet; leave out --tail and --errors")
    if picky:
        raise Invalid("--raw", True, "bytes are not searched; leave out --level, --grep and --tail")


@app.command(cls=Command)
def wait(
    context: typer.Context,
    run_ids: RunIds,
    timeout: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", parser=number("--timeout", 0, 1e9), help="Give up after so long."),
    ] = None,
) -> None:
    """Wait until runs have ended; exit 0 if all succeeded, 1 otherwise."""
    from weft.cli.follow import all_succeeded, exit_unless, tell_unfinished, until_ended
    from weft.cli.run_text import runs_table
    from weft.documents.runs import run_document

    found = ask(context, lambda weft: until_ended(weft, run_ids, timeout))
    tell_unfinished(found, timeout)
    answer(context, [run_document(run) for run in found], lambda: runs_table(found))
    exit_unless(all_succeeded(found))


app.command(cls=Command)(submit)


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
