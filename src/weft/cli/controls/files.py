"""Controls that are seen on the disk: keys, modes, sources."""

from __future__ import annotations

import ast
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import weft
from weft.access.sealing import Sealer, weakness
from weft.cli.controls.ground import Fault, Ground
from weft.cli.controls.processes import umasks
from weft.config import Config
from weft.errors import Misconfigured

WEAK = ("weft", "changeme", "8 bytes.", "a" * 64)
"""Keys that weft must refuse to start with."""

UNSAFE = {"pickle", "marshal", "shelve", "dill", "jsonpickle"}
"""Modules that run what they read."""

READS = {"eval", "exec", "yaml.load", "yaml.unsafe_load", "yaml.full_load"}
UMASK = 0o077


async def keys(ground: Ground) -> str:
    """C03: keys are made for this installation, are nobody else's to read, and weak ones are refused."""
    config = ground.config
    for key in WEAK:
        if _accepts(config.folder / "no-such-file", key):
            raise Fault("weft would start with a key that everybody knows or can guess")
    if config.secret_key:
        given = config.secret_key.replace(",", " ").split()
        for place, key in enumerate(given, 1):
            if why := weakness(key):
                raise Fault(
                    f"key {place} of secret_key must not be used: {why}", "take one from `openssl rand -hex 32`"
                )
        return f"{len(given)} keys are given by secret_key, and each is long and known to nobody"
    file = config.folder / "keys"
    if not file.exists():
        ground.scratch.app.sealer.newest()
        _check_file(ground.scratch.app.config.folder / "keys")
        return "no key is there yet; a scratch weft made one with 256 random bits and mode 600"
    return f"{_check_file(file)} keys are in {file}, mode 600, each as good as random; known and short ones are refused"


def _check_file(file: Path) -> int:
    """How many keys are in the file, which is its owner's alone."""
    if problem := _readable(file):
        raise Fault(problem, f"chmod 600 {file}")
    made = file.read_text(encoding="ascii", errors="replace").split()
    for place, key in enumerate(made, 1):
        if why := weakness(key):
            raise Fault(f"key {place} of {file} must not be used: {why}", "`weft secrets rotate` makes a new one")
    return len(made)


def _accepts(file: Path, key: str) -> bool:
    try:
        Sealer(file, key)
    except Misconfigured:
        return False
    return True


async def modes(ground: Ground) -> str:
    """C40: what is kept here is its owner's alone, and what is written next will be too."""
    config = ground.config
    looked = 0
    for path in _kept(config):
        looked += 1
        if problem := _readable(path):
            raise Fault(problem, f"chmod go-rwx {path}")
    if not looked:
        raise Fault(f"there is nothing at {config.folder}", "--data-dir tells where this weft is")
    found = await umasks(ground)
    for pid, umask in found.items():
        if umask & UMASK != UMASK:
            raise Fault(f"process {pid} writes files that others may read (umask {umask:03o})", "start it anew")
    told = f"{looked} files and directories at {config.folder} are their owner's alone"
    return f"{told}; {len(found)} processes write with umask 077" if found else f"{told}; no process of it runs here"


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


async def sources(ground: Ground) -> str:
    """C39: nothing that is read can become code: no pickle, no eval, no unsafe YAML, in all of weft's own source."""
    looked = 0
    for file in sorted(Path(weft.__file__).parent.rglob("*.py")):
        looked += 1
        text = file.read_text(encoding="utf-8")
        if any(word in text for word in (*UNSAFE, "eval(", "exec(", "yaml.")):
            for what, line in _unsafe(ast.parse(text)):
                raise Fault(f"{file.name}, line {line}: {what} makes code of what it reads")
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
