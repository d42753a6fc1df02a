"""Forms that are sent twice, too late, or with something that they did not ask for."""

from __future__ import annotations

from tests.conftest import on_sqlite
from tests.tasks.scene import keep, noop
from tests.web.surfing import Surfer
from weft.app import App

pytestmark = on_sqlite


async def test_who_goes_back_and_changes_a_run_gets_another_one(app: App, surfer: Surfer) -> None:
    await keep(app, noop("prices", project="shop", params={"country": "de"}))
    first = (await app.tasks.start("shop", "prices", {})).run_id
    await surfer.log_in()
    page = await surfer.get(f"/runs/{first}/again")
    french, italian = (page.fields | {"param-country": each} for each in ("fr", "it"))
    begun = await surfer.send(f"/runs/{first}/again", french)
    changed = await surfer.send(f"/runs/{first}/again", italian)
    twice = await surfer.send(f"/runs/{first}/again", italian)
    assert changed.leads_to == twice.leads_to != begun.leads_to
    assert [run.spec.params["country"] for run in await app.runs.find({})] == ["it", "fr", "de"]
