"""Datasets: the list, the records of one and their revisions, its schema and its destinations."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
from msgspec.structs import asdict

from weft import strict_json
from weft.operations import datasets, paging
from weft.operations import datasets as delivering
from weft.operations.datasets import (
    DatasetDocument,
    DatasetRunDocument,
    DestinationDocument,
    RecordDocument,
    RevisionDocument,
)
from weft.web.forms import translated
from weft.web.pages.items import AS_JSON, IN_TABLE, SAMPLE, listed, searched, tabled
from weft.web.rendering import LiveRefresh, Redirect, WebPage
from weft.web.scraped_values import (
    ExpandBudget,
    ItemsQuery,
    columns_of,
    differences,
    export_formats,
    offered,
    value_cell,
)
from weft.web.translations import N_
from weft.web.visit import ApiError, Visit, may

NEW, CHANGED, GONE = "new", "changed", "gone"
ONLY = ((NEW, N_("New in it")), (CHANGED, N_("Changed in it")), (GONE, N_("Gone")))
BY_RUN = {NEW: "new_in_run", CHANGED: "changed_in_run", GONE: "unseen_in_run"}
RUNS = 10
"""Of the newest runs, one that succeeded says what is gone."""
REVISIONS = 20
"""Revisions of a record on one page."""
LARGEST_RECORD = 50_000
"""Characters of a record that are folded out on its page."""
AFTER_RUNS = LiveRefresh(kinds=("run_finished", "dataset_"))
UNCOUNTED = datasets.DatasetCountQuery(count=False)


async def listing(visit: Visit) -> WebPage:
    """Every dataset, by project and name, with what came last."""
    asked = {name: visit.query.get(name, "").strip() for name in ("project", "name", "after")}
    query = {name: value for name, value in asked.items() if value} | {"newest": "true"}
    errors = dict[str, str]()
    try:
        found = await visit.call(datasets.list_, query=query)
    except ApiError as refusal:
        if refusal.problem.status not in (403, 404, 422):
            raise
        found, errors = paging.Page(items=[]), {refusal.problem.field or "project": refusal.problem.detail}
    kept = {name: asked[name] for name in ("project", "name") if asked[name]}
    more = found.next and f"/datasets?{urlencode({**kept, 'after': found.next})}"
    rows = [asdict(each) | {"page": address(each.project, each.name)} for each in found.items]
    shown: dict[str, Any] = {"datasets": rows, "asked": asked, "errors": errors}
    shown |= {"more": more, "first": f"/datasets?{urlencode(kept)}" if asked["after"] else ""}
    return WebPage(
        "datasets/list.html", shown, found, status=422 if errors else 200, live=None if errors else AFTER_RUNS
    )


async def records(visit: Visit) -> WebPage:
    """What is in a dataset, newest first: all of it, or what was new, changed or gone in the last run."""
    wanted, errors = ItemsQuery.of(visit), dict[str, str]()
    dataset, newest, fields = await asyncio.gather(
        visit.call(datasets.show, query=datasets.DatasetCountQuery(count="count" in visit.query), **which(visit)),
        visit.call(datasets.runs, query=datasets.DatasetRunQuery(limit=RUNS), **which(visit)),
        visit.call(datasets.fields, query=datasets.DatasetFieldsQuery(sample=SAMPLE), **which(visit)),
    )
    found = await _records_page(visit, wanted, newest.items, errors)
    page = page_of(visit)
    shown = {"dataset": dataset, "page": page, "tab": "records", "wanted": wanted, "errors": errors}
    shown |= {"only": ONLY, "runs": newest.items, "fields": fields, "offered": offered(fields.fields, wanted.columns)}
    shown |= tabled(found.items, fields, wanted) if wanted.view != "json" else listed(found.items)
    shown |= {"exports": _exports(visit, wanted), "every": _exports(visit, wanted, every="true")}
    shown["more"] = found.next and wanted.address(page, after=found.next)
    document = {"dataset": dataset, "records": found}
    live = None if wanted.after or wanted.search or errors else AFTER_RUNS
    return WebPage("datasets/records.html", shown, document, status=422 if errors else 200, live=live)


async def records_by_run(visit: Visit) -> WebPage:
    """What each run brought to a dataset, newest first."""
    after = visit.query.get("after", "")
    dataset, runs = await asyncio.gather(
        visit.call(datasets.show, query=UNCOUNTED, **which(visit)),
        visit.call(datasets.runs, query={"after": after} if after else {}, **which(visit)),
    )
    page = page_of(visit)
    shown: dict[str, Any] = {"dataset": dataset, "page": page, "tab": "runs", "runs": runs.items}
    shown["older"] = runs.next and f"{page}/runs?{urlencode({'after': runs.next})}"
    shown["newest"] = f"{page}/runs" if after else ""
    return WebPage("datasets/runs.html", shown, runs, live=None if after else AFTER_RUNS)


async def record(visit: Visit) -> WebPage:
    """One record: its revisions, and each with what was different before it."""
    below = visit.query.get("below", "")
    query = {"limit": str(REVISIONS + 1), **({"below": below} if below else {})}
    dataset, history = await asyncio.gather(
        visit.call(datasets.show, query=UNCOUNTED, **which(visit)),
        visit.call(datasets.record, query=query, record_id=visit.path("record_id"), **which(visit)),
    )
    room, page, revisions = ExpandBudget(LARGEST_RECORD), page_of(visit), history.revisions
    own = f"{page}/records/{history.record.id}"
    shown: dict[str, Any] = {
        "dataset": dataset,
        "page": page,
        "record": history.record,
        "revisions": revisions_compared(revisions, room),
    }
    shown["values"] = [(name, value_cell(value, room)) for name, value in list(history.record.data.items())[:500]]
    shown["older"] = f"{own}?below={revisions[REVISIONS - 1].number}" if len(revisions) > REVISIONS else ""
    shown |= {"newest": own if below else "", "own": own}
    return WebPage("datasets/record.html", shown, history)


def revisions_compared(revisions: Sequence[RevisionDocument], room: ExpandBudget) -> list[dict[str, Any]]:
    """Revisions, newest first, each with what the one before it had otherwise; the oldest only serves for that."""
    compared = []
    for place, revision in enumerate(revisions[:REVISIONS]):
        before = revisions[place + 1].data if place + 1 < len(revisions) else None
        found = [] if before is None else differences(before, revision.data, room)
        same = len(revision.data) - sum(each.kind != "removed" for each in found)
        compared.append(asdict(revision) | {"differences": found, "is_first": before is None, "same": same})
    return compared


def address(project: str, name: str) -> str:
    """The page of a dataset."""
    return f"/datasets/{quote(project, safe='')}/{quote(name, safe='')}"


def page_of(visit: Visit) -> str:
    """The page of the dataset that is looked at."""
    return address(**which(visit))


def which(visit: Visit) -> dict[str, Any]:
    """The dataset that is looked at, as operations are told."""
    return {"project": visit.path("project"), "name": visit.path("name")}


async def _records_page(
    visit: Visit, wanted: ItemsQuery, runs: Sequence[DatasetRunDocument], errors: dict[str, str]
) -> paging.Page[RecordDocument]:
    query = {**wanted.conditions, "limit": AS_JSON if wanted.view == "json" else IN_TABLE}
    query |= {"after": wanted.after} if wanted.after else {}
    if wanted.only in BY_RUN:
        run_id = _last(runs, wanted.only)
        if run_id is None:
            return paging.Page(items=[])
        query[BY_RUN[wanted.only]] = str(run_id)
    return await searched(visit.call(datasets.records, query=query, **which(visit)), errors)


def _last(runs: Sequence[DatasetRunDocument], only: str) -> int | None:
    """The run that a record is new, changed or gone in; one that is not over, or failed, has not seen everything."""
    known = [each.run_id for each in runs if only != GONE or each.state == "succeeded"]
    return known[0] if known else None


def _exports(visit: Visit, wanted: ItemsQuery, **more: str) -> list[tuple[str, str]]:
    return [(each, wanted.export(f"/v1{page_of(visit)}/export", each, **more)) for each in export_formats()]


ONE = "/datasets/{project}/{name}"
DATASET_PAGES = {
    "/datasets": {"GET": listing},
    ONE: {"GET": records},
    f"{ONE}/runs": {"GET": records_by_run},
    f"{ONE}/records/{{record_id}}": {"GET": record},
}


MESSAGES = {
    "saved": N_("It is kept. Items that come from now on are known and checked by it."),
    "added": N_("Every item of the dataset will be delivered there: those that are here, and those that come."),
    "retried": N_("It is tried now."),
    "removed": N_("Nothing is delivered there any more; what has arrived stays."),
}
"""What a page says after something was done, by the word in its address."""
LARGEST_WRITTEN = 100_000


async def fields(visit: Visit) -> WebPage:
    """Which fields its records have, how often they are filled, and its schema."""
    return await _fields(visit)


async def save(visit: Visit) -> WebPage | Redirect:
    """Keep the key fields and the schema that were typed."""
    typed = {name: visit.form.get(name, "").strip() for name in ("key_fields", "schema")}
    try:
        schema = strict_json.decode(typed["schema"]) if typed["schema"] else None
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as problem:
        return await _fields(visit, typed, {"schema": f"it must be JSON ({problem})"})
    names = [name for part in typed["key_fields"].split(",") if (name := part.strip())]
    seen, now = visit.form.get("seen", ""), await visit.call(datasets.show, query=UNCOUNTED, **which(visit))
    if seen and seen != _digest(now):
        return await _fields(visit, typed, {"schema": translated(visit, N_("It was changed meanwhile"))})
    try:
        await visit.call(datasets.put, body={"key_fields": names, "schema": schema}, **which(visit))
    except ApiError as refusal:
        if refusal.problem.status != 422:
            raise
        field = "key_fields" if "key_fields" in (refusal.problem.field or "") else "schema"
        return await _fields(visit, typed, {field: refusal.problem.detail})
    return Redirect(f"{page_of(visit)}/fields?said=saved")


async def destinations(visit: Visit) -> WebPage:
    """Where its items go, and how that goes."""
    return await _destinations(visit, {"url": "", "format": "jsonl", "fields": ""}, {})


async def add_destination(visit: Visit) -> WebPage | Redirect:
    """Add a destination, try one again, or remove one."""
    page, form = f"{page_of(visit)}/destinations", visit.form
    typed = {name: form.get(name, "").strip() for name in ("url", "format", "fields")}
    try:
        one = {"destination_id": form.get("destination", "")} | which(visit)
        if form.get("act") == "retry":
            await visit.call(delivering.retry_destination, **one)
            return Redirect(f"{page}?said=retried")
        if form.get("act") == "remove":
            await visit.call(delivering.remove_destination, **one)
            return Redirect(f"{page}?said=removed")
        names = [name for part in typed["fields"].split(",") if (name := part.strip())]
        body = {"url": typed["url"], "format": typed["format"] or "jsonl", "fields": names}
        await visit.call(delivering.add_destination, body=body, **which(visit))
    except ApiError as refusal:
        if refusal.problem.status != 422:
            raise
        field = (refusal.problem.field or "url").rpartition(".")[2]
        return await _destinations(visit, typed, {field if field in typed else "url": refusal.problem.detail})
    return Redirect(f"{page}?said=added")


async def _fields(visit: Visit, typed: dict[str, str] | None = None, errors: dict[str, str] | None = None) -> WebPage:
    known, told = await asyncio.gather(
        visit.call(datasets.show, query=UNCOUNTED, **which(visit)), visit.call(datasets.fields, **which(visit))
    )
    schema = told.inferred if "inferred" in visit.query else known.schema
    typed = typed or {"key_fields": ", ".join(known.key_fields), "schema": _written(schema)}
    names = [each.name for each in told.fields][:500]
    columns = columns_of(told.fields, names) if names else []
    shown: dict[str, Any] = {"dataset": known, "page": page_of(visit), "tab": "fields", "fields": told, "typed": typed}
    shown |= {"rows": list(zip(told.fields[:500], columns, strict=False)), "errors": errors or {}}
    shown |= {"written": _written(known.schema), "said": MESSAGES.get(visit.query.get("said", ""), "")}
    shown |= {
        "may_edit": may(visit.session, "developer", known.project),
        "seen": visit.form.get("seen") or _digest(known),
    }
    return WebPage("datasets/fields.html", shown, told, status=422 if errors else 200)


async def _destinations(visit: Visit, typed: dict[str, str], errors: dict[str, str]) -> WebPage:
    is_developer = may(visit.session, "developer", visit.path("project"))
    dataset, listed = await asyncio.gather(
        visit.call(datasets.show, query=UNCOUNTED, **which(visit)),
        visit.call(delivering.list_destinations, **which(visit)) if is_developer else _empty_form(),
    )
    shown: dict[str, Any] = {"dataset": dataset, "page": page_of(visit), "tab": "destinations"}
    shown |= {
        "destinations": listed.items,
        "typed": typed,
        "errors": errors,
        "formats": [(each, each.upper()) for each in export_formats()],
    }
    shown |= {"said": MESSAGES.get(visit.query.get("said", ""), ""), "is_developer": is_developer}
    shown["may_add"] = may(visit.session, "admin", visit.path("project"))
    return WebPage("datasets/destinations.html", shown, listed, status=422 if errors else 200)


async def _empty_form() -> paging.Page[DestinationDocument]:
    return paging.Page(items=[])


def _digest(dataset: DatasetDocument) -> str:
    """The same for as long as a dataset is to be like this."""
    told = msgspec.json.encode([dataset.key_fields, dataset.schema], order="sorted")
    return hashlib.sha256(told).hexdigest()[:32]


def _written(schema: Any) -> str:
    if schema is None:
        return ""
    return msgspec.json.format(msgspec.json.encode(schema), indent=2).decode()[:LARGEST_WRITTEN]


DATASET_SETTINGS_PAGES = {
    f"{ONE}/fields": {"GET": fields, "POST": save},
    f"{ONE}/destinations": {"GET": destinations, "POST": add_destination},
}

PAGES = DATASET_PAGES | DATASET_SETTINGS_PAGES
