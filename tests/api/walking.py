"""How each operation of the API is called with real objects: the role walk and others go by this map."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from itertools import count
from typing import Any, Literal

import msgspec
from sqlalchemy import insert, select

from tests.projects.making import a_version, project, zipped
from tests.runs.acting import Hand, submit
from tests.tasks.scene import keep, noop
from weft.access.model import Role
from weft.app import App
from weft.db import schema
from weft.db.database import Transaction
from weft.intake import store
from weft.items.model import ItemBatch
from weft.proxies.model import ProxyTurn, ProxyUsage

Values = dict[str, Any]
Make = Callable[[App, str], Awaitable[Values]]

_number = count(1)


@dataclass(frozen=True, kw_only=True)
class Step:
    """One call: ``make`` makes the objects that it acts on in a project; what it returns fills the path, the query and
    the body, where ``{project}`` stands for the project as well."""

    make: Make | None = None
    query: str = ""
    body: Any = None
    scope: Literal["project", "everywhere", "somewhere", "own"] = "project"
    """Where the caller needs the role: in the project, in weft as a whole, in any project, or none at all, for what is
    the caller's."""
    role: Role | None = None
    """What is needed in fact, where that is more than the operation says: another's key needs its admin."""

    async def prepared(self, app: App, path: str, project: str) -> tuple[str, Any]:
        values = {"project": project} | (await self.make(app, project) if self.make is not None else {})
        return filled(path + self.query, values), filled(self.body, values)


def filled(part: Any, values: Values) -> Any:
    """``part`` with every ``{name}`` replaced; a text that is one name and nothing else becomes the value itself."""
    if isinstance(part, str):
        if part[:1] == "{" and part[1:-1] in values:
            return values[part[1:-1]]
        for name, value in values.items():
            part = part.replace(f"{{{name}}}", str(value))
        return part
    if isinstance(part, dict):
        return {filled(key, values): filled(value, values) for key, value in part.items()}
    return [filled(each, values) for each in part] if isinstance(part, list) else part


async def a_run(app: App, project: str) -> Values:
    return {"run_id": await submit(app, project=project, task=f"of-{project}")}


async def a_resumable_run(app: App, project: str) -> Values:
    return {"run_id": await submit(app, project=project, spec={"resumable": True})}


async def a_paused_run(app: App, project: str) -> Values:
    values = await a_resumable_run(app, project)
    await app.pauses.pause(values["run_id"])
    return values


async def an_ended_run(app: App, project: str) -> Values:
    run_id = await submit(app, project=project)
    await app.runs.cancel(run_id)
    return {"run_id": run_id}


async def a_view(app: App, project: str) -> Values:
    view = await app.views.save("runs", f"view {next(_number)}", "state=failed", by="walk")
    return {"view_id": view.id}


async def a_task(app: App, project: str) -> Values:
    name = f"task-{next(_number)}"
    await keep(app, noop(name, "0 * * * *", project=project))
    return {"name": name}


async def a_schedule(app: App, project: str) -> Values:
    return {"task": (await a_task(app, project))["name"]}


async def a_worker(app: App, project: str) -> Values:
    name = f"worker-{next(_number)}"
    await Hand.join(app, name)
    return {"name": name}


async def a_new_name(app: App, project: str) -> Values:
    return {"name": f"new-{next(_number)}"}


async def a_deploy(app: App, project: str) -> Values:
    return {"deploy": f"deploy-{next(_number)}"}


async def a_key(app: App, project: str) -> Values:
    key, _ = await app.keys.create("walk", {project: Role.VIEWER}, by="somebody")
    return {"key_id": key.id}


async def a_share(app: App, project: str) -> Values:
    share, _ = await app.guest_links.create(project, label="walk", by="test")
    return {"guest_link_id": share.id}


async def a_user(app: App, project: str) -> Values:
    name = f"user-{next(_number)}"
    await app.users.create(name, "correct horse battery", {project: Role.VIEWER})
    return {"name": name}


