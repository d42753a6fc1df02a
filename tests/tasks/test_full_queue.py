"""What is submitted at the same time as too much of another project is queued all the same."""

import asyncio

from tests.runs.acting import set_project
from weft.app import App
from weft.errors import QueueFull
from weft.runs.model import NewRun, RunSpec


def noop(project: str) -> NewRun:
    return NewRun(project=project, task="noop", kind="noop", spec=RunSpec(spec={}))


async def outcomes(app: App, *submits: list[str]) -> list[str]:
    """What came of submits that were made at once, each of runs of these projects."""

    async def submit(projects: list[str]) -> str:
        try:
            return f"{len(await app.tasks.submit([noop(project) for project in projects]))} queued"
        except QueueFull as refused:
            return f"{refused.project} full"

    return await asyncio.gather(*map(submit, submits))


async def test_a_full_queue_refuses_no_run_of_another_project(app: App) -> None:
    await set_project(app, "shop", max_queued=3)
    found = await outcomes(app, *([["shop"], ["news"]] * 10))
    assert found[1::2] == ["1 queued"] * 10
    assert sorted(found[::2]) == ["1 queued"] * 3 + ["shop full"] * 7
    assert len(await app.runs.find({"project": "shop"})) == 3


async def test_a_submit_of_several_projects_is_queued_whole_or_not_at_all(app: App) -> None:
    await set_project(app, "shop", max_queued=1)
    found = await outcomes(app, ["news"], ["shop"], ["news", "shop"], ["news", "news"])
    assert found == ["1 queued", "1 queued", "shop full", "2 queued"]
    assert len(await app.runs.find({"project": "news"})) == 3
