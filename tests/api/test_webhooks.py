"""Webhooks over the API: only for admins of their project, with a secret that is shown once."""

from __future__ import annotations

from tests.api.acting import Visitor
from tests.runs.acting import submit, submit_many
from tests.webhooks.receiving import Receiver
from weft.access.model import Role
from weft.webhooks.model import is_genuine

NEW = {"url": "http://127.0.0.1:9/told", "project": "shop", "kinds": ["run_queued"]}


async def created(visitor: Visitor, **fields: object) -> dict[str, object]:
    answer = await visitor.post("/v1/webhooks", NEW | fields)
    assert answer.status == 201, answer.json
    webhook: dict[str, object] = answer.json["webhook"]
    assert answer.headers["Location"] == f"/v1/webhooks/{webhook['id']}"
    return webhook


async def test_the_secret_is_shown_once_and_signs_what_is_sent(admin: Visitor) -> None:
    receiver = Receiver()
    await receiver.start()
    answer = (await admin.post("/v1/webhooks", NEW | {"url": receiver.url})).json
    secret, address = answer["secret"], f"/v1/webhooks/{answer['webhook']['id']}"
    assert (await admin.get(address)).json == answer["webhook"]
    assert secret not in (await admin.get("/v1/webhooks")).data.decode()
    run_id = await submit(admin.app)
    await admin.app.courier.tick()
    await admin.app.courier.rest()
    [message] = receiver.received
    assert is_genuine(secret, message.headers, message.body, int(message.headers["Weft-Timestamp"]))
    [delivery] = (await admin.get(f"{address}/deliveries")).json["items"]
    assert (delivery["state"], delivery["status"], delivery["tries"]) == ("delivered", 204, 1)
    assert (delivery["kind"], delivery["run_id"]) == ("run_queued", run_id)
    replayed = await admin.post(f"{address}/deliveries/{delivery['id']}/replay")
    assert (replayed.status, replayed.json["state"]) == (202, "waiting")
    await admin.app.courier.tick()
    await admin.app.courier.rest()
    assert receiver.deliveries == [str(delivery["id"])] * 2
    await receiver.stop()


async def test_a_webhook_is_changed_and_deleted(admin: Visitor) -> None:
    address = f"/v1/webhooks/{(await created(admin))['id']}"
    changed = (await admin.call("PATCH", address, {"active": False, "kinds": []})).json
    assert (changed["active"], changed["kinds"], changed["url"]) == (False, [], NEW["url"])
    assert (await admin.call("DELETE", address)).status == 204
    assert (await admin.get(address)).status == 404
    assert (await admin.call("DELETE", address)).status == 404


async def test_deliveries_come_in_pages_and_by_state(admin: Visitor) -> None:
    webhook = await created(admin)
    await submit_many(admin.app, 5)
    await admin.app.courier._write_deliveries()
    address = f"/v1/webhooks/{webhook['id']}/deliveries"
    first = (await admin.get(f"{address}?limit=3&state=waiting")).json
    second = (await admin.get(f"{address}?limit=3&after={first['next']}")).json
    ids = [each["id"] for each in first["items"] + second["items"]]
    assert ids == sorted(ids, reverse=True)
    assert len(ids) == 5
    assert second["next"] is None
    assert (await admin.get(f"{address}?state=delivered")).json["items"] == []
    assert (await admin.get(f"/v1/webhooks/{webhook['id']}")).json["waiting"] == 5


async def test_only_an_admin_of_the_project_sees_or_makes_its_webhooks(nobody: Visitor, admin: Visitor) -> None:
    mine, everywhere = await created(admin), await created(admin, project="*")
    keeper = await nobody.with_role(Role.ADMIN, "shop")
    stranger = await nobody.granted({"other": Role.ADMIN, "shop": Role.DEVELOPER})
    assert [each["id"] for each in (await keeper.get("/v1/webhooks")).json["items"]] == [mine["id"]]
    assert (await stranger.get("/v1/webhooks")).json["items"] == []
    assert (await stranger.get(f"/v1/webhooks/{mine['id']}")).status == 403
    assert (await stranger.post("/v1/webhooks", NEW)).status == 403
    for path in ("", "/deliveries"):
        assert (await keeper.get(f"/v1/webhooks/{everywhere['id']}{path}")).status == 404
    assert (await keeper.post(f"/v1/webhooks/{everywhere['id']}/deliveries/1/replay")).status == 404
    assert (await keeper.post("/v1/webhooks", NEW | {"project": "*"})).status == 403
    assert (await created(keeper))["created_by"] == "test"


async def test_a_delivery_of_another_webhook_is_not_replayed(admin: Visitor) -> None:
    first, second = await created(admin), await created(admin, project="other")
    await submit(admin.app)
    await admin.app.courier._write_deliveries()
    [delivery] = await admin.app.webhooks.deliveries(int(str(first["id"])))
    assert (await admin.post(f"/v1/webhooks/{second['id']}/deliveries/{delivery.id}/replay")).status == 404


async def test_what_is_wrong_with_a_webhook_is_named(admin: Visitor) -> None:
    for fields, field in (({"url": "gopher://x/"}, "url"), ({"kinds": ["x"]}, "kinds"), ({"colour": 1}, "body")):
        answer = await admin.post("/v1/webhooks", NEW | fields)
        assert (answer.status, answer.json["field"]) == (422, field)


async def test_a_webhook_is_of_a_project_that_can_be(admin: Visitor) -> None:
    for wrong in ("a b", "-shop", "shop\n", "**", "ü", "a/b"):
        answer = await admin.post("/v1/webhooks", NEW | {"project": wrong})
        assert (answer.status, answer.json["field"]) == (422, "project"), wrong
    assert (await admin.get("/v1/webhooks")).json["items"] == []
    assert [(await created(admin, project=each))["project"] for each in ("shop-2.eu", "*")] == ["shop-2.eu", "*"]


async def test_the_breaker_of_a_receiver_that_is_down_is_shown(admin: Visitor) -> None:
    webhook = await created(admin)
    address = f"/v1/webhooks/{webhook['id']}"
    before = await admin.get(address)
    assert before.json["breaker"] == {"state": "closed", "failures": 0, "open_until": None}
    assert "weft_webhook_breakers{" not in (await admin.get("/metrics")).data.decode()
    await submit_many(admin.app, 10, project="shop")
    await admin.app.courier.tick()
    await admin.app.courier.rest()
    after = await admin.get(address)
    assert (after.json["breaker"]["state"], after.json["breaker"]["failures"]) == ("open", 5)
    assert after.json["breaker"]["open_until"] is not None
    assert after.headers["ETag"] == before.headers["ETag"], "it is no change of the definition"
    [listed] = (await admin.get("/v1/webhooks")).json["items"]
    assert listed["breaker"] == after.json["breaker"]
    assert (
        f'weft_webhook_breakers{{state="open",webhook="{webhook["id"]}"}} 1.0'
        in (await admin.get("/metrics")).data.decode()
    )
