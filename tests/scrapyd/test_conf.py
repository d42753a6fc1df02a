"""Configurations of Scrapyd, and what they become in weft."""

from __future__ import annotations

import os
from dataclasses import fields
from pathlib import Path

import pytest

from weft.config import Config
from weft.errors import Invalid
from weft.scrapyd.conf import (
    CLASSES,
    READERS,
    SERVICES,
    OptionReport,
    ScrapydConf,
    explain_options,
    read_conf,
    sources,
    weft_toml,
)

DEFAULTS = """
application bind_address http_port unix_socket_path username password spiderqueue poller poll_interval launcher max_proc
max_proc_per_cpu logs_dir items_dir jobs_dir jobs_to_keep runner webroot prefix_header debug eggstorage eggs_dir
jobstorage finished_to_keep dbs_dir node_name
"""
"""Every option that Scrapyd 1.6 has."""


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No configuration of this machine's own counts."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in list(os.environ):
        if name.startswith("SCRAPYD_"):
            monkeypatch.delenv(name)


def conf_of(folder: Path, text: str) -> ScrapydConf:
    file = folder / "given.conf"
    file.write_text(text)
    return read_conf(folder, file)


def option(folder: Path, line: str, section: str = "scrapyd") -> OptionReport:
    (found,) = explain_options(conf_of(folder, f"[{section}]\n{line}\n"))
    return found


def test_files_are_read_in_the_order_of_scrapyd(tmp_path: Path) -> None:
    etc, folder, home = tmp_path / "etc", tmp_path / "top" / "in", tmp_path / "home"
    for place in (etc / "conf.d", folder, home):
        place.mkdir(parents=True)
    names = [etc / "scrapyd.conf", etc / "conf.d" / "10", etc / "conf.d" / "20", folder / "scrapyd.conf"]
    names += [home / ".scrapyd.conf", tmp_path / "top" / "scrapy.cfg"]
    for file in names:
        file.write_text("[scrapyd]\n")
    assert sources(folder, home, etc) == names


def test_a_later_file_counts_and_is_told(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "scrapyd.conf").write_text("[scrapyd]\nhttp_port = 1\neggs_dir = a\n")
    (tmp_path / "home" / ".scrapyd.conf").write_text("[scrapyd]\nhttp_port = 2\n")
    conf = read_conf(tmp_path)
    assert (conf.value("http_port"), conf.value("eggs_dir"), conf.value("dbs_dir")) == ("2", "a", "dbs")
    assert [each.source for each in conf.given if each.name == "http_port"] == [
        str(tmp_path / "home" / ".scrapyd.conf")
    ]


def test_only_the_file_that_is_named_is_read(tmp_path: Path) -> None:
    (tmp_path / "scrapyd.conf").write_text("[scrapyd]\nhttp_port = 1\n")
    conf = conf_of(tmp_path, "[scrapyd]\nmax_proc = 3\n")
    assert [(each.name, each.value) for each in conf.given] == [("max_proc", "3")]


def test_the_environment_counts_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "scrapyd.conf").write_text("[scrapyd]\nhttp_port = 1\n")
    monkeypatch.setenv("SCRAPYD_HTTP_PORT", "7000")
    conf = read_conf(tmp_path)
    assert (conf.value("http_port"), conf.given[-1].source) == ("7000", "SCRAPYD_HTTP_PORT")


def test_of_a_scrapy_cfg_only_what_scrapyd_reads_counts(tmp_path: Path) -> None:
    (tmp_path / "scrapy.cfg").write_text("[settings]\nshop = shop.settings\n[deploy]\nurl = http://x/\n")
    (found,) = explain_options(read_conf(tmp_path))
    assert (found.section, found.name, found.is_supported) == ("settings", "shop", False)
    assert "weft deploy" in found.meaning


@pytest.mark.parametrize(
    ("value", "place"),
    [("eggs", "{folder}/eggs"), ("/srv/eggs", "/srv/eggs"), ("file:///srv/a%20b", "/srv/a b"), ("", None)],
)
def test_a_folder_is_below_the_one_of_scrapyd(tmp_path: Path, value: str, place: str | None) -> None:
    conf = conf_of(tmp_path, f"[scrapyd]\nitems_dir = {value}\n")
    assert conf.place("items_dir") == (None if place is None else Path(place.format(folder=tmp_path)))


@pytest.mark.parametrize("value", ["s3://bucket/items", "ftp://host/items"])
def test_items_that_are_elsewhere_are_told(tmp_path: Path, value: str) -> None:
    assert conf_of(tmp_path, f"[scrapyd]\nitems_dir = {value}\n").place("items_dir") is None
    assert option(tmp_path, f"items_dir = {value}").meaning.startswith("is not read by `weft import`")


def test_queues_in_memory_are_nowhere(tmp_path: Path) -> None:
    assert conf_of(tmp_path, "[scrapyd]\ndbs_dir = :memory:\n").place("dbs_dir") is None


