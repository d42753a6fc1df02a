"""``weft config``: every setting and where its value comes from."""

from dataclasses import fields
from pathlib import Path

import pytest

from tests.cli.commanding import Shell
from weft.config import Config


def rows(text: str) -> dict[str, tuple[str, str]]:
    """Value and origin of each setting."""
    cells = [line.split(maxsplit=2) for line in text.splitlines()[1:]]
    return {name: (value, origin) for name, value, origin in cells}


def test_every_setting_is_printed(shell: Shell) -> None:
    assert list(rows(shell.ok("config").out)) == [field.name for field in fields(Config)]


def test_a_value_tells_where_it_comes_from(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("weft.toml").write_text("capacity = 3\nport = 1\nlabels = 'eu'\n")
    monkeypatch.setenv("WEFT_PORT", "2")
    found = rows(shell.ok("config").out)
    assert found["data_dir"] == (str(shell.folder), "command line")
    assert found["port"] == ("2", "WEFT_PORT")
    assert found["capacity"] == ("3", "weft.toml")
    assert found["labels"] == ("eu", "weft.toml")
    assert found["host"] == ("127.0.0.1", "default")


def test_a_file_can_be_named_before_and_after_the_command(shell: Shell) -> None:
    Path("other.toml").write_text("capacity = 4\n")
    for args in (("config", "--config", "other.toml"), ("--config", "other.toml", "config")):
        assert rows(shell.ok(*args).out)["capacity"] == ("4", "other.toml")


def test_passwords_are_dots(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_DATABASE", "postgresql://me:hush@db/weft")
    monkeypatch.setenv("WEFT_BROKER", "redis://:hush@cache")
    for args in ((), ("--json",), ("--explain",)):
        text = shell.ok("config", *args).out
        assert "hush" not in text
        assert "db/weft" in text
    assert rows(shell.ok("config").out)["database"] == ("postgresql://me:••••@db/weft", "WEFT_DATABASE")


def test_a_secret_may_come_from_a_file_and_stays_one(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("secret").write_text("redis://:hush@cache\n")
    monkeypatch.setenv("WEFT_BROKER_FILE", "secret")
    assert rows(shell.ok("config").out)["broker"] == ("redis://:••••@cache", "WEFT_BROKER_FILE")


def test_for_programs_values_keep_their_type(shell: Shell) -> None:
    found = {each["name"]: each for each in shell.document("config")}
    assert found["port"]["value"] == 6800
    assert found["allow_unsafe_database"]["value"] is False
    assert found["lease_seconds"]["value"] == 15.0
    assert found["data_dir"]["origin"] == "command line"
    assert all(each["doc"] for each in found.values())


def test_the_configuration_is_printed_without_a_database(newcomer: Shell) -> None:
    newcomer.ok("config")
    assert not newcomer.folder.exists()
