"""``weft keys``: made, listed and revoked on the database of this machine."""

import base64
from pathlib import Path

import pytest

from tests.cases import for_each
from tests.cli.commanding import Shell
from weft.access.model import EVERYWHERE, Role
from weft.errors import Unknown

SHOP = ("keys", "create", "--role", "operator", "--project", "shop")


def test_a_key_is_shown_once_and_opens_the_door(shell: Shell) -> None:
    made = shell.document(*SHOP, "--name", "ci")
    caller = shell.act(lambda weft: weft.keys.caller(made["token"]))
    assert (caller.name, caller.grants) == ("ci", {"shop": Role.OPERATOR})
    assert made["token"].split("_")[2] not in shell.ok("keys", "list").out + shell.ok("keys", "list", "--json").out


def test_a_person_is_told_the_token_and_what_it_may_do(shell: Shell) -> None:
    first, second = shell.ok(*SHOP, "--expires-days", "30").lines
    assert first == "key 1 is made: operator in shop, expires in 30 d"
    assert second.startswith("token, shown this once: weft_")


def test_a_key_may_have_several_roles_and_count_everywhere(shell: Shell) -> None:
    made = shell.document("keys", "create", "--role", "viewer", "--everywhere", "--grant", "shop=admin")
    assert made["key"]["grants"] == {"*": "viewer", "shop": "admin"}
    assert made["key"]["name"] == "viewer everywhere, admin in shop"


def test_keys_are_listed_with_their_state_and_by_project(shell: Shell) -> None:
    shell.ok(*SHOP)
    shell.ok("keys", "create", "--grant", "news=viewer")
    shell.ok("keys", "create", "--role", "admin", "--everywhere")
    shell.ok("keys", "revoke", "1")
    lines = shell.ok("keys", "list").lines
    assert [line.split()[0] for line in lines] == ["KEY", "1", "2", "3"]
    assert "revoked" in lines[1]
    assert [each["id"] for each in shell.document("keys", "list", "--project", "news")] == [2, 3]


def test_a_revoked_key_is_refused(shell: Shell) -> None:
    token = shell.document(*SHOP)["token"]
    assert shell.ok("keys", "revoke", "1").out == "key 1 (operator in shop) is revoked\n"
    with pytest.raises(Unknown):
        shell.act(lambda weft: weft.keys.caller(token))


def test_a_list_of_no_keys_says_so(shell: Shell) -> None:
    shell.ok("users", "create", "ada", "--generate")
    assert shell.ok("keys", "list").out == "there is no key; `weft keys create` makes one\n"
    assert shell.document("keys", "list") == []


@pytest.fixture
def with_ada(shell: Shell) -> Shell:
    shell.ok("users", "create", "ada", "--generate")
    return shell


@for_each(
    ("args", "code", "sentence"),
    [
        (("create",), 2, "a key needs a --role"),
        (("create", "--role", "operator"), 2, "either --project or --everywhere"),
        (("create", "--role", "operator", "--project", "shop", "--everywhere"), 2, "either --project or --everywhere"),
        (("create", "--role", "owner", "--everywhere"), 2, "one of viewer, operator, developer, admin"),
        (("create", "--everywhere", "--grant", "a=viewer"), 2, "it needs a --role"),
        (("create", "--grant", "shop"), 2, "it must be PROJECT=ROLE"),
        (("create", "--grant", "=viewer"), 2, "it must be PROJECT=ROLE"),
        (("create", "--grant", "a b=viewer"), 2, "the project of a grant"),
        (("create", "--role", "viewer", "--everywhere", "--expires-days", "0"), 2, "from 1 to 3650"),
        (("create", "--role", "viewer", "--everywhere", "--name", "a\nb"), 2, "the name of a key"),
        (("revoke", "x"), 2, "the number of a key"),
        (("revoke", "7"), 1, "there is no key 7"),
    ],
)
def test_what_is_asked_wrongly_is_refused_in_one_sentence(
    with_ada: Shell, args: tuple[str, ...], code: int, sentence: str
) -> None:
    answer = with_ada("keys", *args)
    assert (answer.code, answer.out, answer.err.count("\n")) == (code, "", 1)
    assert sentence in answer.err
    assert with_ada.act(lambda weft: weft.keys.all()) == []


def test_a_key_of_the_command_line_may_do_what_it_was_told(shell: Shell) -> None:
    token = shell.document("keys", "create", "--role", "admin", "--everywhere")["token"]
    assert shell.act(lambda weft: weft.keys.caller(token)).grants == {EVERYWHERE: Role.ADMIN}


def test_what_the_command_line_changes_is_in_the_audit_log_without_the_secret(shell: Shell) -> None:
    made = shell.document(*SHOP)
    password = shell.document("users", "create", "ada", "--generate")["password"]
    text = shell.ok("audit", "list", "--json").out
    assert "keys.create" in text
    assert "users.create" in text
    assert made["token"].split("_")[2] not in text
    assert password not in text


def test_a_key_of_a_service_that_signs_for_itself_has_no_token(shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "service.pub"
    file.write_text(base64.b64encode(bytes(range(32))).decode())
    told = shell.document("keys", "create", "--everywhere", "--role", "viewer", "--public-key-file", str(file))
    assert (told["token"], told["key"]["public_key"]) == ("", file.read_text())
    text = shell.ok("keys", "create", "--everywhere", "--role", "viewer", "--public-key-file", str(file)).out
    assert "sign tokens with kid, iss and sub " in text
    assert shell("keys", "create", "--everywhere", "--role", "viewer", "--public-key-file", str(tmp_path)).code == 2
