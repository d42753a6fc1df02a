"""What somebody may do, so that pages offer no more than that. The API decides all the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

ROLES = ("viewer", "operator", "developer", "admin")
EVERYWHERE = "*"


def may(session: Mapping[str, Any], role: str, project: str = EVERYWHERE) -> bool:
    """Whether somebody has at least this role in a project, or in weft as a whole."""
    grants = session.get("grants", {})
    return any(_reaches(grants.get(place), role) for place in (project, EVERYWHERE))


def may_somewhere(session: Mapping[str, Any], role: str) -> bool:
    return any(_reaches(held, role) for held in session.get("grants", {}).values())


def projects_of(session: Mapping[str, Any], role: str) -> list[str]:
    """The projects that are named in somebody's roles and where they have at least this one."""
    return sorted(
        place for place, held in session.get("grants", {}).items() if place != EVERYWHERE and _reaches(held, role)
    )


def _reaches(held: str | None, role: str) -> bool:
    return held is not None and ROLES.index(held) >= ROLES.index(role)
