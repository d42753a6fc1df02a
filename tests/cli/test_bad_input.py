"""Every wrong name, number, parameter, variable and file: one sentence, the right exit code, and nothing stored."""

from pathlib import Path

import pytest

from tests.cases import for_each
from tests.cli.commanding import Shell, weft
from tests.projects.making import project, written

TASKS = """
tasks:
  - {name: greet, kind: shell, spec: {argv: [echo, "{{who}}"]}, params: {who: you, times: 3, where: null}}
  - {name: nightly, kind: noop, schedule: "30 2 * * *"}
"""
SUBMIT = ("runs", "submit", "--kind", "noop", "--spec", "{}")
NAME = "it must be letters, digits, '.', '_' or '-', at most 100, starting with a letter or digit"
LABEL = "it must be letters, digits, '.', '_', '=' or '-', at most 63"
ID = "it must be a whole number from 1 to 9223372036854775807"

WRONG = [
    (
        ["fly"],
        "a command of weft is 'fly'; it must be up, serve, worker, run, crawl, crawls, deploy, versions, spiders, "
        "tasks, runs, items, datasets, destinations, proxies, submit, dead-letters, workers, users, keys, webhooks, "
        "guest-links, "
        "top, login, context, secrets, audit, import, config or doctor",
    ),
    (
        ["runs", "fly"],
        "a command of weft runs is 'fly'; it must be list, show, pause, resume, cancel, again, log, wait or submit",
    ),
    (["runs", "list", "--sate", "x"], "No such option: --sate (Possible options: --state)"),
    (["runs", "show"], "Missing argument 'ID'"),
    (["runs", "show", "one"], f"the number of a run is 'one'; {ID}"),
    (["runs", "show", "0"], f"the number of a run is '0'; {ID}"),
    (["runs", "show", "9" * 19], f"the number of a run is '{'9' * 19}'; {ID}"),
    (["runs", "show", "²"], f"the number of a run is '²'; {ID}"),
    (["runs", "list", "--limit", "0"], "--limit is '0'; it must be a whole number from 1 to 10000"),
    (["runs", "list", "--before", "x"], f"the number of a run is 'x'; {ID}"),
    (["runs", "list", "--state", "done"], "--state is 'done'; it must be one of queued, paused, running, succeeded"),
    (["runs", "list", "--task", "/x"], "the name of a task is '/x'; it must be task or project/task"),
    (["runs", "wait", "1", "--wait-timeout", "soon"], "--wait-timeout is 'soon'; it must be a number from 0 to"),
    (["runs", "wait", "1", "--wait-timeout", "nan"], "--wait-timeout is 'nan'; it must be a number from 0 to"),
    (["runs", "log", "1", "-f", "--attempt", "1"], "--attempt is 1; it cannot be followed; leave one of --follow and"),
    (
        ["runs", "submit", "--kind", "noop", "--spec", "{"],
        "--spec is '{'; it must be a JSON object (Input data was truncated",
    ),
    (["runs", "submit", "--kind", "noop", "--spec", "[]"], "--spec is '[]'; it must be a JSON object"),
    (
        ["runs", "submit", "--kind", "nop", "--spec", "{}"],
        "kind is 'nop'; it must be crawl, http, noop, shell or spider",
    ),
    (
        ["runs", "submit", "--kind", "shell", "--spec", "{}"],
        "the spec of shell is []; it must have exactly one of argv",
    ),
    (["runs", "submit", "--kind", "shell", "--spec", '{"agv": 1}'], "a field of shell is 'agv'; the fields of shell"),
    ([*SUBMIT, "--worker-label", "a b"], f"the run (noop): label is 'a b'; {LABEL}"),
    ([*SUBMIT, "--tag", ""], f"the run (noop): tag is ''; {LABEL}"),
    ([*SUBMIT, "--name", "a/b"], f"the run (a/b): task name is 'a/b'; {NAME}"),
    ([*SUBMIT, "--project", "a b"], f"the run (noop): project is 'a b'; {NAME}"),
    ([*SUBMIT, "--priority", "high"], "--priority is 'high'; it must be a whole number from -1000 to 1000"),
    ([*SUBMIT, "--priority", "2000"], "--priority is '2000'; it must be a whole number from -1000 to 1000"),
    ([*SUBMIT, "--timeout", "-1"], "--timeout is '-1'; it must be a number from 0 to"),
    ([*SUBMIT, "--retries", "-1"], "--retries is '-1'; it must be a whole number from 0 to 1000"),
    ([*SUBMIT, "--idempotency-key", "k" * 201], "it must be a text of 1 to 200 characters that print"),
    (
        [*SUBMIT, "--idempotency-key", ""],
        "--idempotency-key is ''; it must be a text of 1 to 200 characters that print",
    ),
    (["tasks", "show", ""], "the name of a task is ''; it must be task or project/task"),
    (["tasks", "show", "a/"], "the name of a task is 'a/'; it must be task or project/task"),
    (["tasks", "run", "greet"], "parameter where of default/greet is None; it has no default, so it must be given"),
    (["tasks", "run", "greet", "-p", "x"], "--param is 'x'; it must be NAME=VALUE"),
    (["tasks", "run", "greet", "-p", "=1"], "--param is '=1'; it must be NAME=VALUE"),
    (
        ["tasks", "run", "greet", "-p", "x=1"],
        "parameter of default/greet is 'x'; the task has these: times, where, who",
    ),
    (["tasks", "run", "greet", "-p", "times=many"], "parameter times is 'many'; it must be of the type of its default"),
    (["tasks", "backfill", "nightly", "--from", "x", "--to", "2026-01-01"], "--from is 'x'; it must be in ISO 8601"),
    (["tasks", "backfill", "nightly", "--from", "2026-01-02", "--to", "2026-01-01"], "--from is '2026-01-02'; it must"),
    (["tasks", "backfill", "nightly", "--from", "2026-01-02", "--to", "2999-01-01"], "it must be in the past"),
    (["tasks", "backfill", "nightly", "--from", "2026-01-02"], "Missing option '--to'"),
    (["top", "--interval", "0"], "--interval is '0'; it must be a number from 0.1 to 3600"),
]


@pytest.fixture
def with_tasks(shell: Shell) -> Shell:
    shell.apply(TASKS, "--yes")
    return shell


@for_each(("args", "sentence"), WRONG, ids=[" ".join(args)[:60] for args, _ in WRONG])
def test_what_is_asked_wrongly_is_refused_with_one_sentence(with_tasks: Shell, args: list[str], sentence: str) -> None:
    answer = with_tasks(*args)
    assert sentence in answer.err
    assert (answer.code, answer.out, answer.err.count("\n")) == (2, "", 1)
    assert with_tasks.document("runs", "list") == []


UNKNOWN = [
    (["runs", "show", "7"], "there is no run 7"),
    (["runs", "log", "7"], "there is no run 7"),
    (["runs", "wait", "7"], "there is no run 7"),
    (["runs", "cancel", "7"], "there is no run 7"),
    (["tasks", "show", "x"], "there is no task default/x"),
    (["tasks", "run", "shop/x"], "there is no task shop/x"),
    (["tasks", "pause", "x"], "there is no task default/x"),
    (["tasks", "resume", "x"], "there is no task default/x"),
    (["tasks", "next", "x"], "there is no task default/x"),
    (["tasks", "delete", "x", "--yes"], "there is no task default/x"),
    (["tasks", "show", "x\x1b[31m\n"], r"there is no task default/x\x1b[31m"),
    (["tasks", "backfill", "greet", "--from", "2026-01-01", "--to", "2026-01-02"], "has no schedule, so there is"),
    (["workers", "show", "x"], "there is no worker x"),
]


@for_each(("args", "sentence"), UNKNOWN, ids=[" ".join(args[:3]) for args, _ in UNKNOWN])
def test_what_is_not_there_is_told_with_one_sentence(with_tasks: Shell, args: list[str], sentence: str) -> None:
    answer = with_tasks(*args)
    assert sentence in answer.err
    assert (answer.code, answer.out, answer.err.count("\n")) == (1, "", 1)


def task(fields: str) -> str:
    return f"tasks: [{{name: a, kind: noop, {fields}}}]"


