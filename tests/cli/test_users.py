"""``weft users``, and the first user of a new weft."""

import asyncio
import io
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cases import for_each
from tests.cli.commanding import ON_ITS_TERMINAL, WEFT, Shell, answers, environment
from tests.servers.server import free_port
from tests.waiting import eventually
from weft.access.model import Role

PASSWORD = "correct horse battery"


def logs_in(shell: Shell, name: str, password: str) -> bool:
    return shell.act(lambda weft: weft.logins.check(name, password, "")).name == name


@pytest.fixture
def password_file(tmp_path: Path) -> str:
    file = tmp_path / "password"
    file.write_text(PASSWORD + "\n")
    return str(file)


def test_a_user_is_made_with_a_password_from_a_file(shell: Shell, password_file: str) -> None:
    args = ("users", "create", "Ada", "--role", "operator", "--project", "shop", "--password-file", password_file)
    assert shell.ok(*args).out == "user ada is made: operator in shop\n"
    assert logs_in(shell, "ada", PASSWORD)
    assert shell.document("users", "list")[0]["grants"] == {"shop": "operator"}


def test_a_password_may_be_made_up_and_is_shown_once(shell: Shell) -> None:
    made = shell.document("users", "create", "ada", "--generate")
    assert logs_in(shell, "ada", made["password"])
    assert made["password"] not in shell.ok("users", "list", "--json").out


def typing(args: list[str], *typed: tuple[str, str]) -> tuple[int, str]:
    """Run the real command on a terminal, and type each text once its question is shown."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", ON_ITS_TERMINAL, WEFT, *args], stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    shown, waiting = b"", list(typed)
    try:
        while piece := os.read(ours, 65536):
            shown += piece
            if waiting and waiting[0][0].encode() in shown:
                os.write(ours, waiting.pop(0)[1].encode())
    except OSError:
        pass  # the end of a terminal whose last program has gone
    os.close(ours)
    return process.wait(60), shown.decode()


def test_a_password_is_typed_twice_and_not_shown(shell: Shell) -> None:
    args = ["--data-dir", str(shell.folder), "users", "create", "ada"]
    first, again = "New password of ada: ", "The same again: "
    code, shown = typing(args, (first, f"{PASSWORD}\n"), (again, "something else\n"))
    assert (code, "it must be the same both times" in shown) == (2, True)
    code, shown = typing(args, (first, f"{PASSWORD}\n"), (again, f"{PASSWORD}\n"))
    assert (code, PASSWORD in shown) == (0, False), shown
    assert logs_in(shell, "ada", PASSWORD)


def test_without_a_terminal_or_a_file_no_password_is_read(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO())
    answer = shell("users", "create", "ada")
    assert (answer.code, answer.err) == (2, "password: it must be typed at a terminal, or come from --password-file\n")


def test_a_user_gets_another_password_and_other_roles(shell: Shell, password_file: str) -> None:
    shell.ok("users", "create", "ada", "--generate")
    assert (
        shell.ok("users", "password", "ada", "--password-file", password_file).out == "user ada has another password\n"
    )
    assert logs_in(shell, "ada", PASSWORD)
    assert shell.ok("users", "grant", "ada", "--grant", "shop=viewer").out == "user ada may log in: viewer in shop\n"
    assert shell.ok("users", "grant", "ada").out == "user ada may log in: no role anywhere\n"


def test_a_user_is_shut_out_and_let_in_again(shell: Shell) -> None:
    shell.ok("users", "create", "ada", "--generate")
    assert shell.document("users", "deactivate", "ada")["active"] is False
    assert "deactivated" in shell.ok("users", "list").lines[1]
    assert shell.document("users", "activate", "ada")["active"] is True


@pytest.fixture
def with_root(shell: Shell) -> Shell:
    shell.ok("users", "create", "root", "--role", "admin", "--everywhere", "--generate")
    return shell


@for_each(
    ("args", "code", "sentence"),
    [
        (("create", "a b", "--generate"), 2, "the name of a user"),
        (("create", "bob", "--password-file", "/nowhere"), 2, "it must be a file that can be read"),
        (("create", "bob", "--generate", "--password-file", "x"), 2, "--generate: it must be left out"),
        (("create", "root", "--generate"), 1, "there is a user root already"),
        (("create", "bob", "--generate", "--role", "viewer"), 2, "either --project or --everywhere"),
        (("password", "bob", "--generate"), 1, "there is no user bob"),
        (("deactivate", "bob"), 1, "there is no user bob"),
        (("deactivate", "root"), 1, "root is the last admin of weft"),
        (("grant", "root"), 1, "root is the last admin of weft"),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(
    with_root: Shell, args: tuple[str, ...], code: int, sentence: str
) -> None:
    answer = with_root("users", *args)
    assert (answer.code, answer.out, answer.err.count("\n")) == (code, "", 1)
    assert sentence in answer.err
    assert [each["grants"] for each in with_root.document("users", "list")] == [{"*": "admin"}]


@contextmanager
def running(*args: str, folder: Path, **settings: str) -> Iterator[Path]:
    """A real weft; what it printed is in the file."""
    port, said = free_port(), folder.parent / "said"
    command = [WEFT, *args, "--data-dir", str(folder), "--port", str(port)]
    with said.open("wb") as output:
        process = subprocess.Popen(command, env=environment(**settings), stdout=output, stderr=output)
    try:
        asyncio.run(eventually(lambda: answers(port), 60))
        yield said
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def shown_password(said: Path) -> list[str]:
    return re.findall(r"^    password  (\S+)$", said.read_text(), re.MULTILINE)


def has_admin(shell: Shell) -> bool:
    return [user.grants for user in shell.act(lambda weft: weft.users.all())] == [{"*": Role.ADMIN}]


@pytest.mark.parametrize("args", [("up", "--workers", "1", "--no-examples"), ("serve",)], ids=["up", "serve"])
def test_the_first_start_shows_the_password_of_admin_and_the_second_does_not(
    shell: Shell, args: tuple[str, ...]
) -> None:
    with running(*args, folder=shell.folder) as said:
        asyncio.run(eventually(lambda: bool(shown_password(said)), 30))
    (password,) = shown_password(said)
    assert has_admin(shell)
    assert logs_in(shell, "admin", password)
    with running(*args, folder=shell.folder) as said:
        pass
    assert shown_password(said) == []
    assert password not in said.read_text()


def test_a_password_that_was_set_is_not_shown(shell: Shell, password_file: str) -> None:
    with running("serve", folder=shell.folder, WEFT_ADMIN_PASSWORD_FILE=password_file) as said:
        asyncio.run(eventually(lambda: asyncio.to_thread(has_admin, shell), 30))
    assert PASSWORD not in said.read_text()
    assert logs_in(shell, "admin", PASSWORD)


def test_the_set_password_is_dots_wherever_settings_are_shown(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_ADMIN_PASSWORD", PASSWORD)
    for args in ((), ("--json",), ("--explain",)):
        assert PASSWORD not in shell.ok("config", *args).out
    monkeypatch.setenv("WEFT_ADMIN_PASSWORD", "too short")
    refused = shell("keys", "list")
    assert (refused.code, refused.err) == (
        78,
        "admin_password is ••••; it must have from 10 to 1000 characters, or be empty\n",
    )
