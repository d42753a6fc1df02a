"""Deploys over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator

from tests.api.acting import Visitor, visiting
from tests.conftest import OpenApp, on_sqlite
from tests.projects.making import a_version, project, zipped
from weft.access.model import Role

ADDRESS = "/v1/projects/shop/versions"
BYTES = {"Content-Type": "application/octet-stream"}


@on_sqlite
async def test_an_archive_becomes_a_version_with_its_spiders(admin: Visitor) -> None:
    made = await admin.post(f"{ADDRESS}?version=1.0", zipped(project()))
    assert made.status == 201, made.data
    assert (made.json["version"], made.json["is_current"], made.json["deployed_by"]) == ("1.0", True, "key:test")
    assert (await admin.get(ADDRESS)).json["items"] == [made.json]
    assert (await admin.get("/v1/projects/shop/spiders")).json["items"] == made.json["spiders"]
    [entry] = (await admin.get("/v1/audit?action=versions.deploy")).json["items"]
    assert (entry["project"], entry["target"]) == ("shop", "version 1.0")
    assert entry["data"]["after"]["digest"] == made.json["digest"]


@on_sqlite
async def test_code_that_does_not_work_is_answered_with_its_traceback(admin: Visitor) -> None:
    answer = await admin.post(f"{ADDRESS}?version=1.0", zipped(project(spider="1 / 0")))
    assert (answer.status, answer.json["code"]) == (422, "rejected")
    assert "prices.py" in answer.json["traceback"]
    assert (await admin.get(ADDRESS)).json["items"] == []
    assert list(admin.app.projects.incoming.folder.iterdir()) == []


@on_sqlite
async def test_a_body_that_is_no_archive_is_refused(admin: Visitor) -> None:
    assert (await admin.post(ADDRESS, b"hello")).json["code"] == "invalid"
    assert (await admin.post(ADDRESS, {"a": 1})).status == 415


@on_sqlite
async def test_an_archive_that_is_too_large_is_not_taken(another_app: OpenApp) -> None:
    async with visiting(await another_app(largest_archive_bytes=1000)) as nobody:
        admin = await nobody.with_role(Role.ADMIN)
        whole, in_pieces = (
            await admin.post(ADDRESS, bytes(1001)),
            await admin.post(ADDRESS, data=pieces(), headers=BYTES),
        )
        assert (whole.status, in_pieces.status) == (413, 413)
        assert list(admin.app.projects.incoming.folder.glob("*")) == []


async def pieces() -> AsyncIterator[bytes]:
    """A body whose length nobody tells beforehand."""
    for _ in range(20):
        yield bytes(100)


@on_sqlite
async def test_versions_are_used_rolled_back_and_deleted_over_http(admin: Visitor) -> None:
    for at, name in enumerate(("1.0", "1.1"), 1):
        await a_version(admin.app, "shop", name, at=at)
    assert (await admin.post("/v1/projects/shop/rollback")).json["version"] == "1.0"
    assert (await admin.post(f"{ADDRESS}/1.1/use")).json["is_current"]
    assert (await admin.call("DELETE", f"{ADDRESS}/1.1")).status == 409
    assert (await admin.call("DELETE", f"{ADDRESS}/1.0")).status == 204
    assert (await admin.get(f"{ADDRESS}/1.0")).status == 404