FILES = [
    ("[", "tasks.yaml'; it is not YAML: "),
    ("- 1", "tasks.yaml is [1]; it must be a table with 'tasks' and 'projects'"),
    ("task: []", "tasks.yaml: a table is 'task'; it must be 'tasks' or 'projects'"),
    ("tasks: {a: 1}", "tasks.yaml: tasks is {'a': 1}; it must be a list of tasks"),
    (
        "tasks: [{kind: noop}]",
        "tasks.yaml: task 1: the table is {'kind': 'noop'}; it is wrong: object missing required field name",
    ),
    (
        "tasks: [{name: a}]",
        "tasks.yaml: task 1 (a): the table is {'name': 'a'}; it is wrong: object missing required field kind",
    ),
    ("tasks: [{name: a, kind: nop}]", "kind is 'nop'; it must be crawl, http, noop, shell or spider"),
    ("tasks: [{name: 'a b', kind: noop}]", f"tasks.yaml: task 1 (a b): task name is 'a b'; {NAME}"),
    ("tasks: [{name: a, kind: noop}, {name: a, kind: noop}]", "tasks.yaml: task is 'default/a'; a task may be defined"),
    (task("scheduel: x"), "it is wrong: object contains unknown field scheduel"),
    (task("project: 'a b'"), f"tasks.yaml: task 1 (a): project is 'a b'; {NAME}"),
    (task("labels: ['a b']"), f"tasks.yaml: task 1 (a): label is 'a b'; {LABEL}"),
    (task("tags: ['?']"), f"tasks.yaml: task 1 (a): tag is '?'; {LABEL}"),
    (task("priority: 9999"), "tasks.yaml: task 1 (a): priority is 9999; it must be from -1000 to 1000"),
    (task("priority: high"), "tasks.yaml: task 1 (a): priority is 'high'; it is wrong: expected int, got str"),
    (task("timeout_seconds: -1"), "tasks.yaml: task 1 (a): timeout_seconds is -1.0; it must be from 0 (none) to"),
    (task("retry: {count: -1}"), "tasks.yaml: task 1 (a): retry.count is -1; it must be from 0 to 1000"),
    (task("retry: {on: [never]}"), "tasks.yaml: task 1 (a): retry.on is 'never'; it must be one of"),
    (task("max_running: 0"), "tasks.yaml: task 1 (a): max_running is 0; it must be from 1 to 1000000, or left out"),
    (task("params: {'a b': 1}"), "tasks.yaml: task 1 (a): parameter is 'a b'; it must be a name of letters"),
    (task("dedup: {params: [b]}"), "tasks.yaml: task 1 (a): dedup.params is 'b'; it must be a parameter of the task"),
    (task("after: b"), "after of default/a is 'b'; there is no such task"),
    (task("after: [b, b]"), "tasks.yaml: task 1 (a): after is ['b', 'b']; a task may be named once"),
    (
        task("after: [{task: b, on: never}]"),
        "tasks.yaml: task 1 (a): after[0].on is 'never'; it is wrong: invalid enum value 'never'",
    ),
    (task("spec: {sleep_seconds: -1}"), "sleep_seconds"),
    (task("spec: {slep: 1}"), "a field of noop is 'slep'; the fields of noop are sleep_seconds, fail"),
    ("tasks: [{name: a, kind: crawl, spec: {urls: ['http://x.example/']}}]", "fetching.contact: those"),
    (task("schedule: '61 * * * *'"), "tasks.yaml: task 1 (a): "),
    (task("schedule: '* * *'"), "tasks.yaml: task 1 (a): "),
    (task("schedule: '@every 5x'"), "the interval is '5x'; it must be a span such as 90s, 5m, 1h30m, 2d or 250ms"),
    (task("schedule: '@never'"), "the time of the schedule is '@never'; it must be one of @every 5m, @yearly"),
    (task("schedule: '2026-13-01'"), "the date is '2026-13-01'; it must be in ISO 8601"),
    (task("schedule: 5"), "the schedule is 5; it must be a text such as '@every 5m' or a table of settings"),
    (task("schedule: {cron: '* * * * *', every_seconds: 5}"), "it must have exactly one of"),
    (task("schedule: {when: '@daily', zone: Mars}"), "the time zone is 'Mars'; it must be an IANA time zone"),
    (task("schedule: {when: '@daily', overlap: maybe}"), "overlap of the schedule is 'maybe'; it must be one of"),
    (task("schedule: {when: '@daily', misfire: maybe}"), "misfire of the schedule is 'maybe'; it must be one of"),
    (task("schedule: {when: '@daily', catch_up_cap: 0}"), "catch_up_cap of the schedule is 0; it must be a whole"),
    ("projects: {'a b': {}}", f"tasks.yaml: project a b: project is 'a b'; {NAME}"),
    ("projects: {a: {weight: 0}}", "tasks.yaml: project a: weight is 0.0; it must be from 0.001 to 1000"),
    ("projects: {a: {max_queued: 0}}", "tasks.yaml: project a: max_queued is 0; it must be from 1 to 1000000"),
    ("projects: {a: {wieght: 1}}", "it is wrong: object contains unknown field wieght"),
]


