"""Busy: how weft answers while twenty spiders take all processor time they can get, as equals and as they yield."""

import argparse
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from http.client import HTTPConnection
from urllib.parse import urlencode

from bench.gateway import QUIET
from bench.latencies import Latencies, machine_load
from bench.load import Answers, Load, ask, request
from bench.measure import Goal, family, judge, table
from bench.postbox import Postbox
from bench.spider_hosts import Runs, Weft, weft_up
from bench.spider_project import PROJECT

SPIDERS = 20
TIMES_AT_LEAST = 10.0
CLIENTS = (1, 16)
PAGE = "/runs"
FORM = "application/x-www-form-urlencoded"
MODES = ("as equals", "yielding")


@dataclass(frozen=True, slots=True)
class Seen:
    """What weft answered in one mode."""

    mode: str
    calls: dict[int, Answers]
    """To schedule.json, by the number of clients."""
    pages: Latencies


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="bench busy", description=__doc__)
    parser.add_argument("--seconds", type=float, default=8, help="how long each load lasts (8)")
    options = parser.parse_args(arguments)
    if os.geteuid() != 0:
        raise SystemExit("bench: busy gives spiders the weight of weft again, which only root may do")
    seen = measure(options.seconds)
    print(report(seen))
    print(machine_load())
    return judge(goals(seen))


def measure(seconds: float) -> list[Seen]:
    """Both modes on the same spiders, which take all places, so that what is scheduled waits."""
    workers = 2
    with Postbox() as postbox, weft_up(workers, capacity=SPIDERS // workers) as weft:
        runs = Runs(weft, postbox)
        runs.opened(*[runs.submit("burn")[0] for _ in range(SPIDERS)])
        found = []
        for mode, nice in zip(MODES, (0, 10), strict=True):
            weigh([pid for pid in family(weft.pid) if weft.is_for_spiders(pid)], nice)
            found.append(answered(weft, mode, seconds))
        return found


def answered(weft: Weft, mode: str, seconds: float) -> Seen:
    port = weft.roles.config.port
    form = {"Authorization": weft.line.headers["Authorization"], "Content-Type": FORM}
    schedule = request("POST", "/schedule.json", body=f"project={PROJECT}&spider=noop", headers=form)
    calls = {
        clients: ask(Load(port=port, requests=[schedule], clients=clients, seconds=seconds)) for clients in CLIENTS
    }
    page = request("GET", PAGE, headers={"Cookie": logged_in(port)})
    pages = ask(Load(port=port, requests=[page], clients=1, seconds=seconds)).latencies
    return Seen(mode, calls, pages)


def logged_in(port: int) -> str:
    """The cookie of a session."""
    line = HTTPConnection("127.0.0.1", port, timeout=120)
    line.request(
        "POST", "/login", urlencode({"name": "admin", "password": QUIET["admin_password"]}), {"Content-Type": FORM}
    )
    cookie = str(line.getresponse().headers["Set-Cookie"]).partition(";")[0]
    line.close()
    return cookie


def weigh(pids: Iterable[int], nice: int) -> None:
    """Give processes and their sessions this weight, as root may."""
    for pid in pids:
        os.setpriority(os.PRIO_PROCESS, pid, nice)
        with open(f"/proc/{pid}/autogroup", "w") as file:
            file.write(str(nice))


def report(found: Sequence[Seen]) -> str:
    head = ["spiders", *(f"calls/s, {clients} clients" for clients in CLIENTS), f"p95 of {PAGE}, ms", "longest"]
    rows = [
        [
            seen.mode,
            *(f"{answers.rate:,.1f}" for answers in seen.calls.values()),
            f"{seen.pages.percentile(95):,.0f}",
            f"{seen.pages.longest:,.0f}",
        ]
        for seen in found
    ]
    return "\n" + table(head, rows) + "\n"


def goals(found: Sequence[Seen]) -> list[Goal]:
    equals, yielding = found
    return [
        Goal(
            what=f"calls of schedule.json a second, {clients} clients, times those as equals",
            value=yielding.calls[clients].rate / max(equals.calls[clients].rate, 0.01),
            at_least=TIMES_AT_LEAST,
            unit="×",
        )
        for clients in CLIENTS
    ]
