"""R11: deploys are atomic.

Gateways are killed with SIGKILL while an archive arrives and at each step of a deploy: before and after the check, in
the middle of the blob, before and after the row, before and after the commit. Two deploy one version at once, and
versions are deleted while a run of them starts. A version must be whole (its code has the hash of what was sent) or
absent, what was acknowledged must be there, a run must execute the version that it was pinned to, and nothing of what
was cut off may be left once the next deploy is through. Red control: the row comes before the code.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from experiments.checker import drained
from experiments.cluster import Cluster, Role
from experiments.deploying import PROJECT, Archive, Gateway, archive, run_of
from experiments.dying import die
from experiments.report import Report, Tally
from experiments.stocktaking import stored_of
from weft.access.model import Role as Grant
from weft.app import App
from weft.clock import now
from weft.errors import NotFound
from weft.projects.model import code_key

RED = "r11:row_before_code"
STEPS = ("received", "checked", "half_a_blob", "kept", "uncommitted", "committed")
"""Where a gateway dies during a deploy; only after the last of them is there a version."""

PATIENCE_SECONDS = 120.0
JITTER_SECONDS = 0.05
DYING_SECONDS = 10.0
LATER_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much of each scene."""

    offsets: int
    """How many gateways are killed while an archive arrives."""
    steps: Sequence[str] = STEPS
    rounds: int
    """How often two deploy at once, and how often a version is deleted while a run of it starts."""


REDUCED = Size(offsets=2, rounds=2)
FULL = Size(offsets=20, rounds=20)
SHOWING = Size(offsets=0, steps=("row_before_code",), rounds=0)


async def experiment(*, full: bool = False, red: bool = False) -> Report:
    report = Report("R11")
    size = SHOWING if red else FULL if full else REDUCED
    with Cluster(capacity=4) as cluster:
        victims = [*[None] * size.offsets, *size.steps]
        names = [f"victim{number}" for number in range(len(victims))]
        for name, step in zip(names, victims, strict=True):
            cluster.serve(name, red=step and (RED if red else f"dying:when_{step}"))
        cluster.serve("a")
        cluster.serve("b")
        cluster.worker("w1")
        async with cluster.app() as app:
            await cluster.ready(app)
            _, token = await app.keys.create("deployer", {PROJECT: Grant.DEVELOPER}, by="experiment")
            gateways = {name: Gateway(port, token) for name, port in cluster.ports.items()}
            shop = Shop(report, cluster, app, gateways)
            await killed(shop, list(zip(names, victims, strict=True)))
            if size.rounds:
                await two_at_once(shop, size.rounds)
                await deleted_at_the_start(shop, size.rounds)
        fallen = [line for line in cluster.fallen() if not line.startswith("victim")]
        report.expect(not fallen, f"without being killed {fallen}")
    return report


@dataclass(slots=True)
class Shop:
    """One project, everybody who deploys it, and what was sent."""

    report: Report
    cluster: Cluster
    app: App
    gateways: dict[str, Gateway]
    sent: dict[str, set[str]] = field(default_factory=dict)
    """Of each version, the digests that were sent."""

    def pack(self, version: str) -> Archive:
        made = archive(version)
        self.sent.setdefault(version, set()).add(made.digest)
        return made

    async def there(self) -> set[str]:
        return {each.version for each in await self.app.projects.versions(PROJECT)}

    async def broken(self) -> list[str]:
        """A sentence for each version, and each piece of code, that is not whole."""
        wrong = []
        for each in await self.app.projects.versions(PROJECT):
            data = await self.app.blobs.get(code_key(each.digest))
            if each.digest not in self.sent[each.version]:
                wrong.append(f"{each.version} is not what was sent")
            if data is None or hashlib.sha256(data).hexdigest() != each.digest:
                wrong.append(f"{each.version} has {'no code' if data is None else 'other code'}")
        for key in await self.app.blobs.keys("code"):
            if code_key(hashlib.sha256(await self.app.blobs.get(key) or b"").hexdigest()) != key:
                wrong.append(f"{key} is not what its name says")
        return wrong

    def leftovers(self) -> list[str]:
        """What deploys have left in the folder where archives arrive."""
        incoming = self.app.projects.incoming.folder
        return sorted(each.name for each in incoming.iterdir()) if incoming.is_dir() else []

    async def executed(self, run_ids: Sequence[int]) -> list[str]:
        """A sentence for each run that did not execute the version that it was pinned to."""
        await drained(self.app, PATIENCE_SECONDS)
        wrong = []
        stored = await self.app.db.read(lambda tx: stored_of(tx, run_ids))
        for run_id in run_ids:
            run = await self.app.runs.get(run_id)
            pinned = run.spec.code.version if run.spec.code else None
            yielded = [data.get("version") for _, data in stored.get((run_id, run.attempt), [])]
            if run.outcome != "succeeded" or yielded != [pinned]:
                wrong.append(f"run {run_id} of {pinned} is {run.outcome} ({run.reason}) and yielded {yielded}")
        return wrong

    async def judge(self, scene: str, began: float, run_ids: Sequence[int], **counts: int) -> None:
        """All versions must be whole, and all runs have executed theirs."""
        broken, strange = await self.broken(), await self.executed(run_ids)
        for sentence in [*broken, *strange][:5]:
            self.report.note(f"{scene}: {sentence}")
        counts["lost"] = counts.get("lost", 0) + len(broken) + len(strange)
        self.report.add(scene, Tally(seconds=time.monotonic() - began, **counts))
        left = self.leftovers()
        self.report.expect(not left, f"{scene}: left behind are {left}")


