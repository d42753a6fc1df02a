"""The reference names all that there is, with the defaults that it has, and every link leads somewhere."""

from __future__ import annotations

import ast
import inspect
import re
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.cases import for_each
from weft import errors, ports
from weft.adapters import registry
from weft.cli.main import COMMANDS
from weft.config import Config, load
from weft.events import KINDS
from weft.runs.model import Retry
from weft.tasks import taskfile
from weft.tasks.model import Deduplication, ProjectSettings, Task, UpstreamTask, fill
from weft.tasks.schedule import Schedule
from weft.worker_setup import check_spec

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])
ROW = re.compile(r"^\| `([^`]+)` \| (.*) \|$", re.MULTILINE)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def page(name: str) -> str:
    return (DOCS / "reference" / name).read_text()


def section(name: str, heading: str) -> str:
    """What stands under a heading, up to the next one."""
    found = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", page(name), re.MULTILINE | re.DOTALL)
    assert found, f"docs/reference/{name} has no section '## {heading}'"
    return found[1]


def rows(text: str) -> dict[str, list[str]]:
    """The rows of the tables in ``text`` by what stands in their first column."""
    return {name: [cell.strip() for cell in rest.split("|")] for name, rest in ROW.findall(text)}


def said(default: Any) -> str:
    """A default as the reference writes it."""
    if default is None or default in ((), {}):
        return "none"
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    if isinstance(default, float):
        return f"`{default:g}`"
    if isinstance(default, tuple):
        return ", ".join(f"`{each}`" for each in default)
    return f"`{default}`" if default != "" else "empty"


def setting_row(field: Any) -> str:
    return f"| `{field.name}` | `WEFT_{field.name.upper()}` | {said(field.default)} | {field.metadata['doc']} |"


def test_the_reference_has_every_setting_with_its_default_and_meaning() -> None:
    expected = [setting_row(field) for field in fields(Config)]
    found = [line for line in page("settings.md").splitlines() if line.startswith("| `")]
    assert found == expected, "docs/reference/settings.md should have these rows:\n" + "\n".join(expected)


def test_the_example_of_settings_is_a_configuration(tmp_path: Path) -> None:
    (example,) = re.findall(r"```toml\n(.*?)```", page("settings.md"), re.DOTALL)
    file = tmp_path / "weft.toml"
    file.write_text(example)
    assert load(environment={}, file=file).config != Config()


NO_LIMIT = {"max_running": "no limit", "max_queued": "no limit"}
ELSEWHERE: dict[str, dict[str, str]] = {
    "Task": {
        **NO_LIMIT,
        "retry": "see [Retry](#retry)",
        "dedup": "off",
        "spec": "empty",
        "params": "empty",
        "grace_seconds": "what the project says, else `10`",
    },
    "Schedule": {"start_at": "1970"},
    "Dedup": {"params": "all"},
    "Project": {
        **NO_LIMIT,
        "keep_days": "for ever",
        "min_isolation": "any",
        "spiders": "empty",
        "grace_seconds": "`10`",
    },
}
"""Defaults that are told in words."""


@for_each(
    ("heading", "kind", "more"),
    [
        ("Task", Task, set()),
        ("Schedule", Schedule, {"when"}),
        ("After", UpstreamTask, set()),
        ("Retry", Retry, set()),
        ("Dedup", Deduplication, set()),
        ("Project", ProjectSettings, set()),
    ],
)
def test_the_reference_has_every_field_of_a_task_with_its_default(heading: str, kind: Any, more: set[str]) -> None:
    documented = rows(section("tasks.md", heading))
    known = {field.name: field for field in msgspec.structs.fields(kind)}
    assert documented.keys() == known.keys() | more
    for name, field in known.items():
        default = "required" if field.required else said(default_of(field))
        assert documented[name][0] == ELSEWHERE.get(heading, {}).get(name, default), f"the default of {name}"
        assert all(cell.strip() for cell in documented[name]), f"every column of {name} is filled"


def default_of(field: Any) -> Any:
    return field.default_factory() if field.default is msgspec.NODEFAULT else field.default


