"""A guest's link: what it shows, until when, and how it is told."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from weft.clock import Moment, iso


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """A link by which whoever has it may look at a project, or at one dataset of it. Its token is in the link alone."""

    id: int
    project: str
    dataset: str | None
    """None: the whole project."""
    label: str
    """What it is for, or for whom."""
    created_by: str
    created_at: Moment
    expires_at: Moment | None
    revoked_at: Moment | None
    used_at: Moment | None

    def is_valid(self, at: Moment) -> bool:
        return self.revoked_at is None and (self.expires_at is None or self.expires_at > at)


class ShareDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A link for guests, who need no login to look at what it shows."""

    id: int
    project: str
    dataset: str | None
    """The one dataset that it shows; null: the whole project."""
    label: str
    created_by: str
    created_at: str | None
    expires_at: str | None
    revoked_at: str | None
    used_at: str | None
    """When somebody last looked, to the minute."""


class ShareMade(msgspec.Struct, frozen=True, kw_only=True):
    """A new link."""

    share: ShareDocument
    token: str
    """Shown here and never again."""
    path: str
    """Where guests look, below the address of this weft; it has the token in it."""


def share_document(share: Share) -> ShareDocument:
    return ShareDocument(
        id=share.id,
        project=share.project,
        dataset=share.dataset,
        label=share.label,
        created_by=share.created_by,
        created_at=iso(share.created_at),
        expires_at=iso(share.expires_at),
        revoked_at=iso(share.revoked_at),
        used_at=iso(share.used_at),
    )


def share_path(token: str) -> str:
    return f"/guest/{token}"
