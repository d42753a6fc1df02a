"""The reference of the command line says all that there is, and its examples work."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from tests.cases import for_each
from tests.cli.commanding import Shell
from weft.cli.main import COMMANDS, app, loaded
from weft.cli.options import WORDS

DOCS = Path(__file__).parents[2] / "docs"
REFERENCE = (DOCS / "reference" / "cli.md").read_text()
HOW_TO = (DOCS / "how-to" / "tasks-as-a-file.md").read_text()


def commands() -> Iterator[tuple[str, Any]]:
    """Every command that can be called, by its words."""
    for name, entry in COMMANDS.items():
        command = loaded(name, entry)
        verbs = getattr(command, "commands", {})
        if not verbs or getattr(command, "invoke_without_command", False):
            yield name, command
        yield from ((f"{name} {verb}", each) for verb, each in verbs.items())


def section(words: str) -> str:
    found = re.search(rf"^### weft {re.escape(words)}\n(.*?)(?=^##|\Z)", REFERENCE, re.MULTILINE | re.DOTALL)
    assert found, f"docs/reference/cli.md has no section '### weft {words}'"
    return found[1]


@for_each(("words", "command"), commands)
def test_every_command_and_option_is_in_the_reference(words: str, command: Any) -> None:
    text = section(words)
    for option in command.params:
        if not getattr(option, "hidden", False) and option.help not in WORDS.values():
            for name in option.opts if option.param_type_name == "option" else [option.metavar]:
                assert f"`{name}`" in text, f"`{name}` of weft {words}"


def test_the_reference_has_no_command_that_is_not_there() -> None:
    assert set(re.findall(r"^### weft (.+)$", REFERENCE, re.MULTILINE)) == {words for words, _ in commands()}


def test_the_options_of_all_commands_are_in_the_reference() -> None:
    for name, meaning in WORDS.items():
        assert f"`{name}" in REFERENCE
        assert meaning.replace("weft.toml", "`weft.toml`") in REFERENCE


def flags() -> Iterator[tuple[str, str, Any]]:
    """Every flag of every command, hidden ones too: its name, the command that takes it, and its option."""
    root = typer.main.get_command(app)
    for words, command in [("", root), *commands(), *((name, loaded(name, entry)) for name, entry in COMMANDS.items())]:
        for option in command.params:
            if option.param_type_name == "option":
                yield from ((name, f"weft {words}".strip(), option) for name in (*option.opts, *option.secondary_opts))


def meaning(option: Any) -> str:
    """What an option means in every command: its help up to the details of one command, which follow a semicolon."""
    return str(option.help or "").partition(";")[0].removesuffix(".")


def test_every_flag_has_one_meaning_in_the_whole_command_line() -> None:
    found: dict[str, dict[Any, list[str]]] = {}
    for name, words, option in flags():
        shape = (meaning(option), (*option.opts, *option.secondary_opts), option.is_flag, option.multiple)
        found.setdefault(name, {}).setdefault(shape, []).append(words)
    several = {name: shapes for name, shapes in found.items() if len(shapes) > 1 or not all(each[0] for each in shapes)}
    assert several == {}
    assert [name for name in found if f"{name}s" in found] == []  # nobody can tell --label from --labels


def test_the_reference_lists_every_flag_with_its_meaning() -> None:
    told = dict(re.findall(r"^\| `(--[^`]+)`[^|]*\| (.+?) \|$", REFERENCE.partition("\n## Flags\n")[2], re.MULTILINE))
    assert told == {
        name: f"The opposite of `{option.opts[0]}`" if name in option.secondary_opts else meaning(option)
        for name, _, option in flags()
        if name.startswith("--") and not option.hidden
    }


@pytest.mark.parametrize("kind", ["toml", "yaml"])
def test_the_files_of_the_how_to_can_be_applied(shell: Shell, kind: str) -> None:
    examples = dict(re.findall(r"```(\w+)\n# tasks\.\w+\n(.*?)```", HOW_TO, re.DOTALL))
    shell.apply("tasks: [{name: fetch, kind: noop}]", "--yes")
    answer = shell.apply(examples[kind], "--yes", name=f"example.{kind}")
    assert (answer.code, answer.err) == (0, "")


def test_every_field_of_a_task_is_in_the_how_to() -> None:
    from weft.runs.model import Retry
    from weft.tasks.model import Deduplication, ProjectSettings, Task
    from weft.tasks.schedule import Schedule

    hidden = {"cron", "every_seconds", "once_at", "start_at"}
    for kind in (Task, Retry, Deduplication, ProjectSettings, Schedule):
        for field in set(kind.__struct_fields__) - hidden:
            assert f"`{field}`" in HOW_TO, field


def test_every_exit_code_is_in_the_reference() -> None:
    text = (DOCS / "reference" / "exit-codes.md").read_text()
    assert re.findall(r"^\| (\d+) \|", text, re.MULTILINE) == ["0", "1", "2", "3", "78", "130"]
