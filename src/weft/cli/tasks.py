"""``weft tasks``: list, show, apply, run and delete tasks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from weft.cli.options import WeftCommand, WeftGroup, options_of
from weft.cli.output import answer
from weft.cli.session import ask, full_name
from weft.cli.submit import Follow, IdempotencyKey, Priority, Wait, queue_and_stay, warn_of_secrets
from weft.errors import Conflict, Invalid, WeftError

if TYPE_CHECKING:
    from weft.app import App
    from weft.cli.task_text import TaskDetails
    from weft.operations.tasks import TaskDocument
    from weft.runs.model import Submitted
    from weft.tasks.changes import DesiredState, TaskChange
    from weft.tasks.store import StoredTask


def task_names(ctx: Any, incomplete: str) -> list[str]:
    """The tasks whose name begins so; none where weft cannot be asked, for nobody would see why."""
    from weft.cli.options import options_of
    from weft.cli.session import ask

    project = options_of(ctx).project
    try:
        found = ask(ctx, lambda weft: weft.tasks.all(project), quiet=True)
    except (WeftError, OSError):
        return []
    names = [each.task.name for each in found if each.task.project == (project or "default")]
    names += [each.task.full_name for each in found if project is None]
    return [name for name in names if name.startswith(incomplete)]


app = typer.Typer(cls=WeftGroup, no_args_is_help=True, add_completion=False, help="Manage tasks and their schedules.")

NEWEST = 5
"""How many ticks and runs ``show`` shows."""

Name = Annotated[
    str, typer.Argument(metavar="NAME", help="A task, or project/task.", autocompletion=task_names, show_default=False)
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


@app.command("list", cls=WeftCommand)
def list_(context: typer.Context) -> None:
    """List tasks, their triggers and next start times."""
    project = options_of(context).project
    found = ask(context, lambda weft: weft.tasks.all(project))
    from weft.cli.task_text import tasks_table
    from weft.operations.tasks import task_document

    answer(context, [task_document(stored) for stored in found], lambda: tasks_table(found, project))


@app.command(cls=WeftCommand)
def show(context: typer.Context, name: Name) -> None:
    """Show a task: its definition, next start times, newest start times and runs."""
    from weft.cli.task_text import TaskDetails, task_text

    async def look(weft: App) -> TaskDetails:
        stored = await weft.tasks.get(*full_name(context, name))
        ticks = await weft.tasks.ticks(stored, NEWEST)
        runs = await weft.runs.find({"project": stored.task.project, "task": stored.task.name}, limit=NEWEST)
        return TaskDetails(stored=stored, ticks=ticks, runs=runs)

    page = ask(context, look)
    answer(context, _task_document(page), lambda: task_text(page))


@app.command(cls=WeftCommand)
def apply(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Tasks in TOML or YAML.")],
    prune: Annotated[bool, typer.Option("--prune", help="Delete tasks of its projects that it does not name.")] = False,
    yes: Yes = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would change, and change nothing.")] = False,
) -> None:
    """Apply a task file: show the difference, ask, and change all of it or nothing."""
    from weft.cli.output import changes_text, confirm, show_changes, summary
    from weft.operations.tasks import change_document
    from weft.tasks import taskfile

    wanted = taskfile.load(file)
    warn_of_secrets(*(part for task in wanted.tasks for part in (task.spec, task.params)))

    async def make_so(weft: App) -> tuple[list[TaskChange], bool]:
        changes = await weft.tasks.rehearse(wanted, prune=prune)
        show_changes(context, changes_text(changes))
        if dry_run or not changes:
            return changes, False
        confirm(context, "make these changes?", yes=yes)
        return await weft.tasks.apply(wanted, prune=prune), True

    changes, applied = ask(context, make_so, changes=not dry_run)
    document = {"applied": applied, "changes": [change_document(change) for change in changes]}
    answer(context, document, lambda: summary(changes, done=applied))


@app.command(cls=WeftCommand)
def run(
    context: typer.Context,
    name: Name,
    param: Annotated[
        list[str] | None,
        typer.Option("--param", "-p", metavar="NAME=VALUE", help="A parameter of the task; may be repeated."),
    ] = None,
    idempotency_key: IdempotencyKey = None,
    priority: Priority = None,
    wait: Wait = False,
    follow: Follow = False,
) -> None:
    """Queue a run of a task now."""
    given = dict(_split_parameter(text) for text in param or ())
    warn_of_secrets(given)
    fields: dict[str, Any] = {"idempotency_key": idempotency_key} | ({} if priority is None else {"priority": priority})

    async def queue(weft: App) -> Submitted:
        from weft.tasks.model import from_text

        stored = await weft.tasks.get(*full_name(context, name))
        values = {each: from_text(text, stored.task.params.get(each)) for each, text in given.items()}
        return await weft.tasks.start(*full_name(context, name), values, **fields)

    queue_and_stay(context, queue, wait=wait, follow=follow)


@app.command(cls=WeftCommand)
def pause(context: typer.Context, name: Name) -> None:
    """Pause a task: neither its schedule nor its upstream tasks start it."""
    _report_stored(context, _set_paused(context, name, True), "is paused")


@app.command(cls=WeftCommand)
def resume(context: typer.Context, name: Name) -> None:
    """Resume a paused task from now on."""
    _report_stored(context, _set_paused(context, name, False), "goes on")


@app.command(cls=WeftCommand)
def delete(context: typer.Context, name: Name, yes: Yes = False) -> None:
    """Delete a task; its runs stay."""
    from weft.cli.output import confirm
    from weft.operations.tasks import task_document

    project, task = full_name(context, name)

    async def remove(weft: App) -> StoredTask:
        stored = await weft.tasks.get(project, task)
        confirm(context, f"delete task {project}/{task}?", yes=yes)
        await weft.tasks.delete(project, task, seen=(stored.revision,))
        return stored

    stored = ask(context, remove, changes=True)
    answer(context, task_document(stored), lambda: f"task {project}/{task} is deleted")


@app.command("next", cls=WeftCommand)
def next_(context: typer.Context, name: Name) -> None:
    """Describe a task's schedule in words and print its next ten start times."""
    stored = ask(context, lambda weft: weft.tasks.get(*full_name(context, name)))
    schedule = stored.task.schedule
    if schedule is None:
        raise Conflict(f"task {stored.task.full_name} has no schedule, so it has no next time")
    from weft.cli.task_text import fires, fires_table
    from weft.clock import iso
    from weft.tasks.model import schedule_text

    moments = [] if stored.task.paused else fires(schedule)
    document = {"task": stored.task.full_name, "sentence": schedule_text(schedule), "zone": schedule.zone}
    document |= {"paused": stored.task.paused, "next": [iso(at) for at in moments]}  # type: ignore[dict-item]
    told = "it is paused" if stored.task.paused else fires_table(schedule, moments)
    answer(context, document, lambda: f"{schedule_text(schedule)}\n\n{told}")


