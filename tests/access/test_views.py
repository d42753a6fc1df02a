"""Saved views: a filter under a name, for all."""

from __future__ import annotations

import pytest

from tests.cases import for_each
from weft.access.saved_views import MOST_VIEWS
from weft.app import App
from weft.errors import Conflict, Invalid, NotFound


async def test_views_are_kept_by_name_for_their_page(app: App) -> None:
    for name in ("slow", "failed"):
        await app.views.save("runs", name, f"tag={name}", by="ada")
    await app.views.save("tasks", "slow", "paused=true", by="bob")
    assert [(each.name, each.query, each.created_by) for each in await app.views.all("runs")] == [
        ("failed", "tag=failed", "ada"),
        ("slow", "tag=slow", "ada"),
    ]
    with pytest.raises(Conflict, match="there is a view 'slow' already"):
        await app.views.save("runs", "slow", "", by="bob")
    [view] = await app.views.all("tasks")
    await app.views.delete(view.id)
    with pytest.raises(NotFound):
        await app.views.get(view.id)


@for_each(("name", "query"), [("", ""), ("  ", ""), ("x" * 61, ""), ("a\nb", ""), ("x", "q" * 1001)])
async def test_a_name_or_a_filter_that_cannot_be_is_refused(app: App, name: str, query: str) -> None:
    with pytest.raises(Invalid):
        await app.views.save("runs", name, query, by="ada")


async def test_there_is_an_end_to_views(app: App) -> None:
    for number in range(MOST_VIEWS):
        await app.views.save("runs", f"v{number}", "", by="ada")
    with pytest.raises(Conflict, match="may have no more"):
        await app.views.save("runs", "one more", "", by="ada")
