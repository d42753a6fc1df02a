"""``weft tasks``: what to do and when."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from weft.cli.names import task_names
from weft.cli.options import Command, Group, options_of
from weft.cli.output import answer
from weft.cli.session import ask, full_name
from weft.cli.submit import Follow, Key, Priority, Wait, queue_and_stay
from weft.errors import Conflict, Invalid

if TYPE_CHECKING:
    from weft.app import App
    from weft.cli.task_text import TaskPage
    from weft.documents.tasks import TaskDocument
    from weft.runs.model import Submitted
    from weft.tasks.changes import Change, Wanted
    from weft.tasks.store import Stored

app = typer.Typer(cls=Group, no_args_is_help=True, add_completion=False, help="What to do and when.")

NEWEST = 5
"""How many ticks and runs ``show`` shows."""

Name = Annotated[
    str, typer.Argument(metavar="NAME", help="A task, or project/task.", autocompletion=task_names, show_default=False)
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


@app.command("list", cls=Command)
def list_(context: typer.Context) -> None:
    """List tasks, what starts them and when they fire next."""
    found = ask(context, lambda weft: weft.tasks.all(options_of(context).project))
    from weft.cli.task_text import tasks_table
    from weft.documents.tasks import task_document

    answer(context, [task_document(stored) for stored in found], lambda: tasks_table(found))


@app.command(cls=Command)
def show(context: typer.Context, name: Name) -> None:
    """Show one task: its definition, its next ticks, its newest ticks and runs."""
    from weft.cli.task_text import TaskPage, task_text

    async def look(weft: App) -> TaskPage:
        stored = await weft.tasks.get(*full_name(context, name))
        ticks = await weft.tasks.ticks(stored, NEWEST)
        runs = await weft.runs.find({"project": stored.task.project, "task": stored.task.name}, limit=NEWEST)
        return TaskPage(stored=stored, ticks=ticks, runs=runs)

    page = ask(context, look)
    answer(context, _page_document(page), lambda: task_text(page))


@app.command(cls=Command)
def apply(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Tasks in TOML or YAML.")],
    prune: Annotated[bool, typer.Option("--prune", help="Delete tasks of its projects that it does not name.")] = False,
    yes: Yes = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the difference and change nothing.")] = False,
) -> None:
    """Make the tasks as a file says: show the difference, ask, and change all of it or nothing."""
    from weft.cli.changes import changes_text, confirm, summary, tell
    from weft.documents.tasks import change_document
    from weft.tasks import taskfile

    wanted = taskfile.read(file)

    async def make_so(weft: App) -> tuple[list[Change], bool]:
        changes = await weft.tasks.rehearse(wanted, prune=prune)
        tell(context, changes_text(changes))
        if dry_run or not changes:
            return changes, False
        confirm(context, "make these changes?", yes=yes)
        return await weft.tasks.apply(wanted, prune=prune), True

    changes, applied = ask(context, make_so, create=True, changes=not dry_run)
    document = {"applied": applied, "changes": [change_document(change) for change in changes]}
    answer(context, document, lambda: summary(changes, done=applied))


@app.command(cls=Command)
def run(
    context: typer.Context,
    name: Name,
    param: Annotated[
        list[str] | None, typer.Option("--param", "-p", metavar="NAME=VALUE", help="A parameter; may be repeated.")
    ] = None,
    key: Key = None,
    priority: Priority = None,
    wait: Wait = False,
    follow: Follow = False,
) -> None:
    """Queue a run of a task now."""
    given = dict(_pair(text) for text in param or ())
    fields: dict[str, Any] = {"idempotency_key": key} | ({} if priority is None else {"priority": priority})

    async def queue(weft: App) -> Submitted:
        from weft.tasks.parameters import from_text

        stored = await weft.tasks.get(*full_name(context, name))
        values = {each: from_text(text, stored.task.params.get(each)) for each, text in given.items()}
        return await weft.tasks.start(*full_name(context, name), values, **fields)

    queue_and_stay(context, queue, wait=wait, follow=follow)


@app.command(cls=Command)
def pause(context: typer.Context, name: Name) -> None:
    """Stop a task's schedule, and what would follow from other tasks."""
    _tell_stored(context, _set_paused(context, name, True), "is paused")


