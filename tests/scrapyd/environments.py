"""Foreign tools that tests run beside weft, each set in an environment of its own in the checkout, made once.

``requirements/scrapyd.txt`` becomes ``.venv-scrapyd``. ``python -m tests.scrapyd.environments`` makes all that are
missing, which ``./dev test`` does before the first test; a test that finds none makes it.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
REQUIREMENTS = ROOT / "requirements"
OWN = ("build", "dev", "node")
"""What weft itself is made with; every other ``.in`` file there is of foreign tools."""


@dataclass(frozen=True, slots=True)
class Environment:
    """A Python with foreign packages at pinned versions, and nothing of weft."""

    name: str

    @property
    def folder(self) -> Path:
        return ROOT / f".venv-{self.name}"

    @property
    def lock(self) -> Path:
        return REQUIREMENTS / f"{self.name}.txt"

    def program(self, name: str) -> str:
        """A program of the environment, which is made where it is missing; ``program("python")`` is its Python."""
        self.install()
        return str(self._bin / name)

    def install(self) -> None:
        """Bring it to the pinned set: a stamp remembers what it holds. One process at a time may do so."""
        stamp = self.folder / ".stamp"
        wanted = hashlib.sha256(self.lock.read_bytes() + str(self.folder).encode()).hexdigest()
        with self.lock.open() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if stamp.exists() and stamp.read_text() == wanted:
                return
            sys.stderr.write(f"installing requirements/{self.lock.name} into {self.folder.name}, once\n")
            shutil.rmtree(self.folder, ignore_errors=True)
            # Our own pip installs for it: Debian ships Python without the pip that a new environment would get.
            subprocess.check_call([sys.executable, "-m", "venv", "--without-pip", self.folder])
            self._fill()
            stamp.write_text(wanted)

    def _fill(self) -> None:
        """uv only makes it faster: it does not read pip's configuration, so pip has the last word."""
        pinned = ["--quiet", "--quiet", "--require-hashes", "--requirement", str(self.lock)]
        python, silent = str(self._bin / "python"), subprocess.DEVNULL
        if shutil.which("uv"):
            environment = {"UV_SYSTEM_CERTS": "1", "UV_PYTHON_DOWNLOADS": "never"} | os.environ
            fast = ["uv", "pip", "install", "--compile-bytecode", "--python", python, *pinned]
            if subprocess.call(fast, env=environment, stdout=silent, stderr=silent) == 0:
                return
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python]
        subprocess.check_call([*pip, "install", *pinned], env=os.environ | {"PIP_ROOT_USER_ACTION": "ignore"})

    @property
    def _bin(self) -> Path:
        return self.folder / "bin"


SCRAPYD = Environment("scrapyd")
"""Scrapyd 1.6.0, scrapyd-client and python-scrapyd-api."""


def every() -> list[Environment]:
    return [Environment(path.stem) for path in sorted(REQUIREMENTS.glob("*.in")) if path.stem not in OWN]


if __name__ == "__main__":
    for environment in every():
        environment.install()
