"""``weft context`` and ``weft login``: which weft a command talks to, and why.

An instance that runs on this machine leaves a file while it is ready, by which commands find it. Servers that were
logged in to are kept in one file of the user, which nobody else may read: it holds keys.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import logging
import os
import socket
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from getpass import getpass
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import unquote, urlsplit

import typer

from weft.cli.options import SharedOptions, WeftCommand, WeftGroup, options_of
from weft.cli.output import answer, fields, table
from weft.config import COMMAND_LINE, Config, Loaded, absolute, hidden, load, shown
from weft.errors import Invalid, Misconfigured, NotFound, NoWeft, WeftError
from weft.user_code import HERE, Surroundings

if TYPE_CHECKING:
    from weft.client.connection import Connection

log = logging.getLogger(__name__)

LOCK = "up.lock"
"""The file of a data directory that its `weft up` has locked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """One that runs, and what its settings are made of."""

    command: str
    """``up`` or ``serve``."""
    pid: int
    host: str
    folder: str
    """The working directory in which it was started."""
    config: str
    """Its configuration file; empty for none."""
    settings: dict[str, Any]
    """What its environment and its command line said, and the data directory."""
    started_at: float
    key_ids: list[str] | None = None
    """Of the keys that its secret_key gives, the newest first; empty: they are in its data directory; None: unknown."""

    @property
    def installation(self) -> tuple[str, Any, Any]:
        """What processes have in common that are roles of one weft."""
        return self.config, self.settings.get("data_dir"), self.settings.get("database")

    def load(self, said: Mapping[str, Any], environment: Mapping[str, str]) -> Loaded:
        """Its settings, as far as ``said`` or the environment here do not say otherwise."""
        settings = self.settings | {name: value for name, value in said.items() if value is not None}
        return load(settings, environment=environment, file=Path(self.config) if self.config else None, search=False)


def check_key(config: Config, *, is_worker: bool = False) -> None:
    """Refuse to seal or open with other keys than the weft that runs with these settings, if one does."""
    from weft.access.encryption import key_ids

    here, otherwise = key_ids(config.secret_key), "let it join with --connect" if is_worker else "use `weft login`"
    for each in running_instances():
        if each.key_ids is None or (its := _same_weft(each, config)) is None:
            continue
        if each.key_ids and not here:
            raise Misconfigured(f"this weft was started with secret_key; set WEFT_SECRET_KEY here too, or {otherwise}")
        if here and not each.key_ids:
            raise Misconfigured(f"this weft was started without secret_key; unset WEFT_SECRET_KEY here, or {otherwise}")
        if here and (here[0] not in each.key_ids or each.key_ids[0] not in here):
            raise Misconfigured(
                f"this weft was started with another secret_key than the one here; set the same, or {otherwise}"
            )
        if not here and not is_worker and its.folder.resolve() != config.folder.resolve():
            raise Misconfigured(f"this weft has its keys in {its.folder}; name it with --data-dir, or {otherwise}")
        return


def surroundings(config: Config) -> Surroundings:
    """Those of the weft that runs with these settings, if one does; else those here.

    Its variables are asked of the system, which tells them to the same user alone: nothing of them is written down.
    """
    for each in running_instances():
        if _same_weft(each, config) is not None:
            with suppress(OSError):
                told = Path(f"/proc/{each.pid}/environ").read_bytes().split(b"\0")
                pairs = (os.fsdecode(one).partition("=") for one in told if one)
                return Surroundings({name: value for name, _, value in pairs}, each.folder)
    return HERE


def _same_weft(each: Instance, config: Config) -> Config | None:
    """The settings of one that runs, where it has the same data."""
    try:
        its = each.load({}, {}).config
    except WeftError:  # its configuration file has changed meanwhile
        return None
    is_same = its.database_url == config.database_url or its.folder.resolve() == config.folder.resolve()
    return its if is_same else None


def instances_folder() -> Path:
    root = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(root) / "weft" / "running"


def running_instances() -> list[Instance]:
    """Those that are ready, the newest first."""
    with suppress(OSError, RuntimeError):  # without a home there is no such place
        found = [each for file in instances_folder().glob("*.json") if (each := _read_instance(file)) is not None]
        return sorted(found, key=lambda each: each.started_at, reverse=True)
    return []


