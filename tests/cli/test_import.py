"""``weft import scrapyd``: what it prints, and how it ends."""

from __future__ import annotations

import signal
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli.commanding import Shell, weft
from tests.scrapyd.left_behind import (
    SETTINGS,
    add_egg,
    add_items,
    add_log,
    add_pending,
    contents,
    egg,
    log_text,
    wait_for,
)
from weft.app import App

pytestmark = pytest.mark.usefixtures("remembered_checks")

CONF = """[scrapyd]
http_port = 6900
items_dir = items
username = ada
password = s3cret-word
launcher = my.Launcher
poll_interval = 1
[services]
more.json = my.More
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What a small Scrapyd has left, in a folder with a name of its own."""
    folder = tmp_path / "old scrapyd"
    add_egg(folder, "shop", "1", egg())
    add_log(folder, "things", "ended", log_text())
    add_items(folder, "things", "ended", b'{"a": 1}\n{"a": 2}\n')
    add_pending(folder, "shop", {"name": "things", "_job": "waiting", "count": "2"})
    (folder / "scrapyd.conf").write_text(CONF)
    return folder


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No configuration of this machine's own counts."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


def test_a_scrapyd_is_taken_over_and_seen_by_every_command(shell: Shell, folder: Path) -> None:
    before = contents(folder)
    told = shell.ok("import", "scrapyd", "--dir", str(folder)).out
    assert contents(folder) == before
    assert told.splitlines()[:6] == [
        "WHAT           TAKEN  KNOWN  REFUSED",
        "eggs           1      0      0",
        "finished jobs  1      0      0",
        "logs           1      0      0",
        "items          1      0      0",
        "pending jobs   1      0      0",
    ]
    assert "2 items were stored" in told
    runs = shell.document("runs", "list")
    assert [(each["id"], each["state"]) for each in runs] == [(2, "queued"), (1, "succeeded")]
    assert shell.ok("runs", "log", "1").out == log_text()
    assert shell.ok("items", "things", "--project", "shop").lines == ['{"a":1}', '{"a":2}']
    assert shell.document("versions", "list", "--project", "shop")[0]["deployed_by"] == "import:scrapyd"


def test_the_report_says_what_each_option_means(shell: Shell, folder: Path) -> None:
    told = shell.ok("import", "scrapyd", "--dir", str(folder)).out
    assert "s3cret" not in told
    lines = {line.split("  ")[0]: line for line in told.splitlines()}
    assert "has no meaning here, because workers are told of a job" in lines["poll_interval"]
    assert "not supported: no class of weft is replaced" in lines["launcher"]
    assert "not supported: weft serves Scrapyd's own eleven endpoints" in lines["[services] more.json"]
    assert told.splitlines()[-2:] == ["for weft.toml:", "  port = 6900"]


@pytest.mark.parametrize("conf", ["", "[scrapyd]\nbind_address = 0.0.0.0\n"])
def test_the_report_says_that_names_of_this_weft_must_be_allowed(newcomer: Shell, folder: Path, conf: str) -> None:
    (folder / "scrapyd.conf").write_text(conf)
    told = newcomer.ok("import", "scrapyd", "--dir", str(folder), "--dry-run").lines
    [note] = [line for line in told if "421" in line]
    assert "WEFT_ALLOWED_HOSTS=scrapyd1,10.0.0.7" in note
    assert note in newcomer.document("import", "scrapyd", "--dir", str(folder), "--dry-run")["notes"]
    assert ["allowed_hosts" in line for line in told if line.startswith("bind_address")] == [True] * bool(conf)


def test_the_report_names_the_variables_that_spiders_do_not_see_any_more(shell: Shell, folder: Path) -> None:
    settings = SETTINGS + "import os\nDB = os.environ.get('MY_DB')\nPROXY = os.getenv('PROXY_URL')\n"
    add_egg(folder, "shop", "2", egg(settings=settings))
    sentence = "spiders see no variables of the environment but those that the setting spider_env names"
    assert sentence in shell.ok("import", "scrapyd", "--dir", str(folder), "--dry-run").out
    told = shell.ok("import", "scrapyd", "--dir", str(folder)).lines
    at = told.index(f"{sentence}:")
    assert told[at + 1] == "  shop reads MY_DB, PROXY_URL"
    assert told[-3:] == ["for weft.toml:", "  port = 6900", '  spider_env = "MY_DB,PROXY_URL"']


def test_programs_get_one_document(shell: Shell, folder: Path) -> None:
    document = shell.document("import", "scrapyd", "--dir", str(folder))
    taken = {"taken": 1, "known": 0, "refused": 0}
    kinds = ("eggs", "finished_jobs", "logs", "items", "pending_jobs")
    assert document["counts"] == dict.fromkeys(kinds, taken)
    assert (document["items_stored"], document["refused"], document["dry_run"]) == (2, [], False)
    assert document["conf_files"] == [str(folder / "scrapyd.conf")]
    assert document["options"][0] == {
        "section": "scrapyd",
        "name": "http_port",
        "value": "6900",
        "source": str(folder / "scrapyd.conf"),
        "meaning": "the port that weft listens on, with Scrapyd's API on it",
        "settings": {"port": 6900},
        "is_supported": True,
    }


