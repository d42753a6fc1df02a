"""R22: traps end.

Seven hosts that never end: a calendar, session ids in paths, paths that grow, a farm of links, a farm whose links have
no numbers, a maze that answers every address with the same "not found" and status 200, and a maze of redirects. Beside
them is an honest host. The crawl has no budget: it must end by its own bounds, must say of each host that it suspects a
trap and which pattern that has, must stay small, and the honest host must be crawled whole, as fast as without the
others. Red control: the guards are switched off, and no host is done when it was asked as often as is allowed.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from experiments.answering import Answering, Asked, Said
from experiments.clerk import Clerk, clerk_in, crawler
from experiments.r21 import new_database
from experiments.report import Report, Tally
from weft.crawl_spec import CrawlSpec, FetchingSpec, OutputSpec, PolitenessSpec, TrapSpec
from weft.crawler.reasons import describe_reason
from weft.crawler.traps import TrapDetector

RED = "r22:look_away"
HONEST = "127.0.22.1"
LARGEST_MEMORY = 512 << 20
SLOWER = 1 / 0.9
"""How much longer the honest host may take beside traps."""
PATIENCE_SECONDS = 300.0
TALE = "river stone window garden letter market winter silver harbour engine mountain paper bridge candle forest"
WORDS = TALE.split()


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    honest: int
    """Pages of the honest host."""
    links: int
    """Links of each page of a farm."""
    links_per_page: int
    delay: float
    """Seconds between requests to a host."""
    requests: int
    """How often a host with a trap may be asked until the crawl is over."""
    compares: bool
    """Whether the honest host's speed is part of the verdict."""


FULL = Size(honest=1_000, links=1_000_000, links_per_page=10_000, delay=0.1, requests=600, compares=True)
REDUCED = Size(honest=150, links=3_000, links_per_page=300, delay=0.005, requests=250, compares=False)


def _tale(seed: str, words: int = 80) -> str:
    """A text that is the same each time, and another for each seed."""
    chance = random.Random(seed)
    return " ".join(chance.choices(WORDS, k=words))


def page(*links: str, title: str = "a page", text: str = "", base: str = "") -> Said:
    """A page whose links are all called the same."""
    told = f'<base href="{base}">' if base else ""
    anchors = "".join(f'<a href="{link}">on</a>\n' for link in links)
    body = f"<!doctype html><title>{title}</title>{told}<body><p>{text}</p>{anchors}</body>"
    return Said(body=body.encode(), headers={"Content-Type": "text/html; charset=utf-8"})


def calendar(asked: Asked, size: Size) -> Said:
    _, _, year, month = (*asked.path.split("/"), "", "")[:4]
    at = int(year or 2026) * 12 + int(month or 1) - 1
    days = " ".join(str(day) for day in range(1, 29 + at % 3))
    near = [f"/cal/{each // 12}/{each % 12 + 1}" for each in (at - 1, at + 1, at + 12)]
    return page(*near, title=f"{at % 12 + 1} {at // 12}", text=f"{days} Nothing happens in this month of {at // 12}.")


def sessions(asked: Asked, size: Size) -> Said:
    """Each page hands out a new session, under which the same five pages are others."""
    session = hashlib.sha256(f"{asked.path}{asked.at}".encode()).hexdigest()[:32]
    name = asked.path.rpartition("/")[2] or "first"
    pages = ("lamps", "chairs", "tables", "doors", "roofs")
    return page(*(f"/s/{session}/{each}" for each in pages), title=name, text=_tale(name))


def growing(asked: Asked, size: Size) -> Said:
    return page("a/", "b/", title=asked.path, text=_tale(asked.path))


def farm(asked: Asked, size: Size) -> Said:
    """Each page has its own folder of links."""
    said = _farm_page(size.links)
    folder = hashlib.sha256(asked.path.encode()).hexdigest()[:20]
    return Said(body=said.body.replace(b"FOLDER", folder.encode(), 1), headers=said.headers)