def test_every_option_of_scrapyd_has_its_meaning(tmp_path: Path) -> None:
    assert set(DEFAULTS.split()) == READERS.keys() | CLASSES.keys()
    for name in DEFAULTS.split():
        assert "no such option" not in option(tmp_path, f"{name} = 1").meaning


def test_every_setting_that_is_advised_is_one_of_weft(tmp_path: Path) -> None:
    known = {each.name for each in fields(Config)}
    text = "[scrapyd]\n" + "".join(f"{name} = 1\n" for name in DEFAULTS.split() if name != "username") + "username =\n"
    advised = [each.settings for each in explain_options(conf_of(tmp_path, text))]
    assert {name for each in advised for name in each} <= known


def test_what_is_advised_is_a_configuration(tmp_path: Path) -> None:
    text = '[scrapyd]\nbind_address = 127.0.0.1\nhttp_port = 6801\nmax_proc = 7\nnode_name = a "b" \\ c\nusername =\n'
    file = tmp_path / "weft.toml"
    file.write_text("\n".join(weft_toml(explain_options(conf_of(tmp_path, text)))))
    from weft.config import load

    config = load(environment={}, file=file).config
    assert (config.host, config.port, config.scrapyd_node_name) == ("127.0.0.1", 6801, 'a "b" \\ c')
    cores = os.cpu_count() or 1
    assert (config.workers or cores) * config.capacity == 7


def test_as_many_runs_at_once_as_scrapyd_had_processes(tmp_path: Path) -> None:
    cores = os.cpu_count() or 1
    assert option(tmp_path, "max_proc_per_cpu = 3").settings == {"workers": 0, "capacity": 3}
    both = explain_options(conf_of(tmp_path, f"[scrapyd]\nmax_proc = {2 * cores}\nmax_proc_per_cpu = 9\n"))
    assert [each.settings for each in both] == [{"workers": 0, "capacity": 2}] * 2


def test_a_password_is_shown_nowhere(tmp_path: Path) -> None:
    text = "[scrapyd]\nusername = ada\npassword = s3cret-%(x\n"
    found = explain_options(conf_of(tmp_path, text))
    assert "s3cret" not in str(found)
    assert [each.value for each in found] == ["ada", "••••"]
    assert "weft users create ada" in found[0].meaning


@pytest.mark.parametrize("name", sorted(CLASSES))
def test_a_class_that_replaces_one_of_scrapyd_is_not_supported(tmp_path: Path, name: str) -> None:
    own = option(tmp_path, f"{name} = my.Own")
    assert (own.is_supported, own.meaning.startswith("not supported")) == (False, True)
    default = option(tmp_path, f"{name} = {CLASSES[name][0]}")
    assert (default.is_supported, default.meaning.startswith("has no meaning here, because")) == (True, True)


def test_services_are_as_they_are(tmp_path: Path) -> None:
    assert option(tmp_path, "schedule.json = scrapyd.webservice.Schedule", "services").is_supported
    assert not option(tmp_path, "schedule.json =", "services").is_supported
    assert not option(tmp_path, "schedule.json = my.Schedule", "services").is_supported
    assert not option(tmp_path, "more.json = my.More", "services").is_supported
    assert len(SERVICES) == 11


@pytest.mark.parametrize("line", ["colour = red", "max_procs = 3"])
def test_what_scrapyd_does_not_know_is_told(tmp_path: Path, line: str) -> None:
    assert option(tmp_path, line).meaning.endswith("Scrapyd 1.6 has no such option")


@pytest.mark.parametrize("line", ["http_port = many", "max_proc = 1.5", "max_proc_per_cpu = x"])
def test_what_should_be_a_number_and_is_none_is_told(tmp_path: Path, line: str) -> None:
    found = option(tmp_path, line)
    assert (found.is_supported, found.meaning, found.settings) == (False, "is not a number, so it was not read", {})


@pytest.mark.parametrize(
    "data", [b"no section\n", b"[scrapyd]\na = 1\na = 2\n", b"[scrapyd]\na = \xff\n", b"[scrapyd]\n" + b"#" * 1_000_001]
)
def test_a_configuration_that_cannot_be_read_is_refused_by_its_name(tmp_path: Path, data: bytes) -> None:
    file = tmp_path / "bad.conf"
    file.write_bytes(data)
    with pytest.raises(Invalid, match=r"bad\.conf"):
        read_conf(tmp_path, file)


@pytest.mark.parametrize(("folder", "file"), [("nowhere", None), (".", "nowhere.conf"), (".", ".")])
def test_a_folder_or_file_that_is_not_there_is_refused(tmp_path: Path, folder: str, file: str | None) -> None:
    with pytest.raises(Invalid, match=r"--(dir|conf)"):
        read_conf(tmp_path / folder, None if file is None else tmp_path / file)
