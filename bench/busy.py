"""Busy: how weft answers while twenty spiders take all processor time they can get: as equals, and as they yield."""

import argparse
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlencode

from bench import equals
from bench.gateway import QUIET
from bench.latencies import machine_load
from bench.load import Load, ask, request
from bench.measure import Figures, Goal, family, judge, table
from bench.peers.peer import PeerFailed
from bench.peers.python import program
from bench.peers.scrapyd_spiders import scrapyd
from bench.postbox import Postbox
from bench.spider_hosts import Host, Runs, weft_up
from bench.spider_project import PROJECT

SPIDERS = 20
WORKERS = 2
TIMES_AT_LEAST = 10.0
CLIENTS = (1, 16)
FORM = "application/x-www-form-urlencoded"
OVERVIEW = "/"
AS_IT_IS, LEFT_ON, OFF, SCRAPYD = "weft as it is", "weft, switch on", "weft, switch off", "Scrapyd"
SCRAPYD_PAGE = "/jobs"
POLL_SECONDS = "0.5"
"""So that Scrapyd has all its spiders running soon."""
SETTLE_SECONDS = 15.0

Weight = tuple[int, int | None]
"""The nice value of a process, and that of its session where the kernel weighs sessions."""
LOWERED = {AS_IT_IS: True, LEFT_ON: True, OFF: False}


@dataclass(slots=True)
class Seen:
    """What was answered in one mode, from several runs."""

    weights: set[Weight] = field(default_factory=set)
    """Of the spiders."""
    calls: dict[int, Figures] = field(default_factory=lambda: {clients: Figures() for clients in CLIENTS})
    """Calls of schedule.json a second, by the number of clients."""
    p50: Figures = field(default_factory=Figures)
    """Of the overview page, in milliseconds."""
    p95: Figures = field(default_factory=Figures)
    longest: Figures = field(default_factory=Figures)


Results = dict[str, Seen]
Asked = tuple[str, str]
"""A request that schedules a spider, and one for the overview page."""


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="bench busy", description=__doc__)
    parser.add_argument("--runs", type=int, default=1, help="how often each is measured (1)")
    parser.add_argument("--seconds", type=float, default=8, help="how long each load lasts (8)")
    parser.add_argument("--spiders", type=int, default=SPIDERS, help=f"how many spiders are busy ({SPIDERS})")
    parser.add_argument("--only", nargs="+", default=[], metavar="WORD", help="only modes with one of these words")
    options = parser.parse_args(arguments)
    chosen = [
        mode for mode in modes() if not options.only or any(word.lower() in mode.lower() for word in options.only)
    ]
    if not Path(program("scrapyd")).exists():
        print("Scrapyd is not measured, since it is not installed: run `./dev bench spiders` once", flush=True)
    found: Results = {mode: Seen() for mode in chosen}
    for run in range(options.runs):
        for mode, seen in found.items():
            measure(mode, seen, options.spiders, options.seconds)
            print(f"run {run + 1}: {mode}: {latest(seen)}; {machine_load()}", flush=True)
    print(report(found, options.spiders))
    print(machine_load())
    return judge(goals(found))


def modes() -> list[str]:
    """weft without any switch comes first: what the switch itself may cost is not in it."""
    return [AS_IT_IS, LEFT_ON, OFF, *([SCRAPYD] if Path(program("scrapyd")).exists() else [])]


