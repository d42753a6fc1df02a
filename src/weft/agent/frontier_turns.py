"""What a run and the frontier tell each other, in turns: one question is under way at a time."""

from __future__ import annotations

import logging
import time
from typing import Any

from . import engine
from .hosts import SECOND, Host, Hosts, now, on_our_clock
from .run_settings import Sharing
from .worker_channel import Answer, Line, Turn

MOST_FOUND, ENOUGH_FOUND = 2_000, 500
"""Requests that one turn brings to the frontier, and those for which a turn is made at once."""
TICK_SECONDS = 0.5
GAP_SECONDS = 0.01
"""Between an answer and the next question of a run that has nothing to do."""
LEAST_WAIT_SECONDS, MOST_WAIT_SECONDS = 0.1, 1.0
"""Between two questions of a run that was given nothing, because others hold what is left."""
SHARE_SECONDS = 2.5
"""After hosts were given back to others who have nothing left, so long no more are given, and none asked for. A little
longer than all hear of one who has nothing left."""
LEAVE_SECONDS = 0.1
"""How soon it is looked whether a host that is to be given back is free."""
HELLO_SECONDS, FAREWELL_SECONDS = 10.0, 20.0
UNKNOWN, SOME, NONE = "unknown", "some", "none"
OVER = "done"

log = logging.getLogger("weft")


