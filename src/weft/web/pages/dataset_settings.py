"""What a dataset is to be like, and where its items are delivered to."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any
from urllib.parse import quote

import msgspec

from weft.web.faults import say
from weft.web.inside import Refusal
from weft.web.pages.datasets import ONE, address, api
from weft.web.rendering import Onward, Page
from weft.web.rights import may
from weft.web.scraped import columns_of
from weft.web.visit import Visit
from weft.web.wanted import formats
from weft.web.words import N_

SAID = {
    "saved": N_("It is kept. Items that come from now on are known and checked by it."),
    "added": N_("Every item of the dataset will be delivered there: those that are here, and those that come."),
    "removed": N_("Nothing is delivered there any more; what has arrived stays."),
}
"""What a page says after something was done, by the word in its address."""
LARGEST_WRITTEN = 100_000


async def fields(visit: Visit) -> Page:
    """Which fields its things have, how often they are filled, and its schema."""
    return await _fields(visit)


async def save(visit: Visit) -> Page | Onward:
    """Keep the key fields and the schema that were typed."""
    typed = {name: visit.form.get(name, "").strip() for name in ("key_fields", "schema")}
    try:
        schema = msgspec.json.decode(typed["schema"]) if typed["schema"] else None
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as problem:
        return await _fields(visit, typed, {"schema": f"it must be JSON ({problem})"})
    names = [name for part in typed["key_fields"].split(",") if (name := part.strip())]
    seen, now = visit.form.get("seen", ""), (await visit.ask("GET", api(visit), query={"count": "false"})).document
    if seen and seen != _digest(now):
        return await _fields(visit, typed, {"schema": say(visit, N_("It was changed meanwhile"))})
    try:
        await visit.ask("PUT", api(visit), body={"key_fields": names, "schema": schema})
    except Refusal as refusal:
        if refusal.problem.status != 422:
            raise
        field = "key_fields" if "key_fields" in (refusal.problem.field or "") else "schema"
        return await _fields(visit, typed, {field: refusal.problem.detail})
    return Onward(f"{address(visit.request.path_params)}/fields?said=saved")


async def destinations(visit: Visit) -> Page:
    """Where its items go, and how that goes."""
    return await _destinations(visit, {"url": "", "format": "jsonl", "fields": ""}, {})


async def deliver(visit: Visit) -> Page | Onward:
    """Add a destination, or remove one."""
    page, form = f"{address(visit.request.path_params)}/destinations", visit.form
    typed = {name: form.get(name, "").strip() for name in ("url", "format", "fields")}
    try:
        if form.get("act") == "remove":
            await visit.ask("DELETE", f"{api(visit)}/destinations/{quote(form.get('destination', ''), safe='')}")
            return Onward(f"{page}?said=removed")
        names = [name for part in typed["fields"].split(",") if (name := part.strip())]
        body = {"url": typed["url"], "format": typed["format"] or "jsonl", "fields": names}
        await visit.ask("POST", f"{api(visit)}/destinations", body=body)
    except Refusal as refusal:
        if refusal.problem.status != 422:
            raise
        field = (refusal.problem.field or "url").rpartition(".")[2]
        return await _destinations(visit, typed, {field if field in typed else "url": refusal.problem.detail})
    return Onward(f"{page}?said=added")


async def _fields(visit: Visit, typed: dict[str, str] | None = None, errors: dict[str, str] | None = None) -> Page:
    dataset, found = await asyncio.gather(
        visit.ask("GET", api(visit), query={"count": "false"}), visit.ask("GET", f"{api(visit)}/fields")
    )
    told, known = found.document, dataset.document
    schema = told["inferred"] if "inferred" in visit.query else known["schema"]
    typed = typed or {"key_fields": ", ".join(known["key_fields"]), "schema": _written(schema)}
    names = [each["name"] for each in told["fields"]][:500]
    columns = columns_of(told["fields"], names) if names else []
    shown = {"dataset": known, "page": address(known), "tab": "fields", "fields": told, "typed": typed}
    shown |= {"rows": list(zip(told["fields"][:500], columns, strict=False)), "errors": errors or {}}
    shown |= {"written": _written(known["schema"]), "said": SAID.get(visit.query.get("said", ""), "")}
    shown |= {
        "may_edit": may(visit.session, "developer", known["project"]),
        "seen": visit.form.get("seen") or _digest(known),
    }
    return Page("datasets/fields.html", shown, told, status=422 if errors else 200)


async def _destinations(visit: Visit, typed: dict[str, str], errors: dict[str, str]) -> Page:
    is_developer = may(visit.session, "developer", visit.path("project"))
    dataset, found = await asyncio.gather(
        visit.ask("GET", api(visit), query={"count": "false"}),
        visit.ask("GET", f"{api(visit)}/destinations") if is_developer else _nothing(),
    )
    listed: dict[str, Any] = {"items": [], "next": None} if found is None else found.document
    shown = {"dataset": dataset.document, "page": address(dataset.document), "tab": "destinations"}
    shown |= {
        "destinations": listed["items"],
        "typed": typed,
        "errors": errors,
        "formats": [(each, each.upper()) for each in formats()],
    }
    shown |= {"said": SAID.get(visit.query.get("said", ""), ""), "is_developer": is_developer}
    shown["may_add"] = may(visit.session, "admin", visit.path("project"))
    return Page("datasets/destinations.html", shown, listed, status=422 if errors else 200)


async def _nothing() -> None:
    return None


def _digest(dataset: dict[str, Any]) -> str:
    """The same for as long as a dataset is to be like this."""
    told = msgspec.json.encode([dataset["key_fields"], dataset["schema"]], order="sorted")
    return hashlib.sha256(told).hexdigest()[:32]


def _written(schema: Any) -> str:
    if schema is None:
        return ""
    return msgspec.json.format(msgspec.json.encode(schema), indent=2).decode()[:LARGEST_WRITTEN]


PAGES = {
    f"{ONE}/fields": {"GET": fields, "POST": save},
    f"{ONE}/destinations": {"GET": destinations, "POST": deliver},
}
