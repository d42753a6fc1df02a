"""Links for guests, who need no login to look at a project or a dataset. Who administers a project makes them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import msgspec

from weft.access.model import Role
from weft.access.share import ShareDocument, ShareMade, share_document, share_path
from weft.access.shares import LONGEST_LABEL
from weft.api.call import Call
from weft.api.callers import refuse_passed_on
from weft.api.operation import Operations
from weft.api.paging import After, Limit, Page, page
from weft.api.v1.keys import expiry_of, owner_of
from weft.clock import moment

operations = Operations("shares")


class Which(msgspec.Struct, frozen=True, kw_only=True):
    """Which links to list."""

    project: str | None = None
    after: After | None = None
    limit: Limit = 50


class NewShare(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A link to make."""

    project: str
    dataset: str | None = None
    """The one dataset to show; left out: the whole project."""
    label: Annotated[str, msgspec.Meta(min_length=1, max_length=LONGEST_LABEL)]
    """What it is for, or for whom."""
    expires_at: Annotated[datetime, msgspec.Meta(tz=True)] | None = None


SHARE: dict[str, Any] = {
    "id": 4,
    "project": "shop",
    "dataset": "prices",
    "label": "the people of the shop",
    "created_by": "ada",
    "created_at": "2026-06-01T12:00:00.000Z",
    "expires_at": "2026-12-01T00:00:00.000Z",
    "revoked_at": None,
    "used_at": None,
}


@operations.get(
    "/shares", needs=Role.ADMIN, query=Which, answer=Page[ShareDocument], example={"items": [SHARE], "next": None}
)
async def list_(call: Call) -> Page[ShareDocument]:
    """List the links for guests to the projects that the caller administers, newest first."""
    asked: Which = call.query
    projects = call.visible(asked.project)
    found = await call.app.shares.page(projects, below=page(asked.after), limit=asked.limit + 1)
    return Page.of(found, asked.limit, lambda share: share.id).shown(share_document)


@operations.post(
    "/shares",
    needs=Role.ADMIN,
    body=NewShare,
    answer=ShareMade,
    status=201,
    example={"share": SHARE, "token": "Jd0t…", "path": "/guest/Jd0t…"},
    example_body={"project": "shop", "dataset": "prices", "label": "the people of the shop"},
)
async def create(call: Call) -> ShareMade:
    """Make a link for guests to a project or a dataset; its token is told in the answer and never again."""
    refuse_passed_on(call.request)
    asked: NewShare = call.body
    call.check(asked.project, f"share of {asked.dataset or asked.project}")
    if asked.dataset is not None:
        await call.app.datasets.get(asked.project, asked.dataset)
    expires_at = await expiry_of(call, None if asked.expires_at is None else moment(asked.expires_at))
    share, token = await call.app.shares.create(
        asked.project, label=asked.label, by=await owner_of(call), dataset=asked.dataset, expires_at=expires_at
    )
    return ShareMade(share=share_document(share), token=token, path=share_path(token))


@operations.delete("/shares/{share_id}", needs=Role.ADMIN, answer=ShareDocument, example=SHARE)
async def revoke(call: Call) -> ShareDocument:
    """Revoke a link, for good and at once."""
    share_id = call.number("share_id", "share")
    share = await call.app.shares.get(share_id)
    call.check(share.project, f"share {share_id}")
    return share_document(await call.app.shares.revoke(share_id))
