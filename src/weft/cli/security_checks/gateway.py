"""Security checks of the gateway: listeners, roles of routes, headers, limits, TLS and errors."""

from __future__ import annotations

import asyncio
import ipaddress
import re
import secrets
import socket
import ssl
import warnings
from typing import Any
from urllib.parse import urlsplit

import msgspec

from weft import events
from weft.access.model import Role
from weft.app import App
from weft.cli.security_checks.installation import (
    ANSWER_SECONDS,
    CheckContext,
    CheckFailed,
    GatewayClient,
    GatewayReply,
    ScratchInstance,
    listens_on,
    open_scratch,
)
from weft.clock import now
from weft.config import Config
from weft.events import Fact
from weft.http import guards, server
from weft.http.application import is_loopback
from weft.http.routes import operations
from weft.intake import store
from weft.items.model import ItemBatch
from weft.operations.operation import LARGEST_BODY, Operation
from weft.operations.problems import problem_of
from weft.projects import store as versions
from weft.projects.model import Code, Version
from weft.runs.model import NewRun, RunSpec
from weft.scrapyd_http.gateway import ENDPOINTS
from weft.tasks.changes import DesiredState
from weft.tasks.model import Task
from weft.tasks.schedule import Schedule
from weft.web.assets import assets
from weft.web.live_pages import LIVE
from weft.web.site import PAGES
from weft.web.site import PUBLIC_PAGES as OPEN_PAGES
from weft.workers.protocol import WorkerInfo

PROJECT = "shop"
SITE = {"urls": ["https://shop.test/"], "follow": True, "fetching": {"contact": "doctor@weft.test"}}
PROXY_PLAN: dict[str, Any] = {"sites": ["*.test"], "exits": [{"name": "dc1", "url": "http://proxy.test:3128"}]}
FIELD_TABLE = "postgresql://weft:{{secret:TOKEN}}@db.test/shop/prices"
PASSWORD = "a password of the doctor"  # noqa: S105 - of a scratch weft that nobody else reaches
BODIES: dict[str, Any] = {
    "crawls.create": {"spec": SITE, "project": PROJECT, "name": "{new}"},
    "datasets.put": {"key_fields": ["url"]},
    "destinations.add": {"url": FIELD_TABLE},
    "dead_letters.edit": {"body": "{}"},
    "projects.put": {"weight": 2},
    "proxies.set": PROXY_PLAN,
    "runs.start": {"project": PROJECT, "task": "{name}"},
    "runs.start_many": {"runs": [{"project": PROJECT, "task": "{name}"}]},
    "runs.again_many": {"ids": ["{run_id}"]},
    "runs.cancel_many": {"ids": ["{run_id}"]},
    "schedules.put": {"schedule": "@every 5m"},
    "secrets.set": {"value": "a secret of the doctor"},
    "guest_links.create": {"project": PROJECT, "label": "doctor"},
    "tasks.apply": {"tasks": [{"name": "{name}", "project": PROJECT, "kind": "noop", "priority": 1}]},
    "tasks.backfill": {"from": "2026-01-01T00:00:00Z", "to": "2026-01-01T02:00:00Z"},
    "tasks.pause_many": {"project": PROJECT},
    "tasks.put": {"kind": "noop"},
    "tasks.resume_many": {"tasks": ["shop/{name}"]},
    "tasks.start": {},
    "users.change": {"active": False},
    "users.create": {"name": "{new}", "password": PASSWORD},
    "users.set_password": {"password": PASSWORD},
    "webhooks.change": {"active": False},
    "webhooks.create": {"url": "https://shop.test/hook", "project": PROJECT},
}
QUERIES = {"crawls.why": "?url=https://shop.test/", "spider_health.history": "?spider=prices"}


