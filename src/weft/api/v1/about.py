"""What this weft is: its version, and what it stands on."""

from __future__ import annotations

import platform
from typing import Any

import msgspec

from weft import __version__
from weft.access.model import Role
from weft.api.call import Call
from weft.api.operation import Operations
from weft.clock import SECOND, iso, now
from weft.db import schema

operations = Operations("about")

STARTED_AT = now()
"""When this process began, as near as it matters."""


class About(msgspec.Struct, frozen=True, kw_only=True):
    """The process that answers."""

    version: str
    schema_version: int
    """Of the database: which tables it has."""
    database: str
    """sqlite, postgresql, mysql or mariadb."""
    python: str
    system: str
    started_at: str | None
    up_seconds: int


EXAMPLE: dict[str, Any] = {
    "version": __version__,
    "schema_version": schema.VERSION,
    "database": "sqlite",
    "python": "3.11.2",
    "system": "Linux 6.1 x86_64",
    "started_at": "2026-06-01T12:00:00.000Z",
    "up_seconds": 3600,
}


@operations.get("/about", needs=Role.VIEWER, answer=About, example=EXAMPLE)
async def show(call: Call) -> About:
    """Tell the version of weft, of its tables and of Python, the kind of the database, and since when it runs."""
    call.check_own()
    return About(
        version=__version__,
        schema_version=schema.VERSION,
        database=call.app.db.engine.dialect.name,
        python=platform.python_version(),
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        started_at=iso(STARTED_AT),
        up_seconds=(now() - STARTED_AT) // SECOND,
    )
