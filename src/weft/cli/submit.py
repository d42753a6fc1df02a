"""``weft run``, ``weft runs submit`` and ``weft submit``: start runs, here or through a message queue."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

import typer

from weft.cli.options import number, options_of, whole, words
from weft.cli.output import answer, note, note_all
from weft.cli.session import ask
from weft.errors import NOT_SHOWN, Invalid, NotFound

if TYPE_CHECKING:
    from weft.app import App
    from weft.ports import Message, MessageSink, Reply
    from weft.runs.model import Run, Submitted

Priority = Annotated[
    int | None,
    typer.Option(
        metavar="N", parser=whole("--priority", -1000, 1000), help="Higher priorities start first; -1000 to 1000."
    ),
]
IdempotencyKey = Annotated[
    str | None,
    typer.Option(
        metavar="KEY", parser=words("--idempotency-key", 200), help="A key of your own: used twice, it makes one run."
    ),
]
Wait = Annotated[
    bool,
    typer.Option(
        "--wait/--detach",
        " /-d",
        help="Wait for the end and exit as it ended, or return at once; default: --detach.",
        show_default=False,
    ),
]
Follow = Annotated[
    bool, typer.Option("--follow", "-f", help="Print what comes until the end; the log, and exit as with --wait.")
]
WorkerLabel = Annotated[list[str] | None, typer.Option(metavar="LABEL", help="A label that its worker must have.")]


def submit(
    context: typer.Context,
    kind: Annotated[str, typer.Option(metavar="KIND", help="The executor: shell, http, …")],
    spec: Annotated[str, typer.Option(metavar="JSON", help='What to do: \'{"argv": ["date"]}\'.')],
    name: Annotated[str | None, typer.Option(metavar="NAME", help="Its name; default: the kind.")] = None,
    worker_label: WorkerLabel = None,
    tag: Annotated[list[str] | None, typer.Option(metavar="TAG", help="A tag that limits may count.")] = None,
    priority: Priority = None,
    timeout: Annotated[
        float,
        typer.Option(
            metavar="SECONDS", parser=number("--timeout", 0, 31_536_000), help="Stop it after so long; 0 for never."
        ),
    ] = 0.0,
    retries: Annotated[
        int,
        typer.Option(
            metavar="N", parser=whole("--retries", 0, 1000), help="How many times a failed attempt is retried."
        ),
    ] = 0,
    idempotency_key: IdempotencyKey = None,
    wait: Wait = False,
    follow: Follow = False,
) -> None:
    """Queue a run without a task."""
    definition: dict[str, Any] = {
        "name": kind if name is None else name,
        "kind": kind,
        "spec": read_object("--spec", spec),
    }
    definition |= {"project": options_of(context).project or "default", "priority": priority or 0}
    definition |= {
        "labels": worker_label or [],
        "tags": tag or [],
        "timeout_seconds": timeout,
        "retry": {"count": retries},
    }

    warn_of_secrets(definition["spec"])

    async def queue(weft: App) -> Submitted:
        from weft.tasks.taskfile import task_from

        run = weft.tasks.loose(task_from(definition, "the run"), idempotency_key=idempotency_key)
        return (await weft.runs.submit([run]))[0]

    queue_and_stay(context, queue, wait=wait, follow=follow)


def queue_and_stay(context: Any, queue: Any, *, wait: bool, follow: bool) -> None:
    """Queue a run, tell its number, and see it to its end where that was asked for."""
    from weft.cli.follow import all_succeeded, ending_lines, exit_unless, submitted_text, wait_for_run
    from weft.operations.runs import run_document

    as_document = options_of(context).json

    async def work(weft: App) -> tuple[Submitted, Run | None, list[str]]:
        submitted = await queue(weft)
        if wait or follow:
            await weft.wakeups.flush()
        if follow and not as_document:
            note(submitted_text(submitted, None))
        run = await wait_for_run(weft, submitted.run_id, wait=wait, follow=follow, quiet=as_document)
        return submitted, run, [] if run is None or as_document else await ending_lines(weft, run)

    submitted, run, brought = ask(context, work, changes=True)
    document: dict[str, Any] = {"run_id": submitted.run_id, "fresh": submitted.fresh, "why": submitted.why}
    if run is not None:
        document["run"] = run_document(run)
    if follow and run is not None and not as_document:
        note(submitted_text(submitted, run))
    else:
        answer(context, document, lambda: submitted_text(submitted, run))
    note_all(brought)
    exit_unless(run is None or all_succeeded([run]))


def warn_of_secrets(*given: Mapping[str, Any]) -> None:
    from weft.redaction import warning_of

    if warning := warning_of(*given):
        note(f"warning: {warning}")


def read_object(what: str, text: str) -> dict[str, Any]:
    import msgspec

    from weft import strict_json

    try:
        value = strict_json.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as problem:
        raise Invalid(what, text, f"it must be a JSON object ({problem})") from problem
    if not isinstance(value, dict):
        raise Invalid(what, text, "it must be a JSON object")
    return value


def run(
    context: typer.Context,
    spider: Annotated[str, typer.Argument(metavar="SPIDER", help="The spider, as `weft spiders` lists it.")],
    arg: Annotated[
        list[str] | None, typer.Option("-a", "--arg", metavar="NAME=VALUE", help="An argument of the spider.")
    ] = None,
    setting: Annotated[
        list[str] | None, typer.Option("-s", "--set", metavar="NAME=VALUE", help="A setting of Scrapy.")
    ] = None,
    code_version: Annotated[
        str | None, typer.Option(metavar="VERSION", help="The version of the code; default: the current one.")
    ] = None,
    worker_label: WorkerLabel = None,
    isolation: Annotated[str | None, typer.Option(metavar="LEVEL", help="L0, L1 or L2; default: L1.")] = None,
    resource_limit: Annotated[
        list[str] | None, typer.Option(metavar="NAME=N", help="What it may use; memory_bytes=500000000, items=100, …")
    ] = None,
    dataset: Annotated[
        str | None, typer.Option(metavar="NAME", help="Where its items go; default: the spider's name.")
    ] = None,
    resumable: Annotated[
        bool, typer.Option("--resumable", help="Store its state, so that it can be paused and resumed.")
    ] = False,
    spread: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            parser=whole("--spread", 1, 1000),
            help="Number of runs that share a frontier; default: one run without.",
        ),
    ] = None,
    timeout: Annotated[
        float,
        typer.Option(
            metavar="SECONDS", parser=number("--timeout", 0, 31_536_000), help="Stop it after so long; 0 for never."
        ),
    ] = 0.0,
    retries: Annotated[
        int,
        typer.Option(
            metavar="N", parser=whole("--retries", 0, 1000), help="How many times a failed attempt is retried."
        ),
    ] = 0,
    success_if: Annotated[
        list[str] | None,
        typer.Option(
            "--success-if", metavar="CONDITION", help="What must hold at its end; 'errors <= 0', 'items >= 10', …"
        ),
    ] = None,
    priority: Priority = None,
    idempotency_key: IdempotencyKey = None,
    wait: Wait = False,
    follow: Follow = False,
) -> None:
    """Run a spider of a deployed project."""
    spec: dict[str, Any] = {"spider": spider, "args": pairs("--arg", arg), "settings": pairs("--set", setting)}
    chosen = {"version": code_version, "isolation": isolation, "dataset": dataset, "resumable": resumable or None}
    spec |= {name: value for name, value in chosen.items() if value is not None}
    spec |= {"limits": _limits(resource_limit)} if resource_limit else {}
    spec |= {"frontier": True} if spread else {}
    definition = {"name": spider, "kind": "spider", "spec": spec, "priority": priority or 0}
    definition |= {"labels": worker_label or [], "timeout_seconds": timeout, "retry": {"count": retries}}
    if success_if:
        from msgspec import to_builtins

        from weft.runs.success_text import parse_conditions

        definition["success_if"] = to_builtins(parse_conditions(success_if, "--success-if"))

    warn_of_secrets(spec)

    async def queue(weft: App) -> Submitted:
        from weft.tasks.taskfile import task_from

        definition["project"] = options_of(context).project or await _project_of(weft, spider)
        key = idempotency_key
        keys = [key and (f"{key}-{number}" if number else key) for number in range(spread or 1)]
        task = task_from(definition, "the run")
        first, *others = await weft.runs.submit([weft.tasks.loose(task, idempotency_key=each) for each in keys])
        if others:
            note(f"it shares its frontier with run {', '.join(str(other.run_id) for other in others)}")
        return first

    queue_and_stay(context, queue, wait=wait, follow=follow)


async def _project_of(weft: App, spider: str) -> str:
    """The project whose current code has the spider, where there is exactly one."""
    having = await weft.projects.having(spider)
    if not having:
        raise NotFound("spider", f"{spider} in any project; `weft spiders` lists those that there are")
    if len(having) > 1:
        raise Invalid(
            f"spider {spider}", NOT_SHOWN, f"several projects have it ({', '.join(having)}); name one with --project"
        )
    return having[0]


def _limits(given: list[str] | None) -> dict[str, int]:
    limits = pairs("--resource-limit", given)
    return {name: whole(f"--resource-limit {name}", 1, 2**62)(value) for name, value in limits.items()}


def pairs(option: str, given: list[str] | None) -> dict[str, str]:
    pairs = [(each, *each.partition("=")) for each in given or ()]
    for each, name, equals, _ in pairs:
        if not equals or not name:
            raise Invalid(option, each, "it must be NAME=VALUE")
    return {name: value for _, name, _, value in pairs}


PUBLISH_BATCH = 500
"""Messages that are under way to the server at the same time."""
LISTEN_SECONDS = 1.0

SubmissionStatus = Mapping[str, Any]
"""What weft says of an order."""


def publish(
    context: typer.Context,
    spider: Annotated[str, typer.Option(metavar="NAME", help="The spider; --project names its project.")],
    rabbitmq: Annotated[str, typer.Option(metavar="URL", help="amqp://…/vhost?queue=scraper_tasks")] = "",
    redis: Annotated[str, typer.Option(metavar="URL", help="redis://…?stream=scraper_tasks")] = "",
    arg: Annotated[
        list[str] | None, typer.Option("-a", "--arg", metavar="NAME=VALUE", help="An argument of the spider.")
    ] = None,
    setting: Annotated[
        list[str] | None, typer.Option("-s", "--set", metavar="NAME=VALUE", help="A setting of Scrapy.")
    ] = None,
    priority: Annotated[
        int,
        typer.Option(
            metavar="N", parser=whole("--priority", 0, 1000), help="Higher priorities start first; 0 to 1000."
        ),
    ] = 0,
    count: Annotated[
        int, typer.Option(metavar="N", parser=whole("--count", 1, 100_000), help="How many messages.")
    ] = 1,
    reply: Annotated[bool, typer.Option("--reply", help="Wait for the reply to each message.")] = False,
    wait_timeout: Annotated[
        float,
        typer.Option(metavar="SECONDS", parser=number("--wait-timeout", 0.1, 86_400), help="Wait no longer than this."),
    ] = 60.0,
) -> None:
    """Send messages to a queue that weft consumes, and print the task_id of each."""
    url = _queue_url(rabbitmq, redis)
    order = {"project": options_of(context).project or "default", "spider": spider, "priority": priority}
    order |= {"args": pairs("--arg", arg), "settings": pairs("--set", setting), "status": "pending"}
    task_ids = [uuid.uuid4().hex for _ in range(count)]
    told = asyncio.run(_published(url, order, task_ids, patience=wait_timeout if reply else 0.0))
    documents = [{"task_id": task_id, **told.get(task_id, {})} for task_id in task_ids]
    answer(
        context,
        documents,
        lambda: "\n".join(_submission_line(each) if reply else each["task_id"] for each in documents),
    )
    if reply and any(each.get("status") != "accepted" for each in documents):
        raise typer.Exit(1)


async def _published(
    url: str, order: SubmissionStatus, task_ids: Sequence[str], *, patience: float
) -> dict[str, SubmissionStatus]:
    """Put an order there for each task_id; return what weft said of each, if that is waited for."""
    from weft.worker_setup import open_outbox

    outbox = open_outbox(url)
    try:
        reply_to = outbox.reply_to if patience else ""
        for first in range(0, len(task_ids), PUBLISH_BATCH):
            await outbox.publish(
                [_queue_message(order, each, reply_to) for each in task_ids[first : first + PUBLISH_BATCH]]
            )
        return await _await_replies(outbox, set(task_ids), patience) if patience else {}
    finally:
        await outbox.close()


def _queue_message(order: SubmissionStatus, task_id: str, reply_to: str) -> Message:
    from msgspec import json

    from weft.ports import Message

    body = json.encode({"task_id": task_id, **order})
    return Message(id=task_id, body=body, reply_to=reply_to, correlation_id=task_id)


async def _await_replies(outbox: MessageSink, awaited: set[str], patience: float) -> dict[str, SubmissionStatus]:
    """The first word on each order: whether it was accepted."""
    told: dict[str, SubmissionStatus] = {}
    end = time.monotonic() + patience
    while (left := end - time.monotonic()) > 0 and awaited - told.keys():
        for reply in await outbox.hear(min(left, LISTEN_SECONDS)):
            if reply.correlation_id in awaited:
                told.setdefault(reply.correlation_id, _status_of(reply))
    return told


def _status_of(reply: Reply) -> SubmissionStatus:
    from msgspec import MsgspecError

    from weft.envelope import Envelope
    from weft.errors import WeftError

    with suppress(WeftError, MsgspecError):
        payload = Envelope.decode(reply.body).payload
        return {name: payload[name] for name in ("status", "run_id", "reason", "dead_letter_id") if payload.get(name)}
    return {"status": "unknown"}


def _submission_line(document: SubmissionStatus) -> str:
    status = document.get("status", "unanswered")
    more = {"accepted": f" as run {document.get('run_id')}", "refused": f": {document.get('reason')}"}.get(status, "")
    return f"{document['task_id']}  {status}{more}"


def _queue_url(rabbitmq: str, redis: str) -> str:
    if bool(rabbitmq) == bool(redis):
        given = "both are" if rabbitmq else "none is"
        raise Invalid("the queue", NOT_SHOWN, f"{given} given; one of --rabbitmq and --redis must be given")
    for option, url, schemes in (("--rabbitmq", rabbitmq, ("amqp", "amqps")), ("--redis", redis, ("redis", "rediss"))):
        if url and url.partition(":")[0] not in schemes:
            raise Invalid(
                option, url.partition("://")[0], f"its URL must begin with {schemes[0]}:// or {schemes[1]}://"
            )
    return rabbitmq or redis
