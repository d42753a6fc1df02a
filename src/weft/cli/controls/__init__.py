"""``weft doctor --security``: each control of this installation, with pass or fail and why.

A control is looked at where it can be seen: in the settings, the files and the database of this installation; in the
answers of its gateway, or, while none runs, of one that is started for this; and, where looking would change something,
on a scratch weft of the same code and settings in a directory that is removed again. Nothing passes unseen: what cannot
be looked at fails.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping

from weft.cli.controls import access, door, files, reach, records, sessions
from weft.cli.controls.ground import Fault, Ground, open_ground
from weft.cli.findings import Finding
from weft.config import Config

Look = Callable[[Ground], Awaitable[str]]
"""Looks at one control: why it passes; ``Fault`` where it does not."""

CONTROLS: Mapping[str, Look] = {
    "C01": door.bound,
    "C02": access.passwords,
    "C03": files.keys,
    "C04": access.keys,
    "C05": sessions.sessions,
    "C06": access.tokens,
    "C07": door.roles,
    "C08": door.routes,
    "C09": sessions.csrf,
    "C10": door.hosts,
    "C11": door.cors,
    "C12": door.headers,
    "C14": door.limits,
    "C15": reach.fetches,
    "C16": reach.others,
    "C17": records.names,
    "C28": records.redaction,
    "C29": records.audit,
    "C30": door.tls,
    "C31": records.workers,
    "C37": door.errors,
    "C38": sessions.onward,
    "C39": files.sources,
    "C40": files.modes,
    "C13": sessions.throttle,
}
"""In the order in which they are looked at; whoever tries wrong passwords is slowed down, so that comes last."""


async def examine(config: Config, names: Collection[str] = CONTROLS) -> list[Finding]:
    """These controls, and ``C41``, which is this look itself: it passes where each of them could be looked at."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)  # what is tried here is meant to be refused
    try:
        async with open_ground(config) as ground:
            found = [await _look(name, look, ground) for name, look in CONTROLS.items() if name in names]
    finally:
        logging.disable(before)
    findings = [finding for finding, _ in found]
    unseen = sorted(finding.check for finding, seen in found if not seen)
    told = f"not all could be looked at: {', '.join(unseen)}" if unseen else f"{len(findings)} controls were looked at"
    return sorted([*findings, Finding("C41", not unseen, told)], key=lambda each: each.check)


async def _look(name: str, look: Look, ground: Ground) -> tuple[Finding, bool]:
    """What was found, and whether it could be looked at."""
    try:
        return Finding(name, True, await look(ground)), True
    except Fault as fault:
        return Finding(name, False, str(fault), fault.advice), True
    except Exception as problem:  # whatever it is, the control was not seen to hold
        return Finding(name, False, f"it could not be looked at: {problem or type(problem).__name__}"), False