async def create_objects(app: App, operation: str) -> dict[str, Any]:
    """What a route needs, new for it: another may have deleted or ended what was there."""
    noun, _, verb = operation.partition(".")
    new = f"doctor-{secrets.token_hex(4)}"
    values: dict[str, Any] = {"project": PROJECT, "new": new, "name": new, "spider": "prices"}
    if noun in ("runs", "tasks", "schedules", "activity", "events"):
        await app.tasks.apply(
            DesiredState((Task(name=new, project=PROJECT, kind="noop", schedule=Schedule.parse("@hourly")),))
        )
        values |= {"task": new, "run_id": await _run(app, new, ended=verb.startswith("again"), paused=verb == "resume")}
    elif noun in ("logs", "items", "samples", "exports", "datasets", "destinations"):
        values |= await _items(app, new)
    elif noun in ("crawls", "crawl_urls", "crawl_files"):
        values |= await _crawl(app, new, verb)
    elif noun in ("versions", "spider_health"):
        values |= await _versions(app, new)
    elif noun == "dead_letters":
        values["dead_letter_id"] = await _dead_letter(app, new)
    elif noun == "webhooks":
        values |= await _webhook(app)
    elif noun == "users":
        await app.users.create(new, PASSWORD, {PROJECT: Role.VIEWER})
    elif noun == "keys":
        values["key_id"] = (await app.keys.create(new, {PROJECT: Role.VIEWER}, by="somebody"))[0].id
    elif noun == "secrets":
        await app.secrets.set(PROJECT, new, "a secret of the doctor", by="doctor")
    elif noun == "guest_links":
        values["guest_link_id"] = (await app.guest_links.create(PROJECT, by="doctor", label=new))[0].id
    elif noun == "proxies":
        await app.proxies.set(PROJECT, new, PROXY_PLAN, by="doctor")
    elif noun == "views":
        values["view_id"] = (await app.views.save("runs", new, "state=failed", by="somebody")).id
    elif noun == "workers":
        await app.protocol.join(WorkerInfo(name=new, host="doctor", pid=1, version="0", capacity=1))
    return values


def example_path(operation: Operation[Any], values: dict[str, Any]) -> str:
    filled = re.sub(r"\{(\w+)(?::\w+)?\}", lambda found: str(values.get(found[1], "1")), operation.path)
    asks = "project" in getattr(operation.query, "__struct_fields__", ())
    return filled + QUERIES.get(operation.name, f"?project={PROJECT}" if asks else "")


def example_body(operation: Operation[Any], values: dict[str, Any]) -> Any:
    if operation.name in BODIES:
        return _filled(BODIES[operation.name], values)
    return None if operation.body is None else msgspec.to_builtins(operation.example_body)


def _filled(part: Any, values: dict[str, Any]) -> Any:
    if isinstance(part, str):
        if part[:1] == "{" and part[1:-1] in values:
            return values[part[1:-1]]
        return part.replace("{name}", values["name"])
    if isinstance(part, dict):
        return {name: _filled(each, values) for name, each in part.items()}
    return [_filled(each, values) for each in part] if isinstance(part, list) else part


async def _run(app: App, task: str, *, ended: bool, paused: bool) -> int:
    spec = RunSpec(spec={"resumable": True}, labels=("doctor",))
    new = NewRun(project=PROJECT, task=task, kind="noop", spec=spec)
    run_id = (await app.runs.submit([new]))[0].run_id
    if ended:
        await app.runs.cancel(run_id)
    if paused:
        await app.pauses.pause(run_id)
    return run_id


async def _items(app: App, name: str) -> dict[str, Any]:
    new = NewRun(project=PROJECT, task=name, kind="noop", spec=RunSpec(spec={"spider": name}, labels=(name,)))
    run_id = (await app.runs.submit([new]))[0].run_id
    card = WorkerInfo(name=name, host="doctor", pid=1, version="0", capacity=1000, labels=(name,))
    worker = await app.protocol.join(card)
    lease = next(each for each in await app.protocol.lease(worker, 1000) if each.run_id == run_id)
    await app.protocol.collect(worker, [ItemBatch(run_id, lease.attempt, 1, b'{"item":{"price":1}}')])
    (record,) = (await app.datasets.records(PROJECT, name)).records
    await app.secrets.set(PROJECT, "TOKEN", "a secret of the doctor", by="doctor")
    added = await app.destinations.add(PROJECT, name, FIELD_TABLE, by="doctor")
    await app.runs.cancel(run_id)
    told = {"run_id": run_id, "attempt": lease.attempt, "seq": 1, "record_id": record.id}
    return told | {"destination_id": added.destination.id}