class Turns:
    def __init__(self, crawler: Any, sharing: Sharing) -> None:
        self._crawler, self._sharing = crawler, sharing
        self._line = Line(sharing.folder, engine.from_thread())
        self.hosts = Hosts(self._slot, sharing)
        self._found: list[list[Any]] = []
        self._asked: list[Host] = []
        """Those that the question under way speaks of, in its order."""
        self._hosts_asked = 0
        self._is_asking = self._is_due = self._is_over = False
        self._left = UNKNOWN
        """Whether the frontier has anything left, with anybody."""
        self._ask_at = self._asked_at = self._took = 0.0
        self._shared_at = self._hungry_at = -SHARE_SECONDS
        self._wait = LEAST_WAIT_SECONDS
        self._crawl = 0
        self.is_stopping = False
        """Nothing more is to be begun."""
        self._ticks: Any = None

    def open(self) -> None:
        self._line.open(HELLO_SECONDS)
        self._ticks = engine.looping_call(self._turn)
        self._ticks.start(TICK_SECONDS, now=False)

    def close(self) -> None:
        """Tell what is done, and give back what is not."""
        self._ticks.stop()
        deadline = time.monotonic() + FAREWELL_SECONDS
        if not self._is_over and self._line.hush(FAREWELL_SECONDS / 2):
            self._is_over = True
            self._say_farewell(deadline)
        self._line.close()

    def find(self, row: list[Any]) -> None:
        """A request that may be new to the frontier."""
        self._found.append(row)
        if self._left == NONE:
            self._left = UNKNOWN
        if len(self._found) >= ENOUGH_FOUND:
            self._soon(0)

    @property
    def is_left(self) -> bool:
        """Whether anything may still come of the frontier, or has to be told to it."""
        return self._left != NONE or bool(self._found) or self.hosts.is_busy

    def hunger(self) -> None:
        """Too little is in line here: ask soon where that may bring something."""
        if self._is_asking or self._is_due:
            return
        self._sweep()
        if self._found or self.hosts.has_news or self._may_ask(False):
            self._soon(max(GAP_SECONDS, self._took) if self.hosts.in_line < self._sharing.at_once else TICK_SECONDS / 2)

    def _soon(self, seconds: float) -> None:
        if not (self._is_due or self._is_asking or self._is_over):
            self._is_due = True
            engine.later(seconds, self._turn_due)

    def _turn_due(self) -> None:
        self._is_due = False
        self._turn()

    def _turn(self) -> None:
        if self._is_asking or self._is_over:
            return
        self._sweep()
        wants = not (self.is_stopping or engine.is_closing(self._crawler))
        found, self._found = self._found[:MOST_FOUND], self._found[MOST_FOUND:]
        # While links are left for another turn no page is done: they may be its links.
        told = self.hosts.reports(wants=wants, silent=bool(self._found))
        gave_all_back = bool(told) and not len(self.hosts)
        may_ask = wants and (gave_all_back or self._may_ask(bool(found)))
        hosts = self.hosts.room if may_ask else 0
        if found or told or hosts:
            self._is_asking, self._asked_at = True, time.monotonic()
            self._asked, self._hosts_asked = [host for host, _ in told], hosts
            self._crawler.stats.inc_value("frontier/turns")
            self._line.ask(self._question(found, [report for _, report in told], hosts), self._answered)

    def _may_ask(self, has_found: bool) -> bool:
        """Whether to ask for hosts; not where that would end a crawl that is about to begin."""
        at = time.monotonic()
        if not self.hosts.room or (at < self._shared_at + SHARE_SECONDS and not self.hosts.are_spent):
            return False
        if has_found:
            return True
        if self._left != SOME and engine.is_starting(self._crawler):
            return False
        return at >= self._ask_at

    def _question(self, found: list[list[Any]], reports: list[list[Any]], hosts: int) -> Turn:
        turn = {"found": found, "reports": reports, "hosts": hosts, "urls_per_host": self._sharing.batch}
        turn["lease_seconds"] = self._sharing.lease_seconds
        is_hungry = bool(hosts) and self.hosts.are_spent
        if is_hungry:
            self._hungry_at = time.monotonic()
        return {"crawl": self._crawl, "turn": turn, "hungry": is_hungry, "at": now()}

    def _answered(self, answer: Answer) -> None:
        self._is_asking, self._took = False, time.monotonic() - self._asked_at
        if answer.get("lost") or answer.get("problem"):
            self._give_up(answer)
            return
        said = answer["turned"]
        self._crawl = said["crawl"]
        self._crawler.stats.set_value("frontier/crawl", self._crawl)
        self._take(on_our_clock(said["turned"], said.get("at", 0)))
        if said["stop"] == OVER and not self.hosts.is_busy:
            self._left = NONE
        elif said["stop"] and not self.is_stopping:
            self._stop(said["stop"], said.get("reason") or "")
        self._share(bool(said.get("others_hungry")))
        if len(self._found) >= ENOUGH_FOUND:
            self._soon(0)
        if not self._is_over:
            engine.wake(self._crawler)

    def _take(self, turned: dict[str, Any]) -> None:
        self._crawler.stats.inc_value("frontier/new", turned["new"])
        for host, kept in zip(self._asked, turned["kept"]):  # noqa: B905 - Python 3.9 knows no strict
            if kept[0]:
                self.hosts.add(host, kept[1] if len(kept) > 1 else ())
            else:
                self.hosts.lose(host)
                self._crawler.stats.inc_value("frontier/hosts_lost")
        for lease in turned["leases"]:
            self._wake_at(self.hosts.hold(lease))
        next_at = turned["next_at"]
        if turned["leases"] or next_at is not None:
            self._left = SOME
        elif self._hosts_asked and not self._found and not len(self.hosts):
            self._left = NONE  # while a host is held that is dry it is asked once more, with that given back
        self._learn(bool(turned["leases"]), next_at or 0)

    def _learn(self, is_given: bool, next_at: int) -> None:
        """Ask later where nothing was given; soon where nothing is left here, because others give some back then."""
        is_hungry = bool(self._hosts_asked) and not is_given and self.hosts.are_spent
        if not is_hungry:
            self._wait = LEAST_WAIT_SECONDS
        if is_given:
            return
        wait = min(max((next_at - now()) / SECOND, LEAST_WAIT_SECONDS), self._wait if is_hungry else MOST_WAIT_SECONDS)
        self._ask_at = time.monotonic() + wait
        if is_hungry:
            self._wait = min(self._wait * 1.5, MOST_WAIT_SECONDS)
            self._soon(wait)

    def _share(self, others_hungry: bool) -> None:
        """Give back some of the hosts where another run has nothing left; it may be this one that is spoken of."""
        at = time.monotonic()
        if others_hungry and at > max(self._shared_at, self._hungry_at) + SHARE_SECONDS:
            self._crawler.stats.inc_value("frontier/hosts_shared", self.hosts.share())
        if self.hosts.leaving:
            self._shared_at = at
            self._soon(LEAVE_SECONDS)

    def _wake_at(self, moment: int) -> None:
        wait = (moment - now()) / SECOND
        if wait > 0 and not self._is_over:
            engine.later(wait, lambda: engine.wake(self._crawler))

    def _stop(self, state: str, reason: str) -> None:
        self.is_stopping = True
        log.info("the crawl is %s%s", state, f": {reason}" if reason else "")
        engine.close(self._crawler, "finished" if state == OVER else state)

    def _give_up(self, answer: Answer) -> None:
        """What this run holds is no longer its own, or never was: it has nothing to say any more."""
        self.is_stopping = self._is_over = True
        log.error("the frontier refuses this run: %s", answer.get("problem") or "it is somebody else's by now")
        engine.close(self._crawler, "frontier_refused")

    def _say_farewell(self, deadline: float) -> None:
        self._sweep()
        while self._found:
            found, self._found = self._found[:MOST_FOUND], self._found[MOST_FOUND:]
            reports = [] if self._found else self.hosts.farewell()
            if self._line.settle(self._question(found, reports, 0), deadline - time.monotonic()) is None:
                return
        if len(self.hosts):
            self._line.settle(self._question([], self.hosts.farewell(), 0), deadline - time.monotonic())

    def _sweep(self) -> None:
        self.hosts.sweep(engine.in_progress(self._crawler))

    def _slot(self, name: str) -> Any:
        return self._crawler.engine.downloader.slots.get(name)
