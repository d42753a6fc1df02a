"""Which tests run on PostgreSQL and MariaDB as well as on SQLite.

Those in ``ALWAYS`` do. Of the others, ``database_variants.txt`` names the cheapest set that executes every statement on
each kind of database; ``--all-databases`` runs them all. The set is chosen from recorded runs:

    python -m tests.database_variants record           run all tests on all databases, then choose (15 minutes)
    python -m tests.database_variants choose FOLDER…   choose from runs with pytest --all-databases --record-statements

A run of all tests fails where a line that executes SQL was not executed on one of the databases.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.statement_recorder import Recorder, normalised, runs_on_any_database
from tests.statement_sites import ROOT, function_at, written_sites

ALWAYS = ("tests/contracts/", "tests/counters/", "tests/db/", "tests/runs/", "tests/tasks/")
DATABASES = ("sqlite", "postgres", "mariadb")
SERVERS = DATABASES[1:]
LIST = Path(__file__).with_suffix(".txt")
REPAIR = "python -m tests.database_variants record"

ONE_STEP = "PostgreSQL does the same in one statement, which another function has"
EXCEPTIONS: dict[str, tuple[tuple[str, ...], str]] = {
    "src/weft/db/": (DATABASES, "differs between databases on purpose; tests/db always runs on all of them"),
    "src/weft/events.py:append": (("postgres",), ONE_STEP),
    "src/weft/events.py:_append_in_one_step": (("sqlite", "mariadb"), "is for PostgreSQL alone"),
    "src/weft/runs/lease_store.py:take": (("postgres",), ONE_STEP),
    "src/weft/runs/lease_store.py:_claim_all": (("postgres",), ONE_STEP),
    "src/weft/runs/lease_store.py:_claim_for_many": (("postgres",), ONE_STEP),
    "src/weft/runs/lease_store.py:_take_in_one_step": (("sqlite", "mariadb"), "is for PostgreSQL alone"),
}
"""Folders, files and functions whose lines these databases need not execute, and why."""

Sites = Mapping[str, Mapping[str, str]]
"""The lines that were executed on each kind of database, each with a test that can do so on any, where there is one."""


@dataclass
class Recorded:
    """One test: whether the list decides about it, and the lines and statements that it executed on each database."""

    seconds: float
    optional: bool
    executed: dict[str, set[str]] = field(default_factory=dict)


def read_recordings(folders: Iterable[Path]) -> dict[str, Recorded]:
    """What is recorded of each test; of several runs only what was executed in each, since the rest is chance."""
    tests: dict[str, Recorded] = {}
    for folder in folders:
        for file in sorted(folder.glob("*.json")):
            content = json.loads(file.read_text())
            names = [normalised(name) for name in content["names"]]
            for test, told in content["tests"].items():
                executed = {kind: {names[at] for at in found} for kind, found in told["executed"].items()}
                before = tests.setdefault(test, Recorded(told["seconds"], told["optional"], executed))
                before.executed = {kind: found & executed.get(kind, set()) for kind, found in before.executed.items()}
    return tests


def write_recording(file: Path, evidence: Mapping[str, Mapping[str, Any]], optional: Collection[str]) -> None:
    names: dict[str, int] = {}
    tests = {}
    for test, told in evidence.items():
        executed = {
            kind: [names.setdefault(name, len(names)) for name in found] for kind, found in told["executed"].items()
        }
        tests[test] = {"seconds": told["seconds"], "optional": test in optional, "executed": executed}
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"names": list(names), "tests": tests}))


def choose(tests: Mapping[str, Recorded]) -> list[str]:
    """The cheapest optional tests that execute on each server what no other test executes there."""
    chosen: set[str] = set()
    for kind in SERVERS:
        done: set[str] = set()
        for test in tests.values():
            done |= set() if test.optional else test.executed.get(kind, set())
        optional = {name: test for name, test in tests.items() if test.optional}
        wanted = {name: test.executed[kind] - done for name, test in optional.items() if kind in test.executed}
        chosen |= cover(wanted, {name: test.seconds for name, test in optional.items()})
    return sorted(chosen)


def cover(wanted: Mapping[str, set[str]], seconds: Mapping[str, float]) -> set[str]:
    """Few tests that execute together what all of them execute: the one first that adds most for its time."""
    missing = set().union(*wanted.values())
    left = dict(wanted)
    chosen: list[str] = []
    while missing:
        left = {name: found & missing for name, found in left.items() if found & missing}
        best = min(left, key=lambda name: (seconds[name] / len(left[name]), name))
        missing -= left.pop(best)
        chosen.append(best)
    for name in sorted(chosen, key=lambda name: (-seconds[name], name)):
        others = set().union(*(wanted[other] for other in chosen if other != name))
        if wanted[name] <= others:
            chosen.remove(name)
    return set(chosen)


def complaints(sites: Sites, written: Collection[str], databases: Sequence[str]) -> list[str]:
    """A sentence for each line that was not executed on one of these databases."""
    found = []
    executed = {site for kind in databases for site in sites.get(kind, {})}
    for site in sorted(executed | set(written), key=_by_line):
        tests = [sites[kind][site] for kind in databases if site in sites.get(kind, {})]
        missing = [kind for kind in databases if site not in sites.get(kind, {}) and kind not in excused(site)]
        if missing:
            found.append(_complaint(site, missing, tests))
    return found


def excused(site: str) -> tuple[str, ...]:
    """The databases that need not execute this line."""
    function = f"{site.rpartition(':')[0]}:{function_at(site)}"
    return next((kinds for name, (kinds, _) in EXCEPTIONS.items() if covers(name, function)), ())


def covers(name: str, function: str) -> bool:
    return function == name or (":" not in name and function.startswith(name))


def _complaint(site: str, missing: Sequence[str], tests: Sequence[str]) -> str:
    where = f"{site} ({function_at(site)})"
    if not tests:
        return f"{where} executes SQL, but in no test: write one that reaches it on every database"
    reached = f"{where} was not executed on {' and '.join(missing)}"
    if not (known := next(filter(None, tests), "")):
        return f"{reached}: let one of the tests that reach it elsewhere run on every database"
    variants = [re.sub(rf"(?<=[\[-])({'|'.join(DATABASES)})(?=[]-])", kind, known, count=1) for kind in missing]
    return f"{reached}: add {' and '.join(variants)} to {LIST.relative_to(ROOT)}, or choose anew with: {REPAIR}"


def _by_line(site: str) -> tuple[str, int]:
    path, _, line = site.rpartition(":")
    return path, int(line)


def listed() -> set[str]:
    return set(LIST.read_text().splitlines()) if LIST.exists() else set()


class Selection:
    """Leaves out those variants that are not listed, and tells whether a run has all tests."""

    def __init__(self, config: pytest.Config, listed: Collection[str]) -> None:
        self._listed = set(listed)
        self._named = set(config.args)
        self._all = bool(config.getoption("all_databases"))
        self.optional: set[str] = set()
        self.unknown: list[str] = []
        self.is_whole = False

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        self.optional = {item.nodeid for item in items if is_optional(item)}
        self.is_whole = is_whole(config, items)
        self.unknown = sorted(self._listed - self.optional)
        if self._all:
            return
        left_out = self.optional - self._listed - self._named
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in left_out])
        items[:] = [item for item in items if item.nodeid not in left_out]


def is_optional(item: pytest.Item) -> bool:
    """Whether the list decides about this test: it runs on a server, and on SQLite as well."""
    if item.nodeid.startswith(ALWAYS) or not runs_on_any_database(item):
        return False
    return item.callspec.params["database_kind"] in SERVERS  # type: ignore[attr-defined]


def is_whole(config: pytest.Config, items: Iterable[pytest.Item]) -> bool:
    """Whether these are tests of every file but those of experiments, and nothing has narrowed them."""
    if config.getoption("collectonly") or config.getoption("keyword") or config.getoption("deselect"):
        return False
    if config.getoption("lf", False):
        return False
    if config.getoption("markexpr") not in ("", "not alone and not quiet") or any("::" in name for name in config.args):
        return False
    collected = {item.path for item in items}
    files = {file for file in (ROOT / "tests").rglob("test_*.py") if "experiments" not in file.parts}
    return files <= collected


class Check:
    """Fails a run of all tests where a statement was not executed on every database, or the list names no test."""

    def __init__(self, config: pytest.Config, recorder: Recorder, selection: Selection) -> None:
        self._config, self._recorder, self._selection = config, recorder, selection
        self._reports: list[dict[str, Any]] = []
        self._complaints: list[str] = []

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        report = {
            "sites": self._recorder.sites,
            "unknown": self._selection.unknown,
            "is_whole": self._selection.is_whole,
        }
        folder = self._config.getoption("record_statements")
        if folder and self._recorder.evidence:
            name = os.environ.get("PYTEST_XDIST_WORKER", "all")
            write_recording(Path(folder) / f"{name}.json", self._recorder.evidence, self._selection.optional)
        if hasattr(self._config, "workeroutput"):
            self._config.workeroutput["database_variants"] = report
            return
        self.conclude(session, self._reports or [report])

    def conclude(self, session: pytest.Session, reports: Sequence[Mapping[str, Any]]) -> None:
        if session.exitstatus == pytest.ExitCode.OK and all(each["is_whole"] for each in reports):
            self._complaints = judge(reports)
        if self._complaints:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self._reports.append(getattr(node, "workeroutput", {}).get("database_variants", {"is_whole": False}))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._complaints:
            terminalreporter.section("statements that were not executed on every database", red=True)
            for sentence in self._complaints:
                terminalreporter.line(sentence)


def judge(reports: Sequence[Mapping[str, Any]]) -> list[str]:
    """What is wrong after all processes of a run have told what they executed."""
    sites: dict[str, dict[str, str]] = {kind: {} for kind in DATABASES}
    for report in reports:
        for kind, found in report["sites"].items():
            sites[kind].update(found)
    in_ci = os.environ.get("CI") == "true"
    databases = [kind for kind in DATABASES if sites[kind] or in_ci]  # a laptop may lack a server
    stale = [
        f"{LIST.relative_to(ROOT)} names {test}, which is not a test on that database: "
        f"remove the line, or choose anew with: {REPAIR}"
        for test in reports[0]["unknown"]
    ]
    return stale + complaints(sites, written_sites(), databases)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all-databases", action="store_true", help="Run every database test on all databases.")
    parser.addoption("--record-statements", metavar="FOLDER", help="Write what SQL each test executes to FOLDER.")


def pytest_configure(config: pytest.Config) -> None:
    recorder = Recorder(texts=bool(config.getoption("record_statements")))
    recorder.listen()
    selection = Selection(config, listed())
    for plugin in (recorder, selection, Check(config, recorder, selection)):
        config.pluginmanager.register(plugin)


def main(arguments: Sequence[str]) -> int:
    match arguments:
        case ["record"]:
            with tempfile.TemporaryDirectory() as folder:
                record = ["-k", " or ".join(SERVERS), "--all-databases", f"--record-statements={folder}"]
                subprocess.call([sys.executable, "-m", "pytest", "-n", "3", *record], cwd=ROOT)
                return _write_choice([Path(folder)])
        case ["choose", *folders] if folders:
            return _write_choice([Path(folder) for folder in folders])
    print(__doc__)  # noqa: T201
    return 2


def _write_choice(folders: Sequence[Path]) -> int:
    tests = read_recordings(folders)
    chosen = choose(tests)
    LIST.write_text("".join(f"{test}\n" for test in chosen))
    optional = {name: test.seconds for name, test in tests.items() if test.optional}
    kept = sum(optional[name] for name in chosen)
    print(  # noqa: T201
        f"chose {len(chosen)} of {len(optional)} variants; they take {kept:.0f} of {sum(optional.values()):.0f} seconds"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
