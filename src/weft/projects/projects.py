"""The front door to projects' code: deploy it, list it, choose which version runs, delete it.

A deploy is whole or it was never there: the code is checked first, its archive is kept next, and the row, the event
and the choice of the current version are one transaction at the end. The same name with other code is refused, unless
it is to be replaced. Runs that were queued keep the code that they were pinned to. An archive is kept as long as a
version has it or a run may still execute it.

Each folder of an upload is locked by its process from before another process can look for it, and the kernel takes the
lock back from the dead. So the next who takes a folder knows which were left behind, also where several processes share
them.
"""

from __future__ import annotations

import asyncio
import dataclasses
import fcntl
import hashlib
import os
import tempfile
import time
from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft.access.audit import AuditedChange, record_changes
from weft.access.model import NAME
from weft.clock import Clock, iso
from weft.db.database import Database, Transaction
from weft.errors import Conflict, Invalid, NotFound, Rejected, WeftError
from weft.events import Fact, append
from weft.ports import Blobs
from weft.projects import store
from weft.projects.checker import CodeChecker
from weft.projects.deploy_progress import DeployProgress, DeployStep, clear_step, reporting_to
from weft.projects.model import (
    NO_TRUST,
    ArchiveLimits,
    Code,
    ProjectTrust,
    Spider,
    Version,
    VersionDiff,
    code_key,
    version_diff,
    version_key,
)
from weft.untrusted_files import remove
from weft.user_code import is_passed, stricter

if TYPE_CHECKING:
    from weft.projects.layout import CodeLayout


def version_in(tx: Transaction, project: str, version: str) -> Version:
    found = store.get(tx, project, version)
    if found is None:
        raise NotFound("version", f"{version} of project {project}")
    return found


def current_of(tx: Transaction, project: str) -> str:
    now = store.current(tx, project)
    if now is None:
        raise NotFound("deployed version", f"of project {project}; `weft deploy` makes one")
    return now


def page_of(tx: Transaction, project: str, after: str | None, limit: int) -> tuple[list[Version], str | None]:
    """The next versions, the newest by name first, and the last of them where there are more."""
    names = sorted(store.names(tx, project), key=version_key, reverse=True)
    left = names if after is None else [each for each in names if version_key(each) < version_key(after)]
    found = {each.version: each for each in store.some(tx, project, left[:limit])}
    return [found[name] for name in left[:limit]], left[limit - 1] if len(left) > limit else None


