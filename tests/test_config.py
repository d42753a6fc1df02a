"""Settings: where each value comes from, what is refused, and what is never shown."""

from __future__ import annotations

import os
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import for_each
from tests.executing import attempt
from weft.adapters.executors.shell import Command, environment
from weft.cli.up import environment as handed_on
from weft.config import Config, hidden, load
from weft.errors import Misconfigured


@pytest.fixture(autouse=True)
def empty_folder(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No weft.toml lies where the test is run."""
    monkeypatch.chdir(tmp_path_factory.mktemp("empty"))


def loaded(environment: dict[str, str] | None = None, **overrides: Any) -> Config:
    return load(overrides, environment=environment or {}).config


def written(folder: Path, text: str) -> Path:
    path = folder / "weft.toml"
    path.write_text(text, encoding="utf-8")
    return path


def refusal(environment: dict[str, str] | None = None, *, file: Path | None = None, **overrides: Any) -> str:
    """The one sentence with which weft refuses to start."""
    with pytest.raises(Misconfigured) as refused:
        load(overrides, environment=environment or {}, file=file)
    sentence = str(refused.value)
    assert "\n" not in sentence
    return sentence


def test_every_setting_has_a_default_and_a_sentence() -> None:
    config = Config()
    for field in fields(Config):
        assert getattr(config, field.name) is not None
        assert field.metadata["doc"].endswith(".")


def test_nothing_need_be_set() -> None:
    assert loaded() == Config()


def test_a_file_wins_over_the_default_the_environment_over_it_and_flags_over_all(tmp_path: Path) -> None:
    file = written(tmp_path, "capacity = 2\nport = 2\nworkers = 2\n")
    environment = {"WEFT_PORT": "3", "WEFT_WORKERS": "3"}
    result = load({"workers": 4}, environment=environment, file=file)
    config = result.config
    assert (config.max_runs, config.capacity, config.port, config.workers) == (0, 2, 3, 4)
    origins = {setting.name: setting.origin for setting in result.settings}
    assert [origins[name] for name in ("max_runs", "capacity", "port", "workers")] == [
        "default",
        str(file),
        "WEFT_PORT",
        "command line",
    ]


def test_a_flag_that_was_not_given_hides_nothing() -> None:
    assert loaded({"WEFT_PORT": "3"}, port=None).port == 3


def test_every_setting_is_told_with_its_origin_and_its_sentence() -> None:
    settings = load(environment={}).settings
    assert [setting.name for setting in settings] == [field.name for field in fields(Config)]
    assert all(setting.doc and setting.origin == "default" for setting in settings)


@for_each(
    ("name", "text", "value"),
    [
        ("PORT", "7000", 7000),
        ("LEASE_SECONDS", "30", 30.0),
        ("LEASE_SECONDS", "7.5", 7.5),
        ("ALLOW_UNSAFE_DATABASE", "true", True),
        ("ALLOW_UNSAFE_DATABASE", "Yes", True),
        ("ALLOW_UNSAFE_DATABASE", "1", True),
        ("ALLOW_UNSAFE_DATABASE", "FALSE", False),
        ("ALLOW_UNSAFE_DATABASE", "no", False),
        ("ALLOW_UNSAFE_DATABASE", "0", False),
        ("LOG_LEVEL", "debug", "debug"),
        ("DATABASE", "postgresql://u:p@h/d", "postgresql://u:p@h/d"),
    ],
)
def test_a_variable_is_read_in_the_type_of_its_setting(name: str, text: str, value: Any) -> None:
    found = getattr(loaded({f"WEFT_{name}": text}), name.lower())
    assert (found, type(found)) == (value, type(value))


@for_each(
    ("name", "text", "sentence"),
    [
        ("LEASE_SECONDS", "soon", "WEFT_LEASE_SECONDS is 'soon'; it must be a number"),
        ("LEASE_SECONDS", "nan", "lease_seconds is nan; it must be from 0.2 to 3600"),
        ("LEASE_SECONDS", "inf", "lease_seconds is inf; it must be from 0.2 to 3600"),
        ("LEASE_SECONDS", "0", "lease_seconds is 0.0; it must be from 0.2 to 3600"),
        ("PORT", "http", "WEFT_PORT is 'http'; it must be a whole number"),
        ("PORT", "80.5", "WEFT_PORT is '80.5'; it must be a whole number"),
        ("PORT", "", "WEFT_PORT is ''; it must be a whole number"),
        ("PORT", "70000", "port is 70000; it must be from 0 to 65535"),
        ("PORT", "-1", "port is -1; it must be from 0 to 65535"),
        ("PORT", "9" * 5000, "it must be a whole number"),
        ("WORKERS", "-1", "workers is -1; it must be from 0 to 1000"),
        ("CAPACITY", "0", "capacity is 0; it must be from 1 to 10000"),
        ("MAX_RUNS", "-1", "max_runs is -1; it must be 0 or more"),
        ("HEARTBEAT_SECONDS", "0", "heartbeat_seconds is 0.0; it must be from 0.05 to 600"),
        ("HEARTBEAT_SECONDS", "10", "heartbeat_seconds is 10.0; it must be at most half of lease_seconds (15)"),
        ("POLL_SECONDS", "0", "poll_seconds is 0.0; it must be from 0.01 to 60"),
        ("DRAIN_SECONDS", "-1", "drain_seconds is -1.0; it must be from 0 to 86400"),
        ("MISFIRE_GRACE_SECONDS", "-1", "misfire_grace_seconds is -1.0; it must be from 0 to 86400"),
        ("ALLOW_UNSAFE_DATABASE", "maybe", "WEFT_ALLOW_UNSAFE_DATABASE is 'maybe'; it must be true or false"),
        ("LOG_LEVEL", "loud", "log_level is 'loud'; it must be one of debug, info, warning, error"),
        ("LOG_FORMAT", "xml", "log_format is 'xml'; it must be one of auto, text, json"),
        ("MIN_ISOLATION", "L3", "min_isolation is 'L3'; it must be one of empty, L0, L1, L2"),
        ("DATABASE", "oracle://h", "database is 'oracle://h'; it must start with one of sqlite:, postgresql:, mysql:"),
        ("DATABASE", "sqlite", "database is 'sqlite'; it must start with one of sqlite:, postgresql:"),
        ("DATABASE", "/var/lib/weft.db", "database is '/var/lib/weft.db'; it must start with one of sqlite:"),
        ("BROKER", "kafka://h", "broker is 'kafka://h'; it must start with one of memory:, polling:, local:"),
        ("BLOBS", "ftp://b", "blobs is 'ftp://b'; it must start with one of file:, s3:"),
        ("LABELS", "gpu,two words", "labels is 'gpu,two words'; each must be letters, digits, '.', '_', '=' or '-'"),
        ("LABELS", "x" * 64, "at most 63"),
        ("WORKER_NAME", "../w1", "worker_name is '../w1'; it must be letters, digits, '.', '_' or '-', at most 100"),
        ("WORKER_NAME", "w" * 101, "at most 100"),
        ("HOST", "", "host is ''; it must be an address such as 127.0.0.1"),
        ("TRUSTED_PROXIES", "*", "trusted_proxies is '*'; each must be an address, or a network such as 10.0.0.0/8"),
        ("TRUSTED_PROXIES", "10.0.0.1, *", "each must be an address, or a network such as 10.0.0.0/8 or fd00::/8"),
        ("TRUSTED_PROXIES", "10.0.0.1,0.0.0.0/1,128.0.0.0/1", "and none wider"),
        ("TRUSTED_PROXIES", "::/0", "and none wider"),
        ("TRUSTED_PROXIES", "nginx", "each must be an address"),
        ("COLOUR", "blue", "WEFT_COLOUR is not a setting of weft; `weft config` lists them"),
        ("", "x", "WEFT_ is not a setting of weft"),
        ("PORT_FILE_FILE", "x", "WEFT_PORT_FILE_FILE is not a setting of weft"),
    ],
)
def test_a_wrong_variable_stops_the_start_in_one_sentence(name: str, text: str, sentence: str) -> None:
    assert sentence in refusal({f"WEFT_{name}": text})


def test_a_command_of_a_run_may_call_weft(tmp_path: Path) -> None:
    told = environment(Command.of({"argv": ["weft", "runs", "list"]}), attempt(tmp_path, {}), "L1")
    assert load(environment=told | {"WEFT_PORT": "7000"}).config.port == 7000


def test_variables_of_others_are_none_of_our_business() -> None:
    assert loaded({"PATH": "/bin", "WEFTX": "1", "XWEFT_PORT": "1"}) == Config()


@for_each(
    ("text", "sentence"),
    [
        ("port = ", "weft.toml cannot be read: "),
        ("port = '80'", "weft.toml: port is '80'; it must be a whole number"),
        ("port = 80.0", "weft.toml: port is 80.0; it must be a whole number"),
        ("port = true", "weft.toml: port is True; it must be a whole number"),
        ("port = [80]", "weft.toml: port is [80]; it must be a whole number"),
        ("lease_seconds = true", "weft.toml: lease_seconds is True; it must be a number"),
        ("lease_seconds = '15'", "weft.toml: lease_seconds is '15'; it must be a number"),
        (f"lease_seconds = {10**400}", "it must be a number"),
        ("allow_unsafe_database = 1", "weft.toml: allow_unsafe_database is 1; it must be true or false"),
        ("database = 5", "weft.toml: database is 5; it must be a text"),
        ("[database]\nurl = 'x'", "weft.toml: database is {'url': 'x'}; it must be a text"),
        ("colour = 'blue'", "weft.toml: colour is not a setting of weft; `weft config` lists them"),
        ("Port = 5", "weft.toml: Port is not a setting of weft"),
        ("capacity = 0", "capacity is 0; it must be from 1 to 10000"),
    ],
)
def test_a_wrong_file_stops_the_start_in_one_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    assert sentence in refusal(file=written(tmp_path, text))


def test_a_whole_number_in_a_file_is_a_number(tmp_path: Path) -> None:
    file = written(tmp_path, "lease_seconds = 20")
    assert load(environment={}, file=file).config.lease_seconds == 20.0


def test_a_file_that_was_asked_for_must_be_there(tmp_path: Path) -> None:
    missing = tmp_path / "none.toml"
    assert refusal(file=missing) == f"there is no configuration file {missing}"
    assert refusal({"WEFT_CONFIG": str(missing)}) == f"there is no configuration file {missing}"


def test_weft_toml_is_read_where_weft_is_started_and_may_be_absent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert load(environment={}).config == Config()
    written(tmp_path, "port = 7000")
    assert load(environment={}).config.port == 7000


def test_a_file_that_is_no_text_or_no_file_is_refused(tmp_path: Path) -> None:
    binary = tmp_path / "weft.toml"
    binary.write_bytes(b"\xff\xfe")
    assert "cannot be read" in refusal(file=binary)
    assert "cannot be read" in refusal(file=tmp_path)


def test_a_setting_that_nobody_has_is_refused_as_a_flag_too() -> None:
    assert refusal(colour="blue") == "command line: colour is not a setting of weft; `weft config` lists them"
    assert refusal(port="80") == "command line: port is '80'; it must be a whole number"


def test_a_secret_may_come_from_a_file(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("postgresql://weft:pass word@db/weft\n")
    result = load(environment={"WEFT_DATABASE_FILE": str(secret)})
    assert result.config.database == "postgresql://weft:pass word@db/weft"
    origin = {setting.name: setting.origin for setting in result.settings}["database"]
    assert origin == "WEFT_DATABASE_FILE"


def test_any_setting_may_come_from_a_file(tmp_path: Path) -> None:
    number = tmp_path / "number"
    number.write_text("7000\n")
    assert loaded({"WEFT_PORT_FILE": str(number)}).port == 7000
    number.write_text("http\n")
    assert refusal({"WEFT_PORT_FILE": str(number)}) == "WEFT_PORT_FILE is 'http'; it must be a whole number"


def test_a_secret_file_that_cannot_be_read_stops_the_start(tmp_path: Path) -> None:
    missing = tmp_path / "none"
    assert "WEFT_DATABASE_FILE is" in refusal({"WEFT_DATABASE_FILE": str(missing)})
    assert "No such file" in refusal({"WEFT_DATABASE_FILE": str(missing)})
    assert "cannot be read" in refusal({"WEFT_DATABASE_FILE": str(tmp_path)})
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe")
    assert "cannot be read" in refusal({"WEFT_DATABASE_FILE": str(binary)})


def test_a_secret_may_not_be_given_twice(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("sqlite:///a.db")
    sentence = refusal({"WEFT_DATABASE": "sqlite:///b.db", "WEFT_DATABASE_FILE": str(secret)})
    assert sentence == "WEFT_DATABASE_FILE and WEFT_DATABASE are both set; set one of them"


SECRETS = [
    ("postgresql://weft:s3cret@db/weft", "postgresql://weft:••••@db/weft"),
    ("redis://:s3cret@cache:6379/0", "redis://:••••@cache:6379/0"),
    ("amqp://weft:s3cret@mq:5672/%2F", "amqp://weft:••••@mq:5672/%2F"),
    ("mysql://weft:s3cret@db/weft?ssl=true", "mysql://weft:••••@db/weft?ssl=true"),
    ("postgresql://weft:s3c@ret@db/weft", "postgresql://weft:••••@db/weft"),
    ("postgresql://weft:s3c:ret@db/weft", "postgresql://weft:••••@db/weft"),
    ("postgresql://weft:s3c/ret@db/weft", "postgresql://weft:••••@db/weft"),
    ("postgresql://weft:s3c#ret@db/weft", "postgresql://weft:••••@db/weft"),
    ("postgresql://weft:s3c?ret@db/weft", "postgresql://weft:••••@db/weft"),
    ("postgresql://weft:s3c[ret@db/weft", "postgresql://weft:••••@db/weft"),
    ("postgresql://weft:s3c\nret@db/weft", "postgresql://weft:••••@db/weft"),
    ("postgresql://db/weft?user=weft&password=s3cret", "postgresql://db/weft?user=weft&password=••••"),
    ("postgresql://db/weft?sslpassword=s3cret&x=1", "postgresql://db/weft?sslpassword=••••&x=1"),
    ("redis://cache/0,amqp://weft:s3cret@mq", "redis://cache/0,amqp://weft:••••@mq"),
    ("amqp://a:s3cret@mq, redis://:s3c,ret@cache?stream=x", "amqp://a:••••@mq, redis://:••••@cache?stream=x"),
]


@for_each(("url", "shown"), SECRETS)
def test_the_password_of_a_url_is_shown_as_dots(url: str, shown: str) -> None:
    assert hidden(url) == shown


@for_each(
    "text",
    [
        "",
        "plain",
        "sqlite:///weft.db",
        "postgresql://weft@db/weft",
        "redis://cache:6379/0",
        "a:b",
        "127.0.0.1",
        "file:x@y",
    ],
)
def test_what_holds_no_secret_is_shown_as_it_is(text: str) -> None:
    assert hidden(text) == text


WORD = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=8, max_size=20)


@given(st.sampled_from(["postgresql", "mysql", "redis", "amqp"]), WORD)
def test_no_password_is_ever_shown(scheme: str, password: str) -> None:
    shown = hidden(f"{scheme}://user:{password}@host/name")
    assert password not in shown
    assert shown.startswith(f"{scheme}://user:••••@")
    assert shown.endswith("@host/name")


def test_a_loaded_setting_shows_no_password() -> None:
    result = load({"database": "postgresql://weft:s3cret@db/weft"}, environment={})
    shown = {setting.name: setting.shown for setting in result.settings}
    assert shown["database"] == shown["broker"] == "postgresql://weft:••••@db/weft"
    assert not any("s3cret" in setting.shown for setting in result.settings)


@pytest.mark.parametrize("name", ["database", "broker", "blobs"])
def test_a_refused_url_is_told_without_its_password(name: str) -> None:
    sentence = refusal({f"WEFT_{name.upper()}": "postgres://weft:s3cret@db/weft"})
    assert "postgres://weft:••••@db/weft" in sentence
    assert "s3cret" not in sentence


def test_urls_follow_the_data_directory_unless_they_are_set() -> None:
    config = loaded(data_dir="/data")
    assert config.database_url == "sqlite:////data/weft.db"
    assert config.broker_url == "local:/data/doorbell"
    assert config.blobs_url == "file:/data/blobs"
    shown = {setting.name: setting.value for setting in load({"data_dir": "/d"}, environment={}).settings}
    assert shown["database"] == "sqlite:////d/weft.db"


PLACES = [
    ("data_dir", "d", "{}/d"),
    ("data_dir", "./d/../e", "{}/d/../e"),
    ("data_dir", "/d", "/d"),
    ("destinations_dir", "out", "{}/out"),
    ("destinations_dir", "", ""),
    ("tls_certificate", "chain.pem", "{}/chain.pem"),
    ("tls_key", "key.pem", "{}/key.pem"),
    ("ca_file", "ca.pem", "{}/ca.pem"),
    ("database", "sqlite:///d/weft.db", "sqlite:///{}/d/weft.db"),
    ("database", "sqlite:////d/weft.db", "sqlite:////d/weft.db"),
    ("database", "postgresql://db/weft", "postgresql://db/weft"),
    ("broker", "local:bells", "local:{}/bells"),
    ("broker", "memory:", "memory:"),
    ("blobs", "file:./blobs", "file:{}/blobs"),
    ("blobs", "file:///blobs", "file:///blobs"),
    ("blobs", "s3://bucket/prefix", "s3://bucket/prefix"),
]


@for_each(("name", "given", "found"), PLACES)
def test_every_path_is_absolute_from_where_it_was_given(
    name: str, given: str, found: str, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, folder = tmp_path_factory.mktemp("here"), tmp_path_factory.mktemp("of-the-file")
    monkeypatch.chdir(here)
    file = written(folder, f"{name} = '{given}'\n")
    given_here = [load({name: given}, environment={}), load(environment={f"WEFT_{name.upper()}": given})]
    for loaded_, place in [*((each, here) for each in given_here), (load(environment={}, file=file), folder)]:
        assert getattr(loaded_.config, name) == found.format(place)
        shown = {setting.name: setting.value for setting in loaded_.settings}
        assert shown[name] == found.format(place) or not given
    monkeypatch.chdir("/")
    assert load(environment={}, file=Path(os.path.relpath(file))).config == load(environment={}, file=file).config


def test_without_settings_everything_is_below_the_working_directory() -> None:
    config, here = loaded(), Path.cwd()
    assert config.folder == here / "weft-data"
    assert config.database_url == f"sqlite:///{here}/weft-data/weft.db"
    assert (config.broker_url, config.blobs_url) == (f"local:{here}/weft-data/doorbell", f"file:{here}/weft-data/blobs")


def test_a_relative_path_in_a_folder_that_is_gone_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert "the working directory is gone" in refusal(data_dir="weft-data")
    assert loaded(data_dir=str(tmp_path)).folder == tmp_path


def test_on_postgresql_its_own_notices_are_the_broker() -> None:
    assert loaded(database="postgresql://db/weft").broker_url == "postgresql://db/weft"
    assert loaded(database="mysql://db/weft", data_dir="/data").broker_url == "local:/data/doorbell"
    assert loaded(database="postgresql://db/weft", broker="redis://c").broker_url == "redis://c"


def test_labels_are_a_set() -> None:
    assert loaded(labels=" eu, gpu ,eu,, ").label_set == ("eu", "gpu")


@pytest.mark.parametrize(
    ("told", "address"),
    [
        ({}, "http://127.0.0.1:7000"),
        ({"tls_certificate": "chain.pem"}, "https://127.0.0.1:7000"),
        ({"host": "::1"}, "http://[::1]:7000"),
    ],
)
def test_the_address_says_how_the_gateway_is_reached(told: dict[str, str], address: str) -> None:
    assert Config(port=7000, **told).address == address  # type: ignore[arg-type]


def test_processes_of_up_tell_where_their_settings_come_from(tmp_path: Path) -> None:
    """``weft up`` hands on each setting in the environment: those that nobody set are not said to be set."""
    (tmp_path / "weft.toml").write_text("capacity = 3\n")
    found = load({"port": 7001}, environment={"WEFT_LOG_LEVEL": "debug"}, file=tmp_path / "weft.toml")
    told = load(environment=handed_on(found)).settings
    assert {each.name: each.origin for each in told if each.origin != "default"} == {
        "port": "command line",
        "log_level": "WEFT_LOG_LEVEL",
        "capacity": str(tmp_path / "weft.toml"),
    }
    assert load(environment={"WEFT_ORIGINS": "broken"}).config == Config()
