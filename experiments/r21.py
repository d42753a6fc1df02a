"""R21: robots.txt is obeyed when it is hardest.

Each host has another robots.txt: with rules, missing, forbidden, broken, busy (503 with Retry-After), silent, endless,
behind redirects, on another host, binary, with a byte order mark, with the line ends of old, of 10,000 groups, and one
that changes while it is crawled. All have the same pages, some of which the rules forbid. What counts is what the
servers have seen: no page that is forbidden, nothing at all where robots.txt cannot be read, nothing before a busy host
said, and rules that changed are known once the old ones are too old. Red control: rules are read and not followed.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

from experiments.answering import Answering, Asked, Said, html
from experiments.clerk import clerk_in, crawler
from experiments.report import Report, Tally
from weft.crawl_spec import CrawlSpec, FetchingSpec, OutputSpec, PolitenessSpec
from weft.crawler.robots import LARGEST_ROBOTS, RobotsRules
from weft.db.database import open_database
from weft.db.migrate import migrate

RED = "r21:read_and_ignore"
FORBIDDEN = "/private/"
RULES = b"User-agent: *\nDisallow: /private/\n"
PAGES = {"/": ("/a", "/b"), "/a": ("/c", "/private/1"), "/b": ("/private/2", "/c"), "/c": ("/private/3",)}
RETRY_AFTER = 2
AGE_SECONDS = 1.0
LATE_SECONDS = 1.0
"""What a busy machine may need between the decision to ask and the arrival of the request."""
PATIENCE_SECONDS = 120.0
FULL_TURNS = 10

Robots = Callable[[Asked, int], Said]
"""The answer to the request for robots.txt of this number, from 1 on."""


def _moved(asked: Asked, to: str) -> Said:
    return Said(302, headers={"Location": to})


def _chain(hops: int) -> Robots:
    """Redirects, so many, and then the rules."""

    def answer(asked: Asked, number: int) -> Said:
        at = int(asked.path.removeprefix("/robots.txt").removeprefix("-") or 0)
        return _moved(asked, f"/robots.txt-{at + 1}") if at < hops else Said(body=RULES)

    return answer


def _elsewhere(asked: Asked, number: int) -> Said:
    return _moved(asked, asked.headers["host"].join(("http://", "/elsewhere")).replace(asked.host, "127.0.21.1"))


def _busy(asked: Asked, number: int) -> Said:
    return Said(503, headers={"Retry-After": str(RETRY_AFTER)}) if number == 1 else Said(body=RULES)


GROUPS = "".join(f"User-agent: bot{number}\nDisallow: /{number}\n\n" for number in range(10_000)).encode()

OBEYED: Mapping[str, Robots] = {
    "rules": lambda asked, number: Said(body=RULES),
    "byte order mark": lambda asked, number: Said(body=b"\xef\xbb\xbf" + RULES),
    "CR line ends": lambda asked, number: Said(body=RULES.replace(b"\n", b"\r")),
    "binary": lambda asked, number: Said(body=bytes(range(256)) * 100 + b"\n" + RULES),
    "10,000 groups": lambda asked, number: Said(body=GROUPS + RULES),
    "endless": lambda asked, number: Said(body=RULES, endless=b"# and so on\n" * 5_000),
    "five redirects": _chain(5),
    "elsewhere": _elsewhere,
    "busy": _busy,
}
OPEN: Mapping[str, Robots] = {
    "missing": lambda asked, number: Said(404),
    "forbidden": lambda asked, number: Said(403),
    "six redirects": _chain(6),
}
CLOSED: Mapping[str, Robots] = {
    "broken": lambda asked, number: Said(500),
    "busy for long": lambda asked, number: Said(503, headers={"Retry-After": "86400"}),
    "too many requests": lambda asked, number: Said(429),
    "silent": lambda asked, number: Said(wait=600.0),
}


@dataclass(slots=True)
class Hosts:
    """Hosts that differ in their robots.txt, by address."""

    kinds: Mapping[str, Robots]
    first: int
    _asked: dict[str, int] = field(default_factory=dict)

    @property
    def addresses(self) -> dict[str, str]:
        return {kind: f"127.0.21.{self.first + place}" for place, kind in enumerate(self.kinds)}

    def answer(self, asked: Asked) -> Said:
        if asked.path == "/elsewhere":
            return Said(body=RULES)
        if asked.path.startswith("/robots.txt"):
            self._asked[asked.host] = number = self._asked.get(asked.host, 0) + 1
            kind = next(kind for kind, address in self.addresses.items() if address == asked.host)
            return self.kinds[kind](asked, number)
        links = PAGES.get(asked.path, ())
        return html(*links, title=asked.path, text=f"{asked.host}{asked.path} " * 40)


async def experiment(*, full: bool = False, red: bool = False) -> Report:
    report = Report("R21")
    for turn in range(FULL_TURNS if full else 1):
        scenes = [obeyed(report, f"obeyed {turn + 1}", RED if red else "")]
        if not red:
            scenes += [closed(report, f"closed {turn + 1}"), changed(report, f"changed {turn + 1}")]
        await asyncio.gather(*scenes)
    return report


async def obeyed(report: Report, scene: str, patch: str) -> None:
    """Rules that are hard to get or to read count, and where there are none everything may be fetched."""
    began, hosts = time.monotonic(), Hosts({**OBEYED, **OPEN}, 1)
    site = await crawled(hosts, FetchingSpec(retries=2, deadline_seconds=20.0), patch=patch)
    fine = 0
    for kind, address in hosts.addresses.items():
        paths = site.paths(address)
        wrong = sum(path.startswith(FORBIDDEN) for path in paths) if kind in OBEYED else 0
        there = set(PAGES) <= set(paths)
        report.expect(not wrong, f"{kind}: {wrong} forbidden pages were fetched")
        report.expect(there, f"{kind}: pages are missing, only {sorted(set(paths))} were fetched")
        fine += not wrong and there
    times = [asked.at for asked in site.log if asked.host == hosts.addresses["busy"]]
    report.expect(times[1] - times[0] >= RETRY_AFTER, f"busy: asked again after {times[1] - times[0]:.2f} s")
    redirects = [path for path in site.paths(hosts.addresses["six redirects"]) if path.startswith("/robots.txt")]
    report.expect(len(redirects) == 6, f"six redirects: {len(redirects)} requests for robots.txt")
    report.note(f"of an endless robots.txt the first {LARGEST_ROBOTS >> 10} KiB counted")
    count = len(hosts.addresses)
    report.add(scene, Tally(attempted=count, acknowledged=count, ok=fine, seconds=time.monotonic() - began))


async def closed(report: Report, scene: str) -> None:
    """Where robots.txt cannot be read nothing is fetched."""
    began, hosts = time.monotonic(), Hosts(CLOSED, 101)
    site = await crawled(hosts, FetchingSpec(retries=0, deadline_seconds=2.0))
    fine = 0
    for kind, address in hosts.addresses.items():
        paths = [path for path in site.paths(address) if path != "/robots.txt"]
        report.expect(not paths, f"{kind}: {paths} were fetched")
        fine += not paths and "/robots.txt" in site.paths(address)
    count = len(hosts.addresses)
    report.expect(fine == count, f"{count - fine} hosts were not even asked for robots.txt")
    report.add(scene, Tally(attempted=count, acknowledged=count, ok=fine, seconds=time.monotonic() - began))


async def changed(report: Report, scene: str) -> None:
    """A robots.txt that changes while its host is crawled counts as soon as the old one is too old."""
    began, moment = time.monotonic(), [0.0]

    def answer(asked: Asked) -> Said:
        if asked.path == "/robots.txt":
            moment[0] = moment[0] or asked.at
            return Said(body=RULES if asked.at > moment[0] else b"")
        number = asked.path.removeprefix(FORBIDDEN)
        following = int(number) + 1 if number.isdigit() else 0
        return html(f"{FORBIDDEN}{following}", title=asked.path, text=f"{asked.path} {following * 7919} " * 40)

    polite = PolitenessSpec(delay_seconds=0.02, robots_seconds=AGE_SECONDS, adaptive=False)
    hosts = Hosts({"changed": lambda asked, number: Said()}, 201)
    site = await crawled(hosts, FetchingSpec(), politeness=polite, answer=answer)
    late = [asked for asked in site.log if asked.path.startswith(FORBIDDEN)]
    last = max((asked.at - moment[0] for asked in late), default=0.0)
    report.expect(bool(late), "changed: nothing was fetched before the rules changed, so that nothing is shown")
    report.expect(last < AGE_SECONDS + LATE_SECONDS, f"changed: a forbidden page was fetched {last:.1f} s later")
    fine = int(bool(late) and last < AGE_SECONDS + LATE_SECONDS)
    report.add(scene, Tally(attempted=1, acknowledged=1, ok=fine, seconds=time.monotonic() - began))


async def crawled(
    hosts: Hosts,
    fetching: FetchingSpec,
    *,
    politeness: PolitenessSpec | None = None,
    answer: Callable[[Asked], Said] | None = None,
    patch: str = "",
) -> Answering:
    """What the servers have seen of a crawl of all hosts, by a process of its own."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="weft-r21-")))
        addresses = list(hosts.addresses.values())
        site = await stack.enter_async_context(Answering(answer or hosts.answer, addresses).serving())
        spec = CrawlSpec(
            urls=tuple(site.url("/", address) for address in addresses),
            follow=True,
            politeness=politeness or PolitenessSpec(delay_seconds=0.01, adaptive=False),
            fetching=fetching,
            keeping=OutputSpec(warc=False),
        )
        await stack.enter_async_context(clerk_in(folder, new_database(folder), spec))
        process = await stack.enter_async_context(crawler(folder, spec, patch))
        async with asyncio.timeout(PATIENCE_SECONDS):
            await process.wait()
    return site


def new_database(folder: Path) -> str:
    url = f"sqlite:///{folder / 'weft.db'}"
    db = open_database(url)
    migrate(db.engine)
    db.close()
    return url


def read_and_ignore() -> None:
    """The red control: robots.txt is fetched and read, and then everything is allowed."""
    RobotsRules.allows = lambda self, url: True  # type: ignore[method-assign]