@app.command(cls=WeftCommand)
def backfill(
    context: typer.Context,
    name: Name,
    start: Annotated[str, typer.Option("--from", metavar="DATE", help="The first moment, in ISO 8601.")],
    end: Annotated[str, typer.Option("--to", metavar="DATE", help="The moment after the last, not in the future.")],
) -> None:
    """Queue a run for each missed start time of a past window; repeating it adds nothing."""
    from weft.tasks.schedule import moment_of

    async def fill(weft: App) -> list[int]:
        stored = await weft.tasks.get(*full_name(context, name))
        zone = stored.task.schedule.zone if stored.task.schedule is not None else "UTC"
        window = [_dated(option, text, zone) for option, text in (("--from", start), ("--to", end))]
        if window[0] >= window[1]:
            raise Invalid("--from", start, f"it must be before --to, which is {end}")
        return await weft.tasks.backfill(*full_name(context, name), *window)

    def _dated(option: str, text: str, zone: str) -> int:
        try:
            return moment_of(text, zone)
        except Invalid as problem:
            raise Invalid(option, text, problem.allowed) from problem

    ids = ask(context, fill, changes=True)
    told = f"{len(ids)} runs queued: {ids[0]} to {ids[-1]}" if ids else "nothing to do: every tick has fired"
    answer(context, {"run_ids": ids}, lambda: told)


@app.command(cls=WeftCommand)
def export(context: typer.Context) -> None:
    """Export tasks and project settings as a file for `weft tasks apply`: YAML, or JSON with --json."""
    from weft.operations.tasks import file_content, yaml_text

    wanted: DesiredState = ask(context, lambda weft: weft.tasks.wanted(options_of(context).project))
    content = file_content(wanted)
    answer(context, content, lambda: yaml_text(content).rstrip("\n"))


def _set_paused(context: Any, name: str, paused: bool) -> StoredTask:
    return ask(context, lambda weft: weft.tasks.pause(*full_name(context, name), paused=paused), changes=True)


def _report_stored(context: Any, stored: StoredTask, what: str) -> None:
    from weft.operations.tasks import task_document

    answer(context, task_document(stored), lambda: f"task {stored.task.full_name} {what}")


def _split_parameter(text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not sign or not name:
        raise Invalid("--param", text, "it must be NAME=VALUE")
    return name, value


def _task_document(page: TaskDetails) -> TaskDocument:
    from weft.clock import now
    from weft.operations.runs import run_document
    from weft.operations.tasks import task_page, tick_document

    return task_page(
        page.stored,
        page.stored.ahead(now()),
        ticks=[tick_document(tick) for tick in page.ticks],
        runs=[run_document(run) for run in page.runs],
    )
