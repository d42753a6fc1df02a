"""``weft runs submit``: a run without a task."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from weft.cli.options import number, options_of, whole, words
from weft.cli.output import answer, note, note_all
from weft.cli.session import ask
from weft.errors import Invalid

if TYPE_CHECKING:
    from weft.app import App
    from weft.runs.model import NewRun, Run, Submitted

Priority = Annotated[
    int | None,
    typer.Option(metavar="N", parser=whole("--priority", -1000, 1000), help="Higher ones start first; -1000 to 1000."),
]
Key = Annotated[
    str | None,
    typer.Option(metavar="KEY", parser=words("--key", 200), help="An idempotency key: used twice, it makes one run."),
]
Wait = Annotated[bool, typer.Option("--wait", help="Wait for the end; exit 1 where the run does not succeed.")]
Follow = Annotated[bool, typer.Option("--follow", "-f", help="Print the log until the end; exit as with --wait.")]


def submit(
    context: typer.Context,
    kind: Annotated[str, typer.Option(metavar="KIND", help="What executes it: shell, http, …")],
    spec: Annotated[str, typer.Option(metavar="JSON", help='What to do: \'{"argv": ["date"]}\'.')],
    name: Annotated[str | None, typer.Option(metavar="NAME", help="What lists call it; the kind unless told.")] = None,
    label: Annotated[list[str] | None, typer.Option(metavar="LABEL", help="A label that its worker must have.")] = None,
    tag: Annotated[list[str] | None, typer.Option(metavar="TAG", help="A tag that limits may count.")] = None,
    priority: Priority = None,
    timeout: Annotated[
        float,
        typer.Option(
            metavar="SECONDS", parser=number("--timeout", 0, 31_536_000), help="Stop it after so long; 0 for never."
        ),
    ] = 0.0,
    retries: Annotated[
        int, typer.Option(metavar="N", parser=whole("--retries", 0, 1000), help="How often it is tried again.")
    ] = 0,
    key: Key = None,
    wait: Wait = False,
    follow: Follow = False,
) -> None:
    """Queue a run that belongs to no task."""
    definition: dict[str, Any] = {
        "name": kind if name is None else name,
        "kind": kind,
        "spec": read_object("--spec", spec),
    }
    definition |= {"project": options_of(context).project or "default", "priority": priority or 0}
    definition |= {"labels": label or [], "tags": tag or [], "timeout_seconds": timeout, "retry": {"count": retries}}

    async def queue(weft: App) -> Submitted:
        return (await weft.runs.submit([new_run(definition, key)]))[0]

    queue_and_stay(context, queue, wait=wait, follow=follow)


def queue_and_stay(context: Any, queue: Any, *, wait: bool, follow: bool) -> None:
    """Queue a run, tell its number, and see it to its end where that was asked for."""
    from weft.cli.crawl_text import ending_lines
    from weft.cli.follow import all_succeeded, exit_unless, stay, submitted_text
    from weft.documents.runs import run_document

    as_document = options_of(context).json

    async def work(weft: App) -> tuple[Submitted, Run | None, list[str]]:
        submitted = await queue(weft)
        if wait or follow:
            await weft.bell.flush()
        if follow and not as_document:
            note(submitted_text(submitted, None))
        run = await stay(weft, submitted.run_id, wait=wait, follow=follow, quiet=as_document)
        return submitted, run, [] if run is None or as_document else await ending_lines(weft, run)

    submitted, run, brought = ask(context, work, create=True, changes=True)
    document: dict[str, Any] = {"run_id": submitted.run_id, "fresh": submitted.fresh, "why": submitted.why}
    if run is not None:
        document["run"] = run_document(run)
    if follow and run is not None and not as_document:
        note(submitted_text(submitted, run))
    else:
        answer(context, document, lambda: submitted_text(submitted, run))
    note_all(brought)
    exit_unless(run is None or all_succeeded([run]))


def read_object(what: str, text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as problem:
        raise Invalid(what, text, f"it must be a JSON object ({problem})") from problem
    if not isinstance(value, dict):
        raise Invalid(what, text, "it must be a JSON object")
    return value


def new_run(definition: dict[str, Any], key: str | None) -> NewRun:
    """The run as a task of this definition would make it, checked by its executor."""
    from msgspec.structs import replace

    from weft.equipment import check_spec
    from weft.runs.model import Trigger
    from weft.tasks import taskfile

    task = taskfile.task(definition, "the run")
    check_spec(task.kind, task.spec)
    return replace(task.new_run(0, Trigger.MANUAL, idempotency_key=key), task_id=None)