async def a_secret(app: App, project: str) -> Values:
    name = f"SECRET_{next(_number)}"
    await app.secrets.set(project, name, "hush-hush-hush", by="test")
    return {"name": name}


async def a_webhook(app: App, project: str) -> Values:
    webhook, _ = await app.webhooks.create(f"https://{project}.example/hook", by="test", project=project)
    return {"webhook_id": webhook.id}


async def a_delivery(app: App, project: str) -> Values:
    made = await a_webhook(app, project)
    run_id = (await an_ended_run(app, project))["run_id"]

    def work(tx: Transaction) -> int:
        event_id = tx.value(
            schema.events.select()
            .with_only_columns(schema.events.c.id)
            .where(schema.events.c.run_id == run_id)
            .limit(1)
        )
        row = {"webhook_id": made["webhook_id"], "event_id": event_id, "state": "given_up", "tries": 1, "created_at": 1}
        key = tx.execute(insert(schema.deliveries).values(row)).inserted_primary_key
        assert key is not None
        return int(key[0])

    return made | {"delivery_id": await app.db.transact(work)}


async def an_old_version(app: App, project: str) -> Values:
    """One that is not the current one."""
    version = f"0.{next(_number)}"
    await a_version(app, project, version, at=1)
    await a_version(app, project, "99", at=2)
    return {"version": version}


async def items_of_a_run(app: App, project: str) -> Values:
    """A run that has yielded an item, into a dataset of its own."""
    name = f"spider-{next(_number)}"
    run_id = await submit(app, project=project, task=name, spec={"spider": name}, labels=[name])
    hand = await Hand.join(app, f"of-{name}", labels=[name])
    lease = next(each for each in await hand.lease() if each.run_id == run_id)
    await app.protocol.collect(hand.id, [ItemBatch(run_id, lease.attempt, 1, b'{"item":{"price":1}}')])
    (record,) = (await app.datasets.records(project, name)).records
    return {"run_id": run_id, "name": name, "record_id": record.id, "attempt": lease.attempt, "seq": 1}


async def everything(app: App, but: Collection[str] = ()) -> dict[str, list[str]]:
    """Every row of every table, but for when a key was last used: that is written down by looking."""
    tables = [each for each in schema.metadata.sorted_tables if each.name not in ("api_keys", *but)]
    keys = select(*(each for each in schema.api_keys.columns if each.name != "last_used_at"))
    return await app.db.read(
        lambda tx: (
            {each.name: sorted(map(str, tx.rows(select(each)))) for each in tables}
            | {"api_keys": sorted(map(str, tx.rows(keys)))}
        )
    )


async def a_dataset_with_a_secret(app: App, project: str) -> Values:
    """What the URL of a table needs."""
    await app.secrets.set(project, "PG", "any-password", by="test")
    return await items_of_a_run(app, project)


async def a_destination(app: App, project: str) -> Values:
    made = await a_dataset_with_a_secret(app, project)
    added = await app.destinations.add(project, made["name"], TABLE_URL, by="test")
    return made | {"destination_id": added.destination.id}


PROXY_PLAN: dict[str, Any] = {
    "sites": ["*.example"],
    "exits": [{"name": "dc1", "url": "http://proxy.example:3128", "per_request": 0.5}],
}


async def a_proxy_plan(app: App, project: str) -> Values:
    name = f"ways-{next(_number)}"
    await app.proxies.set(project, name, PROXY_PLAN, by="test")
    used = [ProxyUsage("shop.example", "", 0, "hard_block", 2), ProxyUsage("shop.example", "dc1", 1, "ok", 3, 10, 20)]
    await app.proxies.turn(project, ProxyTurn(name, 1, used))
    return {"name": name}