async def _crawl(app: App, name: str, verb: str) -> dict[str, Any]:
    crawl = await app.crawls.create(PROJECT, SITE, name=name, by="doctor")
    if verb == "resume":
        await app.crawls.pause(crawl.id)
    if verb == "delete":
        await app.crawls.stop(crawl.id)
    for file in ("doctor.warc.gz", "doctor.cdxj"):
        await app.blobs.put(f"crawls/{crawl.id}/warc/{file}", b"test,shop)/ 2026 {}\n")
    return {"crawl_id": crawl.id, "name": "doctor.warc.gz"}


async def _versions(app: App, name: str) -> dict[str, Any]:
    def work(tx: Any) -> None:
        versions.hold(tx, PROJECT)
        for number, version in enumerate((f"1.{name}", f"2.{name}"), 1):
            digest = secrets.token_hex(32)
            versions.add(
                tx,
                Version(
                    project=PROJECT,
                    version=version,
                    digest=digest,
                    size=1,
                    format="zip",
                    code=Code(version, digest, "shop.settings"),
                    spiders=(),
                    is_current=True,
                    deployed_at=number,
                    deployed_by="doctor",
                ),
            )
            versions.set_current(tx, PROJECT, version)

    await app.db.transact(work)
    return {"version": f"1.{name}"}


async def _dead_letter(app: App, name: str) -> int:
    order = msgspec.json.encode({"task_id": name, "project": PROJECT, "spider": "prices"})
    kept: dict[str, Any] = {"source": "doctor", "message_id": name, "project": PROJECT, "headers": {}}
    kept |= {"body": order, "reason": "the doctor made it", "at": now()}
    return await app.db.transact(lambda tx: store.add_dead_letter(tx, **kept))


async def _webhook(app: App) -> dict[str, Any]:
    webhook, _ = await app.webhooks.create("https://shop.test/hook", by="doctor", project=PROJECT)
    happened = Fact("worker_joined", PROJECT, data={"worker": "doctor"})
    await app.db.transact(lambda tx: events.append(tx, [happened], now()))
    return {"webhook_id": webhook.id}


OWN = {
    *("about.show", "activity.progress", "find.list", "keys.list", "keys.create", "projects.list", "schedules.preview"),
    *("session.show", "session.issue_token", "spider_health.list", "versions.all_spiders", "views.list", "views.save"),
}
"""What shows or makes to each caller only what is theirs."""
MOST_OF_THEM = 0.9

OPEN_ROUTES = {"health.alive", "health.ready", "docs.openapi", "docs.page", "session.start", "session.first"}
"""All that may be asked without saying who one is."""

OTHER_ORIGIN = "https://evil.test"
LONGEST_SECONDS = 60.0
REVEALING_HEADERS = re.compile(r"Traceback|File \"|sqlalchemy|SELECT |/site-packages/|\.py\b")
"""What an answer must not tell of the inside."""


async def bound(ground: CheckContext) -> str:
    """C01: only this machine reaches the ports, unless TLS protects them or proxies were named."""
    config = ground.config
    meant = {(config.host, port) for port in (config.port, config.scrapyd_port) if port}
    found = {place for each in ground.processes if each.role == "serve" for place in listens_on(each.pid)}
    places = found or meant
    if not places:
        return "this weft listens on no port"
    far = sorted({f"{host}:{port}" for host, port in places if not is_loopback(host)})
    whose = "as its processes here listen" if found else "as it is set up; no process of it listens here now"
    if not far:
        return f"only this machine reaches port {_listed({port for _, port in places})}, {whose}"
    if config.tls_certificate:
        return f"{', '.join(far)} can be reached from elsewhere, with TLS, {whose}"
    if config.trusted_proxies:
        return (
            f"{', '.join(far)} can be reached from elsewhere without TLS, {whose}: that only {config.trusted_proxies} "
            "reaches it is the business of your firewall, and was not looked at"
        )
    raise CheckFailed(
        f"{', '.join(far)} can be reached from elsewhere without TLS, {whose}",
        "set tls_certificate, or host=127.0.0.1 and a proxy",
    )


def _listed(ports: set[int]) -> str:
    return " and ".join(str(port) for port in sorted(ports))


async def roles(ground: CheckContext) -> str:
    """C07: an admin of another project is refused by each route that an admin of this one is not refused by."""
    async with open_scratch(ground.config, ground.scratch.session) as scratch:  # what is made for this stays there
        return await _tried(scratch)


