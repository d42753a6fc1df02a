"""Dead letters over the API: for operators of their project, with revisions, and told to the audit log."""

from __future__ import annotations

import base64
from typing import Any

import msgspec

from tests.api.acting import Answer, Visitor
from tests.conftest import on_sqlite
from tests.intake.making_dead_letters import REASON, deployed, kept, written
from weft.access.model import Role
from weft.app import App
from weft.redaction import MASK

pytestmark = on_sqlite


async def ids(visitor: Visitor, query: str = "") -> list[int]:
    return [each["id"] for each in (await visitor.get(f"/v1/dead-letters{query}")).json["items"]]


async def edited(visitor: Visitor, dead_letter: int, body: str, **options: Any) -> Answer:
    return await visitor.call("PATCH", f"/v1/dead-letters/{dead_letter}", {"body": body}, **options)


async def test_a_dead_letter_is_seen_edited_and_resubmitted(app: App, admin: Visitor) -> None:
    await deployed(app)
    dead_letter = await kept(app)
    seen = await admin.get(f"/v1/dead-letters/{dead_letter}")
    assert (seen.json["reason"], seen.json["state"], seen.json["body_encoding"]) == (REASON, "dead", "utf-8")
    assert (seen.json["body"].encode(), seen.headers["ETag"]) == (written(priority=1.5), '"1"')
    changed = await edited(admin, dead_letter, written().decode(), headers={"If-Match": seen.headers["ETag"]})
    assert (changed.json["original"], changed.json["body"]) == (seen.json["body"], written().decode())
    done = await admin.post(f"/v1/dead-letters/{dead_letter}/resubmit", headers={"If-Match": changed.headers["ETag"]})
    assert (done.status, done.json["refused"], done.json["dead_letter"]["state"]) == (200, None, "resubmitted")
    assert (await admin.get(f"/v1/runs/{done.json['run_id']}")).json["project"] == "shop"
    assert (await admin.get(f"/v1/dead-letters/{dead_letter}")).json["run_id"] == done.json["run_id"]


async def test_operators_see_no_secret_of_a_dead_letter_and_keep_it_in_an_edit(app: App, admin: Visitor) -> None:
    body = written(args={"password": "hush-hush", "country": "de"}, priority=1.5)
    dead_letter = await kept(app, body, headers={"X-Api-Key": "hush-hush", "priority": 3})
    seen = await admin.get(f"/v1/dead-letters/{dead_letter}")
    assert seen.json["headers"] == {"X-Api-Key": MASK, "priority": "3"}
    changed = await edited(admin, dead_letter, seen.json["body"].replace("1.5", "7"))
    assert (changed.status, changed.json["edited"]) == (200, True)
    for answer in (seen, changed, await admin.get(f"/v1/dead-letters/{dead_letter}")):
        assert b"hush" not in answer.data
        assert MASK in answer.json["body"]
    assert msgspec.json.decode((await app.dead_letters.get(dead_letter)).body) == msgspec.json.decode(body) | {
        "priority": 7
    }
    moved = await edited(admin, dead_letter, seen.json["body"].replace("password", "note"))
    assert (moved.status, moved.json["field"]) == (422, "note")


async def test_the_new_reason_is_told_where_a_dead_letter_is_refused_again(app: App, admin: Visitor) -> None:
    dead_letter = await kept(app, b"no JSON")
    done = (await admin.post(f"/v1/dead-letters/{dead_letter}/resubmit")).json
    assert (done["run_id"], done["dead_letter"]["state"]) == (None, "dead")
    assert "JSON object" in done["refused"]
    assert (await admin.get(f"/v1/dead-letters/{dead_letter}")).json["reason"] == done["refused"]


async def test_lists_have_no_bodies_and_come_newest_first_in_pages(app: App, admin: Visitor) -> None:
    made = [await kept(app, b"x" * 100_000, message_id=f"m-{n}") for n in range(5)]
    answer = await admin.get("/v1/dead-letters?limit=3")
    page = answer.json
    assert len(answer.data) < 5_000
    rest = (await admin.get(f"/v1/dead-letters?limit=3&after={page['next']}")).json
    assert [each["id"] for each in page["items"] + rest["items"]] == made[::-1]
    assert rest["next"] is None
    assert {each["body_bytes"] for each in page["items"]} == {100_000}


async def test_letters_are_filtered_by_state_source_and_project(app: App, admin: Visitor) -> None:
    first, second = await kept(app), await kept(app, project="blog", source="redis orders")
    assert (await admin.call("DELETE", f"/v1/dead-letters/{first}")).json["state"] == "dropped"
    assert await ids(admin, "?state=dropped") == await ids(admin, "?project=shop") == [first]
    assert await ids(admin, "?source=redis%20orders") == await ids(admin, "?state=dead") == [second]
    assert (await admin.get("/v1/dead-letters?state=lost")).status == 422


