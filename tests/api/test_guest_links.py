"""Guests' links over HTTP: what a guest may ask, and that it is nothing else."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from tests.access.acting import PASSWORD
from tests.api.acting import Visitor, visiting
from tests.api.walking import WALK, items_of_a_run
from tests.cases import for_each
from tests.conftest import SetClock, on_sqlite
from tests.projects.making import a_version
from weft.access.model import EVERYWHERE, Role
from weft.app import App
from weft.clock import iso
from weft.http.routes import operations

GUESTS = [each for each in operations() if each.callers == {"guest"}]


async def shared(admin: Visitor, **fields: Any) -> tuple[str, int]:
    """The token and the number of a new link."""
    made = await admin.post("/v1/guest-links", {"project": "shop", "label": "the shop's people"} | fields)
    assert made.status == 201, made.data
    assert made.json["path"] == f"/guest/{made.json['token']}"
    return made.json["token"], made.json["guest_link"]["id"]


def guest(visitor: Visitor, token: str) -> Any:
    async def get(path: str) -> Any:
        return await Visitor(visitor._session, visitor.app, visitor.address).get(
            path, headers={"Authorization": f"Guest {token}"}
        )

    return get


async def test_a_guest_sees_runs_spiders_and_items_of_one_project(admin: Visitor) -> None:
    await a_version(admin.app, "shop")
    made = await items_of_a_run(admin.app, "shop")
    await items_of_a_run(admin.app, "bank")
    get = guest(admin, (await shared(admin))[0])
    assert (await get("/v1/guest")).json == {
        "project": "shop",
        "dataset": None,
        "label": "the shop's people",
        "expires_at": None,
    }
    [run] = (await get("/v1/guest/runs")).json["items"]
    assert (run["id"], run["state"], run["items"]) == (made["run_id"], "running", 1)
    assert set(run) == {"id", "task", "state", "outcome", "queued_at", "started_at", "finished_at", "items"}
    assert (await get("/v1/guest/spiders")).json["items"] == [{"name": "prices", "doc": "Prices."}]
    [dataset] = (await get("/v1/guest/datasets")).json["items"]
    assert (dataset["name"], dataset["records"]) == (made["name"], 1)
    [item] = (await get(f"/v1/guest/datasets/{made['name']}/items")).json["items"]
    assert item["data"] == {"price": 1}
    assert (await get(f"/v1/guest/datasets/{made['name']}/export")).data == b'{"price":1}\n'


async def test_a_link_to_one_dataset_shows_nothing_but_it(admin: Visitor) -> None:
    one, other = await items_of_a_run(admin.app, "shop"), await items_of_a_run(admin.app, "shop")
    get = guest(admin, (await shared(admin, dataset=one["name"]))[0])
    assert [each["name"] for each in (await get("/v1/guest/datasets")).json["items"]] == [one["name"]]
    assert (await get(f"/v1/guest/datasets/{one['name']}/items")).status == 200
    refused = ("runs", "spiders", f"datasets/{other['name']}/items", f"datasets/{other['name']}/export")
    assert [(await get(f"/v1/guest/{each}")).status for each in refused] == [404] * 4


@on_sqlite
async def test_a_guest_may_call_nothing_that_is_for_others(admin: Visitor) -> None:
    get = guest(admin, (await shared(admin))[0])
    statuses = {}
    for operation in operations():
        if operation.needs is not None and operation.method == "GET" and operation not in GUESTS:
            step = WALK.get(operation.name)
            path = operation.path if step is None else (await step.prepared(admin.app, operation.path, "shop"))[0]
            statuses[operation.name] = (await get(path)).status
    assert {name: status for name, status in statuses.items() if status not in (403, 422)} == {}
    assert statuses["runs.list"] == statuses["logs.show" if "logs.show" in statuses else "runs.show"] == 403
    assert (await get("/listprojects.json")).status == 401


@on_sqlite
async def test_what_is_for_guests_is_for_nobody_else(admin: Visitor, nobody: Visitor) -> None:
    assert len(GUESTS) == 6
    for operation in GUESTS:
        path = operation.path.replace("{name}", "prices")
        assert (await admin.get(path)).status == 403
        assert (await nobody.get(path)).status == 401


async def test_a_revoked_an_expired_and_an_unknown_link_are_told_apart_by_nobody(
    admin: Visitor, clock: SetClock
) -> None:
    revoked, number = await shared(admin)
    expiring, _ = await shared(admin, expires_at=iso(clock() + 60_000_000))
    assert (await guest(admin, expiring)("/v1/guest")).status == 200
    clock.forward(61)
    assert (await admin.call("DELETE", f"/v1/guest-links/{number}")).json["revoked_at"] is not None
    assert (await admin.call("DELETE", f"/v1/guest-links/{number}")).status == 200
    answers = [await guest(admin, token)("/v1/guest") for token in (revoked, expiring, "x" * 43, "x" * 5000, "", "é")]
    assert {(each.status, each.json["detail"]) for each in answers} == {
        (401, "the link is not known, or it was revoked or has expired")
    }


async def test_a_link_shows_no_more_than_its_maker_may_see(app: App) -> None:
    await app.users.create("ada", PASSWORD, {"shop": Role.ADMIN})
    await app.users.create("root", PASSWORD, {EVERYWHERE: Role.ADMIN})
    _, token = await app.guest_links.create("shop", label="x", by="ada")
    assert (await app.guest_links.caller(token)).grants == {"shop": Role.VIEWER}
    for change in (app.users.grant("ada", {"bank": Role.ADMIN}), app.users.deactivate("ada")):
        await change
        with pytest.raises(Exception, match="not known"):
            await app.guest_links.caller(token)
        await app.users.grant("ada", {"shop": Role.VIEWER})
    await app.users.activate("ada")
    assert (await app.guest_links.caller(token)).projects(Role.VIEWER) == frozenset({"shop"})


async def test_only_who_administers_a_project_makes_sees_and_revokes_its_links(admin: Visitor) -> None:
    _, number = await shared(admin)
    developer, other = await admin.granted({"shop": Role.DEVELOPER}), await admin.granted({"bank": Role.ADMIN})
    body = {"project": "shop", "label": "x"}
    assert (await developer.post("/v1/guest-links", body)).status == 403
    assert (await developer.call("DELETE", f"/v1/guest-links/{number}")).status == 403
    assert (await other.call("DELETE", f"/v1/guest-links/{number}")).status == 404
    assert (await other.get("/v1/guest-links")).json["items"] == []
    assert [each["id"] for each in (await admin.get("/v1/guest-links?project=shop")).json["items"]] == [number]


@for_each(
    ("wrong", "status", "words"),
    [
        ({"label": ""}, 422, "label"),
        ({"label": "a\nb"}, 422, "characters that print"),
        ({"label": "x" * 201}, 422, "label"),
        ({"project": "a/b"}, 422, "it must be the name of a project"),
        ({"dataset": "nothing"}, 404, "there is no dataset"),
        ({"expires_at": "2001-01-01T00:00:00Z"}, 422, "it must be in the future"),
        ({"expires_at": "soon"}, 422, "expires_at"),
    ],
)
@on_sqlite
async def test_a_link_that_cannot_be_is_refused(admin: Visitor, wrong: Any, status: int, words: str) -> None:
    answer = await admin.post("/v1/guest-links", {"project": "shop", "label": "x"} | wrong)
    assert (answer.status, words in answer.data.decode()) == (status, True), answer.data


async def test_links_are_listed_newest_first_in_pages_and_never_with_their_tokens(admin: Visitor) -> None:
    tokens = [(await shared(admin, label=f"no. {n}"))[0] for n in range(3)]
    page = (await admin.get("/v1/guest-links?limit=2")).json
    rest = (await admin.get(f"/v1/guest-links?limit=2&after={page['next']}")).json
    assert [each["label"] for each in page["items"] + rest["items"]] == ["no. 2", "no. 1", "no. 0"]
    assert rest["next"] is None
    assert not any(token in str(page) + str(rest) for token in tokens)


@on_sqlite
async def test_a_token_stands_in_no_table_no_log_and_no_audit_entry(
    admin: Visitor, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    token, number = await shared(admin)
    await guest(admin, token)("/v1/guest")
    await admin.call("DELETE", f"/v1/guest-links/{number}")
    audit = (await admin.get("/v1/audit")).json["items"]
    assert [each["action"] for each in audit if each["action"].startswith("guest_links")] == [
        "guest_links.revoke",
        "guest_links.create",
    ]
    assert token not in str(audit)
    assert not any(token in str(record.__dict__) for record in caplog.records if record.name != "uvicorn.access")


@on_sqlite
async def test_it_is_written_down_when_a_link_was_last_used(admin: Visitor) -> None:
    token, _ = await shared(admin)
    assert (await admin.get("/v1/guest-links")).json["items"][0]["used_at"] is None
    await guest(admin, token)("/v1/guest")
    assert (await admin.get("/v1/guest-links")).json["items"][0]["used_at"] is not None


@on_sqlite
async def test_guests_of_one_address_can_not_ask_for_ever(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft.http.authentication.GUESTS_PER_SECOND", 0.5)
    async with visiting(app) as nobody:
        statuses = [(await guest(nobody, "x" * 43)("/v1/guest")).status for _ in range(6)]
        assert statuses[0] == 401
        assert 429 in statuses
        assert (await (await nobody.with_role(Role.ADMIN)).get("/v1/guest-links")).status == 200