class UploadFolders:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._locks: dict[Path, int] = {}

    @contextmanager
    def place(self, purpose: str) -> Iterator[Path]:
        """A new folder, which is gone afterwards."""
        place = self.take(purpose)
        try:
            yield place
        finally:
            self.give_back(place)

    def take(self, purpose: str) -> Path:
        """A new folder, until it is given back or this process dies."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with _one_at_a_time(self.folder):
            abandoned = [(each, lock) for each in self.folder.iterdir() if (lock := _locked(each)) is not None]
            place = Path(tempfile.mkdtemp(prefix=f"{purpose}-", dir=self.folder))
            lock = _locked(place)
        if lock is not None:
            self._locks[place] = lock
        for each, its_lock in abandoned:
            remove(each)
            os.close(its_lock)
        return place

    def give_back(self, place: Path) -> None:
        remove(place)
        if (lock := self._locks.pop(place, None)) is not None:
            os.close(lock)


@contextmanager
def _one_at_a_time(folder: Path) -> Iterator[None]:
    """Nobody sees a folder below this one that is not locked yet: what has no lock was left behind by the dead."""
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with suppress(OSError):  # where nothing can be locked, nothing is taken for abandoned either
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _locked(folder: Path) -> int | None:
    """The folder, locked; None where another has it, or it is gone, or cannot be locked."""
    try:
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        return None
    return lock


class CodeArchives:
    """One archive at a time is in memory."""

    def __init__(self, db: Database, blobs: Blobs) -> None:
        self._db, self._blobs = db, blobs
        self._turn = asyncio.Lock()
        self._dropped: set[str] = set()
        """Those that no version has, as far as a run may need them."""

    @asynccontextmanager
    async def keeping(self, digest: str, archive: Path) -> AsyncIterator[None]:
        """Keep an archive; inside, a version is made of it."""
        key = code_key(digest)
        async with self._turn:
            data = await asyncio.to_thread(archive.read_bytes)
            await self._blobs.put(key, data)
            yield
            if key not in await self._blobs.keys("code"):
                await self._blobs.put(key, data)  # a delete of the same code came in between

    async def forget(self, digests: Collection[str]) -> None:
        """Remove archives that no version has and no run needs; the others are looked at when this is called again."""
        self._dropped.update(digests)
        for digest in tuple(self._dropped):
            if not await self._is_needed(digest):
                self._dropped.discard(digest)
                await self._forget(digest)

    async def _is_needed(self, digest: str) -> bool:
        return await self._db.read(lambda tx: store.live_run(tx, None, digest)) is not None

    async def _forget(self, digest: str) -> None:
        """A deploy that has just kept the same one gets it back."""
        if await self._is_used(digest):
            return
        async with self._turn:
            data = await self._blobs.get(code_key(digest))
            await self._blobs.delete(code_key(digest))
            if data is not None and await self._is_used(digest):
                await self._blobs.put(code_key(digest), data)

    async def _is_used(self, digest: str) -> bool:
        return await self._db.read(lambda tx: store.is_used(tx, digest))


PROGRESS_SECONDS, MOST_PROGRESS = 3600.0, 100
"""For how long, and of how many deploys, it is told what has become of them."""


class Projects:
    def __init__(
        self,
        db: Database,
        blobs: Blobs,
        checker: CodeChecker,
        clock: Clock,
        *,
        folder: Path,
        limits: ArchiveLimits,
        spider_env: Collection[str] = (),
        min_isolation: str = "",
    ) -> None:
        """``spider_env`` names the variables of this machine's environment that runs of every project see;
        ``min_isolation`` is the least isolation of every project, which may demand more for itself."""
        self._min_isolation = min_isolation
        self._spider_env = tuple(spider_env)
        self._progress: dict[tuple[str, str], DeployProgress] = {}
        self._db, self._checker, self._clock = db, checker, clock
        self._archives = CodeArchives(db, blobs)
        self.incoming, self._limits = UploadFolders(folder), limits

    @property
    def largest_bytes(self) -> int:
        return self._limits.archive_bytes

    async def deploy(
        self,
        project: str,
        archive: Path,
        version: str | None = None,
        *,
        by: str = "",
        replace: bool = False,
        progress: str | None = None,
    ) -> Version:
        """Check an archive, keep it as a version and make that the current one.

        The same code under the same name again changes nothing but which version is current. Without a name, code that
        is not the current one already is named after the time. To ``replace`` is to give a name that is there other
        code; then the newest by name is the current one. ``progress`` is a name under which ``step`` tells meanwhile
        how far it has come. Raises ``Rejected`` where the code does not work.
        """
        if progress is None:
            return await self._deployed(project, archive, version, by=by, replace=replace)
        check_name("progress", progress)
        self._forget_progress()
        told = self._progress[project, progress] = DeployProgress()
        try:
            with reporting_to(told):
                deployed = await self._deployed(project, archive, version, by=by, replace=replace)
        except BaseException as problem:
            told.end(problem=_why(problem), traceback=problem.traceback if isinstance(problem, Rejected) else "")
            raise
        told.end(version=deployed.version)
        return deployed

    async def progress(self, project: str, progress: str) -> DeployProgress | None:
        """How far a deploy has come that was begun in this process under this name, also for a while after its end."""
        return self._progress.get((project, progress))

    async def step(self, project: str, progress: str) -> DeployStep:
        """What a deploy is busy with; nothing once it has ended."""
        found = await self.progress(project, progress)
        return DeployStep("", 0.0) if found is None else found.step

    def _forget_progress(self) -> None:
        """Of deploys that ended long ago, and of the oldest where there are many."""
        ended = [(each.ended_at, key) for key, each in self._progress.items() if each.ended_at is not None]
        old = time.monotonic() - PROGRESS_SECONDS
        ended.sort(reverse=True)
        for number, (at, key) in enumerate(ended, 1):
            if at < old or number >= MOST_PROGRESS:
                del self._progress[key]

    async def _deployed(self, project: str, archive: Path, version: str | None, *, by: str, replace: bool) -> Version:
        check_name("project", project)
        version = version or None
        if version is not None:
            check_name("version", version)
        digest = await asyncio.to_thread(_digest, archive)
        known = await self._db.read(lambda tx: _known(tx, project, version, digest, replace=replace))
        if known is not None:
            if not known.is_current and not replace:
                return await self.use(project, known.version)
            return await self._warned(known)
        found = await self._checked(project, archive, version or self._stamp(), digest, by)
        clear_step("keeping")
        async with self._archives.keeping(digest, archive):
            deployed, replaced = await self._db.transact(lambda tx: self._deploy(tx, found, replace=replace))
        await self._archives.forget(replaced)
        return await self._warned(deployed)

    async def names(self, projects: Collection[str] | None = None) -> list[str]:
        """The projects that have code, or those among ``projects``."""
        found = await self._db.read(store.with_code)
        return [name for name in found if projects is None or name in projects]

    async def versions(self, project: str) -> list[Version]:
        """Every version, the newest by name first."""
        found = [await self._warned(each) for each in await self._db.read(lambda tx: store.listed(tx, project))]
        return sorted(found, key=lambda each: version_key(each.version), reverse=True)

    async def page(self, project: str, after: str | None, limit: int) -> tuple[list[Version], str | None]:
        """The next versions, the newest by name first, and the last of them where there are more."""
        found, last = await self._db.read(lambda tx: page_of(tx, project, after, limit))
        return [await self._warned(each) for each in found], last

    async def changes(self, project: str, before: str, after: str) -> VersionDiff:
        """What differs between two versions."""
        return await self._db.read(
            lambda tx: version_diff(version_in(tx, project, before), version_in(tx, project, after))
        )

    async def get(self, project: str, version: str | None = None) -> Version:
        """One version, or the current one."""

        def work(tx: Transaction) -> Version:
            return version_in(tx, project, version if version is not None else current_of(tx, project))

        return await self._warned(await self._db.read(work))

    async def latest(self, project: str) -> Version | None:
        """The newest by name, whichever is the current one."""
        return next(iter(await self.versions(project)), None)

    async def spiders(self, project: str, version: str | None = None) -> tuple[Spider, ...]:
        """The spiders of a version, or of the current one."""
        return (await self.get(project, version)).spiders

    async def having(self, spider: str) -> list[str]:
        """The projects whose current version has a spider of this name."""
        found = await self.all_spiders()
        return [project for project, spiders in found.items() if any(each.name == spider for each in spiders)]

    async def all_spiders(self, projects: Collection[str] | None = None) -> dict[str, tuple[Spider, ...]]:
        """The spiders of every project's current version, or of those among ``projects``."""
        found = await self._db.read(lambda tx: store.current_spiders(tx, projects))
        return {name: found[name] for name in sorted(found)}

    async def use(self, project: str, version: str) -> Version:
        """Make a version the current one: what is queued from now on executes it."""

        def work(tx: Transaction) -> Version:
            store.hold(tx, project)
            return self._use(tx, version_in(tx, project, version))

        return await self._warned(await self._db.transact(work))

    async def rollback(self, project: str) -> Version:
        """Make the version current that was deployed before the current one."""

        def work(tx: Transaction) -> Version:
            store.hold(tx, project)
            now = version_in(tx, project, current_of(tx, project))
            earlier = [each for each in store.listed(tx, project) if _age(each) < _age(now)]
            if not earlier:
                raise Conflict(f"project {project} has no version that was deployed before {now.version}")
            return self._use(tx, max(earlier, key=_age))

        return await self._warned(await self._db.transact(work))

    async def delete(self, project: str, version: str) -> None:
        """Delete a version that is not the current one, unless it is the last, and that no live run is pinned to."""
        digest = await self._db.transact(lambda tx: self._delete(tx, project, version))
        await self._archives.forget({digest})

    async def drop(self, project: str, version: str | None = None) -> None:
        """Delete a version whichever it is, or all; the newest of the others becomes the current one. Runs that were
        queued keep the code."""
        await self._archives.forget(await self._db.transact(lambda tx: self._drop(tx, project, version)))

    async def _checked(self, project: str, archive: Path, version: str, digest: str, by: str) -> Version:
        """The version that the archive would be. Nothing is kept of what it was unpacked to."""
        trust = await self._trust(project)
        clear_step("checking")
        place = await asyncio.to_thread(self.incoming.take, "check")
        try:
            layout = await asyncio.to_thread(_laid_out, archive, place / "code", self._limits)
            checked = await self._checker.check(
                place / "code",
                layout,
                may_build=trust.may_build,
                min_isolation=stricter(trust.min_isolation, self._min_isolation),
                spider_env=(*self._spider_env, *trust.spider_env),
                ports=trust.ports,
            )
        finally:
            await asyncio.to_thread(self.incoming.give_back, place)
        return Version(
            project=project,
            version=version,
            digest=digest,
            size=await asyncio.to_thread(os.path.getsize, archive),
            format=layout.format,
            code=Code(
                version,
                digest,
                layout.settings,
                layout.root,
                layout.requirements,
                layout.lock,
                may_build=trust.may_build,
                grace_seconds=checked.grace_seconds,
            ),
            spiders=checked.spiders,
            is_current=True,
            deployed_at=self._clock(),
            deployed_by=by,
            own_settings=checked.settings,
            warnings=checked.warnings,
        )

    async def _trust(self, project: str) -> ProjectTrust:
        return (await self._db.read(lambda tx: store.trusts(tx, [project]))).get(project, NO_TRUST)

    async def _warned(self, version: Version) -> Version:
        """The version with the warnings that hold now: not of variables that reach its runs meanwhile."""
        if not any(each.code == "environment" for each in version.warnings):
            return version
        passed = (*self._spider_env, *(await self._trust(version.project)).spider_env)
        left = [each for each in version.warnings if each.code != "environment" or not is_passed(each.name, passed)]
        return dataclasses.replace(version, warnings=tuple(left))

    def _deploy(self, tx: Transaction, new: Version, *, replace: bool) -> tuple[Version, set[str]]:
        """The version as it is now, and the code that had its name."""
        store.hold(tx, new.project)
        if (known := _known(tx, new.project, new.version, new.digest, replace=replace)) is not None:
            return known if replace else self._use(tx, known), set()  # somebody else has just deployed the same
        before, old = store.current(tx, new.project), store.get(tx, new.project, new.version, lock=True)
        if old is not None:
            store.remove(tx, new.project, new.version)
        store.add(tx, new)
        now = _newest(store.listed(tx, new.project)) if replace else new
        store.set_current(tx, new.project, now.version)
        data = {"version": new.version, "before": before, "digest": new.digest, "by": new.deployed_by}
        append(tx, [Fact("version_deployed", new.project, data=data)], self._clock())
        _record_version(tx, new, before=None if old is None else _audited(old), after=_audited(new))
        return dataclasses.replace(new, is_current=now.version == new.version), set() if old is None else {old.digest}

    def _use(self, tx: Transaction, wanted: Version) -> Version:
        before = store.current(tx, wanted.project)
        if before != wanted.version:
            store.set_current(tx, wanted.project, wanted.version)
            data = {"version": wanted.version, "before": before}
            append(tx, [Fact("version_used", wanted.project, data=data)], self._clock())
        _record_version(tx, wanted, before={"current": before}, after={"current": wanted.version})
        return dataclasses.replace(wanted, is_current=True)

    def _delete(self, tx: Transaction, project: str, version: str) -> str:
        store.hold(tx, project)
        found = store.get(tx, project, version, lock=True)
        if found is None:
            raise NotFound("version", f"{version} of project {project}")
        if found.is_current and len(store.listed(tx, project)) > 1:
            raise Conflict(f"version {version} of project {project} is the current one; use another one first")
        if (run_id := store.live_run(tx, project, found.digest)) is not None:
            raise Conflict(f"version {version} of project {project} is needed by run {run_id}, which has not ended")
        self._remove(tx, [found])
        if found.is_current:
            store.set_current(tx, project, None)
        return found.digest

    def _drop(self, tx: Transaction, project: str, version: str | None) -> set[str]:
        store.hold(tx, project)
        there = store.listed(tx, project)
        gone = [each for each in there if version in (None, each.version)]
        if not gone:
            what = ("version", f"{version} of project {project}") if version is not None else ("project", project)
            raise NotFound(*what)
        self._remove(tx, gone)
        left = [each for each in there if each not in gone]
        if not left:
            store.set_current(tx, project, None)
        elif any(each.is_current for each in gone):
            self._use(tx, _newest(left))
        return {each.digest for each in gone}

    def _remove(self, tx: Transaction, gone: Collection[Version]) -> None:
        for each in gone:
            store.remove(tx, each.project, each.version)
            append(tx, [Fact("version_deleted", each.project, data={"version": each.version})], self._clock())
            _record_version(tx, each, before=_audited(each))

    def _stamp(self) -> str:
        moment = datetime.fromtimestamp(self._clock() / 1_000_000, UTC)
        return f"{moment:%Y%m%d.%H%M%S}.{moment.microsecond // 1000:03d}"


