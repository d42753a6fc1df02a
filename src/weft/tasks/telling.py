"""Tells the audit log how tasks and projects were changed: an entry for each, with what it was and what it is now."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby

from weft.access.witness import Told, tell, tell_all
from weft.db.database import Transaction
from weft.tasks.changes import Change, fields_of

MOST_TOLD = 500
"""How many changes of one apply are told one by one; of more, each project has one entry that counts them."""


def tell_changes(tx: Transaction, changes: Sequence[Change]) -> None:
    if not changes:
        tell(tx)
    elif len(changes) <= MOST_TOLD:
        tell_all(tx, [_told(change) for change in changes])
    else:
        tell_all(tx, list(_counted(changes)))


def _told(change: Change) -> Told:
    target = f"task {change.project}/{change.name}" if change.name else f"project {change.project}"
    before = {name: old for name, (old, _) in change.fields.items() if old is not None}
    after = {name: new for name, (_, new) in change.fields.items() if new is not None}
    if change.what == "create":
        return Told(project=change.project, target=target, after=after)
    if change.what == "delete" and change.stored is not None:
        return Told(project=change.project, target=target, before=fields_of(change.stored.task))
    return Told(project=change.project, target=target, before=before, after=after)


def _counted(changes: Sequence[Change]) -> Iterator[Told]:
    for project, group in groupby(sorted(changes, key=lambda each: each.project), key=lambda each: each.project):
        yield Told(project=project, target=f"project {project}", after=Counter(each.what for each in group))
