"""``weft webhooks``: addresses that are told what happens."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from weft.cli.options import WeftCommand, WeftGroup, options_of, whole
from weft.cli.output import ago, answer, none_of, table
from weft.cli.session import ask
from weft.clock import iso

if TYPE_CHECKING:
    from weft.webhooks.model import Webhook, WebhookDelivery

app = typer.Typer(
    cls=WeftGroup, no_args_is_help=True, add_completion=False, help="Manage webhooks and their deliveries."
)

Id = Annotated[int, typer.Argument(metavar="ID", min=1, help="The number of a webhook.")]
Events = Annotated[
    str | None,
    typer.Option("--events", metavar="NAMES", help="Which kinds of events, separated by commas; '' for all."),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
HEADINGS = ("ID", "PROJECT", "URL", "KINDS", "STATE", "MADE", "BY")
DELIVERY_HEADINGS = ("ID", "EVENT", "KIND", "RUN", "STATE", "TRIES", "STATUS", "MADE", "PROBLEM")
ALL = "*"


@app.command("list", cls=WeftCommand)
def list_(context: typer.Context) -> None:
    """List webhooks of --project, or of all projects."""
    project = options_of(context).project
    found = ask(context, lambda weft: weft.webhooks.find(None if project is None else {project}))
    empty = none_of("webhooks", [project], "there is no webhook; `weft webhooks add URL` makes one")
    answer(context, [_document(each) for each in found], lambda: table(HEADINGS, map(_row, found), empty=empty))


@app.command(cls=WeftCommand)
def add(
    context: typer.Context,
    url: Annotated[str, typer.Argument(metavar="URL", help="Where events are posted to.")],
    events: Events = None,
) -> None:
    """Add a webhook: events are posted to a URL from now on. The signing secret is shown only once."""
    from weft.cli.auditing import local_user

    project, by = options_of(context).project or ALL, f"local:{local_user()}"
    made, secret = ask(
        context, lambda weft: weft.webhooks.create(url, by=by, project=project, kinds=_split(events)), changes=True
    )
    told = f"webhook {made.id} is made; receivers check signatures with its secret, which is shown this once:"
    answer(context, _document(made) | {"secret": secret}, lambda: f"{told}\n\n    {secret}\n")


@app.command(cls=WeftCommand)
def change(
    context: typer.Context,
    webhook: Id,
    url: Annotated[str | None, typer.Option("--url", metavar="URL", help="Where events are posted to.")] = None,
    events: Events = None,
    active: Annotated[bool | None, typer.Option("--active/--paused", help="Activate or pause the webhook.")] = None,
) -> None:
    """Change, pause or activate a webhook. A paused one never receives the events of that time."""
    chosen = None if events is None else _split(events)
    changed = ask(
        context, lambda weft: weft.webhooks.change(webhook, url=url, kinds=chosen, active=active), changes=True
    )
    answer(context, _document(changed), lambda: f"webhook {webhook} is changed")


@app.command(cls=WeftCommand)
def remove(context: typer.Context, webhook: Id, yes: Yes = False) -> None:
    """Remove a webhook and its deliveries."""
    from weft.cli.output import confirm

    confirm(context, f"remove webhook {webhook} and the log of its deliveries?", yes=yes)
    ask(context, lambda weft: weft.webhooks.remove(webhook), changes=True)
    answer(context, {"id": webhook}, lambda: f"webhook {webhook} is removed")


@app.command(cls=WeftCommand)
def deliveries(
    context: typer.Context,
    webhook: Id,
    limit: Annotated[int, typer.Option(metavar="N", parser=whole("--limit", 1, 500), help="How many at most.")] = 50,
) -> None:
    """List the deliveries of a webhook and their results, newest first."""

    async def found(weft: Any) -> list[WebhookDelivery]:
        await weft.webhooks.get(webhook)
        return list(await weft.webhooks.deliveries(webhook, limit=limit))

    sent = ask(context, found)
    rows = map(_delivery_row, sent)
    answer(
        context,
        [_delivery_document(each) for each in sent],
        lambda: table(DELIVERY_HEADINGS, rows, empty=f"webhook {webhook} was told nothing yet"),
    )


@app.command(cls=WeftCommand)
def replay(
    context: typer.Context,
    webhook: Id,
    delivery: Annotated[int, typer.Argument(metavar="DELIVERY", min=1, help="The number of a delivery.")],
) -> None:
    """Send a delivery again, whatever its result was."""
    again = ask(context, lambda weft: weft.webhooks.replay(webhook, delivery), changes=True)
    answer(context, _delivery_document(again), lambda: f"delivery {delivery} of webhook {webhook} is sent again")


def _split(kinds: str | None) -> list[str]:
    return [kind.strip() for kind in (kinds or "").split(",") if kind.strip()]


def _row(webhook: Webhook) -> tuple[object, ...]:
    state, kinds = "active" if webhook.active else "paused", ",".join(webhook.kinds) or "all"
    made = ago(webhook.created_at)
    return (webhook.id, webhook.project, webhook.url, kinds, state, made, webhook.created_by)


def _delivery_row(each: WebhookDelivery) -> tuple[object, ...]:
    event = (each.id, each.event_id, each.kind, each.run_id)
    return (*event, each.state, each.tries, each.status, ago(each.created_at), each.problem)


def _document(webhook: Webhook) -> dict[str, Any]:
    return asdict(webhook) | {"created_at": iso(webhook.created_at)}


def _delivery_document(each: WebhookDelivery) -> dict[str, Any]:
    moments = {name: iso(getattr(each, name)) for name in ("created_at", "finished_at", "next_at")}
    return asdict(each) | moments