def opening(mode: str, spiders: int) -> Callable[[], AbstractContextManager[Host]]:
    """The spiders take all slots, so that what is scheduled meanwhile waits."""
    if mode == SCRAPYD:
        return scrapyd(SCRAPYD, {"max_proc": str(spiders), "poll_interval": POLL_SECONDS})
    switch = {AS_IT_IS: "", LEFT_ON: equals.ON, OFF: equals.OFF}[mode]
    return partial(weft_up, WORKERS, capacity=-(-spiders // WORKERS), equals=switch)


def measure(mode: str, seen: Seen, spiders: int, seconds: float) -> None:
    """The page first: the calls leave waiting runs behind, more of them the faster they are answered."""
    with Postbox() as postbox, opening(mode, spiders)() as host:
        runs = Runs(host, postbox)
        runs.opened(*[runs.submit("burn")[0] for _ in range(spiders)])
        seen.weights |= checked(mode, settled(mode, host))
        schedule, page = asked(host)
        pages = ask(Load(port=host.line.port, requests=[page], clients=1, seconds=seconds)).latencies
        seen.p50.add(pages.p50)
        seen.p95.add(pages.percentile(95))
        seen.longest.add(pages.longest)
        for clients, rates in seen.calls.items():
            rates.add(ask(Load(port=host.line.port, requests=[schedule], clients=clients, seconds=seconds)).rate)


def asked(host: Host) -> Asked:
    headers = dict(host.line.headers) | {"Content-Type": FORM}
    schedule = request("POST", "/schedule.json", body=f"project={PROJECT}&spider=noop", headers=headers)
    if host.name == SCRAPYD:
        return schedule, request("GET", SCRAPYD_PAGE)
    return schedule, request("GET", OVERVIEW, headers={"Cookie": logged_in(host.line.port)})


def logged_in(port: int) -> str:
    """The cookie of a session."""
    line = HTTPConnection("127.0.0.1", port, timeout=120)
    line.request(
        "POST", "/login", urlencode({"name": "admin", "password": QUIET["admin_password"]}), {"Content-Type": FORM}
    )
    cookie = str(line.getresponse().headers["Set-Cookie"]).partition(";")[0]
    line.close()
    return cookie


def weight(pid: int) -> Weight:
    try:
        said = Path(f"/proc/{pid}/autogroup").read_text()
    except OSError:
        said = ""
    return os.getpriority(os.PRIO_PROCESS, pid), session_nice(said)


def session_nice(said: str) -> int | None:
    """Of what /proc says about the session of a process; None where the kernel does not weigh sessions."""
    found = re.search(r" nice (-?\d+)$", said.strip())
    return int(found[1]) if found else None


def settled(mode: str, host: Host) -> list[Weight]:
    """The weights of the spiders, as soon as they are what the mode is about: the kernel takes ten changes a second of
    users other than root."""
    deadline = time.monotonic() + SETTLE_SECONDS
    while True:
        found = [weight(pid) for pid in family(host.pid) if host.is_for_spiders(pid)]
        if are_as_wanted(mode, found) or time.monotonic() > deadline:
            return found
        time.sleep(0.1)


def checked(mode: str, weights: Sequence[Weight]) -> set[Weight]:
    """The weights of the spiders, which must be what the mode is about."""
    if not are_as_wanted(mode, weights):
        raise PeerFailed(mode, f"has spiders with these nice values of processes and sessions: {sorted(weights)}", "")
    return set(weights)


def are_as_wanted(mode: str, weights: Sequence[Weight]) -> bool:
    return mode not in LOWERED or all(is_lowered(each) is LOWERED[mode] for each in weights)


def is_lowered(weight: Weight) -> bool:
    nice, session = weight
    return session > 0 if session is not None else nice > os.getpriority(os.PRIO_PROCESS, 0)


def latest(seen: Seen) -> str:
    calls = ", ".join(f"{rates.values[-1]:,.1f} calls/s of {clients}" for clients, rates in seen.calls.items())
    return f"{calls}, overview p95 {seen.p95.values[-1]:,.0f} ms"


def report(found: Mapping[str, Seen], spiders: int) -> str:
    off = found.get(OFF)
    head = [
        f"{spiders} busy spiders",
        "nice, session",
        *(f"calls/s, {clients} client{'s' * (clients > 1)}" for clients in CLIENTS),
        *(f"× off, {clients}" for clients in CLIENTS if off),
        "overview p50 ms",
        "p95 ms",
        "longest",
    ]
    rows = [
        [
            mode,
            "; ".join(sorted(shown(each) for each in seen.weights)),
            *(f"{rates.median:,.1f}" for rates in seen.calls.values()),
            *(f"{times(seen, off, clients):.2f}" for clients in CLIENTS if off),
            f"{seen.p50.median:,.0f}",
            f"{seen.p95.median:,.0f}",
            f"{max(seen.longest.values):,.0f}",
        ]
        for mode, seen in found.items()
    ]
    return "\n" + table(head, rows) + "\n"


def shown(weight: Weight) -> str:
    nice, session = weight
    return f"{nice}, {'–' if session is None else session}"


def times(seen: Seen, off: Seen, clients: int) -> float:
    return seen.calls[clients].median / max(off.calls[clients].median, 0.01)


def goals(found: Mapping[str, Seen]) -> list[Goal]:
    if AS_IT_IS not in found or OFF not in found:
        return []
    return [
        Goal(
            what=f"calls of schedule.json a second, {clients} client{'s' * (clients > 1)}, times those with switch off",
            value=times(found[AS_IT_IS], found[OFF], clients),
            at_least=TIMES_AT_LEAST,
            unit="×",
        )
        for clients in CLIENTS
    ]
