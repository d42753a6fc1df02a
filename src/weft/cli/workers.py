"""``weft workers``: who does it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from weft.cli.options import Command, Group
from weft.cli.output import ago, answer, fields, table
from weft.cli.session import ask

if TYPE_CHECKING:
    from weft.app import App
    from weft.workers.workers import WorkerInfo

app = typer.Typer(cls=Group, no_args_is_help=True, add_completion=False, help="Who does it.")

HEADINGS = ("WORKER", "STATE", "RUNNING", "DONE", "LABELS", "LAST SEEN", "VERSION")


@app.command("list", cls=Command)
def list_(context: typer.Context) -> None:
    """List the workers that are there, and those that left within the last hour."""
    found = ask(context, lambda weft: weft.workers.all())
    from weft.documents.workers import worker_document

    answer(context, [worker_document(worker) for worker in found], lambda: workers_table(found))


@app.command(cls=Command)
def show(
    context: typer.Context, name: Annotated[str, typer.Argument(metavar="NAME", help="The name or id of a worker.")]
) -> None:
    """Show one worker, with the circuit breakers that it holds."""
    worker = ask(context, lambda weft: weft.workers.get(name))
    from weft.documents.workers import worker_document

    answer(context, worker_document(worker), lambda: _worker_text(worker))


@app.command(cls=Command)
def drain(
    context: typer.Context, name: Annotated[str, typer.Argument(metavar="NAME", help="The name or id of a worker.")]
) -> None:
    """Ask a worker to lease nothing more, to finish its runs, and to leave; it hears of it within seconds."""

    async def work(weft: App) -> WorkerInfo:
        return await weft.workers.drain((await weft.workers.get(name)).id)

    worker = ask(context, work, changes=True)
    from weft.documents.workers import worker_document

    sentence = f"worker {worker.name} leaves once its runs have ended ({worker.running} now)"
    answer(context, worker_document(worker), lambda: sentence)


@app.command(cls=Command)
def token(
    context: typer.Context,
    name: Annotated[str, typer.Option(help="What the token is called where keys are listed.")] = "join",
    hours: Annotated[float, typer.Option(help="How long it may be used.", min=0.01, max=24 * 365)] = 24.0,
    label: Annotated[
        list[str] | None, typer.Option(metavar="LABEL", help="The worker may claim this label, and no other but those.")
    ] = None,
) -> None:
    """Make a join token: good for one remote worker, once. It is shown here and never again."""
    from weft.clock import iso, now, seconds

    expires_at = now() + seconds(hours * 3600)
    key, secret = ask(
        context,
        lambda weft: weft.keys.create(
            name, {}, by="command line", kind="join", expires_at=expires_at, labels=label or None
        ),
        changes=True,
    )
    answer(context, {"id": key.id, "token": secret, "expires_at": iso(expires_at)}, lambda: secret)


def workers_table(workers: list[WorkerInfo], *, empty: str = "no worker is there; `weft worker` starts one") -> str:
    return table(HEADINGS, (_row(worker) for worker in workers), empty=empty)


def _row(worker: WorkerInfo) -> tuple[object, ...]:
    running = f"{worker.running}/{worker.capacity}"
    return (worker.name, worker.state, running, worker.done, worker.labels, ago(worker.seen_at), worker.version)


def _worker_text(worker: WorkerInfo) -> str:
    from weft.cli.run_text import when

    breakers = [(each.get("target"), each.get("state"), each.get("failures")) for each in _breakers(worker)]
    parts = [
        fields(
            [
                ("worker", worker.name),
                ("id", worker.id),
                ("state", worker.state),
                ("running", f"{worker.running} of {worker.capacity}"),
                ("done", worker.done),
                ("labels", worker.labels),
                ("host", worker.host),
                ("process", worker.pid),
                ("version", worker.version),
                ("started", when(worker.started_at)),
                ("last seen", when(worker.seen_at)),
            ]
        ),
        table(("BREAKER", "STATE", "FAILURES"), breakers),
    ]
    return "\n\n".join(part for part in parts if part)


def _breakers(worker: WorkerInfo) -> list[dict[str, object]]:
    found = worker.stats.get("breakers", [])
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []
