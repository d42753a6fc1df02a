"""Tasks as a file: read whole, or refused with the place that is wrong."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cases import for_each
from weft.clock import SECOND
from weft.errors import Invalid
from weft.runs.model import Retry
from weft.tasks import taskfile
from weft.tasks.changes import DesiredState
from weft.tasks.model import Deduplication, ProjectSettings, Task, UpstreamTask
from weft.tasks.schedule import Schedule

TOML = """
[projects.shop]
weight = 2
max_running = 10
max_queued = 1000
tags = { heavy = 2, slow = { max_running = 1 } }

[[tasks]]
name = "prices"
project = "shop"
kind = "shell"
spec = { argv = ["scrape", "--day", "{{day}}"] }
params = { day = "today" }
schedule = "@every 5m"
tags = ["heavy"]
timeout_seconds = 60

[[tasks]]
name = "report"
project = "shop"
kind = "http"
spec = { url = "https://example.org/report" }
after = ["prices", { task = "other/stock", on = "any" }]
retry = { count = 3, on = ["failed"] }
dedup = { window_seconds = 60 }

[[tasks]]
name = "nightly"
kind = "noop"
schedule = { when = "30 2 * * *", zone = "Europe/Berlin", misfire = "all", overlap = "replace" }
"""

YAML = """
projects:
  shop:
    weight: 2
    max_running: 10
    max_queued: 1000
    tags:
      heavy: 2
      slow: {max_running: 1}
tasks:
  - name: prices
    project: shop
    kind: shell
    spec: {argv: [scrape, --day, "{{day}}"]}
    params: {day: today}
    schedule: "@every 5m"
    tags: [heavy]
    timeout_seconds: 60
  - name: report
    project: shop
    kind: http
    spec: {url: "https://example.org/report"}
    after: [prices, {task: other/stock, on: any}]
    retry: {count: 3, on: [failed]}
    dedup: {window_seconds: 60}
  - name: nightly
    kind: noop
    schedule: {when: "30 2 * * *", zone: Europe/Berlin, misfire: all, overlap: replace}
