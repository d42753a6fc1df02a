"""Secrets and the audit log on the command line."""

from __future__ import annotations

import io
import json
import sys

import pytest

from tests.cli.commanding import Shell, on_a_terminal, weft
from weft.access.model import Caller
from weft.cli.auditing import local_user

CANARY = "kAnArY-on-the-line"


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(f"{CANARY}\n".encode())))


@pytest.mark.usefixtures("typed")
def test_a_secret_is_read_from_the_standard_input_and_never_shown(shell: Shell) -> None:
    assert shell.ok("secrets", "set", "TOKEN").out == "secret TOKEN of project default is set\n"
    opened = shell.act(lambda app: app.secrets.open({("default", "TOKEN")}))
    assert opened["default", "TOKEN"] == CANARY
    [listed] = shell.document("secrets", "list")
    assert (listed["name"], listed["updated_by"]) == ("TOKEN", f"local:{local_user()}")
    assert CANARY not in shell.ok("audit", "export").out
    assert not [each for each in shell.folder.rglob("*") if each.is_file() and CANARY.encode() in each.read_bytes()]


def test_a_secret_is_read_from_a_file(shell: Shell) -> None:
    file = shell.folder.parent / "value"
    file.write_bytes(CANARY.encode())
    shell.ok("secrets", "set", "TOKEN", "--file", str(file), "--project", "shop")
    assert shell.act(lambda app: app.secrets.open({("shop", "TOKEN")}))["shop", "TOKEN"] == CANARY
    file.write_bytes(b"\xff\xfe")
    answer = shell("secrets", "set", "TOKEN", "--file", str(file))
    assert (answer.code, "it must be text in UTF-8" in answer.err) == (2, True)


def test_what_is_typed_at_the_prompt_is_not_seen(shell: Shell) -> None:
    shell.act(lambda app: app.ping())
    code, shown = on_a_terminal(
        "--data-dir",
        str(shell.folder),
        "secrets",
        "set",
        "TOKEN",
        typed=f"{CANARY}\n",
        after="value of TOKEN",
    )
    assert (code, "is set" in shown) == (0, True)
    assert CANARY not in shown


@pytest.mark.usefixtures("typed")
def test_rotation_makes_a_new_key_and_keeps_the_values(shell: Shell) -> None:
    shell.ok("secrets", "set", "TOKEN")
    assert shell.document("secrets", "rotate") == {"sealed": 1}
    assert len((shell.folder / "keys").read_text().split()) == 2
    assert shell.act(lambda app: app.secrets.open({("default", "TOKEN")}))["default", "TOKEN"] == CANARY


@pytest.mark.usefixtures("typed")
def test_a_deleted_secret_is_gone(shell: Shell) -> None:
    shell.ok("secrets", "set", "TOKEN")
    assert shell("secrets", "delete", "TOKEN").code == 2, "nobody could be asked"
    shell.ok("secrets", "delete", "TOKEN", "--yes")
    assert shell.document("secrets", "list") == []
    assert shell("secrets", "delete", "TOKEN", "--yes").err == "there is no secret TOKEN\n"


def test_what_commands_change_is_told_and_verified(shell: Shell) -> None:
    shell.apply("tasks: [{name: fetch, kind: noop}]", "--yes")
    shell.ok("tasks", "pause", "fetch")
    shell.ok("tasks", "list")
    shell.ok("tasks", "run", "fetch")
    shell.ok("runs", "cancel", "1")
    found = shell.document("audit", "list")
    assert [each["action"] for each in found] == ["runs.cancel", "tasks.run", "tasks.pause", "tasks.apply"]
    assert {each["actor"] for each in found} == {f"local:{local_user()}"}
    assert (found[0]["target"], found[2]["target"]) == ("run 1", "task default/fetch")
    assert [each["id"] for each in shell.document("audit", "list", "--action", "tasks.run")] == [2 + 1]
    lines = shell.ok("audit", "export").lines
    assert [json.loads(line)["id"] for line in lines] == [1, 2, 3, 4]
    assert shell.document("audit", "verify")["entries"] == 4


