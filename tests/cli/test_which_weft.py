"""Which weft a command speaks to."""

from __future__ import annotations

import asyncio
import http.server
import json
import os
import signal
import socket
import socketserver
import sqlite3
import ssl
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.cases import for_each
from tests.cli.commanding import WEFT, Answer, environment, weft
from tests.conftest import sqlite_copy
from tests.servers.server import free_port
from tests.spiders import project
from tests.waiting import eventually
from tests.workers.packages import QuietServer
from tests.workers.test_far_lines import certificate as own_certificate
from weft.access.encryption import key_ids
from weft.cli import contexts
from weft.cli.contexts import ServerContext, StoredContexts, find, worker_target
from weft.cli.main import COMMANDS, main
from weft.cli.options import SharedOptions
from weft.config import load
from weft.errors import Invalid, Misconfigured, NotFound, NoWeft, WeftError

FAR = ServerContext("far", "https://far.example", "weft_1")
LOCAL = "[deploy]\nurl = http://localhost:{port}/\nproject = shop\n"
REMOTE = "[deploy]\nurl = https://shop.example:6800/\nusername = ada\npassword = ${PASSWORD}\n"
TWO = "[deploy:test]\nurl = http://test.example\n[deploy:live]\nurl = http://live.example\n"
SETTINGS = "[settings]\ndefault = shop.settings\n\n"
LOGGED_IN = "[deploy]\nurl = https://FAR.example:443/\n"


@dataclass(frozen=True)
class Case:
    """Where a command is called, and how."""

    options: Mapping[str, str] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)
    current: str = "auto"
    cfg: str = ""
    """The scrapy.cfg of the folder above."""
    runs: tuple[str, ...] = ()
    """The folders in which wefts run, the newest last."""
    data: bool = False
    """Whether the folder itself has a weft that was stopped."""
    toml: str = ""


CASES: dict[str, tuple[Case, tuple[str, str] | type[WeftError]]] = {
    "--data-dir": (Case({"data_dir": "mine"}, {"WEFT_CONTEXT": "far"}, "far", REMOTE, ("a",)), ("option", "mine")),
    "--config": (Case({"config": "x.toml"}, current="far", cfg=REMOTE, toml="x.toml"), ("option", "of-toml")),
    "--context": (Case({"context": "far"}, {"WEFT_DATA_DIR": "d"}, "auto", REMOTE), ("option", FAR.url)),
    "--context here": (Case({"context": "here"}, current="far", cfg=REMOTE, runs=("a",)), ("running", "a/weft-data")),
    "--context auto": (Case({"context": "auto"}, current="far", runs=("a",)), ("running", "a/weft-data")),
    "--context of scrapy.cfg": (Case({"context": "live"}, cfg=TWO), ("option", "http://live.example")),
    "--context of nobody": (Case({"context": "nobody"}, cfg=TWO), NotFound),
    "--context and --data-dir": (Case({"context": "far", "data_dir": "mine"}), Invalid),
    "WEFT_CONTEXT": (Case({}, {"WEFT_CONTEXT": "far"}, "auto", REMOTE, ("a",)), ("environment", FAR.url)),
    "WEFT_DATA_DIR": (Case({}, {"WEFT_DATA_DIR": "d"}, "far", REMOTE, ("a",)), ("environment", "d")),
    "WEFT_CONTEXT=here": (Case({}, {"WEFT_CONTEXT": "here", "WEFT_DATA_DIR": "d"}), ("environment", "d")),
    "WEFT_DATABASE": (Case({}, {"WEFT_DATABASE": "mysql://db/weft"}, "far"), ("environment", "weft-data")),
    "a chosen context": (Case(current="far", cfg=REMOTE, runs=("a",), data=True), ("context", FAR.url)),
    "here, which was chosen": (Case(current="here", cfg=REMOTE, runs=("a",)), ("running", "a/weft-data")),
    "scrapy.cfg": (Case(cfg=REMOTE, runs=("a",), data=True), ("scrapy.cfg", "https://shop.example:6800")),
    "scrapy.cfg without a URL": (Case(cfg="[deploy]\nproject = shop\n", runs=("a",)), ("running", "a/weft-data")),
    "scrapy.cfg with one name": (Case(cfg=TWO.partition("[deploy:live]")[0]), ("scrapy.cfg", "http://test.example")),
    "scrapy.cfg with two names": (Case(cfg=TWO, runs=("a",)), Misconfigured),
    "scrapy.cfg that is broken": (Case(cfg="deploy", runs=("a",)), Misconfigured),
    "scrapy.cfg with no URL at all": (Case(cfg="[deploy]\nurl = shop.example\n"), Misconfigured),
    "scrapy.cfg of a login": (Case(cfg=LOGGED_IN), ("scrapy.cfg", FAR.url)),
    "scrapy.cfg of what runs here": (Case(cfg=LOCAL.format(port=6801), runs=("b", "a")), ("scrapy.cfg", "b/weft-data")),
    "scrapy.cfg of another port": (Case(cfg=LOCAL.format(port=7), runs=("a",)), ("scrapy.cfg", "http://localhost:7")),
    "what runs": (Case(runs=("a",), data=True), ("running", "a/weft-data")),
    "the newest": (Case(runs=("a", "b"), data=True), ("running", "b/weft-data")),
    "that of this folder": (Case(runs=("project/src", "b")), ("running", "project/src/weft-data")),
    "a stopped weft here": (Case(data=True), ("folder", "weft-data")),
    "a weft.toml here": (Case(data=True, toml="weft.toml"), NoWeft),
    "nothing": (Case(), NoWeft),
}
"""What is there, and which weft it is: what has decided, and its URL or data directory."""