def test_the_reference_has_every_kind_of_task() -> None:
    allowed = rows(section("tasks.md", "Task"))["kind"][1]
    assert set(re.findall(r"`(\w+)`", allowed)) == set(registry.executor_kinds())


def test_the_reference_has_every_kind_of_event_and_what_it_says() -> None:
    documented = {name: cells[0] for name, cells in rows(page("events.md")).items()}
    assert documented == {kind: f"{words[0].upper()}{words[1:]}." for kind, words in KINDS.items()}


def test_the_reference_has_every_error_with_its_codes() -> None:
    documented = rows(page("errors.md"))
    known = {name for name, each in inspect.getmembers(errors, inspect.isclass) if issubclass(each, errors.WeftError)}
    assert documented.keys() == known
    tree = re.findall(r"[├└]── (\w+) +(\d{3})?(?: +exit (\d+))?", errors.__doc__ or "")
    for name, status, code in tree:
        assert documented[name][0].strip() == status
        if code:
            assert documented[name][1].strip() == code


def protocols() -> dict[str, list[str]]:
    """The methods of every port, as they are written down."""
    found = {}
    for node in [*ast.parse(inspect.getsource(ports)).body, *ast.parse(inspect.getsource(ports)).body]:
        if isinstance(node, ast.ClassDef) and any(isinstance(b, ast.Name) and b.id == "Protocol" for b in node.bases):
            found[node.name] = [
                each.name for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
            ]
    return found


@for_each(("port", "methods"), list(protocols().items()))
def test_the_reference_has_every_method_of_a_port(port: str, methods: list[str]) -> None:
    assert list(rows(section("ports.md", port))) == methods


def test_the_reference_has_every_scheme_of_an_adapter() -> None:
    assert all(f"`{scheme}:`" in section("ports.md", "Broker") for scheme in registry.BROKERS)
    assert all(f"`{scheme}:`" in section("ports.md", "Blobs") for scheme in registry.BLOBS)


def test_the_reference_has_every_command() -> None:
    assert all(f"### weft {name}" in page("cli.md") for name in COMMANDS)


SHELL = re.compile(r"```(?:sh|console)\n(.*?)```", re.DOTALL)
EXTRA = {"postgresql": "postgres", "mysql": "mysql", "redis": "redis", "amqp": "rabbitmq"}


@pytest.mark.parametrize("name", ["several-machines.md"])
def test_a_page_names_the_extras_of_the_urls_in_its_commands(name: str) -> None:
    text = (DOCS / "how-to" / name).read_text()
    schemes = set(re.findall(r"(\w+)://", "".join(SHELL.findall(text)))) & EXTRA.keys()
    installed = ",".join(re.findall(r"weft\[([\w,]+)\]", text)).split(",")
    assert {EXTRA[scheme] for scheme in schemes - {"amqp"}} <= set(installed)


def anchors(text: str) -> set[str]:
    """The headings of a page as links name them."""
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@for_each("file", PAGES, ids=lambda file: str(file.relative_to(ROOT)))
def test_every_link_leads_to_a_page_and_a_heading(file: Path) -> None:
    for link in LINK.findall(re.sub(r"```.*?```", "", file.read_text(), flags=re.DOTALL)):
        if "://" in link or link.startswith("mailto:"):
            continue
        path, _, anchor = link.partition("#")
        target = (file.parent / path).resolve() if path else file
        assert target.exists(), f"{link} leads nowhere"
        if anchor:
            assert anchor in anchors(target.read_text()), f"{link}: no such heading"


def test_the_index_links_every_page() -> None:
    linked = {path.partition("#")[0] for path in LINK.findall((DOCS / "README.md").read_text())}
    pages = {str(file.relative_to(DOCS)) for file in DOCS.rglob("*.md")}
    assert linked >= pages - {"README.md", "pictures/README.md"}


@pytest.mark.parametrize("name", ["schedules.md", "dependencies.md"])
def test_the_tasks_of_a_how_to_are_right(name: str) -> None:
    examples = re.findall(r"```toml\n(.*?)```", (DOCS / "how-to" / name).read_text(), re.DOTALL)
    assert examples
    for example in examples:
        for task in taskfile.parse(tomllib.loads(example), name).tasks:
            check_spec(task.kind, fill(task.spec, task.params))
