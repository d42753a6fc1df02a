"""Controls of what is written down: names, secrets that must not be, the audit log, and whose run it is."""

from __future__ import annotations

import secrets

from weft.access.audit import entry
from weft.access.model import NAME, Caller
from weft.api.problems import problem_of
from weft.cli.controls.ground import Fault, Ground, Scratch
from weft.clock import now
from weft.db import append_only, schema
from weft.errors import Misconfigured, WeftError
from weft.redaction import redacted
from weft.runs.model import Ending, RunState
from weft.workers.link import Link
from weft.workers.protocol import Card
from weft.workers.remote import RemoteProtocol

BAD_NAMES = ("..", ".", "-rf", "a/b", "a b", "a\0", "x" * 101, "é")
MOST_ENTRIES = 1000


async def names(ground: Ground) -> str:
    """C17: what names something is letters, digits, dots, dashes and underlines, and begins with none of the last."""
    tasks = await ground.app.tasks.all()
    for stored in tasks:
        for name in (stored.task.project, stored.task.name):
            if not NAME.fullmatch(name):
                raise Fault(f"there is a task or project called {name!r}")
    admin = await ground.scratch.key()
    for name in BAD_NAMES:
        run = {"project": name, "kind": "noop", "spec": {}}
        status = (await ground.scratch.ask("POST", "/v1/runs", run, Authorization=admin)).status
        if not 400 <= status < 500:
            raise Fault(f"a project called {name[:20]!r} is answered with {status}")
    return f"the names of {len(tasks)} tasks are plain, and {len(BAD_NAMES)} bad ones are refused"


async def redaction(ground: Ground) -> str:
    """C28: what is secret is masked before it is written, in the audit log and in answers."""
    canary = f"canary{secrets.token_hex(8)}"
    written = {
        "password": canary,
        "url": f"https://me:{canary}@shop.test/",
        "head": f"Authorization: Bearer {canary}{canary}",
    }
    app = ground.scratch.app
    await app.audit.write(entry(Caller(name="doctor", kind="local"), "doctor.canary", data=written))
    if any(canary.encode() in data for data in ground.scratch.files()):
        raise Fault("a password that was written to the audit log is there in clear")
    told, _ = problem_of(Misconfigured(f"database is postgresql://weft:{canary}@db/weft"), "0123")
    if canary in told.detail:
        raise Fault("an error tells the password of a URL")
    entries = await ground.app.audit.find({}, limit=MOST_ENTRIES)
    for each in entries:
        if each.data and redacted(each.data) != each.data:
            raise Fault(f"entry {each.id} of the audit log has something secret in it", "change that secret")
    return (
        f"{len(written)} canaries were masked before they were written; so is all in the newest {len(entries)} entries"
    )


async def audit(ground: Ground) -> str:
    """C29: the audit log only grows, and its chain of digests is whole."""
    app = ground.app
    missing = await app.db.read(lambda tx: append_only.missing(tx.connection, schema.audit))
    if missing:
        raise Fault(f"the database lets entries be changed: there is no trigger {missing[0]}", "restore the triggers")
    seen = await app.audit.verify()
    if seen.broken is not None:
        raise Fault(f"entry {seen.broken} is not as it was written: {seen.why}", "compare it with an export")
    return f"the chain of {seen.entries} entries is whole, and the database refuses to change or delete one"


async def workers(ground: Ground) -> str:
    """C31: a worker has a key of its own, and touches only what it holds."""
    for key in await ground.app.keys.all("join"):
        if key.expires_at is None and key.is_valid(now()):
            raise Fault(f"join token {key.name} is good for ever", f"`weft keys revoke {key.id}`")
    await _forger_is_refused(ground.scratch)
    enrolled = [key for key in await ground.app.keys.all("worker") if key.is_valid(now())]
    return f"{len(enrolled)} remote workers have a key each; one that tells the end of another's run is refused"


async def _forger_is_refused(scratch: Scratch) -> None:
    links = [
        Link(scratch.address, (await scratch.key({}, kind="worker", name=name)).removeprefix("Bearer "))
        for name in "ab"
    ]
    victim, forger = (RemoteProtocol(link) for link in links)
    try:
        ids = [
            await each.join(Card(name=name, host="doctor", pid=1, version="0", capacity=100))
            for each, name in ((victim, "a"), (forger, "b"))
        ]
        run = {"project": "doctor", "kind": "noop", "spec": {}}
        await scratch.ask("POST", "/v1/runs", run, Authorization=await scratch.key())
        lease = (await victim.lease(ids[0], 1))[0]
        for speaks_as in ids:
            await _forge(forger, speaks_as, Ending(lease.run_id, lease.attempt, "failed", "forged"))
        if (await scratch.app.runs.get(lease.run_id)).state is not RunState.RUNNING:
            raise Fault("a worker has ended the run of another")
    finally:
        for link in links:
            await link.close()


async def _forge(forger: RemoteProtocol, worker_id: int, ending: Ending) -> None:
    try:
        await forger.finish(worker_id, [ending])
    except WeftError:
        return  # refused; whether the run is as it was is looked at afterwards
