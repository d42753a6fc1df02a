"""Which of the collected tests a run has.

``--fast`` leaves out what needs a server, a browser or another process. A red control (an experiment with its
protection switched off, which must fail) runs when a file of its experiment has changed since it was last seen to fail,
and always with ``--all-controls``. What was seen is kept in ``experiments/red_controls.json``.
"""

import ast
import hashlib
import json
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SEEN = ROOT / "experiments" / "red_controls.json"

SERVERS = ("postgres", "mariadb", "redis", "rabbitmq", "s3", "dynamodb")
OF_A_SERVER = re.compile(rf"\[.*({'|'.join(SERVERS)})")
"""How the name of a test that is for one server tells so."""
NOT_FAST = (
    "tests/adapters/",
    "tests/agent/",
    "tests/api/test_role_walk.py",
    "tests/api/test_schemathesis.py",
    "tests/bench/",
    "tests/cli/",
    "tests/contracts/test_executor.py",
    "tests/contracts/test_outages.py",
    "tests/experiments/",
    "tests/fetching/test_detours.py",
    "tests/flows/",
    "tests/intake/test_receiver.py",
    "tests/intake/test_serving.py",
    "tests/items/export/test_memory.py",
    "tests/projects/",
    "tests/scrapyd/",
    "tests/test_database_variants.py",
    "tests/test_import_budget.py",
    "tests/test_servers.py",
    "tests/web/",
    "tests/workers/",
)
"""Where most tests start processes, or take long."""


def add_options(parser: pytest.Parser) -> None:
    parser.addoption("--fast", action="store_true", help="only tests that need no server, browser or other process")
    parser.addoption("--all-controls", action="store_true", help="every red control, also those that have not changed")


def select(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what this run does not have; a red control that is named on the command line always runs."""
    kept = items
    if config.getoption("--fast"):
        kept = [item for item in kept if is_fast(item)]
    named = any("::" in argument for argument in config.args)
    if not config.getoption("--all-controls") and not named:
        kept = [item for item in kept if not (name := control_of(item)) or seen().get(name) != fingerprint(name)]
    if len(kept) < len(items):
        left_out = set(items) - set(kept)
        config.hook.pytest_deselected(items=[item for item in items if item in left_out])
        items[:] = kept


def is_fast(item: pytest.Item) -> bool:
    """The fixtures of servers fail where a test asks for one all the same."""
    if item.nodeid.startswith(NOT_FAST) or OF_A_SERVER.search(item.nodeid):
        return False
    return not {f"{name}_server" for name in SERVERS} & set(getattr(item, "fixturenames", ()))


def control_of(item: pytest.Item) -> str:
    """The experiment whose red control this test is, or nothing."""
    mark = item.get_closest_marker("red_control")
    return str(mark.args[0]) if mark else ""


@cache
def seen() -> dict[str, str]:
    found: dict[str, str] = json.loads(SEEN.read_text()) if SEEN.exists() else {}
    return found


@cache
def fingerprint(experiment: str) -> str:
    """A digest of the experiment and of all modules of ``experiments`` that it imports."""
    digest = hashlib.sha256()
    for file in sorted(files_of(f"experiments.{experiment}")):
        digest.update(file.relative_to(ROOT).as_posix().encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()


def files_of(module: str) -> set[Path]:
    """The files of a module and of what it imports from the same package, at any remove."""
    found: set[Path] = set()
    waiting = [module]
    while waiting:
        file = ROOT / (waiting.pop().replace(".", "/") + ".py")
        if file in found or not file.is_file():
            continue
        found.add(file)
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "experiments":
                waiting += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            elif isinstance(node, ast.Import):
                waiting += [alias.name for alias in node.names if alias.name.startswith("experiments.")]
    return found


class RedControls:
    """Notes, in the process that has all reports, which red controls did what they must."""

    def __init__(self) -> None:
        self._passed: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for name, value in report.user_properties:
            if name == "red_control" and report.when == "call" and report.passed:
                self._passed.add(str(value))

    def pytest_sessionfinish(self) -> None:
        now = {name: value for name, value in seen().items() if (ROOT / "experiments" / f"{name}.py").exists()}
        now |= {name: fingerprint(name) for name in self._passed}
        if now != seen():
            SEEN.write_text(json.dumps(now, indent=2, sort_keys=True) + "\n")
