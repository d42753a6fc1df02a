"""The rules of a proxy plan, as a spider's process matches them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cases import for_each
from weft.adapters.executors._spider_spec import pattern_engine
from weft.agent import patterns
from weft.patterns import compiled

SLOW = b"a" * 64 + b"!"
AGENT = Path(patterns.__file__).parent
MATCHES = f"""
import importlib, sys
assert "re2" not in sys.modules and not any("site-packages" in path for path in sys.path)
sys.path.insert(0, {str(AGENT.parent)!r})
package = type(sys)("weft_agent")
package.__path__ = [{str(AGENT)!r}]
sys.modules["weft_agent"] = package
patterns = importlib.import_module("weft_agent.patterns")
sys.path[:0] = filter(None, sys.argv[2:])
patterns.found_in(sys.argv[1])
try:
    patterns.load()
    print(patterns.is_in("(a+)+$", {SLOW!r}), patterns.is_in("a!$", {SLOW!r}))
except patterns.NoEngine as problem:
    print(problem)
"""


@pytest.fixture
def engine() -> None:
    patterns.load()


def matched(folder: str, packages: Path | str = "") -> str:
    """What a Python says that has no packages, or those of one folder."""
    command = [sys.executable, "-I", "-S", "-c", MATCHES, folder, str(packages)]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout.strip()


def test_a_python_without_packages_matches_with_the_engine_of_weft() -> None:
    assert matched(pattern_engine()) == "False True"


def test_without_an_engine_no_rule_is_matched_and_it_is_said_why(tmp_path: Path) -> None:
    other = tmp_path / "re2"
    shutil.copytree(pattern_engine(), other, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    for folder in ("", str(other)):
        told = matched(folder)
        assert told.startswith("rules of proxy plans are matched by google-re2, which cannot be loaded here ("), told


def test_what_the_project_calls_re2_is_used_where_it_is_the_engine_and_nothing_else(tmp_path: Path) -> None:
    """A second one in the same process would break the first, and anything else is no engine."""
    other = tmp_path / "re2.py"
    other.write_text("from re import *\n")
    assert matched(pattern_engine(), tmp_path) == "False True"
    other.unlink()
    shutil.copytree(pattern_engine(), tmp_path / "re2")
    assert matched("", tmp_path) == "False True"


@pytest.mark.usefixtures("engine")
@for_each(
    ("pattern", "text"),
    [("(?i)CHALLENGE", b"a challenge"), (r"\pL", "é".encode()), (r"\pL", b"1"), ("^x", b"\xff\xfex"), ("a.c", b"a\nc")],
)
def test_a_spider_finds_what_a_crawl_finds(pattern: str, text: bytes) -> None:
    assert patterns.is_in(pattern, text) == compiled(pattern).is_in(text)