def _why(problem: BaseException) -> str:
    """The reason why a deploy has failed, for whoever follows it."""
    if isinstance(problem, WeftError):
        return problem.public
    if isinstance(problem, asyncio.CancelledError):
        return "the code was not deployed: it was stopped before its end"
    return "the code was not deployed: an internal error, which the log of weft tells"


def check_name(what: str, value: str) -> None:
    if not NAME.fullmatch(value):
        allowed = "it must be letters, digits, '.', '_' or '-', at most 100, starting with a letter or digit"
        raise Invalid(what, value, allowed)


def _known(tx: Transaction, project: str, version: str | None, digest: str, *, replace: bool = False) -> Version | None:
    """The version that a deploy would make, where it is there; refused where that name is of other code, unless that is
    to be replaced."""
    name = version if version is not None else store.current(tx, project)
    found = None if name is None else store.get(tx, project, name)
    if found is None or found.digest == digest:
        return found
    if version is None or replace:
        return None
    raise Conflict(
        f"version {version} of project {project} is there with other code; choose another name or delete it first"
    )


def _laid_out(archive: Path, folder: Path, limits: ArchiveLimits) -> CodeLayout:
    from weft.projects.archive import kind_of, unpack  # what knows archives is loaded with the first one
    from weft.projects.layout import layout_of

    unpack(archive, folder, limits)
    return layout_of(folder, kind_of(archive))


def _digest(archive: Path) -> str:
    with archive.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _newest(versions: Collection[Version]) -> Version:
    return max(versions, key=lambda each: version_key(each.version))


def _age(version: Version) -> Any:
    return version.deployed_at, version_key(version.version)


def _audited(version: Version) -> dict[str, Any]:
    """What the audit log is told of a version."""
    spiders = [each.name for each in version.spiders[:100]]
    return {"digest": version.digest, "deployed_at": iso(version.deployed_at), "spiders": spiders}


def _record_version(tx: Transaction, version: Version, *, before: Any = None, after: Any = None) -> None:
    told = AuditedChange(before=before, after=after, project=version.project, target=f"version {version.version}")
    record_changes(tx, [told])
