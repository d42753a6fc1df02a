"""The page that finds things by their names, and what the palette is told."""

from __future__ import annotations

from tests.conftest import on_sqlite
from tests.projects.making import a_version
from tests.tasks.scene import keep, noop
from tests.web.surfing import Surfer
from weft.access.model import EVERYWHERE, Role
from weft.app import App


@on_sqlite
async def test_what_was_found_leads_to_its_page(app: App, surfer: Surfer) -> None:
    await a_version(app, "shop")
    await keep(app, noop("shop-front", None, project="shop"), noop("at-the-shop", None, project="bank"))
    await surfer.log_in(grants={EVERYWHERE: Role.VIEWER})
    page = await surfer.get("/find?q=shop")
    for place in ("/projects/shop", "/tasks/shop/shop-front", "/tasks/bank/at-the-shop"):
        assert f'href="{place}"' in page.text
    told = (await surfer.get("/find.json?q=prices")).text
    assert '{"kind":"spider","name":"shop/prices","page":"/projects/shop/spiders/prices"}' in told
    assert "Nothing that you may see" in (await surfer.get("/find?q=%3Cscript%3E")).text
    assert "<script>" not in (await surfer.get("/find?q=%3Cscript%3E")).text
    assert "Look for anything" in (await surfer.get("/find")).text
    assert (await surfer.get("/find?q=" + "x" * 300)).status == 200
    assert (await surfer.get("/find?q=%00")).status == 422
