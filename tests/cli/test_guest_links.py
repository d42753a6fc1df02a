"""``weft guest-links``: links for guests, made, listed and revoked on the database of this machine."""

import pytest

from tests.cli.commanding import Shell
from weft.errors import Unknown

CREATE = ("guest-links", "create", "--project", "shop", "--for", "the shop's people")


def test_a_link_is_shown_once_and_opens(shell: Shell) -> None:
    shell.ok("users", "create", "ada", "--generate")
    made = shell.document(*CREATE)
    caller = shell.act(lambda weft: weft.guest_links.caller(made["token"]))
    assert (caller.kind, list(caller.grants), made["path"]) == ("guest", ["shop"], f"/guest/{made['token']}")
    assert made["token"] not in shell.ok("guest-links", "list").out + shell.ok("guest-links", "list", "--json").out


def test_a_person_is_told_what_the_link_shows_and_where(shell: Shell) -> None:
    shell.ok("users", "create", "ada", "--generate")
    first, second = shell.ok(*CREATE, "--expires-days", "30").lines
    assert first == "link 1 is made: project shop, expires in 30 d"
    assert second.startswith("below weft's address, shown this once: /guest/")


def test_links_are_listed_by_project_and_revoked_for_good(shell: Shell) -> None:
    shell.ok("users", "create", "ada", "--generate")
    token = shell.document(*CREATE)["token"]
    shell.ok("guest-links", "create", "--project", "news", "--for", "x")
    assert shell.ok("guest-links", "revoke", "1").out == "link 1 (the shop's people) is revoked\n"
    lines = shell.ok("guest-links", "list").lines
    assert [line.split()[0] for line in lines] == ["LINK", "2", "1"]
    assert "revoked" in lines[2]
    assert [each["id"] for each in shell.document("guest-links", "list", "--project", "news")] == [2]
    with pytest.raises(Unknown):
        shell.act(lambda weft: weft.guest_links.caller(token))


def test_what_cannot_be_shared_is_refused(shell: Shell) -> None:
    shell.ok("users", "create", "ada", "--generate")
    assert "there is no link for guests" in shell.ok("guest-links", "list").out
    assert "it must name the project" in shell("guest-links", "create", "--for", "x").err
    assert "there is no dataset" in shell(*CREATE, "--only-dataset", "nothing").err
    assert "there is no guest link 9" in shell("guest-links", "revoke", "9").err