@contextmanager
def registered(command: str, loaded: Loaded) -> Iterator[Callable[[], None]]:
    """Note this weft until it ends; what is given is to be called once it is ready, or ``ready`` in a child process.

    Where no note can be kept, commands need to be told where this weft is; it runs all the same.
    """
    try:
        instances_folder().mkdir(parents=True, exist_ok=True, mode=0o700)
        _remove_ended()
        starting = _instance_file(os.getpid(), "starting")
        descriptor = os.open(starting, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.write(descriptor, json.dumps(asdict(_instance_of(command, loaded))).encode())
    except (OSError, RuntimeError) as problem:
        log.info("commands of this user will not find this weft by themselves", extra={"why": str(problem)})
        yield lambda: None
        return
    try:
        yield mark_ready
    finally:
        for kind in ("starting", "json"):
            _instance_file(os.getpid(), kind).unlink(missing_ok=True)
        os.close(descriptor)


def mark_ready(pid: int | None = None) -> None:
    """Let commands find the weft of this process, or of the one named."""
    with suppress(OSError, RuntimeError):
        _instance_file(pid or os.getpid(), "starting").replace(_instance_file(pid or os.getpid(), "json"))


@contextmanager
def exclusive(config: Config) -> Iterator[None]:
    """Be the only `weft up` on this data directory."""
    file = config.folder / LOCK
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        who = os.read(descriptor, 500).decode(errors="replace").strip()
        os.close(descriptor)
        raise Misconfigured(
            f"`weft up` runs on {config.folder} already{who and f' ({who})'}; end that one first, or give this one "
            "a directory of its own with --data-dir"
        ) from None
    answers = f", {config.address}" if config.port else ""
    os.ftruncate(descriptor, 0)
    os.write(descriptor, f"process {os.getpid()}{answers}".encode())
    try:
        yield
    finally:
        os.close(descriptor)


def _instance_of(command: str, loaded: Loaded) -> Instance:
    """Of what is hidden nothing is written down."""
    from weft.access.encryption import key_ids

    said = {
        each.name: getattr(loaded.config, each.name)
        for each in loaded.settings
        if not each.hidden and (each.origin == COMMAND_LINE or each.origin.startswith("WEFT_"))
    }
    return Instance(
        command=command,
        pid=os.getpid(),
        host=socket.gethostname(),
        folder=os.getcwd(),
        config=loaded.file,
        settings=said | {"data_dir": loaded.config.data_dir},
        started_at=time.time(),
        key_ids=key_ids(loaded.config.secret_key),
    )


def _read_instance(file: Path) -> Instance | None:
    """What a file says; None where its weft has ended, or belongs to somebody else or to another machine."""
    try:
        with file.open("rb") as opened:
            if os.fstat(opened.fileno()).st_uid != os.getuid() or not _is_locked(opened.fileno()):
                return None
            found = Instance(**json.load(opened))
    except (OSError, ValueError, TypeError):
        return None
    return found if found.host == socket.gethostname() else None


def _is_locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    return False


def _remove_ended() -> None:
    for file in instances_folder().glob(f"{socket.gethostname()}-*.json"):
        with suppress(OSError), file.open("rb") as opened:
            if not _is_locked(opened.fileno()):
                file.unlink()


def _instance_file(pid: int, kind: str) -> Path:
    return instances_folder() / f"{socket.gethostname()}-{pid}.{kind}"


DEPLOY_SECTION = "deploy"


@dataclass(frozen=True, slots=True)
class DeployTarget:
    """One of them."""

    file: Path
    section: str
    url: str
    user: str = ""
    password: str = field(default="", repr=False)

    @property
    def origin(self) -> str:
        return f"url of [{self.section}] in {self.file}"


def closest_scrapy_cfg(folder: Path) -> Path | None:
    """The scrapy.cfg of the folder, or of the closest one above it."""
    return next((file for each in (folder, *folder.parents) if (file := each / "scrapy.cfg").is_file()), None)


def scrapy_cfg_servers(file: Path, environment: Mapping[str, str]) -> dict[str, DeployTarget]:
    """Those that have a URL, by name; that of ``[deploy]`` is empty. The others inherit what ``[deploy]`` says."""
    import configparser  # for commands that read such a file

    parser = configparser.ConfigParser(interpolation=None, strict=False)
    try:
        parser.read_string(file.read_text(encoding="utf-8"))
    except (configparser.Error, UnicodeDecodeError, OSError) as problem:
        why = str(problem).splitlines()[0]
        raise Misconfigured(f"{file} cannot be read ({why}); correct it, or name a weft with --context") from problem
    shared = dict(parser[DEPLOY_SECTION]) if parser.has_section(DEPLOY_SECTION) else {}
    found = {"": _scrapy_cfg_server(file, DEPLOY_SECTION, shared, environment)} if shared.get("url") else {}
    for section in parser.sections():
        kind, colon, name = section.partition(":")
        said = shared | dict(parser[section])
        if kind == DEPLOY_SECTION and colon and name and said.get("url"):
            found[name] = _scrapy_cfg_server(file, section, said, environment)
    return found


def _scrapy_cfg_server(
    file: Path, section: str, said: Mapping[str, str], environment: Mapping[str, str]
) -> DeployTarget:
    """``$NAME`` and ``${NAME}`` are filled in from the environment, as scrapyd-client does it."""
    url, user, password = (
        Template(said.get(name, "")).safe_substitute(environment).strip() for name in ("url", "username", "password")
    )
    try:
        parts = urlsplit(url)
        is_url = parts.scheme in ("http", "https") and bool(parts.hostname) and not parts.query and not parts.fragment
        parts.port  # noqa: B018 - raises for one that is no number
    except ValueError:
        is_url = False
    if not is_url:
        raise Misconfigured(
            f"url of [{section}] in {file} is {shown(url)}; it must look like https://weft.example or http://127.0.0.1:6800"
        )
    if "@" in parts.netloc:
        user, password = user or unquote(parts.username or ""), password or unquote(parts.password or "")
        url = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
    return DeployTarget(file, section, url.rstrip("/"), user, password)


AUTO = "auto"
"""The name of no context: what else there is decides."""

LOCAL = "here"
"""The name of the weft of this machine."""

FOUND_BY = ("WEFT_CONFIG", "WEFT_DATA_DIR", "WEFT_DATABASE", "WEFT_DATABASE_FILE")
"""Variables that say where the weft of this machine is."""

LOOPBACK = ("localhost", "127.0.0.1", "::1")
PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class ServerContext:
    """A weft elsewhere, and the key to it, or a name and a password."""

    name: str
    url: str
    token: str = field(default="", repr=False)
    ca_file: str = ""
    basic: tuple[str, str] | None = field(default=None, repr=False)


@dataclass(slots=True)
class StoredContexts:
    """Every weft that was logged in to, and the one that was chosen."""

    current: str = AUTO
    known: dict[str, ServerContext] = field(default_factory=dict)

    def named(self, name: str) -> ServerContext | None:
        """The context of that name; None where it is the name of none elsewhere."""
        if name in (AUTO, LOCAL):
            return None
        if name not in self.known:
            raise _unknown(name)
        return self.known[name]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandTarget:
    """The weft that a command speaks to: one elsewhere, or one of this machine, which is opened by its settings."""

    by: str
    """What has decided: ``option``, ``environment``, ``context``, ``scrapy.cfg``, ``running`` or ``folder``."""
    why: str
    """The same for a person, with names."""
    elsewhere: ServerContext | None = None
    is_known: bool = True
    """Whether somebody has logged in there, so that a weft was there once."""
    here: Loaded | None = None
    others: Sequence[Instance] = ()
    """Further ones that run on this machine and might have been meant."""


def chosen(context: Any) -> CommandTarget:
    """The weft that this command speaks to."""
    return find(options_of(context), os.environ, Path.cwd())


def find(options: SharedOptions, environment: Mapping[str, str], folder: Path) -> CommandTarget:
    """The weft that a command speaks to when it is called so, there. In this order:

    the one that an option or a variable names; the context that was chosen; the server of the scrapy.cfg here; the weft
    that runs on this machine; the one whose data is in this folder, stopped or not. Where there is none: ``NoWeft``.
    """
    if options.context and (options.data_dir or options.config):
        where = "--data-dir" if options.data_dir else "--config"
        raise Invalid("--context", options.context, f"{where} says where weft is as well; give one of them")
    if options.context:
        return _named(options.context, "option", f"--context {options.context}", environment, folder)
    if options.data_dir or options.config:
        why = f"--data-dir {options.data_dir}" if options.data_dir else f"--config {options.config}"
        return CommandTarget(by="option", why=why, here=_settings(options, environment))
    if name := environment.get("WEFT_CONTEXT"):
        return _named(name, "environment", f"WEFT_CONTEXT={name}", environment, folder)
    if variable := next((each for each in FOUND_BY if environment.get(each)), None):
        return CommandTarget(by="environment", why=variable, here=_settings(options, environment))
    contexts = read()
    if contexts.current != AUTO:
        why = f"`weft context use {contexts.current}`"
        return _named(contexts.current, "context", why, environment, folder, contexts)
    return _by_scrapy_cfg(contexts, environment, folder) or _of_this_machine(environment, folder)


def worker_target(said: Mapping[str, Any], file: Path | None, environment: Mapping[str, str], folder: Path) -> Loaded:
    """The settings of a worker that is started so, there; ``said`` is its command line.

    A worker belongs to the weft that its own settings name. Where they name none, and none has its data in this folder,
    it belongs to the one that runs on this machine.
    """
    loaded = load(said, environment=environment, file=file)
    has_own = loaded.file or any(each.origin != "default" for each in loaded.settings if each.name in DATA_DIR_OPTIONS)
    if has_own or loaded.config.folder.exists():
        return loaded
    found = _running(folder)
    if not found:
        raise NoWeft("none runs on this machine, and no setting of this worker names one")
    return found[0].load(said, environment)


DATA_DIR_OPTIONS = ("data_dir", "database", "connect")


def _named(
    name: str,
    by: str,
    why: str,
    environment: Mapping[str, str],
    folder: Path,
    contexts: StoredContexts | None = None,
) -> CommandTarget:
    """The context of that name, or the server that the scrapy.cfg here calls so."""
    contexts = contexts or read()
    if name == LOCAL:
        return _of_this_machine(environment, folder, named=why)
    if name == AUTO:
        return _by_scrapy_cfg(contexts, environment, folder) or _of_this_machine(environment, folder)
    if name in contexts.known:
        return CommandTarget(by=by, why=why, elsewhere=contexts.known[name])
    file = closest_scrapy_cfg(folder)
    if file is not None and (server := scrapy_cfg_servers(file, environment).get(name)) is not None:
        return _at(server, contexts, environment, by=by, why=f"{why}, {server.origin}")
    raise _unknown(name)


def _unknown(name: str) -> NotFound:
    return NotFound("context", f"{name}; `weft context list` shows them, `weft login` adds one")


def _by_scrapy_cfg(contexts: StoredContexts, environment: Mapping[str, str], folder: Path) -> CommandTarget | None:
    file = closest_scrapy_cfg(folder)
    found = scrapy_cfg_servers(file, environment) if file is not None else {}
    if not found:
        return None
    if "" not in found and len(found) > 1:
        names = ", ".join(sorted(found))
        raise Misconfigured(f"{file} has several servers to deploy to ({names}); name one with --context")
    server = found.get("") or next(iter(found.values()))
    return _at(server, contexts, environment, by="scrapy.cfg", why=server.origin)


def _at(
    server: DeployTarget, contexts: StoredContexts, environment: Mapping[str, str], *, by: str, why: str
) -> CommandTarget:
    """The weft at the URL of a scrapy.cfg: one of this machine if it runs here, else with the key of a login there."""
    for each in running_instances() if _is_this_machine(server.url) else ():
        loaded = each.load({}, environment)
        if urlsplit(server.url).port in (loaded.config.port, loaded.config.scrapyd_port):
            return CommandTarget(by=by, why=f"{why}, which runs on this machine", here=loaded)
    for known in contexts.known.values():
        if _normal(known.url) == _normal(server.url):
            return CommandTarget(by=by, why=f"{why}, logged in to as {known.name}", elsewhere=known)
    basic = (server.user, server.password) if server.user or server.password else None
    name = urlsplit(server.url).hostname or ""
    return CommandTarget(by=by, why=why, elsewhere=ServerContext(name, server.url, basic=basic), is_known=False)


def _of_this_machine(environment: Mapping[str, str], folder: Path, named: str = "") -> CommandTarget:
    """The weft that runs here, or the one whose data is in this folder; ``named`` is what asks for no other."""
    named = named and f"{named}: "
    if variable := next((each for each in FOUND_BY if environment.get(each)), None):
        return CommandTarget(by="environment", why=f"{named}{variable}", here=_settings(SharedOptions(), environment))
    if found := _running(folder):
        first, *others = found
        why = f"{named}`weft {first.command}` runs on this machine (process {first.pid}, started in {first.folder})"
        return CommandTarget(by="running", why=why, here=first.load({}, environment), others=others)
    from weft.db import sqlite_file  # a worker without a database has no use for it

    loaded = load(environment=environment)
    file = sqlite_file.path_of(loaded.config.database_url)
    if file is not None and not file.exists():
        sqlite_file.check(file, loaded.config.folder)
        raise NoWeft(f"none runs on this machine, and {loaded.config.folder} has none")
    why = loaded.file if loaded.file and file is None else f"the data in {loaded.config.folder}"
    return CommandTarget(by="folder", why=f"{named}{why}", here=loaded)


def _running(folder: Path) -> list[Instance]:
    """Those that run here, by one process each: those that were started in this folder first, then the newest."""
    found: dict[object, Instance] = {}
    for each in sorted(running_instances(), key=lambda each: each.folder != str(folder)):
        found.setdefault(each.installation, each)
    return list(found.values())


def _settings(options: SharedOptions, environment: Mapping[str, str]) -> Loaded:
    return load({"data_dir": options.data_dir}, environment=environment, file=options.config)


def _is_this_machine(url: str) -> bool:
    return urlsplit(url).hostname in (*LOOPBACK, socket.gethostname().lower())


def _normal(url: str) -> tuple[str, str, int | None, str]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname or "", parts.port or PORTS.get(parts.scheme), parts.path.rstrip("/")


def contexts_file() -> Path:
    root = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(root) / "weft" / "contexts.toml"


def read() -> StoredContexts:
    path = contexts_file()
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
        known = {name: ServerContext(name, **each) for name, each in content.get("contexts", {}).items()}
        return StoredContexts(str(content.get("current", AUTO)), known)
    except FileNotFoundError:
        return StoredContexts()
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, TypeError, AttributeError) as problem:
        why = " ".join(str(problem).split())
        raise Misconfigured(f"{path} cannot be read: {why}; mend it, or delete it and log in again") from problem