@cache
def _farm_page(links: int) -> Said:
    return page(*map(str, range(links)), text="Look at our many offers!", base="/offer/FOLDER/")


def wordy_farm(asked: Asked, size: Size) -> Said:
    chance = random.Random(asked.path)
    names = ("-".join(chance.choices(WORDS, k=6)) for _ in range(min(size.links, 500)))
    return page(*(f"/offers/{name}" for name in names), text="Look at our many offers!")


def not_found(asked: Asked, size: Size) -> Said:
    chance = random.Random(asked.path)
    links = ["/".join(("", *chance.choices(WORDS, k=3))) for _ in range(5)]
    if asked.path == "/":
        return page(*links, title="first", text=_tale("first"))
    return page(*links, title="Sorry", text="Sorry, there is no such page on this host. Perhaps you want one of these.")


def redirects(asked: Asked, size: Size) -> Said:
    number = asked.path.rpartition("/")[2]
    if asked.path == "/":
        return page(*(f"/r/{start}" for start in range(0, 5_000, 1_000)), title="first", text=_tale("r"))
    return Said(302, headers={"Location": f"/r/{int(number) + 1}"}) if number.isdigit() else Said(404)


TRAPS: Mapping[str, tuple[Callable[[Asked, Size], Said], frozenset[str]]] = {
    "calendar": (calendar, frozenset({"calendar", "near_duplicates"})),
    "session ids": (sessions, frozenset({"near_duplicates", "pattern"})),
    "growing paths": (growing, frozenset({"repeats", "segments"})),
    "link farm": (farm, frozenset({"near_duplicates", "pattern"})),
    "wordy link farm": (wordy_farm, frozenset({"near_duplicates"})),
    "soft 404": (not_found, frozenset({"soft_404", "near_duplicates"})),
    "redirects": (redirects, frozenset({"redirects"})),
}
"""How each host answers, and what may be said of it."""
ADDRESSES = {kind: f"127.0.22.{place}" for place, kind in enumerate(TRAPS, 2)}


@dataclass(slots=True)
class Site:
    size: Size
    kinds: dict[str, str] = field(default_factory=lambda: {address: kind for kind, address in ADDRESSES.items()})

    def answer(self, asked: Asked) -> Said:
        if asked.path == "/robots.txt":
            return Said(404)
        if asked.host == HONEST:
            return self._honest(asked)
        return TRAPS[self.kinds[asked.host]][0](asked, self.size)

    def _honest(self, asked: Asked) -> Said:
        number = asked.path.removeprefix("/")
        if number and (not number.isdigit() or int(number) >= self.size.honest):
            return Said(404)
        first = 3 * int(number or 0)
        links = [f"/{each}" for each in (first + 1, first + 2, first + 3) if each < self.size.honest]
        return page(*links, title=number, text=_tale(number))


@dataclass(slots=True)
class Seen:
    """What is known of a crawl after it."""

    site: Answering
    clerk: Clerk
    failed: set[str]
    """Addresses that gave up after too many redirects."""
    ended: bool
    memory: int

    def reasons(self, address: str) -> set[str]:
        return {each.reason for each in self.clerk.skips if each.host.startswith(f"{address}:")}

    def honest(self) -> set[str]:
        return {path for path in self.site.paths(HONEST) if path[1:].isdigit() or path == "/"}

    def honest_seconds(self) -> float:
        times = [asked.at for asked in self.site.log if asked.host == HONEST]
        return max(times) - min(times)


async def experiment(*, full: bool = False, red: bool = False) -> Report:
    report, size = Report("R22"), FULL if full else REDUCED
    alone = None if red else await crawled(size, [HONEST])
    began = time.monotonic()
    seen = await crawled(size, [HONEST, *ADDRESSES.values()], RED if red else "")
    judge(report, size, seen, alone)
    fine = sum(len(seen.site.paths(address)) <= size.requests for address in ADDRESSES.values())
    count = len(TRAPS)
    report.add("traps", Tally(attempted=count, acknowledged=count, ok=fine, seconds=time.monotonic() - began))
    return report


