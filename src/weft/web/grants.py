"""Roles in a form: a row for each project, and some that are empty for more."""

from __future__ import annotations

from collections.abc import Mapping

from weft.web.visit import Form

SPARE = 2
"""Empty rows after those that say something."""


def grants_of(form: Form) -> dict[str, str]:
    """The role in each project that was typed; a row without a project says nothing."""
    rows = zip(form.every("project"), form.every("role"), strict=False)
    return {project.strip(): role for project, role in rows if project.strip() and role}


def rows_of(grants: Mapping[str, str]) -> list[tuple[str, str]]:
    return [*grants.items(), *[("", "viewer")] * SPARE]
