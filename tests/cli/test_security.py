"""``weft doctor --security``: a sound installation passes, and whatever is broken on it is seen."""

from __future__ import annotations

import asyncio
import hmac
import os
import re
import shutil
import signal
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
from tests.cli.commanding import WEFT, Shell, answers, environment
from tests.servers.certificate import self_signed
from tests.servers.server import free_port
from tests.waiting import eventually
from weft.access.model import EVERYWHERE, Caller, Role
from weft.address_guard import Guard
from weft.app import App, open_app
from weft.cli.doctor import Finding
from weft.cli.security_checks import CHECKS, host, run_security_checks
from weft.cli.security_checks.installation import processes_of
from weft.config import Config
from weft.http import authentication, gateway, guards, server
from weft.http import metrics as metrics_api
from weft.http.application import open_server
from weft.http.authentication import Authenticator
from weft.http.guards import AllowedHosts
from weft.http.limits import RateLimit
from weft.operations import sessions
from weft.operations import tasks as tasks_api
from weft.operations.operation import Operation
from weft.operations.problems import problem_of
from weft.runs.model import NewRun, Run, RunSpec
from weft.scrapyd_http.gateway import ScrapydGateway
from weft.tasks.model import ProjectSettings
from weft.web import site
from weft.web.rendering import WebPage
from weft.workers.environments import parsed
from weft.workers.protocol import WorkerInfo
from weft.workers.remote.server import WorkerGateway

NAMES = [*(f"C{number:02}" for number in (*range(1, 18), 28, 29, 30, 31, 34, 35, *range(37, 42), *range(43, 50)))]
AS_ROOT = {"C35"} if os.geteuid() == 0 else set()
"""What does not hold where root runs the tests."""
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "controls.md"

Patch = pytest.MonkeyPatch


def parsed_without_marker(line: str) -> str:
    return parsed(line.partition(";")[0])


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
    app.encryptor.newest()
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
    (finding,) = [each for each in await run_security_checks(config, [name]) if each.check == name]
    return finding


async def test_a_sound_installation_passes_every_control(sound: Config) -> None:
    findings = await run_security_checks(sound)
    assert [each.check for each in findings] == NAMES
    assert {each.check for each in findings if not each.ok} == AS_ROOT
    assert all(each.found and not (each.ok and each.advice) for each in findings)


def test_the_command_tells_people_and_programs_the_same(shell: Shell, monkeypatch: Patch) -> None:
    monkeypatch.setenv("WEFT_PORT", "0")
    shell.apply("{}")
    shell.folder.chmod(0o755)
    people = shell("doctor", "--security")
    told = {name: outcome for outcome, name in (line.split()[:2] for line in people.lines[1:])}
    assert people.code == 1
    assert told == dict.fromkeys(NAMES, "pass") | {"C40": "fail"} | dict.fromkeys(AS_ROOT, "fail")
    assert f"{shell.folder} has mode 755" in people.out
    shell.folder.chmod(0o700)
    programs = shell("doctor", "--security", "--json")
    assert (programs.code, programs.err) == (int(bool(AS_ROOT)), "")
    assert {each["check"] for each in programs.document if not each["ok"]} == AS_ROOT


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
    "an open bind of Scrapyd's port": ("C01", {"host": "0.0.0.0", "scrapyd_port": 2}, "0.0.0.0:2 can be"),  # noqa: S104
    "a way to this machine": ("C15", {"allowed_networks": "127.0.0.0/8"}, "all that listens on this machine"),
    "plain HTTP": ("C30", {"host": "0.0.0.0", "allow_plain_http": True}, "in clear"),  # noqa: S104
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


async def no_answer(*_: object) -> int:
    """A gateway that has fallen over says nothing."""
    return 0


async def anybody(*_: object) -> Caller:
    return Caller(name="anybody", kind="key", grants={EVERYWHERE: Role.ADMIN})


def unchecked(call: Any) -> tuple[str, str]:
    return call.path("project"), call.path("name")


def an_open_page(patch: Patch) -> None:
    async def shown(visit: Any) -> WebPage:
        return WebPage("problem.html", {}, {})

    patch.setitem(site.PAGES["/runs"], "GET", shown)
    patch.setattr(site, "PUBLIC_PAGES", {*site.PUBLIC_PAGES, shown})


def without(header: str, patch: Patch) -> None:
    patch.setattr(
        gateway, "ALWAYS_HEADERS", [each for each in gateway.ALWAYS_HEADERS if each[0] != header.lower().encode()]
    )


