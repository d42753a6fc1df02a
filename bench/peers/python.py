"""The Python that peers run in: an environment of their own, so that weft's holds nothing but weft."""

import fcntl
import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
LOCK = ROOT / "bench" / "requirements-peers.txt"
VENV = ROOT / "bench" / ".venv-peers"


def program(name: str) -> str:
    """A program of the peers' environment; ``program("python")`` is its Python."""
    return str(VENV / "bin" / name)


def install() -> None:
    """Bring the environment to the pinned set, once: a stamp remembers what it holds. One at a time may do so."""
    stamp = VENV / ".stamp"
    wanted = hashlib.sha256(LOCK.read_bytes() + str(VENV).encode()).hexdigest()
    with LOCK.open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if stamp.exists() and stamp.read_text() == wanted:
            return
        print("installing the peers into bench/.venv-peers, once", file=sys.stderr, flush=True)
        shutil.rmtree(VENV, ignore_errors=True)
        # Our own pip installs for it: Debian ships Python without the pip that a new environment would get.
        subprocess.check_call([sys.executable, "-m", "venv", "--without-pip", VENV])
        pip = [sys.executable, "-m", "pip", "--quiet", "--quiet", "--python", program("python")]
        subprocess.check_call([*pip, "install", "--require-hashes", "--requirement", LOCK])
        stamp.write_text(wanted)