async def a_dead_letter(app: App, project: str) -> Values:
    """One that is an order of a spider that is there."""
    await a_version(app, project, "99", at=2)
    order = {"task_id": f"order-{next(_number)}", "project": project, "spider": "prices"}
    kept: dict[str, Any] = {"source": "rabbitmq scraper_tasks", "message_id": order["task_id"], "project": project}
    kept |= {"headers": {}, "body": msgspec.json.encode(order), "reason": "the test wants it so", "at": 1}
    return {"dead_letter_id": await app.db.transact(lambda tx: store.add_dead_letter(tx, **kept))}


async def a_crawl(app: App, project: str) -> Values:
    name = f"crawl-{next(_number)}"
    crawl = await app.crawls.create(project, CRAWL_SPEC, name=name, by="walk")
    return {"crawl_id": crawl.id, "url": "https://walk.example/"}


async def a_paused_crawl(app: App, project: str) -> Values:
    values = await a_crawl(app, project)
    await app.crawls.pause(values["crawl_id"])
    return values


async def a_stopped_crawl(app: App, project: str) -> Values:
    values = await a_crawl(app, project)
    await app.crawls.stop(values["crawl_id"])
    return values


async def a_crawl_with_files(app: App, project: str) -> Values:
    values = await a_crawl(app, project)
    for name in ("walk.warc.gz", "walk.cdxj"):
        await app.blobs.put(f"crawls/{values['crawl_id']}/warc/{name}", b"example,walk)/ 2026 {}\n")
    return values | {"name": "walk.warc.gz"}


CRAWL_SPEC = {"urls": ["https://walk.example/"], "follow": True, "fetching": {"contact": "walk@weft.example"}}
TABLE_URL = "postgresql://weft:{{secret:PG}}@db.example/{project}/prices"
TASK_BODY = {"kind": "noop", "description": "of {project}"}
RUN_BODY = {"project": "{project}", "task": "{name}"}
WINDOW = {"from": "2026-05-01T00:00:00Z", "to": "2026-05-01T02:00:00Z"}
CODE = zipped(project())
PASSWORD = "another horse battery"