async def _tried(scratch: ScratchInstance) -> str:
    stranger = await scratch.key({"elsewhere": Role.ADMIN}, name="stranger")
    admin = await scratch.key()
    tried, same = 0, []
    for operation in sorted(operations(), key=lambda each: each.method == "DELETE"):
        if operation.needs is None or "key" not in operation.callers or operation.name in OWN:
            continue
        values = await create_objects(scratch.app, operation.name)
        path, body = example_path(operation, values), example_body(operation, values)
        answers = [await scratch.ask(operation.method, path, body, Authorization=key) for key in (stranger, admin)]
        refused, done = (answer.status for answer in answers)
        if refused not in (401, 403, 404):
            raise CheckFailed(f"{operation.name} answers an admin of another project with {refused}")
        tried += done not in (401, 403, 404)
        same += [operation.name] if done in (401, 403, 404) else []
    if tried < MOST_OF_THEM * (tried + len(same)):
        raise CheckFailed(f"only {tried} routes could be tried; not {', '.join(same)}")
    rest = f"; not tried, because nothing was there to try them on: {', '.join(same)}" if same else ""
    return f"an admin of another project is refused by {tried} routes that do what an admin of all asks{rest}"


async def routes(ground: CheckContext) -> str:
    """C08: every route says who may call it, and without a key only those answer that are meant to."""
    declared = operations()
    if more := {each.name for each in declared if each.needs is None} - OPEN_ROUTES:
        raise CheckFailed(f"anybody may call {', '.join(sorted(more))}")
    closed = [each for each in declared if each.needs is not None and not _is_open(each, ground.config)]
    for operation in closed:
        status = (await ground.gateway.ask(operation.method, _route_path(operation))).status
        if status != 401:
            raise CheckFailed(f"{operation.method} {operation.path} answers {status} to somebody without a key")
    pages = await _closed_pages(ground.gateway)
    for path, endpoint in ENDPOINTS.items():
        status = (await ground.gateway.ask(endpoint.method, path)).status
        if status not in (401, 403) and not ground.config.scrapyd_open:
            raise CheckFailed(f"{path} of Scrapyd's API answers {status} to somebody without a key")
    for path in ("/v1/events/ws", LIVE):
        if (status := await ground.gateway.refuses_socket(path)) not in (401, 403):
            raise CheckFailed(f"the WebSocket {path} answers {status} to somebody without a key")
    theirs = "this machine may call (scrapyd_open)" if ground.config.scrapyd_open else "are refused"
    return (
        f"{ground.whose} refuses {len(closed)} routes, {pages} pages and 2 WebSockets to somebody without a key; "
        f"{len(ENDPOINTS)} of Scrapyd's API {theirs}"
    )


async def _closed_pages(visit: GatewayClient) -> int:
    """How many pages send somebody who is not logged in to the login."""
    closed = [path for path, methods in PAGES.items() if "GET" in methods and methods["GET"] not in OPEN_PAGES]
    for path in closed:
        answer = await visit.ask("GET", re.sub(r"\{[^}]*\}", "1", path), Accept="text/html")
        leads = answer.headers.get("Location", "")
        if not (answer.status in (302, 303) and "/login" in leads) and answer.status not in (401, 403):
            raise CheckFailed(f"the page {path} answers {answer.status} to somebody who is not logged in")
    return len(closed)


def _is_open(operation: Operation[Any], config: Config) -> bool:
    return operation.name == "metrics.read" and config.open_metrics


def _route_path(operation: Operation[Any]) -> str:
    return re.sub(r"\{[^}]*\}", "1", operation.path)


async def hosts(ground: CheckContext) -> str:
    """C10: a name that is not ours is not served, and a page of somebody else's changes nothing."""
    visit = ground.gateway
    named = await visit.ask("GET", "/healthz", Host="evil.test")
    if named.status not in (400, 421):
        raise CheckFailed(f"{ground.whose} answers {named.status} to Host: evil.test")
    sent = await visit.ask("POST", "/v1/session", {"name": "nobody", "password": ""}, Origin=OTHER_ORIGIN)
    if sent.status != 403:
        raise CheckFailed(f"{ground.whose} answers {sent.status} to a change that comes from {OTHER_ORIGIN}")
    socket_status = await visit.refuses_socket("/v1/events/ws", Origin=OTHER_ORIGIN)
    if socket_status != 403:
        raise CheckFailed(f"{ground.whose} answers {socket_status} to a WebSocket that comes from {OTHER_ORIGIN}")
    return f"{ground.whose} refuses a foreign Host ({named.status}), and a foreign Origin over HTTP and WebSocket (403)"


