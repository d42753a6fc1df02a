"""Security checks of files, users and sandboxes on this machine."""

from __future__ import annotations

import ast
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import weft
from weft.access.encryption import Encryptor, key_weakness
from weft.cli.security_checks.installation import CheckContext, CheckFailed, known_processes, umasks, users_of
from weft.config import Config
from weft.errors import Misconfigured
from weft.projects import store
from weft.user_code import KINDS, Reached, reached_by, stricter
from weft.worker_setup import has_bubblewrap

WEAK = ("weft", "changeme", "8 bytes.", "a" * 64)
"""Keys that weft must refuse to start with."""

UNSAFE = {"pickle", "marshal", "shelve", "dill", "jsonpickle"}
"""Modules that run what they read."""

READS = {"eval", "exec", "yaml.load", "yaml.unsafe_load", "yaml.full_load"}
UMASK = 0o077


async def keys(ground: CheckContext) -> str:
    """C03: keys are made for this installation, are nobody else's to read, and weak ones are refused."""
    config = ground.config
    for key in WEAK:
        if _accepts(config.folder / "no-such-file", key):
            raise CheckFailed("weft would start with a key that everybody knows or can guess")
    if config.secret_key:
        given = config.secret_key.replace(",", " ").split()
        for place, key in enumerate(given, 1):
            if why := key_weakness(key):
                raise CheckFailed(
                    f"key {place} of secret_key must not be used: {why}", "take one from `openssl rand -hex 32`"
                )
        return f"{len(given)} keys are given by secret_key, and each is long and known to nobody"
    file = config.folder / "keys"
    if not file.exists():
        ground.scratch.app.encryptor.newest()
        _check_file(ground.scratch.app.config.folder / "keys")
        return "no key is there yet; a scratch weft made one with 256 random bits and mode 600"
    return f"{_check_file(file)} keys are in {file}, mode 600, each as good as random; known and short ones are refused"


def _check_file(file: Path) -> int:
    """How many keys are in the file, which is its owner's alone."""
    if problem := _readable(file):
        raise CheckFailed(problem, f"chmod 600 {file}")
    made = file.read_text(encoding="ascii", errors="replace").split()
    for place, key in enumerate(made, 1):
        if why := key_weakness(key):
            raise CheckFailed(f"key {place} of {file} must not be used: {why}", "`weft secrets rotate` makes a new one")
    return len(made)


def _accepts(file: Path, key: str) -> bool:
    try:
        Encryptor(file, key)
    except Misconfigured:
        return False
    return True


async def modes(ground: CheckContext) -> str:
    """C40: what is kept here is its owner's alone, and what is written next will be too."""
    config = ground.config
    looked = 0
    for path in _kept(config):
        looked += 1
        if problem := _readable(path):
            raise CheckFailed(problem, f"chmod go-rwx {path}")
    if not looked:
        raise CheckFailed(f"there is nothing at {config.folder}", "--data-dir tells where this weft is")
    found = await umasks(ground)
    for pid, umask in found.items():
        if umask & UMASK != UMASK:
            raise CheckFailed(f"process {pid} writes files that others may read (umask {umask:03o})", "start it anew")
    told = f"{looked} files and directories of this weft, the outermost of each place, are their owner's alone"
    return f"{told}; {len(found)} processes write with umask 077" if found else f"{told}; no process of it runs here"


async def root(ground: CheckContext) -> str:
    """C35: none of its processes runs as root, whom no file mode stops."""
    found = users_of(await known_processes(ground))
    advice = "make a user for weft, give it the data directory, and start weft as that user"
    for pid, user in found.items():
        if user == 0:
            raise CheckFailed(f"process {pid} runs as root: what breaks out of a sandbox owns this machine", advice)
    if not found and os.geteuid() == 0:
        raise CheckFailed(
            "no process of this weft runs here, and who asks is root: weft should not be started so", advice
        )
    if not found:
        return "no process of this weft runs here, and who asks is not root"
    names = ", ".join(map(str, sorted(set(found.values()))))
    return f"{len(found)} processes run as user {names}, not as root"


def _kept(config: Config) -> Iterator[Path]:
    """The data directory, what lies in it and in those of its directories that are small, and what settings name."""
    if config.folder.exists():
        yield config.folder
        for path in sorted(config.folder.iterdir()):
            yield path
            if path.is_dir() and path.name in ("worker-keys", "doorbell", "spool"):
                yield from sorted(path.iterdir())
    scheme, _, file = config.database_url.partition("sqlite:///")
    if not scheme and file and not Path(file).is_relative_to(config.folder):
        yield from (path for path in (Path(file + end) for end in ("", "-wal", "-shm", "-queue")) if path.exists())
    places = (
        config.blobs_url.removeprefix("file:") if config.blobs_url.startswith("file:") else "",
        config.destinations_folder,
    )
    for place in map(Path, filter(None, places)):
        if place.exists() and not place.is_relative_to(config.folder):
            yield place
    private = config.tls_key or config.tls_certificate
    if private:
        yield Path(private)


def _readable(path: Path) -> str:
    """Who besides its owner may use a file, in a sentence; empty where nobody may."""
    found = path.lstat()
    if stat.S_ISLNK(found.st_mode):
        return ""
    if found.st_mode & 0o077:
        return f"{path} has mode {stat.S_IMODE(found.st_mode):03o}: others than its owner may use it"
    return "" if found.st_uid in (os.geteuid(), 0) else f"{path} belongs to user {found.st_uid}, not to who runs this"