def test_a_broken_chain_is_named(shell: Shell) -> None:
    shell.apply("tasks: [{name: fetch, kind: noop}]", "--yes")
    shell.ok("tasks", "pause", "fetch")

    import sqlite3

    with sqlite3.connect(shell.folder / "weft.db") as database:
        database.execute("DROP TRIGGER audit_no_update")
        database.execute("UPDATE audit SET actor = 'local:somebody' WHERE id = 2")
    database.close()
    answer = shell("audit", "verify")
    assert answer.code == 1
    assert (
        answer.out
        == "entry 2 is broken: it was changed after it was written; the 1 before it are as they were written\n"
    )


def test_a_parameter_cannot_ask_for_a_secret(shell: Shell) -> None:
    shell.apply("tasks: [{name: fetch, kind: noop, params: {page: x}}]", "--yes")
    answer = shell("tasks", "run", "fetch", "--param", "page={{secret:TOKEN}}")
    assert (answer.code, "only the task itself may name a secret" in answer.err) == (2, True)


def test_a_parameter_cannot_send_a_secret_to_another_server(shell: Shell) -> None:
    shell.apply(
        "tasks: [{name: fetch, kind: http, params: {host: shop.example}, "
        "spec: {url: 'https://{{host}}/', headers: {X-Key: '{{secret:TOKEN}}'}}}]",
        "--yes",
    )
    answer = shell("tasks", "run", "fetch", "--param", "host=evil.example")
    assert answer.code == 2
    assert "parameters is 'https://evil.example'; the task has secrets" in answer.err
    assert shell("runs", "list", "--json").document == []
    assert shell("tasks", "run", "fetch", "--param", "host=shop.example").code == 0


@pytest.mark.parametrize("key", ["weft", "changeme", "8 bytes!"])
def test_weft_does_not_start_with_a_key_that_is_known_or_short(newcomer: Shell, key: str) -> None:
    settings = {"WEFT_SECRET_KEY": key.replace(" ", "_"), "WEFT_PORT": "0"}
    answer = weft("serve", "--data-dir", str(newcomer.folder), env=settings)
    assert answer.code == 78
    assert "key 1 of secret_key must not be used" in answer.err
    assert not (newcomer.folder / "weft.db").exists()


def test_what_was_refused_does_not_look_as_if_it_was_done(shell: Shell) -> None:
    shell.apply("{}")
    caller = Caller(name="ann", kind="user")
    shell.act(lambda weft: weft.denied_requests.tell(caller, "runs.cancel", "not_allowed", target="run 7"))
    assert "runs.cancel (refused)" in shell.ok("audit", "list").out
    assert shell.document("audit", "list")[0]["data"] == {"refused": True, "code": "not_allowed"}


def test_an_entry_of_a_command_has_what_was_before_and_what_is_after(shell: Shell) -> None:
    shell.apply("tasks: [{name: fetch, kind: noop}]", "--yes")
    shell.ok("tasks", "pause", "fetch")
    data = shell.document("audit", "list")[0]["data"]
    assert (data["before"], data["after"]) == ({}, {"paused": True})


def test_the_log_is_listed_without_what_was_refused_or_with_nothing_else(shell: Shell) -> None:
    file = shell.folder.parent / "value"
    file.write_text("long enough")
    shell.ok("secrets", "set", "TOKEN", "--file", str(file))
    shell.act(lambda app: app.denied_requests.tell(Caller(name="ann", kind="user"), "runs.cancel", "not_allowed"))
    assert [each["action"] for each in shell.document("audit", "list", "--refused")] == ["runs.cancel"]
    assert "runs.cancel (refused)" in shell.ok("audit", "list", "--refused").out
    assert [each["action"] for each in shell.document("audit", "list", "--not-refused")] == ["secrets.set"]
    assert len(shell.document("audit", "list")) == 2