@for_each(("content", "sentence"), FILES, ids=[content for content, _ in FILES])
def test_a_wrong_file_is_refused_whole_with_its_place(shell: Shell, content: str, sentence: str) -> None:
    good = "tasks: [{name: good, kind: noop}]"
    shell.apply(good, "--yes")
    answer = shell.apply(content, "--yes", "--prune")
    assert sentence in answer.err
    assert (answer.code, answer.err.count("\n")) == (2, 1)
    assert [each["name"] for each in shell.document("tasks", "list")] == ["good"]


def test_a_file_that_is_not_there_is_told(shell: Shell) -> None:
    answer = shell("tasks", "apply", "nothing.toml")
    assert answer.code == 2
    assert answer.err.startswith("task file is 'nothing.toml'; it cannot be read: ")


def test_a_file_that_is_not_toml_is_told(shell: Shell) -> None:
    answer = shell.apply("tasks = [", name="tasks.toml")
    assert answer.code == 2
    assert "tasks.toml'; it is not TOML: " in answer.err


def test_a_file_that_is_not_text_is_told(shell: Shell) -> None:
    file = shell.folder.parent / "tasks.yaml"
    file.write_bytes(b"\xff\xfe\x00")
    answer = shell("tasks", "apply", str(file))
    assert answer.code == 2
    assert "tasks.yaml'; it cannot be read: " in answer.err


VARIABLES = [
    ("WEFT_PORT", "x", "WEFT_PORT is 'x'; it must be a whole number"),
    ("WEFT_PORT", "70000", "port is 70000; it must be from 0 to 65535"),
    ("WEFT_PROT", "1", "WEFT_PROT is not a setting of weft; `weft config` lists them"),
    ("WEFT_CAPACITY", "0", "capacity is 0; it must be from 1 to 10000"),
    ("WEFT_LEASE_SECONDS", "soon", "WEFT_LEASE_SECONDS is 'soon'; it must be a number"),
    ("WEFT_HEARTBEAT_SECONDS", "10", "heartbeat_seconds is 10.0; it must be at most half of lease_seconds (15)"),
    ("WEFT_ALLOW_UNSAFE_DATABASE", "maybe", "WEFT_ALLOW_UNSAFE_DATABASE is 'maybe'; it must be true or false"),
    ("WEFT_DATABASE", "oracle://x", "database is 'oracle://x'; it must start with one of sqlite:, postgresql:, mysql:"),
    ("WEFT_DATABASE", "sqlite://x", "database is 'sqlite://x'; a SQLite URL is sqlite:/// and the path of a file"),
    ("WEFT_DATABASE", "postgresql://h:port/x", "it must be scheme://user:password@host:port/name"),
    ("WEFT_DATABASE_FILE", "/nothing", "WEFT_DATABASE_FILE is '/nothing'; the file cannot be read: No such file"),
    ("WEFT_BROKER", "kafka://x", "broker is 'kafka://x'; it must start with one of memory:, polling:, local:"),
    ("WEFT_BLOBS", "ftp://x", "blobs is 'ftp://x'; it must start with one of file:"),
    ("WEFT_LOG_LEVEL", "loud", "log_level is 'loud'; it must be one of debug, info, warning, error"),
    ("WEFT_CONFIG", "/", "/ cannot be read: "),
]


