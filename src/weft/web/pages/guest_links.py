"""Guest links of a project, and the pages that guests see with one.

A guest has no session and sees the runs, spiders and datasets of one project, or one dataset.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote, urlencode

from msgspec.structs import asdict
from starlette.responses import Response

from weft.access.model import CreatedGuestLink, GuestLinkDocument
from weft.errors import Invalid
from weft.items.exporters import ExportFormat
from weft.operations import datasets, guest_links, paging
from weft.operations.problems import RequestRefused
from weft.web.rendering import Redirect, WebPage
from weft.web.translations import N_
from weft.web.visit import ApiError, ForwardedResponse, Visit

GUEST_PREFIX = "/guest/"
HEADERS = {"Referrer-Policy": "no-referrer", "X-Robots-Tag": "noindex, nofollow"}
RUNS, ITEMS = 25, 50
"""A page of them."""
MOST_COLUMNS = 12
LONGEST_CELL = 300
FORMATS = [ExportFormat.CSV, ExportFormat.JSON, ExportFormat.JSONL]


async def guest_page(visit: Visit) -> WebPage:
    """What the link shows: a project, or a dataset."""
    with _not_found_for_guests():
        shown = await _shown(visit)
        if shown.dataset is not None:
            return await _dataset(visit, shown, shown.dataset)
        runs, spiders, datasets = await asyncio.gather(
            visit.call(guest_links.guest_runs, query=guest_links.GuestPageQuery(after=_after(visit), limit=RUNS)),
            visit.call(guest_links.guest_spiders),
            visit.call(guest_links.guest_datasets),
        )
    found = {"runs": runs, "spiders": spiders.items, "datasets": datasets.items}
    told: dict[str, Any] = {"link": shown, "here_is": _operation_path(visit), **found} | _pages(visit, runs, "")
    return WebPage("guest/project.html", told, {"shown": shown, **found}, headers=HEADERS)


async def guest_dataset(visit: Visit) -> WebPage:
    """One dataset of a project that the link shows."""
    with _not_found_for_guests():
        return await _dataset(visit, await _shown(visit), visit.path("name"))


async def guest_export(visit: Visit) -> Response:
    """The dataset as a file, however large it is."""
    path = f"/v1/guest/datasets/{quote(visit.path('name'), safe='')}/export"
    with _not_found_for_guests():
        await _shown(visit)
    asked = visit.query.get("format", "")
    query = {"format": asked if asked in FORMATS else ExportFormat.CSV.value}
    return ForwardedResponse(visit.api, path, query, {"authorization": f"Guest {visit.path('token')}"}, HEADERS)


async def _dataset(visit: Visit, shown: guest_links.GuestAccessDocument, name: str) -> WebPage:
    items = await visit.call(
        guest_links.guest_items, query=guest_links.GuestPageQuery(after=_after(visit), limit=ITEMS), name=name
    )
    rows = [each.data for each in items.items]
    columns = list(dict.fromkeys(field for row in rows for field in row))
    at = "" if shown.dataset is not None else f"/datasets/{quote(name, safe='')}"
    told: dict[str, Any] = {
        "link": shown,
        "name": name,
        "here_is": _operation_path(visit),
        "rows": rows,
        "formats": FORMATS,
    }
    told |= {"columns": columns[:MOST_COLUMNS], "left_out": columns[MOST_COLUMNS:], "longest": LONGEST_CELL}
    told |= {"files": f"{_operation_path(visit)}/datasets/{quote(name, safe='')}/export"} | _pages(visit, items, at)
    return WebPage("guest/dataset.html", told, {"shown": shown, "items": items}, headers=HEADERS)


async def _shown(visit: Visit) -> guest_links.GuestAccessDocument:
    """What the link shows; from now on operations are performed as its guest."""
    await visit.know_guest(visit.path("token"))
    return await visit.call(guest_links.show_guest)


@contextmanager
def _not_found_for_guests() -> Iterator[None]:
    """Who has no link that counts is told that there is nothing, whatever the reason."""
    try:
        yield
    except ApiError as refusal:
        if refusal.problem.status in (401, 403, 404):
            raise RequestRefused("not_found", "there is nothing to see here") from None
        raise


def _operation_path(visit: Visit) -> str:
    return GUEST_PREFIX + quote(visit.path("token"), safe="")


def _after(visit: Visit) -> str | None:
    return visit.query.get("after") or None


def _pages(visit: Visit, found: paging.Page[Any], at: str) -> dict[str, str]:
    """Where the list goes on, and where it begins."""
    place = _operation_path(visit) + at
    older = "" if found.next is None else f"{place}?{urlencode({'after': found.next})}"
    return {"older": older, "newest": place if _after(visit) else ""}


def without_token(path: str) -> str:
    """An address as it may stand in a log: without the token of a guest's link."""
    return GUEST_PREFIX + "…" if path.startswith(GUEST_PREFIX) else path


