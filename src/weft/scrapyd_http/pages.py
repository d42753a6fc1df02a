"""Scrapyd's pages ``/`` and ``/jobs``, and its folder listings, which ScrapydWeb parses with regular expressions."""

from __future__ import annotations

import base64
import hashlib
import re
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from html import escape
from itertools import cycle
from urllib.parse import quote

from starlette.responses import HTMLResponse, Response

from weft.clock import SECOND, Moment, now
from weft.scrapyd.model import Job, JobLists, JobState
from weft.scrapyd_http import requests
from weft.scrapyd_http.logs import local_second
from weft.scrapyd_http.requests import ScrapydRequest

HEADER = "x-forwarded-prefix"
_PATH = re.compile(r"(?!//)[A-Za-z0-9._~/-]{1,200}", re.ASCII)


def prefix_of(headers: Mapping[str, str]) -> str:
    """What links begin with. What is no plain path counts as none: nobody makes our links lead elsewhere."""
    told = headers.get(HEADER, "").strip()
    return told.rstrip("/") if _PATH.fullmatch(told) else ""


FOLDER_STYLE = """
body { font-family: system-ui, sans-serif; margin: 1rem; }
table { border-collapse: collapse; }
th, td { padding: .2rem .8rem; text-align: left; }
.even { background-color: #eee; }
"""

_FOLDER_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<h1>{title}</h1>
<table>
<thead>
<tr>
    <th>Filename</th>
    <th>Size</th>
    <th>Last modified</th>
    <th>Content type</th>
    <th>Content encoding</th>
</tr>
</thead>
<tbody>
{rows}</tbody>
</table>
</body>
</html>
"""

_FOLDER_ROW = """<tr class="{parity}">
    <td><a href="{href}">{name}</a></td>
    <td>{size}</td>
    <td>{modified}</td>
    <td>[{kind}]</td>
    <td></td>
</tr>
"""


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A folder, whose name ends with a slash, or a file."""

    name: str
    modified_at: Moment
    size: int | None = None
    """None where nobody has counted."""
    media_type: str = "text/plain"

    @property
    def kind(self) -> str:
        return "Directory" if self.name.endswith("/") else self.media_type


def folder_page(path: str, entries: Sequence[ListedFile]) -> str:
    """The page of the folder ``path``: folders first, then files, each by name."""
    in_order = sorted(entries, key=lambda each: (not each.name.endswith("/"), each.name))
    rows = "".join(_folder_row(each, parity) for each, parity in zip(in_order, cycle(("odd", "even")), strict=False))
    return _FOLDER_PAGE.format(title=escape(f"Directory listing for {path}"), style=FOLDER_STYLE, rows=rows)


