"""What guests see who have a link: the runs, spiders and datasets of one project, or one dataset. Nothing else."""

from __future__ import annotations

GUEST = "/guest/"


def hidden(path: str) -> str:
    """An address as it may stand in a log: without the token of a guest's link."""
    return GUEST + "…" if path.startswith(GUEST) else path
