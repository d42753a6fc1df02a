"""What people see at a glance: how much happens, how far runs are, and why those wait that do."""

from __future__ import annotations

from weft.clock import Clock
from weft.db.database import Database
from weft.items.activity import Activity
from weft.items.pace import Pace
from weft.workers.reasons import Reasons


class Outlook:
    def __init__(self, db: Database, clock: Clock) -> None:
        self.activity, self.pace, self.reasons = Activity(db, clock), Pace(db), Reasons(db, clock)