async def cors(ground: CheckContext) -> str:
    """C11: no page of another origin may read answers."""
    asked = {"Origin": OTHER_ORIGIN, "Access_Control_Request_Method": "POST"}
    for method, path in (("OPTIONS", "/v1/runs"), ("GET", "/v1/runs"), ("GET", "/healthz")):
        answer = await ground.gateway.ask(method, path, **asked)
        if told := [name for name in answer.headers if name.lower().startswith("access-control-")]:
            raise CheckFailed(f"{method} {path} tells a foreign page {told[0]}: {answer.headers[told[0]]}")
    return f"{ground.whose} lets no other origin read its answers"


async def headers(ground: CheckContext) -> str:
    """C12: answers tell browsers what they may do with them: routes, pages, Scrapyd's API, and errors of each kind."""
    is_tls = ground.gateway.address.startswith("https:")
    json = {"Content-Type": "application/json"}
    asked: list[tuple[str, str, bytes | None, dict[str, str]]] = [
        *(
            ("GET", path, None, {})
            for path in ("/healthz", "/readyz", "/docs", "/openapi.json", "/v1/runs", "/nowhere")
        ),
        *(("GET", path, None, {"Accept": "text/html"}) for path in ("/", "/login", "/runs", "/nowhere", "/jobs")),
        *(("GET", path, None, {}) for path in (*assets(), *ENDPOINTS)),
        ("DELETE", "/v1/runs", None, {}),
        ("POST", "/v1/session", b"{", json),
        ("POST", "/v1/session", b"x", {"Content-Type": "text/plain"}),
        ("GET", "/healthz", None, {"Host": "evil.test"}),
        ("GET", "/login", None, {"Host": "evil.test"}),
    ]
    seen = set()
    for method, path, data, sent in asked:
        answer = await ground.gateway.send(method, path, data, sent)
        seen.add(answer.status)
        if why := _unsafe(answer, is_tls):
            raise CheckFailed(f"the answer {answer.status} to {method} {path} {why}")
    statuses = ", ".join(map(str, sorted(seen)))
    return f"{ground.whose} sends CSP, nosniff, Referrer-Policy, COOP and CORP with {len(asked)} answers ({statuses})"


def _unsafe(answer: GatewayReply, is_tls: bool) -> str:
    """What is wrong with the headers of an answer; empty where nothing is."""
    policy = answer.headers.get("Content-Security-Policy", "")
    wanted = {
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "same-origin",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "same-origin",
    }
    for name, value in wanted.items():
        if answer.headers.get(name) != value:
            return f"does not say {name}: {value}"
    if "frame-ancestors 'none'" not in policy or "default-src" not in policy or "unsafe-inline" in policy:
        return f"has the policy {policy!r}"
    if is_tls and "Strict-Transport-Security" not in answer.headers:
        return "does not say Strict-Transport-Security"
    return f"says who serves it: {answer.headers['Server']}" if "Server" in answer.headers else ""


async def limits(ground: CheckContext) -> str:
    """C14: what is too large, too deep or too long is refused, and nobody is waited for for ever."""
    deep = b"[" * 200 + b"]" * 200
    large = {"Content-Type": "application/json", "Content-Length": str(LARGEST_BODY + 1)}
    json = {"Content-Type": "application/json"}
    tried = {
        "a body of more than 1 MiB": (413, "POST", "/v1/session", None, large),
        "JSON that is 200 deep": (400, "POST", "/v1/session", deep, json),
        "an address of 8,200 bytes": (431, "GET", "/healthz?" + "a" * 8200, None, {}),
        "101 headers": (431, "GET", "/healthz", None, {f"X-{number}": "1" for number in range(101)}),
    }
    for what, (wanted, method, path, data, sent) in tried.items():
        status = await _status(ground.gateway, method, path, data, sent)
        if status != wanted:
            raise CheckFailed(f"{ground.whose} answers {status or 'nothing'} to {what}")
    for patience in (server.HEAD_SECONDS, guards.BODY_SECONDS, server.KEEP_ALIVE_SECONDS):
        if not 0 < patience <= LONGEST_SECONDS:
            raise CheckFailed(f"a slow client is waited for {patience:g} s")
    code = "this version of weft" if ground.is_running else "it"
    return f"{ground.whose} refuses {', '.join(tried)}; {code} is made to wait {LONGEST_SECONDS:g} s at most"


