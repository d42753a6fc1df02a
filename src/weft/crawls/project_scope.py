"""What one project learns of a host and what of that another gets.

When a host was last asked, and that it has asked to be left alone itself, counts for all. Failures, parks, delays and
robots.txt are of the project that saw them: its deadlines, its tries and its proxies decide what it sees.
"""

from __future__ import annotations

from msgspec import structs

from weft.clock import Moment
from weft.crawler.politeness import LONGEST_SHARED_DELAY, HostState, read_state, write_state
from weft.ports import HostReport, KnownHost, Turn, Turned

MOST_PROJECTS = 8
"""Besides the last; who is forgotten asks for robots.txt anew."""
LONGEST_LEASE_SECONDS = 300.0
"""For which the code of a spider may hold a host without saying so again."""


def state_for(project: str, text: str, at: Moment) -> str:
    """The state of a host as a project gets it."""
    state = read_state(text)
    if not text or state.project == project:
        return text
    others = dict(state.others)
    own = others.pop(project, None) or HostState()
    if state.project:
        others[state.project] = structs.replace(state, others={}, project="")
    while len(others) > MOST_PROJECTS:
        del others[next(iter(others))]
    return write_state(
        structs.replace(
            own,
            project=project,
            others=others,
            full_at=max(own.full_at, min(state.full_at, at + LONGEST_SHARED_DELAY)),
            told_until=state.told_until,
            blocked_until=max(own.blocked_until, state.told_until),
        )
    )


def state_of_project(project: str, text: str) -> str:
    """A state that a process of this project leaves."""
    if not text or (state := read_state(text)).project == project:
        return text
    return write_state(structs.replace(state, project=project))


def turn_of_project(turn: Turn, project: str) -> Turn:
    """What a crawl tells, under the name of its project."""
    reports = [structs.replace(each, state=state_of_project(project, each.state)) for each in turn.reports]
    return structs.replace(turn, reports=reports)


def turn_of_code(turn: Turn, at: Moment) -> Turn:
    """What a spider tells, whose code may say anything: it keeps others from a host for a moment only."""
    reports = [_of_code(each, at) for each in turn.reports]
    return structs.replace(turn, reports=reports, lease_seconds=min(turn.lease_seconds, LONGEST_LEASE_SECONDS))


def _of_code(report: HostReport, at: Moment) -> HostReport:
    shared, own = min(report.next_at, at + LONGEST_SHARED_DELAY), max(report.next_at, report.own_next_at)
    return structs.replace(report, state="", next_at=shared, own_next_at=own)


def turned_for(project: str, turned: Turned, at: Moment) -> Turned:
    """An answer of the frontier as a crawl of this project gets it."""
    if not turned.leases:
        return turned
    leases = [structs.replace(each, state=state_for(project, each.state, at)) for each in turned.leases]
    return structs.replace(turned, leases=leases)


def without_states(turned: Turned) -> Turned:
    """An answer as a spider gets it, which makes nothing of them."""
    return structs.replace(turned, leases=[structs.replace(each, state="") for each in turned.leases])


def host_for(project: str, known: KnownHost, at: Moment) -> KnownHost:
    """What people of a project see of a host."""
    state = state_for(project, known.state, at)
    return structs.replace(known, state=state, next_at=max(known.next_at, read_state(state).blocked_until))
