"""The locks: complete for what pyproject.toml asks for, by hash, and without the address of any index."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LOCKS = {path.stem: path.read_text() for path in sorted((ROOT / "requirements").glob("*.txt"))}
OURS = ("core", "dev")
FOREIGN = sorted(path.stem for path in (ROOT / "requirements").glob("*.in") if path.stem not in ("build", "dev"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_names_no_address(lock: str) -> None:
    assert "://" not in LOCKS[lock]
    assert not re.search(r"^--?\w", LOCKS[lock], re.MULTILINE)


@pytest.mark.parametrize("lock", LOCKS)
def test_every_pin_has_a_hash(lock: str) -> None:
    pins = re.split(r"\n(?=\S)", LOCKS[lock].strip())
    assert pins
    assert [pin.splitlines()[0] for pin in pins if "--hash=sha256:" not in pin] == []


@pytest.mark.parametrize("lock", OURS)
def test_what_weft_needs_is_pinned(lock: str) -> None:
    assert names(PROJECT["dependencies"]) <= pinned(lock)


def test_the_tools_and_every_extra_are_pinned_for_development() -> None:
    tools = [line for line in (ROOT / "requirements" / "dev.in").read_text().splitlines() if not line.startswith("#")]
    extras = [need for extra in PROJECT["optional-dependencies"].values() for need in extra]
    assert names(tools) | names(extras) - {"weft"} <= pinned("dev")


@pytest.mark.parametrize("tools", FOREIGN)
def test_foreign_tools_are_pinned_as_they_were_asked_for(tools: str) -> None:
    asked = (ROOT / "requirements" / f"{tools}.in").read_text()
    assert dict(re.findall(r"^([\w.-]+)==(\S+)", asked, re.MULTILINE)).items() <= versions(tools).items()
    assert names([line for line in asked.splitlines() if not line.startswith("#")]) <= pinned(tools)


def test_both_locks_agree_on_every_version() -> None:
    assert versions("core").items() <= versions("dev").items()


def names(requirements: list[str]) -> set[str]:
    return {re.split(r"[\[<>=!~; ]", requirement)[0].lower() for requirement in requirements}


def pinned(lock: str) -> set[str]:
    return set(versions(lock))


def versions(lock: str) -> dict[str, str]:
    return dict(re.findall(r"^([\w.-]+)==(\S+)", LOCKS[lock], re.MULTILINE))