@contextmanager
def running_in(folder: Path, port: int, **variables: str) -> Iterator[None]:
    """As `weft up` notes it in that folder."""
    folder.mkdir(parents=True, exist_ok=True)
    before = Path.cwd()
    os.chdir(folder)
    try:
        with contexts.registered("up", load({"port": port}, environment=variables)) as ready:
            ready()
            file = contexts._instance_file(os.getpid(), "json")
            other = file.with_name(f"{file.stem}-{port}.json")  # as many as there are ports, of one process
            file.rename(other)
            os.chdir(before)
            yield
            other.unlink()
    finally:
        os.chdir(before)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in a project, without anything said."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in [*os.environ]:
        if name.startswith("WEFT_"):
            monkeypatch.delenv(name)
    return entered(tmp_path)


def entered(place: Path) -> Path:
    folder = place / "project" / "src"
    folder.mkdir(parents=True, exist_ok=True)
    os.chdir(folder)
    return folder


def said(capsys: pytest.CaptureFixture[str], *words: str) -> Answer:
    """The command in this process."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as end:
        main(list(words))
    out, err = capsys.readouterr()
    return Answer(int(end.value.code or 0), out, err)


@pytest.mark.usefixtures("folder")
@for_each(("case", "expected"), list(CASES.values()), ids=list(CASES))
def test_one_order_decides_which_weft_it_is(
    tmp_path: Path, case: Case, expected: tuple[str, str] | type[WeftError]
) -> None:
    folder = entered(tmp_path)
    contexts.write(StoredContexts(case.current, {"far": FAR}))
    (folder.parent / "scrapy.cfg").write_text(case.cfg)
    if case.toml:
        (folder / case.toml).write_text('data_dir = "of-toml"')
    if case.data:
        (folder / "weft-data").mkdir()
        (folder / "weft-data" / "weft.db").touch()
    options = {name: Path(value) if name == "config" else value for name, value in case.options.items()}
    with ExitStack() as stack:
        for number, each in enumerate(case.runs):
            stack.enter_context(running_in(tmp_path / each, 6801 if each == "b" else 6810 + number))

        def found() -> contexts.CommandTarget:
            return find(SharedOptions(**options), {"PASSWORD": "pw"} | dict(case.variables), folder)  # type: ignore[arg-type]

        if isinstance(expected, type):
            with pytest.raises(expected):
                found()
            return
        target = found()
    by, where = expected
    place = target.elsewhere.url if target.elsewhere else str(target.here and target.here.config.folder)
    root = tmp_path if case.runs and by in ("running", "scrapy.cfg") else folder
    assert (target.by, place) == (by, where if target.elsewhere else str(root / where)), target.why


def test_another_role_of_the_same_weft_is_no_other_weft(tmp_path: Path, folder: Path) -> None:
    with running_in(tmp_path / "a", 6810), running_in(tmp_path / "a", 6811):
        assert find(SharedOptions(), {}, folder).others == []
        with running_in(tmp_path / "b", 6812):
            assert [each.folder for each in find(SharedOptions(), {}, folder).others] == [str(tmp_path / "a")]
            with running_in(tmp_path / "a", 6813):
                assert [each.folder for each in find(SharedOptions(), {}, folder).others] == [str(tmp_path / "b")]


def test_the_user_of_a_scrapy_cfg_is_used_where_nobody_has_logged_in(folder: Path) -> None:
    (folder / "scrapy.cfg").write_text(REMOTE)
    target = find(SharedOptions(), {"PASSWORD": "p%w"}, folder)
    assert target.elsewhere is not None
    assert target.elsewhere.basic == ("ada", "p%w")
    contexts.write(StoredContexts("auto", {"shop": ServerContext("shop", "https://shop.example:6800", "weft_2")}))
    known = find(SharedOptions(), {}, folder).elsewhere
    assert known is not None
    assert (known.token, known.basic) == ("weft_2", None)


def test_a_weft_that_has_ended_is_not_found(folder: Path) -> None:
    with running_in(folder.parent, 6800):
        (note,) = contexts.instances_folder().glob("*.json")
        left = note.read_text()
    note.write_text(left)
    assert contexts.running_instances() == []
    with pytest.raises(NoWeft):
        find(SharedOptions(), {}, folder)


def test_a_note_whose_number_another_program_has_by_now_is_not_believed(folder: Path) -> None:
    """Whether its weft lives is known by the lock on the note; a number may be anybody's after a while."""
    with running_in(folder.parent, 6800):
        (note,) = contexts.instances_folder().glob("*.json")
        left = json.loads(note.read_text())
    stale = note.with_name(f"{socket.gethostname()}-1.json")
    stale.write_text(json.dumps(left | {"pid": 1}))
    note.write_text(json.dumps(left))
    with pytest.raises(NoWeft):
        find(SharedOptions(), {}, folder)
    with contexts.registered("up", load({"port": 6801})) as ready:
        ready()
        assert [each.settings["port"] for each in contexts.running_instances()] == [6801]
        assert not stale.exists()
    assert list(contexts.instances_folder().iterdir()) == []