def judge(report: Report, size: Size, seen: Seen, alone: Seen | None) -> None:
    report.expect(seen.ended, "the crawl did not end by itself")
    for kind, address in ADDRESSES.items():
        asked, reasons = len(seen.site.paths(address)), seen.reasons(address)
        report.expect(asked <= size.requests, f"{kind}: asked more than {size.requests} times")
        told = reasons | ({"redirects"} if address in seen.failed else set())
        report.expect(bool(told & TRAPS[kind][1]), f"{kind}: only {sorted(told)} was told of it")
        for each in seen.clerk.skips:
            if each.host.startswith(f"{address}:") and each.is_trap and each.pattern:
                report.note(f"{kind}: {asked} requests; {describe_reason(each.reason, pattern=each.pattern)}")
                break
    missing = size.honest - len(seen.honest() - {"/0"})
    report.expect(missing == 0, f"{missing} pages of the honest host are missing")
    report.expect(seen.memory <= LARGEST_MEMORY, f"the crawler took {seen.memory >> 20} MB")
    report.note(f"the crawler took {seen.memory >> 20} MB at most")
    if alone is not None:
        before, beside = alone.honest_seconds(), seen.honest_seconds()
        report.note(f"the honest host was crawled in {before:.2f} s alone, in {beside:.2f} s beside traps")
        report.expect(
            not size.compares or beside <= before * SLOWER, f"the honest host took {beside / before:.2f} times as long"
        )


async def crawled(size: Size, addresses: list[str], patch: str = "") -> Seen:
    """What the servers and the worker have seen of a crawl of these hosts, by a process of its own."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="weft-r22-")))
        site = await stack.enter_async_context(Answering(Site(size).answer, addresses).serving())
        spec = CrawlSpec(
            urls=tuple(site.url("/", address) for address in addresses),
            follow=True,
            politeness=PolitenessSpec(delay_seconds=size.delay, adaptive=False),
            fetching=FetchingSpec(at_once=len(addresses)),
            traps=TrapSpec(links_per_page=size.links_per_page),
            keeping=OutputSpec(warc=False, links=False),
        )
        clerk = await stack.enter_async_context(clerk_in(folder, new_database(folder), spec))
        process = await stack.enter_async_context(crawler(folder, spec, patch))
        ended = asyncio.create_task(process.wait())
        memory = await _watched(size, site, process.pid, ended)
        known = await clerk.frontier.urls(1, state="failed", limit=1_000)
        failed = {each.host.partition(":")[0] for each in known if each.reason == "redirects"}
        ended.cancel()
        return Seen(site, clerk, failed, process.returncode is not None, memory)


async def _watched(size: Size, site: Answering, pid: int, ended: asyncio.Task[int]) -> int:
    """Wait until the crawl has ended, or most traps were asked too often; the most memory that it had."""
    memory, until = 0, time.monotonic() + PATIENCE_SECONDS
    traps = [address for address in site.addresses if address != HONEST]
    while not ended.done() and time.monotonic() < until:
        memory = max(memory, _peak(pid))
        await asyncio.wait([ended], timeout=0.1)
        if 2 * sum(len(site.paths(address)) > size.requests for address in traps) > len(traps):
            break
    return memory


def _peak(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM:")), 0)


def look_away() -> None:
    """The red control: no address and no page is taken for a trap, and redirects are followed for ever."""
    from weft.crawler import visits
    from weft.crawler.messages import UrlMetadata

    TrapDetector.refuses = lambda self, *_, **__: None  # type: ignore[method-assign]
    TrapDetector.saw = lambda self, url, page: None  # type: ignore[method-assign]
    TrapDetector.trap_of = lambda self, url: None  # type: ignore[method-assign]
    visits.UrlMetadata = lambda hops=0, *rest, **named: UrlMetadata(0, *rest, **named)  # type: ignore[attr-defined, assignment]
