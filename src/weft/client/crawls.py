"""Crawls of a weft elsewhere."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from weft.client.connection import Connection
from weft.client.values import at
from weft.crawl_spec import CrawlSpec
from weft.crawler.messages import Skip
from weft.crawler.reasons import problem_state
from weft.crawls.model import Crawl, CrawlPartition, CrawlReport, SkipTotal, ThroughputSpan, UrlExplanation, WarcFile
from weft.operations.crawls import (
    CrawlCountsDocument,
    CrawlDocument,
    CrawlHostDocument,
    CrawlPartitionDocument,
    CrawlReportDocument,
    CrawlThroughputDocument,
    CrawlUrlDocument,
    SkipDocument,
    UrlExplanationDocument,
    WarcFileDocument,
)
from weft.operations.paging import Page, encode_cursor
from weft.ports import Counts, Known, KnownHost

MOST_A_PAGE = 100

T = TypeVar("T")


class RemoteCrawls:
    """What ``crawls.Crawls`` is here, through a gateway."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.files = RemoteCrawlFiles(connection)

    async def create(
        self,
        project: str,
        spec: Mapping[str, Any] | CrawlSpec,
        *,
        name: str = "",
        labels: Sequence[str] = (),
        by: str = "",
        paused: bool = False,
    ) -> Crawl:
        body = {"project": project, "spec": spec, "name": name, "labels": list(labels), "paused": paused}
        return _crawl(await self._connection.post(CrawlDocument, "crawls", body=body))

    async def all(
        self,
        projects: Collection[str] | None = None,
        *,
        state: str | None = None,
        name: str | None = None,
        run_id: int | None = None,
        before: int | None = None,
        limit: int = 50,
    ) -> list[Crawl]:
        query = {"state": state, "name": name, "run_id": run_id}
        return [_crawl(each) for each in await self._found(projects, before=before, limit=limit, **query)]

    async def counted(
        self, projects: Collection[str] | None = None, *, state: str | None = None, limit: int = 50
    ) -> list[tuple[Crawl, Counts | None]]:
        """Crawls, newest first, and the counts of each; None where its URLs are in another frontier."""
        found = await self._found(projects, state=state, limit=limit)
        return [(_crawl(each), None if each.counts is None else _counts(each.counts)) for each in found]

    async def _found(
        self, projects: Collection[str] | None, *, before: int | None = None, limit: int, **query: Any
    ) -> Sequence[CrawlDocument]:
        """Crawls, newest first, of one project, several or all."""
        found: list[CrawlDocument] = []
        query["project"] = next(iter(projects)) if projects is not None and len(projects) == 1 else None
        after = None if before is None else encode_cursor(before)
        while len(found) < limit:
            page = await self._connection.get(
                Page[CrawlDocument], "crawls", **query, after=after, limit=min(limit, MOST_A_PAGE)
            )
            found += [each for each in page.items if projects is None or each.project in projects]
            after = page.next
            if after is None:
                break
        return found[:limit]

    async def get(self, crawl_id: int) -> Crawl:
        return (await self.report(crawl_id)).crawl

    async def counts(self, crawl_id: int) -> Counts:
        return (await self.report(crawl_id)).counts

    async def report(self, crawl_id: int) -> CrawlReport:
        found = await self._connection.get(CrawlReportDocument, "crawls", crawl_id)
        return CrawlReport(
            crawl=_crawl(found.crawl, found.spec),
            counts=_counts(found.counts),
            pages_per_second=found.pages_per_second,
            partitions=[_value(CrawlPartition, each) for each in found.partitions],
            skips=[SkipTotal(reason=each.reason, count=each.count) for each in found.skips],
            traps=[_skip(each) for each in found.traps],
        )

    async def pace(self, crawl_id: int) -> list[ThroughputSpan]:
        found = await self._connection.get(Page[CrawlThroughputDocument], "crawls", crawl_id, "pace")
        return [_value(ThroughputSpan, each) for each in found.items]

    async def pause(self, crawl_id: int) -> Crawl:
        return _crawl(await self._connection.post(CrawlDocument, "crawls", crawl_id, "pause"))

    async def resume(self, crawl_id: int) -> Crawl:
        return _crawl(await self._connection.post(CrawlDocument, "crawls", crawl_id, "resume"))

    async def stop(self, crawl_id: int) -> Crawl:
        return _crawl(await self._connection.post(CrawlDocument, "crawls", crawl_id, "stop"))

    async def delete(self, crawl_id: int) -> None:
        await self._connection.call("DELETE", ("crawls", crawl_id), None)

    async def urls(
        self, crawl_id: int, *, state: str = "", host: str = "", after: int | None = None, limit: int = 100
    ) -> list[Known]:
        place = None if after is None else encode_cursor((str(after),))
        query = {"state": state or None, "host": host or None, "after": place, "limit": limit}
        found = await self._connection.get(Page[CrawlUrlDocument], "crawls", crawl_id, "urls", **query)
        return [_known(each) for each in found.items]

    async def hosts(self, crawl_id: int, *, after: str = "", limit: int = 100) -> list[KnownHost]:
        place = encode_cursor((after,)) if after else None
        found = await self._connection.get(
            Page[CrawlHostDocument], "crawls", crawl_id, "hosts", after=place, limit=limit
        )
        return [_host(each) for each in found.items]

    async def skips(
        self, crawl_id: int, *, reason: str | None = None, traps: bool = False, limit: int = 100
    ) -> list[Skip]:
        query = {"reason": reason, "traps": traps, "limit": limit}
        found = await self._connection.get(Page[SkipDocument], "crawls", crawl_id, "skips", **query)
        return [_skip(each) for each in found.items]

    async def why(self, crawl_id: int, url: str) -> UrlExplanation:
        return _value(
            UrlExplanation, await self._connection.get(UrlExplanationDocument, "crawls", crawl_id, "why", url=url)
        )

    async def feed(self, crawl_id: int, urls: Sequence[str]) -> int:
        told = await self._connection.post(dict[str, int], "crawls", crawl_id, "urls", body={"urls": list(urls)})
        return int(told["new"])

    async def requeue(self, crawl_id: int, state: str = "failed") -> int:
        told = await self._connection.post(dict[str, int], "crawls", crawl_id, "requeue", body={"state": state})
        return int(told["count"])


