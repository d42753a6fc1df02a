"""Controls that are seen at the door: what is listened on, who may ask for what, and what every answer says."""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
import ssl
import warnings
from pathlib import Path

import msgspec

from weft.access.model import Role
from weft.api import guards, lines, server
from weft.api.door import is_loopback
from weft.api.operation import Operation
from weft.api.problems import problem_of
from weft.api.v1 import operations
from weft.cli.controls.ground import Fault, Ground, Reply
from weft.config import Config

OPEN = {"health.alive", "health.ready", "docs.openapi", "docs.page", "session.start", "session.first"}
"""All that may be asked without saying who one is."""

STRANGER = "https://evil.test"
LONGEST_SECONDS = 60.0
TELLING = re.compile(r"Traceback|File \"|sqlalchemy|SELECT |/site-packages/|\.py\b")
"""What an answer must not tell of the inside."""


async def bound(ground: Ground) -> str:
    """C01: only this machine reaches the port, unless TLS or a proxy that was named stands before it."""
    config = ground.config
    if not config.port:
        return "this weft listens on no port"
    places = {config.host} | _listening(config.port)
    far = sorted(place for place in places if not is_loopback(place))
    if not far:
        return f"only this machine reaches port {config.port}"
    if config.tls_certificate or config.trusted_proxies:
        return f"port {config.port} on {far[0]} has {'TLS' if config.tls_certificate else 'a proxy before it'}"
    raise Fault(
        f"port {config.port} can be reached at {far[0]} without TLS",
        "set tls_certificate, or host=127.0.0.1 and a proxy",
    )


def _listening(port: int) -> set[str]:
    """The addresses on which something listens on that port, as the system tells it."""
    found = set()
    for name, width in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        try:
            rows = [line.split() for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]]
        except OSError:
            continue
        for place, number in (row[1].split(":") for row in rows if row[3] == "0A"):
            if int(number, 16) == port:
                words = [bytes.fromhex(place[at : at + 8])[::-1] for at in range(0, len(place), 8)]
                found.add(socket.inet_ntop(width, b"".join(words)))
    return found


async def roles(ground: Ground) -> str:
    """C07: a viewer of another project gets nothing done, and sees nothing of this one."""
    scratch = ground.scratch
    viewer = await scratch.key({"elsewhere": Role.VIEWER})
    admin = await scratch.key()
    run = {"project": "shop", "kind": "noop", "spec": {}}
    made = (await scratch.ask("POST", "/v1/runs", run, Authorization=admin)).json.get("run_id")
    seen = await scratch.ask("GET", f"/v1/runs/{made}", Authorization=viewer)
    if made is None or seen.status != 404:
        raise Fault(f"a run of a foreign project is answered with {seen.status}")
    refused = [each for each in operations() if each.needs is not None and each.needs > Role.VIEWER]
    for operation in refused:
        answer = await scratch.ask(operation.method, _path(operation), _body(operation), Authorization=viewer)
        lists_nothing = operation.method == "GET" and answer.json.get("items") == []
        if not (400 <= answer.status < 500 or lists_nothing):
            raise Fault(f"{operation.name} answers a viewer of another project with {answer.status}")
    return (
        f"a viewer of another project is refused by all {len(refused)} routes that need more, and sees no foreign run"
    )


async def routes(ground: Ground) -> str:
    """C08: every route says who may call it, and without a key only those answer that are meant to."""
    declared = operations()
    if more := {each.name for each in declared if each.needs is None} - OPEN:
        raise Fault(f"anybody may call {', '.join(sorted(more))}")
    closed = [each for each in declared if each.needs is not None and not _is_open(each, ground.config)]
    for operation in closed:
        status = (await ground.gateway.ask(operation.method, _path(operation))).status
        if status != 401:
            raise Fault(f"{operation.method} {operation.path} answers {status} to somebody without a key")
    return f"{ground.whose} answers {len(OPEN)} routes without a key and refuses the other {len(closed)}"


def _is_open(operation: Operation, config: Config) -> bool:
    return operation.name == "metrics.read" and config.open_metrics


def _path(operation: Operation) -> str:
    return re.sub(r"\{[^}]*\}", "1", operation.path)


def _body(operation: Operation) -> object:
    return None if operation.body is None else msgspec.to_builtins(operation.example_body)


async def hosts(ground: Ground) -> str:
    """C10: a name that is not ours is not served, and a page of somebody else's changes nothing."""
    visit = ground.gateway
    named = await visit.ask("GET", "/healthz", Host="evil.test")
    if named.status not in (400, 421):
        raise Fault(f"{ground.whose} answers {named.status} to Host: evil.test")
    sent = await visit.ask("POST", "/v1/session", {"name": "nobody", "password": ""}, Origin=STRANGER)
    if sent.status != 403:
        raise Fault(f"{ground.whose} answers {sent.status} to a change that comes from {STRANGER}")
    socket_status = await visit.refuses_socket("/v1/events/ws", Origin=STRANGER)
    if socket_status != 403:
        raise Fault(f"{ground.whose} answers {socket_status} to a WebSocket that comes from {STRANGER}")
    return f"{ground.whose} refuses a foreign Host ({named.status}), and a foreign Origin over HTTP and WebSocket (403)"


async def cors(ground: Ground) -> str:
    """C11: no page of another origin may read answers."""
    asked = {"Origin": STRANGER, "Access_Control_Request_Method": "POST"}
    for method, path in (("OPTIONS", "/v1/runs"), ("GET", "/v1/runs"), ("GET", "/healthz")):
        answer = await ground.gateway.ask(method, path, **asked)
        if told := [name for name in answer.headers if name.lower().startswith("access-control-")]:
            raise Fault(f"{method} {path} tells a foreign page {told[0]}: {answer.headers[told[0]]}")
    return f"{ground.whose} lets no other origin read its answers"


