"""``weft doctor --security``: a sound installation passes, and whatever is broken on it is seen."""

from __future__ import annotations

import asyncio
import hmac
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.access.acting import PASSWORD
from tests.cli.commanding import Shell
from tests.servers.certificate import self_signed
from tests.servers.server import free_port
from weft.access.model import EVERYWHERE, Caller, Role
from weft.addresses import Guard
from weft.api import callers, gateway, guards, lines
from weft.api import metrics as metrics_api
from weft.api.callers import Callers
from weft.api.door import open_server
from weft.api.guards import Hosts
from weft.api.operation import Operation
from weft.api.problems import problem_of
from weft.api.rates import Rates
from weft.api.v1 import session
from weft.app import App, open_app
from weft.cli.controls import CONTROLS, examine, files
from weft.cli.findings import Finding
from weft.config import Config
from weft.workers.gate import Gate
from weft.workers.protocol import Card

NAMES = [*(f"C{number:02}" for number in (*range(1, 18), 28, 29, 30, 31, 37, 38, 39, 40, 41))]
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "controls.md"

Patch = pytest.MonkeyPatch


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a weft with a user, keys, a task and an audit log, as it would be after a while."""
    folder = tmp_path_factory.mktemp("sound") / "data"
    asyncio.run(lived_in(Config(data_dir=str(folder), port=0)))
    return folder


@pytest.fixture
def sound(template: Path, tmp_path: Path) -> Config:
    """The settings of one of its own for each test."""
    shutil.copytree(template, tmp_path / "data")
    return Config(data_dir=str(tmp_path / "data"), port=0)


async def lived_in(config: Config) -> None:
    app = await open_app(config)
    await app.users.create("ada", PASSWORD, {EVERYWHERE: Role.ADMIN})
    await app.keys.create("ci", {"shop": Role.OPERATOR}, by="ada")
    await app.add_examples()
    app.sealer.newest()
    await app.audit.write(raw_entry('{"country": "fr"}'))
    await app.close()


def raw_entry(data: str) -> dict[str, Any]:
    return {"actor": "user:ada", "address": "", "action": "runs.start", "project": "shop", "target": "", "data": data}


async def act(config: Config, work: Callable[[App], Awaitable[Any]]) -> None:
    app = await open_app(config)
    try:
        await work(app)
    finally:
        await app.close()


async def change(config: Config, statement: str) -> None:
    await act(config, lambda app: app.db.transact(lambda tx: tx.connection.exec_driver_sql(statement)))


async def found(config: Config, name: str) -> Finding:
    (finding,) = [each for each in await examine(config, [name]) if each.check == name]
    return finding


async def test_a_sound_installation_passes_every_control(sound: Config) -> None:
    findings = await examine(sound)
    assert [each.check for each in findings] == NAMES
    assert [each for each in findings if not each.ok] == []
    assert all(each.found and not each.advice for each in findings)


def test_the_command_tells_people_and_programs_the_same(shell: Shell, monkeypatch: Patch) -> None:
    monkeypatch.setenv("WEFT_PORT", "0")
    shell.apply("{}")
    shell.folder.chmod(0o755)
    people = shell("doctor", "--security")
    told = {name: outcome for outcome, name in (line.split()[:2] for line in people.lines[1:])}
    assert people.code == 1
    assert told == dict.fromkeys(NAMES, "pass") | {"C40": "fail"}
    assert f"{shell.folder} has mode 755" in people.out
    shell.folder.chmod(0o700)
    programs = shell("doctor", "--security", "--json")
    assert (programs.code, programs.err) == (0, "")
    assert {each["check"]: each["ok"] for each in programs.document} == dict.fromkeys(NAMES, True)


FILES: dict[str, tuple[str, Callable[[Path], object], str]] = {
    "an open data directory": ("C40", lambda folder: folder.chmod(0o750), "data has mode 750"),
    "an open database": ("C40", lambda folder: (folder / "weft.db").chmod(0o644), "weft.db has mode 644"),
    "an open key file": ("C03", lambda folder: (folder / "keys").chmod(0o640), "keys has mode 640"),
    "a known key": (
        "C03",
        lambda folder: (folder / "keys").write_text("changeme\n"),
        "it is known to everybody",
    ),
    "a short key": ("C03", lambda folder: (folder / "keys").write_text("0123abcd\n"), "fewer than 32"),
}


@pytest.mark.parametrize(("name", "harm", "words"), FILES.values(), ids=FILES)
async def test_a_file_that_is_not_as_it_should_be_is_seen(
    sound: Config, name: str, harm: Callable[[Path], object], words: str
) -> None:
    harm(sound.folder)
    finding = await found(sound, name)
    assert not finding.ok
    assert words in finding.found


SETTINGS: dict[str, tuple[str, dict[str, Any], str]] = {
    "an open bind": ("C01", {"host": "0.0.0.0", "port": 1, "allow_plain_http": True}, "without TLS"),  # noqa: S104
    "plain HTTP": ("C30", {"host": "0.0.0.0", "allow_plain_http": True}, "in clear"),  # noqa: S104
    "every proxy": ("C30", {"trusted_proxies": "*"}, "everybody is believed"),
    "every network": ("C30", {"trusted_proxies": "10.0.0.1, 0.0.0.0/0"}, "everybody is believed"),
    "a weak key": ("C03", {"secret_key": "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}, "it repeats itself"),
    "no limit of requests": ("C13", {"requests_per_second": 0.0}, "as often as it likes"),
    "no certificate": ("C30", {"tls_certificate": "/nowhere.pem"}, "cannot be used"),
}


@pytest.mark.parametrize(("name", "settings", "words"), SETTINGS.values(), ids=SETTINGS)
async def test_a_setting_that_opens_a_door_is_seen(
    sound: Config, name: str, settings: dict[str, Any], words: str
) -> None:
    finding = await found(replace(sound, **settings), name)
    assert not finding.ok
    assert words in finding.found


async def join_for_ever(app: App) -> None:
    await app.keys.create("home", {}, by="ada", kind="join")


async def guessed(app: App) -> None:
    await app.users.set_password("ada", "password123")


ROWS: dict[str, tuple[str, str | Callable[[App], Awaitable[Any]], str]] = {
    "a password in clear": ("C02", "UPDATE users SET password = 'in clear'", "ada is not kept as argon2id"),
    "a guessed password": ("C02", guessed, "one that everybody tries"),
    "a key in clear": ("C04", "UPDATE api_keys SET digest = 'in clear'", "key ci is not kept as a digest"),
    "a bad name": ("C17", "UPDATE tasks SET definition = replace(definition, '\"hello\"', '\"../etc\"')", "'../etc'"),
    "a secret in the audit log": (
        "C28",
        lambda app: app.audit.write(raw_entry('{"password": "hunter2hunter2"}')),
        "entry 2 of the audit log has something secret",
    ),
    "a dropped trigger": ("C29", "DROP TRIGGER audit_no_update", "no trigger audit_no_update"),
    "a token for ever": ("C31", join_for_ever, "join token home is good for ever"),
}


@pytest.mark.parametrize(("name", "harm", "words"), ROWS.values(), ids=ROWS)
async def test_a_row_that_is_not_as_it_should_be_is_seen(
    sound: Config, name: str, harm: str | Callable[[App], Awaitable[Any]], words: str
) -> None:
    await (change(sound, harm) if isinstance(harm, str) else act(sound, harm))
    finding = await found(sound, name)
    assert not finding.ok
    assert words in finding.found


async def test_an_entry_of_the_audit_log_that_was_changed_is_named(sound: Config) -> None:
    app = await open_app(sound)
    trigger = await app.db.read(
        lambda tx: tx.connection.exec_driver_sql(
            "SELECT sql FROM sqlite_master WHERE name = 'audit_no_update'"
        ).scalar_one()
    )
    await app.close()
    for statement in ("DROP TRIGGER audit_no_update", "UPDATE audit SET actor = 'user:eve' WHERE id = 1", trigger):
        await change(sound, statement)
    finding = await found(sound, "C29")
    assert (finding.ok, "entry 1 is not as it was written" in finding.found) == (False, True)


def everybody(*_: object, **__: object) -> None:
    """Refuses nobody."""


async def nothing(*_: object) -> None:
    """Does nothing and takes its time for it."""


def without(header: str, patch: Patch) -> None:
    patch.setattr(gateway, "ALWAYS", [each for each in gateway.ALWAYS if each[0] != header.lower().encode()])


def forgotten(patch: Patch) -> None:
    """A route that somebody added without saying who may call it."""
    new = Operation(name="runs.leak", method="GET", path="/v1/leak", summary="", needs=None, handle=nothing)
    patch.setattr(metrics_api.operations, "all", [*metrics_api.operations.all, new])


def blind_to_signatures(patch: Patch) -> None:
    seeing_none = SimpleNamespace(compare_digest=lambda *_: True, digest=hmac.digest)
    patch.setattr("weft.access.tokens.hmac", seeing_none)


def a_fault_that_tells(patch: Patch) -> None:
    def telling(error: Exception, request_id: str) -> Any:
        problem, headers = problem_of(error, request_id)
        return type(problem)(
            **{**{f: getattr(problem, f) for f in problem.__struct_fields__}, "detail": "Traceback"}
        ), headers

    patch.setattr(gateway, "problem_of", telling)


def unpickling(patch: Patch, folder: Path) -> None:
    (folder / "evil.py").write_text("from pickle import loads\n")
    patch.setattr(files, "weft", SimpleNamespace(__file__=str(folder / "__init__.py")))


CODE: dict[str, tuple[str, Callable[[Patch], None], str]] = {
    "a session that scripts read": (
        "C05",
        lambda patch: patch.setattr(session, "_cookie", lambda call, value, _: f"weft_session={value}; SameSite=Lax"),
        "the cookie of a session",
    ),
    "tokens that nobody signed": ("C06", blind_to_signatures, "is answered with 200"),
    "roles that count for nothing": ("C07", lambda patch: patch.setattr(Caller, "check", everybody), "foreign project"),
    "a forgotten route": ("C08", forgotten, "anybody may call runs.leak"),
    "no token of pages": (
        "C09",
        lambda patch: patch.setattr(callers, "hmac", SimpleNamespace(compare_digest=lambda *_: True)),
        "without its token is answered with 202",
    ),
    "any host": ("C10", lambda patch: patch.setattr(Hosts, "check", everybody), "Host: evil.test"),
    "any origin": (
        "C10",
        lambda patch: patch.setattr(Callers, "check_origin", everybody),
        "comes from https://evil.test",
    ),
    "CORS for all": (
        "C11",
        lambda patch: patch.setattr(gateway, "ALWAYS", [*gateway.ALWAYS, (b"access-control-allow-origin", b"*")]),
        "Access-Control-Allow-Origin: *",
    ),
    "no policy": ("C12", lambda patch: without("Content-Security-Policy", patch), "has the policy ''"),
    "sniffing": ("C12", lambda patch: without("X-Content-Type-Options", patch), "nosniff"),
    "no throttle": ("C13", lambda patch: patch.setattr("weft.access.throttle.FREE", 10**6), "answered with 401"),
    "no rate": (
        "C13",
        lambda patch: patch.setattr(Rates, "check", everybody),
        "where 0.5 a second are allowed end with",
    ),
    "any depth": ("C14", lambda patch: patch.setattr(guards, "DEEPEST", 10**6), "to JSON that is 200 deep"),
    "endless patience": ("C14", lambda patch: patch.setattr(lines, "HEAD_SECONDS", 3600.0), "waited for 3600 s"),
    "no masks": ("C28", lambda patch: patch.setattr("weft.access.audit.redacted_tree", lambda data: data), "in clear"),
    "foreign leases": ("C31", lambda patch: patch.setattr(Gate, "_own", nothing), "ended the run of another"),
    "errors that tell": ("C37", a_fault_that_tells, "Traceback"),
    "a login that leads away": (
        "C38",
        lambda patch: patch.setattr(session, "local", lambda address: address),
        "leads to //evil.test",
    ),
}


@pytest.mark.parametrize(("name", "harm", "words"), CODE.values(), ids=CODE)
async def test_code_that_lets_somebody_through_is_seen(
    sound: Config, monkeypatch: Patch, name: str, harm: Callable[[Patch], None], words: str
) -> None:
    harm(monkeypatch)
    finding = await found(sound, name)
    assert not finding.ok
    assert words in finding.found


async def test_source_that_makes_code_of_data_is_seen(sound: Config, monkeypatch: Patch, tmp_path: Path) -> None:
    for line in ("from pickle import loads", "import marshal", "eval(text)", "yaml.load(text, yaml.Loader)"):
        (tmp_path / "evil.py").write_text(f"{line}\n")
        monkeypatch.setattr(files, "weft", SimpleNamespace(__file__=str(tmp_path / "__init__.py")))
        assert "evil.py, line 1" in (await found(sound, "C39")).found


@asynccontextmanager
async def running(program: str, *arguments: str) -> AsyncIterator[int]:
    """The id of a process that has weft in its command line and has done what the program says."""
    whole = f"import os, socket, sys, threading; {program}; print(flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", whole, "weft", *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        await asyncio.to_thread(process.stdout.readline)
        yield process.pid
        process.communicate()


async def test_a_worker_that_writes_for_all_to_read_is_seen(sound: Config) -> None:
    async with running("os.umask(0o022)") as pid:
        card = Card(name="w1", host=socket.gethostname(), pid=pid, version="0", capacity=1)
        await act(sound, lambda app: app.protocol.join(card))
        finding = await found(sound, "C40")
    assert (finding.ok, finding.found) == (False, f"process {pid} writes files that others may read (umask 022)")


@pytest.mark.parametrize("umask", [0o022, 0o077], ids=["open", "sound"])
@pytest.mark.parametrize("role", ["gateway", "scheduler"])
async def test_a_process_that_no_table_names_is_seen(sound: Config, role: str, umask: int) -> None:
    """A gateway is seen by its port, whoever else by the database file that it has open."""
    config = replace(sound, port=free_port())
    program = f"os.umask({umask}); held = open(sys.argv[2])"
    if role == "gateway":
        program = f"os.umask({umask}); held = socket.create_server(('127.0.0.1', int(sys.argv[3])))"
        program += (
            "; threading.Thread(target=lambda: [held.accept()[0].close() for _ in iter(int, 1)], daemon=True).start()"
        )
    async with running(program, config.database_url.removeprefix("sqlite:///"), str(config.port)) as pid:
        finding = await found(config, "C40")
    told = f"process {pid} writes files that others may read (umask 022)" if umask == 0o022 else "; 1 processes write"
    assert finding.ok is (umask == 0o077)
    assert told in finding.found


@pytest.mark.parametrize(
    ("networks", "words"),
    [
        ("10.0.0.0/8, 0.0.0.0/0", "allowed_networks has 0.0.0.0/0, which is every address"),
        ("::/0", "allowed_networks has ::/0, which is every address"),
        ("169.254.169.254/32", "where a cloud keeps the keys"),
    ],
)
async def test_a_network_that_should_not_be_allowed_is_seen(sound: Config, networks: str, words: str) -> None:
    finding = await found(replace(sound, allowed_networks=networks), "C15")
    assert not finding.ok
    assert words in finding.found


@pytest.mark.parametrize("name", ["C15", "C16"])
async def test_a_way_to_a_closed_address_is_seen(sound: Config, name: str, monkeypatch: Patch) -> None:
    check, here = Guard.check, ("127.0.0.1", "::1", "::ffff:127.0.0.1", "::ffff:7f00:1")
    monkeypatch.setattr(Guard, "check", lambda self, address: None if address in here else check(self, address))
    finding = await found(replace(sound, allowed_networks="127.0.0.0/8"), name)
    assert not finding.ok
    assert "reached a listener on this machine" in finding.found


async def test_what_cannot_be_looked_at_does_not_pass(tmp_path: Path) -> None:
    findings = {each.check: each for each in await examine(Config(data_dir=str(tmp_path / "none"), port=0), ["C29"])}
    assert not findings["C29"].ok
    assert findings["C29"].found.startswith("it could not be looked at: there is no database")
    assert (findings["C41"].ok, findings["C41"].found) == (False, "not all could be looked at: C29")


@pytest.mark.parametrize("with_tls", [False, True], ids=["plain", "tls"])
async def test_the_gateway_that_runs_is_asked(sound: Config, tmp_path: Path, with_tls: bool) -> None:
    config = replace(sound, port=free_port())
    if with_tls:
        chain, key = self_signed(tmp_path)
        key.chmod(0o600)
        config = replace(config, tls_certificate=str(chain), tls_key=str(key))
    app = await open_app(config)
    server = open_server(app)
    await server.start("127.0.0.1", config.port)
    asked = ["C01", "C08", "C10", "C12", "C14", "C30", "C37"]
    findings = await examine(config, asked)
    await server.close()
    await app.close()
    assert [each for each in findings if not each.ok] == []
    address = f"the gateway at {'https' if with_tls else 'http'}://127.0.0.1:{config.port}"
    told = {each.check: each.found for each in findings}
    assert [name for name in asked if told[name].startswith(address)] == [
        *("C08", "C10", "C12", "C14"),
        *(["C30"] if with_tls else []),
        "C37",
    ]


def test_the_reference_has_every_control_and_what_must_hold() -> None:
    rows = dict(re.findall(r"^\| `(C\d\d)` \| (.+) \|$", PAGE.read_text(), re.MULTILINE))
    assert list(rows) == NAMES
    for name, look in CONTROLS.items():
        words = " ".join((look.__doc__ or "").split()).removeprefix(f"{name}: ")
        assert rows[name] == words[0].upper() + words[1:]