def write(contexts: StoredContexts) -> None:
    """Keep the contexts; the file is never there half-written, nor for others to read."""
    path = contexts_file()
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    new = path.with_name(f".{path.name}.{os.getpid()}")
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        file.write(_text(contexts))
    new.replace(path)


def _text(contexts: StoredContexts) -> str:
    lines = [f"current = {_quoted(contexts.current)}"]
    for each in contexts.known.values():
        lines += ["", f"[contexts.{_quoted(each.name)}]", f"url = {_quoted(each.url)}"]
        lines += [f"token = {_quoted(each.token)}", *([f"ca_file = {_quoted(each.ca_file)}"] if each.ca_file else [])]
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


app = typer.Typer(cls=WeftGroup, no_args_is_help=True, add_completion=False, help="Choose which server commands use.")

Name = Annotated[
    str,
    typer.Argument(metavar="NAME", help=f"A name from the list; {LOCAL} for this machine, {AUTO} for none of them."),
]
ALWAYS = {AUTO: "scrapy.cfg, or the weft of this machine", LOCAL: "the weft of this machine"}


@app.command(cls=WeftCommand)
def show(context: typer.Context) -> None:
    """Show which server a command would use here, and why."""
    target = chosen(context)
    document = {"url": None, "data_dir": None, "database": None, "config": None, "by": target.by, "why": target.why}
    if target.elsewhere is not None:
        document["url"] = target.elsewhere.url
    if target.here is not None:
        config = target.here.config
        document |= {"data_dir": config.data_dir, "database": hidden(config.database_url)}
        document["config"] = target.here.file or None
    others = [each.settings["data_dir"] for each in target.others]
    named = [(name.replace("_", " "), document[name]) for name in ("url", "data_dir", "database", "config", "why")]
    rows = [*named, ("also running", tuple(others))]
    answer(context, document | {"also_running": others}, lambda: fields(rows))