@for_each(("variable", "value", "sentence"), VARIABLES, ids=[f"{n}={v}" for n, v, _ in VARIABLES])
def test_a_wrong_variable_is_refused_as_a_wrong_set_up(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, sentence: str
) -> None:
    monkeypatch.setenv(variable, value)
    answer = shell("runs", "submit", "--kind", "noop", "--spec", "{}")
    assert sentence in answer.err
    assert (answer.code, answer.out, answer.err.count("\n")) == (78, "", 1)


SETTINGS = [
    ("port = 'x'", "bad.toml: port is 'x'; it must be a whole number"),
    ("port = 99999", "port is 99999; it must be from 0 to 65535"),
    ("prot = 1", "bad.toml: prot is not a setting of weft; `weft config` lists them"),
    ("port =", "bad.toml cannot be read: "),
    ("[port]\nx = 1", "bad.toml: port is {'x': 1}; it must be a whole number"),
]


@pytest.mark.parametrize(("content", "sentence"), SETTINGS, ids=[content for content, _ in SETTINGS])
def test_a_wrong_configuration_file_is_refused(shell: Shell, content: str, sentence: str) -> None:
    Path("bad.toml").write_text(content)
    answer = shell("--config", "bad.toml", "config")
    assert sentence in answer.err
    assert (answer.code, answer.out, answer.err.count("\n")) == (78, "", 1)


def test_a_configuration_file_that_was_named_must_be_there(shell: Shell) -> None:
    answer = shell("config", "--config", "nothing.toml")
    assert (answer.code, answer.err) == (78, "there is no configuration file nothing.toml\n")


MAKING_NOTHING = [
    ("runs", "list"),
    ("runs", "submit", "--kind", "noop", "--spec", "{}"),
    ("tasks", "apply", "tasks.yaml", "--yes"),
    ("deploy", "."),
    ("keys", "create", "--role", "viewer", "--everywhere"),
    ("secrets", "set", "password", "--project", "shop", "--file", "tasks.yaml"),
    ("worker", "stats"),
]


@pytest.mark.parametrize("words", MAKING_NOTHING, ids=" ".join)
def test_only_up_and_serve_create_a_database(newcomer: Shell, words: tuple[str, ...]) -> None:
    Path("tasks.yaml").write_text("tasks: [{name: fetch, kind: noop}]")
    written(Path.cwd(), project())
    answer = newcomer(*words)
    assert (answer.code, answer.out) == (78, "")
    missing = newcomer.folder / "weft.db"
    assert answer.err.startswith(f"no weft server found (there is no database {missing}): start one with `weft up`")
    assert not newcomer.folder.exists()


def test_a_directory_that_cannot_be_written_is_told(newcomer: Shell) -> None:
    newcomer.folder.write_text("a file")
    answer = newcomer("runs", "submit", "--kind", "noop", "--spec", "{}")
    assert (answer.code, answer.err.count("\n")) == (78, 1)
    assert str(newcomer.folder) in answer.err


def test_a_file_that_is_no_database_is_told(shell: Shell) -> None:
    (shell.folder / "weft.db").write_text("this is a letter to a friend, not a database")
    answer = shell("runs", "list")
    assert answer.code == 78
    assert "is not a database of SQLite" in answer.err
    assert answer.err.count("\n") == 1


def test_a_database_of_a_newer_weft_is_refused(shell: Shell) -> None:
    shell.apply("{}")
    shell.act(
        lambda app: app.db.transact(lambda tx: tx.connection.exec_driver_sql("UPDATE schema_version SET version = 99"))
    )
    answer = shell("runs", "list")
    assert answer.code == 78
    assert answer.err.startswith("the database has schema 99, this weft knows schemas up to ")


def test_a_database_that_does_not_answer_is_told_without_its_password(tmp_path: Path) -> None:
    url = "postgresql://me:hush@127.0.0.1:1/weft"
    answer = weft("runs", "list", cwd=tmp_path, env={"WEFT_DATABASE": url})
    assert answer.code == 1
    assert answer.err.startswith("the database does not answer (")
    assert answer.err.count("\n") == 1
    assert "hush" not in answer.err
