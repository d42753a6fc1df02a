"""Scrapyd's two pages, ``/`` and ``/jobs``. ScrapydWeb reads the rows of the second with a regular expression."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Collection, Sequence
from datetime import timedelta
from functools import cache
from html import escape
from urllib.parse import quote

from starlette.responses import HTMLResponse, Response

from weft.api.scrapyd import answers
from weft.api.scrapyd.asked import Asked
from weft.api.scrapyd.log_text import local_second
from weft.api.scrapyd.prefixes import prefix_of
from weft.clock import SECOND, Moment, now
from weft.scrapyd.model import Job, JobLists, JobState

STYLE = """
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


async def home(asked: Asked) -> Response:
    projects = await asked.app.projects.names(asked.visible())
    return page(home_page(projects, prefix_of(asked.request.headers)), STYLE)


async def jobs(asked: Asked) -> Response:
    """As many of the jobs that have ended as are kept, so that the page stays short."""
    if asked.path != "/jobs":
        return answers.not_found()
    listed = await asked.app.jobs.listing(asked.visible())
    return page(jobs_page(listed, prefix_of(asked.request.headers), now()), STYLE)


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
    return _PAGE.format(style=STYLE, body=_HOME.format(prefix=escape(prefix), projects=told))


def jobs_page(jobs: JobLists, prefix: str, now: Moment) -> str:
    lists = {"Pending": jobs.pending, "Running": jobs.running, "Finished": jobs.finished}
    columns = "\n".join(f"<th>{each}</th>" for each in COLUMNS)
    told = "\n".join(_list(title, listed, escape(prefix), now) for title, listed in lists.items())
    return _PAGE.format(style=STYLE, body=_JOBS.format(columns=columns, lists=told))


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
    links = [f'<a href="{prefix}{log}">Log</a>', f'<a href="{prefix}{items}">Items</a>']
    return [*links, cancel if job.state is JobState.RUNNING else ""]


def file_url(job: Job, folder: str, ending: str) -> str:
    return quote(f"/{folder}/{job.project}/{job.spider}/{job.id}.{ending}")


def runtime(start: Moment, end: Moment) -> str:
    """How long it took, in whole seconds, as Python shows a span."""
    return str(timedelta(seconds=max(0, end - start) // SECOND))


def _second(at: Moment) -> str:
    return local_second(at // SECOND)