@app.command("list", cls=WeftCommand)
def list_(context: typer.Context) -> None:
    """List the servers that you logged in to; a star marks the chosen one."""
    found = read()
    rows = [("*" if found.current == name else "", name, words) for name, words in ALWAYS.items()]
    rows += [("*" if found.current == each.name else "", each.name, each.url) for each in found.known.values()]
    documents = [
        {"name": name, "url": None if name in ALWAYS else url, "current": bool(mark)} for mark, name, url in rows
    ]
    answer(context, documents, lambda: table(["", "NAME", "URL"], rows))


@app.command(cls=WeftCommand)
def use(context: typer.Context, name: Name) -> None:
    """Choose the server that commands use from now on."""
    found = read()
    found.named(name)
    found.current = name
    write(found)
    spoken = ALWAYS.get(name, name)
    answer(context, {"current": name}, lambda: f"commands speak to {spoken} from now on")


@app.command(cls=WeftCommand)
def delete(context: typer.Context, name: Name) -> None:
    """Delete a context and its stored API key. The key stays valid until it is revoked on the server."""
    found = read()
    if found.named(name) is not None:
        del found.known[name]
        found.current = AUTO if found.current == name else found.current
        write(found)
    answer(context, {"deleted": name}, lambda: f"{name} is forgotten")


