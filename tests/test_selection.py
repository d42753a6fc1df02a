"""Which tests a run has: what is fast, and when a red control runs again."""

import ast
from pathlib import Path

import pytest

from experiments.__main__ import names
from tests import selection

EXPERIMENTS = Path(__file__).parent / "experiments"


def marked_controls() -> list[str]:
    found = []
    for file in EXPERIMENTS.glob("test_*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.red_control":
                found.append(str(ast.literal_eval(node.args[0])))
    return sorted(found)


def test_every_experiment_has_a_red_control() -> None:
    assert marked_controls() == names()


def test_the_files_of_an_experiment_are_all_that_it_imports_of_the_package() -> None:
    found = {file.name for file in selection.files_of("experiments.r06")}
    assert {"r06.py", "cluster.py", "report.py"} <= found
    assert "r07.py" not in found


def test_a_changed_file_changes_the_fingerprint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "experiments"
    folder.mkdir()
    (folder / "r99.py").write_text("from experiments.shared import thing\n")
    (folder / "shared.py").write_text("thing = 1\n")
    monkeypatch.setattr(selection, "ROOT", tmp_path)
    before = selection.fingerprint.__wrapped__("r99")
    assert selection.fingerprint.__wrapped__("r99") == before
    (folder / "shared.py").write_text("thing = 2\n")
    assert selection.fingerprint.__wrapped__("r99") != before


@pytest.mark.parametrize(
    ("recorded", "options", "runs"),
    [
        ("nothing", [], True),
        ("an older state", [], True),
        ("this state", [], False),
        ("this state", ["--all-controls"], True),
    ],
)
def test_a_red_control_runs_where_its_experiment_has_changed(
    recorded: str, options: list[str], runs: bool, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = {"nothing": {}, "an older state": {"r06": "0"}, "this state": {"r06": selection.fingerprint("r06")}}
    monkeypatch.setattr(selection, "seen", lambda: state[recorded])
    monkeypatch.setattr(request.config, "args", ["tests"])
    monkeypatch.setattr(request.config.option, "all_controls", bool(options))
    monkeypatch.setattr(request.config.option, "fast", False)
    control = pytest.Function.from_parent(request.node.parent, name="control", callobj=lambda: None)
    control.add_marker(pytest.mark.red_control("r06"))
    items: list[pytest.Item] = [control]
    selection.select(request.config, items)
    assert bool(items) is runs