WALK: dict[str, Step] = {
    "about.show": Step(scope="own"),
    "activity.progress": Step(make=a_run, query="?ids={run_id}", scope="own"),
    "activity.show": Step(query="?project={project}"),
    "audit.list": Step(query="?project={project}"),
    "events.follow": Step(query="?project={project}", make=a_run),
    "events.list": Step(query="?project={project}", make=a_run),
    "audit.verify": Step(scope="everywhere"),
    "metrics.read": Step(scope="everywhere"),
    "crawl_files.cdxj": Step(make=a_crawl_with_files),
    "crawl_files.list": Step(make=a_crawl_with_files),
    "crawl_files.show": Step(make=a_crawl_with_files),
    "crawl_urls.feed": Step(make=a_crawl, body={"urls": ["https://walk.example/more"]}),
    "crawl_urls.list": Step(make=a_crawl),
    "crawl_urls.requeue": Step(make=a_crawl, body={"state": "failed"}),
    "crawls.create": Step(make=a_new_name, body={"spec": CRAWL_SPEC, "project": "{project}", "name": "{name}"}),
    "crawls.delete": Step(make=a_stopped_crawl),
    "crawls.hosts": Step(make=a_crawl),
    "crawls.list": Step(make=a_crawl, query="?project={project}"),
    "crawls.pace": Step(make=a_crawl),
    "crawls.pause": Step(make=a_crawl),
    "crawls.resume": Step(make=a_paused_crawl),
    "crawls.show": Step(make=a_crawl),
    "crawls.skips": Step(make=a_crawl),
    "crawls.stop": Step(make=a_crawl),
    "crawls.why": Step(make=a_crawl, query="?url=https://walk.example/"),
    "keys.create": Step(body={"name": "walk", "role": "viewer", "project": "{project}"}),
    "keys.list": Step(scope="own"),
    "keys.revoke": Step(make=a_key, role=Role.ADMIN),
    "keys.show": Step(make=a_key, role=Role.ADMIN),
    "dead_letters.drop": Step(make=a_dead_letter),
    "dead_letters.edit": Step(make=a_dead_letter, body={"body": "{}"}),
    "dead_letters.list": Step(make=a_dead_letter, query="?project={project}"),
    "dead_letters.resubmit": Step(make=a_dead_letter),
    "dead_letters.show": Step(make=a_dead_letter),
    "logs.errors": Step(make=an_ended_run),
    "logs.lines": Step(make=an_ended_run),
    "logs.show": Step(make=a_run),
    "logs.stream": Step(make=an_ended_run),
    "destinations.add": Step(make=a_dataset_with_a_secret, body={"url": TABLE_URL}),
    "destinations.list": Step(make=a_destination),
    "destinations.remove": Step(make=a_destination),
    "destinations.retry": Step(make=a_destination),
    "destinations.show": Step(make=a_destination),
    "exports.dataset": Step(make=items_of_a_run),
    "exports.run": Step(make=items_of_a_run),
    "datasets.fields": Step(make=items_of_a_run),
    "datasets.items": Step(make=items_of_a_run),
    "datasets.list": Step(make=items_of_a_run, query="?project={project}"),
    "datasets.runs": Step(make=items_of_a_run),
    "datasets.put": Step(make=a_new_name, body={"key_fields": ["url"]}),
    "datasets.show": Step(make=items_of_a_run),
    "datasets.record": Step(make=items_of_a_run),
    "datasets.records": Step(make=items_of_a_run),
    "items.fields": Step(make=items_of_a_run),
    "items.list": Step(make=items_of_a_run),
    "items.show": Step(make=items_of_a_run),
    "items.stats": Step(make=items_of_a_run),
    "projects.list": Step(scope="own"),
    "projects.put": Step(body={"weight": 2}),
    "projects.show": Step(),
    "runs.again": Step(make=an_ended_run),
    "runs.again_many": Step(make=an_ended_run, body={"ids": ["{run_id}"]}),
    "runs.attempts": Step(make=an_ended_run),
    "runs.cancel": Step(make=a_run),
    "runs.pause": Step(make=a_resumable_run),
    "runs.resume": Step(make=a_paused_run),
    "runs.cancel_many": Step(make=a_run, body={"ids": ["{run_id}"]}),
    "runs.counts": Step(query="?project={project}"),
    "runs.list": Step(query="?project={project}", make=a_run),
    "runs.show": Step(make=a_run),
    "runs.start": Step(make=a_task, body=RUN_BODY),
    "runs.start_many": Step(make=a_task, body={"runs": [RUN_BODY]}),
    "samples.comparison": Step(make=items_of_a_run),
    "samples.show": Step(make=items_of_a_run),
    "schedules.calendar": Step(make=a_schedule, query="?project={project}"),
    "schedules.delete": Step(make=a_schedule),
    "schedules.list": Step(make=a_schedule, query="?project={project}"),
    "schedules.pause": Step(make=a_schedule),
    "schedules.preview": Step(query="?when=@daily", scope="own"),
    "schedules.put": Step(make=a_schedule, body={"schedule": "@every 5m"}),
    "schedules.resume": Step(make=a_schedule),
    "schedules.show": Step(make=a_schedule),
    "proxies.delete": Step(make=a_proxy_plan),
    "proxies.list": Step(make=a_proxy_plan),
    "proxies.set": Step(make=a_proxy_plan, body=PROXY_PLAN),
    "proxies.show": Step(make=a_proxy_plan),
    "proxies.sites": Step(make=a_proxy_plan),
    "proxies.spent": Step(make=a_proxy_plan, query="?by=site"),
    "secrets.delete": Step(make=a_secret),
    "secrets.list": Step(make=a_secret),
    "secrets.set": Step(make=a_secret, body={"value": "hush-hush-hush-hush"}),
    "secrets.show": Step(make=a_secret),
    "session.issue_token": Step(body={}, scope="own"),
    "session.show": Step(scope="own"),
    "settings.list": Step(scope="everywhere"),
    "spider_health.history": Step(make=an_old_version, query="?spider=prices"),
    "spider_health.list": Step(scope="own"),
    "spider_health.show": Step(make=an_old_version),
    "guest_links.create": Step(body={"project": "{project}", "label": "walk"}),
    "guest_links.list": Step(make=a_share, query="?project={project}"),
    "guest_links.revoke": Step(make=a_share),
    "find.list": Step(scope="own", query="?q={project}"),
    "tasks.apply": Step(make=a_new_name, body={"tasks": [{"name": "{name}", "project": "{project}", "kind": "noop"}]}),
    "tasks.backfill": Step(make=a_task, body=WINDOW),
    "tasks.delete": Step(make=a_task),
    "tasks.export": Step(make=a_task, query="?project={project}"),
    "tasks.graph": Step(make=a_task, query="?project={project}"),
    "tasks.list": Step(make=a_task, query="?project={project}"),
    "tasks.pause": Step(make=a_task),
    "tasks.pause_many": Step(make=a_task, body={"project": "{project}"}),
    "tasks.put": Step(make=a_new_name, body=TASK_BODY),
    "tasks.resume": Step(make=a_task),
    "tasks.resume_many": Step(make=a_task, body={"tasks": ["{project}/{name}"]}),
    "tasks.show": Step(make=a_task),
    "tasks.start": Step(make=a_task, body={}),
    "tasks.ticks": Step(make=a_task),
    "users.change": Step(make=a_user, body={"active": False}, scope="everywhere"),
    "users.create": Step(make=a_new_name, body={"name": "{name}", "password": PASSWORD}, scope="everywhere"),
    "users.list": Step(scope="everywhere"),
    "users.set_password": Step(make=a_user, body={"password": PASSWORD}, scope="everywhere"),
    "users.show": Step(make=a_user, scope="everywhere"),
    "versions.changes": Step(make=an_old_version),
    "versions.delete": Step(make=an_old_version),
    "versions.deploy": Step(body=CODE),
    "versions.list": Step(make=an_old_version),
    "versions.progress": Step(make=a_deploy),
    "versions.rollback": Step(make=an_old_version),
    "versions.show": Step(make=an_old_version),
    "versions.spiders": Step(make=an_old_version),
    "versions.all_spiders": Step(scope="own"),
    "versions.use": Step(make=an_old_version),
    "views.delete": Step(make=a_view, role=Role.ADMIN, scope="everywhere"),
    "views.list": Step(make=a_view, scope="own"),
    "views.save": Step(make=a_new_name, body={"name": "{name}", "query": "state=failed"}, scope="somewhere"),
    "webhooks.change": Step(make=a_webhook, body={"active": False}),
    "webhooks.create": Step(body={"url": "https://shop.example/hook", "project": "{project}"}),
    "webhooks.delete": Step(make=a_webhook),
    "webhooks.deliveries": Step(make=a_delivery),
    "webhooks.list": Step(make=a_webhook, query="?project={project}"),
    "webhooks.replay": Step(make=a_delivery),
    "webhooks.show": Step(make=a_webhook),
    "worker_tokens.create": Step(body={"name": "walk"}, scope="everywhere"),
    "workers.drain": Step(make=a_worker, scope="everywhere"),
    "workers.list": Step(scope="everywhere"),
    "workers.runs": Step(make=a_worker, scope="everywhere"),
    "workers.show": Step(make=a_worker, scope="everywhere"),
}
"""Every operation that a key may call."""

OPEN = {"docs.openapi", "docs.page", "health.alive", "health.ready", "session.first", "session.start"}
"""What anybody may call. A name is put here only by somebody who has thought about it."""