NOTES = ["", "{", "null", "[]", '{"pid": 1}', "\0" * 20, '{"command": "up", "folder": 7, "unknown": true}']


@for_each("text", NOTES)
def test_a_note_that_is_damaged_is_no_weft(tmp_path: Path, folder: Path, text: str) -> None:
    with running_in(tmp_path / "a", 6800):
        (note,) = contexts.instances_folder().glob("*.json")
        note.write_text(text)
        assert contexts.running_instances() == []


def test_the_data_of_a_note_count_and_not_who_answers_on_its_port(
    tmp_path: Path, folder: Path, sqlite_template: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "a" / "weft-data"
    data.mkdir(parents=True, mode=0o700)
    sqlite_copy(sqlite_template, data)
    with stranger({"*": PAGE}) as port, running_in(tmp_path / "a", port):
        found = said(capsys, "runs", "list", "--json")
        assert (found.code, found.document) == (0, []), found
        (folder / "scrapy.cfg").write_text(LOCAL.format(port=port))
        assert said(capsys, "context", "show", "--json").document["data_dir"] == str(data)


def test_nothing_hidden_is_noted(folder: Path) -> None:
    secrets = {"WEFT_ADMIN_PASSWORD": "a long password", "WEFT_SECRET_KEY": "0" * 64, "WEFT_LIMITER": "redis://r"}
    with contexts.registered("serve", load({}, environment=secrets)) as ready:
        ready()
        (note,) = contexts.instances_folder().glob("*.json")
        assert (note.stat().st_mode & 0o777, note.parent.stat().st_mode & 0o077) == (0o600, 0)
        assert "a long password" not in note.read_text()
        assert "0" * 64 not in note.read_text()
        assert contexts.running_instances()[0].key_ids == key_ids("0" * 64)
        assert contexts.running_instances()[0].settings["limiter"] == "redis://r"


WORKERS = {
    "its own settings": ({"data_dir": "mine"}, {}, "", ("a",), "mine"),
    "a variable": ({}, {"WEFT_DATABASE": "mysql://db/weft"}, "", ("a",), "weft-data"),
    "a gateway": ({"connect": "https://far.example"}, {}, "", ("a",), "weft-data"),
    "a weft.toml": ({}, {}, 'data_dir = "of-toml"', ("a",), "of-toml"),
    "what runs": ({}, {}, "", ("a",), "../../a/weft-data"),
    "nothing": ({}, {}, "", (), None),
}


@pytest.mark.usefixtures("folder")
@for_each(("given", "variables", "toml", "runs", "expected"), list(WORKERS.values()), ids=list(WORKERS))
def test_a_worker_belongs_to_the_weft_of_its_settings_or_to_the_one_that_runs(
    tmp_path: Path,
    given: Mapping[str, str],
    variables: Mapping[str, str],
    toml: str,
    runs: tuple[str, ...],
    expected: str | None,
) -> None:
    folder = entered(tmp_path)
    if toml:
        (folder / "weft.toml").write_text(toml)
    with ExitStack() as stack:
        for each in runs:
            stack.enter_context(running_in(tmp_path / each, 6800))
        if expected is None:
            with pytest.raises(NoWeft):
                worker_target(given, None, variables, folder)
            return
        config = worker_target(given, None, variables, folder).config
    assert config.folder == (folder / expected).resolve()


@pytest.mark.usefixtures("folder")
def test_context_show_tells_which_weft_it_is_and_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with running_in(tmp_path / "a", 6800):
        shown = said(capsys, "context", "show")
        found = said(capsys, "context", "show", "--json").document
    assert (shown.code, shown.err) == (0, "")
    assert f"{tmp_path}/a/weft-data" in shown.out
    assert f"`weft up` runs on this machine (process {os.getpid()}, started in {tmp_path}/a)" in shown.out
    assert (found["by"], found["data_dir"]) == ("running", f"{tmp_path}/a/weft-data")
    nowhere = said(capsys, "context", "show")
    assert (nowhere.code, nowhere.out) == (78, "")
    assert nowhere.err.startswith("no weft server found (none runs on this machine, and ")


SHOWN = {
    "an option": (("--data-dir", "mine"), {}, "option", "--data-dir mine", "mine"),
    "a variable": ((), {"WEFT_DATA_DIR": "d"}, "environment", "WEFT_DATA_DIR", "d"),
    "a context": ((), {"WEFT_CONTEXT": "far"}, "environment", "WEFT_CONTEXT=far", FAR.url),
    "scrapy.cfg": ((), {}, "scrapy.cfg", "url of [deploy] in {cfg}", "https://shop.example:6800"),
}


@pytest.mark.usefixtures("folder")
@for_each(("words", "variables", "by", "why", "where"), list(SHOWN.values()), ids=list(SHOWN))
def test_context_show_names_what_has_decided(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    variables: Mapping[str, str],
    by: str,
    why: str,
    where: str,
) -> None:
    folder = entered(tmp_path)
    contexts.write(StoredContexts("auto", {"far": FAR}))
    (folder.parent / "scrapy.cfg").write_text(REMOTE)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        found = said(capsys, "context", "show", "--json", *words).document
        text = said(capsys, "context", "show", *words).out
    why = why.format(cfg=folder.parent / "scrapy.cfg")
    assert (found["by"], found["why"]) == (by, why)
    assert (found["url"] or found["data_dir"]) == (where if "://" in where else str(folder / where))
    assert why in text


class Stranger(http.server.BaseHTTPRequestHandler):
    """Answers what its server is set to, whatever is asked."""

    def do_GET(self) -> None:
        status, kind, body = self.server.answers.get(self.path, self.server.answers["*"])  # type: ignore[attr-defined]
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        return


@contextmanager
def stranger(answers: Mapping[str, tuple[int, str, bytes]], certificate: Path | None = None) -> Iterator[int]:
    with QuietServer(("127.0.0.1", 0), Stranger) as server:
        server.answers = answers  # type: ignore[attr-defined]
        if certificate is not None:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(certificate)
            server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


PAGE = (200, "text/html", b"<html>hello</html>")
SCRAPYD = {
    "*": (404, "text/html", b"<html>No Such Resource</html>"),
    "/daemonstatus.json": (200, "application/json", b'{"node_name": "n", "status": "ok", "running": 0}'),
}
STRANGERS = {
    "a page": ({"*": PAGE}, "answers with status 200, not as weft does"),
    "JSON": ({"*": (200, "application/json", b'{"ok": true}')}, "answers with status 200, not as weft does"),
    "an error in JSON": ({"*": (401, "application/json", b'{"code": "x"}')}, "answers with status 401, not as weft"),
    "Scrapyd": (SCRAPYD, "answers as Scrapyd, not as weft does"),
}


@for_each(("answers", "sentence"), list(STRANGERS.values()), ids=list(STRANGERS))
def test_a_url_where_no_weft_answers_is_told_with_its_file(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    answers: Mapping[str, tuple[int, str, bytes]],
    sentence: str,
) -> None:
    with stranger(answers) as port:
        (folder / "scrapy.cfg").write_text(LOCAL.format(port=port))
        refused = said(capsys, "runs", "list")
    url = f"http://localhost:{port} (url of [deploy] in {folder}/scrapy.cfg)"
    assert (refused.code, refused.out, refused.err.count("\n")) == (78, "", 1)
    assert refused.err.startswith(f"{url} {sentence}")


RAW = {
    "another protocol": (b"SSH-2.0-OpenSSH_9.2\r\n", 78, "answers, but not in HTTP; correct it"),
    "a header that is none": (b"HTTP/1.1 200 OK\r\n: :\r\n\r\n", 78, "answers, but not in HTTP; correct it"),
    "no end": (b"HTTP/1.1 200 OK\r\n\r\n" + b"[" * (4 << 20), 78, "answers with status 200, not as weft does"),
    "another place": (
        b"HTTP/1.1 302 Found\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n",
        78,
        "answers with status 302",
    ),
    "half an answer": (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nab", 1, "its answer is cut off or damaged"),
    "nothing": (b"", 1, "does not answer"),
}


@for_each(("sent", "code", "sentence"), list(RAW.values()), ids=list(RAW))
def test_a_url_where_something_odd_answers_is_told_in_one_sentence(
    folder: Path, capsys: pytest.CaptureFixture[str], sent: bytes, code: int, sentence: str
) -> None:
    class Odd(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(4096)
            with suppress(OSError):
                self.request.sendall(sent)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Odd) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        (folder / "scrapy.cfg").write_text(LOCAL.format(port=server.server_address[1]))
        refused = said(capsys, "runs", "list")
        server.shutdown()
        thread.join()
    assert (refused.code, refused.out, refused.err.count("\n")) == (code, "", 1)
    assert f"(url of [deploy] in {folder}/scrapy.cfg)" in refused.err
    assert sentence in refused.err


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return own_certificate(tmp_path_factory.mktemp("certificate"))


def test_a_url_whose_certificate_is_not_trusted_is_told_with_its_file(
    folder: Path, capsys: pytest.CaptureFixture[str], certificate: Path
) -> None:
    with stranger({"*": PAGE}, certificate) as port:
        (folder / "scrapy.cfg").write_text(LOCAL.format(port=port).replace("http:", "https:"))
        refused = said(capsys, "runs", "list")
    where = f"https://localhost:{port} (url of [deploy] in {folder}/scrapy.cfg)"
    assert (refused.code, refused.out, refused.err.count("\n")) == (1, "", 1)
    assert refused.err.startswith(f"the certificate of the gateway at {where} is not trusted (")
    assert f"`weft login https://localhost:{port} --ca-file FILE`" in refused.err


def test_a_url_that_is_wrong_about_tls_is_told_so(
    folder: Path, capsys: pytest.CaptureFixture[str], certificate: Path
) -> None:
    with stranger({"*": PAGE}) as port:
        (folder / "scrapy.cfg").write_text(LOCAL.format(port=port).replace("http:", "https:"))
        refused = said(capsys, "runs", "list")
    where = f"https://localhost:{port} (url of [deploy] in {folder}/scrapy.cfg)"
    assert (refused.code, refused.out, refused.err.count("\n")) == (78, "", 1), refused
    assert refused.err.startswith(f"{where} answers, but not in HTTPS (is it http://localhost:{port}?); correct it")
    with stranger({"*": PAGE}, certificate) as port:
        (folder / "scrapy.cfg").write_text(LOCAL.format(port=port))
        refused = said(capsys, "runs", "list")
    assert (refused.out, refused.err.count("\n")) == ("", 1), refused
    assert f"http://localhost:{port} (url of [deploy] in {folder}/scrapy.cfg)" in refused.err


def test_a_url_where_nothing_answers_is_told_with_its_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    port = free_port()
    (folder / "scrapy.cfg").write_text(LOCAL.format(port=port))
    refused = said(capsys, "runs", "list")
    assert (refused.code, refused.out, refused.err.count("\n")) == (1, "", 1)
    where = f"http://localhost:{port} (url of [deploy] in {folder}/scrapy.cfg)"
    assert refused.err.startswith(f"the gateway at {where} does not answer (")


OF_NO_WEFT = {"up", "serve", "worker", "login", "context", "config", "submit", "doctor"}
"""Commands that are a weft, choose one, speak to a queue, or tell what is wrong here."""
SPEAKING: dict[str, tuple[str, ...]] = {
    "run": ("prices",),
    "crawl": ("https://shop.example",),
    "crawls": ("list",),
    "deploy": (),
    "versions": ("list", "--project", "shop"),
    "spiders": (),
    "tasks": ("list",),
    "runs": ("list",),
    "items": ("prices", "--project", "shop"),
    "datasets": ("list",),
    "destinations": ("list", "prices", "--project", "shop"),
    "proxies": ("list", "--project", "shop"),
    "dead-letters": ("list",),
    "workers": ("list",),
    "users": ("list",),
    "keys": ("list",),
    "webhooks": ("list",),
    "guest-links": ("list", "--project", "shop"),
    "top": ("--once",),
    "secrets": ("list",),
    "audit": ("list",),
    "import": ("scrapyd", "--dir", "nowhere"),
}


HERE_ALONE = {"import": (1, "reads files of this machine, so it works on the weft of this machine alone")}


def test_each_command_speaks_to_a_weft_or_is_known_to_speak_to_none() -> None:
    assert SPEAKING.keys() | OF_NO_WEFT == COMMANDS.keys()
    assert not SPEAKING.keys() & OF_NO_WEFT


@pytest.mark.usefixtures("folder")
@for_each("name", list(SPEAKING))
def test_a_command_finds_the_weft_that_runs_and_makes_none_where_there_is_none(
    tmp_path: Path, sqlite_template: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    folder, words = entered(tmp_path), (name, *SPEAKING[name])
    project(folder.parent)
    (folder.parent / "nowhere").mkdir(exist_ok=True)
    os.chdir(folder.parent)
    before = sorted(folder.parent.rglob("*"))

    missing = said(capsys, *words)
    assert (missing.code, missing.out) == (78, ""), missing
    assert missing.err.startswith("no weft server found (none runs on this machine, and "), missing
    assert missing.err.count("\n") == 1, missing

    with stranger(SCRAPYD) as port:
        (folder.parent / "scrapy.cfg").write_text(SETTINGS + LOCAL.format(port=port))
        other = said(capsys, *words)
        code, sentence = HERE_ALONE.get(name, (78, "answers as Scrapyd, not as weft does"))
        assert (other.code, other.out, other.err.count("\n")) == (code, "", 1), other
        assert sentence in other.err, other

    (folder.parent / "scrapy.cfg").write_text(SETTINGS)
    data = tmp_path / "a" / "weft-data"
    if not data.exists():
        data.mkdir(parents=True, mode=0o700)
        sqlite_copy(sqlite_template, data)
    with running_in(tmp_path / "a", 6810):
        reached = said(capsys, *words)
        assert "no weft server found" not in reached.err, reached
        if words[-1] == "list":
            assert reached.code == 0, reached
    assert sorted(folder.parent.rglob("*")) == before


ONE, TWO_KEYS = "0123456789abcdef" * 2 + "fedcba9876543210" * 2, "00112233445566778899aabbccddeeff"
SEALING = {
    "neither has a key": ("", "", ""),
    "both have the same": (ONE, ONE, ""),
    "one was put before it in both": (f"{TWO_KEYS},{ONE}", f"{TWO_KEYS}, {ONE}", ""),
    "an old one is missing": (f"{TWO_KEYS},{ONE}", TWO_KEYS, ""),
    "the command has none": (ONE, "", "was started with secret_key; set WEFT_SECRET_KEY here too, or use `weft login`"),
    "the command has another": (ONE, TWO_KEYS, "was started with another secret_key than the one here; set the same"),
    "the command has a newer one": (ONE, f"{TWO_KEYS},{ONE}", "was started with another secret_key than the one here"),
    "the command has an older one": (f"{TWO_KEYS},{ONE}", ONE, "was started with another secret_key than the one here"),
    "weft has none": ("", ONE, "was started without secret_key; unset WEFT_SECRET_KEY here, or use `weft login`"),
}


@pytest.mark.parametrize(("there", "here", "refusal"), list(SEALING.values()), ids=list(SEALING))
def test_nothing_is_sealed_with_a_key_that_the_running_weft_has_not(
    tmp_path: Path,
    folder: Path,
    sqlite_template: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    *,
    there: str,
    here: str,
    refusal: str,
) -> None:
    data = tmp_path / "a" / "weft-data"
    data.mkdir(parents=True, mode=0o700)
    sqlite_copy(sqlite_template, data)
    (folder / "value").write_text("a long value")
    if here:
        monkeypatch.setenv("WEFT_SECRET_KEY", here)
    with running_in(tmp_path / "a", 6810, **({"WEFT_SECRET_KEY": there} if there else {})):
        for where in ((), ("--data-dir", str(data))):
            done = said(capsys, *where, "secrets", "set", "TOKEN", "--file", "value")
            assert (done.code, refusal in done.err) == (78 if refusal else 0, True), done
            rotated = said(capsys, *where, "secrets", "rotate")
            assert (rotated.code, refusal in rotated.err) == (78 if refusal else 0, True), rotated
            assert said(capsys, *where, "secrets", "list").code == 0
        assert (data / "keys").exists() == (not there and not here)
        if refusal:
            worker = said(capsys, "worker", "--name", "w1")
            assert (worker.code, worker.err.count("\n"), "let it join with --connect" in worker.err) == (78, 1, True)
    if not there:
        monkeypatch.delenv("WEFT_SECRET_KEY", raising=False)
        assert said(capsys, "--data-dir", str(data), "secrets", "set", "TOKEN", "--file", "value").code == 0


def test_no_key_is_made_beside_that_of_the_running_weft(
    tmp_path: Path,
    folder: Path,
    sqlite_template: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    home = tmp_path / "a"
    home.mkdir()
    database = sqlite_copy(sqlite_template, home)
    (folder / "value").write_text("a long value")
    monkeypatch.setenv("WEFT_DATABASE", database)
    with running_in(home, 6810, WEFT_DATABASE=database):
        refused = said(capsys, "secrets", "set", "TOKEN", "--file", "value")
        assert (refused.code, refused.err) == (
            78,
            f"this weft has its keys in {home}/weft-data; name it with --data-dir, or use `weft login`\n",
        )
        assert said(capsys, "--data-dir", f"{home}/weft-data", "secrets", "set", "TOKEN", "--file", "value").code == 0


PASSWORD = "correct-horse-9"


@contextmanager
def started(*words: str, folder: Path, **variables: str) -> Iterator[subprocess.Popen[bytes]]:
    with (folder / "output").open("ab") as output:
        process = subprocess.Popen(
            [WEFT, *words], cwd=folder, env=environment(**variables), stdout=output, stderr=output
        )
    try:
        yield process
    finally:
        os.kill(process.pid, signal.SIGTERM)
        process.wait(60)


def test_a_serve_is_found_from_any_folder_while_it_runs(
    folder: Path, tmp_path: Path, sqlite_template: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    database, port = sqlite_copy(sqlite_template, home), free_port()
    submit = ("runs", "submit", "--kind", "noop", "--spec", "{}", "--json")
    variables = {"WEFT_DATABASE": database, "WEFT_ADMIN_PASSWORD": PASSWORD}
    with started("serve", "--port", str(port), folder=home, **variables):
        asyncio.run(eventually(lambda: contexts.running_instances() or None))
        assert said(capsys, *submit).document["run_id"] == 1
        (folder / "scrapy.cfg").write_text(f"{LOCAL.format(port=port)}username = admin\npassword = {PASSWORD}\n")
        assert said(capsys, "context", "show", "--json").document["by"] == "scrapy.cfg"
        assert said(capsys, *submit).document["run_id"] == 2
        elsewhere = {"XDG_STATE_HOME": str(tmp_path / "of-another-user")}
        assert weft(*submit, cwd=folder, env=elsewhere).document["run_id"] == 3
        (folder / "scrapy.cfg").write_text(LOCAL.format(port=port))
        unknown = weft(*submit, cwd=folder, env=elsewhere)
        assert (unknown.code, f"`weft login http://localhost:{port}`" in unknown.err) == (1, True), unknown
    assert contexts.running_instances() == []
    assert list(contexts.instances_folder().iterdir()) == []


def test_a_secret_that_a_command_sets_is_opened_by_the_weft_that_runs(
    folder: Path, tmp_path: Path, sqlite_template: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "key").write_text(f"{ONE}\n")
    (home / "key").chmod(0o600)
    (folder / "value").write_text("a long value")
    variables = {"WEFT_DATABASE": sqlite_copy(sqlite_template, home), "WEFT_SECRET_KEY_FILE": str(home / "key")}
    set_it = ("secrets", "set", "TOKEN", "--file", "value")
    with started("serve", "--port", str(free_port()), folder=home, **variables):
        asyncio.run(eventually(lambda: contexts.running_instances() or None))
        refused = said(capsys, *set_it)
        assert (refused.code, refused.out, refused.err.count("\n")) == (78, "", 1)
        assert refused.err.startswith("this weft was started with secret_key; set WEFT_SECRET_KEY here too")
        assert weft(*set_it, cwd=folder, env={"WEFT_SECRET_KEY": ONE}).code == 0
    with closing(sqlite3.connect(home / "weft.db")) as rows:
        assert rows.execute("SELECT key_id FROM secrets").fetchall() == [(key_ids(ONE)[0],)]


def test_code_is_checked_with_the_variables_and_the_package_index_of_the_weft_that_runs(
    folder: Path,
    tmp_path: Path,
    sqlite_template: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    home, port = tmp_path / "home", free_port()
    home.mkdir()
    variables = {
        "WEFT_DATABASE": sqlite_copy(sqlite_template, home),
        "WEFT_SPIDER_ENV": "SHOP_*",
        "SHOP_DB": "of the server",
        "PIP_INDEX_URL": f"http://127.0.0.1:{port}/simple",
        "PIP_RETRIES": "0",
    }
    reads = "import os\nSPIDER_MODULES = ['shop.spiders']\nDB = os.environ['SHOP_DB']\n"
    project(folder, settings=f"{reads}TABLE = os.environ.get('SHOP_TABLE')\n")
    with started("serve", "--port", str(free_port()), folder=home, **variables):
        asyncio.run(eventually(lambda: contexts.running_instances() or None))
        monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.2:9/simple")
        monkeypatch.setenv("SHOP_TABLE", "of the shell")
        deployed = said(capsys, "deploy")
        assert deployed.code == 0, deployed
        with closing(sqlite3.connect(home / "weft.db")) as rows:
            ((settings,),) = rows.execute("SELECT own_settings FROM versions").fetchall()
        assert {"DB": "of the server", "TABLE": None}.items() <= json.loads(settings).items()
        (folder / "requirements.txt").write_text("spindle==2.0\n")
        refused = said(capsys, "deploy")
        assert (refused.code, f"127.0.0.1:{port}" in refused.err, "127.0.0.2" in refused.err) == (1, True, False), (
            refused
        )
        (folder / "requirements.txt").unlink()
        lacks = reads.replace("SHOP_DB", "SHOP_TABLE")
        (folder / "shop" / "settings.py").write_text(lacks)
        unset = said(capsys, "deploy")
        assert unset.code == 1
        assert "needs SHOP_TABLE in its environment; spider_env names it, but it is not set where the code" in unset.err


def test_a_second_up_on_one_data_directory_is_refused(tmp_path: Path) -> None:
    port = free_port()
    words = ("up", "--workers", "1", "--no-examples", "--data-dir", str(tmp_path / "data"), "--port")
    with started(*words, str(port), folder=tmp_path) as first:
        asyncio.run(eventually(lambda: (tmp_path / "data" / contexts.LOCK).exists() and contexts.running_instances()))
        second = weft(*words, str(free_port()), cwd=tmp_path)
        assert (second.code, second.out, second.err.count("\n")) == (78, "", 1), second
        said = f"`weft up` runs on {tmp_path / 'data'} already (process {first.pid}, http://127.0.0.1:{port}); end"
        assert second.err.startswith(said)
    assert contexts.running_instances() == []
