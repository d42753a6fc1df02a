"""Those who ask the same at the same time share one answer, and never an old one."""

from __future__ import annotations

import asyncio

import pytest

from tests.api.acting import Visitor
from weft.access.model import Role
from weft.operations.operation import SingleFlight
from weft.runs.model import NewRun, RunSpec


class Source:
    """Something that changes, and takes as long to read as somebody holds it up."""

    def __init__(self) -> None:
        self.value, self.reads = 0, 0
        self.go = asyncio.Event()

    async def read(self) -> bytes:
        self.reads += 1
        found = str(self.value).encode()
        await self.go.wait()
        return found


async def test_who_asks_during_a_read_guest_links_the_next_one_and_sees_what_happened_before() -> None:
    alike, source = SingleFlight(), Source()
    first = asyncio.create_task(alike("all", source.read))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert source.reads == 1
    source.value = 1
    later = [asyncio.create_task(alike("all", source.read)) for _ in range(10)]
    await asyncio.sleep(0)
    source.go.set()
    assert await first == b"0"
    assert set(await asyncio.gather(*later)) == {b"1"}
    assert source.reads == 2


async def test_other_questions_do_not_wait() -> None:
    alike, slow, quick = SingleFlight(), Source(), Source()
    quick.go.set()
    waiting = asyncio.create_task(alike("slow", slow.read))
    assert await alike("quick", quick.read) == b"0"
    assert not waiting.done()
    slow.go.set()
    await waiting


async def test_a_failure_is_told_to_all_who_wait_and_is_not_kept() -> None:
    alike = SingleFlight()

    async def fail() -> bytes:
        raise OSError("gone")

    answers = await asyncio.gather(*(alike("all", fail) for _ in range(3)), return_exceptions=True)
    assert [type(each) for each in answers] == [OSError] * 3
    source = Source()
    source.go.set()
    assert await alike("all", source.read) == b"0"


async def test_who_gives_up_does_not_take_the_answer_from_the_others() -> None:
    alike, source = SingleFlight(), Source()
    one, other = (asyncio.create_task(alike("all", source.read)) for _ in range(2))
    await asyncio.sleep(0)
    one.cancel()
    source.go.set()
    assert await other == b"0"
    with pytest.raises(asyncio.CancelledError):
        await one


async def test_callers_of_other_projects_never_guest_link_a_list(nobody: Visitor) -> None:
    projects = ("shop", "news")
    await nobody.app.runs.submit([NewRun(project=each, task="t", kind="noop", spec=RunSpec({})) for each in projects])
    visitors = [await nobody.with_role(Role.VIEWER, project) for project in projects]
    for _ in range(5):
        answers = await asyncio.gather(*(visitor.get("/v1/runs") for visitor in visitors * 4))
        seen = [{run["project"] for run in answer.json["items"]} for answer in answers]
        assert seen == [{"shop"}, {"news"}] * 4
