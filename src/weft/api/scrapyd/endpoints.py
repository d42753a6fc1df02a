"""The JSON endpoints, in Scrapyd's own words. What each needs and refuses is checked in Scrapyd's order."""

from __future__ import annotations

import uuid

from starlette.responses import Response

from weft.access.model import Role
from weft.api.scrapyd.answers import Complaint
from weft.api.scrapyd.asked import Asked
from weft.errors import NotFound
from weft.scrapyd.model import NewJob


async def daemonstatus(asked: Asked) -> Response:
    return asked.ok(**await asked.app.jobs.counts(asked.visible()))


async def listprojects(asked: Asked) -> Response:
    return asked.ok(projects=await asked.app.projects.names(asked.visible()))


async def schedule(asked: Asked) -> Response:
    """Queue a job. A name that is taken in its project is answered as if it had just been queued."""
    project, spider = asked.text("project"), asked.text("spider")
    version = asked.optional("_version")
    job = asked.optional("jobid")
    priority = _number("priority", asked.optional("priority"))
    settings = asked.texts("setting")
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
    try:
        return asked.ok(jobid=await asked.app.jobs.schedule(new))
    except NotFound as problem:
        raise _missing(problem, new) from problem


def _number(name: str, text: str | None) -> float:
    try:
        return float(text) if text is not None else 0.0
    except ValueError as problem:
        raise Complaint(f"{name} is invalid: {problem}") from problem


def _pairs(settings: list[str]) -> dict[str, str]:
    for place, each in enumerate(settings):
        if "=" not in each:
            raise Complaint(f"ValueError: dictionary update sequence element #{place} has length 1; 2 is required")
    return {name: value for name, _, value in (each.partition("=") for each in settings)}


def _missing(problem: NotFound, new: NewJob) -> Complaint:
    """The same in Scrapyd's words: its sentence names the kind of thing that is not there."""
    which = {"project": new.project, "version": new.version, "spider": new.spider}
    what = problem.what if problem.what in which else "version"
    return Complaint(f"{what} '{which[what]}' not found")
