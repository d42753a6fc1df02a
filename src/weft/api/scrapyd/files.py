"""``/logs/…`` and ``/items/…``: folders and files that Scrapyd would have, made of runs while they are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from urllib.parse import quote, unquote_to_bytes

from starlette.responses import HTMLResponse, Response

from weft.access.model import Role
from weft.api.scrapyd import answers, stats
from weft.api.scrapyd.asked import Asked
from weft.api.scrapyd.file_answers import File, FileAnswers
from weft.api.scrapyd.item_text import ItemFile
from weft.api.scrapyd.listing import STYLE, Entry, listing
from weft.api.scrapyd.log_parts import log_file
from weft.api.scrapyd.pages import page
from weft.api.scrapyd.prefixes import prefix_of
from weft.app import App
from weft.clock import Clock, now
from weft.items.model import AttemptStats
from weft.scrapyd.figures import newest_stats
from weft.scrapyd.folders import Folders, JobFiles
from weft.scrapyd.model import Job, JobState

LOGS, ITEMS = "logs", "items"
ENDINGS = {LOGS: ".log", ITEMS: ".jl"}
STATS = ".json"
MOST_SIZED = 50
"""Of how many files of a folder the size is found out: the newest, if they are short."""
SHORT_LOG, FEW_ITEMS = 1 << 16, 1_000


class Files:
    """What the door hands addresses to that begin with ``/logs`` or ``/items``."""

    def __init__(self, app: App, clock: Clock = now) -> None:
        self._clock = clock
        self._folders = Folders(app.db, clock)
        self._answers = FileAnswers()

    async def logs(self, asked: Asked) -> Response:
        return await self._answer(asked)

    async def items(self, asked: Asked) -> Response:
        return await self._answer(asked)

    async def _answer(self, asked: Asked) -> Response:
        path = path_of(asked)
        if path is None:
            return answers.not_found()
        names, is_folder = path
        kind, *inner = names
        if kind == LOGS and inner == ["stats.json"] and not is_folder:
            return await stats.every_job(asked, self._clock())
        if len(inner) < 3:
            return await self._folder(asked, names, is_folder=is_folder)
        if len(inner) > 3 or is_folder:
            return answers.not_found()
        return await self._file(asked, kind, *inner)

    async def _folder(self, asked: Asked, names: list[str], *, is_folder: bool) -> Response:
        entries = await self._entries(asked, *names)
        if entries is None:
            return answers.not_found()
        if not is_folder:
            return redirect(prefix_of(asked.request.headers) + quote(f"/{'/'.join(names)}/"))
        return page(listing(f"/{'/'.join(names)}/", entries), STYLE)

    async def _entries(self, asked: Asked, kind: str, project: str = "", spider: str = "") -> list[Entry] | None:
        """What is in a folder; None where there is no such folder for this caller."""
        if not project:
            projects = await self._folders.projects(asked.visible())
            return [Entry(f"{each.name}/", each.changed_at) for each in projects]
        if not may_see(asked, project):
            return None
        if not spider:
            spiders = await self._folders.spiders(project)
            return [Entry(f"{each.name}/", each.changed_at) for each in spiders] or None
        found = await self._folders.jobs(project, spider)
        sizes = await self._sizes(asked, kind, found)
        entries = (Entry(each.job.id + ENDINGS[kind], each.changed_at, sizes.get(each.job.run_id)) for each in found)
        return list(entries) or None

    async def _sizes(self, asked: Asked, kind: str, found: Sequence[JobFiles]) -> dict[int, int]:
        """How long files are, as far as that is found out soon; of other logs, how long they are as they are kept."""
        newest = found[:MOST_SIZED]
        if kind == LOGS:
            sizes = {each.job.run_id: each.log_bytes for each in found}
            short = [each.job for each in newest if each.log_bytes <= SHORT_LOG]
        else:
            sizes, told = {}, await newest_stats(asked.app.db, [each.job.run_id for each in newest])
            short = [each.job for each in newest if _items_of(told, each.job) <= FEW_ITEMS]
        for job in short:
            sizes[job.run_id] = await self._answers.size(await self._opened(asked, kind, job))
        return sizes

    async def _file(self, asked: Asked, kind: str, project: str, spider: str, name: str) -> Response:
        ending = STATS if kind == LOGS and name.endswith(STATS) else ENDINGS[kind]
        job = await self._job(asked, project, spider, name.removesuffix(ending)) if name.endswith(ending) else None
        if job is None:
            return answers.not_found()
        if ending == STATS:
            return await stats.one_job(asked, job, self._clock())
        file = await self._opened(asked, kind, job)
        return await self._answers.of(file, asked.method, asked.request.headers)

    async def _opened(self, asked: Asked, kind: str, job: Job) -> File:
        return await (self._log(asked, job) if kind == LOGS else self._items_file(asked, job))

    async def _job(self, asked: Asked, project: str, spider: str, name: str) -> Job | None:
        """The job, if it has begun: only then there are files."""
        if not may_see(asked, project):
            return None
        job = await asked.app.jobs.find(name, {project})
        return job if job is not None and job.spider == spider and job.attempt > 0 else None

    async def _log(self, asked: Asked, job: Job) -> File:
        ended = await asked.app.runs.attempts(job.run_id)
        logs = tuple((each.attempt, each.log_key, each.log_bytes) for each in ended)
        key = (LOGS, job.run_id, logs) if job.state is JobState.FINISHED else None
        return File(text=await log_file(asked.app.runs, job), key=key, changed_at=self._changed_at(job))

    async def _items_file(self, asked: Asked, job: Job) -> File:
        counted = await asked.app.items.stats(job.run_id)
        told = tuple((each.attempt, each.items) for each in counted)
        key = (ITEMS, job.run_id, told) if job.state is JobState.FINISHED else None
        return File(text=ItemFile(asked.app.items, job.run_id), key=key, changed_at=self._changed_at(job))

    def _changed_at(self, job: Job) -> int:
        return job.ended_at or self._clock() if job.state is JobState.FINISHED else self._clock()


def redirect(path: str) -> Response:
    text = f'<!DOCTYPE html>\n<html lang="en">\n<body><a href="{escape(path)}">It is here.</a></body>\n</html>\n'
    return HTMLResponse(text, 302, {"Location": path})


def _items_of(told: Mapping[int, AttemptStats], job: Job) -> int:
    return told[job.run_id].items if job.run_id in told else 0


def may_see(asked: Asked, project: str) -> bool:
    role = asked.caller.role_in(project)
    return role is not None and role >= Role.VIEWER


def path_of(asked: Asked) -> tuple[list[str], bool] | None:
    """The names of an address, and whether it ends with a slash; None where one of them leads elsewhere.

    Names are cut before they are decoded, so that a slash within one is none of ours. Empty ones count as none.
    """
    raw: bytes = asked.request.scope.get("raw_path") or quote(asked.request.scope["path"]).encode()
    path = raw.split(b"?", 1)[0]
    try:
        names = [unquote_to_bytes(each).decode() for each in path.split(b"/") if each]
    except UnicodeDecodeError:
        return None
    if not names or any(each in (".", "..") or "/" in each or "\0" in each for each in names):
        return None
    return names, path.endswith(b"/")
