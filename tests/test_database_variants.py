from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import Engine, event

from tests.database_variants import (
    ALWAYS,
    DATABASES,
    EXCEPTIONS,
    LIST,
    Check,
    Recorded,
    Selection,
    choose,
    complaints,
    cover,
    is_optional,
    judge,
    read_recordings,
    write_recording,
)
from tests.statement_recorder import Recorder, normalised
from tests.statement_sites import DATABASE_CODE, ENGINES, ROOT, function_at, lines_with_statements, written_sites
from weft.app import App
from weft.crawls import host_store
from weft.db.database import open_database
from weft.db.prepared import Ready
from weft.errors import NotFound
from weft.projects import store

SITE = next(
    site
    for line in lines_with_statements(Path(store.__file__).read_text())
    if function_at(site := f"src/weft/projects/store.py:{line}") == "current"
)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("SELECT a FROM t WHERE id IN (?)", "SELECT a\nFROM t WHERE id IN (?, ?, ?)"),
        ("a IN (%(id_1_1)s::BIGINT)", "a IN (%(id_1_1)s::BIGINT, %(id_1_2)s::BIGINT)"),
        ("a IN (__[POSTCOMPILE_ids])", "a IN (%s, %s)"),
        ("a = %(name_1)s", "a = %(name_12)s"),
        ("INSERT INTO t (a, b) VALUES (%s, now(%s))", "INSERT INTO t (a, b) VALUES (%s, now(%s)), (%s, now(%s))"),
        ("(SELECT a FROM t WHERE b = %s)", "(SELECT a FROM t WHERE b = %s) UNION ALL (SELECT a FROM t WHERE b = %s)"),
        ("WHERE (a = ? AND b = ?)", "WHERE (a = ? AND b = ?) OR (a = ? AND b = ?)"),
        ("SAVEPOINT sa_savepoint_1", "SAVEPOINT sa_savepoint_23"),
        ("SELECT NEXTVAL(run_ids) FROM seq_1_to_1", "SELECT NEXTVAL(run_ids) FROM seq_1_to_500"),
    ],
)
def test_a_statement_is_the_same_however_many_values_it_has(one: str, other: str) -> None:
    assert normalised(one) == normalised(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("SELECT a FROM t", "SELECT a FROM t FOR UPDATE"),
        ("SELECT a FROM t WHERE b = ?", "SELECT a FROM t WHERE c = ?"),
        ("a = %(a)s::BIGINT", "a = %(a)s::VARCHAR"),
        ("(SELECT a FROM t) UNION ALL (SELECT b FROM t)", "(SELECT a FROM t)"),
    ],
)
def test_statements_that_differ_in_more_stay_different(one: str, other: str) -> None:
    assert normalised(one) != normalised(other)


def test_the_cheapest_tests_that_execute_everything_are_chosen() -> None:
    wanted = {"slow": {"a", "b"}, "quick": {"a", "b"}, "only": {"c"}, "nothing": set[str]()}
    assert cover(wanted, {"slow": 9.0, "quick": 1.0, "only": 5.0, "nothing": 0.0}) == {"quick", "only"}


def test_what_later_choices_made_superfluous_is_not_chosen() -> None:
    wanted = {"cheap": {"a", "b"}, "first": {"a", "c"}, "second": {"b", "d"}}
    assert cover(wanted, {"cheap": 0.1, "first": 1.0, "second": 1.0}) == {"first", "second"}


def test_only_what_no_other_test_executes_on_a_server_is_chosen_for() -> None:
    tests = {
        "always": Recorded(1.0, False, {"postgres": {"a"}}),
        "known[postgres]": Recorded(1.0, True, {"postgres": {"a"}}),
        "new[postgres]": Recorded(1.0, True, {"postgres": {"a", "b"}}),
        "known[mariadb]": Recorded(1.0, True, {"mariadb": {"a"}}),
    }
    assert choose(tests) == ["known[mariadb]", "new[postgres]"]