"""

MEANT = DesiredState(
    (
        Task(
            name="prices",
            project="shop",
            kind="shell",
            spec={"argv": ["scrape", "--day", "{{day}}"]},
            params={"day": "today"},
            schedule=Schedule(every_seconds=300),
            tags=("heavy",),
            timeout_seconds=60.0,
        ),
        Task(
            name="report",
            project="shop",
            kind="http",
            spec={"url": "https://example.org/report"},
            after=(UpstreamTask("prices"), UpstreamTask("other/stock", "any")),
            retry=Retry(count=3, on=("failed",)),
            dedup=Deduplication(window_seconds=60),
        ),
        Task(
            name="nightly",
            kind="noop",
            schedule=Schedule(cron="30 2 * * *", zone="Europe/Berlin", misfire="all", overlap="replace"),
        ),
    ),
    {"shop": ProjectSettings(weight=2, max_running=10, max_queued=1000, tags={"heavy": 2, "slow": 1})},
)


def written(folder: Path, text: str | bytes, name: str = "tasks.toml") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize(("name", "text"), [("t.toml", TOML), ("t.yaml", YAML), ("t.yml", YAML)])
def test_toml_and_yaml_say_the_same(tmp_path: Path, name: str, text: str) -> None:
    assert taskfile.load(written(tmp_path, text, name)) == MEANT


@pytest.mark.parametrize("after", ["prices", ["prices"], [{"task": "prices"}], [{"task": "prices", "on": "success"}]])
def test_a_upstream_task_may_be_a_name_a_list_or_tables(after: Any) -> None:
    assert taskfile.task_from({"name": "t", "kind": "noop", "after": after}, "here").after == (UpstreamTask("prices"),)


@pytest.mark.parametrize(
    "schedule",
    [
        {"when": "2026-12-01T08:00Z"},
        {"once_at": "2026-12-01T08:00Z"},
        {"once_at": "2026-12-01 09:00", "zone": "Europe/Berlin"},
        yaml.safe_load("{once_at: 2026-12-01T08:00:00Z}"),
    ],
)
def test_a_moment_may_be_written_as_a_date(schedule: dict[str, Any]) -> None:
    read = taskfile.task_from({"name": "t", "kind": "noop", "schedule": schedule}, "here").schedule
    assert read is not None
    assert read.once_at == 1_796_112_000 * SECOND


def test_the_first_tick_of_an_interval_may_be_written_as_a_date() -> None:
    table = {"every_seconds": 60, "start_at": "2026-12-01T08:00Z"}
    read = taskfile.task_from({"name": "t", "kind": "noop", "schedule": table}, "here").schedule
    assert read == Schedule(every_seconds=60, start_at=1_796_112_000 * SECOND)


def test_a_file_may_be_empty_of_either() -> None:
    assert taskfile.parse({}, "here") == DesiredState()
    assert taskfile.parse({"projects": {"p": {}}}, "here") == DesiredState((), {"p": ProjectSettings()})


WRONG_FILES: list[tuple[str, str | bytes, str]] = [
    ("t.toml", "tasks = [", "task file is '{path}'; it is not TOML: "),
    ("t.yaml", "tasks: [", "task file is '{path}'; it is not YAML: "),
    ("t.yaml", "tasks: !!python/object:os.system {}", "it is not YAML: could not determine a constructor"),
    ("t.yaml", "at: 2026-99-99", "it is not YAML: month must be in 1..12"),
    ("t.toml", b"\xff\xfe", "task file is '{path}'; it cannot be read: "),
    ("t.json", "{}", "task file is '{path}'; its name must end in .toml, .yaml or .yml"),
    ("t.yaml", "tasks: []\ntasks: []", "it is not YAML: the key 'tasks' is twice in one map in"),
    ("t.yaml", "tasks: [{name: a, kind: noop, spec: {x: 1, 'x': 2}}]", "the key 'x' is twice in one map"),
    ("t.toml", "projects = {}\nprojects = {}", "it is not TOML: "),
    (
        "t.yaml",
        f"projects: {{p: {{tags: {{{', '.join(f't{n}: 1' for n in range(1001))}}}}}}}",
        "project p: tags is '1001 of them'; there may be 1000 at most",
    ),
    ("t.yaml", "", "{path} is None; it must be a table with 'tasks' and 'projects'"),
    ("t.yaml", "[1]", "{path} is [1]; it must be a table with 'tasks' and 'projects'"),
    ("t.toml", "[task]", "{path}: a table is 'task'; it must be 'tasks' or 'projects'"),
    ("t.toml", "[tasks]", "{path}: tasks is {{}}; it must be a list of tasks ([[tasks]] in TOML)"),
    ("t.yaml", "projects: [a]", "{path}: projects is ['a']; it must be a table of projects"),
    ("t.yaml", "projects: {1: {}}", "{path}: project is 1; it must be a text"),
    ("t.yaml", "projects: {p: 5}", "{path}: project p: the table is 5; it is wrong: expected object, got int"),
    ("t.yaml", "projects: {'a b': {}}", "{path}: project a b: project is 'a b'; it must be letters"),
    ("t.yaml", "projects: {p: {weight: 0}}", "project p: weight is 0.0; it must be from 0.001 to 1000"),
    ("t.yaml", "projects: {p: {max_running: 0}}", "project p: max_running is 0; it must be from 1 to 1000000"),
    ("t.yaml", "projects: {p: {max_queued: many}}", "project p: max_queued is 'many'; it is wrong: expected int"),
    ("t.yaml", "projects: {p: {tags: {a: 0}}}", "project p: tags.a is 0; it must be from 1 to 1000000"),
    ("t.yaml", "projects: {p: {tags: {a b: 1}}}", "project p: tag is 'a b'; it must be letters"),
    (
        "t.yaml",
        "projects: {p: {tags: {a: {max: 1}}}}",
        "is {{'a': {{'max': 1}}}}; it is wrong: expected int, got object",
    ),
    ("t.yaml", "projects: {p: {wait: 1}}", "it is wrong: object contains unknown field wait"),
    ("t.yaml", "tasks: [5]", "{path}: task 1 is 5; it must be a table"),
    ("t.yaml", "tasks: [{kind: noop}]", "{path}: task 1: the table is {{'kind': 'noop'}}; it is wrong: object missing"),
    (
        "t.yaml",
        "tasks: [{name: a, kind: noop}, {name: b, kind: noop}, {name: a, kind: noop}]",
        "{path}: task is 'default/a'; a task may be defined once",
    ),
]


@for_each(("name", "text", "said"), WRONG_FILES)
def test_a_wrong_file_is_refused_in_one_sentence(tmp_path: Path, name: str, text: str | bytes, said: str) -> None:
    path = written(tmp_path, text, name)
    with pytest.raises(Invalid) as refused:
        taskfile.load(path)
    sentence = str(refused.value)
    assert said.format(path=path)[:100] in sentence
    assert "\n" not in sentence


def test_a_key_may_be_in_a_map_and_in_one_that_is_merged_into_it(tmp_path: Path) -> None:
    text = "tasks: [&a {name: a, kind: noop, priority: 1}, {<<: *a, name: b}]"
    assert [task.name for task in taskfile.load(written(tmp_path, text, "t.yaml")).tasks] == ["a", "b"]


def test_what_is_no_file_or_too_large_is_refused_at_once(tmp_path: Path) -> None:
    pipe, folder, large = tmp_path / "pipe.yaml", tmp_path / "folder.yaml", tmp_path / "large.yaml"
    os.mkfifo(pipe)
    folder.mkdir()
    large.touch()
    os.truncate(large, 2**40)
    for path, said in ((pipe, "a pipe"), (folder, "Is a directory"), (large, "it has more than 16000000 bytes")):
        with pytest.raises(Invalid, match=f"task file is .*{path.name}'; it cannot be read: .*{said}"):
            taskfile.load(path)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match=r"task file is .*; it cannot be read: .*No such file"):
        taskfile.load(tmp_path / "none.toml")


WRONG_TASKS: list[tuple[dict[str, Any], str]] = [
    ({"name": ""}, "task name is ''; it must be letters, digits, '.', '_' or '-', at most 100"),
    ({"name": "a b"}, "task name is 'a b'; it must be letters"),
    ({"name": "-a"}, "starting with a letter or digit"),
    ({"name": "ä"}, "task name is 'ä'"),
    ({"name": "a/b"}, "task name is 'a/b'"),
    ({"name": "x" * 101}, "at most 100"),
    ({"name": "a\n"}, "task name is 'a\\n'"),
    ({"name": 5}, "name is 5; it is wrong: expected str, got int"),
    ({"project": "a b"}, "project is 'a b'; it must be letters"),
    ({"kind": ""}, "kind is ''; it must be letters"),
    ({"spec": []}, "spec is []; it is wrong: expected object, got array"),
    ({"params": {"a b": 1}}, "parameter is 'a b'; it must be a name of letters, digits and '_'"),
    ({"params": {"a": None}, "schedule": "@daily"}, "parameter a of default/t is None; a task that starts by itself"),
    ({"params": {"a": None}, "after": "x"}, "parameter a of default/t is None; a task that starts by itself"),
    ({"schedule": "sometimes"}, "the cron expression is 'sometimes'; it must have five fields"),
    ({"schedule": {"when": "@daily", "zone": "Mars"}}, "the time zone is 'Mars'"),
    ({"schedule": 5}, "the schedule is 5; it must be a text such as '@every 5m' or a table of settings"),
    ({"schedule": {"every_seconds": 5, "start_at": "soon"}}, "the date is 'soon'; it must be in ISO 8601"),
    ({"after": [{"task": "a", "on": "monday"}]}, "after[0].on is 'monday'; it is wrong: invalid enum value"),
    ({"after": ["a", "a"]}, "after is ['a', 'a']; a task may be named once"),
    ({"after": [5]}, "after[0] is 5; it is wrong: expected object, got int"),
    ({"after": 5}, "after is 5; it is wrong: expected array, got int"),
    ({"tags": ["a b"]}, "tag is 'a b'; it must be letters, digits, '.', '_', '=' or '-', at most 63"),
    ({"tags": "a"}, "tags is 'a'; it is wrong: expected array, got str"),
    ({"labels": ["x" * 64]}, "at most 63"),
    ({"tags": [f"t{number}" for number in range(101)]}, "tags is '101 of them'; there may be 100 at most"),
    ({"labels": ["x"] * 10_000}, "labels is '10000 of them'; there may be 100 at most"),
    ({"priority": 1001}, "priority is 1001; it must be from -1000 to 1000"),
    ({"priority": "high"}, "priority is 'high'; it is wrong: expected int, got str"),
    ({"priority": 1.5}, "priority is 1.5; it is wrong: expected int"),
    ({"timeout_seconds": -1}, "timeout_seconds is -1.0; it must be from 0 (none) to a year"),
    ({"timeout_seconds": float("nan")}, "timeout_seconds is nan"),
    ({"grace_seconds": 3601}, "grace_seconds is 3601.0; it must be from 0 to 3600"),
    ({"log_bytes": -1}, "log_bytes is -1; it must be from 0 to 1000000000"),
    ({"max_running": 0}, "max_running is 0; it must be from 1 to 1000000, or left out"),
    ({"retry": {"count": -1}}, "retry.count is -1; it must be from 0 to 1000"),
    ({"retry": {"delay_seconds": -1}}, "retry.delay_seconds is -1.0"),
    ({"retry": {"factor": 0.5}}, "retry.factor is 0.5; it must be from 1 to 100"),
    ({"retry": {"max_delay_seconds": 1e9}}, "retry.max_delay_seconds is 1000000000.0"),
    ({"retry": {"jitter": 2}}, "retry.jitter is 2.0; it must be from 0 to 1"),
    ({"retry": {"losses": 0}}, "retry.losses is 0; it must be from 1 to 100"),
    ({"retry": {"on": ["sunday"]}}, "retry.on is 'sunday'; it must be one of failed, timeout, lost"),
    ({"retry": {"times": 3}}, "retry is {'times': 3}; it is wrong: object contains unknown field times"),
    ({"dedup": {"params": ["a"]}}, "dedup.params is 'a'; it must be a parameter of the task"),
    ({"dedup": {"window_seconds": -1}}, "dedup.window_seconds is -1.0; it must be from 0 to a year"),
    ({"paused": "yes"}, "paused is 'yes'; it is wrong: expected bool, got str"),
    ({"colour": "blue"}, "it is wrong: object contains unknown field colour"),
]


@for_each(("fields", "said"), WRONG_TASKS)
def test_a_wrong_field_is_refused_with_its_place(fields: dict[str, Any], said: str) -> None:
    table = {"name": "t", "kind": "noop", **fields}
    with pytest.raises(Invalid) as refused:
        taskfile.task_from(table, "file: task 1")
    sentence = str(refused.value)
    assert sentence.startswith("file: task 1")
    assert said in sentence
    assert "\n" not in sentence


def test_what_is_nested_in_itself_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, "tasks: [&a {name: t, kind: noop, spec: *a}]", "t.yaml")
    with pytest.raises(Invalid, match="it may not hold itself"):
        taskfile.load(path)


def test_in_yaml_only_true_and_false_are_booleans(tmp_path: Path) -> None:
    text = "tasks: [{name: t, kind: noop, after: [{task: a, on: any}], paused: True, params: {a: yes, b: trueish}}]"
    (task,) = taskfile.load(written(tmp_path, text, "t.yaml")).tasks
    assert (task.after, task.paused, task.params) == ((UpstreamTask("a", "any"),), True, {"a": "yes", "b": "trueish"})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.dates() | st.binary(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8) | st.integers(), inner, max_size=3),
    max_leaves=8,
)
FIELDS = st.sampled_from([*Task.__struct_fields__, "typo"])


@settings(max_examples=500, deadline=None)
@given(st.dictionaries(FIELDS, JSON))
def test_any_table_is_a_task_or_invalid(fields: dict[str, Any]) -> None:
    try:
        taskfile.task_from({"name": "t", "kind": "noop", **fields}, "here")
    except Invalid as problem:
        refused = str(problem)
    else:
        return
    assert refused.startswith("here")


@settings(max_examples=300, deadline=None)
@given(JSON | st.fixed_dictionaries({}, optional={"tasks": JSON, "projects": JSON | st.dictionaries(st.text(), JSON)}))
def test_any_content_is_tasks_or_invalid(content: Any) -> None:
    try:
        taskfile.parse(content, "here")
    except Invalid as problem:
        refused = str(problem)
    else:
        return
    assert refused.startswith("here")
