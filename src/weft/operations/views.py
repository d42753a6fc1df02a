"""Save, list and delete views: filters of a list with a name."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Any, Literal
from urllib.parse import parse_qsl

import msgspec

from weft.access.model import EVERYWHERE, Role
from weft.access.saved_views import LONGEST_NAME, LONGEST_QUERY, SavedView
from weft.clock import iso
from weft.errors import NotAllowed
from weft.operations.operation import Call, Operations
from weft.operations.paging import Page
from weft.operations.users import owner_of

operations = Operations("views")

ListPage = Literal["runs", "tasks", "items"]
"""The lists whose filters can be saved."""

SAVED_VIEW_EXAMPLE: dict[str, Any] = {
    "id": 4,
    "page": "runs",
    "name": "Failed in the shop",
    "query": "project=shop&state=failed",
    "created_by": "ada",
    "created_at": "2026-06-01T12:00:00.000Z",
}


class SavedViewDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A saved view."""

    id: int
    page: str
    name: str
    query: str
    created_by: str
    created_at: str | None


class SavedViewInput(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A filter and its name."""

    page: ListPage = "runs"
    name: Annotated[str, msgspec.Meta(min_length=1, max_length=LONGEST_NAME)]
    query: Annotated[str, msgspec.Meta(max_length=LONGEST_QUERY)]
    """As it stands in the address of the page, after the question mark."""


class SavedViewQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which views to list."""

    page: ListPage = "runs"


@operations.get(
    "/views",
    needs=Role.VIEWER,
    query=SavedViewQuery,
    answer=Page[SavedViewDocument],
    example={"items": [SAVED_VIEW_EXAMPLE], "next": None},
)
async def list_(call: Call) -> Page[SavedViewDocument]:
    """List the saved views of a list, by name; those of a project that the caller may not see are left out."""
    within, found = call.visible(), await call.app.views.all(call.query.page)
    return Page(items=[_document(each) for each in found if _is_within(each, within)])


@operations.post(
    "/views",
    needs=Role.OPERATOR,
    body=SavedViewInput,
    answer=SavedViewDocument,
    status=201,
    example=SAVED_VIEW_EXAMPLE,
    example_body={name: SAVED_VIEW_EXAMPLE[name] for name in ("page", "name", "query")},
)
async def save(call: Call) -> SavedViewDocument:
    """Give a filter a name. Operators of any project may."""
    _check_somewhere(call)
    new: SavedViewInput = call.body
    call.about = ("", f"view {new.name}")
    return _document(await call.app.views.save(new.page, new.name, new.query, by=await owner_of(call)))


@operations.delete("/views/{view_id}", needs=Role.OPERATOR)
async def delete(call: Call) -> None:
    """Delete a view of one's own; admins of weft as a whole delete any."""
    view_id = call.number("view_id", "view")
    _check_somewhere(call)
    view = await call.app.views.get(view_id)
    if view.created_by != await owner_of(call) and call.caller.role_in(EVERYWHERE) != Role.ADMIN:
        raise NotAllowed(f"{call.caller.name} may not delete the view {view.name!r}: {view.created_by} has made it")
    call.about = ("", f"view {view.name}")
    await call.app.views.delete(view_id)


def _check_somewhere(call: Call) -> None:
    """Refuse who is operator nowhere."""
    call.check_own()
    mine = call.caller.projects(Role.OPERATOR)
    if mine is not None and not mine:
        raise NotAllowed(f"{call.caller.name} may not do this: it needs the role operator in some project")


def _is_within(view: SavedView, projects: Collection[str] | None) -> bool:
    """Whether a view asks for no project that is hidden: its name is nobody else's business."""
    asked = [value.strip() for name, value in parse_qsl(view.query) if name == "project"]
    return projects is None or all(each in projects for each in asked if each)


def _document(view: SavedView) -> SavedViewDocument:
    return SavedViewDocument(
        id=view.id,
        page=view.page,
        name=view.name,
        query=view.query,
        created_by=view.created_by,
        created_at=iso(view.created_at),
    )
