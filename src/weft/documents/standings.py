"""What spiders did lately, as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from weft.clock import iso
from weft.documents.copying import Time
from weft.items.history import History, Past, ProjectStanding, Standing
from weft.items.usual import BADLY, MOST_LOOKED_AT, WELL, Band, fills, is_flaky, items_band, seconds_band

MOST_EARLIER = 10
"""How many sets of arguments that were given before are told."""


class BandDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Between what a number usually is."""

    low: float
    middle: float
    high: float


class PastDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a spider in figures."""

    run_id: int
    task: str
    version: str
    state: str
    outcome: str | None
    reason: str | None
    trigger: str
    queued_at: Time
    started_at: Time | None
    finished_at: Time | None
    seconds: float | None
    items: int
    pages: int
    errors: int
    drifted: bool
    """Whether it was marked as unusual."""
    usual_items: BandDocument | None
    """What was usual when it ran; null where too few runs came before it."""
    usual_seconds: BandDocument | None


class FillDocument(msgspec.Struct, frozen=True, kw_only=True):
    """In which share of the items a field is filled, run by run, newest first."""

    name: str
    shares: tuple[float, ...]


class EarlierDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What a run was given."""

    run_id: int
    args: dict[str, Any]
    settings: dict[str, Any]


class HistoryDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What a spider did lately."""

    project: str
    spider: str
    runs: list[PastDocument]
    """Newest first."""
    tasks: list[str]
    """Which use it."""
    is_flaky: bool
    """Whether its last twenty runs ended in both ways."""
    last_good_run_id: int | None
    usual_items: BandDocument | None
    usual_seconds: BandDocument | None
    fields: list[FillDocument]
    earlier: list[EarlierDocument]
    """The last sets of arguments and settings that differ."""


class SpiderStandingDocument(msgspec.Struct, frozen=True, kw_only=True):
    """How a spider of a project did in the project's newest runs."""

    spider: str
    runs: int
    succeeded: int
    """Of its last twenty."""
    failed: int
    """Of its last twenty."""
    items: int
    pages: int
    errors: int
    seconds: float
    """Of its runs that have ended, on average."""
    is_flaky: bool
    last_run_id: int
    last_state: str
    last_at: Time


class StandingDocument(msgspec.Struct, frozen=True, kw_only=True):
    """How a project is."""

    project: str
    version: str | None
    """The current one."""
    spiders: int
    deployed_at: Time | None
    deployed_by: str | None
    queued: int
    running: int
    succeeded: int
    """Of its last twenty runs."""
    failed: int
    last_at: Time | None
    by_spider: list[SpiderStandingDocument] | msgspec.UnsetType = msgspec.UNSET
    """From its newest 500 runs; lists do not have it."""


def history_document(project: str, spider: str, found: History) -> HistoryDocument:
    runs = found.runs
    usual, before = _usual(runs)
    return HistoryDocument(
        project=project,
        spider=spider,
        runs=[_past(each, before[place]) for place, each in enumerate(runs)],
        tasks=list(found.tasks),
        is_flaky=is_flaky([each.state for each in runs]),
        last_good_run_id=next((each.run_id for each in runs if each.state == WELL), None),
        usual_items=usual[0],
        usual_seconds=usual[1],
        fields=[
            FillDocument(name=each.name, shares=each.shares)
            for each in fills(run.profile for run in runs[:MOST_LOOKED_AT] if run.profile is not None)
        ],
        earlier=_earlier(runs),
    )


def standing_document(
    project: str, found: ProjectStanding, by_spider: dict[str, Standing] | None = None
) -> StandingDocument:
    spiders = msgspec.UNSET if by_spider is None else [_of_spider(name, by_spider[name]) for name in sorted(by_spider)]
    return StandingDocument(
        project=project,
        version=found.version,
        spiders=found.spiders,
        deployed_at=iso(found.deployed_at),
        deployed_by=found.deployed_by,
        queued=found.queued,
        running=found.running,
        succeeded=found.states.count(WELL),
        failed=found.states.count(BADLY),
        last_at=iso(found.last_at),
        by_spider=spiders,
    )


Usual = tuple[BandDocument | None, BandDocument | None]
"""Of items, and of seconds."""


def _usual(runs: Sequence[Past]) -> tuple[Usual, list[Usual]]:
    """What is usual after all of these runs, and what was before each of them, newest first."""
    counts: list[float] = []
    times: list[float] = []
    known: Usual = (None, None)
    before: list[Usual] = []
    for run in reversed(runs):
        before.append(known)
        if run.state == WELL and run.seconds is not None:
            counts, times = [run.items, *counts[: MOST_LOOKED_AT - 1]], [run.seconds, *times[: MOST_LOOKED_AT - 1]]
            known = _band(items_band(counts)), _band(seconds_band(times))
    return known, before[::-1]


def _past(run: Past, usual: Usual) -> PastDocument:
    fields = {name: getattr(run, name) for name in _COPIED}
    return PastDocument(
        **fields,
        queued_at=iso(run.queued_at) or "",
        started_at=iso(run.started_at),
        finished_at=iso(run.finished_at),
        usual_items=usual[0],
        usual_seconds=usual[1],
    )


_COPIED = [name for name in PastDocument.__struct_fields__ if not name.endswith("_at") and not name.startswith("usual")]


def _band(band: Band | None) -> BandDocument | None:
    return None if band is None else BandDocument(**{name: round(value, 3) for name, value in band._asdict().items()})


def _earlier(runs: Sequence[Past]) -> list[EarlierDocument]:
    found: dict[bytes, EarlierDocument] = {}
    for each in runs:
        given = EarlierDocument(run_id=each.run_id, args=dict(each.args), settings=dict(each.settings))
        found.setdefault(msgspec.json.encode((given.args, given.settings), order="sorted"), given)
    return list(found.values())[:MOST_EARLIER]


def _of_spider(name: str, standing: Standing) -> SpiderStandingDocument:
    return SpiderStandingDocument(
        spider=name,
        runs=standing.runs,
        succeeded=standing.states.count(WELL),
        failed=standing.states.count(BADLY),
        items=standing.items,
        pages=standing.pages,
        errors=standing.errors,
        seconds=round(standing.seconds / standing.ended, 3) if standing.ended else 0.0,
        is_flaky=standing.is_flaky,
        last_run_id=standing.last_run_id,
        last_state=standing.states[0],
        last_at=iso(standing.last_at) or "",
    )