@app.command(cls=Command)
def resume(context: typer.Context, name: Name) -> None:
    """Let a paused task go on from now."""
    _tell_stored(context, _set_paused(context, name, False), "goes on")


@app.command(cls=Command)
def delete(context: typer.Context, name: Name, yes: Yes = False) -> None:
    """Delete a task. Its runs stay."""
    from weft.cli.changes import confirm
    from weft.documents.tasks import task_document

    project, task = full_name(context, name)

    async def remove(weft: App) -> Stored:
        stored = await weft.tasks.get(project, task)
        confirm(context, f"delete task {project}/{task}?", yes=yes)
        await weft.tasks.delete(project, task, seen=(stored.revision,))
        return stored

    stored = ask(context, remove, changes=True)
    answer(context, task_document(stored), lambda: f"task {project}/{task} is deleted")


@app.command("next", cls=Command)
def next_(context: typer.Context, name: Name) -> None:
    """Say in words when a task fires, and its next ten times."""
    stored = ask(context, lambda weft: weft.tasks.get(*full_name(context, name)))
    schedule = stored.task.schedule
    if schedule is None:
        raise Conflict(f"task {stored.task.full_name} has no schedule, so it has no next time")
    from weft.cli.task_text import fires, fires_table
    from weft.clock import iso
    from weft.tasks.words import sentence

    moments = [] if stored.task.paused else fires(schedule)
    document = {"task": stored.task.full_name, "sentence": sentence(schedule), "zone": schedule.zone}
    document |= {"paused": stored.task.paused, "next": [iso(at) for at in moments]}  # type: ignore[dict-item]
    told = "it is paused" if stored.task.paused else fires_table(schedule, moments)
    answer(context, document, lambda: f"{sentence(schedule)}\n\n{told}")


@app.command(cls=Command)
def backfill(
    context: typer.Context,
    name: Name,
    start: Annotated[str, typer.Option("--from", metavar="DATE", help="The first moment, in ISO 8601.")],
    end: Annotated[str, typer.Option("--to", metavar="DATE", help="The moment after the last, not in the future.")],
) -> None:
    """Queue a run for each tick of a past window that has not fired; doing it again adds nothing."""
    from weft.tasks.when import moment_of

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


@app.command(cls=Command)
def export(context: typer.Context) -> None:
    """Print tasks and project settings as a file that apply reads: YAML, or JSON with --json."""
    from weft.documents.task_files import file_content, yaml_text

    wanted: Wanted = ask(context, lambda weft: weft.tasks.wanted(options_of(context).project))
    content = file_content(wanted)
    answer(context, content, lambda: yaml_text(content).rstrip("\n"))


def _set_paused(context: Any, name: str, paused: bool) -> Stored:
    return ask(context, lambda weft: weft.tasks.pause(*full_name(context, name), paused=paused), changes=True)


def _tell_stored(context: Any, stored: Stored, what: str) -> None:
    from weft.documents.tasks import task_document

    answer(context, task_document(stored), lambda: f"task {stored.task.full_name} {what}")


def _pair(text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not sign or not name:
        raise Invalid("--param", text, "it must be NAME=VALUE")
    return name, value


def _page_document(page: TaskPage) -> TaskDocument:
    from weft.clock import now
    from weft.documents.runs import run_document
    from weft.documents.tasks import task_page, tick_document

    return task_page(
        page.stored,
        page.stored.ahead(now()),
        ticks=[tick_document(tick) for tick in page.ticks],
        runs=[run_document(run) for run in page.runs],
    )
