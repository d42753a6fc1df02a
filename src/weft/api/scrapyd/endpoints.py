"""The JSON endpoints, in Scrapyd's own words. What each needs and refuses is checked in Scrapyd's order."""

from __future__ import annotations

import asyncio
import os.path
import uuid
import zipfile
from pathlib import Path

from starlette.responses import Response

from weft.access.model import NAME, Role
from weft.api.scrapyd import answers
from weft.api.scrapyd.answers import Complaint
from weft.api.scrapyd.asked import Asked
from weft.api.scrapyd.job_answers import members
from weft.api.scrapyd.noting import noted
from weft.errors import Invalid, NotFound
from weft.projects.model import Version
from weft.projects.version_order import version_key
from weft.scrapyd.jobs import asks_for_secrets, newest, spelled
from weft.scrapyd.model import NewJob, sanitised

NOT_ZIP = "egg is not a ZIP file (if using curl, use egg=@path not egg=path)"
SIGNALS = ("HUP", "INT", "KILL", "STOP", "TERM")


async def daemonstatus(asked: Asked) -> Response:
    return asked.ok(**await asked.app.jobs.counts(asked.visible()))


async def listprojects(asked: Asked) -> Response:
    return asked.ok(projects=await asked.app.projects.names(asked.visible()))


async def listversions(asked: Asked) -> Response:
    """The oldest first. A project that is not there has none."""
    project = _contained(asked.text("project"))
    if asked.caller.role_in(project) is None:
        return asked.ok(versions=[])
    names = await _versions(asked, project)
    return asked.ok(versions=list(dict.fromkeys(sanitised(name) for name in sorted(names, key=version_key))))


async def listspiders(asked: Asked) -> Response:
    project, version = asked.text("project"), asked.optional("_version")
    asked.check(Role.VIEWER, project)
    there = await _versions(asked, project)
    if not there:
        raise _no_project(project)
    name = spelled(there, version) if version else newest(there)
    if name is None:
        raise Complaint(f"version '{version}' not found")
    return asked.ok(spiders=[each.name for each in there[name].spiders])


async def listjobs(asked: Asked) -> Response:
    project = asked.optional("project")
    await _check_project(asked, project)
    found = await asked.app.jobs.listing(asked.visible(project))
    return answers.with_members(asked.node_name, await asyncio.to_thread(members, found))


async def status(asked: Asked) -> Response:
    job, project = asked.text("job"), asked.optional("project")
    await _check_project(asked, project)
    found = await asked.app.jobs.find(job, asked.visible(project))
    return asked.ok(currstate=None if found is None else found.state.value)


async def schedule(asked: Asked) -> Response:
    """Queue a job. A name that is taken in its project is answered as if it had just been queued."""
    project, spider = asked.text("project"), asked.text("spider")
    version, job = asked.optional("_version"), asked.optional("jobid")
    priority, settings = asked.number("priority"), asked.texts("setting")
    asked.check(Role.OPERATOR, project)
    new = NewJob(
        id=uuid.uuid1().hex if job is None else job,
        project=project,
        spider=spider,
        version=version,
        priority=priority,
        settings=_pairs(settings),
        args=asked.rest(),
        by=asked.caller.actor,
    )
    if asks_for_secrets(new):  # whoever says where a secret goes to can read it
        asked.check(Role.DEVELOPER, project)
    try:
        return asked.ok(jobid=await asked.app.jobs.schedule(new))
    except NotFound as problem:
        raise _missing(problem, new) from problem


async def cancel(asked: Asked) -> Response:
    """Every signal asks the job to stop, and ends it where it does not; there is no way to end it sooner."""
    project, job, signal = asked.text("project"), asked.text("job"), asked.optional("signal") or "INT"
    await _check_project(asked, project, Role.OPERATOR)
    if signal not in SIGNALS and not signal.isdigit():
        raise Invalid("signal", signal, f"it must be one of {', '.join(SIGNALS)}, or a number")
    async with noted(asked, project, f"job {job}"):
        before = await asked.app.jobs.cancel(project, job)
    return asked.ok(prevstate=None if before is None else before.value)


async def addversion(asked: Asked) -> Response:
    """Deploy an egg; a version that is there gets its code. One whose code does not work is not kept."""
    project, version = asked.text("project"), asked.text("version")
    if asked.egg is None and b"egg" not in asked.values:
        raise Complaint("'egg' parameter is required")
    asked.project = project
    asked.caller.check(Role.DEVELOPER, project)
    if asked.egg is None or not await asyncio.to_thread(zipfile.is_zipfile, asked.egg):
        raise Complaint(NOT_ZIP)
    async with noted(asked, _contained(project), f"version {version}"):
        deployed = await _deploy(asked, project, version, asked.egg)
    return asked.ok(project=project, version=version, spiders=len(deployed.spiders))


async def delversion(asked: Asked) -> Response:
    project, version = asked.text("project"), asked.text("version")
    asked.check(Role.DEVELOPER, _contained(project), f"version '{version}' not found")
    name = spelled(await _versions(asked, project), version)
    if name is None:
        raise Complaint(f"version '{version}' not found")
    async with noted(asked, project, f"version {version}"):
        await asked.app.projects.drop(project, name)
    return asked.ok()


async def delproject(asked: Asked) -> Response:
    """Delete the code of a project. What waits to execute it is taken back; what runs goes on."""
    project = _contained(asked.text("project"))
    asked.check(Role.DEVELOPER, project)
    async with noted(asked, project, f"project {project}"):
        try:
            await asked.app.projects.drop(project)
        except NotFound as problem:
            raise _no_project(project) from problem
        await asked.app.jobs.take_back(project, "its project was deleted")
    return asked.ok()


async def _versions(asked: Asked, project: str) -> dict[str, Version]:
    return {each.version: each for each in await asked.app.projects.versions(project)}


async def _deploy(asked: Asked, project: str, version: str, egg: Path) -> Version:
    """Under the name that the version has already, however it is spelled now."""
    there = spelled(await _versions(asked, project), version)
    name = there or (version if NAME.fullmatch(version) else sanitised(version))
    return await asked.app.projects.deploy(project, egg, name, by=asked.caller.actor, replace=True)


async def _check_project(asked: Asked, project: str | None, needed: Role = Role.VIEWER) -> None:
    """Refuse a project that has no code, or that the caller may not see."""
    if project is not None:
        asked.check(needed, project)
        if not await asked.app.projects.names({project}):
            raise _no_project(project)


def _contained(project: str) -> str:
    """Refuse what would lead out of a folder of projects, if there were one."""
    path = os.path.normpath(project)
    if os.sep in path or path == os.pardir:
        raise Complaint(f"DirectoryTraversalError: {project}")
    return project


def _pairs(settings: list[str]) -> dict[str, str]:
    for place, each in enumerate(settings):
        if "=" not in each:
            raise Complaint(f"ValueError: dictionary update sequence element #{place} has length 1; 2 is required")
    return {name: value for name, _, value in (each.partition("=") for each in settings)}


def _no_project(project: str) -> Complaint:
    return Complaint(f"project '{project}' not found")


def _missing(problem: NotFound, new: NewJob) -> Complaint:
    """The same in Scrapyd's words: its sentence names the kind of thing that is not there."""
    which = {"project": new.project, "version": new.version, "spider": new.spider}
    what = problem.what if problem.what in which else "version"
    return Complaint(f"{what} '{which[what]}' not found")