GUEST_PAGES = {
    "/guest/{token}": {"GET": guest_page},
    "/guest/{token}/datasets/{name}": {"GET": guest_dataset},
    "/guest/{token}/datasets/{name}/export": {"GET": guest_export},
}
GUEST_HANDLERS = frozenset({guest_page, guest_dataset, guest_export})
"""What guests may look at, who are not logged in."""


EXPIRIES = (("7", N_("In 7 days")), ("30", N_("In 30 days")), ("365", N_("In a year")), ("", N_("Never")))
MOST_DATASETS = "200"
"""That can be chosen from."""
MESSAGES = {"revoked": N_("The link is revoked: from now on it shows nothing.")}
"""What the page says after something was done, by the word in its address."""


async def guest_links_page(visit: Visit) -> WebPage:
    return await _listing(visit, said=MESSAGES.get(visit.query.get("said", ""), ""))


async def change_guest_links(visit: Visit) -> WebPage | Redirect:
    """Make a link, or revoke one. A new link is shown in the answer itself, which no address can ask for again."""
    if guest_link := visit.form.get("revoke", ""):
        await visit.call(guest_links.revoke, guest_link_id=guest_link)
        return Redirect(f"{_address(visit)}?said=revoked")
    days = visit.form.get("expires", "")
    body: dict[str, Any] = {"project": visit.path("project"), "label": visit.form.get("label", "").strip()}
    body["dataset"] = visit.form.get("dataset") or None
    if days not in dict(EXPIRIES):
        raise Invalid("expires", days, "it must be 7, 30 or 365 days, or empty")
    if days:
        body["expires_at"] = (datetime.now(UTC) + timedelta(days=int(days))).isoformat()
    try:
        made = await visit.call(guest_links.create, body=body)
    except ApiError as refusal:
        if refusal.problem.status not in (404, 409, 422):
            raise
        field = "dataset" if refusal.problem.status == 404 else refusal.problem.field or "label"
        return await _listing(visit, errors={field: refusal.problem.detail})
    return await _listing(visit, made=made)


async def _listing(
    visit: Visit, *, said: str = "", made: CreatedGuestLink | None = None, errors: Mapping[str, str] | None = None
) -> WebPage:
    project, after = visit.path("project"), visit.query.get("after", "")
    query = {"project": project, "limit": "50"} | ({"after": after} if after else {})
    found, known = await asyncio.gather(
        visit.call(guest_links.list_, query=query),
        visit.call(datasets.list_, query={"project": project, "limit": MOST_DATASETS}),
    )
    now = datetime.now(UTC).isoformat()
    rows = [asdict(each) | {"state": _state(each, now)} for each in found.items]
    typed = {name: visit.form.get(name, "30" if name == "expires" else "") for name in ("label", "dataset", "expires")}
    if made is not None:
        typed = {"label": "", "dataset": "", "expires": "30"}
    link = "" if made is None else _origin(visit) + visit.prefix + made.path
    shown: dict[str, Any] = {
        "project": project,
        "guest_links": rows,
        "link": link,
        "said": said,
        "errors": errors or {},
    }
    shown |= {"datasets": [each.name for each in known.items], "typed": typed, "expiries": EXPIRIES}
    shown |= {"older": f"{_address(visit)}?after={quote(found.next)}" if found.next else ""}
    shown |= {"newest": _address(visit) if after else "", "page": _address(visit)}
    document = paging.Page(items=rows, next=found.next)
    return WebPage("guest_links/list.html", shown, document, status=422 if errors else 201 if made else 200)


def _state(guest_link: GuestLinkDocument, now: str) -> str:
    if guest_link.revoked_at is not None:
        return "revoked"
    return "expired" if guest_link.expires_at is not None and guest_link.expires_at <= now else "valid"


def _origin(visit: Visit) -> str:
    return f"{visit.request.scope['scheme']}://{visit.request.headers['host']}"


def _address(visit: Visit) -> str:
    return f"/projects/{quote(visit.path('project'), safe='')}/guest-links"


LINK_PAGES = {"/projects/{project}/guest-links": {"GET": guest_links_page, "POST": change_guest_links}}

PAGES = GUEST_PAGES | LINK_PAGES