async def _status(visit: GatewayClient, method: str, path: str, data: bytes | None, sent: dict[str, str]) -> int:
    """The status of the answer, also where it comes before all was said; 0 where none came."""
    address = urlsplit(visit.address)
    loose = None
    if address.scheme == "https":
        loose = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        loose.check_hostname, loose.verify_mode = False, ssl.CERT_NONE
    head = {"Host": address.netloc, "Content-Length": str(len(data or b""))} | sent
    lines_ = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in head.items()), "", ""]
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            reader, writer = await asyncio.open_connection(address.hostname, address.port, ssl=loose)
            writer.write("\r\n".join(lines_).encode() + (data or b""))
            said = await reader.readline()
            writer.close()
    except (OSError, TimeoutError):
        return 0
    found = re.match(rb"HTTP/1\.1 (\d{3})", said)
    return int(found[1]) if found else 0


async def tls(ground: CheckContext) -> str:
    """C30: TLS 1.2 or newer, or proxies that were named one by one; nobody else is believed."""
    config = ground.config
    trusted = map(ipaddress.ip_network, config.trusted_proxy_set)
    if not any(ipaddress.ip_address("127.0.0.1") in each for each in trusted):
        claim = {"X_Forwarded_Proto": "https", "X_Forwarded_For": "203.0.113.9"}
        answer = await ground.scratch.ask("GET", "/healthz", **claim)
        if "Strict-Transport-Security" in answer.headers:
            raise CheckFailed("anybody is believed that a request came over TLS")
    if config.tls_certificate:
        return await _speaks_tls(ground)
    if is_loopback(config.host):
        return "no TLS, and only this machine is listened to; nobody who was not named is believed to be a proxy"
    if config.trusted_proxies:
        return f"TLS is the business of {config.trusted_proxies}, and nobody else is believed to be a proxy"
    raise CheckFailed(
        f"keys and passwords cross the network in clear at {config.host}", "set tls_certificate and tls_key"
    )


async def _speaks_tls(ground: CheckContext) -> str:
    config = ground.config
    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(
            config.tls_certificate, config.tls_key or None
        )
    except (OSError, ssl.SSLError) as problem:
        raise CheckFailed(f"the certificate {config.tls_certificate} cannot be used: {problem}") from problem
    if not ground.is_running:
        return f"the certificate {config.tls_certificate} fits its key; no gateway runs that could be asked"
    address = ground.gateway.address.removeprefix("https://")
    host, _, port = address.rpartition(":")
    if await asyncio.to_thread(_shakes_old_hands, host.strip("[]"), int(port)):
        raise CheckFailed(f"{ground.whose} speaks TLS older than 1.2")
    return f"{ground.whose} speaks TLS 1.2 or newer, and refuses 1.1"


def _shakes_old_hands(host: str, port: int) -> bool:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    try:
        with socket.create_connection((host, port), timeout=5) as line, context.wrap_socket(line):
            return True
    except OSError:
        return False


async def errors(ground: CheckContext) -> str:
    """C37: an error has a code and a number, and tells nothing of the inside."""
    json = {"Content-Type": "application/json"}
    tried = [
        await ground.gateway.send("POST", "/v1/session", b'{"name": ', json),
        await ground.gateway.send("POST", "/v1/session", b'{"name": 7, "password": "x"}', json),
        await ground.gateway.ask("GET", "/v1/runs/1"),
        await ground.gateway.ask("GET", "/nowhere"),
    ]
    for answer in tried:
        if not {"code", "request_id", "title"} <= answer.json.keys() or REVEALING_HEADERS.search(answer.data.decode()):
            raise CheckFailed(f"an error is answered with {answer.data[-200:]!r}")
    fault, _ = problem_of(RuntimeError('File "/srv/weft/app.py": SELECT password FROM users'), "0123")
    if REVEALING_HEADERS.search(fault.detail) or fault.code != "internal":
        raise CheckFailed("a fault of weft's own tells of its inside")
    return f"{ground.whose} answers {len(tried)} kinds of errors with a code and a number, and nothing of its inside"