async def headers(ground: Ground) -> str:
    """C12: every answer tells browsers what they may do with it, also an error."""
    asked = ("/healthz", "/docs", "/v1/runs", "/nowhere")
    for path in asked:
        if why := _unsafe(await ground.gateway.ask("GET", path), ground.gateway.address.startswith("https:")):
            raise Fault(f"the answer to {path} {why}")
    return f"{ground.whose} sends CSP, nosniff, Referrer-Policy, COOP and CORP with {len(asked)} kinds of answers"


def _unsafe(answer: Reply, is_tls: bool) -> str:
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


async def limits(ground: Ground) -> str:
    """C14: what is too large, too deep or too long is refused, and nobody is waited for for ever."""
    deep = b"[" * 200 + b"]" * 200
    large = {"Content-Type": "application/json", "Content-Length": str(guards.LARGEST_BODY + 1)}
    json = {"Content-Type": "application/json"}
    tried = {
        "a body of more than 1 MiB": (413, "POST", "/v1/session", b" " * (guards.LARGEST_BODY + 1), large),
        "JSON that is 200 deep": (400, "POST", "/v1/session", deep, json),
        "an address of 8,200 bytes": (431, "GET", "/healthz?" + "a" * 8200, None, {}),
        "101 headers": (431, "GET", "/healthz", None, {f"X-{number}": "1" for number in range(101)}),
    }
    for what, (wanted, method, path, data, sent) in tried.items():
        status = await _status(ground, method, path, data, sent)
        if status != wanted:
            raise Fault(f"{ground.whose} answers {status} to {what}")
    for patience in (lines.HEAD_SECONDS, guards.BODY_SECONDS, server.KEEP_ALIVE_SECONDS):
        if not 0 < patience <= LONGEST_SECONDS:
            raise Fault(f"a slow client is waited for {patience:g} s")
    return f"{ground.whose} refuses {', '.join(tried)}, and waits {LONGEST_SECONDS:g} s at most"


async def _status(ground: Ground, method: str, path: str, data: bytes | None, sent: dict[str, str]) -> int:
    """The answer, also where it comes before all was said."""
    try:
        return (await ground.gateway.send(method, path, data, sent)).status
    except ConnectionError:
        return 413 if data else 431


async def tls(ground: Ground) -> str:
    """C30: TLS 1.2 or newer, or proxies that were named one by one; nobody else is believed."""
    config = ground.config
    if wide := [str(each) for each in _trusted(config) if each.prefixlen == 0]:
        raise Fault(
            f"everybody is believed where a request comes from: trusted_proxies has {wide[0]}", "name the proxies"
        )
    if not any(ipaddress.ip_address("127.0.0.1") in each for each in _trusted(config)):
        claim = {"X_Forwarded_Proto": "https", "X_Forwarded_For": "203.0.113.9"}
        answer = await ground.scratch.ask("GET", "/healthz", **claim)
        if "Strict-Transport-Security" in answer.headers:
            raise Fault("anybody is believed that a request came over TLS")
    if config.tls_certificate:
        return await _speaks_tls(ground)
    if is_loopback(config.host):
        return "no TLS, and only this machine is listened to; nobody who was not named is believed to be a proxy"
    if config.trusted_proxies:
        return f"TLS is the business of {config.trusted_proxies}, and nobody else is believed to be a proxy"
    raise Fault(f"keys and passwords cross the network in clear at {config.host}", "set tls_certificate and tls_key")


def _trusted(config: Config) -> list[ipaddress.IPv4Network | ipaddress.IPv6Network]:
    named = [each.strip() for each in config.trusted_proxies.split(",") if each.strip()]
    if "*" in named:
        raise Fault("everybody is believed where a request comes from: trusted_proxies is *", "name the proxies")
    return [ipaddress.ip_network(each, strict=False) for each in named if re.fullmatch(r"[0-9a-fA-F.:/]+", each)]


async def _speaks_tls(ground: Ground) -> str:
    config = ground.config
    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(
            config.tls_certificate, config.tls_key or None
        )
    except (OSError, ssl.SSLError) as problem:
        raise Fault(f"the certificate {config.tls_certificate} cannot be used: {problem}") from problem
    if not ground.is_running:
        return f"the certificate {config.tls_certificate} fits its key; no gateway runs that could be asked"
    address = ground.gateway.address.removeprefix("https://")
    host, _, port = address.rpartition(":")
    if await asyncio.to_thread(_shakes_old_hands, host.strip("[]"), int(port)):
        raise Fault(f"{ground.whose} speaks TLS older than 1.2")
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


async def errors(ground: Ground) -> str:
    """C37: an error has a code and a number, and tells nothing of the inside."""
    json = {"Content-Type": "application/json"}
    tried = [
        await ground.gateway.send("POST", "/v1/session", b'{"name": ', json),
        await ground.gateway.send("POST", "/v1/session", b'{"name": 7, "password": "x"}', json),
        await ground.gateway.ask("GET", "/v1/runs/1"),
        await ground.gateway.ask("GET", "/nowhere"),
    ]
    for answer in tried:
        if not {"code", "request_id", "title"} <= answer.json.keys() or TELLING.search(answer.data.decode()):
            raise Fault(f"an error is answered with {answer.data[-200:]!r}")
    fault, _ = problem_of(RuntimeError('File "/srv/weft/app.py": SELECT password FROM users'), "0123")
    if TELLING.search(fault.detail) or fault.code != "internal":
        raise Fault("a fault of weft's own tells of its inside")
    return f"{ground.whose} answers {len(tried)} kinds of errors with a code and a number, and nothing of its inside"