DAYS = 90


def login(
    context: typer.Context,
    url: Annotated[str, typer.Argument(metavar="URL", help="The URL of the server: https://weft.example.")],
    user: Annotated[str, typer.Option(metavar="NAME", help="The user to log in as; default: admin.")] = "admin",
    password_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A file with the password, instead of a prompt.")
    ] = None,
    key_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A file with an API key, instead of a password.")
    ] = None,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="Its name; default: its host.")] = None,
    ca_file: Annotated[str, typer.Option(metavar="FILE", help="Certificates to trust, in PEM.")] = "",
) -> None:
    """Log in to a server: commands use it from now on (`weft context` changes that)."""
    called = name or urlsplit(url).hostname or ""
    if not called or called in (AUTO, LOCAL) or not called.isprintable():
        allowed = f"it must be a text, and neither {AUTO!r} nor {LOCAL!r}; give one with --name"
        raise Invalid("the name of a context", called, allowed)
    ca_file = absolute("ca_file", ca_file)  # it is kept, and used in other folders
    token = _read_password(key_file) if key_file is not None else None
    password = "" if token is not None else _password(password_file, user)
    who = asyncio.run(_token(url, ca_file, user, password, token))
    found = read()
    found.known[called] = ServerContext(called, url.rstrip("/"), who[1], ca_file)
    found.current = called
    write(found)
    answer(
        context,
        {"context": called, "url": url, "name": who[0]},
        lambda: f"logged in to {url} as {who[0]}; commands speak to {called} from now on",
    )


