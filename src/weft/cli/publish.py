"""``weft submit``: orders into a message queue, as other systems put them there."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

import typer

from weft.cli.options import number, options_of, whole
from weft.cli.output import answer
from weft.cli.run import pairs
from weft.errors import NOT_SHOWN, Invalid

if TYPE_CHECKING:
    from weft.ports import Message, Outbox, Reply

AT_ONCE = 500
"""Messages that are under way to the server at the same time."""
LISTEN_SECONDS = 1.0

Told = Mapping[str, Any]
"""What weft says of an order."""


def submit(
    context: typer.Context,
    spider: Annotated[str, typer.Option(metavar="NAME", help="The spider; --project names its project.")],
    rabbitmq: Annotated[str, typer.Option(metavar="URL", help="amqp://…/vhost?queue=scraper_tasks")] = "",
    redis: Annotated[str, typer.Option(metavar="URL", help="redis://…?stream=scraper_tasks")] = "",
    arg: Annotated[
        list[str] | None, typer.Option("-a", "--arg", metavar="NAME=VALUE", help="An argument of the spider.")
    ] = None,
    setting: Annotated[
        list[str] | None, typer.Option("-s", "--setting", metavar="NAME=VALUE", help="A setting of Scrapy.")
    ] = None,
    priority: Annotated[
        int, typer.Option(metavar="N", parser=whole("--priority", 0, 1000), help="Higher ones start first; 0 to 1000.")
    ] = 0,
    count: Annotated[int, typer.Option(metavar="N", parser=whole("--count", 1, 100_000), help="How many orders.")] = 1,
    reply: Annotated[bool, typer.Option("--reply", help="Wait for what weft says of each.")] = False,
    timeout: Annotated[
        float, typer.Option(metavar="SECONDS", parser=number("--timeout", 0.1, 86_400), help="How long to wait for it.")
    ] = 60.0,
) -> None:
    """Put orders into a message queue that a weft takes them from, and print the task_id of each."""
    url = _url(rabbitmq, redis)
    order = {"project": options_of(context).project or "default", "spider": spider, "priority": priority}
    order |= {"args": pairs("--arg", arg), "settings": pairs("--setting", setting), "status": "pending"}
    task_ids = [uuid.uuid4().hex for _ in range(count)]
    told = asyncio.run(_published(url, order, task_ids, patience=timeout if reply else 0.0))
    documents = [{"task_id": task_id, **told.get(task_id, {})} for task_id in task_ids]
    answer(context, documents, lambda: "\n".join(_line(each) if reply else each["task_id"] for each in documents))
    if reply and any(each.get("status") != "accepted" for each in documents):
        raise typer.Exit(1)


async def _published(url: str, order: Told, task_ids: Sequence[str], *, patience: float) -> dict[str, Told]:
    """Put an order there for each task_id; return what weft said of each, if that is waited for."""
    from weft.equipment import open_outbox

    outbox = open_outbox(url)
    try:
        reply_to = outbox.reply_to if patience else ""
        for first in range(0, len(task_ids), AT_ONCE):
            await outbox.publish([_message(order, each, reply_to) for each in task_ids[first : first + AT_ONCE]])
        return await _heard(outbox, set(task_ids), patience) if patience else {}
    finally:
        await outbox.close()


def _message(order: Told, task_id: str, reply_to: str) -> Message:
    from msgspec import json

    from weft.ports import Message

    body = json.encode({"task_id": task_id, **order})
    return Message(id=task_id, body=body, reply_to=reply_to, correlation_id=task_id)


async def _heard(outbox: Outbox, awaited: set[str], patience: float) -> dict[str, Told]:
    """The first word on each order: whether it was accepted."""
    told: dict[str, Told] = {}
    end = time.monotonic() + patience
    while (left := end - time.monotonic()) > 0 and awaited - told.keys():
        for reply in await outbox.hear(min(left, LISTEN_SECONDS)):
            if reply.correlation_id in awaited:
                told.setdefault(reply.correlation_id, _status(reply))
    return told


def _status(reply: Reply) -> Told:
    from msgspec import MsgspecError

    from weft.envelope import Envelope
    from weft.errors import WeftError

    with suppress(WeftError, MsgspecError):
        payload = Envelope.decode(reply.body).payload
        return {name: payload[name] for name in ("status", "run_id", "reason", "letter_id") if payload.get(name)}
    return {"status": "unknown"}


def _line(document: Told) -> str:
    status = document.get("status", "unanswered")
    more = {"accepted": f" as run {document.get('run_id')}", "refused": f": {document.get('reason')}"}.get(status, "")
    return f"{document['task_id']}  {status}{more}"


def _url(rabbitmq: str, redis: str) -> str:
    if bool(rabbitmq) == bool(redis):
        given = "both are" if rabbitmq else "none is"
        raise Invalid("the queue", NOT_SHOWN, f"{given} given; one of --rabbitmq and --redis must be given")
    for option, url, schemes in (("--rabbitmq", rabbitmq, ("amqp", "amqps")), ("--redis", redis, ("redis", "rediss"))):
        if url and url.partition(":")[0] not in schemes:
            raise Invalid(
                option, url.partition("://")[0], f"its URL must begin with {schemes[0]}:// or {schemes[1]}://"
            )
    return rabbitmq or redis
