"""``weft webhooks``: addresses that are told what happens."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from weft.cli.options import Command, Group, options_of
from weft.cli.output import ago, answer, table
from weft.cli.session import ask
from weft.clock import iso

if TYPE_CHECKING:
    from weft.webhooks.model import Delivery, Webhook

app = typer.Typer(cls=Group, no_args_is_help=True, add_completion=False, help="Addresses that are told what happens.")

Id = Annotated[int, typer.Argument(metavar="ID", min=1, help="The number of a webhook.")]
Kinds = Annotated[
    str | None,
    typer.Option("--kinds", metavar="NAMES", help="Which kinds of events, separated by commas; '' for all."),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
HEADINGS = ("ID", "PROJECT", "URL", "KINDS", "STATE", "MADE", "BY")
DELIVERY_HEADINGS = ("ID", "EVENT", "KIND", "RUN", "STATE", "TRIES", "STATUS", "MADE", "PROBLEM")
ALL = "*"


@app.command("list", cls=Command)
def list_(context: typer.Context) -> None:
    """List webhooks: of the project that is named with --project, or of all."""
    project = options_of(context).project
    found = ask(context, lambda weft: weft.webhooks.find(None if project is None else {project}))
    empty = "there is no webhook; `weft webhooks add URL` makes one"
    answer(context, [_document(each) for each in found], lambda: table(HEADINGS, map(_row, found), empty=empty))


@app.command(cls=Command)
def add(
    context: typer.Context,
    url: Annotated[str, typer.Argument(metavar="URL", help="Where events are posted to.")],
    kinds: Kinds = None,
) -> None:
    """Tell an address what happens from now on. The secret that signs it is shown once."""
    from weft.cli.noting import user

    project, by = options_of(context).project or ALL, f"local:{user()}"
    made, secret = ask(
        context, lambda weft: weft.webhooks.create(url, by=by, project=project, kinds=_split(kinds)), changes=True
    )
    told = f"webhook {made.id} is made; receivers check signatures with its secret, which is shown this once:"
    answer(context, _document(made) | {"secret": secret}, lambda: f"{told}\n\n    {secret}\n")


@app.command(cls=Command)
def change(
    context: typer.Context,
    webhook: Id,
    url: Annotated[str | None, typer.Option("--url", metavar="URL", help="Where events are posted to.")] = None,
    kinds: Kinds = None,
    active: Annotated[bool | None, typer.Option("--active/--paused", help="Whether it is told anything.")] = None,
) -> None:
    """Change a webhook. One that is paused is told nothing of what happens meanwhile."""
    chosen = None if kinds is None else _split(kinds)
    changed = ask(
        context, lambda weft: weft.webhooks.change(webhook, url=url, kinds=chosen, active=active), changes=True
    )
    answer(context, _document(changed), lambda: f"webhook {webhook} is changed")


@app.command(cls=Command)
def remove(context: typer.Context, webhook: Id, yes: Yes = False) -> None:
    """Tell an address nothing more, and forget what it was told."""
    from weft.cli.changes import confirm

    confirm(context, f"remove webhook {webhook} and the log of its deliveries?", yes=yes)
    ask(context, lambda weft: weft.webhooks.remove(webhook), changes=True)
    answer(context, {"id": webhook}, lambda: f"webhook {webhook} is removed")


@app.command(cls=Command)
def deliveries(
    context: typer.Context,
    webhook: Id,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=500, help="How many.")] = 50,
) -> None:
    """List what a webhook was sent and how that went, newest first."""

    async def found(weft: Any) -> list[Delivery]:
        await weft.webhooks.get(webhook)
        return list(await weft.webhooks.deliveries(webhook, limit=limit))

    sent = ask(context, found)
    rows = map(_delivery_row, sent)
    answer(
        context,
        [_delivery_document(each) for each in sent],
        lambda: table(DELIVERY_HEADINGS, rows, empty=f"webhook {webhook} was told nothing yet"),
    )


@app.command(cls=Command)
def replay(
    context: typer.Context,
    webhook: Id,
    delivery: Annotated[int, typer.Argument(metavar="DELIVERY", min=1, help="The number of a delivery.")],
) -> None:
    """Send something again, however it went before."""
    again = ask(context, lambda weft: weft.webhooks.replay(webhook, delivery), changes=True)
    answer(context, _delivery_document(again), lambda: f"delivery {delivery} of webhook {webhook} is sent again")


def _split(kinds: str | None) -> list[str]:
    return [kind.strip() for kind in (kinds or "").split(",") if kind.strip()]


def _row(webhook: Webhook) -> tuple[object, ...]:
    state, kinds = "active" if webhook.active else "paused", ",".join(webhook.kinds) or "all"
    made = ago(webhook.created_at)
    return (webhook.id, webhook.project, webhook.url, kinds, state, made, webhook.created_by)


def _delivery_row(each: Delivery) -> tuple[object, ...]:
    event = (each.id, each.event_id, each.kind, each.run_id)
    return (*event, each.state, each.tries, each.status, ago(each.created_at), each.problem)


def _document(webhook: Webhook) -> dict[str, Any]:
    return asdict(webhook) | {"created_at": iso(webhook.created_at)}


def _delivery_document(each: Delivery) -> dict[str, Any]:
    moments = {name: iso(getattr(each, name)) for name in ("created_at", "finished_at", "next_at")}
    return asdict(each) | moments
