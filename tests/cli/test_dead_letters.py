"""Dead letters on the command line."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.cli.commanding import Shell
from tests.intake.making_dead_letters import REASON, deployed, kept, written
from weft.app import App
from weft.redaction import MASK


@pytest.fixture
def filled(shell: Shell) -> Shell:
    """One dead letter, whose spider is there."""

    async def fill(app: App) -> int:
        await deployed(app)
        return await kept(app)

    assert shell.act(fill) == 1
    return shell


def test_a_dead_letter_is_listed_shown_edited_and_resubmitted(filled: Shell, tmp_path: Path) -> None:
    listed = filled.ok("dead-letters", "list").out
    assert REASON in listed
    shown = filled.ok("dead-letters", "show", "1").out
    assert written(priority=1.5).decode() in shown
    file = tmp_path / "order.json"
    file.write_bytes(written())
    assert filled.ok("dead-letters", "edit", "1", "--file", str(file)).out.startswith("dead letter 1 is edited")
    assert filled.ok("dead-letters", "resubmit", "1").out == "dead letter 1 is run 1\n"
    assert filled.document("dead-letters", "show", "1")["run_id"] == 1
    assert filled.ok("dead-letters", "list").out == "no message is dead\n"
    [found] = filled.document("dead-letters", "list", "--state", "resubmitted")
    assert (found["id"], found["state"]) == (1, "resubmitted")


def test_what_is_secret_in_a_dead_letter_is_shown_masked(shell: Shell) -> None:
    shell.act(lambda app: kept(app, written(args={"password": "hush-hush"}), headers={"x-token": "hush-hush"}))
    for answer in (shell("dead-letters", "show", "1"), shell("dead-letters", "show", "1", "--json")):
        assert answer.code == 0
        assert "hush" not in answer.out
        assert answer.out.count(MASK) + answer.out.count(ascii(MASK)[1:-1]) == 2


def test_a_dead_letter_that_is_refused_again_is_told_with_its_reason(filled: Shell) -> None:
    answer = filled("dead-letters", "resubmit", "1")
    assert answer.code == 1
    assert answer.out == f"dead letter 1 was refused again: {REASON}\n"


def test_a_dead_letter_is_edited_with_the_editor_of_the_person(filled: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    program = "import sys, pathlib; f = pathlib.Path(sys.argv[1]); f.write_text(f.read_text().replace('1.5', '5'))"
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", f'"{sys.executable}" -c "{program}"')
    filled.ok("dead-letters", "edit", "1")
    assert filled.document("dead-letters", "show", "1")["body"] == written(priority=5).decode()
    monkeypatch.setenv("EDITOR", "false")
    answer = filled("dead-letters", "edit", "1")
    assert (answer.code, "nothing was changed" in answer.err) == (2, True)


def test_an_edit_without_a_text_or_an_editor_is_refused(filled: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.delenv("EDITOR", raising=False)
    assert "--body" in filled("dead-letters", "edit", "1").err
    assert filled("dead-letters", "edit", "1", "--body", "{}", "--file", "x").code == 2
    assert filled("dead-letters", "edit", "1", "--file", "nowhere.json").code == 2


def test_letters_are_dropped_and_then_no_longer_listed(filled: Shell) -> None:
    assert filled("dead-letters", "drop", "1").code == 2
    assert filled.ok("dead-letters", "drop", "1", "--yes").out == "dead letter 1 is dropped\n"
    assert filled.document("dead-letters", "list") == []
    answer = filled("dead-letters", "resubmit", "1")
    assert (answer.code, "was dropped already" in answer.err) == (1, True)


def test_a_hostile_dead_letter_can_not_steer_the_terminal(shell: Shell) -> None:
    shell.act(lambda app: kept(app, b"\x1b]0;owned\x07\x1b[2J", reason="\x1b[31mred", message_id="\x1b[1m"))
    assert "\x1b" not in shell.ok("dead-letters", "show", "1").out + shell.ok("dead-letters", "list").out


def test_a_state_that_there_is_not_is_refused(filled: Shell) -> None:
    answer = filled("dead-letters", "list", "--state", "lost")
    assert (answer.code, "dead, resubmitted, dropped, all" in answer.err) == (2, True)


def test_the_audit_log_tells_of_an_edit_on_this_machine(filled: Shell) -> None:
    filled.ok("dead-letters", "edit", "1", "--body", "swordfish")
    [entry] = filled.document("audit", "list")
    assert (entry["action"], entry["target"]) == ("dead_letters.edit", "dead letter 1")
    assert "swordfish" not in str(entry)


def test_what_was_done_is_told_also_where_a_later_dead_letter_is_not_there(filled: Shell) -> None:
    filled.ok("dead-letters", "edit", "1", "--body", written().decode())
    answer = filled("dead-letters", "resubmit", "1", "77")
    assert (answer.code, answer.out, answer.err) == (1, "dead letter 1 is run 1\n", "there is no dead letter 77\n")
    assert filled.act(kept) == 2
    answer = filled("dead-letters", "drop", "2", "1", "--yes")
    assert (answer.code, answer.out, "was resubmitted already" in answer.err) == (1, "dead letter 2 is dropped\n", True)
