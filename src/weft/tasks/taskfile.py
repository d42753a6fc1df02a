"""Task files: TOML or YAML, read whole or refused with the place that is wrong; and the example tasks."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from weft.errors import Invalid
from weft.tasks.changes import DesiredState
from weft.tasks.model import ProjectSettings, Task, check_name
from weft.tasks.schedule import Schedule
from weft.untrusted_files import LARGEST_FILE, read_named

T = TypeVar("T")

BOOLEAN = "tag:yaml.org,2002:bool"


def load(path: Path) -> DesiredState:
    """The tasks and project settings in ``path``; its ending says whether it is TOML or YAML."""
    return parse(_content(path), str(path))


def parse(content: Any, where: str) -> DesiredState:
    if not isinstance(content, Mapping):
        raise Invalid(where, content, "it must be a table with 'tasks' and 'projects'")
    for name in content.keys() - {"tasks", "projects"}:
        raise Invalid(f"{where}: a table", name, "it must be 'tasks' or 'projects'")
    given, projects = content.get("tasks", []), content.get("projects", {})
    if not isinstance(given, list):
        raise Invalid(f"{where}: tasks", given, "it must be a list of tasks ([[tasks]] in TOML)")
    if not isinstance(projects, Mapping):
        raise Invalid(f"{where}: projects", projects, "it must be a table of projects ([projects.NAME] in TOML)")
    tasks = tuple(task_from(each, f"{where}: task {number}") for number, each in enumerate(given, 1))
    for name, count in Counter(each.full_name for each in tasks).items():
        if count > 1:
            raise Invalid(f"{where}: task", name, "a task may be defined once")
    return DesiredState(tasks, {name: _project(name, each, where) for name, each in projects.items()})


def task_from(given: Any, where: str) -> Task:
    """One task from a table; schedules may be texts such as '@every 5m', upstream tasks may be names."""
    if not isinstance(given, Mapping):
        raise Invalid(where, given, "it must be a table")
    fields = dict(given)
    if isinstance(fields.get("name"), str) and fields["name"].isprintable():
        where = f"{where} ({fields['name']})"
    if fields.get("schedule") is not None:
        fields["schedule"] = msgspec.to_builtins(_located(where, Schedule.parse, fields["schedule"]))
    if isinstance(fields.get("after"), str):
        fields["after"] = [fields["after"]]
    if isinstance(fields.get("after"), list):
        fields["after"] = [{"task": each} if isinstance(each, str) else each for each in fields["after"]]
    converted: Task = _located(where, _converted, fields, Task)
    return converted


def _project(name: Any, given: Any, where: str) -> ProjectSettings:
    if not isinstance(name, str):
        raise Invalid(f"{where}: project", name, "it must be a text")
    where = f"{where}: project {name}"
    _located(where, check_name, "project", name)
    if isinstance(given, Mapping) and isinstance(given.get("tags"), Mapping):
        given = {**given, "tags": {tag: _tag_limit(each) for tag, each in given["tags"].items()}}
    converted: ProjectSettings = _located(where, _converted, given, ProjectSettings)
    return converted


def _tag_limit(given: Any) -> Any:
    """A tag's limit is its number, or a table with ``max_running`` and nothing else."""
    return given["max_running"] if isinstance(given, Mapping) and given.keys() == {"max_running"} else given


def _converted(given: Any, kind: type[T]) -> T:
    try:
        converted = msgspec.convert(given, kind)
        msgspec.json.encode(converted)
        return converted
    except msgspec.ValidationError as problem:
        said, _, place = str(problem).partition(" - at ")
        path = place.strip("`").removeprefix("$").removeprefix(".")
        raise Invalid(path or "the table", _value_at(given, path), _sentence(said)) from problem
    except (RecursionError, TypeError, ValueError) as problem:
        why = "it may not hold itself" if isinstance(problem, RecursionError) else f"it cannot be stored: {problem}"
        raise Invalid("the table", given, why) from problem


def _sentence(said: str) -> str:
    """What msgspec found wrong, as the end of a sentence."""
    return f"it is wrong: {said[:1].lower()}{said[1:]}".replace("`", "")


def _value_at(given: Any, path: str) -> Any:
    """The value that a path such as ``after[0].on`` leads to, as far as it can be followed."""
    for step in re.findall(r"[^.\[\]]+", path):
        try:
            given = given[int(step)] if step.isdigit() else given[step]
        except (LookupError, TypeError):
            return given
    return given


def _located(where: str, function: Callable[..., T], *arguments: Any) -> T:
    """Call, and put the place in front of what is wrong."""
    try:
        return function(*arguments)
    except Invalid as problem:
        raise Invalid(f"{where}: {problem.what}", problem.value, problem.allowed) from problem


def _content(path: Path) -> Any:
    try:
        text = read_named(path, LARGEST_FILE).decode().replace("\r\n", "\n")
    except (OSError, UnicodeDecodeError) as problem:
        raise Invalid("task file", str(path), f"it cannot be read: {problem}") from problem
    return content(text, path.suffix, str(path))


def content(text: str, suffix: str, name: str) -> Any:
    """What a file of this ending says."""
    if suffix in (".yaml", ".yml"):
        return _parse_yaml(text, name)
    if suffix != ".toml":
        raise Invalid("task file", name, "its name must end in .toml, .yaml or .yml")
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as problem:
        raise Invalid("task file", name, f"it is not TOML: {problem}") from problem


def _parse_yaml(text: str, name: str) -> Any:
    import yaml

    class Loader(yaml.SafeLoader):
        """Only true and false are booleans, as in YAML 1.2: ``on`` is a field of tasks. No map has a key twice."""

        yaml_implicit_resolvers = {  # noqa: RUF012
            first: [(tag, pattern) for tag, pattern in resolvers if tag != BOOLEAN]
            for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
        }

        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
            seen: set[tuple[str, str]] = set()
            for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
                told = (key.tag, key.value)
                if not isinstance(key, yaml.ScalarNode):
                    continue  # no field is named so
                if told in seen:
                    what = f"the key {key.value!r} is twice in one map"
                    raise yaml.constructor.ConstructorError(None, None, what, key.start_mark)
                seen.add(told)
            return super().construct_mapping(node, deep)

    Loader.add_implicit_resolver(BOOLEAN, re.compile("^(?:true|false)$", re.IGNORECASE), list("tTfF"))
    try:
        return yaml.load(text, Loader)  # noqa: S506 - a SafeLoader
    except (yaml.YAMLError, ValueError, RecursionError) as problem:
        why = " ".join(str(problem).split())
        raise Invalid("task file", name, f"it is not YAML: {why}") from problem


EXAMPLE_FILE = Path(__file__).parents[1] / "examples" / "tasks.toml"


def example_tasks(port: int) -> DesiredState:
    """They check and crawl the port that this weft listens on; without one there is nothing for them to do so."""
    read = load(EXAMPLE_FILE)
    tasks = (
        replace(task, params=task.params | ({"port": port} if "port" in task.params else {})) for task in read.tasks
    )
    return DesiredState(
        tuple(t for t in tasks if port or ("port" not in t.params and t.kind != "spider")), read.projects
    )
