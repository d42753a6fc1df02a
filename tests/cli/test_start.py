"""How the command starts: quickly, with every command in its place, and with the options of all commands."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cases import for_each
from tests.cli.commanding import Shell, environment, on_a_terminal, weft
from weft import __version__
from weft.cli.main import COMMANDS, loaded

IMPORTED = """
import json, sys
from weft.cli.main import main
try:
    main({args!r})
except SystemExit:
    print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""


def modules_after(*args: str) -> set[str]:
    """What a command has imported by its end."""
    command = [sys.executable, "-c", IMPORTED.format(args=list(args))]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=True, timeout=60)
    return set(json.loads(done.stderr.splitlines()[-1]))


@pytest.mark.parametrize("args", [("--version",), ("--help",)])
def test_a_command_that_does_nothing_imports_nothing_heavy(args: tuple[str, ...]) -> None:
    heavy = {"sqlalchemy", "aiohttp", "rich", "yaml", "asyncio", "msgspec", "weft.app", "weft.config"}
    assert not heavy & modules_after(*args)


def test_a_list_imports_only_what_it_needs(shell: Shell) -> None:
    shell.apply("{}")
    imported = modules_after("--data-dir", str(shell.folder), "runs", "list")
    assert "sqlalchemy" in imported
    assert not {"aiohttp", "rich", "yaml"} & imported


def test_the_names_of_commands_are_completed_without_importing_them() -> None:
    code = "import sys\nfrom weft.cli.main import main\ntry:\n    main()\nexcept SystemExit:\n    "
    code += "print('sqlalchemy' in sys.modules)"
    variables = {"_WEFT_COMPLETE": "complete_bash", "COMP_WORDS": "weft ", "COMP_CWORD": "1"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment(**variables), capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == [*COMMANDS, "False"]


def test_the_version_is_told(tmp_path: Path) -> None:
    answer = weft("--version", cwd=tmp_path)
    assert (answer.code, answer.out, answer.err) == (0, f"weft {__version__}\n", "")


@for_each("name", COMMANDS)
def test_every_command_is_where_the_table_says(name: str) -> None:
    command = loaded(name, COMMANDS[name])
    assert command.name == name
    assert command.help


def test_help_lists_every_command_in_one_line(shell: Shell) -> None:
    text = shell.ok("--help").out
    for name, entry in COMMANDS.items():
        assert any(line.split(maxsplit=1) == [name, entry.words] for line in text.splitlines()), name


@pytest.mark.parametrize("args", [(), ("tasks",), ("runs",), ("workers",)])
def test_a_noun_without_a_verb_is_answered_with_its_verbs(args: tuple[str, ...]) -> None:
    answer = weft(*args)
    assert answer.code == 2
    assert "Commands:" in answer.err


def test_the_options_of_all_commands_stand_before_and_after_the_verb(shell: Shell) -> None:
    shell.ok("runs", "submit", "--kind", "noop", "--spec", "{}", "--project", "shop")
    assert shell.ok("--json", "--project", "shop", "runs", "list").document[0]["project"] == "shop"
    assert shell.ok("runs", "list", "--json", "--project", "shop").document[0]["project"] == "shop"
    assert shell.ok("--project", "other", "runs", "list", "--project", "shop", "--json").document[0]["id"] == 1
    elsewhere = shell("runs", "list", "--data-dir", str(shell.folder.parent / "elsewhere"))
    assert elsewhere.code == 78


def test_a_long_running_command_hears_the_options_before_its_name(shell: Shell) -> None:
    shell.apply("{}")
    answer = shell("worker", "stats")
    assert (answer.code, answer.document) == (0, [])
    assert shell("worker", "--data-dir", str(shell.folder), "health").code == 1
    assert sorted(each.name for each in shell.folder.parent.iterdir()) == ["data", "tasks.yaml"]


COMPLETED = [
    ("weft run", 1, ["run", "runs"]),
    ("weft tasks pa", 2, ["pause"]),
    ("weft runs list --sta", 3, ["--state"]),
    ("weft --data-dir {} tasks show de", 5, ["default/fetch"]),
    ("weft --data-dir {} tasks run f", 5, ["fetch"]),
    ("weft --data-dir {} --project shop tasks run ", 7, ["clean"]),
    ("weft --data-dir {}/nothing tasks run f", 5, []),
]
"""A line, the number of the word that is completed, and what it may be."""


def asked_to_complete(line: str, number: int) -> dict[str, str]:
    return {"_WEFT_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(number)}


def test_the_shell_completes_commands_options_and_tasks(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    shell.apply("tasks: [{name: fetch, kind: noop}, {name: clean, kind: noop, project: shop}]", "--yes")
    monkeypatch.setattr("sys.argv", ["weft"])
    found = []
    for words, number, _ in COMPLETED:
        with monkeypatch.context() as told:
            for name, value in asked_to_complete(words.format(shell.folder), number).items():
                told.setenv(name, value)
            answer = shell()
            found.append((words, number, answer.out.split()))
            assert (answer.code, answer.err) == (0, ""), words
    assert found == COMPLETED


def test_a_real_command_completes_the_name_of_a_task(shell: Shell) -> None:
    shell.apply("tasks: [{name: fetch, kind: noop}]", "--yes")
    answer = weft(env=asked_to_complete(f"weft --data-dir {shell.folder} tasks show de", 5))
    assert (answer.code, answer.out.split(), answer.err) == (0, ["default/fetch"], "")


def test_completion_can_be_installed(tmp_path: Path) -> None:
    answer = weft("--show-completion", "bash", cwd=tmp_path)
    assert answer.code == 0
    assert "_WEFT_COMPLETE=complete_bash" in answer.out


def test_a_reader_that_goes_away_is_no_error(shell: Shell) -> None:
    for _ in range(3):
        shell.ok("runs", "submit", "--kind", "noop", "--spec", "{}")
    process = shell.start("runs", "list")
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == ""
    process.stderr.close()
    assert process.wait(60) in (0, 1)


def test_colours_are_for_terminals_that_want_them(shell: Shell) -> None:
    shell.ok("runs", "submit", "--kind", "noop", "--spec", "{}")
    shell.ok("runs", "cancel", "1")
    args = ("--data-dir", str(shell.folder), "runs", "list")
    assert "\x1b[90mcancelled" in on_a_terminal(*args)[1]
    for plain in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        assert "\x1b" not in on_a_terminal(*args, env=plain)[1]
    assert "\x1b" not in shell.ok("runs", "list").out


def test_on_a_terminal_a_row_ends_at_its_edge(shell: Shell) -> None:
    shell.apply("tasks: [{name: " + "a" * 90 + ", kind: noop, schedule: '@daily', description: x}]", "--yes")
    _, shown = on_a_terminal("--data-dir", str(shell.folder), "config", "--explain", env={"COLUMNS": "100"})
    rows = [line.rstrip("\r") for line in shown.splitlines()]
    assert any(line.endswith("…") for line in rows)