async def test_a_change_of_what_was_changed_meanwhile_is_refused(app: App, admin: Visitor) -> None:
    dead_letter = await kept(app)
    await edited(admin, dead_letter, "{}")
    stale = {"If-Match": '"1"'}
    assert (await edited(admin, dead_letter, "[]", headers=stale)).status == 412
    assert (await admin.post(f"/v1/dead-letters/{dead_letter}/resubmit", headers=stale)).status == 412
    assert (await admin.call("DELETE", f"/v1/dead-letters/{dead_letter}", headers=stale)).status == 412
    assert (await admin.get(f"/v1/dead-letters/{dead_letter}")).json["body"] == "{}"


async def test_a_dead_letter_is_for_operators_of_its_project_alone(app: App, nobody: Visitor) -> None:
    mine, nobodys = await kept(app), await kept(app, project=None, message_id="m-2")
    operator = await nobody.with_role(Role.OPERATOR, "shop")
    viewer, stranger = await nobody.with_role(Role.VIEWER, "shop"), await nobody.with_role(Role.ADMIN, "blog")
    everywhere = await nobody.with_role(Role.OPERATOR)
    assert await ids(operator) == [mine]
    assert await ids(everywhere) == [nobodys, mine]
    assert await ids(viewer) == await ids(stranger) == []
    assert (await operator.get(f"/v1/dead-letters/{nobodys}")).status == 404
    assert (await viewer.get(f"/v1/dead-letters/{mine}")).status == 403
    assert (await stranger.get(f"/v1/dead-letters/{mine}")).status == 404
    assert (await stranger.post(f"/v1/dead-letters/{mine}/resubmit")).status == 404
    assert (await everywhere.get(f"/v1/dead-letters/{nobodys}")).status == 200


async def test_an_operator_of_one_project_can_not_send_a_dead_letter_to_another(app: App, nobody: Visitor) -> None:
    await deployed(app, "blog")
    dead_letter = await kept(app, written(project="blog"))
    operator = await nobody.with_role(Role.OPERATOR, "shop")
    assert (await operator.post(f"/v1/dead-letters/{dead_letter}/resubmit")).status == 403
    assert (await edited(operator, dead_letter, written(project="blog", args={}).decode())).status == 403
    assert await app.runs.find({}) == []


async def test_what_is_no_text_is_shown_and_edited_in_base64(app: App, admin: Visitor) -> None:
    dead_letter = await kept(app, b"\xff\x00\xfe")
    shown = (await admin.get(f"/v1/dead-letters/{dead_letter}")).json
    assert (shown["body_encoding"], base64.b64decode(shown["body"])) == ("base64", b"\xff\x00\xfe")
    body = {"body": base64.b64encode(b"\x00\x01").decode(), "encoding": "base64"}
    assert (await admin.call("PATCH", f"/v1/dead-letters/{dead_letter}", body)).json["body_bytes"] == 2
    refused = await admin.call("PATCH", f"/v1/dead-letters/{dead_letter}", {"body": "*", "encoding": "base64"})
    assert (refused.status, refused.json["field"]) == (422, "body")


async def test_the_audit_log_tells_who_edited_resubmitted_and_dropped(app: App, admin: Visitor) -> None:
    await deployed(app)
    dead_letter = await kept(app)
    await edited(admin, dead_letter, written(args={"password": "hush-hush"}).decode())
    await admin.post(f"/v1/dead-letters/{dead_letter}/resubmit")
    await admin.call("DELETE", f"/v1/dead-letters/{await kept(app, b'{}')}")
    entries = (await admin.get("/v1/audit")).json["items"]
    assert [each["action"] for each in entries if each["target"].startswith("dead letter")] == [
        "dead_letters.drop",
        "dead_letters.resubmit",
        "dead_letters.edit",
    ]
    assert {(each["actor"], each["project"]) for each in entries[:3]} == {("key:test", "shop")}
    assert "hush-hush" not in msgspec.json.encode(entries).decode()


async def test_a_run_that_a_dead_letter_became_names_who_resubmitted_it(app: App, admin: Visitor) -> None:
    await deployed(app)
    done = await admin.post(f"/v1/dead-letters/{await kept(app, written())}/resubmit")
    [event] = (await admin.get("/v1/events/history?kind=run_queued")).json["items"]
    assert (event["run_id"], event["data"]["by"]) == (done.json["run_id"], "key:test")