async def sources(ground: CheckContext) -> str:
    """C39: nothing that is read can become code: no pickle, no eval, no unsafe YAML, in all of weft's own source."""
    looked = 0
    for file in sorted(Path(weft.__file__).parent.rglob("*.py")):
        looked += 1
        text = file.read_text(encoding="utf-8")
        if any(word in text for word in (*UNSAFE, "eval(", "exec(", "yaml.")):
            for what, line in _unsafe(ast.parse(text)):
                raise CheckFailed(f"{file.name}, line {line}: {what} makes code of what it reads")
    return f"none of {looked} source files unpickles, evaluates, or loads YAML that may name classes"


def _unsafe(tree: ast.AST) -> Iterator[tuple[str, int]]:
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    safe = {"yaml.SafeLoader", "yaml.CSafeLoader"}
    safe |= {each.name for each in classes if safe & {ast.unparse(parent) for parent in each.bases}}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((each.name, node.lineno) for each in node.names if each.name.partition(".")[0] in UNSAFE)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in UNSAFE:
            yield str(node.module), node.lineno
        elif isinstance(node, ast.Call) and (called := ast.unparse(node.func)) in READS:
            given = {ast.unparse(each) for each in (*node.args[1:], *(word.value for word in node.keywords))}
            if not (called == "yaml.load" and given & safe):
                yield called, node.lineno


WORLDS = ("spider", "shell")
"""Kinds whose runs may ask for more than L1."""
ADVICE = "use Linux 5.13 or newer with Landlock switched on; min_isolation of a project refuses its runs until then"


async def spiders(ground: CheckContext) -> str:
    """C43: spiders run in a sandbox; what this machine has no means to hold is named."""
    return await _told("spider", ground)


async def commands(ground: CheckContext) -> str:
    """C44: commands and scripts run in a sandbox, with the same parts."""
    return await _told("shell", ground)


async def checks(ground: CheckContext) -> str:
    """C45: code that is deployed is looked at in a sandbox."""
    return await _told("check", ground)


async def installs(ground: CheckContext) -> str:
    """C46: packages are installed in a sandbox, which reaches the package index alone."""
    return await _told("install", ground)


async def trust(ground: CheckContext) -> str:
    """C47: user code may do what an admin of all projects allowed, and the isolation that projects demand is there."""
    if ground.config.scrapyd_open:
        raise CheckFailed(
            "scrapyd_open lets the user code of every project call Scrapyd's API as a developer of all projects",
            "set scrapyd_open = false, and give its clients a password",
        )
    trusts = await ground.app.db.read(store.trusts)
    highest, floor = await _highest(ground), stricter(ground.config.min_isolation)
    demands = {
        "min_isolation": floor,
        **{f"project {name}": each.min_isolation for name, each in sorted(trusts.items())},
    }
    for who, demanded in demands.items():
        if stricter(demanded) > highest:
            raise CheckFailed(
                f"{who} demands isolation {demanded}, and this machine has {highest}: a worker here refuses its runs",
                "install bubblewrap" if highest == "L1" else ADVICE,
            )
    free = sorted(name for name, trusted in trusts.items() if trusted.may_run_unsandboxed)
    building = sorted(name for name, trusted in trusts.items() if trusted.may_build)
    limited = {name: trusted.ports for name, trusted in sorted(trusts.items()) if trusted.ports is not None}
    networks = [f"{name} ({', '.join(map(str, ports)) or 'none'})" for name, ports in limited.items()]
    return "; ".join(
        [
            f"may run without a sandbox, and so do anything here: {', '.join(free)}"
            if free
            else "no project may run without a sandbox",
            f"may build packages: {', '.join(building)}" if building else "no project may build packages",
            f"the network is limited to TCP ports for: {', '.join(networks)}"
            if networks
            else "every project has all of the network",
            f"every project is isolated by at least {floor}"
            if floor
            else "min_isolation demands nothing of all projects",
            f"the highest isolation here is {highest}",
            *(
                ["open_metrics lets user code on the machine of a gateway read the metrics of all projects"]
                if ground.config.open_metrics
                else []
            ),
        ]
    )


async def _told(kind: str, ground: CheckContext) -> str:
    reached, user = await _reached(kind, ground)
    meant = KINDS[kind]
    if reached.level == "L0":
        raise CheckFailed(f"{meant.what} have no sandbox here: {'; '.join(reached.missing)}", ADVICE)
    levels = reached.level
    if kind in WORLDS:
        levels += ", and L2 where it is asked for" if has_bubblewrap() else "; L2 is not there, bubblewrap is missing"
    held = f"reads {meant.reads}; writes {meant.writes}; reaches {meant.reaches}"
    lacks = f"; not held here: {'; '.join(reached.missing)}" if reached.missing else ""
    return f"{meant.what}, as {user}: {levels}; {held}{lacks}"


async def _highest(ground: CheckContext) -> str:
    reached, _ = await _reached("spider", ground)
    return "L2" if reached.level == "L1" and has_bubblewrap() else reached.level


async def _reached(kind: str, ground: CheckContext) -> tuple[Reached, str]:
    """Start a process of this kind that does nothing, as the user as whom weft runs here; what it reached."""
    owners = (
        set(users_of(await known_processes(ground)).values()) if not isinstance(ground.installed, Exception) else set()
    )
    user = min(owners, default=os.geteuid())
    landlock = ground.config.newest_landlock
    reached = await reached_by(kind, user=user if user != os.geteuid() == 0 else None, landlock=landlock)
    if not reached.level:
        raise RuntimeError(reached.failure)
    return reached, "root" if user == 0 else f"user {user}"