def test_what_only_one_of_two_recordings_shows_is_chance(tmp_path: Path) -> None:
    for folder, found in (("one", ["a", "b"]), ("two", ["b", "c"])):
        evidence = {"test[postgres]": {"seconds": 1.0, "executed": {"postgres": found}}}
        write_recording(tmp_path / folder / "gw0.json", evidence, {"test[postgres]"})
    tests = read_recordings([tmp_path / "one", tmp_path / "two"])
    assert tests == {"test[postgres]": Recorded(1.0, True, {"postgres": {"b"}})}


on_all_databases = pytest.mark.parametrize("database_kind", DATABASES, indirect=True)


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorder]:
    monkeypatch.setattr(Ready, "bound", Ready.bound)
    recorder = Recorder(texts=True)
    recorder.listen()
    yield recorder
    event.remove(Engine, "before_cursor_execute", recorder.before_cursor_execute)


@on_all_databases
async def test_a_statement_is_recorded_with_the_line_of_weft_that_executes_it(
    recorder: Recorder, database_kind: str, database_url: str
) -> None:
    db = open_database(database_url)
    await db.read(lambda tx: store.current(tx, "shop"))
    db.close()
    assert [function_at(site) for site in outside_database_code(recorder, database_kind)] == ["current"]
    assert outside_database_code(recorder, database_kind) <= written_sites()


@on_all_databases
async def test_a_statement_for_the_driver_alone_is_recorded_too(
    recorder: Recorder, database_kind: str, database_url: str
) -> None:
    db = open_database(database_url)
    await db.transact(lambda tx: host_store.ids_of(tx, ["site.example"]))
    db.close()
    assert "ids_of" in {function_at(site) for site in outside_database_code(recorder, database_kind)}


@on_all_databases
async def test_what_a_database_does_to_begin_a_transaction_is_not_the_doing_of_who_reads(
    app: App, recorder: Recorder, database_kind: str
) -> None:
    with pytest.raises(NotFound):
        await app.crawls.project_of(1)
    assert {site.partition(":")[0] for site in outside_database_code(recorder, database_kind)} == {
        "src/weft/crawls/store.py"
    }


def outside_database_code(recorder: Recorder, kind: str) -> set[str]:
    return {site for site in recorder.sites[kind] if not site.startswith(DATABASE_CODE)}


def test_the_files_that_execute_statements_on_their_own_account_exist() -> None:
    assert [path for path in ENGINES if not (ROOT / path).is_file()] == []


def test_the_source_shows_which_lines_execute_statements() -> None:
    source = """
from weft.db.bulk import insert_many, skip_locked
from weft.runs import list_store

def several(tx):
    tx.execute(a)
    found = tx.rows(
        b
    )
    QUESTION.rows(tx, c)
    _ready().run(tx, d)
    insert_many(tx, table, rows)
    skip_locked(query)
    list_store.rows(tx)
    tx.after_commit(e)
    row.value(f)
"""
    lines = source.splitlines()
    executing = [lines[number - 1].split("(")[0].split()[-1] for number in sorted(lines_with_statements(source))]
    assert executing == ["tx.execute", "tx.rows", "QUESTION.rows", "_ready", "insert_many"]


def on_all(site: str, test: str = "") -> dict[str, dict[str, str]]:
    return {kind: {site: test} for kind in DATABASES}


def test_a_line_that_was_executed_on_every_database_is_well() -> None:
    assert complaints(on_all(SITE), {SITE}, DATABASES) == []


def test_a_line_that_one_database_never_executed_is_named_with_what_to_do() -> None:
    test = "tests/projects/test_projects.py::test_one[sqlite-a]"
    sites = on_all(SITE, test) | {"mariadb": {}}
    (sentence,) = complaints(sites, {SITE}, DATABASES)
    assert sentence == (
        f"{SITE} (current) was not executed on mariadb: add tests/projects/test_projects.py::test_one[mariadb-a] to "
        "tests/database_variants.txt, or choose anew with: python -m tests.database_variants record"
    )