def test_what_is_refused_is_told_with_its_traceback_and_the_rest_is_taken(shell: Shell, folder: Path) -> None:
    add_egg(folder, "shop", "2", egg(spiders="1 / 0"))
    add_log(folder, "things", "odd\x1b[31m", "x\n")
    answer = shell("import", "scrapyd", "--dir", str(folder))
    assert (answer.code, answer.err) == (1, "")
    assert "eggs     shop/2.egg" in answer.out
    assert "ZeroDivisionError: division by zero" in answer.out.splitlines()
    assert "\x1b" not in answer.out
    assert "pending jobs   1      0      0" in answer.out
    document = shell("import", "scrapyd", "--dir", str(folder), "--json")
    assert (document.code, [each["kind"] for each in document.document["refused"]]) == (1, ["eggs", "logs"])


def test_a_dry_run_needs_no_weft_and_makes_none(newcomer: Shell, folder: Path) -> None:
    told = newcomer.ok("import", "scrapyd", "--dir", str(folder), "--dry-run").lines
    assert told[0] == "WHAT           TO BE TAKEN  KNOWN  REFUSED"
    assert told[5] == "pending jobs   1            0      0"
    assert not newcomer.folder.exists()
    refused = newcomer("import", "scrapyd", "--dir", str(folder))
    assert (refused.code, newcomer.folder.exists()) == (78, False)


def test_what_was_taken_is_known_to_a_dry_run(shell: Shell, folder: Path) -> None:
    shell.ok("import", "scrapyd", "--dir", str(folder))
    assert shell.ok("import", "scrapyd", "--dir", str(folder), "--dry-run").lines[5].split() == [
        "pending",
        "jobs",
        "0",
        "1",
        "0",
    ]


def test_only_the_project_that_is_named_is_taken(shell: Shell, folder: Path) -> None:
    add_log(folder, "things", "other", "x\n", project="bank")
    document = shell.document("import", "scrapyd", "--dir", str(folder), "--project", "bank")
    assert document["counts"]["finished_jobs"]["taken"] == 1
    assert document["counts"]["eggs"]["taken"] == 0


def test_another_configuration_may_be_named(shell: Shell, folder: Path, tmp_path: Path) -> None:
    (folder / "logs").rename(tmp_path / "elsewhere")
    conf = tmp_path / "other.conf"
    conf.write_text(f"[scrapyd]\nlogs_dir = {tmp_path / 'elsewhere'}\n")
    document = shell.document("import", "scrapyd", "--dir", str(folder), "--conf", str(conf))
    assert (document["counts"]["logs"]["taken"], document["counts"]["items"]["taken"]) == (1, 0)


def test_an_import_is_told_to_the_audit_log(shell: Shell, folder: Path) -> None:
    shell.ok("import", "scrapyd", "--dir", str(folder))

    async def actions(app: App) -> list[str]:
        return [each.action for each in await app.audit.find({})]

    assert set(shell.act(actions)) == {"import.scrapyd"}


def test_a_person_sees_how_far_it_has_come(shell: Shell, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    answer = shell("import", "scrapyd", "--dir", str(folder))
    assert answer.err.splitlines() == ["shop/1.egg is looked at", "1 of 1 jobs that have ended were looked at"]


@pytest.fixture
def heeding() -> Iterator[None]:
    """What is started now heeds Ctrl-C, also where the tests themselves run in the background and do not."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_an_import_that_is_stopped_says_how_to_go_on(heeding: None, shell: Shell, folder: Path) -> None:
    lines = b"".join(b'{"number": %d}\n' % number for number in range(40_000))
    add_items(folder, "things", "large", lines, at=1_700_000_000)
    process = shell.start("import", "scrapyd", "--dir", str(folder))
    try:
        wait_for(lambda: process.poll() is not None or stored_items(shell) > 0)
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=60)
    finally:
        process.kill()
    assert (process.returncode, told) == (130, "stopped; what was taken stays, and the same command takes the rest\n")
    assert 0 < stored_items(shell) < 40_000
    document = shell.document("import", "scrapyd", "--dir", str(folder))
    assert document["counts"]["items"]["refused"] == 0
    assert stored_items(shell) == 40_002


def stored_items(shell: Shell) -> int:
    try:
        with closing(sqlite3.connect(f"file:{shell.folder}/weft.db?mode=ro", uri=True)) as database:
            return int(database.execute("SELECT COUNT(*) FROM items").fetchone()[0])
    except sqlite3.OperationalError:  # it is being made
        return 0


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ((), "Missing option '--dir'"),
        (("--dir", "nowhere"), "--dir is 'nowhere'"),
        (("--dir", ".", "--conf", "nowhere"), "--conf is 'nowhere'"),
    ],
)
def test_what_is_asked_wrongly_is_refused(shell: Shell, words: tuple[str, ...], why: str) -> None:
    answer = shell("import", "scrapyd", *words)
    assert (answer.code, answer.err.startswith(why)) == (2, True), answer


def test_a_weft_elsewhere_is_not_asked(tmp_path: Path, folder: Path) -> None:
    place = tmp_path / "config" / "weft" / "contexts.toml"
    place.parent.mkdir(parents=True)
    place.write_text('current = "far"\n[contexts.far]\nurl = "http://127.0.0.1:9"\ntoken = "x"\n')
    answer = weft(
        "import", "scrapyd", "--dir", str(folder), cwd=tmp_path, env={"XDG_CONFIG_HOME": str(tmp_path / "config")}
    )
    assert (answer.code, "works on the weft of this machine alone" in answer.err) == (1, True)


def test_a_folder_that_is_not_scrapyds_is_told_with_where_it_was_looked(shell: Shell, tmp_path: Path) -> None:
    wrong = tmp_path / "project"
    wrong.mkdir()
    told = shell.ok("import", "scrapyd", "--dir", str(wrong), "--dry-run").out
    assert f"nothing of a Scrapyd is in {wrong / 'eggs'}, {wrong / 'dbs'}, {wrong / 'logs'}; --dir must be" in told
