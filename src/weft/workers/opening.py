"""Gives runs the secrets that they ask for, on the way from the queue to the worker that holds them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from weft.access.secrets import Secrets, filled, names_in
from weft.errors import Invalid, Unopened
from weft.runs.model import Lease


async def opened(leases: Sequence[Lease], secrets: Secrets) -> list[Lease]:
    """The leases with every ``{{secret:NAME}}`` filled in from the run's own project; what is stored stays as it is.

    One that asks for what is not there comes with the ``problem``, which ends the attempt.
    """
    if not any(lease.asks_for_secrets for lease in leases):
        return list(leases)
    wanted = {lease.run_id: _wanted(lease) for lease in leases if lease.asks_for_secrets}
    names = {(lease.project, name) for lease in leases for name in _names(wanted.get(lease.run_id))}
    values: dict[tuple[str, str], str] | str
    try:
        values = await secrets.open(names)
    except Unopened as problem:
        values = str(problem)
    return [_opened(lease, wanted[lease.run_id], values) if lease.asks_for_secrets else lease for lease in leases]


def _wanted(lease: Lease) -> set[str] | str:
    try:
        return names_in(lease.spec.spec) | names_in(lease.spec.params)
    except Invalid as problem:
        return str(problem)


def _names(wanted: set[str] | str | None) -> set[str]:
    return wanted if isinstance(wanted, set) else set()


def _opened(lease: Lease, wanted: set[str] | str, values: dict[tuple[str, str], str] | str) -> Lease:
    if isinstance(wanted, str) or isinstance(values, str):
        return replace(lease, problem=wanted if isinstance(wanted, str) else str(values))
    if missing := sorted(name for name in wanted if (lease.project, name) not in values):
        return replace(lease, problem=f"project {lease.project} has no secret {', '.join(missing)}")
    mine: dict[str, Any] = {name: values[lease.project, name] for name in wanted}
    spec = replace(lease.spec, spec=filled(lease.spec.spec, mine), params=filled(lease.spec.params, mine))
    return replace(lease, spec=spec, secrets=tuple(mine.values()))