async def _token(url: str, ca_file: str, user: str, password: str, token: str | None) -> tuple[str, str]:
    """Who we are there, and a key that says so."""
    from weft.client.connection import Connection

    if token is None:
        with_password = Connection(url, ca_file=ca_file, basic=(user, password))
        try:
            token = await _new_key(with_password)
        finally:
            await with_password.close()
    with_key = Connection(url, token, ca_file=ca_file)
    try:
        me: dict[str, Any] = await with_key.get(dict, "session")
    finally:
        await with_key.close()
    return user if password else str(me["name"]), token


async def _new_key(connection: Connection) -> str:
    """A key with all that its user may do, for some months."""
    me = await connection.get(dict, "session")
    expires_at = (datetime.now(UTC) + timedelta(days=DAYS)).isoformat(timespec="seconds")
    body = {"name": f"{me['name']} on {socket.gethostname()}"[:100], "grants": me["grants"], "expires_at": expires_at}
    made: dict[str, Any] = await connection.post(dict, "keys", body=body)
    return str(made["token"])


def _password(file: Path | None, user: str) -> str:
    return _read_password(file) if file is not None else getpass(f"Password of {user}: ")


def _read_password(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as problem:
        raise Invalid("file", str(file), f"it cannot be read: {problem}") from problem