class RemoteCrawlFiles:
    """What ``files.CrawlFiles`` is here, through a gateway."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def all(self, crawl_id: int) -> list[WarcFile]:
        found = await self._connection.get(Page[WarcFileDocument], "crawls", crawl_id, "warcs")
        return [_value(WarcFile, each) for each in found.items]

    async def get(self, crawl_id: int, name: str) -> bytes:
        data: bytes = await self._connection.get(bytes, "crawls", crawl_id, "warcs", name)
        return data

    def parts(self, crawl_id: int, name: str) -> AsyncIterator[bytes]:
        return self._connection.pieces("crawls", crawl_id, "warcs", name)

    def index(self, crawl_id: int, joined_as: str = "") -> AsyncIterator[bytes]:
        return self._connection.pieces("crawls", crawl_id, "cdxj", joined_as=joined_as)


def _crawl(document: CrawlDocument, spec: Mapping[str, Any] | None = None) -> Crawl:
    told = _fields(document)
    urls, _ = told.pop("urls"), told.pop("counts")
    read = CrawlSpec(urls=urls) if spec is None else msgspec.convert(dict(spec), CrawlSpec)
    return Crawl(**told, spec=read, seeded=True)


def _counts(document: CrawlCountsDocument) -> Counts:
    return Counts(**msgspec.structs.asdict(document))


def _skip(document: SkipDocument) -> Skip:
    return Skip(**{name: getattr(document, name) for name in Skip.__struct_fields__})


def _known(document: CrawlUrlDocument) -> Known:
    told = _fields(document)
    return Known(
        **{**told, "key": int(document.key), "next_at": told["next_at"] or 0, "fetched_at": told["fetched_at"] or 0}
    )


def _host(document: CrawlHostDocument) -> KnownHost:
    counts, next_at, until = _counts(document.counts), at(document.next_at) or 0, at(document.leased_until) or 0
    return KnownHost(document.host, counts, next_at, problem_state(document.trouble), until, document.holder)


def _value(
    kind: type[T],
    document: CrawlThroughputDocument | CrawlPartitionDocument | WarcFileDocument | UrlExplanationDocument,
) -> T:
    return kind(**_fields(document))


def _fields(document: msgspec.Struct) -> dict[str, Any]:
    """What a document says, with its times as moments."""
    told = {name: getattr(document, name) for name in document.__struct_fields__}
    return {name: at(value) if name == "at" or name.endswith("_at") else value for name, value in told.items()}
