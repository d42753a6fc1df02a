"""The JSON endpoints of Scrapyd's API, checked in Scrapyd's order and answered in its words."""

from __future__ import annotations

import asyncio
import json
import os.path
import re
import uuid
import zipfile
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from urllib.parse import quote

from starlette.responses import Response

from weft.access.model import NAME, Role
from weft.clock import SECOND, Moment
from weft.errors import Invalid, NotFound
from weft.projects.model import Version, version_key
from weft.scrapyd.jobs import asks_for_secrets, matching_version, newest_version
from weft.scrapyd.model import Job, JobLists, NewJob, sanitised
from weft.scrapyd_http import requests
from weft.scrapyd_http.requests import ScrapydError, ScrapydRequest, audited_call

SPECIAL = re.compile(r"[/%?#]")

_text = json.encoder.encode_basestring_ascii


def listjobs_members(found: JobLists) -> str:
    """The members of the answer that are lists of jobs."""
    pending = ", ".join([_pending(job) for job in found.pending])
    running = ", ".join([_running(job) for job in found.running])
    finished = ", ".join([_finished(job) for job in found.finished])
    return f'"pending": [{pending}], "running": [{running}], "finished": [{finished}]'


def local_time(at: Moment | None) -> str:
    """Such as ``2026-11-16 04:46:55.000000``, where this process thinks it is."""
    whole, rest = divmod(at or 0, SECOND)
    return f"{_local_second(whole)}.{rest:06d}"


def log_url(job: Job) -> str:
    return f"/logs/{job.project}/{job.spider}/{_file_name(job)}.log"


def items_url(job: Job) -> str:
    return f"/items/{job.project}/{job.spider}/{_file_name(job)}.jl"


def _file_name(job: Job) -> str:
    """As it is, which is what Scrapyd does; the task_id of a message may have what means something else in a URL."""
    return quote(job.id, safe="") if SPECIAL.search(job.id) else job.id


@lru_cache(10_000)
def _local_second(whole: int) -> str:
    """A list names the same few seconds again and again."""
    return datetime.fromtimestamp(whole).isoformat(" ")  # noqa: DTZ006  # as Scrapyd does


def _job_members(job: Job) -> str:
    return f'"id": {_text(job.id)}, "project": {_text(job.project)}, "spider": {_text(job.spider)}'


def _pending(job: Job) -> str:
    asked = json.dumps({"version": job.version, "settings": job.settings, "args": job.args})
    return f"{{{_job_members(job)}, {asked[1:-1]}}}"


def _running(job: Job) -> str:
    pid = "null" if job.pid is None else job.pid
    return f'{{{_job_members(job)}, "pid": {pid}, "start_time": "{local_time(job.started_at)}", {_file_urls(job)}}}'


def _finished(job: Job) -> str:
    times = f'"start_time": "{local_time(job.started_at)}", "end_time": "{local_time(job.ended_at)}"'
    return f"{{{_job_members(job)}, {times}, {_file_urls(job)}}}"


def _file_urls(job: Job) -> str:
    items = _text(items_url(job)) if job.has_items else "null"
    return f'"log_url": {_text(log_url(job))}, "items_url": {items}'


NOT_ZIP = "egg is not a ZIP file (if using curl, use egg=@path not egg=path)"
SIGNALS = ("HUP", "INT", "KILL", "STOP", "TERM")


async def daemonstatus(asked: ScrapydRequest) -> Response:
    return asked.ok(**await asked.app.jobs.counts(asked.visible()))


async def listprojects(asked: ScrapydRequest) -> Response:
    return asked.ok(projects=await asked.app.projects.names(asked.visible()))


async def listversions(asked: ScrapydRequest) -> Response:
    """The oldest first. A project that is not there has none."""
    project = _contained(asked.text("project"))
    if asked.caller.role_in(project) is None:
        return asked.ok(versions=[])
    names = await _versions(asked, project)
    return asked.ok(versions=list(dict.fromkeys(sanitised(name) for name in sorted(names, key=version_key))))


async def listspiders(asked: ScrapydRequest) -> Response:
    project, version = asked.text("project"), asked.optional("_version")
    asked.check(Role.VIEWER, project)
    there = await _versions(asked, project)
    if not there:
        raise _no_project(project)
    name = matching_version(there, version) if version else newest_version(there)
    if name is None:
        raise ScrapydError(f"version '{version}' not found")
    return asked.ok(spiders=[each.name for each in there[name].spiders])


async def listjobs(asked: ScrapydRequest) -> Response:
    project = asked.optional("project")
    await _check_project(asked, project)
    found = await asked.app.jobs.listing(asked.visible(project))
    return requests.with_members(asked.node_name, await asyncio.to_thread(listjobs_members, found))


