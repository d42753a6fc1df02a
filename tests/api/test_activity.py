"""What the API tells of activity and of how far runs are: to everybody no more than they may see."""

from __future__ import annotations

import pytest

from tests.api.acting import Visitor
from tests.conftest import on_sqlite
from tests.runs.acting import Hand, submit
from weft.access.model import Role

pytestmark = on_sqlite


async def test_activity_counts_the_projects_of_the_caller(nobody: Visitor) -> None:
    hand = await Hand.join(nobody.app)
    for project in ("shop", "shop", "news"):
        await submit(nobody.app, project=project)
        await hand.end(await hand.lease_one(), "failed")
    await submit(nobody.app, project="news")
    seen = (await (await nobody.with_role(Role.VIEWER, "shop")).get("/v1/activity")).json
    assert (sum(seen["day"]["failed"]), seen["now"]["ready"]) == (2, 0)
    everything = await nobody.with_role(Role.VIEWER)
    told = (await everything.get("/v1/activity")).json
    assert (sum(told["hour"]["failed"]), told["now"]["ready"]) == (3, 1)
    assert (len(told["hour"]["items"]), len(told["day"]["items"])) == (60, 144)
    assert sum((await everything.get("/v1/activity?project=news")).json["day"]["failed"]) == 1


async def test_progress_leaves_out_what_there_is_not_and_what_may_not_be_seen(nobody: Visitor) -> None:
    mine, other = await submit(nobody.app, project="shop"), await submit(nobody.app, project="news")
    viewer = await nobody.with_role(Role.VIEWER, "shop")
    told = (await viewer.get(f"/v1/progress?ids={other},{mine},999999")).json
    assert told["items"] == [{"run_id": mine, "items": None, "rates": [], "why": "no worker is there"}]
    assert (await viewer.get("/v1/progress")).json["items"] == []


@pytest.mark.parametrize("ids", ["x", "1,-2", "1;2", ",".join("1" * 201), "9" * 19])
async def test_what_is_no_list_of_numbers_is_refused(admin: Visitor, ids: str) -> None:
    answer = await admin.get(f"/v1/progress?ids={ids}")
    assert (answer.status, answer.json["field"]) == (422, "ids")