def forgotten(patch: Patch) -> None:
    """A route that somebody added without saying who may call it."""
    new: Operation[Any] = Operation(
        name="runs.leak", method="GET", path="/v1/leak", summary="", needs=None, handle=nothing
    )
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
    patch.setattr(host, "weft", SimpleNamespace(__file__=str(folder / "__init__.py")))


CODE: dict[str, tuple[str, Callable[[Patch], None], str]] = {
    "a session that scripts read": (
        "C05",
        lambda patch: patch.setattr(
            sessions, "_set_cookie", lambda call, value, _: f"weft_session={value}; SameSite=Lax"
        ),
        "the cookie of a session",
    ),
    "tokens that nobody signed": ("C06", blind_to_signatures, "is answered with 200"),
    "roles that count for nothing": (
        "C07",
        lambda patch: patch.setattr(Caller, "check", everybody),
        "answers an admin of another project with 2",
    ),
    "one route without a check": (
        "C07",
        lambda patch: patch.setattr(tasks_api, "_task_named", unchecked),
        "tasks.show answers an admin of another project with 500",
    ),
    "an open page": ("C08", an_open_page, "the page /runs answers"),
    "an open Scrapyd": (
        "C08",
        lambda patch: patch.setattr(ScrapydGateway, "_caller", anybody),
        "of Scrapyd's API answers 200",
    ),
    "pages without headers": (
        "C12",
        lambda patch: patch.setattr("weft.web.site.add_headers", everybody),
        "to GET / does not say X-Content-Type-Options",
    ),
    "no answer to what is too large": (
        "C14",
        lambda patch: patch.setattr("weft.cli.security_checks.gateway._status", no_answer),
        "answers nothing to",
    ),
    "a forgotten route": ("C08", forgotten, "anybody may call runs.leak"),
    "no token of pages": (
        "C09",
        lambda patch: patch.setattr(authentication, "hmac", SimpleNamespace(compare_digest=lambda *_: True)),
        "without its token is answered with 202",
    ),
    "any host": ("C10", lambda patch: patch.setattr(AllowedHosts, "check", everybody), "Host: evil.test"),
    "any origin": (
        "C10",
        lambda patch: patch.setattr(Authenticator, "check_origin", everybody),
        "comes from https://evil.test",
    ),
    "CORS for all": (
        "C11",
        lambda patch: patch.setattr(
            gateway, "ALWAYS_HEADERS", [*gateway.ALWAYS_HEADERS, (b"access-control-allow-origin", b"*")]
        ),
        "Access-Control-Allow-Origin: *",
    ),
    "no policy": ("C12", lambda patch: without("Content-Security-Policy", patch), "has the policy ''"),
    "sniffing": ("C12", lambda patch: without("X-Content-Type-Options", patch), "nosniff"),
    "no throttle": (
        "C13",
        lambda patch: patch.setattr("weft.access.sessions.FREE_FAILURES", 10**6),
        "answered with 401",
    ),
    "no rate": (
        "C13",
        lambda patch: patch.setattr(RateLimit, "check", everybody),
        "where 0.5 a second are allowed end with",
    ),
    "any depth": ("C14", lambda patch: patch.setattr(guards, "DEEPEST_JSON", 10**6), "to JSON that is 200 deep"),
    "endless patience": ("C14", lambda patch: patch.setattr(server, "HEAD_SECONDS", 3600.0), "waited for 3600 s"),
    "no masks": ("C28", lambda patch: patch.setattr("weft.access.audit.redacted_tree", lambda data: data), "in clear"),
    "commands in no sandbox": (
        "C48",
        lambda patch: patch.setattr("weft.bubblewrap.level", lambda _: "L0"),
        "reached what is outside of its sandbox, with cat, cat, ls, touch, kill",
    ),
    "a kernel that holds no files": (
        "C48",
        lambda patch: patch.setattr("weft.user_code.newest_landlock", 0),
        "reached what is outside of its sandbox, with cat",
    ),
    "requirements that name an index": (
        "C34",
        lambda patch: patch.setattr("weft.workers.environments.parsed", lambda line: line),
        "a file of requirements may say --index-url",
    ),
    "requirements whose markers bring options along": (
        "C34",
        lambda patch: patch.setattr("weft.workers.environments.parsed", parsed_without_marker),
        "a file of requirements may say shop ; python_version > '3' --index-url",
    ),
    "an installation that reaches everything": (
        "C34",
        lambda patch: patch.setattr("weft.workers.package_index.IndexProxy._knows", lambda *_: True),
        "an installation reached a listener on this machine",
    ),
    "a process of root": (
        "C35",
        lambda patch: patch.setattr(host, "users_of", lambda _: {1: 0}),
        "process 1 runs as root",
    ),
    "foreign leases": ("C31", lambda patch: patch.setattr(WorkerGateway, "_own", nothing), "ended the run of another"),
    "errors that tell": ("C37", a_fault_that_tells, "Traceback"),
    "a login that leads away": (
        "C38",
        lambda patch: patch.setattr(sessions, "local_path", lambda address: address),
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
        monkeypatch.setattr(host, "weft", SimpleNamespace(__file__=str(tmp_path / "__init__.py")))
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
        card = WorkerInfo(name="w1", host=socket.gethostname(), pid=pid, version="0", capacity=1)
        await act(sound, lambda app: app.protocol.join(card))
        finding = await found(sound, "C40")
    assert (finding.ok, finding.found) == (False, f"process {pid} writes files that others may read (umask 022)")


@pytest.mark.parametrize("umask", [0o022, 0o077], ids=["open", "sound"])
@pytest.mark.parametrize("role", ["gateway", "scheduler"])
async def test_a_process_that_no_table_names_is_seen(sound: Config, role: str, umask: int) -> None:
    """A gateway is seen by its port, whoever else by the database file that it has open."""
    config = replace(sound, port=free_port())
    program = f"os.umask({umask}); held = open(sys.argv[4].removeprefix('sqlite:///'))"
    if role == "gateway":
        program = f"os.umask({umask}); held = socket.create_server(('127.0.0.1', int(sys.argv[6])))"
        program += (
            "; threading.Thread(target=lambda: [held.accept()[0].close() for _ in iter(int, 1)], daemon=True).start()"
        )
    started = ["serve", "--database", config.database_url, "--port", str(config.port)]
    async with running(program, *started) as pid:
        finding = await found(replace(config, port=0), "C40")  # who asks need not know where it listens
    told = f"process {pid} writes files that others may read (umask 022)" if umask == 0o022 else "; 1 processes write"
    assert finding.ok is (umask == 0o077)
    assert told in finding.found


@pytest.mark.parametrize(
    ("networks", "words"),
    [
        ("10.0.0.0/8, 0.0.0.0/0", "allowed_networks of this installation has 0.0.0.0/0, which is every address"),
        ("::/0", "allowed_networks of this installation has ::/0, which is every address"),
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
    finding = await found(sound, name)
    assert not finding.ok
    assert "reached a listener on this machine" in finding.found


async def test_what_cannot_be_looked_at_does_not_pass(tmp_path: Path) -> None:
    findings = {
        each.check: each for each in await run_security_checks(Config(data_dir=str(tmp_path / "none"), port=0), ["C29"])
    }
    assert not findings["C29"].ok
    assert findings["C29"].found.startswith("it could not be looked at: no weft server found")
    assert (findings["C41"].ok, findings["C41"].found) == (False, "not all could be looked at: C29")


@pytest.mark.parametrize("with_tls", [False, True], ids=["plain", "tls"])
async def test_the_gateway_that_runs_is_asked(sound: Config, tmp_path: Path, with_tls: bool) -> None:
    config = replace(sound, port=free_port())
    if with_tls:
        chain, key = self_signed(tmp_path)
        key.chmod(0o600)
        config = replace(config, tls_certificate=str(chain), tls_key=str(key))
    app = await open_app(config)
    server = open_server(app, around=site.WebSite)
    await server.start("127.0.0.1", config.port)
    asked = ["C01", "C08", "C10", "C12", "C14", "C30", "C37"]
    findings = await run_security_checks(config, asked)
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


ARGV = {"argv": ["true"]}


async def finished(config: Config, new: NewRun) -> Run:
    app = await open_app(config)
    try:
        (submitted,) = await app.runs.submit([new])

        async def ended() -> Run | None:
            found = await app.runs.get(submitted.run_id)
            return found if found.finished_at is not None else None

        run: Run = await eventually(ended)
        return run
    finally:
        await app.close()


async def test_the_weft_that_runs_is_judged_by_its_own_settings(sound: Config) -> None:
    """It was started with another port, and `weft up` lets fetches reach this machine; and as if its kernel were older,
    which its runs hear as well."""
    port, variables = free_port(), environment() | {"WEFT_NEWEST_LANDLOCK": "2"}
    command = [WEFT, "up", "--port", str(port), "--workers", "1", "--no-examples", "--data-dir", sound.data_dir]
    with subprocess.Popen(command, env=variables, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as up:
        try:
            await eventually(lambda: answers(port))
            await eventually(lambda: {each.role for each in processes_of(sound)} == {"serve", "worker"})
            said = {
                each.check: each
                for each in await run_security_checks(replace(sound, port=6800), ["C01", "C08", "C15", "C46"])
            }
            run = await finished(sound, NewRun(project="shop", task="", kind="shell", spec=RunSpec(spec=ARGV)))
            other = await found(replace(sound, data_dir=f"{sound.data_dir}-other", port=port), "C10")
        finally:
            up.send_signal(signal.SIGTERM)
    assert said["C01"].found == f"only this machine reaches port {port}, as its processes here listen"
    assert said["C08"].found.startswith(f"the gateway at http://127.0.0.1:{port} refuses")
    assert not said["C15"].ok
    assert "may reach all that listens on this machine" in said["C15"].found
    assert "not held here: ports" in said["C46"].found
    assert "ports to bind" in str((run.result or {})["isolation_missing"])
    assert other.found.startswith("a gateway started for this")  # what answers there is another weft


def test_the_reference_has_every_control_and_what_must_hold() -> None:
    rows = dict(re.findall(r"^\| `(C\d\d)` \| (.+) \|$", PAGE.read_text(), re.MULTILINE))
    assert list(rows) == NAMES
    for name, look in CHECKS.items():
        words = " ".join((look.__doc__ or "").split()).removeprefix(f"{name}: ")
        assert rows[name] == words[0].upper() + words[1:]


KINDS_OF_CODE = ("C43", "C44", "C45", "C46")
PARTS = {
    0: "have no sandbox here: files are not protected",
    2: "not held here: ports to bind and to connect to are not limited",
    4: "not held here: processes of the same user that start later can be signalled",
    6: "",
}


@pytest.mark.parametrize("landlock", PARTS)
async def test_the_isolation_of_each_kind_of_user_code_is_told(sound: Config, landlock: int) -> None:
    findings = await run_security_checks(replace(sound, newest_landlock=landlock), KINDS_OF_CODE)
    for finding in findings[1:]:
        assert finding.ok is (landlock > 0), finding
        assert PARTS[landlock] in finding.found
        if landlock:
            assert re.search(r", as (root|user \d+): L1", finding.found)
        assert ("not held" in finding.found) is (landlock in (2, 4))
    told = {each.check: each.found for each in findings[1:]}
    assert [name for name, found in told.items() if "L2 where it is asked for" in found] == (
        ["C43", "C44"] if landlock else []
    )


async def test_who_may_run_without_a_sandbox_is_told(sound: Config) -> None:
    assert (await found(sound, "C47")).found.startswith("no project may run without a sandbox; no project may build")
    await act(sound, lambda app: app.tasks.configure("upkeep", ProjectSettings(may_run_unsandboxed=True)))
    finding = await found(sound, "C47")
    assert (finding.ok, finding.found.partition(";")[0]) == (
        True,
        "may run without a sandbox, and so do anything here: upkeep",
    )


async def test_the_projects_whose_network_is_limited_are_told(sound: Config) -> None:
    assert "every project has all of the network" in (await found(sound, "C47")).found
    await act(sound, lambda app: app.tasks.configure("shop", ProjectSettings(network=(443, 80))))
    await act(sound, lambda app: app.tasks.configure("bank", ProjectSettings(network="none")))
    finding = await found(sound, "C47")
    assert (finding.ok, "limited to TCP ports for: bank (none), shop (53, 80, 443);" in finding.found) == (True, True)
    finding = await found(replace(sound, newest_landlock=2), "C43")
    assert "ports to bind and to connect to are not limited" in finding.found


async def test_metrics_that_user_code_may_read_are_told(sound: Config) -> None:
    words = "open_metrics lets user code on the machine of a gateway read the metrics of all projects"
    assert words not in (await found(sound, "C47")).found
    assert words in (await found(replace(sound, open_metrics=True), "C47")).found


async def test_a_project_that_demands_more_isolation_than_there_is_here_is_seen(sound: Config) -> None:
    await act(sound, lambda app: app.tasks.configure("shop", ProjectSettings(min_isolation="L1")))
    assert (await found(sound, "C47")).ok
    finding = await found(replace(sound, newest_landlock=0), "C47")
    assert finding.found == (
        "project shop demands isolation L1, and this machine has L0: a worker here refuses its runs"
    )


async def test_the_least_isolation_of_all_projects_is_told(sound: Config) -> None:
    assert "min_isolation demands nothing of all projects" in (await found(sound, "C47")).found
    finding = await found(replace(sound, min_isolation="L1"), "C47")
    assert (finding.ok, "every project is isolated by at least L1" in finding.found) == (True, True)
    finding = await found(replace(sound, min_isolation="L1", newest_landlock=0), "C47")
    assert finding.found.startswith("min_isolation demands isolation L1, and this machine has L0")