def test_a_line_that_only_tests_of_one_database_reach_is_named() -> None:
    (sentence,) = complaints({"sqlite": {SITE: ""}}, set(), DATABASES)
    assert sentence == (
        f"{SITE} (current) was not executed on postgres and mariadb: "
        "let one of the tests that reach it elsewhere run on every database"
    )


def test_a_line_that_no_test_executes_is_named() -> None:
    (sentence,) = complaints({}, {SITE}, DATABASES)
    assert sentence == f"{SITE} (current) executes SQL, but in no test: write one that reaches it on every database"


def test_what_differs_between_databases_is_an_exception() -> None:
    assert complaints({"sqlite": {"src/weft/db/sqlite.py:1": ""}}, set(), DATABASES) == []


@pytest.mark.parametrize("name", EXCEPTIONS)
def test_an_exception_names_what_exists_and_why(name: str) -> None:
    path, _, function = name.partition(":")
    assert (ROOT / path).exists()
    assert not function or function in {function_at(site) for site in written_sites()}
    assert set(EXCEPTIONS[name][0]) <= set(DATABASES)
    assert EXCEPTIONS[name][1]


def finished(request: pytest.FixtureRequest, reports: list[dict[str, Any]]) -> Any:
    session: Any = SimpleNamespace(exitstatus=pytest.ExitCode.OK)
    check = Check(request.config, Recorder(texts=False), Selection(request.config, ()))
    check.conclude(session, reports)
    return session.exitstatus


def test_a_whole_run_fails_for_a_statement_that_one_database_never_executed(request: pytest.FixtureRequest) -> None:
    everywhere = {kind: dict.fromkeys(written_sites(), "") for kind in DATABASES}
    report = {"sites": everywhere, "unknown": [], "is_whole": True}
    assert finished(request, [report]) == pytest.ExitCode.OK
    del everywhere["postgres"][sorted(written_sites())[0]]
    assert finished(request, [report]) == pytest.ExitCode.TESTS_FAILED
    assert finished(request, [report | {"is_whole": False}]) == pytest.ExitCode.OK


def test_processes_execute_statements_for_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    reports = [
        {"sites": {kind: dict.fromkeys(written_sites(), "")}, "unknown": [], "is_whole": True} for kind in DATABASES
    ]
    assert judge(reports) == []
    assert judge(reports[:2])


def test_a_server_that_is_not_installed_is_missed_in_ci_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    assert judge([{"sites": {"sqlite": dict.fromkeys(written_sites(), "")}, "unknown": [], "is_whole": True}]) == []


def test_a_line_of_the_list_that_names_no_test_is_stale() -> None:
    everywhere = {kind: dict.fromkeys(written_sites(), "") for kind in DATABASES}
    (sentence,) = judge([{"sites": everywhere, "unknown": ["tests/a.py::test_gone[postgres]"], "is_whole": True}])
    assert sentence == (
        "tests/database_variants.txt names tests/a.py::test_gone[postgres], which is not a test on that database: "
        "remove the line, or choose anew with: python -m tests.database_variants record"
    )


def test_the_list_is_sorted_and_names_no_test_that_runs_anyway() -> None:
    lines = LIST.read_text().splitlines()
    assert lines == sorted(set(lines))
    assert not [line for line in lines if line.startswith(ALWAYS)]


async def test_a_test_on_a_server_runs_only_where_it_must(request: pytest.FixtureRequest, database_kind: str) -> None:
    """Of this test itself, whose variants nothing needs."""
    assert database_kind == "sqlite" or request.config.getoption("all_databases") or is_named(request)


def is_named(request: pytest.FixtureRequest) -> bool:
    return request.node.nodeid in request.config.args


@pytest.mark.parametrize("database_kind", ["postgres"], indirect=True)
def test_a_test_for_one_server_stays(request: pytest.FixtureRequest, database_kind: str) -> None:
    assert not is_optional(request.node)
