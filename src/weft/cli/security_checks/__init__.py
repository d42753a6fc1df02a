"""``weft doctor --security``: each control of this installation, with pass or fail and why.

A control is looked at where it can be seen: in the settings, the files and the database of this installation; in the
answers of its gateway, or, while none runs, of one that is started for this; and, where looking would change something,
on a scratch weft of the same code and settings in a directory that is removed again. Nothing passes unseen: what cannot
be looked at fails.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping

from weft.cli.doctor import Finding
from weft.cli.security_checks import access, gateway, host, network, services
from weft.cli.security_checks.installation import CheckContext, CheckFailed, open_check_context
from weft.config import Config

SecurityCheck = Callable[[CheckContext], Awaitable[str]]
"""Looks at one control: why it passes; ``Fault`` where it does not."""

CHECKS: Mapping[str, SecurityCheck] = {
    "C01": gateway.bound,
    "C02": access.passwords,
    "C03": host.keys,
    "C04": access.keys,
    "C05": access.sessions,
    "C06": access.tokens,
    "C07": gateway.roles,
    "C08": gateway.routes,
    "C09": access.csrf,
    "C10": gateway.hosts,
    "C11": gateway.cors,
    "C12": gateway.headers,
    "C14": gateway.limits,
    "C15": network.fetch_targets,
    "C16": network.other_targets,
    "C17": access.names,
    "C28": access.redaction,
    "C29": access.audit,
    "C30": gateway.tls,
    "C31": access.workers,
    "C34": network.packages,
    "C35": host.root,
    "C37": gateway.errors,
    "C38": access.onward,
    "C39": host.sources,
    "C40": host.modes,
    "C43": host.spiders,
    "C44": host.commands,
    "C45": host.checks,
    "C46": host.installs,
    "C47": host.trust,
    "C48": network.commands,
    "C49": services.services,
    "C13": access.throttle,
}
"""In the order in which they are looked at; whoever tries wrong passwords is slowed down, so that comes last."""


async def run_security_checks(config: Config, names: Collection[str] = CHECKS) -> list[Finding]:
    """These controls, and ``C41``, which is this look itself: it passes where each of them could be looked at."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)  # what is tried here is meant to be refused
    try:
        async with open_check_context(config) as ground:
            found = [await _run_check(name, look, ground) for name, look in CHECKS.items() if name in names]
    finally:
        logging.disable(before)
    findings = [finding for finding, _ in found]
    unseen = sorted(finding.check for finding, seen in found if not seen)
    told = f"not all could be looked at: {', '.join(unseen)}" if unseen else f"{len(findings)} controls were looked at"
    return sorted([*findings, Finding("C41", not unseen, told)], key=lambda each: each.check)


async def _run_check(name: str, look: SecurityCheck, ground: CheckContext) -> tuple[Finding, bool]:
    """What was found, and whether it could be looked at."""
    try:
        return Finding(name, True, await look(ground)), True
    except CheckFailed as fault:
        return Finding(name, False, str(fault), fault.advice), True
    except Exception as problem:  # whatever it is, the control was not seen to hold
        return Finding(name, False, f"it could not be looked at: {problem or type(problem).__name__}"), False