async def status(asked: ScrapydRequest) -> Response:
    job, project = asked.text("job"), asked.optional("project")
    await _check_project(asked, project)
    found = await asked.app.jobs.find(job, asked.visible(project))
    return asked.ok(currstate=None if found is None else found.state.value)


async def schedule(asked: ScrapydRequest) -> Response:
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


async def cancel(asked: ScrapydRequest) -> Response:
    """Every signal asks the job to stop, and ends it where it does not; there is no way to end it sooner."""
    project, job, signal = asked.text("project"), asked.text("job"), asked.optional("signal") or "INT"
    await _check_project(asked, project, Role.OPERATOR)
    if signal not in SIGNALS and not signal.isdigit():
        raise Invalid("signal", signal, f"it must be one of {', '.join(SIGNALS)}, or a number")
    async with audited_call(asked, project, f"job {job}"):
        before = await asked.app.jobs.cancel(project, job)
    return asked.ok(prevstate=None if before is None else before.value)


async def addversion(asked: ScrapydRequest) -> Response:
    """Deploy an egg; a version that is there gets its code. One whose code does not work is not kept."""
    project, version = asked.text("project"), asked.text("version")
    if asked.egg is None and b"egg" not in asked.values:
        raise ScrapydError("'egg' parameter is required")
    asked.project = project
    asked.caller.check(Role.DEVELOPER, project)
    if asked.egg is None or not await asyncio.to_thread(zipfile.is_zipfile, asked.egg):
        raise ScrapydError(NOT_ZIP)
    async with audited_call(asked, _contained(project), f"version {version}"):
        deployed = await _deploy(asked, project, version, asked.egg)
    return asked.ok(project=project, version=version, spiders=len(deployed.spiders))


async def delversion(asked: ScrapydRequest) -> Response:
    project, version = asked.text("project"), asked.text("version")
    asked.check(Role.DEVELOPER, _contained(project), f"version '{version}' not found")
    name = matching_version(await _versions(asked, project), version)
    if name is None:
        raise ScrapydError(f"version '{version}' not found")
    async with audited_call(asked, project, f"version {version}"):
        await asked.app.projects.drop(project, name)
    return asked.ok()


async def delproject(asked: ScrapydRequest) -> Response:
    """Delete the code of a project. What waits to execute it is taken back; what runs goes on."""
    project = _contained(asked.text("project"))
    asked.check(Role.DEVELOPER, project)
    async with audited_call(asked, project, f"project {project}"):
        try:
            await asked.app.projects.drop(project)
        except NotFound as problem:
            raise _no_project(project) from problem
        await asked.app.jobs.take_back(project, "its project was deleted")
    return asked.ok()


async def _versions(asked: ScrapydRequest, project: str) -> dict[str, Version]:
    return {each.version: each for each in await asked.app.projects.versions(project)}


async def _deploy(asked: ScrapydRequest, project: str, version: str, egg: Path) -> Version:
    """Under the name that the version has already, however it is spelled now."""
    there = matching_version(await _versions(asked, project), version)
    name = there or (version if NAME.fullmatch(version) else sanitised(version))
    return await asked.app.projects.deploy(project, egg, name, by=asked.caller.actor, replace=True)


async def _check_project(asked: ScrapydRequest, project: str | None, needed: Role = Role.VIEWER) -> None:
    """Refuse a project that has no code, or that the caller may not see."""
    if project is not None:
        asked.check(needed, project)
        if not await asked.app.projects.names({project}):
            raise _no_project(project)


def _contained(project: str) -> str:
    """Refuse what would lead out of a folder of projects, if there were one."""
    path = os.path.normpath(project)
    if os.sep in path or path == os.pardir:
        raise ScrapydError(f"DirectoryTraversalError: {project}")
    return project


def _pairs(settings: list[str]) -> dict[str, str]:
    for place, each in enumerate(settings):
        if "=" not in each:
            raise ScrapydError(f"ValueError: dictionary update sequence element #{place} has length 1; 2 is required")
    return {name: value for name, _, value in (each.partition("=") for each in settings)}


def _no_project(project: str) -> ScrapydError:
    return ScrapydError(f"project '{project}' not found")


def _missing(problem: NotFound, new: NewJob) -> ScrapydError:
    """The same in Scrapyd's words: its sentence names the kind of thing that is not there."""
    which = {"project": new.project, "version": new.version, "spider": new.spider}
    what = problem.what if problem.what in which else "version"
    return ScrapydError(f"{what} '{which[what]}' not found")