async def killed(shop: Shop, victims: Sequence[tuple[str, str | None]]) -> None:
    """Deploy a version to each gateway that dies from it; then deploy each again where nobody dies."""
    began = time.monotonic()
    archives = {name: shop.pack(f"1.{number}") for number, (name, _) in enumerate(victims)}
    answers = await asyncio.gather(*(_cut_off(shop, name, step, archives[name]) for name, step in victims))
    alive = [name for name, _ in victims if shop.cluster.roles[name].alive]
    shop.report.expect(not alive, f"killed: {alive} did not die, so too little was shown")
    found = await shop.there()
    told = [archives[name].version for (name, _), status in zip(victims, answers, strict=True) if status == 201]
    early = [step for name, step in victims if step != STEPS[-1] and archives[name].version in found]
    shop.report.expect(not early, f"killed: there was a version already when {early}")
    broken = await shop.broken()
    shop.report.expect(not broken, f"killed: {broken[:3]}")
    turns = zip(itertools.cycle("ab"), archives.values(), strict=False)
    again = await asyncio.gather(*(shop.gateways[name].deploy(each) for name, each in turns))
    refused = [status for status in again if status != 201]
    shop.report.expect(not refused, f"killed: deployed again, the answer is {refused}")
    runs = await shop.app.runs.submit([run_of(each.version) for each in archives.values()])
    counts = {"attempted": 2 * len(archives), "acknowledged": len(told) + len(again) - len(refused)}
    counts |= {"lost": len(set(told) - found), "recovered": len(found - set(told)), "kills": len(victims)}
    counts["ok"] = counts["acknowledged"] - counts["lost"]
    await shop.judge("killed", began, [each.run_id for each in runs], **counts)


async def _cut_off(shop: Shop, name: str, step: str | None, sent: Archive) -> int | None:
    """Deploy to a gateway that dies at a step, or is killed while the archive arrives."""
    gateway, role = shop.gateways[name], shop.cluster.roles[name]
    if step is None:
        await gateway.cut_off(sent, random.randrange(len(sent.data)), role.kill)
        return None
    shop.report.expect(role.alive, f"killed: the gateway that should die when {step} was dead before")
    status = await gateway.deploy(sent)
    await _dead(role)
    return status


async def _dead(role: Role) -> None:
    """Wait for its death, which may come after its answer; one that lives on is told by who looks next."""
    try:
        await role.ended(DYING_SECONDS)
    except AssertionError:
        return
    role.ask_to_stop()


async def two_at_once(shop: Shop, rounds: int) -> None:
    """Different code under one name, at two gateways: one is told so, and the other one's code is there.

    Runs that were queued before execute what was current then.
    """
    began, told, runs = time.monotonic(), 0, []
    for number in range(rounds):
        later = now() + int(LATER_SECONDS * 1_000_000)
        runs += await shop.app.runs.submit([run_of(None, not_before=later)])
        rivals = [shop.pack(f"2.{number}") for _ in range(2)]
        deploys = [shop.gateways[name].deploy(each) for name, each in zip("ab", rivals, strict=True)]
        answers = await asyncio.gather(*deploys)
        shop.report.expect(sorted(answers, key=str) == [201, 409], f"two at once: the answers are {answers}")
        told += answers.count(201)
        if 201 in answers:
            winner, kept = rivals[answers.index(201)], await shop.app.projects.get(PROJECT, f"2.{number}")
            shop.report.expect(kept.digest == winner.digest, f"two at once: 2.{number} is the one that was refused")
    counts = {"attempted": 2 * rounds, "acknowledged": told, "ok": told}
    await shop.judge("two at once", began, [each.run_id for each in runs], **counts)


async def deleted_at_the_start(shop: Shop, rounds: int) -> None:
    """Delete a version while a run of it is queued and starts: one of the two is refused, or the run is over.

    Each has a head start in every second round.
    """
    began, runs, deleted = time.monotonic(), [], 0
    current = (await shop.app.projects.get(PROJECT)).version
    for number in range(rounds):
        version = f"3.{number}"
        await shop.gateways["a"].deploy(shop.pack(version))
        await shop.gateways["b"].use(current)
        run_late = JITTER_SECONDS * random.random() if number % 2 else 0.0
        delete_late = 0.0 if number % 2 else JITTER_SECONDS * random.random()
        start, delete = _start(shop.app, version, run_late), _delete(shop.gateways["a"], version, delete_late)
        run_id, status = await asyncio.gather(start, delete)
        runs += [run_id] if run_id else []
        deleted += status == 204
        fine = status in (204, 409) and (run_id is not None or status == 204)
        shop.report.expect(fine, f"deleted: the run is {run_id}, the delete is answered {status}")
    counts = {"attempted": 2 * rounds, "acknowledged": len(runs) + deleted, "ok": len(runs) + deleted}
    shop.report.note(f"deleted: {deleted} versions were deleted, {len(runs)} runs were accepted")
    await shop.judge("deleted", began, runs, **counts)


async def _start(app: App, version: str, late: float) -> int | None:
    await asyncio.sleep(late)
    try:
        return (await app.runs.submit([run_of(version)]))[0].run_id
    except NotFound:
        return None


async def _delete(gateway: Gateway, version: str, late: float) -> int | None:
    await asyncio.sleep(late)
    return await gateway.delete(version)


def row_before_code() -> None:
    """Red control: the code is kept after the commit, and death comes in between."""
    from weft.adapters.blobs.files import FileBlobs

    puts = []

    async def put(self: FileBlobs, key: str, data: bytes) -> None:
        puts.append(key)
        if len(puts) > 1:
            die()

    FileBlobs.put = put  # type: ignore[method-assign]
