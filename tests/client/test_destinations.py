"""Destinations of a weft elsewhere."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.items.yielding import crawled
from weft.app import App
from weft.client.client import Client
from weft.errors import NotFound
from weft.items.exporters import ExportFormat

URL = "s3://key:{{secret:S3}}@bucket/teas"


async def test_destinations_are_set_up_elsewhere(app: App, far: Client) -> None:
    await crawled(app, [{"name": "tea"}])
    await app.secrets.set("shop", "S3", "any-password", by="test")
    made = await far.destinations.add("shop", "prices", URL, format=ExportFormat.CSV, fields=["name"])
    [here] = await app.destinations.all("shop", "prices")
    assert [made] == await far.destinations.all("shop", "prices")
    assert made == await far.destinations.get("shop", "prices", made.destination.id)
    same = replace(here.destination, dataset_id=0, next_at=0)
    assert (made.destination, made.waiting) == (same, 1)
    assert await far.destinations.retry("shop", "prices", made.destination.id) == made
    await far.destinations.remove("shop", "prices", made.destination.id)
    with pytest.raises(NotFound):
        await far.destinations.get("shop", "prices", made.destination.id)