def _folder_row(each: ListedFile, parity: str) -> str:
    return _FOLDER_ROW.format(
        parity=parity,
        href=escape(quote(each.name.removesuffix("/"), safe="") + "/" * each.name.endswith("/")),
        name=escape(each.name),
        size="" if each.size is None else short_size(each.size),
        modified=time.strftime("%Y-%m-%d %H:%M", time.localtime(each.modified_at // SECOND)),
        kind=escape(each.kind),
    )


def short_size(size: int) -> str:
    """A number of bytes in few characters, as Scrapyd rounds it."""
    for unit, bound in (("B", 1 << 10), ("K", 1 << 20), ("M", 1 << 30)):
        if size < bound:
            return f"{size // (bound >> 10)}{unit}"
    return f"{size >> 30}G"


PAGE_STYLE = """
body { font-family: system-ui, sans-serif; }
table { border-collapse: collapse; }
th, td { border: 1px solid; padding: .5rem; }
tbody > tr:first-child { background-color: #eee; }
td:nth-child(2), td:nth-child(3) { word-break: break-all; }
"""
COLUMNS = ("Project", "Spider", "Job", "PID", "Start", "Runtime", "Finish", "Log", "Items", "Cancel")

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
    <meta charset="utf-8">
    <meta name="viewport" content="width=device-width, initial-scale=1">
    <title>Scrapyd</title>
    <style>{style}</style>
</head>
<body>
{body}
</body>
</html>
"""

_HOME = """<h1>Scrapyd</h1>
<ul>
    <li><a href="{prefix}/jobs">Jobs</a></li>
    <li><a href="{prefix}/items/">Items</a></li>
    <li><a href="{prefix}/logs/">Logs</a></li>
    <li><a href="https://scrapyd.readthedocs.io/en/latest/">Documentation</a></li>
</ul>
{projects}
<p>weft answers here as Scrapyd does. To upload projects and to schedule jobs, use the API. For example:</p>
<p><code>curl http://localhost:6800/schedule.json -d project=default -d spider=somespider</code></p>"""

_JOBS = """<h1>Jobs</h1>
<p><a href="./">Go up</a></p>
<table id="jobs">
<thead>
<tr>
{columns}
</tr>
</thead>
{lists}
</table>"""

_CANCEL = """
<form method="post" action="{prefix}/cancel.json">
<input type="hidden" name="project" value="{project}">
<input type="hidden" name="job" value="{job}">
<input type="submit" value="Cancel">
</form>
"""


async def home(asked: ScrapydRequest) -> Response:
    projects = await asked.app.projects.names(asked.visible())
    return page(home_page(projects, prefix_of(asked.request.headers)), PAGE_STYLE)


async def jobs(asked: ScrapydRequest) -> Response:
    """As many of the jobs that have ended as are kept, so that the page stays short."""
    if asked.path != "/jobs":
        return requests.not_found()
    listed = await asked.app.jobs.listing(asked.visible())
    return page(jobs_page(listed, prefix_of(asked.request.headers), now()), PAGE_STYLE)


def page(text: str, style: str) -> Response:
    return HTMLResponse(text, headers={"Content-Security-Policy": policy_of(style)})


@cache
def policy_of(style: str) -> str:
    """What a browser may do with a page of ours: nothing but show this style and send its forms to us."""
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    rest = "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    return f"default-src 'none'; style-src 'sha256-{digest}'; {rest}"


def home_page(projects: Collection[str], prefix: str) -> str:
    listed = "\n".join(f"    <li>{escape(each)}</li>" for each in sorted(projects))
    told = f"<p>Scrapy projects:</p>\n<ul>\n{listed}\n</ul>" if projects else "<p>No Scrapy projects yet.</p>"
    return _PAGE.format(style=PAGE_STYLE, body=_HOME.format(prefix=escape(prefix), projects=told))


def jobs_page(jobs: JobLists, prefix: str, now: Moment) -> str:
    lists = {"Pending": jobs.pending, "Running": jobs.running, "Finished": jobs.finished}
    columns = "\n".join(f"<th>{each}</th>" for each in COLUMNS)
    told = "\n".join(_list(title, listed, escape(prefix), now) for title, listed in lists.items())
    return _PAGE.format(style=PAGE_STYLE, body=_JOBS.format(columns=columns, lists=told))


def _list(title: str, jobs: Sequence[Job], prefix: str, now: Moment) -> str:
    rows = "".join(f"{_row(job, prefix, now)}\n" for job in jobs)
    return f'<tbody>\n<tr>\n<th colspan="{len(COLUMNS)}">{title}</th>\n</tr>\n{rows}</tbody>'


def _row(job: Job, prefix: str, now: Moment) -> str:
    cells = [escape(job.project), escape(job.spider), escape(job.id), *_times(job, now), *_links(job, prefix)]
    return "<tr>\n" + "\n".join(f"<td>{cell}</td>" for cell in cells) + "\n</tr>"


def _times(job: Job, now: Moment) -> list[str]:
    """The cells of PID, Start, Runtime and Finish."""
    if job.state is JobState.PENDING:
        return [""] * 4
    has_ended = job.state is JobState.FINISHED
    end = (job.ended_at or now) if has_ended else now
    start = job.started_at or end
    pid = "" if has_ended else str(job.pid or 0)
    return [pid, _second(start), runtime(start, end), _second(end) if has_ended else ""]


def _links(job: Job, prefix: str) -> list[str]:
    """The cells of Log, Items and Cancel."""
    cancel = _CANCEL.format(prefix=prefix, project=escape(job.project), job=escape(job.id))
    if job.state is JobState.PENDING:
        return ["", "", cancel]
    log, items = (escape(file_url(*each)) for each in ((job, "logs", "log"), (job, "items", "jl")))
    links = [f'<a href="{prefix}{log}">Log</a>', f'<a href="{prefix}{items}">Items</a>' if job.has_items else ""]
    return [*links, cancel if job.state is JobState.RUNNING else ""]


def file_url(job: Job, folder: str, ending: str) -> str:
    return quote(f"/{folder}/{job.project}/{job.spider}/") + quote(f"{job.id}.{ending}", safe="")


def runtime(start: Moment, end: Moment) -> str:
    """How long it took, in whole seconds, as Python shows a span."""
    return str(timedelta(seconds=max(0, end - start) // SECOND))


def _second(at: Moment) -> str:
    return local_second(at // SECOND)
