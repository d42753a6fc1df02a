"""The front door to projects' code: deploy it, list it, choose which version runs, delete it.

A deploy is whole or it was never there: the code is checked first, its archive is kept next, and the row, the event and
the choice of the current version are one transaction at the end. The same name with other code is refused, unless it is
to be replaced. Runs that were queued keep the code that they were pinned to.
"""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import os
from collections.abc import Collection
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft.access.model import NAME
from weft.access.witness import Told, tell_all
from weft.clock import Clock, iso
from weft.db.database import Database, Transaction
from weft.errors import Conflict, Invalid, NotFound
from weft.events import Fact, append
from weft.ports import Blobs
from weft.projects import store
from weft.projects.archives import Archives
from weft.projects.changes import Changes, changes
from weft.projects.checking import Checker
from weft.projects.finding import current_of, page_of, version_in
from weft.projects.incoming import Incoming
from weft.projects.model import Code, Limits, Spider, Version
from weft.projects.version_order import version_key

if TYPE_CHECKING:
    from weft.projects.formats import Layout


class Projects:
    def __init__(
        self, db: Database, blobs: Blobs, checker: Checker, clock: Clock, *, folder: Path, limits: Limits
    ) -> None:
        self._db, self._checker, self._clock = db, checker, clock
        self._archives = Archives(db, blobs)
        self.incoming, self._limits = Incoming(folder), limits

    @property
    def largest_bytes(self) -> int:
        return self._limits.archive_bytes

    async def deploy(
        self, project: str, archive: Path, version: str | None = None, *, by: str = "", replace: bool = False
    ) -> Version:
        """Check an archive, keep it as a version and make that the current one.

        The same code under the same name again changes nothing but which version is current. Without a name, code that
        is not the current one already is named after the time. To ``replace`` is to give a name that is there other
        code; then the newest by name is the current one. Raises ``Rejected`` where the code does not work.
        """
        check_name("project", project)
        version = version or None
        if version is not None:
            check_name("version", version)
        digest = await asyncio.to_thread(_digest, archive)
        known = await self._db.read(lambda tx: _known(tx, project, version, digest, replace=replace))
        if known is not None:
            return known if known.is_current or replace else await self.use(project, known.version)
        found = await self._checked(project, archive, version or self._stamp(), digest, by)
        async with self._archives.keeping(digest, archive):
            deployed, replaced = await self._db.transact(lambda tx: self._deploy(tx, found, replace=replace))
        await self._archives.forget(replaced)
        return deployed

    async def names(self, projects: Collection[str] | None = None) -> list[str]:
        """The projects that have code, or those among ``projects``."""
        found = await self._db.read(store.with_code)
        return [name for name in found if projects is None or name in projects]

    async def versions(self, project: str) -> list[Version]:
        """Every version, the newest by name first."""
        found = await self._db.read(lambda tx: store.listed(tx, project))
        return sorted(found, key=lambda each: version_key(each.version), reverse=True)

    async def page(self, project: str, after: str | None, limit: int) -> tuple[list[Version], str | None]:
        """The next versions, the newest by name first, and the last of them where there are more."""
        return await self._db.read(lambda tx: page_of(tx, project, after, limit))

    async def changes(self, project: str, before: str, after: str) -> Changes:
        """What differs between two versions."""
        return await self._db.read(lambda tx: changes(version_in(tx, project, before), version_in(tx, project, after)))

    async def get(self, project: str, version: str | None = None) -> Version:
        """One version, or the current one."""

        def work(tx: Transaction) -> Version:
            return version_in(tx, project, version if version is not None else current_of(tx, project))

        return await self._db.read(work)

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

        return await self._db.transact(work)

    async def rollback(self, project: str) -> Version:
        """Make the version current that was deployed before the current one."""

        def work(tx: Transaction) -> Version:
            store.hold(tx, project)
            now = version_in(tx, project, current_of(tx, project))
            earlier = [each for each in store.listed(tx, project) if _age(each) < _age(now)]
            if not earlier:
                raise Conflict(f"project {project} has no version that was deployed before {now.version}")
            return self._use(tx, max(earlier, key=_age))

        return await self._db.transact(work)

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
        place = await asyncio.to_thread(self.incoming.take, "check")
        try:
            layout = await asyncio.to_thread(_laid_out, archive, place / "code", self._limits)
            spiders, own_settings = await self._checker.check(place / "code", layout)
        finally:
            await asyncio.to_thread(self.incoming.give_back, place)
        return Version(
            project=project,
            version=version,
            digest=digest,
            size=await asyncio.to_thread(os.path.getsize, archive),
            format=layout.format,
            code=Code(version, digest, layout.settings, layout.root, layout.requirements, layout.lock),
            spiders=spiders,
            is_current=True,
            deployed_at=self._clock(),
            deployed_by=by,
            own_settings=own_settings,
        )

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
        _tell(tx, new, before=None if old is None else _told(old), after=_told(new))
        return dataclasses.replace(new, is_current=now.version == new.version), set() if old is None else {old.digest}

    def _use(self, tx: Transaction, wanted: Version) -> Version:
        before = store.current(tx, wanted.project)
        if before != wanted.version:
            store.set_current(tx, wanted.project, wanted.version)
            data = {"version": wanted.version, "before": before}
            append(tx, [Fact("version_used", wanted.project, data=data)], self._clock())
        _tell(tx, wanted, before={"current": before}, after={"current": wanted.version})
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
            _tell(tx, each, before=_told(each))

    def _stamp(self) -> str:
        moment = datetime.fromtimestamp(self._clock() / 1_000_000, UTC)
        return f"{moment:%Y%m%d.%H%M%S}.{moment.microsecond // 1000:03d}"


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


def _laid_out(archive: Path, folder: Path, limits: Limits) -> Layout:
    from weft.projects.archive import kind_of, unpack  # what knows archives is loaded with the first one
    from weft.projects.formats import layout_of

    unpack(archive, folder, limits)
    return layout_of(folder, kind_of(archive))


def _digest(archive: Path) -> str:
    with archive.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _newest(versions: Collection[Version]) -> Version:
    return max(versions, key=lambda each: version_key(each.version))


def _age(version: Version) -> Any:
    return version.deployed_at, version_key(version.version)


def _told(version: Version) -> dict[str, Any]:
    """What the audit log is told of a version."""
    spiders = [each.name for each in version.spiders[:100]]
    return {"digest": version.digest, "deployed_at": iso(version.deployed_at), "spiders": spiders}


def _tell(tx: Transaction, version: Version, *, before: Any = None, after: Any = None) -> None:
    told = Told(before=before, after=after, project=version.project, target=f"version {version.version}")
    tell_all(tx, [told])
